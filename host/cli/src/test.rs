//! `harness test`: the cases that artifacts carry, run in the sandbox.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use harness_artifact::cases::Aspect;
use harness_artifact::diagnostic::Position;
use harness_artifact::escape;
use harness_artifact::event::Event;
use harness_artifact::suggest;
use harness_capability::coverage::Coverage;
use harness_capability::system::System;
use harness_dispatch::confinement;
use harness_dispatch::testing::{self, CaseReport, Subject};
use harness_dispatch::{Loaded, Options, Project};
use harness_policy::watch::{Request, Watch};
use harness_sys::{self as sys, output};
use harness_wall::confine::Plan;
use serde_json::{Value as Json, json};

use super::args::{ProjectArgs, Test};
use super::exit::Exit;
use super::printer::Printer;
use super::project;
pub(crate) use filter::Filter;
use filter::fits;

pub(crate) mod difference;
mod filter;
mod junit;
mod watch;

/// How one case went.
pub(crate) struct Ran {
    subject: Subject,
    name: String,
    position: Position,
    /// Of a hook, what it received.
    event: Option<Event>,
    /// What was asked of grants and allowed, by its source, where that is watched.
    requests: Vec<(String, Request)>,
    /// An error is why it could not be run at all.
    report: Result<CaseReport, String>,
}

impl Ran {
    pub(crate) fn passed(&self) -> bool {
        self.report.as_ref().is_ok_and(|report| report.differences.is_empty())
    }

    /// Its artifact and its name.
    pub(crate) fn shown(&self) -> String {
        format!("{} {}: {}", self.subject.kind(), self.subject.name(), self.name)
    }

    pub(crate) fn event(&self) -> Option<&Event> {
        self.event.as_ref()
    }

    pub(crate) fn requests(&self) -> &[(String, Request)] {
        &self.requests
    }
}

/// The project whose cases are run.
pub(crate) struct TestFolder<'p> {
    pub(crate) folder: &'p Path,
    /// What the names of its files begin with, and what they are shown with instead.
    pub(crate) renamed: Option<(String, String)>,
}

impl TestFolder<'_> {
    fn shown(&self, position: Position) -> Position {
        let renamed =
            self.renamed.as_ref().and_then(|(from, to)| Some((to, position.file.strip_prefix(from.as_str())?)));
        match renamed {
            Some((to, rest)) => Position { file: format!("{to}{rest}").into(), ..position },
            None => position,
        }
    }
}

/// How all of them went.
#[derive(Default)]
pub(crate) struct Results {
    cases: Vec<Ran>,
    /// Lines that were reached, by kind and name.
    coverage: BTreeMap<(&'static str, String), Coverage>,
    took: Duration,
}

impl Results {
    pub(crate) fn cases(&self) -> impl Iterator<Item = &Ran> {
        self.cases.iter()
    }

