//! What a lock keeps of an artifact.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::super::{BundleFile, Registry};
use super::FILE;
use harness_artifact::agent::Agent;
use harness_artifact::decode::{Decoder, Field};
use harness_artifact::diagnostic::Position;
use harness_artifact::hook::Hook;
use harness_artifact::plugin;
use harness_artifact::policy::sources::bundle_of;
use harness_artifact::script::Script;
use harness_artifact::skill::Skill;
use harness_artifact::tool::Tool;
use harness_artifact::yaml::{Node, Span, Value};
use harness_artifact::{frontmatter, json, yaml};
use harness_sys::digest::digest;

/// What an artifact is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are those of artifacts")]
pub enum Kind {
    Tool,
    Hook,
    Agent,
    Bundle,
    Skill,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tool => "tool",
            Self::Hook => "hook",
            Self::Agent => "agent",
            Self::Bundle => "bundle",
            Self::Skill => "skill",
        })
    }
}

/// An artifact. Digests are `sha256:` and hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// The file that it is written in, as messages name it.
    pub path: String,
    /// Of all that it is written as: its file, or its entry in `harness.md`, which holds more than it.
    pub sha256: String,
    /// Of its script, with a hook's `when`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// Of the JSON Schema of a tool's parameters, with that of its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// Of the paths and digests of the files beside a skill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<String>,
    /// Of the description.
    pub description: String,
    /// The two as texts, to show a change by. What they are worth is said by the digests.
    pub shown: Shown,
}

/// What a model is shown of an artifact.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shown {
    /// The JSON Schema of each parameter, one a line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<String>,
    /// The JSON Schema of a tool's result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returns: Option<String>,
    /// The files beside a skill, each with its length and digest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// The description; of a hook or bundle its prose, of an agent its prompt as well, of a skill its prose as well.
    pub description: String,
}

impl Shown {
    fn of(description: String) -> Self {
        Self { parameters: Vec::new(), returns: None, files: Vec::new(), description }
    }
}

impl Entry {
    /// The part of it that holds what it says. Where a digest is of another text, the text is not shown.
    pub(super) fn description(&self) -> Option<&str> {
        Some(self.shown.description.as_str()).filter(|text| digest(text) == self.description)
    }
}

/// All artifacts of a registry, but those of plugins that are locked by their content.
pub(super) fn all(registry: &Registry) -> Vec<Entry> {
    let pinned: Vec<&str> =
        registry.bundles().iter().filter(|bundle| bundle.pinned).map(|bundle| bundle.name.as_str()).collect();
    some(registry, &|source| !bundle_of(source).is_some_and(|bundle| pinned.contains(&bundle)))
}

/// The artifacts of a plugin, by kind and name, to be compared with those of another version of it.
pub fn of_plugin(registry: &Registry, source: &str) -> Vec<Entry> {
    some(registry, &|other| bundle_of(other) == Some(source))
}

/// The artifacts of some sources.
fn some(registry: &Registry, wanted: &dyn Fn(&str) -> bool) -> Vec<Entry> {
    // What is of a server is locked with that.
    let own = registry.tools().iter().filter(|one| one.served.is_none() && wanted(&one.source_name));
    let tools = own.map(|one| tool(registry, one));
    let hooks = registry.hooks().iter().filter(|one| wanted(&one.source_name)).map(|one| hook(registry, one));
    let agents = registry.agents().iter().filter(|one| wanted(&one.source_name)).map(|one| agent(registry, one));
    let bundles = registry.bundles().iter().filter(|bundle| wanted(&bundle.name)).map(|bundle| Entry {
        kind: Kind::Bundle,
        name: bundle.name.clone(),
        path: bundle.path.clone(),
        sha256: digest(&of_bundle(registry, bundle)),
        script: None,
        schema: None,
        files: None,
        description: digest(&bundle.prose),
        shown: Shown::of(bundle.prose.clone()),
    });
    let skills = registry.skills().iter().filter(|one| wanted(&one.source_name)).map(|one| skill(registry, one));
    tools.chain(hooks).chain(agents).chain(bundles).chain(skills).collect()
}

/// What a bundle is written as, beside its artifacts: its prose, and its `plugin.md`.
fn of_bundle<'r>(registry: &'r Registry, bundle: &'r BundleFile) -> Cow<'r, str> {
    let file = format!("{}/{}", bundle.path, plugin::FILE);
    match registry.sources().get(&file).filter(|_| bundle.plugin.is_some()) {
        Some(text) => Cow::Owned(serde_json::json!([bundle.prose, text]).to_string()),
        None => Cow::Borrowed(&bundle.prose),
    }
}

