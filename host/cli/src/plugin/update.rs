//! `harness plugin update`: another version of a plugin, after showing what changes. One that asks for more, or that changes
//! what models read, waits for consent, and the version before it stays in use.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use harness_artifact::escape;
use harness_artifact::plugin::{FILE, Rule, layer};
use harness_plugin::content::Content;
use harness_policy::compare::{Example, wider};
use harness_policy::grant::Grant;
use harness_registry::lock::{self, Drift, Entry, LockedPlugin, Staged};

use super::catalogue::Chosen;
use super::consent::{self, Consent, Granting};
use super::fetched::{Fetched, Wanted};
use super::review::plural;
use super::signers::Expected;
use super::state::State;
use super::{add, installed, serving};
use crate::args::ProjectArgs;
use crate::edit;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project;

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 updated, or nothing to update; 1 staged, or shown with `--dry-run`; 2 it cannot be \
                        used; 3 a lower version, or not the content that was reviewed."
)]
pub(crate) struct Update {
    /// The plugin. Default: all plugins of the lock.
    pub(crate) name: Option<String>,

    /// Take the plugin from another source: another tag of the same repository, for example. It needs your consent.
    #[arg(long, value_name = "SOURCE", requires = "name")]
    pub(crate) from: Option<String>,

    /// Show what would change, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Update to a version that is lower than the one of the lock.
    #[arg(long)]
    pub(crate) allow_downgrade: bool,

    #[command(flatten)]
    pub(crate) expected: Expected,

    #[command(flatten)]
    pub(crate) granting: Granting,
}

/// Keys of artifacts that are code, or cases of it: a change of them alone needs no consent.
const CODE: [&str; 2] = ["script", "tests"];

/// What another version changes.
struct Changes {
    /// Lines for a person, each escaped.
    lines: Vec<String>,
    /// Rules that were not asked for before.
    new: Vec<Rule>,
    /// Rules that are not asked for any more.
    gone: Vec<Rule>,
    /// Servers that are others than before.
    served: Vec<String>,
    /// Whether a person has to consent to it.
    needs_consent: bool,
}

pub(super) fn run(command: &Update, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    let state = State::open(place, printer)?;
    let names: Vec<String> = match &command.name {
        Some(name) => vec![state.locked(name)?.name.clone()],
        None => state.lock.plugins().map(|plugin| plugin.name.clone()).collect(),
    };
    let mut worst = Exit::Completed;
    for name in names {
        // The lock is another one after each.
        let state = State::open(place, printer)?;
        let plugin = state.locked(&name)?;
        let exit = one(command, &state, plugin, printer).unwrap_or_else(|exit| exit);
        if exit.code() > worst.code() {
            worst = exit;
        }
    }
    Ok(worst)
}

