//! How much of a conversation a model gets: the newest of it, cut between turns and never inside a group of calls and
//! their results.

use harness_provider::{Message, Reply, Request, ToolSchema};

/// Tokens that a message takes beside its text.
const PER_MESSAGE: u64 = 4;
/// Bytes of a token, about.
const BYTES_PER_TOKEN: u64 = 4;

/// Most of a conversation that goes into a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    pub(super) messages: usize,
    /// For the conversation, without the system prompt and the tools.
    pub(super) tokens: u64,
}

/// The room that is left for the conversation in a request that has everything else. `scale` is how many tokens the
/// model's service counts for one that is estimated here.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an estimate")]
pub(super) fn room(messages: usize, most: u64, reply: Option<u64>, scale: f64, request: &Request) -> Room {
    // The reply needs its part.
    let room = most.saturating_sub(reply.unwrap_or(0).min(most / 2));
    let room = (room as f64 / scale) as u64;
    Room { messages, tokens: room.saturating_sub(tokens_of(request)) }
}

/// Where the part of a conversation begins that a model got: of the turns before, and of the turn of now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Start {
    before: usize,
    turn: usize,
}

/// Where the part begins that a model gets. What comes before `pinned`, the message that the turn began with, goes
/// first, whole turns at a time, the oldest first; then the oldest groups of the turn itself, but never its first
/// message or its last group.
pub(super) fn window(history: &[Message], pinned: usize, room: Room) -> Vec<Message> {
    window_from(history, pinned, room, &mut Start::default())
}

/// The same where the part begins no earlier than the last one did, which may be estimated otherwise by now.
pub(super) fn window_from(history: &[Message], pinned: usize, room: Room, start: &mut Start) -> Vec<Message> {
    let (before, turn) = history.split_at_checked(pinned).unwrap_or((&[], history));
    let Some((first, rest)) = turn.split_first() else { return before.to_vec() };
    let mut kept: Vec<&[Message]> = groups(rest);
    let size = |groups: &[&[Message]]| groups.iter().map(|group| group.len()).sum::<usize>().saturating_add(1);
    let cost = |groups: &[&[Message]]| {
        groups.iter().flat_map(|group| *group).map(tokens).sum::<u64>().saturating_add(tokens(first))
    };
    let mut dropped = 0;
    while kept.len() > 1 && (dropped < start.turn || size(&kept) > room.messages || cost(&kept) > room.tokens) {
        dropped += kept.remove(0).len();
    }
    let (mut size, mut cost) = (size(&kept), cost(&kept));
    // Backwards over the turns before, as long as they fit whole.
    let mut from = before.len();
    for (at, message) in before.iter().enumerate().rev() {
        size = size.saturating_add(1);
        cost = cost.saturating_add(tokens(message));
        if size > room.messages || cost > room.tokens || at < start.before {
            break;
        }
        if matches!(message, Message::User(_)) {
            from = at;
        }
    }
    *start = Start { before: from, turn: dropped };
    let older = before.get(from..).unwrap_or_default();
    older.iter().chain([first]).chain(kept.into_iter().flatten()).cloned().collect()
}

/// Messages that stay together: one that calls, and its results; one that was cut, and what asks for the rest of it.
fn groups(messages: &[Message]) -> Vec<&[Message]> {
    messages.chunk_by(|_, next| matches!(next, Message::Tool { .. } | Message::User(_))).collect()
}

/// About how many tokens a part of a message takes.
pub(super) fn tokens_of_text(text: &str) -> u64 {
    text.len() as u64 / BYTES_PER_TOKEN
}

/// About how many tokens a message takes.
pub(super) fn tokens(message: &Message) -> u64 {
    let bytes = match message {
        Message::System(text) | Message::User(text) => text.len(),
        Message::Assistant { text, calls } => {
            text.len() + calls.iter().map(|call| call.name.len() + call.arguments.len()).sum::<usize>()
        }
        Message::Tool { content, name, .. } => content.len() + name.len(),
    };
    (bytes as u64 / BYTES_PER_TOKEN).saturating_add(PER_MESSAGE)
}

/// About how many tokens a request takes.
pub(super) fn tokens_of(request: &Request) -> u64 {
    request.messages.iter().map(tokens).sum::<u64>().saturating_add(tokens_of_tools(request))
}

