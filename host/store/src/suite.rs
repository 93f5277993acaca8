//! One suite of promises, for every store: what [`Store`] says, as checks that panic where it is not so.
//!
//! ```
//! # use std::sync::Arc;
//! # use harness_store::{Memory, Store, suite};
//! # let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
//! // A new store, and how to open it again after it was dropped.
//! fn new() -> suite::Opener {
//!     let memory = Memory::new();
//!     Box::new(move || Arc::new(memory.clone()))
//! }
//! for (name, check) in suite::CHECKS {
//!     println!("{name}");
//!     runtime.block_on(check(new()));
//! }
//! ```

#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

mod leases;
mod logs;
mod values;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::{Store, StoreError};

/// Opens a store. It is called again after the last reference to the former one was dropped: the same content is there.
pub type Opener = Box<dyn Fn() -> Arc<dyn Store> + Send + Sync>;

/// A check of a new store, for a tokio runtime with several threads. It panics where a promise is not kept.
pub type Check = fn(Opener) -> Pin<Box<dyn Future<Output = ()> + Send>>;

macro_rules! checks {
    ($($module:ident: $($name:ident)*;)*) => {
        /// All checks with their names.
        pub const CHECKS: &[(&str, Check)] =
            &[$($((stringify!($name), |open| Box::pin($module::$name(open)))),*),*];
    };
}

checks! {
    logs: positions_have_no_gaps conflicts_leave_a_log_alone rivals_for_a_log_have_one_winner appends_are_whole
        removed_logs_begin_anew waiters_wake_when_their_line_is_there waiters_are_many_and_may_go lines_are_bounded;
    values: versions_grow_and_are_never_used_again conflicts_leave_a_value_alone rivals_for_a_key_have_one_winner
        rivals_lose_no_change keys_are_in_the_order_of_bytes pages_have_each_key_once values_are_bounded
        blobs_are_kept_once;
    leases: leases_have_one_holder rivals_for_a_lease_have_one_winner timers_come_in_order
        dropped_writes_are_whole everything_is_there_when_it_is_opened_again;
}

/// Rivals for one thing.
const RIVALS: u64 = 6;

fn conflict<T>(expected: u64, at: u64) -> Result<T, StoreError> {
    Err(StoreError::Conflict { expected, at })
}

/// Runs a task for each rival, and gathers what they return.
async fn rivals<F>(task: impl Fn(u64) -> F) -> Vec<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let tasks: Vec<_> = (0..RIVALS).map(|rival| tokio::spawn(task(rival))).collect();
    let mut outputs = Vec::new();
    for task in tasks {
        outputs.push(task.await.unwrap());
    }
    outputs
}

/// The bytes of all lines of a log, which have the positions 1, 2, 3 and so on.
async fn all_lines(store: &Arc<dyn Store>, log: &str) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let page = store.lines(log, all.len() as u64, 1_000).await.unwrap();
        if page.is_empty() {
            return all;
        }
        for line in page {
            assert_eq!(line.position, all.len() as u64 + 1);
            all.push(line.bytes);
        }
    }
}
