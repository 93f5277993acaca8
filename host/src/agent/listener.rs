//! Who watches an agent at work: a terminal, a record.

use std::fmt::Debug;
use std::time::Duration;

use crate::dispatch::{CallError, CallReport, Dispatch};
use crate::provider::{Reply, Request, ToolCall};

/// Told of what happens while it happens, in order. It must not take long: the agent waits for it.
pub trait Listener: Debug + Send + Sync {
    /// Something happened.
    fn told(&self, what: &Told<'_>);
}

/// Tells nobody.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl Listener for Silent {
    fn told(&self, _: &Told<'_>) {}
}

/// What happened. `agent` is the sub-agent; empty for the root.
#[derive(Debug)]
#[non_exhaustive]
#[expect(missing_docs, reason = "said once, above")]
pub enum Told<'a> {
    /// A turn begins.
    Turn { agent: &'a str, depth: u32, text: &'a str },
    /// A model is asked. `round` counts from 1.
    Asked { agent: &'a str, round: u32, request: &'a Request },
    /// More of what it says.
    Text { agent: &'a str, text: &'a str },
    /// It failed to answer and is asked again after a pause; text that was told is void.
    Retry { agent: &'a str, error: &'a str, pause: Duration },
    /// It answered.
    Answered { agent: &'a str, reply: &'a Reply, took: Duration },
    /// A call begins.
    Calls { agent: &'a str, call: &'a ToolCall },
    /// A call has ended; `content` is what the model gets.
    Called {
        agent: &'a str,
        call: &'a ToolCall,
        report: Result<&'a CallReport, &'a CallError>,
        content: &'a str,
        took: Duration,
    },
    /// Hooks were asked of an event of the loop.
    Event { agent: &'a str, dispatch: &'a Dispatch },
    /// A sub-agent begins an attempt, from 1.
    Delegated { agent: &'a str, to: &'a str, depth: u32, attempt: u32, task: &'a str },
    /// It has ended.
    Returned { agent: &'a str, from: &'a str, result: Result<&'a serde_json::Value, &'a str> },
}
