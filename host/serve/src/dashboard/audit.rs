//! The audit log: search, and one line of it with the reason why something was refused.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, Query, State};
use harness_session::html::Shown;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value as Json;

use super::explain::{Explained, explain};
use super::guard::{Form, Visitor};
use super::{Desk, Page, Refusal, layout};
use crate::problem::Problem;
use crate::role::Action;

/// Lines of a page.
const SHOWN: usize = 100;
/// How something may have ended.
const OUTCOMES: [&str; 9] =
    ["completed", "failed", "denied", "limited", "rejected", "fault", "busy", "started", "abandoned"];

/// Which lines are wanted. What the form leaves empty is any.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    outcome: String,
    tool: String,
    from: String,
    to: String,
    before: String,
}

impl Wanted {
    fn has(&self, line: &Json) -> bool {
        let text = |name: &str| line.get(name).and_then(Json::as_str).unwrap_or_default();
        // Moments as RFC 3339 and as a browser's field writes them have the same order as their texts.
        let time = text("time");
        let minute = time.get(..16).unwrap_or(time);
        let before: Option<u64> = self.before.parse().ok();
        (self.outcome.is_empty() || text("outcome") == self.outcome)
            && (self.tool.is_empty() || text("tool") == self.tool)
            && (self.from.is_empty() || minute >= self.from.as_str())
            && (self.to.is_empty() || minute <= self.to.as_str())
            && before.is_none_or(|before| seq(line) < before)
    }

    /// The address of the page with the lines before one.
    fn before(&self, seq: u64) -> String {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        for (name, value) in [("outcome", &self.outcome), ("tool", &self.tool), ("from", &self.from), ("to", &self.to)]
        {
            query.append_pair(name, value);
        }
        query.append_pair("before", &seq.to_string());
        format!("/dashboard/audit?{}", query.finish())
    }
}

fn seq(line: &Json) -> u64 {
    line.get("seq").and_then(Json::as_u64).unwrap_or(0)
}

/// The lines that are wanted, the newest first, at most so many.
async fn lines(
    visitor: &Visitor,
    most: usize,
    wanted: impl Fn(&Json) -> bool + Send + 'static,
) -> Result<Vec<Json>, Problem> {
    let folder = visitor.caller.tenant()?.project_folder().join(harness_audit::FOLDER);
    let read = move || {
        if harness_sys::is_gone(&folder) {
            return Ok(Vec::new());
        }
        let all = harness_audit::lines(&folder)?;
        let parsed = all.iter().rev().filter_map(|line| serde_json::from_str::<Json>(line).ok());
        Ok(parsed.filter(wanted).take(most).collect())
    };
    let read: Result<Vec<Json>, harness_audit::Broken> =
        tokio::task::spawn_blocking(read).await.map_err(|_| Problem::fault())?;
    read.map_err(|broken| {
        let why = format!("the audit log is not whole: {broken}");
        Problem::new(axum::http::StatusCode::CONFLICT, "broken", why)
    })
}

pub(super) async fn list(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Extension<Visitor>,
    Query(wanted): Query<Wanted>,
) -> Page {
    let wanted = Arc::new(wanted);
    let filter = wanted.clone();
    let mut found = lines(&visitor, SHOWN + 1, move |line| filter.has(line)).await?;
    let has_more = found.len() > SHOWN;
    found.truncate(SHOWN);
    let main = html! {
        h1 { "Audit log" }
        form method="get" action="/dashboard/audit" class="filter-form" {
            label { "Outcome "
                select name="outcome" {
                    option value="" { "any" }
                    @for one in OUTCOMES { option value=(one) selected[one == wanted.outcome] { (one) } }
                }
            }
            label { "Tool " input name="tool" value=(wanted.tool) placeholder="any" spellcheck="false"; }
            label { "From (UTC) " input name="from" type="datetime-local" value=(wanted.from); }
            label { "To (UTC) " input name="to" type="datetime-local" value=(wanted.to); }
            button { "Search" }
        }
        @if found.is_empty() { p { "No lines." } } @else { (table(&found)) }
        @if let Some(last) = found.last().filter(|_| has_more) {
            p { a href=(wanted.before(seq(last))) { "Older lines" } }
        }
    };
    Ok(layout::page(&desk, &visitor, ("/dashboard/audit", "Audit log"), main))
}

fn table(found: &[Json]) -> Markup {
    let text = |line: &Json, name: &str| line.get(name).and_then(Json::as_str).unwrap_or_default().to_owned();
    html! {
        div class="wide" tabindex="0" role="region" aria-label="Lines of the audit log" {
            table class="list" {
                thead { tr { th { "No." } th { "Time (UTC)" } th { "What" } th { "Outcome" } th { "Client" } th { "Why" } } }
                tbody {
                    @for line in found {
                        @let tool = text(line, "tool");
                        @let event = text(line, "event");
                        @let what = if tool.is_empty() { &event } else { &tool };
                        tr {
                            td { a href={ "/dashboard/audit/" (seq(line)) } { (seq(line)) } }
                            td { (layout::rfc3339(&text(line, "time"))) }
                            td { (Shown(what)) }
                            td { (layout::outcome(&text(line, "outcome"))) }
                            td { (Shown(&text(line, "client"))) }
                            td { (Shown(&layout::short(&text(line, "why"), 120))) }
                        }
                    }
                }
            }
        }
    }
}

