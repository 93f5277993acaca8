//! A call of a tool that a server of another program has.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::blocks::MARK;
use super::call_error::CallError;
use super::chain::CallContext;
use super::person::{Person, within};
use harness_artifact::cases::McpResult;
use harness_artifact::definition::{Served, canonical, fitted};
use harness_artifact::tool::Tool;
use harness_capability::env::Variables;
use harness_capability::exec::Runner;
use harness_capability::log::{Level, Log};
use harness_gateway::{Answerer, Call, Failure, Host, ToolResult};
use harness_policy::grant::Grant;
use harness_policy::layer::Layer;
use harness_policy::limits::Limits;
use harness_policy::refusal::Refusal;
use harness_policy::text::quoted;
use harness_sandbox::outcome::{self, FailureKind, Limit, LimitKind, Outcome, Report, Usage};
use harness_sandbox::strand;
use harness_sandbox::tape::Taping;

/// What the process that answers a call may do: what the server may, within the files and limits of the script that calls
/// it. A script's rules for commands and hosts are about its own.
///
/// # Errors
///
/// Where the caller is of a plugin that may not call this server.
pub(super) fn grant(
    place: &CallContext,
    tool: &Tool,
    served: &Served,
    caller: Option<&Arc<Grant>>,
) -> Result<Arc<Grant>, CallError> {
    let (policy, borrowers) = (&place.loaded.parts.policy, &place.loaded.parts.borrowers);
    let sources = borrowers.iter().map(String::as_str).chain(place.caller_source.as_deref());
    if let Some(source) = sources.into_iter().find(|source| !policy.lends_server(source, &served.server)) {
        let plugin = harness_artifact::policy::sources::bundle_of(source).unwrap_or(source);
        let reason = format!("the MCP server {} is not granted to {}", quoted(&served.server), quoted(plugin));
        let file = &policy.project.origin.file;
        let hint = format!("add `{}` to `sandbox.sources.{plugin}.mcp` in `{file}`", served.server);
        return Err(CallError::NotAllowed(Refusal::new(reason, hint)));
    }
    let mut grant = place.loaded.grant(tool);
    if let Some(caller) = caller {
        let within = |layer: &Arc<Layer>| Layer {
            network: None,
            exec: None,
            env: None,
            services: None,
            secrets: None,
            ..(**layer).clone()
        };
        grant = grant.meet(&Grant::new(caller.layers().iter().map(within).collect()));
    }
    if !place.run.layers().is_empty() {
        grant = grant.meet(&Grant::new(place.run.layers().to_vec()));
    }
    Ok(Arc::new(grant))
}

/// Makes a call within its time, which does not run while a person is asked. Dropping it ends the process that answers it.
/// A replay gives what the recording has, and calls nothing.
pub(super) async fn run(
    place: &CallContext,
    served: &Served,
    grant: &Arc<Grant>,
    limits: Limits,
    arguments: &Json,
) -> Report<String> {
    let mut log = Log::default();
    let outcome = match taping(place, served, arguments) {
        None => called(place, served, grant, limits, arguments, &mut log).await,
        Some(mut taping) => {
            if taping.is_call_abandoned() {
                return strand::cut().await;
            }
            let outcome = match taping.call_given() {
                Some(given) => given.as_ref().and_then(replayed).unwrap_or_else(|| {
                    let why = format!("the recording has no result of the MCP server {}", quoted(&served.server));
                    Outcome::Failed(outcome::Failure::without_place(FailureKind::Script, "", why))
                }),
                None => {
                    let mut outcome = called(place, served, grant, limits, arguments, &mut log).await;
                    let secrets = &place.loaded.parts.secrets;
                    outcome.redact(secrets);
                    if let Outcome::Completed(text) = &mut outcome {
                        secrets.redact(text);
                    }
                    taping.keep_call(recorded(&outcome));
                    outcome
                }
            };
            taping.end_call(&outcome);
            outcome
        }
    };
    Report { outcome, usage: Usage::default(), log, calls: Vec::new(), coverage: None }
}

/// The tape of a run that has one, for a call of this tool as it was locked.
fn taping(place: &CallContext, served: &Served, arguments: &Json) -> Option<Box<Taping>> {
    let locked = place.loaded.parts.registry.server(&served.server)?;
    let definition = locked.pinned.tools.iter().find(|tool| tool.name() == served.tool)?;
    let file = format!("{}/{}", Served::source(&served.server), served.tool);
    Taping::begin_call(place.run.session(), &file, &definition.canonical(), &canonical(arguments))
}

async fn called(
    place: &CallContext,
    served: &Served,
    grant: &Arc<Grant>,
    limits: Limits,
    arguments: &Json,
    log: &mut Log,
) -> Outcome<String> {
    let person = Person::of(place, &served.server);
    let person = person.as_ref();
    let asked = ask(place, served, grant, &limits, arguments, person);
    match within(limits.timeout, person, asked).await {
        Some(Ok(result)) => Outcome::Completed(text(result)),
        Some(Err(failure)) => failed(place, failure, log),
        None => {
            let allowed = u64::try_from(limits.timeout.as_millis()).unwrap_or(u64::MAX);
            Outcome::Limited(Limit::of(LimitKind::Deadline, allowed))
        }
    }
}

