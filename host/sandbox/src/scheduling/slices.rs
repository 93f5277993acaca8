//! A call that computes only while it has a slot, in slices: it gives the slot back whenever it waits, and when the
//! engine's clock ticks while others wait.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::gate::Turn;

/// A slice that began later than this before a tick goes on until the next one.
const SHORT: Duration = Duration::from_micros(150);

thread_local! {
    /// Since when this thread is in a slice, where it is: what a call waits for in it is of the same slice.
    static INSIDE: Cell<Option<Instant>> = const { Cell::new(None) };
    /// Ticks that guests have seen in this slice.
    static TICKS: Cell<u32> = const { Cell::new(0) };
    /// How many of them it lasts.
    static LASTS: Cell<u32> = const { Cell::new(1) };
    /// Whether a guest has yielded at one of them.
    static YIELDED: Cell<bool> = const { Cell::new(false) };
}

/// A guest has computed until a tick. Returns whether its slice ends with that: then it has to yield.
pub(crate) fn ends_with_this_tick() -> bool {
    let ticks = TICKS.get().saturating_add(1);
    TICKS.set(ticks);
    let ends = ticks >= LASTS.get() && INSIDE.get().is_none_or(|since| since.elapsed() >= SHORT);
    YIELDED.set(ends);
    ends
}

/// Whether this thread is in a slice.
pub(crate) fn is_inside() -> bool {
    INSIDE.get().is_some()
}

/// See the module.
pub(crate) struct Sliced<T> {
    work: Pin<Box<dyn Future<Output = T> + Send>>,
    turn: Turn,
    /// Whether it has computed for long, or waits for a slot behind calls that do.
    long: bool,
}

impl<T> Sliced<T> {
    pub(crate) fn new(work: Pin<Box<dyn Future<Output = T> + Send>>, turn: Turn) -> Self {
        Self { work, turn, long: false }
    }

    /// It continues in another task, which polls it soon: the one that has polled it until now need not be woken.
    pub(crate) fn moves(&self) {
        self.turn.wakes_nobody();
    }

    /// Whether it should continue where it is in nobody's way.
    pub(crate) fn is_long(&self) -> bool {
        self.long
    }
}

impl<T> Future for Sliced<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if is_inside() {
            // Its caller has a slot, and waits for it.
            self.turn.withdraw();
            return self.work.as_mut().poll(context);
        }
        if self.turn.poll_enter(context).is_pending() {
            self.long = true;
            return Poll::Pending;
        }
        let slice = Slice::begin(self.long, self.turn.gate().wants_processor_time());
        let polled = self.work.as_mut().poll(context);
        let (used, processor, yielded) = slice.end();
        self.long |= yielded;
        if yielded && polled.is_pending() {
            // It continues as soon as it has a slot again.
            self.turn.requeue(used, context.waker());
        } else {
            self.turn.left(used, processor);
        }
        polled
    }
}

/// One slice of this thread.
struct Slice {
    since: Instant,
    /// How long the processor had worked for this thread, where that is asked for.
    processor: Option<Duration>,
}

impl Slice {
    /// The first slice of a call lasts a tick more: a thread that the machine stopped sees one when it continues, and its
    /// call may need only a few microseconds.
    fn begin(is_long: bool, measures: bool) -> Self {
        let now = Instant::now();
        INSIDE.set(Some(now));
        TICKS.set(0);
        YIELDED.set(false);
        LASTS.set(if is_long { 1 } else { 2 });
        Self { since: now, processor: measures.then(processor_time) }
    }

    /// How long it was, how long the processor worked in it, and whether a guest has yielded.
    fn end(self) -> (Duration, Option<Duration>, bool) {
        let processor = self.processor.map(|before| processor_time().saturating_sub(before));
        (self.since.elapsed(), processor, YIELDED.get())
    }
}

/// For how long the processor has worked for this thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

impl Drop for Slice {
    fn drop(&mut self) {
        INSIDE.set(None);
    }
}

/// Work of a thread that computes only while it has a slot. That ends when it is dropped.
pub(crate) struct Pause {
    /// None in a slice: there it is part of that.
    turn: Option<Turn>,
    since: Instant,
}

impl Pause {
    /// Waits for a slot on this thread.
    pub(crate) fn begin(turn: Turn) -> Self {
        let turn = (!is_inside()).then(|| {
            let mut turn = turn;
            turn.enter();
            turn
        });
        Self { turn, since: Instant::now() }
    }

    /// Lets those compute who wait.
    pub(crate) fn tick(&mut self) {
        if let Some(turn) = &mut self.turn
            && turn.pause(self.since.elapsed())
        {
            self.since = Instant::now();
        }
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.leave(self.since.elapsed());
        }
    }
}
