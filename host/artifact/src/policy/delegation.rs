//! `delegation`: how agents may call agents.

use super::budget::Budget;
use crate::decode::{Decoder, Field};
use crate::keys::{self, Unknown, keys};
use crate::script::Script;
use crate::shape::{Between, Read, Schema, Shape};

/// How agents may call agents. What is not there has the default of the room that runs them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DelegationPolicy {
    /// Maximum depth of sub-agents; 0 allows none.
    pub max_depth: Option<u64>,
    /// Maximum number of concurrent ones.
    pub max_concurrent: Option<u64>,
    /// Maximum rounds with tools for each depth; the last number applies to all deeper ones.
    pub iterations_per_depth: Option<Vec<u64>>,
    /// Most time of one delegation, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// Whether an agent may call itself.
    pub allow_recursive: Option<bool>,
    /// A script that verifies each result.
    pub verify: Option<Script>,
    /// Maximum number of retries after a rejected result.
    pub max_verify_retries: Option<u64>,
    /// How often in a row a tool may fail an agent before it is not called again in that turn; 0: as often as it likes.
    pub max_tool_failures: Option<u64>,
    /// What each sub-agent may use, where its own file does not say it.
    pub budget: Option<Budget>,
    /// What a turn of the root may use with all that it starts.
    pub tree_budget: Option<Budget>,
}

keys! {
    /// The keys of `delegation`.
    DelegationKeys: Unknown::Refuse;
    /// Maximum depth of sub-agents; 0 allows none.
    given max_depth: Between<0, 16>;
    /// Maximum number of concurrent ones.
    given max_concurrent: Between<1, 256>;
    /// Maximum time of one delegation in milliseconds; at most a day.
    given timeout_ms: Between<1, 86_400_000>;
    /// Maximum number of retries after a rejected result.
    given max_verify_retries: Between<0, 100>;
    /// Failures in a row after which a tool is not called again in a turn; 0: no bound. Default: 5.
    given max_tool_failures: Between<0, 1000>;
    /// Maximum rounds with tools for each depth; the last number applies to all deeper ones.
    given iterations_per_depth: Iterations;
    /// Whether an agent may call itself.
    given allow_recursive: bool;
    /// A script that verifies each result.
    given verify: Script;
    /// The budget of a sub-agent for one task, with its own sub-agents. The file of the sub-agent overrides it.
    given budget: Budget;
    /// The budget of a turn with all its sub-agents.
    given tree_budget: Budget;
}

impl Shape for DelegationPolicy {
    fn schema() -> Schema {
        keys::schema::<DelegationKeys<'_>>()
    }
}

impl Read for DelegationPolicy {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let keys: DelegationKeys<'_> = decoder.keys(field)?;
        Some(Self {
            max_depth: keys.max_depth.read(decoder).map(|n| n.0),
            max_concurrent: keys.max_concurrent.read(decoder).map(|n| n.0),
            iterations_per_depth: keys.iterations_per_depth.read(decoder).map(|list| list.0),
            timeout_ms: keys.timeout_ms.read(decoder).map(|n| n.0),
            allow_recursive: keys.allow_recursive.read(decoder),
            verify: keys.verify.read(decoder),
            max_verify_retries: keys.max_verify_retries.read(decoder).map(|n| n.0),
            max_tool_failures: keys.max_tool_failures.read(decoder).map(|n| n.0),
            budget: keys.budget.read(decoder),
            tree_budget: keys.tree_budget.read(decoder),
        })
    }
}

/// At least one number of rounds.
struct Iterations(Vec<u64>);

impl Shape for Iterations {
    fn schema() -> Schema {
        let mut schema = Vec::<Between<1, 1000>>::schema();
        schema.insert("minItems".to_owned(), 1.into());
        schema
    }
}

impl Read for Iterations {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let numbers = Vec::<Between<1, 1000>>::read(decoder, field)?;
        if numbers.is_empty() {
            decoder.error(field, "`delegation.iterations_per_depth` is empty".to_owned());
            return None;
        }
        Some(Self(numbers.into_iter().map(|n| n.0).collect()))
    }
}
