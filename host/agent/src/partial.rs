//! What an agent had said when its turn ended without an answer, and the message that keeps it in the conversation.

use std::sync::{Mutex, PoisonError};

use harness_provider::Message;

/// How a turn ended that has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The user stopped it.
    Stopped,
    /// It failed: at a service, a hook or a limit.
    Failed,
}

/// Returns the message that closes a turn without an answer: the part of the answer that the user saw, then a mark. Without
/// it the next message of the user would follow the last one, which many services reject.
pub fn closing(said: &str, ending: Ending) -> Message {
    let mark = match ending {
        Ending::Stopped => "[stopped by the user before the answer was complete]",
        Ending::Failed => "[the turn failed before the answer was complete]",
    };
    let text = if said.is_empty() { mark.to_owned() } else { format!("{said}\n{mark}") };
    Message::Assistant { text, calls: Vec::new() }
}

/// The part of an answer that was shown, while a turn has a message and no answer.
#[derive(Debug, Default)]
pub(super) struct Partial(Mutex<Option<String>>);

impl Partial {
    fn with<T>(&self, work: impl FnOnce(&mut Option<String>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The conversation has the message of a turn.
    pub(super) fn begin(&self) {
        self.with(|said| *said = Some(String::new()));
    }

    /// More of a reply was shown.
    pub(super) fn add(&self, text: &str) {
        self.with(|said| said.iter_mut().for_each(|said| said.push_str(text)));
    }

    /// What was shown is void, or is in the conversation by now.
    pub(super) fn clear(&self) {
        self.with(|said| said.iter_mut().for_each(String::clear));
    }

    /// What was shown so far, where a turn is open.
    pub(super) fn get(&self) -> Option<String> {
        self.with(|said| said.clone())
    }

    /// The same; no turn is open any more.
    pub(super) fn take(&self) -> Option<String> {
        self.with(Option::take)
    }
}
