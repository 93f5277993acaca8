//! What is sent.

use serde_json::{Map, Value as Json, json};

use crate::{Message, Request, ToolCall, ToolSchema};

/// The most tokens of a reply where nobody says: the format wants a number.
const MAX_TOKENS: u64 = 4096;

/// The body of a request.
pub(super) fn of(request: &Request, stream: bool) -> Json {
    let system: Vec<&str> = request
        .messages
        .iter()
        .filter_map(|message| match message {
            Message::System(text) if !text.trim().is_empty() => Some(text.as_str()),
            _ => None,
        })
        .collect();
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(request.model));
    body.insert("max_tokens".to_owned(), json!(request.max_tokens.unwrap_or(MAX_TOKENS)));
    if !system.is_empty() {
        body.insert("system".to_owned(), json!(system.join("\n\n")));
    }
    body.insert("messages".to_owned(), Json::Array(messages(&request.messages)));
    if !request.tools.is_empty() {
        body.insert("tools".to_owned(), request.tools.iter().map(tool).collect());
    }
    if let Some(temperature) = request.temperature {
        body.insert("temperature".to_owned(), json!(temperature));
    }
    body.insert("stream".to_owned(), json!(stream));
    Json::Object(body)
}

/// Messages of the person and of the model in turn, as the format wants them: what stands side by side is one, and the
/// person begins.
fn messages(messages: &[Message]) -> Vec<Json> {
    let mut turns: Vec<(&str, Vec<Json>)> = Vec::new();
    for message in messages {
        let (role, blocks) = match message {
            Message::System(_) => continue,
            Message::User(text) => ("user", said(text).into_iter().collect()),
            Message::Tool { call_id, content, .. } => ("user", vec![result(call_id, content)]),
            Message::Assistant { text, calls } => {
                ("assistant", said(text).into_iter().chain(calls.iter().map(call)).collect())
            }
        };
        if blocks.is_empty() {
            continue;
        }
        match turns.last_mut() {
            Some((last, all)) if *last == role => all.extend(blocks),
            None if role == "assistant" => {
                turns.push(("user", vec![json!({ "type": "text", "text": "(What was said before is left out.)" })]));
                turns.push((role, blocks));
            }
            _ => turns.push((role, blocks)),
        }
    }
    turns.into_iter().map(|(role, content)| json!({ "role": role, "content": content })).collect()
}

/// Text as a block. The format refuses blocks of nothing but spaces.
fn said(text: &str) -> Option<Json> {
    (!text.trim().is_empty()).then(|| json!({ "type": "text", "text": text }))
}

fn call(call: &ToolCall) -> Json {
    let ToolCall { id, name, arguments } = call;
    json!({ "type": "tool_use", "id": fitting(id), "name": name, "input": object(arguments) })
}

fn result(call_id: &str, content: &str) -> Json {
    json!({ "type": "tool_result", "tool_use_id": fitting(call_id), "content": content })
}

fn tool(tool: &ToolSchema) -> Json {
    let ToolSchema { name, description, parameters } = tool;
    json!({ "name": name, "description": description, "input_schema": parameters })
}

/// An id of another service in the characters that this one takes.
fn fitting(id: &str) -> String {
    id.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' }).collect()
}

/// The arguments of a call as an object, for formats that have them so. What a model wrote that is none is kept as it
/// is, so that it can see its mistake.
pub(crate) fn object(arguments: &str) -> Json {
    match serde_json::from_str(arguments) {
        Ok(object @ Json::Object(_)) => object,
        _ if arguments.trim().is_empty() => json!({}),
        _ => json!({ "unreadable_arguments": arguments }),
    }
}
