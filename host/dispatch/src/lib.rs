//! Calls of tools and events for hooks: the only way in, for every caller.
//!
//! A [`Project`] is opened once and shared by all threads. Calls belong to a [`Run`], which holds what they share and may
//! narrow what they are granted. A call goes through the six steps of [`pipeline`], an event through the five of
//! [`chain`].
//!
//! [`Project::reload`] takes a changed folder in force, or leaves the old state in force and shows what is wrong.
//! [`Project::watch`] does that whenever a file has changed.

#![cfg_attr(test, expect(clippy::disallowed_methods, reason = "tests make files and programs"))]

mod added;
mod admission;
pub mod as_json;
pub mod ask;
pub mod blocks;
pub mod builtin;
mod call_error;
mod calls;
mod caps;
pub mod chain;
pub mod code;
pub mod confinement;
pub mod confirm;
pub mod content;
pub mod decision;
mod digest_key;
mod ended;
pub mod hearing;
mod host;
mod images;
mod loaded;
pub mod loading;
mod matching;
pub mod native;
mod offering;
mod opening;
pub mod overlap;
pub mod past;
pub mod payload;
mod person;
pub mod pipeline;
pub mod progress;
mod raw;
mod recorder;
pub mod reentry;
mod relaying;
mod repository;
mod run;
pub mod schedule;
mod scripted;
mod served;
mod servers;
mod spans;
pub mod tasks;
pub mod testing;
pub mod trail;
mod verdict;
pub mod verify;
mod view;
mod waiter;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use serde_json::Value as Json;

pub use blocks::Content;
pub use caps::cap_by;
pub use chain::{Block, Decision, Dispatch, HookRun, Verdict, Voice};
pub use content::ToolOutput;
pub use digest_key::DigestKey;
pub use harness_gateway::{Failure as ServerFailure, Fetch, LoggedIn, Prompt, Reading, Servers, Streams};
pub use host::{Host, HostOptions};
pub use loaded::Wanted;
pub use loaded::{Loaded, Unloadable};
pub use native::NativeTool;
pub use past::{Looked, Refused, Saw};
pub use pipeline::{Call, CallError, CallReport};
pub use reentry::Nested;
pub use relaying::relay_server;
pub use run::{Added, ClientRequest, Run};
pub use servers::{LoginAction, LoginState, fetch_packages, login_server, read_servers};
pub use tasks::MAX_AGENTS;
pub use verify::Judgement;
pub use waiter::Waiter;
pub use watch::{FileWatch, WatchError};

use self::chain::CallContext;
use self::loaded::Parts;
use self::recorder::Recorder;
use harness_artifact::event::Event;
use harness_artifact::policy::ProjectPolicy;
use harness_artifact::tool::Tool;
use harness_capability::env::Variables;
use harness_capability::fs::{Space, Workspace};
use harness_capability::outbound::Outbound;
use harness_capability::secrets::Vault;
use harness_capability::system::System;
use harness_policy::layer::Layer;
use harness_policy::path::{Access, PathPattern, WorkspacePath, protected};
use harness_policy::watch::Watch;
use harness_registry::{Machine, Registry, Unsaved};
use harness_sandbox::engine::{Sandbox, Settings};
use harness_sandbox::scheduling::quota::{Quota, Share};
use harness_sys as sys;

/// The folder of a project's own artifacts.
const HOME: &str = ".harness";

