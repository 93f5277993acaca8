//! Futures of calls and events, on the heap.

use std::future::Future;

use harness_provider::Pending;

/// A call or the hooks of an event, to be waited for. Its state takes some 25 KiB, which each frame of a turn above it would
/// have once and more: a turn with one call took over 2 MiB of stack, which is all that a thread or a guest's own stack has.
pub(crate) fn boxed<'a, T>(work: impl Future<Output = T> + Send + 'a) -> Pending<'a, T> {
    Box::pin(work)
}
