//! How a tenant is, and what it has used.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use harness_session::html::Shown;
use harness_session::text::number;
use maud::{Markup, html};
use serde_json::Value as Json;

use super::guard::Visitor;
use super::{Desk, Page, layout, plot};
use crate::problem::Problem;
use crate::role::Action;
use crate::tenant::Tenant;
use crate::tenants::now;

/// Days and months of the plots.
const DAYS: usize = 14;

pub(super) async fn show(State(desk): State<Arc<Desk>>, Extension(visitor): Extension<Visitor>) -> Page {
    let tenant = visitor.caller.tenant()?;
    let main = html! {
        h1 { "Overview" }
        (health(&desk, &visitor, tenant).await?)
        @if visitor.may(Action::ReadUsage) { (usage(&desk, tenant).await?) }
    };
    Ok(layout::page(&desk, &visitor, ("/dashboard", "Overview"), main))
}

async fn health(desk: &Desk, visitor: &Visitor, tenant: &Tenant) -> Result<Markup, Problem> {
    let record = tenant.record();
    let ready = desk.server.accepts_work().await;
    let word = if ready.is_ok() { "ready" } else { "not ready" };
    let mut facts = vec![("Server", layout::outcome(word))];
    if let Err(problem) = &ready {
        facts.push((
            "Why",
            html! { (Shown(problem.as_json().get("detail").and_then(Json::as_str).unwrap_or_default())) },
        ));
    }
    facts.push(("Tenant", html! { (record.id) ", class " (Shown(&tenant.class.name)) }));
    let project = match &record.project {
        Some(digest) => html! { code { (layout::short(digest, 19)) } },
        None => html! { "none yet: upload one with " code { "PUT /v1/project" } },
    };
    facts.push(("Project", project));
    if visitor.may(Action::ReadRuns) {
        let under_way = tenant.class.runs.saturating_sub(tenant.runs.available_permits());
        facts.push(("Runs under way", html! { a href="/dashboard/runs" { (under_way) " of " (tenant.class.runs) } }));
    }
    if visitor.may(Action::Approve) {
        let open = desk.server.runs.approvals(&*desk.server.tenants.store, &visitor.caller).await?.len();
        facts.push(("Approvals waiting", html! { a href="/dashboard/approvals" { (open) } }));
    }
    let requests = tenant.requests.rate();
    facts.push(("Requests", html! { (number(u64::from(requests.per_minute))) " a minute at most" }));
    Ok(layout::facts(&facts))
}

/// What was used of each budget, with a plot, and the calls of the last days.
pub(super) async fn usage(desk: &Desk, tenant: &Tenant) -> Result<Markup, Problem> {
    tenant.ledger.read(now()).await?;
    let budgets = tenant.ledger.shown(now());
    let text = |budget: &Json, name: &str| budget.get(name).and_then(Json::as_str).unwrap_or_default().to_owned();
    // Of dollars there is an exact text, and for the plot their millionths.
    let amount =
        |budget: &Json, name: &str| budget.get(name).and_then(|value| value.as_u64().or_else(|| millionths(value)));
    let shown = |budget: &Json, name: &str| match budget.get(name).and_then(Json::as_str) {
        Some(dollars) => format!("${dollars}"),
        None => number(amount(budget, name).unwrap_or(0)),
    };
    let days = history(desk, tenant, "calls_per_day").await?;
    Ok(html! {
        h2 { "Usage" }
        div class="budgets" {
            @for budget in &budgets {
                @let name = text(budget, "budget").replace('_', " ");
                @let used = amount(budget, "used").unwrap_or(0);
                section class="card" {
                    h3 { (name) }
                    @match amount(budget, "limit") {
                        Some(limit) => {
                            p class="amount" { (shown(budget, "used")) " of " (shown(budget, "limit")) }
                            (plot::share(&name, used, limit))
                        }
                        None => { p class="amount" { (shown(budget, "used")) } p class="faint" { "without a limit" } }
                    }
                    p class="faint" { (text(budget, "period")) ", until " (layout::moment(amount(budget, "resets").unwrap_or(0))) }
                }
            }
        }
        @if days.len() > 1 { (plot::columns("Calls by day", &days)) }
    })
}

/// The millionths of a decimal number, cut.
fn millionths(value: &Json) -> Option<u64> {
    let (whole, rest) = value.as_str()?.split_once('.').unwrap_or((value.as_str()?, ""));
    let rest: String = rest.chars().chain(std::iter::repeat('0')).take(6).collect();
    whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(rest.parse().ok()?)
}

/// What the store has of a budget, by period. Of a day on which the server was killed that is what was leased.
async fn history(desk: &Desk, tenant: &Tenant, budget: &str) -> Result<Vec<(String, u64)>, Problem> {
    let prefix = format!("{}/{budget}/", tenant.id());
    let mut days: Vec<(String, u64)> = Vec::new();
    loop {
        let after = days.last().map(|(day, _)| format!("{prefix}{day}"));
        let page = desk.server.tenants.store.list(crate::budget::BUCKET, &prefix, after.as_deref(), 500).await?;
        if page.is_empty() {
            break;
        }
        days.extend(page.into_iter().map(|(key, found)| {
            let value = std::str::from_utf8(&found.value).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
            (key.strip_prefix(&prefix).unwrap_or_default().to_owned(), value)
        }));
    }
    // Of today the store has what is leased.
    let shown = tenant.ledger.shown(now());
    let today = shown.iter().find(|one| one.get("budget").and_then(Json::as_str) == Some(budget));
    if let Some(today) = today
        && let (Some(period), Some(used)) =
            (today.get("period").and_then(Json::as_str), today.get("used").and_then(Json::as_u64))
    {
        days.retain(|(day, _)| day != period);
        days.push((period.to_owned(), used));
    }
    Ok(days.split_off(days.len().saturating_sub(DAYS)))
}
