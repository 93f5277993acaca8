//! The HTTP interface: routes, and what stands before each of them.
//!
//! A route is added with the [`Action`] that it asks for, and in no other way: who shows no key that counts, or one whose
//! role does not have the action, does not get as far as the route.
//!
//! - `asked`: what a path and a query say
//! - `admin`: tenants, for the operator, at a socket of its own
//! - `calls`: calls of tools
//! - `runs`: runs of agents, and their events
//! - `sessions`: what is recorded of turns of agents
//! - `own`: project, secrets and keys of one tenant
//! - `policy`: the policy, dry runs of another one, and plugins
//! - `reads`: tools, usage and audit log
//! - `files`: the files of a workspace
//! - `workspaces`: the workspaces of a tenant, and which one a request means
//! - `chat`: agents as models, in the form of OpenAI's chat completions
//! - `mcp`: the Model Context Protocol
//! - `webhooks`: where events are sent
//! - `openapi`: the description of the interface for programs
//! - `health`: whether the server lives, is ready, and what it counts
//! - `once`: requests that are repeated with the same `Idempotency-Key`

mod admin;
mod asked;
pub(crate) mod calls;
mod chat;
mod files;
mod health;
mod mcp;
mod once;
mod openapi;
pub(crate) mod own;
mod policy;
mod reads;
pub(crate) mod runs;
mod sessions;
mod webhooks;
pub(crate) mod workspaces;

pub(crate) use self::chat::BUCKET as CHATS;
pub(crate) use self::once::{BUCKET as ONCE, sweep};

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, Response, StatusCode};
use axum::middleware::{self, Next};
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, delete, get, post, put};
use harness_mcp::http::{ClientCertificate, Names};
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use crate::budget::Exceeded;
use crate::journal::{Note, Refusal};
use crate::problem::Problem;
use crate::rate::Standing;
use crate::role::{Action, Role};
use crate::server::Server;
use crate::tenant::{Key, Tenant};
use crate::tenants::now;

/// Bytes of the body of a request that is not an upload.
const MAX_BODY: usize = 4 << 20;
/// How long a client may take for a body.
const BODY: Duration = Duration::from_secs(60);
/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;
/// The draft of the IETF on rate limits, `draft-ietf-httpapi-ratelimit-headers`.
const RATE_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATE: HeaderName = HeaderName::from_static("ratelimit");

/// Who asks, once that is known.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// The key that was shown.
    pub(crate) key: Arc<Key>,
    /// Its tenant; none: the operator.
    tenant: Option<Arc<Tenant>>,
    /// The workspace that the header or the query of the request names.
    workspace: Option<String>,
}

impl Caller {
    /// One whose key was checked by other means than `Authorization`.
    pub(crate) fn new(key: Arc<Key>, tenant: Option<Arc<Tenant>>) -> Self {
        Self { key, tenant, workspace: None }
    }

    /// The tenant of the key.
    ///
    /// # Errors
    ///
    /// It is the operator's.
    pub(crate) fn tenant(&self) -> Result<&Arc<Tenant>, Problem> {
        self.tenant.as_ref().ok_or_else(|| Problem::forbidden(self.key.record.role.name()))
    }

    /// Whether this key sees what another one of its tenant has begun in a workspace. One with the role `caller` sees its own
    /// alone, and one that is narrowed to some workspaces what happens there.
    pub(crate) fn sees_of(&self, begun_by: &str, workspace: &str) -> bool {
        let key = &self.key.record;
        key.has_workspace(workspace) && (key.role != Role::Caller || key.id == begun_by)
    }
}

