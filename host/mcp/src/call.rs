//! `tools/call`: one call of the project, and its report as a client gets it.

use std::sync::Arc;

use harness_agent::{Listener, Silent};
use harness_artifact::arguments::ArgumentError;
use harness_dispatch::builtin::DELEGATE;
use harness_dispatch::{Call, CallError, CallReport, ClientRequest, Loaded, Run};
use harness_policy::refusal::Refusal;
use harness_sandbox::outcome::Outcome;
use hyper::http::request::Parts;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ContentBlock, ErrorData, JsonObject,
};
use rmcp::service::RequestContext;
use serde_json::Value as Json;

use crate::agents::{self, AgentTool, Watching};
use crate::catalog::Target;
use crate::elicit::Asking;
use crate::search;
use crate::server::{Server, is_modern};
use crate::steps::{Reporter, Steps};
use crate::tasks::Slot;

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
    slot: &Arc<Slot>,
) -> Result<CallToolResponse, ErrorData> {
    let (confirmer, seals) = (server.settings().confirmer.clone(), server.seals().clone());
    let asking = Arc::new(Asking::new(confirmer, seals, &request, context, slot.clone())?);
    let (loaded, catalog) = server.catalog();
    let run = run(asking.clone(), context);
    let target = catalog.target(&request.name);
    if target == Some(&Target::Search) {
        return search::call(server, request, context).await.map(Into::into);
    }
    let arguments = request.arguments.unwrap_or_default();
    let (reporter, steps) = Steps::of(context, slot).unzip();
    let unable = match target {
        Some(Target::Tool(name)) => !slot.can_be() && loaded.policy().mcp.wants_task(name),
        _ => false,
    };
    let work = async {
        match target {
            Some(Target::Tool(name)) if unable => refuse(server, name, arguments, &run).await,
            Some(Target::Agent(agent)) => to_agent(server, (agent, arguments), &run, loaded, reporter).await,
            Some(Target::Tool(name)) => to_tool(server, name, arguments, &run, &loaded).await,
            // A name that is not listed is called all the same, so that the audit log has it.
            Some(Target::Search) | None => to_tool(server, &request.name, arguments, &run, &loaded).await,
        }
    };
    let made = match steps {
        Some(steps) => steps.during(work).await,
        None => work.await,
    };
    match made {
        Ok(report) => {
            if let Outcome::Fault(why) = &report.outcome {
                (server.settings().on_fault)(why);
            }
            // The person at the client is to be asked first: nothing of the call has run.
            let denied = matches!(report.outcome, Outcome::Denied { .. });
            let input = denied.then(|| asking.input(&request.name)).flatten();
            let result = || match target {
                Some(Target::Agent(_)) if is_completed(&report) => agents::answer(&report),
                _ => result(&report, catalog.is_structured(&request.name)),
            };
            Ok(input.map_or_else(|| result().into(), CallToolResponse::from))
        }
        // The name as the client wrote it, if it is no secret.
        Err(CallError::Unknown(unknown)) => {
            let hint = unknown.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
            Err(ErrorData::invalid_params(format!("{unknown}{hint}"), None))
        }
        // So that it knows what to declare. Older versions have no such error.
        Err(CallError::NotAllowed(_)) if unable && is_modern(context) => {
            Err(ErrorData::missing_required_client_capability(ClientCapabilities::builder().enable_tasks().build()))
        }
        Err(error) if target.is_none() => Err(ErrorData::invalid_params(error.to_string(), None)),
        Err(mut error) => {
            if let (CallError::Arguments { tool, .. }, Some(Target::Agent(_))) = (&mut error, target) {
                // Its name for the client.
                *tool = request.name.to_string();
            }
            match &error {
                // What is wrong with the host is for its operator.
                CallError::Host(why) => {
                    (server.settings().on_fault)(why);
                    Err(ErrorData::internal_error("the host failed", None))
                }
                // So is a tool that nothing implements.
                CallError::NoScript(_) => Err(ErrorData::internal_error(error.to_string(), None)),
                error => Ok(failed(&not_made(error)).into()),
            }
        }
    }
}

/// Whether a call is a task as soon as it begins, for clients that can follow one: the policy lets its tool run in the
/// background, or wants a task.
pub(crate) fn is_task_at_once(server: &Server, name: &str) -> bool {
    let (loaded, catalog) = server.catalog();
    let Some(Target::Tool(name)) = catalog.target(name) else { return false };
    let policy = loaded.policy();
    let in_background = policy.async_tools && loaded.registry().tool(name).is_ok_and(|tool| *tool.asynchronous);
    in_background || policy.mcp.wants_task(name)
}

/// Refuses a call of a tool that is only called as a task.
async fn refuse(server: &Server, name: &str, arguments: JsonObject, run: &Arc<Run>) -> Result<CallReport, CallError> {
    let reason = format!("`{name}` is only called as a task, which this client cannot follow");
    let hint = "declare the extension `io.modelcontextprotocol/tasks`, or take the tool out of `mcp.only_as_tasks` in the policy";
    let call = Call { id: None, name: name.to_owned(), arguments: Json::Object(arguments) };
    server.project().refuse(call, CallError::NotAllowed(Refusal::new(reason, hint.to_owned())), run).await
}

/// Calls a tool. Its script may delegate to agents, and nothing else may: a client that calls `delegate` itself would use
/// the operator's models, and no listing offers it.
async fn to_tool(
    server: &Server,
    name: &str,
    arguments: JsonObject,
    run: &Arc<Run>,
    loaded: &Loaded,
) -> Result<CallReport, CallError> {
    if loaded.registry().tool(name).is_ok() {
        harness_agent::attach(server.project(), run, server.settings().models.clone());
    }
    server.project().call(name, Json::Object(arguments), run).await
}

/// Sets an agent a task, which the policy lets clients do.
async fn to_agent(
    server: &Server,
    (agent, arguments): (&AgentTool, JsonObject),
    run: &Arc<Run>,
    loaded: Arc<Loaded>,
    reporter: Option<Reporter>,
) -> Result<CallReport, CallError> {
    let (arguments, place) = match agent.arguments(arguments, &loaded) {
        Ok(arguments) => (arguments, server.agents().begin(&loaded)),
        Err((arguments, refusal)) => (arguments, Err(refusal)),
    };
    let call = Call { id: None, name: DELEGATE.to_owned(), arguments };
    let _place = match place {
        Ok(place) => place,
        Err(refusal) => return server.project().refuse(call, CallError::NotAllowed(refusal), run).await,
    };
    let listener: Arc<dyn Listener> = match reporter {
        Some(reporter) => Arc::new(Watching::new(reporter, loaded)),
        None => Arc::new(Silent),
    };
    harness_agent::attach_with(server.project(), run, server.settings().models.clone(), listener);
    server.project().make(call, run).await
}

/// A run for one request: nothing of a client is kept between two.
fn run(asking: Arc<Asking>, context: &RequestContext<RoleServer>) -> Arc<Run> {
    let run = Run::new();
    run.set_client_request(client_request(context));
    run.set_confirmer(asking);
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

fn is_completed(report: &CallReport) -> bool {
    matches!(report.outcome, Outcome::Completed(_)) && !report.is_error
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
        _ => format!("tool error: {error}"),
    }
}

fn with_hint(text: &str, hint: &str) -> String {
    if hint.is_empty() { text.to_owned() } else { format!("{text}\nhint: {hint}") }
}

fn failed(text: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text)])
}
