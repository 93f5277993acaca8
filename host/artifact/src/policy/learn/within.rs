//! What a learned policy closes, so that it allows nothing that the policy in force does not.
//!
//! Rules are for what was asked, and are wider than the policy in force in three ways: a folder that was read holds what
//! that policy protects; a limit that is not written has its default; and what one source asked is written for the whole
//! project, in which that policy may narrow another source. Whether it is so is asked of [`wider`], and what closes it is
//! added.

use std::collections::{BTreeMap, BTreeSet};

use super::{Draft, Key, MOST_TRIED, Rule, needed, quoted};
use crate::policy::sources::SourceRules;
use crate::policy::{ProjectPolicy, sources};
use crate::yaml::flow;
use harness_policy::command::CommandReach;
use harness_policy::compare::wider;
use harness_policy::grant::Grant;
use harness_policy::layer::Layer;
use harness_policy::limits::LimitKey;
use harness_policy::watch::Request;

/// What is written beside the rules for what was asked.
#[derive(Debug, Clone, Default)]
pub(super) struct Closed {
    /// For the whole project.
    pub(super) rules: Vec<Rule>,
    /// For one source, by its name: rules, and the keys that grant nothing.
    pub(super) entries: BTreeMap<String, Entry>,
    /// What is granted to parts of plugins alone.
    pub(super) parted: Parted,
}

