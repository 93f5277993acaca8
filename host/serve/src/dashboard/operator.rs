//! The operator's pages: all tenants, and how they share the machine. They show nothing of what tenants do.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use harness_sandbox::scheduling::quota::{Share, Waits};
use harness_session::html::Shown;
use harness_session::text::{number, time};
use maud::{Markup, html};

use super::guard::Visitor;
use super::{Desk, Page, layout, overview, plot};
use crate::problem::Problem;
use crate::record::State as Whether;
use crate::tenant::Tenant;

/// Tenants of a page of neighbours: those that wait most come first.
const SHOWN: usize = 100;

pub(super) async fn tenants(State(desk): State<Arc<Desk>>, Extension(visitor): Extension<Visitor>) -> Page {
    let all = desk.server.tenants.all();
    let ready = if desk.server.accepts_work().await.is_ok() { "ready" } else { "not ready" };
    let main = html! {
        h1 { "Tenants" }
        (layout::facts(&[
            ("Server", layout::outcome(ready)),
            ("Tenants", html! { (all.len()) }),
            ("Runs under way", html! { (desk.server.runs.count()) }),
        ]))
        div class="wide" tabindex="0" role="region" aria-label="Tenants" {
            table class="list" {
                thead { tr { th { "Tenant" } th { "State" } th { "Class" } th { "Project" } th { "Runs" } th { "Memory" } th { "Made" } } }
                tbody { @for tenant in &all { (row(tenant)) } }
            }
        }
    };
    Ok(layout::page(&desk, &visitor, ("/dashboard", "Tenants"), main))
}

fn state(tenant: &Tenant) -> Markup {
    layout::outcome(if tenant.record().state == Whether::Active { "active" } else { "suspended" })
}

fn under_way(tenant: &Tenant) -> Markup {
    html! { (tenant.class.runs.saturating_sub(tenant.runs.available_permits())) " of " (tenant.class.runs) }
}

/// What its project has in memory.
fn memory(share: Option<&Share>) -> Markup {
    html! { @match share { Some(share) => { (number(share.memory() / 1024)) " KiB" } None => { "not open" } } }
}

fn row(tenant: &Tenant) -> Markup {
    let record = tenant.record();
    html! {
        tr {
            td { a href={ "/dashboard/tenants/" (layout::in_path(&record.id)) } { (Shown(&record.id)) } }
            td { (state(tenant)) }
            td { (Shown(&tenant.class.name)) }
            td { @if record.project.is_some() { "yes" } @else { "none" } }
            td { (under_way(tenant)) }
            td { (memory(tenant.share().as_deref())) }
            td { (layout::moment(record.created)) }
        }
    }
}

pub(super) async fn tenant(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Extension<Visitor>,
    Path(id): Path<String>,
) -> Page {
    let found = desk.server.tenants.tenant(&id).ok_or_else(|| Problem::not_found("there is no such tenant"))?;
    let (record, share) = (found.record(), found.share());
    let quota = found.class.quota;
    let keys = desk.server.tenants.keys_of(Some(&id)).len();
    let main = html! {
        h1 { (Shown(&record.id)) }
        (layout::facts(&[
            ("State", state(&found)),
            ("Class", html! { (Shown(&found.class.name)) }),
            ("Made", layout::moment(record.created)),
            ("Project", html! { @match &record.project { Some(digest) => { code { (layout::short(digest, 19)) } } None => { "none" } } }),
            ("Keys", html! { (keys) }),
            ("Runs under way", under_way(&found)),
            ("Memory", html! { (memory(share.as_deref())) " of " (number(quota.memory_bytes / 1024)) " KiB" }),
            ("Weight", html! { (quota.weight) }),
            ("Calls at one time", html! { (quota.concurrent_calls) ", and " (quota.queued_calls) " that wait" }),
        ]))
        @if let Some(rules) = &record.policy { h2 { "Rules that narrow its calls" } pre tabindex="0" { (Shown(rules)) } }
        (overview::usage(&desk, &found).await?)
    };
    Ok(layout::page(&desk, &visitor, ("/dashboard", &id), main))
}

pub(super) async fn neighbours(State(desk): State<Arc<Desk>>, Extension(visitor): Extension<Visitor>) -> Page {
    let all = desk.server.tenants.all();
    let mut open: Vec<(Arc<Tenant>, Arc<Share>)> =
        all.into_iter().filter_map(|tenant| tenant.share().map(|share| (tenant, share))).collect();
    open.sort_by_key(|(_, share)| std::cmp::Reverse(waited(share)));
    let most = open.first().map_or(0, |(_, share)| waited(share));
    let rest = open.len().saturating_sub(SHOWN);
    open.truncate(SHOWN);
    let main = html! {
        h1 { "Neighbours" }
        p {
            "How long the calls of each tenant have waited: for an instance, and for slices of the processor. A tenant that "
            "waits long beside others of its weight has noisy neighbours, or is one itself: one that computes much waits for "
            "its own slices. Counted since the project of the tenant was opened."
        }
        @if open.is_empty() { p { "No project is open." } } @else {
            div class="wide" tabindex="0" role="region" aria-label="Waits by tenant" {
                table class="list" {
                    thead { tr { th { "Tenant" } th { "Weight" } th { "For an instance" } th { "For slices" } th { "Together" } th { "Memory" } } }
                    tbody {
                        @for (tenant, share) in &open {
                            tr {
                                td { a href={ "/dashboard/tenants/" (layout::in_path(&tenant.id())) } { (Shown(&tenant.id())) } }
                                td { (tenant.class.quota.weight) }
                                td { (waits(share.queue())) }
                                td { (waits(share.slices())) }
                                td { (time(waited(share))) (plot::share("of the longest", waited(share), most.max(1))) }
                                td { (memory(Some(share))) }
                            }
                        }
                    }
                }
            }
        }
        @if rest > 0 { p class="note" { (rest) " further tenants have waited less." } }
    };
    Ok(layout::page(&desk, &visitor, ("/dashboard/neighbours", "Neighbours"), main))
}

/// Microseconds that the calls of a project have waited for others.
fn waited(share: &Share) -> u64 {
    let micros = |waits: &Waits| u64::try_from(waits.total().as_micros()).unwrap_or(u64::MAX);
    micros(share.queue()).saturating_add(micros(share.slices()))
}

fn waits(waits: &Waits) -> Markup {
    let shown = |duration: std::time::Duration| time(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
    html! {
        @if waits.count() == 0 { "none" } @else {
            (number(waits.count())) " times, " (shown(waits.total())) ", the longest " (shown(waits.longest()))
        }
    }
}
