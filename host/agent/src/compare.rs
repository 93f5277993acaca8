//! Whether one policy allows anything that another one does not: by the artifacts of two projects, or by the policies alone.

use std::collections::{BTreeMap, BTreeSet};

use harness_artifact::agent::{Agent, Use};
use harness_artifact::diagnostic::Position;
use harness_artifact::hook::Hook;
use harness_artifact::policy::ProjectPolicy;
use harness_artifact::policy::sources::name_of;
use harness_artifact::policy::tools::ToolsPolicy;
use harness_artifact::tool::Tool;
use harness_policy::compare::{Example, wider};
use harness_policy::grant::Grant;
use harness_registry::Registry;
use serde_json::{Value as Json, json};

mod settings;

/// Something that the new one allows, and of which tools, hooks or sources.
pub type News = BTreeMap<(String, Finding), Vec<String>>;

/// An example in words: what is allowed and why it was not. Without one, it is not known whether there is any.
pub type Finding = Option<(String, String)>;

/// Returns what the artifacts of one project may do that those of another one may not. Nothing, if either has no policy.
pub fn projects(old: &Registry, new: &Registry) -> Option<News> {
    let (before, now) = (old.policy()?, new.policy()?);
    let mut news = News::new();
    artifacts(old, new, &mut news);
    settings::compare(before, now, &mut news);
    Some(news)
}

/// Returns what one policy allows that another one does not, whatever the artifacts are.
pub fn policies(old: &ProjectPolicy, new: &ProjectPolicy) -> News {
    let mut news = News::new();
    sources(old, new, &mut news);
    settings::compare(old, new, &mut news);
    news
}

/// Returns what one grant allows that another one does not; `of` is whose it is.
pub fn grants_of(old: &Grant, new: &Grant, of: &str, news: &mut News) {
    compare(old, new, of, news);
}

/// Renders what is new for a program.
pub fn as_json(news: &News) -> Json {
    let one = |((key, told), of): (&(String, Finding), &Vec<String>)| {
        let (what, refused) = told.clone().unzip();
        json!({"key": key, "for": of, "example": what, "refused": refused, "certain": told.is_some()})
    };
    news.iter().map(one).collect()
}

fn finding(example: Example) -> Finding {
    match example {
        Example::Certain { what, refused } => Some((what, refused)),
        Example::Perhaps => None,
    }
}

fn compare(old: &Grant, new: &Grant, of: &str, news: &mut News) {
    for one in wider(old, new) {
        news.entry((one.key, finding(one.example))).or_default().push(of.to_owned());
    }
}

/// By the names of tools, hooks and agents. What was not there before was granted nothing.
fn artifacts(old: &Registry, new: &Registry, news: &mut News) {
    let (Some(before), Some(now)) = (old.policy(), new.policy()) else { return };
    for tool in new.tools() {
        let was = old.tool(&tool.name).ok();
        if now.tools.decide(&tool.name).is_ok() {
            let why = match was {
                Some(_) => before.tools.decide(&tool.name).err().map(|refusal| refusal.reason),
                None => Some("there is no such tool".to_owned()),
            };
            if let Some(why) = why {
                let example = Some((format!("calling `{}`", tool.name), why));
                news.entry(("tools_policy".to_owned(), example)).or_default();
            }
        }
        let asks = |policy: &ProjectPolicy, tool: &Tool| *tool.confirm || policy.tools.confirms(&tool.name).is_some();
        let asked = was.is_some_and(|was| asks(before, was)) && !asks(now, tool);
        let unasked = asked.then(|| unconfirmed(&tool.name));
        news.extend(unasked.map(|told| (("tools_policy.confirm".to_owned(), Some(told)), Vec::new())));
    }
    for source in named(before, now) {
        granted_tools(before, now, &source, news);
    }
    for agent in new.agents() {
        if let Some(was) = old.agents().iter().find(|was| was.name == agent.name) {
            narrowing((before, was), (now, agent), news);
        }
    }
    let (was, is) = (grants(old, before), grants(new, now));
    for (of, grant) in &is {
        compare(was.get(of).unwrap_or(&Grant::new(Vec::new())), grant, of, news);
    }
    // What a hook that is still there says now is a matter of its script.
    for hook in old.hooks().iter().filter(|hook| !new.hooks().iter().any(|other| other.name == hook.name)) {
        let event = &hook.event.value;
        let told = (format!("`{event}` that the hook `{}` blocks", hook.name), "the hook is asked".to_owned());
        news.entry(("hooks".to_owned(), Some(told))).or_default();
    }
    for agent in new.agents() {
        let was = old.agents().iter().find(|was| was.name == agent.name);
        let budget = |agent: &Agent, policy: &ProjectPolicy| -> Vec<(&str, Option<u64>)> {
            crate::bounds(agent.budget.as_ref().or(policy.delegation.budget.as_ref())).collect()
        };
        for (key, bound) in budget(agent, now) {
            let before = was.and_then(|was| budget(was, before).into_iter().find(|(was, _)| *was == key)?.1);
            let told = before.and_then(|before| settings::more(before, bound));
            let of = format!("agent `{}`", agent.name);
            news.extend(told.map(|told| ((format!("budget.{key}"), Some(told)), vec![of])));
        }
    }
}

