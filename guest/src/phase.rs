//! What the interpreter is doing now, and so which built-ins may be called.
//!
//! The host links for each role only what that role may do, and the instance ends when something else is called. The
//! check here comes first and says in plain words what the trap could not.

use std::cell::Cell;

/// What is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The top level of a script.
    Loading,
    /// `run` of a tool.
    Tool,
    /// `handle` of a hook.
    Hook,
    /// `when` of a hook.
    Predicate,
}

/// Who may call a built-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// A tool or a hook.
    Any,
    /// A tool: hooks do not change anything and start nothing.
    Tool,
}

thread_local! {
    static PHASE: Cell<Phase> = const { Cell::new(Phase::Loading) };
}

/// Sets what is running from now on.
pub(crate) fn enter(phase: Phase) {
    PHASE.set(phase);
}

/// Whether a script is loaded, and nothing of the host can be asked.
pub(crate) fn is_loading() -> bool {
    PHASE.get() == Phase::Loading
}

/// Refuses a built-in that the running phase may not call.
pub(crate) fn check(builtin: &str, needs: Needs) -> anyhow::Result<()> {
    match (PHASE.get(), needs) {
        (Phase::Tool, _) | (Phase::Hook, Needs::Any) => Ok(()),
        (Phase::Loading, _) => {
            anyhow::bail!("`{builtin}` cannot be called while the script is loaded: call it in `run` or `handle`")
        }
        (Phase::Hook, Needs::Tool) => {
            anyhow::bail!("`{builtin}` is not there in a hook: hooks inspect and decide, they run and change nothing")
        }
        (Phase::Predicate, _) => {
            anyhow::bail!("`{builtin}` is not there in `when`: it is a pure expression over `payload` and `event`")
        }
    }
}
