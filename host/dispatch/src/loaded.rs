//! A project as it was read at one moment: registry, policy, and the images of its scripts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::chain::describe_failure;
use super::images::{self, Images};
use super::loading::{LEAST_FUEL, LEAST_TIME, Load, LoadDeadline};
use super::native::NativeTool;
use super::recorder::Recorder;
use super::waiter::Waiter;
use harness_artifact::agent::{Agent, Use};
use harness_artifact::hook::Hook;
use harness_artifact::policy::ProjectPolicy;
use harness_artifact::script::Script;
use harness_artifact::third_party;
use harness_artifact::tool::Tool;
use harness_capability::fs::Workspace;
use harness_capability::http::Client;
use harness_capability::reentry::Allowance;
use harness_capability::secrets::Vault;
use harness_capability::system::System;
use harness_policy::grant::Grant;
use harness_policy::layer::Layer;
use harness_policy::limits::Limits;
use harness_policy::shared::Namespace;
use harness_policy::watch::{Watch, Watched};
use harness_registry::Registry;
use harness_sandbox::engine::{Budget, Image, LOAD_FUEL, LOAD_MEMORY, LOADS, Sandbox, ScriptError};
use harness_sandbox::imports::Role;
use harness_sandbox::outcome::{Entry, Failure, FailureKind, Limit, LimitKind, Predicate, Source};

/// A project's artifacts, ready to be called. Immutable but for images that are made when they are first wanted; calls
/// that are in progress keep the one they began with.
#[derive(Debug)]
pub struct Loaded {
    pub(crate) parts: Parts,
    /// The time of a call of the project's own, which an event by itself has too.
    pub timeout: Duration,
    tools: Known<Tool>,
    hooks: Known<Hook>,
}

/// What is needed to call an artifact, made when it is first called.
#[derive(Debug, Clone)]
pub struct Callable {
    /// Its script, loaded, or what is wrong with that. None where it has none.
    pub image: Option<Result<Image, Unloadable>>,
    /// The same of a tool's `verify`.
    pub verify: Option<Result<Image, Unloadable>>,
    /// What it may do.
    pub grant: Arc<Grant>,
    /// How long its scripts were waited for.
    pub loading: Duration,
}

/// Artifacts that have been called: neither the text of a script nor the policy is checked for each call. They are
/// found by where they are, and kept, so that no other comes to be in the same place.
type Known<A> = Mutex<HashMap<usize, (Arc<A>, Callable)>>;

fn known<A>(all: &Known<A>, artifact: &Arc<A>, waiter: Waiter<'_>) -> Option<Callable> {
    // What is known by now may not have been known then.
    if !waiter.has_clock() {
        return None;
    }
    let all = all.lock().unwrap_or_else(PoisonError::into_inner);
    all.get(&Arc::as_ptr(artifact).addr()).map(|(_, callable)| callable.clone())
}

/// Keeps what was loaded for the calls that come. Two may load it at one time, which does no harm.
fn keep<A>(all: &Known<A>, artifact: &Arc<A>, waiter: Waiter<'_>, callable: &Callable) {
    if waiter.has_clock() && callable.image.iter().chain(&callable.verify).all(images::lasts) {
        let known = Callable { loading: Duration::ZERO, ..callable.clone() };
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(Arc::as_ptr(artifact).addr(), (artifact.clone(), known));
    }
}

/// A script with whose it is.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    source: Source,
    /// The name of the artifact's source.
    of: &'a str,
    /// The artifact's own.
    capabilities: Option<&'a Layer>,
}

/// Why a script has no image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unloadable {
    /// The script's own fault.
    Script(Failure),
    /// Its time was over, which another time it may not be. With the milliseconds that it had.
    Late(Failure, u64),
    /// The host's.
    Host(String),
}

impl Unloadable {
    /// In one line.
    pub fn message(&self) -> String {
        match self {
            Self::Script(failure) | Self::Late(failure, _) => describe_failure(failure),
            Self::Host(message) => format!("the host failed: {message}"),
        }
    }
}

