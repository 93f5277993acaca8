//! Messages of a conversation, and their form in JSON: that of chat completions, which hooks and records see too.

use serde_json::{Map, Value as Json, json};

use harness_capability::secrets::Vault;

/// One message.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// The operator's.
    System(String),
    /// The person's, or the host's in their place.
    User(String),
    /// The model's.
    Assistant {
        /// What it says.
        text: String,
        /// What it calls. Each is answered by a [`Message::Tool`] before anything else is said.
        calls: Vec<ToolCall>,
    },
    /// What a call gave.
    Tool {
        /// The call's.
        call_id: String,
        /// The tool's.
        name: String,
        /// What the model reads.
        content: String,
    },
}

/// What a model calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// The service's, or the host's where that gives none; no two in a conversation are equal.
    pub id: String,
    /// The tool's.
    pub name: String,
    /// JSON text, as the model wrote it.
    pub arguments: String,
}

impl Message {
    /// Puts notes instead of secrets: what a service is sent is out of the host's hands.
    pub fn redact(&mut self, vault: &Vault) {
        match self {
            Self::System(text) | Self::User(text) | Self::Tool { content: text, .. } => vault.redact(text),
            Self::Assistant { text, calls } => {
                let arguments = calls.iter_mut().map(|call| &mut call.arguments);
                arguments.chain([text]).for_each(|text| vault.redact(text));
            }
        }
    }

    /// A message as hooks and session files have it.
    pub fn to_json(&self) -> Json {
        match self {
            Self::System(text) => json!({ "role": "system", "content": text }),
            Self::User(text) => json!({ "role": "user", "content": text }),
            Self::Assistant { text, calls } if calls.is_empty() => json!({ "role": "assistant", "content": text }),
            Self::Assistant { text, calls } => {
                let calls: Vec<Json> = calls.iter().map(ToolCall::to_json).collect();
                json!({ "role": "assistant", "content": text, "tool_calls": calls })
            }
            Self::Tool { call_id, name, content } => {
                json!({ "role": "tool", "tool_call_id": call_id, "name": name, "content": content })
            }
        }
    }

    /// Reads what [`to_json`](Self::to_json) writes. An absent or null content is empty.
    ///
    /// # Errors
    ///
    /// What is wrong, for the author of a hook or a script.
    pub fn from_json(value: &Json) -> Result<Self, String> {
        let Json::Object(object) = value else { return Err("a message must be a dict".to_owned()) };
        let content = text(object, "content")?.unwrap_or_default();
        match text(object, "role")?.as_deref() {
            Some("system" | "developer") => Ok(Self::System(content)),
            Some("user") => Ok(Self::User(content)),
            Some("assistant") => {
                let calls = match object.get("tool_calls") {
                    None | Some(Json::Null) => Vec::new(),
                    Some(Json::Array(calls)) => calls.iter().map(ToolCall::from_json).collect::<Result<_, _>>()?,
                    Some(_) => return Err("`tool_calls` of a message must be a list".to_owned()),
                };
                Ok(Self::Assistant { text: content, calls })
            }
            Some("tool") => Ok(Self::Tool {
                call_id: text(object, "tool_call_id")?.ok_or("a message of a tool has a `tool_call_id`")?,
                name: text(object, "name")?.unwrap_or_default(),
                content,
            }),
            Some(other) => Err(format!("`role` of a message is `{other}`: it is system, user, assistant or tool")),
            None => Err("a message has a `role`".to_owned()),
        }
    }
}

impl ToolCall {
    fn to_json(&self) -> Json {
        let Self { id, name, arguments } = self;
        json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } })
    }

    fn from_json(value: &Json) -> Result<Self, String> {
        let function = value.get("function").and_then(Json::as_object).ok_or("a call has a `function`")?;
        let name = text(function, "name")?.ok_or("a call has a `name`")?;
        let arguments = match function.get("arguments") {
            // The dict itself instead of its text is what the author means.
            Some(dict @ Json::Object(_)) => dict.to_string(),
            _ => text(function, "arguments")?.unwrap_or_default(),
        };
        let id = value.get("id").and_then(Json::as_str).ok_or("a call has an `id`")?.to_owned();
        Ok(Self { id, name, arguments })
    }
}

