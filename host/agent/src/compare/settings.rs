//! What is no grant of a tool: how strict hooks are, what a run may add, who gets secrets, what agents may use.

use harness_artifact::definition::Transport;
use harness_artifact::policy::ProjectPolicy;
use harness_artifact::policy::hearing::Shows;
use harness_artifact::policy::hooks::OnError;
use harness_artifact::policy::mcp::McpServer;
use harness_artifact::policy::sources;
use harness_artifact::policy::trusted::TrustedSource;
use harness_policy::compare::{wider, wider_secrets};
use harness_policy::grant::Grant;
use harness_policy::layer::Layer;
use harness_policy::shared::Shared;

use super::{Finding, News, finding};

pub(super) fn compare(old: &ProjectPolicy, new: &ProjectPolicy, news: &mut News) {
    let mut add = |key: &str, told: Finding| news.extend([((key.to_owned(), told), Vec::new())]);
    let mut tell = |key: &str, wider: bool, what: &str, why: &str| {
        if wider {
            add(key, Some((what.to_owned(), why.to_owned())));
        }
    };
    let hooks = old.hooks.named.iter().chain(&new.hooks.named).map(|(name, _)| name.value.as_str());
    // One that neither names has the answer for all others.
    for hook in hooks.chain([""]) {
        let softer = (old.hooks.for_hook(hook), new.hooks.for_hook(hook)) == (OnError::Block, OnError::Allow);
        let what = if hook.is_empty() {
            "a failing hook allows".to_owned()
        } else {
            format!("hook `{hook}` allows if it fails")
        };
        tell("sandbox.hooks", softer, &what, "it blocks");
    }
    tell(
        "sandbox.hooks.strict",
        old.hooks.strict && !new.hooks.strict,
        "a wrong return value of a hook is a warning",
        "it is a failure",
    );
    tell("sandbox.audit", old.audit && !new.audit, "calls are not logged", "they are");
    tell("sandbox.async_tools", new.async_tools && !old.async_tools, "tools run in the background", "they do not");
    let recursive = |policy: &ProjectPolicy| policy.delegation.allow_recursive.unwrap_or(false);
    tell("delegation.allow_recursive", recursive(new) && !recursive(old), "an agent may call itself", "it may not");
    tell("meta", new.meta.enabled && !old.meta.enabled, "a run may add tools and hooks", "it may not");
    let numbers = |policy: &ProjectPolicy| policy.meta.numbers();
    for ((name, before), (_, now)) in numbers(old).into_iter().zip(numbers(new)) {
        tell(&format!("meta.{name}"), new.meta.enabled && now > before, &now.to_string(), &format!("at most {before}"));
    }
    for (key, before, now) in
        [("mcp.resources", resources(old), resources(new)), ("mcp.templates", templates(old), templates(new))]
    {
        for one in now.iter().filter(|one| !before.contains(one)) {
            tell(key, true, &format!("clients may read {one}"), "no entry says so");
        }
    }
    of_plugins(old, new, &mut tell);
    for server in &new.mcp.servers {
        let what = |of: &McpServer| {
            let verb = if of.transport() == Transport::Http { "is asked at" } else { "runs" };
            format!("{verb} {} with {}", of.location(), variables(of))
        };
        match old.mcp.server(&server.name) {
            None => {
                tell("mcp.servers", true, &format!("the server `{}` {}", server.name, what(server)), "there is none")
            }
            Some(before) if what(before) != what(server) => {
                let key = format!("mcp.servers.{}", server.name);
                tell(&key, true, &format!("it {}", what(server)), &format!("it {}", what(before)));
            }
            Some(_) => {}
        }
    }
    for one in wider_secrets(old.secrets.iter().map(|one| &one.value), new.secrets.iter().map(|one| &one.value)) {
        add(&format!("sandbox.{}", one.key), finding(one.example));
    }
    let before = crate::allowances(old);
    for (key, now) in crate::allowances(new) {
        let before = before.iter().find(|(other, _)| *other == key).and_then(|(_, before)| *before);
        if let Some(told) = before.and_then(|before| more(before, now)) {
            add(&key, Some(told));
        }
    }
    match new.mcp.wider_than(&old.mcp) {
        Ok(None) => {}
        Ok(Some(agent)) => {
            let what = format!("clients may set tasks to the agent `{agent}`");
            add("mcp.agents", Some((what, "they may not".to_owned())));
        }
        Err(()) => add("mcp.agents", None),
    }
    let machine = |policy: &ProjectPolicy| policy.machine.as_ref().map(|machine| machine.trusted.clone());
    for (before, now) in [
        (machine(old).unwrap_or_default(), machine(new).unwrap_or_default()),
        (old.trusted.clone(), new.trusted.clone()),
    ] {
        if let Some(told) = looser(&before, &now) {
            add("trusted_sources", told);
        }
    }
    for now in new
        .catalogues
        .iter()
        .filter(|one| !old.catalogues.iter().any(|old| (&old.name, &old.source) == (&one.name, &one.source)))
    {
        let what = format!("plugins of the catalogue `{}` are looked up at `{}`", now.name, now.source);
        add("catalogues", Some((what, "they are not".to_owned())));
    }
    // Of another script nobody knows what it lets pass.
    let code = |policy: &ProjectPolicy| policy.delegation.verify.as_ref().map(|script| script.text.clone());
    match (code(old), code(new)) {
        (Some(_), None) => {
            let what = "a result that `verify` rejects".to_owned();
            add("delegation.verify", Some((what, "each result is verified".to_owned())));
        }
        (Some(before), Some(now)) if before != now => add("delegation.verify", None),
        _ => {}
    }
}

