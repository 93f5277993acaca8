//! The entry of a server in `mcp.servers` that allows what it was seen to use, and no more.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use harness_artifact::escape;
use harness_policy::command::network;
use harness_policy::grant::Grant;
use harness_policy::network::address::AddressKind;
use harness_policy::path::{Access, PathPattern, WorkspacePath};
use harness_policy::watch::{Asked, Request, Watch};
use harness_sys::changes::{Use, limit_hint};
use serde_json::{Map, Value as Json, json};

use super::observed::{Observed, Used};
use crate::exit::Exit;
use crate::printer::Printer;

/// A server that is observed.
#[derive(Debug)]
pub(crate) struct Learning {
    observed: Observed,
    /// For the project that starts the server.
    pub(crate) watch: Arc<Watch>,
}

/// What a server was seen to use.
#[derive(Debug)]
struct Seen {
    used: Used,
    /// What was asked of its grant.
    asked: Asked,
}

impl Learning {
    /// Observes the files of a workspace from now on.
    ///
    /// # Errors
    ///
    /// That they cannot be observed, which was reported.
    pub(crate) fn start(workspace: &Path, printer: Printer) -> Result<Self, Exit> {
        let observed = Observed::start(workspace).map_err(|error| {
            let hint = limit_hint(&error);
            printer.error(&format!("the workspace cannot be watched: {error}{hint}"), &[], None);
            Exit::Fault
        })?;
        let watch = Arc::new(Watch::of_servers(observed.walls()));
        Ok(Self { observed, watch })
    }

    /// Says that the entry of a server cannot be read, as where the policy has it in a form that is not understood.
    pub(crate) fn unreadable(name: &str, printer: Printer) -> Exit {
        printer.error(&format!("the entry of the server `{name}` cannot be read"), &[], None);
        Exit::Usage
    }

    /// Forgets what was used so far.
    pub(crate) fn forget(&self) {
        self.observed.forget();
    }

    /// Ends it. Gives the entry of the server with the least `fs` and `network`, as lines of YAML; says what limits that.
    /// `entry` is the one that is written, and `grant` what it ran with.
    pub(crate) fn end(self, name: &str, entry: &Map<String, Json>, grant: &Grant, printer: Printer) -> String {
        let seen = Seen { used: self.observed.end(), asked: self.watch.asked() };
        if let Some(why) = seen.used.missed {
            printer.say(&format!("more files may have been used: {why}"));
        }
        printer.say(UNSEEN);
        let (policy, unsaid) = seen.policy(name, entry, grant);
        for path in unsaid {
            printer.say(&format!("no rule is offered for `{}`: it is over the bounds of a rule", escape::line(&path)));
        }
        policy
    }
}

/// What is not seen, for those who read the result.
const UNSEEN: &str = "variables, folders outside of the workspace and limits are not observed: they are as they were";

