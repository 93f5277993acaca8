//! `harness fire EVENT`: one event through its hooks, from the command line.

use harness_artifact::event::Event;
use harness_dispatch::{Decision, Dispatch, Options, Run, as_json, payload};
use serde_json::{Value as Json, json};

use super::args::{Fire, ProjectArgs};
use super::call::{explain, report};
use super::exit::Exit;
use super::printer::{Printer, Reported};
use super::{input, project};

/// Dispatches the event. An error is that it was not, which was reported.
pub(crate) fn run(command: &Fire, place: &ProjectArgs, printer: &Printer) -> Result<Exit, Exit> {
    let Some(event) = Event::parse(command.name()) else {
        let names: Vec<String> = Event::FIXED.iter().map(ToString::to_string).collect();
        let hint = format!("events are {}, `custom.NAME` and `meta.NAME`", names.join(", "));
        printer.error(&format!("there is no event `{}`", command.name()), &[], Some(&hint));
        return Err(Exit::Usage);
    };
    let payload = command.payload.as_deref().map(|given| input::json(given, "the payload is")).transpose();
    let payload = payload.map_err(|message| {
        printer.error(&message, &[], Some("give the payload as JSON, `@FILE` or `-`"));
        Exit::Usage
    })?;
    let mut payload = payload.unwrap_or_default();
    match payload::complete(&event, &mut payload) {
        Ok(warnings) => warnings.iter().for_each(|warning| printer.warning(&format!("the payload: {warning}"))),
        Err(why) => {
            printer.error(
                &format!("the payload: {why}"),
                &[],
                Some("see the payload of this event in `docs/hooks.md`"),
            );
            return Err(Exit::Usage);
        }
    }
    let options = Options { workspace: command.workspace.clone(), ..Options::default() };
    let project = project::open_for(place, options, *printer, |all| {
        all.chain(&event).iter().map(|hook| &*hook.source.file).collect()
    })?;
    let plan = project::plan(&project, place, command.workspace.as_deref());
    project::confine(&plan, &command.confine, *printer)?;
    let dispatch = project::block_on(project.fire(&event, payload, &Run::new()), *printer)?;
    report::dispatch(&dispatch, *printer);
    if command.explain {
        explain::dispatch(&dispatch, "", *printer);
    }
    printer.json(&shown(&dispatch));
    let exit = if dispatch.decision == Decision::Allow { Exit::Completed } else { Exit::Denied };
    Ok(project::audited(&project, exit, *printer))
}

/// An event that was not dispatched, as `--json` prints it.
pub(crate) fn rejected(event: &str, outcome: &str, kind: &str, told: &Reported) -> Json {
    json!({
        "event": event,
        "decision": null,
        "hook": null,
        "reason": null,
        "payload": null,
        "hooks": [],
        "outcome": outcome,
        "error": told.as_json(kind),
    })
}

/// The decision, the payload after it, and each hook.
fn shown(dispatch: &Dispatch) -> Json {
    let (decision, hook, reason) = match &dispatch.decision {
        Decision::Allow => ("allow", None, None),
        Decision::Block(block) => ("block", Some(&block.hook), Some(&block.reason)),
    };
    json!({
        "event": dispatch.event.to_string(),
        "decision": decision,
        "hook": hook,
        "reason": reason,
        "payload": dispatch.payload,
        "hooks": dispatch.hooks.iter().map(as_json::hook).collect::<Vec<_>>(),
    })
}
