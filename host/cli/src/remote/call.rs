//! `harness --server URL call TOOL`.

use std::io::IsTerminal;

use harness_artifact::escape;
use harness_artifact::tool::Tool;
use harness_dispatch::CallError;
use harness_policy::limits::LimitKey;
use harness_sandbox::outcome::{Failure, FailureKind, Frame};
use harness_serve::ANSWERED_LATER;
use harness_serve::remote::{Ask, Lost, Remote, in_path};
use serde_json::{Map, Value as Json, json};

use super::super::args::Call;
use super::super::call::{self, stack, tell_undeclared};
use super::super::exit::Exit;
use super::super::printer::Printer;
use super::super::progress::Progress;
use super::super::{input, project};
use super::turn::{Followed, follow};
use super::{ask_json, block_on, list, problem, text, tools, without, without_shared};

/// Makes the call. An error is that it was not made, which was reported.
pub(super) fn run(command: &Call, remote: &Remote, printer: Printer) -> Result<Exit, Exit> {
    without_shared(command.workspace.as_ref(), &command.confirm, &command.confine, printer)?;
    let hint = "`harness policy show` prints the rules of a tool, and `--json` what a call used";
    without(&[("--explain", command.explain)], hint, printer)?;
    block_on(make(command, remote, printer), printer)
}

async fn make(command: &Call, remote: &Remote, printer: Printer) -> Result<Exit, Exit> {
    let all = ask_json(remote, &Ask::get("/v1/tools"), printer).await?;
    let given = list(&all, "tools").iter().find(|tool| text(tool, "name") == command.tool);
    let tool = given.map(tools::tool).transpose().map_err(|why| {
        printer.error(
            &format!("the server has parameters of `{}` that cannot be read: {why}", command.tool),
            &[],
            None,
        );
        Exit::Fault
    })?;
    let usage = tool.as_ref().map(|tool| project::usage(&command.tool, &tool.parameters.list));
    let arguments = arguments(command, tool.as_ref(), printer)?;
    if let Some(tool) = &tool {
        tell_undeclared(tool, &arguments, printer);
    }
    let mut body = json!({"arguments": arguments});
    if let (Some(rules), Some(body)) = (&command.within, body.as_object_mut()) {
        // What is no rules is said here, with its place.
        let (_, text) = call::rules(rules, printer)?;
        body.insert("within".to_owned(), text.into());
    }
    let path = format!("/v1/tools/{}/calls", in_path(&command.tool));
    let progress = Progress::start(format!("running {}", command.tool));
    let answer = remote.ask(&Ask::post(&path, &body).once()).await;
    drop(progress);
    let answer = answer.map_err(|Lost(why)| {
        printer.error(&why, &[], None);
        Exit::Fault
    })?;
    let json = answer.json().filter(Json::is_object).unwrap_or_else(|| json!({}));
    if answer.status >= 400 {
        return Err(refused(&json, answer.status, usage.as_deref(), command, remote, printer));
    }
    let waits = text(json.get("error").unwrap_or(&Json::Null), "hint") == ANSWERED_LATER;
    if waits && std::io::stdin().is_terminal() && std::io::stderr().is_terminal() {
        return later(command, &path, &body, usage.as_deref(), remote, printer).await;
    }
    Ok(print(json, command, printer))
}

/// Makes the call as a run, which waits until another key has confirmed it.
async fn later(
    command: &Call,
    path: &str,
    body: &Json,
    usage: Option<&str>,
    remote: &Remote,
    printer: Printer,
) -> Result<Exit, Exit> {
    match follow(remote, path, body, true, &mut |_| (), printer).await? {
        Followed::Interrupted(heard) => {
            printer.error(&format!("interrupted by {}", heard.name()), &[], None);
            Ok(heard.exit())
        }
        Followed::Ended(end) => match end.get("error").filter(|_| text(&end, "outcome") == "rejected") {
            Some(error) => {
                let status = error.get("status").and_then(Json::as_u64).and_then(|status| u16::try_from(status).ok());
                Err(refused(error, status.unwrap_or(500), usage, command, remote, printer))
            }
            None => Ok(print(end, command, printer)),
        },
    }
}

/// Says why the call was not made.
fn refused(json: &Json, status: u16, usage: Option<&str>, command: &Call, remote: &Remote, printer: Printer) -> Exit {
    if text(json, "type").ends_with(":busy") {
        let why = remote.redact(text(json, "detail"));
        printer.error(&format!("tool `{}` was not called: {why}", command.tool), &[], None);
        return Exit::Busy;
    }
    problem::report_json(json, status, usage, remote, printer)
}

/// The arguments, as the parameters of the tool have them.
fn arguments(command: &Call, tool: Option<&Tool>, printer: Printer) -> Result<Json, Exit> {
    let wrong = |message: &str| {
        printer.error(message, &[], Some("give the arguments as a JSON object, or as `key=value`"));
        Exit::Usage
    };
    if let Some(given) = &command.args {
        let arguments = input::json(given, "the arguments are").map_err(|why| wrong(&why))?;
        return if arguments.is_object() { Ok(arguments) } else { Err(wrong("the arguments are not a JSON object")) };
    }
    // Of a tool that is not there the server says so.
    let Some(tool) = tool else { return Ok(Json::Object(Map::new())) };
    match tool.read_arguments(&command.pairs) {
        Ok(arguments) => harness_artifact::json::finite(Json::Object(arguments)).map_err(|why| wrong(&why)),
        Err(errors) => {
            let causes: Vec<String> = errors.iter().map(ToString::to_string).collect();
            let error = CallError::Arguments { tool: command.tool.clone(), errors, changed_by: Vec::new(), pre: None };
            let usage = project::usage(&command.tool, &tool.parameters.list);
            printer.error(&error.to_string(), &causes, Some(&usage));
            Err(Exit::Usage)
        }
    }
}

