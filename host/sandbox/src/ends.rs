//! The end of a call's time, which waiting for a person moves.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use super::state::State;

/// How long a call waits for the client that it asks. That is beside its own time, which then continues.
pub const MAX_ANSWER: Duration = Duration::from_secs(10 * 60);

/// When a call is over. Only the call itself moves that, while it is polled.
#[derive(Debug, Clone)]
pub(crate) struct Ends(Arc<Mutex<Instant>>);

impl Ends {
    pub(crate) fn at(deadline: Instant) -> Self {
        Self(Arc::new(Mutex::new(deadline)))
    }

    fn get(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, deadline: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
    }

    /// The work of the call, as far as its time goes.
    pub(crate) async fn limit<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let mut end = self.get();
        let mut late = pin!(tokio::time::sleep_until(end.into()));
        poll_fn(|context| {
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
            let now = self.get();
            if now != end {
                end = now;
                late.as_mut().reset(end.into());
            }
            late.as_mut().poll(context).map(|()| None)
        })
        .await
    }
}

/// What is left of a call's time while it waits for its client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held(Duration);

impl State {
    /// The call waits for its client from now on.
    pub(crate) fn hold(&mut self) -> Held {
        let now = Instant::now();
        let left = self.deadline.saturating_duration_since(now);
        self.end_at(now + MAX_ANSWER + left);
        Held(left)
    }

    /// It has what it had left.
    pub(crate) fn resume(&mut self, Held(left): Held) {
        self.end_at(Instant::now() + left);
    }

    fn end_at(&mut self, deadline: Instant) {
        self.deadline = deadline;
        self.ends.set(deadline);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_moves_the_end_while_it_works_is_not_late() {
        let start = tokio::time::Instant::now();
        let ends = Ends::at((start + Duration::from_secs(1)).into_std());
        let sleep = |seconds| tokio::time::sleep(Duration::from_secs(seconds));
        let longer = async {
            ends.set((start + Duration::from_secs(10)).into_std());
            sleep(5).await;
            ends.set((start + Duration::from_secs(6)).into_std());
            sleep(60).await;
        };
        assert_eq!(ends.limit(longer).await, None);
        assert_eq!(start.elapsed(), Duration::from_secs(6));
        assert_eq!(Ends::at((start + Duration::from_secs(9)).into_std()).limit(sleep(2)).await, Some(()));
    }
}
