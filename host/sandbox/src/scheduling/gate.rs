//! The slots in which guests compute: as many as the machine has cores. Who has none waits, and the one whose turn it is
//! by [`fair`](super::fair) gets the next.
//!
//! Most calls are over in a few microseconds. While almost all of them are, none needs a slot: there are no more of them at
//! one time than their callers have threads, and it would take as long to wait for a slot as to make the call.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::fair::{Party, Tree};
use super::quota::Share;

/// A slot that was granted and not taken for this long goes to the next: whoever it was for is not polled, and may be
/// waiting for someone who needs it.
const LAPSES: Duration = Duration::from_millis(5);
/// A call that computes for longer than this at once is no short one, unless the machine has stopped its thread meanwhile.
const SHORT: Duration = Duration::from_micros(150);
/// Calls need slots when those that are not short have computed for so much longer than a part of the time, in µs.
const MUCH: u64 = 4_000;
/// That part: one in so many of the time of all slots.
const PART: u64 = 4;
/// For how long it is remembered that calls of several projects were made.
const SEVERAL: Duration = Duration::from_secs(1);
/// About as much, in µs, is remembered: soon after the last of them, no call needs a slot any more.
const MOST: u64 = 4 * MUCH;

/// See the module.
#[derive(Debug)]
pub(crate) struct Gate {
    state: Mutex<State>,
    /// Whether anyone waits, for who only wants to know.
    contended: AtomicBool,
    calls: AtomicU64,
    /// Calls that have computed for a whole slice, and have or want another one.
    long: AtomicUsize,
    /// Microseconds for which calls have computed that are not short, less what that may be.
    computed: AtomicU64,
    /// The slots that there are.
    slots: u64,
    /// The project that last began a call or asked for a slot.
    last: AtomicU64,
    /// How many µs from now it is still so that calls of several projects are made.
    several: AtomicU64,
}

#[derive(Debug)]
struct State {
    slots: usize,
    free: usize,
    tree: Tree,
    wakers: HashMap<Party, Waker>,
    /// Slots that were granted and not taken yet, since when.
    granted: HashMap<Party, Instant>,
}

/// A call's part of it.
#[derive(Debug)]
pub(crate) struct Turn {
    gate: Arc<Gate>,
    party: Party,
    weight: u32,
    has: Has,
    /// Whether it is one of those that compute for long.
    is_long: bool,
    /// Whether the tree has an account of it.
    is_known: bool,
    /// Since when it waits for a slot, and whose waits are counted.
    asked: Option<Instant>,
    share: Option<Arc<Share>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Has {
    Nothing,
    /// It computes without a slot.
    Exempt,
    /// It waits, or was granted a slot.
    Asked,
    Slot,
}

impl Gate {
    /// A gate with this many slots.
    pub(crate) fn new(slots: usize) -> Arc<Self> {
        let slots = slots.max(1);
        let state = State { slots, free: slots, tree: Tree::new(), wakers: HashMap::new(), granted: HashMap::new() };
        let (contended, calls, long) = (AtomicBool::new(false), AtomicU64::new(0), AtomicUsize::new(0));
        let (computed, slots) = (AtomicU64::new(0), slots as u64);
        let (last, several) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { state: Mutex::new(state), contended, calls, long, computed, slots, last, several })
    }

    /// The part of a new call.
    pub(crate) fn turn(self: &Arc<Self>, project: u64, run: u64, weight: u32) -> Turn {
        let party = Party { project, run, call: self.calls.fetch_add(1, Ordering::Relaxed) };
        self.saw(project);
        let (has, asked, share) = (Has::Nothing, None, None);
        Turn { gate: self.clone(), party, weight, has, is_long: false, is_known: false, asked, share }
    }

    /// Remembers that a project begins a call, or computes on.
    fn saw(&self, project: u64) {
        if self.last.load(Ordering::Relaxed) != project && self.last.swap(project, Ordering::Relaxed) != 0 {
            self.several.store(micros(SEVERAL), Ordering::Relaxed);
        }
    }

    /// Whether anyone waits.
    pub(crate) fn is_contended(&self) -> bool {
        self.contended.load(Ordering::Relaxed)
    }

