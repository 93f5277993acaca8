//! `run_script`: checks a script, adds the functions of the tools that it names, loads it, and runs it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value as Json;

use super::{Callable, RUN_SCRIPT};
use crate::chain::CallContext;
use crate::loaded::Unloadable;
use crate::loading::PATIENT_TIME;
use crate::reentry::Nested;
use crate::scripted::{self, Of, Standing};
use harness_artifact::lint::{self, Calls, Fault};
use harness_artifact::tool::Tool;
use harness_capability::log::Log;
use harness_capability::reentry::Allowance;
use harness_policy::grant::Grant;
use harness_policy::limits::Limits;
use harness_policy::refusal::Refusal;
use harness_sandbox::outcome::{Entry, Failure, FailureKind, Limit, LimitKind, Outcome, Report, Source, Spot, Usage};

/// The name of the file in errors.
const FILE: &str = "script";

/// Runs a script.
pub(super) async fn run(
    place: &CallContext,
    tool: &Tool,
    (grant, caller): (&Arc<Grant>, Option<&Arc<Grant>>),
    mut limits: Limits,
    arguments: &Json,
) -> (Report<String>, Vec<Nested>) {
    let text = arguments.get("script").and_then(Json::as_str).unwrap_or_default();
    let source = match compose(text, &Callable::at(place)) {
        Ok(source) => source,
        Err(failure) => return (ended(Outcome::Failed(failure), 0), Vec::new()),
    };
    let (own, began) = (Own::of(text), Instant::now());
    let time = if place.run.schedule().has_clock() { limits.left() } else { limits.timeout.max(PATIENT_TIME) };
    let left = Allowance { fuel: limits.fuel, deadline: began + time, tree: None };
    let (image, fuel) = place.loaded.load(source, place.waiter(""), grant, left).await;
    let image = match image {
        Ok(image) => image,
        Err(Unloadable::Script(failure)) => return (ended(own.outcome(Outcome::Failed(failure)), fuel), Vec::new()),
        Err(Unloadable::Late(..)) => {
            let allowed = u64::try_from(limits.timeout.as_millis()).unwrap_or(u64::MAX);
            return (ended(Outcome::Limited(Limit::of(LimitKind::Deadline, allowed)), fuel), Vec::new());
        }
        Err(Unloadable::Host(why)) => return (ended(Outcome::Fault(why), fuel), Vec::new()),
    };
    limits.fuel = limits.fuel.saturating_sub(fuel);
    limits.end_within(Some(left.deadline.saturating_duration_since(Instant::now())));
    let of = Of { tool, grant, standing: Standing::Code { caller, script: text } };
    let (mut report, nested) = scripted::run(place, of, (&image, "tool"), limits, "{}").await;
    report.outcome = own.outcome(report.outcome);
    report.usage.fuel = report.usage.fuel.saturating_add(fuel);
    (report, nested)
}

/// A report of an ending before or without an instance.
pub(super) fn ended(outcome: Outcome<String>, fuel: u64) -> Report<String> {
    let usage = Usage { fuel, ..Usage::default() };
    Report { outcome, usage, log: Log::default(), calls: Vec::new(), coverage: None }
}

/// The script as the interpreter takes it: the functions of the tools that it names are a line before its own.
fn compose(text: &str, callable: &Callable) -> Result<Source, Failure> {
    let names: BTreeMap<&str, &Arc<Tool>> = callable.tools.iter().map(|(name, tool)| (name.as_str(), tool)).collect();
    let Calls { functions, faults, bare } = lint::calls(text, &callable.functions, &names);
    if let Some(first) = faults.first() {
        return Err(wrong(first, &faults));
    }
    let functions = functions.iter().filter_map(|function| {
        let tool = callable.functions.get(function)?;
        Some(format!("{function} = meta.function({})", Json::from(tool.name.as_str())))
    });
    let functions = functions.collect::<Vec<_>>().join("; ");
    // A tool takes its arguments, and a script may have none.
    let run = if bare { "_run = run; run = lambda _: _run()\n" } else { "" };
    Ok(Source {
        file: FILE.to_owned(),
        text: format!("{functions}\n{text}\n{run}"),
        first_line: 1,
        indent: 0,
        entry: Entry::Tool,
        predicate: None,
        coverage: false,
    })
}

/// The places of an error as the script's author counts lines: without those that were added.
struct Own {
    lines: u32,
}

impl Own {
    fn of(text: &str) -> Self {
        Self { lines: u32::try_from(text.lines().count()).unwrap_or(u32::MAX) }
    }

    /// A line of the script; none of one that was added.
    fn line(&self, line: u32) -> Option<u32> {
        line.checked_sub(1).filter(|line| (1..=self.lines).contains(line))
    }

    fn failure(&self, mut failure: Failure) -> Failure {
        // What ends too early is found after the last line.
        (failure.line, failure.column) = match (failure.line, self.line(failure.line)) {
            (_, Some(line)) => (line, failure.column),
            (0 | 1, None) => (0, 0),
            (_, None) => (self.lines, 1),
        };
        failure.stack.retain_mut(|frame| {
            if frame.file != FILE {
                return true;
            }
            let line = self.line(frame.line);
            frame.line = line.unwrap_or_default();
            line.is_some()
        });
        failure
    }

    fn outcome(&self, outcome: Outcome<String>) -> Outcome<String> {
        match outcome {
            Outcome::Failed(failure) => Outcome::Failed(self.failure(failure)),
            Outcome::Denied { failure, refusal } => {
                let hint = format!("a script of `{RUN_SCRIPT}` can only call tools: let a tool do this");
                Outcome::Denied { failure: self.failure(failure), refusal: Refusal { hint, ..refusal } }
            }
            Outcome::Limited(limit) => {
                let at = limit.at.and_then(|at| Some(Spot { line: self.line(at.line)?, ..at }));
                Outcome::Limited(Limit { at, ..limit })
            }
            other => other,
        }
    }
}

/// All that is wrong with the calls of a script, at the place of the first.
fn wrong(first: &Fault, faults: &[Fault]) -> Failure {
    let message = match faults {
        [only] => format!("nothing was called: {}", only.message),
        all => {
            let all: Vec<String> =
                all.iter().map(|fault| format!("{}:{}: {}", fault.line, fault.column, fault.message)).collect();
            format!("nothing was called, and {} things are wrong: {}", all.len(), all.join("; "))
        }
    };
    let failure = Failure::without_place(FailureKind::Script, FILE, message);
    Failure { line: first.line, column: first.column, ..failure }
}
