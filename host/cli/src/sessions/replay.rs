//! `harness sessions replay`.

use harness_dispatch::Options;
use harness_dispatch::confinement;
use harness_session::replay::{self, Difference, Replayed};
use harness_session::text::count;
use harness_wall::confine::Plan;
use serde_json::json;

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
    if command.json {
        let mut report = json!({ "session": name });
        if let (Some(report), serde_json::Value::Object(found)) = (report.as_object_mut(), replayed.to_json()) {
            report.extend(found);
        }
        printer.json(&report);
    } else {
        report(&name, &replayed, printer);
    }
    if replayed.differences.is_empty() { Exit::Completed } else { Exit::Failed }
}

fn report(name: &str, replayed: &Replayed, printer: Printer) {
    for (file, change) in &replayed.artifacts {
        printer.warning(&format!("`{file}` was {change} since"));
    }
    if replayed.interpreter {
        printer.warning("the interpreter has changed");
    }
    let compared = &replayed.compared;
    let counts = format!(
        "{}, {}, {}, {}, {}",
        count(compared.turns, "turn", "turns"),
        count(compared.replies, "request", "requests"),
        count(compared.calls, "call", "calls"),
        count(compared.events, "event", "events"),
        count(compared.scripts, "run of a script", "runs of scripts"),
    );
    if replayed.unfinished > 0 {
        let turns = count(replayed.unfinished, "turn", "turns");
        printer.say(&format!("note: {turns} did not end in the recording and is compared up to that point"));
    }
    if replayed.differences.is_empty() {
        return printer.data(&format!("{name}: replay matches: {counts}"));
    }
    let differences = count(replayed.differences.len() as u64, "difference", "differences");
    let mut text = format!("{name}: {differences} in {counts}\n");
    for Difference { place, what, fields } in &replayed.differences {
        text.push_str(&format!("\n{place}: {what}\n"));
        for field in fields {
            text.push_str(&format!("  {}: {}\n", field.name, field.recorded));
            text.push_str(&format!("  {:>width$}  {}\n", "now", field.now, width = field.name.len()));
        }
    }
    printer.data(&text);
}
