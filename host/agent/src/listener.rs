//! Who watches an agent at work: a terminal, a record.

use std::fmt::Debug;
use std::time::Duration;

use super::error::TurnError;
use super::turn::Turn;
use harness_dispatch::confirm::Answer;
use harness_dispatch::{CallError, CallReport, Dispatch, Looked, Saw};
use harness_provider::{Message, Reply, Request, ToolCall};

/// Told of what happens while it happens, in order. It must not take long: the agent waits for it.
pub trait Listener: Debug + Send + Sync {
    /// Something happened.
    fn told(&self, what: &Told<'_>);

    /// The same, for whoever tells agents of one name apart.
    fn told_by(&self, who: &Who<'_>, what: &Told<'_>) {
        let _ = who;
        self.told(what);
    }
}

/// An agent at work.
#[derive(Debug, Clone, Copy)]
pub struct Who<'a> {
    /// Of the delegation that it works for; `root` at the root.
    pub id: &'a str,
    /// The one that set it to work.
    pub parent: Option<&'a str>,
}

/// Tells nobody.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl Listener for Silent {
    fn told(&self, _: &Told<'_>) {}
}

/// What happened. `agent` is the sub-agent; empty for the root.
#[derive(Debug)]
#[expect(missing_docs, reason = "said once, above")]
pub enum Told<'a> {
    /// A turn begins.
    Turn { agent: &'a str, depth: u32, text: &'a str },
    /// Something was said in its conversation: message `at` of it, from 0. What was there from `at` on is void.
    Said { agent: &'a str, at: usize, message: &'a Message },
    /// A model is asked. `round` counts from 1, `room` is the most tokens of what it is sent.
    Asked { agent: &'a str, round: u32, request: &'a Request, room: u64 },
    /// More of what it says.
    Text { agent: &'a str, text: &'a str },
    /// It failed to answer and is asked again after a pause; text that was told is void.
    Retry { agent: &'a str, error: &'a str, pause: Duration },
    /// It answered.
    Answered { agent: &'a str, reply: &'a Reply, took: Duration },
    /// It did not, and nobody asks again.
    Unanswered { agent: &'a str, error: &'a str, took: Duration },
    /// A model could not be had: that of this name, or the project's.
    NoModel { model: Option<&'a str>, error: &'a str },
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
    /// A turn has come to its end. `given` is how often it was given something of its budgets.
    Turned { agent: &'a str, turn: Result<&'a Turn, &'a TurnError>, given: u64 },
    /// Nobody waits for its end any more.
    GivenUp { agent: &'a str },
    /// Hooks were asked of an event of the loop.
    Event { agent: &'a str, dispatch: &'a Dispatch },
    /// A sub-agent begins an attempt, from 1.
    Delegated { agent: &'a str, to: &'a str, depth: u32, attempt: u32, task: &'a str },
    /// The policy's script has judged its result: why it is not accepted, where it is not.
    Judged { agent: &'a str, of: &'a str, refused: Option<&'a str>, took: Duration },
    /// It has ended.
    /// `id` is the delegation's; `late` where its time was over before it was done.
    Returned { agent: &'a str, id: &'a str, from: &'a str, result: Result<&'a serde_json::Value, &'a str>, late: bool },
    /// A person was asked whether a call may be made, or nobody could be.
    Confirmed { agent: &'a str, call: &'a str, tool: &'a str, answer: Answer },
    /// A call goes on as a task of this identifier, or cannot. What happens in it happens in a strand of its own.
    Began { agent: &'a str, call: &'a str, tool: &'a str, strand: &'a str, task: Result<&'a str, &'a str> },
    /// A task has ended; `late` are the milliseconds that it had, where they were over before.
    Ended { agent: &'a str, task: &'a str, report: &'a CallReport, late: Option<u64> },
    /// A task was ended with whom it belongs to.
    Abandoned { agent: &'a str, task: &'a str, tool: &'a str },
    /// Tasks were asked for.
    Looked { agent: &'a str, looked: &'a Looked },
    /// What scripts have added to the run was seen anew, or added to.
    Saw { agent: &'a str, saw: &'a Saw },
}
