//! How often in a row each tool has failed an agent: one that only fails is not called for ever.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use harness_dispatch::CallError;

/// What an agent has seen fail in its turn; of a sub-agent, in its delegation. Each tool counts for itself.
#[derive(Debug)]
pub(super) struct Failures {
    /// How often a tool may fail in a row; 0: as often as it likes.
    most: u64,
    in_a_row: Mutex<HashMap<String, u64>>,
    /// How many calls in a row have failed, of whatever tools.
    all_in_a_row: AtomicU64,
}

/// Failures in a row, of whatever tools, after which an agent answers without them: at least.
const LEAST_OF_ALL: u64 = 5;
/// The same where each tool may fail as often as it likes.
const MOST_OF_ALL: u64 = 10;

impl Failures {
    pub(super) fn new(most: u64) -> Self {
        Self { most, in_a_row: Mutex::default(), all_in_a_row: AtomicU64::new(0) }
    }

    /// Begins again.
    pub(super) fn forget(&self) {
        self.with(HashMap::clear);
        self.all_in_a_row.store(0, Ordering::Relaxed);
    }

    /// Why a tool is not called again, where that is so.
    pub(super) fn refuse(&self, tool: &str) -> Option<CallError> {
        let failed = self.with(|all| all.get(tool).copied()).unwrap_or_default();
        (self.most > 0 && failed >= self.most).then(|| CallError::Failing(tool.to_owned(), self.most))
    }

    /// How many calls in a row have failed, where these are so many that another tool is not to be tried: twice as many as
    /// one tool may.
    pub(super) fn nothing_works(&self) -> Option<u64> {
        let most = if self.most == 0 { MOST_OF_ALL } else { self.most.saturating_mul(2).max(LEAST_OF_ALL) };
        let failed = self.all_in_a_row.load(Ordering::Relaxed);
        (failed >= most).then_some(failed)
    }

    /// Enters how a call has ended.
    pub(super) fn enter(&self, tool: &str, failed: bool) {
        match failed {
            true => drop(self.all_in_a_row.fetch_add(1, Ordering::Relaxed)),
            false => self.all_in_a_row.store(0, Ordering::Relaxed),
        }
        self.with(|all| match failed {
            true => {
                let times = all.entry(tool.to_owned()).or_default();
                *times = times.saturating_add(1);
            }
            false => drop(all.remove(tool)),
        });
    }

    fn with<T>(&self, work: impl FnOnce(&mut HashMap<String, u64>) -> T) -> T {
        work(&mut self.in_a_row.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