/// One line of the log.
async fn line(visitor: &Visitor, number: u64) -> Result<Json, Problem> {
    let mut found = lines(visitor, 1, move |line| seq(line) == number).await?;
    found.pop().ok_or_else(|| Problem::not_found("there is no such line in the audit log"))
}

pub(super) async fn show(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Extension<Visitor>,
    Path(number): Path<String>,
) -> Page {
    let line = line(&visitor, parse(&number)?).await?;
    let explained = explained(&desk, &visitor, &line).await?;
    Ok(render(&desk, &visitor, &line, &explained, None))
}

fn parse(number: &str) -> Result<u64, Problem> {
    number.parse().map_err(|_| Problem::not_found("there is no such line in the audit log"))
}

/// What the policy in force says of each refusal of a line, where the role may read that.
async fn explained(desk: &Desk, visitor: &Visitor, line: &Json) -> Result<Vec<Explained>, Problem> {
    if !visitor.may(Action::ReadPolicy) {
        return Ok(Vec::new());
    }
    let Some(refusals) = line.get("refusals").and_then(Json::as_array) else { return Ok(Vec::new()) };
    let tenant = visitor.caller.tenant()?;
    let opened = desk.server.tenants.opened(tenant).await?;
    let loaded = opened.project.loaded();
    let text = |of: &Json, name: &str| of.get(name).and_then(Json::as_str).unwrap_or_default().to_owned();
    // The key that asked, as the log names it: `LABEL (ID)`.
    let client = text(line, "client");
    let id = client.rsplit_once('(').and_then(|(_, id)| id.strip_suffix(')')).unwrap_or_default();
    let own = desk.server.tenants.keys_of(Some(&tenant.id()));
    let key = own.iter().find(|key| key.record.id == id).cloned();
    let narrowed = key.map(|key| tenant.layers(&key)).unwrap_or_default();
    let explain = |refusal: &Json| {
        explain(&loaded, &text(line, "tool"), &narrowed, (&text(refusal, "call"), &text(refusal, "subject")))
    };
    Ok(refusals.iter().map(explain).collect())
}

/// Shows what the line of policy for a refusal would allow. Nothing is changed.
pub(super) async fn try_out(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Extension<Visitor>,
    Extension(form): Extension<Form>,
    Path(number): Path<String>,
) -> Page {
    if !visitor.may(Action::ReadAudit) {
        return Err(Refusal::of(Problem::forbidden(visitor.caller.key.record.role.name())));
    }
    let line = line(&visitor, parse(&number)?).await?;
    let explained = explained(&desk, &visitor, &line).await?;
    let at: usize = form.field("refusal")?.parse().map_err(|_| Problem::invalid("`refusal` is a number"))?;
    if explained.get(at).is_none_or(|one| one.lines.is_empty()) {
        return Err(Refusal::of(Problem::not_found("there is no line of policy for this refusal")));
    }
    Ok(render(&desk, &visitor, &line, &explained, Some(at)))
}

fn render(
    desk: &Desk,
    visitor: &Visitor,
    line: &Json,
    explained: &[Explained],
    tried: Option<usize>,
) -> axum::http::Response<axum::body::Body> {
    let number = seq(line);
    let text = |of: &Json, name: &str| of.get(name).and_then(Json::as_str).unwrap_or_default().to_owned();
    let refusals = line.get("refusals").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    let main = html! {
        h1 { "Line " (number) " of the audit log" }
        (layout::facts(&[
            ("Outcome", layout::outcome(&text(line, "outcome"))),
            ("Time (UTC)", layout::rfc3339(&text(line, "time"))),
            ("What", html! { (Shown(&text(line, "tool"))) (Shown(&text(line, "event"))) }),
            ("Client", html! { (Shown(&text(line, "client"))) }),
        ]))
        @if !text(line, "why").is_empty() { p class="problem" { (Shown(&text(line, "why"))) } }
        @for (at, refusal) in refusals.iter().enumerate() {
            section class="card" {
                h2 { (Shown(&text(refusal, "call"))) " " code { (Shown(&text(refusal, "subject"))) } }
                p { (Shown(&text(refusal, "why"))) }
                @if let Some(one) = explained.get(at) { (explanation(visitor, number, at, one, tried == Some(at))) }
            }
        }
        details id="whole" { summary { "The whole line" } (layout::json(line)) }
    };
    layout::page(desk, visitor, ("/dashboard/audit", &format!("Line {number}")), main)
}

fn explanation(visitor: &Visitor, number: u64, at: usize, one: &Explained, is_tried: bool) -> Markup {
    html! {
        p { (Shown(&one.summary)) }
        @for other in &one.others { p class="note" { (Shown(other)) } }
        @for line in &one.lines {
            h3 { "The line that would allow it, in " code { (Shown(&line.file)) } }
            pre tabindex="0" { (Shown(&line.yaml)) }
        }
        @if !one.lines.is_empty() && !is_tried {
            form method="post" action={ "/dashboard/audit/" (number) "/try" } {
                (layout::token(visitor))
                input type="hidden" name="refusal" value=(at);
                button { "Show what this would allow" }
            }
        }
        @if is_tried {
            h3 { "What it would allow" }
            @if one.news.is_empty() {
                p { "Nothing more than now: what is above still refuses it." }
            } @else {
                ul {
                    @for (key, what, before, of) in &one.news {
                        li { code { (key) } " for " (Shown(&of.join(", "))) ": " (Shown(what)) @if !before.is_empty() { "; before: " (Shown(before)) } }
                    }
                }
                p class="faint" { "Nothing was changed. Add the line to the project and upload it." }
            }
        }
    }
}