/// Whether plugins may come from somewhere new, or do more there: of lists that differ, perhaps.
fn looser(before: &[TrustedSource], now: &[TrustedSource]) -> Option<Finding> {
    if before.is_empty() {
        return None;
    }
    if now.is_empty() {
        let (what, why) = ("plugins may come from anywhere", "from the sources of the list alone");
        return Some(Some((what.to_owned(), why.to_owned())));
    }
    let is_same = |(one, other): (&TrustedSource, &TrustedSource)| {
        let grant = |max: &Layer| Grant::new(vec![max.clone()]);
        let is_wider = match (&one.max, &other.max) {
            (Some(max), Some(now)) => !wider(&grant(max), &grant(now)).is_empty(),
            (max, now) => max.is_some() && now.is_none(),
        };
        one.rule == other.rule && !is_wider
    };
    (before.len() != now.len() || !before.iter().zip(now).all(is_same)).then_some(None)
}

/// Events of others that the hooks of plugins may receive, and names that plugins share.
fn of_plugins(old: &ProjectPolicy, new: &ProjectPolicy, tell: &mut impl FnMut(&str, bool, &str, &str)) {
    let plugins = new.sources.iter().filter(|entry| sources::bundle_of(&entry.name).is_some());
    for entry in plugins {
        let name = &entry.name;
        for heard in entry.events.iter().flatten() {
            let shows = |policy: &ProjectPolicy| policy.shows(name, &heard.event, false).ok();
            let (before, now) = (shows(old), shows(new));
            let what = format!("hooks of `{name}` receive `{}` {}", heard.event, now.unwrap_or(Shows::Own).describe());
            let why = before.map_or("it is not consented to".to_owned(), |shows| format!("{} alone", shows.describe()));
            tell(&format!("sandbox.sources.{name}.events"), now > before, &what, &why);
        }
        let shared = |policy: &ProjectPolicy| -> Vec<Shared> {
            let entries = policy.sources.iter().filter(|entry| entry.name == *name).flat_map(|entry| &entry.shared);
            entries.flatten().map(|one| one.value.clone()).collect()
        };
        let before = shared(old);
        for one in shared(new).iter().filter(|one| !before.contains(one)) {
            let what = format!("`{name}` shares `{one}` with the project");
            tell(&format!("sandbox.sources.{name}.shared"), true, &what, "no entry says so");
        }
    }
}

/// The variables or headers of a server, as they are written.
fn variables(server: &McpServer) -> String {
    let (sign, none) = match server.transport() {
        Transport::Stdio => ("=", "no variables"),
        Transport::Http => (": ", "no headers"),
    };
    let all: Vec<String> = server.given().iter().map(|(name, value)| format!("{name}{sign}{value}")).collect();
    if all.is_empty() { none.to_owned() } else { all.join(" ") }
}

fn resources(policy: &ProjectPolicy) -> Vec<String> {
    policy.mcp.resources.iter().map(|one| one.value.to_string()).collect()
}

fn templates(policy: &ProjectPolicy) -> Vec<String> {
    policy.mcp.templates.iter().map(|one| one.value.to_string()).collect()
}

/// The report of a bound that is higher than it was, or not there any more.
pub(super) fn more(before: u64, now: Option<u64>) -> Option<(String, String)> {
    let told = match now {
        Some(now) if now <= before => return None,
        Some(now) => now.to_string(),
        None => "without bound".to_owned(),
    };
    Some((told, format!("at most {before}")))
}
