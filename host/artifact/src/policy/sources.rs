//! `sandbox.sources`: rules for one artifact, a folder of them, or a bundle; and how these are named.
//!
//! A source is named by where it is: its path below `.harness/` without the one ending `.md`, such as `tools/deploy` or
//! `plugins/acme`. What is in another folder with artifacts has that folder and `//` before it: `vendor//plugins/acme`. No
//! part of a name holds a `/`, so that no two places have the same name, and none is read as another.

use super::hearing::{self, Heard, Shows};
use super::layer;
use super::roots::{self, BELOW};
use super::tools::NamePattern;
use crate::decode::{Decoder, Field};
use crate::diagnostic::Position;
use crate::event::Event;
use crate::json;
use crate::keys::{self, Unknown, keys};
use crate::located::Located;
use crate::shape::{Schema, Shape};
use crate::suggest::closest;
use harness_policy::command::ExecRules;
use harness_policy::layer::{Layer, Origin, Scope};
use harness_policy::network::NetworkRules;
use harness_policy::path::FsRules;
use harness_policy::shared::Shared;
use harness_policy::text::quoted;
use serde_json::Value as Json;

/// The folders below `.harness/` that artifacts come from.
const FOLDERS: [&str; 7] = ["tools", "hooks", "agents", "skills", "plugins", "builtins", "overrides"];

/// The folder of bundles of third parties.
const PLUGINS: &str = "plugins";

/// Entries at most.
const MOST: usize = 1_000;

/// An entry of `sandbox.sources`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceRules {
    /// The name: `tools`, `tools/deploy`, `plugins/acme`, `vendor//plugins/acme`, or `vendor//` for a whole root.
    pub name: String,
    /// What it says.
    pub layer: Layer,
    /// Which tools of others its agents may call; none where it does not say.
    pub tools: Option<Vec<NamePattern>>,
    /// Servers of `mcp.servers` whose tools its artifacts may call; none where it does not say.
    pub servers: Option<Vec<Located<String>>>,
    /// Events of others that its hooks may receive; none where it does not say.
    pub events: Option<Vec<Located<Heard>>>,
    /// Names that it shares with the project; none where it does not say.
    pub shared: Option<Vec<Located<Shared>>>,
    /// The entry as it is written.
    pub written: Json,
    /// Where its name is.
    pub position: Position,
}

impl SourceRules {
    /// Whether it is about an artifact: it names it, or a folder or bundle that it is in.
    pub fn covers(&self, source: &str) -> bool {
        covers(&self.name, source)
    }

    /// The same where a name without a root means that place in every root.
    fn covers_in_any_root(&self, source: &str) -> bool {
        let (root, place) = split(&self.name);
        self.covers(source) || root.is_none() && is_within(split(source).1, place)
    }

    /// The root that it names, where it does.
    pub fn root(&self) -> Option<&str> {
        split(&self.name).0
    }

    /// The place below that root, or below `.harness/`.
    pub fn place(&self) -> &str {
        split(&self.name).1
    }
}

/// Whether a place is another one, or in it.
fn is_within(place: &str, outer: &str) -> bool {
    outer.is_empty() || place.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a name is that of an artifact, or of a root, a folder or a bundle that it is in.
pub fn covers(name: &str, source: &str) -> bool {
    let ((root, place), (of_root, of)) = (split(name), split(source));
    root == of_root && is_within(of, place)
}

/// Whether an entry may have this name.
pub(super) fn is_name(name: &str) -> bool {
    check(name).is_ok()
}

keys! {
    /// What an entry says beside what its artifacts may do.
    AgentKeys: Unknown::Refuse;
    /// Patterns of names of tools outside the plugin that the plugin's agents may call, with the plugin's grant.
    given tools: Vec<Located<NamePattern>>;
    /// Servers of `mcp.servers` whose tools the plugin's scripts and agents may call. Default: none.
    given mcp: Vec<Located<String>>;
    /// Events of others that the plugin's hooks may receive, each with what is shown of it. A hook for an event that is
    /// not named stops the project, unless the plugin has a `plugin.md` that does not ask for it. Default: none.
    given events: Vec<Located<Heard>>;
    /// Names that the plugin shares with the project, as `custom.NAME`, `cache.KEY`, `ctx.KEY` or `metrics.NAME`; a `*` at
    /// the end stands for any rest. Default: none.
    given shared: Vec<Located<Shared>>;
}

impl Shape for SourceRules {
    fn schema() -> Schema {
        keys::schema::<(layer::LayerKeys<'_>, AgentKeys<'_>)>()
    }
}

/// What the entries about a source name of something, the outermost first; none where no entry names any. With the name of
/// a bundle, an entry for that or for what is in it has to: others only narrow.
fn named<'a, T>(
    all: &'a [SourceRules],
    source: &str,
    bundle: Option<&str>,
    of: impl Fn(&'a SourceRules) -> Option<&'a Vec<T>>,
) -> Option<Vec<&'a Vec<T>>> {
    let naming: Vec<_> = about(all, source).into_iter().filter_map(|entry| Some((entry, of(entry)?))).collect();
    let is_own = |entry: &SourceRules| bundle.is_none_or(|bundle| covers(bundle, &entry.name));
    let has_own = naming.iter().any(|(entry, _)| is_own(entry));
    has_own.then(|| naming.into_iter().map(|(_, named)| named).collect())
}

