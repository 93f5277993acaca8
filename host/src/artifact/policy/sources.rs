//! `sandbox.sources`: rules for one artifact, a folder of them, or a bundle.

use super::layer;
use super::tools::NamePattern;
use crate::artifact::decode::{Decoder, Field};
use crate::artifact::diagnostic::Position;
use crate::artifact::keys::{self, Unknown, keys};
use crate::artifact::located::Located;
use crate::artifact::shape::{Schema, Shape};
use crate::artifact::suggest::{closest, quoted};
use crate::policy::command::ExecRules;
use crate::policy::layer::{Layer, Origin, Scope};
use crate::policy::network::NetworkRules;
use crate::policy::path::FsRules;

/// The folders below `.harness/` that artifacts come from.
const FOLDERS: [&str; 7] = ["tools", "hooks", "agents", "skills", "plugins", "builtins", "overrides"];

/// An entry of `sandbox.sources`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceRules {
    /// The place below `.harness/` without `.md`: `tools`, `tools/deploy`, `plugins/acme`.
    pub name: String,
    /// What it says.
    pub layer: Layer,
    /// Which tools of others its agents may call; none where it does not say.
    pub tools: Option<Vec<NamePattern>>,
    /// Where its name is.
    pub position: Position,
}

impl SourceRules {
    /// Whether it is about an artifact: it names it, or a folder or bundle that it is in.
    pub fn covers(&self, source: &str) -> bool {
        source.strip_prefix(&self.name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

keys! {
    /// What an entry says beside what its artifacts may do.
    AgentKeys: Unknown::Refuse;
    /// Patterns of names of tools that are not its own, which agents of a plugin may call, with what the plugin is granted.
    given tools: Vec<Located<NamePattern>>;
}

impl Shape for SourceRules {
    fn schema() -> Schema {
        keys::schema::<(layer::LayerKeys<'_>, AgentKeys<'_>)>()
    }
}

/// Whether an agent of a plugin may call a tool that is not the plugin's: an entry about the agent names it, and none that
/// names tools leaves it out.
pub(super) fn lends(all: &[SourceRules], agent: &str, tool: &str) -> bool {
    let mut named = about(all, agent).into_iter().filter_map(|entry| entry.tools.as_ref()).peekable();
    named.peek().is_some() && named.all(|patterns| patterns.iter().any(|pattern| pattern.matches(tool)))
}

/// The entries that are about an artifact, the outermost first.
pub(super) fn about<'a>(all: &'a [SourceRules], source: &str) -> Vec<&'a SourceRules> {
    let mut entries: Vec<&SourceRules> = all.iter().filter(|entry| entry.covers(source)).collect();
    // All of these are beginnings of one name, so that the shorter one is further out.
    entries.sort_by_key(|entry| entry.name.len());
    entries
}

/// The name of an artifact as a source, from its file: `tools/deploy` for `.harness/tools/deploy.md`.
pub fn name_of(file: &str) -> &str {
    let inner = file.strip_prefix(".harness/").unwrap_or(file);
    inner.strip_suffix(".md").unwrap_or(inner)
}

pub(super) fn decode(decoder: &mut Decoder, field: &Field<'_>, file: &str) -> Option<Vec<SourceRules>> {
    let mut sources = Vec::new();
    for (key, entry) in decoder.entries(field)? {
        let name = &key.text;
        let key_only = Field { key: None, ..entry.clone() };
        if let Err((message, hint)) = check(name) {
            decoder.error_with(&key_only, message, Some(hint));
        }
        let origin = Origin::new(file, Scope::Source(name.clone()));
        if let Some((layer, more)) = layer::decode_with::<AgentKeys<'_>>(decoder, &entry, origin) {
            let tools = more.tools.read(decoder).map(|all| all.into_iter().map(|one| one.value).collect());
            sources.push(SourceRules { name: name.clone(), layer, tools, position: decoder.position(key.span) });
        }
    }
    Some(sources)
}

/// A name that can never match would be a rule that silently does nothing.
fn check(name: &str) -> Result<(), (String, String)> {
    let refuse = |hint: String| Err((format!("{} is not the name of a source", quoted(name)), hint));
    if let Some(rest) = name.strip_prefix(".harness/") {
        return refuse(format!("names are below `.harness/`: write {}", quoted(rest)));
    }
    if let Some(stem) = name.strip_suffix(".md") {
        return refuse(format!("leave out the ending: write {}", quoted(stem)));
    }
    if name.split('/').any(|part| matches!(part, "" | "." | "..")) || name.chars().any(char::is_control) {
        return refuse("write a name such as `tools/deploy` or `plugins/acme`".to_owned());
    }
    let folder = name.split('/').next().unwrap_or_default();
    if !FOLDERS.contains(&folder) {
        return refuse(match closest(folder, FOLDERS) {
            Some(word) => format!("did you mean `{word}`?"),
            None => format!("it begins with one of {}", FOLDERS.join(", ")),
        });
    }
    Ok(())
}

/// The bundle under `plugins/` that an artifact is from: `plugins/acme` for `plugins/acme/tools/x`.
pub(crate) fn bundle_of(source: &str) -> Option<&str> {
    let rest = source.strip_prefix("plugins/").or_else(|| source.strip_prefix("plugins").filter(|r| r.is_empty()))?;
    let end = source.len().saturating_sub(rest.len()).saturating_add(rest.find('/').unwrap_or(rest.len()));
    source.get(..end)
}

/// What a bundle under `plugins/` has before anything is granted to it: of what none of its entries speaks, nothing.
pub(super) fn floor(bundle: &str, entries: &[&SourceRules], file: &str) -> Layer {
    let silent = |speaks: fn(&Layer) -> bool| !entries.iter().any(|entry| speaks(&entry.layer));
    let origin = Origin::new(file, Scope::Source(bundle.to_owned()));
    Layer {
        fs: silent(|l| l.fs.is_some()).then(FsRules::default),
        network: silent(|l| l.network.is_some()).then(NetworkRules::default),
        exec: silent(|l| l.exec.is_some()).then(ExecRules::default),
        env: silent(|l| l.env.is_some()).then(Vec::new),
        services: silent(|l| l.services.is_some()).then(Vec::new),
        secrets: silent(|l| l.secrets.is_some()).then(Vec::new),
        ..Layer::silent(origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for good in ["tools", "tools/deploy", "plugins/acme", "plugins/acme/tools/x", "hooks/a b"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, hint) in [
            ("tool/deploy", "did you mean `tools`?"),
            (".harness/tools", "names are below `.harness/`: write `tools`"),
            ("tools/deploy.md", "leave out the ending: write `tools/deploy`"),
            ("tools/", "write a name such as `tools/deploy` or `plugins/acme`"),
            ("/tools", "write a name such as `tools/deploy` or `plugins/acme`"),
            ("tools/../x", "write a name such as `tools/deploy` or `plugins/acme`"),
            ("", "write a name such as `tools/deploy` or `plugins/acme`"),
            ("xyzzy", "it begins with one of tools, hooks, agents, skills, plugins, builtins, overrides"),
        ] {
            assert_eq!(check(bad), Err((format!("`{bad}` is not the name of a source"), hint.to_owned())));
        }
    }

    #[test]
    fn bundles() {
        for (source, bundle) in [
            ("plugins/acme/tools/x", Some("plugins/acme")),
            ("plugins/acme", Some("plugins/acme")),
            ("plugins", Some("plugins")),
            ("plugins2/acme", None),
            ("tools/plugins/x", None),
        ] {
            assert_eq!(bundle_of(source), bundle, "{source}");
        }
    }
}