/// How to open a project.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder that tools work in; the one that holds `.harness/` where there is none.
    pub workspace: Option<PathBuf>,
    /// What the workspace may hold, counted together with all others that share this.
    pub space: Option<Arc<Space>>,
    /// What the project may have of its host, beside other projects.
    pub quota: Quota,
    /// The machine as the project sees it: its clock, random numbers and variables. By default there is no variable.
    pub system: System,
    /// Counts what leaves the machine for the project.
    pub outbound: Outbound,
    /// Implementations for tools that are declared without a script, by the name of the tool.
    pub natives: Vec<(String, Arc<dyn NativeTool>)>,
    /// Whether scripts show which of their lines they reach. They are slower then.
    pub coverage: bool,
    /// Where the policy of the machine is, within which the project's is.
    pub machine: Machine,
    /// Who is told of everything that is asked for and allowed.
    pub watch: Option<Arc<Watch>>,
    /// What a tool may do at most, by its name, instead of what the project's policy has for it: for looking at what it
    /// would do. The host policy and the tool's own `capabilities:` still narrow it.
    pub granting: Option<(String, Layer)>,
    /// Whether calls and decisions are recorded in `.harness/audit/`, unless the policy says `sandbox.audit: false`.
    pub audit: bool,
    /// Texts that an editor has not saved, instead of those of their files.
    pub unsaved: Unsaved,
}

impl Default for Options {
    /// The project's own folder, no quota, no variable, the machine's installed policy, and a record.
    fn default() -> Self {
        Self {
            workspace: None,
            space: None,
            quota: Quota::default(),
            system: System::default(),
            outbound: Outbound::default(),
            natives: Vec::new(),
            coverage: false,
            machine: Machine::Installed,
            watch: None,
            granting: None,
            audit: true,
            unsaved: Unsaved::default(),
        }
    }
}

/// A project whose tools can be called and whose hooks can be asked. Shared by as many threads and callers as there are: all
/// clones are one project.
#[derive(Debug, Clone)]
pub struct Project {
    inner: Arc<Inner>,
}

/// A project, for its callers and for what [watches](Project::watch) it.
#[derive(Debug)]
struct Inner {
    root: PathBuf,
    options: Options,
    /// Its host, with this project's share of that.
    host: Host,
    current: RwLock<Arc<Loaded>>,
    /// Held while it is reloaded: what was read later is in force later.
    reloading: Mutex<()>,
}

/// Why a project cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Something is wrong with its artifacts; the registry shows all of it. Nothing runs until it is mended: what is
    /// broken may be what was to guard the rest.
    #[error("{} of the project's artifacts cannot be used", .0.diagnostics().errors())]
    Artifacts(Box<Registry>),
    /// The folder that tools were to work in.
    #[error("cannot open the workspace `{}`: {source}", path.display())]
    Workspace {
        /// What was named.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The project or its workspace is not below the folders of its host.
    #[error("`{}` is not below the folders of this host: {}", path.display(), listed(roots))]
    Outside {
        /// What was named.
        path: PathBuf,
        /// Those folders.
        roots: Vec<PathBuf>,
    },
    /// The machine.
    #[error("cannot start the sandbox: {0:#}")]
    Sandbox(wasmtime::Error),
}

fn listed(folders: &[PathBuf]) -> String {
    folders.iter().map(|folder| format!("`{}`", folder.display())).collect::<Vec<_>>().join(", ")
}

impl Project {
    /// Opens the project in a folder, the one that holds `.harness/`, in a [`Host`] of its own.
    ///
    /// # Errors
    ///
    /// Where any artifact cannot be used, the workspace is not a folder, or the host cannot be made.
    pub fn open(root: &Path, options: Options) -> Result<Self, OpenError> {
        Host::new(HostOptions::default())?.open(root, options)
    }

    /// The project's share of its host.
    pub fn share(&self) -> &Arc<Share> {
        self.inner.host.sandbox.share()
    }

    /// Reads the folder again and takes it in force for all calls and events that begin from then on.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open); what was in force before stays in force.
    pub fn reload(&self) -> Result<(), OpenError> {
        self.inner.reload_unless(|| false).map(|_| ())
    }

    /// What is in force now.
    pub fn loaded(&self) -> Arc<Loaded> {
        self.inner.loaded()
    }

