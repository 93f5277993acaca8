//! The least policy under which what was asked is allowed, as text.
//!
//! Each request becomes the narrowest rule that allows it, and a rule that the others make superfluous is left out: of
//! what is left, taking away any rule refuses something that was asked. That is found out by asking the grant that the
//! rules make.

use std::collections::BTreeSet;

use super::{layer, sources};
use crate::policy::command::CommandRule;
use crate::policy::grant::Grant;
use crate::policy::layer::{Layer, Service};
use crate::policy::limits::LimitKey;
use crate::policy::network::address::AddressKind;
use crate::policy::path::{Access, PathPattern};
use crate::policy::watch::{Asked, Request};

/// Rules up to which each is tried without: a listing of thousands of files needs each of them anyway.
const MOST_TRIED: usize = 200;

/// What cannot be seen in requests, and is kept as it was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// Variables that commands got.
    pub variables: Vec<String>,
    /// Folders that commands saw beside the workspace.
    pub folders: Vec<String>,
    /// Whether commands had the network.
    pub network: bool,
    /// Whether commands ran unconfined.
    pub unconfined: bool,
    /// Limits that the call needs and that are above their defaults.
    pub limits: Vec<(LimitKey, u64)>,
}

/// A rule: the key of its list, and the item as YAML has it. Items that are no list's are the whole value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Rule {
    key: Key,
    item: String,
}

/// The keys of a layer, in the order that they are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Network,
    Read,
    Write,
    Allow,
    ChildVariables,
    Folders,
    ChildNetwork,
    Unconfined,
    Variables,
    Services,
    Secrets,
    Limit(LimitKey),
}

impl Key {
    /// Keys above it and its own, below `sandbox` and in a layer of its own.
    fn path(self) -> Vec<&'static str> {
        match self {
            Self::Network => vec!["network"],
            Self::Read => vec!["fs", "read"],
            Self::Write => vec!["fs", "write"],
            Self::Allow => vec!["exec", "allow"],
            Self::ChildVariables => vec!["exec", "env"],
            Self::Folders => vec!["exec", "folders"],
            Self::ChildNetwork => vec!["exec", "network"],
            Self::Unconfined => vec!["exec", "unconfined"],
            Self::Variables => vec!["env"],
            Self::Services => vec!["services"],
            Self::Secrets => vec!["secrets"],
            Self::Limit(limit) => vec!["limits", limit.facts().name],
        }
    }

    fn is_list(self) -> bool {
        !matches!(self, Self::ChildNetwork | Self::Unconfined | Self::Limit(_))
    }

    /// Whether nobody can see if it is needed.
    fn is_kept(self) -> bool {
        matches!(self, Self::Folders | Self::ChildNetwork | Self::Unconfined | Self::Limit(_))
    }
}

/// A policy in the making, as rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// Of the whole project.
    rules: Vec<Rule>,
    /// Of plugins, by the name of their source.
    bundles: Vec<(String, Vec<Rule>)>,
    /// Whether a run may add to itself.
    meta: bool,
    /// Whether commands ran, of which nobody sees what they needed.
    ran: bool,
}

/// One of its rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt(Rule);

impl Draft {
    /// The least that allows what was asked.
    ///
    /// Of the project's own artifacts, files and built-ins are open where nothing is said of them: where none was asked
    /// for, a line closes them. All other lines are needed, but for those that cannot be judged by looking
    /// ([`Draft::doubts`]). Secrets that were used have to be defined beside it.
    pub fn of(asked: &Asked, kept: &Kept) -> Self {
        // What the project has of secrets is their definition.
        let all = asked.requests.iter().map(|(_, request)| request);
        let all: Vec<&Request> = all.filter(|request| !matches!(request, Request::Secret(_))).collect();
        let names: BTreeSet<&str> =
            asked.requests.iter().filter_map(|(source, _)| sources::bundle_of(source)).collect();
        let own = |bundle: &str| {
            let of = |source: &str| sources::bundle_of(source) == Some(bundle);
            let own: Vec<&Request> =
                asked.requests.iter().filter(|(source, _)| of(source)).map(|(_, one)| one).collect();
            // Limits of the whole are limits of this too.
            needed(&own, &Kept { limits: Vec::new(), ..kept.clone() })
        };
        Self {
            rules: needed(&all, kept),
            bundles: names.into_iter().map(|bundle| (bundle.to_owned(), own(bundle))).collect(),
            meta: all.contains(&&Request::Service(Service::Meta)),
            ran: all.iter().any(|request| matches!(request, Request::Command(..))),
        }
    }

