//! What scripts said: their lines and their warnings, on standard error.

use harness_artifact::escape;
use harness_capability::log::Log;
use harness_dispatch::{CallReport, Dispatch, Nested};
use harness_policy::limits::LimitKey;

use super::super::printer::Printer;

/// The lines of a call, in the order of its steps.
pub(crate) fn call(report: &CallReport, printer: Printer) {
    steps(report, true, printer);
}

/// The same without what agents did that it started, where that was reported as it happened.
pub(crate) fn call_apart_from_agents(report: &CallReport, printer: Printer) {
    steps(report, false, printer);
}

fn steps(report: &CallReport, agents: bool, printer: Printer) {
    report.pre.iter().for_each(|one| dispatch(one, printer));
    log(None, &report.log, printer);
    nested(&report.nested, agents, printer);
    report.post.iter().for_each(|one| dispatch(one, printer));
}

/// The lines and warnings of the hooks of an event.
pub(crate) fn dispatch(dispatch: &Dispatch, printer: Printer) {
    for hook in &dispatch.hooks {
        log(Some(&hook.name), &hook.log, printer);
        for warning in &hook.warnings {
            printer.warning(&format!("hook `{}`: {warning}", hook.name));
        }
        nested(&hook.nested, true, printer);
    }
}

fn nested(nested: &[Nested], agents: bool, printer: Printer) {
    for one in nested {
        match one {
            // An agent at work reports both itself.
            Nested::Event(event) if !agents && event.event.is_delegation() => {}
            Nested::Agent { .. } if !agents => {}
            Nested::Event(event) => dispatch(event, printer),
            Nested::Call(report) => steps(report, agents, printer),
            Nested::Agent { nested, .. } => self::nested(nested, agents, printer),
            Nested::Rest { count, .. } => {
                printer.warning(&format!("what {count} more calls and events logged was dropped"));
            }
        }
    }
}

fn log(who: Option<&str>, log: &Log, printer: Printer) {
    let who = who.map(|who| format!("{}: ", escape::line(who))).unwrap_or_default();
    for line in &log.lines {
        printer.say(&format!("[{}] {who}{}", line.level.name(), escape::text(&line.message)));
    }
    if log.dropped > 0 {
        let key = LimitKey::LogLines.facts().name;
        printer.warning(&format!("over the limit `{key}`: {} more log lines were dropped", log.dropped));
    }
}
