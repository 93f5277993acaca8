//! `harness lock`: keeps what the artifacts are now, or shows what is not as it was kept.

use harness_artifact::diagnostic::Diagnostic;
use harness_artifact::escape;
use harness_registry::Registry;
use harness_registry::lock::{self, Drift, Kind, Lock};
use harness_wall::ClosedNames;
use serde_json::{Value as Json, json};

use super::args::{self, ProjectArgs};
use super::exit::Exit;
use super::printer::Printer;
use super::project;

pub(crate) fn run(command: &args::Lock, place: &ProjectArgs, printer: &Printer) -> Exit {
    let root = project::root(place);
    let registry = Registry::load_unlocked(&root, &project::machine(place));
    if registry.diagnostics().has_errors() {
        project::report(&registry, *printer);
        printer.error("a project with errors cannot be locked", &[], None);
        return Exit::Usage;
    }
    let now = Lock::of(&registry);
    let kept = match Registry::read_lock(&root) {
        Ok(kept) => kept,
        // One that cannot be read is written again.
        Err(wrong) if command.check => return refused(&wrong, &registry, *printer),
        Err(_) => None,
    };
    let drifts = kept.as_ref().map(|kept| kept.drifts(&now)).unwrap_or_default();
    if command.json {
        printer.json(&json!({
            "locked": kept.is_some() && drifts.is_empty(),
            "artifacts": now.entries().count(),
            "drifts": drifts.iter().map(as_json).collect::<Vec<_>>(),
        }));
    }
    if command.check {
        check(kept.as_ref(), &now, &drifts, command.json, *printer)
    } else {
        write(&root, kept.as_ref(), &now, &drifts, command.json, *printer)
    }
}

fn refused(wrong: &Diagnostic, registry: &Registry, printer: Printer) -> Exit {
    printer.say(registry.render(wrong, printer.color()).trim_end());
    Exit::Usage
}

/// Says whether everything is as it was locked.
fn check(kept: Option<&Lock>, now: &Lock, drifts: &[Drift], quiet: bool, printer: Printer) -> Exit {
    if kept.is_none() {
        printer.error(&format!("there is no `{}` here", lock::FILE), &[], Some("write one with `harness lock`"));
        return Exit::Usage;
    }
    if drifts.is_empty() {
        if !quiet {
            printer.data(&format!("matches the lock: {}", counted(now)));
        }
        return Exit::Completed;
    }
    drifts.iter().for_each(|drift| report(drift, printer));
    printer.error(
        &format!("differs from the lock: {}", plural(drifts.len(), "artifact")),
        &[],
        Some("`harness lock` accepts the changes"),
    );
    Exit::Failed
}

/// Writes the file, and says what it takes in.
fn write(
    root: &std::path::Path,
    kept: Option<&Lock>,
    now: &Lock,
    drifts: &[Drift],
    quiet: bool,
    printer: Printer,
) -> Exit {
    ClosedNames::sweep(root);
    let written = now
        .text()
        .map_err(std::io::Error::other)
        .and_then(|text| harness_sys::write_whole(&root.join(lock::FILE), &text));
    if let Err(error) = written {
        printer.error(&format!("cannot write `{}`: {error}", lock::FILE), &[], None);
        return Exit::Fault;
    }
    drifts.iter().for_each(|drift| report(drift, printer));
    if !quiet {
        let before = if kept.is_some() { format!(", {} changed", drifts.len()) } else { String::new() };
        printer.data(&format!("{}: {}{before}", lock::FILE, counted(now)));
    }
    Exit::Completed
}

/// One change for a person.
fn report(drift: &Drift, printer: Printer) {
    printer.say(&escape::line(&drift.describe()));
    for line in drift.difference().iter().flat_map(|difference| difference.lines()) {
        let shown = format!("  {}", escape::line(line));
        let color = match line.as_bytes().first() {
            Some(b'-') => Some("31"),
            Some(b'+') => Some("32"),
            _ => None,
        };
        printer.say(&color.map_or_else(|| shown.clone(), |color| printer.paint(&shown, color)));
    }
}

fn as_json(drift: &Drift) -> Json {
    let entry = drift.entry();
    let what = match drift {
        Drift::Added(_) => "added",
        Drift::Removed(_) => "removed",
        Drift::Changed { .. } => "changed",
    };
    json!({
        "kind": entry.kind, "name": entry.name, "path": entry.path, "what": what,
        "told": drift.describe(), "difference": drift.difference(),
    })
}

/// How many of each kind there are.
fn counted(lock: &Lock) -> String {
    let of = |kind| lock.entries().filter(|entry| entry.kind == kind).count();
    let kinds = [(Kind::Tool, "tool"), (Kind::Hook, "hook"), (Kind::Agent, "agent"), (Kind::Bundle, "bundle")];
    let skills = (of(Kind::Skill) > 0).then(|| plural(of(Kind::Skill), "skill"));
    kinds.into_iter().map(|(kind, noun)| plural(of(kind), noun)).chain(skills).collect::<Vec<_>>().join(", ")
}

fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
