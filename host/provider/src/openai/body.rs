//! What is sent.

use serde_json::{Map, Value as Json, json};

use crate::anthropic::object;
use crate::message::in_turn;
use crate::{Message, Request, ToolCall, ToolSchema};

/// The body of a request. `tokens` is what the most tokens are called; `usage` asks for what a stream used.
pub(super) fn of(request: &Request, tokens: &str, stream: bool, usage: bool) -> Json {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(request.model));
    body.insert("messages".to_owned(), messages(&request.messages, message));
    if !request.tools.is_empty() {
        body.insert("tools".to_owned(), request.tools.iter().map(tool).collect());
    }
    if let Some(most) = request.max_tokens {
        body.insert(tokens.to_owned(), json!(most));
    }
    if let Some(temperature) = request.temperature {
        body.insert("temperature".to_owned(), json!(temperature));
    }
    body.insert("stream".to_owned(), json!(stream));
    if usage {
        body.insert("stream_options".to_owned(), json!({ "include_usage": true }));
    }
    Json::Object(body)
}

/// Messages in a format's form, in the turns that chat templates have room for.
pub(crate) fn messages(messages: &[Message], form: impl Fn(&Message) -> Json) -> Json {
    in_turn(messages.iter().cloned()).iter().map(form).collect()
}

fn message(message: &Message) -> Json {
    match message {
        // Services read the arguments of earlier calls, and refuse a conversation in which some cannot be read.
        Message::Assistant { text, calls } if calls.iter().any(|call| !is_object(&call.arguments)) => {
            let readable = |call: &ToolCall| match is_object(&call.arguments) {
                true => call.clone(),
                false => ToolCall { arguments: object(&call.arguments).to_string(), ..call.clone() },
            };
            self::message(&Message::Assistant { text: text.clone(), calls: calls.iter().map(readable).collect() })
        }
        Message::Assistant { text, calls } if text.is_empty() && !calls.is_empty() => {
            // Some services take an empty text for something that was said.
            let nothing = ("content".to_owned(), Json::Null);
            match message.to_json() {
                Json::Object(object) => object.into_iter().chain([nothing]).collect(),
                other => other,
            }
        }
        // The name is in the call already.
        Message::Tool { call_id, content, .. } => {
            json!({ "role": "tool", "tool_call_id": call_id, "content": content })
        }
        other => other.to_json(),
    }
}

fn is_object(arguments: &str) -> bool {
    matches!(serde_json::from_str(arguments), Ok(Json::Object(_)))
}

/// A tool, in the form that Ollama has taken over.
pub(crate) fn tool(tool: &ToolSchema) -> Json {
    let ToolSchema { name, description, parameters } = tool;
    json!({
        "type": "function",
        "function": { "name": name, "description": description, "parameters": parameters },
    })
}
