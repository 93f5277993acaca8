//! Which files of the workspace are used while a server runs: what the kernel reports of them (inotify).
//!
//! Who uses a file is not reported. What the host itself looks at to build a wall is left out; what other programs do with
//! the files meanwhile is not.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Result;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use harness_policy::path::WorkspacePath;
use harness_policy::watch::Walls;
use harness_sys::changes::{Change, Changes, Scope, Use};
use harness_sys::tree::Kind;

/// Folders that are watched at most.
const MAX_FOLDERS: usize = 16_384;
/// Names in one folder.
const MAX_NAMES: usize = 1 << 20;
/// Files of which something is kept at most.
const MAX_FILES: usize = 65_536;

/// What was used, and whether that is all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) uses: BTreeMap<WorkspacePath, BTreeSet<Use>>,
    /// Why more may have been used.
    pub(crate) missed: Option<&'static str>,
}

/// A workspace that is watched.
#[derive(Debug)]
pub(crate) struct Observed {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    changes: Changes,
    root: PathBuf,
    state: Mutex<State>,
    ended: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    folders: HashMap<i32, WorkspacePath>,
    uses: BTreeMap<WorkspacePath, BTreeSet<Use>>,
    /// Walls that are planned at the moment.
    walls: usize,
    missed: Option<&'static str>,
}

impl Observed {
    /// Watches all folders of a workspace. No link is followed.
    ///
    /// # Errors
    ///
    /// Why nothing can be watched.
    pub(crate) fn start(root: &Path) -> Result<Self> {
        let (changes, root) = (Changes::new()?, harness_sys::real_path(root)?);
        let shared = Arc::new(Shared { changes, root, state: Mutex::default(), ended: AtomicBool::new(false) });
        shared.watch(&mut shared.state(), WorkspacePath::root())?;
        // Its own reading of the folders is no use.
        shared.discard(&mut shared.state());
        let of_thread = shared.clone();
        let work = move || {
            while !of_thread.ended.load(Ordering::Acquire) {
                of_thread.changes.wait(None);
                of_thread.take(&mut of_thread.state());
            }
        };
        let thread = std::thread::Builder::new().name("observed".to_owned()).spawn(work)?;
        Ok(Self { shared, thread })
    }

    /// Who hears of the walls that are built meanwhile.
    pub(crate) fn walls(&self) -> Arc<dyn Walls> {
        self.shared.clone()
    }

    /// Forgets what was used so far.
    pub(crate) fn forget(&self) {
        let mut state = self.shared.state();
        self.shared.take(&mut state);
        state.uses.clear();
    }

