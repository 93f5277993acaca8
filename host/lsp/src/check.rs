//! Problems of projects, found in the background: the latest texts of a project once they have rested, and cases to run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use harness_artifact::diagnostic::Diagnostics;
use harness_registry::{Registry, Unsaved};

use crate::message::Id;
use crate::{CaseResult, Cases, Checks};

/// How long texts rest before they are checked.
const REST: Duration = Duration::from_millis(100);
/// How long texts that never rest wait at most.
const LONGEST: Duration = Duration::from_secs(1);
/// Runs of cases that wait.
const WAITING: usize = 16;

/// The texts of a client at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    pub(crate) unsaved: Unsaved,
    /// The versions of the open documents, by their path.
    pub(crate) versions: BTreeMap<PathBuf, i32>,
    /// How many changes there had been.
    pub(crate) changes: u64,
}

/// A project as it was checked.
#[derive(Debug, Clone)]
pub(crate) struct Checked {
    pub(crate) root: PathBuf,
    pub(crate) registry: Arc<Registry>,
    pub(crate) versions: BTreeMap<PathBuf, i32>,
    pub(crate) changes: u64,
    /// An error is why it could not be checked.
    pub(crate) problems: Result<Diagnostics, String>,
}

/// Cases that ran.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) id: Id,
    pub(crate) wanted: Cases,
    pub(crate) results: Result<Vec<CaseResult>, String>,
}

/// What waits to be done.
#[derive(Debug, Default)]
pub(crate) struct Work {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Projects to check. Of each, only the latest texts count.
    projects: BTreeMap<PathBuf, Snapshot>,
    runs: Vec<(Id, PathBuf, Unsaved, Cases)>,
    /// How often a project was added.
    added: u64,
    is_over: bool,
}

impl Work {
    /// Asks for a check of a project.
    pub(crate) fn check(&self, root: &Path, snapshot: Snapshot) {
        let mut state = self.state();
        state.projects.insert(root.to_owned(), snapshot);
        state.added = state.added.wrapping_add(1);
        self.changed.notify_all();
    }

    /// Asks for a run of cases. False where too many wait.
    pub(crate) fn run(&self, id: Id, root: &Path, unsaved: Unsaved, wanted: Cases) -> bool {
        let mut state = self.state();
        let has_room = state.runs.len() < WAITING;
        if has_room {
            state.runs.push((id, root.to_owned(), unsaved, wanted));
            self.changed.notify_all();
        }
        has_room
    }

    /// Drops a run that has not begun.
    pub(crate) fn cancel(&self, id: &Id) {
        self.state().runs.retain(|(other, ..)| other != id);
    }

    /// Ends what does the work, once it is done with what it has begun.
    pub(crate) fn end(&self) {
        self.state().is_over = true;
        self.changed.notify_all();
    }

    /// Checks projects until the end.
    pub(crate) fn check_all(&self, checks: &dyn Checks, report: impl Fn(Checked)) {
        while let Some(projects) = self.rested() {
            for (root, Snapshot { unsaved, versions, changes }) in projects {
                let registry = Arc::new(checks.load(&root, &unsaved));
                let problems = checks.problems(&root, &registry);
                report(Checked { root, registry, versions, changes, problems });
            }
        }
    }

    /// Runs cases until the end.
    pub(crate) fn run_all(&self, checks: &dyn Checks, report: impl Fn(Ran)) {
        loop {
            let mut state = self.state();
            while state.runs.is_empty() && !state.is_over {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.is_over {
                return;
            }
            let (id, root, unsaved, wanted) = state.runs.remove(0);
            drop(state);
            let results = checks.run_cases(&root, &unsaved, &wanted);
            report(Ran { id, wanted, results });
        }
    }

    /// Waits for projects to check, until none was added for a while. None at the end.
    fn rested(&self) -> Option<BTreeMap<PathBuf, Snapshot>> {
        let mut state = self.state();
        while state.projects.is_empty() && !state.is_over {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let begun = Instant::now();
        let mut seen = state.added;
        let mut since = begun;
        while !state.is_over && since.elapsed() < REST && begun.elapsed() < LONGEST {
            let left = REST.saturating_sub(since.elapsed());
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            if state.added != seen {
                (seen, since) = (state.added, Instant::now());
            }
        }
        if state.is_over { None } else { Some(std::mem::take(&mut state.projects)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
