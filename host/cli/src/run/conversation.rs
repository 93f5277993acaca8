//! A conversation at a terminal: texts are edited and remembered, Ctrl-C stops a turn, `/quit` or the end of input the
//! session.

use std::path::Path;
use std::sync::Arc;

use harness_agent::{Models, Session};
use harness_artifact::escape;
use harness_dispatch::Project;
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use rustyline::error::ReadlineError;
use tokio::runtime::Runtime;

use super::super::args::{OutputForm, ProjectArgs};
use super::super::exit::Exit;
use super::super::printer::Printer;
use super::super::project;
use super::super::signals::{Heard, Signals};
use super::came::Came;
use super::commands::Typed;
use super::editor::{self, Editor};
use super::history::History;
use super::recorded::Recorded;
use super::{Opened, Watch, start};
use crate::modes::Unechoed;

/// A conversation that is held.
pub(super) struct Talk<'a> {
    pub(super) runtime: &'a Runtime,
    pub(super) project: &'a Project,
    pub(super) models: Arc<dyn Models>,
    pub(super) root: &'a Path,
    pub(super) session: Session,
    pub(super) printer: Printer,
    watch: Arc<Watch>,
    recorded: Recorded,
    signals: Signals,
}

/// Why nothing more is read.
enum Over {
    /// Ctrl-C, which drops what is typed.
    Dropped,
    /// The end of input, or of the process.
    Ended(Exit),
}

pub(super) fn run(opened: Opened, place: &ProjectArgs, explain: bool, printer: Printer) -> Exit {
    let watch = Arc::new(Watch::new(printer, true, explain));
    let Opened { project, models, runtime, asked, mut record } = opened;
    let mut history = record.history();
    let entries = history.as_mut().map(History::entries).unwrap_or_default();
    let mut editor = match editor::editor(&entries) {
        Ok(editor) => editor,
        Err(error) => {
            printer.error(&format!("cannot read from the terminal: {error}"), &[], None);
            return Exit::Fault;
        }
    };
    let resumed = record.resumed().map(str::to_owned);
    let recorded = record.begin(&project, watch.clone(), asked.clone());
    let mut signals = runtime.block_on(async { Signals::new() });
    let started = start(&recorded, &project, models.clone(), &mut signals, OutputForm::Text, printer);
    let session = match runtime.block_on(started) {
        Ok(session) => session,
        Err(exit) => return exit,
    };
    let root = project::root(place);
    let mut talk =
        Talk { runtime: &runtime, project: &project, models, root: &root, session, printer, watch, recorded, signals };
    talk.banner(resumed.as_deref());
    // Until the end: what is typed while the agent works is not shown in the middle of what it says, and is read after it.
    let unechoed = Unechoed::begin();
    let mut dropped = false;
    let exit = loop {
        let typing = asked.typing();
        talk.watch.unsign();
        let read = talk.read(editor);
        drop(typing);
        let text = match read {
            Ok((back, Ok(text))) => {
                editor = back;
                text
            }
            Ok((back, Err(Over::Dropped))) if !dropped => {
                editor = back;
                dropped = true;
                printer.say("Ctrl-C again, Ctrl-D or /quit ends the session");
                continue;
            }
            Ok((_, Err(Over::Dropped))) => break Exit::Completed,
            Ok((_, Err(Over::Ended(exit)))) | Err(exit) => break exit,
        };
        dropped = false;
        if text.is_empty() {
            continue;
        }
        let _ = editor.add_history_entry(&text);
        if let Some(history) = &mut history {
            let mut kept = text.clone();
            project.loaded().secrets().redact(&mut kept);
            history.add(&kept);
        }
        let ended = match Typed::of(&text) {
            Typed::Quit => Some(Exit::Completed),
            Typed::Message(text) => talk.turn(Some(text)),
            Typed::Compact => talk.turn(None),
            Typed::Command(name, given) => {
                talk.command(name, given);
                None
            }
        };
        runtime.block_on(asked.over());
        if let Some(exit) = ended {
            break exit;
        }
    };
    drop(unechoed);
    let exit = talk.end(exit);
    // Someone may still read what is typed, where a signal came first.
    runtime.shutdown_background();
    exit
}

