//! `context`: how much of a conversation a model gets to see.

use crate::decode::{Decoder, Field};
use crate::keys::{self, Unknown, keys};
use crate::shape::{Between, Read, Schema, Shape};

/// How much of a conversation a model gets to see. What is not there has the default of the room that runs it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContextPolicy {
    /// Maximum number of messages, without the system prompt.
    pub max_history: Option<u64>,
    /// Maximum tokens of a request.
    pub max_tokens: Option<u64>,
    /// The system prompt if the file has no prose.
    pub system_prompt: Option<String>,
    /// Most bytes of the prose of bundles and tools in a system prompt, and most of the list of skills.
    pub max_prose_bytes: Option<u64>,
}

keys! {
    /// The keys of `context`. A limit must not be misspelled and leave its default standing.
    ContextKeys: Unknown::RefuseLike(&["max_history", "max_tokens", "max_prose_bytes"]);
    /// Maximum number of messages, without the system prompt.
    optional max_history: Between<1, 100_000>;
    /// Maximum tokens of a request.
    optional max_tokens: Between<256, 100_000_000>;
    /// The system prompt if the file has no prose.
    optional system_prompt: String;
    /// Maximum bytes of the prose of bundles and tools in a system prompt, and of the list of skills; 0 leaves both
    /// out.
    optional max_prose_bytes: Between<0, 1_048_576>;
}

impl Shape for ContextPolicy {
    fn schema() -> Schema {
        keys::schema::<ContextKeys<'_>>()
    }
}

impl Read for ContextPolicy {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let keys: ContextKeys<'_> = decoder.keys(field)?;
        Some(Self {
            max_history: keys.max_history.read(decoder).map(|n| n.0),
            max_tokens: keys.max_tokens.read(decoder).map(|n| n.0),
            system_prompt: keys.system_prompt.read(decoder),
            max_prose_bytes: keys.max_prose_bytes.read(decoder).map(|n| n.0),
        })
    }
}
