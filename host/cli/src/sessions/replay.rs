//! `harness sessions replay`.

use harness_artifact::escape;
use harness_dispatch::Options;
use harness_dispatch::confinement;
use harness_session::replay;
use harness_session::text::count;
use harness_wall::confine::Plan;
use serde_json::{Value as Json, json};

use super::super::args::ProjectArgs;
use super::super::exit::Exit;
use super::super::printer::Printer;
use super::super::project;
use super::{Replay, find};

pub(super) fn run(command: &Replay, place: &ProjectArgs, printer: Printer) -> Exit {
    let (name, recording) = match find(&command.session, place, printer) {
        Ok(found) => found,
        Err(exit) => return exit,
    };
    // What is only tried out is no call that was made.
    let options = Options { audit: false, ..Options::default() };
    let project = match project::open(place, options, printer) {
        Ok(project) => project,
        Err(exit) => return exit,
    };
    let root = project::root(place);
    let plan = Plan::without_programs(&confinement::folders(project.loaded().registry(), &root), &[]);
    if let Err(exit) = project::confine(&plan, &command.confine, printer) {
        return exit;
    }
    let replayed = match project::block_on(replay::replay(&root, &project, &recording), printer) {
        Ok(Ok(replayed)) => replayed,
        Ok(Err(why)) => {
            printer.error(&format!("{name} cannot be replayed: {why}"), &[], None);
            return Exit::Usage;
        }
        Err(exit) => return exit,
    };
    print(&name, &replayed.to_json(), command.json, printer)
}

/// Prints what a replay showed.
pub(crate) fn print(name: &str, found: &Json, as_json: bool, printer: Printer) -> Exit {
    if as_json {
        let mut report = json!({ "session": name });
        if let (Some(report), Json::Object(found)) = (report.as_object_mut(), found) {
            report.extend(found.clone());
        }
        printer.json(&report);
    } else {
        report(name, found, printer);
    }
    if found.get("same") == Some(&Json::Bool(true)) { Exit::Completed } else { Exit::Failed }
}

fn report(name: &str, found: &Json, printer: Printer) {
    let text = |of: &Json, key: &str| of.get(key).and_then(Json::as_str).unwrap_or_default().to_owned();
    let list = |of: &Json, key: &str| of.get(key).and_then(Json::as_array).cloned().unwrap_or_default();
    for artifact in list(found, "artifacts") {
        printer.warning(&escape::line(&format!(
            "`{}` was {} since",
            text(&artifact, "file"),
            text(&artifact, "change")
        )));
    }
    if found.get("other_interpreter") == Some(&Json::Bool(true)) {
        printer.warning("the interpreter has changed");
    }
    let number = |of: Option<&Json>, key: &str| of.and_then(|of| of.get(key)?.as_u64()).unwrap_or_default();
    let compared = found.get("compared");
    let counts = format!(
        "{}, {}, {}, {}, {}",
        count(number(compared, "turns"), "turn", "turns"),
        count(number(compared, "replies"), "request", "requests"),
        count(number(compared, "calls"), "call", "calls"),
        count(number(compared, "events"), "event", "events"),
        count(number(compared, "scripts"), "run of a script", "runs of scripts"),
    );
    let unfinished = number(Some(found), "unfinished_turns");
    if unfinished > 0 {
        let turns = count(unfinished, "turn", "turns");
        printer.say(&format!("note: {turns} did not end in the recording and is compared up to that point"));
    }
    let differences = list(found, "differences");
    if differences.is_empty() {
        return printer.data(&format!("{name}: replay matches: {counts}"));
    }
    let number_of = count(differences.len() as u64, "difference", "differences");
    let mut lines = format!("{name}: {number_of} in {counts}\n");
    for one in &differences {
        lines.push_str(&format!("\n{}: {}\n", text(one, "place"), text(one, "what")));
        for field in list(one, "fields") {
            let name = text(&field, "name");
            lines.push_str(&format!("  {name}: {}\n", text(&field, "recorded")));
            lines.push_str(&format!("  {:>width$}  {}\n", "now", text(&field, "now"), width = name.len()));
        }
    }
    printer.data(&lines);
}