fn one(command: &Update, state: &State, old: &LockedPlugin, printer: Printer) -> Result<Exit, Exit> {
    let name = &old.name;
    let before = installed::installed(state, old, printer)?;
    let chosen = match (&command.from, &old.catalogue) {
        (Some(text), _) => Chosen::of(text, state, printer)?,
        (None, Some(catalogue)) => Chosen::looked_up(name, catalogue, state, printer)?,
        (None, None) => Chosen::locked(old),
    };
    let source = &chosen.source;
    let wanted = Wanted { resolved: None, name: Some(name), parts: chosen.parts() };
    let now = Fetched::from(source, wanted, state, printer)?;
    let version = &now.plugin.version;
    let signers = command.expected.verified(&now, (&source.to_string(), Some(old)), state, printer)?;
    // A catalogue pins what it names, so that each of its commits names other ones of the same source.
    let is_elsewhere = chosen.is_elsewhere(old);
    if now.digest == old.digest && !is_elsewhere && signers.changes(old).is_empty() {
        printer.data(&format!("{name} {version}: up to date"));
        return Ok(Exit::Completed);
    }
    if *version < old.version && !command.allow_downgrade {
        let what = format!("`{source}` has {version} of `{name}`, and {} is in use", old.version);
        printer.error(&what, &[], Some("`--allow-downgrade` accepts a lower version"));
        return Err(Exit::Denied);
    }
    state.keep(&now.content)?;
    let of_plugin = now.source_name();
    let policy = state.policy()?;
    let asked: Vec<Rule> = now.plugin.rules().cloned().collect();
    let whole = add::granting(&policy, &now, &asked, printer)?;
    let entry = add::entry(&now, &signers, &chosen, old.vendored);
    let entry = LockedPlugin { servers: old.servers.clone(), ..entry };
    let registry = state.proposed(entry.clone(), whole.as_ref().map(|policy| policy.text.as_str()));
    if registry.policy().is_none() || registry.diagnostics().has_errors() {
        project::report(&registry, printer);
        printer.error(&format!("the project would not load with `{name}` {version}: nothing is changed"), &[], None);
        return Err(Exit::Usage);
    }
    let earlier = state.proposed(old.clone(), None);
    let entries = |registry| lock::of_plugin(registry, &of_plugin);
    let mut changes = changes((&before, entries(&earlier)), (&now, entries(&registry)), signers.changes(old));
    if *source != old.source {
        let shown = escape::line(&format!("source: {} -> {source}", old.source)).into_owned();
        changes.lines.insert(0, shown);
    }
    if chosen.catalogue() != old.catalogue {
        let named = |catalogue: Option<&str>| catalogue.map_or("none".to_owned(), |name| format!("`{name}`"));
        let (before, now) = (named(old.catalogue.as_deref()), named(chosen.catalogue().as_deref()));
        changes.lines.insert(0, format!("catalogue: {before} -> {now}"));
    }
    changes.needs_consent |= is_elsewhere;
    let review = signers.review(&now.digest);
    let mut text = format!("{name} {} -> {version}, {}\n", old.version, now.digest);
    changes.lines.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
    printer.data(&text);
    if command.dry_run {
        return Ok(Exit::Failed);
    }
    let rules = match changes.needs_consent {
        false => Vec::new(),
        true => match command.granting.decide(&review, &changes.new, consent::USE, printer)? {
            Consent::Given(rules) => rules,
            Consent::Refused | Consent::Nobody => return stage(state, old, (&now, &review), printer),
        },
    };
    // Neither what is not asked for any more nor what was refused may be granted from before: who asks for it again later
    // would have it without anybody's consent.
    let refused = changes.new.iter().filter(|rule| !rules.contains(rule));
    let mut taken: Vec<Rule> = changes.gone.iter().chain(refused).cloned().collect();
    if command.granting.is_none() {
        // A server that is another one now was not consented to.
        let is_changed =
            |rule: &&Rule| rule.key == "mcp" && changes.served.iter().any(|name| rule.item == name.as_str());
        taken.extend(asked.iter().filter(is_changed).cloned());
    }
    let served = policy.serving(&now.servers(), &rules, printer)?;
    let regranted = served.regranting(&of_plugin, (&rules, &taken), printer)?.unwrap_or(served);
    let reserved = match command.granting.is_none() {
        true => regranted,
        false => regranted.reserving(old, (&before.servers(), &now.servers()), printer)?,
    };
    let changed = reserved.unserving(old, (&before.servers(), &taken), printer)?;
    let changed = (changed.text != policy.text).then_some(changed);
    state.write(entry, &now.content, changed.as_ref())?;
    let granted = match changes.new.len() {
        0 => String::new(),
        count => format!(": {} of {} granted", rules.len(), plural(count, "new rule")),
    };
    printer.data(&format!("updated `{name}` to {version}{granted}"));
    Ok(Exit::Completed)
}

/// Keeps a version that waits for consent.
fn stage(state: &State, old: &LockedPlugin, (now, review): (&Fetched, &str), printer: Printer) -> Result<Exit, Exit> {
    let (name, version) = (&old.name, now.plugin.version.to_string());
    let staged = Some(Staged { version: version.clone(), digest: now.digest.clone() });
    let lock = state.lock.clone().with_plugin(LockedPlugin { staged, ..old.clone() });
    state.written(|| state.write_lock(&lock))?;
    let hint = format!(
        "consent at a terminal, or with `harness plugin update {name} --grant-digest {review}`; {} stays in use",
        old.version
    );
    printer.error(&format!("`{name}` {version} is staged: it needs your consent"), &[], Some(&hint));
    Ok(Exit::Failed)
}

