//! `meta`: what an agent may add to itself while it runs.

use crate::decode::{Decoder, Field};
use crate::keys::{self, Unknown, keys};
use crate::shape::{Between, Read, Schema, Shape};

/// How many of something a run may add.
type Count = Between<0, 1000>;

/// Tools that a run may add where the policy does not say.
pub const MAX_TOOLS: u64 = 50;
/// Hooks that a run may add where the policy does not say.
pub const MAX_HOOKS: u64 = 30;
/// Agents that a run may add where the policy does not say.
pub const MAX_AGENTS: u64 = 10;
/// How deep tools may call tools where the policy does not say.
pub const MAX_CALL_DEPTH: u64 = 5;

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
    /// Maximum depth of tools that call tools.
    pub max_call_depth: Option<u64>,
}

impl MetaPolicy {
    /// How many of each, with the name of its key.
    pub fn numbers(&self) -> [(&'static str, u64); 4] {
        [
            ("max_tools", self.max_tools.unwrap_or(MAX_TOOLS)),
            ("max_hooks", self.max_hooks.unwrap_or(MAX_HOOKS)),
            ("max_agents", self.max_agents.unwrap_or(MAX_AGENTS)),
            ("max_call_depth", self.max_call_depth.unwrap_or(MAX_CALL_DEPTH)),
        ]
    }

    /// The same within another one.
    #[must_use]
    pub fn narrowed_by(self, outer: Self) -> Self {
        let least = |own: Option<u64>, outer: Option<u64>, default: u64| match (own, outer) {
            (None, None) => None,
            (own, outer) => Some(own.unwrap_or(default).min(outer.unwrap_or(default))),
        };
        Self {
            enabled: self.enabled && outer.enabled,
            max_tools: least(self.max_tools, outer.max_tools, MAX_TOOLS),
            max_hooks: least(self.max_hooks, outer.max_hooks, MAX_HOOKS),
            max_agents: least(self.max_agents, outer.max_agents, MAX_AGENTS),
            max_call_depth: least(self.max_call_depth, outer.max_call_depth, MAX_CALL_DEPTH),
        }
    }
}

keys! {
    /// The keys of `meta`.
    MetaKeys: Unknown::Refuse;
    /// Whether a run may add tools and hooks.
    given enabled: bool = false;
    /// Maximum number of tools that a run may add.
    given max_tools: Count;
    /// Maximum number of hooks that a run may add.
    given max_hooks: Count;
    /// Maximum number of agents that a run may add.
    given max_agents: Count;
    /// Maximum depth of tools that call tools.
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
