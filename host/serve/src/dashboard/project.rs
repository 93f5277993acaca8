//! Plugins with what they ask for, and tools with what all layers of policy allow them.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use harness_artifact::plugin::Plugin;
use harness_artifact::yaml::flow;
use harness_policy::compare::agreed;
use harness_policy::grant::Grant;
use harness_session::html::Shown;
use maud::{Markup, html};

use super::guard::Visitor;
use super::{Desk, Page, layout};

pub(super) async fn show(State(desk): State<Arc<Desk>>, Extension(visitor): Extension<Visitor>) -> Page {
    let tenant = visitor.caller.tenant()?;
    let opened = desk.server.tenants.opened(tenant).await?;
    let loaded = opened.project.loaded();
    let (registry, policy) = (loaded.registry(), loaded.policy());
    let narrowed = tenant.layers(&visitor.caller.key);
    let meet = |grant: Grant| if narrowed.is_empty() { grant } else { grant.meet(&Grant::new(narrowed.clone())) };
    let bundles = registry.bundles();
    let main = html! {
        h1 { "Plugins and tools" }
        h2 { "Plugins" }
        @if bundles.is_empty() { p { "The project has no plugins." } }
        @for bundle in bundles {
            section class="card" {
                h3 { (Shown(&bundle.name)) @if let Some(plugin) = &bundle.plugin { " " (Shown(&plugin.version.to_string())) } }
                @if let Some(plugin) = &bundle.plugin { (about(plugin)) }
                p class="faint" {
                    @if bundle.pinned { "Its content is what harness.lock says." } @else { "harness.lock does not name its content." }
                }
                h4 { "Granted" }
                (rules(&meet(policy.grant_for(&bundle.name, None))))
            }
        }
        h2 { "Tools" }
        @if registry.tools().is_empty() { p { "The project has no tools." } }
        @for tool in registry.tools() {
            details class="card" id={ "tool-" (Shown(&tool.name)) } {
                summary {
                    b { (Shown(&tool.name)) } " "
                    @if policy.tools.decide(&tool.name).is_err() { span class="badge denied" { "not allowed" } }
                    @if *tool.confirm || policy.tools.confirms(&tool.name).is_some() { span class="badge under-way" { "asks a person" } }
                    " " span class="faint" { code { (Shown(&tool.source.file)) } }
                }
                h3 { "Granted" }
                (rules(&meet(policy.grant_of(tool))))
            }
        }
    };
    Ok(layout::page(&desk, &visitor, ("/dashboard/project", "Plugins and tools"), main))
}

/// What a plugin says of itself, and asks for.
fn about(plugin: &Plugin) -> Markup {
    html! {
        p { (Shown(&plugin.description)) }
        @if !plugin.authors.is_empty() { p class="faint" { "By " (Shown(&plugin.authors.join(", "))) } }
        h4 { "Asked for" }
        @if plugin.asks.is_empty() { p { "Nothing." } }
        ul {
            @for ask in &plugin.asks {
                li {
                    @for rule in &ask.rules { code { (rule.key) ": " (Shown(&flow(&rule.item))) } " " }
                    "— " (Shown(&ask.reason))
                }
            }
        }
    }
}

/// What the layers of a grant allow together; keys that allow nothing are left out.
fn rules(grant: &Grant) -> Markup {
    let rules: Vec<_> = agreed(grant).into_iter().filter(|one| !one.rules.is_empty() || !one.whole).collect();
    let is_shown = |rules: &[String]| rules != ["false"];
    html! {
        @if rules.is_empty() { p { "Nothing." } }
        ul class="rules" {
            @for one in rules.iter().filter(|one| is_shown(&one.rules)) {
                li {
                    code { (one.key) } ": " (Shown(&one.rules.join(", ")))
                    @if !one.whole { " and what overlapping rules share" }
                }
            }
        }
    }
}
