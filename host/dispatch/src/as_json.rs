//! Calls and hooks as JSON, for programs: what `--json` prints and what a server answers.

use harness_artifact::diagnostic::Position;
use harness_artifact::located::Located;
use harness_policy::grant::Grant;
use harness_sandbox::outcome::{Failure, Limit, LimitKind, Outcome, Usage};
use serde_json::{Value as Json, json};

use super::blocks;
use super::chain::HookRun;
use super::content::ToolOutput;
use super::pipeline::CallReport;

/// What would raise a limit: the line that set it, else the one to write. `own` is the tool's `timeout_ms`.
pub fn raise(limit: &Limit, grant: &Grant, own: Option<&Located<u64>>) -> String {
    let Some(key) = limit.kind.limit() else { return "no policy raises this limit".to_owned() };
    // What ended the call is what the tool asks for, or less.
    let own = own.filter(|own| limit.kind == LimitKind::Deadline && own.value <= limit.allowed);
    if let Some(own) = own {
        return format!("`timeout_ms` in `{}` raises it", own.position);
    }
    grant.raises(key)
}

/// A call that was made. `own` is the `timeout_ms` of its tool.
pub fn call(report: &CallReport, own: Option<&Located<u64>>) -> Json {
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
            if let (Some(object), Json::Object(rest)) = (object.as_object_mut(), self::hook(hook)) {
                object.extend(rest);
            }
            object
        })
        .collect();
    if let (false, Some(object)) = (hooks.is_empty(), object.as_object_mut()) {
        object.insert("hooks".to_owned(), json!(hooks));
    }
    if let (Some(error), Some(object)) = (error_of(&report.outcome, &report.grant, own), object.as_object_mut()) {
        object.insert("error".to_owned(), error);
    }
    object
}

fn error_of(outcome: &Outcome<ToolOutput>, grant: &Grant, own: Option<&Located<u64>>) -> Option<Json> {
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
    let bare = |kind: &str, message: String, hint: String| error(kind, &message, &hint, None);
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
            Some(error(limit.kind.name(), &limit.to_string(), &raise(limit, grant, own), position.as_ref()))
        }
        Outcome::Busy(busy) => Some(bare("busy", busy.to_string(), String::new())),
        Outcome::Fault(message) => Some(bare("fault", message.clone(), String::new())),
    }
}

/// An error that has no place in a script that ran. Every one has the same keys.
pub fn error(kind: &str, message: &str, hint: &str, position: Option<&Position>) -> Json {
    json!({
        "kind": kind,
        "message": message,
        "file": position.map(|position| &*position.file),
        "line": position.map(|position| position.line),
        "column": position.map(|position| position.column),
        "stack": [],
        "hint": hint,
    })
}

/// A call that was not made, with the [`error`](error()) that says why.
pub fn not_called(outcome: &str, error: &Json) -> Json {
    json!({
        "outcome": outcome,
        "result": null,
        "content": null,
        "truncated": false,
        "is_error": true,
        "usage": Usage::default().as_json(),
        "log": [],
        "error": error,
    })
}

/// A hook that an event was dispatched to.
pub fn hook(hook: &HookRun) -> Json {
    let log: Vec<Json> =
        hook.log.lines.iter().map(|line| json!({"level": line.level.name(), "message": line.message})).collect();
    json!({
        "name": hook.name,
        "file": hook.file,
        "priority": hook.priority,
        "matched": hook.verdict.ran(),
        "decision": hook.verdict.name(),
        "reason": hook.reason,
        "warnings": hook.warnings,
        "fuel": hook.usage.fuel,
        "wall_us": u64::try_from(hook.usage.wall.as_micros()).unwrap_or(u64::MAX),
        "loading_us": u64::try_from(hook.usage.loading.as_micros()).unwrap_or(u64::MAX),
        "log": log,
    })
}
