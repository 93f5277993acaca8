//! A sub-agent: a system prompt with the tools and hooks that are its own.

use std::sync::Arc;

use serde_json::json;

use super::decode::{Decoder, Field};
use super::diagnostic::{Diagnostics, Position};
use super::hook::Hook;
use super::keys::{self, Unknown, keys};
use super::located::Located;
use super::model::{self, ModelName};
use super::policy::budget::Budget;
use super::policy::tools::ToolsPolicy;
use super::policy::{layer, sources};
use super::shape::{self, Name, Schema, Shape};
use super::tool::{Tool, check_name};
use super::yaml::Value;
use harness_policy::layer::{Layer, Origin, Scope};
use harness_policy::limits::LimitRules;

/// A sub-agent as its file declares it.
#[derive(Debug, Clone, PartialEq)]
pub struct Agent {
    /// The stem of its file, as it is; of one in a list, its `name`.
    pub name: String,
    /// One sentence for the planner that chooses among agents.
    pub description: Option<Located<String>>,
    /// The name of the model it runs on, see [`Models::named`](model::Models::named); none: that of the agent that
    /// calls it.
    pub model: Option<Located<String>>,
    /// Its tools, in the order of the file.
    pub tools: Vec<Use<Tool>>,
    /// Its hooks, in the order of the file.
    pub hooks: Vec<Use<Hook>>,
    /// Whether delegations to it may overlap with other calls of one reply of a model, although it can write.
    pub parallel: bool,
    /// Its budget for one task, with all its sub-agents.
    pub budget: Option<Budget>,
    /// The tools that it may call, of those that it would have.
    pub tools_policy: Option<ToolsPolicy>,
    /// The `capabilities:` it restricts itself to: one more layer of the grant of each of its calls.
    pub capabilities: Option<Layer>,
    /// The same of its `limits:`.
    pub limits: Option<Layer>,
    /// The prose of its file, every character of it; of one in a list, its `system_prompt`.
    pub system_prompt: String,
    /// Its `tags:`, for the hooks on `artifact.load`.
    pub tags: Vec<String>,
    /// The first line of its file; of one in a list, its entry.
    pub source: Position,
    /// The name by which a policy knows where it comes from, such as `agents/researcher`.
    pub source_name: String,
}

/// A tool or a hook of an agent.
#[derive(Debug, Clone, PartialEq)]
pub enum Use<T> {
    /// By its name: one that is defined elsewhere, by whatever file.
    Reference(Located<String>),
    /// Written out: the agent's own, which no other artifact can name.
    Inline(Arc<T>),
}

impl<T> Use<T> {
    /// The agent's own, where it is that.
    pub fn inline(&self) -> Option<&Arc<T>> {
        match self {
            Self::Inline(own) => Some(own),
            Self::Reference(_) => None,
        }
    }
}

/// A key that seems to mean one of these must not leave an agent without it.
const BOUNDED: Unknown = Unknown::RefuseLike(&["budget", "tools_policy", "capabilities", "limits"]);

keys! {
    /// What an agent has wherever it is written.
    pub(super) AgentKeys: BOUNDED;
    /// One sentence for the planner that chooses among agents.
    optional description: String;
    /// The name of its model. Default: the model of its caller.
    optional model: ModelName;
    /// Its tools: names of those that are defined elsewhere, and its own, written out.
    optional tools: Vec<Use<Tool>>;
    /// Its hooks: names of those that are defined elsewhere, and its own, written out.
    optional hooks: Vec<Use<Hook>>;
    /// Whether delegations to it may overlap with other calls of one reply, although it can write. Ignored unless
    /// `tools_policy.concurrency` is more than 1.
    given parallel: bool;
    /// Its budget for one task, with all its sub-agents.
    given budget: Budget;
    /// Tags for hooks on `artifact.load`, which may reject an artifact by them.
    optional tags: Vec<String>;
    /// The tools that it may call. This only narrows.
    given tools_policy: ToolsPolicy;
    /// Rules for its calls, which only narrow.
    given capabilities: Layer;
    /// Limits of each of its calls, which only narrow.
    given limits: LimitRules;
}

