//! Agents as tools, for clients that the policy lets set them tasks.
//!
//! A call of one is a call of `delegate` by the root: the hooks, the policy for that name, the limits and the budgets of a
//! delegation hold, and the audit log has it as that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use harness_agent::{AgentEvent, Listener};
use harness_artifact::agent::Agent;
use harness_artifact::policy::mcp::AgentsAs;
use harness_artifact::tool::RESERVED;
use harness_artifact::{escape, third_party};
use harness_dispatch::builtin::DELEGATE;
use harness_dispatch::{CallReport, Loaded, MAX_AGENTS, content};
use harness_policy::refusal::Refusal;
use harness_policy::text::quoted;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool as Definition, ToolAnnotations};
use serde_json::{Value as Json, json};

use crate::catalog::shortened;
use crate::notices::Notices;

/// The tool that sets any agent a task.
const RUN_AGENT: &str = "run_agent";
/// What every client has to know of an agent.
const SEES_NOTHING: &str = "The agent does not see this conversation: the task must contain everything that it needs.";
/// Bytes of a name in a step.
const MAX_NAME: usize = 100;

/// A tool that sets agents tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AgentTool {
    /// This agent.
    One(String),
    /// The one that the argument `agent` names.
    Any,
}

/// The tools that set agents tasks, each with a name that no other tool has, which is not yet one for clients.
pub(crate) fn offered(loaded: &Loaded) -> BTreeMap<String, AgentTool> {
    let agents = agents(loaded);
    let tools: Vec<(&str, AgentTool)> = match loaded.policy().mcp.agents_as {
        _ if agents.is_empty() => Vec::new(),
        AgentsAs::RunAgent => vec![(RUN_AGENT, AgentTool::Any)],
        AgentsAs::Tools => agents.iter().map(|agent| (&*agent.name, AgentTool::One(agent.name.clone()))).collect(),
    };
    let is_taken = |name: &str| RESERVED.contains(&name) || loaded.registry().tool(name).is_ok();
    let mut offered = BTreeMap::new();
    for (name, tool) in tools {
        let mut name = name.to_owned();
        while is_taken(&name) {
            name.insert_str(0, "agent ");
        }
        offered.insert(name, tool);
    }
    offered
}

/// The agents that clients may set tasks.
fn agents(loaded: &Loaded) -> Vec<&Arc<Agent>> {
    let policy = loaded.policy();
    if policy.tools.decide(DELEGATE).is_err() {
        return Vec::new();
    }
    loaded.registry().agents().iter().filter(|agent| policy.mcp.offers_agent(&agent.name)).collect()
}

impl AgentTool {
    /// The definition for clients, under this name.
    pub(crate) fn define(&self, name: &str, loaded: &Loaded) -> Definition {
        let agents = agents(loaded);
        let task = json!({"type": "string", "description": "The task."});
        let (description, properties, required) = match self {
            Self::One(own) => {
                let said = agents.iter().find(|agent| agent.name == *own).and_then(|agent| description(agent));
                let said = said.unwrap_or_else(|| format!("Sets the agent {} a task.", quoted(own)));
                (format!("{said}\n\n{SEES_NOTHING}"), json!({"task": task}), json!(["task"]))
            }
            Self::Any => {
                let names: Vec<&str> = agents.iter().map(|agent| agent.name.as_str()).collect();
                let list = agents.iter().map(|agent| match description(agent) {
                    Some(said) => format!("\n- {}: {said}", agent.name),
                    None => format!("\n- {}", agent.name),
                });
                let list = format!(
                    "Sets an agent a task and returns its answer. {SEES_NOTHING}\n\nAgents:{}",
                    list.collect::<String>()
                );
                let agent = json!({"type": "string", "enum": names, "description": "Name of the agent."});
                (list, json!({"agent": agent, "task": task}), json!(["agent", "task"]))
            }
        };
        let schema = json!({"type": "object", "properties": properties, "required": required});
        let schema: JsonObject = schema.as_object().cloned().unwrap_or_default();
        let mut definition = Definition::new(name.to_owned(), shortened(&description, name), Arc::new(schema));
        // Its model is elsewhere, and its tools may do whatever they are granted.
        definition.annotations = Some(ToolAnnotations::new().read_only(false).destructive(true).open_world(true));
        definition
    }

