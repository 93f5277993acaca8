//! What a strand sees of what was added to its run. It looks again for each thing that it does; a run of the past sees
//! again what was seen then, anyone who is the faster now.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::chain::CallContext;
use super::past::{Happened, Saw, Seen};
use super::run::Added;
use harness_capability::reentry::Allowance;
use harness_sandbox::strand;

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

    fn seen(&self) -> MutexGuard<'_, Arc<Added>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallContext {
    /// The same place now, with what is left: the run may have been added to meanwhile.
    pub async fn now(&self, left: Option<Allowance>) -> Self {
        let look = self.view.look();
        let added = match self.again(look).await {
            Some((added, _)) => added,
            None => {
                let added = self.run.added();
                self.tell_seen(look, &added, None);
                added
            }
        };
        (*self.view.seen()).clone_from(&added);
        Self { left, added, ..self.clone() }
    }

    /// Adds something of this name to the run; what is in progress resumes what it saw.
    ///
    /// # Errors
    ///
    /// Those of the change, after which nothing has changed.
    pub async fn add<E>(&self, name: &str, change: impl FnOnce(&mut Added) -> Result<(), E>) -> Result<(), E> {
        let look = self.view.look();
        let (seen, next) = match self.again(look).await {
            Some((seen, kept)) => {
                let next = seen.changed(change);
                // Else nobody else saw it then, or nothing was added there.
                if let (true, Some(past), Ok(next)) = (kept, self.run.past(), &next) {
                    past.keep(next);
                }
                (seen, next)
            }
            None => {
                let (seen, next) = self.run.change(change);
                self.tell_seen(look, &seen, next.is_ok().then_some(name));
                (seen, next)
            }
        };
        *self.view.seen() = next.as_ref().map_or(seen, Arc::clone);
        next.map(drop)
    }

    /// What was seen in the past by this look, and whether it was added to then; nothing where that is found out again.
    async fn again(&self, look: u64) -> Option<(Arc<Added>, bool)> {
        let past = self.run.past()?;
        match past.saw(look) {
            Seen::Anew => None,
            Seen::Same => Some((self.view.seen().clone(), false)),
            Seen::Other { additions, adds } => match past.state(additions).await {
                Some(added) => Some((added, adds)),
                // What waits for an addition that nobody makes now goes no further.
                None => strand::cut().await,
            },
        }
    }

    /// Reports what cannot be known by what this strand itself has done.
    fn tell_seen(&self, look: u64, seen: &Added, adds: Option<&str>) {
        let before = self.view.seen().additions;
        if adds.is_some() || seen.additions != before {
            let adds = adds.map(str::to_owned);
            self.tell(&Happened::Saw(&Saw { look, additions: seen.additions, adds }));
        }
    }
}
