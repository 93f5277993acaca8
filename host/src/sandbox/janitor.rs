//! Clears up after calls.
//!
//! Making a finished call's memory ready for the next one takes a third as long as the call. While there is a core that
//! has nothing else to do, a thread does it there, and the caller has its answer already. Where all cores have calls to
//! run, each clears up after itself: handing it over would only be more work.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use wasmtime::{Result, Store};

use super::state::State;

/// Stores that a janitor may hold: the one that it drops, and one that waits. More would only keep memory from being
/// used again.
pub(crate) const HELD: u32 = 2;

/// A thread that drops stores. It ends when the janitor is dropped.
#[derive(Debug)]
pub(crate) struct Janitor {
    stores: SyncSender<Store<State>>,
    cores: usize,
}

impl Janitor {
    pub(crate) fn start() -> Result<Self> {
        let (stores, handed) = sync_channel(HELD as usize - 1);
        thread::Builder::new().name("harness-janitor".to_owned()).spawn(move || handed.into_iter().for_each(drop))?;
        Ok(Self { stores, cores: thread::available_parallelism().map_or(1, usize::from) })
    }

    /// Drops the store of a finished call, here or there. `calls` are those that go on, this one among them.
    pub(crate) fn drop(&self, store: Store<State>, calls: usize) {
        if calls < self.cores {
            // What the thread has no room for comes back, and is dropped here.
            let _ = self.stores.try_send(store);
        }
    }
}
