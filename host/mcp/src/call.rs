//! `tools/call`: a call that a client asks for.

use std::sync::Arc;

use futures_util::future::join_all;
use harness_agent::{Listener, Silent};
use harness_artifact::arguments::ArgumentError;
use harness_dispatch::builtin::DELEGATE;
use harness_dispatch::code::RUN_SCRIPT;
use harness_dispatch::{Call, CallError, CallReport, ClientRequest, Loaded, Run, code};
use harness_policy::refusal::Refusal;
use harness_sandbox::outcome::Outcome;
use harness_sys::digest::digest;
use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ContentBlock, ErrorData,
    InputRequiredResult, InputResponses, JsonObject,
};
use rmcp::service::RequestContext;
use serde_json::{Value as Json, json};

use crate::agents::{self, AgentTool, Watching};
use crate::catalog::Target;
use crate::content;
use crate::elicit::Asking;
use crate::listening::Connection;
use crate::notices::{self, Notices};
use crate::parked::Begun;
use crate::questions::{Open, Questions, exchange};
use crate::search;
use crate::server::{Server, is_modern};
use crate::tasks::{Handle, Slot};

/// Bytes that the audit log keeps of what a client calls itself.
const MAX_CLIENT: usize = 200;

/// Makes a call and says what the client gets of it.
///
/// # Errors
///
/// That there is no such tool, that the request answers no call, or that its client cannot do what the call needs. Every
/// other end is a result, which a model may read.
pub(crate) async fn make(
    server: &Server,
    mut request: CallToolRequestParams,
    context: &RequestContext<RoleServer>,
    slot: &Arc<Slot>,
) -> Result<CallToolResponse, ErrorData> {
    if server.catalog().1.target(&request.name) == Some(&Target::Search) {
        return search::call(server, request, context).await.map(Into::into);
    }
    server.principal().admit().await?;
    let state = request.request_state.as_deref();
    let begun = match state.and_then(|state| server.seals().parked(state, &request.name)) {
        Some(number) => match go_on(server, &number, &request)? {
            Resumed::Answered(begun) => begun,
            Resumed::Asked(again) => return Ok(again.into()),
        },
        None => begin(server, &mut request, context, slot)?,
    };
    drive(server, &request.name, begun, context, slot).await
}

