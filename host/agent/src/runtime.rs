//! An agent at work: its artifacts, its model, its place in the tree of those that set each other to work.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::activity::Activity;
use super::failures::Failures;
use super::ledger::{Counted, Ledger};
use super::listener::{AgentEvent, EventSource, Listener};
use super::models::{Model, Models};
use super::partial::Partial;
use super::settings::Settings;
use super::skills;
use harness_artifact::agent::Agent;
use harness_artifact::skill::Skill;
use harness_artifact::third_party;
use harness_artifact::tool::{ParameterType, Tool};
use harness_dispatch::builtin::{
    DELEGATE, DELEGATE_ASYNC, DELEGATE_AWAIT, DELEGATE_STATUS, DONE, READ_SKILL, TASK_AWAIT, TASK_POLL,
};
use harness_dispatch::chain::CallContext;
use harness_dispatch::payload::AgentAt;
use harness_dispatch::tasks::Tasks;
use harness_dispatch::{CallError, Loaded, Run, code};
use harness_policy::grant::Grant;
use harness_policy::layer::Service;
use harness_provider::ToolSchema;

/// What all agents of a session share.
#[derive(Debug)]
pub(super) struct Crew {
    pub(super) models: Arc<dyn Models>,
    pub(super) listener: Arc<dyn Listener>,
    pub(super) settings: Settings,
    /// What the models' services have counted for all of them.
    pub(super) counted: Counted,
    /// What the last turn of the root did.
    activity: Mutex<Activity>,
}

impl Crew {
    pub(super) fn new(models: Arc<dyn Models>, listener: Arc<dyn Listener>, settings: Settings) -> Self {
        Self { models, listener, settings, counted: Counted::default(), activity: Mutex::default() }
    }

    /// A turn of the root is over.
    pub(super) fn keep(&self, activity: Activity) {
        *self.activity.lock().unwrap_or_else(PoisonError::into_inner) = activity;
    }

