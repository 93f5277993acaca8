//! How far tools are, a line for each step, on standard error.

use harness_artifact::escape;
use harness_capability::progress::Step;
use harness_dispatch::progress::{Progress, ProgressListener};

use super::printer::Printer;
use super::progress;

/// Prints the steps of the tool that was called; those of tools that it calls in turn are for it.
#[derive(Debug)]
pub(crate) struct Steps(pub(crate) Printer);

impl ProgressListener for Steps {
    fn on_progress(&self, what: &Progress<'_>) {
        if let Progress::Step { tool, depth: 0, step } = what {
            // Not on a line that shows what is running.
            let _quiet = progress::quiet();
            self.0.say(&self.0.paint(&escape::line(&line(tool, step)), "2"));
        }
    }
}

/// A step in words: `report: 3 of 10, reading`.
pub(crate) fn line(tool: &str, step: &Step) -> String {
    let total = step.total.map(|total| format!(" of {total}")).unwrap_or_default();
    let message = step.message.as_ref().map(|message| format!(", {message}")).unwrap_or_default();
    format!("{tool}: {}{total}{message}", step.done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_in_words() {
        let step = |done, total, message: Option<&str>| Step { done, total, message: message.map(str::to_owned) };
        for (step, expected) in [
            (step(3.0, Some(10.0), Some("reading")), "report: 3 of 10, reading"),
            (step(0.5, None, None), "report: 0.5"),
            (step(1e21, Some(1e22), Some("")), "report: 1000000000000000000000 of 10000000000000000000000, "),
        ] {
            assert_eq!(line("report", &step), expected);
        }
    }
}
