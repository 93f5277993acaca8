//! Start-time fair queueing: who waits, in the order in which they get the next slice.
//!
//! Each waiting party has a start tag, in virtual nanoseconds. The smallest is next. What a party uses, divided by its
//! weight, is added to its tag. A party that was idle starts at the tag of the one that was served last, so that idling
//! saves nothing up. Source: Goyal, Vin and Cheng, "Start-time Fair Queuing", SIGCOMM 1996.
//!
//! A [`Tree`] is such a queue of projects, each of them one of runs, and each of those one of calls.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// The weight of a project that has no other.
pub(crate) const WEIGHT: u32 = 100;

/// Idle parties that start where a new one does are forgotten when a level has more parties than this, and twice as many
/// as wait.
const KEPT: usize = 64;
/// All idle parties are, with what they have used, when there are this many more.
const MOST: usize = 4096;

/// One level.
#[derive(Debug)]
struct Level<K> {
    /// The start tag of the party that was served last.
    now: u64,
    arrivals: u64,
    /// By start tag, then by arrival.
    waiting: BTreeSet<(u64, u64, K)>,
    parties: HashMap<K, Account>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Account {
    /// Where its next slice starts.
    tag: u64,
    /// Its key among those who wait.
    waits: Option<(u64, u64)>,
}

impl<K: Copy + Ord + Hash> Level<K> {
    fn new() -> Self {
        Self { now: 0, arrivals: 0, waiting: BTreeSet::new(), parties: HashMap::new() }
    }

    /// Lets a party wait, unless it does.
    fn wait(&mut self, party: K) {
        let known = self.parties.entry(party).or_default();
        if known.waits.is_none() {
            known.tag = known.tag.max(self.now);
            let key = (known.tag, self.arrivals);
            self.arrivals += 1;
            known.waits = Some(key);
            self.waiting.insert((key.0, key.1, party));
        }
    }

    fn first(&self) -> Option<K> {
        self.waiting.first().map(|(_, _, party)| *party)
    }

    /// Takes a party out of those who wait.
    fn leave(&mut self, party: K) {
        if let Some((tag, arrival)) = self.parties.get_mut(&party).and_then(|known| known.waits.take()) {
            self.waiting.remove(&(tag, arrival, party));
        }
    }

    /// A party is served: those who come from now on start no earlier.
    fn served(&mut self, party: K) {
        let tag = self.parties.entry(party).or_default().tag;
        self.now = self.now.max(tag);
    }

    /// Adds to what a party has used.
    fn charge(&mut self, party: K, cost: u64) {
        let now = self.now;
        let known = self.parties.entry(party).or_default();
        known.tag = known.tag.max(now).saturating_add(cost);
        if let Some((tag, arrival)) = known.waits {
            self.waiting.remove(&(tag, arrival, party));
            known.waits = Some((known.tag, arrival));
            self.waiting.insert((known.tag, arrival, party));
        }
        self.forget();
    }

    /// Forgets parties that do not wait and that would start where a new one does.
    fn forget(&mut self) {
        if self.parties.len() > KEPT.max(2 * self.waiting.len()) {
            let now = self.now;
            self.parties.retain(|_, known| known.waits.is_some() || known.tag > now);
            if self.parties.len() > MOST.max(2 * self.waiting.len()) {
                self.parties.retain(|_, known| known.waits.is_some());
            }
        }
    }
}

/// A call, with the run and the project that it is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Party {
    pub(crate) project: u64,
    pub(crate) run: u64,
    pub(crate) call: u64,
}

/// The calls that wait for a slice.
#[derive(Debug)]
pub(crate) struct Tree {
    projects: Level<u64>,
    runs: HashMap<u64, Level<u64>>,
    calls: HashMap<(u64, u64), Level<u64>>,
}

impl Tree {
    pub(crate) fn new() -> Self {
        Self { projects: Level::new(), runs: HashMap::new(), calls: HashMap::new() }
    }

