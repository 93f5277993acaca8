//! Ollama's own chat.

mod parts;

use serde_json::{Map, Value as Json, json};
use url::Url;

use super::anthropic::object;
use super::client::Format;
use super::lines::Lines;
use super::openai::{join, messages, tool};
use super::reading::{Frames, Parts};
use super::service::Service;
use super::{Abilities, Message, Pending, Request, ToolCall};

/// Of a chat template that shows tools to a model: Ollama's own words, and those that models were taught.
const MARKERS: [&str; 9] = [
    ".Tools",
    ".ToolCalls",
    "{% if tools %}",
    "{%- if tools %}",
    "[TOOL_CALLS]",
    "[AVAILABLE_TOOLS]",
    "<tool_call>",
    "✿FUNCTION✿",
    "<function_calls>",
];

/// The chat of one server.
#[derive(Debug)]
pub(super) struct Ollama {
    url: Url,
    show: Url,
    /// The context to ask for. Without it the server takes a short one, and cuts what does not fit without a word.
    context_tokens: Option<u64>,
}

impl Ollama {
    /// The chat below a base URL.
    pub(super) fn new(base: &Url, context_tokens: Option<u64>) -> Self {
        let below = |word| {
            let mut url = base.clone();
            join(&mut url, &["api", word]);
            url
        };
        Self { url: below("chat"), show: below("show"), context_tokens }
    }
}

impl Format for Ollama {
    fn url(&self) -> &Url {
        &self.url
    }

    fn body(&self, request: &Request, stream: bool) -> Json {
        let mut body = Map::new();
        body.insert("model".to_owned(), json!(request.model));
        body.insert("messages".to_owned(), messages(&request.messages, message));
        if !request.tools.is_empty() {
            body.insert("tools".to_owned(), request.tools.iter().map(tool).collect());
        }
        let options = [
            ("num_predict", request.max_tokens.map(Json::from)),
            ("temperature", request.temperature.map(Json::from)),
            ("num_ctx", self.context_tokens.map(Json::from)),
        ];
        let given: Map<String, Json> =
            options.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        if !given.is_empty() {
            body.insert("options".to_owned(), Json::Object(given));
        }
        body.insert("stream".to_owned(), json!(stream));
        Json::Object(body)
    }

    fn parts(&self) -> (Frames, Box<dyn Parts>) {
        (Frames::Lines(Lines::default()), Box::<parts::OllamaParts>::default())
    }

    fn abilities<'a>(&'a self, service: &'a Service, model: &'a str) -> Pending<'a, Abilities> {
        Box::pin(async move {
            let shown = service.tell(&self.show, Some(&json!({ "model": model }))).await;
            shown.map_or_else(Abilities::default, |shown| abilities(&shown))
        })
    }
}

fn message(message: &Message) -> Json {
    match message {
        Message::Assistant { text, calls } if !calls.is_empty() => {
            let calls: Json = calls.iter().map(call).collect();
            json!({ "role": "assistant", "content": text, "tool_calls": calls })
        }
        // Which call it answers is said by the order.
        Message::Tool { name, content, .. } => json!({ "role": "tool", "tool_name": name, "content": content }),
        other => other.to_json(),
    }
}

fn call(call: &ToolCall) -> Json {
    json!({ "function": { "name": call.name, "arguments": object(&call.arguments) } })
}

/// What `/api/show` says. The list of capabilities is newer than the template.
fn abilities(shown: &Json) -> Abilities {
    let list = shown.get("capabilities").and_then(Json::as_array).filter(|list| !list.is_empty());
    let said = list.map(|list| list.iter().filter_map(Json::as_str).any(|one| one.eq_ignore_ascii_case("tools")));
    let template = shown.get("template").and_then(Json::as_str).filter(|template| !template.is_empty());
    let marked = template.map(|template| MARKERS.iter().any(|marker| template.contains(marker)));
    // What the model's file sets is what it is run with; else it is known only what the model could have.
    let set = shown
        .get("parameters")
        .and_then(Json::as_str)
        .and_then(|lines| lines.lines().find_map(|line| line.trim().strip_prefix("num_ctx")?.trim().parse().ok()));
    let has = shown.get("model_info").and_then(Json::as_object).and_then(|info| {
        info.iter().find_map(|(name, value)| if name.ends_with(".context_length") { value.as_u64() } else { None })
    });
    Abilities { tools: said.or(marked), context_tokens: set.or(has) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_say_whether_a_model_has_tools_and_else_its_template() {
        let tools = |shown: Json| abilities(&shown).tools;
        assert_eq!(tools(json!({"capabilities": ["completion", "Tools"]})), Some(true));
        assert_eq!(tools(json!({"capabilities": ["completion"], "template": "{{ .Tools }}"})), Some(false));
        for marker in MARKERS {
            assert_eq!(tools(json!({"capabilities": [], "template": format!("a {marker} b")})), Some(true));
        }
        assert_eq!(tools(json!({"template": "{{ .Prompt }}"})), Some(false));
        assert_eq!(tools(json!({"template": ""})), None);
        assert_eq!(tools(json!({})), None);
    }

    #[test]
    fn a_context_that_is_set_counts_before_the_one_a_model_could_have() {
        let info = json!({"general.architecture": "llama", "llama.context_length": 131_072});
        assert_eq!(abilities(&json!({"model_info": info})).context_tokens, Some(131_072));
        let set = json!({"model_info": info, "parameters": "stop   \"x\"\nnum_ctx      8192"});
        assert_eq!(abilities(&set).context_tokens, Some(8192));
    }
}
