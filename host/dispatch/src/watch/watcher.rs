//! The thread that reads the changes of all projects of a host, and when each project is reloaded.
//!
//! A change is taken up when nothing more has changed for [`QUIET`], at the latest [`LONGEST`] after the first one. After a
//! reload the project rests as long as it took: files that change all the time take half of one thread at most. At most
//! [`MOST_RELOADS`] projects are reloaded at one time, those first whose change is oldest.

use std::collections::{BTreeMap, HashMap};
use std::io::{ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::Subject;
use harness_registry::watched::{self, Named, Watched};
use harness_sys as sys;
use harness_sys::changes::{Change, Changes, Scope};

/// An editor writes a file in several steps, and a checkout many files: what follows a change within this time belongs to it.
const QUIET: Duration = Duration::from_millis(20);
/// How long changes without a pause are waited for.
const LONGEST: Duration = Duration::from_millis(200);
/// How long changes gather before they are read: a flood of them wakes the thread no more often.
const GATHER: Duration = Duration::from_millis(1);
/// Until a thread is tried again where the system has none.
const AGAIN: Duration = Duration::from_secs(1);
/// Projects that are reloaded at one time.
const MOST_RELOADS: usize = 4;

/// Number of a project that is watched.
pub(super) type Id = u64;

/// Watches the projects of a host. Has a queue and a thread while there are any.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watcher(Arc<Mutex<Weak<Running>>>);

/// The queue and what is in it.
#[derive(Debug)]
pub(super) struct Running {
    changes: Changes,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    next: Id,
    pub(super) entries: BTreeMap<Id, Entry>,
    /// Who watches what, by the number that the kernel has for it.
    watched: HashMap<i32, Vec<Interest>>,
    reloads: usize,
    /// No project is left: the thread ends.
    ended: bool,
}

#[derive(Debug)]
pub(super) struct Entry {
    subject: Arc<Subject>,
    /// The first change that is not taken up, and the last one.
    pub(super) due: Option<(Instant, Instant)>,
    is_reloading: bool,
    rests_until: Instant,
    has_home: bool,
    /// How often it was looked at what is to be watched.
    pub(super) generation: u64,
}

#[derive(Debug)]
struct Interest {
    id: Id,
    path: PathBuf,
    what: Watched,
    /// Of the visit that found it last.
    generation: u64,
}

impl Watcher {
    /// Adds a project. Nothing of it is watched yet.
    pub(super) fn add(&self, subject: Arc<Subject>) -> Result<(Arc<Running>, Id)> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = known.upgrade() {
            let id = running.state().add(&subject);
            if let Some(id) = id {
                return Ok((running, id));
            }
        }
        let running = Arc::new(Running { changes: Changes::new()?, state: Mutex::default() });
        let id = running.state().add(&subject).unwrap_or_default();
        let of_thread = running.clone();
        std::thread::Builder::new().name("harness-watch".to_owned()).spawn(move || of_thread.run())?;
        *known = Arc::downgrade(&running);
        Ok((running, id))
    }
}

impl State {
    /// Nothing where the thread ends.
    fn add(&mut self, subject: &Arc<Subject>) -> Option<Id> {
        if self.ended {
            return None;
        }
        let id = self.next;
        self.next = self.next.saturating_add(1);
        let entry = Entry {
            subject: subject.clone(),
            due: None,
            is_reloading: false,
            rests_until: Instant::now(),
            has_home: false,
            generation: 0,
        };
        self.entries.insert(id, entry);
        Some(id)
    }

    /// Notes which projects a change is about.
    fn changed(&mut self, change: &Change, now: Instant) {
        let note = |entry: &mut Entry| entry.due = Some((entry.due.map_or(now, |(first, _)| first), now));
        if change.is_overflow() {
            return self.entries.values_mut().for_each(note);
        }
        for interest in self.watched.get(&change.watched).into_iter().flatten() {
            if let Some(entry) = self.entries.get_mut(&interest.id)
                && interest.is_about(change, entry.has_home)
            {
                note(entry);
            }
        }
        if change.is_end() {
            self.watched.remove(&change.watched);
        }
    }

