//! The slots in which guests compute: as many as the machine has cores. Who has none waits, and the one whose turn it is
//! by [`fair`](super::fair) gets the next.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::fair::{Party, Tree};

/// A slot that was granted and not taken for this long goes to the next: whoever it was for is not polled, and may be
/// waiting for someone who needs it.
const LAPSES: Duration = Duration::from_millis(5);

/// See the module.
#[derive(Debug)]
pub(crate) struct Gate {
    state: Mutex<State>,
    /// Whether anyone waits, for who only wants to know.
    contended: AtomicBool,
    calls: AtomicU64,
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
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Has {
    Nothing,
    /// It waits, or was granted a slot.
    Asked,
    Slot,
}

impl Gate {
    /// A gate with this many slots.
    pub(crate) fn new(slots: usize) -> Arc<Self> {
        let slots = slots.max(1);
        let state = State { slots, free: slots, tree: Tree::new(), wakers: HashMap::new(), granted: HashMap::new() };
        Arc::new(Self { state: Mutex::new(state), contended: AtomicBool::new(false), calls: AtomicU64::new(0) })
    }

    /// The part of a new call.
    pub(crate) fn turn(self: &Arc<Self>, project: u64, run: u64, weight: u32) -> Turn {
        let party = Party { project, run, call: self.calls.fetch_add(1, Ordering::Relaxed) };
        Turn { gate: self.clone(), party, weight, has: Has::Nothing }
    }

    /// Whether anyone waits.
    pub(crate) fn is_contended(&self) -> bool {
        self.contended.load(Ordering::Relaxed)
    }

    /// Passes on slots that were granted and are not taken.
    pub(crate) fn revoke_stale(&self) {
        if !self.is_contended() {
            return;
        }
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
        if self.has == Has::Slot {
            return Poll::Ready(());
        }
        let mut state = self.gate.state();
        if self.has == Has::Asked && state.granted.remove(&self.party).is_some() {
            self.has = Has::Slot;
            return Poll::Ready(());
        }
        if state.free > 0 && state.tree.is_empty() {
            state.free -= 1;
            state.tree.served(self.party);
            self.has = Has::Slot;
            return Poll::Ready(());
        }
        state.tree.wait(self.party);
        state.wakers.insert(self.party, context.waker().clone());
        // A slot may be free while someone waits: one that was passed on and came back.
        let woken = if state.free > 0 {
            state.free -= 1;
            state.pass_on()
        } else {
            None
        };
        let granted = state.granted.remove(&self.party).is_some();
        self.has = if granted { Has::Slot } else { Has::Asked };
        let woken = woken.filter(|_| !granted);
        self.gate.done(state, woken);
        if granted { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Waits for a slot on this thread.
    pub(crate) fn enter(&mut self) {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let context = Context::from_waker(&waker);
        while self.poll_enter(&context).is_pending() {
            std::thread::park();
        }
    }

    /// Gives the slot back after it was used for this long.
    pub(crate) fn leave(&mut self, used: Duration) {
        if self.has != Has::Slot {
            return;
        }
        self.has = Has::Nothing;
        let mut state = self.gate.state();
        state.tree.charge(self.party, self.weight, u64::try_from(used.as_nanos()).unwrap_or(u64::MAX));
        let woken = state.pass_on();
        self.gate.done(state, woken);
    }

    /// Returns the slot after it was used for this long, and waits for the next one at once. A call that only waits when it
    /// is polled again, one slice later, would miss the decision who is next: a project of few calls would get less than its
    /// weight.
    pub(crate) fn requeue(&mut self, used: Duration, waker: &Waker) {
        if self.has != Has::Slot {
            return;
        }
        self.has = Has::Asked;
        let mut state = self.gate.state();
        state.tree.charge(self.party, self.weight, u64::try_from(used.as_nanos()).unwrap_or(u64::MAX));
        state.tree.wait(self.party);
        state.wakers.insert(self.party, waker.clone());
        let woken = state.pass_on();
        self.gate.done(state, woken);
    }

    /// Lets others compute if a call waits.
    pub(crate) fn pause(&mut self, used: Duration) -> bool {
        let contended = self.gate.is_contended();
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
            Has::Slot => self.leave(Duration::ZERO),
            Has::Asked => {
                self.has = Has::Nothing;
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
        let mut state = self.gate.state();
        state.tree.ended(self.party);
        self.gate.done(state, None);
    }
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

    const SLICE: Duration = Duration::from_micros(250);

    #[test]
    fn a_slot_goes_to_the_project_that_used_least() {
        let gate = Gate::new(1);
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
        let gate = Gate::new(1);
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
    fn who_is_gone_waits_no_more_and_holds_nothing() {
        let gate = Gate::new(1);
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
        let gate = Gate::new(1);
        let (mut holds, mut granted, mut last) = (gate.turn(1, 1, 100), gate.turn(2, 1, 100), gate.turn(3, 1, 100));
        assert!(enters(&mut holds) && !enters(&mut granted) && !enters(&mut last));
        holds.leave(SLICE);
        drop(granted);
        assert!(enters(&mut last));
    }

    #[test]
    fn a_slot_that_is_not_taken_lapses_and_can_be_asked_for_again() {
        let gate = Gate::new(1);
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
        let gate = Gate::new(2);
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
