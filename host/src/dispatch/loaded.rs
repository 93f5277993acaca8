//! A project as it was read at one moment: registry, policy, and the images of its scripts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::chain::told;
use super::images::{self, Images};
use super::native::NativeTool;
use super::recorder::Recorder;
use crate::artifact::agent::{Agent, Use};
use crate::artifact::hook::Hook;
use crate::artifact::policy::ProjectPolicy;
use crate::artifact::third_party;
use crate::artifact::tool::Tool;
use crate::capability::fs::Workspace;
use crate::capability::reentry::Allowance;
use crate::capability::secrets::Vault;
use crate::policy::grant::Grant;
use crate::policy::layer::Layer;
use crate::policy::limits::Limits;
use crate::policy::watch::{Watch, Watched};
use crate::registry::Registry;
use crate::sandbox::engine::{Budget, Image, LOAD_FUEL, LOAD_MEMORY, LOADS, Sandbox, ScriptError};
use crate::sandbox::imports::Role;
use crate::sandbox::outcome::{Entry, Failure, FailureKind, Limit, LimitKind, Predicate, Source};

/// Fuel that loading a script may use whatever its limits say: three times what the largest of the shipped ones takes.
const LEAST_FUEL: u64 = 100_000_000;
/// Time that it may take whatever its limits say: a machine that is busy must not decide what can be loaded.
const LEAST_TIME: Duration = Duration::from_secs(1);

/// A project's artifacts, ready to be called. Immutable but for images that are made when they are first wanted; calls
/// that are under way keep the one they began with.
#[derive(Debug)]
pub struct Loaded {
    pub(crate) registry: Registry,
    pub(crate) policy: ProjectPolicy,
    pub(crate) workspace: Arc<Workspace>,
    pub(crate) sandbox: Sandbox,
    pub(crate) natives: Vec<(String, Arc<dyn NativeTool>)>,
    /// Whether scripts tell which of their lines they reach.
    pub(crate) coverage: bool,
    /// The secrets of the policy with their values.
    pub(crate) secrets: Arc<Vault>,
    /// Where calls and decisions are recorded, where they are.
    pub(crate) recorder: Option<Arc<Recorder>>,
    /// Who is told of what artifacts ask for.
    pub(crate) watch: Option<Arc<Watch>>,
    /// The agents of plugins that it is for, by their sources: none has more tools than the ones that are lent to it.
    borrowers: Vec<String>,
    /// Shared with the same project as its agents have it.
    images: Arc<Images>,
    tools: Known<Tool>,
    hooks: Known<Hook>,
}

/// What is needed to call an artifact, made when it is first called.
#[derive(Debug, Clone)]
pub(crate) struct Callable {
    /// Its script, loaded, or what is wrong with that. None where it has none.
    pub(crate) image: Option<Result<Image, Unloadable>>,
    /// What it may do.
    pub(crate) grant: Arc<Grant>,
}

/// Artifacts that have been called: neither the text of a script nor the policy is looked at for each call. They are
/// found by where they are, and kept, so that no other comes to be in the same place.
type Known<A> = Mutex<HashMap<usize, (Arc<A>, Callable)>>;

async fn known<A>(all: &Known<A>, artifact: &Arc<A>, make: impl Future<Output = Callable>) -> Callable {
    let place = Arc::as_ptr(artifact).addr();
    let all = || all.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, callable)) = all().get(&place) {
        return callable.clone();
    }
    // Not under the lock: loading takes milliseconds, and doing it twice does no harm.
    let callable = make.await;
    if callable.image.as_ref().is_none_or(images::lasts) {
        all().insert(place, (artifact.clone(), callable.clone()));
    }
    callable
}

/// A script with whose it is.
#[derive(Debug, Clone)]
pub(crate) struct Wanted<'a> {
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
    /// Its time was over, which another time it may not be.
    Late(Failure),
    /// The host's.
    Host(String),
}

impl Unloadable {
    /// In one line.
    pub(crate) fn told(&self) -> String {
        match self {
            Self::Script(failure) | Self::Late(failure) => told(failure),
            Self::Host(message) => format!("the host failed: {message}"),
        }
    }
}

