//! `harness run` and `harness deploy`: a conversation with the project's agent.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;

use harness_agent::{Activity, Configured, Models, Session, Turn, TurnError};
use harness_capability::env::Variables;
use harness_dispatch::{Options, Project};
use harness_provider::Usage;
use serde_json::{Value as Json, json};

use super::args::{Confine, Deploy, ProjectArgs, Talk};
use super::confirm::AtTerminal;
use super::exit::Exit;
use super::printer::{Printer, Reported};
use super::signals::{Heard, Signals};
use super::{input, project};

mod conversation;
mod recorded;
mod watch;

use recorded::{Record, Recorded};
use watch::Watch;

/// Threads for what continues while a person types.
const THREADS: usize = 1;

/// Talks to the agent. An error is that it was not asked, which was reported.
pub(crate) fn talk(command: &Talk, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    let prompt = match &command.prompt {
        Some(prompt) => Some(prompt.clone()),
        None if !std::io::stdin().is_terminal() => Some(read("-", printer)?),
        None if command.json => {
            printer.error("`--json` is for one prompt", &[], Some("give it: `harness run --json \"...\"`"));
            return Err(Exit::Usage);
        }
        None => None,
    };
    let asked = AtTerminal::new(&command.confirm, printer);
    let record = Record::new("run", command.resume.as_deref(), !command.no_record, place, printer)?;
    let opened = Opened::new(command.workspace.as_deref(), place, record, &command.confine, asked, printer)?;
    match prompt {
        Some(prompt) => opened.once(&prompt, command.json, command.explain, printer),
        None => Ok(conversation::run(opened, command.explain, printer)),
    }
}

/// Gives it one task.
pub(crate) fn deploy(command: &Deploy, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    let prompt = read(command.input.as_deref().unwrap_or("-"), printer)?;
    let asked = AtTerminal::new(&command.confirm, printer);
    let record = Record::new("deploy", None, !command.no_record, place, printer)?;
    let opened = Opened::new(command.workspace.as_deref(), place, record, &command.confine, asked, printer)?;
    opened.once(&prompt, command.json, command.explain, printer)
}

fn read(given: &str, printer: Printer) -> Result<String, Exit> {
    input::text(given).map_err(|message| {
        printer.error(&message, &[], Some("give the text itself, `@FILE`, or `-` for standard input"));
        Exit::Usage
    })
}

/// What a program gets where the agent was not asked.
pub(crate) fn rejected(outcome: &str, kind: &str, told: &Reported) -> Json {
    let error = json!({"kind": kind, "message": told.message, "hint": told.hint});
    as_json(json!({"outcome": outcome, "error": error}), &Activity::default(), Usage::default())
}

/// A project whose agent can be talked to.
struct Opened {
    project: Project,
    models: Arc<dyn Models>,
    runtime: tokio::runtime::Runtime,
    /// Who is asked whether calls may be made that need confirmation.
    asked: Arc<AtTerminal>,
    record: Record,
}

impl Opened {
    fn new(
        workspace: Option<&Path>,
        place: &ProjectArgs,
        mut record: Record,
        confine: &Confine,
        asked: Arc<AtTerminal>,
        printer: Printer,
    ) -> Result<Self, Exit> {
        let options = Options { workspace: workspace.map(Path::to_owned), ..Options::default() };
        let project = project::open(place, options, printer)?;
        let models = models(&project, place);
        // While files can still be made.
        record.open(place, printer);
        project::confine(&project::plan(&project, place, workspace), confine, printer)?;
        // Its threads are begun when the process has given up what it does not need.
        // What continues by itself continues while nobody waits for a turn, too.
        let runtime = project::runtime_of(THREADS, printer)?;
        Ok(Self { project, models, runtime, asked, record })
    }

    /// One turn and no more.
    fn once(self, prompt: &str, json: bool, explain: bool, printer: Printer) -> Result<Exit, Exit> {
        if prompt.trim().is_empty() {
            printer.error("the prompt is empty", &[], Some("give a prompt: `harness run \"...\"`"));
            return Err(Exit::Usage);
        }
        let watch = Arc::new(Watch::new(printer, !json, explain));
        let Self { project, models, runtime, asked, record } = self;
        let recorded = record.begin(&project, watch.clone(), asked.clone());
        Ok(runtime.block_on(async {
            let mut signals = Signals::new();
            let mut session = match start(&recorded, &project, models, &mut signals, json, printer).await {
                Ok(session) => session,
                Err(exit) => return exit,
            };
            let turn = signals.unless(session.turn(prompt)).await;
            signals.at_once();
            asked.over().await;
            let seen = watch.end();
            let (activity, usage) = (session.activity(), session.usage());
            session.end().await;
            recorded.end(printer);
            match turn {
                _ if let Err(why) = project.audited() => unaudited(&why, &activity, usage, json, printer),
                Ok(Ok(turn)) => answered(&turn, &activity, usage, seen, json, printer),
                Ok(Err(error)) => failed(&error, &activity, usage, json, printer),
                Err(heard) => interrupted(heard, &activity, usage, json, printer),
            }
        }))
    }
}