/// About how many tokens a reply has.
pub(super) fn tokens_of_reply(reply: &Reply) -> u64 {
    tokens(&Message::Assistant { text: reply.text.clone(), calls: reply.calls.clone() })
}

/// About how many of them its tools take.
pub(super) fn tokens_of_tools(request: &Request) -> u64 {
    request.tools.iter().map(tokens_of_tool).sum()
}

/// About how many of them one tool takes.
pub(super) fn tokens_of_tool(tool: &ToolSchema) -> u64 {
    let bytes = tool.name.len() + tool.description.len() + tool.parameters.to_string().len();
    (bytes as u64 / BYTES_PER_TOKEN).saturating_add(PER_MESSAGE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use harness_provider::ToolCall;
    use harness_provider::message::without_orphans;

    fn call(id: &str) -> Message {
        let call = ToolCall { id: id.to_owned(), name: "t".to_owned(), arguments: "{}".to_owned() };
        Message::Assistant { text: String::new(), calls: vec![call] }
    }

    fn result(id: &str) -> Message {
        Message::Tool { call_id: id.to_owned(), name: "t".to_owned(), content: "r".to_owned() }
    }

    fn user(text: &str) -> Message {
        Message::User(text.to_owned())
    }

    fn says(text: &str) -> Message {
        Message::Assistant { text: text.to_owned(), calls: Vec::new() }
    }

    const ALL: u64 = 1_000_000;

    #[test]
    fn whole_turns_go_first_then_whole_groups() {
        let history = vec![
            user("1"),
            call("a"),
            result("a"),
            says("one"),
            user("2"),
            says("two"),
            user("3"),
            call("b"),
            result("b"),
            call("c"),
            result("c"),
        ];
        let seen = |messages| window(&history, 6, Room { messages, tokens: ALL });
        assert_eq!(seen(11), history);
        assert_eq!(seen(10), history[4..]);
        assert_eq!(seen(7), history[4..]);
        assert_eq!(seen(6), history[6..]);
        let cut = vec![user("3"), call("c"), result("c")];
        assert_eq!(seen(4), cut);
        // The task and the last results are there whatever the limit says: without them nothing can continue.
        assert_eq!(seen(1), cut);
        assert_eq!(window(&history, 6, Room { messages: 50, tokens: 1 }), cut);
    }

    /// A part that was left out stays out, and the half that a request continues stays in.
    #[test]
    fn what_was_left_out_stays_out() {
        let history = vec![user("1"), says("one"), user("2"), call("a"), result("a"), says("ha"), user("continue")];
        let mut start = Start::default();
        let seen = window_from(&history[..5], 2, Room { messages: 3, tokens: ALL }, &mut start);
        assert_eq!((seen, start), (history[2..5].to_vec(), Start { before: 2, turn: 0 }));
        assert_eq!(window_from(&history, 2, Room { messages: 50, tokens: ALL }, &mut start), history[2..]);
        let cut = vec![user("2"), says("ha"), user("continue")];
        assert_eq!(window_from(&history, 2, Room { messages: 1, tokens: ALL }, &mut start), cut);
        assert_eq!(window_from(&history, 2, Room { messages: 50, tokens: ALL }, &mut start), cut);
        assert_eq!(window(&history, 2, Room { messages: 50, tokens: ALL }), history);
    }

    proptest! {
        #[test]
        fn nothing_is_orphaned_and_the_newest_stays(
            turns in proptest::collection::vec((0_usize..4, 0_usize..30), 1..8),
            messages in 1_usize..40,
            tokens in 1_u64..400,
        ) {
            let (mut history, mut pinned, mut id) = (Vec::new(), 0, 0);
            for (calls, length) in turns {
                pinned = history.len();
                history.push(user(&"u".repeat(length)));
                for _ in 0..calls {
                    id += 1;
                    history.extend([call(&id.to_string()), result(&id.to_string())]);
                }
                history.push(says("done"));
            }
            let seen = window(&history, pinned, Room { messages, tokens });
            prop_assert_eq!(without_orphans(seen.clone()), seen.clone());
            prop_assert!(matches!(seen.first(), Some(Message::User(_))));
            prop_assert!(seen.contains(&history[pinned]));
            prop_assert_eq!(seen.last(), history.last());
        }
    }
}
