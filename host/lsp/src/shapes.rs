//! The parts of the schemas of artifacts that are about a path of keys.

use std::path::Path;
use std::sync::LazyLock;

use harness_artifact::schema::{self, Kind};
use serde_json::Value as Json;

use crate::cursor::Step;

/// Parts of a schema that say something of one value, at most.
const MOST: usize = 64;
/// The comment by which a file names its schema, for editors.
const MODELINE: &str = "yaml-language-server:";

static SCHEMAS: LazyLock<Vec<(Kind, Json)>> =
    LazyLock::new(|| Kind::ALL.into_iter().map(|kind| (kind, schema::of(kind))).collect());

/// The kind of an artifact: what a comment in its front matter says, or else what its path does.
pub(crate) fn kind(path: &Path, text: &str) -> Option<Kind> {
    modeline(text).or_else(|| kind_of(path))
}

/// By `# yaml-language-server: $schema=…/tool.json` among the first lines of the front matter.
fn modeline(text: &str) -> Option<Kind> {
    let lines = text.lines().skip_while(|line| line.trim_start_matches('\u{feff}').trim_end() == "---");
    let comments = lines.map(str::trim).take_while(|line| line.is_empty() || line.starts_with('#'));
    let named = comments.filter_map(|line| line.trim_start_matches('#').trim_start().strip_prefix(MODELINE));
    let schema = named.filter_map(|rest| rest.trim().strip_prefix("$schema=")).next()?;
    let file = schema.split_whitespace().next()?.rsplit('/').next()?;
    let name = file.split('.').next()?;
    Kind::ALL.into_iter().find(|kind| kind.name() == name)
}

fn kind_of(path: &Path) -> Option<Kind> {
    let name = path.file_name()?.to_str()?;
    let folders: Vec<&str> = path.parent()?.components().filter_map(|one| one.as_os_str().to_str()).collect();
    let folder = folders.last().copied().unwrap_or("");
    match name {
        "harness.md" | "harness.yaml" => return Some(Kind::Harness),
        "bundle.md" => return Some(Kind::Bundle),
        "plugin.md" => return Some(Kind::Plugin),
        "SKILL.md" => return Some(Kind::Skill),
        _ if !name.ends_with(".md") => return None,
        _ => {}
    }
    match folder {
        "tools" => Some(Kind::Tool),
        "hooks" => Some(Kind::Hook),
        "agents" => Some(Kind::Agent),
        "skills" => Some(Kind::Skill),
        "plugins" | "builtins" | "overrides" => Some(Kind::Bundle),
        _ => None,
    }
}

/// What the schema of a kind says of the value at a path.
pub(crate) fn at(kind: Kind, path: &[Step]) -> Vec<&'static Json> {
    let root = SCHEMAS.iter().find(|(of, _)| *of == kind).map(|(_, schema)| schema);
    let mut parts: Vec<&'static Json> = Vec::new();
    root.into_iter().for_each(|root| expand(root, &mut parts));
    for step in path {
        let mut inner = Vec::new();
        for part in parts {
            let next = match step {
                Step::Key(key) => property(part, key).or_else(|| part.get("additionalProperties")),
                Step::Item(_) => part.get("items"),
            };
            next.into_iter().for_each(|next| expand(next, &mut inner));
        }
        parts = inner;
    }
    parts
}

/// The schema of a key.
pub(crate) fn property<'s>(part: &'s Json, key: &str) -> Option<&'s Json> {
    part.get("properties")?.get(key)
}

/// A part and its alternatives.
fn expand(part: &'static Json, into: &mut Vec<&'static Json>) {
    if into.len() >= MOST {
        return;
    }
    into.push(part);
    for word in ["anyOf", "allOf"] {
        let ways = part.get(word).and_then(Json::as_array);
        ways.into_iter().flatten().for_each(|way| expand(way, into));
    }
}

/// Whether a value may be of a type.
pub(crate) fn takes(part: &Json, kind: &str) -> bool {
    match part.get("type") {
        Some(Json::String(one)) => one == kind,
        Some(Json::Array(all)) => all.iter().any(|one| one == kind),
        _ => false,
    }
}

/// The words that a value may be.
pub(crate) fn words(parts: &[&'static Json]) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut add = |word: String| {
        if !words.contains(&word) {
            words.push(word);
        }
    };
    for part in parts {
        let listed = part.get("enum").and_then(Json::as_array).into_iter().flatten().chain(part.get("const"));
        listed.filter_map(scalar).for_each(&mut add);
        if takes(part, "boolean") {
            ["true", "false"].map(str::to_owned).into_iter().for_each(&mut add);
        }
    }
    words
}

/// A value as YAML writes it, where that is one word.
pub(crate) fn scalar(value: &Json) -> Option<String> {
    match value {
        Json::String(text) => Some(text.clone()),
        Json::Bool(_) | Json::Number(_) => Some(value.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        for (path, text, expect) in [
            ("/p/.harness/tools/a.md", "", Some("tool")),
            ("/p/.harness/plugins/x/hooks/a.md", "", Some("hook")),
            ("/p/.harness/plugins/x.md", "", Some("bundle")),
            ("/p/.harness/plugins/x/plugin.md", "", Some("plugin")),
            ("/p/.harness/skills/x/SKILL.md", "", Some("skill")),
            ("/p/harness.yaml", "", Some("harness")),
            ("/p/README.md", "", None),
            ("/p/x.md", "---\n# yaml-language-server: $schema=../schemas/hook.json\n---\n", Some("hook")),
            ("/p/x.md", "---\n\n#yaml-language-server: $schema=https://x/agent.schema.json # why\n", Some("agent")),
            ("/p/x.md", "---\na: 1\n# yaml-language-server: $schema=hook.json\n", None),
            ("/p/.harness/tools/a.md", "---\n# yaml-language-server: $schema=other.json\n", Some("tool")),
        ] {
            assert_eq!(kind(Path::new(path), text).map(Kind::name), expect, "{path} {text}");
        }
    }

    #[test]
    fn parts() {
        let path = |keys: &str| keys.split('.').map(|key| Step::Key(key.to_owned())).collect::<Vec<_>>();
        assert_eq!(words(&at(Kind::Harness, &path("sandbox.hooks.on_error"))), ["block", "allow"]);
        assert_eq!(words(&at(Kind::Tool, &path("async"))), ["true", "false"]);
        assert!(words(&at(Kind::Hook, &path("event"))).contains(&"tool.pre".to_owned()));
        let mut item = path("parameters.name.type");
        assert!(words(&at(Kind::Tool, &item)).contains(&"string".to_owned()));
        item = vec![Step::Key("tools".to_owned()), Step::Item(0), Step::Key("expose".to_owned())];
        assert_eq!(words(&at(Kind::Agent, &item)), ["both", "script"]);
        assert_eq!(at(Kind::Tool, &path("nothing")).len(), 0);
    }
}