fn text(object: &Map<String, Json>, key: &str) -> Result<Option<String>, String> {
    match object.get(key) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("`{key}` of a message must be a string")),
    }
}

/// The answer to a call that was in progress when its turn was ended.
const ENDED: &str = "error: the turn was ended before this call had a result; whether it took effect is not known";
/// The answer to a call that had not begun then.
const NOT_MADE: &str = "error: the turn was ended before this call was made";

/// A conversation in which nothing is open: calls are made one after another, so of those of a turn that was ended the
/// first without an answer was in progress, and those after it were not made.
pub fn closed(messages: Vec<Message>) -> Vec<Message> {
    let mut closed = Vec::with_capacity(messages.len());
    let mut rest = messages.into_iter().peekable();
    while let Some(message) = rest.next() {
        let calls = if let Message::Assistant { calls, .. } = &message { calls.clone() } else { Vec::new() };
        closed.push(message);
        let mut answers = Vec::new();
        while let Some(answer) = rest.next_if(|next| !calls.is_empty() && matches!(next, Message::Tool { .. })) {
            answers.push(answer);
        }
        let mut content = ENDED;
        for ToolCall { id, name, .. } in calls {
            if !answers.iter().any(|answer| matches!(answer, Message::Tool { call_id, .. } if *call_id == id)) {
                answers.push(Message::Tool { call_id: id, name, content: content.to_owned() });
                content = NOT_MADE;
            }
        }
        closed.append(&mut answers);
    }
    closed
}

/// Conversations whose calls all have their answer: what is missing is left out, a call with its answers.
///
/// An answer without its call, and a call without all its answers, are refused by services.
pub fn without_orphans(messages: Vec<Message>) -> Vec<Message> {
    let mut kept = Vec::with_capacity(messages.len());
    let mut rest = messages.into_iter().peekable();
    while let Some(message) = rest.next() {
        match message {
            Message::Tool { .. } => {}
            Message::Assistant { text, calls } if !calls.is_empty() => {
                let mut answers = Vec::new();
                while let Some(answer) = rest.next_if(|next| matches!(next, Message::Tool { .. })) {
                    answers.push(answer);
                }
                let answered = |call: &ToolCall| {
                    answers.iter().any(|answer| matches!(answer, Message::Tool { call_id, .. } if *call_id == call.id))
                };
                if calls.iter().all(answered) {
                    answers.retain(|answer| {
                        matches!(answer, Message::Tool { call_id, .. } if calls.iter().any(|call| call.id == *call_id))
                    });
                    kept.push(Message::Assistant { text, calls });
                    kept.append(&mut answers);
                } else if !text.is_empty() {
                    kept.push(Message::Assistant { text, calls: Vec::new() });
                }
            }
            other => kept.push(other),
        }
    }
    kept
}

/// What stands for the answer that never came where a turn ended after its calls.
const UNANSWERED: &str = "(The turn ended here.)";

/// Conversations in which user and assistant take turns, as many chat templates want it: what the person or the
/// operator says in a row is one message, and where they speak after a call's result an assistant has spoken before.
pub fn in_turn(messages: impl IntoIterator<Item = Message>) -> Vec<Message> {
    let mut turns = Vec::new();
    for message in messages {
        match (turns.last_mut(), message) {
            (Some(Message::User(before)), Message::User(text))
            | (Some(Message::System(before)), Message::System(text)) => *before = joined(before, &text),
            (Some(Message::Tool { .. }), message @ Message::User(_)) => {
                turns.push(Message::Assistant { text: UNANSWERED.to_owned(), calls: Vec::new() });
                turns.push(message);
            }
            (_, message) => turns.push(message),
        }
    }
    turns
}