    /// Rules of which looking does not tell whether they are needed: what commands had, and limits that nothing counts.
    pub fn doubts(&self) -> Vec<Doubt> {
        let doubtful = |rule: &&Rule| match rule.key {
            Key::Read | Key::Write | Key::ChildVariables => self.ran,
            key => key.is_kept(),
        };
        // The widest first: what it covers is tried when it is known to stay.
        let mut doubts: Vec<Doubt> = self.rules.iter().filter(doubtful).cloned().map(Doubt).collect();
        doubts.sort_by_key(|doubt| (std::cmp::Reverse(doubt.0.key), doubt.0.item.len()));
        doubts
    }

    /// The same without one rule, wherever it is.
    #[must_use]
    pub fn without(&self, doubt: &Doubt) -> Self {
        let mut less = self.clone();
        let lists = less.bundles.iter_mut().map(|(_, rules)| rules).chain([&mut less.rules]);
        lists.for_each(|rules| rules.retain(|rule| *rule != doubt.0));
        less
    }

    /// The same as a layer that narrows a call. Of a limit that is not there the default holds; of secrets it says
    /// nothing.
    pub fn layer(&self) -> Option<Layer> {
        let mut lines = written(&self.rules);
        for key in ["network: []", "fs: {}", "exec: {}", "env: []", "services: []", "limits:"] {
            let name = key.split_inclusive(':').next().unwrap_or(key);
            if !lines.iter().any(|line| line == name) {
                lines.push(key.to_owned());
            }
        }
        // Limits come last.
        let said = |limit: LimitKey| self.rules.iter().any(|rule| rule.key == Key::Limit(limit));
        for limit in LimitKey::ALL.iter().filter(|limit| !said(**limit)) {
            let facts = limit.facts();
            lines.push(format!("  {}: {}", facts.name, facts.default));
        }
        layer::parse("learned", &lines.join("\n")).0
    }

    /// The front matter of a `harness.md`.
    pub fn text(&self) -> String {
        let mut lines = Vec::new();
        let (network, rest): (Vec<Rule>, Vec<Rule>) =
            self.rules.iter().cloned().partition(|rule| rule.key == Key::Network);
        if !network.is_empty() {
            lines.extend(["network:".to_owned(), "  allowed_domains:".to_owned()]);
            lines.extend(network.iter().map(|rule| format!("    - {}", rule.item)));
        }
        lines.push("sandbox:".to_owned());
        let written = written(&rest);
        for (key, closed) in [("fs:", "  fs: {}"), ("services:", "  services: []")] {
            if !written.iter().any(|line| line == key) {
                lines.push(closed.to_owned());
            }
        }
        lines.extend(written.iter().map(|line| format!("  {line}")));
        if !self.bundles.is_empty() {
            lines.push("  sources:".to_owned());
        }
        for (bundle, rules) in &self.bundles {
            lines.push(format!("    {}:", quoted(bundle)));
            lines.extend(self::written(rules).iter().map(|line| format!("      {line}")));
        }
        if self.meta {
            lines.push("meta: { enabled: true }".to_owned());
        }
        lines.push(String::new());
        lines.join("\n")
    }
}

