//! What a person sees of an agent at work, on standard error: what it calls, what it says between the calls, and what
//! scripts logged.

use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use harness_agent::{AgentEvent, Listener};
use harness_artifact::escape;
use harness_dispatch::{CallError, CallReport};
use harness_sandbox::outcome::Outcome;
use serde_json::Value as Json;

use super::super::call::report;
use super::super::printer::Printer;
use super::super::progress::Progress;
use super::super::steps;

/// Characters of arguments that are shown.
const SHOWN: usize = 100;

/// Reports a person what happens.
#[derive(Debug)]
pub(super) struct Watch {
    printer: Printer,
    /// Whether calls are printed: for a person, not for a pipe.
    calls: bool,
    /// Whether what the agent says is shown as it comes.
    live: bool,
    /// Whether some of the last reply was shown.
    shown: AtomicBool,
    /// What runs now, the innermost last, and the sign of it.
    running: Mutex<Running>,
}

/// What runs now.
#[derive(Debug, Default)]
struct Running {
    calls: Vec<(String, String)>,
    /// The model of the root that is asked.
    model: Option<String>,
    sign: Option<Progress>,
}

impl Running {
    /// What the sign shows.
    fn shown(&self) -> Option<String> {
        let waiting = || self.model.as_ref().map(|model| format!("waiting for {model}"));
        self.calls.last().map(|(_, tool)| format!("running {tool}")).or_else(waiting)
    }
}

impl Watch {
    /// `talk` is whether a person reads the answer, `explain` whether `--explain` was given.
    pub(super) fn new(printer: Printer, talk: bool, explain: bool) -> Self {
        let calls = explain || (talk && std::io::stderr().is_terminal());
        let live = talk && std::io::stdout().is_terminal();
        Self { printer, calls, live, shown: AtomicBool::new(false), running: Mutex::default() }
    }

    /// The turn is over. Gives back whether its answer was shown as it came.
    pub(super) fn end(&self) -> bool {
        let shown = self.shown.swap(false, Ordering::Relaxed);
        if shown {
            self.printer.piece("\n");
        }
        shown
    }

    /// Shows what runs now, where something does; who prints meanwhile takes the sign away first.
    fn sign(&self, change: impl FnOnce(&mut Running)) {
        if !self.calls {
            return;
        }
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.sign = None;
        change(&mut running);
        let shown = running.shown().filter(|_| !self.printer.is_taken());
        running.sign = shown.map(Progress::start);
    }

    /// Takes away the sign of what runs.
    pub(super) fn unsign(&self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).sign = None;
    }

    fn line(&self, agent: &str, text: &str) {
        let who = if agent.is_empty() { String::new() } else { format!("{}: ", escape::line(agent)) };
        self.printer.say(&self.printer.paint(&format!("{who}{}", escape::line(text)), "2"));
    }
}

impl Listener for Watch {
    fn notify(&self, what: &AgentEvent<'_>) {
        if let AgentEvent::Text { .. } = what {
            return self.print(what);
        }
        self.unsign();
        self.print(what);
        self.sign(|running| match what {
            AgentEvent::Calls { call, .. } => running.calls.push((call.id.clone(), call.name.clone())),
            AgentEvent::Called { call, .. } => running.calls.retain(|(id, _)| *id != call.id),
            AgentEvent::Turn { agent: "", .. } => running.calls.clear(),
            AgentEvent::Asked { agent: "", request, .. } => running.model = Some(request.model.clone()),
            AgentEvent::Answered { agent: "", .. }
            | AgentEvent::Unanswered { agent: "", .. }
            | AgentEvent::Turned { agent: "", .. }
            | AgentEvent::GivenUp { agent: "", .. } => running.model = None,
            _ => {}
        });
    }
}

impl Watch {
    fn print(&self, what: &AgentEvent<'_>) {
        match what {
            AgentEvent::Text { agent: "", text } if self.live => {
                self.unsign();
                self.shown.store(true, Ordering::Relaxed);
                self.printer.piece(text);
            }
            // What comes next is another text.
            AgentEvent::Answered { agent: "", reply, .. } if !reply.calls.is_empty() => drop(self.end()),
            AgentEvent::Calls { agent, call } if self.calls => {
                self.line(agent, &format!("calls {} {}", call.name, short(&call.arguments)));
            }
            AgentEvent::Called { agent, call, report: called, content, took } => {
                if let Ok(called) = called {
                    report::call_apart_from_agents(called, self.printer);
                }
                if self.calls {
                    let came = match called {
                        Ok(called) => outcome(called),
                        Err(_) => format!("rejected: {}", first(content)),
                    };
                    self.line(agent, &format!("{} {came} ({} ms)", call.name, took.as_millis()));
                } else if let Some(why) = denied(called, content) {
                    self.line(agent, &format!("denied: {}: {}", call.name, first(why)));
                }
            }
            AgentEvent::Step { agent, tool, step } if self.calls => self.line(agent, &steps::line(tool, step)),
            AgentEvent::Ended { agent, task, report, .. } if self.calls => {
                // Of a delegated task, whose it is says more than the tool that did so.
                let name = report.result.get("agent").and_then(Json::as_str).unwrap_or(&report.tool);
                self.line(agent, &format!("task of {name} {} ({task})", outcome(report)));
            }
            AgentEvent::Event { dispatch, .. } => report::dispatch(dispatch, self.printer),
            AgentEvent::Delegated { agent, to, attempt, .. } if self.calls => {
                let again = if *attempt > 1 { format!(" again, attempt {attempt}") } else { String::new() };
                self.line(agent, &format!("{to} begins{again}"));
            }
            AgentEvent::Retry { agent, error, pause, attempt, of } => {
                self.end();
                self.line(agent, &format!("{error}; attempt {attempt} of {of}, in {}", rough(*pause)));
            }
            // The sign of what runs shows that, unless a line of text is open.
            AgentEvent::Silent { agent, since } if !self.calls || self.printer.is_taken() => {
                if self.printer.is_open() {
                    self.printer.piece("\n");
                }
                self.line(agent, &format!("the model's service is silent for {}; still waiting", rough(*since)));
            }
            _ => {}
        }
    }
}

/// A time as a person says it.
pub(crate) fn rough(time: Duration) -> String {
    let seconds = time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0));
    if time < Duration::from_secs(1) { format!("{} ms", time.as_millis()) } else { format!("{seconds} s") }
}

/// Arguments, as far as they are shown.
pub(crate) fn short(arguments: &str) -> String {
    match arguments.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", arguments.get(..end).unwrap_or_default()),
        None => arguments.to_owned(),
    }
}

/// How a call ended, and why where it failed.
fn outcome(called: &CallReport) -> String {
    let word = called.outcome.name();
    if called.is_error { format!("{word}: {}", first(&called.content)) } else { word.to_owned() }
}

/// Why a call was denied, if it was: a person who reads a pipe learns of it too.
fn denied<'a>(called: &Result<&'a CallReport, &CallError>, content: &'a str) -> Option<&'a str> {
    match called {
        Ok(report) if matches!(report.outcome, Outcome::Denied { .. }) => Some(&report.content),
        Err(error) if error.outcome() == "denied" => Some(content),
        _ => None,
    }
}

/// Why something failed: the first line, whole.
pub(crate) fn first(reason: &str) -> String {
    match reason.trim_end().split_once('\n') {
        Some((first, _)) => format!("{} …", first.trim_end()),
        None => reason.trim_end().to_owned(),
    }
}
