//! `harness sessions`: what was recorded of sessions with agents.

pub(crate) mod list;
pub(crate) mod replay;
mod show;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use harness_provider::Message;
use harness_session::FOLDER;
use harness_session::read::{self, ReadError, Recording};

use super::args::{Confine, ProjectArgs, Talk};
use super::exit::Exit;
use super::printer::Printer;
use super::{project, run};

#[derive(Debug, Subcommand)]
pub(crate) enum Sessions {
    /// List the sessions, the newest first.
    List(List),
    /// Print what happened in a session, as a timeline.
    Show(Show),
    /// Resume the conversation of a session, as `harness run --resume` does.
    Resume(Resume),
    /// Run a session again with its recorded replies and answers, and report differences.
    Replay(Replay),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Number of sessions.
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    pub(crate) last: usize,

    /// Print a JSON list.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  harness sessions show\n  harness sessions show latest --html session.html")]
pub(crate) struct Show {
    /// Session: its name, the beginning of its name, or `latest`.
    #[arg(default_value = "latest")]
    pub(crate) session: String,

    /// Write a self-contained page to a file, or to standard output with `-` or without a value.
    #[arg(long, value_name = "FILE", num_args = 0..=1, conflicts_with = "json")]
    pub(crate) html: Option<Option<PathBuf>>,

    /// Print the timeline as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Resume {
    /// Session: its name, the beginning of its name, or `latest`.
    pub(crate) session: String,

    /// Prompt for the agent. Default: standard input, or a conversation if that is a terminal.
    pub(crate) prompt: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 no difference, 1 a difference, 2 the session file cannot be used.")]
pub(crate) struct Replay {
    /// Session: its name, the beginning of its name, or `latest`.
    #[arg(default_value = "latest")]
    pub(crate) session: String,

    /// Print the comparison as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) confine: Confine,
}

pub(crate) fn run(command: &Sessions, place: &ProjectArgs, printer: &Printer) -> Result<Exit, Exit> {
    Ok(match command {
        Sessions::List(command) => list::run(command, place, *printer),
        Sessions::Show(command) => show::run(command, place, *printer),
        Sessions::Resume(Resume { session, prompt }) => {
            let talk = Talk { prompt: prompt.clone(), resume: Some(session.clone()), ..Talk::default() };
            run::talk(&talk, place, *printer)?
        }
        Sessions::Replay(command) => replay::run(command, place, *printer),
    })
}

/// The conversation of the session of a name, or says why there is none.
pub(crate) fn history(
    wanted: &str,
    place: &ProjectArgs,
    printer: Printer,
) -> Result<(String, Recording, Vec<Message>), Exit> {
    let (name, recording) = find(wanted, place, printer)?;
    match recording.history() {
        Ok(history) => Ok((name, recording, history)),
        Err(why) => {
            printer.error(&format!("{FOLDER}/{name}.jsonl: {why}"), &[], None);
            Err(Exit::Usage)
        }
    }
}

/// Reads the session of a name, or says why there is none.
pub(crate) fn find(wanted: &str, place: &ProjectArgs, printer: Printer) -> Result<(String, Recording), Exit> {
    let folder = project::root(place).join(FOLDER);
    let found = read::find(&folder, wanted).and_then(|name| Ok((name.clone(), read::read(&folder, &name)?)));
    found.map_err(|error| {
        let hint = match &error {
            ReadError::None => Some("`harness run` and `harness deploy` record one, unless `--no-record` is given"),
            ReadError::Unknown(_) | ReadError::Ambiguous(..) => Some("`harness sessions list` lists them"),
            ReadError::File { .. } | ReadError::Broken { .. } => None,
        };
        printer.error(&error.to_string(), &[], hint);
        Exit::Usage
    })
}
