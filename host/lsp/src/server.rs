//! The messages of a client in their order, from the first to the last.

use std::io::{BufRead, Write};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use lsp_types::InitializeParams;
use serde_json::{Value as Json, json};

use crate::check::{Checked, Ran, Work};
use crate::frame::{self, Frame};
use crate::message::{self, Code, Failure, Id, Incoming};
use crate::session::Session;
use crate::{Checks, Ended, answers, lens};

/// Messages and results that wait to be handled. A client that sends more waits.
const WAITING: usize = 64;

/// What the server hears.
enum Event {
    Frame(Frame),
    /// The input is over. An error is what cannot be followed in it.
    Over(Result<(), String>),
    Checked(Checked),
    Ran(Ran),
}

/// How far a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Before `initialize`.
    New,
    Running,
    /// After `shutdown`.
    Down,
}

/// Serves a client until it ends the session.
pub(crate) fn run(input: impl BufRead + Send + 'static, output: impl Write, checks: &dyn Checks) -> Ended {
    let work = Work::default();
    let (sender, receiver) = sync_channel(WAITING);
    // It waits for input for as long as the client keeps that open, and ends with the process.
    let frames = sender.clone();
    let reader = thread::Builder::new().name("frames".to_owned()).spawn(move || read(input, &frames));
    if let Err(error) = reader {
        return Ended::Broken(format!("a thread cannot be started: {error}"));
    }
    thread::scope(|scope| {
        let (checked, ran) = (sender.clone(), sender);
        // Nobody listens any more at the end.
        scope.spawn(|| work.check_all(checks, move |one| drop(checked.send(Event::Checked(one)))));
        scope.spawn(|| work.run_all(checks, move |one| drop(ran.send(Event::Ran(one)))));
        let mut server = Server { session: Session::new(output, checks, &work), phase: Phase::New };
        let ended = receiver.iter().find_map(|event| server.handle(event)).unwrap_or(Ended::Gone);
        drop(receiver);
        work.end();
        ended
    })
}

fn read(mut input: impl BufRead, frames: &SyncSender<Event>) {
    loop {
        let event = match frame::read(&mut input) {
            Ok(Some(frame)) => Event::Frame(frame),
            Ok(None) => Event::Over(Ok(())),
            Err(why) => Event::Over(Err(why)),
        };
        let is_over = matches!(event, Event::Over(_));
        if frames.send(event).is_err() || is_over {
            return;
        }
    }
}

struct Server<'c, W> {
    session: Session<'c, W>,
    phase: Phase,
}

impl<W: Write> Server<'_, W> {
    /// Handles one event. The end of the session, where it is that.
    fn handle(&mut self, event: Event) -> Option<Ended> {
        let handled = match event {
            Event::Over(Ok(())) => return Some(Ended::Gone),
            Event::Over(Err(why)) => return Some(Ended::Broken(why)),
            Event::Checked(checked) => self.session.checked(checked),
            Event::Ran(ran) => self.session.ran(ran),
            Event::Frame(Frame::TooLong(bytes)) => {
                let most = frame::MAX_BODY;
                let failure = Failure::new(Code::InvalidRequest, format!("a message has {bytes} bytes, over {most}"));
                self.session.send(&message::error(&Json::Null, &failure))
            }
            Event::Frame(Frame::Body(body)) => match message::parse(&body) {
                Ok(Incoming::Request { id, method, params }) => self.request(id, &method, params),
                Ok(Incoming::Notification { method, .. }) if method == "exit" => {
                    return Some(if self.phase == Phase::Down { Ended::Asked } else { Ended::Gone });
                }
                Ok(Incoming::Notification { method, params }) => self.notification(&method, params),
                Ok(Incoming::Answer) => Ok(()),
                Err((id, failure)) => self.session.send(&message::error(&id, &failure)),
            },
        };
        handled.err().map(|_| Ended::Gone)
    }

    fn request(&mut self, id: Id, method: &str, params: Json) -> std::io::Result<()> {
        let result = match (self.phase, method) {
            (Phase::New, "initialize") => self.initialize(params),
            (Phase::New, _) => Err(Failure::new(Code::NotInitialized, "the first request must be `initialize`")),
            (Phase::Down, _) => Err(Failure::new(Code::InvalidRequest, "the server was shut down")),
            (Phase::Running, "initialize") => {
                Err(Failure::new(Code::InvalidRequest, "the server is initialized already"))
            }
            (Phase::Running, "shutdown") => {
                self.phase = Phase::Down;
                Ok(Json::Null)
            }
            (Phase::Running, "workspace/executeCommand") => match self.session.execute(&id, params) {
                // The answer follows when the cases have run.
                Ok(()) => return Ok(()),
                Err(failure) => Err(failure),
            },
            (Phase::Running, method) => answers::of(&mut self.session, method, params),
        };
        self.session.send(&message::answer(&id, result))
    }

    fn notification(&mut self, method: &str, params: Json) -> std::io::Result<()> {
        if self.phase != Phase::Running {
            return Ok(());
        }
        let done = match method {
            "initialized" => self.session.watch_files(),
            "textDocument/didOpen" => message::params(params).map(|params| self.session.open(params)),
            "textDocument/didChange" => message::params(params).map(|params| self.session.change(params)),
            "textDocument/didClose" => message::params(params).map(|params| self.session.close(params)),
            "textDocument/didSave" | "workspace/didChangeWatchedFiles" => Ok(self.session.changed_on_disk()),
            "$/cancelRequest" => match params.get("id").and_then(Id::of) {
                Some(id) => Ok(self.session.cancel(&id)),
                None => Err(Failure::new(Code::InvalidParams, "`params` has no `id`")),
            },
            _ => return Ok(()),
        };
        match done {
            Ok(done) => done,
            // Nobody waits for an answer: the log of the client is the only way.
            Err(failure) => self.session.log(&format!("{method}: {failure}")),
        }
    }

    fn initialize(&mut self, params: Json) -> Result<Json, Failure> {
        let params: InitializeParams = message::params(params)?;
        let files = params.capabilities.workspace.and_then(|workspace| workspace.did_change_watched_files);
        self.session.watches_files = files.and_then(|files| files.dynamic_registration) == Some(true);
        self.phase = Phase::Running;
        Ok(json!({
            "capabilities": {
                "positionEncoding": "utf-16",
                "textDocumentSync": {"openClose": true, "change": 1, "save": {}},
                "completionProvider": {"triggerCharacters": [".", "\"", "'"]},
                "hoverProvider": true,
                "definitionProvider": true,
                "codeLensProvider": {},
                "codeActionProvider": {"codeActionKinds": ["quickfix"]},
                "executeCommandProvider": {"commands": [lens::RUN]},
            },
            "serverInfo": {"name": "harness", "version": env!("CARGO_PKG_VERSION")},
        }))
    }
}
