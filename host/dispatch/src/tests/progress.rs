//! What a caller hears of its calls as they are made.

use std::sync::{Mutex, PoisonError};

use super::*;
use crate::progress::{Progress, ProgressListener};

#[derive(Debug, Default)]
struct Heard(Mutex<Vec<String>>);

impl ProgressListener for Heard {
    fn on_progress(&self, what: &Progress<'_>) {
        let line = match what {
            Progress::Began { tool, depth } => format!("{depth} {tool} began"),
            Progress::Log { script, level, message } => format!("{script} [{}] {message}", level.name()),
            Progress::Step { tool, depth, step } => format!("{depth} {tool} {step:?}"),
            Progress::Fired(dispatch) => {
                let verdicts: Vec<&str> = dispatch.hooks.iter().map(|hook| hook.verdict.name()).collect();
                format!("{}: {}", dispatch.event, verdicts.join(" "))
            }
            Progress::Ended { depth, report } => format!("{depth} {} {}", report.tool, report.outcome.name()),
            Progress::Refused { tool, depth, error } => format!("{depth} {tool} {}", error.outcome()),
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }
}

/// Calls, those that scripts make too, what hooks decide and what scripts log, in the order in which it happens; secrets are
/// replaced, and a caller that gives up hears no more.
#[tokio::test]
async fn a_caller_hears_what_happens_as_it_happens() {
    let outer = "def run(args):\n    log.info('before')\n    inner = meta.call_tool('inner', {})\n    log.warn('after')\n    return inner\n";
    let policy = "---\nmeta: { enabled: true }\nsandbox: { limits: { log_lines: 3 }, secrets: { TOKEN: { env: TOKEN, hosts: [a.test] } } }\n---\n";
    let root = folder(&[
        ("tools/outer.md", &artifact("", outer)),
        (
            "tools/inner.md",
            &artifact(
                "",
                "def run(args):\n    for n in range(5):\n        log.debug('a very secret value %d' % n)\n    return 1\n",
            ),
        ),
        ("tools/fails.md", &artifact("", "def run(args):\n    fail('no')\n")),
        (
            "hooks/says.md",
            &decides("event: tool.pre\nwhen: payload['name'] == 'inner'\n", "[log.info('hook'), allow()][1]"),
        ),
        ("harness.md", policy),
    ]);
    let system = System::default()
        .with_variables([("TOKEN".to_owned(), "a very secret value".to_owned())].into_iter().collect());
    let project =
        Project::open(root.path(), Options { system, audit: false, machine: Machine::None, ..Options::default() });
    let (project, run, heard) = (project.unwrap(), Run::new(), Arc::new(Heard::default()));
    run.set_progress(heard.clone());
    for tool in ["outer", "fails", "nothing"] {
        let _ = project.call(tool, json!({}), &run).await;
    }
    let heard = heard.0.lock().unwrap().clone();
    assert_eq!(
        heard,
        [
            "0 outer began",
            "tool.pre: skip",
            "tool outer [info] before",
            "1 inner began",
            "hook says [info] hook",
            "tool.pre: allow",
            "tool inner [debug] [redacted:TOKEN] 0",
            "tool inner [debug] [redacted:TOKEN] 1",
            "tool inner [debug] [redacted:TOKEN] 2",
            "1 inner completed",
            "tool outer [warn] after",
            "0 outer completed",
            "0 fails began",
            "tool.pre: skip",
            "0 fails failed",
            "0 nothing began",
            "0 nothing rejected",
        ]
    );
}
