//! `--watch`: the cases again, whenever an artifact has changed.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use harness_dispatch::{Loaded, Options, Project};
use harness_registry::POLICIES_BESIDE;
use notify::{RecommendedWatcher, RecursiveMode, Watcher};

use super::super::args::Test;
use super::super::exit::Exit;
use super::super::printer::Printer;
use super::super::project;
use super::{TestFolder, is_artifact, once};

/// An editor writes a file in several steps; what comes within this time of the first is one change.
const SETTLE: Duration = Duration::from_millis(20);

/// Runs the cases, and again after each change, until the process is ended.
pub(super) fn run(command: &Test, folder: &Path, project: &Project, printer: Printer) -> Exit {
    match Changes::of(folder) {
        Ok(changes) => again(command, folder, project, &changes, printer),
        Err(error) => unwatched(&error, printer),
    }
}

/// The same, with changes that are watched already: one that comes while the cases run is not missed.
fn again(command: &Test, folder: &Path, project: &Project, changes: &Changes, printer: Printer) -> Exit {
    let place = TestFolder { folder, renamed: None };
    once(command, &place, project, None, printer);
    printer.say("watching for changes");
    let mut before = project.loaded();
    while changes.wait() {
        match project.reload() {
            // What was in force stays in force, and is not what was just written: there is nothing to run.
            Err(error) => {
                project::unopened(&error, printer);
            }
            Ok(()) => {
                let now = project.loaded();
                once(command, &place, project, changed(&before, &now).as_ref(), printer);
                before = now;
            }
        }
    }
    Exit::Fault
}

/// The files that were written again. None where the change can touch every artifact: another policy, an artifact that
/// is gone, or tools that may call each other.
fn changed(before: &Loaded, now: &Loaded) -> Option<BTreeSet<String>> {
    if now.policy().meta.enabled {
        return None;
    }
    let now_policy = now.registry().policy_file();
    let (before, now) = (before.registry().sources(), now.registry().sources());
    if before.keys().any(|file| !now.contains_key(file)) {
        return None;
    }
    let files: BTreeSet<String> =
        now.iter().filter(|(file, text)| before.get(*file) != Some(*text)).map(|(file, _)| file.clone()).collect();
    (!files.is_empty() && !files.contains(now_policy)).then_some(files)
}

/// Waits until a project that could not be opened can be.
pub(super) fn mended(command: &Test, folder: &Path, options: &Options, printer: Printer) -> Exit {
    let changes = match Changes::of(folder) {
        Ok(changes) => changes,
        Err(error) => return unwatched(&error, printer),
    };
    printer.say("watching for changes");
    while changes.wait() {
        match Project::open(folder, options.clone()) {
            Ok(project) => {
                return again(command, folder, &project, &changes, printer);
            }
            Err(error) => {
                project::unopened(&error, printer);
            }
        }
    }
    Exit::Fault
}

fn unwatched(error: &notify::Error, printer: Printer) -> Exit {
    printer.error(&format!("cannot watch the project: {error}"), &[], None);
    Exit::Fault
}

/// Whether a path is a policy beside the folder of artifacts.
fn is_policy(root: &Path, changed: &Path) -> bool {
    POLICIES_BESIDE.iter().any(|name| changed == root.join(name))
}

/// What the kernel reports the folder of artifacts, and of a policy beside it.
struct Changes {
    events: Receiver<()>,
    _watcher: RecommendedWatcher,
}

impl Changes {
    fn of(folder: &Path) -> notify::Result<Self> {
        let artifacts = folder.join(".harness");
        let artifacts = artifacts.canonicalize().unwrap_or(artifacts);
        let (sender, events) = mpsc::channel();
        let below = artifacts.clone();
        // A policy may be beside the folder.
        let root = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        let beside = root.clone();
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let Ok(event) = event else { return };
            let read = matches!(event.kind, notify::EventKind::Access(_));
            if !read && event.paths.iter().any(|path| is_artifact(&below, path) || is_policy(&beside, path)) {
                // Nobody waits any more only when the program ends.
                let _ = sender.send(());
            }
        })?;
        watcher.watch(&artifacts, RecursiveMode::Recursive)?;
        watcher.watch(&root, RecursiveMode::NonRecursive)?;
        Ok(Self { events, _watcher: watcher })
    }

    /// Waits for a change and until it is whole. False where nothing is watched any more.
    fn wait(&self) -> bool {
        if self.events.recv().is_err() {
            return false;
        }
        while self.events.recv_timeout(SETTLE).is_ok() {}
        true
    }
}
