//! `harness call TOOL`: one call, from the command line.

use std::path::PathBuf;

use harness::artifact::escape;
use harness::dispatch::{CallError, CallReport, Options, Project, Run, ToolOutput, Verdict};
use harness::sandbox::outcome::{Failure, Limit, LimitKind, Outcome};
use serde_json::{Value as Json, json};

use super::args::Call;
use super::exit::Exit;
use super::printer::Printer;
use super::progress::Progress;
use super::{fire, input, project};

pub(crate) mod explain;
pub(crate) mod report;

pub(crate) fn run(command: &Call, root: &Option<PathBuf>, printer: &Printer) -> Exit {
    let options = Options { workspace: command.workspace.clone(), concurrency: 1, ..Options::default() };
    let project = match project::open(root.as_deref(), options, *printer) {
        Ok(project) => project,
        Err(exit) => return exit,
    };
    let arguments = match arguments(command, &project) {
        Ok(arguments) => arguments,
        Err(Refused::Call(error)) => return project::refuse(&error, project.loaded().registry(), *printer),
        Err(Refused::Text(message)) => {
            printer.error(&message, &[], Some("give the arguments as a JSON object, or as `key=value`"));
            return Exit::Usage;
        }
    };
    let runtime = match project::runtime(*printer) {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    let run = Run::new();
    harness::agent::attach(&project, &run, super::run::models(&project, root.as_deref()));
    if !command.no_self_confine {
        project::confine(&project, root.as_deref(), command.workspace.as_deref(), *printer);
    }
    let progress = Progress::start(format!("running {}", command.tool));
    let called = runtime.block_on(project.call(&command.tool, arguments, &run));
    drop(progress);
    let report = match called {
        Ok(report) => report,
        Err(error) => {
            if let (true, CallError::Arguments { pre: Some(pre), .. }) = (command.explain, &error) {
                explain::dispatch(pre, "", *printer);
            }
            return project::refuse(&error, project.loaded().registry(), *printer);
        }
    };
    report::call(&report, *printer);
    if command.explain {
        explain::tell(&project, &command.tool, &report, *printer);
    }
    if command.json {
        printer.json(&as_json(&report));
    }
    tell(&report, &project, command, *printer)
}

/// Prints the result, or why there is none.
fn tell(report: &CallReport, project: &Project, command: &Call, printer: Printer) -> Exit {
    let loaded = project.loaded();
    let registry = loaded.registry();
    match &report.outcome {
        Outcome::Completed(output) => {
            if !command.json {
                printer.data(&output.content);
            }
            // A hook may say of what a tool gave that it is an error.
            if report.is_error { Exit::Failed } else { Exit::Completed }
        }
        Outcome::Failed(failure) => {
            let diagnostic = project::diagnostic(failure, &format!("tool `{}` failed", command.tool));
            printer.say(registry.render(&diagnostic, printer.color()).trim_end());
            stack(failure, printer);
            Exit::Failed
        }
        Outcome::Denied { failure, refusal } => {
            let mut diagnostic = project::diagnostic(failure, &format!("tool `{}` was denied", command.tool));
            diagnostic.hint = (!refusal.hint.is_empty()).then(|| refusal.hint.clone()).or_else(|| blocked_by(report));
            printer.say(registry.render(&diagnostic, printer.color()).trim_end());
            stack(failure, printer);
            Exit::Denied
        }
        Outcome::Limited(limit) => {
            printer.error(&format!("tool `{}` was ended: {limit}", command.tool), &[], Some(&raise(limit)));
            Exit::Limited
        }
        Outcome::Fault(message) => {
            printer.error(
                &format!("the host failed: {message}"),
                &[],
                Some("`harness doctor` says what this machine offers"),
            );
            Exit::Fault
        }
    }
}

/// Where the hook is that blocked.
fn blocked_by(report: &CallReport) -> Option<String> {
    let hooks = report.dispatches().flat_map(|dispatch| &dispatch.hooks);
    let hook =
        hooks.rev().find(|hook| hook.reason.is_some() && matches!(hook.verdict, Verdict::Block | Verdict::Error))?;
    Some(format!("the hook is `{}`; `--explain` tells what each hook decided", hook.file))
}

/// The calls that led to an error, where there is more than one.
fn stack(failure: &Failure, printer: Printer) {
    if failure.stack.len() < 2 {
        return;
    }
    printer.say("\ncalls, outermost first:");
    for frame in &failure.stack {
        printer.say(&format!(
            "  {}:{}:{} in {}",
            escape::line(&frame.file),
            frame.line,
            frame.column,
            escape::line(&frame.name)
        ));
    }
}

fn raise(limit: &Limit) -> String {
    let Some(key) = limit.kind.key() else { return "no policy raises this limit".to_owned() };
    let raise = format!("`{key}` in `.harness/harness.md` raises it");
    if limit.kind == LimitKind::Deadline {
        format!("{raise}, as far as the tool's own `timeout_ms` lets it")
    } else {
        raise
    }
}

/// The report as `--json` prints it.
fn as_json(report: &CallReport) -> Json {
    let (result, content, truncated) = match &report.outcome {
        Outcome::Completed(output) => (output.result.clone(), json!(output.content), json!(output.truncated)),
        _ => (Json::Null, Json::Null, json!(false)),
    };
    let log: Vec<Json> =
        report.log.lines.iter().map(|line| json!({"level": line.level.name(), "message": line.message})).collect();
    let mut object = json!({
        "outcome": report.outcome.name(),
        "result": result,
        "content": content,
        "truncated": truncated,
        "is_error": report.is_error,
        "usage": report.usage.as_json(),
        "log": log,
    });
    let hooks = report.dispatches().flat_map(|dispatch| dispatch.hooks.iter().map(|hook| (&dispatch.event, hook)));
    let hooks: Vec<Json> = hooks
        .map(|(event, hook)| {
            let mut object = json!({"event": event.to_string()});
            if let (Some(object), Json::Object(rest)) = (object.as_object_mut(), fire::hook_as_json(hook)) {
                object.extend(rest);
            }
            object
        })
        .collect();
    if let (false, Some(object)) = (hooks.is_empty(), object.as_object_mut()) {
        object.insert("hooks".to_owned(), json!(hooks));
    }
    if let (Some(error), Some(object)) = (error(&report.outcome), object.as_object_mut()) {
        object.insert("error".to_owned(), error);
    }
    object
}

fn error(outcome: &Outcome<ToolOutput>) -> Option<Json> {
    let of = |failure: &Failure, hint: &str| {
        let stack: Vec<Json> = failure
            .stack
            .iter()
            .map(|f| json!({"name": f.name, "file": f.file, "line": f.line, "column": f.column}))
            .collect();
        json!({
            "kind": failure.kind.name(),
            "message": failure.message,
            "file": (!failure.file.is_empty()).then_some(&failure.file),
            "line": (failure.line > 0).then_some(failure.line),
            "column": (failure.column > 0).then_some(failure.column),
            "stack": stack,
            "hint": hint,
        })
    };
    // Every error has the same keys; what has no place in a script has none here.
    let bare = |kind: &str, message: String, hint: String| json!({"kind": kind, "message": message, "file": null, "line": null, "column": null, "stack": [], "hint": hint});
    match outcome {
        Outcome::Completed(_) => None,
        Outcome::Failed(failure) => Some(of(failure, "")),
        Outcome::Denied { failure, refusal } => Some(of(failure, &refusal.hint)),
        Outcome::Limited(limit) => Some(bare(limit.kind.name(), limit.to_string(), raise(limit))),
        Outcome::Fault(message) => Some(bare("fault", message.clone(), String::new())),
    }
}

/// Why there are no arguments.
enum Refused {
    Call(CallError),
    Text(String),
}

/// The arguments as one JSON object, from wherever they were given.
fn arguments(command: &Call, project: &Project) -> Result<Json, Refused> {
    let tool = project.tool(&command.tool).map_err(Refused::Call)?;
    let text = match command.args.as_deref() {
        None => {
            return tool.read_arguments(&command.pairs).map(Json::Object).map_err(|errors| {
                let changed_by = Vec::new();
                Refused::Call(CallError::Arguments { tool: tool.name.clone(), errors, changed_by, pre: None })
            });
        }
        Some(given) => input::text(given).map_err(Refused::Text)?,
    };
    serde_json::from_str(&text).map_err(|error| Refused::Text(format!("the arguments are not JSON: {error}")))
}
