//! The methods of prompts: `prompts/list`, `prompts/get`, and `completion/complete` for arguments.

use std::collections::BTreeMap;

use harness_artifact::skill::arguments::Argument;
use hyper::http::request::Parts;
use rmcp::RoleServer;
use rmcp::model::{
    CompleteRequestParams, CompleteResult, CompletionInfo, ElicitRequest, ElicitRequestParams, ElicitResult,
    ElicitationAction, ErrorData, GetPromptRequestParams, GetPromptResponse, GetPromptResult, InputRequest,
    InputRequiredResult, ListPromptsResult, PaginatedRequestParams, PromptMessage, ProtocolVersion, Reference, Role,
};
use rmcp::service::RequestContext;
use serde_json::{Map, Value as Json, json};

use crate::acts::{self, PROMPT, READ, Refused};
use crate::elicit;
use crate::page::{FRESH_MS, SCOPE, page};
use crate::prompts::Prompts;
use crate::server::Server;

/// Name of the question in a request for input.
const KEY: &str = "arguments";

/// A page of the prompts.
pub(crate) fn list(server: &Server, asked: Option<PaginatedRequestParams>) -> Result<ListPromptsResult, ErrorData> {
    let loaded = server.project().loaded();
    let all = if acts::is_allowed(&loaded, PROMPT) { Prompts::of(&loaded).listed() } else { BTreeMap::new() };
    let (entries, next) = page(server.seals(), "prompts/list", asked, &all)?;
    let mut listed = ListPromptsResult::with_all_items(entries).with_ttl_ms(FRESH_MS);
    (listed.next_cursor, listed.cache_scope) = (next, Some(SCOPE));
    Ok(listed)
}

/// Gets a prompt. A person at the client is asked for arguments that are needed and not given, if the client can show forms.
///
/// # Errors
///
/// That there is no such prompt for this client, or what is wrong with its arguments.
pub(crate) async fn get(
    server: &Server,
    request: GetPromptRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<GetPromptResponse, ErrorData> {
    let loaded = server.project().loaded();
    let mut given = request.arguments.unwrap_or_default();
    if acts::is_allowed(&loaded, PROMPT)
        && let Some(of) = Prompts::of(&loaded).get(&request.name)
    {
        let answers = request.input_responses.as_ref().and_then(|answers| answers.get(KEY));
        let missing = of.missing(&given);
        let form = form(&request.name, &missing).filter(|_| !missing.is_empty());
        match (answers, form, way(context)) {
            (Some(answer), ..) => fill(&mut given, &missing, answer)?,
            (None, Some(form), Way::Again) => {
                let question = InputRequest::Elicitation(ElicitRequest::new(form));
                let asked = BTreeMap::from([(KEY.to_owned(), question)]);
                return Ok(GetPromptResponse::InputRequired(InputRequiredResult::from_input_requests(asked)));
            }
            (None, Some(form), Way::Now) => {
                // A client that does not answer is told what is missing.
                if let Ok(answer) = context.peer.create_elicitation(form).await {
                    take(&mut given, &missing, &answer);
                }
            }
            _ => {}
        }
    }
    let arguments = json!({"name": request.name, "arguments": given});
    let report = acts::act(server, PROMPT, arguments, context).await.map_err(|refused| match refused {
        // Its arguments do not fit, or name what cannot be shown.
        Refused::Failed(why) => ErrorData::invalid_params(why, None),
        refused => refused.into(),
    })?;
    let result = match acts::rewritten(&report) {
        Some(text) => single(text),
        // Hooks may have made something else of it, which is a text too.
        None => match serde_json::from_value::<GetPromptResult>(report.result.clone()) {
            Ok(mut result) => {
                result.result_type = single(String::new()).result_type;
                result
            }
            Err(_) => single(report.content.clone()),
        },
    };
    Ok(result.into())
}

fn single(text: String) -> GetPromptResult {
    GetPromptResult::new(vec![PromptMessage::new_text(Role::User, text)])
}

/// How the person at the client can be asked.
enum Way {
    Not,
    /// While the request waits.
    Now,
    /// Before it is sent again.
    Again,
}

fn way(context: &RequestContext<RoleServer>) -> Way {
    let is_modern = context.protocol_version().is_some_and(|version| version >= ProtocolVersion::V_2026_07_28);
    let over_http = context.extensions.get::<Parts>().is_some();
    match is_modern {
        true if elicit::asks(context.meta.client_capabilities()) => Way::Again,
        false if !over_http && elicit::asks(context.client_capabilities()) => Way::Now,
        _ => Way::Not,
    }
}

fn form(name: &str, missing: &[Argument]) -> Option<ElicitRequestParams> {
    let property = |argument: &Argument| {
        let mut schema = json!({"type": "string", "title": argument.name});
        if let Some(schema) = schema.as_object_mut() {
            schema.extend(argument.description.as_ref().map(|text| ("description".to_owned(), json!(text))));
            schema.extend((!argument.values.is_empty()).then(|| ("enum".to_owned(), json!(argument.values))));
        }
        (argument.name.clone(), schema)
    };
    let schema = json!({
        "type": "object",
        "properties": missing.iter().map(property).collect::<Map<String, Json>>(),
        "required": missing.iter().map(|argument| argument.name.as_str()).collect::<Vec<_>>(),
    });
    let requested_schema = serde_json::from_value(schema).ok()?;
    let message = format!("The prompt `{name}` needs more.");
    Some(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema })
}

