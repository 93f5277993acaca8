//! The rest of a turn that another process began and did not end.

use std::time::Instant;

use super::super::conversation::Conversation;
use super::super::error::TurnError;
use super::super::ledger::Entry;
use super::super::listener::AgentEvent;
use super::Work;
use harness_artifact::tool::{DONE, READ_SKILL};
use harness_dispatch::CallError;
use harness_dispatch::payload::LogLine;
use harness_provider::{Message, ToolCall};

/// A turn that ended with its process, as far as it came.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interrupted {
    /// Its message.
    pub text: String,
    /// Messages of the conversation before its own.
    pub began: usize,
    /// Rounds with calls.
    pub rounds: u32,
    /// Calls that were made, also by sub-agents: budgets count them.
    pub calls: u64,
    /// Tokens that the models' services counted, also for sub-agents.
    pub tokens: u64,
    /// Those calls of its last reply that had begun and have no result, by their identifiers.
    pub begun: Vec<String>,
}

impl Work<'_> {
    /// Continues a turn where it was interrupted: the calls of the last reply that have no result, then its rounds.
    pub(super) async fn rest(
        &mut self,
        history: &mut Conversation,
        turn: &Interrupted,
    ) -> Result<(String, Vec<LogLine>), TurnError> {
        self.rounds = turn.rounds;
        self.purse.ledger.used_before(turn.rounds.into(), turn.tokens, turn.calls);
        self.runtime.partial.begin();
        let answer = match history.messages().last() {
            // It was given, and only its end is missing.
            Some(Message::Assistant { text, calls }) if calls.is_empty() => text.clone(),
            _ => {
                self.open_calls(history, turn).await?;
                self.rounds(history, turn.began).await?
            }
        };
        self.finish(history, answer).await
    }

    /// Makes the calls that have no result, in order. Of one that had begun nobody knows whether it took effect: it is made
    /// again only where its tool says that this does no harm.
    async fn open_calls(&mut self, history: &mut Conversation, turn: &Interrupted) -> Result<(), TurnError> {
        for call in open(history.messages()) {
            self.purse.take(Entry::Call)?;
            self.notify(&AgentEvent::Calls { agent: self.runtime.name(), call: &call });
            let started = Instant::now();
            let called = if turn.begun.contains(&call.id) && !self.can_repeat(&call.name) {
                Err(CallError::Interrupted(call.name.clone()))
            } else {
                self.call(&call, 1).await
            };
            self.take_result(history, &call, started, called);
        }
        Ok(())
    }

    fn can_repeat(&self, name: &str) -> bool {
        let tool = self.runtime.loaded.registry().tool(name);
        tool.map_or(matches!(name, READ_SKILL | DONE), |tool| tool.effect.can_repeat())
    }
}

/// The calls of the last reply that have no result.
fn open(messages: &[Message]) -> Vec<ToolCall> {
    let last = messages.iter().rposition(|message| !matches!(message, Message::Tool { .. }));
    let Some((last, Some(Message::Assistant { calls, .. }))) = last.map(|last| (last, messages.get(last))) else {
        return Vec::new();
    };
    let has_result = |id: &str| {
        let mut results = messages.iter().skip(last);
        results.any(|message| matches!(message, Message::Tool { call_id, .. } if call_id == id))
    };
    calls.iter().filter(|call| !has_result(&call.id)).cloned().collect()
}
