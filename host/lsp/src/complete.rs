//! Completion: keys and values of front matter from the schemas, names of artifacts, and built-ins in scripts.

use std::path::Path;

use harness_artifact::builtins::{self, BuiltIn};
use harness_artifact::event::{Event, Shape};
use harness_artifact::schema::Kind;
use harness_artifact::yaml::{self, Node, Value};
use harness_registry::Registry;
use lsp_types::{
    CompletionItem, CompletionItemKind, CompletionTextEdit, Documentation, MarkupContent, MarkupKind, TextEdit,
};
use serde_json::Value as Json;

use crate::cursor::{self, Cursor, Step, What};
use crate::script::{self, Context, Subject};
use crate::{document, hover, shapes};

/// Items of one answer.
pub(crate) const MOST: usize = 1_000;

/// A position that a client asks about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) path: &'a Path,
    pub(crate) text: &'a str,
    /// The byte.
    pub(crate) offset: usize,
    /// The project as it was last loaded.
    pub(crate) registry: Option<&'a Registry>,
}

impl<'a> Asked<'a> {
    pub(crate) fn kind(&self) -> Option<Kind> {
        shapes::kind(self.path, self.text)
    }

    /// Whether all of the text is YAML.
    pub(crate) fn is_yaml(&self) -> bool {
        self.path.extension().is_some_and(|ending| ending == "yaml")
    }

    pub(crate) fn cursor(&self) -> Option<Cursor> {
        cursor::at(self.text, self.is_yaml(), self.offset)
    }

    /// The line of the position, and the byte that it begins at.
    pub(crate) fn line(&self) -> (usize, &'a str) {
        let at = document::position(self.text, self.offset);
        document::line(self.text, at.line)
    }

    /// The value of a key beside the last one of a path, where the YAML can be read.
    fn beside(&self, path: &[Step], key: &str) -> Option<Node> {
        let range = cursor::yaml(self.text, self.is_yaml())?;
        let mut node = yaml::parse(self.text.get(range)?, 1).0?;
        let above = path.split_last().map_or(path, |(_, above)| above);
        for step in above {
            node = inner(node, step)?;
        }
        inner(node, &Step::Key(key.to_owned()))
    }
}

fn inner(node: Node, step: &Step) -> Option<Node> {
    match (node.value, step) {
        (Value::Map(entries), Step::Key(key)) => {
            entries.into_iter().find(|(one, _)| one.text == *key).map(|(_, node)| node)
        }
        (Value::Seq(items), Step::Item(index)) => items.into_iter().nth(*index),
        _ => None,
    }
}

/// What may be written at a position.
pub(crate) fn at(asked: &Asked<'_>) -> Vec<CompletionItem> {
    let (Some(kind), Some(cursor)) = (asked.kind(), asked.cursor()) else { return Vec::new() };
    if cursor.is_in_script() {
        return in_script(asked, kind, &cursor);
    }
    if cursor.what == What::Text {
        return Vec::new();
    }
    let parts = shapes::at(kind, &cursor.path);
    let mut items: Vec<CompletionItem> = Vec::new();
    if cursor.what == What::KeyOrValue {
        items.extend(keys(asked, &cursor, &parts));
    }
    let words = shapes::words(&parts).into_iter();
    items.extend(words.map(|word| plain(word, CompletionItemKind::ENUM_MEMBER, "")));
    if parts.iter().any(|part| shapes::takes(part, "string")) {
        items.extend(names(asked, &cursor));
    }
    let range = document::range(asked.text, cursor.before.clone());
    for item in &mut items {
        let text = item.insert_text.take().unwrap_or_else(|| item.label.clone());
        item.text_edit = Some(CompletionTextEdit::Edit(TextEdit::new(range, text)));
    }
    items.truncate(MOST);
    items
}

