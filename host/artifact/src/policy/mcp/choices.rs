//! Words of `mcp` that choose how something is offered.

use crate::shape::chosen_by_word;

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

chosen_by_word!(AgentsAs, Schemas, Expose, ToolExpose);