/// Reports a script that could not be loaded under a grant, and what line of a policy would let it.
pub(super) fn unloadable(error: ScriptError, file: &str, grant: &Grant) -> Unloadable {
    let message = error.to_string();
    match error {
        ScriptError::Script(failure) => Unloadable::Script(failure),
        ScriptError::Over(limit) => {
            let raises = raises(&limit, grant).map(|raises| format!(" ({raises})")).unwrap_or_default();
            let failure = Failure::without_place(FailureKind::Script, file, format!("{message}{raises}"));
            let (line, column) = limit.at.map_or((0, 0), |at| (at.line, at.column));
            let failure = Failure { line, column, ..failure };
            match limit.kind {
                LimitKind::Deadline => Unloadable::Late(failure, limit.allowed),
                _ => Unloadable::Script(failure),
            }
        }
        ScriptError::Host(_) => Unloadable::Host(message),
    }
}

/// What raises a limit of loading, where it is not already as much as any script gets.
fn raises(limit: &Limit, grant: &Grant) -> Option<String> {
    let most = match limit.kind {
        LimitKind::Fuel => LOAD_FUEL,
        LimitKind::Memory => LOAD_MEMORY,
        _ => u64::MAX,
    };
    let key = limit.kind.limit().filter(|_| limit.allowed < most)?;
    // Of a time that is not the script's own, no line about the script raises anything.
    let own = grant.limit(key).0;
    let least = u64::try_from(LEAST_TIME.as_millis()).unwrap_or(u64::MAX);
    if limit.kind == LimitKind::Deadline && ![own, own.max(least)].contains(&limit.allowed) {
        return Some("that is the time of the call that waits for it".to_owned());
    }
    Some(grant.raises(key))
}

/// What a project's artifacts are, and what they work with.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    pub(crate) registry: Registry,
    pub(crate) policy: ProjectPolicy,
    pub(crate) workspace: Arc<Workspace>,
    pub(crate) sandbox: Sandbox,
    /// The machine as the project sees it.
    pub(crate) system: Arc<System>,
    /// Sends the project's requests.
    pub(crate) http: Arc<Client>,
    /// The secrets of the policy with their values.
    pub(crate) secrets: Arc<Vault>,
    pub(crate) natives: Vec<(String, Arc<dyn NativeTool>)>,
    /// Whether scripts report which of their lines they reach.
    pub(crate) coverage: bool,
    /// Where calls and decisions are recorded, where they are.
    pub(crate) recorder: Option<Arc<Recorder>>,
    /// Receives what artifacts ask for.
    pub(crate) watch: Option<Arc<Watch>>,
    /// The agents of plugins that it is for, by their sources: none has more tools than the ones that are lent to it.
    pub(crate) borrowers: Vec<String>,
    /// Shared with the same project as its agents have it.
    pub(crate) images: Arc<Images>,
}

impl Parts {
    /// Artifacts by themselves, for looking at them: nothing is recorded, and there is neither a secret nor a variable.
    pub(crate) fn alone(
        registry: Registry,
        policy: ProjectPolicy,
        workspace: Arc<Workspace>,
        sandbox: Sandbox,
    ) -> Self {
        Self {
            registry,
            policy,
            workspace,
            sandbox,
            system: Arc::default(),
            http: Arc::default(),
            secrets: Arc::default(),
            natives: Vec::new(),
            coverage: false,
            recorder: None,
            watch: None,
            borrowers: Vec::new(),
            images: Arc::default(),
        }
    }
}

impl Loaded {
    pub(crate) fn new(parts: Parts) -> Self {
        let timeout = Grant::new(vec![parts.policy.project.clone()]).limits().timeout;
        Self { parts, timeout, tools: Known::default(), hooks: Known::default() }
    }

    /// What it consists of, for one that differs in some of it.
    pub(crate) fn parts(&self) -> Parts {
        self.parts.clone()
    }

