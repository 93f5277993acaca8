//! Spans for operators: turns and requests to models, without what was said.

use tracing::field::Empty;
use tracing::{Span, info_span};

use super::error::TurnError;
use super::turn::Turn;
use harness_provider::{ProviderError, Reply};
use harness_sandbox::spans::TARGET;

/// A turn of an agent; the root has no name.
pub(super) fn turn(agent: &str, depth: u32) -> Span {
    info_span!(
        target: TARGET, "turn", agent, depth, outcome = Empty, rounds = Empty, input_tokens = Empty, output_tokens = Empty,
    )
}

/// How that ended.
pub(super) fn turned(span: &Span, turn: &Result<Turn, TurnError>) {
    match turn {
        Ok(turn) => {
            span.record("outcome", "completed");
            span.record("rounds", turn.rounds);
            span.record("input_tokens", turn.usage.input_tokens);
            span.record("output_tokens", turn.usage.output_tokens);
        }
        Err(error) => drop(span.record("outcome", error.kind())),
    }
}

/// A request to a model.
pub(super) fn request(model: &str) -> Span {
    info_span!(target: TARGET, "model", model, outcome = Empty, input_tokens = Empty, output_tokens = Empty)
}

/// How that ended. Not every service counts tokens.
pub(super) fn answered(span: &Span, reply: &Result<Reply, ProviderError>) {
    span.record("outcome", if reply.is_ok() { "answered" } else { "failed" });
    if let Ok(Reply { usage: Some(usage), .. }) = reply {
        span.record("input_tokens", usage.input_tokens);
        span.record("output_tokens", usage.output_tokens);
    }
}