/// Begins a call. It does nothing until it is driven.
fn begin(
    server: &Server,
    request: &mut CallToolRequestParams,
    context: &RequestContext<RoleServer>,
    slot: &Arc<Slot>,
) -> Result<Begun, ErrorData> {
    let principal = server.principal().clone();
    let confirmer = (server.settings().confirmer.clone(), principal.may_confirm());
    let seals = server.seals().clone();
    let early = request.input_responses.clone().unwrap_or_default();
    let (questions, opened) = Questions::of(context, early, server.parked().room());
    let asking = Arc::new(Asking::new(confirmer, seals, request, context, (slot.clone(), questions.clone()))?);
    let (loaded, catalog) = server.catalog();
    let target = catalog.target(&request.name).cloned();
    let notices = Arc::new(Notices::new(matches!(target, Some(Target::Agent(_)))));
    let run = run(server, asking.clone(), context);
    run.set_progress(notices.clone());
    run.set_respondent(questions.clone());
    let tool = tool_of(&loaded, target.as_ref(), &request.name);
    let unable = tool.is_some_and(|name| !slot.can_be() && loaded.policy().mcp.wants_task(name));
    let refused = tool.and_then(|name| Some((name.to_owned(), refusal(&loaded, name, unable)?)));
    let of = subject(request);
    let (name, arguments) = (request.name.to_string(), request.arguments.take().unwrap_or_default());
    let (server, reporter, to) = (server.clone(), notices.clone(), target.clone());
    let work = Box::pin(async move {
        if let Some((name, why)) = refused {
            let call = Call { id: None, name, arguments: Json::Object(arguments) };
            return server.project().refuse(call, why, &run).await;
        }
        let made = match &to {
            Some(Target::Agent(agent)) => to_agent(&server, (agent, arguments), &run, loaded, reporter).await,
            Some(Target::Tool(name)) => to_tool(&server, name, arguments, &run, &loaded).await,
            Some(Target::Code(name)) => to_tool(&server, name, arguments, &run, &loaded).await,
            // A name that is not listed is called all the same, so that the audit log has it.
            Some(Target::Search) | None => to_tool(&server, &name, arguments, &run, &loaded).await,
        };
        if let Ok(report) = &made {
            principal.spend(report);
        }
        made
    });
    Ok(Begun { work, opened, questions, notices, asking, target, unable, of })
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

/// Lets a call run until it has ended, or asks its client. A call that has become a task asks as one.
async fn drive(
    server: &Server,
    tool: &str,
    mut begun: Begun,
    context: &RequestContext<RoleServer>,
    slot: &Slot,
) -> Result<CallToolResponse, ErrorData> {
    loop {
        let waiting = begun.notices.begin(server.threshold(), context, slot.can_be())?;
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
        let (came, ()) = tokio::join!(work, notices::send(&context.peer, waiting, slot));
        let open = match came {
            Ok(made) => return answer(server, tool, made, &begun, is_modern(context)),
            Err(open) => open,
        };
        let task = slot.get().await.clone();
        match task {
            Some(task) => ask_as(&task, open).await?,
            None => return park(server, tool, begun, open).map(CallToolResponse::from),
        }
    }
}

/// Asks as a task, until everything is answered or the task ends.
async fn ask_as(task: &Handle, mut open: Open) -> Result<(), ErrorData> {
    loop {
        let asked = open.requests()?.into_iter().map(async |(key, request)| Some((key, task.ask(request).await?)));
        let answers: Option<InputResponses> = join_all(asked).await.into_iter().collect();
        // What ends the task ends the call too.
        let Some(answers) = answers else { return Ok(()) };
        match open.answer(&answers) {
            Ok(()) => return Ok(()),
            Err(again) => open = again,
        }
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
    let catalog = server.catalog().1;
    let target = begun.target.as_ref();
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
            let result = || match target {
                Some(Target::Agent(_)) if is_completed(&report) => agents::answer(&report),
                _ => result(&report, catalog.is_structured(tool), is_modern),
            };
            Ok(input.map_or_else(|| result().into(), CallToolResponse::from))
        }
        // The name as the client wrote it, if it is no secret.
        Err(CallError::Unknown(unknown)) => {
            let hint = unknown.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
            Err(ErrorData::invalid_params(format!("{unknown}{hint}"), None))
        }
        // So that it knows what to declare. Older versions have no such error.
        Err(CallError::NotAllowed(_)) if begun.unable && is_modern => {
            Err(ErrorData::missing_required_client_capability(ClientCapabilities::builder().enable_tasks().build()))
        }
        Err(error) if target.is_none() => Err(ErrorData::invalid_params(error.to_string(), None)),
        Err(mut error) => {
            if let (CallError::Arguments { tool: called, .. }, Some(Target::Agent(_))) = (&mut error, target) {
                // Its name for the client.
                *called = tool.to_owned();
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
    let Some(name) = tool_of(&loaded, catalog.target(name), name) else { return false };
    let policy = loaded.policy();
    let in_background = policy.async_tools && loaded.registry().tool(name).is_ok_and(|tool| *tool.asynchronous);
    in_background || policy.mcp.wants_task(name)
}

/// The name of the tool that a client calls, which may be one that is not listed.
fn tool_of<'a>(loaded: &Loaded, target: Option<&'a Target>, asked: &'a str) -> Option<&'a str> {
    match target {
        Some(Target::Tool(name)) => Some(name),
        None => loaded.registry().tool(asked).is_ok().then_some(asked),
        Some(_) => None,
    }
}

/// Why a client does not call a tool itself, whatever the policy lets be called.
fn refusal(loaded: &Loaded, name: &str, unable: bool) -> Option<CallError> {
    if unable {
        let reason = format!("`{name}` is only called as a task, which this client cannot follow");
        let hint = "declare the extension `io.modelcontextprotocol/tasks`, or take the tool out of `mcp.only_as_tasks` in the policy";
        return Some(CallError::NotAllowed(Refusal::new(reason, hint)));
    }
    code::only_in_scripts(loaded, loaded.registry().tool(name).ok()?)
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
    if loaded.registry().tool(name).is_ok() || name == RUN_SCRIPT {
        harness_agent::attach(&server.project(), run, server.models());
    }
    server.project().call(name, Json::Object(arguments), run).await
}

/// Sets an agent a task, which the policy lets clients do.
async fn to_agent(
    server: &Server,
    (agent, arguments): (&AgentTool, JsonObject),
    run: &Arc<Run>,
    loaded: Arc<Loaded>,
    reporter: Arc<Notices>,
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
    let listener: Arc<dyn Listener> =
        if reporter.are_wanted() { Arc::new(Watching::new(reporter, loaded)) } else { Arc::new(Silent) };
    harness_agent::attach_with(&server.project(), run, server.models(), listener);
    server.project().make(call, run).await
}

/// A run for one request: nothing of a client is kept between two, but the servers of the one that started this process.
fn run(server: &Server, asking: Arc<Asking>, context: &RequestContext<RoleServer>) -> Arc<Run> {
    let run = Run::narrowed(server.principal().layers());
    run.set_client_request(client_request(server, context));
    run.set_confirmer(asking);
    if let Some(connection) = context.extensions.get::<Arc<Connection>>() {
        run.set_servers(connection.servers.clone());
    }
    run
}

/// Whose request it is, for the audit log.
pub(crate) fn client_request(server: &Server, context: &RequestContext<RoleServer>) -> ClientRequest {
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
    ClientRequest {
        client: server.principal().client(client.get(..client.floor_char_boundary(MAX_CLIENT)).unwrap_or_default()),
        protocol: format!("mcp/{version}"),
        id: context.id.to_string(),
        workspace: server.principal().workspace(),
    }
}

fn is_completed(report: &CallReport) -> bool {
    matches!(report.outcome, Outcome::Completed(_)) && !report.is_error
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
        _ => format!("tool error: {error}"),
    }
}

fn with_hint(text: &str, hint: &str) -> String {
    if hint.is_empty() { text.to_owned() } else { format!("{text}\nhint: {hint}") }
}

fn failed(text: &str) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text)])
}