    /// A tool that the policy allows to be called.
    ///
    /// # Errors
    ///
    /// Where there is none of this name or it may not be called.
    pub fn tool(&self, name: &str) -> Result<Arc<Tool>, CallError> {
        let loaded = self.loaded();
        let mut shown = name.to_owned();
        loaded.parts.secrets.redact(&mut shown);
        let tool = match code::tool(&loaded, &shown) {
            Some(tool) => tool.clone(),
            None => loaded.parts.registry.tool(&shown)?.clone(),
        };
        loaded.parts.policy.tools.decide(name).map_err(CallError::NotAllowed)?;
        Ok(tool)
    }

    /// Calls a tool with a JSON object of arguments.
    ///
    /// # Errors
    ///
    /// Where the call was not made at all; how a call that was made ended is in its report.
    pub async fn call(&self, name: &str, arguments: Json, run: &Arc<Run>) -> Result<CallReport, CallError> {
        self.make(Call { id: None, name: name.to_owned(), arguments }, run).await
    }

    /// The same, with what its caller calls it.
    ///
    /// # Errors
    ///
    /// As for [`call`](Self::call).
    pub async fn make(&self, call: Call, run: &Arc<Run>) -> Result<CallReport, CallError> {
        pipeline::call(&CallContext::outermost(self.loaded(), run.clone()), call, None).await
    }

    /// Makes no call, for a reason that its caller found, and records it as every other one.
    ///
    /// # Errors
    ///
    /// That reason, or why it cannot be recorded.
    pub async fn refuse(&self, call: Call, why: CallError, run: &Arc<Run>) -> Result<CallReport, CallError> {
        pipeline::refuse(&CallContext::outermost(self.loaded(), run.clone()), call, why).await
    }

    /// Whether each call and each decision so far is in the audit log. Where one is not, nothing more is called or fired.
    /// Waits with the thread for entries that are still to be written, for 5 seconds at most.
    ///
    /// # Errors
    ///
    /// Why one is missing.
    pub fn audited(&self) -> Result<(), String> {
        self.loaded().parts.recorder.as_ref().map_or(Ok(()), |recorder| recorder.settled())
    }

    /// Dispatches an event to its hooks.
    pub async fn fire(&self, event: &Event, payload: Json, run: &Arc<Run>) -> Dispatch {
        let place = CallContext::outermost(self.loaded(), run.clone());
        let named = payload.get("name").and_then(Json::as_str).filter(|_| event.is_call());
        let tool = named.and_then(|name| place.loaded.registry().tool(name).ok().cloned());
        CallContext { about: tool.map(hearing::Subject::Tool), ..place }.fire(event, payload).await
    }
}

impl Inner {
    fn new(root: &Path, options: Options, host: Host) -> Result<Self, OpenError> {
        let loaded = load(root, &options, &host, None)?;
        let current = RwLock::new(Arc::new(loaded));
        Ok(Self { root: root.to_owned(), options, host, current, reloading: Mutex::default() })
    }

    fn loaded(&self) -> Arc<Loaded> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Loads the folder again. What is loaded takes force unless that is not wanted any more; then there is nothing.
    fn reload_unless(&self, is_unwanted: impl Fn() -> bool) -> Result<Option<()>, OpenError> {
        let _reloading = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        // A link that was put on the way since leads elsewhere.
        if self.host.within_roots(&self.root)? != self.root {
            let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, "a link has taken its place");
            return Err(OpenError::Workspace { path: self.root.clone(), source });
        }
        let loaded = load(&self.root, &self.options, &self.host, Some(&self.loaded()))?;
        if is_unwanted() {
            return Ok(None);
        }
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(loaded);
        Ok(Some(()))
    }
}

/// The folder of the plugins of the machine, where these variables name one.
pub fn plugins(variables: &Variables) -> Option<PathBuf> {
    harness_plugin::cache::folder(|name| variables.value(name))
}

fn load(root: &Path, options: &Options, host: &Host, before: Option<&Loaded>) -> Result<Loaded, OpenError> {
    let _turn = host.openings.turn();
    let span = spans::load(options, before.is_some());
    let loaded = span.in_scope(|| read(root, options, host, before));
    spans::loaded(&span, &loaded);
    loaded
}

