//! The servers that a plugin brings, as entries of `mcp.servers`: written with consent, changed with consent, and taken back.
//! The lock has the names of those that were written: an entry of the project itself stays as it is.

use std::collections::BTreeSet;

use harness_artifact::escape;
use harness_artifact::foreign::{self, Server};
use harness_artifact::plugin::Rule;
use harness_artifact::yaml::flow;
use harness_plugin::content::Content;
use harness_registry::lock::{Lock, LockedPlugin};
use serde_json::Value as Json;

use super::state::PolicyText;
use crate::edit;
use crate::exit::Exit;
use crate::printer::Printer;

fn path_of(server: &str) -> [&str; 3] {
    ["mcp", "servers", server]
}

/// Whether one of some rules is about a server.
fn is_about(rules: &[Rule], server: &Server) -> bool {
    rules.iter().any(|rule| rule.key == "mcp" && rule.item == server.name.as_str())
}

/// What another version changes of the servers that a plugin brings.
#[derive(Debug, Default)]
pub(super) struct Difference {
    /// Lines for a person, each escaped.
    pub(super) lines: Vec<String>,
    /// The servers that are others than before, and can be had.
    pub(super) changed: Vec<String>,
}

/// Compares the servers of two versions. One that is new is asked for by a rule of its own.
pub(super) fn difference(before: &[Server], now: &[Server]) -> Difference {
    let mut found = Difference::default();
    let names: BTreeSet<&str> = before.iter().chain(now).map(|one| one.name.as_str()).collect();
    let words = |server: &Server| {
        let why = server.entry.as_ref().err().map(|why| format!("; it is not started, because it {why}"));
        escape::line(&format!("it {}{}", server.words, why.unwrap_or_default())).into_owned()
    };
    for name in names {
        let of = |all: &'_ [Server]| all.iter().position(|one| one.name == name);
        let (old, new) = (of(before).and_then(|at| before.get(at)), of(now).and_then(|at| now.get(at)));
        let (what, lines) = match (old, new) {
            (Some(old), Some(new)) if old != new => {
                found.changed.extend(new.entry.is_ok().then(|| name.to_owned()));
                ("changes", vec![format!("- {}", words(old)), format!("+ {}", words(new))])
            }
            (Some(old), None) => ("is removed", vec![format!("- {}", words(old))]),
            (None, Some(new)) => ("is new", vec![format!("+ {}", words(new))]),
            _ => continue,
        };
        found.lines.push(format!("server {} {what}", escape::line(name)));
        found.lines.extend(lines.into_iter().map(|line| format!("    {line}")));
    }
    found
}

impl PolicyText {
    /// What `mcp.servers` has under a name.
    pub(super) fn server(&self, name: &str) -> Option<Json> {
        edit::entry(&self.file, &self.text, &path_of(name)).map(Json::Object)
    }

    /// Whether an entry of a source names a server, other than that of `own`.
    fn is_named(&self, server: &str, own: &str) -> bool {
        let sources = edit::entry(&self.file, &self.text, &["sandbox", "sources"]).unwrap_or_default();
        let names = |source: &Json| {
            source.get("mcp").and_then(Json::as_array).is_some_and(|all| all.iter().any(|one| one == server))
        };
        sources.iter().any(|(name, source)| name != own && names(source))
    }

    /// The same with the servers that rules are about, as a plugin brings them. One that is there stays as it is.
    pub(super) fn serving(&self, servers: &[Server], rules: &[Rule], printer: Printer) -> Result<Self, Exit> {
        let mut policy = self.clone();
        for server in servers.iter().filter(|server| is_about(rules, server) && self.server(&server.name).is_none()) {
            let Ok(entry) = &server.entry else { continue };
            policy =
                policy.changed(edit::add(&policy.file, &policy.text, &path_of(&server.name), &flow(entry)), printer)?;
        }
        Ok(policy)
    }

