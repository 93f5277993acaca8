//! Words of `mcp` that choose how something is offered.

use serde_json::Value as Json;

use crate::decode::{Decoder, Field};
use crate::shape::{self, Read, Schema, Shape, Shown};

/// How agents are offered to clients.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AgentsAs {
    /// Each as a tool of its own name.
    #[default]
    Tools,
    /// All of them as the tool `run_agent`, whose argument says which.
    RunAgent,
}

impl AgentsAs {
    const WORDS: [(&'static str, Self); 2] = [("tools", Self::Tools), ("run_agent", Self::RunAgent)];
}

/// How clients get the schemas of parameters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Schemas {
    /// Without the keywords at the top that services of models refuse.
    #[default]
    Plain,
    /// As they are written.
    Whole,
}

impl Schemas {
    const WORDS: [(&'static str, Self); 2] = [("plain", Self::Plain), ("whole", Self::Whole)];
}

impl Shape for AgentsAs {
    fn schema() -> Schema {
        shape::words(Self::WORDS.map(|(word, _)| word))
    }
}

impl Read for AgentsAs {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        shape::word(decoder, field, &Self::WORDS)
    }
}

impl Shown for AgentsAs {
    fn shown(&self) -> Json {
        shape::word_of(*self, &Self::WORDS)
    }
}

impl Shape for Schemas {
    fn schema() -> Schema {
        shape::words(Self::WORDS.map(|(word, _)| word))
    }
}

impl Read for Schemas {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        shape::word(decoder, field, &Self::WORDS)
    }
}

impl Shown for Schemas {
    fn shown(&self) -> Json {
        shape::word_of(*self, &Self::WORDS)
    }
}
