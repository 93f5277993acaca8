//! Events of an agent that works, for a terminal or a recorder.

use std::fmt::Debug;
use std::time::Duration;

use super::error::TurnError;
use super::turn::{Interrupted, Turn};
use harness_capability::progress::Step;
use harness_dispatch::confirm::Answer;
use harness_dispatch::{CallError, CallReport, Dispatch, Looked, Saw};
use harness_provider::{Message, Reply, Request, ToolCall};

/// Receives the events of an agent, in order, while they happen. It must be fast: the agent waits for it.
pub trait Listener: Debug + Send + Sync {
    /// Receives an event.
    fn notify(&self, what: &AgentEvent<'_>);

    /// Receives an event with its source, for listeners that distinguish agents of the same name.
    fn notify_from(&self, who: &EventSource<'_>, what: &AgentEvent<'_>) {
        let _ = who;
        self.notify(what);
    }
}

/// The agent that an event comes from.
#[derive(Debug, Clone, Copy)]
pub struct EventSource<'a> {
    /// The identifier of its delegation; `root` for the root.
    pub id: &'a str,
    /// The identifier of its parent.
    pub parent: Option<&'a str>,
}

/// A listener that ignores every event.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl Listener for Silent {
    fn notify(&self, _: &AgentEvent<'_>) {}
}

/// An event of an agent. `agent` is the name of the sub-agent; empty for the root.
#[derive(Debug)]
#[expect(missing_docs, reason = "said once, above")]
pub enum AgentEvent<'a> {
    /// A turn begins.
    Turn { agent: &'a str, depth: u32, text: &'a str },
    /// The root continues a turn that was interrupted with its process.
    Continued { turn: &'a Interrupted },
    /// The conversation has message `at`, from 0. Earlier messages from `at` on are void.
    Said { agent: &'a str, at: usize, message: &'a Message },
    /// A request is sent to a model. `round` counts from 1; `room` is the maximum of its tokens.
    Asked { agent: &'a str, round: u32, request: &'a Request, room: u64 },
    /// A part of the reply as it is streamed.
    Text { agent: &'a str, text: &'a str },
    /// The request failed and is retried after a pause, as attempt `attempt` of at most `of`. Text that was streamed is void.
    Retry { agent: &'a str, error: &'a str, pause: Duration, attempt: u32, of: u32 },
    /// Nothing has come from the model's service for this long; the host keeps waiting.
    Silent { agent: &'a str, since: Duration },
    /// The reply is complete.
    Answered { agent: &'a str, reply: &'a Reply, took: Duration },
    /// The request failed and is not retried.
    Unanswered { agent: &'a str, error: &'a str, took: Duration },
    /// A model is not available: the model of this name, or of the project.
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
    /// A turn has ended. `given` counts how often it got a part of its budgets; `said` is what was shown of an answer if the
    /// turn has a message and no answer.
    Turned { agent: &'a str, turn: Result<&'a Turn, &'a TurnError>, given: u64, said: Option<&'a str> },
    /// The turn was canceled, with what was shown of its answer.
    GivenUp { agent: &'a str, said: Option<&'a str> },
    /// The messages before place `before` of the conversation were dropped.
    Forgot { agent: &'a str, before: usize },
    /// The agent runs on the model of this name from now on.
    Switched { agent: &'a str, model: &'a str },
    /// An event of the loop was dispatched to its hooks.
    Event { agent: &'a str, dispatch: &'a Dispatch },
    /// A sub-agent begins an attempt, from 1.
    Delegated { agent: &'a str, to: &'a str, depth: u32, attempt: u32, task: &'a str },
    /// `delegation.verify` has verified a result. `refused` is the reason of a rejection.
    Judged { agent: &'a str, of: &'a str, refused: Option<&'a str>, took: Duration },
    /// A delegation has ended. `id` is its identifier; `late` is set if its deadline passed first.
    Returned { agent: &'a str, id: &'a str, from: &'a str, result: Result<&'a serde_json::Value, &'a str>, late: bool },
    /// A person is asked whether a call may be made, which has done nothing so far but its hooks on `tool.pre`.
    Asks { agent: &'a str, call: &'a str, tool: &'a str },
    /// The answer to a confirmation, also if no confirmer was available.
    Confirmed { agent: &'a str, call: &'a str, tool: &'a str, answer: Answer },
    /// A call continues as a task with this identifier and its own strand, or could not start.
    Began { agent: &'a str, call: &'a str, tool: &'a str, strand: &'a str, task: Result<&'a str, &'a str> },
    /// A task has ended. `late` is its time limit in milliseconds, if that passed first.
    Ended { agent: &'a str, task: &'a str, report: &'a CallReport, late: Option<u64> },
    /// A task was ended with its owner.
    Abandoned { agent: &'a str, task: &'a str, tool: &'a str },
    /// A tool reported how far it is.
    Step { agent: &'a str, tool: &'a str, step: &'a Step },
    /// The status of tasks was requested.
    Looked { agent: &'a str, looked: &'a Looked },
    /// Additions of scripts to the run were read or extended.
    Saw { agent: &'a str, saw: &'a Saw },
}
