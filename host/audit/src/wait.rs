//! Waiting for what a log was asked for: as a future, or with the thread.

use std::fmt;
use std::io::{ErrorKind, Result};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Instant;

/// The answer to a request to a [`Log`](super::Log). It is often there at once, see [`done`](Self::done).
///
/// An entry whose answer is dropped is written all the same.
#[must_use = "an entry may not have been written"]
pub struct Wait(State);

enum State {
    Done(Option<Result<()>>),
    Queued(Arc<Slot>),
}

/// Where the writer puts the answer.
#[derive(Debug, Default)]
pub(super) struct Slot(Mutex<Answer>);

#[derive(Debug, Default)]
struct Answer {
    result: Option<Result<()>>,
    waker: Option<Waker>,
}

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self.0, State::Done(_)) { "Wait(done)" } else { "Wait(queued)" })
    }
}

impl Slot {
    /// Puts the answer there and wakes anyone who waits for it.
    pub(super) fn complete(&self, result: Result<()>) {
        let mut answer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        answer.result = Some(result);
        let waker = answer.waker.take();
        drop(answer);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Wait {
    pub(super) fn done_with(result: Result<()>) -> Self {
        Self(State::Done(Some(result)))
    }

    pub(super) fn queued(slot: Arc<Slot>) -> Self {
        Self(State::Queued(slot))
    }

    /// The answer, if it is there already.
    ///
    /// # Errors
    ///
    /// The answer to wait for.
    pub fn done(self) -> std::result::Result<Result<()>, Self> {
        match self.0 {
            State::Done(Some(result)) => Ok(result),
            State::Queued(slot) => {
                let result = slot.0.lock().unwrap_or_else(PoisonError::into_inner).result.take();
                result.ok_or(Self(State::Queued(slot)))
            }
            State::Done(None) => Err(self),
        }
    }

    /// Waits with the thread, until then at most. `None`: the answer is not there yet.
    pub fn block_until(mut self, until: Option<Instant>) -> Option<Result<()>> {
        struct Unpark(Thread);
        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Arc::new(Unpark(std::thread::current())).into();
        loop {
            if let Poll::Ready(result) = Pin::new(&mut self).poll(&mut Context::from_waker(&waker)) {
                return Some(result);
            }
            match until.map(|until| until.saturating_duration_since(Instant::now())) {
                Some(left) if left.is_zero() => return None,
                Some(left) => std::thread::park_timeout(left),
                None => std::thread::park(),
            }
        }
    }

    /// Waits with the thread.
    ///
    /// # Errors
    ///
    /// Those of the request.
    pub fn block(self) -> Result<()> {
        self.block_until(None).unwrap_or_else(|| Err(ErrorKind::TimedOut.into()))
    }
}

impl Future for Wait {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            // Nobody asks again after an answer.
            State::Done(result) => Poll::Ready(result.take().unwrap_or_else(|| Err(ErrorKind::Other.into()))),
            State::Queued(slot) => {
                let mut answer = slot.0.lock().unwrap_or_else(PoisonError::into_inner);
                match answer.result.take() {
                    Some(result) => Poll::Ready(result),
                    None => {
                        answer.waker = Some(context.waker().clone());
                        Poll::Pending
                    }
                }
            }
        }
    }
}
