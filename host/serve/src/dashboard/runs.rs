//! Runs of a tenant: the list of them, and one with everything that happened in it.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, Query, State};
use harness_session::html::{Shown, rows as timeline_rows};
use harness_session::timeline::Timeline;
use harness_session::{FOLDER, read};
use maud::{Markup, PreEscaped, html};
use serde::Deserialize;
use serde_json::Value as Json;

use super::guard::{Visitor, redirect};
use super::{Desk, Page, events, layout};
use crate::api::runs::visible;
use crate::problem::Problem;
use crate::role::Action;
use crate::runs::RunRecord;
use crate::tenants::now;

/// Runs of a page.
const SHOWN: usize = 100;
/// Records that are read for one page. A tenant that has more in the time it asks for narrows that.
const READ: usize = 5_000;
/// How far back a list goes: the word for it, and milliseconds.
const SINCE: [(&str, &str, u64); 4] = [
    ("hour", "the last hour", 3_600_000),
    ("day", "the last day", 86_400_000),
    ("week", "the last 7 days", 7 * 86_400_000),
    ("month", "the last 31 days", 31 * 86_400_000),
];
/// What a run may be.
const STATES: [&str; 10] =
    ["running", "completed", "failed", "denied", "limited", "rejected", "fault", "stopped", "interrupted", "busy"];

/// Which runs are wanted. What the form leaves empty is any.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Wanted {
    state: String,
    tool: String,
    since: String,
}

impl Wanted {
    fn has(&self, record: &RunRecord) -> bool {
        let tool = record.tool.as_deref().unwrap_or("agent");
        (self.state.is_empty() || record.state == self.state) && (self.tool.is_empty() || tool == self.tool)
    }

    fn ms(&self) -> u64 {
        SINCE.iter().find(|(name, ..)| *name == self.since).map_or(86_400_000, |(.., ms)| *ms)
    }
}

pub(super) async fn list(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Extension<Visitor>,
    Query(wanted): Query<Wanted>,
) -> Page {
    let tenant = visitor.caller.tenant()?.id();
    let (runs, is_cut) = found(&desk, &visitor, &tenant, &wanted).await?;
    let since = if wanted.since.is_empty() { "day" } else { wanted.since.as_str() };
    let main = html! {
        h1 { "Runs" }
        form method="get" action="/dashboard/runs" class="filter-form" {
            label { "State "
                select name="state" {
                    option value="" { "any" }
                    @for state in STATES { option value=(state) selected[state == wanted.state] { (state) } }
                }
            }
            label { "Tool " input name="tool" value=(wanted.tool) placeholder="any, or agent" spellcheck="false"; }
            label { "Begun in "
                select name="since" {
                    @for (name, word, _) in SINCE { option value=(name) selected[name == since] { (word) } }
                }
            }
            button { "Show" }
        }
        @if is_cut { p class="note" { "There are more. Narrow the filter to see them." } }
        @if runs.is_empty() { p { "No runs." } } @else { (table(&desk, &runs)) }
    };
    Ok(layout::page(&desk, &visitor, ("/dashboard/runs", "Runs"), main))
}

/// The latest runs that are wanted, the newest first, and whether there are more.
async fn found(
    desk: &Desk,
    visitor: &Visitor,
    tenant: &str,
    wanted: &Wanted,
) -> Result<(Vec<RunRecord>, bool), Problem> {
    let store = &*desk.server.tenants.store;
    // The identifier of a run begins with the moment of its begin.
    let mut after = format!("run_{:011x}", now().saturating_sub(wanted.ms()));
    let (mut runs, mut read) = (Vec::new(), 0_usize);
    loop {
        let page = desk.server.runs.list(store, tenant, Some(&after), 500).await?;
        let Some(last) = page.last() else { break };
        after.clone_from(&last.id);
        read = read.saturating_add(page.len());
        let own = page
            .into_iter()
            .filter(|record| visitor.caller.sees_of(&record.key, &record.workspace) && wanted.has(record));
        runs.extend(own.map(|record| RunRecord { result: None, ..record }));
        if read >= READ {
            break;
        }
    }
    let is_cut = runs.len() > SHOWN || read >= READ;
    runs.reverse();
    runs.truncate(SHOWN);
    Ok((runs, is_cut))
}

