//! The writer of all audit logs of a process: one thread, and only while there is something that callers could not write
//! themselves.

use std::collections::VecDeque;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};

use super::files::{ROTATE, Root};
use super::log::{Log, Shared, Turn};

/// How long the thread waits for more before it ends.
const LINGER: Duration = Duration::from_secs(1);
/// How long the writer waits at its end for a lock that another process holds.
const CLOSE: Duration = Duration::from_secs(2);
/// Files of a log that has not been used for so long are closed when another log is opened, in milliseconds.
const IDLE: u64 = 10_000;
/// The part of a process's descriptors that the files of logs may take: one in so many.
const PART: u64 = 4;
/// Descriptors of an open log.
const EACH: u64 = 3;

/// Writes the audit logs of a process, one for each project. Cheap to clone; there is one in a host.
///
/// Logs take turns, each with a group of at most 64 lines, so that none waits for the flood of another. A log that another
/// process has locked is put aside until the lock is free. When the last clone and the last log are dropped, everything
/// that was accepted is written.
#[derive(Debug, Clone, Default)]
pub struct AuditWriter(Arc<Owner>);

/// Ends the thread when it is dropped.
#[derive(Default)]
pub(super) struct Owner(Arc<Inner>);

/// Without the logs: each project has the writer of all, and the logs of others are none of what it prints.
impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").finish_non_exhaustive()
    }
}

pub(super) struct Inner {
    state: Mutex<State>,
    changed: Condvar,
    /// Logs whose files are open.
    open: Mutex<Vec<Weak<Shared>>>,
    /// As many as are open at most, unless more are in use.
    most: usize,
    began: Instant,
}

#[derive(Default)]
struct State {
    /// Logs with something to write, in the order of their turns.
    ready: VecDeque<Arc<Shared>>,
    /// Logs that another process has locked, and when to try again.
    held: Vec<(Instant, Arc<Shared>)>,
    thread: Option<JoinHandle<()>>,
    running: bool,
    /// Whether the thread is to end as soon as there is nothing to write.
    resting: bool,
    /// When it is to end, whatever is left.
    end: Option<Instant>,
}

impl AuditWriter {
    /// A writer without logs. Starts nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The log in a folder. Nothing is opened yet.
    ///
    /// Two logs of one folder work, as two processes do; clones of one share their writes.
    pub fn log(&self, folder: &Path) -> Log {
        self.log_with_files_of(folder, ROTATE)
    }

    /// The log of the project in a folder, in its [`FOLDER`](crate::FOLDER). It is not written when another folder has taken
    /// that path.
    pub fn log_of(&self, root: &Path) -> Log {
        Log::new(&root.join(crate::FOLDER), Some(Root::of(root)), ROTATE, self.0.clone())
    }

    pub(super) fn log_with_files_of(&self, folder: &Path, rotate: u64) -> Log {
        Log::new(folder, None, rotate, self.0.clone())
    }

    /// Waits until there is nothing to write and the thread has ended, for a process that must have no other threads. The
    /// thread stays if another process holds the lock of a log for 2 seconds.
    pub fn rest(&self) {
        self.0.0.rest(Instant::now() + CLOSE);
    }
}

impl Owner {
    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.0
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.end(Instant::now() + CLOSE);
    }
}

