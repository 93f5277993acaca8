//! `harness validate`: everything is parsed and compiled, and all that is wrong is told.

use std::path::PathBuf;

use harness::artifact::diagnostic::{Diagnostic, Severity};
use harness::dispatch::{self};
use harness::registry::Registry;
use serde_json::{Value as Json, json};

use super::args::Validate;
use super::exit::Exit;
use super::printer::Printer;
use super::progress::Progress;
use super::project;

pub(crate) fn run(command: &Validate, root: &Option<PathBuf>, printer: &Printer) -> Exit {
    let registry = Registry::load(&project::root(root.as_deref()));
    let progress = Progress::start("compiling scripts".to_owned());
    let scripts = match dispatch::check_scripts(&registry) {
        Ok(failures) => failures,
        Err(error) => {
            printer.error(&format!("cannot start the sandbox: {error:#}"), &[], Some("see `harness doctor`"));
            return Exit::Fault;
        }
    };
    drop(progress);
    let failures: Vec<Diagnostic> =
        scripts.iter().map(|failure| project::diagnostic(failure, "the script cannot be loaded")).collect();
    let all: Vec<&Diagnostic> = registry.diagnostics().into_iter().chain(&failures).collect();
    let count = |severity| all.iter().filter(|diagnostic| diagnostic.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let valid = errors == 0 && (warnings == 0 || !command.strict);
    if command.json {
        printer.json(&json!({
            "valid": valid,
            "tools": registry.tools().iter().map(|tool| &tool.name).collect::<Vec<_>>(),
            "hooks": registry.hooks().iter().map(|hook| &hook.name).collect::<Vec<_>>(),
            "problems": all.iter().map(|diagnostic| as_json(diagnostic)).collect::<Vec<_>>(),
        }));
    } else {
        for diagnostic in &all {
            printer.say(registry.render(diagnostic, printer.color()).trim_end());
        }
        let plural = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
        printer.data(&format!(
            "{}: {}, {}; {}, {}",
            if valid { "valid" } else { "invalid" },
            plural(registry.tools().len(), "tool"),
            plural(registry.hooks().len(), "hook"),
            plural(errors, "error"),
            plural(warnings, "warning"),
        ));
    }
    if valid { Exit::Completed } else { Exit::Usage }
}

fn as_json(diagnostic: &Diagnostic) -> Json {
    let position = diagnostic.position.as_ref();
    json!({
        "severity": if diagnostic.severity == Severity::Error { "error" } else { "warning" },
        "message": diagnostic.message,
        "file": position.map(|position| &*position.file),
        "line": position.map(|position| position.line),
        "column": position.map(|position| position.column),
        "hint": diagnostic.hint,
    })
}
