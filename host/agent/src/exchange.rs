//! What hooks see of a request to a model and of its reply, and what becomes of both when hooks change them.

use serde_json::{Map, Value as Json, json};

use harness_dispatch::payload::{CompletionPost, CompletionPre, Tokens};
use harness_provider::message::without_orphans;
use harness_provider::{Finish, Message, Reply, Request, ToolCall, ToolSchema, Usage};

pub(super) fn tokens(usage: Usage) -> Tokens {
    Tokens { input_tokens: usage.input_tokens, output_tokens: usage.output_tokens }
}

pub(super) fn completion_pre(request: &Request) -> CompletionPre {
    let tool = |tool: &ToolSchema| {
        let ToolSchema { name, description, parameters } = tool;
        json!({"type": "function", "function": {"name": name, "description": description, "parameters": parameters}})
    };
    CompletionPre {
        model: request.model.clone(),
        messages: request.messages.iter().map(Message::to_json).collect(),
        tools: request.tools.iter().map(tool).collect(),
        max_tokens: request.max_tokens,
        temperature: request.temperature,
    }
}

/// Makes of a request what hooks made of it.
pub(super) fn change(request: &mut Request, payload: &Json) -> Result<(), String> {
    let list = |key: &str| match payload.get(key) {
        Some(Json::Array(items)) => Ok(items),
        _ => Err(format!("`{key}` must be a list")),
    };
    request.model = match payload.get("model") {
        Some(Json::String(model)) if !model.is_empty() => model.clone(),
        _ => return Err("`model` must be a string".to_owned()),
    };
    request.messages = without_orphans(list("messages")?.iter().map(Message::from_json).collect::<Result<_, _>>()?);
    request.tools = list("tools")?.iter().map(schema).collect::<Result<_, _>>()?;
    request.max_tokens = match payload.get("max_tokens") {
        None | Some(Json::Null) => None,
        Some(number) => Some(number.as_u64().filter(|n| *n > 0).ok_or("`max_tokens` must be a number above 0")?),
    };
    request.temperature = match payload.get("temperature") {
        None | Some(Json::Null) => None,
        Some(number) => {
            let between = number.as_f64().filter(|t| (0.0..=2.0).contains(t));
            Some(between.ok_or("`temperature` must be a number from 0 to 2")?)
        }
    };
    Ok(())
}

/// A tool of a request as hooks see it.
fn schema(tool: &Json) -> Result<ToolSchema, String> {
    let function = tool.get("function").and_then(Json::as_object).ok_or("a tool has a `function`")?;
    let text = |key: &str| function.get(key).and_then(Json::as_str).map(str::to_owned);
    Ok(ToolSchema {
        name: text("name").filter(|name| !name.is_empty()).ok_or("a tool has a `name`")?,
        description: text("description").unwrap_or_default(),
        parameters: function.get("parameters").cloned().unwrap_or_else(|| Map::new().into()),
    })
}

pub(super) fn completion_post(reply: &Reply) -> CompletionPost {
    let message = Message::Assistant { text: reply.text.clone(), calls: reply.calls.clone() }.to_json();
    let finish_reason = reply.finish.as_str().to_owned();
    CompletionPost {
        id: reply.id.clone(),
        model: reply.model.clone(),
        choices: vec![json!({"index": 0, "message": message, "finish_reason": finish_reason})],
        usage: tokens(reply.usage.unwrap_or_default()),
        finish_reason,
    }
}

/// Makes of a reply what hooks made of it.
pub(super) fn answer(reply: &mut Reply, before: &Json, payload: &Json) -> Result<(), String> {
    let choice = payload.get("choices").and_then(|choices| choices.get(0)).ok_or("there is no choice left")?;
    match Message::from_json(choice.get("message").ok_or("a choice has a `message`")?)? {
        Message::Assistant { text, calls } => (reply.text, reply.calls) = (text, calls),
        _ => return Err("the message of a choice is the assistant's".to_owned()),
    }
    // It is said twice; the one that was changed counts, and a choice may leave it out.
    let whole = payload.get("finish_reason");
    let of_choice = choice.get("finish_reason").filter(|_| whole == before.get("finish_reason"));
    let reason = of_choice.or(whole);
    match reason {
        Some(Json::String(reason)) => reply.finish = Finish::of(reason),
        _ => return Err("`finish_reason` must be a string".to_owned()),
    }
    Ok(())
}

/// The arguments of a call. What is no JSON is the text that it is, which the same check refuses as any other value that
/// is no object.
pub(super) fn arguments(call: &ToolCall) -> Json {
    let text = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

/// Whether a call has arguments and all of them: where a reply was cut, those of its last call may be missing.
pub(super) fn has_arguments(call: &ToolCall) -> bool {
    matches!(serde_json::from_str(&call.arguments), Ok(Json::Object(arguments)) if !arguments.is_empty())
}