impl Seen {
    /// Its entry with the least `fs` and `network`, and the paths that no rule can name. What is not seen stays as it was.
    /// What the grant that it ran with does not allow was done by somebody else.
    fn policy(&self, name: &str, entry: &Map<String, Json>, grant: &Grant) -> (String, Vec<String>) {
        let needed = self.needed(&grant.unwatched());
        let (mut keys, mut fs, mut unnamed) = (Vec::new(), Map::new(), Vec::new());
        for (key, access) in [("read", Access::Read), ("write", Access::Write)] {
            let (rules, unsaid) = rules(&needed.iter().filter(|(_, of)| *of == access).map(|(path, _)| path).collect());
            if !rules.is_empty() {
                fs.insert(key.to_owned(), json!(rules));
            }
            unnamed.extend(unsaid.into_iter().map(ToString::to_string));
        }
        // What it closes stays closed.
        if let Some(protect) = entry.get("fs").and_then(|fs| fs.get("protect")) {
            fs.insert("protect".to_owned(), protect.clone());
        }
        for (key, value) in entry.iter().filter(|(key, _)| !matches!(key.as_str(), "fs" | "network")) {
            let is_empty = value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty);
            if !is_empty {
                keys.push(format!("{key}: {value}"));
            }
        }
        if !fs.is_empty() {
            keys.push(format!("fs: {}", Json::Object(fs)));
        }
        let hosts = self.hosts();
        if !hosts.is_empty() {
            keys.push(format!("network: {{ allowed_domains: [{}] }}", hosts.join(", ")));
        }
        let keys: String = keys.into_iter().map(|key| format!("      {}\n", escape::line(&key))).collect();
        (format!("mcp:\n  servers:\n    {name}:\n{keys}"), unnamed)
    }

    /// What the server has to be granted for what it used.
    fn needed(&self, grant: &Grant) -> BTreeSet<(WorkspacePath, Access)> {
        let allows = |path: &WorkspacePath, access| grant.decide_path(path, access).is_ok();
        let mut needed = BTreeSet::new();
        for (path, uses) in &self.used.uses {
            let is_replaced = uses.contains(&Use::Replaced);
            if (is_replaced || uses.contains(&Use::Written)) && allows(path, Access::Write) {
                // A name belongs to its folder.
                let folder = path.parent().filter(|folder| is_replaced && allows(folder, Access::Write));
                let path = folder.unwrap_or_else(|| path.clone());
                // A process writes only what it sees.
                needed.extend([(path.clone(), Access::Read), (path, Access::Write)]);
            } else if uses.iter().any(|usage| matches!(usage, Use::Opened | Use::Read)) && allows(path, Access::Read) {
                // What is mapped into memory is opened, and not read.
                needed.insert((path.clone(), Access::Read));
            }
        }
        needed.retain(|(path, access)| allows(path, *access));
        needed
    }

    /// Rules for the hosts that it connected to, as items of YAML.
    fn hosts(&self) -> Vec<String> {
        let mut hosts = Vec::new();
        for (_, request) in &self.asked.requests {
            let Request::CommandHost(target, address) = request else { continue };
            let item = network::item_for(target, AddressKind::of(*address) != AddressKind::Public);
            if !hosts.contains(&item) {
                hosts.push(item);
            }
        }
        hosts
    }
}

/// Patterns for paths and what is in them, and the paths that have none.
fn rules<'p>(paths: &BTreeSet<&'p WorkspacePath>) -> (Vec<String>, Vec<&'p WorkspacePath>) {
    let (mut rules, mut unsaid) = (Vec::new(), Vec::new());
    for path in paths {
        let mut above = std::iter::successors(path.parent(), WorkspacePath::parent);
        if above.any(|above| paths.contains(&above)) {
            continue;
        }
        match PathPattern::text_for(path) {
            Some(rule) => rules.push(rule),
            None => unsaid.push(*path),
        }
    }
    (rules, unsaid)
}

#[cfg(test)]
mod tests {
    use harness_artifact::policy::ProjectPolicy;

    use super::*;

    const ENTRY: &str = r#"{"command": ["s", "a b"], "keep": "call", "env": {}, "fs": {"read": ["docs", "o*"], "write": ["docs/out"], "protect": ["docs/p"]}, "network": {"allowed_domains": ["a.example"]}}"#;

    fn policy(text: &str) -> ProjectPolicy {
        let (policy, wrong) = ProjectPolicy::parse("harness.md", &format!("---\n{text}---\n"));
        assert_eq!(wrong.iter().map(|one| one.message.clone()).collect::<Vec<_>>(), Vec::<String>::new());
        policy.unwrap()
    }

    fn learned(uses: &[(&str, &[Use])]) -> String {
        let policy = policy(&format!("mcp: {{ servers: {{ s: {ENTRY} }} }}\n"));
        let grant = policy.grant_for_server(policy.mcp.server("s").unwrap());
        let path = |text: &str| WorkspacePath::parse(text, "/w").unwrap();
        let uses = uses.iter().map(|(text, uses)| (path(text), uses.iter().copied().collect())).collect();
        let seen = Seen { used: Used { uses, missed: None }, asked: Asked::default() };
        seen.policy("s", serde_json::from_str::<Json>(ENTRY).unwrap().as_object().unwrap(), &grant).0
    }

