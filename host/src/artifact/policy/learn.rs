//! The least policy under which what was asked is allowed, as text.
//!
//! Each request becomes the narrowest rule that allows it, and a rule that the others make superfluous is left out: of
//! what is left, taking away any rule refuses something that was asked. That is found out by asking the grant that the
//! rules make.

use std::collections::BTreeSet;
use std::fmt;

use super::{layer, sources};
use crate::artifact::escape;
use crate::policy::command::CommandRule;
use crate::policy::grant::Grant;
use crate::policy::layer::{Layer, Service};
use crate::policy::limits::LimitKey;
use crate::policy::network::address::AddressKind;
use crate::policy::network::{Scheme, Target};
use crate::policy::path::{Access, PathPattern, WorkspacePath};
use crate::policy::secret::{Holder, Secret};
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
    /// The project's secrets; those that were used are defined.
    pub secrets: Vec<Secret>,
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

/// A policy in the making.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    asked: Asked,
    kept: Kept,
}

/// Something in it of which looking does not tell whether it is needed: what commands had, and limits that nothing counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doubt {
    /// A limit above its default.
    Limit(LimitKey, u64),
    /// That commands ran unconfined.
    Unconfined,
    /// That commands had the network.
    Network,
    /// A folder that commands saw beside the workspace.
    Folder(String),
    /// A variable that commands got.
    Variable(String),
    /// A file or folder that commands got.
    Shown(WorkspacePath, Access),
}

/// The line that it is in the policy for.
impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit(limit, value) => write!(f, "limits.{}: {value}", limit.facts().name),
            Self::Unconfined => f.write_str("exec.unconfined: true"),
            Self::Network => f.write_str("exec.network: true"),
            Self::Folder(folder) => write!(f, "exec.folders: {}", quoted(folder)),
            Self::Variable(name) => write!(f, "exec.env: {}", quoted(name)),
            Self::Shown(path, access) => {
                let key = if *access == Access::Read { "fs.read" } else { "fs.write" };
                write!(f, "{key}: {}", quoted(&PathPattern::text_for(path)))
            }
        }
    }
}

impl Draft {
    /// The least that allows what was asked.
    ///
    /// Of the project's own artifacts, files and built-ins are open where nothing is said of them: where none was asked
    /// for, a line closes them. All other lines are needed, but for those that cannot be judged by looking
    /// ([`Draft::doubts`]).
    pub fn of(asked: Asked, kept: Kept) -> Self {
        Self { asked, kept }
    }

    /// What was kept without being judged, the widest first: what it covers is tried when it is known to stay.
    pub fn doubts(&self) -> Vec<Doubt> {
        let Kept { variables, folders, network, unconfined, limits, secrets: _ } = &self.kept;
        let mut doubts: Vec<Doubt> = limits.iter().map(|(limit, value)| Doubt::Limit(*limit, *value)).collect();
        doubts.extend(unconfined.then_some(Doubt::Unconfined));
        doubts.extend(network.then_some(Doubt::Network));
        doubts.extend(folders.iter().cloned().map(Doubt::Folder));
        doubts.extend(variables.iter().cloned().map(Doubt::Variable));
        for wanted in [Access::Write, Access::Read] {
            let shown = self.asked.requests.iter().filter_map(|(_, request)| match request {
                Request::Shown(path, access) if *access == wanted => Some(path),
                _ => None,
            });
            // By each source that ran commands once.
            let paths: BTreeSet<&WorkspacePath> = shown.collect();
            let mut paths: Vec<&WorkspacePath> = paths.into_iter().collect();
            paths.sort_by_key(|path| path.parts().len());
            doubts.extend(paths.into_iter().map(|path| Doubt::Shown(path.clone(), wanted)));
        }
        doubts
    }

    /// Whether a line is there for nothing but it.
    pub fn has_line_for(&self, doubt: &Doubt) -> bool {
        self.without(doubt).text() != self.text()
    }

    /// The same without one of them.
    #[must_use]
    pub fn without(&self, doubt: &Doubt) -> Self {
        let mut less = self.clone();
        match doubt {
            Doubt::Limit(limit, _) => less.kept.limits.retain(|(kept, _)| kept != limit),
            Doubt::Unconfined => less.kept.unconfined = false,
            Doubt::Network => less.kept.network = false,
            Doubt::Folder(folder) => less.kept.folders.retain(|kept| kept != folder),
            Doubt::Variable(name) => less.kept.variables.retain(|kept| kept != name),
            Doubt::Shown(path, access) => {
                let shown = Request::Shown(path.clone(), *access);
                less.asked.requests.retain(|(_, request)| *request != shown);
            }
        }
        less
    }

