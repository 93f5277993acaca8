//! Why a call was not made.

use super::chain::Dispatch;
use harness_artifact::arguments::ArgumentError;
use harness_policy::refusal::Refusal;
use harness_registry::UnknownTool;
use harness_sandbox::outcome::{Failure, Limit, LimitKind};

/// Why a call was not made.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// There is no such tool.
    #[error(transparent)]
    Unknown(#[from] UnknownTool),
    /// The policy does not allow this tool to be called.
    #[error("{}", .0.reason)]
    NotAllowed(Refusal),
    /// The tool has no script, and the program has no implementation for it.
    #[error("tool `{0}` has no implementation: its file has no `script`")]
    NoScript(String),
    /// The arguments do not fit its parameters. All that is wrong with them.
    #[error("the arguments of `{tool}` do not fit its parameters{}", hooks_of(.changed_by))]
    Arguments {
        /// Which tool.
        tool: String,
        /// What is wrong.
        errors: Vec<ArgumentError>,
        /// The hooks that changed them, where they did fit before.
        changed_by: Vec<String>,
        /// What the hooks did then.
        pre: Option<Box<Dispatch>>,
    },
    /// The reply that calls it ended within its arguments.
    #[error("the reply was cut at its length before the arguments of `{0}` were complete: the call was not made")]
    Cut(String),
    /// The process that made it ended before it had a result.
    #[error(
        "the host ended while this call of `{0}` was under way, and whether it took effect is unknown; it was not made \
         again, because the tool does not say `effect: none` or `effect: idempotent`"
    )]
    Interrupted(String),
    /// This tool has failed its caller so often in a row.
    #[error(
        "the tool `{0}` has failed {1} times in a row and is not called again until this task is over; \
         `delegation.max_tool_failures` in `harness.md` raises that"
    )]
    Failing(String, u64),
    /// Its script cannot be loaded.
    #[error("{}", .0.message)]
    Script(Failure),
    /// Its time was over while it waited for its script to be loaded, which continues.
    #[error("tool `{0}` was ended while its script was loaded: {1}; the next call may find it loaded")]
    Late(String, Limit),
    /// The host could not load it.
    #[error("{0}")]
    Host(String),
}

impl CallError {
    /// That a tool's time of so many milliseconds was over while its script was loaded.
    pub(super) fn late(tool: &str, allowed: u64) -> Self {
        Self::Late(tool.to_owned(), Limit::of(LimitKind::Deadline, allowed))
    }

    /// The word for it in records: `denied`, `limited` or `rejected`.
    pub fn outcome(&self) -> &'static str {
        match self {
            Self::NotAllowed(_) => "denied",
            Self::Late(..) => "limited",
            _ => "rejected",
        }
    }
}

fn hooks_of(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!(" after they were changed by {}", names.join(", ")) }
}
