//! What was said in a conversation, as far as a model may still get it.

use std::collections::HashSet;

use harness_provider::message::{closed, without_orphans};
use harness_provider::{Message, ToolCall};

/// A conversation. What is too old to be in any request again is not kept.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    messages: Vec<Message>,
    /// Messages that came before these.
    gone: usize,
    /// Calls in those.
    gone_calls: usize,
    /// Turns that have begun.
    turns: u64,
    /// The place of the message that the last turn began with.
    began: usize,
}

impl From<Vec<Message>> for Conversation {
    fn from(messages: Vec<Message>) -> Self {
        Self { messages, ..Self::default() }
    }
}

impl Conversation {
    /// The messages that are kept.
    pub(super) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Messages in all: the place of the next one.
    pub(super) fn len(&self) -> usize {
        self.gone.saturating_add(self.messages.len())
    }

    /// Those from a place on, with their places.
    pub(super) fn since(&self, place: usize) -> impl Iterator<Item = (usize, &Message)> {
        (self.gone..).zip(&self.messages).skip_while(move |(at, _)| *at < place)
    }

    pub(super) fn push(&mut self, message: Message) {
        self.messages.push(message);
    }

    /// The one that was said last.
    pub(super) fn last_mut(&mut self) -> Option<&mut Message> {
        self.messages.last_mut()
    }

    /// The number of the turn that is about to begin, counted from 1.
    pub(super) fn count_turn(&mut self) -> u64 {
        self.turns = self.turns.saturating_add(1);
        self.turns
    }

    /// Closes a turn that ended without an answer: its open calls, then this message.
    pub(super) fn close_turn(&mut self, message: Message) {
        self.messages = without_orphans(closed(std::mem::take(&mut self.messages)));
        self.messages.push(message);
    }

    /// A turn begins. What a turn that failed has left open is closed; and of the turns before those are dropped that
    /// do not fit into the newest `most` messages whole, which is all that a request may have.
    pub(super) fn begin_turn(&mut self, most: usize) {
        self.messages = without_orphans(closed(std::mem::take(&mut self.messages)));
        let from = self.messages.len().saturating_sub(most);
        let begins = |message: &Message| matches!(message, Message::User(_));
        let kept = self.messages.iter().skip(from).position(begins).map_or(self.messages.len(), |at| from + at);
        self.forget(self.gone.saturating_add(kept));
        self.began = self.len();
    }

    /// The place of the message that the last turn began with.
    pub(super) fn began(&self) -> usize {
        self.began
    }

    /// Drops the messages before a place.
    pub(super) fn forget(&mut self, before: usize) {
        let kept = before.saturating_sub(self.gone).min(self.messages.len());
        let calls = self.messages.drain(..kept).map(|message| calls(&message).len()).sum();
        self.gone = self.gone.saturating_add(kept);
        self.gone_calls = self.gone_calls.saturating_add(calls);
    }

    /// Gives the calls of a reply identifiers that no other has, where they do not have them: results are distinguished
    /// by them.
    pub(super) fn tell_apart(&self, new: &mut [ToolCall]) {
        let mut taken: HashSet<String> = self.messages.iter().flat_map(calls).map(|call| call.id.clone()).collect();
        for call in new {
            if call.id.is_empty() || !taken.insert(call.id.clone()) {
                let mut number = self.gone_calls.saturating_add(taken.len());
                let free = loop {
                    let id = format!("call_{number}");
                    if !taken.contains(&id) {
                        break id;
                    }
                    number = number.saturating_add(1);
                };
                taken.insert(free.clone());
                call.id = free;
            }
        }
    }
}

impl Extend<Message> for Conversation {
    fn extend<T: IntoIterator<Item = Message>>(&mut self, messages: T) {
        self.messages.extend(messages);
    }
}

fn calls(message: &Message) -> &[ToolCall] {
    if let Message::Assistant { calls, .. } = message { calls } else { &[] }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::window::{Room, window};

    fn call(id: &str) -> ToolCall {
        ToolCall { id: id.to_owned(), name: "t".to_owned(), arguments: "{}".to_owned() }
    }

    fn said(text: &str) -> Message {
        Message::Assistant { text: text.to_owned(), calls: Vec::new() }
    }

    /// A turn with a number of calls in one reply.
    fn turn(at: usize, number: usize) -> Vec<Message> {
        let ids: Vec<String> = (0..number).map(|one| format!("{at}-{one}")).collect();
        let result = |id: &String| Message::Tool { call_id: id.clone(), name: "t".to_owned(), content: "1".to_owned() };
        let calls = Message::Assistant { text: String::new(), calls: ids.iter().map(|id| call(id)).collect() };
        let asked = (number > 0).then_some(calls);
        let begins = [Message::User(at.to_string())].into_iter();
        begins.chain(asked).chain(ids.iter().map(result)).chain([said("done")]).collect()
    }

    #[test]
    fn whole_turns_are_kept_as_far_as_they_fit() {
        let mut conversation = Conversation::from([turn(0, 1), turn(1, 0), turn(2, 0)].concat());
        conversation.begin_turn(5);
        assert_eq!(conversation.messages(), [turn(1, 0), turn(2, 0)].concat());
        assert_eq!(conversation.len(), 8);
        conversation.push(Message::User("3".to_owned()));
        let since: Vec<_> = conversation.since(7).collect();
        assert_eq!(since, [(7, &said("done")), (8, &Message::User("3".to_owned()))]);
        conversation.begin_turn(0);
        assert_eq!((conversation.messages(), conversation.len()), (&[][..], 9));
    }

    #[test]
    fn calls_are_told_apart_from_those_that_are_gone_too() {
        let mut conversation = Conversation::from([turn(0, 2), turn(1, 1)].concat());
        conversation.begin_turn(4);
        assert_eq!(conversation.messages(), turn(1, 1));
        let mut new = [call(""), call("1-0"), call("mine"), call("mine")];
        conversation.tell_apart(&mut new);
        assert_eq!(new.map(|call| call.id), ["call_3", "call_4", "mine", "call_6"]);
    }

    proptest! {
        /// What is dropped would not have been in a request.
        #[test]
        fn a_model_gets_the_same(
            turns in proptest::collection::vec(0_usize..6, 0..12),
            messages in 0_usize..30,
            tokens in 0_u64..400,
        ) {
            let all: Vec<Message> = turns.iter().enumerate().flat_map(|(at, number)| turn(at, *number)).collect();
            let room = Room { messages, tokens };
            let now = |before: &[Message]| {
                let history = [before, &turn(99, 2)].concat();
                window(&history, before.len(), room)
            };
            let mut conversation = Conversation::default();
            for (at, number) in turns.iter().enumerate() {
                conversation.begin_turn(messages);
                conversation.extend(turn(at, *number));
            }
            prop_assert_eq!(conversation.len(), all.len());
            conversation.begin_turn(messages);
            prop_assert!(conversation.messages().len() <= messages);
            prop_assert_eq!(now(conversation.messages()), now(&all));
        }
    }
}
