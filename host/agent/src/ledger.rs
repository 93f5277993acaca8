//! What an agent at work has used of its budget, with all that it has started: each enters it in its own ledger and in
//! those of all above.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::error::TurnError;
use harness_artifact::located::Located;
use harness_artifact::policy::budget::Budget;
use harness_dispatch::past::Refused;
use harness_dispatch::schedule::Refusals;
use harness_provider::Usage;

/// The ledger of one task of an agent.
#[derive(Debug)]
pub(super) struct Ledger {
    budget: Budget,
    /// That of who set it to work.
    outer: Option<Arc<Ledger>>,
    /// One for the whole tree: looking and taking is one step, whoever else works.
    lock: Arc<Mutex<()>>,
    started: Instant,
    rounds: AtomicU64,
    tokens: AtomicU64,
    calls: AtomicU64,
}

/// What models' services have counted, of whatever turn, however that ended.
#[derive(Debug, Default)]
pub(super) struct Counted {
    input: AtomicU64,
    output: AtomicU64,
}

impl Counted {
    /// Adds what was counted for a request and its reply.
    pub(super) fn add(&self, usage: Usage) {
        self.input.fetch_add(usage.input_tokens, Ordering::SeqCst);
        self.output.fetch_add(usage.output_tokens, Ordering::SeqCst);
    }

    pub(super) fn usage(&self) -> Usage {
        let of = |count: &AtomicU64| count.load(Ordering::SeqCst);
        Usage { input_tokens: of(&self.input), output_tokens: of(&self.output) }
    }
}

/// Something that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    Round,
    Tokens(u64),
    Call,
}

impl Ledger {
    pub(super) fn new(budget: Budget, outer: Option<Arc<Self>>) -> Arc<Self> {
        let (rounds, tokens, calls) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let lock = outer.as_ref().map(|outer| outer.lock.clone()).unwrap_or_default();
        Arc::new(Self { budget, outer, lock, started: Instant::now(), rounds, tokens, calls })
    }

    /// This one and those above.
    fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |ledger| ledger.outer.as_deref())
    }

    /// Enters something that was used.
    pub(super) fn enter(&self, entry: Entry) {
        for ledger in self.all() {
            let (count, of) = match entry {
                Entry::Round => (&ledger.rounds, 1),
                Entry::Tokens(tokens) => (&ledger.tokens, tokens),
                Entry::Call => (&ledger.calls, 1),
            };
            count.fetch_add(of, Ordering::SeqCst);
        }
    }

    /// Enters what was used before a turn was interrupted, also in those above.
    pub(super) fn used_before(&self, rounds: u64, tokens: u64, calls: u64) {
        for ledger in self.all() {
            for (count, used) in [(&ledger.rounds, rounds), (&ledger.tokens, tokens), (&ledger.calls, calls)] {
                // A number that a record makes up does not wrap to a small one.
                count.update(Ordering::SeqCst, Ordering::SeqCst, |old| old.saturating_add(used));
            }
        }
    }

    /// Enters one more of what must not become more than allowed.
    ///
    /// # Errors
    ///
    /// Which budget does not have it; nothing is entered then.
    pub(super) fn take(&self, entry: Entry) -> Result<(), TurnError> {
        let _alone = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        for ledger in self.all() {
            match entry {
                Entry::Round => ledger.has(&ledger.rounds, "round", "rounds", ledger.budget.rounds.as_ref())?,
                Entry::Tokens(_) => ledger.has(&ledger.tokens, "token", "tokens", ledger.budget.tokens.as_ref())?,
                Entry::Call => ledger.has(&ledger.calls, "call", "calls", ledger.budget.calls.as_ref())?,
            }
        }
        self.enter(entry);
        Ok(())
    }

    fn has(
        &self,
        used: &AtomicU64,
        what: &'static str,
        key: &str,
        most: Option<&Located<u64>>,
    ) -> Result<(), TurnError> {
        let Some(most) = most else { return Ok(()) };
        let used = used.load(Ordering::SeqCst);
        if used < most.value { Ok(()) } else { Err(self.over(what, key, used, most)) }
    }

    fn over(&self, what: &'static str, key: &str, used: u64, most: &Located<u64>) -> TurnError {
        let set_by = format!("`{}.{key}` in `{}`", self.budget.key, most.position);
        TurnError::Budget { what, used, allowed: most.value, set_by }
    }

    /// When the time is over that this one and those above have.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.all().filter_map(Self::own_deadline).min()
    }

    fn own_deadline(&self) -> Option<Instant> {
        let most = self.budget.time_ms.as_ref()?;
        self.started.checked_add(Duration::from_millis(most.value))
    }

    /// Whose time is over, once it is.
    pub(super) fn too_late(&self) -> Option<TurnError> {
        let over =
            self.all().filter(|ledger| ledger.own_deadline().is_some()).min_by_key(|ledger| ledger.own_deadline())?;
        let most = over.budget.time_ms.as_ref()?;
        Some(over.over("time", "time_ms", most.value, most))
    }
}