fn read(root: &Path, options: &Options, host: &Host, before: Option<&Loaded>) -> Result<Loaded, OpenError> {
    let machine = harness_registry::Host::new(&options.machine, plugins(&options.system.variables));
    let registry = Registry::load_unsaved(root, machine, &options.unsaved);
    let mut policy = match registry.policy() {
        Some(policy) if !registry.diagnostics().has_errors() => policy.clone(),
        _ => return Err(OpenError::Artifacts(Box::new(registry))),
    };
    let folder = options.workspace.as_deref().unwrap_or(root);
    let workspace =
        Workspace::open(folder).map_err(|source| OpenError::Workspace { path: folder.to_owned(), source })?;
    let workspace = workspace.with_space(options.space.clone());
    // Nor may a script work in the middle of them.
    let artifacts = registry.roots().iter().cloned().chain(sys::real_path(&root.join(HOME)));
    if artifacts.into_iter().any(|artifacts| Path::new(workspace.absolute()).starts_with(artifacts)) {
        let source = std::io::Error::new(std::io::ErrorKind::InvalidInput, "it is inside the project's artifacts");
        return Err(OpenError::Workspace { path: folder.to_owned(), source });
    }
    let secrets = guarded(root, &registry, &mut policy, &workspace, options);
    if let Some((name, mut layer)) = options.granting.clone()
        && let Ok(tool) = registry.tool(&name)
    {
        // What protects the project is not the tool's affair.
        if let (Some(fs), Some(own)) = (&mut layer.fs, &policy.project.fs) {
            fs.protect.extend(own.protect.iter().cloned());
            fs.repository.extend(own.repository.iter().cloned());
            fs.home.clone_from(&own.home);
        }
        policy.instead = Some((tool.source_name.clone(), layer));
    }
    let policy_file = &*policy.project.origin.file;
    let written = before.and_then(|before| before.parts.recorder.as_ref());
    let recorder = (options.audit && policy.audit)
        .then(|| Arc::new(Recorder::new(root, policy_file, written.map(|it| &**it), &host.audit)));
    let loaded = Loaded::new(Parts {
        secrets: Arc::new(secrets),
        system: Arc::new(options.system.clone()),
        http: host.client(&options.system, &options.outbound),
        natives: options.natives.clone(),
        coverage: options.coverage,
        ..Parts::alone(registry, policy, Arc::new(workspace), host.sandbox.clone())
    });
    let loaded = match before {
        Some(before) => loaded.with_images_of(before),
        None => loaded,
    };
    let refused = admission::refused(&loaded, recorder.as_deref());
    // As the sandbox does then: a process that drops privileges next must have no other threads. One that reloads may have
    // calls in progress, whose entries are not to be waited for.
    if before.is_none() {
        host.audit.rest();
    }
    let loaded = match refused.is_empty() {
        true => loaded,
        false => {
            let registry = loaded.parts.registry.without(refused);
            if registry.policy().is_none() {
                return Err(OpenError::Artifacts(Box::new(registry)));
            }
            Loaded::new(Parts { registry, ..loaded.parts() })
        }
    };
    let loaded = offering::applied(loaded, recorder.as_deref());
    Ok(Loaded::new(Parts { recorder, watch: options.watch.clone(), ..loaded.parts() }))
}

