//! Runs the scripts of a tool: the one that does its work, and the one that judges it.

use std::sync::Arc;

use super::chain::CallContext;
use super::progress::ToolVoice;
use super::reentry::{Inner, Nested};
use harness_artifact::tool::Tool;
use harness_policy::grant::Grant;
use harness_policy::limits::Limits;
use harness_sandbox::engine::Image;
use harness_sandbox::imports::Role;
use harness_sandbox::outcome::Report;
use harness_sandbox::state::Context;

/// The tool whose script runs, and what it may do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Of<'a> {
    pub(super) tool: &'a Tool,
    pub(super) grant: &'a Arc<Grant>,
}

/// Runs one in an instance of its own; `what` says which it is. Gives back what it started, too.
pub(super) async fn run(
    place: &CallContext,
    Of { tool, grant }: Of<'_>,
    (image, what): (&Image, &str),
    limits: Limits,
    input: &str,
) -> (Report<String>, Vec<Nested>) {
    let place = &place.working(tool);
    let script = format!("{what} {}", tool.name);
    let listener = ToolVoice::of(place, &tool.name, &script);
    let inner = Arc::new(Inner::new(place, script, &tool.source_name, grant.clone(), Role::Tool));
    let context = Context {
        grant: grant.clone(),
        workspace: place.workspace.clone(),
        session: place.run.session().clone(),
        turn: place.turn.clone(),
        system: place.loaded.parts.system.clone(),
        http: place.loaded.parts.http.clone(),
        secrets: place.loaded.parts.secrets.clone(),
        depth: place.depth,
        listener,
        reentry: Some(inner.clone()),
    };
    let ran = place.loaded.parts.sandbox.run(image, context, limits, input).await;
    (ran, inner.take())
}