    /// The same where commands can change nothing that lasts and ask nobody. Nothing where the scripts themselves did.
    pub fn harmless(&self) -> Option<Self> {
        let lasts = |request: &Request| {
            matches!(request, Request::Path(_, Access::Write) | Request::Host(..) | Request::Service(Service::Delegate))
        };
        if self.asked.requests.iter().any(|(_, request)| lasts(request)) {
            return None;
        }
        let mut less = self.clone();
        less.asked.requests.retain(|(_, request)| !matches!(request, Request::Shown(_, Access::Write)));
        (less.kept.network, less.kept.unconfined) = (false, false);
        Some(less)
    }

    /// The rules for the whole project.
    fn rules(&self) -> Vec<Rule> {
        // What the project has of secrets is their definition.
        let all = self.asked.requests.iter().map(|(_, request)| request);
        let all: Vec<&Request> = all.filter(|request| !matches!(request, Request::Secret(_))).collect();
        needed(&all, &self.kept)
    }

    /// The rules for plugins, by the name of their source.
    fn bundles(&self) -> Vec<(&str, Vec<Rule>)> {
        let requests = &self.asked.requests;
        let names: BTreeSet<&str> = requests.iter().filter_map(|(source, _)| sources::bundle_of(source)).collect();
        // Limits of the whole are limits of this too.
        let kept = Kept { limits: Vec::new(), ..self.kept.clone() };
        let own = |bundle: &str| {
            let own = requests.iter().filter(|(source, _)| sources::bundle_of(source) == Some(bundle));
            let own: Vec<&Request> = own.map(|(_, one)| one).collect();
            needed(&own, &kept)
        };
        names.into_iter().map(|bundle| (bundle, own(bundle))).collect()
    }

    /// The secrets that were used, for what was asked with them.
    fn secrets(&self) -> Vec<String> {
        let used = |secret: &&Secret| {
            let request = Request::Secret(secret.name.clone());
            self.asked.requests.iter().any(|(_, asked)| *asked == request)
        };
        self.kept.secrets.iter().filter(used).map(|secret| defined(secret, &self.asked)).collect()
    }

    /// The same as a layer that narrows a call. Of a limit that is not there the default holds; of secrets it says
    /// nothing.
    pub fn layer(&self) -> Option<Layer> {
        let rules = self.rules();
        let mut lines = written(&rules);
        for key in ["network: []", "fs: {}", "exec: {}", "env: []", "services: []", "limits:"] {
            let name = key.split_inclusive(':').next().unwrap_or(key);
            if !lines.iter().any(|line| line == name) {
                lines.push(key.to_owned());
            }
        }
        // Limits come last.
        let said = |limit: LimitKey| rules.iter().any(|rule| rule.key == Key::Limit(limit));
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
            self.rules().into_iter().partition(|rule| rule.key == Key::Network);
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
        let (secrets, bundles) = (self.secrets(), self.bundles());
        if !secrets.is_empty() {
            lines.push("  secrets:".to_owned());
        }
        lines.extend(secrets.iter().map(|line| format!("    {line}")));
        if !bundles.is_empty() {
            lines.push("  sources:".to_owned());
        }
        for (bundle, rules) in &bundles {
            lines.push(format!("    {}:", quoted(bundle)));
            lines.extend(self::written(rules).iter().map(|line| format!("      {line}")));
        }
        if self.asked.requests.iter().any(|(_, request)| *request == Request::Service(Service::Meta)) {
            lines.push("meta: { enabled: true }".to_owned());
        }
        lines.push(String::new());
        lines.join("\n")
    }
}

/// The rules that are needed for requests, in the order that they are written in.
fn needed(requests: &[&Request], kept: &Kept) -> Vec<Rule> {
    let requests = &highest(requests);
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
        Request::Path(path, access) | Request::Shown(path, access) => {
            let key = if *access == Access::Read { Key::Read } else { Key::Write };
            (key, quoted(&PathPattern::text_for(path)))
        }
        Request::Host(target, address) => {
            (Key::Network, host(target, AddressKind::of(*address) != AddressKind::Public))
        }
        Request::Command(program, args) => (Key::Allow, command(program, args)?),
        Request::ChildVariable(name) => (Key::ChildVariables, quoted(name)),
        Request::Variable(name) => (Key::Variables, quoted(name)),
        Request::Service(service) => (Key::Services, quoted(service.name())),
        Request::Secret(name) => (Key::Secrets, quoted(name)),
    };
    Some(Rule { key, item })
}

