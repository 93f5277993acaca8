//! `harness lsp`: the artifacts of projects in an editor.

use std::io::{BufReader, stdin, stdout};
use std::path::Path;

use harness_artifact::diagnostic::Diagnostics;
use harness_capability::env::Variables;
use harness_capability::system::System;
use harness_dispatch::testing::{self, Subject};
use harness_dispatch::{self as dispatch, OpenError, Options, Project};
use harness_lsp::{CaseResult, Cases, Checks, Ended};
use harness_registry::{Host, Machine, Registry, Unsaved};
use harness_sys as sys;
use harness_wall::confine::Plan;

use super::args::{Color, Lsp, ProjectArgs};
use super::exit::Exit;
use super::printer::Printer;
use super::validate::{Elsewhere, Untried};
use super::{project, test, validate};

pub(crate) fn run(command: &Lsp, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    // Which projects its documents are of, the editor says later.
    let plan = Plan::without_programs(&[], &[sys::temporary_folder()]).with_all_files();
    project::confine(&plan, &command.confine, printer)?;
    let checks = Checked { machine: project::machine(place) };
    match harness_lsp::serve(BufReader::new(stdin()), stdout(), &checks) {
        Ended::Asked => Ok(Exit::Completed),
        Ended::Gone => Ok(Exit::Failed),
        Ended::Broken(why) => {
            printer.error(&why, &[], Some("`harness lsp` is started by an editor: see docs/editors.md"));
            Err(Exit::Usage)
        }
    }
}

/// What `validate` and `test` do, for the language server.
struct Checked {
    machine: Machine,
}

impl Checks for Checked {
    fn load(&self, root: &Path, unsaved: &Unsaved) -> Registry {
        let host = Host::new(&self.machine, dispatch::plugins(&Variables::Host));
        let registry = Registry::load_unsaved(root, host, unsaved);
        // Where its hooks cannot run, checking the project says why.
        dispatch::admitted(root, registry.clone()).unwrap_or(registry)
    }

    fn problems(&self, root: &Path, registry: &Registry) -> Result<Diagnostics, String> {
        let elsewhere = Elsewhere::of(registry, root);
        validate::problems(root, registry, &elsewhere, false).map_err(|untried| match untried {
            Untried::Project(error) => error.to_string(),
            Untried::Script(message) => message,
        })
    }

    fn run_cases(&self, root: &Path, unsaved: &Unsaved, wanted: &Cases) -> Result<Vec<CaseResult>, String> {
        let (machine, unsaved) = (self.machine.clone(), unsaved.clone());
        let system = System::default().with_environment();
        let options = Options { audit: false, machine, system, unsaved, ..Options::default() };
        let project = Project::open(root, options).map_err(|error| unopened(&error))?;
        let subjects = testing::subjects(&project.loaded());
        let is_wanted = |subject: &Subject| subject.kind() == wanted.kind && subject.name() == wanted.name;
        let subject = subjects.into_iter().find(is_wanted);
        let subject = subject.ok_or_else(|| format!("there is no {} `{}`", wanted.kind, wanted.name))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
        let results = runtime.block_on(results(&subject, wanted));
        runtime.shutdown_background();
        match (&wanted.case, results.is_empty()) {
            (Some(case), true) => Err(format!("{} `{}` has no case `{case}`", wanted.kind, wanted.name)),
            _ => Ok(results),
        }
    }
}

async fn results(subject: &Subject, wanted: &Cases) -> Vec<CaseResult> {
    let mut results = Vec::new();
    let is_wanted = |name: &str| wanted.case.as_ref().is_none_or(|case| case == name);
    for case in subject.cases().iter().filter(|case| is_wanted(&case.name)) {
        let differences = match testing::run(subject, case).await {
            Ok(report) => {
                let printer = Printer::new(Color::Never);
                report
                    .differences
                    .iter()
                    .map(|one| test::difference::shown(one, printer).trim_end().to_owned())
                    .collect()
            }
            Err(why) => vec![why],
        };
        results.push(CaseResult { case: case.name.clone(), differences });
    }
    results
}

/// Why cases cannot run: the first error of the project, where it has any.
fn unopened(error: &OpenError) -> String {
    let OpenError::Artifacts(registry) = error else { return error.to_string() };
    let is_error =
        |one: &&harness_artifact::diagnostic::Diagnostic| one.severity == harness_artifact::diagnostic::Severity::Error;
    match registry.diagnostics().iter().find(is_error) {
        Some(first) => {
            let at = first.position.as_ref().map(|at| format!("{at}: ")).unwrap_or_default();
            format!("the project has errors, and no case of it runs: {at}{}", first.message)
        }
        None => error.to_string(),
    }
}