/// Tells of a script that could not be loaded under a grant, and what line of a policy would let it.
fn unloadable(error: ScriptError, file: &str, grant: &Grant) -> Unloadable {
    let message = error.to_string();
    match error {
        ScriptError::Script(failure) => Unloadable::Script(failure),
        ScriptError::Over(limit) => {
            let raises = raises(limit, grant).map(|raises| format!(" ({raises})")).unwrap_or_default();
            let failure = Failure::without_place(FailureKind::Script, file, format!("{message}{raises}"));
            if limit.kind == LimitKind::Deadline { Unloadable::Late(failure) } else { Unloadable::Script(failure) }
        }
        ScriptError::Host(_) => Unloadable::Host(message),
    }
}

/// What raises a limit of loading, where it is not already as much as any script gets.
fn raises(limit: Limit, grant: &Grant) -> Option<String> {
    let most = match limit.kind {
        LimitKind::Fuel => LOAD_FUEL,
        LimitKind::Memory => LOAD_MEMORY,
        _ => u64::MAX,
    };
    limit.kind.limit().filter(|_| limit.allowed < most).map(|key| grant.raises(key))
}

impl Loaded {
    pub(crate) fn new(
        registry: Registry,
        policy: ProjectPolicy,
        workspace: Arc<Workspace>,
        sandbox: Sandbox,
        natives: Vec<(String, Arc<dyn NativeTool>)>,
        coverage: bool,
    ) -> Self {
        Self {
            registry,
            policy,
            workspace,
            sandbox,
            natives,
            coverage,
            secrets: Arc::default(),
            recorder: None,
            watch: None,
            borrowers: Vec::new(),
            images: Arc::default(),
            tools: Known::default(),
            hooks: Known::default(),
        }
    }

    /// The same with the images of another one whose scripts are the same.
    pub(crate) fn with_images_of(mut self, other: &Self) -> Self {
        self.images = Arc::new(other.images.of(self.scripts().map(|script| script.source)));
        self
    }

    /// The same project as an agent has it: see [`Registry::of_agent`]. Where another agent has set it to work, without
    /// that one's own tools; all its hooks stay.
    pub(crate) fn of_agent(&self, agent: &Agent, by: Option<&Agent>) -> Self {
        let registry = by.map(|by| self.registry.without_tools_of(by));
        let mut policy = self.policy.clone();
        if let Some(own) = &agent.tools_policy {
            policy.tools = own.clone().within(policy.tools);
        }
        let lent = |tool: &Tool| policy.lends(&agent.source_name, tool);
        let registry = registry.as_ref().unwrap_or(&self.registry).of_agent(agent, lent);
        let mut loaded = Self::new(
            registry,
            policy,
            self.workspace.clone(),
            self.sandbox.clone(),
            self.natives.clone(),
            self.coverage,
        );
        loaded.images = self.images.clone();
        loaded.recorder.clone_from(&self.recorder);
        loaded.secrets = self.secrets.clone();
        loaded.borrowers.clone_from(&self.borrowers);
        if third_party::author(&agent.source_name).is_some() {
            loaded.borrowers.push(agent.source_name.clone());
        }
        loaded
    }

    /// Whether whoever it is for may call a tool that the run has added.
    pub(crate) fn lends(&self, tool: &Tool) -> bool {
        self.borrowers.iter().all(|agent| self.policy.lends(agent, tool))
    }

    /// The artifacts.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The policy.
    pub fn policy(&self) -> &ProjectPolicy {
        &self.policy
    }

    /// The secrets of the policy.
    pub fn secrets(&self) -> &Vault {
        &self.secrets
    }

    /// The sandbox that scripts run in.
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// The folder that tools work in.
    pub fn workspace(&self) -> &Arc<Workspace> {
        &self.workspace
    }

    /// What a tool may do: the project's policy, narrowed by its source's and by its own `capabilities:`.
    pub fn grant(&self, tool: &Tool) -> Grant {
        self.watched(&tool.source_name, self.policy.grant_for(&tool.source_name, tool.capabilities.as_ref()))
    }

    /// What a hook may do, within what hooks may do at all.
    pub fn hook_grant(&self, hook: &Hook) -> Grant {
        self.watched(&hook.source_name, self.policy.grant_for(&hook.source_name, hook.capabilities.as_ref()))
    }

    fn watched(&self, source: &str, grant: Grant) -> Grant {
        grant.watched(self.watch.clone().map(|watch| Watched { watch, source: source.into() }))
    }

