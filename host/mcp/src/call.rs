//! `tools/call`: one call of the project, and its report as a client gets it.

use std::sync::Arc;

use harness_artifact::arguments::ArgumentError;
use harness_dispatch::{Call, CallError, CallReport, ClientRequest, Run};
use harness_sandbox::outcome::Outcome;
use harness_sys::digest::digest;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, InputRequiredResult,
    InputResponses,
};
use rmcp::service::RequestContext;
use serde_json::{Value as Json, json};

use crate::content;
use crate::elicit::Asking;
use crate::notices::{self, Notices, is_modern};
use crate::parked::Begun;
use crate::questions::{Open, Questions, exchange};
use crate::server::{Server, Settings};

/// Bytes that the audit log keeps of what a client calls itself.
const MAX_CLIENT: usize = 200;

/// Makes the call of a request, or goes on with one that waits for what the request answers.
///
/// # Errors
///
/// That there is no such tool, that the request answers no call, or that its client cannot do what the call needs. Every
/// other end is a result, which a model may read.
pub(crate) async fn make(
    server: &Server,
    mut request: CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let state = request.request_state.as_deref();
    let begun = match state.and_then(|state| server.seals().parked(state, &request.name)) {
        Some(number) => match go_on(server, &number, &request)? {
            Resumed::Answered(begun) => begun,
            Resumed::Asked(again) => return Ok(again.into()),
        },
        None => begin(server, &mut request, context)?,
    };
    drive(server, &request.name, begun, context).await
}