fn tool(registry: &Registry, tool: &Tool) -> Entry {
    let schema = tool.json_schema();
    let parameters = schema.get("properties").and_then(serde_json::Value::as_object).into_iter().flatten();
    let required = |name: &str| tool.parameters.list.iter().any(|one| one.name == name && *one.required);
    let parameters = parameters.map(|(name, kind)| {
        let word = if required(name) { "required" } else { "optional" };
        format!("{name}, {word}: {kind}")
    });
    let returns = tool.returns.as_ref().map(|returns| returns.json().to_string());
    let shown =
        Shown { parameters: parameters.collect(), returns: returns.clone(), ..Shown::of(tool.description.clone()) };
    // Without `returns` it is the digest that it was before there was that.
    let schema = match returns {
        Some(returns) => format!("{schema}\n{returns}"),
        None => schema.to_string(),
    };
    let script = tool.script.iter().chain(&tool.verify).collect::<Vec<_>>();
    entry(registry, Kind::Tool, &tool.name, &tool.source, &script, shown, Some(schema))
}

fn hook(registry: &Registry, hook: &Hook) -> Entry {
    let shown = Shown::of(hook.prose.clone());
    let scripts = hook.script.iter().chain(&hook.when).collect::<Vec<_>>();
    entry(registry, Kind::Hook, &hook.name, &hook.source, &scripts, shown, None)
}

fn agent(registry: &Registry, agent: &Agent) -> Entry {
    let description = agent.description.as_ref().map(|text| text.value.as_str()).unwrap_or_default();
    let description = format!("{description}\n\n{}", agent.system_prompt).trim().to_owned();
    entry(registry, Kind::Agent, &agent.name, &agent.source, &[], Shown::of(description), None)
}

fn skill(registry: &Registry, skill: &Skill) -> Entry {
    let description = format!("{}\n\n{}", skill.description.value, skill.body).trim().to_owned();
    let files: Vec<String> =
        skill.files.iter().map(|file| format!("{}, {} bytes: {}", file.path, file.bytes, file.sha256)).collect();
    // One that has none is not another for having a folder.
    let digest = (!files.is_empty()).then(|| digest(&serde_json::Value::from(files.clone()).to_string()));
    let shown = Shown { files, ..Shown::of(description) };
    Entry { files: digest, ..entry(registry, Kind::Skill, &skill.name, &skill.source, &[], shown, None) }
}

fn entry(
    registry: &Registry,
    kind: Kind,
    name: &str,
    source: &Position,
    scripts: &[&Script],
    shown: Shown,
    schema: Option<String>,
) -> Entry {
    // Two texts are distinguished from one that holds both.
    let scripts: Vec<&str> = scripts.iter().map(|script| script.text.as_str()).collect();
    let script = (!scripts.is_empty()).then(|| digest(&serde_json::Value::from(scripts).to_string()));
    Entry {
        kind,
        name: name.to_owned(),
        path: source.file.to_string(),
        sha256: digest(&written(registry, source)),
        script,
        schema: schema.map(|schema| digest(&schema)),
        files: None,
        description: digest(&shown.description),
        shown,
    }
}

/// The text that an artifact is written as. A file that holds the policy too would change with that: there it is the
/// artifact's own entry, as data.
fn written(registry: &Registry, source: &Position) -> String {
    let text = registry.sources().get(&*source.file).map(String::as_str).unwrap_or_default();
    if &*source.file != registry.policy_file() {
        return text.to_owned();
    }
    let (yaml, first_line) = match frontmatter::split(text) {
        Ok(front) => (front.yaml, front.first_line),
        // A policy may be YAML as a whole.
        Err(_) => (text, 1),
    };
    let (root, _) = yaml::parse(yaml, first_line);
    let node = root.as_ref().and_then(|root| node_at(root, source));
    let value = node.and_then(|node| {
        let mut decoder = Decoder::new(&source.file, String::new());
        json::value(&mut decoder, &Field { path: String::new(), key: None, node })
    });
    value.map_or_else(|| text.to_owned(), |value| value.to_string())
}

/// The mapping in one of the lists of a file that begins at a place, or has its name there.
fn node_at<'n>(root: &'n Node, source: &Position) -> Option<&'n Node> {
    let Value::Map(entries) = &root.value else { return None };
    let lists = entries.iter().filter_map(|(_, node)| match &node.value {
        Value::Seq(items) => Some(items),
        _ => None,
    });
    let there = |span: Span| (span.start.line, span.start.column) == (source.line, source.column);
    let holds = |node: &Node| match &node.value {
        Value::Map(entries) => entries.iter().any(|(key, node)| there(key.span) || there(node.span)),
        _ => false,
    };
    lists.flatten().find(|node| there(node.span) || holds(node))
}

/// The place of some bytes of the lock file.
pub(super) fn position(text: &str, bytes: Option<Range<usize>>) -> Position {
    let before = text.get(..bytes.map_or(0, |bytes| bytes.start)).unwrap_or_default();
    let line = before.rsplit('\n').next().unwrap_or_default();
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).saturating_add(1);
    Position {
        file: FILE.into(),
        line: count(before.matches('\n').count()),
        column: count(line.chars().count()),
        length: 1,
    }
}
