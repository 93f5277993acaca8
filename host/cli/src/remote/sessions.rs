//! `harness --server URL sessions`.

use harness_serve::remote::{Ask, Remote, in_path};
use harness_session::read::{self, ReadError, Recording};
use harness_session::timeline::Timeline;
use harness_session::{FOLDER, html, text};
use harness_sys::output;
use serde_json::{Value as Json, json};

use super::super::args::OutputForm;
use super::super::exit::Exit;
use super::super::printer::Printer;
use super::super::sessions::{List, Replay, Resume, Sessions, Show, list, replay};
use super::{ask, ask_json, block_on, list as entries, text as member, turn, without};

/// Pages of names that are read.
const PAGES: usize = 1_000;

/// Executes one of the commands.
pub(super) fn run(command: &Sessions, remote: &Remote, printer: Printer) -> Result<Exit, Exit> {
    match command {
        Sessions::List(command) => block_on(print_list(command, remote, printer), printer),
        Sessions::Show(command) => block_on(show(command, remote, printer), printer),
        Sessions::Resume(Resume { session, prompt }) => {
            let Some(prompt) = prompt else {
                let hint = "give it: `harness --server URL sessions resume SESSION \"...\"`";
                printer.error("with `--server` there is no conversation, only one prompt", &[], Some(hint));
                return Err(Exit::Usage);
            };
            turn::one(prompt, Some(session), OutputForm::Text, false, remote, printer)
        }
        Sessions::Replay(command) => {
            let confine = &command.confine;
            let given = [("--self-confine", confine.self_confine), ("--no-self-confine", confine.no_self_confine)];
            without(&given, "the server runs the scripts", printer)?;
            block_on(replay_one(command, remote, printer), printer)
        }
    }
}

/// The names of all sessions that the key sees, the newest first.
async fn names(remote: &Remote, printer: Printer) -> Result<Vec<String>, Exit> {
    let mut names: Vec<String> = Vec::new();
    let mut path = "/v1/sessions".to_owned();
    for _ in 0..PAGES {
        let page = ask_json(remote, &Ask::get(&path), printer).await?;
        names.extend(entries(&page, "sessions").iter().map(|one| member(one, "id").to_owned()));
        match page.get("next").and_then(Json::as_str) {
            Some(next) => path = format!("/v1/sessions?after={}", in_path(next)),
            None => break,
        }
    }
    names.sort_by(|one, other| other.cmp(one));
    Ok(names)
}

/// The session of a name, of the beginning of one, or of `latest`.
pub(super) async fn find(wanted: &str, remote: &Remote, printer: Printer) -> Result<String, Exit> {
    let found = read::choose(names(remote, printer).await?, wanted);
    found.map_err(|error| {
        let hint = match &error {
            ReadError::None => "each turn of the agent records one",
            _ => "`harness sessions list` lists them",
        };
        printer.error(&error.to_string(), &[], Some(hint));
        Exit::Usage
    })
}

/// What the server recorded of a session.
async fn recording(name: &str, remote: &Remote, printer: Printer) -> Result<Recording, Exit> {
    let path = format!("/v1/sessions/{}.jsonl", in_path(name));
    let answer = ask(remote, &Ask::get(&path), printer).await?;
    read::parse(answer.body.as_bytes()).map_err(|(line, why)| {
        let line = line.map(|line| format!(":{line}")).unwrap_or_default();
        printer.error(&format!("{FOLDER}/{name}.jsonl{line}: {why}"), &[], None);
        Exit::Usage
    })
}

async fn print_list(command: &List, remote: &Remote, printer: Printer) -> Result<Exit, Exit> {
    let names = names(remote, printer).await?;
    if names.is_empty() && !command.json {
        printer.say("no session is recorded here");
    }
    let mut all = Vec::new();
    for name in names.iter().take(command.last) {
        let path = format!("/v1/sessions/{}.jsonl", in_path(name));
        let Ok(answer) = remote.ask(&Ask::get(&path)).await else { continue };
        // It was begun, and nothing was recorded yet.
        let Ok(recording) = read::parse(answer.body.as_bytes()) else { continue };
        match command.json {
            true => all.push(list::as_json(name, &recording)),
            false => printer.data(&list::line(name, &recording)),
        }
    }
    if command.json {
        printer.json(&Json::Array(all));
    }
    Ok(Exit::Completed)
}

async fn show(command: &Show, remote: &Remote, printer: Printer) -> Result<Exit, Exit> {
    let name = find(&command.session, remote, printer).await?;
    let path = format!("/v1/sessions/{}", in_path(&name));
    let shown = ask_json(remote, &Ask::get(&path), printer).await?;
    if command.json {
        printer.json(shown.get("timeline").unwrap_or(&Json::Null));
        return Ok(Exit::Completed);
    }
    let prices = shown.get("prices").cloned().unwrap_or_default();
    let timeline = Timeline::of(&recording(&name, remote, printer).await?).with_prices(&|model| {
        let prices = prices.get(model)?;
        Some((prices.get("input")?.as_f64()?, prices.get("output")?.as_f64()?))
    });
    match &command.html {
        None => printer.shown(&text::render(&timeline, printer.colors_data())),
        Some(None) => printer.data(&html::render(&timeline)),
        Some(Some(file)) if file.as_os_str() == "-" => printer.data(&html::render(&timeline)),
        Some(Some(file)) => {
            if let Err(error) = output::write_report(file, &html::render(&timeline), output::Readers::Owner, &[]) {
                printer.error(&format!("cannot write `{}`: {error}", file.display()), &[], None);
                return Err(Exit::Usage);
            }
            let name = harness_artifact::escape::line(&file.display().to_string()).into_owned();
            printer.say(&format!("wrote `{name}`"));
        }
    }
    Ok(Exit::Completed)
}

async fn replay_one(command: &Replay, remote: &Remote, printer: Printer) -> Result<Exit, Exit> {
    let name = find(&command.session, remote, printer).await?;
    let path = format!("/v1/sessions/{}/replay", in_path(&name));
    let answer = ask_json(remote, &Ask::post(&path, &json!({})).once(), printer).await?;
    let found = answer.get("replay").cloned().unwrap_or_default();
    Ok(replay::print(&name, &found, command.json, printer))
}
