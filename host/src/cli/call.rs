//! `harness call TOOL`: one call, from the command line.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use harness::artifact::escape;
use harness::dispatch::{Options, Project, ToolOutput};
use harness::sandbox::outcome::{Failure, Limit, LimitKind, Outcome, Report};
use harness::sandbox::state::Session;
use serde_json::{Value as Json, json};

use super::args::Call;
use super::exit::Exit;
use super::printer::Printer;
use super::progress::Progress;
use super::project;

mod explain;

/// Bytes of arguments that are read from a file or standard input.
const MAX_ARGUMENTS: u64 = 16 << 20;

pub(crate) fn run(command: &Call, root: &Option<PathBuf>, printer: &Printer) -> Exit {
    let options = Options { workspace: command.workspace.clone(), concurrency: 1 };
    let project = match project::open(root.as_deref(), &options, *printer) {
        Ok(project) => project,
        Err(exit) => return exit,
    };
    let arguments = match arguments(command, &project) {
        Ok(arguments) => arguments,
        Err(Refused::Call(error)) => return project::refuse(&error, project.registry(), *printer),
        Err(Refused::Text(message)) => {
            printer.error(&message, &[], Some("give the arguments as a JSON object, or as `key=value`"));
            return Exit::Usage;
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            printer.error(&format!("cannot start: {error}"), &[], None);
            return Exit::Fault;
        }
    };
    let session = Arc::new(Session::default());
    let progress = Progress::start(format!("running {}", command.tool));
    let called = runtime.block_on(project.call(&command.tool, arguments, &session));
    drop(progress);
    let report = match called {
        Ok(report) => report,
        Err(error) => return project::refuse(&error, project.registry(), *printer),
    };
    for line in &report.log.lines {
        printer.say(&format!("[{}] {}", line.level.name(), escape::text(&line.message)));
    }
    if report.log.dropped > 0 {
        printer.warning(&format!("{} more log lines were dropped", report.log.dropped));
    }
    if command.explain {
        explain::tell(&project, &command.tool, &report, *printer);
    }
    if command.json {
        printer.json(&as_json(&report));
    }
    tell(&report, &project, command, *printer)
}

/// Prints the result, or why there is none.
fn tell(report: &Report<ToolOutput>, project: &Project, command: &Call, printer: Printer) -> Exit {
    let registry = project.registry();
    match &report.outcome {
        Outcome::Completed(output) => {
            if !command.json {
                printer.data(&output.content);
            }
            Exit::Completed
        }
        Outcome::Failed(failure) => {
            let diagnostic = project::diagnostic(failure, &format!("tool `{}` failed", command.tool));
            printer.say(registry.render(&diagnostic, printer.color()).trim_end());
            stack(failure, printer);
            Exit::Failed
        }
        Outcome::Denied { failure, refusal } => {
            let mut diagnostic = project::diagnostic(failure, &format!("tool `{}` was denied", command.tool));
            diagnostic.hint = (!refusal.hint.is_empty()).then(|| refusal.hint.clone());
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
fn as_json(report: &Report<ToolOutput>) -> Json {
    let (result, content, truncated) = match &report.outcome {
        Outcome::Completed(output) => (output.result.clone(), json!(output.content), json!(output.truncated)),
        _ => (Json::Null, Json::Null, json!(false)),
    };
    let usage = &report.usage;
    let log: Vec<Json> =
        report.log.lines.iter().map(|line| json!({"level": line.level.name(), "message": line.message})).collect();
    let mut object = json!({
        "outcome": report.outcome.name(),
        "result": result,
        "content": content,
        "truncated": truncated,
        "usage": {
            "fuel": usage.fuel,
            "wall_us": u64::try_from(usage.wall.as_micros()).unwrap_or(u64::MAX),
            "peak_memory": usage.peak_memory,
            "host_calls": usage.host_calls,
            "bytes_in": usage.bytes_in,
            "bytes_out": usage.bytes_out,
        },
        "log": log,
    });
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
            "file": failure.file,
            "line": failure.line,
            "column": failure.column,
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
    Call(harness::dispatch::CallError),
    Text(String),
}

/// The arguments as one JSON object, from wherever they were given.
fn arguments(command: &Call, project: &Project) -> Result<Json, Refused> {
    let tool = project.tool(&command.tool).map_err(Refused::Call)?;
    let text = match command.args.as_deref() {
        None => {
            return tool.read_arguments(&command.pairs).map(Json::Object).map_err(|errors| {
                Refused::Call(harness::dispatch::CallError::Arguments { tool: tool.name.clone(), errors })
            });
        }
        Some("-") => bounded(std::io::stdin().lock(), "standard input")?,
        Some(text) => match text.strip_prefix('@') {
            Some(path) => {
                let file = std::fs::File::open(Path::new(path))
                    .map_err(|error| Refused::Text(format!("cannot read `{path}`: {error}")))?;
                bounded(file, path)?
            }
            None => text.to_owned(),
        },
    };
    serde_json::from_str(&text).map_err(|error| Refused::Text(format!("the arguments are not JSON: {error}")))
}

fn bounded(source: impl Read, name: &str) -> Result<String, Refused> {
    let mut text = String::new();
    source
        .take(MAX_ARGUMENTS + 1)
        .read_to_string(&mut text)
        .map_err(|error| Refused::Text(format!("cannot read `{name}`: {error}")))?;
    if text.len() as u64 > MAX_ARGUMENTS {
        return Err(Refused::Text(format!("`{name}` holds more than {MAX_ARGUMENTS} bytes")));
    }
    Ok(text)
}
