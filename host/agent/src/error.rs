//! Why a turn has no answer.

use harness_artifact::event::Event;
use harness_provider::ProviderError;

/// Why a turn has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TurnError {
    /// A hook said no.
    #[error("{what} blocked: {reason}")]
    Blocked {
        /// `session`, `turn` or `completion`.
        what: &'static str,
        /// Which hook, and why.
        reason: String,
    },
    /// There is no model to ask.
    #[error("{0}")]
    Config(String),
    /// The model's service failed.
    #[error("{0}")]
    Completion(#[from] ProviderError),
    /// The service held the reply back.
    #[error("the reply was stopped by the service's content filter")]
    ContentFilter,
    /// The reply was longer than it may be, again and again.
    #[error("the reply was cut at its length {0} times in a row; raise `model.max_tokens`")]
    Length(u32),
    /// The reply ended for a reason that means nothing here.
    #[error("the reply ended with the reason {0:?} and no calls")]
    Finish(String),
    /// A hook made something of a payload that cannot be used.
    #[error("{event} modify payload: {why}")]
    Modified {
        /// The event.
        event: Event,
        /// What is wrong.
        why: String,
    },
    /// A limit of the loop.
    #[error("{what} reached ({allowed}); {key} raises it")]
    Limit {
        /// Such as `max tool rounds`.
        what: &'static str,
        /// How much is allowed.
        allowed: u64,
        /// The key of `harness.md` that sets it.
        key: &'static str,
    },
    /// A budget is used up.
    #[error("{what} budget used up ({used} of {allowed}): {set_by} sets it")]
    Budget {
        /// `round`, `token`, `time` or `call`.
        what: &'static str,
        /// How much was used: of tokens it may be more, as a reply is counted when it is there.
        used: u64,
        /// How much is allowed.
        allowed: u64,
        /// The key and where it is.
        set_by: String,
    },
    /// Hooks on `agent.stop` did not let the agent stop.
    #[error("hooks on agent.stop blocked {0} times in a row, the last time: {1}")]
    NeverStops(u32, String),
}

impl TurnError {
    /// The word for it in the payload of `error`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Config(_) => "config",
            Self::Blocked { .. } | Self::Modified { .. } => "hook",
            Self::Completion(_) | Self::ContentFilter | Self::Length(_) | Self::Finish(_) => "completion",
            Self::Limit { .. } | Self::Budget { .. } | Self::NeverStops(..) => "limit",
        }
    }
}
