//! What a model can do, from whom of these services says it.

use serde_json::Value as Json;

use super::About;
use crate::Abilities;
use crate::service::Service;

/// Of a chat template that shows calls to a model, where the server does not say it itself.
const MARKERS: [&str; 5] = ["<tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "<|tool_call|>", "tool_calls"];

pub(super) async fn ask(service: &Service, about: &About, model: &str) -> Abilities {
    if let Some(props) = service.tell(&about.props, None).await
        && props.get("default_generation_settings").or(props.get("chat_template")).is_some()
    {
        return of_props(&props);
    }
    match service.tell(&about.models, None).await {
        Some(models) => of_models(&models, model),
        None => Abilities::default(),
    }
}

/// llama.cpp's `/props`. Where the template has no place for tools the server drops them without a word.
fn of_props(props: &Json) -> Abilities {
    let caps = props.get("chat_template_caps");
    let cap = |name| caps.and_then(|caps| caps.get(name)).and_then(Json::as_bool);
    let said = match (cap("supports_tools"), cap("supports_tool_calls")) {
        (None, None) => None,
        (tools, calls) => Some(tools.unwrap_or(true) && calls.unwrap_or(true)),
    };
    let template = props.get("chat_template").and_then(Json::as_str).filter(|template| !template.is_empty());
    let shown = template.map(|template| MARKERS.iter().any(|marker| template.contains(marker)));
    let context_tokens = props.pointer("/default_generation_settings/n_ctx").and_then(Json::as_u64);
    Abilities { tools: said.or(shown), context_tokens: context_tokens.filter(|tokens| *tokens > 0) }
}

/// The list of models, of which each service says something else.
fn of_models(models: &Json, model: &str) -> Abilities {
    let list = models.get("data").or_else(|| models.get("models")).unwrap_or(models).as_array();
    let named = |one: &&Json| ["id", "name"].iter().any(|key| one.get(key).and_then(Json::as_str) == Some(model));
    let Some(about) = list.and_then(|list| list.iter().find(named)) else { return Abilities::default() };
    let flags = ["/capabilities/supports/tool_calls", "/capabilities/function_calling"];
    let listed = about.get("supported_parameters").and_then(Json::as_array);
    let tools = flags
        .iter()
        .find_map(|place| about.pointer(place).and_then(Json::as_bool))
        .or_else(|| listed.map(|list| list.iter().any(|one| one == "tools")));
    let counts = [
        "/capabilities/limits/max_context_window_tokens",
        "/max_model_len",
        "/context_length",
        "/context_window",
        "/max_context_length",
    ];
    let context_tokens = counts.iter().find_map(|place| about.pointer(place).and_then(Json::as_u64));
    Abilities { tools, context_tokens: context_tokens.filter(|tokens| *tokens > 0) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn llama_cpp_says_it_itself_or_by_its_template() {
        let tools = |props: Json| of_props(&props).tools;
        assert_eq!(
            tools(json!({"chat_template_caps": {"supports_tools": true, "supports_tool_calls": true}})),
            Some(true)
        );
        let caps = json!({"chat_template_caps": {"supports_tools": false}, "chat_template": "<tool_call>"});
        assert_eq!(tools(caps), Some(false));
        assert_eq!(tools(json!({"chat_template": "{{ '[TOOL_CALLS]' }}"})), Some(true));
        assert_eq!(tools(json!({"chat_template": "{{ messages }}"})), Some(false));
        assert_eq!(tools(json!({"chat_template": ""})), None);
        assert_eq!(of_props(&json!({"default_generation_settings": {"n_ctx": 8192}})).context_tokens, Some(8192));
        assert_eq!(of_props(&json!({"default_generation_settings": {"n_ctx": 0}})), Abilities::default());
    }

    #[test]
    fn lists_of_models_say_it_in_their_own_words() {
        let models = json!({"data": [
            {"id": "router", "context_length": 1000, "supported_parameters": ["tools"]},
            {"id": "plain", "context_length": 2000, "supported_parameters": ["top_p"]},
            {"id": "vllm", "max_model_len": 3000},
            {"id": "copilot", "capabilities": {"supports": {"tool_calls": true}, "limits": {"max_context_window_tokens": 4000}}},
            {"id": "none"},
        ]});
        let of = |model| of_models(&models, model);
        assert_eq!(of("router"), Abilities { tools: Some(true), context_tokens: Some(1000) });
        assert_eq!(of("plain"), Abilities { tools: Some(false), context_tokens: Some(2000) });
        assert_eq!(of("vllm"), Abilities { tools: None, context_tokens: Some(3000) });
        assert_eq!(of("copilot"), Abilities { tools: Some(true), context_tokens: Some(4000) });
        assert_eq!(of("none"), Abilities::default());
        assert_eq!(of("absent"), Abilities::default());
    }
}