    /// The arguments of `delegate`.
    ///
    /// # Errors
    ///
    /// The arguments as well, and that the agent in them is not offered to clients.
    pub(crate) fn arguments(&self, mut given: JsonObject, loaded: &Loaded) -> Result<Json, (Json, Refusal)> {
        match self {
            Self::One(agent) => {
                given.insert("agent".to_owned(), agent.clone().into());
            }
            Self::Any => {
                let agent = given.get("agent").and_then(Json::as_str).map(str::to_owned);
                // A name that is missing or no text is refused as that of any other tool.
                if let Some(agent) = agent.filter(|agent| !loaded.policy().mcp.offers_agent(agent)) {
                    let reason = format!("the agent {} is not offered to clients", quoted(&agent));
                    let hint = format!("add {} to `mcp.agents` in the policy", quoted(&agent));
                    return Err((Json::Object(given), Refusal::new(reason, hint)));
                }
            }
        }
        Ok(Json::Object(given))
    }
}

/// What an agent says of itself: of a third party's, who says it.
fn description(agent: &Agent) -> Option<String> {
    let said = agent.description.as_ref().map(|text| text.value.trim()).filter(|text| !text.is_empty())?;
    Some(match third_party::author(&agent.source_name) {
        None => said.to_owned(),
        Some(author) => {
            format!("An agent of {}", third_party::said(author, &third_party::cut(said, third_party::MOST)))
        }
    })
}

/// What a client gets of a delegation that completed: the agent's words, unless hooks made something else of the result.
pub(crate) fn answer(report: &CallReport) -> CallToolResult {
    let most = report.grant.limits().output_bytes;
    let text = |key: &str| report.result.get(key).and_then(Json::as_str);
    let is_own = content::cut(report.result.to_string(), most).0 == report.content;
    let blocks = match text("response").filter(|_| is_own) {
        Some(response) => {
            let warning = text("warning").map(|warning| format!("warning: {warning}"));
            let response = content::cut(response.to_owned(), most).0;
            [Some(response), warning].into_iter().flatten().map(ContentBlock::text).collect()
        }
        None => vec![ContentBlock::text(report.content.clone())],
    };
    CallToolResult::success(blocks)
}

/// Agents that work for clients of one server.
#[derive(Debug, Default)]
pub(crate) struct AtWork(AtomicU64);

/// One of them. It is at work until this is dropped.
#[derive(Debug)]
pub(crate) struct Place(Arc<AtWork>);

impl AtWork {
    /// Takes a place among as many as the policy lets work at a time.
    ///
    /// # Errors
    ///
    /// That all of them are taken.
    pub(crate) fn begin(self: &Arc<Self>, loaded: &Loaded) -> Result<Place, Refusal> {
        let most = loaded.policy().delegation.max_concurrent.unwrap_or(MAX_AGENTS);
        let next = |at_work: u64| (at_work < most).then_some(at_work + 1);
        match self.0.try_update(Ordering::AcqRel, Ordering::Acquire, next) {
            Ok(_) => Ok(Place(self.clone())),
            Err(_) => {
                let reason = format!("no more than {most} agents may work for clients at one time");
                let hint = "call again later; `delegation.max_concurrent` in the policy raises this".to_owned();
                Err(Refusal::new(reason, hint))
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Reports what agents do as steps: their names and those of tools, and nothing that was said.
pub(crate) struct Watching {
    reporter: Arc<Notices>,
    loaded: Arc<Loaded>,
}

impl Watching {
    pub(crate) fn new(reporter: Arc<Notices>, loaded: Arc<Loaded>) -> Self {
        Self { reporter, loaded }
    }

    /// A name that a model may have made up.
    fn name(&self, name: &str) -> String {
        let mut name = escape::line(&third_party::cut(name, MAX_NAME)).into_owned();
        self.loaded.secrets().redact(&mut name);
        name
    }
}

impl std::fmt::Debug for Watching {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watching").finish_non_exhaustive()
    }
}

impl Listener for Watching {
    fn notify(&self, what: &AgentEvent<'_>) {
        let step = match what {
            AgentEvent::Delegated { to, attempt: 1, .. } => format!("{to} begins"),
            AgentEvent::Delegated { to, attempt, .. } => format!("{to} begins attempt {attempt}"),
            AgentEvent::Asked { agent, round, .. } => format!("{agent} asks its model ({round})"),
            AgentEvent::Retry { agent, .. } => format!("{agent} asks its model again"),
            AgentEvent::Calls { agent, call } => format!("{agent} calls {}", self.name(&call.name)),
            AgentEvent::Called { agent, call, report, .. } => {
                let is_error = report.as_ref().map_or(true, |report| report.is_error);
                let how = if is_error { "failed" } else { "completed" };
                format!("{agent}: {} {how}", self.name(&call.name))
            }
            _ => return,
        };
        self.reporter.report(step);
    }
}