    /// The same with the images of another one whose scripts are the same.
    pub(crate) fn with_images_of(self, other: &Self) -> Self {
        let images = Arc::new(other.parts.images.of(self.scripts().map(|script| script.source)));
        Self::new(Parts { images, ..self.parts() })
    }

    /// The same project with something else granted to one source, for a case. Nothing is recorded of it.
    pub(super) fn granting(&self, source: &str, layer: &Layer) -> Self {
        let policy = self.parts.policy.granting(source, layer);
        Self::new(Parts { policy, recorder: None, ..self.parts() })
    }

    /// The same project with some of its hooks. Nothing is recorded of it.
    pub(super) fn with_hooks(&self, keep: impl Fn(&Hook) -> bool) -> Self {
        let registry = self.parts.registry.with_hooks(keep);
        Self::new(Parts { registry, recorder: None, watch: None, ..self.parts() })
    }

    /// The same project as an agent has it: see [`Registry::of_agent`]. Where another agent has set it to work, without
    /// that one's own tools; all its hooks stay.
    pub fn of_agent(&self, agent: &Agent, by: Option<&Agent>) -> Self {
        let Parts { registry, mut policy, mut borrowers, .. } = self.parts();
        if let Some(own) = &agent.tools_policy {
            policy.tools = own.clone().narrowed_by(policy.tools);
        }
        let lent = |tool: &Tool| policy.lends(&agent.source_name, tool);
        let registry = by.map_or(registry, |by| self.parts.registry.without_tools_of(by)).of_agent(agent, lent);
        if third_party::author(&agent.source_name).is_some() {
            borrowers.push(agent.source_name.clone());
        }
        Self::new(Parts { registry, policy, borrowers, ..self.parts() })
    }

    /// Whether whoever it is for may call a tool that the run has added.
    pub fn lends(&self, tool: &Tool) -> bool {
        self.parts.borrowers.iter().all(|agent| self.parts.policy.lends(agent, tool))
    }

    /// The artifacts.
    pub fn registry(&self) -> &Registry {
        &self.parts.registry
    }

    /// The policy.
    pub fn policy(&self) -> &ProjectPolicy {
        &self.parts.policy
    }

    /// The secrets of the policy.
    pub fn secrets(&self) -> &Arc<Vault> {
        &self.parts.secrets
    }

    /// The machine as the project sees it, and who sends its requests.
    pub fn outside(&self) -> (Arc<System>, Arc<Client>) {
        (self.parts.system.clone(), self.parts.http.clone())
    }

    /// The sandbox that scripts run in.
    pub fn sandbox(&self) -> &Sandbox {
        &self.parts.sandbox
    }

    /// The folder that tools work in.
    pub fn workspace(&self) -> &Arc<Workspace> {
        &self.parts.workspace
    }

    /// What a tool may do: the project's policy, narrowed by its source's and by its own `capabilities:`.
    pub fn grant(&self, tool: &Tool) -> Grant {
        self.watched(&tool.source_name, self.parts.policy.grant_of(tool))
    }

    /// What a hook may do, within what hooks may do at all.
    pub fn hook_grant(&self, hook: &Hook) -> Grant {
        self.watched(&hook.source_name, self.parts.policy.grant_for(&hook.source_name, hook.capabilities.as_ref()))
    }

    /// The names of the plugin that a source is of; none where it is of none.
    pub fn namespace(&self, source: &str) -> Option<Arc<Namespace>> {
        self.parts.policy.namespace(source).map(Arc::new)
    }

    fn watched(&self, source: &str, grant: Grant) -> Grant {
        grant.watched(self.parts.watch.clone().map(|watch| Watched { watch, source: source.into() }))
    }

    /// The limits of a call of this tool under a grant: the grant's, and for the time what the tool asks for.
    pub fn limits(&self, tool: &Tool, grant: &Grant) -> Limits {
        let deadline = grant.deadline(tool.asked(), tool.author());
        self.measured(Limits { timeout: Duration::from_millis(deadline.ms), ..grant.limits() })
    }

