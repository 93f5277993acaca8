//! Why something was refused, which line of policy would allow it, and what else that line would allow.
//!
//! The layers of a grant are asked one by one. One that is the tenant's own can have another line; one of the host policy,
//! of the tenant's record or of a key is another's to change, which is said. What a line would allow is found out as
//! `harness policy diff` does: by comparing all grants before and after, in which every layer still counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use harness_artifact::policy::layer;
use harness_dispatch::Loaded;
use harness_policy::command::CommandRule;
use harness_policy::compare::{Example, wider};
use harness_policy::grant::Grant;
use harness_policy::layer::{Layer, Scope, Service};
use harness_policy::network::{HostRule, Method, Target};
use harness_policy::path::{Access, PathPattern, WorkspacePath};
use harness_policy::refusal::Refusal;
use serde_json::Value as Json;
use url::Url;

/// A subject of the log that is as long as this may have been cut.
const CUT: usize = 200;

/// What is known of one refusal.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Explained {
    /// In one sentence.
    pub(super) summary: String,
    /// What refuses it and is not the project's.
    pub(super) others: Vec<String>,
    /// Lines for files of the project.
    pub(super) lines: Vec<Line>,
    /// What those lines would allow: the key, an example, why it is refused now, and for which tools and hooks.
    pub(super) news: Vec<(String, String, String, Vec<String>)>,
}

/// A line for a file of the project.
#[derive(Debug, PartialEq)]
pub(super) struct Line {
    /// The file, and where in it.
    pub(super) file: String,
    /// What to write, from the top of the file on.
    pub(super) yaml: String,
}

/// What was asked for.
#[derive(Debug)]
enum Wanted {
    Path(WorkspacePath, Access),
    Host(Target),
    Command(String, Vec<String>),
    Variable(String),
    Service(Service),
    Secret(String),
}

impl Wanted {
    /// What a line of the log is about, where that says all of it.
    fn parse(call: &str, subject: &str) -> Option<Self> {
        if subject.len() >= CUT {
            return None;
        }
        let (interface, function) = call.split_once('.')?;
        let path = |access| Some(Self::Path(WorkspacePath::parse(subject, "/").ok()?, access));
        let service = |name: &str| Service::ALL.into_iter().find(|one| one.name() == name).map(Self::Service);
        match (interface, function) {
            ("fs", "read" | "read-base64" | "exists" | "stat" | "list") => path(Access::Read),
            ("fs", "write" | "append" | "remove" | "mkdir") => path(Access::Write),
            ("http", "send") => {
                let (method, url) = subject.split_once(' ')?;
                Some(Self::Host(Target::of(&Url::parse(url).ok()?).ok()?.by(Method::of(method)?)))
            }
            ("exec", "run") => {
                let mut words = subject.split(' ').map(str::to_owned);
                Some(Self::Command(words.next()?, words.collect()))
            }
            ("env", "get") => Some(Self::Variable(subject.to_owned())),
            ("secrets", "handle") => Some(Self::Secret(subject.to_owned())),
            ("agents", _) => service("delegate"),
            ("turn", _) => service("cache"),
            (name, _) => service(name),
        }
    }

    fn decide(&self, grant: &Grant) -> Result<(), Refusal> {
        match self {
            Self::Path(path, access) => grant.decide_path(path, *access),
            Self::Host(target) => grant.decide_target(target),
            Self::Command(program, args) => grant.decide_command(program, args),
            Self::Variable(name) => grant.decide_env(name),
            Self::Service(service) => grant.decide_service(*service),
            Self::Secret(name) => grant.decide_secret(name),
        }
    }

    /// The key and the item of the narrowest rule for it, as a policy has them below `sandbox`.
    fn rule(&self) -> Option<(&'static str, String)> {
        let quoted = |text: &str| Json::from(text).to_string();
        Some(match self {
            Self::Path(path, access) => (access.key(), quoted(&PathPattern::text_for(path)?)),
            Self::Host(target) => ("network", HostRule::item_for(target, false)),
            Self::Command(program, args) => ("exec.allow", CommandRule::item_for(program, args)?),
            Self::Variable(name) => ("env", quoted(name)),
            Self::Service(service) => ("services", quoted(service.name())),
            Self::Secret(name) => ("secrets", quoted(name)),
        })
    }
}

