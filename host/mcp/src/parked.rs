//! Calls that wait for their clients between two requests, of 2026-07-28.
//!
//! A call that has asked stays as it is, in memory: nothing that it did is done again. The client gets its number in a
//! sealed state, and sends it with the answers. One that is not answered in time ends.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use harness_dispatch::{CallError, CallReport};
use tokio::sync::{Semaphore, mpsc};

use crate::catalog::Target;
use crate::elicit::Asking;
use crate::notices::Notices;
use crate::questions::{Open, Questions};

/// Calls that wait at one time. A further one that asks gets an error.
pub(crate) const MAX_PARKED: usize = 16;
/// How long a call waits for the answers of its client.
const MAX_WAIT: Duration = Duration::from_secs(10 * 60);

/// A call that was begun, with what is needed to go on with it.
pub(crate) struct Begun {
    pub(crate) work: Pin<Box<dyn Future<Output = Result<CallReport, CallError>> + Send>>,
    pub(crate) opened: mpsc::Receiver<Open>,
    pub(crate) questions: Arc<Questions>,
    pub(crate) notices: Arc<Notices>,
    pub(crate) asking: Arc<Asking>,
    /// What is called.
    pub(crate) target: Option<Target>,
    /// Whether it is refused because its client cannot follow a task.
    pub(crate) unable: bool,
    /// Digest of the tool and its arguments, as the client sent them.
    pub(crate) of: String,
}

/// All that wait, by number.
pub(crate) struct Parked {
    calls: Mutex<HashMap<String, (Begun, Open)>>,
    room: Arc<Semaphore>,
}

impl Parked {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { calls: Mutex::default(), room: Arc::new(Semaphore::new(MAX_PARKED)) })
    }

    /// The room for calls that wait.
    pub(crate) fn room(&self) -> Arc<Semaphore> {
        self.room.clone()
    }

    /// Keeps a call until its client answers. Returns its number, which nobody can guess.
    pub(crate) fn keep(self: &Arc<Self>, call: Begun, open: Open) -> String {
        let mut number = [0; 16];
        harness_sys::fill_random(&mut number);
        let number = format!("{:032x}", u128::from_ne_bytes(number));
        self.calls().insert(number.clone(), (call, open));
        let (parked, late) = (Arc::downgrade(self), number.clone());
        tokio::spawn(async move {
            tokio::time::sleep(MAX_WAIT).await;
            drop(Weak::upgrade(&parked).and_then(|parked| parked.take(&late)));
        });
        number
    }

    /// Keeps a call that was taken for a request that is none of its own.
    pub(crate) fn put_back(&self, number: &str, call: Begun, open: Open) {
        self.calls().insert(number.to_owned(), (call, open));
    }

    /// The call of a number, once.
    pub(crate) fn take(&self, number: &str) -> Option<(Begun, Open)> {
        self.calls().remove(number)
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.calls().is_empty()
    }

    /// Ends all of them.
    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut *self.calls());
        drop(all);
    }

    fn calls(&self) -> std::sync::MutexGuard<'_, HashMap<String, (Begun, Open)>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
