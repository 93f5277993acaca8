//! The rules that a plugin asks for: each by itself, with the words that a person consents to, and together as a layer.
//!
//! A rule is one item of one list of `capabilities:`, so that a person can consent to some of them. What is asked for,
//! what is written into `sandbox.sources`, and what is digested are made of the same rules.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json, json};

use super::Sentence;
use crate::decode::{Decoder, Field};
use crate::diagnostic::{Diagnostic, Position};
use crate::event::Event;
use crate::json as data;
use crate::keys::{self, Unknown, keys};
use crate::located::Located;
use crate::policy::hearing::{Heard, Shows};
use crate::policy::layer as layers;
use crate::policy::tools::NamePattern;
use crate::shape::{Name, Read, Schema, Shape};
use harness_policy::command::ExecRules;
use harness_policy::layer::{Layer, Origin, Scope, Service};
use harness_policy::network::NetworkRules;
use harness_policy::path::FsRules;
use harness_policy::shared::Shared;
use harness_policy::text::quoted;

/// Rules that belong together, with the reason for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// Why the plugin needs them, in its author's words.
    pub reason: String,
    /// The rules, in the order of [`entry`].
    pub rules: Vec<Rule>,
    /// Where it is.
    pub position: Position,
}

/// One thing that a plugin asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The key of its list, as below an entry of `sandbox.sources`: `fs.read`, `events`.
    pub key: &'static str,
    /// The item of the list, or the whole value where the key has no list.
    pub item: Json,
}

/// What a plugin asks for, as the policy keeps to it: one more layer of each of its grants.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// The name of the plugin as a source, such as `plugins/acme`.
    pub source: String,
    /// Everything but the rest.
    pub layer: Layer,
    /// Tools of others that its agents may call.
    pub tools: Vec<NamePattern>,
    /// Servers whose tools it may call.
    pub servers: Vec<String>,
    /// Events of others that its hooks receive, with what is shown of each.
    pub events: Vec<Heard>,
    /// Names that it shares with the project.
    pub shared: Vec<Shared>,
}

keys! {
    /// What an ask has beside the keys of `capabilities:`.
    AskKeys: Unknown::Refuse;
    /// Why the plugin needs this, for the person who decides.
    required reason: Sentence;
    /// Patterns of names of tools outside the plugin that the plugin's agents may call.
    given tools: Vec<Located<NamePattern>>;
    /// Servers of `mcp.servers` whose tools the plugin's scripts and agents may call.
    given mcp: Vec<Located<Name>>;
    /// Events that the plugin's hooks receive, of all tools and agents of the project.
    given events: Vec<Heard>;
    /// Names that the plugin shares with the project: `custom.NAME`, `cache.KEY`, `ctx.KEY` or `metrics.NAME`, with a `*`
    /// at the end for any rest.
    given shared: Vec<Shared>;
}

impl Shape for Ask {
    fn schema() -> Schema {
        let mut schema = keys::schema::<(layers::LayerKeys<'_>, AskKeys<'_>)>();
        // These take away, and nobody consents to that.
        if let Some(properties) = schema.get_mut("properties").and_then(Json::as_object_mut) {
            properties.shift_remove("limits");
            let fs = properties.get_mut("fs").and_then(|fs| fs.get_mut("properties"));
            fs.and_then(Json::as_object_mut).map(|fs| fs.shift_remove("protect"));
        }
        schema
    }
}

impl Read for Ask {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let origin = Origin::new(&*decoder.top().file, Scope::Asked);
        let (layer, keys) = layers::decode_with::<AskKeys<'_>>(decoder, field, origin)?;
        if keys.reason.field().is_none() {
            let hint = "say in a sentence why the plugin needs it: `reason: ...`".to_owned();
            decoder.error_with(field, format!("{} has no `reason`", quoted(&field.path)), Some(hint));
        }
        let reason = keys.reason.read(decoder)?.0;
        let (tools, mcp) = (keys.tools.read(decoder), keys.mcp.read(decoder));
        drop((tools, mcp, keys.events.read(decoder), keys.shared.read(decoder)));
        let narrows = layer.limits != Default::default() || layer.fs.is_some_and(|fs| !fs.protect.is_empty());
        if narrows {
            let hint = "limits belong in `capabilities` of an artifact, and so does `fs.protect`".to_owned();
            decoder.error_with(field, format!("{} narrows, and asks for nothing", quoted(&field.path)), Some(hint));
            return None;
        }
        let rules = rules(&data::value(decoder, field)?);
        Some(Self { reason, rules, position: decoder.position(field.span()) })
    }
}

/// The keys whose values are lists of rules, in the order that they are written in.
const LISTS: [&str; 14] = [
    "fs.read",
    "fs.write",
    "network",
    "exec.allow",
    "exec.env",
    "exec.folders",
    "exec.network",
    "env",
    "services",
    "secrets",
    "tools",
    "mcp",
    "events",
    "shared",
];
/// Those whose value is one rule, where it is true.
const FLAGS: [&str; 2] = ["exec.network", "exec.unconfined"];

