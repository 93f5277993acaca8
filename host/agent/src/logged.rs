//! What scripts said in a turn, in order: tools, hooks, and those that they started.

use harness_capability::log::Log;
use harness_dispatch::payload::LogLine;
use harness_dispatch::{Dispatch, Nested};

/// The lines of everything that was started.
pub(super) fn lines(nested: &[Nested]) -> Vec<LogLine> {
    let mut lines = Vec::new();
    logged(nested, &mut lines);
    lines
}

fn logged(nested: &[Nested], lines: &mut Vec<LogLine>) {
    for one in nested {
        match one {
            Nested::Event(dispatch) => logged_by_hooks(dispatch, lines),
            Nested::Call(report) => {
                report.pre.iter().for_each(|pre| logged_by_hooks(pre, lines));
                lines.extend(log_lines(&report.tool, &report.log));
                logged(&report.nested, lines);
                report.post.iter().for_each(|post| logged_by_hooks(post, lines));
            }
            Nested::Agent { nested, .. } => logged(nested, lines),
            Nested::Rest { .. } => {}
        }
    }
}

fn logged_by_hooks(dispatch: &Dispatch, lines: &mut Vec<LogLine>) {
    for hook in &dispatch.hooks {
        lines.extend(log_lines(&hook.name, &hook.log));
        logged(&hook.nested, lines);
    }
}

fn log_lines(source: &str, log: &Log) -> impl Iterator<Item = LogLine> {
    let line = move |line: &harness_capability::log::Line| LogLine {
        source: source.to_owned(),
        level: line.level.name().to_owned(),
        message: line.message.clone(),
    };
    log.lines.iter().map(line).collect::<Vec<_>>().into_iter()
}
