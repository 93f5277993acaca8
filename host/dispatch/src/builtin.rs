//! Tools that are the host's own: those by which an agent sets others to work and says that it is done. They are found
//! like any other and go through the same six steps.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::Value as Json;

use super::chain::CallContext;
use super::past::Happened;
use super::reentry::Nested;
use harness_artifact::tool::Tool;
pub use harness_artifact::tool::{DONE, READ_SKILL};
use harness_policy::grant::Grant;
use harness_sandbox::outcome::Outcome;

/// The name of the tool that sets a sub-agent a task. A script's `delegate(...)` is a call of it.
pub const DELEGATE: &str = "delegate";
/// The same without waiting for it.
pub const DELEGATE_ASYNC: &str = "delegate_async";
/// What has become of that.
pub const DELEGATE_STATUS: &str = "delegate_status";
/// Waits for that.
pub const DELEGATE_AWAIT: &str = "delegate_await";
/// What has become of a call of a tool that was not waited for.
pub const TASK_POLL: &str = "task_poll";
/// Waits for that.
pub const TASK_AWAIT: &str = "task_await";

/// A call of one of them.
#[derive(Debug)]
pub struct BuiltInCall<'a> {
    /// Which.
    pub name: &'a str,
    /// They fit its parameters.
    pub arguments: &'a Json,
    /// The grant of the script that calls it, where one does: nothing that it starts gets more.
    pub caller: Option<&'a Arc<Grant>>,
}

/// What came of it.
#[derive(Debug)]
pub struct Answered {
    /// Of one that completed, its result as JSON text.
    pub outcome: Outcome<String>,
    /// What it started.
    pub nested: Vec<Nested>,
}

/// The built-in tools of one agent at work.
pub trait BuiltIns: fmt::Debug + Send + Sync {
    /// Those that it has.
    fn tools(&self) -> &[Arc<Tool>];

    /// Tells whoever watches the agent.
    fn happened(&self, what: &Happened<'_>);

    /// Runs one of them at a place.
    fn call<'a>(
        &'a self,
        place: &'a CallContext,
        call: BuiltInCall<'a>,
    ) -> Pin<Box<dyn Future<Output = Answered> + Send + 'a>>;
}
