//! `harness run` and `harness deploy`: a conversation with the project's agent.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;

use harness::agent::{Configured, Models, Turn, TurnError};
use harness::dispatch::{Options, Project};
use harness::provider::Usage;
use serde_json::{Value as Json, json};

use super::args::{Confine, Deploy, Place, Talk};
use super::confirm::AtTerminal;
use super::exit::Exit;
use super::printer::Printer;
use super::{input, project};

mod conversation;
mod recorded;
mod watch;

use recorded::Record;
use watch::Watch;

/// Calls at one time: an agent makes one after another, and each may wait for others.
const CONCURRENCY: u32 = 4;
/// Threads for what goes on while a person types.
const THREADS: usize = 1;
/// Bytes of stack that each of them has, as the main one does: agents may be sixteen deep there too.
const STACK: usize = 8 << 20;

pub(crate) fn talk(command: &Talk, place: &Place, printer: &Printer) -> Exit {
    let prompt = match &command.prompt {
        Some(prompt) => Some(prompt.clone()),
        None if std::io::stdin().is_terminal() => None,
        None => match input::text("-") {
            Ok(text) => Some(text),
            Err(message) => return unreadable(&message, *printer),
        },
    };
    let asked = AtTerminal::new(&command.confirm, *printer);
    let record = Record::new("run", command.resume.as_deref(), !command.no_record, place, *printer);
    let opened = record
        .and_then(|record| Opened::new(command.workspace.as_deref(), place, record, &command.confine, asked, *printer));
    let opened = match opened {
        Ok(opened) => opened,
        Err(exit) => return exit,
    };
    match prompt {
        Some(prompt) => opened.once(&prompt, command.json, command.explain, *printer),
        None => conversation::run(opened, *printer),
    }
}

pub(crate) fn deploy(command: &Deploy, place: &Place, printer: &Printer) -> Exit {
    let prompt = match input::text(command.input.as_deref().unwrap_or("-")) {
        Ok(text) => text,
        Err(message) => return unreadable(&message, *printer),
    };
    let asked = AtTerminal::new(&command.confirm, *printer);
    let record = Record::new("deploy", None, !command.no_record, place, *printer);
    let opened = record
        .and_then(|record| Opened::new(command.workspace.as_deref(), place, record, &command.confine, asked, *printer));
    match opened {
        Ok(opened) => opened.once(&prompt, command.json, command.explain, *printer),
        Err(exit) => exit,
    }
}

fn unreadable(message: &str, printer: Printer) -> Exit {
    printer.error(message, &[], Some("give the text itself, `@FILE`, or `-` for standard input"));
    Exit::Usage
}

/// A project whose agent can be talked to.
struct Opened {
    project: Project,
    models: Arc<dyn Models>,
    runtime: tokio::runtime::Runtime,
    /// Who is asked whether calls may be made that are to be confirmed.
    asked: Arc<AtTerminal>,
    record: Record,
}

impl Opened {
    fn new(
        workspace: Option<&Path>,
        place: &Place,
        mut record: Record,
        confine: &Confine,
        asked: Arc<AtTerminal>,
        printer: Printer,
    ) -> Result<Self, Exit> {
        let options =
            Options { workspace: workspace.map(Path::to_owned), concurrency: CONCURRENCY, ..Options::default() };
        let project = project::open(place, options, printer)?;
        let models = models(&project, place);
        // While files can still be made.
        record.open(place, printer);
        project::confine(&project::plan(&project, place, workspace), confine, printer)?;
        // Its threads are begun when the process has given up what it does not need.
        let runtime = runtime(printer)?;
        Ok(Self { project, models, runtime, asked, record })
    }

    /// One turn and no more.
    fn once(self, prompt: &str, json: bool, explain: bool, printer: Printer) -> Exit {
        if prompt.trim().is_empty() {
            printer.error("there is nothing to say to the agent", &[], Some("give a prompt: `harness run \"...\"`"));
            return Exit::Usage;
        }
        let watch = Arc::new(Watch::new(printer, !json, explain));
        let Self { project, models, runtime, asked, record } = self;
        let recorded = record.begin(&project, watch.clone(), asked);
        runtime.block_on(async {
            let mut session = match recorded.start(&project, models).await {
                Ok(session) => session,
                Err(error) => return failed(&error, Usage::default(), json, printer),
            };
            let turn = interruptible(session.turn(prompt)).await;
            let seen = watch.end();
            let usage = session.usage();
            session.end().await;
            recorded.end(printer);
            match turn {
                Some(Ok(turn)) => answered(&turn, usage, seen, json, printer),
                Some(Err(error)) => failed(&error, usage, json, printer),
                None => {
                    printer.error("interrupted", &[], None);
                    Exit::Failed
                }
            }
        })
    }
}

/// What turns are made on: what goes on by itself goes on while nobody waits for a turn, too.
fn runtime(printer: Printer) -> Result<tokio::runtime::Runtime, Exit> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_stack_size(STACK)
        .enable_all()
        .build()
        .map_err(|error| {
            printer.error(&format!("cannot start: {error}"), &[], None);
            Exit::Fault
        })
}

/// The models that a project names.
pub(crate) fn models(project: &Project, place: &Place) -> Arc<dyn Models> {
    Arc::new(Configured::new(&project::root(place), &project.loaded().policy().models))
}

/// What it waits for, unless the person presses Ctrl-C first.
async fn interruptible<T>(work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        // Heard from before the work begins.
        biased;
        _ = tokio::signal::ctrl_c() => None,
        ended = work => Some(ended),
    }
}

/// Prints the answer, which a person at a terminal has seen as it came. `usage` is that of the session.
fn answered(turn: &Turn, usage: Usage, seen: bool, json: bool, printer: Printer) -> Exit {
    if let Some(warning) = &turn.warning {
        printer.warning(warning);
    }
    if json {
        printer.json(&as_json(turn, usage));
    } else if !seen {
        printer.data(&turn.text);
    }
    Exit::Completed
}

fn as_json(turn: &Turn, usage: Usage) -> Json {
    let calls: Vec<Json> = turn.calls.iter().map(|call| json!({"name": call.name, "args": call.args})).collect();
    let log: Vec<Json> = turn
        .log
        .iter()
        .map(|line| json!({"source": line.source, "level": line.level, "message": line.message}))
        .collect();
    json!({
        "outcome": "completed",
        "answer": turn.text,
        "rounds": turn.rounds,
        "calls": calls,
        "usage": counted(usage),
        "log": log,
        "warning": turn.warning,
    })
}

fn counted(usage: Usage) -> Json {
    json!({"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens})
}

/// Says why there is no answer.
fn failed(error: &TurnError, usage: Usage, json: bool, printer: Printer) -> Exit {
    let (exit, outcome) = match error {
        TurnError::Blocked { .. } => (Exit::Denied, "denied"),
        TurnError::Config(_) => (Exit::Usage, "rejected"),
        TurnError::Limit { .. } | TurnError::Budget { .. } | TurnError::NeverStops(..) | TurnError::Length(_) => {
            (Exit::Limited, "limited")
        }
        TurnError::Modified { .. } => (Exit::Failed, "failed"),
        TurnError::Completion(_) | TurnError::ContentFilter | TurnError::Finish(_) => (Exit::Fault, "fault"),
    };
    if json {
        let error = json!({"kind": error.kind(), "message": error.to_string()});
        printer.json(&json!({"outcome": outcome, "error": error, "usage": counted(usage)}));
    }
    printer.error(&error.to_string(), &[], None);
    exit
}