/// Whether an agent of a plugin may call a tool that is not the plugin's: an entry about the agent names it, and none that
/// names tools leaves it out. `bundle` as in [`named`].
pub(super) fn lends(all: &[SourceRules], agent: &str, bundle: Option<&str>, tool: &str) -> bool {
    let named = named(all, agent, bundle, |entry| entry.tools.as_ref());
    named.is_some_and(|named| named.iter().all(|patterns| patterns.iter().any(|pattern| pattern.matches(tool))))
}

/// Whether what is of a plugin may call the tools of a server: an entry about it names that, and none that names servers
/// leaves it out. `bundle` as in [`named`].
pub(super) fn lends_server(all: &[SourceRules], source: &str, bundle: Option<&str>, server: &str) -> bool {
    let named = named(all, source, bundle, |entry| entry.servers.as_ref());
    named.is_some_and(|named| named.iter().all(|names| names.iter().any(|name| name.value == server)))
}

/// What the hooks of a source receive of an event of others: the least that an entry about it shows. None where no entry
/// names it, or one that names events leaves it out. `bundle` as in [`named`].
pub(super) fn shows(all: &[SourceRules], source: &str, bundle: Option<&str>, event: &Event) -> Option<Shows> {
    let named = named(all, source, bundle, |entry| entry.events.as_ref())?;
    let shown: Option<Vec<Shows>> = named.iter().map(|events| hearing::shown_at(events, event)).collect();
    shown?.into_iter().min()
}

/// The lists of names that a source shares with the project: each of them has to name what is shared. `bundle` as in
/// [`named`].
pub(super) fn shared(all: &[SourceRules], source: &str, bundle: Option<&str>) -> Vec<Vec<Shared>> {
    let named = named(all, source, bundle, |entry| entry.shared.as_ref()).unwrap_or_default();
    named.into_iter().map(|names| names.iter().map(|name| name.value.clone()).collect()).collect()
}

/// The entries that are about an artifact, the outermost first.
pub(super) fn about<'a>(all: &'a [SourceRules], source: &str) -> Vec<&'a SourceRules> {
    outermost_first(all.iter().filter(|entry| entry.covers(source)).collect())
}

/// The entries of a policy that can only take away: what is moved to another root does not get past one.
pub(super) fn about_in_any_root<'a>(all: &'a [SourceRules], source: &str) -> Vec<&'a SourceRules> {
    outermost_first(all.iter().filter(|entry| entry.covers_in_any_root(source)).collect())
}

fn outermost_first(mut entries: Vec<&SourceRules>) -> Vec<&SourceRules> {
    // All of these are beginnings of one name, so that the shorter one is further out.
    entries.sort_by_key(|entry| entry.name.len());
    entries
}

/// The name of a source, from the root that it is in, where that is not `.harness/`, and its place below that: the path
/// without the one ending of a file. There is no other way to make one.
pub fn name_of(root: Option<&str>, place: &str) -> String {
    match root {
        Some(root) => format!("{root}{BELOW}{place}"),
        None => place.to_owned(),
    }
}

/// The root of a source, where it is not `.harness/`, and its place below it.
fn split(source: &str) -> (Option<&str>, &str) {
    match source.split_once(BELOW) {
        Some((root, place)) => (Some(root), place),
        None => (None, source),
    }
}

pub(super) fn decode(decoder: &mut Decoder, field: &Field<'_>, file: &str) -> Option<Vec<SourceRules>> {
    let mut sources = Vec::new();
    let entries = decoder.entries(field)?;
    // Each grant looks at all of them.
    if entries.len() > MOST {
        decoder.error(field, format!("{} has more than {MOST} entries", quoted(&field.path)));
        return None;
    }
    for (key, entry) in entries {
        let name = &key.text;
        let key_only = Field { key: None, ..entry.clone() };
        if let Err((message, hint)) = check(name) {
            decoder.error_with(&key_only, message, Some(hint));
        }
        let origin = Origin::new(file, Scope::Source(name.clone()));
        if let Some((layer, more)) = layer::decode_with::<AgentKeys<'_>>(decoder, &entry, origin) {
            let tools = more.tools.read(decoder).map(|all| all.into_iter().map(|one| one.value).collect());
            let servers = more.mcp.read(decoder);
            let (events, shared) = (more.events.read(decoder), more.shared.read(decoder));
            sources.push(SourceRules {
                name: name.clone(),
                layer,
                tools,
                servers,
                events,
                shared,
                written: json::value(decoder, &entry).unwrap_or_default(),
                position: decoder.position(key.span),
            });
        }
    }
    Some(sources)
}

