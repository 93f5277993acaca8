//! The lines of an agent's turns, and of what is done with its conversation between them.

use serde::{Deserialize, Serialize};

use super::{Tokens, is_false};
use harness_dispatch::Refused;

/// An agent begins a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// The sub-agent's name; empty at the root.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub agent: String,
    /// The agent at work that set it to work, as `by` names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// 0 at the root.
    pub depth: u32,
    /// Its task.
    pub text: String,
}

/// A turn is continued that was interrupted with its process: how far it came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Continued {
    /// Its task.
    pub text: String,
    /// Messages of the conversation before its own.
    pub began: u64,
    /// Rounds with calls.
    pub rounds: u32,
    /// Calls that were made, also by sub-agents.
    pub calls: u64,
    /// Tokens that the models' services counted, also for sub-agents.
    pub tokens: u64,
    /// Those calls of the last reply that had begun and have no result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub begun: Vec<String>,
}

/// A turn ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turned {
    /// The answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The word for that: `config`, `hook`, `completion` or `limit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_kind: Option<String>,
    /// Why it was ended early, where that is a warning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// Rounds with calls.
    pub rounds: u32,
    /// What the model's service counted.
    pub tokens: Tokens,
    /// Whether its time was over before it was done.
    #[serde(default, skip_serializing_if = "is_false")]
    pub late: bool,
    /// Which budget had no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refused>,
    /// What was shown of an answer that it does not have, which the conversation keeps with a mark. None: it keeps none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
}

/// Messages of a conversation were dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forgot {
    /// Those before this place.
    pub before: u64,
}

/// An agent runs on another model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switched {
    /// The name of the model.
    pub model: String,
}
