//! `--output stream-json`: what an agent does, as lines of JSON while it happens.

use std::sync::Arc;

use harness_agent::{AgentEvent, EventSource, Listener};
use harness_artifact::escape;
use serde_json::Value as Json;

use super::super::args::OutputForm;
use super::super::printer::Printer;
use super::watch::Watch;

impl OutputForm {
    /// Prints what came of a command, where it is for programs.
    pub(crate) fn print(self, printer: Printer, mut came: Json) {
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
        if let Some(event) = harness_agent::event_as_json(what) {
            line(self.printer, &event);
        }
        self.watch.notify(what);
    }

    fn notify_from(&self, _: &EventSource<'_>, what: &AgentEvent<'_>) {
        self.notify(what);
    }
}
