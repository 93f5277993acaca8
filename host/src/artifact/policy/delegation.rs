//! `delegation`: how agents may call agents.

use crate::artifact::decode::{Decoder, Field, Unknown};
use crate::artifact::script::Script;

/// How agents may call agents. What is not there has the default of the room that runs them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DelegationPolicy {
    /// How deep agents may call agents; 0: not at all.
    pub max_depth: Option<u64>,
    /// How many may run at one time.
    pub max_concurrent: Option<u64>,
    /// Most rounds with tools, for each depth; the last one holds for all that are deeper.
    pub iterations_per_depth: Option<Vec<u64>>,
    /// Most time of one delegation, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// Whether an agent may call itself.
    pub allow_recursive: Option<bool>,
    /// A script that judges each result.
    pub verify: Option<Script>,
    /// How often a result that was refused is asked for again.
    pub max_verify_retries: Option<u64>,
}

impl DelegationPolicy {
    pub(super) fn decode(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let mut fields = decoder.mapping(field)?;
        let mut take =
            |decoder: &mut Decoder, key, bounds| fields.take(key).and_then(|f| decoder.integer_in(&f, bounds));
        let max_depth = take(decoder, "max_depth", 0..=16);
        let max_concurrent = take(decoder, "max_concurrent", 1..=256);
        let timeout_ms = take(decoder, "timeout_ms", 1..=86_400_000);
        let max_verify_retries = take(decoder, "max_verify_retries", 0..=100);
        let iterations_per_depth = fields.take("iterations_per_depth").and_then(|f| iterations(decoder, &f));
        let allow_recursive = fields.take("allow_recursive").and_then(|f| decoder.boolean(&f));
        let verify = fields.take("verify").and_then(|f| decoder.script(&f));
        decoder.finish(fields, Unknown::Refuse);
        Some(Self {
            max_depth,
            max_concurrent,
            iterations_per_depth,
            timeout_ms,
            allow_recursive,
            verify,
            max_verify_retries,
        })
    }
}

fn iterations(decoder: &mut Decoder, field: &Field<'_>) -> Option<Vec<u64>> {
    let items = decoder.list(field)?;
    if items.is_empty() {
        decoder.error(field, "`delegation.iterations_per_depth` is empty".to_owned());
        return None;
    }
    let numbers: Vec<Option<u64>> = items.iter().map(|item| decoder.integer_in(item, 1..=1000)).collect();
    numbers.into_iter().collect()
}