    /// Limits for scripts that show which lines they reach, which takes fuel of its own.
    pub fn measured(&self, limits: Limits) -> Limits {
        Limits { fuel: limits.fuel.saturating_mul(self.times()), ..limits }
    }

    /// How much more fuel that is.
    fn times(&self) -> u64 {
        if self.parts.coverage { 4 } else { 1 }
    }

    /// What is needed to call a tool; its scripts are waited for as long as `until` says of its limits.
    pub async fn tool(
        &self,
        tool: &Arc<Tool>,
        waiter: Waiter<'_>,
        until: impl FnOnce(Limits) -> Option<LoadDeadline>,
    ) -> Callable {
        if let Some(known) = known(&self.tools, tool, waiter) {
            return known;
        }
        // In a box: loading is rare, and its state would be in each frame of all calls.
        Box::pin(async {
            let grant = self.grant(tool);
            let until = until(self.limits(tool, &grant));
            let mut callable = self.callable(self.tool_script(tool), grant, waiter, until).await;
            if let Some(script) = self.tool_verify(tool) {
                let (image, loading) = self.image(script, waiter, until).await;
                callable.verify = Some(image);
                callable.loading = callable.loading.saturating_add(loading);
            }
            keep(&self.tools, tool, waiter, &callable);
            callable
        })
        .await
    }

    /// What is needed to call a hook; its script is waited for until then.
    pub async fn hook(&self, hook: &Arc<Hook>, waiter: Waiter<'_>, until: Option<LoadDeadline>) -> Callable {
        if let Some(known) = known(&self.hooks, hook, waiter) {
            return known;
        }
        Box::pin(async {
            let callable = self.callable(self.hook_script(hook), self.hook_grant(hook), waiter, until).await;
            keep(&self.hooks, hook, waiter, &callable);
            callable
        })
        .await
    }

    async fn callable(
        &self,
        script: Option<Wanted<'_>>,
        grant: Grant,
        waiter: Waiter<'_>,
        until: Option<LoadDeadline>,
    ) -> Callable {
        let (image, loading) = match script {
            Some(script) => {
                let (image, loading) = self.image(script, waiter, until).await;
                (Some(image), loading)
            }
            None => (None, Duration::ZERO),
        };
        Callable { image, verify: None, grant: Arc::new(grant), loading }
    }

    /// The image of a script, loaded on another thread where it is not kept, and how long it was waited for: no longer
    /// than until then. The load continues.
    pub async fn image(
        &self,
        script: Wanted<'_>,
        waiter: Waiter<'_>,
        until: Option<LoadDeadline>,
    ) -> (Result<Image, Unloadable>, Duration) {
        let kept = self.parts.images.get(&script.source);
        if let Some(image) = kept.clone().filter(|_| waiter.has_clock()) {
            return (image, Duration::ZERO);
        }
        let started = Instant::now();
        let wait = waiter.begin(&script.source);
        let load = Load { has_clock: waiter.has_clock(), ..self.load_of(script) };
        let (file, grant) = (load.source.file.clone(), load.grant.clone());
        let loaded = async {
            let image = match (kept, until) {
                (Some(image), _) => image,
                (None, Some(until)) => tokio::time::timeout_at(until.at.into(), load.concurrent())
                    .await
                    .unwrap_or_else(|_| Err(unloadable(ScriptError::Over(until.limit()), &file, &grant))),
                (None, None) => load.concurrent().await,
            };
            // It is paid for by the script's source, and not by who waits.
            (image, 0)
        };
        let (image, _) = wait.ended(loaded).await;
        (image, started.elapsed())
    }

    /// The same here and now, for who has no call that waits.
    pub fn image_now(&self, script: Wanted<'_>) -> Result<Image, Unloadable> {
        self.parts.images.get(&script.source).unwrap_or_else(|| self.load_of(script).now())
    }