    /// Whether anyone waits, and others than one project make calls: who answers those is to be in time.
    pub(crate) fn needs_clocks(&self) -> bool {
        self.is_contended() && self.several.load(Ordering::Relaxed) > 0
    }

    /// Whether it is worth the time to ask for how long the processor works for a call: the machine may only have stopped
    /// its thread.
    pub(crate) fn wants_processor_time(&self) -> bool {
        self.computed.load(Ordering::Relaxed) > 0
    }

    /// Whether calls need slots.
    pub(crate) fn needs_slots(&self) -> bool {
        self.long.load(Ordering::Relaxed) > 0 || self.computed.load(Ordering::Relaxed) > MUCH
    }

    /// A call has computed for this long at once, of which the processor worked for it so long, where that is known.
    fn add(&self, used: Duration, processor: Option<Duration>) {
        let used = processor.unwrap_or(used).min(used);
        if used >= SHORT && self.computed.load(Ordering::Relaxed) < MOST {
            let used = micros(used).min(MOST);
            self.computed.fetch_add(used, Ordering::Relaxed);
        }
    }

    /// Time has passed: allows for what may be computed in it, and passes on slots that were granted and are not taken.
    pub(crate) fn tick(&self, passed: Duration) {
        let may_be = micros(passed).saturating_mul(self.slots) / PART;
        // A call in this moment may be forgotten: the next one is not.
        let several = self.several.load(Ordering::Relaxed);
        if several > 0 {
            self.several.store(several.saturating_sub(micros(passed)), Ordering::Relaxed);
        }
        // Only this takes some of it away.
        let computed = self.computed.load(Ordering::Relaxed);
        if computed > 0 {
            self.computed.fetch_sub(computed.min(may_be), Ordering::Relaxed);
        }
        if self.is_contended() {
            self.revoke_stale();
        }
    }

    fn revoke_stale(&self) {
        let mut state = self.state();
        let stale: Vec<Party> =
            state.granted.iter().filter(|(_, since)| since.elapsed() >= LAPSES).map(|(party, _)| *party).collect();
        let mut woken = Vec::new();
        for party in stale {
            state.granted.remove(&party);
            woken.extend(state.pass_on());
        }
        self.done(state, woken);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the lock go, then wakes.
    fn done(&self, state: MutexGuard<'_, State>, woken: impl IntoIterator<Item = Waker>) {
        self.contended.store(!state.tree.is_empty(), Ordering::Relaxed);
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }
}

impl State {
    /// Takes a slot that nobody has.
    fn take_free(&mut self) -> bool {
        let is_free = self.free > 0;
        self.free -= usize::from(is_free);
        is_free
    }

    /// Gives a slot that has come free to the next, who is to be woken.
    fn pass_on(&mut self) -> Option<Waker> {
        let Some(next) = self.tree.next() else {
            self.free += 1;
            if self.free == self.slots {
                self.tree.idle();
            }
            return None;
        };
        self.granted.insert(next, Instant::now());
        self.wakers.remove(&next)
    }
}

impl Turn {
    /// Waits for a slot.
    pub(crate) fn poll_enter(&mut self, context: &Context<'_>) -> Poll<()> {
        let entered = self.poll_slot(context);
        if entered.is_pending() {
            self.asked.get_or_insert_with(Instant::now);
        } else if let Some(since) = self.asked.take()
            && let Some(share) = &self.share
        {
            share.slices().note(since.elapsed());
        }
        entered
    }