/// The rules that are needed for requests, in the order that they are written in.
fn needed(requests: &[&Request], kept: &Kept) -> Vec<Rule> {
    let mut rules: BTreeSet<Rule> = requests.iter().filter_map(|request| rule(request)).collect();
    if rules.iter().any(|rule| rule.key == Key::Allow) {
        for (key, names) in [(Key::ChildVariables, &kept.variables), (Key::Folders, &kept.folders)] {
            rules.extend(names.iter().map(|name| Rule { key, item: quoted(name) }));
        }
        for (key, granted) in [(Key::ChildNetwork, kept.network), (Key::Unconfined, kept.unconfined)] {
            rules.extend(granted.then(|| Rule { key, item: "true".to_owned() }));
        }
    }
    rules.extend(kept.limits.iter().map(|(limit, value)| Rule { key: Key::Limit(*limit), item: value.to_string() }));
    let mut rules: Vec<Rule> = rules.into_iter().collect();
    // The longest first: what is below a folder goes before the folder.
    let mut order: Vec<Rule> = rules.iter().filter(|rule| !rule.key.is_kept()).cloned().collect();
    order.sort_by_key(|rule| std::cmp::Reverse(rule.item.len()));
    if order.len() <= MOST_TRIED {
        for rule in order {
            if rule.key == Key::ChildVariables && kept.variables.iter().any(|name| quoted(name) == rule.item) {
                continue;
            }
            let without: Vec<Rule> = rules.iter().filter(|other| **other != rule).cloned().collect();
            let grant = granted(&without);
            if requests.iter().all(|request| request.allowed(&grant)) {
                rules = without;
            }
        }
    }
    rules
}

/// The narrowest rule for a request.
fn rule(request: &Request) -> Option<Rule> {
    let (key, item) = match request {
        Request::Path(path, Access::Read) => (Key::Read, quoted(&PathPattern::text_for(path))),
        Request::Path(path, Access::Write) => (Key::Write, quoted(&PathPattern::text_for(path))),
        Request::Host(target, address) => {
            let named = matches!(target.host(), url::Host::Domain(_));
            let private = named && AddressKind::of(*address) != AddressKind::Public;
            let (host, method) = (quoted(&target.to_string()), target.method().name());
            let private = if private { ", private: true" } else { "" };
            (
                Key::Network,
                format!("{{ host: {host}, methods: [{method}], scheme: {}{private} }}", target.scheme().name()),
            )
        }
        Request::Command(program, args) => {
            let line = CommandRule::for_command(program, args).or_else(|| CommandRule::for_command(program, &[]));
            (Key::Allow, quoted(&line?))
        }
        Request::ChildVariable(name) => (Key::ChildVariables, quoted(name)),
        Request::Variable(name) => (Key::Variables, quoted(name)),
        Request::Service(service) => (Key::Services, quoted(service.name())),
        Request::Secret(name) => (Key::Secrets, quoted(name)),
    };
    Some(Rule { key, item })
}

/// What rules grant by themselves.
fn granted(rules: &[Rule]) -> Grant {
    let (layer, _) = layer::parse("learned", &written(rules).join("\n"));
    Grant::new(layer.into_iter().collect())
}

/// Rules as the lines of a layer, sorted by key.
fn written(rules: &[Rule]) -> Vec<String> {
    let mut lines = Vec::new();
    let mut open: Vec<&str> = Vec::new();
    for rule in rules {
        let path = rule.key.path();
        let same = open.iter().zip(&path).take_while(|(one, other)| one == other).count();
        if rule.key.is_list() {
            for (depth, key) in path.iter().enumerate().skip(same) {
                lines.push(format!("{}{key}:", "  ".repeat(depth)));
            }
            lines.push(format!("{}- {}", "  ".repeat(path.len()), rule.item));
        } else {
            let last = path.len().saturating_sub(1);
            for (depth, key) in path.iter().enumerate().skip(same) {
                let value = if depth == last { format!(" {}", rule.item) } else { String::new() };
                lines.push(format!("{}{key}:{value}", "  ".repeat(depth)));
            }
        }
        open = path;
    }
    lines
}