/// Adds what the person at the client has said. What is still missing is refused later.
fn fill(given: &mut Map<String, Json>, missing: &[Argument], answer: &Json) -> Result<(), ErrorData> {
    let answer: ElicitResult = serde_json::from_value(answer.clone())
        .map_err(|_| ErrorData::invalid_params(format!("the answer `{KEY}` is not one to an elicitation"), None))?;
    take(given, missing, &answer);
    Ok(())
}

fn take(given: &mut Map<String, Json>, missing: &[Argument], answer: &ElicitResult) {
    let Some(content) = answer.content.as_ref().filter(|_| answer.action == ElicitationAction::Accept) else { return };
    for Argument { name, .. } in missing {
        given.extend(content.get(name).map(|value| (name.clone(), value.clone())));
    }
}

/// Completes an argument of a prompt, or a variable of a template of resources, from the values that are declared for it.
///
/// # Errors
///
/// That there is no such prompt or template for this client, or that it has no such argument.
pub(crate) fn complete(server: &Server, request: &CompleteRequestParams) -> Result<CompleteResult, ErrorData> {
    let loaded = server.project().loaded();
    let argument = &request.argument;
    let unknown = |mut what: String| {
        loaded.secrets().redact(&mut what);
        ErrorData::invalid_params(what, None)
    };
    let none = || unknown(format!("there is no argument `{}`", argument.name));
    let values: Vec<String> = match &request.r#ref {
        Reference::Prompt(prompt) => {
            let prompts = Prompts::of(&loaded);
            let of = prompts.get(&prompt.name).filter(|_| acts::is_allowed(&loaded, PROMPT));
            let of = of.ok_or_else(|| unknown(format!("there is no prompt `{}`", prompt.name)))?;
            of.arguments().into_iter().find(|one| one.name == argument.name).ok_or_else(none)?.values
        }
        Reference::Resource(resource) => {
            let all = &loaded.policy().mcp.templates;
            let of = all.iter().find(|template| template.uri.to_string() == resource.uri);
            let of = of.filter(|_| acts::is_allowed(&loaded, READ));
            let of = of.ok_or_else(|| unknown(format!("there is no template `{}`", resource.uri)))?;
            of.uri.variables().find(|name| *name == argument.name).ok_or_else(none)?;
            let values = of.values.iter().find(|(name, _)| *name == argument.name);
            values.map(|(_, values)| values.clone()).unwrap_or_default()
        }
        _ => return Err(unknown("`ref` is neither of a prompt nor of a template".to_owned())),
    };
    Ok(CompleteResult::new(matching(values, &argument.value)))
}

/// The values that begin with a text, in any letter case, in their order.
fn matching(values: Vec<String>, begin: &str) -> CompletionInfo {
    let begin = begin.to_lowercase();
    let mut found: Vec<String> = values.into_iter().filter(|value| value.to_lowercase().starts_with(&begin)).collect();
    let mut info = CompletionInfo::default();
    info.total = u32::try_from(found.len()).ok();
    info.has_more = Some(found.len() > CompletionInfo::MAX_VALUES);
    found.truncate(CompletionInfo::MAX_VALUES);
    info.values = found;
    info
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_matched_in_any_case_up_to_a_bound() {
        let values = |count: usize| (0..count).map(|n| format!("V{n:03}")).collect::<Vec<_>>();
        let of = |info: CompletionInfo| (info.values.len(), info.total, info.has_more);
        assert_eq!(of(matching(values(100), "")), (100, Some(100), Some(false)));
        assert_eq!(of(matching(values(101), "v")), (100, Some(101), Some(true)));
        assert_eq!(matching(values(20), "v01").values, values(20)[10..].to_vec());
        assert_eq!(of(matching(values(20), "x")), (0, Some(0), Some(false)));
    }
}