/// Takes from a policy what it cannot grant: what makes the project, and the files of its secrets. Gives these, opened.
fn guarded(
    root: &Path,
    registry: &Registry,
    policy: &mut ProjectPolicy,
    workspace: &Workspace,
    options: &Options,
) -> Vault {
    // What scripts may write must not become an artifact. Where a folder is, and not how it was written, counts.
    let home = sys::real_path(&root.join(HOME)).into_iter();
    for root in registry.roots().iter().cloned().chain(home) {
        let below = root.to_str().and_then(|root| WorkspacePath::parse(root, workspace.absolute()).ok());
        // One that is called so is protected by its name, and may be read.
        let below = below.filter(|path| path.parts().iter().all(|part| part != HOME));
        if let (Some(path), Some(fs)) = (below, &mut policy.project.fs) {
            fs.protect.extend(PathPattern::protecting(&path));
        }
    }
    // Nor is it created by a command where the project lies further down in the workspace.
    let below = sys::real_path(root).ok();
    let below = below.and_then(|root| WorkspacePath::parse(root.to_str()?, workspace.absolute()).ok());
    if let (Some(home), Some(fs)) = (below.filter(|path| !path.is_root()), &mut policy.project.fs) {
        fs.home = Some(home);
    }
    let named = policy.secrets.iter().map(|secret| &secret.value);
    let secrets = Vault::open(named, policy.models.key_variables(), root, &options.system.variables);
    // Whatever else the policy opens: a file that holds a secret is for the host alone.
    for file in secrets.files() {
        let below = file.to_str().and_then(|file| WorkspacePath::parse(file, workspace.absolute()).ok());
        if let (Some(path), Some(fs)) = (below, &mut policy.project.fs) {
            fs.protect.extend(PathPattern::protecting(&path));
        }
    }
    // Nor may the policy that all of this is within be read or written. What counts is its name and where that leads.
    if let (Some(machine), Some(fs)) = (registry.machine(), &mut policy.project.fs) {
        let folder = machine.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let named = sys::real_path(folder).ok().zip(machine.file_name()).map(|(folder, name)| folder.join(name));
        for place in named.into_iter().chain(sys::real_path(machine)) {
            let below = place.to_str().and_then(|place| WorkspacePath::parse(place, workspace.absolute()).ok());
            fs.protect.extend(below.and_then(|path| PathPattern::protecting(&path)));
        }
    }
    // What the next git goes by is as closed as `.git/`, which may lead to it.
    for place in repository::places(Path::new(workspace.absolute())) {
        let below = place.to_str().and_then(|place| WorkspacePath::parse(place, workspace.absolute()).ok());
        // What is protected by its name needs nothing more. In a workspace that is itself the repository `fs` looks after it.
        let below = below.filter(|path| !path.is_root() && protected::rule_against(path, Access::Write).is_none());
        if let (Some(path), Some(fs)) = (below, &mut policy.project.fs) {
            fs.repository.extend(PathPattern::protecting(&path));
        }
    }
    secrets
}

/// The artifacts of a registry that its hooks on `artifact.load` let in, with the tools of servers that those on `mcp.list`
/// leave; all of them where there is none, or where the
/// project cannot be used anyway.
///
/// # Errors
///
/// Where the sandbox or the workspace cannot be made.
pub fn admitted(root: &Path, registry: Registry) -> Result<Registry, OpenError> {
    let usable = registry.policy().is_some() && !registry.diagnostics().has_errors();
    if !usable || [Event::ArtifactLoad, Event::McpList].iter().all(|event| registry.chain(event).is_empty()) {
        return Ok(registry);
    }
    let refused = admission::refused(&for_checking(root, &registry)?, None);
    let registry = if refused.is_empty() { registry } else { registry.without(refused) };
    if registry.policy().is_none() {
        return Ok(registry);
    }
    Ok(offering::listed(&for_checking(root, &registry)?, None))
}

/// A registry's artifacts, those of one with errors too, to load their scripts and call nothing.
///
/// # Errors
///
/// Where the sandbox or the workspace cannot be made.
pub fn for_checking(root: &Path, registry: &Registry) -> Result<Loaded, OpenError> {
    // Its limits are those of loading too.
    let policy = registry.policy().cloned().unwrap_or_else(|| ProjectPolicy::absent(".harness/harness.md"));
    let sandbox = Sandbox::new(Settings { instances: 1, ..Settings::default() }).map_err(OpenError::Sandbox)?;
    let workspace = Workspace::open(root).map_err(|source| OpenError::Workspace { path: root.to_owned(), source })?;
    Ok(Loaded::new(Parts::alone(registry.clone(), policy, Arc::new(workspace), sandbox)))
}

#[cfg(test)]
mod tests;
