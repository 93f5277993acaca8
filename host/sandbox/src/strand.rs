//! Strands: what happens one thing after the other. A run begins with one, and each task that runs in the background is
//! another. What happens in two of them has no order, so that all that is counted is counted for each by itself: it
//! does not depend on which is the faster.
//!
//! A run of the past that is run again may have been cut: someone stopped waiting in the middle of a strand. Where that
//! was nothing continues, see [`cut`], until whoever stopped waiting then does so again, see [`until_cut`].

use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;

tokio::task_local! {
    static CURRENT: Arc<Strand>;
}

/// One of them.
#[derive(Debug, Default)]
pub struct Strand {
    /// Empty for the first one; of a task, its number in the strand that began it, after the name of that.
    name: String,
    calls: AtomicU64,
    delegations: AtomicU64,
    tasks: AtomicU64,
    /// Whether it has come to where its past was cut, and nobody has stopped waiting for that yet.
    cut: AtomicBool,
}

impl Strand {
    /// Its name: empty, or such as `1` and `1.2`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The identifier of a call that its caller gave none.
    pub fn next_call(&self) -> String {
        format!("call_{}", self.next(&self.calls))
    }

    /// The identifier of a delegation.
    pub fn next_delegation(&self) -> String {
        format!("delegation_{}", self.next(&self.delegations))
    }

    /// The strand of a task that begins here.
    pub fn next_task(&self) -> Arc<Self> {
        Arc::new(Self { name: self.next(&self.tasks), ..Self::default() })
    }

    fn next(&self, counted: &AtomicU64) -> String {
        let number = counted.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if self.name.is_empty() { number.to_string() } else { format!("{}.{number}", self.name) }
    }
}

/// The one that this is in, where it is in a task.
pub fn current() -> Option<Arc<Strand>> {
    CURRENT.try_with(Clone::clone).ok()
}

/// The name of that; empty where it is in none.
pub fn name() -> String {
    CURRENT.try_with(|strand| strand.name.clone()).unwrap_or_default()
}

/// Does something in a strand.
pub fn in_strand<T>(strand: Arc<Strand>, work: impl Future<Output = T>) -> impl Future<Output = T> {
    CURRENT.scope(strand, work)
}

/// The past was cut here: nothing continues.
pub async fn cut<T>() -> T {
    let _ = CURRENT.try_with(|strand| strand.cut.store(true, Ordering::Relaxed));
    pending().await
}

/// What some work gives; nothing where the past was cut in it. Of several that wait for one another the innermost is told.
pub async fn until_cut<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        // Where it was cut is found while it is polled: nobody has to be woken.
        Poll::Pending if CURRENT.try_with(|strand| strand.cut.swap(false, Ordering::Relaxed)) == Ok(true) => {
            Poll::Ready(None)
        }
        Poll::Pending => Poll::Pending,
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_counted_for_each() {
        let root = Strand::default();
        assert_eq!((root.next_call(), root.next_call()), ("call_1".to_owned(), "call_2".to_owned()));
        let (one, two) = (root.next_task(), root.next_task());
        let inner = two.next_task();
        assert_eq!([one.name(), two.name(), inner.name()], ["1", "2", "2.1"]);
        assert_eq!([one.next_call(), inner.next_call()], ["call_1.1", "call_2.1.1"]);
        assert_eq!(
            (root.next_delegation(), inner.next_delegation().as_str()),
            ("delegation_1".to_owned(), "delegation_2.1.1")
        );
    }

    #[tokio::test]
    async fn the_innermost_is_told_of_a_cut() {
        let told = in_strand(Arc::default(), async {
            until_cut(async {
                let inner = until_cut(cut::<()>()).await;
                (inner, until_cut(async { 7 }).await)
            })
            .await
        });
        assert_eq!(told.await, Some((None, Some(7))));
        let twice = in_strand(
            Arc::default(),
            until_cut(async {
                let _ = until_cut(cut::<()>()).await;
                cut::<u8>().await
            }),
        );
        assert_eq!(twice.await, None);
        assert_eq!(name(), "");
    }
}