    /// Ends it. Gives what was used.
    pub(crate) fn end(self) -> Used {
        self.shared.ended.store(true, Ordering::Release);
        self.shared.changes.wake();
        let _ = self.thread.join();
        let mut state = self.shared.state();
        self.shared.take(&mut state);
        Used { uses: std::mem::take(&mut state.uses), missed: state.missed }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a folder and those in it.
    fn watch(&self, state: &mut State, folder: WorkspacePath) -> Result<()> {
        let mut left = vec![folder];
        while let Some(folder) = left.pop() {
            if state.folders.len() >= MAX_FOLDERS {
                state.missed = Some("the workspace has too many folders");
                return Ok(());
            }
            let path = self.root.join(folder.to_string());
            match self.changes.watch(&path, Scope::Use) {
                Ok(number) => drop(state.folders.insert(number, folder.clone())),
                Err(error) if folder.is_root() => return Err(error),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(_) => state.missed = Some("a folder cannot be watched"),
            }
            let names = match harness_sys::tree::list(&path, MAX_NAMES) {
                Ok(names) => names,
                Err(_) => {
                    state.missed = Some("a folder cannot be read");
                    continue;
                }
            };
            let folders = names.into_iter().filter(|(_, kind)| *kind == Kind::Folder);
            left.extend(folders.filter_map(|(name, _)| folder.child(name.to_str()?).ok()));
        }
        Ok(())
    }

    /// Keeps what has happened so far.
    fn take(&self, state: &mut State) {
        loop {
            let changes = self.changes.take();
            if changes.is_empty() {
                return;
            }
            if state.walls == 0 {
                changes.iter().for_each(|change| self.keep(state, change));
            }
        }
    }

    /// Drops what has happened so far.
    fn discard(&self, _: &mut State) {
        while !self.changes.take().is_empty() {}
    }

    fn keep(&self, state: &mut State, change: &Change) {
        if change.is_overflow() {
            state.missed = Some("too much happened at one time");
        }
        let (Some(folder), Some(usage)) = (state.folders.get(&change.watched), change.usage()) else { return };
        let path = match change.name.as_ref().map(|name| name.to_str()) {
            // Of a folder in it, its own folder reports what is done with it.
            None if folder.is_root() => folder.clone(),
            None | Some(None) => return,
            Some(Some(name)) => match folder.child(name) {
                Ok(path) => path,
                Err(_) => return,
            },
        };
        // A folder is opened for many things, and read to be listed; a new one is read here too, to be watched.
        let is_new = state.uses.get(&path).is_some_and(|uses| uses.contains(&Use::Replaced));
        if change.is_folder && (usage == Use::Opened || usage == Use::Read && is_new) {
            return;
        }
        if change.is_folder && usage == Use::Replaced {
            let _ = self.watch(state, path.clone());
        }
        if state.uses.len() >= MAX_FILES && !state.uses.contains_key(&path) {
            state.missed = Some("too many files were used");
            return;
        }
        state.uses.entry(path).or_default().insert(usage);
    }
}

impl Walls for Shared {
    fn planned(&self) {
        let mut state = self.state();
        self.take(&mut state);
        state.walls = state.walls.saturating_add(1);
    }

    fn built(&self) {
        let mut state = self.state();
        self.discard(&mut state);
        state.walls = state.walls.saturating_sub(1);
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests' own files")]
mod tests {
    use super::*;

    fn shown(used: &Used) -> Vec<String> {
        used.uses.iter().map(|(path, uses)| format!("{path} {uses:?}")).collect()
    }

    #[test]
    fn files_that_are_used_and_folders_that_are_listed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("docs/deep")).unwrap();
        for name in ["docs/read", "docs/deep/mapped", "docs/written", "docs/seen", "other"] {
            std::fs::write(at(name), "text").unwrap();
        }
        let observed = Observed::start(folder.path()).unwrap();
        std::fs::read(at("docs/read")).unwrap();
        drop(std::fs::File::open(at("docs/deep/mapped")).unwrap());
        std::fs::write(at("docs/written"), "more").unwrap();
        std::fs::metadata(at("docs/seen")).unwrap();
        assert_eq!(std::fs::read_dir(at("docs/deep")).unwrap().count(), 1);
        std::fs::create_dir(at("new")).unwrap();
        let used = observed.end();
        let wanted = [
            "docs/deep {Read}",
            "docs/deep/mapped {Opened}",
            "docs/read {Opened, Read}",
            "docs/written {Opened, Written}",
            "new {Replaced}",
        ];
        assert_eq!((shown(&used), used.missed), (wanted.map(str::to_owned).to_vec(), None));
    }

    #[test]
    fn what_the_host_looks_at_for_a_wall_is_no_use() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["before", "meanwhile", "after"] {
            std::fs::write(at(name), "text").unwrap();
        }
        let observed = Observed::start(folder.path()).unwrap();
        let walls = observed.walls();
        std::fs::read(at("before")).unwrap();
        walls.planned();
        std::fs::read(at("meanwhile")).unwrap();
        walls.built();
        std::fs::read(at("after")).unwrap();
        assert_eq!(shown(&observed.end()), ["after {Opened, Read}", "before {Opened, Read}"]);
    }
}
