//! What all pages have: the head, the way to the other pages, and how texts and moments are shown.
//!
//! Every text of a tenant, a script, a model or a client goes through [`Shown`], which shows what is hidden in it. `maud`
//! escapes everything that is not markup of a template.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse as _;
use harness_session::html::Shown;
use maud::{DOCTYPE, Markup, html};
use serde_json::Value as Json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::Desk;
use super::guard::Visitor;
use crate::problem::Problem;
use crate::role::Action;

/// The pages of tenants, with what each asks for and how the way to it is called.
const PAGES: [(&str, Option<Action>, &str); 7] = [
    ("/dashboard", None, "Overview"),
    ("/dashboard/runs", Some(Action::ReadRuns), "Runs"),
    ("/dashboard/approvals", Some(Action::Approve), "Approvals"),
    ("/dashboard/audit", Some(Action::ReadAudit), "Audit log"),
    ("/dashboard/project", Some(Action::ReadPolicy), "Plugins and tools"),
    ("/dashboard/keys", Some(Action::ManageKeys), "Keys"),
    ("/dashboard/secrets", Some(Action::WriteSecrets), "Secrets"),
];
/// Those of the operator.
const OPERATORS: [(&str, Option<Action>, &str); 2] = [
    ("/dashboard", Some(Action::Administer), "Tenants"),
    ("/dashboard/neighbours", Some(Action::Administer), "Neighbours"),
];

/// A page for someone who is signed in. `here` is the address of the page in the list that it belongs to.
pub(super) fn page(desk: &Desk, visitor: &Visitor, (here, title): (&str, &str), main: Markup) -> Response<Body> {
    let pages: &[_] = if desk.is_operators { &OPERATORS } else { &PAGES };
    let key = &visitor.caller.key.record;
    let whose = visitor.caller.tenant().map_or_else(|_| "the server".to_owned(), |tenant| tenant.id());
    let top = html! {
        nav aria-label="Pages" {
            @for (path, action, name) in pages {
                @if action.is_none_or(|action| visitor.may(action)) {
                    a href=(path) aria-current=[(*path == here).then_some("page")] { (name) }
                }
            }
        }
        div class="who" {
            span { b { (Shown(&whose)) } " as " (key.role.name()) " · " (Shown(&key.label)) }
            form method="post" action="/dashboard/sign-out" {
                (token(visitor))
                button class="quiet" { "Sign out" }
            }
        }
    };
    respond(StatusCode::OK, title, &desk.integrity, &top, &main)
}

/// A page for anyone.
pub(super) fn plain(desk: &Desk, title: &str, main: &Markup) -> Response<Body> {
    respond(StatusCode::OK, title, &desk.integrity, &html! {}, main)
}

/// A page that says what went wrong, and what to do.
pub(super) fn problem(problem: &Problem) -> Response<Body> {
    let json = problem.as_json();
    let text = |name: &str| json.get(name).and_then(Json::as_str).unwrap_or_default().to_owned();
    let main = html! {
        h1 { (text("title")) }
        p class="problem" { (Shown(&text("detail"))) }
        @for (name, word) in [("hint", "What to do"), ("set_by", "Set by")] {
            @if json.get(name).is_some() { p { (word) ": " (Shown(&text(name))) } }
        }
        p { a href="/dashboard" { "Back to the dashboard" } }
    };
    let plain = problem.clone().into_response();
    let mut response = respond(plain.status(), &text("title"), "", &html! {}, &main);
    if let Some(again) = plain.headers().get(axum::http::header::RETRY_AFTER) {
        response.headers_mut().insert(axum::http::header::RETRY_AFTER, again.clone());
    }
    response
}

fn respond(status: StatusCode, title: &str, script: &str, top: &Markup, main: &Markup) -> Response<Body> {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (Shown(title)) " · Harness" }
                link rel="stylesheet" href="/dashboard/style.css";
                link rel="icon" href="/dashboard/icon.svg" type="image/svg+xml";
                @if !script.is_empty() { script src="/dashboard/live.js" integrity=(script) defer {} }
            }
            body {
                @if !top.0.is_empty() {
                    a class="skip" href="#main" { "Skip to the content" }
                    header class="top" { (top) }
                }
                main id="main" class="dashboard" { (main) }
            }
        }
    };
    let mut response = Response::new(Body::from(page.into_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response
}

/// The field of a form that shows which session it is of.
pub(super) fn token(visitor: &Visitor) -> Markup {
    html! { input type="hidden" name="form" value=(visitor.form); }
}

/// A moment in milliseconds since 1970.
pub(super) fn moment(ms: u64) -> Markup {
    let at = i64::try_from(ms / 1000).ok().and_then(|at| OffsetDateTime::from_unix_timestamp(at).ok());
    let text = at.and_then(|at| at.format(&Rfc3339).ok()).unwrap_or_default();
    rfc3339(&text)
}

/// The same as the audit log has it.
pub(super) fn rfc3339(text: &str) -> Markup {
    let seconds = text.get(..19).unwrap_or(text).replace('T', " ");
    html! { time datetime=(Shown(text)) { (Shown(&seconds)) } }
}

/// How something ended, with its colour.
pub(super) fn outcome(word: &str) -> Markup {
    let kind = match word {
        "completed" | "active" | "ready" | "yes" => "fine",
        "running" | "waiting" | "started" => "under-way",
        "denied" | "no" => "denied",
        _ => "wrong",
    };
    html! { span class={ "badge " (kind) } { (Shown(word)) } }
}

/// JSON on several lines.
pub(super) fn json(value: &Json) -> Markup {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    // What is long can be scrolled, by keys as well.
    html! { pre tabindex="0" { (Shown(&text)) } }
}

/// A text of one line with so many characters at most.
pub(super) fn short(text: &str, most: usize) -> String {
    let mut chars = text.chars();
    let mut shown: String = chars.by_ref().take(most).map(|c| if c == '\n' { ' ' } else { c }).collect();
    if chars.next().is_some() {
        shown.push('…');
    }
    shown
}

/// A list of words and values.
pub(super) fn facts(facts: &[(&str, Markup)]) -> Markup {
    html! {
        dl class="sheet" {
            @for (word, value) in facts { div { dt { (word) } dd { (value) } } }
        }
    }
}

/// A part of an address in which no character means anything.
pub(super) fn in_path(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}
