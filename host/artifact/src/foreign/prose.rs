//! The prose of other programs' plugins, with front matter that this program reads. Keys that grant, run or pick a model
//! there are dropped: what prose may do is the policy's to say.

use serde_json::{Map, Value as Json, json};

use super::{cut, document, not_a_name};
use crate::decode::{Decoder, Field};
use crate::plugin::{MAX_TEXT, check_name};

/// Characters of `compatibility`.
const MAX_COMPATIBILITY: usize = 500;
/// What a command calls the text that a person gives it, and what a skill calls it.
const ARGUMENTS: (&str, &str) = ("$ARGUMENTS", "{{arguments}}");

/// A description, and the text of the file.
type Made = Result<(String, Vec<u8>), String>;

/// The keys of the front matter, and the prose. A file without front matter is prose.
fn parts(text: &[u8]) -> Result<(Map<String, Json>, String), String> {
    let text = std::str::from_utf8(text).map_err(|_| "it is not UTF-8 text".to_owned())?;
    if !text.starts_with("---") {
        return Ok((Map::new(), text.to_owned()));
    }
    let mut decoder = Decoder::new("", String::new());
    let unreadable = || "its front matter cannot be read".to_owned();
    let document = decoder.document(text).ok_or_else(unreadable)?;
    let root = Field { path: String::new(), key: None, node: &document.root };
    let value = crate::json::value(&mut decoder, &root);
    match value.filter(|_| !decoder.into_diagnostics().has_errors()) {
        Some(Json::Object(keys)) => Ok((keys, document.body.to_owned())),
        Some(Json::Null) => Ok((Map::new(), document.body.to_owned())),
        _ => Err(unreadable()),
    }
}

fn text<'k>(keys: &'k Map<String, Json>, key: &str) -> Option<&'k str> {
    keys.get(key).and_then(Json::as_str).map(str::trim).filter(|text| !text.is_empty())
}

/// What it says it is for, or the first line of its prose.
fn description(keys: &Map<String, Json>, body: &str) -> Result<String, String> {
    let first = || body.lines().map(|line| line.trim_start_matches('#').trim()).find(|line| !line.is_empty());
    let text = text(keys, "description").or_else(first).ok_or("it has neither a description nor prose")?;
    Ok(cut(text, MAX_TEXT))
}

/// Whether a skill or an agent can have a name.
pub(super) fn is_name(name: &str) -> Result<(), String> {
    check_name(name).map_err(|_| not_a_name(name))
}

/// The name that a skill gives itself, where it can have it.
pub(super) fn name(skill: &[u8]) -> Option<String> {
    let (keys, _) = parts(skill).ok()?;
    text(&keys, "name").filter(|name| is_name(name).is_ok()).map(str::to_owned)
}

/// A skill of another program.
pub(super) fn skill(name: &str, file: &[u8]) -> Made {
    let (keys, body) = parts(file)?;
    let description = description(&keys, &body)?;
    let mut front = vec![("name", Json::from(name)), ("description", description.as_str().into())];
    front.extend(text(&keys, "license").map(|license| ("license", cut(license, MAX_TEXT).into())));
    let compatibility = text(&keys, "compatibility").map(|text| cut(text, MAX_COMPATIBILITY));
    front.extend(compatibility.map(|text| ("compatibility", text.into())));
    let text = document(&front, &body);
    Ok((description, text))
}

/// A sub-agent: it has the tools that the policy lends to it, and no others.
pub(super) fn agent(_name: &str, file: &[u8]) -> Made {
    let (keys, body) = parts(file)?;
    let description = description(&keys, &body)?;
    let text = document(&[("description", description.as_str().into())], &body);
    Ok((description, text))
}

/// A command is a skill that a person gives a text.
pub(super) fn command(name: &str, file: &[u8]) -> Made {
    let (keys, body) = parts(file)?;
    let description = description(&keys, &body)?;
    let mut front = vec![("name", Json::from(name)), ("description", description.as_str().into())];
    if body.contains(ARGUMENTS.0) {
        let hint = text(&keys, "argument-hint").unwrap_or("What it is given.");
        front.push(("arguments", json!({"arguments": {"description": cut(hint, MAX_TEXT)}})));
    }
    let text = document(&front, &body.replace(ARGUMENTS.0, ARGUMENTS.1));
    Ok((description, text))
}
