//! JSON Schemas of the front matter, for editors: 2020-12, one for each kind of artifact.
//!
//! They are made of the tables that the decoders read by (`keys`), and of the types of their values (`shape`). A test
//! gives documents to both and wants the same answer.

use serde_json::{Value as Json, json};

use super::agent::AgentKeys;
use super::bundle::Bundle;
use super::hook::HookKeys;
use super::keys;
use super::plugin::PluginKeys;
use super::policy::ProjectPolicy;
use super::shape::{Schema, Shape};
use super::skill::Skill;
use super::tool::ToolKeys;

/// The kinds of artifact that have a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of the artifacts")]
pub enum Kind {
    Tool,
    Hook,
    Agent,
    Skill,
    Bundle,
    Plugin,
    Harness,
}

impl Kind {
    /// All of them, in the order of listings.
    pub const ALL: [Self; 7] =
        [Self::Tool, Self::Hook, Self::Agent, Self::Skill, Self::Bundle, Self::Plugin, Self::Harness];

    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Hook => "hook",
            Self::Agent => "agent",
            Self::Skill => "skill",
            Self::Bundle => "bundle",
            Self::Plugin => "plugin",
            Self::Harness => "harness",
        }
    }

    fn about(self) -> &'static str {
        match self {
            Self::Tool => {
                "A Starlark function that models call by the name of its file. Its prose is the description that models see."
            }
            Self::Hook => "A Starlark function that receives an event and decides on it.",
            Self::Agent => "A sub-agent: its prose is its system prompt.",
            Self::Skill => "Instructions for a kind of work: prose that models read on demand.",
            Self::Bundle => "Tools, hooks and agents in one file.",
            Self::Plugin => "The name, version and authors of a plugin, and the capabilities that it asks for.",
            Self::Harness => {
                "The policy of a project, its models, and artifacts that need no file of their own; its prose is the system prompt."
            }
        }
    }
}

/// The schema of a kind's front matter. Keys that it does not know are allowed where loading ignores them.
pub fn of(kind: Kind) -> Json {
    let of = match kind {
        Kind::Tool => keys::schema::<ToolKeys<'_>>(),
        Kind::Hook => keys::schema::<HookKeys<'_>>(),
        Kind::Agent => keys::schema::<AgentKeys<'_>>(),
        Kind::Skill => Skill::schema(),
        Kind::Bundle => Bundle::schema(),
        Kind::Plugin => keys::schema::<PluginKeys<'_>>(),
        Kind::Harness => ProjectPolicy::schema(),
    };
    let mut schema = Schema::new();
    schema.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
    schema.insert("title".to_owned(), json!(format!("front matter of a {} artifact", kind.name())));
    schema.insert("description".to_owned(), json!(kind.about()));
    // What a file that is no policy refuses wherever else it ignores a key.
    let known = of.get("properties").and_then(Json::as_object);
    let refused: Vec<&str> =
        keys::POLICY_ONLY.into_iter().filter(|key| known.is_none_or(|known| !known.contains_key(*key))).collect();
    if !refused.is_empty() {
        schema.insert("propertyNames".to_owned(), keys::but(&refused));
    }
    schema.extend(of);
    schema.into()
}

#[cfg(test)]
mod tests;
