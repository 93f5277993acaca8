//! `harness fire EVENT`: one event through its hooks, from the command line.

use harness::artifact::event::Event;
use harness::dispatch::{Decision, Dispatch, HookRun, Options, Run};
use serde_json::{Value as Json, json};

use super::args::{Fire, Place};
use super::call::{explain, report};
use super::exit::Exit;
use super::printer::Printer;
use super::{input, project};

pub(crate) fn run(command: &Fire, place: &Place, printer: &Printer) -> Exit {
    let Some(event) = Event::parse(&command.event) else {
        let names: Vec<String> = Event::FIXED.iter().map(ToString::to_string).collect();
        let hint = format!("events are {}, `custom.NAME` and `meta.NAME`", names.join(", "));
        printer.error(&format!("there is no event `{}`", command.event), &[], Some(&hint));
        return Exit::Usage;
    };
    let payload = match command.payload.as_deref().map(input::text).transpose() {
        Ok(text) => match text.as_deref().map(serde_json::from_str::<Json>).transpose() {
            Ok(payload) => payload.unwrap_or_default(),
            Err(error) => {
                printer.error(
                    &format!("the payload is not JSON: {error}"),
                    &[],
                    Some("give it as JSON, `@FILE` or `-`"),
                );
                return Exit::Usage;
            }
        },
        Err(message) => {
            printer.error(&message, &[], None);
            return Exit::Usage;
        }
    };
    let options = Options { workspace: command.workspace.clone(), concurrency: 1, ..Options::default() };
    let project = match project::open(place, options, *printer) {
        Ok(project) => project,
        Err(exit) => return exit,
    };
    let plan = project::plan(&project, place, command.workspace.as_deref());
    if let Err(exit) = project::confine(&plan, &command.confine, *printer) {
        return exit;
    }
    let dispatch = match project::block_on(project.fire(&event, payload, &Run::new()), *printer) {
        Ok(dispatch) => dispatch,
        Err(exit) => return exit,
    };
    report::dispatch(&dispatch, *printer);
    if command.explain {
        explain::dispatch(&dispatch, "", *printer);
    }
    printer.json(&as_json(&dispatch));
    if dispatch.decision == Decision::Allow { Exit::Completed } else { Exit::Denied }
}

/// The decision, the payload after it, and each hook.
fn as_json(dispatch: &Dispatch) -> Json {
    let (decision, hook, reason) = match &dispatch.decision {
        Decision::Allow => ("allow", None, None),
        Decision::Block { hook, reason } => ("block", Some(hook), Some(reason)),
    };
    json!({
        "event": dispatch.event.to_string(),
        "decision": decision,
        "hook": hook,
        "reason": reason,
        "payload": dispatch.payload,
        "hooks": dispatch.hooks.iter().map(hook_as_json).collect::<Vec<_>>(),
    })
}

pub(crate) fn hook_as_json(hook: &HookRun) -> Json {
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
        "log": log,
    })
}
