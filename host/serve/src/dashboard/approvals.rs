//! Questions whether calls may be made, with exactly what will run, and their answers.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use harness_session::html::Shown;
use maud::{Markup, html};

use super::guard::{Form, Visitor, redirect};
use super::{Desk, Page, Refusal, layout, runs};
use crate::problem::Problem;
use crate::runs::Approval;
use crate::webhooks::event::Event;

pub(super) async fn list(State(desk): State<Arc<Desk>>, Extension(visitor): Extension<Visitor>) -> Page {
    let open = desk.server.runs.approvals(&*desk.server.tenants.store, &visitor.caller).await?;
    let main = html! {
        h1 { "Approvals" }
        @if open.is_empty() { p { "Nothing waits for an answer." } }
        @for one in &open { (question(&desk, &visitor, one)) }
    };
    Ok(layout::page(&desk, &visitor, ("/dashboard/approvals", "Approvals"), main))
}

fn question(desk: &Desk, visitor: &Visitor, one: &Approval) -> Markup {
    let is_own = one.asked_by == visitor.caller.key.record.id;
    html! {
        section class="card" {
            h2 { (Shown(&one.tool)) }
            (layout::facts(&[
                ("File", html! { code { (Shown(&one.artifact)) } }),
                ("Why it is asked", html! { (Shown(&one.rule)) }),
                ("Asked by", runs::key(desk, &one.asked_by)),
                ("Run", html! { a href={ "/dashboard/runs/" (layout::in_path(&one.run)) } { code { (Shown(&one.run)) } } }),
                ("Until", layout::moment(one.expires)),
                ("Digest of the arguments", html! { code class="digest" { (Shown(&one.args_digest)) } }),
            ]))
            h3 { "Arguments" }
            (layout::json(&one.arguments))
            @if is_own {
                p class="note" { "Your own key asks for this call. Nobody approves a call of their own." }
            } @else {
                form method="post" action={ "/dashboard/approvals/" (layout::in_path(&one.id)) } class="answers" {
                    (layout::token(visitor))
                    input type="hidden" name="args_digest" value=(one.args_digest);
                    button name="answer" value="yes" { "Run it with these arguments" }
                    button name="answer" value="no" class="danger" { "Do not run it" }
                }
            }
        }
    }
}

pub(super) async fn answer(
    State(desk): State<Arc<Desk>>,
    Extension(visitor): Extension<Visitor>,
    Extension(form): Extension<Form>,
    Path(id): Path<String>,
) -> Page {
    let is_yes = match form.field("answer")? {
        "yes" => true,
        "no" => false,
        _ => return Err(Refusal::of(Problem::invalid("an answer is `yes` or `no`"))),
    };
    let digest = form.field("args_digest")?;
    let store = &*desk.server.tenants.store;
    let answered = desk.server.runs.answer(store, &visitor.caller, &id, is_yes, digest).await?;
    let _ = desk.server.webhooks.emit(store, &visitor.caller.tenant()?.id(), &Event::answered(&answered)).await;
    Ok(redirect(&format!("/dashboard/runs/{}", layout::in_path(&answered.run))))
}