/// Explains one refusal of a tool. `narrowed` are the layers of the tenant and of the key that asked.
pub(super) fn explain(loaded: &Loaded, tool: &str, narrowed: &[Layer], (call, subject): (&str, &str)) -> Explained {
    let only = |summary: &str| Explained { summary: summary.to_owned(), ..Explained::default() };
    let Some(wanted) = Wanted::parse(call, subject) else {
        return only("No line of policy is suggested: the log does not say all of what was asked for.");
    };
    let Ok(tool) = loaded.registry().tool(tool) else {
        return only("The project has no such tool any more.");
    };
    let grant = loaded.policy().grant_of(tool);
    let all = if narrowed.is_empty() { grant } else { grant.meet(&Grant::new(narrowed.to_vec())) };
    if wanted.decide(&all).is_ok() {
        return only(
            "The policy that is in force now allows this to the tool. A rule of the call or a hook refused it, or the \
             policy was changed since.",
        );
    }
    let Some((key, item)) = wanted.rule() else {
        return only("No line of policy is suggested: a rule for it would be too long.");
    };
    let Some(added) = of_rule(key, &item) else { return only("No line of policy is suggested.") };
    let mut explained = Explained::default();
    let mut changed: Vec<(Arc<Layer>, Arc<Layer>)> = Vec::new();
    // A layer that says nothing of this leaves it to the others. Where all of them do, the project is to say it.
    let speaking: Vec<_> = all.layers().iter().filter(|layer| speaks(layer, key)).collect();
    let silent = || all.layers().iter().filter(|layer| layer.origin.scope == Scope::Project).collect();
    let asked: Vec<_> = if speaking.is_empty() { silent() } else { speaking };
    for layer in asked {
        let alone = Grant::of(vec![layer.clone()]);
        let Err(refusal) = wanted.decide(&alone) else { continue };
        let more = Arc::new(with(layer, &added));
        let helps = wanted.decide(&Grant::of(vec![more.clone()])).is_ok();
        match steps(&layer.origin.scope, key) {
            Some(steps) if helps => {
                explained.lines.push(Line { file: layer.origin.of(key), yaml: yaml(&steps, &item) });
                changed.push((layer.clone(), more));
            }
            Some(_) => explained.others.push(format!("no line allows this: {}", refusal.reason)),
            None => explained.others.push(format!("{}: {}", whose(&layer.origin.scope), refusal.reason)),
        }
    }
    explained.summary = match (explained.lines.is_empty(), explained.others.is_empty()) {
        (false, true) => "The policy of the project refuses it.".to_owned(),
        (false, false) => "The policy of the project refuses it, and so does what others set.".to_owned(),
        (true, _) => "No line of the project can allow it.".to_owned(),
    };
    explained.news = news(loaded, &changed);
    explained
}

/// A layer with nothing but this rule.
fn of_rule(key: &str, item: &str) -> Option<Layer> {
    let text = match key.split_once('.') {
        Some((group, list)) => format!("{group}: {{ {list}: [{item}] }}"),
        None => format!("{key}: [{item}]"),
    };
    layer::parse("added", &text).0
}

/// Whether a layer says anything of a key.
fn speaks(layer: &Layer, key: &str) -> bool {
    match key {
        "fs.read" | "fs.write" => layer.fs.is_some(),
        "network" => layer.network.is_some(),
        "exec.allow" => layer.exec.is_some(),
        "env" => layer.env.is_some(),
        "secrets" => layer.secrets.is_some(),
        _ => layer.services.is_some(),
    }
}

/// A layer with the rules of another one as well.
fn with(layer: &Layer, added: &Layer) -> Layer {
    let mut new = layer.clone();
    if let Some(more) = &added.fs {
        let fs = new.fs.get_or_insert_default();
        fs.read.extend(more.read.iter().cloned());
        fs.write.extend(more.write.iter().cloned());
    }
    if let Some(more) = &added.network {
        new.network.get_or_insert_default().allow.extend(more.allow.iter().cloned());
    }
    if let Some(more) = &added.exec {
        new.exec.get_or_insert_default().allow.extend(more.allow.iter().cloned());
    }
    for (names, more) in [(&mut new.env, &added.env), (&mut new.secrets, &added.secrets)] {
        if let Some(more) = more {
            names.get_or_insert_default().extend(more.iter().cloned());
        }
    }
    if let Some(more) = &added.services {
        new.services.get_or_insert_default().extend(more.iter().copied());
    }
    new
}

/// The keys above a list in the file of a layer. None: the file is not the project's.
fn steps(scope: &Scope, key: &str) -> Option<Vec<String>> {
    let below = |above: &[&str]| above.iter().copied().chain(key.split('.')).map(str::to_owned).collect();
    Some(match scope {
        Scope::Project | Scope::Default if key == "network" => {
            vec!["network".to_owned(), "allowed_domains".to_owned()]
        }
        Scope::Project | Scope::Default => below(&["sandbox"]),
        Scope::Source(name) => below(&["sandbox", "sources", name]),
        Scope::Artifact => below(&["capabilities"]),
        Scope::Machine | Scope::Server(_) | Scope::Trusted(_) | Scope::Asked | Scope::Call => return None,
    })
}