    #[test]
    fn the_least_that_allows_what_was_used_and_was_allowed() {
        use Use::{Opened, Read, Replaced, Written};
        let text = learned(&[
            ("docs/a.md", &[Opened, Read]),
            ("docs/deep", &[Read]),
            ("docs/deep/in/it", &[Opened]),
            ("docs/out/[1]", &[Opened, Written]),
            ("docs/out/deep/new", &[Replaced]),
            // The name is the server's own, and its folder is not.
            ("docs/out", &[Replaced]),
            // By somebody else: it is not granted, or closed.
            ("src/main.rs", &[Read]),
            ("docs/b.md", &[Written]),
            ("docs/p/x", &[Read]),
            (".env", &[Read]),
        ]);
        let wanted =
            json!({"read": ["docs/a.md", "docs/deep", "docs/out"], "write": ["docs/out"], "protect": ["docs/p"]});
        let wanted = format!(
            "mcp:\n  servers:\n    s:\n      command: [\"s\",\"a b\"]\n      keep: \"call\"\n      fs: {wanted}\n"
        );
        assert_eq!(text, wanted);
        let text = learned(&[("docs/out/[1]", &[Opened, Written]), ("docs/out/deep/new", &[Opened, Replaced])]);
        let rules = json!(["docs/out/[[]1[]]", "docs/out/deep"]);
        let wanted = json!({"read": rules, "write": rules, "protect": ["docs/p"]});
        assert!(text.ends_with(&format!("      fs: {wanted}\n")), "{text}");
        // As a policy it allows that, and nothing that the old one does not.
        let policy = policy(&text);
        let grant = policy.grant_for_server(policy.mcp.server("s").unwrap());
        let decide = |text: &str, access| grant.decide_path(&WorkspacePath::parse(text, "/w").unwrap(), access).is_ok();
        let [allowed, new] = [("docs/out/[1]", Access::Write), ("docs/out/deep/new", Access::Write)];
        assert!(decide(allowed.0, allowed.1) && decide(new.0, new.1) && decide(new.0, Access::Read));
        for (path, access) in [("docs/out/1", Access::Write), ("docs/a.md", Access::Read), ("docs/p/x", Access::Read)] {
            assert!(!decide(path, access), "{path}");
        }
    }

    /// For each grant, each path and each use: what is learned allows nothing that the grant does not.
    #[test]
    fn nothing_is_learned_that_was_not_allowed() {
        let parts = ["docs", "deep", "x.md"];
        let mut paths: Vec<String> = vec![".".to_owned()];
        for first in parts {
            paths.push(first.to_owned());
            for second in parts {
                paths.push(format!("{first}/{second}"));
                paths.extend(parts.map(|third| format!("{first}/{second}/{third}")));
            }
        }
        let paths: Vec<WorkspacePath> = paths.iter().map(|path| WorkspacePath::parse(path, "/w").unwrap()).collect();
        let uses = [Use::Opened, Use::Read, Use::Written, Use::Replaced];
        let mut allowed = 0;
        for rule in ["docs", "d*", "docs/*.md", "**/deep", "**/x.md", "."] {
            for protect in ["none", "docs/deep", "**/x.md"] {
                let entry = json!({"command": ["s"], "fs": {"read": [rule], "write": [rule], "protect": [protect]}});
                let server = policy(&format!("mcp: {{ servers: {{ s: {entry} }} }}\n"));
                let old = server.grant_for_server(server.mcp.server("s").unwrap());
                for (path, usage) in paths.iter().flat_map(|path| uses.map(|usage| (path, usage))) {
                    let used = Used { uses: [(path.clone(), BTreeSet::from([usage]))].into(), missed: None };
                    let seen = Seen { used, asked: Asked::default() };
                    let (text, unnamed) = seen.policy("s", entry.as_object().unwrap(), &old);
                    assert_eq!(unnamed, Vec::<String>::new());
                    let learned = policy(&text);
                    let new = learned.grant_for_server(learned.mcp.server("s").unwrap());
                    for (other, access) in
                        paths.iter().flat_map(|other| [(other, Access::Read), (other, Access::Write)])
                    {
                        if new.decide_path(other, access).is_ok() {
                            allowed += 1;
                            assert!(
                                old.decide_path(other, access).is_ok(),
                                "{entry} {path} {usage:?}: {access:?} {other}"
                            );
                        }
                    }
                }
            }
        }
        assert!(allowed > 1_000, "{allowed}");
    }
}
