//! `harness lock`: keeps what the artifacts and servers are now, or shows what is not as it was kept.

mod servers;

use harness_artifact::diagnostic::Diagnostic;
use harness_artifact::escape;
use harness_dispatch::Fetch;
use harness_registry::lock::{self, Drift, Kind, Lock, LockedPlugin};
use harness_registry::{Proposal, Registry};
use harness_sys::digest::digest;
use harness_wall::ClosedNames;
use serde_json::{Value as Json, json};

use super::args::{self, ProjectArgs};
use super::exit::Exit;
use super::printer::Printer;
use super::project;
pub(crate) use servers::report_left_out;

pub(crate) fn run(command: &args::Lock, place: &ProjectArgs, printer: &Printer) -> Exit {
    let (root, machine) = (project::root(place), project::machine(place));
    let found = Registry::load_unlocked(&root, project::host(&machine));
    // Artifacts may name tools of servers, which are known when these have said what they are.
    let fetch = if command.fetch { Fetch::Anew } else { Fetch::Missing };
    let read = match servers::read(&root, &found, fetch, place, *printer) {
        Ok(read) => read,
        Err(exit) => return exit,
    };
    let kept = Registry::read_lock(&root);
    // Written again without them, it would drop guards in silence.
    if let Err(wrong) = &kept
        && harness_sys::read_at_most(&root.join(lock::FILE), lock::MAX_BYTES)
            .is_ok_and(|text| Lock::names_plugins(&text))
    {
        return refused(wrong, &found, *printer);
    }
    let plugins = kept.as_ref().ok().and_then(Option::as_ref).cloned().unwrap_or_default();
    // One that cannot be read now is what it was.
    let locked = |name: &String| kept.as_ref().ok()?.as_ref()?.server(name).cloned();
    let still: Vec<_> = read.failed.iter().filter_map(locked).collect();
    // With a lock in which one is missing, the project would not run.
    if still.len() < read.failed.len() {
        return Exit::Failed;
    }
    let (failed, read) = (!read.failed.is_empty(), Lock::default().with_servers(read.locked.into_iter().chain(still)));
    let read = read.with_plugins_of(&plugins);
    let registry = match read.servers().count() {
        0 => found,
        _ => {
            let proposal = Proposal { lock: Some(&read), ..Proposal::default() };
            Registry::load_proposed(&root, project::host(&machine), &proposal)
        }
    };
    if registry.diagnostics().has_errors() {
        project::report(&registry, *printer);
        printer.error("a project with errors cannot be locked", &[], None);
        return Exit::Usage;
    }
    let mut now = Lock::of(&registry).with_servers(read.servers().cloned());
    now = now.with_repositories(read.repositories().cloned());
    for plugin in read.plugins() {
        let granted = registry.policy().map(|policy| policy.granted(&plugin.source_name())).unwrap_or_default();
        now = now.with_plugin(LockedPlugin { granted: digest(&granted), ..plugin.clone() });
    }
    let kept = match kept {
        Ok(kept) => kept,
        // One that cannot be read is written again.
        Err(wrong) if command.check => return refused(&wrong, &registry, *printer),
        Err(_) => None,
    };
    let of_all = |kept: &&Lock| !kept.has_plugins_only();
    let regranted = now.plugins().filter(|plugin| {
        let was = kept.as_ref().and_then(|kept| kept.plugin(&plugin.name));
        was.is_some_and(|was| was.granted != plugin.granted)
    });
    let drifts = Drifts {
        regranted: regranted.map(LockedPlugin::source_name).collect(),
        artifacts: kept.as_ref().filter(of_all).map(|kept| kept.drifts(&now)).unwrap_or_default(),
        servers: servers::drifts(kept.as_ref(), &now),
    };
    if command.json {
        printer.json(&json!({
            "locked": kept.is_some() && drifts.count() == 0,
            "artifacts": now.entries().count(),
            "servers": now.servers().count(),
            "drifts": drifts.artifacts.iter().map(as_json).chain(drifts.servers.iter().map(servers::as_json)).collect::<Vec<_>>(),
        }));
    }
    let exit = if command.check {
        check(kept.as_ref(), &now, &drifts, command.json || failed, *printer)
    } else {
        write(&root, kept.as_ref(), &now, &drifts, command.json, *printer)
    };
    if failed && exit == Exit::Completed { Exit::Failed } else { exit }
}

/// What is not as it was locked.
struct Drifts {
    /// Plugins that are granted something else.
    regranted: Vec<String>,
    artifacts: Vec<Drift>,
    servers: Vec<servers::Drift>,
}

impl Drifts {
    fn count(&self) -> usize {
        self.artifacts.len().saturating_add(self.servers.len()).saturating_add(self.regranted.len())
    }

    fn report(&self, printer: Printer) {
        for source in &self.regranted {
            printer.say(&format!("what `sandbox.sources` grants to `{source}` differs from `{}`", lock::FILE));
        }
        self.artifacts.iter().for_each(|drift| report(drift, printer));
        self.servers.iter().for_each(|drift| servers::report(drift, printer));
    }

    /// Such as `2 artifacts, 1 server`.
    fn counted(&self) -> String {
        let counts =
            [(self.artifacts.len(), "artifact"), (self.servers.len(), "server"), (self.regranted.len(), "grant")];
        let shown = counts.into_iter().filter(|(count, _)| *count > 0).map(|(count, noun)| plural(count, noun));
        shown.collect::<Vec<_>>().join(", ")
    }
}

fn refused(wrong: &Diagnostic, registry: &Registry, printer: Printer) -> Exit {
    printer.say(registry.render(wrong, printer.color()).trim_end());
    Exit::Usage
}

/// Says whether everything is as it was locked.
fn check(kept: Option<&Lock>, now: &Lock, drifts: &Drifts, quiet: bool, printer: Printer) -> Exit {
    if kept.is_none() {
        printer.error(&format!("there is no `{}` here", lock::FILE), &[], Some("write one with `harness lock`"));
        return Exit::Usage;
    }
    if kept.is_some_and(Lock::has_plugins_only) {
        let what = format!("`{}` has plugins alone", lock::FILE);
        printer.error(&what, &[], Some("`harness lock` adds the artifacts of the project"));
        return Exit::Usage;
    }
    if drifts.count() == 0 {
        if !quiet {
            printer.data(&format!("matches the lock: {}", counted(now)));
        }
        return Exit::Completed;
    }
    drifts.report(printer);
    printer.error(
        &format!("differs from the lock: {}", drifts.counted()),
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
    drifts: &Drifts,
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
    drifts.report(printer);
    if !quiet {
        let before = if kept.is_some() { format!(", {} changed", drifts.count()) } else { String::new() };
        printer.data(&format!("{}: {}{before}", lock::FILE, counted(now)));
    }
    Exit::Completed
}

/// One change for a person.
fn report(drift: &Drift, printer: Printer) {
    printer.say(&escape::line(&drift.describe()));
    print_difference(drift.difference().as_deref(), printer);
}

/// The lines of a change, `-` for what it was.
fn print_difference(difference: Option<&str>, printer: Printer) {
    for line in difference.iter().flat_map(|difference| difference.lines()) {
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
    let servers = lock.servers().count();
    let servers = (servers > 0).then(|| plural(servers, "server"));
    let plugins = lock.plugins().count();
    let plugins = (plugins > 0).then(|| plural(plugins, "plugin"));
    kinds
        .into_iter()
        .map(|(kind, noun)| plural(of(kind), noun))
        .chain(skills)
        .chain(servers)
        .chain(plugins)
        .collect::<Vec<_>>()
        .join(", ")
}

fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
