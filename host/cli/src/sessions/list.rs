//! `harness sessions list`.

use harness_artifact::escape;
use harness_session::FOLDER;
use harness_session::read::{self, Recording};
use harness_session::text::count;
use harness_session::timeline::{Kind, Status, Timeline};
use serde_json::{Value as Json, json};

use super::super::args::ProjectArgs;
use super::super::exit::Exit;
use super::super::printer::Printer;
use super::super::project;
use super::List;

/// Characters of the first prompt that are shown.
const SHOWN: usize = 60;

pub(super) fn run(command: &List, place: &ProjectArgs, printer: Printer) -> Exit {
    let folder = project::root(place).join(FOLDER);
    let names = match read::names(&folder) {
        Ok(names) => names,
        Err(error) => {
            printer.error(&error.to_string(), &[], None);
            return Exit::Fault;
        }
    };
    if names.is_empty() && !command.json {
        printer.say("no session is recorded here");
    }
    let mut all = Vec::new();
    for name in names.iter().take(command.last) {
        match read::read(&folder, name) {
            Ok(recording) if command.json => all.push(as_json(name, &recording)),
            Ok(recording) => printer.data(&line(name, &recording)),
            Err(error) => printer.warning(&error.to_string()),
        }
    }
    if command.json {
        printer.json(&Json::Array(all));
    }
    Exit::Completed
}

/// What became of the last turn, or of the session before it had one.
fn outcome(timeline: &Timeline) -> &str {
    let last = timeline.spans.iter().rev().find(|span| span.kind == Kind::Turn);
    let kept_back = || timeline.spans.iter().find(|span| span.kind == Kind::Event && span.status == Status::Refused);
    last.or_else(kept_back).map_or("nothing asked", |span| span.word.as_str())
}

pub(crate) fn line(name: &str, recording: &Recording) -> String {
    let timeline = Timeline::of(recording);
    let turns = count(timeline.totals.turns, "turn", "turns");
    let model = recording.header.model.as_deref().unwrap_or("-");
    let first = recording.prompts().next().unwrap_or_default().trim();
    let line = first.lines().next().unwrap_or_default();
    let mut shown: String = line.chars().take(SHOWN).collect();
    if shown.len() < first.len() {
        shown.push('…');
    }
    let [name, when, model, outcome, shown] = [name, &recording.header.started, model, outcome(&timeline), &shown]
        .map(|text| escape::line(text).into_owned());
    format!("{name}  {when}  {model}  {turns}, {outcome}  {shown}")
}

pub(crate) fn as_json(name: &str, recording: &Recording) -> Json {
    let timeline = Timeline::of(recording);
    let header = &recording.header;
    json!({
        "id": name,
        "started": header.started,
        "command": header.command,
        "model": header.model,
        "provider": header.provider,
        "resumes": header.resumes,
        "turns": timeline.totals.turns,
        "outcome": outcome(&timeline),
        "ended": timeline.ended,
        "took_us": timeline.totals.took,
        "prompt": recording.prompts().next(),
    })
}
