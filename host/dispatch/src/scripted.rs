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
use harness_sys::digest::digest;

/// The tool whose script runs, and what it may do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Of<'a> {
    pub(super) tool: &'a Tool,
    pub(super) grant: &'a Arc<Grant>,
    pub(super) standing: Standing<'a>,
}

/// Whose script it is, which decides what it may call.
#[derive(Debug, Clone, Copy)]
pub(super) enum Standing<'a> {
    /// An artifact's. What it calls gets no more than its own grant.
    Artifact,
    /// A model's or a client's. What it calls gets no more than its caller, where that is a script.
    Code {
        /// The grant of that.
        caller: Option<&'a Arc<Grant>>,
        /// The text of the script.
        script: &'a str,
    },
}

/// Runs one in an instance of its own; `what` says which it is. Gives back what it started, too.
pub(super) async fn run(
    place: &CallContext,
    Of { tool, grant, standing }: Of<'_>,
    (image, what): (&Image, &str),
    limits: Limits,
    input: &str,
) -> (Report<String>, Vec<Nested>) {
    let place = &place.working(tool);
    let script = format!("{what} {}", tool.name);
    let listener = ToolVoice::of(place, &tool.name, &script);
    let inner = Inner::new(place, script, &tool.source_name, grant.clone(), Role::Tool);
    let inner = Arc::new(match standing {
        Standing::Artifact => inner,
        Standing::Code { caller, script } => inner.of_code(place, caller.cloned(), &digest(script)),
    });
    let context = Context {
        grant: grant.clone(),
        workspace: place.workspace.clone(),
        session: place.run.session().clone(),
        turn: place.turn.clone(),
        namespace: place.loaded.namespace(&tool.source_name),
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
