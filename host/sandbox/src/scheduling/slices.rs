//! A call that computes only while it has a slot, in slices: it gives the slot back whenever it waits, and when the
//! engine's clock ticks while others wait.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use super::gate::Turn;

thread_local! {
    /// Whether this thread is in a slice: what a call waits for in it is of the same slice.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// Whether a guest has computed until a tick in this slice.
    static COMPUTED: Cell<bool> = const { Cell::new(false) };
}

/// A guest has computed until a tick. To be said before it yields.
pub(crate) fn computed() {
    COMPUTED.set(true);
}

/// Whether this thread is in a slice.
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

/// See the module.
pub(crate) struct Sliced<T> {
    work: Pin<Box<dyn Future<Output = T> + Send>>,
    turn: Turn,
    /// Whether it has computed for long, or has to wait for a slot.
    long: bool,
}

impl<T> Sliced<T> {
    pub(crate) fn new(work: Pin<Box<dyn Future<Output = T> + Send>>, turn: Turn) -> Self {
        Self { work, turn, long: false }
    }

    /// Whether it should continue where it is in nobody's way.
    pub(crate) fn is_long(&self) -> bool {
        self.long
    }
}

impl<T> Future for Sliced<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if INSIDE.get() {
            // Its caller has a slot, and waits for it.
            self.turn.withdraw();
            return self.work.as_mut().poll(context);
        }
        if self.turn.poll_enter(context).is_pending() {
            self.long = true;
            return Poll::Pending;
        }
        let slice = Slice::begin();
        let polled = self.work.as_mut().poll(context);
        let (used, computed) = slice.end();
        self.long |= computed;
        if computed && polled.is_pending() {
            // It continues as soon as it has a slot again.
            self.turn.requeue(used, context.waker());
        } else {
            self.turn.leave(used);
        }
        polled
    }
}

/// One slice of this thread.
struct Slice(Instant);

impl Slice {
    fn begin() -> Self {
        INSIDE.set(true);
        COMPUTED.set(false);
        Self(Instant::now())
    }

    fn end(self) -> (std::time::Duration, bool) {
        (self.0.elapsed(), COMPUTED.get())
    }
}

impl Drop for Slice {
    fn drop(&mut self) {
        INSIDE.set(false);
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
        let turn = (!INSIDE.get()).then(|| {
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
