//! Files of resources that clients have subscribed to, watched by the folders that they are in: a file that is replaced, as
//! editors do it, is the same resource.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use harness_policy::path::WorkspacePath;
use harness_sys::changes::{Changes, Scope};

/// A file is written in several steps: what follows a change within this time belongs to it.
const QUIET: Duration = Duration::from_millis(20);
/// How long changes without a pause are waited for.
const LONGEST: Duration = Duration::from_millis(200);

/// Gets the URI of a resource that changed.
type Raise = Arc<dyn Fn(&str) + Send + Sync>;

/// The files that are watched. Has a queue and a thread from the first one on.
#[derive(Debug, Default)]
pub(crate) struct Files {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    queue: Option<Arc<Changes>>,
    by_uri: BTreeMap<String, Watched>,
}

struct Watched {
    /// The number of its folder, and its name there.
    folder: i32,
    name: OsString,
    raise: Raise,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("uris", &self.by_uri.keys()).finish_non_exhaustive()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Files {
    /// Watches the file of a resource, where the system lets it: its folder has to be there.
    pub(crate) fn watch(
        &self,
        workspace: &str,
        path: &WorkspacePath,
        uri: &str,
        raise: impl Fn(&str) + Send + Sync + 'static,
    ) {
        let asked = Path::new(workspace).join(path.to_string());
        // A link is watched where it leads.
        let real = harness_sys::real_path(&asked).unwrap_or(asked);
        let (Some(folder), Some(name)) = (real.parent(), real.file_name()) else { return };
        let mut state = lock(&self.state);
        let Some(queue) = state.queue(&self.state) else { return };
        let Ok(folder) = queue.watch(folder, Scope::All) else { return };
        state.by_uri.insert(uri.to_owned(), Watched { folder, name: name.to_owned(), raise: Arc::new(raise) });
    }

    /// Ends it.
    pub(crate) fn unwatch(&self, uri: &str) {
        let mut state = lock(&self.state);
        let Some(Watched { folder, .. }) = state.by_uri.remove(uri) else { return };
        if let (Some(queue), false) = (&state.queue, state.by_uri.values().any(|other| other.folder == folder)) {
            queue.unwatch(folder);
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // The thread sees that nobody is left.
        if let Some(queue) = lock(&self.state).queue.take() {
            queue.wake();
        }
    }
}

impl State {
    /// The queue, whose thread is begun with it.
    fn queue(&mut self, of: &Arc<Mutex<Self>>) -> Option<Arc<Changes>> {
        if self.queue.is_none() {
            let queue = Arc::new(Changes::new().ok()?);
            let (of_thread, state) = (queue.clone(), Arc::downgrade(of));
            let work = move || run(&of_thread, &state);
            std::thread::Builder::new().name("mcp-watch".to_owned()).spawn(work).ok()?;
            self.queue = Some(queue);
        }
        self.queue.clone()
    }

    /// The resources that changes are about.
    fn about(&self, queue: &Changes) -> BTreeSet<String> {
        let mut uris = BTreeSet::new();
        for change in queue.take() {
            let is_about = |watched: &Watched| {
                let is_all = change.is_overflow() || change.is_end();
                change.is_overflow()
                    || (change.watched == watched.folder
                        && (is_all || change.name.as_ref().is_none_or(|name| *name == watched.name)))
            };
            uris.extend(self.by_uri.iter().filter(|(_, watched)| is_about(watched)).map(|(uri, _)| uri.clone()));
        }
        uris
    }
}

fn run(queue: &Changes, state: &Weak<Mutex<State>>) {
    loop {
        queue.wait(None);
        let (began, mut changed) = (Instant::now(), BTreeSet::new());
        loop {
            let Some(state) = state.upgrade() else { return };
            let more = lock(&state).about(queue);
            drop(state);
            if more.is_empty() || began.elapsed() >= LONGEST {
                changed.extend(more);
                break;
            }
            changed.extend(more);
            queue.wait(Some(QUIET));
        }
        let Some(state) = state.upgrade() else { return };
        if lock(&state).queue.is_none() {
            return;
        }
        for uri in changed {
            let raise = lock(&state).by_uri.get(&uri).map(|watched| watched.raise.clone());
            if let Some(raise) = raise {
                raise(&uri);
            }
        }
    }
}
