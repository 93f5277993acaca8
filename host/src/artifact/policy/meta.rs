//! `meta`: what an agent may add to itself while it runs.

use crate::artifact::decode::{Decoder, Field, Unknown};

/// Most of anything that a run may add.
const MOST: u64 = 1000;

/// What an agent may add to itself. By default nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MetaPolicy {
    /// Whether anything may be added at all.
    pub enabled: bool,
    /// Most tools; none: the default of the room that adds them.
    pub max_tools: Option<u64>,
    /// Most hooks.
    pub max_hooks: Option<u64>,
    /// Most agents.
    pub max_agents: Option<u64>,
    /// How deep tools may call tools.
    pub max_call_depth: Option<u64>,
}

impl MetaPolicy {
    pub(super) fn decode(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let mut fields = decoder.mapping(field)?;
        let enabled = fields.take("enabled").and_then(|f| decoder.boolean(&f)).unwrap_or(false);
        let mut take = |key| fields.take(key).and_then(|f| decoder.integer_in(&f, 0..=MOST));
        let policy = Self {
            enabled,
            max_tools: take("max_tools"),
            max_hooks: take("max_hooks"),
            max_agents: take("max_agents"),
            max_call_depth: take("max_call_depth"),
        };
        decoder.finish(fields, Unknown::Refuse);
        Some(policy)
    }
}
