//! The record of what is talked about, and the recorded conversation that is resumed.

use std::sync::Arc;

use harness_agent::{Interrupted, Listener, Models, Session, TurnError};
use harness_dispatch::{Project, Run};
use harness_provider::Message;
use harness_session as session;
use harness_session::read::Recording;
use harness_session::recorder::Recorder;
use harness_session::writer::Writer;

use super::super::args::ProjectArgs;
use super::super::confirm::AtTerminal;
use super::super::exit::Exit;
use super::super::printer::Printer;
use super::super::{project, sessions};
use super::history::History;

/// What is to be recorded, and what is resumed.
pub(super) struct Record {
    command: &'static str,
    wanted: bool,
    writer: Option<Writer>,
    /// Whether what is typed is kept, and where.
    remembers: bool,
    history: Option<History>,
    /// The name of a session and what was said in it.
    resumed: Option<(String, Vec<Message>)>,
}

impl Record {
    /// Nothing is written yet; the session to resume is read.
    pub(super) fn new(
        command: &'static str,
        resume: Option<&str>,
        wanted: bool,
        place: &ProjectArgs,
        printer: Printer,
    ) -> Result<Self, Exit> {
        let resumed = resume.map(|wanted| {
            let (name, recording, history) = sessions::history(wanted, place, printer)?;
            warn_of_loss(&name, &recording, printer);
            Ok((name, history))
        });
        Ok(Self { command, wanted, writer: None, remembers: false, history: None, resumed: resumed.transpose()? })
    }

    /// The same for the turn that a session was interrupted in.
    pub(super) fn of_unfinished(
        command: &'static str,
        wanted_session: &str,
        wanted: bool,
        place: &ProjectArgs,
        printer: Printer,
    ) -> Result<(Self, Interrupted), Exit> {
        let (name, recording) = sessions::find(wanted_session, place, printer)?;
        let found = recording.interrupted().map_err(|why| {
            printer.error(&format!("{}/{name}.jsonl: {why}", session::FOLDER), &[], None);
            Exit::Usage
        })?;
        let Some((history, turn)) = found else {
            let hint = format!("`harness run --resume {name} \"...\"` resumes its conversation");
            printer.error(&format!("the session {name} was not interrupted in a turn"), &[], Some(&hint));
            return Err(Exit::Usage);
        };
        warn_of_loss(&name, &recording, printer);
        let resumed = Some((name, history));
        Ok((Self { command, wanted, writer: None, remembers: false, history: None, resumed }, turn))
    }

    /// Makes the file. Where that cannot be, the session continues without.
    pub(super) fn open(&mut self, place: &ProjectArgs, printer: Printer) {
        if !self.wanted {
            return;
        }
        match session::create(&project::root(place)) {
            Ok(writer) => self.writer = Some(writer),
            Err(why) => printer.warning(&why),
        }
        // Without it nothing is remembered, as without the file of the session.
        if self.remembers {
            self.history = History::open(&project::root(place)).ok();
        }
    }

    /// The same for a conversation, which remembers what is typed.
    pub(super) fn of_conversation(self) -> Self {
        Self { remembers: true, ..self }
    }

    /// What was typed in earlier conversations.
    pub(super) fn history(&mut self) -> Option<History> {
        self.history.take()
    }

    /// The name of the session that is resumed.
    pub(super) fn resumed(&self) -> Option<&str> {
        self.resumed.as_ref().map(|(name, _)| name.as_str())
    }

    /// The recorder of a session of this project, around the listener and the confirmer.
    pub(super) fn begin(self, project: &Project, listener: Arc<dyn Listener>, asked: Arc<AtTerminal>) -> Recorded {
        let Self { command, writer, resumed, .. } = self;
        let (name, history) = resumed.unzip();
        let id = writer.as_ref().map(|writer| writer.id().to_owned());
        let recorder = writer.map(|writer| session::begin(writer, project, command, name.as_deref(), listener.clone()));
        Recorded { recorder, id, listener, asked, history: history.unwrap_or_default() }
    }
}

/// Says what a session had that whoever resumes it does not.
fn warn_of_loss(name: &str, recording: &Recording, printer: Printer) {
    let anew = recording.left_behind().join(", ");
    if !anew.is_empty() {
        printer.say(&format!("note: {name} resumes the conversation only; these start anew: {anew}"));
    }
}

/// A session that is recorded, or not.
pub(super) struct Recorded {
    recorder: Option<Arc<Recorder>>,
    /// The name of its file.
    id: Option<String>,
    listener: Arc<dyn Listener>,
    /// Who confirms calls.
    asked: Arc<AtTerminal>,
    /// What was said before.
    history: Vec<Message>,
}

impl Recorded {
    pub(super) async fn start(&self, project: &Project, models: Arc<dyn Models>) -> Result<Session, TurnError> {
        let (run, listener): (Arc<Run>, Arc<dyn Listener>) = match &self.recorder {
            Some(recorder) => (recorder.run(), recorder.clone()),
            None => (Run::new(), self.listener.clone()),
        };
        run.set_confirmer(self.asked.clone());
        let started = Session::start(project, &run, models, listener).await;
        if let (Err(_), Some(recorder)) = (&started, &self.recorder) {
            recorder.end();
        }
        Ok(started?.after(self.history.clone()))
    }

    /// The name that the session gets once something of it is recorded.
    pub(super) fn name_to_be(&self) -> Option<String> {
        self.id.clone()
    }

    /// The session's name, where something of it is recorded.
    pub(super) fn name(&self) -> Option<String> {
        self.recorder.as_ref().and_then(|recorder| recorder.id())
    }

    /// Says where recording has ended.
    pub(super) fn check(&self, printer: Printer) {
        if let Some(trouble) = self.recorder.as_ref().and_then(|recorder| recorder.trouble()) {
            printer.warning(&trouble);
        }
    }

    /// The session is over.
    pub(super) fn end(&self, printer: Printer) {
        if let Some(recorder) = &self.recorder {
            recorder.end();
        }
        self.check(printer);
    }
}
