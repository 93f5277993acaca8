//! Imports that lead back into dispatch: a script that fires an event, calls a tool or adds one.
//!
//! Dispatch gives each call one of these, which knows the caller, with what grant and how deep. The sandbox knows only
//! this trait.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Instant;

use serde_json::Value as Json;

use super::denial::Denial;
use super::{agents, ask, events, meta, tasks};

/// What is left of the caller's own limits. What a nested call uses is taken from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// Units of fuel.
    pub fuel: u64,
    /// The caller's deadline, which stays where it is however long what is started in turn takes to begin.
    pub deadline: Instant,
    /// What is left of further limits, where the caller shares them with all that it calls; none where each call has
    /// its own.
    pub tree: Option<Tree>,
}

/// What is left of limits that a script of code mode shares with all that it calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tree {
    /// Host calls.
    pub host_calls: u64,
    /// Bytes of memory beside that of those who wait for the call.
    pub memory: u64,
}

impl Allowance {
    /// What is left after some fuel was used.
    #[must_use]
    pub fn after(self, fuel: u64) -> Self {
        Self { fuel: self.fuel.saturating_sub(fuel), ..self }
    }

    /// The same after some host calls, which count where they are shared.
    #[must_use]
    pub fn after_host_calls(self, calls: u64) -> Self {
        let less = |tree: Tree| Tree { host_calls: tree.host_calls.saturating_sub(calls), ..tree };
        Self { tree: self.tree.map(less), ..self }
    }

    /// The equal part of one of so many that run at the same time. Which of them is the faster decides nothing.
    #[must_use]
    pub fn part(self, of: u64) -> Self {
        let of = of.max(1);
        let tree = self.tree.map(|tree| Tree { host_calls: tree.host_calls / of, ..tree });
        Self { fuel: self.fuel / of, tree, ..self }
    }
}

/// For how long tasks are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Not at all.
    None,
    /// Until all have ended, or it is this late.
    Until(Option<Instant>),
}

/// An answer, and the fuel that getting it took.
pub type Answering<'a, T, E> = Pin<Box<dyn Future<Output = (Result<T, E>, u64)> + Send + 'a>>;

/// A built-in that was called.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Such as `fs.read`.
    pub function: &'static str,
    /// What it was called with.
    pub arguments: Json,
    /// What it gave, or why it gave nothing.
    pub result: Result<Json, String>,
}

/// Which events of built-ins have hooks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Listening {
    /// `builtin.pre`.
    pub before: bool,
    /// `builtin.post`.
    pub after: bool,
}

impl Listening {
    /// Whether any has.
    pub fn any(self) -> bool {
        self.before || self.after
    }
}

/// The way back into dispatch, for one call of a script.
pub trait Reentry: Send + Sync + fmt::Debug {
    /// Which hooks listen to the built-ins that it calls.
    fn listening(&self) -> Listening {
        Listening::default()
    }
    /// The host calls of all that was started so far, where the script shares its own with that; none where it does not.
    fn shared_host_calls(&self) -> Option<u64> {
        None
    }
    /// `builtin.pre`: the arguments where a hook changed them, or why the function is not called.
    fn before(&self, function: &'static str, arguments: Json, left: Allowance) -> Answering<'_, Option<Json>, Denial> {
        let _ = (function, arguments, left);
        Box::pin(async { (Ok(None), 0) })
    }
    /// `builtin.post`: the result where a hook changed it, or why it is kept back.
    fn after(&self, call: Ended, left: Allowance) -> Answering<'_, Option<Json>, Denial> {
        let _ = (call, left);
        Box::pin(async { (Ok(None), 0) })
    }
    /// `events.emit`: the payload after the hooks.
    fn emit(&self, event: String, payload: String, left: Allowance) -> Answering<'_, String, events::Error>;
    /// `meta.register-tool`.
    fn register_tool(&self, tool: meta::NewTool, left: Allowance) -> Answering<'_, (), meta::Error>;
    /// `meta.register-hook`.
    fn register_hook(&self, hook: meta::NewHook, left: Allowance) -> Answering<'_, (), meta::Error>;
    /// `meta.call-tool`: the content that a model would get.
    fn call_tool(&self, name: String, arguments: String, left: Allowance) -> Answering<'_, String, meta::Error>;
    /// `meta.call-all`: what each call gave, as a JSON list.
    fn call_all(&self, calls: String, left: Allowance) -> Answering<'_, String, meta::Error>;
    /// `agents.delegate`: the result of the agent, as JSON.
    fn delegate(&self, agent: String, task: String, left: Allowance) -> Answering<'_, String, agents::Error>;
    /// `agents.delegate-async`: the task, as JSON.
    fn delegate_async(&self, agent: String, task: String, left: Allowance) -> Answering<'_, String, agents::Error>;
    /// `tasks.poll` and `tasks.wait`: what became of each, as a JSON list.
    fn tasks(&self, ids: Vec<String>, patience: Patience) -> Answering<'_, String, tasks::Error>;
    /// `ask.ask`: the answers, as a JSON list in the order of the questions.
    fn ask(&self, questions: Vec<ask::Asked>, left: Allowance) -> Answering<'_, String, ask::Error> {
        let _ = (questions, left);
        Box::pin(async { (Err(ask::Error::Unavailable("nobody can be asked here".to_owned())), 0) })
    }
    /// `ask.can`: whom the client of the call can answer for, of `user`, `model` and `roots`.
    fn can_ask(&self) -> Vec<&'static str> {
        Vec::new()
    }
    /// `meta.list-tools`.
    fn list_tools(
        &self,
        pattern: Option<String>,
        left: Allowance,
    ) -> Answering<'_, Vec<meta::ToolSummary>, meta::Error>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_is_not_left() {
        let deadline = Instant::now();
        let left = |fuel| Allowance { fuel, deadline, tree: None };
        assert_eq!(left(10).after(3), left(7));
        assert_eq!(left(10).after(11), left(0));
        assert_eq!(left(10).after_host_calls(3).part(3), left(3));
        let shared = |fuel, host_calls| Allowance { tree: Some(Tree { host_calls, memory: 7 }), ..left(fuel) };
        assert_eq!(shared(10, 9).after(1).after_host_calls(2), shared(9, 7));
        assert_eq!(shared(10, 1).after_host_calls(2), shared(10, 0));
        assert_eq!(shared(10, 9).part(4), shared(2, 2));
        assert_eq!(shared(10, 9).part(0), shared(10, 9));
    }
}
