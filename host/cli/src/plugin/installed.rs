//! `harness plugin list`, `show`, `verify`, `remove` and `sync`: the plugins of a project.

use clap::Args;
use harness_artifact::escape;
use harness_artifact::plugin::Rule;
use harness_plugin::Rejected;
use harness_plugin::content::Content;
use harness_registry::Registry;
use harness_registry::lock::{LockedPlugin, LockedRepository};
use harness_registry::repository::Repository;
use harness_sys::{output, tree};
use serde_json::{Value as Json, json};

use super::cases::Cases;
use super::catalogue::Chosen;
use super::fetched::{self, Fetched, Wanted};
use super::review::{Review, plural};
use super::signers::{self, Expected};
use super::state::State;
use super::{add, grant};
use crate::args::ProjectArgs;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project;

#[derive(Debug, Args)]
pub(crate) struct List {
    /// Print the plugins as one JSON array.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Name of a plugin of the lock, or the source of one that is not added yet, such as `./acme` or `NAME@CATALOGUE`.
    #[arg(value_name = "NAME|SOURCE")]
    pub(crate) plugin: String,

    #[command(flatten)]
    pub(crate) expected: Expected,

    /// Print the plugin as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Remove {
    /// The plugin.
    pub(crate) name: String,
}

pub(super) fn list(command: &List, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    let state = State::open(place, printer)?;
    if command.json {
        let registry = state.unlocked();
        let one = |plugin: &LockedPlugin| {
            json!({
                "name": plugin.name,
                "version": plugin.version.to_string(),
                "source": plugin.source.to_string(),
                "resolved": plugin.resolved,
                "catalogue": plugin.catalogue,
                "digest": plugin.digest,
                "vendored": plugin.vendored,
                "signed_by": signers::listed(plugin, registry.policy()),
                "staged": plugin.staged.as_ref().map(|staged| json!({"version": staged.version, "digest": staged.digest})),
            })
        };
        printer.json(&state.lock.plugins().map(one).collect::<Json>());
        return Ok(Exit::Completed);
    }
    let mut text = String::new();
    for plugin in state.lock.plugins() {
        let source = plugin.source.to_string();
        text.push_str(&format!("{} {}  {}", plugin.name, plugin.version, escape::line(&source)));
        text.push_str(if plugin.vendored { "  (vendored)" } else { "" });
        if let Some(staged) = &plugin.staged {
            text.push_str(&format!("  ({} is staged: `harness plugin update {}`)", staged.version, plugin.name));
        }
        text.push('\n');
    }
    match text.is_empty() {
        true => printer.say("no plugins: add one with `harness plugin add ./FOLDER`"),
        false => printer.data(&text),
    }
    Ok(Exit::Completed)
}

pub(super) fn show(command: &Show, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    let state = State::open(place, printer)?;
    let locked = state.lock.plugin(&command.plugin);
    let (fetched, from) = match locked {
        Some(plugin) => (installed(&state, plugin, printer)?, Chosen::locked(plugin)),
        None => {
            let chosen = Chosen::of(&command.plugin, &state, printer)?;
            (Fetched::from(&chosen.source, Wanted::chosen(&chosen), &state, printer)?, chosen)
        }
    };
    let signers = match locked {
        Some(plugin) => signers::of_lock(&command.expected, plugin, &fetched, &state, printer)?,
        None => command.expected.verified(&fetched, (&from.source.to_string(), None), &state, printer)?,
    };
    state.keep(&fetched.content)?;
    let policy = state.policy()?;
    let asked: Vec<Rule> = fetched.plugin.rules().cloned().collect();
    let granted = locked.map(|_| grant::granted(&policy, &fetched.source_name(), &asked));
    let whole = add::granting(&policy, &fetched, &asked, printer)?;
    let entry = add::entry(&fetched, &signers, &from, false);
    let registry = state.proposed(entry, whole.as_ref().map(|policy| policy.text.as_str()));
    let has_errors = registry.policy().is_none() || registry.diagnostics().has_errors();
    if has_errors {
        project::report(&registry, printer);
    }
    let review = Review {
        fetched: &fetched,
        signers: &signers,
        alike: if locked.is_none() { state.alike(fetched.name()) } else { Vec::new() },
        from: from.shown(),
        registry: &registry,
        granted,
        root: &state.root,
        cases: &Cases::of(&fetched, state.limits(), printer),
        policy: &policy,
    };
    match command.json {
        true => printer.json(&review.json()),
        false => printer.data(&review.text()),
    }
    Ok(if has_errors { Exit::Usage } else { Exit::Completed })
}

/// What the lock has of a plugin, where it is.
pub(super) fn content(state: &State, plugin: &LockedPlugin) -> Result<Content, Rejected> {
    if plugin.vendored {
        let content = Content::read_exactly(&state.vendored(&plugin.name))?;
        let is_same = content.digest() == plugin.digest;
        return if is_same { Ok(content) } else { Err(Rejected::new("a file of it was changed, added or removed")) };
    }
    let cache = state.cache().map_err(|_| Rejected::new("there is no cache"))?;
    cache.find(&plugin.digest)?.map(|found| found.content).ok_or_else(|| Rejected::new("it is not on this machine"))
}

