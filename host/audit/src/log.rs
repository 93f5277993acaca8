//! One audit log: what its callers ask of it, and how that is done in groups.
//!
//! A caller that finds nobody at work on the log does its own work, and one group of what came meanwhile. Everything else
//! is left to the [writer](super::writer), also if another process holds the lock.

use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::entry::Entry;
use super::files::{Files, Location, Root, same};
use super::queue::{Queue, Request, Work};
use super::wait::{Slot, Wait};
use super::writer::{Inner, Owner};

/// An audit log that can be appended to, by many threads and processes at the same time. Its clones are the same log.
///
/// Files are opened when they are needed, and may be closed again while nothing is in progress.
#[derive(Debug, Clone)]
pub struct Log {
    shared: Arc<Shared>,
    /// The writer ends after the last of its logs.
    owner: Arc<Owner>,
}

/// What waits to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backlog {
    /// Entries.
    pub entries: usize,
    /// For how long another process has held the lock of the log.
    pub held: Option<Duration>,
}

#[derive(Debug)]
pub(super) struct Shared {
    folder: PathBuf,
    root: Option<Root>,
    rotate: u64,
    files: Mutex<Files>,
    queue: Mutex<Queue>,
    /// Entries that are begun share it: the files stay open until they are written.
    pin: Arc<()>,
    /// When the log was last used, in milliseconds of its writer.
    used: AtomicU64,
    /// Why an entry is not in the log.
    lost: OnceLock<String>,
}

/// What is to be done after a turn.
pub(super) enum Turn {
    /// Nothing.
    Idle,
    /// There is more to write.
    More,
    /// Another process holds the lock until then at least.
    Held(Instant),
}

impl Log {
    pub(super) fn new(folder: &Path, root: Option<Root>, rotate: u64, owner: Arc<Owner>) -> Self {
        let shared = Shared {
            folder: folder.to_owned(),
            root,
            rotate,
            files: Mutex::default(),
            queue: Mutex::default(),
            pin: Arc::new(()),
            used: AtomicU64::new(0),
            lost: OnceLock::new(),
        };
        Self { shared: Arc::new(shared), owner }
    }

    /// The folder of the log.
    pub fn folder(&self) -> &Path {
        &self.shared.folder
    }

    /// Whether the folder of the log's project is still the one that it was.
    pub fn is_in_place(&self) -> bool {
        self.shared.root.as_ref().is_none_or(Root::is_in_place)
    }

    /// Asks whether a line could be appended now, but for room on the disk. Opens the log, and creates it if there is none.
    ///
    /// The answer waits while another process holds the lock of the log, and while many entries wait to be written.
    ///
    /// # Errors
    ///
    /// What the system says; that a file is a link or not a regular one; that the log is not what was written.
    pub fn ready(&self) -> Wait {
        if !self.shared.queue().is_full() && self.shared.files().seem_ready(self.shared.location()) {
            return Wait::done_with(Ok(()));
        }
        self.submit(Work::Check)
    }

    /// An entry for this log. Until it is written or dropped the log's files stay open: if the folder is moved away
    /// meanwhile, the entry goes with it.
    ///
    /// # Errors
    ///
    /// As for [`ready`](Self::ready).
    pub fn entry(&self) -> Result<Entry> {
        let pin = self.shared.pin.clone();
        let mut files = self.shared.files();
        let opens = files.are_closed();
        let key = files.key(self.shared.location())?;
        drop(files);
        if opens {
            self.inner().opened(&self.shared);
        }
        Ok(Entry::new(key).pinned(pin))
    }

    /// Appends an entry, as one line of at most 1 MiB. Entries that one caller waits for in turn are in that order.
    ///
    /// # Errors
    ///
    /// As for [`ready`](Self::ready), and that the entry is too long or there is no room. It is not in the log then.
    pub fn append(&self, entry: Entry) -> Wait {
        self.submit(Work::Append(entry))
    }

    /// The same without waiting for it, for an entry whose caller is gone.
    pub fn leave(&self, entry: Entry) {
        drop(self.submit(Work::Append(entry)));
    }

    /// Why an entry is not in the log, if there is one that could not be written.
    pub fn lost(&self) -> Option<&str> {
        self.shared.lost.get().map(String::as_str)
    }

    /// What waits to be written.
    pub fn backlog(&self) -> Backlog {
        let queue = self.shared.queue();
        Backlog { entries: queue.entries(), held: queue.held() }
    }

    /// Waits with the thread until nothing is to be written, until then at most.
    pub fn settle(&self, until: Instant) -> Backlog {
        let active = self.shared.queue().active;
        if active {
            // It is answered after all that came before it.
            let _ = self.submit(Work::Check).block_until(Some(until));
        }
        self.backlog()
    }

    fn inner(&self) -> &Arc<Inner> {
        self.owner.inner()
    }