/// The keys of a mapping. Those that the outermost one has already are left out.
fn keys(asked: &Asked<'_>, cursor: &Cursor, parts: &[&'static Json]) -> Vec<CompletionItem> {
    let rest = asked.text.get(asked.offset..).unwrap_or("");
    let is_key = rest.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_').starts_with(':');
    let there = |key: &str| {
        let yaml = cursor::yaml(asked.text, asked.is_yaml()).and_then(|range| asked.text.get(range));
        let begins = |line: &str| line.strip_prefix(key).is_some_and(|rest| rest.starts_with(':'));
        cursor.path.is_empty() && !is_key && yaml.unwrap_or("").lines().any(begins)
    };
    let mut items: Vec<CompletionItem> = Vec::new();
    for (key, schema) in parts.iter().filter_map(|part| part.get("properties")?.as_object()).flatten() {
        if there(key) || items.iter().any(|item| item.label == *key) {
            continue;
        }
        let mut item = plain(key.clone(), CompletionItemKind::PROPERTY, &hover::described(schema));
        item.insert_text = Some(if is_key { key.clone() } else { format!("{key}: ") });
        items.push(item);
    }
    items
}

/// The names of artifacts that a value may be.
fn names(asked: &Asked<'_>, cursor: &Cursor) -> Vec<CompletionItem> {
    let Some(registry) = asked.registry else { return Vec::new() };
    let keys: Vec<&str> = cursor
        .path
        .iter()
        .filter_map(|step| if let Step::Key(key) = step { Some(key.as_str()) } else { None })
        .collect();
    match keys.as_slice() {
        [.., "tools_policy", "allow" | "deny" | "confirm"] | [.., "tools"] => tools(registry),
        [.., "hooks"] => listed(registry.hooks().iter().map(|hook| (hook.name.as_str(), ""))),
        [.., "agents"] => agents(registry),
        _ => Vec::new(),
    }
}

fn tools(registry: &Registry) -> Vec<CompletionItem> {
    listed(registry.tools().iter().map(|tool| (tool.name.as_str(), tool.description.as_str())))
}

fn agents(registry: &Registry) -> Vec<CompletionItem> {
    listed(registry.agents().iter().map(|agent| {
        (agent.name.as_str(), agent.description.as_ref().map_or("", |description| description.value.as_str()))
    }))
}

fn listed<'n>(names: impl Iterator<Item = (&'n str, &'n str)>) -> Vec<CompletionItem> {
    names.take(MOST).map(|(name, about)| plain(name.to_owned(), CompletionItemKind::REFERENCE, about)).collect()
}

/// What may be written in a script.
fn in_script(asked: &Asked<'_>, kind: Kind, cursor: &Cursor) -> Vec<CompletionItem> {
    let before = asked.text.get(cursor.before.clone()).unwrap_or("");
    let is_when = cursor.key() == Some("when");
    let is_hook = kind == Kind::Hook || cursor.path.iter().any(|step| *step == Step::Key("hooks".to_owned()));
    let field = |key: &str| plain(key.to_owned(), CompletionItemKind::FIELD, "");
    let of_result = |of| script::result_of(of, before).map(|one| one.fields.as_slice()).unwrap_or_default();
    let registry = asked.registry;
    let (items, word): (Vec<CompletionItem>, &str) = match script::context(before) {
        None => return Vec::new(),
        Some(Context::Name { word }) => (global(is_hook, is_when), word),
        Some(Context::Member { .. }) if is_when => return Vec::new(),
        Some(Context::Member { of: Subject::Name(space), word }) if has_members(space) => {
            (members(space, is_hook), word)
        }
        Some(Context::Member { of, word }) => (of_result(of).iter().map(|key| field(key)).collect(), word),
        Some(Context::Key { of: Subject::Name("payload"), word }) if is_hook => {
            (payload_keys(asked, cursor).into_iter().map(field).collect(), word)
        }
        Some(Context::Key { of: Subject::Name("args"), word }) => (parameters(asked, cursor), word),
        Some(Context::Key { of, word }) => (of_result(of).iter().map(|key| field(key)).collect(), word),
        Some(Context::Argument { callee: "delegate" | "delegate_async", word }) => {
            (registry.map(agents).unwrap_or_default(), word)
        }
        Some(Context::Argument { callee, word }) if calls_tool(callee) => {
            (registry.map(tools).unwrap_or_default(), word)
        }
        Some(Context::Argument { .. }) => return Vec::new(),
    };
    let range = document::range(asked.text, asked.offset.saturating_sub(word.len())..asked.offset);
    let edited = items.into_iter().map(|mut item| {
        item.text_edit = Some(CompletionTextEdit::Edit(TextEdit::new(range, item.label.clone())));
        item
    });
    edited.take(MOST).collect()
}

