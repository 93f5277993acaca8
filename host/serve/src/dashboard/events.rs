//! The events of a run: as the stream that a page hears of changes by, and as rows of that page.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use axum::http::{HeaderMap, Response};
use futures_util::StreamExt as _;
use harness_mcp::http::ClientCertificate;
use harness_session::html::Shown;
use harness_store::Line;
use maud::{Markup, html};
use serde_json::Value as Json;

use super::guard::Visitor;
use super::{Desk, Page, Refusal, layout};
use crate::api::runs::{follow, visible};
use crate::problem::Problem;
use crate::runs::log;

/// The kinds of events that a page is made anew for. Not each word of a model, and not each step of a script.
pub(super) const KINDS: &str = "began turn asked call called delegated retry waiting answered truncated end";
/// How often it is checked whether the session of an open stream still counts: its key may end meanwhile.
const CHECK: Duration = Duration::from_secs(2);
/// Events of a page: the last ones.
const SHOWN: u64 = 200;

/// The stream, under the cookie. It ends with the run, and with the session.
pub(super) async fn stream(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Extension<Visitor>,
    Path(id): Path<String>,
    certificate: Option<Extension<ClientCertificate>>,
    headers: HeaderMap,
) -> Page {
    let certificate = certificate.map(|Extension(certificate)| certificate);
    let (tenant, _) = visible(&desk.server, &visitor.caller, &id).await?;
    let last = headers.get(HeaderName::from_static("last-event-id"));
    let last = match last.map(|value| value.to_str().ok().and_then(|text| text.parse().ok())) {
        Some(None) => return Err(Refusal::of(Problem::invalid("`Last-Event-ID` is the number of an event"))),
        last => last.flatten().unwrap_or(0),
    };
    let events = follow(desk.server.clone(), (&tenant, &id), last);
    let over = {
        let (desk, cookies) = (desk.clone(), headers.clone());
        async move {
            loop {
                tokio::select! {
                    () = visitor.ended.cancelled() => return,
                    () = tokio::time::sleep(CHECK) => if desk.visitor(&cookies, certificate.as_ref(), false).is_none() {
                        return;
                    },
                }
            }
        }
    };
    let mut response = Response::new(Body::from_stream(events.take_until(Box::pin(over))));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    Ok(response)
}

/// The last events of a run.
pub(super) async fn rows(desk: &Desk, tenant: &str, run: &str) -> Result<Markup, Problem> {
    let store = &desk.server.tenants.store;
    let mut last: Vec<Line> = Vec::new();
    loop {
        let after = last.last().map_or(0, |line| line.position);
        let more = store.lines(&log(tenant, run), after, 1_000).await?;
        if more.is_empty() {
            break;
        }
        last.extend(more);
        let surplus = last.len().saturating_sub(usize::try_from(SHOWN).unwrap_or(usize::MAX));
        last.drain(..surplus);
    }
    let before = last.first().map_or(0, |line| line.position.saturating_sub(1));
    Ok(html! {
        @if before > 0 { p class="faint" { (before) " earlier events are not shown here" } }
        ol class="events" {
            @for line in &last {
                @let event: Json = serde_json::from_slice(&line.bytes).unwrap_or_default();
                (row(line.position, &event))
            }
        }
    })
}

fn row(position: u64, event: &Json) -> Markup {
    let text = |name: &str| event.get(name).and_then(Json::as_str).unwrap_or_default();
    let kind = text("type");
    let what = match kind {
        "call" => {
            let arguments = event.get("arguments").map(ToString::to_string).unwrap_or_default();
            format!("{} {arguments}", text("tool"))
        }
        "called" => format!("{} {}", text("tool"), text("content")),
        "waiting" => format!("a person is asked whether {} may run", text("tool")),
        "answered" => text("answer").to_owned(),
        "asked" => format!("the model {}", text("model")),
        "delegated" => format!("to {}: {}", text("to"), text("task")),
        "progress" => format!("{} {}", text("tool"), text("message")),
        "retry" => text("error").to_owned(),
        "end" => event.get("answer").and_then(Json::as_str).unwrap_or_default().to_owned(),
        _ => text("text").to_owned(),
    };
    html! {
        li {
            details id={ "event-" (position) } {
                summary {
                    b { (Shown(kind)) }
                    @if !text("outcome").is_empty() { " " (layout::outcome(text("outcome"))) }
                    " " span { (Shown(&layout::short(&what, 160))) }
                }
                (layout::json(event))
            }
        }
    }
}