/// What a call came to, as a recording keeps it.
fn recorded(outcome: &Outcome<String>) -> Json {
    match outcome {
        Outcome::Completed(text) => json!({"completed": text}),
        Outcome::Denied { refusal, .. } => json!({"denied": refusal.reason, "hint": refusal.hint}),
        Outcome::Limited(limit) => json!({"limited": limit.allowed}),
        Outcome::Failed(failure) => json!({"failed": failure.message}),
        Outcome::Busy(busy) => json!({"failed": busy.to_string()}),
        Outcome::Fault(why) => json!({"failed": why}),
    }
}

/// The same from a recording. None: it is no such thing.
fn replayed(kept: &Json) -> Option<Outcome<String>> {
    let text = |key: &str| kept.get(key).and_then(Json::as_str).map(str::to_owned);
    if let Some(text) = text("completed") {
        return Some(Outcome::Completed(text));
    }
    if let Some(reason) = text("denied") {
        return Some(denied(Refusal::new(reason, text("hint").unwrap_or_default())));
    }
    if let Some(allowed) = kept.get("limited").and_then(Json::as_u64) {
        return Some(Outcome::Limited(Limit::of(LimitKind::Deadline, allowed)));
    }
    let why = text("failed")?;
    Some(Outcome::Failed(outcome::Failure::without_place(FailureKind::Script, "", why)))
}

fn denied(refusal: Refusal) -> Outcome<String> {
    let failure = outcome::Failure::without_place(FailureKind::Denied, "", refusal.reason.clone());
    Outcome::Denied { failure, refusal }
}

/// What a case of a test gives for a call.
fn faked(fakes: &[McpResult], served: &Served, arguments: &Json) -> Result<ToolResult, Failure> {
    let name = fitted(&served.server, &served.tool);
    let is_of = |fake: &&McpResult| fake.tool == name && fake.args.as_ref().is_none_or(|args| args == arguments);
    let Some(fake) = fakes.iter().find(is_of) else {
        let why = format!("the case gives no result of {} with these arguments in `given.mcp`", quoted(&name));
        return Err(Failure::Broken(why));
    };
    let blocks = fake.text.iter().map(|text| json!({"type": "text", "text": text})).collect();
    Ok(ToolResult { blocks, structured: fake.structured.clone(), is_error: fake.is_error })
}

async fn ask(
    place: &CallContext,
    served: &Served,
    grant: &Arc<Grant>,
    limits: &Limits,
    arguments: &Json,
    person: Option<&Person<'_>>,
) -> Result<ToolResult, Failure> {
    let parts = &place.loaded.parts;
    if let Some(fakes) = place.run.fakes() {
        return faked(fakes, served, arguments);
    }
    let overrides = &place.run.session().overrides;
    if matches!(overrides.exec, Runner::Canned(_)) {
        let what = format!("the MCP server {} is not called in a test or a replay", quoted(&served.server));
        return Err(Failure::Broken(what));
    }
    let gone = || Failure::Broken(format!("the MCP server {} is not locked", quoted(&served.server)));
    let server = parts.policy.mcp.server(&served.server).ok_or_else(gone)?;
    let locked = parts.registry.server(&served.server).ok_or_else(gone)?;
    let workspace = parts.workspace.clone();
    let variables: &Variables = overrides.variables.as_ref().unwrap_or(&parts.system.variables);
    // One server is the same for all callers, unless it is watched itself.
    let is_watched = parts.watch.as_ref().is_some_and(|watch| watch.is_of_servers());
    let own = if is_watched { Grant::clone(grant) } else { grant.unwatched() };
    let host = Host {
        grant: &own,
        folder: &workspace,
        workspace: workspace.absolute().as_ref(),
        vault: &parts.secrets,
        variables,
        http: overrides.http.as_ref().unwrap_or(&parts.http),
        resources: parts.sandbox.share().resources(),
        answerer: person.map(|person| person as &dyn Answerer),
    };
    let call = Call { server, locked: &locked.pinned, tool: &served.tool, arguments, time: limits.timeout };
    place.run.servers().call(call, host).await
}

/// A result as the interpreter writes it: one text is that text, anything more is content.
fn text(result: ToolResult) -> String {
    let ToolResult { blocks, structured, is_error } = result;
    if let ([block], None, false) = (blocks.as_slice(), &structured, is_error)
        && block.get("type") == Some(&json!("text"))
        && block.as_object().is_some_and(|block| block.len() == 2)
        && let Some(text) = block.get("text").filter(|text| text.is_string())
    {
        return text.to_string();
    }
    format!("{MARK}{}", json!({"blocks": blocks, "structured": structured, "error": is_error}))
}

fn failed(place: &CallContext, failure: Failure, log: &mut Log) -> Outcome<String> {
    match failure {
        Failure::Refused { refusal, difference } => {
            // For the operator: what a changed definition says is not for a model.
            if let Some(mut difference) = difference {
                place.loaded.parts.secrets.redact(&mut difference);
                log.write(Level::Error, difference, 1);
            }
            denied(refusal)
        }
        Failure::Broken(why) | Failure::Said(why) => {
            Outcome::Failed(outcome::Failure::without_place(FailureKind::Script, "", why))
        }
    }
}