fn at<'j>(entry: &'j Json, key: &str) -> Option<&'j Json> {
    key.split('.').try_fold(entry, |value, part| value.get(part))
}

/// The rules of a mapping of capabilities.
pub(super) fn rules(entry: &Json) -> Vec<Rule> {
    let items = |key: &'static str| {
        let items = at(entry, key).and_then(Json::as_array).into_iter().flatten();
        items.map(move |item| Rule { key, item: item.clone() })
    };
    let flags = FLAGS.into_iter().filter(|key| at(entry, key) == Some(&Json::Bool(true)));
    let flags = flags.map(|key| Rule { key, item: Json::Bool(true) });
    LISTS.into_iter().flat_map(items).chain(flags).collect()
}

/// What is wrong with the asks of a plugin together.
pub(super) fn check(decoder: &mut Decoder, field: Option<&Field<'_>>, asks: &[Ask], most: usize) {
    let mut seen = BTreeSet::new();
    for ask in asks {
        if ask.rules.is_empty() {
            let error = Diagnostic::error("this ask names nothing".to_owned()).at(ask.position.clone());
            decoder.diagnostics.push(error.hint("name what the plugin needs, such as `fs: { read: [docs] }`"));
        }
        for rule in &ask.rules {
            if !seen.insert((rule.key, rule.item.to_string())) {
                let what = format!("{} is asked for twice", quoted(&rule.to_string()));
                decoder.diagnostics.push(Diagnostic::error(what).at(ask.position.clone()));
            }
        }
    }
    if let Some(field) = field.filter(|_| seen.len() > most) {
        decoder.error(field, format!("a plugin asks for at most {most} rules"));
    }
    // What is written into a policy later has to be read there as it was here.
    let all: Vec<Rule> = asks.iter().flat_map(|ask| &ask.rules).cloned().collect();
    if let Some(field) = field.filter(|_| layer(&all, "").is_none()) {
        decoder.error(field, format!("{} cannot be written as one entry of a policy", quoted(&field.path)));
    }
}

/// Rules as the value of an entry of `sandbox.sources`.
pub fn entry<'r>(rules: impl IntoIterator<Item = &'r Rule> + Clone) -> Json {
    let mut entry = json!({});
    let mut put = |key: &str, value: Json| {
        let mut at = &mut entry;
        let mut parts = key.split('.').peekable();
        while let Some(part) = parts.next() {
            let Some(object) = at.as_object_mut() else { return };
            if parts.peek().is_none() {
                object.insert(part.to_owned(), value);
                return;
            }
            at = object.entry(part).or_insert_with(|| Json::Object(Map::new()));
        }
    };
    for key in LISTS {
        let items = rules.clone().into_iter().filter(|rule| rule.key == key && !rule.item.is_boolean());
        let items: Vec<Json> = items.map(|rule| rule.item.clone()).collect();
        if !items.is_empty() {
            put(key, items.into());
        }
    }
    for key in FLAGS {
        if rules.clone().into_iter().any(|rule| rule.key == key && rule.item.is_boolean()) {
            put(key, Json::Bool(true));
        }
    }
    entry
}

/// Rules as text that is always the same for the same rules, for their digest: one a line, sorted.
pub fn canonical<'r>(rules: impl IntoIterator<Item = &'r Rule>) -> String {
    let lines: BTreeSet<String> = rules.into_iter().map(|rule| format!("{}\n", json!([rule.key, rule.item]))).collect();
    lines.into_iter().collect()
}

/// Rules as a layer that grants them and nothing else. `file` is where they were written. None where they cannot be
/// read as one.
pub fn layer<'r>(rules: impl IntoIterator<Item = &'r Rule>, file: &str) -> Option<Layer> {
    let others = ["tools", "mcp", "events", "shared"];
    let rules: Vec<&Rule> = rules.into_iter().filter(|rule| !others.contains(&rule.key)).collect();
    let text = entry(rules).to_string();
    let read = layers::parse(file, &text).0?;
    Some(Layer {
        origin: Origin::new(file, Scope::Asked),
        fs: Some(read.fs.unwrap_or_else(FsRules::default)),
        network: Some(read.network.unwrap_or_else(NetworkRules::default)),
        exec: Some(read.exec.unwrap_or_else(ExecRules::default)),
        env: Some(read.env.unwrap_or_default()),
        services: Some(read.services.unwrap_or_default()),
        secrets: Some(read.secrets.unwrap_or_default()),
        limits: read.limits,
    })
}

