//! Progress of the calls of a run, for the caller: what an agent's listener gets of an agent.

use std::fmt;
use std::sync::Arc;

use super::builtin::BuiltIns;
use super::chain::{CallContext, Dispatch};
use super::past::Happened;
use super::pipeline::{CallError, CallReport};
use super::run::Run;
use harness_capability::log::{Level, LogListener};
use harness_capability::progress::Step;

/// Something that happened. Secrets in it are replaced already.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// A call begins, of the embedder, an agent or a script. It may still be refused.
    Began {
        /// The tool, as its caller names it.
        tool: &'a str,
        /// Scripts that wait for it: 0 of one that no script has made.
        depth: u32,
    },
    /// A script wrote a line to its log.
    Log {
        /// The script, such as `tool deploy` or `hook guard`.
        script: &'a str,
        /// How much the line matters.
        level: Level,
        /// The line.
        message: &'a str,
    },
    /// A tool reported how far it is.
    Step {
        /// The tool.
        tool: &'a str,
        /// Scripts that wait for it: 0 of one that no script has called.
        depth: u32,
        /// What it reported.
        step: &'a Step,
    },
    /// Hooks were asked of an event.
    Fired(&'a Dispatch),
    /// A call ended. One that continues in the background ends once when it begins, with its task, and once more.
    Ended {
        /// As above.
        depth: u32,
        /// All that is known of it.
        report: &'a CallReport,
    },
    /// A call was not made.
    Refused {
        /// As above.
        tool: &'a str,
        /// As above.
        depth: u32,
        /// Why.
        error: &'a CallError,
    },
}

/// Receives the progress of the calls of a run. The calls wait for it: long work belongs on another thread.
pub trait ProgressListener: fmt::Debug + Send + Sync {
    /// This happened.
    fn on_progress(&self, what: &Progress<'_>);
}

/// Forwards the log of one script.
#[derive(Debug)]
pub(crate) struct ScriptLog {
    pub(crate) progress: Arc<dyn ProgressListener>,
    pub(crate) script: String,
}

impl LogListener for ScriptLog {
    fn line(&self, level: Level, message: &str) {
        self.progress.on_progress(&Progress::Log { script: &self.script, level, message });
    }
}

/// Forwards what the script of a tool says of itself: its log, and how far it is.
#[derive(Debug)]
pub(crate) struct ToolVoice {
    log: Option<Arc<dyn LogListener>>,
    run: Arc<Run>,
    agent: Option<Arc<dyn BuiltIns>>,
    depth: u32,
    tool: String,
}

impl ToolVoice {
    /// For a script of a tool, such as `tool deploy`, where someone listens.
    pub(crate) fn of(place: &CallContext, tool: &str, script: &str) -> Option<Arc<dyn LogListener>> {
        let log = place.run.log_listener(|| script.to_owned());
        if log.is_none() && place.built_ins.is_none() {
            return None;
        }
        let (run, agent, depth) = (place.run.clone(), place.built_ins.clone(), place.depth);
        Some(Arc::new(Self { log, run, agent, depth, tool: tool.to_owned() }))
    }
}

impl LogListener for ToolVoice {
    fn line(&self, level: Level, message: &str) {
        if let Some(log) = &self.log {
            log.line(level, message);
        }
    }

    fn step(&self, step: &Step) {
        let Self { run, agent, depth, tool, .. } = self;
        run.progress(&Progress::Step { tool, depth: *depth, step });
        if let Some(agent) = agent {
            agent.happened(&Happened::Step { tool, step });
        }
    }
}