fn table(desk: &Desk, runs: &[RunRecord]) -> Markup {
    html! {
        div class="wide" tabindex="0" role="region" aria-label="Runs" {
            table class="list" {
                thead { tr { th { "Begun (UTC)" } th { "What" } th { "State" } th { "Took" } th { "Key" } } }
                tbody {
                    @for run in runs {
                        tr {
                            td { a href={ "/dashboard/runs/" (layout::in_path(&run.id)) } { (layout::moment(run.created)) } }
                            td { (Shown(run.tool.as_deref().unwrap_or("agent"))) }
                            td { (layout::outcome(&run.state)) }
                            td { (took(run)) }
                            td { (key(desk, &run.key)) }
                        }
                    }
                }
            }
        }
    }
}

fn took(run: &RunRecord) -> String {
    let ms = run.ended.unwrap_or_else(now).saturating_sub(run.created);
    harness_session::text::time(ms.saturating_mul(1000))
}

/// A key by its label, if it is there still.
pub(super) fn key(desk: &Desk, id: &str) -> Markup {
    let label = desk.server.tenants.label_of(id);
    html! { @match label { Some(label) => { (Shown(&label)) } None => { code { (Shown(id)) } " (removed)" } } }
}

pub(super) async fn show(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Extension<Visitor>,
    Path(id): Path<String>,
) -> Page {
    let (tenant, record) = visible(&desk.server, &visitor.caller, &id).await?;
    let what = record.tool.clone().unwrap_or_else(|| "Agent".to_owned());
    let is_running = record.state == "running";
    let path = format!("/dashboard/runs/{}", layout::in_path(&record.id));
    let events = events::rows(&desk, &tenant, &record.id).await?;
    let timeline = match (&record.session, is_running) {
        (Some(session), false) => timeline(&visitor, session.clone()).await?,
        _ => None,
    };
    let main = html! {
        h1 { (Shown(&what)) }
        div id="live" data-events=[is_running.then(|| format!("{path}/events"))] data-kinds=(events::KINDS) {
            (layout::facts(&[
                ("State", layout::outcome(&record.state)),
                ("Begun", layout::moment(record.created)),
                ("Took", html! { (took(&record)) }),
                ("Key", key(&desk, &record.key)),
                ("Run", html! { code { (Shown(&record.id)) } }),
            ]))
            @if is_running && visitor.may(Action::Run) {
                form method="post" action={ (path) "/stop" } { (layout::token(&visitor)) button class="danger" { "Stop this run" } }
            }
            @if is_running && visitor.may(Action::Approve) {
                p { "A call that waits for a person is among the " a href="/dashboard/approvals" { "approvals" } "." }
            }
            @if let Some(result) = &record.result { (result_of(result)) }
            @if let Some(rows) = timeline { h2 { "Timeline" } div class="timeline" { (PreEscaped(rows)) } }
            h2 { "Events" }
            (events)
        }
    };
    Ok(layout::page(&desk, &visitor, ("/dashboard/runs", &what), main))
}

/// What came of a run: the answer of an agent, the value of a call, or what went wrong.
fn result_of(result: &Json) -> Markup {
    let text = |name: &str| result.get(name).and_then(Json::as_str);
    let error = result.get("error").filter(|error| error.is_object());
    let of_error = |name: &str| error.and_then(|error| error.get(name)).and_then(Json::as_str);
    html! {
        @if let Some(message) = of_error("message").or(of_error("detail")) {
            p class="problem" { (Shown(message)) }
            @if let Some(hint) = of_error("hint").filter(|hint| !hint.is_empty()) { p { "What to do: " (Shown(hint)) } }
        }
        @if let Some(answer) = text("answer") { h2 { "Answer" } p class="said" { (Shown(answer)) } }
        @if let Some(value) = result.get("result").filter(|value| !value.is_null()) { h2 { "Result" } (layout::json(value)) }
    }
}

/// The rows of the session that a run is recorded in. None: it is not there any more, or cannot be read.
async fn timeline(visitor: &Visitor, session: String) -> Result<Option<String>, Problem> {
    let folder = visitor.caller.tenant()?.project_folder().join(FOLDER);
    let read = move || {
        let recording = read::read(&folder, &session).ok()?;
        Some(timeline_rows(&Timeline::of(&recording)))
    };
    tokio::task::spawn_blocking(read).await.map_err(|_| Problem::fault())
}

pub(super) async fn stop(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Extension<Visitor>,
    Path(id): Path<String>,
) -> Page {
    let (_, record) = visible(&desk.server, &visitor.caller, &id).await?;
    desk.server.runs.stop(&record.id).await;
    Ok(redirect(&format!("/dashboard/runs/{}", layout::in_path(&record.id))))
}
