//! A plugin as a person reviews it: what it is, what it has, and what each rule that it asks for means in this project.
//! Nothing in it acts on a terminal.

use std::path::Path;

use harness_artifact::agent::Use;
use harness_artifact::hook::Hook;
use harness_artifact::plugin::{Rule, layer};
use harness_artifact::policy::ProjectPolicy;
use harness_artifact::policy::sources::bundle_of;
use harness_artifact::tool::{Parameter, Tool};
use harness_artifact::{alike, escape, third_party};
use harness_policy::compare::{Example, wider};
use harness_policy::grant::Grant;
use harness_policy::path::{Access, WorkspacePath};
use harness_registry::Registry;
use harness_sys::tree::{self, Kind};
use serde_json::{Value as Json, json};

use super::cases::Cases;
use super::fetched::Fetched;
use super::signers::Signers;

/// Files and folders that are counted.
const MOST_COUNTED: usize = 100_000;
/// Bytes of prose that are shown.
const MOST_PROSE: usize = 8 << 10;

/// What is shown of a plugin.
pub(super) struct Review<'r> {
    pub(super) fetched: &'r Fetched,
    pub(super) signers: &'r Signers,
    /// Plugins of the project whose names look like its own.
    pub(super) alike: Vec<String>,
    /// Where it is from.
    pub(super) from: String,
    /// The project with the plugin and all that it asks for.
    pub(super) registry: &'r Registry,
    /// What is granted to it already; none where it is not there.
    pub(super) granted: Option<Vec<Rule>>,
    pub(super) root: &'r Path,
    /// What its cases show.
    pub(super) cases: &'r Cases,
}

/// A rule and what it means.
struct Shown {
    words: String,
    reason: String,
    notes: Vec<String>,
    used: Option<usize>,
    granted: Option<bool>,
}

impl Review<'_> {
    fn hooks(&self) -> Vec<&Hook> {
        let of = self.fetched.source_name();
        let own = self.registry.agents().iter().flat_map(|agent| &agent.hooks).filter_map(Use::inline);
        let all = self.registry.hooks().iter().chain(own);
        all.map(AsRef::as_ref).filter(|hook| bundle_of(&hook.source_name) == Some(&of)).collect()
    }

    fn tools(&self) -> impl Iterator<Item = &Tool> {
        let of = self.fetched.source_name();
        let own = move |tool: &&Tool| bundle_of(&tool.source_name) == Some(of.as_str());
        self.registry.tools().iter().map(AsRef::as_ref).filter(own)
    }

    fn rules(&self) -> Vec<Shown> {
        let source = self.fetched.source_name();
        let effective = self.registry.policy().map(|policy: &ProjectPolicy| policy.grant_for(&source, None));
        let files = files(self.root);
        let asks = self.fetched.plugin.asks.iter().flat_map(|ask| ask.rules.iter().map(move |rule| (ask, rule)));
        let shown = asks.map(|(ask, rule)| Shown {
            words: rule.to_string(),
            reason: ask.reason.clone(),
            notes: notes(rule, effective.as_ref(), &files).into_iter().chain(self.cases.note(rule)).collect(),
            used: self.cases.used(rule),
            granted: self.granted.as_ref().map(|granted| granted.contains(rule)),
        });
        shown.collect()
    }

    /// The text of it, each part escaped.
    pub(super) fn text(&self) -> String {
        let Fetched { plugin, content, digest, resolved, .. } = self.fetched;
        let source = self.fetched.source_name();
        let line = |text: &str| escape::line(text).into_owned();
        let mut text = format!("plugin {} {} from {}\n", plugin.name.value, plugin.version, line(&self.from));
        text.push_str(&format!("  {}\n", third_party::line(&plugin.description)));
        if let Some(resolved) = resolved {
            text.push_str(&format!("  which is at {}\n", line(resolved)));
        }
        let license = plugin.license.iter().map(|license| format!("license: {license}"));
        let authors = (!plugin.authors.is_empty()).then(|| format!("authors: {}", plugin.authors.join(", ")));
        let homepage = plugin.homepage.iter().map(|homepage| format!("homepage: {homepage}"));
        for one in license.chain(authors).chain(homepage) {
            text.push_str(&format!("  {}\n", line(&one)));
        }
        let bytes: usize = content.files().map(|(_, text)| text.len()).sum();
        text.push_str(&format!("  {}, {bytes} bytes, {digest}\n", plural(content.files().count(), "file")));
        for one in self.signers.lines() {
            text.push_str(&format!("  {one}\n"));
        }
        let review = self.signers.review(digest);
        if review != *digest {
            text.push_str(&format!("  with its signers: {review}\n"));
        }
        for other in &self.alike {
            text.push_str(&format!("  its name looks like that of the plugin `{other}`, which is there already\n"));
        }
        for tool in self.tools() {
            text.push_str(&format!("tool {}, of which models read\n", line(&tool.name)));
            tool.description.lines().for_each(|one| quoted(&mut text, one));
            for parameter in &tool.parameters.list {
                let words = parameter.description.as_ref().map(|words| words.value.as_str()).unwrap_or_default();
                quoted(&mut text, format!("{}: {words}", parameter.name).trim_end_matches([' ', ':']));
            }
            if tool.confirm.value {
                text.push_str("  a person confirms each call\n");
            }
        }
        for agent in self.registry.agents().iter().filter(|agent| bundle_of(&agent.source_name) == Some(&source)) {
            text.push_str(&format!("agent {}\n", line(&agent.name)));
        }
        for skill in self.registry.skills().iter().filter(|skill| bundle_of(&skill.source_name) == Some(&source)) {
            text.push_str(&format!("skill {}: {}\n", skill.name, third_party::line(&skill.description)));
        }
        for hook in self.hooks() {
            text.push_str(&format!("hook {} receives `{}`\n", line(&hook.name), hook.event.value));
        }
        let rules = self.rules();
        text.push_str(if rules.is_empty() { "asks for nothing\n" } else { "asks for:\n" });
        for (number, rule) in (1_usize..).zip(&rules) {
            let state = match rule.granted {
                None => "",
                Some(true) => " (granted)",
                Some(false) => " (not granted)",
            };
            text.push_str(&format!("  {number}. {}{state}\n", line(&rule.words)));
            text.push_str(&format!("     reason: {}\n", third_party::line(&rule.reason)));
            rule.notes.iter().for_each(|note| text.push_str(&format!("     {}\n", line(note))));
        }
        self.cases.lines().iter().for_each(|line| text.push_str(&format!("  {line}\n")));
        let prose = plugin.prose.get(..plugin.prose.floor_char_boundary(MOST_PROSE)).unwrap_or_default();
        if !prose.is_empty() {
            text.push_str("its authors write:\n");
        }
        prose.lines().for_each(|one| quoted(&mut text, one));
        let hidden = plugin.prose.len().saturating_sub(prose.len());
        if hidden > 0 {
            text.push_str(&format!("  (and {hidden} more bytes)\n"));
        }
        text
    }

    /// The same for programs.
    pub(super) fn json(&self) -> Json {
        let Fetched { plugin, digest, .. } = self.fetched;
        let rule = |rule: &Shown| json!({"rule": rule.words, "reason": rule.reason, "notes": rule.notes, "used_by": rule.used, "granted": rule.granted});
        let parameter = |one: &Parameter| {
            let words = one.description.as_ref().map(|words| words.value.as_str());
            json!({"name": one.name, "type": one.kind.word(), "required": *one.required, "description": words})
        };
        json!({
            "name": plugin.name.value,
            "version": plugin.version.to_string(),
            "description": plugin.description,
            "from": self.from,
            "resolved": self.fetched.resolved,
            "digest": digest,
            "review": self.signers.review(digest),
            "signed_by": self.signers.json(),
            "alike": self.alike,
            "asks": self.rules().iter().map(rule).collect::<Vec<_>>(),
            "cases": self.cases.json(),
            "tools": self.tools().map(|tool| json!({
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters.list.iter().map(parameter).collect::<Vec<_>>(),
                "confirm": tool.confirm.value,
            })).collect::<Vec<_>>(),
            "hooks": self.hooks().iter().map(|hook| json!({"name": hook.name, "event": hook.event.value.to_string()})).collect::<Vec<_>>(),
        })
    }
}

