//! Hover: what a key means, what a built-in does, and what an artifact is for.

use harness_artifact::builtins::{self, BuiltIn};
use lsp_types::{Hover, HoverContents};
use serde_json::Value as Json;

use crate::complete::{Asked, markdown};
use crate::cursor::What;
use crate::{define, document, script, shapes};

/// What there is to say at a position.
pub(crate) fn at(asked: &Asked<'_>) -> Option<Hover> {
    let (text, range) = found(asked)?;
    let range = document::range(asked.text, range);
    Some(Hover { contents: HoverContents::Markup(markdown(&text)), range: Some(range) })
}

fn found(asked: &Asked<'_>) -> Option<(String, std::ops::Range<usize>)> {
    if asked.cursor()?.is_in_script() {
        let (start, line) = asked.line();
        let at = asked.offset.saturating_sub(start);
        if let Some((name, range)) = script::dotted_at(line, at) {
            let range = range.start.saturating_add(start)..range.end.saturating_add(start);
            return Some((of_name(name)?, range));
        }
    }
    // The name of an artifact says more than the key that it is a value of.
    if let Some(named) = define::at(asked) {
        let about = named.found.first()?;
        return Some((format!("{} `{}`\n\n{}", about.kind, about.name, about.description), named.range));
    }
    of_key(asked)
}

/// The key that a position is in, or is behind.
fn of_key(asked: &Asked<'_>) -> Option<(String, std::ops::Range<usize>)> {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '$');
    let rest = asked.text.get(asked.offset..)?;
    let end = asked.offset.saturating_add(rest.find(|c| !is_part(c)).unwrap_or(rest.len()));
    let start = asked.text.get(..end)?.trim_end_matches(is_part).len();
    let word = asked.text.get(start..end).filter(|word| !word.is_empty())?;
    let kind = asked.kind()?;
    let cursor = Asked { offset: end, ..*asked }.cursor()?;
    if cursor.what == What::KeyOrValue {
        let parts = shapes::at(kind, &cursor.path);
        let schema = parts.iter().find_map(|part| shapes::property(part, word))?;
        return Some((described(schema), start..end));
    }
    let parts = shapes::at(kind, &cursor.path);
    let schema = parts.into_iter().find(|part| part.get("description").is_some())?;
    (cursor.what == What::Value).then(|| (described(schema), start..end))
}

/// What a schema says of a value.
pub(crate) fn described(schema: &Json) -> String {
    let mut text = schema.get("description").and_then(Json::as_str).unwrap_or("").to_owned();
    let kinds: Vec<&str> = match schema.get("type") {
        Some(Json::String(one)) => vec![one],
        Some(Json::Array(all)) => all.iter().filter_map(Json::as_str).filter(|kind| *kind != "null").collect(),
        _ => Vec::new(),
    };
    let mut facts: Vec<String> = (!kinds.is_empty()).then(|| kinds.join(" or ")).into_iter().collect();
    let bound = |word: &str| schema.get(word).and_then(shapes::scalar);
    facts.extend(match (bound("minimum"), bound("maximum")) {
        (Some(least), Some(most)) => Some(format!("from {least} to {most}")),
        (Some(least), None) => Some(format!("at least {least}")),
        (None, Some(most)) => Some(format!("at most {most}")),
        (None, None) => None,
    });
    facts.extend(schema.get("default").map(|value| format!("default `{value}`")));
    if !facts.is_empty() {
        let gap = if text.is_empty() { "" } else { "\n\n" };
        text = format!("{text}{gap}{}", facts.join(", "));
    }
    text
}

/// What a name in a script is, where it is a built-in, several of them, or the language's.
fn of_name(name: &str) -> Option<String> {
    if let Some(one) = builtins::named(name) {
        return Some(format!("```python\n{}\n```\n\n{}", one.signature, built_in(one)));
    }
    let members = builtins::all().iter().filter(|one| one.name.split_once('.').is_some_and(|(space, _)| space == name));
    let members: Vec<&BuiltIn> = members.collect();
    if let Some(first) = members.first() {
        let names: Vec<String> = members.iter().map(|one| format!("`{}`", one.name)).collect();
        let gap = if first.section.is_empty() { "" } else { "\n\n" };
        return Some(format!("{}{gap}{}", first.section, names.join(", ")));
    }
    builtins::of_language().contains(&name).then(|| "A function of the language.".to_owned())
}

/// What a built-in does.
pub(crate) fn built_in(of: &BuiltIn) -> String {
    let mut parts = vec![format!("Returns {}.", of.returns)];
    if !of.hooks {
        parts.push("Hooks cannot call it.".to_owned());
    }
    if !of.section.is_empty() {
        parts.push(of.section.to_owned());
    }
    if !of.examples.is_empty() {
        parts.push(format!("```python\n{}\n```", of.examples.join("\n")));
    }
    parts.join("\n\n")
}
