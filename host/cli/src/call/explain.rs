//! `--explain`: what was granted, what was used, what each host call cost, what each hook decided.

use harness_artifact::escape;
use harness_dispatch::{CallReport, Dispatch, Nested, Project, Verdict};
use harness_sandbox::outcome::{HostCall, Usage};
use harness_wall::Tier;

use super::super::grant;
use super::super::printer::Printer;

pub(crate) fn print(project: &Project, tool: &str, report: &CallReport, printer: Printer) {
    let Ok(tool) = project.tool(tool) else { return };
    let loaded = project.loaded();
    let granted = &report.grant;
    printer.say("granted if all of these layers allow it:");
    for line in grant::lines(granted) {
        printer.say(&format!("  {line}"));
    }
    if granted.exec_unconfined() {
        printer.say("commands run unconfined: no kernel wall surrounds them");
    }
    printer.say(&grant::limits(&loaded.limits(&tool, granted)));
    let usage = &report.usage;
    printer.say(&format!("used: {}", used(usage)));
    host_calls(&report.calls, usage, "  ", printer);
    nested(&report.nested, "  ", printer);
    judged(report, "", printer);
    for one in report.dispatches() {
        dispatch(one, "", printer);
    }
    let hooks_ran = report.dispatches().any(|dispatch| dispatch.hooks.iter().any(|hook| hook.verdict.ran()));
    if hooks_ran || report.verify.is_some() {
        printer.say(&format!("together: {}", used(&report.total())));
    }
}

fn used(usage: &Usage) -> String {
    format!(
        "fuel {}, {:.3} ms{}, memory {:.1} MiB at most, {} host calls, {} bytes in, {} bytes out{}",
        usage.fuel,
        usage.wall.as_secs_f64() * 1e3,
        loading(usage),
        usage.peak_memory as f64 / f64::from(1 << 20),
        usage.host_calls,
        usage.bytes_in,
        usage.bytes_out,
        match usage.tier {
            Tier::Instance => String::new(),
            Tier::Unconfined => ", commands unconfined".to_owned(),
            tier => format!(", commands behind {tier}"),
        }
    )
}

/// What was waited for before a script ran.
fn loading(usage: &Usage) -> String {
    if usage.loading.is_zero() {
        return String::new();
    }
    format!(" after {:.3} ms of loading", usage.loading.as_secs_f64() * 1e3)
}

fn host_calls(calls: &[HostCall], usage: &Usage, indent: &str, printer: Printer) {
    for call in calls {
        let (interface, function) = call.import.path();
        let refused = call.refused.as_ref().map(|why| format!(" denied: {}", escape::line(why))).unwrap_or_default();
        printer.say(&format!(
            "{indent}{interface}.{function} {}: fuel {}, {:.3} ms, {} bytes in, {} bytes out{refused}",
            escape::line(&call.subject),
            call.fuel,
            call.wall.as_secs_f64() * 1e3,
            call.bytes.0,
            call.bytes.1
        ));
    }
    let untold = usage.host_calls.saturating_sub(calls.len() as u64);
    if untold > 0 {
        printer.say(&format!("{indent}... and {untold} more"));
    }
}

/// What the hooks of an event decided, a line each.
pub(crate) fn dispatch(dispatch: &Dispatch, indent: &str, printer: Printer) {
    if dispatch.hooks.is_empty() {
        return;
    }
    printer.say(&format!("{indent}hooks on {}:", dispatch.event));
    for hook in &dispatch.hooks {
        let reason = hook.reason.as_ref().map(|why| format!(": {}", escape::line(why))).unwrap_or_default();
        let cost = match hook.verdict {
            Verdict::NotReached => String::new(),
            // Its `when` compares texts, which takes no instance.
            _ if hook.usage.fuel == 0 => " (no instance)".to_owned(),
            _ => format!(
                " (fuel {}, {:.3} ms{})",
                hook.usage.fuel,
                hook.usage.wall.as_secs_f64() * 1e3,
                loading(&hook.usage)
            ),
        };
        let (priority, verdict) = (hook.priority, hook.verdict.name());
        printer.say(&format!("{indent}  {priority:>4} {}: {verdict}{reason}{cost}", escape::line(&hook.name)));
        for warning in &hook.warnings {
            printer.say(&format!("{indent}       warning: {}", escape::line(warning)));
        }
        host_calls(&hook.calls, &hook.usage, &format!("{indent}       "), printer);
        nested(&hook.nested, &format!("{indent}       "), printer);
    }
}

/// How its `verify` judged a call.
fn judged(report: &CallReport, indent: &str, printer: Printer) {
    let Some(judged) = &report.verify else { return };
    let verdict = match &judged.refused {
        Some(why) => format!("rejected: {}", escape::line(why)),
        None => "accepted".to_owned(),
    };
    printer.say(&format!("{indent}verify: {verdict}; {}", used(&judged.usage)));
    host_calls(&judged.calls, &judged.usage, &format!("{indent}  "), printer);
    nested(&judged.nested, &format!("{indent}  "), printer);
}

fn nested(nested: &[Nested], indent: &str, printer: Printer) {
    for one in nested {
        match one {
            Nested::Event(event) if event.hooks.is_empty() => {
                printer.say(&format!("{indent}fired {}: no hook", event.event))
            }
            Nested::Event(event) => dispatch(event, indent, printer),
            Nested::Rest { count, usage } => {
                printer.say(&format!("{indent}and {count} more, which are not kept: {}", used(usage)));
            }
            Nested::Agent { name, nested: started } => {
                printer.say(&format!("{indent}agent {}", escape::line(name)));
                self::nested(started, &format!("{indent}  "), printer);
            }
            Nested::Call(report) => {
                let (tool, outcome) = (escape::line(&report.tool), report.outcome.name());
                printer.say(&format!("{indent}called {tool}: {outcome}, {}", used(&report.usage)));
                judged(report, &format!("{indent}  "), printer);
                for event in report.dispatches() {
                    dispatch(event, &format!("{indent}  "), printer);
                }
                self::nested(&report.nested, &format!("{indent}  "), printer);
            }
        }
    }
}