/// A plugin of the lock, checked.
pub(super) fn installed(state: &State, plugin: &LockedPlugin, printer: Printer) -> Result<Fetched, Exit> {
    let content = content(state, plugin).map_err(|why| {
        let what = format!("the plugin `{}` differs from `harness.lock`: {why}", plugin.name);
        printer.error(&what, &[], Some("`harness plugin sync` fetches or restores it"));
        Exit::Usage
    })?;
    Fetched::of(content, &plugin.source.to_string(), printer)
}

pub(super) fn verify(place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    let state = State::open(place, printer)?;
    let registry = Registry::load_within(&state.root, state.host());
    if registry.diagnostics().has_errors() {
        project::report(&registry, printer);
        return Ok(Exit::Failed);
    }
    printer.data(&format!("verified: {}", plural(state.lock.plugins().count(), "plugin")));
    Ok(Exit::Completed)
}

pub(super) fn remove(command: &Remove, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    let state = State::open(place, printer)?;
    let plugin = state.locked(&command.name)?;
    let before = state.policy()?;
    let mut policy = before.without(&plugin.source_name(), printer)?;
    // What is not on this machine any more brought servers that stay: nobody knows which.
    if let (Some(without), Ok(_)) = (&policy, content(&state, plugin)) {
        let own = installed(&state, plugin, printer)?;
        let asked: Vec<Rule> = own.plugin.rules().cloned().collect();
        let granted = grant::granted(&before, &own.source_name(), &asked);
        policy = Some(without.unserving(plugin, (&own.servers(), &granted), printer)?);
    }
    let lock = state.lock.clone().without_plugin(&plugin.name);
    state.written(|| {
        if plugin.vendored {
            tree::remove(&state.vendored(&plugin.name))?;
        }
        if let Some(policy) = &policy {
            output::write(&state.root.join(&policy.file), &policy.text, output::Readers::All, &[&state.root])?;
        }
        state.write_lock(&lock)
    })?;
    printer.data(&format!("removed `{}`", plugin.name));
    Ok(Exit::Completed)
}

pub(super) fn sync(place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    let state = State::open(place, printer)?;
    let mut exit = Exit::Completed;
    for plugin in state.lock.plugins() {
        let (name, version) = (&plugin.name, &plugin.version);
        if content(&state, plugin).is_ok() {
            printer.data(&format!("{name} {version}: there"));
            continue;
        }
        let Ok(fetched) = Fetched::from(&plugin.source, Wanted::locked(plugin), &state, printer) else {
            exit = Exit::Failed;
            continue;
        };
        if fetched.digest != plugin.digest {
            let what = format!("`{}` is {}, and the lock has {}", plugin.source, fetched.digest, plugin.digest);
            let hint = format!("`harness plugin update {name}` shows what changed");
            printer.error(&what, &[], Some(&hint));
            exit = Exit::Failed;
            continue;
        }
        match plugin.vendored {
            true => state.written(|| {
                let folder = state.vendored(name);
                tree::remove(&folder)?;
                folder.parent().map_or(Ok(()), tree::create)?;
                fetched.content.write(&folder)
            })?,
            false => state.keep(&fetched.content)?,
        }
        printer.data(&format!("{name} {version}: fetched"));
    }
    match repositories(&state, printer) {
        Ok(()) => Ok(exit),
        Err(exit) => Ok(exit),
    }
}

/// Fetches the git repositories that `artifact_sources` names, as the lock has them, and pins those that it does not have.
fn repositories(state: &State, printer: Printer) -> Result<(), Exit> {
    let named = state.repositories()?;
    let (mut pinned, mut exit) = (Vec::new(), Ok(()));
    for repository in named {
        match pin(&repository, state, printer) {
            Ok(locked) => pinned.push(locked),
            Err(failed) => exit = Err(failed),
        }
    }
    // Of one that was not fetched the lock stays as it is.
    if exit.is_ok() && state.lock.repositories().ne(&pinned) {
        let lock = state.lock.clone().with_repositories(pinned);
        state.written(|| state.write_lock(&lock))?;
    }
    exit
}

/// Fetches one that is not on this machine.
fn pin(repository: &Repository, state: &State, printer: Printer) -> Result<LockedRepository, Exit> {
    let (source, name) = (&repository.source, repository.root.name());
    let reference = escape::line(&repository.root.reference).into_owned();
    let locked = state.lock.repository(&source.to_string());
    let kept = locked.and_then(|locked| state.cache().ok()?.find(&locked.digest).ok().flatten());
    if let (Some(locked), Some(found)) = (locked, kept) {
        repository.check(&found.content).map_err(|wrong| state.report(&wrong))?;
        printer.data(&format!("{name} {reference}: there"));
        return Ok(locked.clone());
    }
    let resolved = locked.map(|locked| locked.resolved.as_str());
    let (content, resolved) = fetched::files(source, resolved, state, printer)?;
    repository.check(&content).map_err(|wrong| state.report(&wrong))?;
    let digest = content.digest();
    if let Some(locked) = locked.filter(|locked| locked.digest != digest) {
        printer.error(&format!("`{source}` is {digest}, and the lock has {}", locked.digest), &[], None);
        return Err(Exit::Failed);
    }
    state.keep(&content)?;
    let now = if locked.is_some() { "fetched" } else { "fetched and pinned" };
    printer.data(&format!("{name} {reference}: {now} at {resolved}"));
    Ok(LockedRepository { source: source.clone(), resolved, digest, position: LockedPlugin::unwritten() })
}
