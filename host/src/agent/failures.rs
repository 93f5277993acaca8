//! How often in a row each tool has failed an agent: one that only fails is not called for ever.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::dispatch::CallError;

/// What an agent has seen fail in its turn; of a sub-agent, in its delegation. Each tool counts for itself.
#[derive(Debug)]
pub(super) struct Failures {
    /// How often a tool may fail in a row; 0: as often as it likes.
    most: u64,
    in_a_row: Mutex<HashMap<String, u64>>,
}

impl Failures {
    pub(super) fn new(most: u64) -> Self {
        Self { most, in_a_row: Mutex::default() }
    }

    /// Begins anew.
    pub(super) fn forget(&self) {
        self.with(HashMap::clear);
    }

    /// Why a tool is not called again, where that is so.
    pub(super) fn refuse(&self, tool: &str) -> Option<CallError> {
        let failed = self.with(|all| all.get(tool).copied()).unwrap_or_default();
        (self.most > 0 && failed >= self.most).then(|| CallError::Failing(tool.to_owned(), self.most))
    }

    /// Enters how a call has ended.
    pub(super) fn enter(&self, tool: &str, failed: bool) {
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