/// An item of `events`, as it was read before.
fn heard(item: &Json) -> Option<Heard> {
    let text = |item: &Json| Event::parse(item.as_str()?);
    let shows = |item: &Json| Shows::ALL.into_iter().find(|shows| Some(shows.name()) == item.as_str());
    match item {
        Json::Object(object) => Some(Heard {
            event: text(object.get("event")?)?,
            shows: object.get("shows").map_or(Some(Shows::All), shows)?,
        }),
        item => Some(Heard { event: text(item)?, shows: Shows::All }),
    }
}

impl Asked {
    /// What a plugin asks for, as a policy keeps to it. `file` is its `plugin.md`, `source` its name in policies.
    pub fn of<'r>(rules: impl IntoIterator<Item = &'r Rule> + Clone, file: &str, source: &str) -> Self {
        let texts = |key: &str| {
            let rules = rules.clone().into_iter().filter(|rule| rule.key == key);
            rules.filter_map(|rule| rule.item.as_str().map(str::to_owned)).collect::<Vec<_>>()
        };
        let nothing = || layer([], file).unwrap_or_else(|| Layer::silent(Origin::new(file, Scope::Asked)));
        Self {
            source: source.to_owned(),
            layer: layer(rules.clone(), file).unwrap_or_else(nothing),
            tools: texts("tools").iter().filter_map(|text| NamePattern::parse(text).ok()).collect(),
            servers: texts("mcp"),
            shared: texts("shared").iter().filter_map(|text| Shared::parse(text).ok()).collect(),
            events: rules
                .into_iter()
                .filter(|rule| rule.key == "events")
                .filter_map(|rule| heard(&rule.item))
                .collect(),
        }
    }

    /// The file that asks.
    pub fn position(&self) -> Position {
        Position { file: self.layer.origin.file.as_str().into(), line: 1, column: 1, length: 3 }
    }
}

/// The rule in words: what the plugin may do with it.
impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = match &self.item {
            Json::String(text) => text.clone(),
            Json::Object(object) => spelled(object),
            other => other.to_string(),
        };
        match (self.key, &self.item) {
            ("fs.read", _) => write!(f, "read files that match `{text}`"),
            ("fs.write", _) => write!(f, "create, change and remove files that match `{text}`"),
            ("network", _) => write!(f, "send requests to `{text}`"),
            ("exec.allow", Json::Object(_)) => write!(f, "run exactly the command `{text}`"),
            ("exec.allow", _) => write!(f, "run commands that match `{text}`"),
            ("exec.env", _) => write!(f, "give its commands the variable `{text}`"),
            ("exec.folders", _) => write!(f, "let its commands read and run programs from `{text}`"),
            ("exec.network", Json::Bool(_)) => write!(f, "let its commands use the whole network"),
            ("exec.network", _) => write!(f, "let its commands connect to `{text}`"),
            ("exec.unconfined", _) => write!(f, "run its commands without a wall"),
            ("env", _) => write!(f, "read the variable `{text}` of the environment"),
            ("services", _) => write!(f, "use the service `{text}`: {}", service(&text)),
            ("secrets", _) => write!(f, "use the secret `{text}`"),
            ("tools", _) => write!(f, "let its agents call the project's tools that match `{text}`"),
            ("mcp", _) => write!(f, "call the tools of the MCP server `{text}`"),
            ("shared", _) => write!(f, "share `{text}` with the whole project"),
            (_, item) => match heard(item) {
                Some(Heard { event, shows }) => write!(f, "receive the event `{event}` {}", shows.describe()),
                None => write!(f, "receive the event `{text}`"),
            },
        }
    }
}

/// What a service is for.
fn service(name: &str) -> &'static str {
    let known = Service::ALL.into_iter().find(|service| service.name() == name);
    known.map_or("unknown", |service| match service {
        Service::Cache => "keep values from one call to the next",
        Service::Metrics => "count and measure",
        Service::Clock => "read the clock and sleep",
        Service::Random => "draw random numbers",
        Service::Events => "fire events of its own",
        Service::Meta => "call tools, and add tools and hooks to a run",
        Service::Delegate => "set agents to work",
        Service::Modify => "change what its hooks receive",
        Service::Prompt => "put its prose into the prompts of models",
        Service::AskUser => "ask the person at the client",
        Service::AskModel => "ask the model of the client",
        Service::AskRoots => "ask the client for its folders",
    })
}

/// A host or a command that is more than a text: its text, then every other key.
fn spelled(object: &Map<String, Json>) -> String {
    let text = match (object.get("host"), object.get("argv")) {
        (Some(Json::String(host)), _) => host.clone(),
        (_, Some(argv)) => argv.to_string(),
        _ => String::new(),
    };
    let others = object.iter().filter(|(key, _)| !matches!(key.as_str(), "host" | "argv"));
    let others: Vec<String> = others.map(|(key, value)| format!("{key}: {value}")).collect();
    if others.is_empty() { text } else { format!("{text} ({})", others.join(", ")) }
}
