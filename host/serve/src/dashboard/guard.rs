//! What each request has to pass before a page is made, and the headers that every answer has.

use std::sync::Arc;
use std::time::Instant;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, HOST, HeaderName, HeaderValue, LOCATION, ORIGIN,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, Method, Response, StatusCode};
use axum::middleware::Next;
use axum::response::IntoResponse;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use harness_mcp::http::ClientCertificate;
use harness_store::StoreError;
use subtle::ConstantTimeEq as _;
use tokio_util::sync::CancellationToken;

use super::session::Token;
use super::{Desk, Page, layout};
use crate::api::Caller;
use crate::problem::Problem;
use crate::role::Action;
use crate::tenants::now;

/// Bytes of a form. A secret is the longest text in one, and may be three times as long in it.
const MAX_FORM: usize = 64 << 10;
/// The header of what a page asks for by itself. It keeps no session alive.
const LIVE: HeaderName = HeaderName::from_static("harness-live");
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const PERMISSIONS: HeaderName = HeaderName::from_static("permissions-policy");
/// The policies that keep other sites out of a page's process, and its answers out of theirs.
const APART: [(HeaderName, &str); 3] = [
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-embedder-policy"), "require-corp"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Someone who is signed in.
#[derive(Debug, Clone)]
pub(super) struct Visitor {
    /// With which key.
    pub(super) caller: Caller,
    /// What the forms of the pages have in them.
    pub(super) form: String,
    /// The cookie.
    pub(super) token: Arc<Token>,
    /// Cancelled when the session ends.
    pub(super) ended: CancellationToken,
}

impl Visitor {
    /// Whether the role of the key has an action.
    pub(super) fn may(&self, action: Action) -> bool {
        self.caller.key.record.may(action)
    }
}

/// The fields of a form, whose token was checked.
#[derive(Debug, Clone)]
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// The value of a field. Of a name that is there twice, nobody knows which one is meant.
    pub(super) fn field(&self, name: &str) -> Result<&str, Refusal> {
        let mut values = self.0.iter().filter(|(other, _)| other == name);
        match (values.next(), values.next()) {
            (Some((_, value)), None) => Ok(value),
            _ => Err(Refusal::of(Problem::invalid(format!("the form needs the field `{name}` once")))),
        }
    }
}

/// Why there is no page. It is answered as a page of its own, or as the way to sign in.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Nobody is signed in.
    SignIn,
    /// Anything else.
    Problem(Problem),
}

impl Refusal {
    pub(super) fn of(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Problem(error.into())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response<Body> {
        match self {
            Self::SignIn => redirect("/dashboard/sign-in"),
            Self::Problem(problem) => layout::problem(&problem),
        }
    }
}

/// The way to another page, after a form was sent or where nobody is signed in.
pub(super) fn redirect(to: &str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    if let Ok(to) = HeaderValue::from_str(to) {
        response.headers_mut().insert(LOCATION, to);
    }
    response
}

impl Desk {
    /// The name of a cookie. Browsers set one that begins with `__Host-` only over TLS, for this host and every path.
    pub(super) fn cookie_name(&self, of: &str) -> String {
        let prefix = if self.is_secure { "__Host-" } else { "" };
        // Cookies know no ports: those of two addresses of one host must not replace each other.
        let desk = if self.is_operators { "operator-" } else { "" };
        format!("{prefix}harness-{desk}{of}")
    }

    /// A cookie as it is set; without a value it is removed.
    pub(super) fn cookie(&self, of: &str, value: &str) -> Option<HeaderValue> {
        let secure = if self.is_secure { "; Secure" } else { "" };
        let age = if value.is_empty() { "; Max-Age=0" } else { "" };
        let name = self.cookie_name(of);
        HeaderValue::from_str(&format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{age}")).ok()
    }

    /// The token of a cookie. One that a request has twice was put there by another site of the same domain.
    pub(super) fn token(&self, headers: &HeaderMap, of: &str) -> Option<Token> {
        let name = self.cookie_name(of);
        let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let mut values = pairs.filter(|(other, _)| *other == name).map(|(_, value)| value);
        let first = values.next()?;
        if values.next().is_some() { None } else { Token::parse(first) }
    }

    /// Milliseconds of a clock that does not go back.
    pub(super) fn clock(&self) -> u64 {
        self.server.monotonic() / 1_000_000
    }

    /// Who is signed in with the cookie of a request, whose connection has shown this certificate. A session ends with its key.
    pub(super) fn visitor(
        &self,
        headers: &HeaderMap,
        certificate: Option<&ClientCertificate>,
        uses: bool,
    ) -> Option<Visitor> {
        let token = self.token(headers, "session")?;
        let visit = self.server.dashboard.visit(&token, self.clock(), uses)?;
        let found = self.server.tenants.key_in_force(&visit.key, now());
        let Some((key, tenant)) = found.filter(|(_, tenant)| tenant.is_none() == self.is_operators) else {
            self.server.dashboard.end(&token);
            return None;
        };
        // The cookie alone is not enough where the key was not.
        if !key.record.comes_by(certificate) {
            return None;
        }
        if uses {
            key.touch(now());
        }
        let caller = Caller::new(key, tenant);
        Some(Visitor { caller, form: token.of_forms(), token: Arc::new(token), ended: visit.ended })
    }
}

/// That a form was sent by a page of this server. Every browser says where it comes from; what says nothing is none.
pub(super) fn is_own(headers: &HeaderMap) -> Result<(), Refusal> {
    let foreign = |why: &str| {
        let problem = Problem::new(StatusCode::FORBIDDEN, "cross_origin", format!("the form was sent by {why}"));
        Err(Refusal::of(problem.hint("open the dashboard in this browser and send the form from there")))
    };
    let one = |name: &HeaderName| {
        let mut values = headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(value), None) => Ok(value.to_str().ok()),
            _ => Err(()),
        }
    };
    let (Ok(site), Ok(origin), Ok(Some(host))) = (one(&FETCH_SITE), one(&ORIGIN), one(&HOST)) else {
        return foreign("a program whose headers contradict each other");
    };
    // Without the scheme: a proxy that has TLS is asked by it, and asks without.
    let is_host = |origin: &str| origin.split_once("://").is_some_and(|(_, of)| of.eq_ignore_ascii_case(host));
    match (site, origin) {
        (None, None) => foreign("a program that does not name its origin"),
        // These pages send no referrer, and browsers that keep to that hide the origin of their forms too.
        (Some("same-origin"), None | Some("null")) => Ok(()),
        (None | Some("same-origin"), Some(origin)) if is_host(origin) => Ok(()),
        _ => foreign("another site"),
    }
}

