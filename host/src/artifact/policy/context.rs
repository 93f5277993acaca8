//! `context`: how much of a conversation a model gets to see.

use crate::artifact::decode::{Decoder, Field, Unknown};

/// How much of a conversation a model gets to see. What is not there has the default of the room that runs it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContextPolicy {
    /// Most messages, the system prompt not counted.
    pub max_history: Option<u64>,
    /// Most tokens of a request.
    pub max_tokens: Option<u64>,
    /// The system prompt where the file has no prose.
    pub system_prompt: Option<String>,
}

impl ContextPolicy {
    pub(super) fn decode(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let mut fields = decoder.mapping(field)?;
        let max_history = fields.optional("max_history").and_then(|f| decoder.integer_in(&f, 1..=100_000));
        let max_tokens = fields.optional("max_tokens").and_then(|f| decoder.integer_in(&f, 256..=100_000_000));
        let system_prompt = fields.optional("system_prompt").and_then(|f| decoder.string(&f).map(str::to_owned));
        decoder.finish(fields, Unknown::Warn);
        Some(Self { max_history, max_tokens, system_prompt })
    }
}