/// A text as a YAML scalar; in quotes unless it is plainly a text.
fn quoted(text: &str) -> String {
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-'));
    let word = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    if begins && plain && !word.contains(&text.to_ascii_lowercase().as_str()) {
        return text.to_owned();
    }
    // What JSON writes is what YAML reads.
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifact::policy::ProjectPolicy;
    use crate::policy::compare::wider;
    use crate::policy::path::WorkspacePath;

    fn path(text: &str, access: Access) -> (String, Request) {
        ("tools/it".to_owned(), Request::Path(WorkspacePath::parse(text, "/w").unwrap(), access))
    }

    fn policy(text: &str) -> Option<ProjectPolicy> {
        ProjectPolicy::parse("harness.md", &format!("---\n{text}---\n")).0
    }

    /// Whatever was asked is allowed; and without any one line something of it is not, or what the line had closed is.
    #[test]
    fn every_line_is_needed() {
        let command = |args: &[&str]| {
            let args = args.iter().map(|arg| (*arg).to_owned()).collect();
            ("tools/it".to_owned(), Request::Command("git".to_owned(), args))
        };
        let target = |url: &str| crate::policy::network::Target::of(&url::Url::parse(url).unwrap()).unwrap();
        let asked = Asked {
            requests: vec![
                path("a b/[x].md", Access::Read),
                path("src/deep/a.rs", Access::Read),
                path("src", Access::Read),
                path("out/true", Access::Write),
                command(&["status"]),
                command(&["log", "--format=%H \"x\""]),
                command(&["log", "a b"]),
                ("tools/it".to_owned(), Request::Host(target("http://127.0.0.1:8080/"), [127, 0, 0, 1].into())),
                ("tools/it".to_owned(), Request::Host(target("https://a.test/"), [10, 0, 0, 1].into())),
                ("plugins/p/tools/x".to_owned(), Request::Variable("CI".to_owned())),
                ("hooks/h".to_owned(), Request::Service(Service::Clock)),
            ],
        };
        let text = Draft::of(&asked, &Kept::default()).text();
        insta::assert_snapshot!(text, @r#"
        network:
          allowed_domains:
            - { host: "127.0.0.1:8080", methods: [GET], scheme: http }
            - { host: a.test, methods: [GET], scheme: https, private: true }
        sandbox:
          fs:
            read:
              - "a b/?x?.md"
              - src
            write:
              - out/true
          exec:
            allow:
              - git
          env:
            - CI
          services:
            - clock
          sources:
            plugins/p:
              env:
                - CI
        "#);
        let allows = |text: &str| {
            policy(text).is_some_and(|policy| {
                asked.requests.iter().all(|(source, request)| request.allowed(&policy.grant_for(source, None)))
            })
        };
        assert!(allows(&text));
        let lines: Vec<&str> = text.lines().collect();
        for number in 0..lines.len() {
            let less: String =
                lines.iter().enumerate().filter(|(n, _)| *n != number).map(|(_, line)| format!("{line}\n")).collect();
            let opens = || {
                let grant = |text: &str| policy(text).unwrap().grant_for("tools/it", None);
                wider(&grant(&text), &grant(&less)) != []
            };
            assert!(!allows(&less) || opens(), "without line {number}:\n{less}");
        }
    }

    #[test]
    fn what_was_not_asked_is_closed() {
        let kept = Kept {
            variables: vec!["HOME".to_owned()],
            folders: vec!["/opt/go".to_owned()],
            network: true,
            unconfined: false,
            limits: vec![(LimitKey::Fuel, 20_000_000_000)],
        };
        insta::assert_snapshot!(Draft::of(&Asked::default(), &Kept::default()).text(), @"
        sandbox:
          fs: {}
          services: []
        ");
        insta::assert_snapshot!(Draft::of(&Asked::default(), &kept).text(), @"
        sandbox:
          fs: {}
          services: []
          limits:
            fuel: 20000000000
        ");
        let run = Request::Command("true".to_owned(), Vec::new());
        insta::assert_snapshot!(Draft::of(&Asked { requests: vec![("tools/it".to_owned(), run)] }, &kept).text(), @r#"
        sandbox:
          fs: {}
          services: []
          exec:
            allow:
              - "true"
            env:
              - HOME
            folders:
              - "/opt/go"
            network: true
          limits:
            fuel: 20000000000
        "#);
    }
}
