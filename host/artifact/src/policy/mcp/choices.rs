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

/// What clients and the project's agents get to call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Expose {
    /// The tools.
    #[default]
    Tools,
    /// `search_tools`, `describe_tool` and `run_script`, whose scripts call the tools.
    Code,
    /// Both.
    Both,
}

impl Expose {
    const WORDS: [(&'static str, Self); 3] = [("tools", Self::Tools), ("code", Self::Code), ("both", Self::Both)];

    /// Whether scripts are run that call the tools.
    pub fn has_code(self) -> bool {
        self != Self::Tools
    }

    /// Whether the tools are offered themselves.
    pub fn has_tools(self) -> bool {
        self != Self::Code
    }
}

/// Who calls a tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ToolExpose {
    /// Models, clients and scripts.
    #[default]
    Both,
    /// Scripts alone.
    Script,
}

impl ToolExpose {
    const WORDS: [(&'static str, Self); 2] = [("both", Self::Both), ("script", Self::Script)];
}

impl Shape for ToolExpose {
    fn schema() -> Schema {
        shape::words(Self::WORDS.map(|(word, _)| word))
    }
}

impl Read for ToolExpose {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        shape::word(decoder, field, &Self::WORDS)
    }
}

impl Shown for ToolExpose {
    fn shown(&self) -> Json {
        shape::word_of(*self, &Self::WORDS)
    }
}

impl Shape for Expose {
    fn schema() -> Schema {
        shape::words(Self::WORDS.map(|(word, _)| word))
    }
}

impl Read for Expose {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        shape::word(decoder, field, &Self::WORDS)
    }
}

impl Shown for Expose {
    fn shown(&self) -> Json {
        shape::word_of(*self, &Self::WORDS)
    }
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