/// The models that a project names.
pub(crate) fn models(project: &Project, place: &ProjectArgs) -> Arc<dyn Models> {
    let loaded = project.loaded();
    let models = Configured::new(&project::root(place), &loaded.policy().models, &Variables::Host);
    Arc::new(models.of_policy(loaded.registry().policy_file()))
}

/// Begins a session, unless a hook or a signal is against it; that was reported.
async fn start(
    recorded: &Recorded,
    project: &Project,
    models: Arc<dyn Models>,
    signals: &mut Signals,
    json: bool,
    printer: Printer,
) -> Result<Session, Exit> {
    let (activity, usage) = (Activity::default(), Usage::default());
    match signals.unless(recorded.start(project, models)).await {
        Ok(Ok(session)) => Ok(session),
        Ok(Err(error)) => Err(failed(&error, &activity, usage, json, printer)),
        Err(heard) => {
            recorded.end(printer);
            Err(interrupted(heard, &activity, usage, json, printer))
        }
    }
}

/// Prints the answer, which a person at a terminal has seen as it came. `usage` is that of the session.
fn answered(turn: &Turn, activity: &Activity, usage: Usage, seen: bool, json: bool, printer: Printer) -> Exit {
    if let Some(warning) = &turn.warning {
        printer.warning(warning);
    }
    if json {
        let came = json!({"outcome": "completed", "answer": turn.text, "warning": turn.warning});
        printer.json(&as_json(came, activity, usage));
    } else if !seen {
        printer.data(&turn.text);
    }
    Exit::Completed
}

/// What came of a turn, with what was done in it.
fn as_json(mut came: Json, activity: &Activity, usage: Usage) -> Json {
    let Activity { calls, rounds, log } = activity;
    let usage = json!({"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens});
    let done = [("rounds", json!(rounds)), ("calls", json!(calls)), ("usage", usage), ("log", json!(log))];
    if let Some(object) = came.as_object_mut() {
        object.extend(done.map(|(key, value)| (key.to_owned(), value)));
    }
    came
}

fn with_error(outcome: &str, kind: &str, message: &str) -> Json {
    json!({"outcome": outcome, "error": {"kind": kind, "message": message}})
}

/// Says why there is no answer.
fn failed(error: &TurnError, activity: &Activity, usage: Usage, json: bool, printer: Printer) -> Exit {
    let (exit, outcome) = match error {
        TurnError::Blocked { .. } => (Exit::Denied, "denied"),
        TurnError::Config(_) => (Exit::Usage, "rejected"),
        TurnError::Limit { .. } | TurnError::Budget { .. } | TurnError::NeverStops(..) | TurnError::Length(_) => {
            (Exit::Limited, "limited")
        }
        TurnError::Modified { .. } => (Exit::Failed, "failed"),
        TurnError::Completion(_) | TurnError::ContentFilter | TurnError::Finish(_) => (Exit::Fault, "fault"),
    };
    let message = error.to_string();
    if json {
        printer.json(&as_json(with_error(outcome, error.kind(), &message), activity, usage));
    }
    printer.error(&message, &[], None);
    exit
}

/// Says that the audit log misses what was done; the answer is kept back.
fn unaudited(why: &str, activity: &Activity, usage: Usage, json: bool, printer: Printer) -> Exit {
    if json {
        printer.json(&as_json(with_error("fault", "host", why), activity, usage));
    }
    printer.error(why, &[], None);
    Exit::Fault
}

/// Says that someone has ended it.
fn interrupted(heard: Heard, activity: &Activity, usage: Usage, json: bool, printer: Printer) -> Exit {
    let message = format!("interrupted by {}", heard.name());
    if json {
        printer.json(&as_json(with_error("interrupted", "interrupted", &message), activity, usage));
    }
    printer.error(&message, &[], None);
    heard.exit()
}
