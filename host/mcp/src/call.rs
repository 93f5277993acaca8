//! `tools/call`: one call of the project, and its report as a client gets it.

use std::sync::Arc;

use harness_artifact::arguments::ArgumentError;
use harness_dispatch::{Call, CallError, CallReport, ClientRequest, Run};
use harness_sandbox::outcome::Outcome;
use hyper::http::request::Parts;
use rmcp::RoleServer;
use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData};
use rmcp::service::RequestContext;
use serde_json::Value as Json;

use crate::elicit::Asking;
use crate::search::{self, SEARCH};
use crate::server::{Server, Settings};

/// Bytes that the audit log keeps of what a client calls itself.
const MAX_CLIENT: usize = 200;

/// Makes the call of a request.
///
/// # Errors
///
/// That there is no such tool. Every other end is a result, which a model may read.
pub(crate) async fn make(
    server: &Server,
    request: CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let asking = Arc::new(Asking::new(server.settings().confirmer.clone(), server.seals().clone(), &request, context)?);
    let catalog = server.catalog();
    if catalog.searches() && request.name == SEARCH {
        return search::call(server, request, context).await.map(Into::into);
    }
    // A name that is not listed is called all the same, so that the audit log has it.
    let name = catalog.own_name(&request.name).unwrap_or(&request.name).to_owned();
    let is_tool = server.project().loaded().registry().tool(&name).is_ok();
    let structured = catalog.definition(&request.name).is_some_and(|tool| tool.output_schema.is_some());
    let run = run(server, asking.clone(), is_tool, context);
    let call = Call { id: None, name, arguments: Json::Object(request.arguments.unwrap_or_default()) };
    match server.project().make(call, &run).await {
        Ok(report) => {
            if let Outcome::Fault(why) = &report.outcome {
                (server.settings().on_fault)(why);
            }
            // The person at the client is to be asked first: nothing of the call has run.
            let denied = matches!(report.outcome, Outcome::Denied { .. });
            let input = denied.then(|| asking.input(&request.name)).flatten();
            Ok(input.map_or_else(|| result(&report, structured).into(), CallToolResponse::from))
        }
        // The name as the client wrote it, if it is no secret.
        Err(CallError::Unknown(unknown)) => {
            let hint = unknown.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
            Err(ErrorData::invalid_params(format!("{unknown}{hint}"), None))
        }
        Err(error) if catalog.own_name(&request.name).is_none() => {
            Err(ErrorData::invalid_params(error.to_string(), None))
        }
        Err(error) => {
            if let CallError::Host(why) = &error {
                (server.settings().on_fault)(why);
            }
            Ok(failed(&not_made(&error)).into())
        }
    }
}

/// A run for one request: nothing of a client is kept between two. Only scripts of tools can delegate to agents: a client
/// that calls `delegate` itself would use the operator's models, and no listing offers it.
fn run(server: &Server, asking: Arc<Asking>, is_tool: bool, context: &RequestContext<RoleServer>) -> Arc<Run> {
    let run = Run::new();
    run.set_client_request(client_request(context));
    let Settings { models, .. } = server.settings();
    run.set_confirmer(asking);
    if is_tool {
        harness_agent::attach(server.project(), &run, models.clone());
    }
    run
}

/// Whose request it is, for the audit log.
pub(crate) fn client_request(context: &RequestContext<RoleServer>) -> ClientRequest {
    // Over HTTP nothing is kept of `initialize`, and rmcp puts its own name there.
    let over_http = context.extensions.get::<Parts>().is_some();
    let client = if over_http { context.meta.client_info() } else { context.client_info() };
    let client = client.map_or_else(|| "unknown".to_owned(), |client| client.name);
    let version = context.protocol_version().map_or_else(|| "unknown".to_owned(), |version| version.to_string());
    ClientRequest {
        client: client.get(..client.floor_char_boundary(MAX_CLIENT)).unwrap_or_default().to_owned(),
        protocol: format!("mcp/{version}"),
        id: context.id.to_string(),
    }
}

/// What a client gets of a call that was made.
fn result(report: &CallReport, structured: bool) -> CallToolResult {
    let hint = match &report.outcome {
        Outcome::Completed(output) if !report.is_error => {
            if structured && output.truncated {
                return failed("tool error: the result is larger than `limits.output_bytes` allows");
            }
            let mut result = CallToolResult::success(vec![ContentBlock::text(output.content.clone())]);
            result.structured_content = structured.then(|| report.result.clone());
            return result;
        }
        Outcome::Denied { refusal, .. } => refusal.hint.clone(),
        _ => String::new(),
    };
    failed(&with_hint(&report.content, &hint))
}

/// Why a call was not made, with everything that is wrong with its arguments.
fn not_made(error: &CallError) -> String {
    match error {
        CallError::NotAllowed(refusal) => with_hint(&format!("tool denied: {}", refusal.reason), &refusal.hint),
        CallError::Arguments { errors, .. } => {
            let causes = errors.iter().map(ArgumentError::to_string).collect::<Vec<_>>().join("\n- ");
            format!("tool error: {error}\n- {causes}")
        }
        // What is wrong with the host is for its operator.
        CallError::Host(_) => "tool error: the host failed".to_owned(),
        _ => format!("tool error: {error}"),
    }
}

fn with_hint(text: &str, hint: &str) -> String {
    if hint.is_empty() { text.to_owned() } else { format!("{text}\nhint: {hint}") }
}

fn failed(text: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text)])
}
