//! `harness fire --format`: a hook of an agent client, such as Claude Code. It reads the client's payload on standard
//! input, dispatches the event that it stands for, and answers in the client's form. Whatever fails, blocks.

mod answer;
mod payload;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use harness_artifact::escape;
use harness_dispatch::{Options, Run};

use super::args::{Fire, ProjectArgs};
use super::call::{explain, report};
use super::exit::Exit;
use super::printer::{Printer, Reported};
use super::{input, project};
use answer::Answer;
use payload::{Asked, Kind, Request};

/// The clients whose hooks are understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Client {
    ClaudeCode,
    Codex,
}

impl Client {
    /// Its name in `--format` and in payloads.
    fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
        }
    }

    /// The name of one of its tools in payloads. A dot is in no name that a model can call a project's tool by.
    fn tool(self, name: &str) -> String {
        let prefix = match self {
            Self::ClaudeCode => "claude_code",
            Self::Codex => "codex",
        };
        format!("{prefix}.{name}")
    }
}

/// What is to be answered, where the process has to answer before its work is done.
#[derive(Debug, Clone, Copy)]
struct Question {
    /// Where the payload was read that far.
    asked: Option<Asked>,
    printer: Printer,
}

/// The one question of this process, while it has no answer.
static QUESTION: Mutex<Option<Question>> = Mutex::new(None);

/// Whether some thread has begun to answer: the first answer counts.
static ANSWERED: AtomicBool = AtomicBool::new(false);

/// Answers a client. Every failure is an answer, too.
pub(crate) fn run(client: Client, command: &Fire, place: &ProjectArgs, printer: Printer) -> Exit {
    printer.hold();
    ask(Question { asked: None, printer });
    answer_panics();
    let mut asked = None;
    let answer = answered(client, command, place, printer, &mut asked).unwrap_or_else(|why| {
        let why = why.unwrap_or_else(|| {
            let all = Reported::all();
            if all.hint.is_empty() { all.message } else { format!("{} (hint: {})", all.message, all.hint) }
        });
        Answer::failed(asked, &why)
    });
    give(answer, command.explain, printer)
}

/// What is to be printed. An error is a failure, with its text unless that was reported.
fn answered(
    client: Client,
    command: &Fire,
    place: &ProjectArgs,
    printer: Printer,
    asked: &mut Option<Asked>,
) -> Result<Answer, Option<String>> {
    let started = Instant::now();
    let all = Duration::from_millis(command.deadline_ms);
    let loading = Deadline::start(all, all)?;
    let given = input::json("-", "the payload of the client is").map_err(Some)?;
    let kind = match payload::kind(client, &given).map_err(Some)? {
        Kind::Dispatched(kind) => kind,
        Kind::Passed => return Ok(Answer::nothing()),
    };
    *asked = Some(kind);
    ask(Question { asked: *asked, printer });
    let Request { event, payload } = payload::request(client, kind, given).map_err(Some)?;
    project::named(place, printer).map_err(|_| None)?;
    // A folder without a project has no hooks, so a wrong folder would allow everything.
    project::there(place, printer).map_err(|_| None)?;
    let options = Options { workspace: command.workspace.clone(), ..Options::default() };
    let opened = project::open_for(place, options, printer, |all| {
        all.chain(&event).iter().map(|hook| &*hook.source.file).collect()
    });
    let project = opened.map_err(|_| None)?;
    let plan = project::plan(&project, place, command.workspace.as_deref());
    // Privileges are dropped for one thread and those that it starts.
    drop(loading);
    project::confine(&plan, &command.confine, printer).map_err(|_| None)?;
    let _running = Deadline::start(all.saturating_sub(started.elapsed()), all)?;
    let before = payload.clone();
    let dispatch = project::block_on(project.fire(&event, payload, &Run::new()), printer).map_err(|_| None)?;
    report::dispatch(&dispatch, printer);
    if command.explain {
        explain::dispatch(&dispatch, "", printer);
    }
    // A decision that the audit log misses is none.
    if project::audited(&project, Exit::Completed, printer) != Exit::Completed {
        return Err(None);
    }
    Ok(answer::of(client, kind, &before, &dispatch, printer))
}