keys! {
    /// What an agent in a list has instead of a file's name and prose.
    EntryKeys: BOUNDED;
    /// Its name, by which it is called.
    required name: Name;
    /// Its description for models.
    optional system_prompt: String;
}

/// One of a list of agents.
impl Shape for Agent {
    fn schema() -> Schema {
        keys::schema::<(EntryKeys<'_>, AgentKeys<'_>)>()
    }
}

impl<T: Shape> Shape for Use<T> {
    fn schema() -> Schema {
        shape::schema(json!({"anyOf": [Name::schema(), T::schema()]}))
    }
}

impl Agent {
    /// Reads an agent. `file` is for messages, such as `.harness/agents/researcher.md`; `stem` becomes its name. The
    /// agent is there only if nothing is wrong with it; the diagnostics hold everything that is, and warnings.
    pub fn parse(file: &str, stem: &str, text: &str) -> (Option<Self>, Diagnostics) {
        Self::parse_at(file, &sources::name_of(None, &format!("agents/{stem}")), stem, text)
    }

    /// Like [`parse`](Self::parse), for a file whose name as a source does not follow from its path.
    pub fn parse_at(file: &str, source_name: &str, stem: &str, text: &str) -> (Option<Self>, Diagnostics) {
        let mut decoder = Decoder::new(file, format!("parse agent {stem}.md"));
        let agent = Self::decode(&mut decoder, source_name, stem, text);
        let diagnostics = decoder.into_diagnostics();
        (agent.filter(|_| !diagnostics.has_errors()), diagnostics)
    }

    fn decode(decoder: &mut Decoder, source_name: &str, stem: &str, text: &str) -> Option<Self> {
        check_name(decoder, "agent", stem, &decoder.top());
        let document = decoder.document(text)?;
        let keys = decoder.root(&document.root)?;
        let mut agent = Self::of(decoder, &keys, stem, decoder.top(), source_name);
        agent.system_prompt = document.verbatim.to_owned();
        Some(agent)
    }

    /// Reads one of a list of agents: the same keys, and a `name` and a `system_prompt`.
    pub fn entry(decoder: &mut Decoder, index: usize, field: &Field<'_>, place: &str) -> Option<Self> {
        let (entry, keys): (EntryKeys<'_>, AgentKeys<'_>) = decoder.keys(field)?;
        let Some(Located { value: Name(name), position: source }) =
            entry.name.located(decoder).filter(|name| !name.value.0.is_empty())
        else {
            let hint = "give it a line such as `name: researcher`".to_owned();
            decoder.error_with(field, format!("agents[{index}].name cannot be empty"), Some(hint));
            return None;
        };
        check_name(decoder, "agent", &name, &source);
        let mut agent = Self::of(decoder, &keys, &name, source, &format!("{place}agents/{name}"));
        agent.system_prompt = entry.system_prompt.read(decoder).unwrap_or_default();
        Some(agent)
    }

    /// An agent of the keys that it has wherever it is written.
    fn of(decoder: &mut Decoder, keys: &AgentKeys<'_>, name: &str, source: Position, source_name: &str) -> Self {
        let description = keys.description.located(decoder);
        let model = keys.model.field().and_then(|f| model::reference(decoder, f));
        let place = format!("{source_name}/");
        let tools = keys.tools.field().map(|f| {
            uses(decoder, f, "agent tool must be a string reference or inline tool config", |decoder, index, item| {
                Tool::entry(decoder, index, item, &place)
            })
        });
        let hooks = keys.hooks.field().map(|f| {
            uses(decoder, f, "agent hook must be a string reference or inline hook config", |decoder, index, item| {
                Hook::entry(decoder, index, item, &place, Some(name))
            })
        });
        Self {
            name: name.to_owned(),
            description,
            model,
            tools: tools.unwrap_or_default(),
            hooks: hooks.unwrap_or_default(),
            parallel: keys.parallel.read(decoder).unwrap_or_default(),
            budget: keys.budget.read(decoder),
            tags: keys.tags.read(decoder).unwrap_or_default(),
            tools_policy: keys.tools_policy.read(decoder),
            capabilities: keys.capabilities.field().and_then(|f| {
                let origin = Origin::new(&*source.file, Scope::Artifact);
                layer::decode(decoder, f, origin)
            }),
            limits: keys.limits.field().and_then(|f| {
                let origin = Origin::new(&*source.file, Scope::Call);
                layer::decode_limits(decoder, f, origin)
            }),
            system_prompt: String::new(),
            source,
            source_name: source_name.to_owned(),
        }
    }
}

