//! Those who wait for logs to become longer. Only logs that are waited for take memory.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::StoreError;

/// All waiters of a store.
#[derive(Debug, Default)]
pub(crate) struct Waiters(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    closed: bool,
    /// The last length that was announced, for each log with a waiter; 0 before the first.
    logs: HashMap<String, watch::Sender<u64>>,
}

/// One waiter. When the last one of a log is dropped, its entry goes too.
struct Waiter<'a> {
    waiters: &'a Waiters,
    log: &'a str,
    lengths: Option<watch::Receiver<u64>>,
}

impl Waiters {
    /// Waits until a log has more than `after` lines. `length` reads how many it has, after the waiter is known: what is
    /// appended after that reading wakes it.
    pub(crate) async fn longer(
        &self,
        log: &str,
        after: u64,
        length: impl Future<Output = Result<u64, StoreError>>,
    ) -> Result<u64, StoreError> {
        let mut waiter = self.join(log)?;
        let length = length.await?;
        if length > after {
            return Ok(length);
        }
        let lengths = waiter.lengths.as_mut().ok_or(StoreError::Closed)?;
        let length = lengths.wait_for(|length| *length > after).await.map_err(|_| StoreError::Closed)?;
        Ok(*length)
    }

    /// Wakes those whom a new length concerns. Lengths of a log are announced in the order in which they came to be.
    pub(crate) fn announce(&self, log: &str, length: u64) {
        if let Some(lengths) = self.state().logs.get(log) {
            lengths.send_replace(length);
        }
    }

    /// Ends the wait of all, and of those who come later.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.logs.clear();
    }

    fn join<'a>(&'a self, log: &'a str) -> Result<Waiter<'a>, StoreError> {
        let mut state = self.state();
        if state.closed {
            return Err(StoreError::Closed);
        }
        let lengths = match state.logs.get(log) {
            Some(lengths) => lengths.subscribe(),
            None => {
                let (sender, lengths) = watch::channel(0);
                state.logs.insert(log.to_owned(), sender);
                lengths
            }
        };
        Ok(Waiter { waiters: self, log, lengths: Some(lengths) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn logs(&self) -> usize {
        self.state().logs.len()
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.lengths = None;
        let mut state = self.waiters.state();
        if state.logs.get(self.log).is_some_and(|lengths| lengths.receiver_count() == 0) {
            state.logs.remove(self.log);
        }
    }
}