/// Two texts as one.
pub fn joined(one: &str, other: &str) -> String {
    if one.trim().is_empty() { other.to_owned() } else { format!("{}\n\n{other}", one.trim_end()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn call(id: &str) -> ToolCall {
        ToolCall { id: id.to_owned(), name: "read".to_owned(), arguments: "{}".to_owned() }
    }

    fn answer(id: &str) -> Message {
        Message::Tool { call_id: id.to_owned(), name: "read".to_owned(), content: "x".to_owned() }
    }

    fn asks(text: &str, ids: &[&str]) -> Message {
        Message::Assistant { text: text.to_owned(), calls: ids.iter().map(|id| call(id)).collect() }
    }

    #[test]
    fn a_message_is_what_its_json_says() {
        let all = [
            Message::System("s".into()),
            Message::User("u".into()),
            asks("", &[]),
            asks("both", &["a", "b"]),
            answer("a"),
        ];
        for message in all {
            assert_eq!(Message::from_json(&message.to_json()).unwrap(), message);
        }
    }

    #[test]
    fn a_message_that_is_none_says_why() {
        let wrong = |value| Message::from_json(&value).unwrap_err();
        assert_eq!(wrong(json!("x")), "a message must be a dict");
        assert_eq!(wrong(json!({"content": "x"})), "a message has a `role`");
        assert_eq!(
            wrong(json!({"role": "bot"})),
            "`role` of a message is `bot`: it is system, user, assistant or tool"
        );
        assert_eq!(wrong(json!({"role": "user", "content": 1})), "`content` of a message must be a string");
        assert_eq!(wrong(json!({"role": "tool"})), "a message of a tool has a `tool_call_id`");
        assert_eq!(wrong(json!({"role": "assistant", "tool_calls": [{"id": "a"}]})), "a call has a `function`");
    }

    #[test]
    fn user_and_assistant_take_turns() {
        let (user, system) = (|text: &str| Message::User(text.into()), |text: &str| Message::System(text.into()));
        let before = [
            system("s"),
            system("t"),
            user("u"),
            asks("", &["a", "b"]),
            answer("a"),
            answer("b"),
            user("v"),
            user("w"),
            asks("x", &["c"]),
            answer("c"),
            asks("y", &[]),
            user("z"),
        ];
        let after = [
            system("s\n\nt"),
            user("u"),
            asks("", &["a", "b"]),
            answer("a"),
            answer("b"),
            asks("(The turn ended here.)", &[]),
            user("v\n\nw"),
            asks("x", &["c"]),
            answer("c"),
            asks("y", &[]),
            user("z"),
        ];
        assert_eq!(in_turn(before), after);
    }

    #[test]
    fn orphans_are_left_out() {
        let before = vec![
            answer("z"),
            Message::User("u".into()),
            asks("half", &["a", "b"]),
            answer("a"),
            asks("", &["c"]),
            answer("c"),
            answer("q"),
            asks("end", &[]),
        ];
        let after = vec![Message::User("u".into()), asks("half", &[]), asks("", &["c"]), answer("c"), asks("end", &[])];
        assert_eq!(without_orphans(before), after);
    }

    #[test]
    fn what_is_open_is_closed() {
        let open = vec![Message::User("u".into()), asks("t", &["a", "b", "c"]), answer("a"), Message::User("v".into())];
        let told = |id: &str, content: &str| Message::Tool {
            call_id: id.to_owned(),
            name: "read".to_owned(),
            content: content.to_owned(),
        };
        let wanted =
            vec![open[0].clone(), open[1].clone(), answer("a"), told("b", ENDED), told("c", NOT_MADE), open[3].clone()];
        assert_eq!(closed(open), wanted);
        assert_eq!(closed(wanted.clone()), wanted);
        assert_eq!(without_orphans(wanted.clone()), wanted);
    }

    proptest! {
        #[test]
        fn leaving_out_orphans_again_changes_nothing(kinds in proptest::collection::vec(0_u8..6, 0..20)) {
            let ids = ["a", "b"];
            let messages = kinds.iter().map(|kind| match kind {
                0 => Message::User("u".into()),
                1 => asks("t", &ids),
                2 => asks("", &["a"]),
                3 => answer("a"),
                4 => answer("b"),
                _ => asks("t", &[]),
            }).collect();
            let once = without_orphans(messages);
            prop_assert_eq!(without_orphans(once.clone()), once);
        }
    }
}
