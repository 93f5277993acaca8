//! What a person sees of an agent at work on a server, from its events: the lines of `harness run`.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use harness_artifact::escape;
use harness_capability::progress::Step;
use serde_json::Value as Json;

use super::super::printer::Printer;
use super::super::progress::Progress;
use super::super::run::watch::{first, rough, short};
use super::super::steps;
use super::text;

/// Calls under way whose time is measured.
const MAX_CALLS: usize = 1_000;

/// Shows a person what happens.
#[derive(Debug)]
pub(super) struct Watch {
    printer: Printer,
    /// Whether calls are printed: for a person, not for a pipe.
    calls: bool,
    /// Whether what the agent says is shown as it comes.
    live: bool,
    /// Whether some of the last reply was shown.
    shown: bool,
    /// When calls began, by agent and identifier.
    began: HashMap<(String, String), Instant>,
    sign: Option<Progress>,
}

impl Watch {
    /// `talk` is whether a person reads the answer, `explain` whether `--explain` was given.
    pub(super) fn new(printer: Printer, talk: bool, explain: bool) -> Self {
        let calls = explain || (talk && std::io::stderr().is_terminal());
        let live = talk && std::io::stdout().is_terminal();
        Self { printer, calls, live, shown: false, began: HashMap::new(), sign: None }
    }

    /// The turn is over. Gives back whether its answer was shown as it came.
    pub(super) fn end(&mut self) -> bool {
        self.sign = None;
        let shown = std::mem::take(&mut self.shown);
        if shown {
            self.printer.piece("\n");
        }
        shown
    }

    /// Shows an event.
    pub(super) fn notify(&mut self, event: &Json) {
        self.sign = None;
        self.print(event);
        if !self.calls || self.printer.is_taken() {
            return;
        }
        self.sign = match text(event, "type") {
            "call" => Some(Progress::start(format!("running {}", text(event, "tool")))),
            "asked" if text(event, "agent").is_empty() => {
                Some(Progress::start(format!("waiting for {}", text(event, "model"))))
            }
            _ => None,
        };
    }

    fn print(&mut self, event: &Json) {
        let (kind, agent, tool) = (text(event, "type"), text(event, "agent"), text(event, "tool"));
        match kind {
            "text" if agent.is_empty() && self.live => {
                self.shown = true;
                self.printer.piece(text(event, "text"));
            }
            "call" => {
                if agent.is_empty() {
                    // What comes next is another text.
                    self.end();
                }
                if self.began.len() < MAX_CALLS {
                    self.began.insert(key(event), Instant::now());
                }
                if self.calls {
                    self.line(agent, &format!("calls {tool} {}", short(text(event, "arguments"))));
                }
            }
            "called" => {
                let took = self.began.remove(&key(event)).map(|began| began.elapsed()).unwrap_or_default();
                self.called(event, took);
            }
            "progress" if self.calls => self.line(agent, &steps::line(tool, &step(event))),
            "delegated" if self.calls => {
                let attempt = number(event, "attempt");
                let again = if attempt > 1 { format!(" again, attempt {attempt}") } else { String::new() };
                self.line(agent, &format!("{} begins{again}", text(event, "to")));
            }
            "retry" => {
                self.end();
                let (attempt, of) = (number(event, "attempt"), number(event, "attempts"));
                let pause = rough(Duration::from_millis(number(event, "pause_ms")));
                self.line(agent, &format!("{}; attempt {attempt} of {of}, in {pause}", text(event, "error")));
            }
            "silent" if !self.calls || self.printer.is_taken() => {
                if self.printer.is_open() {
                    self.printer.piece("\n");
                }
                let since = rough(Duration::from_secs(number(event, "seconds")));
                self.line(agent, &format!("the model's service is silent for {since}; still waiting"));
            }
            "truncated" => {
                let events = number(event, "events");
                self.printer.warning(&format!("the server keeps {events} events of a run: the others are not shown"));
            }
            _ => {}
        }
    }

    fn called(&self, event: &Json, took: Duration) {
        let (agent, tool, outcome) = (text(event, "agent"), text(event, "tool"), text(event, "outcome"));
        let content = text(event, "content");
        let is_error = event.get("is_error").and_then(Json::as_bool).unwrap_or(false);
        if self.calls {
            let came = if is_error { format!("{outcome}: {}", first(content)) } else { outcome.to_owned() };
            self.line(agent, &format!("{tool} {came} ({} ms)", took.as_millis()));
        } else if outcome == "denied" {
            self.line(agent, &format!("denied: {tool}: {}", first(content)));
        }
    }

    fn line(&self, agent: &str, line: &str) {
        let who = if agent.is_empty() { String::new() } else { format!("{}: ", escape::line(agent)) };
        self.printer.say(&self.printer.paint(&format!("{who}{}", escape::line(line)), "2"));
    }
}

fn key(event: &Json) -> (String, String) {
    (text(event, "agent").to_owned(), text(event, "id").to_owned())
}

fn number(event: &Json, name: &str) -> u64 {
    event.get(name).and_then(Json::as_u64).unwrap_or_default()
}

fn step(event: &Json) -> Step {
    Step {
        done: event.get("done").and_then(Json::as_f64).unwrap_or_default(),
        total: event.get("total").and_then(Json::as_f64),
        message: event.get("message").and_then(Json::as_str).map(str::to_owned),
    }
}
