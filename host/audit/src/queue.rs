//! What waits to be done on one log, and in which groups it is done.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::entry::Entry;
use super::files::{GROUP_BYTES, GROUP_LINES};
use super::wait::Slot;

/// Entries of a log that wait at most before calls that begin wait too.
const MAX_ENTRIES: usize = 1024;
/// Bytes of them.
const MAX_BYTES: usize = 4 << 20;
/// The first pause before the lock of a log is tried again that another process holds, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(5));

/// The requests to one log, in the order they came.
#[derive(Debug, Default)]
pub(super) struct Queue {
    requests: VecDeque<Request>,
    entries: usize,
    bytes: usize,
    /// Whether a caller or the writer's thread is at work on this log. If nobody is, nothing waits.
    pub(super) active: bool,
    /// Since when another process has held the lock, and how long the writer pauses now.
    held: Option<(Instant, Duration)>,
}

#[derive(Debug)]
pub(super) struct Request {
    pub(super) work: Work,
    pub(super) slot: Arc<Slot>,
}

#[derive(Debug)]
pub(super) enum Work {
    /// To see whether a line could be appended.
    Check,
    Append(Entry),
}

impl Work {
    fn bytes(&self) -> usize {
        self.entry().map_or(0, Entry::bytes)
    }

    fn entries(&self) -> usize {
        usize::from(self.entry().is_some())
    }

    pub(super) fn entry(&self) -> Option<&Entry> {
        match self {
            Self::Check => None,
            Self::Append(entry) => Some(entry),
        }
    }
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// How many entries wait.
    pub(super) fn entries(&self) -> usize {
        self.entries
    }

    /// Whether a call that begins waits: too much is to be written, or another process holds the lock.
    pub(super) fn is_full(&self) -> bool {
        self.entries >= MAX_ENTRIES || self.bytes >= MAX_BYTES || self.held.is_some()
    }

    pub(super) fn push(&mut self, request: Request) {
        self.count(&request.work);
        self.requests.push_back(request);
    }

    /// Counts what waits to be written, until it is [done](Self::done).
    pub(super) fn count(&mut self, work: &Work) {
        self.entries = self.entries.saturating_add(work.entries());
        self.bytes = self.bytes.saturating_add(work.bytes());
    }

    /// A group was written, or cannot be.
    pub(super) fn done(&mut self, group: &[Request]) {
        for Request { work, .. } in group {
            self.entries = self.entries.saturating_sub(work.entries());
            self.bytes = self.bytes.saturating_sub(work.bytes());
        }
        self.held = None;
    }

    /// Takes what shares the next write.
    pub(super) fn group(&mut self) -> Vec<Request> {
        let (mut entries, mut bytes, mut count) = (0_usize, 0_usize, 0_usize);
        for request in &self.requests {
            entries = entries.saturating_add(request.work.entries());
            bytes = bytes.saturating_add(request.work.bytes());
            if count > 0 && (entries > GROUP_LINES || bytes > GROUP_BYTES) {
                break;
            }
            count = count.saturating_add(1);
        }
        self.requests.drain(..count).collect()
    }

    /// Another process holds the lock: puts the group back, and returns when to try again. Checks that nobody waits for
    /// any more are dropped.
    pub(super) fn put_back(&mut self, group: Vec<Request>) -> Instant {
        group.into_iter().rev().for_each(|request| self.requests.push_front(request));
        self.requests.retain(|request| request.work.entries() > 0 || Arc::strong_count(&request.slot) > 1);
        let now = Instant::now();
        let (since, pause) = self.held.map_or((now, PAUSES.0), |(since, pause)| (since, (pause * 2).min(PAUSES.1)));
        self.held = Some((since, pause));
        now + pause
    }

    /// For how long another process has held the lock.
    pub(super) fn held(&self) -> Option<Duration> {
        self.held.map(|(since, _)| since.elapsed())
    }
}
