//! `harness call TOOL`: one call, from the command line.

use std::sync::Arc;

use harness::artifact::escape;
use harness::artifact::policy::layer;
use harness::dispatch::{self, CallError, CallReport, Options, Project, Run, ToolOutput, Verdict};
use harness::policy::grant::Grant;
use harness::policy::layer::Layer;
use harness::sandbox::outcome::{Failure, Limit, LimitKind, Outcome};
use serde_json::{Value as Json, json};

use super::args::{Call, Place};
use super::confirm::AtTerminal;
use super::exit::Exit;
use super::printer::Printer;
use super::progress::Progress;
use super::{fire, input, project};

pub(crate) mod explain;
pub(crate) mod report;

pub(crate) fn run(command: &Call, place: &Place, printer: &Printer) -> Exit {
    let options = Options { workspace: command.workspace.clone(), concurrency: 1, ..Options::default() };
    let project = match project::open(place, options, *printer) {
        Ok(project) => project,
        Err(exit) => return exit,
    };
    let asked = match Asked::read(command, &project) {
        Ok(asked) => asked,
        Err(message) => {
            printer.error(&message, &[], Some("give the arguments as a JSON object, or as `key=value`"));
            return Exit::Usage;
        }
    };
    let run = match command.within.as_deref().map(|rules| narrowing(rules, *printer)).transpose() {
        Ok(layer) => Run::narrowed(layer.into_iter().collect()),
        Err(exit) => return exit,
    };
    run.set_confirmer(AtTerminal::new(&command.confirm, *printer));
    harness::agent::attach(&project, &run, super::run::models(&project, place));
    let plan = project::plan(&project, place, command.workspace.as_deref());
    if let Err(exit) = project::confine(&plan, &command.confine, *printer) {
        return exit;
    }
    let progress = Progress::start(format!("running {}", command.tool));
    let called = project::block_on(asked.make(&project, &run), *printer);
    drop(progress);
    let called = match called {
        Ok(called) => called,
        Err(exit) => return exit,
    };
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

/// Rules as `--within` takes them.
pub(crate) fn narrowing(given: &str, printer: Printer) -> Result<Layer, Exit> {
    let text = input::text(given).map_err(|message| {
        printer.error(&message, &[], Some("give rules as in `capabilities:`, such as `fs: { read: [docs] }`"));
        Exit::Usage
    })?;
    let (layer, diagnostics) = layer::parse("--within", &text);
    for diagnostic in &diagnostics {
        printer.say(diagnostic.render(Some(&text), printer.color()).trim_end());
    }
    layer.ok_or(Exit::Usage)
}

/// Prints the result, or why there is none.
pub(crate) fn tell(report: &CallReport, project: &Project, command: &Call, printer: Printer) -> Exit {
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
            printer.error(
                &format!("tool `{}` was ended: {limit}", command.tool),
                &[],
                Some(&raise(limit, &report.grant)),
            );
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

/// What would raise a limit: the line that set it, else the one to write.
fn raise(limit: &Limit, grant: &Grant) -> String {
    let Some(key) = limit.kind.limit() else { return "no policy raises this limit".to_owned() };
    let raise = grant.raises(key);
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
    if let (1.., Some(object)) = (report.log.dropped, object.as_object_mut()) {
        object.insert("log_dropped".to_owned(), json!(report.log.dropped));
    }
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
    if let (Some(error), Some(object)) = (error(&report.outcome, &report.grant), object.as_object_mut()) {
        object.insert("error".to_owned(), error);
    }
    object
}

fn error(outcome: &Outcome<ToolOutput>, grant: &Grant) -> Option<Json> {
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
        Outcome::Limited(limit) => Some(bare(limit.kind.name(), limit.to_string(), raise(limit, grant))),
        Outcome::Fault(message) => Some(bare("fault", message.clone(), String::new())),
    }
}

/// A call as it was asked for.
pub(crate) struct Asked {
    call: dispatch::Call,
    /// Why it is not made, where that is known before anybody is asked.
    refused: Option<CallError>,
}

impl Asked {
    /// Reads it from the arguments of the command line.
    ///
    /// # Errors
    ///
    /// Why there are no arguments of a call at all.
    pub(crate) fn read(command: &Call, project: &Project) -> Result<Self, String> {
        let (arguments, refused) = match command.args.as_deref() {
            Some(given) => {
                let json = serde_json::from_str(&input::text(given)?);
                (json.map_err(|error| format!("the arguments are not JSON: {error}"))?, None)
            }
            None => match pairs(command, project) {
                Ok(arguments) => (arguments, None),
                Err(why) => (json!(command.pairs), Some(why)),
            },
        };
        let call = dispatch::Call { id: None, name: command.tool.clone(), arguments };
        Ok(Self { call, refused })
    }

    /// Makes it, or has it recorded that it is not made.
    pub(crate) async fn make(&self, project: &Project, run: &Arc<Run>) -> Result<CallReport, CallError> {
        match self.refused.clone() {
            Some(why) => project.refuse(self.call.clone(), why, run).await,
            None => project.make(self.call.clone(), run).await,
        }
    }
}

/// Arguments given as `key=value`, as the tool's parameters have them.
fn pairs(command: &Call, project: &Project) -> Result<Json, CallError> {
    let tool = project.tool(&command.tool)?;
    tool.read_arguments(&command.pairs).map(Json::Object).map_err(|errors| CallError::Arguments {
        tool: tool.name.clone(),
        errors,
        changed_by: Vec::new(),
        pre: None,
    })
}
