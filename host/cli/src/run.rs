//! `harness run` and `harness deploy`: a conversation with the project's agent.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;

use harness_agent::{Configured, Interrupted, Models, Session};
use harness_capability::env::Variables;
use harness_dispatch::{Options, Project};

use super::args::{Confine, Deploy, OutputForm, ProjectArgs, Talk};
use super::confirm::AtTerminal;
use super::exit::Exit;
use super::printer::Printer;
use super::signals::Signals;
use super::{input, project};

mod came;
mod chosen;
mod commands;
mod conversation;
mod editor;
mod events;
mod history;
mod recorded;
pub(crate) mod watch;

use came::Came;
pub(crate) use came::print_rejected;
use recorded::{Record, Recorded};
use watch::Watch;

/// Threads for what continues while a person types.
const THREADS: usize = 1;

/// Talks to the agent. An error is that it was not asked, which was reported.
pub(crate) fn talk(command: &Talk, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    let form = command.output.form();
    if let Some(session) = &command.unfinished {
        let asked = AtTerminal::new(&command.confirm, printer);
        let (record, turn) = Record::of_unfinished("run", session, !command.no_record, place, printer)?;
        let opened = Opened::new(command.workspace.as_deref(), place, record, &command.confine, asked, printer)?;
        return opened.once(&Task::Rest(turn), form, command.explain, printer);
    }
    let prompt = match &command.prompt {
        Some(prompt) => Some(prompt.clone()),
        None if !std::io::stdin().is_terminal() => Some(read("-", printer)?),
        None if form != OutputForm::Text => {
            printer.error(
                "`--json` and `--output` are for one prompt",
                &[],
                Some("give it: `harness run --json \"...\"`"),
            );
            return Err(Exit::Usage);
        }
        None => None,
    };
    let asked = AtTerminal::new(&command.confirm, printer);
    let record = Record::new("run", command.resume.as_deref(), !command.no_record, place, printer)?;
    let record = if prompt.is_none() { record.of_conversation() } else { record };
    let opened = Opened::new(command.workspace.as_deref(), place, record, &command.confine, asked, printer)?;
    match prompt {
        Some(prompt) => opened.once(&Task::Message(prompt), form, command.explain, printer),
        None => Ok(conversation::run(opened, place, command.explain, printer)),
    }
}

/// Gives it one task.
pub(crate) fn deploy(command: &Deploy, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    let prompt = read(command.input.as_deref().unwrap_or("-"), printer)?;
    let asked = AtTerminal::new(&command.confirm, printer);
    let record = Record::new("deploy", None, !command.no_record, place, printer)?;
    let opened = Opened::new(command.workspace.as_deref(), place, record, &command.confine, asked, printer)?;
    opened.once(&Task::Message(prompt), command.output.form(), command.explain, printer)
}

fn read(given: &str, printer: Printer) -> Result<String, Exit> {
    input::text(given).map_err(|message| {
        printer.error(&message, &[], Some("give the text itself, `@FILE`, or `-` for standard input"));
        Exit::Usage
    })
}

/// What the agent is to do.
enum Task {
    /// Answer a message.
    Message(String),
    /// Continue a turn that was interrupted.
    Rest(Interrupted),
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
    fn once(self, task: &Task, form: OutputForm, explain: bool, printer: Printer) -> Result<Exit, Exit> {
        if matches!(task, Task::Message(prompt) if prompt.trim().is_empty()) {
            printer.error("the prompt is empty", &[], Some("give a prompt: `harness run \"...\"`"));
            return Err(Exit::Usage);
        }
        let watch = Arc::new(Watch::new(printer, form == OutputForm::Text, explain));
        let Self { project, models, runtime, asked, record } = self;
        let recorded = record.begin(&project, form.listener(watch.clone(), printer), asked.clone());
        Ok(runtime.block_on(async {
            let mut signals = Signals::new();
            let mut session = match start(&recorded, &project, models, &mut signals, form, printer).await {
                Ok(session) => session,
                Err(exit) => return exit,
            };
            let turn = async {
                match task {
                    Task::Message(prompt) => session.turn(prompt).await,
                    Task::Rest(turn) => session.continue_turn(turn).await,
                }
            };
            let turn = signals.unless(turn).await;
            signals.at_once();
            asked.over().await;
            let seen = watch.end();
            let came = Came::of(&session, seen, form, printer);
            session.end().await;
            recorded.end(printer);
            match turn {
                _ if let Err(why) = project.audited() => came.unaudited(&why),
                Ok(Ok(turn)) => came.answered(&turn),
                Ok(Err(error)) => came.failed(&error),
                Err(heard) => came.interrupted(heard),
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
    form: OutputForm,
    printer: Printer,
) -> Result<Session, Exit> {
    let came = Came::nothing(form, printer);
    match signals.unless(recorded.start(project, models)).await {
        Ok(Ok(session)) => Ok(session),
        Ok(Err(error)) => Err(came.failed(&error)),
        Err(heard) => {
            recorded.end(printer);
            Err(came.interrupted(heard))
        }
    }
}
