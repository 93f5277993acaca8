//! The least policy under which what was asked is allowed, as text.
//!
//! Each request becomes the narrowest rule that allows it, and a rule that the others make superfluous is left out: of
//! what is left, taking away any rule refuses something that was asked. That is found out by asking the grant that the
//! rules make. What no rule says without allowing more has none, and is [named](Draft::without_rule).

mod within;

use std::collections::BTreeSet;
use std::fmt;

use self::within::{Closed, Parted};
use super::{layer, sources};
use harness_policy::command::{CommandRule, network};
use harness_policy::grant::Grant;
use harness_policy::item::scalar as quoted;
use harness_policy::layer::{Layer, Service};
use harness_policy::limits::LimitKey;
use harness_policy::network::address::AddressKind;
use harness_policy::network::{HostRule, Scheme};
use harness_policy::path::{Access, PathPattern, WorkspacePath};
use harness_policy::secret::{Holder, Secret};
use harness_policy::watch::{Asked, Request};

/// Rules up to which each is tried without: a listing of thousands of files needs each of them anyway.
const MOST_TRIED: usize = 200;

/// What cannot be seen in requests, and is kept as it was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// Variables that commands got.
    pub variables: Vec<String>,
    /// Folders that commands saw beside the workspace.
    pub folders: Vec<String>,
    /// Whether commands had the whole network.
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
    Protect,
    Allow,
    ChildVariables,
    Folders,
    ChildNetwork,
    /// The same key, where it is a list.
    ChildHosts,
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
            Self::Protect => vec!["fs", "protect"],
            Self::Allow => vec!["exec", "allow"],
            Self::ChildVariables => vec!["exec", "env"],
            Self::Folders => vec!["exec", "folders"],
            Self::ChildNetwork | Self::ChildHosts => vec!["exec", "network"],
            Self::Unconfined => vec!["exec", "unconfined"],
            Self::Variables => vec!["env"],
            Self::Services => vec!["services"],
            Self::Secrets => vec!["secrets"],
            Self::Limit(limit) => vec!["limits", limit.facts().name],
        }
    }

    /// The key of a layer that it is in, of those that hold rules.
    fn group(self) -> Option<&'static str> {
        self.path().first().copied().filter(|group| *group != "limits")
    }

    fn is_list(self) -> bool {
        !matches!(self, Self::ChildNetwork | Self::Unconfined | Self::Limit(_))
    }

    /// Whether nobody can see if it is needed.
    fn is_kept(self) -> bool {
        matches!(self, Self::Protect | Self::Folders | Self::ChildNetwork | Self::Unconfined | Self::Limit(_))
    }
}

/// A policy in the making.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    asked: Asked,
    kept: Kept,
}

