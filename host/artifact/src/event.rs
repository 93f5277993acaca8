//! The events that hooks subscribe to, and what each of them carries.

use std::fmt;

/// Something that happens and that hooks are called for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are those of the events")]
pub enum Event {
    SessionStart,
    SessionEnd,
    TurnStart,
    TurnEnd,
    ToolPre,
    ToolPost,
    CompletionPre,
    CompletionPost,
    DelegationPre,
    DelegationPost,
    DelegationPostVerify,
    AgentStop,
    BuiltinPre,
    BuiltinPost,
    ArtifactLoad,
    McpList,
    Error,
    /// `custom.NAME`, emitted by a script; holds `NAME`.
    Custom(String),
    /// `meta.NAME`, fired by what an agent adds to itself; holds `NAME`.
    Meta(String),
}

impl Event {
    /// Those with a fixed name.
    pub const FIXED: [Self; 17] = [
        Self::SessionStart,
        Self::SessionEnd,
        Self::TurnStart,
        Self::TurnEnd,
        Self::ToolPre,
        Self::ToolPost,
        Self::CompletionPre,
        Self::CompletionPost,
        Self::DelegationPre,
        Self::DelegationPost,
        Self::DelegationPostVerify,
        Self::AgentStop,
        Self::BuiltinPre,
        Self::BuiltinPost,
        Self::ArtifactLoad,
        Self::McpList,
        Self::Error,
    ];

    /// The event of a name. After `custom.` and `meta.` come lower-case letters, digits and underscores, at least one.
    pub fn parse(name: &str) -> Option<Self> {
        if let Some(rest) = name.strip_prefix("custom.") {
            return is_word(rest).then(|| Self::Custom(rest.to_owned()));
        }
        if let Some(rest) = name.strip_prefix("meta.") {
            // The built-ins have two names each, and so have their events.
            let rest = match rest {
                "register_tool" => "tool_register",
                "register_hook" => "hook_register",
                other => other,
            };
            return is_word(rest).then(|| Self::Meta(rest.to_owned()));
        }
        Self::FIXED.into_iter().find(|event| event.fixed_name() == name)
    }

    /// Whether a block means something: of what has ended already nothing can be stopped. A hook that fails blocks
    /// wherever it could have blocked, because a guard that does not work must not let anything through.
    pub fn can_block(&self) -> bool {
        !matches!(self, Self::SessionEnd | Self::Error)
    }

    /// Whether it is about the call of a tool.
    pub fn is_call(&self) -> bool {
        matches!(self, Self::ToolPre | Self::ToolPost)
    }

    /// Whether a plugin's hook receives it of its own tools and artifacts alone, whatever the policy says.
    pub fn is_own(&self) -> bool {
        matches!(self, Self::BuiltinPre | Self::BuiltinPost | Self::ArtifactLoad)
    }

    /// Whether it may be an event of a plugin that has tools, or agents.
    pub fn can_be_of(&self, has_tools: bool, has_agents: bool) -> bool {
        match self {
            Self::SessionStart | Self::SessionEnd | Self::McpList => false,
            Self::TurnStart
            | Self::TurnEnd
            | Self::CompletionPre
            | Self::CompletionPost
            | Self::DelegationPre
            | Self::DelegationPost
            | Self::DelegationPostVerify
            | Self::AgentStop
            | Self::Error => has_agents,
            Self::ToolPre
            | Self::ToolPost
            | Self::BuiltinPre
            | Self::BuiltinPost
            | Self::ArtifactLoad
            | Self::Custom(_)
            | Self::Meta(_) => has_tools || has_agents,
        }
    }

    /// The name, or for the open ones what comes before their own part.
    pub fn fixed_name(&self) -> &'static str {
        match self {
            Self::SessionStart => "session.start",
            Self::SessionEnd => "session.end",
            Self::TurnStart => "turn.start",
            Self::TurnEnd => "turn.end",
            Self::ToolPre => "tool.pre",
            Self::ToolPost => "tool.post",
            Self::CompletionPre => "completion.pre",
            Self::CompletionPost => "completion.post",
            Self::DelegationPre => "delegation.pre",
            Self::DelegationPost => "delegation.post",
            Self::DelegationPostVerify => "delegation.post_verify",
            Self::AgentStop => "agent.stop",
            Self::BuiltinPre => "builtin.pre",
            Self::BuiltinPost => "builtin.post",
            Self::ArtifactLoad => "artifact.load",
            Self::McpList => "mcp.list",
            Self::Error => "error",
            Self::Custom(_) => "custom.",
            Self::Meta(_) => "meta.",
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.fixed_name())?;
        match self {
            Self::Custom(rest) | Self::Meta(rest) => f.write_str(rest),
            _ => Ok(()),
        }
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '_'))
}

