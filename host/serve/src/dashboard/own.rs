//! Keys of a tenant, and the names of its secrets.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use harness_session::html::Shown;
use maud::{Markup, html};

use super::guard::{Form, Visitor, redirect};
use super::{Desk, Page, Refusal, layout};
use crate::api::own as api;
use crate::problem::Problem;
use crate::role::Role;
use crate::tenant::Key;
use crate::tenants::{Wanted, now};

/// Milliseconds of a day.
const DAY: u64 = 86_400_000;

pub(super) async fn keys(State(desk): State<Arc<Desk>>, Extension(visitor): Extension<Visitor>) -> Page {
    list(&desk, &visitor, None)
}

/// All keys, and one that was just made with its text.
fn list(desk: &Desk, visitor: &Visitor, new: Option<&str>) -> Page {
    let keys = desk.server.tenants.keys_of(Some(&visitor.caller.tenant()?.id()));
    let own = &visitor.caller.key.record;
    let main = html! {
        h1 { "Keys" }
        @if let Some(text) = new {
            section class="card" role="status" {
                h2 { "The new key, shown once" }
                p class="said" { code { (text) } }
            }
        }
        div class="wide" tabindex="0" role="region" aria-label="Keys" {
            table class="list" {
                thead { tr { th { "Label" } th { "Role" } th { "Identifier" } th { "Made" } th { "Expires" } th { "Last use" } th { "Rules" } th { "Remove" } } }
                tbody { @for key in &keys { (row(visitor, key)) } }
            }
        }
        h2 { "Make a key" }
        @if own.policy.is_some() {
            p { "The calls of your key are narrowed, so it makes no keys: theirs would not be." }
        } @else {
            form method="post" action="/dashboard/keys" class="card" {
                (layout::token(visitor))
                label for="label" { "Label" }
                input id="label" name="label" required maxlength="64";
                label for="role" { "Role" }
                select id="role" name="role" {
                    @for role in Role::ALL.into_iter().rev().filter(|role| *role != Role::Operator) {
                        option value=(role.name()) { (role.name()) }
                    }
                }
                label for="days" { "Days until it expires, empty for never" }
                input id="days" name="days" inputmode="numeric" pattern="[0-9]*";
                label for="policy" { "Rules that narrow its calls, as YAML" }
                textarea id="policy" name="policy" rows="3" placeholder="fs: { read: [docs], write: [] }" spellcheck="false" {}
                button { "Make a key" }
            }
        }
    };
    Ok(layout::page(desk, visitor, ("/dashboard/keys", "Keys"), main))
}

fn row(visitor: &Visitor, key: &Key) -> Markup {
    let record = &key.record;
    let used = key.used.load(std::sync::atomic::Ordering::Relaxed);
    let at = |moment: Option<u64>, none: &str| html! { @match moment { Some(at) => { (layout::moment(at)) } None => { (none) } } };
    html! {
        tr {
            td { (Shown(&record.label)) @if record.id == visitor.caller.key.record.id { " (yours)" } }
            td { (record.role.name()) }
            td { code { (record.id) } }
            td { (layout::moment(record.created)) }
            td { (at(record.expires, "never")) @if !record.is_valid(now()) { " " (layout::outcome("expired")) } }
            td { (at((used > 0).then_some(used), "not since the start")) }
            td { @if let Some(rules) = &record.policy { code { (Shown(rules)) } } }
            td {
                form method="post" action={ "/dashboard/keys/" (record.id) "/remove" } {
                    (layout::token(visitor))
                    button class="danger" aria-label={ "Remove the key " (Shown(&record.label)) } { "Remove" }
                }
            }
        }
    }
}

pub(super) async fn create_key(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Extension<Visitor>,
    Extension(form): Extension<Form>,
) -> Page {
    api::may_make_keys(&visitor.caller)?;
    let wanted = form.field("role")?;
    let role = Role::ALL.into_iter().find(|role| role.name() == wanted);
    let role = role.ok_or_else(|| Problem::invalid("there is no such role"))?;
    let days = form.field("days")?.trim();
    let expires = match days.parse::<u32>() {
        _ if days.is_empty() => None,
        Ok(days) => Some(now().saturating_add(u64::from(days).saturating_mul(DAY))),
        Err(_) => return Err(Refusal::of(Problem::invalid("the days until a key expires are a number"))),
    };
    let policy = Some(form.field("policy")?.replace("\r\n", "\n")).filter(|rules| !rules.trim().is_empty());
    let (tenant, label) = (Some(visitor.caller.tenant()?.id()), form.field("label")?.to_owned());
    // As that of the interface: a bound key makes none that counts everywhere.
    let certificate = visitor.caller.key.record.certificate.clone();
    let wanted = Wanted { tenant, role, label, policy, expires, workspaces: None, certificate };
    let new = desk.server.tenants.create_key(wanted).await?;
    list(&desk, &visitor, Some(&new.text))
}

pub(super) async fn remove_key(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Extension<Visitor>,
    Path(id): Path<String>,
) -> Page {
    api::delete_key(&desk.server.tenants, Some(&visitor.caller.tenant()?.id()), &id).await?;
    Ok(redirect("/dashboard/keys"))
}

pub(super) async fn secrets(State(desk): State<Arc<Desk>>, Extension(visitor): Extension<Visitor>) -> Page {
    let names = desk.server.tenants.secret_names(visitor.caller.tenant()?).await?;
    let main = html! {
        h1 { "Secrets" }
        p { "Nothing reads a secret back. The policy of the project names one with " code { "env: NAME" } "." }
        @if names.is_empty() { p { "There are none." } } @else {
            ul class="names" {
                @for name in &names {
                    li {
                        code { (Shown(name)) }
                        form method="post" action={ "/dashboard/secrets/" (layout::in_path(name)) "/remove" } {
                            (layout::token(&visitor))
                            button class="danger" aria-label={ "Remove the secret " (name) } { "Remove" }
                        }
                    }
                }
            }
        }
        h2 { "Set a secret" }
        form method="post" action="/dashboard/secrets" class="card" {
            (layout::token(&visitor))
            label for="name" { "Name" }
            input id="name" name="name" required maxlength="100" spellcheck="false" autocomplete="off";
            label for="value" { "Value" }
            input id="value" name="value" type="password" required autocomplete="new-password";
            button { "Set the secret" }
        }
    };
    Ok(layout::page(&desk, &visitor, ("/dashboard/secrets", "Secrets"), main))
}

pub(super) async fn set_secret(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Extension<Visitor>,
    Extension(form): Extension<Form>,
) -> Page {
    let tenant = visitor.caller.tenant()?;
    desk.server.tenants.set_secret(tenant, form.field("name")?.trim(), form.field("value")?).await?;
    Ok(redirect("/dashboard/secrets"))
}

pub(super) async fn remove_secret(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Extension<Visitor>,
    Path(name): Path<String>,
) -> Page {
    desk.server.tenants.remove_secret(visitor.caller.tenant()?, &name).await?;
    Ok(redirect("/dashboard/secrets"))
}