    /// Whether nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.projects.waiting.is_empty()
    }

    /// Whether calls of more than one project wait.
    #[cfg(test)]
    fn projects(&self) -> usize {
        self.projects.waiting.len()
    }

    /// Lets a call wait, unless it does.
    pub(crate) fn wait(&mut self, party: Party) {
        self.calls.entry((party.project, party.run)).or_insert_with(Level::new).wait(party.call);
        self.runs.entry(party.project).or_insert_with(Level::new).wait(party.run);
        self.projects.wait(party.project);
    }

    /// Takes a call out of those who wait.
    pub(crate) fn leave(&mut self, party: Party) {
        let Some(calls) = self.calls.get_mut(&(party.project, party.run)) else { return };
        calls.leave(party.call);
        if !calls.waiting.is_empty() {
            return;
        }
        let Some(runs) = self.runs.get_mut(&party.project) else { return };
        runs.leave(party.run);
        if runs.waiting.is_empty() {
            self.projects.leave(party.project);
        }
    }

    /// Takes out the call that is next.
    pub(crate) fn next(&mut self) -> Option<Party> {
        let project = self.projects.first()?;
        let run = self.runs.get(&project)?.first()?;
        let call = self.calls.get(&(project, run))?.first()?;
        let party = Party { project, run, call };
        self.served(party);
        self.leave(party);
        Some(party)
    }

    /// A call gets a slice without having waited.
    pub(crate) fn served(&mut self, party: Party) {
        self.projects.served(party.project);
        if let Some(runs) = self.runs.get_mut(&party.project) {
            runs.served(party.run);
        }
        if let Some(calls) = self.calls.get_mut(&(party.project, party.run)) {
            calls.served(party.call);
        }
    }

    /// A slice is over, in which a call used this many nanoseconds. Weights count between projects.
    pub(crate) fn charge(&mut self, party: Party, weight: u32, used: u64) {
        self.projects.charge(party.project, used.saturating_mul(u64::from(WEIGHT)) / u64::from(weight.max(1)));
        // Within a project that nobody waits in, there is no order to keep.
        if let Some(runs) = self.runs.get_mut(&party.project) {
            runs.charge(party.run, used);
        }
        if let Some(calls) = self.calls.get_mut(&(party.project, party.run)) {
            calls.charge(party.call, used);
        }
    }

    /// Nobody waits and nobody is served: what was used so far counts no more.
    pub(crate) fn idle(&mut self) {
        self.projects.parties.clear();
    }

    /// A call has ended.
    pub(crate) fn ended(&mut self, party: Party) {
        self.leave(party);
        let key = (party.project, party.run);
        if let Some(calls) = self.calls.get_mut(&key) {
            calls.parties.remove(&party.call);
            if calls.parties.is_empty() {
                self.calls.remove(&key);
            }
        }
        let now = self.projects.now;
        let idle = |account: &Account| account.waits.is_none();
        if let Some(runs) = self.runs.get_mut(&party.project) {
            // What a run has used counts only while another of its project waits.
            if !self.calls.contains_key(&key) && runs.waiting.is_empty() {
                self.runs.remove(&party.project);
            }
        }
        if !self.runs.contains_key(&party.project)
            && self.projects.parties.get(&party.project).is_some_and(|account| idle(account) && account.tag <= now)
        {
            self.projects.parties.remove(&party.project);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SLICE: u64 = 250_000;

    fn party(project: u64, run: u64, call: u64) -> Party {
        Party { project, run, call }
    }

    /// What each call gets of this many slices, where all of them always want one.
    fn served(all: &[(Party, u32)], slices: u64) -> HashMap<Party, u64> {
        let mut tree = Tree::new();
        all.iter().for_each(|(party, _)| tree.wait(*party));
        let mut got = HashMap::new();
        for _ in 0..slices {
            let next = tree.next().unwrap();
            let weight = all.iter().find(|(party, _)| *party == next).unwrap().1;
            tree.charge(next, weight, SLICE);
            *got.entry(next).or_default() += SLICE;
            tree.wait(next);
        }
        got
    }

    fn of_project(got: &HashMap<Party, u64>, project: u64) -> u64 {
        got.iter().filter(|(party, _)| party.project == project).map(|(_, used)| used).sum()
    }

    #[test]
    fn a_project_of_one_call_gets_as_much_as_one_of_a_thousand() {
        let mut all: Vec<(Party, u32)> = (0..1000).map(|call| (party(1, 1, call), WEIGHT)).collect();
        all.push((party(2, 1, 0), WEIGHT));
        let got = served(&all, 1000);
        assert_eq!((of_project(&got, 1), of_project(&got, 2)), (500 * SLICE, 500 * SLICE));
    }

    #[test]
    fn a_run_of_one_call_gets_as_much_as_another_of_its_project() {
        let mut all: Vec<(Party, u32)> = (0..100).map(|call| (party(1, 1, call), WEIGHT)).collect();
        all.push((party(1, 2, 1000), WEIGHT));
        let got = served(&all, 200);
        assert_eq!(got[&party(1, 2, 1000)], 100 * SLICE);
    }

    #[test]
    fn weights_are_kept() {
        let all = [(party(1, 1, 1), 100), (party(2, 1, 2), 200), (party(3, 1, 3), 700)];
        let got = served(&all, 1000);
        assert_eq!([1, 2, 3].map(|project| of_project(&got, project) / SLICE), [100, 200, 700]);
    }

    #[test]
    fn who_comes_late_is_next_and_has_saved_nothing_up() {
        let mut tree = Tree::new();
        let (busy, late) = (party(1, 1, 1), party(2, 1, 2));
        tree.wait(busy);
        for _ in 0..1000 {
            assert_eq!(tree.next(), Some(busy));
            tree.charge(busy, WEIGHT, SLICE);
            tree.wait(busy);
        }
        tree.wait(late);
        assert_eq!(tree.next(), Some(late));
        tree.charge(late, WEIGHT, SLICE);
        tree.wait(late);
        let next: Vec<Party> = (0..4)
            .map(|_| {
                let next = tree.next().unwrap();
                tree.charge(next, WEIGHT, SLICE);
                tree.wait(next);
                next
            })
            .collect();
        assert_eq!(next.iter().filter(|next| **next == late).count(), 2, "{next:?}");
    }

    #[test]
    fn what_was_used_without_waiting_counts_too() {
        let mut tree = Tree::new();
        let (greedy, other) = (party(1, 1, 1), party(2, 1, 2));
        tree.wait(greedy);
        tree.wait(other);
        tree.charge(greedy, WEIGHT, 10 * SLICE);
        for _ in 0..10 {
            assert_eq!(tree.next(), Some(other));
            tree.charge(other, WEIGHT, SLICE);
            tree.wait(other);
        }
    }

    #[test]
    fn nothing_is_kept_of_what_has_ended() {
        let mut tree = Tree::new();
        for project in 0..10_000 {
            let call = party(project, 1, project);
            tree.wait(call);
            assert_eq!(tree.next(), Some(call));
            tree.charge(call, WEIGHT, SLICE);
            tree.ended(call);
        }
        assert!(tree.is_empty());
        assert_eq!((tree.runs.len(), tree.calls.len()), (0, 0));
        assert!(tree.projects.parties.len() <= MOST + 1, "{}", tree.projects.parties.len());
        tree.idle();
        assert_eq!(tree.projects.parties.len(), 0);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Wait(Party),
        Leave(Party),
        Next(u64),
        Ended(Party),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let any = (0..4_u64, 0..3_u64, 0..3_u64).prop_map(|(project, run, call)| party(project, run, call + 10 * run));
        let step = prop_oneof![
            4 => any.clone().prop_map(Step::Wait),
            1 => any.clone().prop_map(Step::Leave),
            4 => (0..3 * SLICE).prop_map(Step::Next),
            1 => any.prop_map(Step::Ended),
        ];
        proptest::collection::vec(step, 0..200)
    }

    proptest! {
        /// Whatever happens, exactly those wait who should, and each of them is served in the end.
        #[test]
        fn all_who_wait_are_served(steps in steps()) {
            let mut tree = Tree::new();
            let mut waiting = BTreeSet::new();
            for step in steps {
                match step {
                    Step::Wait(party) => {
                        tree.wait(party);
                        waiting.insert(party);
                    }
                    Step::Leave(party) => {
                        tree.leave(party);
                        waiting.remove(&party);
                    }
                    Step::Ended(party) => {
                        tree.ended(party);
                        waiting.remove(&party);
                    }
                    Step::Next(used) => {
                        let next = tree.next();
                        prop_assert_eq!(next.is_none(), waiting.is_empty());
                        if let Some(next) = next {
                            prop_assert!(waiting.remove(&next));
                            tree.charge(next, WEIGHT, used);
                        }
                    }
                }
                prop_assert_eq!(tree.is_empty(), waiting.is_empty());
                let projects: BTreeSet<u64> = waiting.iter().map(|party| party.project).collect();
                prop_assert_eq!(tree.projects(), projects.len());
            }
            while let Some(next) = tree.next() {
                prop_assert!(waiting.remove(&next));
            }
            prop_assert!(waiting.is_empty());
        }

        /// Nobody who always wants a slice falls behind by more than one slice of each of the others.
        #[test]
        fn nobody_falls_behind(
            weights in proptest::collection::vec(50..400_u32, 2..8),
            costs in proptest::collection::vec(1..2 * SLICE, 400),
        ) {
            let mut tree = Tree::new();
            let all: Vec<Party> = (0..weights.len() as u64).map(|project| party(project, 0, project)).collect();
            all.iter().for_each(|party| tree.wait(*party));
            let mut got = vec![0_u64; all.len()];
            for cost in costs {
                let next = tree.next().unwrap();
                let at = next.project as usize;
                tree.charge(next, weights[at], cost);
                got[at] += cost * u64::from(WEIGHT) / u64::from(weights[at]);
                tree.wait(next);
                let (least, most) = (got.iter().min().unwrap(), got.iter().max().unwrap());
                prop_assert!(most - least <= 2 * 2 * 2 * SLICE, "{:?}", got);
            }
        }
    }
}