/// What one turn takes of its budgets.
#[derive(Debug)]
pub(super) struct Purse {
    pub(super) ledger: Arc<Ledger>,
    /// How often it was given something.
    pub(super) given: u64,
    /// What it is refused.
    pub(super) refusals: Refusals,
}

impl Purse {
    pub(super) fn new(ledger: Arc<Ledger>) -> Self {
        Self { ledger, given: 0, refusals: Refusals::Counted }
    }

    /// See [`Ledger::take`].
    pub(super) fn take(&mut self, entry: Entry) -> Result<(), TurnError> {
        match &self.refusals {
            Refusals::Counted => self.ledger.take(entry)?,
            Refusals::Recorded(Some(refused)) if refused.after == self.given => return Err(again(refused)),
            Refusals::Recorded(_) => self.ledger.enter(entry),
        }
        self.given = self.given.saturating_add(1);
        Ok(())
    }

    /// Whether a model may be asked: not where all tokens are used already.
    ///
    /// # Errors
    ///
    /// Which budget does not have any left.
    pub(super) fn may_ask(&mut self) -> Result<(), TurnError> {
        self.take(Entry::Tokens(0))
    }
}

/// The same refusal.
fn again(refused: &Refused) -> TurnError {
    let what = ["round", "token", "call"].into_iter().find(|what| *what == refused.what).unwrap_or("call");
    let Refused { used, allowed, set_by, .. } = refused;
    TurnError::Budget { what, used: *used, allowed: *allowed, set_by: set_by.clone() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use harness_artifact::diagnostic::Position;

    fn budget(calls: Option<u64>) -> Budget {
        let position = Position { file: "harness.md".into(), line: 1, column: 1, length: 1 };
        Budget { calls: calls.map(|most| Located::new(most, position)), key: "budget".to_owned(), ..Budget::default() }
    }

    #[test]
    fn what_is_used_below_is_used_above() {
        let root = Ledger::new(budget(Some(3)), None);
        let child = Ledger::new(budget(Some(2)), Some(root.clone()));
        let other = Ledger::new(budget(None), Some(root.clone()));
        assert_eq!(child.take(Entry::Call), Ok(()));
        assert_eq!(child.take(Entry::Call), Ok(()));
        let over = child.take(Entry::Call).unwrap_err();
        assert_eq!(over.to_string(), "call budget used up (2 of 2): `budget.calls` in `harness.md:1:1` sets it");
        assert_eq!(other.take(Entry::Call), Ok(()));
        assert!(other.take(Entry::Call).unwrap_err().to_string().starts_with("call budget used up (3 of 3)"));
        assert!(root.take(Entry::Call).is_err());
    }

    proptest! {
        /// However agents stand below each other and whoever of them calls: nobody gets beyond the budget of any above.
        #[test]
        fn no_tree_gets_beyond_a_budget_above(
            parents in proptest::collection::vec((0_usize..8, proptest::option::of(1_u64..6)), 1..8),
            calls in proptest::collection::vec(0_usize..8, 0..60),
        ) {
            let mut ledgers: Vec<(Arc<Ledger>, Vec<usize>, Option<u64>)> = vec![(Ledger::new(budget(Some(20)), None), vec![0], Some(20))];
            for (parent, most) in parents {
                let at = ledgers.len();
                let (above, mut line, _) = ledgers[parent % at].clone();
                line.push(at);
                ledgers.push((Ledger::new(budget(most), Some(above)), line, most));
            }
            let mut made = vec![0_u64; ledgers.len()];
            for who in calls {
                let (ledger, line, _) = &ledgers[who % ledgers.len()];
                let room = line.iter().all(|at| ledgers[*at].2.is_none_or(|most| made[*at] < most));
                prop_assert_eq!(ledger.take(Entry::Call).is_ok(), room);
                if room {
                    line.iter().for_each(|at| made[*at] += 1);
                }
            }
        }
    }
}
