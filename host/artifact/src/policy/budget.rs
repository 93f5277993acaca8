//! `budget`: what an agent at work may use, with all that it starts in turn.

use crate::decode::{Decoder, Field};
use crate::keys::{self, Unknown, keys};
use crate::located::Located;
use crate::shape::{Between, Read, Schema, Shape};

/// What an agent at work may use, with all that it starts in turn. What is not there is not bounded by it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Budget {
    /// Maximum rounds with tools.
    pub rounds: Option<Located<u64>>,
    /// Most tokens that the models' services count, of requests and replies together.
    pub tokens: Option<Located<u64>>,
    /// Most time, in milliseconds.
    pub time_ms: Option<Located<u64>>,
    /// Maximum tool calls by models.
    pub calls: Option<Located<u64>>,
    /// The key that all this is under, such as `delegation.budget`.
    pub key: String,
}

keys! {
    /// The keys of a budget.
    BudgetKeys: Unknown::Refuse;
    /// Maximum rounds with tools.
    given rounds: Between<1, 1_000_000>;
    /// Maximum tokens of requests and replies together, as the services of the models count them.
    given tokens: Between<1, 1_000_000_000_000>;
    /// Maximum time in milliseconds; at most a day.
    given time_ms: Between<1, 86_400_000>;
    /// Maximum tool calls by models.
    given calls: Between<1, 1_000_000>;
}

impl Shape for Budget {
    fn schema() -> Schema {
        keys::schema::<BudgetKeys<'_>>()
    }
}

impl Read for Budget {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let keys: BudgetKeys<'_> = decoder.keys(field)?;
        Some(Self {
            rounds: keys.rounds.located(decoder).map(|n| n.map(|n| n.0)),
            tokens: keys.tokens.located(decoder).map(|n| n.map(|n| n.0)),
            time_ms: keys.time_ms.located(decoder).map(|n| n.map(|n| n.0)),
            calls: keys.calls.located(decoder).map(|n| n.map(|n| n.0)),
            key: field.path.clone(),
        })
    }
}