/// Something in it of which looking does not show whether it is needed: what commands had, and limits that nothing
/// counts.
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
                let pattern = PathPattern::text_for(path).unwrap_or_else(|| path.to_string());
                write!(f, "{key}: {}", quoted(&pattern))
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

    /// The rules for plugins, by the name of their source. What is granted to parts of a plugin and not to the plugin is
    /// for the parts that asked for it.
    fn bundles(&self, parted: &Parted) -> Vec<(&str, Vec<Rule>)> {
        let requests = &self.asked.requests;
        let names: BTreeSet<&str> = requests.iter().filter_map(|(source, _)| sources::bundle_of(source)).collect();
        // Limits of the whole are limits of this too.
        let kept = Kept { limits: Vec::new(), ..self.kept.clone() };
        let of = |is_own: &dyn Fn(&str) -> bool| {
            let own = requests.iter().filter(|(source, _)| is_own(source));
            let own: Vec<&Request> = own.map(|(_, one)| one).collect();
            needed(&own, &kept)
        };
        let mut all = Vec::new();
        for bundle in names {
            let is_parted =
                |rule: &Rule| rule.key.group().is_some_and(|group| parted.contains(&(bundle.to_owned(), group)));
            let mut whole = of(&|source| sources::bundle_of(source) == Some(bundle));
            whole.retain(|rule| !is_parted(rule));
            all.push((bundle, whole));
            let parts: BTreeSet<&str> = requests.iter().map(|(source, _)| source.as_str()).collect();
            for part in parts.into_iter().filter(|source| sources::bundle_of(source) == Some(bundle)) {
                let mut own = of(&|source| source == part);
                own.retain(is_parted);
                all.push((part, own));
            }
        }
        all.retain(|(_, rules)| !rules.is_empty());
        all
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

    /// What was asked and has no rule of its own, because every rule for it would be too long or allow more.
    pub fn without_rule(&self) -> impl Iterator<Item = &Request> {
        self.asked.requests.iter().map(|(_, request)| request).filter(|request| rule(request).is_none())
    }

    /// The front matter of a `harness.md`, with the rules alone.
    pub fn text(&self) -> String {
        self.text_closed(&Closed::default())
    }

    fn text_closed(&self, closed: &Closed) -> String {
        let mut lines = Vec::new();
        let mut rules = self.rules();
        rules.retain(|rule| !closed.rules.iter().any(|other| rule.key == other.key && !rule.key.is_list()));
        rules.extend(closed.rules.iter().cloned());
        rules.sort();
        let (network, rest): (Vec<Rule>, Vec<Rule>) = rules.into_iter().partition(|rule| rule.key == Key::Network);
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
        let mut entries = closed.entries.clone();
        for (bundle, rules) in self.bundles(&closed.parted) {
            let entry = entries.entry(bundle.to_owned()).or_default();
            // What closes a key comes instead of what was asked.
            let ruled = entry.rules.iter().filter(|rule| rule.key != Key::Protect);
            let said: BTreeSet<&str> = ruled.filter_map(|rule| rule.key.group()).collect();
            let rules = rules.into_iter().filter(|rule| rule.key.group().is_none_or(|group| !said.contains(group)));
            let rules: Vec<Rule> = rules.collect();
            entry.rules.extend(rules);
        }
        let secrets = self.secrets();
        if !secrets.is_empty() {
            lines.push("  secrets:".to_owned());
        }
        lines.extend(secrets.iter().map(|line| format!("    {line}")));
        if !entries.is_empty() {
            lines.push("  sources:".to_owned());
        }
        for (name, entry) in &mut entries {
            entry.rules.sort();
            lines.push(format!("    {}:", quoted(name)));
            let more = entry.shut().chain(entry.consents());
            lines.extend(self::written(&entry.rules).into_iter().chain(more).map(|line| format!("      {line}")));
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
    let mut requests = highest(requests);
    requests.retain(|request| rule(request).is_some());
    let requests = &requests;
    let mut rules: BTreeSet<Rule> = requests.iter().filter_map(|request| rule(request)).collect();
    // One key for both.
    rules.retain(|rule| !(kept.network && rule.key == Key::ChildHosts));
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
            (key, quoted(&PathPattern::text_for(path)?))
        }
        Request::Host(target, address) => {
            (Key::Network, HostRule::item_for(target, AddressKind::of(*address) != AddressKind::Public))
        }
        Request::CommandHost(target, address) => {
            (Key::ChildHosts, network::item_for(target, AddressKind::of(*address) != AddressKind::Public))
        }
        Request::Command(program, args) => (Key::Allow, CommandRule::item_for(program, args)?),
        Request::ChildVariable(name) => (Key::ChildVariables, quoted(name)),
        Request::Variable(name) => (Key::Variables, quoted(name)),
        Request::Service(service) => (Key::Services, quoted(service.name())),
        Request::Secret(name) => (Key::Secrets, quoted(name)),
    };
    Some(Rule { key, item })
}

/// The line that defines a secret, with the hosts and commands of a call that it may go to.
fn defined(secret: &Secret, asked: &Asked) -> String {
    let (mut hosts, mut commands) = (BTreeSet::new(), BTreeSet::new());
    for (_, request) in &asked.requests {
        match request {
            // In the clear it goes only where the rule says that it stays inside.
            Request::Host(target, _) if secret.decide_target(target).is_ok() => {
                hosts.insert(HostRule::item_for(target, target.scheme() == Scheme::Http));
            }
            Request::Command(program, args) if secret.decide_command(program, args).is_ok() => {
                commands.extend(CommandRule::item_for(program, args));
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

#[cfg(test)]
mod subset_tests;
#[cfg(test)]
mod tests;