    /// What it did.
    pub(super) fn activity(&self) -> Activity {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// An agent at work.
#[derive(Debug)]
pub(super) struct Runtime {
    pub(super) crew: Arc<Crew>,
    /// Of the delegation that it works for; `root` at the root.
    pub(super) id: String,
    /// The one that set it to work.
    pub(super) parent: Option<String>,
    /// The names from the root's first sub-agent to its own; none at the root.
    pub(super) lineage: Vec<String>,
    /// The artifacts as it has them.
    pub(super) loaded: Arc<Loaded>,
    /// Its file; none at the root.
    pub(super) agent: Option<Arc<Agent>>,
    pub(super) prompt: String,
    /// Its own; none where it is the project's.
    pub(super) model: Option<Model>,
    /// The one that was chosen for the rest of the session instead.
    chosen: Mutex<Option<Model>>,
    /// The grant of the script that set it to work, where one did, and its own, where it has one: none of its calls gets
    /// more than both.
    pub(super) caller: Option<Arc<Grant>>,
    pub(super) built_ins: Vec<Arc<Tool>>,
    /// The skills that it may read.
    pub(super) skills: Vec<Arc<Skill>>,
    /// What it has started and not waited for.
    pub(super) tasks: Arc<Tasks>,
    /// Of its task; of the root, of its turn.
    ledger: Mutex<Arc<Ledger>>,
    /// The same for what its calls have come to.
    pub(super) failures: Failures,
    /// What its turn has shown of an answer that is not there yet.
    pub(super) partial: Partial,
    /// The artifacts as its sub-agents have them, by their names.
    children: Mutex<HashMap<String, Arc<Loaded>>>,
    /// How many tokens the service of a model counts for one that is estimated here, by the model's name.
    scales: Mutex<HashMap<String, f64>>,
}

impl Runtime {
    /// The agent of `harness.md`, whose tasks are those of its run.
    pub(super) fn root(crew: Arc<Crew>, loaded: Arc<Loaded>, tasks: Arc<Tasks>) -> Self {
        let policy = loaded.policy();
        let own = policy.context.system_prompt.as_deref().unwrap_or_default();
        let prompt = if policy.body.is_empty() { own } else { &policy.body }.to_owned();
        let skills = skills::of(&loaded, None);
        let built_ins = built_ins(&crew.settings, &loaded, &skills);
        let ledger = Mutex::new(Ledger::new(crew.settings.tree_budget.clone(), None));
        let failures = Failures::new(crew.settings.tool_failures);
        Self {
            crew,
            id: "root".to_owned(),
            parent: None,
            lineage: Vec::new(),
            loaded,
            agent: None,
            prompt,
            model: None,
            chosen: Mutex::default(),
            caller: None,
            built_ins,
            skills,
            tasks,
            ledger,
            failures,
            partial: Partial::default(),
            children: Mutex::default(),
            scales: Mutex::default(),
        }
    }

    /// A sub-agent, one level deeper.
    pub(super) fn child(&self, id: String, agent: &Arc<Agent>, model: Model, caller: Option<Arc<Grant>>) -> Self {
        let loaded = self.artifacts_of(agent);
        let caller = match (caller, loaded.policy().grant_for_agent(agent)) {
            (Some(caller), Some(own)) => Some(Arc::new(caller.meet(&own))),
            (None, Some(own)) => Some(Arc::new(own)),
            (caller, None) => caller,
        };
        let ledger = self.ledger_of(agent);
        let lineage: Vec<String> = self.lineage.iter().chain([&agent.name]).cloned().collect();
        let skills = skills::of(&loaded, Some(&agent.source_name));
        Self {
            crew: self.crew.clone(),
            id,
            parent: Some(self.id.clone()),
            built_ins: built_ins(&self.crew.settings, &loaded, &skills),
            skills,
            lineage,
            loaded,
            agent: Some(agent.clone()),
            prompt: agent.system_prompt.clone(),
            model: Some(model),
            chosen: Mutex::default(),
            caller,
            tasks: self.tasks.concurrent(),
            ledger: Mutex::new(ledger),
            failures: Failures::new(self.crew.settings.tool_failures),
            partial: Partial::default(),
            children: Mutex::default(),
            scales: Mutex::default(),
        }
    }

    /// What a sub-agent may use for one task: what its file says, else what holds for all of them. A plugin's is bounded by
    /// both: what it says of itself only takes away.
    fn ledger_of(&self, agent: &Agent) -> Arc<Ledger> {
        let (own, all) = (agent.budget.clone(), self.crew.settings.budget.clone());
        let above = Some(self.ledger());
        let (own, above) = match (own, all) {
            (Some(own), Some(all)) if third_party::author(&agent.source_name).is_some() => {
                (own, Some(Ledger::new(all, above)))
            }
            (own, all) => (own.or(all).unwrap_or_default(), above),
        };
        Ledger::new(own, above)
    }

    fn artifacts_of(&self, agent: &Arc<Agent>) -> Arc<Loaded> {
        let mut children = self.children.lock().unwrap_or_else(PoisonError::into_inner);
        let known = children.entry(agent.name.clone());
        known.or_insert_with(|| Arc::new(self.loaded.of_agent(agent, self.agent.as_deref()))).clone()
    }

    /// How many tokens the service of a model counted, in the last request, for one that is estimated here.
    pub(super) fn scale(&self, model: &str) -> f64 {
        self.scales.lock().unwrap_or_else(PoisonError::into_inner).get(model).copied().unwrap_or(1.0)
    }

    /// Keeps that for the next request.
    pub(super) fn counts(&self, model: &str, scale: f64) {
        self.scales.lock().unwrap_or_else(PoisonError::into_inner).insert(model.to_owned(), scale);
    }

    /// What it and those below it have used.
    pub(super) fn ledger(&self) -> Arc<Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Begins a turn of the root: its budget is for one, and a tool that failed in the last may have been mended.
    pub(super) fn begin(&self) {
        self.failures.forget();
        let ledger = Ledger::new(self.crew.settings.tree_budget.clone(), None);
        *self.ledger.lock().unwrap_or_else(PoisonError::into_inner) = ledger;
    }

    /// Notifies the listener.
    pub(super) fn notify(&self, what: &AgentEvent<'_>) {
        let who = EventSource { id: &self.id, parent: self.parent.as_deref() };
        self.crew.listener.notify_from(&who, what);
    }

    /// The name of the sub-agent; empty at the root.
    pub(super) fn name(&self) -> &str {
        self.lineage.last().map(String::as_str).unwrap_or_default()
    }

    /// 0 at the root.
    pub(super) fn depth(&self) -> u32 {
        u32::try_from(self.lineage.len()).unwrap_or(u32::MAX)
    }

    /// Where the root's events are fired and its calls made. The run is whoever's has it work: it has the agents, and
    /// they do not hold it.
    pub(super) fn place(self: &Arc<Self>, run: &Arc<Run>) -> CallContext {
        let outermost = CallContext::outermost(self.loaded.clone(), run.clone());
        let agent = Arc::new(AgentAt::of(&self.lineage));
        CallContext {
            built_ins: Some(self.clone()),
            caller: Some("agent".into()),
            agent,
            asks_later: true,
            ..outermost
        }
    }

    /// The same for a sub-agent that is started at a place.
    pub(super) fn place_within(self: &Arc<Self>, place: &CallContext) -> CallContext {
        CallContext {
            loaded: self.loaded.clone(),
            built_ins: Some(self.clone()),
            caller: Some(format!("agent {}", self.name()).into()),
            actor: self.agent.as_ref().map(|agent| agent.source_name.as_str().into()),
            about: None,
            agent: Arc::new(AgentAt::of(&self.lineage)),
            tasks: self.tasks.clone(),
            asks_later: true,
            ..place.clone()
        }
    }

    /// The model that it runs on.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub(super) fn model(&self) -> Result<Model, String> {
        let chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        chosen.or_else(|| self.model.clone()).map_or_else(|| self.crew.models.main(), Ok)
    }

    /// Runs it on this model from now on.
    pub(super) fn choose(&self, model: Model) {
        *self.chosen.lock().unwrap_or_else(PoisonError::into_inner) = Some(model);
    }

    /// The tools that a model gets to see: those of the project in the order of their files, those that the run has
    /// added, the host's own; without those that the policy does not let be called.
    pub(super) fn tools(&self, place: &CallContext) -> Vec<ToolSchema> {
        let added = place.added_tools().map(|added| &added.tool);
        let delegates = self.caller.as_ref().is_none_or(|grant| grant.decide_service(Service::Delegate).is_ok());
        // At the deepest level `delegate` can be called, which answers by which limit it does nothing.
        let deepest = self.depth() >= self.crew.settings.max_depth;
        let delegation = [DELEGATE, DELEGATE_ASYNC, DELEGATE_STATUS, DELEGATE_AWAIT];
        let own = self.built_ins.iter().filter(|tool| delegates || tool.name == DONE);
        let own = own.filter(|tool| !deepest || !delegation.contains(&&*tool.name));
        let offered_tools = self.loaded.registry().tools().iter().chain(added);
        let mcp = &self.loaded.policy().mcp;
        let is_direct = |tool: &&Arc<Tool>| mcp.expose.has_tools() && !mcp.is_only_in_scripts(tool);
        let all = offered_tools.filter(is_direct).chain(code::tools(&self.loaded)).chain(own);
        all.filter(|tool| self.loaded.policy().tools.decide(&tool.name).is_ok()).map(|tool| offered(tool)).collect()
    }
}

/// Why a model does not call a tool itself, where only scripts do.
pub(super) fn only_in_scripts(place: &CallContext, name: &str) -> Option<CallError> {
    let registered = || place.loaded.registry().tool(name).ok();
    let tool = place.added_tool(name).map(|added| &added.tool).or_else(registered)?;
    code::only_in_scripts(&place.loaded, tool)
}

/// A tool as a model gets to see it.
fn offered(tool: &Tool) -> ToolSchema {
    let (description, parameters) = tool.offered();
    ToolSchema { name: tool.name.clone(), description, parameters }
}

/// An agent as the description of `delegate` lists it.
fn listed(agent: &Agent) -> String {
    let what = agent.description.as_ref().map_or("", |text| text.value.trim());
    match third_party::author(&agent.source_name) {
        _ if what.is_empty() => format!("- {}", agent.name),
        None => format!("- {}: {what}", agent.name),
        Some(author) => {
            format!("- {}, of {}", agent.name, third_party::said(author, &third_party::cut(what, third_party::MOST)))
        }
    }
}

/// The host's own tools of an agent.
fn built_ins(settings: &Settings, loaded: &Loaded, skills: &[Arc<Skill>]) -> Vec<Arc<Tool>> {
    let mut tools = Vec::new();
    if !skills.is_empty() {
        let description = "Reads a skill, or a file beside it. A long text comes in parts: continue at `next_offset`.";
        let parameters = [
            ("name", ParameterType::String, true, "Name of the skill."),
            ("file", ParameterType::String, false, "One of the `files` of the skill. Default: the skill itself."),
            ("offset", ParameterType::Number, false, "Offset in bytes. Default: 0."),
        ];
        tools.push(Arc::new(Tool::built_in(READ_SKILL, description, &parameters)));
    }
    let agents = loaded.registry().agents();
    if !agents.is_empty() {
        let listed: Vec<String> = agents.iter().map(|agent| listed(agent)).collect();
        let description = format!(
            "Delegates a task to a sub-agent and returns its result. The sub-agent does not see this conversation: the task must contain everything that it needs.\n\nAgents:\n{}",
            listed.join("\n")
        );
        let parameters = [
            ("agent", ParameterType::String, true, "Name of the agent."),
            ("task", ParameterType::String, true, "The task."),
        ];
        tools.push(Arc::new(Tool::built_in(DELEGATE, &description, &parameters)));
        let description = format!(
            "The same as `{DELEGATE}` in the background: returns a `task_id` at once. The result comes from `{DELEGATE_AWAIT}`."
        );
        tools.push(Arc::new(Tool::built_in(DELEGATE_ASYNC, &description, &parameters)));
        tools.extend(asking(DELEGATE_STATUS, DELEGATE_AWAIT, "a delegated task"));
    }
    if loaded.policy().async_tools && loaded.registry().tools().iter().any(|tool| *tool.asynchronous) {
        tools.extend(asking(TASK_POLL, TASK_AWAIT, "a tool that returned a `task_id`"));
    }
    if settings.exit.wants_done() && loaded.registry().tool(DONE).is_err() {
        tools.push(Arc::new(Tool::built_in(DONE, "Reports that the task is complete.", &[])));
    }
    tools
}

/// The tools that ask for what continues, and wait for it.
fn asking(poll: &str, wait: &str, what: &str) -> [Arc<Tool>; 2] {
    let polls = format!("Returns the `status` of {what}, and its `result` or `error` once it has ended.");
    let waits = format!("Waits for {what}, or several, and returns for each what `{poll}` returns.");
    let id = ("task_id", ParameterType::String, true, "The `task_id`.");
    let ids = ("task_ids", ParameterType::Array, false, "A list of `task_id`s. Default: all that are running.");
    [Arc::new(Tool::built_in(poll, &polls, &[id])), Arc::new(Tool::built_in(wait, &waits, &[ids]))]
}