impl Default for Inner {
    fn default() -> Self {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = usize::try_from((descriptors / PART / EACH).clamp(8, 256)).unwrap_or(8);
        Self { state: Mutex::default(), changed: Condvar::new(), open: Mutex::default(), most, began: Instant::now() }
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Milliseconds since the writer began.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Leaves a log to the thread, which is started if there is none.
    pub(super) fn schedule(self: &Arc<Self>, shared: Arc<Shared>, held_until: Option<Instant>) {
        let mut state = self.state();
        if !state.running {
            let inner = self.clone();
            let named = std::thread::Builder::new().name("audit-writer".to_owned());
            match named.spawn(move || inner.run()) {
                Ok(thread) => (state.thread, state.running) = (Some(thread), true),
                Err(error) => {
                    drop(state);
                    return shared.fail(&error);
                }
            }
        }
        match held_until {
            None => state.ready.push_back(shared),
            Some(until) => state.held.push((until, shared)),
        }
        drop(state);
        self.changed.notify_all();
    }

    /// The turns of the logs, until there is nothing to do for a while.
    fn run(&self) {
        while self.step() {}
    }

    /// One turn of one log. Whether there may be more.
    fn step(&self) -> bool {
        let Some(shared) = self.next() else { return false };
        let turn = shared.turn(self);
        let mut state = self.state();
        match turn {
            Turn::Idle => {}
            Turn::More => state.ready.push_back(shared),
            Turn::Held(until) => state.held.push((until, shared)),
        }
        true
    }

    /// The log whose turn it is. `None` ends the thread.
    fn next(&self) -> Option<Arc<Shared>> {
        let began = Instant::now();
        let mut state = self.state();
        loop {
            let now = Instant::now();
            if let Some(at) = state.held.iter().position(|(until, _)| *until <= now) {
                let (_, shared) = state.held.swap_remove(at);
                state.ready.push_back(shared);
                continue;
            }
            if let Some(shared) = state.ready.pop_front() {
                return Some(shared);
            }
            let held = state.held.iter().map(|(until, _)| *until).min();
            let until = match held {
                Some(_) if state.end.is_some_and(|end| end <= now) => now,
                Some(held) => held,
                None if state.resting || state.end.is_some() => now,
                None => began + LINGER,
            };
            if until <= now {
                state.running = false;
                drop(state);
                self.changed.notify_all();
                return None;
            }
            let waited = self.changed.wait_timeout(state, until - now);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends the thread when there is nothing to write, and waits for that until then.
    fn rest(&self, until: Instant) {
        let mut state = self.state();
        state.resting = true;
        self.changed.notify_all();
        while state.running {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.resting = false;
        let ended = if state.running { None } else { state.thread.take() };
        drop(state);
        ended.map(JoinHandle::join);
    }

    /// The same, and ends it then, whatever is left.
    fn end(&self, at: Instant) {
        let mut state = self.state();
        state.end = Some(at);
        let thread = state.thread.take();
        drop(state);
        self.changed.notify_all();
        // The last log may be dropped by the thread itself, with what waited for it.
        let current = std::thread::current().id();
        thread.filter(|thread| thread.thread().id() != current).map(JoinHandle::join);
    }

    /// A log has opened its files: closes those of logs that are not in use, as far as there are too many or they have been
    /// idle for long.
    pub(super) fn opened(&self, shared: &Arc<Shared>) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.now();
        let mut kept: Vec<(u64, Arc<Shared>)> = open
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|other| !Arc::ptr_eq(other, shared))
            .map(|other| (other.used(), other))
            .filter(|(used, other)| now.saturating_sub(*used) < IDLE || !other.close_if_idle())
            .collect();
        kept.sort_by_key(|(used, _)| *used);
        let mut over = kept.len().saturating_add(1).saturating_sub(self.most);
        kept.retain(|(_, other)| {
            let closed = over > 0 && other.close_if_idle();
            over = over.saturating_sub(usize::from(closed));
            !closed
        });
        *open = kept.iter().map(|(_, other)| Arc::downgrade(other)).collect();
        open.push(Arc::downgrade(shared));
    }
}

#[cfg(test)]
impl AuditWriter {
    pub(super) fn has_thread(&self) -> bool {
        self.0.0.state().running
    }

    /// One whose turns a test takes by hand.
    pub(super) fn without_thread() -> Self {
        let writer = Self::new();
        writer.0.0.state().running = true;
        writer
    }

    pub(super) fn step(&self) {
        assert!(self.0.0.step());
    }
}