    fn failed(&self) -> usize {
        self.cases.iter().filter(|ran| !ran.passed()).count()
    }
}

pub(crate) fn run(command: &Test, place: &ProjectArgs, printer: &Printer) -> Exit {
    if command.json && command.junit.as_deref().is_some_and(junit::is_output) {
        let hint = "name a file for one of them: `--junit FILE`";
        printer.error("`--junit -` and `--json` both write to standard output", &[], Some(hint));
        return Exit::Usage;
    }
    let (machine, system) = (project::machine(place), System::default().with_environment());
    let options = Options { coverage: true, audit: false, machine, system, ..Options::default() };
    let folder = project::root(place);
    let project = match Project::open(&folder, options.clone()) {
        Ok(project) => project,
        // What is watched may be mended.
        Err(error) if !command.watch => return project::unopened(&error, *printer),
        Err(error) => {
            project::unopened(&error, *printer);
            return watch::mended(command, &folder, &options, *printer);
        }
    };
    project::report(project.loaded().registry(), *printer);
    if command.watch {
        return match project::confine(&plan(command, &folder, &project), &command.confine, *printer) {
            Ok(()) => watch::run(command, &folder, &project, *printer),
            Err(exit) => exit,
        };
    }
    of_project(command, &TestFolder { folder: &folder, renamed: None }, &project, *printer)
}

/// Runs the cases of a project that is open once.
pub(crate) fn of_project(command: &Test, place: &TestFolder<'_>, project: &Project, printer: Printer) -> Exit {
    match project::confine(&plan(command, place.folder, project), &command.confine, printer) {
        Ok(()) => once(command, place, project, None, printer),
        Err(exit) => exit,
    }
}

/// What can have cases in a project.
pub(crate) fn subjects(project: &Project) -> Vec<Subject> {
    testing::subjects(&project.loaded())
}

/// What the process keeps: the folder that the workspaces of cases are made in, and the one of the results.
fn plan(command: &Test, folder: &Path, project: &Project) -> Plan {
    let temporary = sys::temporary_folder();
    let results = command.junit.as_deref().filter(|file| !junit::is_output(file));
    // Where it cannot be written, that is said when it is to be.
    let results = results.and_then(|file| output::report_folder(file, &[folder]).ok());
    let write: Vec<PathBuf> = std::iter::once(temporary).chain(results).collect();
    let plan = Plan::without_programs(&confinement::folders(project.loaded().registry(), folder), &write);
    // What is watched may say later which files it is about.
    if command.watch { plan.with_all_files() } else { plan }
}

/// Runs the cases and shows how they went; of these files alone, where some are given.
fn once(
    command: &Test,
    place: &TestFolder<'_>,
    project: &Project,
    files: Option<&BTreeSet<String>>,
    printer: Printer,
) -> Exit {
    let loaded = project.loaded();
    let subjects = match wanted(&command.names, &loaded) {
        Ok(mut subjects) => {
            if let Some(files) = files {
                subjects.retain(|subject| touched(subject, files));
            }
            subjects
        }
        Err(unknown) => {
            let all = testing::subjects(&loaded);
            let close = suggest::closest(&unknown, all.iter().map(Subject::name));
            let hint = close
                .map_or_else(|| "`harness inspect` lists all".to_owned(), |name| format!("did you mean `{name}`?"));
            printer.error(&format!("there is no tool or hook `{unknown}`"), &[], Some(&hint));
            return Exit::Usage;
        }
    };
    let filter = Filter(&command.cases);
    if let Some(unknown) = filter.matches_none(&subjects).filter(|_| files.is_none()) {
        let hint = "`harness test --json` lists the names of all cases";
        printer.error(&format!("no case has a name that matches `{unknown}`"), &[], Some(hint));
        return Exit::Usage;
    }
    let mut results = Results::default();
    if let Err(exit) = project::block_on(all(&subjects, filter, &mut results, None), printer) {
        return exit;
    }
    for ran in &mut results.cases {
        ran.position = place.shown(ran.position.clone());
    }
    if let Some(path) = &command.junit
        && let Err(error) = junit::write(path, &results, place.folder, printer)
    {
        printer.error(&format!("cannot write `{}`: {error}", path.display()), &[], None);
        return Exit::Usage;
    }
    if command.json {
        printer.json(&as_json(&results));
    } else if !command.junit.as_deref().is_some_and(junit::is_output) {
        report(&results, &subjects, command.quiet, printer);
    }
    if results.failed() > 0 { Exit::Failed } else { Exit::Completed }
}

/// The artifacts whose names fit, or all; an error is a name that none has.
fn wanted(names: &[String], loaded: &Arc<Loaded>) -> Result<Vec<Subject>, String> {
    let all = testing::subjects(loaded);
    if let Some(unknown) = names.iter().find(|name| !all.iter().any(|subject| fits(name, subject.name()))) {
        return Err(unknown.clone());
    }
    let asked = |subject: &Subject| names.is_empty() || names.iter().any(|name| fits(name, subject.name()));
    Ok(all.into_iter().filter(asked).collect())
}

/// Whether a change of these files can change how an artifact's cases go: it is in one of them, or a case of it runs
/// hooks that could be.
fn touched(subject: &Subject, files: &BTreeSet<String>) -> bool {
    files.contains(&*subject.position().file) || subject.cases().iter().any(|case| case.given.hooks)
}

/// Runs the cases of artifacts, with what each of them asks for where a watch is named.
pub(crate) async fn all(subjects: &[Subject], filter: Filter<'_>, results: &mut Results, watch: Option<&Watch>) {
    let started = Instant::now();
    for subject in subjects {
        // What has no case could be broken, and nothing would report it.
        if filter.is_open()
            && subject.cases().is_empty()
            && let Err(why) = subject.load()
        {
            let (name, position) = ("its script is loaded".to_owned(), subject.position().clone());
            let (event, requests, report) = (None, Vec::new(), Err(why));
            results.cases.push(Ran { subject: subject.clone(), name, position, event, requests, report });
        }
        for case in subject.cases().iter().filter(|case| filter.takes(&case.name)) {
            if let Some(watch) = watch {
                watch.take();
            }
            let report = testing::run(subject, case).await;
            let requests = watch.map(|watch| watch.take().requests).unwrap_or_default();
            for (of, reached) in report.iter().flat_map(|report| &report.coverage) {
                results.coverage.entry(of.clone()).or_default().add(reached.clone());
            }
            let (name, position) = (case.name.clone(), case.position.clone());
            let event = subject.event(case);
            results.cases.push(Ran { subject: subject.clone(), name, position, event, requests, report });
        }
    }
    results.took = started.elapsed();
}

fn report(results: &Results, subjects: &[Subject], quiet: bool, printer: Printer) {
    for ran in &results.cases {
        let name = ran.shown();
        let name = escape::line(&name);
        if ran.passed() {
            if !quiet {
                printer.shown(&format!("{} {name}\n", printer.paint_data("ok  ", "32")));
            }
            continue;
        }
        printer.shown(&format!("{} {name}\n", printer.paint_data("FAIL", "1;31")));
        printer.data(&format!("     at {}", escape::line(&ran.position.to_string())));
        match &ran.report {
            Err(why) => printer.data(&format!("     {}", escape::text(why))),
            Ok(report) => {
                for one in &report.differences {
                    printer.shown(&difference::shown(one, printer));
                }
                if let Some(why) = failure(report) {
                    printer.data(&format!("     it failed: {}", escape::text(why)));
                }
            }
        }
    }
    for subject in subjects.iter().filter(|_| !quiet) {
        coverage(results, subject, printer);
    }
    let (all, failed) = (results.cases.len(), results.failed());
    let plural = if all == 1 { "" } else { "s" };
    printer.data(&format!(
        "{all} case{plural}, {} passed, {failed} failed, {:.3} s",
        all.saturating_sub(failed),
        results.took.as_secs_f64()
    ));
}

/// Why what a case is about failed, where the case does not say so itself.
fn failure(report: &CaseReport) -> Option<&str> {
    let is_shown = |aspect| report.differences.iter().any(|one| one.expected.aspect == aspect);
    let why = report.failure.as_deref().filter(|_| !report.differences.is_empty())?;
    (!is_shown(Aspect::Error) && !is_shown(Aspect::Reason)).then_some(why)
}

/// Which lines of a script no case has reached.
fn coverage(results: &Results, subject: &Subject, printer: Printer) {
    if subject.cases().is_empty() || !subject.has_script() {
        return;
    }
    let Some(coverage) = results.coverage.get(&(subject.kind(), subject.name().to_owned())) else { return };
    let missed = missed(coverage);
    let rest = if missed.is_empty() { String::new() } else { format!(", not {}", ranges(&missed)) };
    printer.data(&format!(
        "     {} {}: {} of {} lines reached{rest}",
        subject.kind(),
        escape::line(subject.name()),
        coverage.reached.len(),
        coverage.statements.len()
    ));
}

fn missed(coverage: &Coverage) -> Vec<u32> {
    coverage.statements.difference(&coverage.reached).copied().collect()
}

/// Lines as a person writes them: `3, 5-7`.
fn ranges(lines: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for line in lines {
        match ranges.last_mut() {
            Some((_, end)) if end.saturating_add(1) == *line => *end = *line,
            _ => ranges.push((*line, *line)),
        }
    }
    let shown =
        ranges.into_iter().map(|(start, end)| if start == end { start.to_string() } else { format!("{start}-{end}") });
    shown.collect::<Vec<_>>().join(", ")
}

fn as_json(results: &Results) -> Json {
    let cases = results.cases.iter().map(|ran| {
        let (differences, error, took) = match &ran.report {
            Ok(report) => {
                let differences = report.differences.iter().map(difference::as_json).collect();
                (differences, failure(report), report.took)
            }
            Err(why) => (Vec::new(), Some(why.as_str()), Duration::ZERO),
        };
        json!({
            "kind": ran.subject.kind(),
            "artifact": ran.subject.name(),
            "case": ran.name,
            "file": &*ran.position.file,
            "line": ran.position.line,
            "passed": ran.passed(),
            "differences": differences,
            "error": error,
            "wall_us": u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        })
    });
    let coverage = results.coverage.iter().map(|((kind, name), coverage)| {
        json!({
            "kind": kind,
            "artifact": name,
            "lines": coverage.statements.len(),
            "reached": coverage.reached.len(),
            "missed": missed(coverage),
        })
    });
    json!({
        "passed": results.failed() == 0,
        "cases": cases.collect::<Vec<_>>(),
        "coverage": coverage.collect::<Vec<_>>(),
    })
}

/// Whether a file that changed is one to run again for: what is in the project's folder of artifacts.
fn is_artifact(folder: &Path, changed: &Path) -> bool {
    changed.strip_prefix(folder).is_ok() && changed.extension().is_some_and(|extension| extension == "md")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_as_a_person_writes_them() {
        assert_eq!(ranges(&[3, 5, 6, 7, 9]), "3, 5-7, 9");
        assert_eq!(ranges(&[]), "");
    }

    #[test]
    fn only_artifacts_are_watched() {
        let folder = Path::new("/p/.harness");
        assert!(is_artifact(folder, Path::new("/p/.harness/tools/a.md")));
        assert!(!is_artifact(folder, Path::new("/p/.harness/tools/.a.md.swp")));
        assert!(!is_artifact(folder, Path::new("/p/README.md")));
    }
}
