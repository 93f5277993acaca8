//! The dashboard: pages for people, made by the server, which work without a script.
//!
//! - `session`: who is signed in
//! - `guard`: what each request has to pass before a page is made
//! - `layout`: what all pages have
//! - `sign_in`: by key or by a link, and out again
//! - `overview`, `plot`: how a tenant is, and what it has used
//! - `runs`, `events`: runs, and one of them as it happens
//! - `approvals`: questions whether calls may be made
//! - `audit`, `explain`: what was called, and why a call was refused
//! - `project`: plugins and tools, with what they asked for
//! - `own`: keys, and the names of secrets
//! - `operator`: all tenants, and how they share the machine
//!
//! A page is added with the [`Action`] that it asks for, as a route of the API is, and in no other way. What a role may not
//! ask of the API it does not see here either.

mod approvals;
mod audit;
mod events;
mod explain;
mod guard;
mod layout;
mod operator;
mod overview;
mod own;
mod plot;
mod project;
mod runs;
mod session;
mod sign_in;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::Response;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::middleware;
use axum::routing::{MethodRouter, get, post};

pub(crate) use self::guard::Refusal;
pub(crate) use self::session::Sessions;
use crate::role::Action;
use crate::server::Server;

/// The style of all pages: that of a session's page, whose rows they show, and their own.
const STYLE: &str = include_str!("dashboard/style.css");
/// The only script. It asks for a part of the page again when something happened.
const SCRIPT: &str = include_str!("dashboard/live.js");

/// The icon in a browser's tab.
const ICON: &str = include_str!("dashboard/icon.svg");

/// What the pages of one address have in common.
#[derive(Debug)]
pub(crate) struct Desk {
    server: Arc<Server>,
    /// Whether keys of the operator sign in here, or those of tenants. Never both.
    is_operators: bool,
    /// Whether browsers get here by TLS alone, so that cookies can be bound to it.
    is_secure: bool,
    /// The policy of all pages for what a browser may load.
    policy: HeaderValue,
    /// The digest of the script, as `integrity` has it.
    integrity: String,
}

type Page = Result<Response<Body>, Refusal>;

impl Desk {
    fn new(server: &Arc<Server>, is_operators: bool, is_secure: bool) -> Arc<Self> {
        let integrity = guard::integrity(SCRIPT);
        Arc::new(Self { server: server.clone(), is_operators, is_secure, policy: guard::policy(&integrity), integrity })
    }
}

/// The pages of tenants.
pub(crate) fn of_tenants(server: &Arc<Server>, is_secure: bool) -> Router {
    Pages::new(Desk::new(server, false, is_secure))
        .on("/dashboard", None, get(overview::show))
        .on("/dashboard/runs", Some(Action::ReadRuns), get(runs::list))
        .on("/dashboard/runs/{id}", Some(Action::ReadRuns), get(runs::show))
        .on("/dashboard/runs/{id}/events", Some(Action::ReadRuns), get(events::stream))
        .on("/dashboard/runs/{id}/stop", Some(Action::Run), post(runs::stop))
        .on("/dashboard/approvals", Some(Action::Approve), get(approvals::list))
        .on("/dashboard/approvals/{id}", Some(Action::Approve), post(approvals::answer))
        .on("/dashboard/audit", Some(Action::ReadAudit), get(audit::list))
        .on("/dashboard/audit/{seq}", Some(Action::ReadAudit), get(audit::show))
        .on("/dashboard/audit/{seq}/try", Some(Action::ReadPolicy), post(audit::try_out))
        .on("/dashboard/project", Some(Action::ReadPolicy), get(project::show))
        .on("/dashboard/keys", Some(Action::ManageKeys), get(own::keys).post(own::create_key))
        .on("/dashboard/keys/{id}/remove", Some(Action::ManageKeys), post(own::remove_key))
        .on("/dashboard/secrets", Some(Action::WriteSecrets), get(own::secrets).post(own::set_secret))
        .on("/dashboard/secrets/{name}/remove", Some(Action::WriteSecrets), post(own::remove_secret))
        .finish()
}

/// The pages of the operator.
pub(crate) fn of_operator(server: &Arc<Server>) -> Router {
    Pages::new(Desk::new(server, true, false))
        .on("/dashboard", Some(Action::Administer), get(operator::tenants))
        .on("/dashboard/tenants/{id}", Some(Action::Administer), get(operator::tenant))
        .on("/dashboard/neighbours", Some(Action::Administer), get(operator::neighbours))
        .finish()
}

/// Pages, each with what it asks for.
struct Pages {
    desk: Arc<Desk>,
    router: Router<Arc<Desk>>,
}

impl Pages {
    /// With those that all addresses have.
    fn new(desk: Arc<Desk>) -> Self {
        let open = |path: &'static str, kind: &'static str, text: String| {
            (path, get(move || std::future::ready(file(kind, text.clone()))))
        };
        let style = format!("{}\n{STYLE}", harness_session::html::STYLE);
        let mut router = Router::new()
            .route("/dashboard/sign-in", get(sign_in::show).post(sign_in::sign_in))
            .route("/dashboard/link/{token}", get(sign_in::link).post(sign_in::use_link))
            .route("/dashboard/{*rest}", get(guard::nothing).post(guard::nothing));
        for (path, page) in [
            open("/dashboard/style.css", "text/css; charset=utf-8", style),
            open("/dashboard/live.js", "text/javascript; charset=utf-8", SCRIPT.to_owned()),
            open("/dashboard/icon.svg", "image/svg+xml", ICON.to_owned()),
        ] {
            router = router.route(path, page);
        }
        Self { desk, router }.on("/dashboard/sign-out", None, post(sign_in::sign_out))
    }

    /// A page for those who are signed in with a role that has this action; none: with any.
    fn on(self, path: &str, action: Option<Action>, page: MethodRouter<Arc<Desk>>) -> Self {
        let guard = middleware::from_fn_with_state((self.desk.clone(), action), guard::enter);
        Self { router: self.router.route(path, page.route_layer(guard)), ..self }
    }

    fn finish(self) -> Router {
        let headers = middleware::from_fn_with_state(self.desk.clone(), guard::headers);
        self.router.method_not_allowed_fallback(guard::nothing).layer(headers).with_state(self.desk)
    }
}

fn file(kind: &'static str, text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