/// What the payload of an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Nothing: `None`.
    Nothing,
    /// A text.
    Text,
    /// A dict with these keys. Hooks may rely on each of them.
    Dict(&'static [&'static str]),
    /// Whatever who fired it gave.
    Any,
}

impl Event {
    /// Those of `meta.` that are fired.
    pub const FIRED_META: [&str; 3] = ["meta.tool_register", "meta.hook_register", "meta.call_tool"];

    /// Whether some part fires it. A custom one is for scripts to fire.
    pub fn is_fired(&self) -> bool {
        match self {
            Self::Meta(_) => Self::FIRED_META.contains(&self.to_string().as_str()),
            _ => true,
        }
    }

    /// What its payload is. The keys are those of the types in `payload`, which a test
    /// compares.
    pub fn shape(&self) -> Shape {
        match self {
            Self::SessionStart | Self::SessionEnd => Shape::Nothing,
            Self::TurnStart => Shape::Text,
            Self::TurnEnd => Shape::Dict(&["text", "tool_calls", "usage", "log", "agent"]),
            Self::ToolPre => Shape::Dict(&["id", "name", "arguments", "args", "agent"]),
            Self::ToolPost => Shape::Dict(&["call_id", "name", "content", "blocks", "is_error", "result", "agent"]),
            Self::CompletionPre => Shape::Dict(&["model", "messages", "tools", "max_tokens", "temperature", "agent"]),
            Self::CompletionPost => Shape::Dict(&["id", "model", "choices", "usage", "finish_reason", "agent"]),
            Self::DelegationPre => {
                Shape::Dict(&["id", "parent_id", "agent", "prompt", "depth", "path", "model", "tools", "hooks"])
            }
            Self::DelegationPost => Shape::Dict(&["id", "parent_id", "agent", "result", "depth", "path"]),
            Self::DelegationPostVerify => {
                Shape::Dict(&["id", "parent_id", "agent", "result", "depth", "path", "attempt"])
            }
            Self::AgentStop => Shape::Dict(&[
                "id",
                "parent_id",
                "finish_reason",
                "iteration",
                "text",
                "response",
                "tool_calls",
                "tool_results",
                "usage",
                "agent",
            ]),
            Self::BuiltinPre => Shape::Dict(&["tool", "function", "arguments", "agent"]),
            Self::BuiltinPost => Shape::Dict(&["tool", "function", "arguments", "result", "error", "agent"]),
            Self::ArtifactLoad => Shape::Dict(&[
                "kind",
                "name",
                "source",
                "file",
                "plugin",
                "tags",
                "script",
                "description",
                "event",
                "agent",
            ]),
            Self::McpList => Shape::Dict(&["server", "transport", "tools", "agent"]),
            Self::Error => Shape::Dict(&["kind", "message", "source", "agent"]),
            Self::Meta(name) => match name.as_str() {
                "tool_register" => Shape::Dict(&["name", "description", "parameters", "script", "replace", "agent"]),
                "hook_register" => Shape::Dict(&["name", "event", "script", "when", "priority", "agent"]),
                "call_tool" => Shape::Dict(&["name", "arguments", "args", "agent"]),
                _ => Shape::Any,
            },
            Self::Custom(_) => Shape::Any,
        }
    }

