//! `mcp`: what clients of the Model Context Protocol are offered beside the project's tools.

use serde_json::Value as Json;

use super::tools::{NamePattern, ToolsPolicy};
use crate::decode::{Decoder, Field};
use crate::keys::{self, Unknown, keys};
use crate::located::Located;
use crate::shape::{self, Read, Schema, Shape, Shown};

/// What clients are offered beside tools. The default is nothing: an agent uses the operator's models.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct McpPolicy {
    /// Agents that clients may set tasks.
    pub agents: Vec<Located<NamePattern>>,
    /// How they are offered.
    pub agents_as: AgentsAs,
    /// How clients get the schemas of parameters.
    pub schemas: Schemas,
    /// Tools that clients call as tasks, or not at all.
    pub only_as_tasks: Vec<Located<NamePattern>>,
}

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

impl McpPolicy {
    /// Whether clients may set this agent tasks.
    pub fn offers_agent(&self, name: &str) -> bool {
        self.agents.iter().any(|pattern| pattern.value.matches(name))
    }

    /// Whether clients call a tool as a task, or not at all.
    pub fn wants_task(&self, tool: &str) -> bool {
        self.only_as_tasks.iter().any(|pattern| pattern.value.matches(tool))
    }

    /// The name of an agent that this one offers and another one does not. An error: that could not be found out.
    pub fn wider_than(&self, old: &Self) -> Result<Option<String>, ()> {
        let Some(first) = self.agents.first() else { return Ok(None) };
        let names =
            |policy: &Self| -> Vec<NamePattern> { policy.agents.iter().map(|pattern| pattern.value.clone()).collect() };
        let [now, before] = [names(self), names(old)].map(|names| ToolsPolicy::of_patterns(&names, &first.position));
        now.wider_than(&before)
    }
}

keys! {
    /// The keys of `mcp`.
    McpKeys: Unknown::Refuse;
    /// Agents that clients of `harness mcp serve` may set tasks, by name: `helper`, `review_*`. Default: none.
    given agents: Vec<Located<NamePattern>>;
    /// How they are offered: each as a tool of its own (`tools`), or all as one tool (`run_agent`).
    given agents_as: AgentsAs = AgentsAs::Tools;
    /// How clients get the schemas of parameters: without the keywords at the top that services of models refuse, such as
    /// `anyOf` (`plain`), or as they are written (`whole`).
    given schemas: Schemas = Schemas::Plain;
    /// Tools that only clients may call that can follow them as tasks, by name. Default: none.
    given only_as_tasks: Vec<Located<NamePattern>>;
}

impl Shape for McpPolicy {
    fn schema() -> Schema {
        keys::schema::<McpKeys<'_>>()
    }
}

impl Read for McpPolicy {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let keys: McpKeys<'_> = decoder.keys(field)?;
        Some(Self {
            agents: keys.agents.read(decoder).unwrap_or_default(),
            agents_as: keys.agents_as.read(decoder),
            schemas: keys.schemas.read(decoder),
            only_as_tasks: keys.only_as_tasks.read(decoder).unwrap_or_default(),
        })
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