/// The interface of tenants. `names` are those that clients of the Model Context Protocol reach it under.
pub(crate) fn tenants(server: &Arc<Server>, names: Names) -> Router {
    let routes = Routes::described(server)
        .on("/v1/tools", Action::ReadTools, get(reads::tools))
        .on("/v1/tools/{name}/calls", Action::Call, post(calls::call))
        .on("/v1/runs", Action::Run, post(runs::begin))
        .on("/v1/runs", Action::ReadRuns, get(runs::list))
        .on("/v1/runs/{id}", Action::ReadRuns, get(runs::show))
        .on("/v1/runs/{id}", Action::Run, delete(runs::stop))
        .on("/v1/runs/{id}/events", Action::ReadRuns, get(runs::events))
        .on("/v1/sessions", Action::ReadRuns, get(sessions::list))
        .on("/v1/sessions/{id}", Action::ReadRuns, get(sessions::show))
        .on("/v1/sessions/{id}/turns", Action::Run, post(sessions::turn))
        .on("/v1/sessions/{id}/replay", Action::ReadRuns, post(sessions::replay))
        .on("/v1/approvals", Action::Approve, get(runs::approvals))
        .on("/v1/approvals/{id}", Action::Approve, post(runs::answer_question))
        .on("/v1/usage", Action::ReadUsage, get(reads::usage))
        .on("/v1/audit", Action::ReadAudit, get(reads::audit))
        .on("/v1/policy", Action::ReadPolicy, get(policy::show).post(policy::dry_run))
        .on("/v1/plugins", Action::ReadPolicy, get(policy::plugins))
        .on("/v1/files", Action::ReadFiles, get(files::list))
        .on("/v1/files/{*path}", Action::ReadFiles, get(files::read))
        .on("/v1/files/{*path}", Action::WriteFiles, put(files::write).delete(files::remove))
        .on("/v1/workspaces", Action::ReadTools, get(workspaces::list))
        .on("/v1/workspaces", Action::ManageWorkspaces, post(workspaces::create))
        .on("/v1/workspaces/{name}", Action::ManageWorkspaces, delete(workspaces::remove))
        .on("/v1/project", Action::ReadTools, get(own::project))
        .on("/v1/project", Action::WriteProject, put(own::upload))
        .on("/v1/secrets", Action::WriteSecrets, get(own::secrets))
        .on("/v1/secrets/{name}", Action::WriteSecrets, put(own::set_secret).delete(own::remove_secret))
        .on("/v1/keys", Action::ManageKeys, get(own::keys).post(own::create_key))
        .on("/v1/keys/{id}", Action::ManageKeys, delete(own::remove_key))
        .on("/v1/webhooks", Action::ManageWebhooks, get(webhooks::list).post(webhooks::create))
        .on(
            "/v1/webhooks/{id}",
            Action::ManageWebhooks,
            get(webhooks::show).patch(webhooks::change).delete(webhooks::remove),
        )
        .on("/v1/webhooks/{id}/secret", Action::ManageWebhooks, post(webhooks::rotate))
        .on("/v1/webhooks/{id}/test", Action::ManageWebhooks, post(webhooks::test))
        .on("/v1/webhooks/{id}/deliveries", Action::ManageWebhooks, get(webhooks::deliveries))
        .on("/v1/models", Action::Run, get(chat::models))
        .on("/v1/chat/completions", Action::Run, post(chat::complete))
        .on("/mcp", Action::Call, post(mcp::message).layer(Extension(names)));
    routes
        .open("/healthz", get(health::lives))
        .open("/readyz", get(health::is_ready))
        .open("/openapi.json", get(openapi::show))
        .finish()
}