/// Whether the first argument of a function is the name of a tool.
pub(crate) fn calls_tool(callee: &str) -> bool {
    let functions = ["meta.call_tool", "meta.call", "meta.try_call", "meta.function", "parallel.launch"];
    functions.contains(&callee)
}

fn has_members(space: &str) -> bool {
    builtins::all().iter().any(|one| one.name.split_once('.').is_some_and(|(first, _)| first == space))
}

fn members(space: &str, is_hook: bool) -> Vec<CompletionItem> {
    let here = builtins::all().iter().filter(|one| one.hooks || !is_hook);
    let named = here.filter_map(|one| {
        let (first, name) = one.name.split_once('.')?;
        (first == space).then(|| function(name, one))
    });
    named.collect()
}

/// Names by themselves: of the language, and of built-ins where there are any.
fn global(is_hook: bool, is_when: bool) -> Vec<CompletionItem> {
    let mut items: Vec<CompletionItem> = Vec::new();
    if is_when {
        items.extend(["payload", "event"].map(|name| plain(name.to_owned(), CompletionItemKind::VARIABLE, "")));
    } else {
        for one in builtins::all().iter().filter(|one| one.hooks || !is_hook) {
            match one.name.split_once('.') {
                Some((space, _)) if items.iter().any(|item| item.label == space) => {}
                Some((space, _)) => items.push(plain(space.to_owned(), CompletionItemKind::MODULE, one.section)),
                None => items.push(function(one.name, one)),
            }
        }
    }
    for name in builtins::of_language() {
        if !items.iter().any(|item| item.label == *name) {
            items.push(plain((*name).to_owned(), CompletionItemKind::FUNCTION, "A function of the language."));
        }
    }
    items
}

/// The keys of the payload of a hook's event.
fn payload_keys(asked: &Asked<'_>, cursor: &Cursor) -> Vec<&'static str> {
    let Some(Node { value: Value::Str(event), .. }) = asked.beside(&cursor.path, "event") else { return Vec::new() };
    match Event::parse(&event).map(|event| event.shape()) {
        Some(Shape::Dict(keys)) => keys.to_vec(),
        _ => Vec::new(),
    }
}

/// The parameters of a tool.
fn parameters(asked: &Asked<'_>, cursor: &Cursor) -> Vec<CompletionItem> {
    let Some(Node { value: Value::Map(entries), .. }) = asked.beside(&cursor.path, "parameters") else {
        return Vec::new();
    };
    let about = |node: &Node| match &node.value {
        Value::Map(keys) => keys.iter().find_map(|(key, value)| match &value.value {
            Value::Str(text) if key.text == "description" => Some(text.clone()),
            _ => None,
        }),
        _ => None,
    };
    let items = entries.into_iter().map(|(key, node)| {
        let about = about(&node).unwrap_or_default();
        plain(key.text, CompletionItemKind::FIELD, &about)
    });
    items.take(MOST).collect()
}

fn function(name: &str, of: &BuiltIn) -> CompletionItem {
    let item = plain(name.to_owned(), CompletionItemKind::FUNCTION, &hover::built_in(of));
    CompletionItem { detail: Some(of.signature.to_owned()), ..item }
}

fn plain(label: String, kind: CompletionItemKind, about: &str) -> CompletionItem {
    let about = (!about.is_empty()).then(|| markdown(about));
    CompletionItem {
        label,
        kind: Some(kind),
        documentation: about.map(Documentation::MarkupContent),
        ..CompletionItem::default()
    }
}

pub(crate) fn markdown(text: &str) -> MarkupContent {
    MarkupContent { kind: MarkupKind::Markdown, value: text.to_owned() }
}