    /// The same with the servers of `plugin` as another version of it brings them, where they are as the version before
    /// brought them and no other source calls them.
    pub(super) fn reserving(
        &self,
        plugin: &LockedPlugin,
        (before, now): (&[Server], &[Server]),
        printer: Printer,
    ) -> Result<Self, Exit> {
        let mut policy = self.clone();
        for server in now.iter().filter(|server| plugin.servers.contains(&server.name)) {
            let old = before.iter().find(|old| old.name == server.name).and_then(|old| old.entry.as_ref().ok());
            let Ok(entry) = &server.entry else { continue };
            let is_own = old.is_some() && self.server(&server.name).as_ref() == old;
            if is_own && old != Some(entry) && !self.is_named(&server.name, &plugin.source_name()) {
                let path = path_of(&server.name);
                policy = policy.changed(edit::set(&policy.file, &policy.text, &path, &flow(entry)), printer)?;
            }
        }
        Ok(policy)
    }

    /// The same without the servers of `plugin` that rules were about, where they are as the plugin brought them and no other
    /// source calls them.
    pub(super) fn unserving(
        &self,
        plugin: &LockedPlugin,
        (servers, rules): (&[Server], &[Rule]),
        printer: Printer,
    ) -> Result<Self, Exit> {
        let mut policy = self.clone();
        let is_written = |server: &&Server| is_about(rules, server) && plugin.servers.contains(&server.name);
        for server in servers.iter().filter(is_written) {
            let is_same = server.entry.as_ref().ok() == self.server(&server.name).as_ref();
            if is_same && !self.is_named(&server.name, "") {
                let path = path_of(&server.name);
                policy = policy.changed(edit::remove(&policy.file, &policy.text, &path), printer)?;
            }
        }
        Ok(policy)
    }

    /// The servers of a plugin that this policy has because of it: `old` is the policy before. One that another plugin wrote
    /// belongs to both.
    pub(super) fn written(&self, old: &Self, content: &Content, plugin: &LockedPlugin, lock: &Lock) -> Vec<String> {
        let servers = foreign::servers(content.text(foreign::SERVERS).map(str::as_bytes));
        let is_written = |server: &&Server| {
            let is_same = self.server(&server.name).as_ref() == server.entry.as_ref().ok();
            let is_new = old.server(&server.name).is_none();
            let is_kept = lock.plugins().chain([plugin]).any(|other| other.servers.contains(&server.name));
            is_same && server.entry.is_ok() && (is_new || is_kept)
        };
        servers.iter().filter(is_written).map(|server| server.name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn servers(of: &Json) -> Vec<Server> {
        foreign::servers(Some(json!({ "mcpServers": of }).to_string().as_bytes()))
    }

    #[test]
    fn servers_of_two_versions() {
        let before = servers(&json!({"a": {"command": "a"}, "b": {"command": "b"}, "c": {"command": "c"}}));
        let now = json!({"a": {"command": "a"}, "b": {"url": "https://b.example/", "headers": {"X": "${TOKEN}"}}, "d": {"command": "d"}});
        let found = difference(&before, &servers(&now));
        assert_eq!(
            found.lines,
            [
                "server b changes",
                r#"    - it runs ["b"]"#,
                r#"    + it is asked at "https://b.example/", with X="${TOKEN}", and gets from this machine's environment `TOKEN`"#,
                "server c is removed",
                r#"    - it runs ["c"]"#,
                "server d is new",
                r#"    + it runs ["d"]"#,
            ]
        );
        assert_eq!(found.changed, ["b"]);
        let same = difference(&before, &before);
        assert!(same.lines.is_empty() && same.changed.is_empty());
        // One that is not started any more asks for nothing.
        let none = difference(&before[..1], &servers(&json!({"a": {"command": "${HOME}/a"}})));
        assert!(
            none.changed.is_empty() && none.lines[2].contains("it is not started, because it has a variable"),
            "{:?}",
            none.lines
        );
    }
}