    /// Keys of the payload that a hook cannot change: what the event is about.
    pub fn fixed_keys(&self) -> &'static [&'static str] {
        match self {
            Self::Custom(_) => &["agent"],
            Self::BuiltinPre | Self::BuiltinPost => &["tool", "function", "agent"],
            // There it is the one that is started, and a change of it before it begins an error.
            Self::DelegationPre | Self::DelegationPost | Self::DelegationPostVerify => &["id", "call_id", "name"],
            Self::ToolPre | Self::ToolPost | Self::McpList => {
                &["id", "call_id", "name", "agent", "server", "transport"]
            }
            _ => &["id", "call_id", "name", "agent"],
        }
    }

    /// Keys of the payload that whoever fired it takes back from its hooks; `None`: all of it. A change of any other is
    /// seen by the hooks that follow, and by nothing else.
    pub fn taken_keys(&self) -> Option<&'static [&'static str]> {
        Some(match self {
            Self::TurnStart | Self::Custom(_) => return None,
            Self::SessionStart | Self::SessionEnd | Self::ArtifactLoad | Self::Error => &[],
            Self::McpList => &["tools"],
            Self::TurnEnd => &["text"],
            Self::ToolPre => &["arguments", "args"],
            Self::ToolPost => &["content", "blocks", "is_error", "result"],
            Self::CompletionPre => &["model", "messages", "tools", "max_tokens", "temperature"],
            Self::CompletionPost => &["choices", "finish_reason"],
            Self::DelegationPre => &["prompt", "model"],
            Self::DelegationPost | Self::DelegationPostVerify => &["result"],
            Self::AgentStop => &["text", "response"],
            Self::BuiltinPre => &["arguments"],
            Self::BuiltinPost => &["result"],
            Self::Meta(name) => match name.as_str() {
                "tool_register" => &["description"],
                "call_tool" => &["arguments", "args"],
                _ => &[],
            },
        })
    }

    /// Whether its payload has `client` where an agent client fires it, and not otherwise.
    pub fn has_client(&self) -> bool {
        matches!(self, Self::ToolPre | Self::ToolPost | Self::AgentStop)
    }

    /// Keys that its payload has where the tool is one of an MCP server, and not otherwise.
    pub fn server_keys(&self) -> &'static [&'static str] {
        match self {
            Self::ToolPre => &["server", "transport"],
            Self::ToolPost => &["server", "transport", "structured"],
            _ => &[],
        }
    }

    /// Whether it is about a built-in that a tool's script calls.
    pub fn is_builtin(&self) -> bool {
        matches!(self, Self::BuiltinPre | Self::BuiltinPost)
    }

    /// Whether it is about the work of a sub-agent.
    pub fn is_delegation(&self) -> bool {
        matches!(self, Self::DelegationPre | Self::DelegationPost | Self::DelegationPostVerify)
    }

    /// What is to be said of a change of a key that is not taken back.
    pub fn not_taken(&self, key: &str) -> Option<String> {
        if self.fixed_keys().contains(&key) {
            return Some(format!("`{key}` of `{self}` cannot be changed: the change is ignored"));
        }
        let taken = self.taken_keys()?;
        if taken.contains(&key) {
            return None;
        }
        let taken: Vec<String> = taken.iter().map(|key| format!("`{key}`")).collect();
        let what = match taken.split_last() {
            None => "a hook can change nothing of it".to_owned(),
            Some((one, [])) => format!("a hook can change {one}"),
            Some((last, others)) => format!("a hook can change {} and {last}", others.join(", ")),
        };
        Some(format!("`{key}` of `{self}` is changed for later hooks only: {what}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events() {
        for event in Event::FIXED {
            assert_eq!(Event::parse(&event.to_string()), Some(event));
        }
        for (alias, name) in [("register_tool", "tool_register"), ("register_hook", "hook_register")] {
            assert_eq!(Event::parse(&format!("meta.{alias}")), Some(Event::Meta(name.to_owned())));
        }
        assert!(!Event::Meta("x".to_owned()).is_fired() && Event::ToolPre.is_fired());
        for name in ["custom.my_event2", "meta.tool_register"] {
            assert_eq!(Event::parse(name).unwrap().to_string(), name);
        }
        for name in [
            "",
            "tool",
            "tool.pre ",
            "Tool.pre",
            "custom.",
            "custom.A",
            "custom.a.b",
            "custom.a\n",
            "meta.",
            "tool.mid",
        ] {
            assert_eq!(Event::parse(name), None, "{name:?}");
        }
    }

    /// The page on hooks has a row for each event, with its keys and those that a hook may change.
    #[test]
    fn the_page_tells_what_each_carries() {
        let page = include_str!("../../../docs/hooks.md");
        let quoted = |cell: &str| -> Vec<String> { cell.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
        let rows: Vec<Vec<&str>> = page.lines().map(|line| line.split(" | ").collect()).collect();
        let metas = ["tool_register", "hook_register", "call_tool"].map(|name| Event::Meta(name.to_owned()));
        for event in Event::FIXED.into_iter().chain(metas) {
            let row = rows.iter().find(|row| row.len() == 5 && quoted(row[0]) == [event.to_string()]);
            let row = row.unwrap_or_else(|| panic!("{event} has no row"));
            let keys = match event.shape() {
                Shape::Dict(keys) => keys,
                _ => &[],
            };
            assert_eq!(quoted(row[2]), keys, "{event}");
            assert_eq!(quoted(row[4]), event.taken_keys().unwrap_or_default(), "{event}");
        }
    }

    #[test]
    fn what_has_ended_cannot_be_blocked() {
        let others = ["custom.x", "meta.x"].map(|name| Event::parse(name).unwrap());
        let open: Vec<String> =
            Event::FIXED.iter().chain(&others).filter(|e| !e.can_block()).map(ToString::to_string).collect();
        assert_eq!(open, ["session.end", "error"]);
    }
}