    /// The limits of a call of this tool under a grant: the grant's, and the tool's own `timeout_ms` where that is
    /// shorter.
    pub fn limits(&self, tool: &Tool, grant: &Grant) -> Limits {
        let mut limits = grant.limits();
        if let Some(own) = &tool.timeout_ms {
            limits.timeout = limits.timeout.min(Duration::from_millis(own.value));
        }
        self.measured(limits)
    }

    /// Limits for scripts that tell which lines they reach, which takes fuel of its own.
    pub(crate) fn measured(&self, limits: Limits) -> Limits {
        let times = if self.coverage { 4 } else { 1 };
        Limits { fuel: limits.fuel.saturating_mul(times), ..limits }
    }

    /// What is needed to call a tool, by who has this left.
    pub(crate) async fn tool(&self, tool: &Arc<Tool>, left: Option<Allowance>) -> Callable {
        let make = async {
            Callable { image: self.loaded(self.tool_script(tool), left).await, grant: Arc::new(self.grant(tool)) }
        };
        known(&self.tools, tool, make).await
    }

    /// What is needed to call a hook, by who has this left.
    pub(crate) async fn hook(&self, hook: &Arc<Hook>, left: Option<Allowance>) -> Callable {
        let make = async {
            Callable { image: self.loaded(self.hook_script(hook), left).await, grant: Arc::new(self.hook_grant(hook)) }
        };
        known(&self.hooks, hook, make).await
    }

    async fn loaded(&self, script: Option<Wanted<'_>>, left: Option<Allowance>) -> Option<Result<Image, Unloadable>> {
        match script {
            Some(script) => Some(self.image(script, left).await),
            None => None,
        }
    }

    /// The image of a script, loaded on another thread where it is not kept, until the deadline of who waits for it.
    pub(crate) async fn image(&self, script: Wanted<'_>, left: Option<Allowance>) -> Result<Image, Unloadable> {
        if let Some(image) = self.images.get(&script.source) {
            return image;
        }
        let grant = self.grant_of(&script);
        let budget = self.budget(&grant, left);
        let (image, _) = self.sandbox.load_beside(script.source.clone(), budget).await;
        self.keep(script, image, &grant)
    }

    /// The same here and now, for who has no call that waits.
    pub(crate) fn image_now(&self, script: Wanted<'_>) -> Result<Image, Unloadable> {
        if let Some(image) = self.images.get(&script.source) {
            return image;
        }
        let grant = self.grant_of(&script);
        let (image, _) = self.sandbox.load_within(&script.source, self.budget(&grant, None));
        self.keep(script, image, &grant)
    }

    fn keep(&self, script: Wanted<'_>, image: Result<Image, ScriptError>, grant: &Grant) -> Result<Image, Unloadable> {
        let image = image.map_err(|error| unloadable(error, &script.source.file, grant));
        self.images.keep(script.source, script.of, image)
    }

    /// Loads a script that is not kept, for who has this left and this grant. What it took comes back with it.
    pub(crate) async fn load(
        &self,
        source: Source,
        grant: &Grant,
        left: Allowance,
    ) -> (Result<Image, Unloadable>, u64) {
        let budget = self.budget(grant, Some(left));
        let budget = Budget { fuel: budget.fuel.min(left.fuel), ..budget };
        let file = source.file.clone();
        let (image, fuel) = self.sandbox.load_beside(source, budget).await;
        (image.map_err(|error| unloadable(error, &file, grant)), fuel)
    }

    fn grant_of(&self, script: &Wanted<'_>) -> Grant {
        self.policy.grant_for(script.of, script.capabilities)
    }