    fn poll_slot(&mut self, context: &Context<'_>) -> Poll<()> {
        match self.has {
            Has::Slot | Has::Exempt => return Poll::Ready(()),
            Has::Nothing if !self.gate.needs_slots() => {
                self.has = Has::Exempt;
                return Poll::Ready(());
            }
            Has::Nothing | Has::Asked => self.is_known = true,
        }
        // An endless call begins no other one.
        self.gate.saw(self.party.project);
        let mut state = self.gate.state();
        if self.has == Has::Asked && state.granted.remove(&self.party).is_some() {
            self.has = Has::Slot;
            return Poll::Ready(());
        }
        if state.tree.is_empty() && state.take_free() {
            state.tree.served(self.party);
            self.has = Has::Slot;
            return Poll::Ready(());
        }
        state.tree.wait(self.party);
        state.wakers.insert(self.party, context.waker().clone());
        // A slot may be free while someone waits: one that was passed on and came back.
        let woken = if state.take_free() { state.pass_on() } else { None };
        let granted = state.granted.remove(&self.party).is_some();
        self.has = if granted { Has::Slot } else { Has::Asked };
        let woken = woken.filter(|_| !granted);
        self.gate.done(state, woken);
        if granted { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Wakes nobody when it is granted a slot: who waits for one is polled anyway, and says then who is to be woken.
    pub(crate) fn wakes_nobody(&self) {
        if let Some(waker) = self.gate.state().wakers.get_mut(&self.party) {
            *waker = Waker::noop().clone();
        }
    }

    /// Counts how long it waits among the waits of a project.
    pub(crate) fn counted_for(mut self, share: &Arc<Share>) -> Self {
        self.share = Some(share.clone());
        self
    }

    fn set_long(&mut self, is_long: bool) {
        if is_long && !self.is_long {
            self.gate.long.fetch_add(1, Ordering::Relaxed);
        } else if self.is_long && !is_long {
            self.gate.long.fetch_sub(1, Ordering::Relaxed);
        }
        self.is_long = is_long;
    }

    /// The gate that it is a part of.
    pub(crate) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Waits for a slot on this thread.
    pub(crate) fn enter(&mut self) {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let context = Context::from_waker(&waker);
        while self.poll_enter(&context).is_pending() {
            std::thread::park();
        }
    }

    /// Whether it has one; who computed without one has nothing any more.
    fn has_slot(&mut self) -> bool {
        if self.has == Has::Exempt {
            self.has = Has::Nothing;
        }
        self.has == Has::Slot
    }

    /// Gives the slot back after it was used for this long.
    pub(crate) fn leave(&mut self, used: Duration) {
        self.left(used, None);
    }

    /// The same where it may be known for how long the processor worked in that time.
    pub(crate) fn left(&mut self, used: Duration, processor: Option<Duration>) {
        self.gate.add(used, processor);
        if !self.has_slot() {
            return;
        }
        self.has = Has::Nothing;
        self.set_long(false);
        let mut state = self.gate.state();
        state.tree.charge(self.party, self.weight, u64::try_from(used.as_nanos()).unwrap_or(u64::MAX));
        let woken = state.pass_on();
        self.gate.done(state, woken);
    }

    /// Returns the slot, where it has one, after this long, and waits for the next one at once. A call that only waits when it
    /// is polled again, one slice later, would miss the decision who is next: a project of few calls would get less than its
    /// weight.
    pub(crate) fn requeue(&mut self, used: Duration, waker: &Waker) {
        let had = std::mem::replace(&mut self.has, Has::Asked);
        self.is_known = true;
        self.set_long(true);
        let mut state = self.gate.state();
        state.tree.charge(self.party, self.weight, u64::try_from(used.as_nanos()).unwrap_or(u64::MAX));
        state.tree.wait(self.party);
        state.wakers.insert(self.party, waker.clone());
        let is_free = had == Has::Slot || state.take_free();
        let woken = if is_free { state.pass_on() } else { None };
        self.gate.done(state, woken);
        self.asked = Some(Instant::now());
    }

    /// Lets others compute if a call waits. Who had no slot needs one from now on.
    pub(crate) fn pause(&mut self, used: Duration) -> bool {
        let contended = self.gate.is_contended() || self.has == Has::Exempt;
        if contended {
            self.requeue(used, &Waker::from(Arc::new(Unpark(std::thread::current()))));
            self.enter();
        }
        contended
    }

    /// Asks for nothing any more.
    pub(crate) fn withdraw(&mut self) {
        match self.has {
            Has::Nothing => {}
            Has::Exempt => self.has = Has::Nothing,
            Has::Slot => self.leave(Duration::ZERO),
            Has::Asked => {
                self.has = Has::Nothing;
                self.set_long(false);
                let mut state = self.gate.state();
                state.tree.leave(self.party);
                state.wakers.remove(&self.party);
                let woken = state.granted.remove(&self.party).and_then(|_| state.pass_on());
                self.gate.done(state, woken);
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.withdraw();
        if !self.is_known {
            return;
        }
        let mut state = self.gate.state();
        state.tree.ended(self.party);
        self.gate.done(state, None);
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Wakes a thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> Context<'static> {
        Context::from_waker(Waker::noop())
    }

    fn enters(turn: &mut Turn) -> bool {
        turn.poll_enter(&context()).is_ready()
    }

    /// A gate at which all need a slot: a call computes for long, somewhere else.
    fn busy(slots: usize) -> Arc<Gate> {
        let gate = Gate::new(slots);
        gate.long.store(1, Ordering::Relaxed);
        gate
    }

    const SLICE: Duration = Duration::from_micros(250);

    #[test]
    fn a_slot_goes_to_the_project_that_used_least() {
        let gate = busy(1);
        let (mut one, mut two, mut other) = (gate.turn(1, 1, 100), gate.turn(1, 1, 100), gate.turn(2, 1, 100));
        assert!(enters(&mut one));
        assert!(!gate.is_contended());
        assert!(!enters(&mut two) && !enters(&mut other));
        assert!(gate.is_contended());
        one.leave(SLICE);
        assert!(!enters(&mut two) && enters(&mut other));
        other.leave(2 * SLICE);
        assert!(enters(&mut two));
    }

    /// One call in each project, both of which compute on and on: each waits again in the moment in which its slice ends.
    #[test]
    fn calls_that_continue_get_their_weight() {
        let gate = busy(1);
        let (mut light, mut heavy) = (gate.turn(1, 1, 100), gate.turn(2, 1, 700));
        assert!(enters(&mut light) && !enters(&mut heavy));
        let mut slices = [0, 0];
        for _ in 0..800 {
            let (turn, at) = if enters(&mut light) { (&mut light, 0) } else { (&mut heavy, 1) };
            assert!(enters(turn));
            slices[at] += 1;
            turn.requeue(SLICE, Waker::noop());
        }
        assert_eq!(slices, [100, 700]);
        drop((light, heavy));
        assert_eq!(gate.state().free, 1);
    }

    #[test]
    fn nobody_needs_a_slot_until_a_call_computes_for_long() {
        let gate = Gate::new(1);
        let (mut one, mut two, mut late) = (gate.turn(1, 1, 100), gate.turn(2, 1, 100), gate.turn(3, 1, 100));
        assert!(enters(&mut one) && enters(&mut two));
        assert!(!gate.is_contended() && gate.state().free == 1);
        one.requeue(SLICE, Waker::noop());
        assert!(enters(&mut one) && gate.state().free == 0);
        assert!(!enters(&mut late) && gate.is_contended());
        // Who began before that continues, and is one of them from its next slice on.
        assert!(enters(&mut two));
        two.requeue(SLICE, Waker::noop());
        assert!(!enters(&mut two));
        one.leave(SLICE);
        assert!(enters(&mut late) && !enters(&mut two) && gate.needs_slots());
        late.leave(SLICE);
        assert!(enters(&mut two));
        two.leave(SLICE);
        assert!(!gate.needs_slots() && gate.state().free == 1);
        assert!(enters(&mut one) && enters(&mut late) && gate.state().free == 1);
        drop((one, two, late));
        assert!(gate.state().wakers.is_empty() && gate.state().tree.is_empty());
    }

    /// Calls that end just before a tick, again and again, would have the threads of their callers for themselves.
    #[test]
    fn calls_need_slots_where_many_are_not_short() {
        let gate = Gate::new(2);
        let (computing, short, tick) =
            (Duration::from_micros(1500), Duration::from_micros(20), Duration::from_millis(1));
        let call = |used: Duration, computes: Duration| {
            let mut turn = gate.turn(1, 1, 100);
            let needed = !(enters(&mut turn) && turn.has == Has::Exempt);
            // Of those that are short, the machine may have stopped the thread.
            turn.left(used, gate.wants_processor_time().then_some(used.min(computes)));
            needed
        };
        // Short calls, of which the machine stops one in ten.
        for n in 0..10_000 {
            assert!(!call(if n % 10 == 0 { computing } else { short }, short), "{n}");
        }
        gate.tick(100 * tick);
        let needed: Vec<bool> =
            (0..10).map(|_| (call(computing, computing), call(computing, computing), gate.tick(computing)).1).collect();
        assert_eq!(needed, [false, false, true, true, true, true, true, true, true, true]);
        for _ in 0..100 {
            gate.tick(tick);
        }
        assert!(!call(short, short));
    }

    #[test]
    fn clocks_are_needed_while_calls_of_several_projects_are_made_and_wait() {
        let gate = busy(1);
        let (mut holds, mut waits) = (gate.turn(1, 1, 100), gate.turn(1, 2, 100));
        assert!(enters(&mut holds) && !enters(&mut waits));
        assert!(gate.is_contended() && !gate.needs_clocks());
        let other = gate.turn(2, 1, 100);
        assert!(gate.needs_clocks());
        gate.tick(SEVERAL / 2);
        assert!(gate.needs_clocks());
        gate.tick(SEVERAL / 2);
        assert!(!gate.needs_clocks());
        // A call that computes on counts as one that begins.
        assert!(!enters(&mut waits));
        assert!(gate.needs_clocks());
        gate.tick(SEVERAL);
        assert!(!gate.needs_clocks());
        drop((other, gate.turn(2, 3, 100)));
        assert!(gate.needs_clocks());
        drop((waits, holds));
        assert!(!gate.needs_clocks());
    }

    #[test]
    fn who_is_gone_waits_no_more_and_holds_nothing() {
        let gate = busy(1);
        let (mut holds, mut waits, mut last) = (gate.turn(1, 1, 100), gate.turn(2, 1, 100), gate.turn(3, 1, 100));
        assert!(enters(&mut holds) && !enters(&mut waits) && !enters(&mut last));
        drop(waits);
        drop(holds);
        assert!(enters(&mut last));
        last.leave(SLICE);
        assert!(!gate.is_contended());
        assert_eq!(gate.state().free, 1);
    }

    #[test]
    fn one_that_was_granted_a_slot_and_is_gone_passes_it_on() {
        let gate = busy(1);
        let (mut holds, mut granted, mut last) = (gate.turn(1, 1, 100), gate.turn(2, 1, 100), gate.turn(3, 1, 100));
        assert!(enters(&mut holds) && !enters(&mut granted) && !enters(&mut last));
        holds.leave(SLICE);
        drop(granted);
        assert!(enters(&mut last));
    }

    #[test]
    fn a_slot_that_is_not_taken_lapses_and_can_be_asked_for_again() {
        let gate = busy(1);
        let (mut holds, mut idle, mut last) = (gate.turn(1, 1, 100), gate.turn(2, 1, 100), gate.turn(3, 1, 100));
        assert!(enters(&mut holds) && !enters(&mut idle) && !enters(&mut last));
        holds.leave(SLICE);
        gate.revoke_stale();
        assert!(!enters(&mut last), "it has not lapsed");
        let long_ago = Instant::now().checked_sub(LAPSES).unwrap();
        gate.state().granted.values_mut().for_each(|since| *since = long_ago);
        gate.revoke_stale();
        assert!(enters(&mut last));
        assert!(!enters(&mut idle));
        last.leave(SLICE);
        assert!(enters(&mut idle));
    }

    #[test]
    fn threads_wait_too() {
        let gate = busy(2);
        let most = Arc::new(AtomicU64::new(0));
        let inside = Arc::new(AtomicU64::new(0));
        std::thread::scope(|scope| {
            for project in 0..8 {
                let (gate, most, inside) = (gate.clone(), most.clone(), inside.clone());
                scope.spawn(move || {
                    for _ in 0..200 {
                        let mut turn = gate.turn(project, 1, 100);
                        turn.enter();
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        turn.leave(SLICE);
                    }
                });
            }
        });
        assert!(most.load(Ordering::SeqCst) <= 2);
        assert_eq!(gate.state().free, 2);
        assert!(gate.state().wakers.is_empty() && gate.state().granted.is_empty());
    }
}