    /// The next project to be reloaded, or how long there is none.
    fn next(&self, now: Instant) -> std::result::Result<Id, Option<Duration>> {
        if self.reloads >= MOST_RELOADS {
            return Err(None);
        }
        let at = |entry: &Entry| {
            let (first, last) = entry.due.filter(|_| !entry.is_reloading)?;
            Some(((last + QUIET).min(first + LONGEST).max(entry.rests_until), first))
        };
        let all = || self.entries.iter().filter_map(|(id, entry)| Some((at(entry)?, *id)));
        match all().filter(|((at, _), _)| *at <= now).min_by_key(|((_, first), _)| *first) {
            Some((_, id)) => Ok(id),
            None => Err(all().map(|((at, _), _)| at.saturating_duration_since(now)).min()),
        }
    }
}

impl Interest {
    fn is_about(&self, change: &Change, has_home: bool) -> bool {
        let name = change.name.as_deref();
        change.is_in(scope(&self.what))
            && match &self.what {
                Watched::Folder | Watched::File => true,
                // While a command runs, a folder may hold the name of a file.
                Watched::Name(own, Named::File) => name == Some(own) && !change.is_folder,
                Watched::Name(own, Named::Any) => name == Some(own),
                Watched::Name(own, Named::Home) => {
                    let home = self.path.join(own);
                    let is_there = || !sys::is_gone(&home) && !sys::is_placeholder(&home);
                    name == Some(own) && (has_home || is_there())
                }
                Watched::Artifacts { is_top } => {
                    name.is_none_or(|name| !(watched::is_hidden(name) || *is_top && watched::is_log(name)))
                }
            }
    }
}

fn scope(what: &Watched) -> Scope {
    match what {
        Watched::Folder => Scope::Folder,
        Watched::Name(..) => Scope::Names,
        Watched::File => Scope::Content,
        Watched::Artifacts { .. } => Scope::All,
    }
}

impl Running {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to watch a project anew. What was watched before is so until [`finish`](Self::finish).
    pub(super) fn begin(&self, id: Id) -> u64 {
        self.state().entries.get_mut(&id).map_or(0, |entry| {
            entry.generation = entry.generation.saturating_add(1);
            entry.generation
        })
    }

    /// Watches something for a project.
    pub(super) fn watch(&self, id: Id, generation: u64, path: &Path, what: Watched) -> Result<()> {
        // Held while it is added, so that no change is read before it is known whose it is.
        let mut state = self.state();
        if !state.entries.contains_key(&id) {
            return Ok(());
        }
        let watched = match self.changes.watch(path, scope(&what)) {
            Ok(watched) => watched,
            Err(error) => {
                return match error.kind() {
                    // It is gone or something else by now, which is a change of what it was in.
                    ErrorKind::NotFound | ErrorKind::NotADirectory => Ok(()),
                    // Closed: that it is opened is a change of its folder, where names are watched.
                    ErrorKind::PermissionDenied if !matches!(what, Watched::Name(..)) => Ok(()),
                    _ => Err(error),
                };
            }
        };
        let interests = state.watched.entry(watched).or_default();
        match interests.iter_mut().find(|one| one.id == id && one.what == what) {
            Some(known) => known.generation = generation,
            None => interests.push(Interest { id, path: path.to_owned(), what, generation }),
        }
        Ok(())
    }

    /// Watches nothing else for a project than what was added since [`begin`](Self::begin).
    pub(super) fn finish(&self, id: Id, generation: u64, has_home: bool) {
        let mut state = self.state();
        if let Some(entry) = state.entries.get_mut(&id) {
            entry.has_home = has_home;
        }
        self.forget(&mut state, |interest| interest.id == id && interest.generation != generation);
    }

    /// Watches nothing for a project.
    pub(super) fn remove(&self, id: Id) {
        let mut state = self.state();
        state.entries.remove(&id);
        self.forget(&mut state, |interest| interest.id == id);
        if state.entries.is_empty() {
            state.ended = true;
            self.changes.wake();
        }
    }

    fn forget(&self, state: &mut State, is_gone: impl Fn(&Interest) -> bool) {
        state.watched.retain(|watched, interests| {
            interests.retain(|interest| !is_gone(interest));
            if interests.is_empty() {
                self.changes.unwatch(*watched);
            }
            !interests.is_empty()
        });
    }