/// Begins a call. It does nothing until it is driven.
fn begin(
    server: &Server,
    request: &mut CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<Begun, ErrorData> {
    let asking = Arc::new(Asking::new(server.settings().confirmer.clone(), server.seals().clone(), request, context)?);
    let early = request.input_responses.take().unwrap_or_default();
    let (questions, opened) = Questions::of(context, early, server.parked().room());
    let notices = Arc::new(Notices::default());
    let catalog = server.catalog();
    // A name that is not listed is called all the same, so that the audit log has it.
    let name = catalog.own_name(&request.name).unwrap_or(&request.name).to_owned();
    let is_tool = server.project().loaded().registry().tool(&name).is_ok();
    let run = run(server, asking.clone(), is_tool, context);
    run.set_progress(notices.clone());
    run.set_respondent(questions.clone());
    let of = subject(request);
    let call = Call { id: None, name, arguments: Json::Object(request.arguments.take().unwrap_or_default()) };
    let server = server.clone();
    let work = Box::pin(async move { server.project().make(call, &run).await });
    Ok(Begun { work, opened, questions, notices, asking, of })
}

/// What a request is about, as its client sent it.
fn subject(request: &CallToolRequestParams) -> String {
    digest(&json!([request.name, request.arguments.clone().unwrap_or_default()]).to_string())
}

enum Resumed {
    Answered(Begun),
    /// Something is missing in the answers.
    Asked(InputRequiredResult),
}

/// Gives a call that waits what the request answers.
fn go_on(server: &Server, number: &str, request: &CallToolRequestParams) -> Result<Resumed, ErrorData> {
    let gone = || ErrorData::invalid_params("the call that asked this has ended: call the tool again", None);
    let (begun, open) = server.parked().take(number).ok_or_else(gone)?;
    if begun.of != subject(request) {
        server.parked().put_back(number, begun, open);
        let why = "`requestState` belongs to a call with other arguments";
        return Err(ErrorData::invalid_params(why, None));
    }
    match open.answer(request.input_responses.as_ref().unwrap_or(&InputResponses::new())) {
        Ok(()) => Ok(Resumed::Answered(begun)),
        Err(open) => park(server, &request.name, begun, open).map(Resumed::Asked),
    }
}

/// Keeps a call until its client has answered what it asks.
fn park(server: &Server, tool: &str, begun: Begun, open: Open) -> Result<InputRequiredResult, ErrorData> {
    let requests = open.requests()?;
    let number = server.parked().keep(begun, open);
    Ok(InputRequiredResult::new(Some(requests), Some(server.seals().park(&number, tool))))
}

/// Lets a call run until it has ended, or asks its client.
async fn drive(
    server: &Server,
    tool: &str,
    mut begun: Begun,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let waiting = begun.notices.begin(server.threshold(), context)?;
    let notices = begun.notices.clone();
    let work = async {
        let came = tokio::select! {
            biased;
            Some(open) = begun.opened.recv() => Err(open),
            made = &mut begun.work => Ok(made),
        };
        notices.end();
        came
    };
    // All of them are sent before the answer.
    let (came, ()) = tokio::join!(work, notices::send(&context.peer, waiting));
    match came {
        Err(open) => park(server, tool, begun, open).map(CallToolResponse::from),
        Ok(made) => answer(server, tool, made, &begun, is_modern(context)),
    }
}

/// What a client gets when a call has ended.
fn answer(
    server: &Server,
    tool: &str,
    made: Result<CallReport, CallError>,
    begun: &Begun,
    is_modern: bool,
) -> Result<CallToolResponse, ErrorData> {
    let catalog = server.catalog();
    let structured = catalog.definition(tool).is_some_and(|tool| tool.output_schema.is_some());
    match made {
        Ok(report) => {
            if let Outcome::Fault(why) = &report.outcome {
                (server.settings().on_fault)(why);
            }
            if let (Outcome::Failed(_), Some(undeclared)) = (&report.outcome, begun.questions.undeclared()) {
                return Err(undeclared);
            }
            // The person at the client is to be asked first: nothing of the call has run.
            let denied = matches!(report.outcome, Outcome::Denied { .. });
            let input = denied.then(|| begun.asking.input(tool)).flatten();
            Ok(input.map_or_else(|| result(&report, structured, is_modern).into(), CallToolResponse::from))
        }
        // The name as the client wrote it, if it is no secret.
        Err(CallError::Unknown(unknown)) => {
            let hint = unknown.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
            Err(ErrorData::invalid_params(format!("{unknown}{hint}"), None))
        }
        Err(error) if catalog.own_name(tool).is_none() => Err(ErrorData::invalid_params(error.to_string(), None)),
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
    // Over HTTP rmcp puts its own name there.
    let client = match exchange(context) {
        Some(exchange) => {
            let named = context.meta.client_info().map(|client| client.name);
            named.or_else(|| Some(exchange.session.client.clone()).filter(|name| !name.is_empty()))
        }
        None => context.client_info().map(|client| client.name),
    };
    let client = client.unwrap_or_else(|| "unknown".to_owned());
    let version = context.protocol_version().map_or_else(|| "unknown".to_owned(), |version| version.to_string());
    run.set_client_request(ClientRequest {
        client: client.get(..client.floor_char_boundary(MAX_CLIENT)).unwrap_or_default().to_owned(),
        protocol: format!("mcp/{version}"),
        id: context.id.to_string(),
    });
    let Settings { models, .. } = server.settings();
    run.set_confirmer(asking);
    if is_tool {
        harness_agent::attach(server.project(), &run, models.clone());
    }
    run
}

/// What a client gets of a call that was made.
fn result(report: &CallReport, structured: bool, is_modern: bool) -> CallToolResult {
    let hint = match &report.outcome {
        Outcome::Completed(output) => {
            if structured && !report.is_error && output.truncated && report.rich.is_none() {
                return failed("tool error: the result is larger than `limits.output_bytes` allows");
            }
            let blocks = match &report.rich {
                Some(rich) => content::of(&rich.blocks),
                None => vec![ContentBlock::text(output.content.clone())],
            };
            let has_value = report.rich.as_ref().is_some_and(|rich| rich.structured);
            let mut result = if report.is_error { CallToolResult::error } else { CallToolResult::success }(blocks);
            // Before 2026-07-28 it had to be an object.
            let is_sent = has_value && (is_modern || report.result.is_object()) || structured && !report.is_error;
            result.structured_content = is_sent.then(|| report.result.clone());
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
