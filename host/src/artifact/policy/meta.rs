//! `meta`: what an agent may add to itself while it runs.

use crate::artifact::decode::{Decoder, Field};
use crate::artifact::keys::{self, Unknown, keys};
use crate::artifact::shape::{Between, Read, Schema, Shape};

/// How many of something a run may add.
type Count = Between<0, 1000>;

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

keys! {
    /// The keys of `meta`.
    MetaKeys: Unknown::Refuse;
    /// Whether a run may add anything to itself at all.
    given enabled: bool = false;
    /// Most tools that a run may add.
    given max_tools: Count;
    /// Most hooks that a run may add.
    given max_hooks: Count;
    /// Most agents that a run may add.
    given max_agents: Count;
    /// How deep tools may call tools.
    given max_call_depth: Count;
}

impl Shape for MetaPolicy {
    fn schema() -> Schema {
        keys::schema::<MetaKeys<'_>>()
    }
}

impl Read for MetaPolicy {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let keys: MetaKeys<'_> = decoder.keys(field)?;
        Some(Self {
            enabled: keys.enabled.read(decoder),
            max_tools: keys.max_tools.read(decoder).map(|n| n.0),
            max_hooks: keys.max_hooks.read(decoder).map(|n| n.0),
            max_agents: keys.max_agents.read(decoder).map(|n| n.0),
            max_call_depth: keys.max_call_depth.read(decoder).map(|n| n.0),
        })
    }
}