/// The grants of all tools and hooks, those that agents have for themselves included, by what they are called.
fn grants(registry: &Registry, policy: &ProjectPolicy) -> BTreeMap<String, Grant> {
    let tool = |of: &str, tool: &Tool| (format!("tool `{of}{}`", tool.name), policy.grant_of(tool));
    let hook = |of: &str, hook: &Hook| {
        (format!("hook `{of}{}`", hook.name), policy.grant_for(&hook.source_name, hook.capabilities.as_ref()))
    };
    let mut grants: BTreeMap<String, Grant> = registry.tools().iter().map(|one| tool("", one)).collect();
    grants.extend(registry.hooks().iter().map(|one| hook("", one)));
    for agent in registry.agents() {
        let of = format!("{}/", agent.name);
        grants.extend(agent.tools.iter().filter_map(Use::inline).map(|one| tool(&of, one)));
        grants.extend(agent.hooks.iter().filter_map(Use::inline).map(|one| hook(&of, one)));
    }
    grants
}

/// By sources: those that either names, and one of each folder that neither does.
fn sources(old: &ProjectPolicy, new: &ProjectPolicy, news: &mut News) {
    let named = named(old, new).into_iter();
    // No file is called so.
    let roots = old.roots.iter().chain(&new.roots).map(|root| Some(root.value.name()));
    let others = std::iter::once(None)
        .chain(roots)
        .flat_map(|root| ["tools", "plugins"].map(|folder| name_of(root.as_deref(), &format!("{folder}/\u{2026}"))));
    let mut all: Vec<String> = others.chain(named).collect();
    all.sort_unstable();
    all.dedup();
    for source in all {
        compare(&old.grant_for(&source, None), &new.grant_for(&source, None), &format!("source `{source}`"), news);
        granted_tools(old, new, &source, news);
    }
    let allowed = |name: String| {
        let why = old.tools.decide(&name).err().map(|refusal| refusal.reason).unwrap_or_default();
        (format!("calling `{name}`"), why)
    };
    let mut tell = |key: &str, told: Option<Finding>| {
        news.extend(told.map(|told| ((key.to_owned(), told), Vec::new())));
    };
    tell("tools_policy", found(new.tools.wider_than(&old.tools), allowed));
    tell("tools_policy.confirm", found(new.tools.asks_less_than(&old.tools), |name| unconfirmed(&name)));
}

/// The sources that either of two policies names.
fn named(old: &ProjectPolicy, new: &ProjectPolicy) -> BTreeSet<String> {
    old.sources.iter().chain(&new.sources).map(|entry| entry.name.clone()).collect()
}

/// Tools of others that the agents of a source may call now.
fn granted_tools(old: &ProjectPolicy, new: &ProjectPolicy, source: &str, news: &mut News) {
    let Some(now) = new.lent(source) else { return };
    let nothing = || ToolsPolicy::of_patterns(&[], &now_position(new, source));
    let before = old.lent(source).unwrap_or_else(nothing);
    let example = |name: String| (format!("calling `{name}`"), "it is not granted to them".to_owned());
    let told = found(now.wider_than(&before), example);
    let of = vec![format!("agents of `{source}`")];
    news.extend(told.map(|told| ((format!("sandbox.sources.{source}.tools"), told), of)));
}

/// Where a source is named.
fn now_position(policy: &ProjectPolicy, source: &str) -> Position {
    let entry = policy.sources.iter().find(|entry| entry.name == source);
    entry.map_or_else(|| Position { file: "".into(), line: 1, column: 1, length: 1 }, |entry| entry.position.clone())
}

/// What an agent that is still there no longer takes away from itself.
fn narrowing((before, was): (&ProjectPolicy, &Agent), (now, is): (&ProjectPolicy, &Agent), news: &mut News) {
    let of = format!("agent `{}`", is.name);
    if let Some(narrowed) = before.grant_for_agent(was) {
        let grant = now.grant_for_agent(is).unwrap_or_else(|| now.grant_for(&is.source_name, None));
        compare(&narrowed, &grant, &of, news);
    }
    let Some(own) = &was.tools_policy else { return };
    let old = own.clone().narrowed_by(before.tools.clone());
    let new = match &is.tools_policy {
        Some(own) => own.clone().narrowed_by(now.tools.clone()),
        None => now.tools.clone(),
    };
    let why = |name: &str| old.decide(name).err().map(|refusal| refusal.reason).unwrap_or_default();
    let allowed = |name: String| (format!("calling `{name}`"), why(&name));
    let mut tell = |key: &str, told: Option<Finding>| {
        news.extend(told.map(|told| ((key.to_owned(), told), vec![of.clone()])));
    };
    tell("tools_policy", found(new.wider_than(&old), allowed));
    tell("tools_policy.confirm", found(new.asks_less_than(&old), |name| unconfirmed(&name)));
}

/// The report of a name that was looked for, where there is one or that is not known.
fn found(name: Result<Option<String>, ()>, example: impl FnOnce(String) -> (String, String)) -> Option<Finding> {
    match name {
        Ok(name) => name.map(|name| Some(example(name))),
        Err(()) => Some(None),
    }
}

fn unconfirmed(tool: &str) -> (String, String) {
    (format!("calling `{tool}` without confirmation"), "a person confirms each call".to_owned())
}
