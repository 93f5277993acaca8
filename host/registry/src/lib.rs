//! The artifacts of a project: found, read, resolved, checked, and then never changed.
//!
//! [`Registry::load`] walks `.harness/` in a fixed order, so that two loads of the same files are the same registry.
//! It finds everything that is wrong and not only the first. A tool with an error is left out, and the others can be
//! listed. A policy, a hook or a bundle with an error could be the one that guards against something: then there is no
//! [`Registry::policy`], and without a policy nothing can run.
//!
//! - `host`: the machine that it is loaded on
//! - `bounds`: what loading may take, of each source and in all
//! - `load`: the walk, and what is read on it
//! - `lock`: what they were when someone looked at them
//! - `watched`: what is to be watched for changes
//! - `merge`: names that are defined twice, `overrides/`, the order
//! - `resolve`: what artifacts and the policy name, found or not
//! - `repository`: git repositories with artifacts
//! - `root`: folders with artifacts, and what is in them by its name
//! - `unsaved`: texts that an editor has not saved
//! - `unread`: files that nobody reads, and should not be there

#![cfg_attr(test, expect(clippy::disallowed_methods, reason = "tests make files and programs"))]

mod bounds;
mod host;
mod load;
pub mod lock;
mod merge;
pub mod repository;
mod resolve;
mod root;
mod unread;
mod unsaved;
pub mod watched;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use self::host::{Host, Proposal};
use self::lock::{Drift, Lock, LockedServer};
pub use self::unsaved::Unsaved;
use harness_artifact::agent::{Agent, Use};
use harness_artifact::diagnostic::{Diagnostic, Diagnostics, Position, Severity};
use harness_artifact::event::Event;
use harness_artifact::hook::Hook;
use harness_artifact::plugin::Plugin;
use harness_artifact::policy::ProjectPolicy;
use harness_artifact::policy::sources::covers;
use harness_artifact::skill::Skill;
use harness_artifact::suggest;
use harness_artifact::tool::Tool;
use harness_sys as sys;
use harness_sys::digest::digest;

/// Where the policy may be beside `.harness/`, where none is in it.
pub const POLICIES_BESIDE: [&str; 2] = ["harness.md", "harness.yaml"];

/// What a project is made of. Immutable.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    tools: Vec<Arc<Tool>>,
    tools_by_name: HashMap<String, usize>,
    hooks: Vec<Arc<Hook>>,
    /// The hooks of each event in the order they are called.
    chains: HashMap<Event, Vec<Arc<Hook>>>,
    agents: Vec<Arc<Agent>>,
    skills: Vec<Arc<Skill>>,
    bundles: Vec<BundleFile>,
    servers: Vec<Arc<LockedServer>>,
    replaced: Vec<Replaced>,
    refused: Vec<Refused>,
    roots: Vec<PathBuf>,
    named_roots: Vec<PathBuf>,
    policy: Option<ProjectPolicy>,
    policy_file: String,
    /// The folder of the plugins that are not in the project, where there are any.
    plugins: Option<PathBuf>,
    machine: Option<PathBuf>,
    diagnostics: Diagnostics,
    sources: BTreeMap<String, String>,
}

/// Where the policy of the machine is: what it lets any project do at most.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Machine {
    /// In [its place](harness_artifact::policy::machine::FILE), if there is such a file. One that cannot be read or
    /// understood stops everything.
    #[default]
    Installed,
    /// In this file, which has to be there.
    File(PathBuf),
    /// In this file, which has to be there, of a server: the project is a tenant's, and names nothing of the server
    /// ([`tenant`](harness_artifact::policy::tenant)).
    Server(PathBuf),
    /// There is none: for a program that narrows each call itself.
    None,
}

/// A bundle as it was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BundleFile {
    /// The name by which a policy knows it, such as `plugins/acme`.
    pub name: String,
    /// Where it is, without the ending of a file.
    pub path: String,
    /// Its prose, where it has a file of its own.
    pub prose: String,
    /// Its `tags:`.
    pub tags: Vec<String>,
    /// Its `plugin.md`, where it has one and is under `plugins/`.
    pub plugin: Option<Arc<Plugin>>,
    /// Whether its content is what `harness.lock` says.
    pub pinned: bool,
}