/// A line of somebody else's text.
fn quoted(text: &mut String, line: &str) {
    text.push_str(format!("  | {}", escape::line(line)).trim_end());
    text.push('\n');
}

/// What a rule means here. `effective` is the grant of a plugin that has all that it asks for.
fn notes(rule: &Rule, effective: Option<&Grant>, files: &Files) -> Vec<String> {
    let mut notes = Vec::new();
    let unusual = alike::unusual(&rule.item.to_string());
    if !unusual.is_empty() {
        notes.push(format!("it has characters that may look like others: {unusual}"));
    }
    let (Some(layer), Some(effective)) = (layer([rule], ""), effective) else { return notes };
    let alone = Grant::new(vec![layer]);
    let access = match rule.key {
        "fs.read" => Some(Access::Read),
        "fs.write" => Some(Access::Write),
        _ => None,
    };
    if let Some(access) = access {
        let both = |path: &&WorkspacePath| {
            alone.decide_path(path, access).is_ok() && effective.decide_path(path, access).is_ok()
        };
        let count = files.paths.iter().filter(both).count();
        let more = if files.has_more { "at least " } else { "" };
        notes.push(format!("here: {more}{}", plural(count, "file")));
    }
    let denied = wider(effective, &alone).into_iter().find(|one| one.key == rule.key);
    match denied.map(|one| one.example) {
        Some(Example::Certain { what, refused }) => notes.push(format!("here: {what} stays denied: {refused}")),
        Some(Example::Perhaps) => notes.push("here: some of it may stay denied".to_owned()),
        None => {}
    }
    notes
}

/// The files of a project.
struct Files {
    paths: Vec<WorkspacePath>,
    has_more: bool,
}

fn files(root: &Path) -> Files {
    let (mut paths, mut left, mut has_more) = (Vec::new(), MOST_COUNTED, false);
    let mut waiting = vec![String::new()];
    while let Some(above) = waiting.pop() {
        let Ok(mut names) = tree::list(&root.join(&above), left) else {
            has_more = true;
            continue;
        };
        left = left.saturating_sub(names.len());
        names.sort_by(|a, b| a.0.cmp(&b.0));
        for (name, kind) in names {
            let Some(name) = name.to_str() else { continue };
            let path = if above.is_empty() { name.to_owned() } else { format!("{above}/{name}") };
            match kind {
                Kind::File => paths.extend(WorkspacePath::parse(&path, "").ok()),
                Kind::Folder => waiting.push(path),
                Kind::Link | Kind::Other => {}
            }
        }
    }
    Files { paths, has_more }
}

pub(super) fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
