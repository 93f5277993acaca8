//! What a strand sees of what was added to its run. It looks again for each thing that it does, and its run's schedule
//! decides what it sees.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::chain::CallContext;
use super::past::{Happened, Saw};
use super::run::Added;
use harness_capability::reentry::Allowance;

/// What the places of one strand have seen last.
#[derive(Debug, Default)]
pub struct View {
    /// How often it has looked. That is the same however fast others are.
    looks: AtomicU64,
    seen: Mutex<Arc<Added>>,
}

impl View {
    /// That of a strand that begins here.
    pub fn concurrent(&self) -> Arc<Self> {
        Arc::new(Self { seen: Mutex::new(self.seen().clone()), ..Self::default() })
    }

    /// Counts from the beginning: a turn begins. What a turn did that was stopped is not counted on.
    pub fn restart(&self) {
        self.looks.store(0, Ordering::Relaxed);
    }

    fn look(&self) -> u64 {
        self.looks.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Arc<Added>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallContext {
    /// The same place now, with what is left: the run may have been added to meanwhile.
    pub async fn now(&self, left: Option<Allowance>) -> Self {
        let look = self.view.look();
        let added = self.run.schedule().see(self, look).await;
        (*self.view.seen()).clone_from(&added);
        Self { left, added, ..self.clone() }
    }

    /// Adds something of this name to the run; what is in progress resumes what it saw.
    ///
    /// # Errors
    ///
    /// Those of the change, after which nothing has changed.
    pub async fn add<E>(&self, name: &str, change: impl FnOnce(&mut Added) -> Result<(), E> + Send) -> Result<(), E>
    where
        E: Send,
    {
        let look = self.view.look();
        let (mut change, mut done) = (Some(change), Ok(()));
        let mut once = |added: &mut Added| {
            if let Some(change) = change.take() {
                done = change(added);
            }
            done.is_ok()
        };
        let (seen, next) = self.run.schedule().add(self, look, name, &mut once).await;
        *self.view.seen() = next.unwrap_or(seen);
        done
    }

    /// Reports what cannot be known by what this strand itself has done.
    pub(crate) fn tell_seen(&self, look: u64, seen: &Added, adds: Option<&str>) {
        let before = self.view.seen().additions;
        if adds.is_some() || seen.additions != before {
            let adds = adds.map(str::to_owned);
            self.tell(&Happened::Saw(&Saw { look, additions: seen.additions, adds }));
        }
    }
}