/// The interface of the operator.
pub(crate) fn operator(server: &Arc<Server>) -> Router {
    Routes::new(server)
        .on("/admin/v1/tenants", Action::Administer, get(admin::list).post(admin::create))
        .on("/admin/v1/tenants/{id}", Action::Administer, get(admin::show).patch(admin::change).delete(admin::remove))
        .on("/admin/v1/tenants/{id}/project", Action::Administer, put(admin::upload))
        .on("/admin/v1/tenants/{id}/secrets/{name}", Action::Administer, put(admin::set_secret))
        .on(
            "/admin/v1/tenants/{id}/workspaces",
            Action::Administer,
            get(workspaces::of_tenant).post(workspaces::create_of),
        )
        .on("/admin/v1/tenants/{id}/workspaces/{name}", Action::Administer, delete(workspaces::remove_of))
        .on("/admin/v1/tenants/{id}/keys", Action::Administer, get(admin::keys).post(admin::create_key))
        .on("/admin/v1/tenants/{id}/keys/{key}", Action::Administer, delete(admin::remove_key))
        .on("/admin/v1/keys", Action::Administer, get(admin::own_keys).post(admin::create_own_key))
        .on("/admin/v1/keys/{key}", Action::Administer, delete(admin::remove_own_key))
        .on("/admin/v1/backup", Action::Administer, post(admin::backup))
        .on("/admin/v1/audit", Action::Administer, get(admin::audit))
        .on("/metrics", Action::Administer, get(health::metrics))
        .open("/healthz", get(health::lives))
        .open("/readyz", get(health::is_ready))
        .finish()
}

/// Routes, each with what it asks for.
struct Routes {
    server: Arc<Server>,
    router: Router<Arc<Server>>,
    /// Whether only paths are served that `/openapi.json` describes.
    are_described: bool,
}

impl Routes {
    fn new(server: &Arc<Server>) -> Self {
        Self { server: server.clone(), router: Router::new(), are_described: false }
    }

    /// Routes that `/openapi.json` describes. One that it does not is not there: nobody can forget it.
    fn described(server: &Arc<Server>) -> Self {
        Self { are_described: true, ..Self::new(server) }
    }

    /// A route for keys whose role has this action.
    fn on(self, path: &str, action: Action, route: MethodRouter<Arc<Server>>) -> Self {
        if self.are_described && !openapi::describes(path, Some(action)) {
            return self;
        }
        let guard = middleware::from_fn_with_state((self.server.clone(), action), enter);
        Self { router: self.router.route(path, route.route_layer(guard)), ..self }
    }

    /// A route for everybody.
    fn open(self, path: &str, route: MethodRouter<Arc<Server>>) -> Self {
        if self.are_described && !openapi::describes(path, None) {
            return self;
        }
        Self { router: self.router.route(path, route), ..self }
    }