    fn submit(&self, work: Work) -> Wait {
        let mut queue = self.shared.queue();
        if queue.active {
            let slot = Arc::<Slot>::default();
            queue.push(Request { work, slot: slot.clone() });
            return Wait::queued(slot);
        }
        queue.active = true;
        drop(queue);
        self.shared.used.store(self.inner().now(), Ordering::Relaxed);
        let mut files = self.shared.files();
        let opens = files.are_closed();
        let done = self.shared.perform(&mut files, &work);
        drop(files);
        if opens {
            self.inner().opened(&self.shared);
        }
        let wait = match done {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let slot = Arc::<Slot>::default();
                let request = Request { work, slot: slot.clone() };
                let mut queue = self.shared.queue();
                queue.count(&request.work);
                let again = queue.put_back(vec![request]);
                drop(queue);
                self.inner().schedule(self.shared.clone(), Some(again));
                return Wait::queued(slot);
            }
            done => Wait::done_with(done),
        };
        // What came meanwhile shares the next write. What comes after that is for the writer's thread, so that no caller
        // works for others for long.
        match self.shared.turn(self.inner()) {
            Turn::Idle => {}
            Turn::More => self.inner().schedule(self.shared.clone(), None),
            Turn::Held(until) => self.inner().schedule(self.shared.clone(), Some(until)),
        }
        wait
    }
}

impl Shared {
    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn location(&self) -> Location<'_> {
        Location { folder: &self.folder, rotate: self.rotate, root: self.root.as_ref() }
    }

    /// When the log was last used.
    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Closes the files, unless something is in progress. Returns whether they are closed.
    pub(super) fn close_if_idle(&self) -> bool {
        let Ok(mut files) = self.files.try_lock() else { return false };
        if Arc::strong_count(&self.pin) > 1 {
            return false;
        }
        files.close();
        true
    }

    /// Does one thing alone.
    fn perform(&self, files: &mut Files, work: &Work) -> Result<()> {
        match work {
            Work::Check => files.check(self.location()),
            Work::Append(entry) => {
                let done = files.append_one(self.location(), entry);
                self.noted(done, files.are_deleted())
            }
        }
    }

    /// The result of an append, kept if it is an error that stays. A folder that was deleted takes its entries with it:
    /// their callers get the error, and what begins afterwards begins a new log.
    fn noted(&self, done: Result<()>, deleted: bool) -> Result<()> {
        let stays = |error: &&Error| match error.kind() {
            ErrorKind::WouldBlock => false,
            ErrorKind::NotFound => !deleted && !harness_sys::is_gone(&self.folder),
            _ => true,
        };
        if let Some(error) = done.as_ref().err().filter(stays) {
            self.lost.get_or_init(|| error.to_string());
        }
        done
    }

    /// Nobody can do what waits: answers all of it with the error.
    pub(super) fn fail(&self, error: &Error) {
        let mut queue = self.queue();
        let mut all = Vec::new();
        while !queue.is_empty() {
            all.append(&mut queue.group());
        }
        queue.active = false;
        queue.done(&all);
        drop(queue);
        for Request { work, slot } in all {
            let failed = Err(same(error));
            slot.complete(if work.entry().is_some() { self.noted(failed, false) } else { failed });
        }
    }

    /// Does the next group of what waits. To be called only by the one that is at work on this log; [`Turn::Idle`] is the
    /// end of that.
    pub(super) fn turn(self: &Arc<Self>, inner: &Inner) -> Turn {
        let mut queue = self.queue();
        let group = queue.group();
        if group.is_empty() {
            queue.active = false;
            queue.done(&group);
            return Turn::Idle;
        }
        drop(queue);
        let mut files = self.files();
        let opens = files.are_closed();
        let entries: Vec<&Entry> = group.iter().filter_map(|request| request.work.entry()).collect();
        let checked = if entries.len() < group.len() { files.check(self.location()) } else { Ok(()) };
        let held = |error: &Error| error.kind() == ErrorKind::WouldBlock;
        let done = match checked {
            Err(error) if held(&error) => Err(error),
            checked => files.append(self.location(), &entries).map(|done| (checked, done)),
        };
        let deleted = files.are_deleted();
        drop(files);
        if opens {
            inner.opened(self);
        }
        let (checked, mut done) = match done {
            Err(error) if held(&error) => return Turn::Held(self.queue().put_back(group)),
            Err(error) => {
                let done: Vec<_> = entries.iter().map(|_| Err(same(&error))).collect();
                (Err(error), done.into_iter())
            }
            Ok((checked, done)) => (checked, done.into_iter()),
        };
        let mut queue = self.queue();
        queue.done(&group);
        let more = !queue.is_empty();
        queue.active = more;
        drop(queue);
        for Request { work, slot } in group {
            slot.complete(match work {
                Work::Check => checked.as_ref().map_err(same).copied(),
                Work::Append(_) => self.noted(done.next().unwrap_or(Ok(())), deleted),
            });
        }
        if more { Turn::More } else { Turn::Idle }
    }
}

#[cfg(test)]
impl Log {
    pub(super) fn close_if_idle(&self) -> bool {
        self.shared.close_if_idle()
    }
}