/// Who can change a layer that is not the project's.
fn whose(scope: &Scope) -> &'static str {
    match scope {
        Scope::Machine => "the host policy of the class refuses it, which the operator of the server sets",
        Scope::Call => "the rules of the tenant or of the key refuse it",
        Scope::Trusted(_) => "the bounds of a trusted source refuse it",
        Scope::Asked => "the plugin does not ask for it",
        _ => "another layer refuses it",
    }
}

fn yaml(steps: &[String], item: &str) -> String {
    let plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let mut text = String::new();
    for (depth, step) in steps.iter().enumerate() {
        let name = if plain(step) { step.clone() } else { Json::from(step.as_str()).to_string() };
        text.push_str(&format!("{}{name}:\n", "  ".repeat(depth)));
    }
    text.push_str(&format!("{}- {item}", "  ".repeat(steps.len())));
    text
}

/// What all tools and hooks may do with other layers that they may not do now.
fn news(loaded: &Loaded, changed: &[(Arc<Layer>, Arc<Layer>)]) -> Vec<(String, String, String, Vec<String>)> {
    if changed.is_empty() {
        return Vec::new();
    }
    let policy = loaded.policy();
    let tools = loaded.registry().tools().iter().map(|tool| (format!("the tool {}", tool.name), policy.grant_of(tool)));
    let hooks = loaded.registry().hooks().iter().map(|hook| {
        (format!("the hook {}", hook.name), policy.grant_for(&hook.source_name, hook.capabilities.as_ref()))
    });
    let mut found: BTreeMap<(String, String, String), Vec<String>> = BTreeMap::new();
    for (of, old) in tools.chain(hooks) {
        let replaced = |layer: &Arc<Layer>| {
            changed.iter().find(|(before, _)| before == layer).map_or_else(|| layer.clone(), |(_, after)| after.clone())
        };
        let new = Grant::of(old.layers().iter().map(replaced).collect());
        for one in wider(&old, &new) {
            let (what, refused) = match one.example {
                Example::Certain { what, refused } => (what, refused),
                Example::Perhaps => ("possibly more, which cannot be determined".to_owned(), String::new()),
            };
            found.entry((one.key, what, refused)).or_default().push(of.clone());
        }
    }
    found.into_iter().map(|((key, what, refused), of)| (key, what, refused, of)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_yaml_from_the_top_of_their_file() {
        let line = |scope: &Scope, key: &str, item: &str| yaml(&steps(scope, key).unwrap(), item);
        assert_eq!(line(&Scope::Project, "fs.read", "\"a\""), "sandbox:\n  fs:\n    read:\n      - \"a\"");
        assert_eq!(line(&Scope::Default, "network", "{ host: a }"), "network:\n  allowed_domains:\n    - { host: a }");
        assert_eq!(line(&Scope::Artifact, "env", "\"A\""), "capabilities:\n  env:\n    - \"A\"");
        let source = Scope::Source("plugins/acme".to_owned());
        assert_eq!(
            line(&source, "fs.write", "\"a\""),
            "sandbox:\n  sources:\n    \"plugins/acme\":\n      fs:\n        write:\n          - \"a\""
        );
        assert_eq!((steps(&Scope::Machine, "env"), steps(&Scope::Call, "env")), (None, None));
    }

    #[test]
    fn each_kind_of_request_has_a_rule_that_allows_it() {
        for (call, subject, key) in [
            ("fs.read", "docs/a b.md", "fs.read"),
            ("fs.mkdir", "out", "fs.write"),
            ("http.send", "POST https://api.example.org:8443/x", "network"),
            ("exec.run", "git status --short", "exec.allow"),
            ("env.get", "LANG", "env"),
            ("secrets.handle", "TOKEN", "secrets"),
            ("cache.get", "k", "services"),
            ("agents.delegate-async", "reader", "services"),
        ] {
            let wanted = Wanted::parse(call, subject).unwrap();
            let (found, item) = wanted.rule().unwrap();
            let layer = of_rule(found, &item).unwrap();
            assert_eq!((found, wanted.decide(&Grant::new(vec![layer])).is_ok()), (key, true), "{call} {item}");
            // What the layer allows is this and not everything.
            let other = Wanted::parse("fs.read", "elsewhere").unwrap();
            let closed = of_rule("fs.read", "\"docs\"").unwrap();
            assert!(other.decide(&Grant::new(vec![closed.clone()])).is_err());
            let opened = with(&closed, &of_rule("fs.read", "\"elsewhere\"").unwrap());
            assert!(other.decide(&Grant::new(vec![opened])).is_ok());
        }
        assert!(Wanted::parse("fs.read", &"a".repeat(CUT)).is_none());
        assert!(Wanted::parse("fs.read", "../x").is_none());
        assert!(Wanted::parse("fs.copy", "a").is_none());
    }
}