/// A name that can never match would be a rule that silently does nothing.
fn check(name: &str) -> Result<(), (String, String)> {
    let refuse = |hint: String| Err((format!("{} is not the name of a source", quoted(name)), hint));
    if let Some(rest) = name.strip_prefix(".harness/") {
        return refuse(format!("names are below `.harness/`: write {}", quoted(rest.trim_start_matches('/'))));
    }
    let (root, place) = split(name);
    if let Some(root) = root {
        match roots::folder(root) {
            Ok(folder) if folder == root => {}
            Ok(folder) => return refuse(format!("write {}", quoted(&name_of(Some(&folder), place)))),
            Err(_) => {
                return refuse("before `//` is a folder of `artifact_sources`: `vendor//plugins/acme`".to_owned());
            }
        }
        if place.is_empty() {
            return Ok(());
        }
    }
    let name = place;
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

/// The third party that an artifact is from, as a source: the bundle under `plugins/` of any root, `plugins/acme` for
/// `plugins/acme/tools/x`; and the rest of a git repository, `git:host/repository//` for `git:host/repository//tools/x`.
pub fn bundle_of(source: &str) -> Option<&str> {
    let (root, place) = split(source);
    if let Some(root) = root.filter(|root| root.starts_with(roots::GIT))
        && !is_within(place, PLUGINS)
    {
        return source.get(..root.len().saturating_add(BELOW.len()));
    }
    let rest = place.strip_prefix("plugins/").or_else(|| place.strip_prefix("plugins").filter(|r| r.is_empty()))?;
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
        let below = ["vendor//plugins/acme", "../a/b//tools", "vendor//"];
        for good in
            ["tools", "tools/deploy", "plugins/acme", "plugins/acme/tools/x", "hooks/a b"].into_iter().chain(below)
        {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, hint) in [
            ("tool/deploy", "did you mean `tools`?"),
            (".harness/tools", "names are below `.harness/`: write `tools`"),
            ("tools/deploy.md", "leave out the ending: write `tools/deploy`"),
            ("tools/", "write a name such as `tools/deploy` or `plugins/acme`"),
            ("/tools", "write a name such as `tools/deploy` or `plugins/acme`"),
            ("./vendor/x//plugins/a", "write `vendor/x//plugins/a`"),
            ("//plugins/a", "before `//` is a folder of `artifact_sources`: `vendor//plugins/acme`"),
            (".harness//tools", "names are below `.harness/`: write `tools`"),
            ("tools/../x", "write a name such as `tools/deploy` or `plugins/acme`"),
            ("", "write a name such as `tools/deploy` or `plugins/acme`"),
            ("xyzzy", "it begins with one of tools, hooks, agents, skills, plugins, builtins, overrides"),
        ] {
            assert_eq!(check(bad), Err((format!("`{bad}` is not the name of a source"), hint.to_owned())));
        }
    }

    #[test]
    fn a_rule_is_about_one_root() {
        let rule = |name: &str| {
            let origin = Origin::new("f", Scope::Source(name.to_owned()));
            let position = Position { file: "f".into(), line: 1, column: 1, length: 1 };
            let (tools, servers, events, shared, written) = (None, None, None, None, Json::Null);
            SourceRules {
                name: name.to_owned(),
                layer: Layer::silent(origin),
                tools,
                servers,
                events,
                shared,
                written,
                position,
            }
        };
        for (name, covered, other) in [
            ("plugins/acme", "plugins/acme/tools/x", "vendor//plugins/acme/tools/x"),
            ("plugins", "plugins/acme", "plugins//plugins/acme"),
            ("vendor//plugins/acme", "vendor//plugins/acme/tools/x", "plugins/acme/tools/x"),
            ("vendor//", "vendor//tools/x", "vendor/x//tools/x"),
            ("plugins/acme", "plugins/acme", "plugins/acme.md"),
        ] {
            assert!(rule(name).covers(covered), "{name} {covered}");
            assert!(!rule(name).covers(other), "{name} {other}");
        }
        // What only takes away is about every root.
        assert!(rule("plugins/acme").covers_in_any_root("vendor//plugins/acme"));
        assert!(!rule("vendor//plugins").covers_in_any_root("other//plugins/acme"));
    }

    #[test]
    fn bundles() {
        for (source, bundle) in [
            ("plugins/acme/tools/x", Some("plugins/acme")),
            ("plugins/acme", Some("plugins/acme")),
            ("plugins", Some("plugins")),
            ("vendor//plugins/acme/tools/x", Some("vendor//plugins/acme")),
            ("plugins//tools/x", None),
            ("plugins/acme//hooks/x", None),
            ("plugins2/acme", None),
            ("tools/plugins/x", None),
        ] {
            assert_eq!(bundle_of(source), bundle, "{source}");
        }
    }
}
