//! `harness call TOOL`: one call, from the command line.

use std::sync::Arc;

use harness_artifact::diagnostic::Position;
use harness_artifact::escape;
use harness_artifact::located::Located;
use harness_artifact::policy::layer;
use harness_dispatch::{self as dispatch, CallError, CallReport, Options, Project, Run, ToolOutput, Verdict, blocks};
use harness_policy::grant::Grant;
use harness_policy::layer::Layer;
use harness_policy::text::quoted;
use harness_registry::Registry;
use harness_sandbox::outcome::{Failure, Limit, LimitKind, Outcome, Usage};
use serde_json::{Value as Json, json};

use super::args::{Call, ProjectArgs};
use super::confirm::AtTerminal;
use super::exit::Exit;
use super::forms::Forms;
use super::printer::{Printer, Reported};
use super::progress::Progress;
use super::steps::Steps;
use super::{fire, input, project};

pub(crate) mod explain;
pub(crate) mod report;

/// Undeclared arguments that are reported.
const MAX_TOLD: usize = 10;

/// Makes the call. An error is that it was not made, which was reported.
pub(crate) fn run(command: &Call, place: &ProjectArgs, printer: &Printer) -> Result<Exit, Exit> {
    let options = Options { workspace: command.workspace.clone(), ..Options::default() };
    let project = project::open_for(place, options, *printer, |all| project::files_of(all, &command.tool))?;
    let asked = Asked::read(command, &project).map_err(|message| {
        printer.error(&message, &[], Some("give the arguments as a JSON object, or as `key=value`"));
        Exit::Usage
    })?;
    asked.tell_undeclared(&project, *printer);
    let within = command.within.as_deref().map(|rules| narrowing(rules, *printer)).transpose()?;
    let run = Run::narrowed(within.into_iter().collect());
    let terminal = AtTerminal::new(&command.confirm, *printer);
    run.set_confirmer(terminal.clone());
    run.set_respondent(Forms::new(terminal, *printer));
    run.set_progress(Arc::new(Steps(*printer)));
    harness_agent::attach(&project, &run, super::run::models(&project, place));
    let plan = project::plan(&project, place, command.workspace.as_deref());
    project::confine(&plan, &command.confine, *printer)?;
    let progress = Progress::start(format!("running {}", command.tool));
    let made = async {
        let made = asked.make(&project, &run).await;
        // What answered it may have something to finish.
        run.end_servers().await;
        made
    };
    let called = project::block_on(made, *printer);
    drop(progress);
    let report = match called? {
        Ok(report) => report,
        Err(error) => {
            if let (true, CallError::Arguments { pre: Some(pre), .. }) = (command.explain, &error) {
                explain::dispatch(pre, "", *printer);
            }
            return Err(project::refuse(&error, project.loaded().registry(), *printer));
        }
    };
    report::call(&report, *printer);
    if command.explain {
        explain::print(&project, &command.tool, &report, *printer);
    }
    if command.json {
        printer.json(&as_json(&report, timeout(project.loaded().registry(), command)));
    }
    Ok(print_outcome(&report, &project, command, *printer))
}

/// Rules as `--within` takes them.
pub(crate) fn narrowing(given: &str, printer: Printer) -> Result<Layer, Exit> {
    let text = input::text(given).map_err(|message| {
        printer.error(&message, &[], Some("give rules as in `capabilities:`, such as `fs: { read: [docs] }`"));
        Exit::Usage
    })?;
    let (layer, diagnostics) = layer::parse("--within", &text);
    for diagnostic in &diagnostics {
        printer.problem(diagnostic, &diagnostic.render(Some(&text), printer.color()));
    }
    layer.ok_or(Exit::Usage)
}

/// Prints the result, or why there is none.
pub(crate) fn print_outcome(report: &CallReport, project: &Project, command: &Call, printer: Printer) -> Exit {
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
                Some(&raise(limit, &report.grant, timeout(registry, command))),
            );
            Exit::Limited
        }
        Outcome::Busy(busy) => {
            printer.error(&format!("tool `{}` was not called: {busy}", command.tool), &[], None);
            Exit::Busy
        }
        Outcome::Fault(message) => {
            printer.error(
                &format!("the host failed: {message}"),
                &[],
                Some("`harness doctor` shows what this machine supports"),
            );
            Exit::Fault
        }
    }
}

/// The time that the tool itself says it has.
fn timeout<'r>(registry: &'r Registry, command: &Call) -> Option<&'r Located<u64>> {
    registry.tool(&command.tool).ok()?.timeout_ms.as_ref()
}