    fn finish(self) -> Router {
        let nothing =
            || async { Problem::not_found("there is nothing at this path").hint("`docs/api.md` lists the paths") };
        let wrong = || async { Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method", "this path has no such method") };
        let counted = middleware::from_fn_with_state(self.server.clone(), count);
        self.router.fallback(nothing).method_not_allowed_fallback(wrong).layer(counted).with_state(self.server)
    }
}

/// Lets requests in that show a key with the role for them, as often as they may come.
async fn enter(
    State((server, action)): State<(Arc<Server>, Action)>,
    mut request: Request,
    next: Next,
) -> Response<Body> {
    let shown = match bearer(request.headers()) {
        Ok(shown) => shown,
        Err(problem) => return problem.into_response(),
    };
    let certificate = request.extensions().get::<ClientCertificate>();
    let Some((key, tenant)) = server.tenants.authenticate(shown, now(), certificate) else {
        let (why, tenant) = server.tenants.why_refused(shown, now(), certificate);
        server.journal.refuse(shown, why, tenant.as_deref(), request.uri(), server.monotonic());
        return Problem::unauthorized().into_response();
    };
    if !key.record.may(action) {
        if action == Action::Administer {
            let tenant = key.record.tenant.as_deref();
            server.journal.refuse(shown, Refusal::Role, tenant, request.uri(), server.monotonic());
        }
        if key.record.role.may(action) {
            return workspaces::of_whole_tenant().into_response();
        }
        return Problem::forbidden(key.record.role.name()).into_response();
    }
    let Some(tenant) = tenant else {
        request.extensions_mut().insert(Caller::new(key.clone(), None));
        return recorded(&server, &key, request, next).await;
    };
    let workspace = match workspaces::taken(&mut request, action) {
        Ok(workspace) => workspace,
        Err(problem) => return problem.into_response(),
    };
    let (rate, class) = (tenant.requests.rate(), tenant.class.clone());
    let (taken, id) = (tenant.requests.take(server.monotonic()), tenant.id());
    request.extensions_mut().insert(Caller { key, tenant: Some(tenant), workspace });
    let (mut response, Standing { left, again }) = match taken {
        // A call leaves its thread by itself, if it computes for long.
        Ok(standing) if action == Action::Call => (next.run(request).await, standing),
        Ok(standing) => {
            let answered = server.aside(next.run(request)).await;
            (answered.unwrap_or_else(|| Problem::fault().into_response()), standing)
        }
        Err(standing) => {
            let set_by = format!("the class `{}` of the tenant", class.name);
            let problem = Problem::too_many(rate.per_minute, &set_by, standing.again.div_ceil(SECOND));
            (problem.into_response(), standing)
        }
    };
    if let Some(exceeded) = response.extensions().get::<Exceeded>().cloned() {
        server.webhooks.exhausted(&server, &id, &exceeded).await;
    }
    let policy = format!("\"requests\";q={};w=60", rate.per_minute);
    let now = format!("\"requests\";r={left};t={}", again.div_ceil(SECOND));
    for (name, value) in [(RATE_POLICY, policy), (RATE, now)] {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// Answers a request of the operator. One that changes something is in the audit log of the server, before and after.
async fn recorded(server: &Server, key: &Key, request: Request, next: Next) -> Response<Body> {
    if request.method().is_safe() {
        return next.run(request).await;
    }
    let begun = match server.journal.begin(&key.record, request.method(), request.uri()).await {
        Ok(begun) => begun,
        Err(problem) => return problem.into_response(),
    };
    let response = next.run(request).await;
    match server.journal.end(begun, response.status(), response.extensions().get::<Note>()).await {
        Ok(()) => response,
        Err(problem) => problem.into_response(),
    }
}

/// An answer to a change, with what the audit log of the server says of it.
fn noted(mut response: Response<Body>, details: Json) -> Response<Body> {
    response.extensions_mut().insert(Note(details));
    response
}

/// What is shown in `Authorization`.
fn bearer(headers: &HeaderMap) -> Result<&str, Problem> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (first, second) = (values.next(), values.next());
    let shown = first.filter(|_| second.is_none()).and_then(|value| value.to_str().ok());
    let (scheme, key) = shown.and_then(|shown| shown.split_once(' ')).ok_or_else(Problem::unauthorized)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(key.trim()) } else { Err(Problem::unauthorized()) }
}

/// Counts each answer, and sets the headers that all have. One that is not JSON of this interface is not looked at as
/// anything else by a browser either.
async fn count(State(server): State<Arc<Server>>, request: Request, next: Next) -> Response<Body> {
    let began = Instant::now();
    let mut response = next.run(request).await;
    server.metrics.answered(response.status(), began.elapsed());
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Reads a body of so many bytes at most.
async fn read(body: Body, most: usize) -> Result<Bytes, Problem> {
    match tokio::time::timeout(BODY, to_bytes(body, most)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => {
            let why = format!("the body was cut short, or has more than {most} bytes");
            Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", why))
        }
        Err(_) => Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "slow", "the body took over 60 seconds")),
    }
}

/// Reads a body of JSON. A name that an object has twice is refused: two programs could read two requests in it.
fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let text = std::str::from_utf8(bytes).map_err(|_| Problem::invalid("the body is not UTF-8 text"))?;
    let json = harness_artifact::json::parse(text, "the body is").map_err(Problem::invalid)?;
    serde_json::from_value(json).map_err(|why| Problem::invalid(format!("the body: {why}")))
}

/// An answer of JSON.
pub(crate) fn answer(status: StatusCode, json: &Json) -> Response<Body> {
    let mut response = Response::new(Body::from(json.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
