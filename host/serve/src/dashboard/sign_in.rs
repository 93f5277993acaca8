//! In and out: by a key that is typed, or by a link that works once.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, Response, StatusCode, Uri};
use harness_mcp::http::ClientCertificate;
use maud::html;

use super::guard::{self, Visitor, redirect};
use super::session::Token;
use super::{Desk, Page, Refusal, layout};
use crate::journal::Refusal as Refused;
use crate::key::id_of;
use crate::problem::Problem;
use crate::tenants::now;

/// The cookie that the form for signing in is bound to: before there is a session, there is nothing else.
const BEFORE: &str = "sign-in";

/// The token of the form, which is in the cookie already or is put there.
fn before(desk: &Desk, headers: &HeaderMap) -> Token {
    desk.token(headers, BEFORE).unwrap_or_else(Token::random)
}

fn with_cookie(desk: &Desk, mut response: Response<Body>, of: &str, value: &str) -> Response<Body> {
    if let Some(cookie) = desk.cookie(of, value) {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
    response
}

pub(super) async fn show(
    State(desk): State<Arc<Desk>>,
    certificate: Option<Extension<ClientCertificate>>,
    headers: HeaderMap,
) -> Page {
    let certificate = certificate.map(|Extension(certificate)| certificate);
    if desk.visitor(&headers, certificate.as_ref(), true).is_some() {
        return Ok(redirect("/dashboard"));
    }
    let token = before(&desk, &headers);
    let whose = if desk.is_operators { "A key of the operator" } else { "Key of the tenant" };
    let main = html! {
        h1 { "Sign in" }
        form method="post" action="/dashboard/sign-in" class="card" {
            input type="hidden" name="form" value=(token.of_forms());
            label for="key" { (whose) }
            input id="key" name="key" type="password" autocomplete="current-password" required spellcheck="false"
                placeholder="hk_...";
            button { "Sign in" }
        }
        p class="faint" { "The session ends after 30 minutes without a request, after 12 hours, and when the key or the server does." }
    };
    Ok(with_cookie(&desk, layout::plain(&desk, "Sign in", &main), BEFORE, &token.0))
}

pub(super) async fn sign_in(
    State(desk): State<Arc<Desk>>,
    certificate: Option<Extension<ClientCertificate>>,
    headers: HeaderMap,
    body: Body,
) -> Page {
    let certificate = certificate.map(|Extension(certificate)| certificate);
    guard::is_own(&headers)?;
    let form = guard::form(&headers, body, &before(&desk, &headers)).await?;
    let shown = form.field("key")?.trim();
    let tenants = &desk.server.tenants;
    let found = tenants.authenticate(shown, now(), certificate.as_ref());
    let is_known = found.is_some();
    // The right key is let in, however many wrong ones came before: who knows its identifier locks nobody out.
    let Some((key, _)) = found.filter(|(_, tenant)| tenant.is_none() == desk.is_operators) else {
        let id = id_of(shown).filter(|id| tenants.has_key(id));
        if let Err(again) = desk.server.dashboard.attempt(id, desk.server.monotonic()) {
            let why = "there were too many attempts to sign in";
            let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", why);
            return Err(Refusal::of(
                problem.with("limit", "sign-in").hint(format!("try again in {again} s")).again(again),
            ));
        }
        let (why, tenant) = match is_known {
            true => (Refused::Role, None),
            false => tenants.why_refused(shown, now(), certificate.as_ref()),
        };
        let path = Uri::from_static("/dashboard/sign-in");
        desk.server.journal.refuse(shown, why, tenant.as_deref(), &path, desk.server.monotonic());
        return Err(refused(&desk));
    };
    desk.server.dashboard.succeeded(&key.record.id);
    Ok(begin(&desk, &headers, &key.record.id))
}

/// The key is wrong. Which part of it is not said.
fn refused(desk: &Desk) -> Refusal {
    let what = "the key is unknown or expired, or belongs to a suspended tenant";
    let hint = match desk.is_operators {
        true => "sign in with a key of the operator here; tenants sign in at the server's other address",
        false => "sign in with a key of a tenant here; the operator signs in at the address of `--operator-dashboard`",
    };
    Refusal::of(Problem::new(StatusCode::FORBIDDEN, "unauthorized", what).hint(hint))
}

/// Begins a session, with a new cookie instead of any that there is.
fn begin(desk: &Desk, headers: &HeaderMap, key: &str) -> Response<Body> {
    if let Some(old) = desk.token(headers, "session") {
        desk.server.dashboard.end(&old);
    }
    let token = desk.server.dashboard.begin(key, desk.clock());
    let response = with_cookie(desk, redirect("/dashboard"), "session", &token.0);
    with_cookie(desk, response, BEFORE, "")
}

pub(super) async fn sign_out(State(desk): State<Arc<Desk>>, Extension(visitor): Extension<Visitor>) -> Page {
    desk.server.dashboard.end(&visitor.token);
    Ok(with_cookie(&desk, redirect("/dashboard/sign-in"), "session", ""))
}

/// The link is wrong, was used, or is too old. Which one is not said.
fn used_up() -> Refusal {
    let problem = Problem::not_found("the link was used already, is over 10 minutes old, or is not of this server");
    Refusal::of(problem.hint("sign in with a key at `/dashboard/sign-in`"))
}

/// A link only shows: programs that look at addresses before a person does sign in nowhere.
pub(super) async fn link(State(desk): State<Arc<Desk>>, Path(link): Path<String>, headers: HeaderMap) -> Page {
    let parsed = Token::parse(&link).filter(|link| desk.server.dashboard.has_link(link, desk.clock()));
    let link = parsed.ok_or_else(used_up)?;
    let token = before(&desk, &headers);
    let main = html! {
        h1 { "Sign in" }
        form method="post" action={ "/dashboard/link/" (link.0) } class="card" {
            input type="hidden" name="form" value=(token.of_forms());
            p { "This link signs you in once." }
            button { "Sign in" }
        }
    };
    Ok(with_cookie(&desk, layout::plain(&desk, "Sign in", &main), BEFORE, &token.0))
}

pub(super) async fn use_link(
    State(desk): State<Arc<Desk>>,
    Path(link): Path<String>,
    certificate: Option<Extension<ClientCertificate>>,
    headers: HeaderMap,
    body: Body,
) -> Page {
    let certificate = certificate.map(|Extension(certificate)| certificate);
    guard::is_own(&headers)?;
    // A form that is refused does not use the link up.
    guard::form(&headers, body, &before(&desk, &headers)).await?;
    let link = Token::parse(&link).ok_or_else(used_up)?;
    let key = desk.server.dashboard.take_link(&link, desk.clock()).ok_or_else(used_up)?;
    let found = desk.server.tenants.key_in_force(&key, now());
    let found = found.filter(|(_, tenant)| tenant.is_none() == desk.is_operators);
    found.filter(|(key, _)| key.record.comes_by(certificate.as_ref())).ok_or_else(used_up)?;
    Ok(begin(&desk, &headers, &key))
}