/// Where the hook is that blocked.
fn blocked_by(report: &CallReport) -> Option<String> {
    let hooks = report.dispatches().flat_map(|dispatch| &dispatch.hooks);
    let hook =
        hooks.rev().find(|hook| hook.reason.is_some() && matches!(hook.verdict, Verdict::Block | Verdict::Error))?;
    Some(format!("the hook is `{}`; `--explain` shows each hook's decision", hook.file))
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

/// What would raise a limit: the line that set it, else the one to write. `own` is the tool's `timeout_ms`.
fn raise(limit: &Limit, grant: &Grant, own: Option<&Located<u64>>) -> String {
    let Some(key) = limit.kind.limit() else { return "no policy raises this limit".to_owned() };
    // What ended the call is what the tool asks for, or less.
    let own = own.filter(|own| limit.kind == LimitKind::Deadline && own.value <= limit.allowed);
    if let Some(own) = own {
        return format!("`timeout_ms` in `{}` raises it", own.position);
    }
    grant.raises(key)
}

/// The report as `--json` prints it.
fn as_json(report: &CallReport, own: Option<&Located<u64>>) -> Json {
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
    if let (Some(rich), Some(object)) = (&report.rich, object.as_object_mut()) {
        object.insert("blocks".to_owned(), blocks::as_json(&rich.blocks));
    }
    if let (1.., Some(object)) = (report.log.dropped, object.as_object_mut()) {
        object.insert("log_dropped".to_owned(), json!(report.log.dropped));
    }
    if let (Some(judged), Some(object)) = (&report.verify, object.as_object_mut()) {
        let accepted = judged.refused.is_none();
        object.insert("verify".to_owned(), json!({"accepted": accepted, "usage": judged.usage.as_json()}));
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
    if let (Some(error), Some(object)) = (error(&report.outcome, &report.grant, own), object.as_object_mut()) {
        object.insert("error".to_owned(), error);
    }
    object
}

fn error(outcome: &Outcome<ToolOutput>, grant: &Grant, own: Option<&Located<u64>>) -> Option<Json> {
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
    let bare = |kind: &str, message: String, hint: String| bare(kind, &Reported { message, hint, position: None });
    match outcome {
        Outcome::Completed(_) => None,
        Outcome::Failed(failure) => Some(of(failure, "")),
        Outcome::Denied { failure, refusal } => Some(of(failure, &refusal.hint)),
        Outcome::Limited(limit) => {
            let position = limit.at.filter(|_| !limit.file.is_empty()).map(|at| Position {
                file: limit.file.as_str().into(),
                line: at.line,
                column: at.column,
                length: 1,
            });
            let told = Reported { message: limit.to_string(), hint: raise(limit, grant, own), position };
            Some(crate::call::bare(limit.kind.name(), &told))
        }
        Outcome::Busy(busy) => Some(bare("busy", busy.to_string(), String::new())),
        Outcome::Fault(message) => Some(bare("fault", message.clone(), String::new())),
    }
}

/// An error that has no place in a script that ran. Every one has the same keys.
pub(crate) fn bare(kind: &str, told: &Reported) -> Json {
    let position = told.position.as_ref();
    json!({
        "kind": kind,
        "message": told.message,
        "file": position.map(|position| &*position.file),
        "line": position.map(|position| position.line),
        "column": position.map(|position| position.column),
        "stack": [],
        "hint": told.hint,
    })
}

/// A call that was not made, as `--json` prints it.
pub(crate) fn rejected(outcome: &str, kind: &str, told: &Reported) -> Json {
    json!({
        "outcome": outcome,
        "result": null,
        "content": null,
        "truncated": false,
        "is_error": true,
        "usage": Usage::default().as_json(),
        "log": [],
        "error": bare(kind, told),
    })
}

/// A call as it was asked for.
pub(crate) struct Asked {
    call: dispatch::Call,
    /// Why it is not made, where that is known before anyone is asked.
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
            Some(given) => (input::json(given, "the arguments are")?, None),
            None => match pairs(command, project) {
                Ok(arguments) => (input::finite(arguments)?, None),
                Err(why) => (json!(command.pairs), Some(why)),
            },
        };
        let call = dispatch::Call { id: None, name: command.tool.clone(), arguments };
        Ok(Self { call, refused })
    }

    /// Reports which arguments pass that the tool does not declare.
    fn tell_undeclared(&self, project: &Project, printer: Printer) {
        let (None, Ok(tool)) = (&self.refused, project.tool(&self.call.name)) else { return };
        for (name, meant) in tool.undeclared(&self.call.arguments).into_iter().take(MAX_TOLD) {
            let (name, tool) = (quoted(name), quoted(&tool.name));
            let hint = meant.map(|meant| format!(", did you mean {}?", quoted(meant))).unwrap_or_default();
            printer.warning(&escape::line(&format!("{tool} does not declare the argument {name}{hint}")));
        }
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
