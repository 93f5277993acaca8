//! Spans for operators. What a script asks for is recorded only as far as the grant has a rule for it: the host of a
//! request, the name of a program.

use tracing::field::Empty;
use tracing::{Span, debug_span};

use super::exec;

/// The target of all spans of the host, by which subscribers select them.
pub const TARGET: &str = "harness";

/// An HTTP request.
pub(super) fn request() -> Span {
    debug_span!(target: TARGET, "http", method = Empty, host = Empty, status = Empty)
}

/// A command.
pub(super) fn command() -> Span {
    debug_span!(target: TARGET, "command", program = Empty, exit_code = Empty)
}

/// How that ended. `program` is recorded if it was granted.
pub(super) fn ended(span: &Span, program: &str, ended: &Result<exec::Output, exec::Error>) {
    if !matches!(ended, Err(exec::Error::AccessDenied(_) | exec::Error::InvalidCommand(_))) {
        span.record("program", program.rsplit('/').next().unwrap_or_default());
    }
    if let Ok(output) = ended {
        span.record("exit_code", output.exit_code);
    }
}