fn host(target: &Target, private: bool) -> String {
    let (name, method) = (quoted(&target.to_string()), target.method().name());
    let named = matches!(target.host(), url::Host::Domain(_));
    let private = if named && private { ", private: true" } else { "" };
    format!("{{ host: {name}, methods: [{method}], scheme: {}{private} }}", target.scheme().name())
}

fn command(program: &str, args: &[String]) -> Option<String> {
    let line = CommandRule::for_command(program, args).or_else(|| CommandRule::for_command(program, &[]));
    line.as_deref().map(quoted)
}

/// The line that defines a secret, with the hosts and commands of a call that it may go to.
fn defined(secret: &Secret, asked: &Asked) -> String {
    let (mut hosts, mut commands) = (BTreeSet::new(), BTreeSet::new());
    for (_, request) in &asked.requests {
        match request {
            // In the clear it goes only where the rule says that it stays inside.
            Request::Host(target, _) if secret.decide_target(target).is_ok() => {
                hosts.insert(host(target, target.scheme() == Scheme::Http));
            }
            Request::Command(program, args) if secret.decide_command(program, args).is_ok() => {
                commands.extend(command(program, args));
            }
            _ => {}
        }
    }
    let holder = match &secret.holder {
        Holder::Variable(name) => format!("env: {}", quoted(name)),
        Holder::File(path) => format!("file: {}", quoted(path)),
    };
    let lists = [("hosts", hosts), ("exec", commands)].into_iter().filter(|(_, items)| !items.is_empty());
    let lists = lists.map(|(key, items)| format!("{key}: [{}]", items.into_iter().collect::<Vec<_>>().join(", ")));
    let keys: Vec<String> = std::iter::once(holder).chain(lists).collect();
    format!("{}: {{ {} }}", quoted(&secret.name), keys.join(", "))
}

/// Those that no rule for another is known to cover: for the folder above, of the thousands of files that a search asks for.
fn highest<'a>(requests: &[&'a Request]) -> Vec<&'a Request> {
    let path = |request: &'a Request| match request {
        Request::Path(path, access) | Request::Shown(path, access) => Some((*access == Access::Write, path)),
        _ => None,
    };
    let asked: BTreeSet<(bool, &WorkspacePath)> = requests.iter().filter_map(|request| path(request)).collect();
    let covered = |request: &'a Request| {
        path(request).is_some_and(|(write, path)| {
            std::iter::successors(path.parent(), WorkspacePath::parent).any(|above| asked.contains(&(write, &above)))
        })
    };
    requests.iter().copied().filter(|request| !covered(request)).collect()
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
    // What JSON writes is what YAML reads. A character that nobody sees is written as its number.
    let mut quoted = String::new();
    for c in serde_json::Value::from(text).to_string().chars() {
        match c {
            c if !escape::is_hidden(c) => quoted.push(c),
            c => quoted.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::artifact::policy::ProjectPolicy;
    use crate::policy::compare::wider;

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
        let text = Draft::of(asked.clone(), Kept::default()).text();
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

    /// What nobody sees in a command is seen in the rule for it, which still is for that command.
    #[test]
    fn hidden_characters_are_written_as_numbers() {
        let run = Request::Command("echo".to_owned(), vec!["a\u{202e}b".to_owned()]);
        let text = Draft::of(Asked { requests: vec![("tools/it".to_owned(), run.clone())] }, Kept::default()).text();
        insta::assert_snapshot!(text, @r#"
        sandbox:
          fs: {}
          services: []
          exec:
            allow:
              - "echo a\U0000202eb"
        "#);
        assert!(run.allowed(&policy(&text).unwrap().grant_for("tools/it", None)));
    }

    #[test]
    fn what_was_not_asked_is_closed() {
        let kept = Kept {
            variables: vec!["HOME".to_owned()],
            folders: vec!["/opt/go".to_owned()],
            network: true,
            unconfined: false,
            limits: vec![(LimitKey::Fuel, 20_000_000_000)],
            secrets: Vec::new(),
        };
        insta::assert_snapshot!(Draft::of(Asked::default(), Kept::default()).text(), @"
        sandbox:
          fs: {}
          services: []
        ");
        insta::assert_snapshot!(Draft::of(Asked::default(), kept.clone()).text(), @"
        sandbox:
          fs: {}
          services: []
          limits:
            fuel: 20000000000
        ");
        let run = Request::Command("true".to_owned(), Vec::new());
        insta::assert_snapshot!(Draft::of(Asked { requests: vec![("tools/it".to_owned(), run)] }, kept).text(), @r#"
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