/// An artifact that a hook on `artifact.load` refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// `tool`, `hook`, `agent` or `bundle`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// Its name as a source.
    pub source: String,
    /// Where it is.
    pub at: String,
    /// The hook.
    pub by: String,
    /// Why, with whose word that is.
    pub reason: String,
}

/// Something that an artifact under `overrides/` stands instead of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replaced {
    /// `tool`, `hook`, `agent` or `skill`.
    pub kind: &'static str,
    /// The name that both have.
    pub name: String,
    /// Where the one is that counts.
    pub by: Position,
    /// Where the one is that does not.
    pub what: Position,
}

/// There is no tool of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownTool {
    /// The name that was asked for.
    pub name: String,
    /// At most three names that are like it, the closest first.
    pub closest: Vec<String>,
}

impl Registry {
    /// Reads the project in a folder: the one that holds `.harness/`. Never fails as a whole; see
    /// [`diagnostics`](Self::diagnostics). The policy is within that of the [machine](Machine::Installed).
    pub fn load(root: &Path) -> Self {
        Self::load_within(root, &Machine::Installed)
    }

    /// The same within another policy of the machine.
    pub fn load_within<'m>(root: &Path, host: impl Into<Host<'m>>) -> Self {
        Self::load_unsaved(root, host, &Unsaved::default())
    }

    /// The same with texts that an editor has not saved instead of those of their files.
    pub fn load_unsaved<'m>(root: &Path, host: impl Into<Host<'m>>, unsaved: &Unsaved) -> Self {
        let lock = Self::read_lock(root);
        let locked = lock.as_ref().ok().and_then(Option::as_ref);
        let proposal = Proposal { lock: locked, unsaved: Some(unsaved), ..Proposal::default() };
        let mut registry = load::project(root, &host.into(), &proposal);
        if locked.is_some() {
            registry.sources.extend(
                sys::read_at_most(&root.join(lock::FILE), lock::MAX_BYTES)
                    .ok()
                    .map(|text| (lock::FILE.to_owned(), text)),
            );
        }
        registry.keep_to_lock(lock);
        registry
    }

    /// The same, whatever `harness.lock` says: to look at what changed.
    pub fn load_unlocked<'m>(root: &Path, host: impl Into<Host<'m>>) -> Self {
        let lock = Self::read_lock(root).ok().flatten();
        Self::load_proposed(root, host, &Proposal { lock: lock.as_ref(), ..Proposal::default() })
    }

    /// What is in force in a folder without a project: the defaults, within the host policy.
    pub fn outside(machine: &Machine) -> Self {
        load::outside(machine)
    }

    /// The same with what is to be written instead of what is there.
    pub fn load_proposed<'m>(root: &Path, host: impl Into<Host<'m>>, proposal: &Proposal<'_>) -> Self {
        load::project(root, &host.into(), proposal)
    }

    /// What `harness.lock` in a folder says, where it is there.
    ///
    /// # Errors
    ///
    /// Where it cannot be read.
    pub fn read_lock(root: &Path) -> Result<Option<Lock>, Diagnostic> {
        let path = root.join(lock::FILE);
        match sys::read_at_most(&path, lock::MAX_BYTES) {
            Ok(text) => Lock::parse(&text).map(Some),
            // A link that leads nowhere is there.
            Err(error) if error.kind() == ErrorKind::NotFound && !path.is_symlink() => Ok(None),
            // A command runs that must not create one.
            Err(_) if sys::is_placeholder(&path) => Ok(None),
            Err(error) => Err(Diagnostic::error(format!("cannot read `{}`: {error}", lock::FILE))),
        }
    }

    /// Refuses what is not as it was locked.
    fn keep_to_lock(&mut self, lock: Result<Option<Lock>, Diagnostic>) {
        let wrong: Vec<Diagnostic> = match lock {
            Ok(lock) if lock.as_ref().is_none_or(Lock::has_plugins_only) => {
                let servers = self.policy.iter().flat_map(|policy| &policy.mcp.servers);
                let unlocked: Vec<Diagnostic> = servers
                    .map(|server| {
                        let what = format!("the server {:?} is not locked, so it is not started", server.name);
                        let warning = Diagnostic::warning(what).at(server.position.clone());
                        warning.hint("review what it offers with `harness lock`, which writes `harness.lock`")
                    })
                    .collect();
                unlocked.into_iter().for_each(|one| self.diagnostics.push(one));
                self.grants_against(&lock.unwrap_or_default())
            }
            Ok(None) => Vec::new(),
            Ok(Some(lock)) => {
                // Of a file with an error it is said already that nothing in it can be used.
                let broken = |drift: &Drift| {
                    let mut errors = self.diagnostics.iter().filter(|one| one.severity == Severity::Error);
                    errors.any(|one| one.position.as_ref().is_some_and(|at| *at.file == *drift.entry().path))
                };
                let drifts = lock.drifts(&Lock::of(self)).into_iter();
                let drifts = drifts
                    .filter(|drift| !(matches!(drift, Drift::Removed(_)) && broken(drift)))
                    .map(|d| d.diagnostic());
                drifts.chain(self.servers_against(&lock)).chain(self.grants_against(&lock)).collect()
            }
            Err(wrong) => vec![wrong],
        };
        if !wrong.is_empty() {
            self.policy = None;
        }
        wrong.into_iter().for_each(|one| self.diagnostics.push(one));
    }

    /// Servers of the policy that are not what a lock says, and those of the lock that the policy does not have.
    fn servers_against(&self, lock: &Lock) -> Vec<Diagnostic> {
        let Some(policy) = &self.policy else { return Vec::new() };
        let mut wrong = Vec::new();
        for server in &policy.mcp.servers {
            let what = match lock.server(&server.name) {
                None => format!("the server {:?} is not in `{}`", server.name, lock::FILE),
                Some(locked) => match locked.against(server) {
                    Some(what) => format!("the server {:?} differs from `{}`: {what}", server.name, lock::FILE),
                    None => continue,
                },
            };
            let hint = "review what it offers with `harness lock`, which starts it and accepts that";
            wrong.push(Diagnostic::error(what).at(server.position.clone()).hint(hint));
        }
        for locked in lock.servers().filter(|locked| policy.mcp.server(&locked.pinned.server).is_none()) {
            let what = format!("the server {:?} is in `{}` but was removed", locked.pinned.server, lock::FILE);
            let removed = Diagnostic::error(what).at(locked.position.clone());
            wrong.push(removed.hint("restore it, or remove it from the lock with `harness lock`"));
        }
        wrong
    }

    /// Plugins that the policy grants something else than a lock says.
    fn grants_against(&self, lock: &Lock) -> Vec<Diagnostic> {
        let Some(policy) = &self.policy else { return Vec::new() };
        let differs = |plugin: &&lock::LockedPlugin| digest(&policy.granted(&plugin.source_name())) != plugin.granted;
        let found = lock.plugins().filter(differs).map(|plugin| {
            let source = plugin.source_name();
            let what = format!("what `sandbox.sources` grants to `{source}` differs from `{}`", lock::FILE);
            let hint =
                format!("restore the entry, or review and accept it with `harness plugin grant {}`", plugin.name);
            Diagnostic::error(what).at(plugin.position.clone()).hint(hint)
        });
        found.collect()
    }

    /// A server of the policy as it was locked. None where it is not, or is another one now.
    pub fn server(&self, name: &str) -> Option<&Arc<LockedServer>> {
        self.servers.iter().find(|server| server.pinned.server == name)
    }

    /// The servers that are locked, in the order of the policy.
    pub fn servers(&self) -> &[Arc<LockedServer>] {
        &self.servers
    }

    /// The tools without an error, in the order of their files and within a file as it has them.
    pub fn tools(&self) -> &[Arc<Tool>] {
        &self.tools
    }

    /// A tool by its exact name.
    pub fn tool(&self, name: &str) -> Result<&Arc<Tool>, UnknownTool> {
        let found = self.tools_by_name.get(name).and_then(|index| self.tools.get(*index));
        found.ok_or_else(|| UnknownTool::new(name, self.tools.iter().map(|tool| tool.name.as_str())))
    }

    /// The hooks without an error, in the order of their files and within a file as it has them.
    pub fn hooks(&self) -> &[Arc<Hook>] {
        &self.hooks
    }

    /// A hook by its exact name.
    pub fn hook(&self, name: &str) -> Option<&Arc<Hook>> {
        self.hooks.iter().find(|hook| hook.name == name)
    }

    /// A tool that an agent has for itself, by `AGENT/NAME`.
    pub fn tool_of_agent(&self, name: &str) -> Option<&Arc<Tool>> {
        let (agent, name) = self.of_agent_named(name)?;
        agent.tools.iter().filter_map(Use::inline).find(|tool| tool.name == name)
    }

    /// A hook that an agent has for itself, by `AGENT/NAME`.
    pub fn hook_of_agent(&self, name: &str) -> Option<&Arc<Hook>> {
        let (agent, name) = self.of_agent_named(name)?;
        agent.hooks.iter().filter_map(Use::inline).find(|hook| hook.name == name)
    }

    fn of_agent_named<'n>(&self, name: &'n str) -> Option<(&Agent, &'n str)> {
        let (agent, name) = name.split_once('/')?;
        Some((self.agents.iter().find(|one| one.name == agent)?, name))
    }

    /// The hooks of an event in the order they are called: by priority, and equal ones in the order of
    /// [`hooks`](Self::hooks).
    pub fn chain(&self, event: &Event) -> &[Arc<Hook>] {
        self.chains.get(event).map(Vec::as_slice).unwrap_or_default()
    }

    /// The artifacts as an agent has them: with the tools that are written out in its own file, which stand instead of
    /// others of their names, and with the hooks of its own beside all others, whatever they are called: what guards
    /// its caller guards it too.
    ///
    /// Of the others it has those that are lent to it: a plugin's agent does not have the project's.
    #[must_use]
    pub fn of_agent(&self, agent: &Agent, lent: impl Fn(&Tool) -> bool) -> Self {
        let mut registry = self.clone();
        registry.tools.retain(|tool| lent(tool));
        for tool in agent.tools.iter().filter_map(Use::inline) {
            registry.tools.retain(|other| other.name != tool.name);
            registry.tools.push(tool.clone());
        }
        for hook in agent.hooks.iter().filter_map(Use::inline) {
            // An agent that works for itself has them already, at their place.
            if !registry.hooks.iter().any(|other| Arc::ptr_eq(other, hook)) {
                registry.hooks.push(hook.clone());
            }
        }
        merge::index(&mut registry);
        registry
    }

    /// The artifacts without the tools that are written out in an agent's file: they are its own.
    #[must_use]
    pub fn without_tools_of(&self, agent: &Agent) -> Self {
        let mut registry = self.clone();
        for tool in agent.tools.iter().filter_map(Use::inline) {
            registry.tools.retain(|other| !Arc::ptr_eq(other, tool));
        }
        merge::index(&mut registry);
        registry
    }

    /// The agents without an error, in the order of their files.
    pub fn agents(&self) -> &[Arc<Agent>] {
        &self.agents
    }

    /// The skills without an error, in the order of their files.
    pub fn skills(&self) -> &[Arc<Skill>] {
        &self.skills
    }

    /// The bundles, in the order of their names.
    pub fn bundles(&self) -> &[BundleFile] {
        &self.bundles
    }

    /// What artifacts under `overrides/` replaced, in the order of those.
    pub fn replaced(&self) -> &[Replaced] {
        &self.replaced
    }

    /// What hooks on `artifact.load` refused. It is not among the artifacts.
    pub fn refused(&self) -> &[Refused] {
        &self.refused
    }

    /// The artifacts without those that hooks refused. A hook that is refused stops the project: it may be what guards the
    /// rest.
    #[must_use]
    pub fn without(&self, refused: Vec<Refused>) -> Self {
        let mut registry = self.clone();
        let is = |kind: &str, name: &str, source: &str| {
            refused.iter().any(|one| match one.kind {
                "bundle" => covers(&one.source, source),
                of => of == kind && one.name == name && one.source == source,
            })
        };
        registry.tools.retain(|one| !is("tool", &one.name, &one.source_name));
        registry.agents.retain(|one| !is("agent", &one.name, &one.source_name));
        let (lost, kept) = registry.hooks.into_iter().partition(|one| is("hook", &one.name, &one.source_name));
        registry.hooks = kept;
        let lost: Vec<Arc<Hook>> = lost;
        for hook in &lost {
            let message = format!("the hook {:?} is rejected, and without it nothing runs", hook.name);
            let why = refused.iter().find(|one| hook.source_name.starts_with(one.source.as_str()));
            let why = why.map(|one| one.reason.clone()).unwrap_or_default();
            registry.diagnostics.push(Diagnostic::error(message).at(hook.source.clone()).hint(why));
            registry.policy = None;
        }
        registry.refused = refused;
        merge::index(&mut registry);
        registry
    }

    /// The artifacts with other tools of a server, each instead of the one of its name; the others of the server are left
    /// out. `refused` is why, where hooks refuse it.
    #[must_use]
    pub fn with_served(&self, server: &str, tools: Vec<Tool>, refused: Option<Refused>) -> Self {
        let mut registry = self.clone();
        let is_of = |tool: &Tool| tool.served.as_ref().is_some_and(|served| served.server == server);
        let mut tools = tools;
        let kept = registry.tools.into_iter().filter_map(|tool| {
            if !is_of(&tool) {
                return Some(tool);
            }
            let at = tools.iter().position(|other| other.name == tool.name)?;
            Some(Arc::new(tools.swap_remove(at)))
        });
        registry.tools = kept.collect();
        registry.refused.extend(refused);
        merge::index(&mut registry);
        registry
    }

    /// The artifacts with some of their hooks.
    #[must_use]
    pub fn with_hooks(&self, keep: impl Fn(&Hook) -> bool) -> Self {
        let mut registry = self.clone();
        registry.hooks.retain(|hook| keep(hook));
        merge::index(&mut registry);
        registry
    }

    /// The further folders with artifacts, where they really are.
    pub fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// The same as the policy names them, those that cannot be read too.
    pub fn named_roots(&self) -> &[PathBuf] {
        &self.named_roots
    }

    /// The file of the host policy, where there is one.
    pub fn machine(&self) -> Option<&Path> {
        self.machine.as_deref()
    }

    /// The policy. None where `harness.md`, any hook or bundle or the whole project could not be read: nothing may run
    /// then.
    pub fn policy(&self) -> Option<&ProjectPolicy> {
        self.policy.as_ref()
    }

    /// The folder of the plugins of the machine, where the project has any from there.
    pub fn plugins(&self) -> Option<&Path> {
        self.plugins.as_deref()
    }

    /// The file of the project's policy; empty where there is none.
    pub fn policy_file(&self) -> &str {
        &self.policy_file
    }

    /// Whether a folder holds a project: `.harness/`, or a policy beside it.
    pub fn is_in(folder: &Path) -> bool {
        sys::is_folder(&folder.join(".harness")) || POLICIES_BESIDE.iter().any(|name| sys::is_there(&folder.join(name)))
    }

    /// Everything that is wrong, in the order it was found.
    pub fn diagnostics(&self) -> &Diagnostics {
        &self.diagnostics
    }

    /// The text of every file that was read, by the name that positions use, such as `.harness/tools/greet.md`.
    pub fn sources(&self) -> &BTreeMap<String, String> {
        &self.sources
    }

    /// A diagnostic with the line of the file it is about. See [`Diagnostic::render`].
    pub fn render(&self, diagnostic: &Diagnostic, color: bool) -> String {
        let file = diagnostic.position.as_ref().map(|position| &*position.file);
        diagnostic.render(file.and_then(|file| self.sources.get(file)).map(String::as_str), color)
    }
}

impl UnknownTool {
    /// For a name, with what is like it among those that there are.
    pub fn new<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Self {
        let closest = suggest::several(name, known, 3).into_iter().map(str::to_owned).collect();
        Self { name: name.to_owned(), closest }
    }

    /// The close names as a question, if there are any.
    pub fn hint(&self) -> Option<String> {
        let names: Vec<String> = self.closest.iter().map(|name| format!("`{name}`")).collect();
        (!names.is_empty()).then(|| format!("did you mean {}?", names.join(" or ")))
    }
}

impl fmt::Display for UnknownTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there is no tool {}", harness_policy::text::quoted(&self.name))
    }
}

impl std::error::Error for UnknownTool {}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod trees;