/// The terminal marks where pasted text begins and ends, as it does for the editor, until this is dropped: text of several
/// lines that is pasted during a turn is one message.
struct PasteMarks(Printer);

impl PasteMarks {
    fn begin(printer: Printer) -> Self {
        printer.mode("\x1b[?2004h");
        Self(printer)
    }
}

impl Drop for PasteMarks {
    fn drop(&mut self) {
        self.0.mode("\x1b[?2004l");
    }
}

impl Talk<'_> {
    /// What is talked to, and where it is kept.
    fn banner(&self, resumed: Option<&str>) {
        let model = match self.session.model() {
            Ok(model) => escape::line(&model).into_owned(),
            Err(_) => "none".to_owned(),
        };
        let folder = self.root.canonicalize().unwrap_or_else(|_| self.root.to_owned());
        let session = match (self.recorded.name_to_be(), resumed) {
            (None, _) => "not recorded".to_owned(),
            (Some(name), None) => name,
            (Some(name), Some(resumed)) => format!("{name}, resumes {}", escape::line(resumed)),
        };
        let rows = [
            ("model", model),
            ("project", escape::line(&folder.display().to_string()).into_owned()),
            ("session", session),
        ];
        for (name, value) in rows {
            self.printer.say(&self.printer.paint(&format!("{name:8} {value}"), "2"));
        }
        self.printer.say("Type a task; /help lists the commands.");
    }

    /// A text as a person types it, with the editor. Where a signal comes first, the terminal is as it was before.
    fn read(&mut self, mut editor: Editor) -> Result<(Editor, Result<String, Over>), Exit> {
        let terminal = tcgetattr(std::io::stdin()).ok();
        let typed = self.runtime.spawn_blocking(move || {
            let typed = editor.readline("> ");
            (editor, typed)
        });
        match self.runtime.block_on(self.signals.unless_ended(typed)) {
            Ok(Ok((editor, typed))) => {
                let read = typed.map(|typed| editor::joined(&typed)).map_err(|error| match error {
                    ReadlineError::Interrupted => Over::Dropped,
                    _ => Over::Ended(Exit::Completed),
                });
                Ok((editor, read))
            }
            Ok(Err(_)) => Err(Exit::Fault),
            Err(heard) => {
                if let Some(terminal) = terminal {
                    let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &terminal);
                }
                self.printer.say("");
                Err(heard.exit())
            }
        }
    }

    /// One turn, of a message or of a summary. Returns the exit of a session that a signal ends.
    fn turn(&mut self, text: Option<&str>) -> Option<Exit> {
        let (session, printer) = (&mut self.session, self.printer);
        let turn = async {
            match text {
                Some(text) => session.turn(text).await,
                None => session.compact().await,
            }
        };
        let marks = PasteMarks::begin(printer);
        let ended = self.runtime.block_on(self.signals.unless(turn));
        drop(marks);
        let seen = self.watch.end();
        let came = Came::of(&self.session, seen, OutputForm::Text, printer);
        match ended {
            Ok(Ok(turn)) => {
                came.answered(&turn);
                if text.is_none() {
                    printer.say("the summary replaces the conversation");
                }
            }
            Ok(Err(error)) => drop(came.failed(&error)),
            Err(Heard::Interrupt) => printer.say("stopped"),
            Err(heard) => return Some(heard.exit()),
        }
        self.recorded.check(printer);
        None
    }

    /// Ends the session, and says how to resume it.
    fn end(self, exit: Exit) -> Exit {
        let Self { runtime, project, session, printer, recorded, signals, .. } = self;
        let name = recorded.name();
        runtime.block_on(async {
            signals.at_once();
            session.end().await;
        });
        recorded.end(printer);
        let exit = project::audited(project, exit, printer);
        if let Some(name) = name {
            printer.say(&format!("`harness run --resume {name}` resumes this conversation"));
        }
        exit
    }
}
