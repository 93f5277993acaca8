//! Watching the files of a project: a change takes force by itself.
//!
//! One thread of a [`Host`](super::Host) reads the changes of all its projects (`watcher`) and decides when a project is
//! reloaded. A reload has a thread of its own, so that a project that takes long to load delays no other one.

mod watcher;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{Inner, OpenError, Project};
use harness_registry::watched::{self, Watched};
use harness_sys::changes::limit_hint;

pub(super) use watcher::Watcher;
use watcher::{Id, Running};

/// Times in a row that a project is loaded because the policy names other folders than the one before it.
const MOST_ROUNDS: usize = 4;

/// Watches the files of a project until it is dropped. See [`Project::watch`].
#[derive(Debug)]
#[must_use = "dropping it ends the watching"]
pub struct FileWatch {
    running: Arc<Running>,
    id: Id,
    subject: Arc<Subject>,
}

/// Why files cannot be watched, or a changed project is not in force.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The changed files cannot be loaded. The version before stays in force.
    #[error(transparent)]
    Load(#[from] OpenError),
    /// Nothing can be watched.
    #[error("cannot watch files: {0}{hint}", hint = limit_hint(.0))]
    Start(std::io::Error),
    /// Some of the files cannot be watched: changes of these do not take force by themselves.
    #[error("cannot watch `{}`: {source}{hint}", path.display(), hint = limit_hint(source))]
    Path {
        /// The folder or file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

impl From<(PathBuf, std::io::Error)> for WatchError {
    fn from((path, source): (PathBuf, std::io::Error)) -> Self {
        Self::Path { path, source }
    }
}

type Listener = Box<dyn FnMut(Result<(), WatchError>) + Send>;

/// A project that is watched.
struct Subject {
    project: Weak<Inner>,
    listener: Mutex<Listener>,
    ended: AtomicBool,
    /// What the policy names beside the project's own folder: further folders, and files of secrets.
    named: Mutex<Named>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Named {
    roots: Vec<PathBuf>,
    files: Vec<PathBuf>,
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl Project {
    /// Watches all that loading the project reads: `.harness/`, a policy beside it, `harness.lock`, the host policy, the
    /// folders that `artifact_sources` names, and files of secrets. After a change the project is [reloaded], and calls and
    /// events that begin from then on go by the new version. A project that is changed for a long time without a pause is
    /// reloaded meanwhile too.
    ///
    /// The listener gets the result of each reload: `Ok` if the new version is in force, otherwise why not. After an error
    /// the version before stays in force, and the next change that can be loaded takes force. The listener is called on a
    /// thread of the host's own, which is not one of a runtime. It holds up the next reload of this project only.
    ///
    /// The project is reloaded once before this returns: what changed since it was opened is in force then.
    ///
    /// Changes that the kernel does not report are not seen: those made by another machine on a network file system, and
    /// those written through a memory map. Watching has a thread of its own, so a process that [drops its privileges]
    /// does that first.
    ///
    /// # Errors
    ///
    /// Where the project cannot be loaded, or the files cannot be watched: then the limit is named that is reached.
    ///
    /// [reloaded]: Self::reload
    /// [drops its privileges]: harness_wall::confine
    pub fn watch(
        &self,
        listener: impl FnMut(Result<(), WatchError>) + Send + 'static,
    ) -> Result<FileWatch, WatchError> {
        let named = Mutex::new(Named::of(self));
        let project = Arc::downgrade(&self.inner);
        let listener = Mutex::new(Box::new(listener) as Listener);
        let subject = Arc::new(Subject { project, listener, ended: AtomicBool::new(false), named });
        let (running, id) = self.inner.host.watcher.add(subject.clone()).map_err(WatchError::Start)?;
        // Dropped with an error, it ends.
        let watch = FileWatch { running, id, subject };
        let mut failed = None;
        watch.subject.renew(&watch.running, id, &mut |result| failed = failed.take().or(result.err()));
        failed.map_or(Ok(watch), Err)
    }
}

impl Drop for FileWatch {
    /// Ends it without waiting for a call of the listener that has begun. A version that is being loaded does not take
    /// force.
    fn drop(&mut self) {
        self.subject.ended.store(true, Ordering::SeqCst);
        self.running.remove(self.id);
    }
}

impl Named {
    /// What the version in force names.
    fn of(project: &Project) -> Self {
        let loaded = project.loaded();
        Self { roots: loaded.parts.registry.named_roots().to_vec(), files: loaded.parts.secrets.files().to_vec() }
    }

    /// The same, and what a version names that is not in force: that it changes may mend it.
    fn and(mut self, refused: &OpenError) -> Self {
        if let OpenError::Artifacts(registry) = refused {
            let more: Vec<PathBuf> =
                registry.named_roots().iter().filter(|root| !self.roots.contains(root)).cloned().collect();
            self.roots.extend(more);
        }
        self
    }
}

impl Subject {
    /// Watches the current files, and puts them in force. `notify` gets the result, and what cannot be watched.
    fn renew(&self, running: &Running, id: Id, notify: &mut dyn FnMut(Result<(), WatchError>)) {
        for _ in 0..MOST_ROUNDS {
            let Some(inner) = self.project.upgrade() else { return running.remove(id) };
            let project = Project { inner };
            let named = self.named.lock().unwrap_or_else(PoisonError::into_inner).clone();
            // Watched before it is read: what changes from then on is another change.
            let watched = self.watch(&project, &named, running, id);
            let loaded = project.inner.reload_unless(|| self.ended.load(Ordering::SeqCst));
            let Some(loaded) = loaded.transpose() else { return };
            let mut now = Named::of(&project);
            if let Err(refused) = &loaded {
                now = now.and(refused);
            }
            let is_same = now == named;
            *self.named.lock().unwrap_or_else(PoisonError::into_inner) = now;
            // What it names newly was read before it was watched.
            if is_same || watched.is_err() {
                watched.unwrap_or_else(|error| notify(Err(error)));
                return notify(loaded.map_err(WatchError::Load));
            }
        }
    }

    fn watch(&self, project: &Project, named: &Named, running: &Running, id: Id) -> Result<(), WatchError> {
        let Inner { root, options, .. } = &*project.inner;
        let place = watched::Project { root, machine: &options.machine, roots: &named.roots, files: &named.files };
        let generation = running.begin(id);
        let has_home = watched::visit(place, &mut |path: &Path, what: Watched| {
            running.watch(id, generation, path, what).map_err(|error| WatchError::from((path.to_owned(), error)))
        });
        // Where it failed, what was watched before still is.
        let has_home = has_home?;
        running.finish(id, generation, has_home);
        Ok(())
    }

    /// The same, for the listener.
    fn changed(&self, running: &Running, id: Id) {
        self.renew(running, id, &mut |result| {
            if !self.ended.load(Ordering::SeqCst) {
                let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
                listener(result);
            }
        });
    }
}

#[cfg(test)]
mod tests;