    fn run(self: Arc<Self>) {
        loop {
            let most = match self.due() {
                Ok(None) => return,
                Ok(Some(job)) => {
                    self.clone().start(job);
                    continue;
                }
                Err(most) => most,
            };
            self.changes.wait(most);
            let changes = self.changes.take();
            if changes.is_empty() {
                continue;
            }
            let now = Instant::now();
            let mut state = self.state();
            changes.iter().for_each(|change| state.changed(change, now));
            drop(state);
            std::thread::sleep(GATHER);
        }
    }

    /// The project that is to be reloaded, nothing where the thread ends, or how long there is nothing to do.
    fn due(&self) -> std::result::Result<Option<Id>, Option<Duration>> {
        let mut state = self.state();
        if state.ended {
            return Ok(None);
        }
        let id = state.next(Instant::now())?;
        if let Some(entry) = state.entries.get_mut(&id) {
            (entry.due, entry.is_reloading) = (None, true);
        }
        state.reloads = state.reloads.saturating_add(1);
        Ok(Some(id))
    }

    /// Reloads a project on a thread of its own.
    fn start(self: Arc<Self>, id: Id) {
        let subject = self.state().entries.get(&id).map(|entry| entry.subject.clone());
        let job = Job { running: self.clone(), id, began: Instant::now() };
        let work = move || {
            if let Some(subject) = subject {
                subject.changed(&job.running, id);
            }
        };
        if std::thread::Builder::new().name("harness-reload".to_owned()).spawn(work).is_err()
            && let Some(entry) = self.state().entries.get_mut(&id)
        {
            let now = Instant::now();
            entry.due = entry.due.or(Some((now, now)));
            entry.rests_until = now + AGAIN;
        }
    }
}

/// A reload in progress, which is over however its thread ends.
struct Job {
    running: Arc<Running>,
    id: Id,
    began: Instant,
}

impl Drop for Job {
    fn drop(&mut self) {
        let mut state = self.running.state();
        state.reloads = state.reloads.saturating_sub(1);
        let now = Instant::now();
        if let Some(entry) = state.entries.get_mut(&self.id) {
            entry.is_reloading = false;
            entry.rests_until = now + now.saturating_duration_since(self.began);
        }
        drop(state);
        self.running.changes.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(due: Option<(Instant, Instant)>, began: Instant) -> Entry {
        let subject = Subject {
            project: Weak::new(),
            listener: Mutex::new(Box::new(|_| ())),
            ended: false.into(),
            named: Mutex::default(),
        };
        let subject = Arc::new(subject);
        Entry { subject, due, is_reloading: false, rests_until: began, has_home: true, generation: 0 }
    }

    #[test]
    fn a_change_is_taken_up_when_it_is_quiet_and_at_the_latest_then() {
        let began = Instant::now();
        let after = |ms: u64| began + Duration::from_millis(ms);
        let wait = |ms: u64| Err(Some(Duration::from_millis(ms)));
        let mut state = State { entries: BTreeMap::from([(7, entry(None, began))]), ..State::default() };
        assert_eq!(state.next(began), Err(None));
        let due = |state: &mut State, due, rests: u64| {
            let entry = state.entries.get_mut(&7).unwrap();
            (entry.due, entry.rests_until) = (due, after(rests));
        };
        due(&mut state, Some((began, after(5))), 0);
        assert_eq!((state.next(after(10)), state.next(after(25))), (wait(15), Ok(7)));
        due(&mut state, Some((began, after(199))), 0);
        assert_eq!((state.next(after(199)), state.next(after(200))), (wait(1), Ok(7)));
        // It rests as long as the last reload took.
        due(&mut state, Some((began, after(5))), 300);
        assert_eq!((state.next(after(200)), state.next(after(300))), (wait(100), Ok(7)));
        // The one that waits longest comes first, and not too many at one time.
        state.entries.insert(6, entry(Some((after(1), after(1))), began));
        assert_eq!(state.next(after(300)), Ok(7));
        state.entries.get_mut(&7).unwrap().is_reloading = true;
        assert_eq!(state.next(after(300)), Ok(6));
        state.reloads = MOST_RELOADS;
        assert_eq!(state.next(after(300)), Err(None));
    }
}
