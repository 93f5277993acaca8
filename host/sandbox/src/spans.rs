//! Spans for operators.

use tracing::{Span, debug_span};

pub use harness_capability::spans::TARGET;

/// A call waits for an instance.
pub(crate) fn admission() -> Span {
    debug_span!(target: TARGET, "admission")
}