/// A thread that panics answers, too.
fn answer_panics() {
    std::panic::set_hook(Box::new(|info| {
        let at = info.location().map(|at| format!(" at {at}")).unwrap_or_default();
        end_with(&format!("the host panicked{at}"));
    }));
}

fn ask(question: Question) {
    *QUESTION.lock().unwrap_or_else(PoisonError::into_inner) = Some(question);
}

/// Prints the answer. Lines that were said meanwhile reach standard error where the client does not read the reason from
/// it, or where they were asked for.
fn give(answer: Answer, explain: bool, printer: Printer) -> Exit {
    if ANSWERED.swap(true, Ordering::SeqCst) {
        // Another thread answers, and ends the process.
        loop {
            std::thread::park();
        }
    }
    printer.release(explain || answer.reason.is_none());
    if let Some(json) = &answer.json {
        printer.data(&json.to_string());
    }
    if let Some(reason) = &answer.reason {
        printer.say(&escape::text(reason));
    }
    answer.exit
}

/// Blocks and ends the process, unless it has answered: then it ends as a failure, which the client takes for a block.
#[expect(clippy::exit, reason = "the thread that works does not answer")]
fn end_with(why: &str) {
    let question = *QUESTION.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(Question { asked, printer }) = question
        && !ANSWERED.load(Ordering::SeqCst)
    {
        let exit = give(Answer::failed(asked, why), false, printer);
        std::process::exit(exit.code().into());
    }
    std::process::exit(Exit::Blocked.code().into());
}

/// Blocks when the time is over, before the client's own timeout, which would allow the action. Not once it is dropped.
#[derive(Debug)]
struct Deadline {
    running: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Deadline {
    /// After what is left of all the time.
    fn start(left: Duration, all: Duration) -> Result<Self, Option<String>> {
        let (stop, stopped) = mpsc::channel::<()>();
        let wait = move || {
            if stopped.recv_timeout(left) == Err(RecvTimeoutError::Timeout) && !ANSWERED.load(Ordering::SeqCst) {
                end_with(&format!("no decision within {} ms (`--deadline-ms`)", all.as_millis()));
            }
        };
        let thread = std::thread::Builder::new().name("deadline".to_owned()).spawn(wait);
        let thread = thread.map_err(|error| Some(format!("cannot start the clock: {error}")))?;
        Ok(Self { running: Some((stop, thread)) })
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.running.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

/// The exit of a process that answered a client: clients let every code but this one pass.
pub(crate) fn exit(exit: Exit) -> Exit {
    if exit == Exit::Completed { exit } else { Exit::Blocked }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::payload::On;
    use super::*;
    use crate::args::Color;

    /// Set in the process that panics.
    const PANICS: &str = "HARNESS_TEST_CLIENT_PANICS";

    #[test]
    #[expect(clippy::disallowed_methods, reason = "it runs this test again, in a process that may end")]
    fn a_panic_blocks() {
        if std::env::var_os(PANICS).is_some() {
            let asked = Some(Asked { on: On::PreToolUse, is_kept_running: false });
            ask(Question { asked, printer: Printer::new(Color::Never) });
            answer_panics();
            panic!("as a bug would");
        }
        let mut again = Command::new(std::env::current_exe().unwrap());
        let output =
            again.args(["--exact", "--nocapture", "client::tests::a_panic_blocks"]).env(PANICS, "1").output().unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        let start = "{\"hookSpecificOutput\":{\"hookEventName\":\"PreToolUse\",\"permissionDecision\":\"deny\",\
                     \"permissionDecisionReason\":\"blocked by harness, which cannot decide: the host panicked at ";
        assert_eq!((output.status.code(), out.contains(start)), (Some(2), true), "{out}");
    }
}