/// A list in which each item is a name or a definition.
fn uses<T>(
    decoder: &mut Decoder,
    field: &Field<'_>,
    otherwise: &str,
    inline: impl Fn(&mut Decoder, usize, &Field<'_>) -> Option<T>,
) -> Vec<Use<T>> {
    let items = decoder.list(field).unwrap_or_default();
    let mut uses = Vec::new();
    for (index, item) in items.iter().enumerate() {
        match &item.node.value {
            Value::Str(name) if !name.is_empty() => {
                uses.push(Use::Reference(Located::new(name.clone(), decoder.position(item.span()))));
            }
            Value::Map(_) => uses.extend(inline(decoder, index, item).map(|one| Use::Inline(Arc::new(one)))),
            other => {
                let message = format!("`{}`: {otherwise}, found {}", item.path, other.kind());
                decoder.error_with(item, message, Some("write a name, or a mapping that defines one".to_owned()));
            }
        }
    }
    uses
}

#[cfg(test)]
mod tests {
    use super::super::event::Event;
    use super::*;

    const FILE: &str = ".harness/agents/researcher.md";

    fn parsed(text: &str) -> Agent {
        let (agent, diagnostics) = Agent::parse(FILE, "researcher", text);
        assert_eq!(diagnostics, Diagnostics::new());
        agent.unwrap()
    }

    #[test]
    fn a_whole_agent() {
        let agent = parsed(
            "---\nmodel: gpt-4o-mini\ndescription: Finds things.\ntools:\n  - name: fetch_url\n    parameters:\n      url: { type: string, required: true }\n    script: |\n      def run(args):\n          return {}\n  - search_text\nhooks:\n  - guard\n  - event: tool.pre\n---\n\n# Researcher\n\nYou are one.\n",
        );
        assert_eq!(agent.system_prompt, "\n# Researcher\n\nYou are one.\n");
        assert_eq!(agent.model.as_ref().map(|m| m.value.as_str()), Some("gpt-4o-mini"));
        assert_eq!(agent.description.as_ref().map(|d| d.position.to_string()), Some(format!("{FILE}:3:14")));
        let [Use::Inline(own), Use::Reference(other)] = agent.tools.as_slice() else { panic!("{:?}", agent.tools) };
        assert_eq!((own.name.as_str(), own.parameters.list.len()), ("fetch_url", 1));
        assert_eq!(own.source_name, "agents/researcher/tools/fetch_url");
        assert_eq!((other.value.as_str(), other.position.line), ("search_text", 11));
        let [Use::Reference(guard), Use::Inline(hook)] = agent.hooks.as_slice() else { panic!("{:?}", agent.hooks) };
        assert_eq!(guard.value, "guard");
        assert_eq!((hook.name.as_str(), &hook.event.value), ("researcher.hooks[1]", &Event::ToolPre));
    }

    #[test]
    fn the_least_agent() {
        let agent = parsed("---\n---\nYou help.");
        assert_eq!((agent.system_prompt.as_str(), agent.model, agent.tools), ("You help.", None, Vec::new()));
    }

    #[test]
    fn what_is_neither_a_name_nor_a_definition() {
        let (agent, diagnostics) =
            Agent::parse(FILE, "researcher", "---\ntools: [7, {script: x}]\nhooks: [[a]]\n---\n");
        assert_eq!(agent, None);
        let shown: Vec<String> = diagnostics.iter().map(|d| d.message.clone()).collect();
        assert_eq!(
            shown,
            [
                "`tools[0]`: agent tool must be a string reference or inline tool config, found an integer",
                "tools[1].name cannot be empty",
                "`hooks[0]`: agent hook must be a string reference or inline hook config, found a list",
            ]
        );
    }
}
