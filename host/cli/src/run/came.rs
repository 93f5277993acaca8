//! What came of a turn, for a person and for programs.

use harness_agent::{Activity, Session, Turn, TurnError};
use harness_provider::Usage;
use serde_json::{Value as Json, json};

use super::super::args::OutputForm;
use super::super::exit::Exit;
use super::super::printer::{Printer, Reported};
use super::super::signals::Heard;

/// What was done in a turn, and how it is printed.
pub(super) struct Came {
    activity: Activity,
    /// That of the session.
    usage: Usage,
    /// What the agent had said of an answer that is not there; a hook may still have kept it back otherwise.
    said: Option<String>,
    /// Whether a person at a terminal has seen the text as it came.
    seen: bool,
    form: OutputForm,
    printer: Printer,
}

impl Came {
    /// Of the last turn of a session.
    pub(super) fn of(session: &Session, seen: bool, form: OutputForm, printer: Printer) -> Self {
        let said = session.unfinished().filter(|said| !said.is_empty());
        Self { activity: session.activity(), usage: session.usage(), said, seen, form, printer }
    }

    /// Before there was a turn.
    pub(super) fn nothing(form: OutputForm, printer: Printer) -> Self {
        let (activity, usage) = (Activity::default(), Usage::default());
        Self { activity, usage, said: None, seen: false, form, printer }
    }

    /// Prints the answer.
    pub(super) fn answered(self, turn: &Turn) -> Exit {
        if let Some(warning) = &turn.warning {
            self.printer.warning(warning);
        }
        self.print(json!({"outcome": "completed", "answer": turn.text, "warning": turn.warning}));
        if self.form == OutputForm::Text && !self.seen {
            self.printer.data(&turn.text);
        }
        Exit::Completed
    }

    /// Says why there is no answer.
    pub(super) fn failed(self, error: &TurnError) -> Exit {
        let (exit, outcome) = match error {
            TurnError::Blocked { .. } => (Exit::Denied, "denied"),
            TurnError::Config(_) => (Exit::Usage, "rejected"),
            TurnError::Limit { .. } | TurnError::Budget { .. } | TurnError::NeverStops(..) | TurnError::Length(_) => {
                (Exit::Limited, "limited")
            }
            TurnError::Modified { .. } => (Exit::Failed, "failed"),
            TurnError::Completion(_) | TurnError::ContentFilter | TurnError::Finish(_) => (Exit::Fault, "fault"),
        };
        self.without_answer(outcome, error.kind(), &error.to_string());
        exit
    }

    /// Says that the audit log misses what was done; the answer is kept back.
    pub(super) fn unaudited(self, why: &str) -> Exit {
        Self { said: None, ..self }.without_answer("fault", "host", why);
        Exit::Fault
    }

    /// Says that someone has ended it, who does not want to read more.
    pub(super) fn interrupted(self, heard: Heard) -> Exit {
        Self { said: None, ..self }.without_answer(
            "interrupted",
            "interrupted",
            &format!("interrupted by {}", heard.name()),
        );
        heard.exit()
    }

    fn without_answer(&self, outcome: &str, kind: &str, message: &str) {
        let mut came = json!({"outcome": outcome, "error": {"kind": kind, "message": message}});
        if let (Some(came), Some(said)) = (came.as_object_mut(), &self.said) {
            came.insert("said".to_owned(), said.as_str().into());
        }
        self.print(came);
        if let Some(said) = self.said.as_deref().filter(|_| self.form == OutputForm::Text && !self.seen) {
            self.printer.say(&format!("the reply until then:\n{}", harness_artifact::escape::text(said).trim_end()));
        }
        self.printer.error(message, &[], None);
    }

    fn print(&self, came: Json) {
        self.form.print(self.printer, as_json(came, &self.activity, self.usage));
    }
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

/// Prints what a program gets where the agent was not asked.
pub(crate) fn print_rejected(outcome: &str, kind: &str, told: &Reported, form: OutputForm, printer: Printer) {
    let error = json!({"kind": kind, "message": told.message, "hint": told.hint});
    let came = json!({"outcome": outcome, "error": error});
    form.print(printer, as_json(came, &Activity::default(), Usage::default()));
}
