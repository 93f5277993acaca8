//! `harness sessions`: what was recorded of sessions with agents.

mod list;
mod replay;
mod show;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use harness_provider::Message;
use harness_session::FOLDER;
use harness_session::read::{self, ReadError, Recording};

use super::args::{Confine, Place, Talk};
use super::exit::Exit;
use super::printer::Printer;
use super::{project, run};

#[derive(Debug, Subcommand)]
pub(crate) enum Sessions {
    /// List the sessions, the newest first.
    List(List),
    /// Print what happened in a session, as a timeline.
    Show(Show),
    /// Go on with the conversation of a session, as `harness run --resume` does.
    Resume(Resume),
    /// Run a session again with its recorded replies and answers, and say whether everything comes out the same.
    Replay(Replay),
}

#[derive(Debug, Args)]
pub(crate) struct List {
    /// How many.
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    pub(crate) last: usize,

    /// Print a JSON list.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  harness sessions show\n  harness sessions show latest --html session.html")]
pub(crate) struct Show {
    /// The session's name, the beginning of that, or `latest`.
    #[arg(default_value = "latest")]
    pub(crate) session: String,

    /// Write a page for a browser that needs nothing but itself: to a file, or to standard output, which `-` is
    /// too.
    #[arg(long, value_name = "FILE", num_args = 0..=1, conflicts_with = "json")]
    pub(crate) html: Option<Option<PathBuf>>,

    /// Print the timeline as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Resume {
    /// The session's name, the beginning of that, or `latest`.
    pub(crate) session: String,

    /// What to say; without it, standard input, or a conversation where that is a terminal.
    pub(crate) prompt: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 everything is the same, 1 something is not, 2 the record cannot be used.")]
pub(crate) struct Replay {
    /// The session's name, the beginning of that, or `latest`.
    #[arg(default_value = "latest")]
    pub(crate) session: String,

    /// Print what was compared and what differs as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) confine: Confine,
}

pub(crate) fn run(command: &Sessions, place: &Place, printer: &Printer) -> Result<Exit, Exit> {
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
    place: &Place,
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
pub(crate) fn find(wanted: &str, place: &Place, printer: Printer) -> Result<(String, Recording), Exit> {
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