    fn load_of(&self, script: Wanted<'_>) -> Load {
        let grant = self.parts.policy.grant_for(script.of, script.capabilities);
        Load {
            sandbox: self.parts.sandbox.clone(),
            images: self.parts.images.clone(),
            source: script.source,
            of: script.of.to_owned(),
            limits: self.measured(grant.limits()),
            grant,
            times: self.times(),
            has_clock: true,
        }
    }

    /// Loads a script that is not kept, for who has this left and this grant. What it took comes back with it.
    pub async fn load(
        &self,
        source: Source,
        waiter: Waiter<'_>,
        grant: &Grant,
        left: Allowance,
    ) -> (Result<Image, Unloadable>, u64) {
        let limits = grant.limits();
        let budget = Budget {
            fuel: self
                .measured(Limits { fuel: limits.fuel.clamp(LEAST_FUEL, LOAD_FUEL), ..limits })
                .fuel
                .min(left.fuel),
            memory: limits.memory_bytes.min(LOAD_MEMORY),
            deadline: Some(left.deadline),
            milliseconds: u64::try_from(limits.timeout.as_millis()).unwrap_or(u64::MAX),
        };
        let (wait, file) = (waiter.begin(&source), source.file.clone());
        let loaded = async {
            let (image, fuel) = self.parts.sandbox.load_beside(source, budget).await;
            (image.map_err(|error| unloadable(error, &file, grant)), fuel)
        };
        wait.ended(loaded).await
    }

    /// Any component instead of the script of a tool or a hook, made where that place is not taken: as
    /// [`Sandbox::foreign`], and for tests as that is.
    ///
    /// # Errors
    ///
    /// Where there is nothing of this name with a script, or for the reasons of [`Sandbox::foreign`].
    #[doc(hidden)]
    pub fn stand_in(&self, name: &str, component: impl FnOnce() -> Vec<u8>) -> wasmtime::Result<()> {
        let tool = self.parts.registry.tool(name).ok().and_then(|tool| self.tool_source(tool));
        let hook = || self.parts.registry.hook(name).and_then(|hook| self.hook_source(hook));
        let source = tool.or_else(hook).ok_or_else(|| wasmtime::format_err!("`{name}` has no script"))?;
        if self.parts.images.get(&source).is_none() {
            let role = match source.entry {
                Entry::Tool => Role::Tool,
                Entry::Hook => Role::Hook,
            };
            let image = self.parts.sandbox.foreign(&component(), role, &source.file)?;
            let _ = self.parts.images.keep(source, "", Ok(image));
        }
        Ok(())
    }