/// Plugins, by the name of their source, with keys of a layer of which the policy in force speaks for parts of them and not
/// for the whole: to the other parts it grants nothing.
pub(super) type Parted = BTreeSet<(String, &'static str)>;

/// An entry of `sandbox.sources`.
#[derive(Debug, Clone, Default)]
pub(super) struct Entry {
    pub(super) rules: Vec<Rule>,
    shut: BTreeSet<&'static str>,
    /// Lines of what is consented to: without it the project would not load, or plugins would share nothing.
    consents: Vec<String>,
}

impl Entry {
    /// Lines of the keys that grant nothing.
    pub(super) fn shut(&self) -> impl Iterator<Item = String> {
        self.shut.iter().map(|key| format!("{key}: {}", if matches!(*key, "fs" | "exec") { "{}" } else { "[]" }))
    }

    /// Lines of what is consented to.
    pub(super) fn consents(&self) -> impl Iterator<Item = String> {
        self.consents.iter().cloned()
    }
}

/// The keys of a layer that hold rules.
const GROUPS: [&str; 6] = ["fs", "network", "exec", "env", "secrets", "services"];

impl Draft {
    /// The front matter of a `harness.md` that allows what was asked and nothing that `policy` does not.
    ///
    /// Where `policy` has something [instead](ProjectPolicy::instead) for one source, that source is compared with it, and
    /// the project is what it would become.
    pub fn text_within(&self, policy: &ProjectPolicy) -> String {
        let mut closed = Closed { parted: self.parted(policy), ..Closed::default() };
        self.close_project(policy, &mut closed);
        let mut names: BTreeSet<&str> = policy.sources.iter().map(|entry| entry.name.as_str()).collect();
        names.extend(policy.instead.iter().map(|(name, _)| name.as_str()).filter(|name| sources::is_name(name)));
        // The list of trusted sources is not written, and what it takes from a plugin has to be taken otherwise.
        let bounds = policy.bounds.iter().filter(|bound| !bound.of_machine);
        names.extend(bounds.map(|bound| bound.source.as_str()).filter(|name| sources::is_name(name)));
        let asked = self.asked.requests.iter().map(|(source, _)| source.as_str());
        let is_parted = |source: &&str| closed.parted.iter().any(|(bundle, _)| sources::covers(bundle, source));
        names.extend(asked.filter(is_parted));
        // A folder comes before what is in it.
        for name in names {
            self.close_source(policy, name, &mut closed);
        }
        for entry in &policy.sources {
            for key in ["events", "shared"] {
                if let Some(value) = entry.written.get(key) {
                    let line = format!("{key}: {}", flow(value));
                    closed.entries.entry(entry.name.clone()).or_default().consents.push(line);
                }
            }
        }
        self.text_closed(&closed)
    }

    fn parted(&self, policy: &ProjectPolicy) -> Parted {
        let bundles: BTreeSet<&str> =
            self.asked.requests.iter().filter_map(|(source, _)| sources::bundle_of(source)).collect();
        let mut parted = Parted::new();
        for bundle in bundles {
            for group in GROUPS {
                let speaks = |entry: &&SourceRules| speaks(&entry.layer, group);
                let whole = sources::about(&policy.sources, bundle).iter().any(speaks);
                let part =
                    policy.sources.iter().filter(|entry| sources::covers(bundle, &entry.name)).any(|e| speaks(&e));
                if part && !whole {
                    parted.insert((bundle.to_owned(), group));
                }
            }
        }
        parted
    }

    /// Protected paths and limits, for the whole project.
    fn close_project(&self, policy: &ProjectPolicy, closed: &mut Closed) {
        let before = Grant::new(vec![policy.project.clone()]);
        let now = |closed: &Closed| self.parsed(closed).map(|learned| Grant::new(vec![learned.project]));
        let Some(learned) = now(closed) else { return };
        closed.rules.extend(limits(&before, &learned));
        protect(&before, &policy.project, &mut |rules: &[Rule]| {
            let mut tried = closed.clone();
            tried.rules.extend_from_slice(rules);
            now(&tried)
        })
        .into_iter()
        .for_each(|rule| closed.rules.push(rule));
    }

    /// Everything that one source has, or what is in it.
    fn close_source(&self, policy: &ProjectPolicy, name: &str, closed: &mut Closed) {
        let before = policy.grant_for(name, None);
        let now = |closed: &Closed| {
            let learned = self.parsed(closed)?;
            // What the machine narrows, it narrows in both.
            let bounds = policy.bounds.iter().filter(|bound| bound.of_machine).cloned().collect();
            Some(ProjectPolicy { machine: policy.machine.clone(), bounds, ..learned }.grant_for(name, None))
        };
        let Some(learned) = now(closed) else { return };
        let found = wider(&before, &learned);
        let own = |(source, request): &(String, Request)| sources::covers(name, source).then(|| request.clone());
        let own: Vec<Request> = self.asked.requests.iter().filter_map(own).collect();
        let mut kept = self.kept.clone();
        kept.limits.clear();
        kept.variables.retain(|variable| before.exec_env().contains(variable));
        kept.folders.retain(|kept| before.exec_folders().iter().any(|folder| folder.to_string() == *kept));
        kept.network &= before.exec_network() == CommandReach::All;
        kept.unconfined &= before.exec_unconfined();
        let rules = needed(&own.iter().collect::<Vec<_>>(), &kept);
        for group in GROUPS {
            let about = |key: &str| key == group || key.strip_prefix(group).is_some_and(|rest| rest.starts_with('.'));
            if !found.iter().any(|one| about(&one.key)) {
                continue;
            }
            let of_group = |rule: &&Rule| rule.key.group() == Some(group);
            let entry = closed.entries.entry(name.to_owned()).or_default();
            entry.rules.retain(|rule| !of_group(&rule));
            let before = entry.rules.len();
            entry.rules.extend(rules.iter().filter(of_group).cloned());
            if entry.rules.len() == before {
                entry.shut.insert(group);
            }
        }
        let Some(learned) = now(closed) else { return };
        let narrower: Vec<Rule> = limits(&before, &learned).collect();
        if !narrower.is_empty() {
            closed.entries.entry(name.to_owned()).or_default().rules.extend(narrower);
        }
        for layer in before.layers() {
            let more = protect(&before, layer, &mut |rules: &[Rule]| {
                let mut tried = closed.clone();
                tried.entries.entry(name.to_owned()).or_default().rules.extend_from_slice(rules);
                now(&tried)
            });
            if !more.is_empty() {
                closed.entries.entry(name.to_owned()).or_default().rules.extend(more);
            }
        }
    }

    fn parsed(&self, closed: &Closed) -> Option<ProjectPolicy> {
        ProjectPolicy::parse("learned", &format!("---\n{}---\n", self.text_closed(closed))).0
    }
}

/// Whether a layer has rules below a key.
fn speaks(layer: &Layer, group: &str) -> bool {
    match group {
        "fs" => layer.fs.is_some(),
        "network" => layer.network.is_some(),
        "exec" => layer.exec.is_some(),
        "env" => layer.env.is_some(),
        "secrets" => layer.secrets.is_some(),
        _ => layer.services.is_some(),
    }
}

/// The limits that are larger now.
fn limits<'a>(before: &'a Grant, now: &'a Grant) -> impl Iterator<Item = Rule> + 'a {
    let smaller = |key: &LimitKey| (before.limit(*key).0 < now.limit(*key).0).then_some((*key, before.limit(*key).0));
    LimitKey::ALL.iter().filter_map(smaller).map(|(key, value)| Rule { key: Key::Limit(key), item: value.to_string() })
}

/// The patterns of a layer that have to be protected again.
fn protect(before: &Grant, layer: &Layer, now: &mut impl FnMut(&[Rule]) -> Option<Grant>) -> Vec<Rule> {
    let patterns = layer.fs.iter().flat_map(|fs| &fs.protect);
    let rules = patterns.map(|pattern| Rule { key: Key::Protect, item: quoted(&pattern.to_string()) });
    let mut rules: Vec<Rule> = rules.collect();
    rules.sort();
    rules.dedup();
    let mut opens =
        |rules: &[Rule]| now(rules).is_some_and(|now| wider(before, &now).iter().any(|one| one.key.starts_with("fs.")));
    if rules.is_empty() || !opens(&[]) {
        return Vec::new();
    }
    if rules.len() <= MOST_TRIED {
        for rule in rules.clone() {
            let without: Vec<Rule> = rules.iter().filter(|other| **other != rule).cloned().collect();
            if !opens(&without) {
                rules = without;
            }
        }
    }
    rules
}