/// Prints the result, or why there is none.
fn print(mut report: Json, command: &Call, printer: Printer) -> Exit {
    if let Some(members) = report.as_object_mut() {
        members.shift_remove("call");
        members.shift_remove("type");
    }
    said(&report, printer);
    if command.json {
        printer.json(&report);
    }
    let error = report.get("error").unwrap_or(&Json::Null);
    let tool = &command.tool;
    match text(&report, "outcome") {
        "completed" => {
            if !command.json {
                printer.data(text(&report, "content"));
            }
            let is_error = report.get("is_error").and_then(Json::as_bool).unwrap_or(false);
            if is_error { Exit::Failed } else { Exit::Completed }
        }
        "failed" => {
            diagnose(error, &format!("tool `{tool}` failed"), None, printer);
            Exit::Failed
        }
        "denied" => {
            let hint = match text(error, "hint") {
                ANSWERED_LATER => Some(format!(
                    "call it at a terminal, which waits until another key has answered: `harness --server URL call {tool} ...`"
                )),
                "" => blocked_by(&report),
                hint => Some(hint.to_owned()),
            };
            diagnose(error, &format!("tool `{tool}` was denied"), hint, printer);
            Exit::Denied
        }
        "limited" => {
            let hint = Some(text(error, "hint"));
            printer.error(&format!("tool `{tool}` was ended: {}", text(error, "message")), &[], hint);
            Exit::Limited
        }
        "stopped" => {
            printer.error(&format!("the call of `{tool}` was stopped"), &[], None);
            Exit::Failed
        }
        other => {
            let why = match (text(error, "message"), text(error, "detail"), other) {
                ("", "", "") => "the server answers without an outcome",
                ("", "", other) => other,
                ("", detail, _) => detail,
                (message, _, _) => message,
            };
            printer.error(&format!("the host failed: {why}"), &[], None);
            Exit::Fault
        }
    }
}

/// What scripts and hooks said, in the order of the steps.
fn said(report: &Json, printer: Printer) {
    let hooks = list(report, "hooks");
    let is_before = |hook: &&Json| text(hook, "event") == "tool.pre";
    hooks.iter().filter(is_before).for_each(|one| hook(one, printer));
    lines(None, report, printer);
    if let Some(dropped) = report.get("log_dropped").and_then(Json::as_u64) {
        let key = LimitKey::LogLines.facts().name;
        printer.warning(&format!("over the limit `{key}`: {dropped} more log lines were dropped"));
    }
    hooks.iter().filter(|hook| !is_before(hook)).for_each(|one| hook(one, printer));
}

fn hook(hook: &Json, printer: Printer) {
    let name = text(hook, "name");
    lines(Some(name), hook, printer);
    for warning in list(hook, "warnings").iter().filter_map(Json::as_str) {
        printer.warning(&escape::line(&format!("hook `{name}`: {warning}")));
    }
}

fn lines(who: Option<&str>, of: &Json, printer: Printer) {
    let who = who.map(|who| format!("{}: ", escape::line(who))).unwrap_or_default();
    for line in list(of, "log") {
        let (level, message) = (escape::line(text(line, "level")), escape::text(text(line, "message")));
        printer.say(&format!("[{level}] {who}{message}"));
    }
}

/// An error of a script. The lines of the script are the server's, and are not shown.
fn diagnose(error: &Json, what: &str, hint: Option<String>, printer: Printer) {
    let failure = failure(error);
    let mut diagnostic = project::diagnostic(&failure, what);
    if hint.is_some() {
        diagnostic.hint = hint;
    }
    printer.rendered(&diagnostic, &diagnostic.render(None, printer.color()));
    stack(&failure, printer);
}

fn failure(error: &Json) -> Failure {
    let number = |json: &Json, name: &str| {
        json.get(name).and_then(Json::as_u64).and_then(|number| u32::try_from(number).ok()).unwrap_or_default()
    };
    let frame = |frame: &Json| Frame {
        name: text(frame, "name").to_owned(),
        file: text(frame, "file").to_owned(),
        line: number(frame, "line"),
        column: number(frame, "column"),
    };
    Failure {
        kind: FailureKind::Script,
        message: text(error, "message").to_owned(),
        file: text(error, "file").to_owned(),
        line: number(error, "line"),
        column: number(error, "column"),
        stack: list(error, "stack").iter().map(frame).collect(),
    }
}

/// Where the hook is that blocked.
fn blocked_by(report: &Json) -> Option<String> {
    let blocks = |hook: &&Json| {
        hook.get("reason").is_some_and(|reason| !reason.is_null())
            && matches!(text(hook, "decision"), "block" | "error")
    };
    let hook = list(report, "hooks").iter().rev().find(blocks)?;
    Some(format!("the hook is `{}`; `--json` shows each hook's decision", text(hook, "file")))
}