    /// Loads every script, on as many threads as the machine has cores; what cannot be loaded comes back, in the order
    /// of the registry, tools first.
    pub fn load_all(&self) -> Vec<Unloadable> {
        let scripts: Vec<Wanted<'_>> = self.scripts().collect();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = cores.min(LOADS as usize).min(scripts.len().max(1));
        let next = std::sync::atomic::AtomicUsize::new(0);
        let failures = Mutex::new(Vec::new());
        let heavy = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        let Some(script) = scripts.get(index) else { break };
                        let known = self.parts.images.get(&script.source);
                        match known.or_else(|| self.load_of(script.clone()).if_little()) {
                            Some(Ok(_)) => {}
                            Some(Err(failure)) => {
                                failures.lock().unwrap_or_else(PoisonError::into_inner).push((index, failure));
                            }
                            None => heavy.lock().unwrap_or_else(PoisonError::into_inner).push(index),
                        }
                    }
                });
            }
        });
        let mut failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
        // What is paid from the budget of a source is loaded in order: which of them are too much is no matter of luck.
        let mut heavy = heavy.into_inner().unwrap_or_else(PoisonError::into_inner);
        heavy.sort_unstable();
        for index in heavy {
            let loaded = scripts.get(index).map(|script| self.image_now(script.clone()));
            failures.extend(loaded.and_then(Result::err).map(|failure| (index, failure)));
        }
        failures.sort_by_key(|(index, _)| *index);
        failures.into_iter().map(|(_, failure)| failure).collect()
    }

    /// All scripts, those of agents' own tools and hooks too.
    fn scripts(&self) -> impl Iterator<Item = Wanted<'_>> {
        let agents = self.parts.registry.agents();
        let own_tools = agents.iter().flat_map(|agent| &agent.tools).filter_map(Use::inline);
        let own_tools = own_tools.flat_map(|tool| self.tool_scripts(tool));
        let own_hooks = agents.iter().flat_map(|agent| &agent.hooks).filter_map(Use::inline);
        let own_hooks = own_hooks.filter_map(|hook| self.hook_script(hook));
        let tools = self.parts.registry.tools().iter().flat_map(|tool| self.tool_scripts(tool));
        tools
            .chain(self.parts.registry.hooks().iter().filter_map(|hook| self.hook_script(hook)))
            .chain(own_tools)
            .chain(own_hooks)
            .chain(self.verify_script())
    }

    /// The script of a tool.
    pub fn tool_script<'a>(&self, tool: &'a Tool) -> Option<Wanted<'a>> {
        let source = self.tool_source(tool)?;
        Some(Wanted { source, of: &tool.source_name, capabilities: tool.capabilities.as_ref() })
    }

    /// The script that judges what a tool did. Its lines are not told of: no case is about it.
    fn tool_verify<'a>(&self, tool: &'a Tool) -> Option<Wanted<'a>> {
        let script = tool.verify.as_ref()?;
        let source = source_of(script, &tool.source.file, Entry::Tool);
        Some(Wanted { source, of: &tool.source_name, capabilities: tool.capabilities.as_ref() })
    }

    fn tool_scripts<'a>(&self, tool: &'a Tool) -> impl Iterator<Item = Wanted<'a>> {
        self.tool_script(tool).into_iter().chain(self.tool_verify(tool))
    }

    /// The script of a hook.
    pub fn hook_script<'a>(&self, hook: &'a Hook) -> Option<Wanted<'a>> {
        let source = self.hook_source(hook)?;
        Some(Wanted { source, of: &hook.source_name, capabilities: hook.capabilities.as_ref() })
    }

    /// The script of the policy that judges what sub-agents return.
    pub fn verify_script(&self) -> Option<Wanted<'static>> {
        self.verify_source().map(|source| Wanted { source, of: "", capabilities: None })
    }

    fn verify_source(&self) -> Option<Source> {
        // Of the project itself: what is only checked is loaded without its policy.
        let policy = self.parts.registry.policy()?;
        let script = policy.delegation.verify.as_ref()?;
        Some(source_of(script, &policy.project.origin.file, Entry::Tool))
    }

    /// A tool's script as the interpreter takes it.
    pub fn tool_source(&self, tool: &Tool) -> Option<Source> {
        let script = tool.script.as_ref()?;
        Some(Source { coverage: self.parts.coverage, ..source_of(script, &tool.source.file, Entry::Tool) })
    }

    /// A hook's script and its `when` as the interpreter takes them; none where it has neither.
    pub fn hook_source(&self, hook: &Hook) -> Option<Source> {
        if hook.script.is_none() && hook.when.is_none() {
            return None;
        }
        let (text, first_line, indent) = hook
            .script
            .as_ref()
            .map_or((String::new(), 1, 0), |script| (script.text.clone(), script.first_line, script.indent));
        let predicate = hook.when.as_ref().map(|when| Predicate {
            text: when.text.clone(),
            line: when.first_line,
            column: when.indent.saturating_add(1),
        });
        Some(Source {
            file: hook.source.file.to_string(),
            text,
            first_line,
            indent,
            entry: Entry::Hook,
            predicate,
            coverage: self.parts.coverage,
        })
    }
}

/// A script as the interpreter takes it.
fn source_of(script: &Script, file: &str, entry: Entry) -> Source {
    Source {
        file: file.to_owned(),
        text: script.text.clone(),
        first_line: script.first_line,
        indent: script.indent,
        entry,
        predicate: None,
        coverage: false,
    }
}
