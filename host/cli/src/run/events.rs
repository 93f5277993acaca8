//! `--output stream-json`: what an agent does, as lines of JSON while it happens.

use std::sync::Arc;

use harness_agent::{AgentEvent, EventSource, Listener};
use harness_artifact::escape;
use serde_json::{Value as Json, json};

use super::super::args::OutputForm;
use super::super::printer::Printer;
use super::watch::Watch;

impl OutputForm {
    /// Prints what came of a command, where it is for programs.
    pub(super) fn print(self, printer: Printer, mut came: Json) {
        match self {
            Self::Text => {}
            Self::Json => printer.json(&came),
            Self::StreamJson => {
                if let Some(fields) = came.as_object_mut() {
                    fields.insert("type".to_owned(), "end".into());
                }
                line(printer, &came);
            }
        }
    }

    /// The listener of a turn whose outcome is printed in this form.
    pub(super) fn listener(self, watch: Arc<Watch>, printer: Printer) -> Arc<dyn Listener> {
        match self {
            Self::Text | Self::Json => watch,
            Self::StreamJson => Arc::new(Events { watch, printer }),
        }
    }
}

/// One line, with escapes for all that a terminal acts on or shows nothing for.
fn line(printer: Printer, json: &Json) {
    printer.data(&escape::json(&json.to_string()));
}

/// Prints events, and passes them on.
#[derive(Debug)]
struct Events {
    watch: Arc<Watch>,
    printer: Printer,
}

impl Listener for Events {
    fn notify(&self, what: &AgentEvent<'_>) {
        if let Some(event) = event(what) {
            line(self.printer, &event);
        }
        self.watch.notify(what);
    }

    fn notify_from(&self, _: &EventSource<'_>, what: &AgentEvent<'_>) {
        self.notify(what);
    }
}

/// An event as programs get it. Nothing of a reply is in it before hooks have let it pass.
fn event(what: &AgentEvent<'_>) -> Option<Json> {
    Some(match what {
        AgentEvent::Turn { agent, text, .. } => json!({"type": "turn", "agent": agent, "text": text}),
        AgentEvent::Asked { agent, round, request, .. } => {
            json!({"type": "asked", "agent": agent, "round": round, "model": request.model})
        }
        AgentEvent::Text { agent, text } => json!({"type": "text", "agent": agent, "text": text}),
        AgentEvent::Retry { agent, error, pause, attempt, of } => {
            let pause = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
            json!({
                "type": "retry", "agent": agent, "error": error, "pause_ms": pause, "attempt": attempt,
                "attempts": of,
            })
        }
        AgentEvent::Silent { agent, since } => json!({"type": "silent", "agent": agent, "seconds": since.as_secs()}),
        AgentEvent::Calls { agent, call } => {
            json!({"type": "call", "agent": agent, "id": call.id, "tool": call.name, "arguments": call.arguments})
        }
        AgentEvent::Called { agent, call, report, content, .. } => {
            let outcome = report.as_ref().map_or_else(|error| error.outcome(), |report| report.outcome.name());
            let is_error = report.as_ref().map_or(true, |report| report.is_error);
            json!({
                "type": "called", "agent": agent, "id": call.id, "tool": call.name, "outcome": outcome,
                "is_error": is_error, "content": content,
            })
        }
        AgentEvent::Delegated { agent, to, attempt, task, .. } => {
            json!({"type": "delegated", "agent": agent, "to": to, "attempt": attempt, "task": task})
        }
        AgentEvent::Step { agent, tool, step } => json!({
            "type": "progress", "agent": agent, "tool": tool, "done": step.done, "total": step.total,
            "message": step.message,
        }),
        _ => return None,
    })
}