/// What files say of themselves beside their scripts and cases, where that changes: whether a person confirms a call, when
/// a hook is called, who sees a tool.
fn settings(before: &Content, now: &Content) -> Vec<String> {
    let keys = |path: &str, text: Option<&str>| {
        edit::front(path, text?).ok().map(|mut keys| {
            CODE.iter().for_each(|key| drop(keys.shift_remove(*key)));
            keys
        })
    };
    let mut lines = Vec::new();
    for (path, _) in now.files().filter(|(path, _)| *path != FILE && path.ends_with(".md")) {
        let (old, new) = (before.text(path), now.text(path));
        if old.is_none() || old == new {
            continue;
        }
        let what = match (keys(path, old), keys(path, new)) {
            (Some(old), Some(new)) => {
                let all: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
                let changed = all.into_iter().filter(|key| old.get(*key) != new.get(*key));
                changed.map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ")
            }
            _ => "its front matter".to_owned(),
        };
        if !what.is_empty() {
            lines.push(escape::line(&format!("{path} changes {what}")).into_owned());
        }
    }
    lines
}

fn changes((before, was): (&Fetched, Vec<Entry>), (now, is): (&Fetched, Vec<Entry>), signed: Vec<String>) -> Changes {
    let mut lines = Vec::new();
    let is_same_version = before.plugin.version == now.plugin.version && before.digest != now.digest;
    // A new signer, or none, is a third party that nobody consented to.
    let mut needs_consent = is_same_version || !signed.is_empty();
    lines.extend(signed);
    if is_same_version {
        lines.push("its content changed, and its version did not".to_owned());
    }
    let (old, new) = (before.content.digests(), now.content.digests());
    for path in new.keys().filter(|path| !old.contains_key(*path)) {
        lines.push(format!("+ {}", escape::line(path)));
    }
    for (path, digest) in &old {
        match new.get(path) {
            None => lines.push(format!("- {}", escape::line(path))),
            Some(other) if other != digest => lines.push(format!("~ {}", escape::line(path))),
            Some(_) => {}
        }
    }
    let keyed = |entries: Vec<Entry>| -> BTreeMap<_, Entry> {
        entries.into_iter().map(|entry| ((entry.kind, entry.name.clone()), entry)).collect()
    };
    let (was, is) = (keyed(was), keyed(is));
    for (key, entry) in &is {
        let drift = match was.get(key) {
            Some(old) => Drift::between(old, entry),
            None => Some(Drift::Added(entry.clone())),
        };
        let Some(drift) = drift else { continue };
        let parts = drift.parts();
        let what = if parts.is_empty() { "is new".to_owned() } else { format!("changes: {}", parts.join(", ")) };
        lines.push(format!("{} {} {what}", entry.kind, escape::line(&entry.name)));
        let difference = drift.difference().unwrap_or_default();
        lines.extend(difference.lines().map(|line| format!("    {}", escape::line(line))));
        // What a model reads is new. Other lines of files are compared below.
        needs_consent |= parts.iter().any(|part| !matches!(*part, "its script" | "other lines of its file"));
        needs_consent |= parts.is_empty();
    }
    for (_, entry) in was.iter().filter(|(key, _)| !is.contains_key(*key)) {
        lines.push(format!("{} {} is removed", entry.kind, escape::line(&entry.name)));
        // It may have been a guard.
        needs_consent = true;
    }
    let settings = settings(&before.content, &now.content);
    needs_consent |= !settings.is_empty();
    lines.extend(settings);
    let served = serving::difference(&before.servers(), &now.servers());
    needs_consent |= !served.changed.is_empty();
    lines.extend(served.lines);
    let (old, new) = (&before.plugin, &now.plugin);
    let has = |plugin: &harness_artifact::plugin::Plugin, rule: &Rule| plugin.rules().any(|other| other == rule);
    let more: Vec<Rule> = new.rules().filter(|rule| !has(old, rule)).cloned().collect();
    lines.extend(more.iter().map(|rule| format!("asks: + {}", escape::line(&rule.to_string()))));
    let gone: Vec<Rule> = old.rules().filter(|rule| !has(new, rule)).cloned().collect();
    lines.extend(gone.iter().map(|rule| format!("asks: - {}", escape::line(&rule.to_string()))));
    let grant = |plugin: &harness_artifact::plugin::Plugin| {
        let rules: Vec<&Rule> = plugin.rules().collect();
        Grant::new(layer(rules, "").into_iter().collect())
    };
    for one in wider(&grant(old), &grant(new)) {
        needs_consent = true;
        if let Example::Certain { what, .. } = one.example {
            lines.push(format!("asks for more: {}: {}", one.key, escape::line(&what)));
        }
    }
    needs_consent |= !more.is_empty();
    Changes { lines, new: more, gone, served: served.changed, needs_consent }
}
