//! Threads that answer requests, each those of its own connections.
//!
//! A runtime of several threads moves the work of a request between them: each move wakes a core, which costs more than
//! a small call. Here a request is read, its call is made, and the answer is written by one thread. A call that computes for
//! long continues elsewhere, so that it does not hold up its neighbours.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;

/// Bytes of stack of a thread, as the main one has.
const STACK: usize = 8 << 20;

/// Threads that connections are given to. They end when this is dropped, with all that was begun on them.
#[derive(Debug, Default)]
pub struct Threads {
    threads: Vec<Thread>,
    end: CancellationToken,
}

#[derive(Debug)]
struct Thread {
    runtime: Handle,
    /// Connections that it has.
    connections: Arc<AtomicUsize>,
}

impl Threads {
    /// None: connections are answered where they are let in.
    pub fn none() -> Self {
        Self::default()
    }

    /// Begins so many threads.
    ///
    /// # Errors
    ///
    /// The system has no room for them.
    pub fn new(count: usize) -> io::Result<Self> {
        let mut all = Self::none();
        for _ in 0..count {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let (handle, end) = (runtime.handle().clone(), all.end.clone());
            let named = thread::Builder::new().name("harness-http".to_owned()).stack_size(STACK);
            named.spawn(move || {
                // Guests may compute on all cores.
                harness_sys::slices::ask_for_short_slices();
                runtime.block_on(end.cancelled());
                runtime.shutdown_background();
            })?;
            all.threads.push(Thread { runtime: handle, connections: Arc::default() });
        }
        Ok(all)
    }

    /// The thread with the fewest connections, and `work` as one more of them.
    pub(super) fn one_more<F: Future>(&self, work: F) -> (Option<&Handle>, impl Future<Output = F::Output> + use<F>) {
        let thread = self.threads.iter().min_by_key(|thread| thread.connections.load(Ordering::Relaxed));
        let counted = thread.map(|thread| Counted::new(&thread.connections));
        let work = async move {
            let output = work.await;
            drop(counted);
            output
        };
        (thread.map(|thread| &thread.runtime), work)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

/// A connection that a thread has.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(connections: &Arc<AtomicUsize>) -> Self {
        connections.fetch_add(1, Ordering::Relaxed);
        Self(connections.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_thread_has_as_many_connections_as_the_others() {
        let threads = Threads::new(2).unwrap();
        let held = |threads: &Threads| -> Vec<usize> {
            threads.threads.iter().map(|thread| thread.connections.load(Ordering::Relaxed)).collect()
        };
        let (first, one) = threads.one_more(async { thread::current().name().map(ToOwned::to_owned) });
        let first = first.unwrap();
        let (_, two) = threads.one_more(async {});
        let (_, three) = threads.one_more(async {});
        assert_eq!(held(&threads), [2, 1]);
        drop(two);
        let (_, four) = threads.one_more(async {});
        assert_eq!(held(&threads), [2, 1]);
        assert_eq!(first.spawn(one).await.unwrap().as_deref(), Some("harness-http"));
        drop((three, four));
        assert_eq!(held(&threads), [0, 0]);
    }

    #[tokio::test]
    async fn without_threads_work_is_done_where_it_is_asked_for() {
        let threads = Threads::none();
        let (thread, work) = threads.one_more(async { 7 });
        assert!(thread.is_none());
        assert_eq!(work.await, 7);
    }
}