/// Reads a form, and checks that it was made for this cookie.
pub(super) async fn form(headers: &HeaderMap, body: Body, token: &Token) -> Result<Form, Refusal> {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().map(str::trim) != Some("application/x-www-form-urlencoded") {
        let problem = Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid", "the body is not that of a form");
        return Err(Refusal::of(problem));
    }
    let read = tokio::time::timeout(std::time::Duration::from_secs(30), to_bytes(body, MAX_FORM)).await;
    let Ok(Ok(bytes)) = read else {
        let why = format!("the form was cut short, or has more than {MAX_FORM} bytes");
        return Err(Refusal::of(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", why)));
    };
    let form = Form(url::form_urlencoded::parse(&bytes).into_owned().collect());
    let shown = form.field("form").unwrap_or_default();
    let is_right: bool = shown.as_bytes().ct_eq(token.of_forms().as_bytes()).into();
    if !is_right {
        let problem = Problem::new(StatusCode::FORBIDDEN, "form_token", "the form is not of this session");
        return Err(Refusal::of(problem.hint("open the page again, and send the form that it shows then")));
    }
    Ok(form)
}

/// Lets those in who are signed in with the role for a page, as often as they may come. A form is read before its page.
pub(super) async fn enter(
    State((desk, action)): State<(Arc<Desk>, Option<Action>)>,
    mut request: Request,
    next: Next,
) -> Page {
    let is_form = request.method() == Method::POST;
    if is_form {
        is_own(request.headers())?;
    }
    let uses = !request.headers().contains_key(LIVE);
    let certificate = request.extensions().get::<ClientCertificate>();
    let visitor = desk.visitor(request.headers(), certificate, uses);
    let Some(visitor) = visitor else { return Err(Refusal::SignIn) };
    if action.is_some_and(|action| !visitor.may(action)) {
        return Err(Refusal::of(Problem::forbidden(visitor.caller.key.record.role.name())));
    }
    if let Ok(tenant) = visitor.caller.tenant()
        && let Err(standing) = tenant.requests.take(desk.server.monotonic())
    {
        let set_by = format!("the class `{}` of the tenant", tenant.class.name);
        let again = standing.again.div_ceil(1_000_000_000);
        return Err(Refusal::of(Problem::too_many(tenant.requests.rate().per_minute, &set_by, again)));
    }
    if is_form {
        let headers = request.headers().clone();
        let body = std::mem::take(request.body_mut());
        let form = form(&headers, body, &visitor.token).await?;
        request.extensions_mut().insert(form);
    }
    request.extensions_mut().insert(visitor);
    desk.server.aside(next.run(request)).await.ok_or_else(|| Refusal::of(Problem::fault()))
}

/// There is no such page.
pub(super) async fn nothing() -> Refusal {
    Refusal::of(Problem::not_found("there is no such page"))
}

/// Counts an answer, and sets the headers that all have.
pub(super) async fn headers(State(desk): State<Arc<Desk>>, request: Request, next: Next) -> Response<Body> {
    let began = Instant::now();
    let mut response = next.run(request).await;
    desk.server.metrics.answered(response.status(), began.elapsed());
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, desk.policy.clone());
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers
        .insert(PERMISSIONS, HeaderValue::from_static("camera=(), geolocation=(), microphone=(), payment=(), usb=()"));
    for (name, value) in APART {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The digest of a text, as `integrity` and a policy have it.
pub(super) fn integrity(text: &str) -> String {
    let digest = harness_sys::digest::digest(text);
    let digits = digest.strip_prefix("sha256:").unwrap_or(&digest);
    let byte = |at: usize| digits.get(at..at.saturating_add(2)).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    let bytes: Vec<u8> = (0..digits.len()).step_by(2).filter_map(byte).collect();
    format!("sha256-{}", STANDARD.encode(bytes))
}

/// What a browser may load for a page: style and icon of this server, the one script by its digest, and what that asks for.
pub(super) fn policy(script: &str) -> HeaderValue {
    let policy = format!(
        "default-src 'none'; style-src 'self'; script-src '{script}'; connect-src 'self'; img-src 'self'; \
         form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    );
    HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"))
}