    /// What loading a script may use: what a call of it may, but for what every script needs. Its fuel does not depend on
    /// who wants it, because its image is for all.
    fn budget(&self, grant: &Grant, left: Option<Allowance>) -> Budget {
        let limits = grant.limits();
        let timeout = limits.timeout.max(LEAST_TIME);
        let own = Instant::now() + timeout;
        Budget {
            fuel: self.measured(Limits { fuel: limits.fuel.clamp(LEAST_FUEL, LOAD_FUEL), ..limits }).fuel,
            memory: limits.memory_bytes.min(LOAD_MEMORY),
            deadline: Some(left.map_or(own, |left| own.min(left.deadline))),
            milliseconds: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Any component in the place of the script of a tool or a hook, made where that place is not taken: as
    /// [`Sandbox::foreign`], and for tests as that is.
    ///
    /// # Errors
    ///
    /// Where there is nothing of this name with a script, or for the reasons of [`Sandbox::foreign`].
    #[doc(hidden)]
    pub fn stand_in(&self, name: &str, component: impl FnOnce() -> Vec<u8>) -> wasmtime::Result<()> {
        let tool = self.registry.tool(name).ok().and_then(|tool| self.tool_source(tool));
        let hook = || self.registry.hook(name).and_then(|hook| self.hook_source(hook));
        let source = tool.or_else(hook).ok_or_else(|| wasmtime::format_err!("`{name}` has no script"))?;
        if self.images.get(&source).is_none() {
            let role = match source.entry {
                Entry::Tool => Role::Tool,
                Entry::Hook => Role::Hook,
            };
            let image = self.sandbox.foreign(&component(), role, &source.file)?;
            let _ = self.images.keep(source, "", Ok(image));
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
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        let Some(script) = scripts.get(index) else { break };
                        if let Err(failure) = self.image_now(script.clone()) {
                            failures.lock().unwrap_or_else(PoisonError::into_inner).push((index, failure));
                        }
                    }
                });
            }
        });
        let mut failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
        failures.sort_by_key(|(index, _)| *index);
        failures.into_iter().map(|(_, failure)| failure).collect()
    }

    /// All scripts, those of agents' own tools and hooks too.
    fn scripts(&self) -> impl Iterator<Item = Wanted<'_>> {
        let agents = self.registry.agents();
        let own_tools = agents.iter().flat_map(|agent| &agent.tools).filter_map(Use::inline);
        let own_tools = own_tools.filter_map(|tool| self.tool_script(tool));
        let own_hooks = agents.iter().flat_map(|agent| &agent.hooks).filter_map(Use::inline);
        let own_hooks = own_hooks.filter_map(|hook| self.hook_script(hook));
        let tools = self.registry.tools().iter().filter_map(|tool| self.tool_script(tool));
        tools
            .chain(self.registry.hooks().iter().filter_map(|hook| self.hook_script(hook)))
            .chain(own_tools)
            .chain(own_hooks)
            .chain(self.verify_script())
    }

    /// The script of a tool.
    pub(crate) fn tool_script<'a>(&self, tool: &'a Tool) -> Option<Wanted<'a>> {
        let source = self.tool_source(tool)?;
        Some(Wanted { source, of: &tool.source_name, capabilities: tool.capabilities.as_ref() })
    }

    /// The script of a hook.
    pub(crate) fn hook_script<'a>(&self, hook: &'a Hook) -> Option<Wanted<'a>> {
        let source = self.hook_source(hook)?;
        Some(Wanted { source, of: &hook.source_name, capabilities: hook.capabilities.as_ref() })
    }

    /// The script of the policy that judges what sub-agents give back.
    pub(crate) fn verify_script(&self) -> Option<Wanted<'static>> {
        self.verify_source().map(|source| Wanted { source, of: "", capabilities: None })
    }

    fn verify_source(&self) -> Option<Source> {
        // Of the project itself: what is only checked is loaded without its policy.
        let policy = self.registry.policy()?;
        let script = policy.delegation.verify.as_ref()?;
        Some(Source {
            file: policy.project.origin.file.clone(),
            text: script.text.clone(),
            first_line: script.first_line,
            indent: script.indent,
            entry: Entry::Tool,
            predicate: None,
            coverage: false,
        })
    }

    /// A tool's script as the interpreter takes it.
    pub(crate) fn tool_source(&self, tool: &Tool) -> Option<Source> {
        let script = tool.script.as_ref()?;
        Some(Source {
            file: tool.source.file.to_string(),
            text: script.text.clone(),
            first_line: script.first_line,
            indent: script.indent,
            entry: Entry::Tool,
            predicate: None,
            coverage: self.coverage,
        })
    }

    /// A hook's script and its `when` as the interpreter takes them; none where it has neither.
    pub(crate) fn hook_source(&self, hook: &Hook) -> Option<Source> {
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
            coverage: self.coverage,
        })
    }
}
