//! The tool `delegate`: a sub-agent's turn, one level deeper, with the hooks of whoever set it to work around it, and
//! what judges its result.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value as Json, json};

use super::background::{begin, poll, wait};
use super::boxed::boxed;
use super::conversation::Conversation;
use super::listener::AgentEvent;
use super::runtime::Runtime;
use super::skills;
use super::turn::{Turn, turn_with_nested};
use harness_artifact::agent::{Agent, Use};
use harness_artifact::event::Event;
use harness_artifact::suggest;
use harness_artifact::tool::Tool;
use harness_capability::reentry::Allowance;
use harness_dispatch::builtin::{
    Answered, BuiltInCall, BuiltIns, DELEGATE, DELEGATE_ASYNC, DELEGATE_AWAIT, DELEGATE_STATUS, READ_SKILL, TASK_AWAIT,
    TASK_POLL,
};
use harness_dispatch::chain::{Block, CallContext, describe_failure};
use harness_dispatch::hearing::Subject;
use harness_dispatch::past::Happened;
use harness_dispatch::payload::{self, DelegationPost, DelegationPostVerify, DelegationPre};
use harness_dispatch::trail::Trail;
use harness_dispatch::verify::verdict_of;
use harness_dispatch::{Nested, Unloadable, Waiter, Wanted};
use harness_policy::refusal::Refusal;
use harness_sandbox::outcome::{Failure, FailureKind, Outcome, Usage};
use harness_sandbox::state::Context;

/// Instead of a reason whose words may not be in a prompt.
const NOT_ACCEPTED_SAYS_A_PLUGIN: &str = "a hook of a plugin has not accepted it; its reason is not shown here";
/// The keys of a result that have what a child called and what that gave.
const CALLS: [&str; 2] = ["tool_calls", "tool_results"];

impl BuiltIns for Runtime {
    fn tools(&self) -> &[Arc<Tool>] {
        &self.built_ins
    }

    fn happened(&self, what: &Happened<'_>) {
        let agent = self.name();
        self.notify(&match what {
            Happened::Asks { call, tool } => AgentEvent::Asks { agent, call, tool },
            Happened::Confirmed { call, tool, answer } => AgentEvent::Confirmed { agent, call, tool, answer: *answer },
            Happened::Began { call, tool, strand, task } => {
                AgentEvent::Began { agent, call, tool, strand, task: *task }
            }
            Happened::Ended { task, report, late } => AgentEvent::Ended { agent, task, report, late: *late },
            Happened::Abandoned { task, tool } => AgentEvent::Abandoned { agent, task, tool },
            Happened::Step { tool, step } => AgentEvent::Step { agent, tool, step },
            Happened::Looked(looked) => AgentEvent::Looked { agent, looked },
            Happened::Saw(saw) => AgentEvent::Saw { agent, saw },
        });
    }

    fn call<'a>(
        &'a self,
        place: &'a CallContext,
        call: BuiltInCall<'a>,
    ) -> Pin<Box<dyn Future<Output = Answered> + Send + 'a>> {
        Box::pin(async move {
            match call.name {
                DELEGATE => self.delegate(place, &call).await,
                DELEGATE_ASYNC => begin(place, &call).await,
                DELEGATE_STATUS | TASK_POLL => poll(place, &call).await,
                DELEGATE_AWAIT | TASK_AWAIT => wait(place, &call).await,
                READ_SKILL => skills::read(self, call.arguments),
                _ => Answered { outcome: Outcome::Completed(json!("ok").to_string()), nested: Vec::new() },
            }
        })
    }
}

impl Runtime {
    /// Sets an agent to work and waits for its result.
    async fn delegate(&self, place: &CallContext, call: &BuiltInCall<'_>) -> Answered {
        let text = |key: &str| call.arguments.get(key).and_then(Json::as_str).unwrap_or_default();
        let agent = match self.find(text("agent")) {
            Ok(agent) => agent,
            Err(ended) => return Answered { outcome: ended.outcome(), nested: Vec::new() },
        };
        let run = &place.run;
        let id = run.strand().next_delegation();
        let mut delegation = Delegation {
            by: self,
            id: id.clone(),
            callee: agent.source_name.as_str().into(),
            place,
            left: place.left,
            late: false,
            nested: Trail::default(),
        };
        let limit = self.crew.settings.delegation_timeout;
        let time = run.schedule().delegation_time(&id, limit);
        let ended = {
            let mut work = pin!(delegation.run(&agent, text("task"), call));
            let done = time.limit(work.as_mut()).await;
            // What has ended by itself until then has.
            run.settled().await;
            done
        };
        let outcome = match ended {
            Some(Ok(result)) => Outcome::Completed(result.to_string()),
            Some(Err(ended)) => ended.outcome(),
            None => {
                let took = limit.as_millis();
                let why = format!(
                    "the delegation took longer than {took} ms; `delegation.timeout_ms` in `harness.md` raises it"
                );
                delegation.late = true;
                delegation.returned(&agent.name, Err(&why));
                Ended::Failed(why).outcome()
            }
        };
        Answered { outcome, nested: delegation.nested.into_nested() }
    }

    /// The agent of a name, where it may be started from here.
    fn find(&self, name: &str) -> Result<Arc<Agent>, Ended> {
        let agents = self.loaded.registry().agents();
        let Some(agent) = agents.iter().find(|agent| agent.name == name) else {
            let names: Vec<&str> = agents.iter().map(|agent| agent.name.as_str()).collect();
            let known = names.join(", ");
            let like = suggest::several(name, names, 1);
            let hint = like.first().map(|name| format!("; did you mean {name:?}?")).unwrap_or_default();
            return Err(Ended::Failed(format!("agent {name:?} not found (available: {known}){hint}")));
        };
        let settings = &self.crew.settings;
        if self.depth() >= settings.max_depth {
            let (depth, most) = (self.depth(), settings.max_depth);
            return Err(Ended::Failed(format!(
                "delegation depth limit reached ({depth}/{most}); `delegation.max_depth` in `harness.md` raises it"
            )));
        }
        if !settings.allow_recursive && self.lineage.iter().any(|above| above == name) {
            let why = format!(
                "agent {name:?} is already running, and `delegation.allow_recursive` in `harness.md` is not set"
            );
            return Err(Ended::Failed(why));
        }
        Ok(agent.clone())
    }
}

/// A delegation in progress.
struct Delegation<'a> {
    by: &'a Runtime,
    id: String,
    /// The source of the agent that is set to work.
    callee: Arc<str>,
    /// Where the one that delegates is: its hooks are asked.
    place: &'a CallContext,
    left: Option<Allowance>,
    /// Whether its time was over before it was done.
    late: bool,
    nested: Trail,
}

/// Why there is no result.
enum Ended {
    /// A hook said no.
    Blocked(String),
    /// It could not be done.
    Failed(String),
}

impl Ended {
    fn blocked(block: Block) -> Self {
        Self::Blocked(block.to_string())
    }

    fn outcome(self) -> Outcome<String> {
        match self {
            Self::Blocked(reason) => {
                let reason = format!("delegation blocked: {reason}");
                let failure = Failure::without_place(FailureKind::Denied, "", reason.clone());
                Outcome::Denied { failure, refusal: Refusal::always(reason) }
            }
            Self::Failed(why) => Outcome::Failed(Failure::without_place(FailureKind::Script, "", why)),
        }
    }
}

impl Delegation<'_> {
    async fn here(&self) -> CallContext {
        self.place.now(self.left).await
    }

    fn spend(&mut self, usage: Usage) {
        self.left = self.left.map(|left| left.after(usage.fuel).after_host_calls(usage.host_calls));
    }

    /// Fires an event to the hooks of the one that delegates. Gives back the payload as they left it.
    ///
    /// # Errors
    ///
    /// Why a hook blocked it.
    async fn fire(&mut self, event: &Event, payload: Json) -> Result<Json, Block> {
        let about = Some(Subject::Agent(self.callee.clone()));
        let here = CallContext { about, ..self.here().await };
        let mut dispatch = boxed(here.fire(event, payload)).await;
        self.by.notify(&AgentEvent::Event { agent: self.by.name(), dispatch: &dispatch });
        self.spend(dispatch.usage());
        let payload = std::mem::take(&mut dispatch.payload);
        let blocked = dispatch.decision.block().cloned();
        if !dispatch.hooks.is_empty() {
            self.nested.push(Nested::Event(dispatch));
        }
        blocked.map_or(Ok(payload), Err)
    }

    /// Reports what came of it.
    fn returned(&self, from: &str, result: Result<&Json, &str>) {
        let Self { by, id, late, .. } = self;
        by.notify(&AgentEvent::Returned { agent: by.name(), id, from, result, late: *late });
    }

    async fn run(&mut self, agent: &Arc<Agent>, task: &str, call: &BuiltInCall<'_>) -> Result<Json, Ended> {
        let by = self.by;
        let depth = by.depth().saturating_add(1);
        let id = self.id.clone();
        let (model, task) = self.permitted(&id, agent, depth, task).await?;
        let caller = match (call.caller, &by.caller) {
            (Some(caller), Some(outer)) => Some(Arc::new(caller.meet(outer))),
            (Some(one), None) | (None, Some(one)) => Some(one.clone()),
            (None, None) => None,
        };
        let child = Arc::new(by.child(id.clone(), agent, model, caller));
        // What it leaves going ends with it.
        let _tasks = child.tasks.owner();
        let mut history = Conversation::default();
        let mut said = task;
        let attempts = by.crew.settings.verify_retries.saturating_add(1);
        for attempt in 1..=attempts {
            let (agent, to) = (by.name(), child.name());
            by.notify(&AgentEvent::Delegated { agent, to, depth, attempt, task: &said });
            let result = self.attempt(&child, &mut history, &said, attempt).await?;
            let calls = CALLS.map(|key| result.get(key).cloned());
            let post = DelegationPost {
                id: id.clone(),
                parent_id: Some(by.id.clone()),
                agent: child.name().to_owned(),
                result,
                depth,
                path: child.lineage.clone(),
            };
            let payload = self.fire(&Event::DelegationPost, payload::of(&post)).await.map_err(Ended::blocked)?;
            let result = payload.get("result").cloned().unwrap_or_default();
            let post = DelegationPost { result, ..post };
            match self.verify(post, attempt).await? {
                Ok(mut result) => {
                    without(&mut result, &calls);
                    self.returned(to, Ok(&result));
                    return Ok(result);
                }
                Err(reason) if attempt == attempts => {
                    let why = format!("delegation verification failed after {attempts} attempt(s): {reason}");
                    self.returned(to, Err(&why));
                    return Err(Ended::Failed(why));
                }
                Err(reason) => said = again(&reason),
            }
        }
        Err(Ended::Failed("the delegation allows no attempt".to_owned()))
    }

    /// Asks the hooks on `delegation.pre`. Gives back the model and the task, as they left them.
    async fn permitted(
        &mut self,
        id: &str,
        agent: &Agent,
        depth: u32,
        task: &str,
    ) -> Result<(super::Model, String), Ended> {
        let by = self.by;
        let own = agent.model.as_ref().map(|model| model.value.clone());
        let pre = DelegationPre {
            id: id.to_owned(),
            parent_id: Some(by.id.clone()),
            agent: agent.name.clone(),
            prompt: task.to_owned(),
            depth,
            path: by.lineage.iter().chain([&agent.name]).cloned().collect(),
            model: own,
            tools: agent.tools.iter().map(|one| named(one, |tool| &tool.name)).collect(),
            hooks: agent.hooks.iter().map(|one| named(one, |hook| &hook.name)).collect(),
        };
        let asked = payload::of(&pre);
        let payload = self.fire(&Event::DelegationPre, asked.clone()).await.map_err(Ended::blocked)?;
        // What `tool.pre` has allowed to be called is this agent, as it is: a guard that would have it otherwise, such as
        // with fewer tools, is not to believe that it has.
        let fixed = ["agent", "parent_id", "depth", "path", "tools", "hooks"];
        if let Some(key) = fixed.into_iter().find(|key| payload.get(key) != asked.get(key)) {
            return Err(Ended::Failed(format!("delegation.pre modify payload: `{key}` cannot be changed")));
        }
        let Some(Json::String(task)) = payload.get("prompt") else {
            return Err(Ended::Failed("delegation.pre modify payload: `prompt` must be a string".to_owned()));
        };
        let parent = by.model().map_err(Ended::Failed)?;
        let model = match payload.get("model") {
            None | Some(Json::Null) => parent,
            Some(Json::String(name)) => parent.named(name, by.crew.models.as_ref()).map_err(Ended::Failed)?,
            Some(_) => {
                return Err(Ended::Failed("delegation.pre modify payload: `model` must be a string".to_owned()));
            }
        };
        Ok((model, task.clone()))
    }

    /// The child's turn. It resumes its own conversation, of which nobody else sees anything.
    async fn attempt(
        &mut self,
        child: &Arc<Runtime>,
        history: &mut Conversation,
        task: &str,
        attempt: u32,
    ) -> Result<Json, Ended> {
        let place = child.place_within(&self.here().await);
        let (turn, nested) = turn_with_nested(child, &place, history, task).await;
        let nested = Nested::Agent { name: child.name().to_owned(), nested };
        self.spend(nested.usage());
        self.nested.push(nested);
        match turn {
            Ok(Turn { text, calls, usage, rounds, warning, recent, .. }) => {
                let mut result = json!({
                    "agent": child.name(),
                    "response": text,
                    "calls": calls.len(),
                    "rounds": rounds,
                    "attempts": attempt,
                    "usage": {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens},
                    "tool_calls": recent.calls(),
                    "tool_results": recent.results(),
                });
                if let (Some(object), Some(warning)) = (result.as_object_mut(), warning) {
                    object.insert("warning".to_owned(), warning.into());
                }
                Ok(result)
            }
            Err(error) => {
                let why = format!("agent {:?}: {error}", child.name());
                self.returned(child.name(), Err(&why));
                Err(Ended::Failed(why))
            }
        }
    }

    /// Judges a result, where the policy asks for that: first its script, then the hooks. Gives back the result, or why
    /// it is refused.
    async fn verify(&mut self, mut post: DelegationPost, attempt: u32) -> Result<Result<Json, String>, Ended> {
        let Some(script) = self.by.loaded.verify_script() else { return Ok(Ok(post.result)) };
        let mut reasons = Vec::new();
        let started = Instant::now();
        let judged = self.judged(script, &post.result).await?;
        let (agent, refused) = (self.by.name(), judged.as_ref().err().map(String::as_str));
        self.by.notify(&AgentEvent::Judged { agent, of: &post.agent, refused, took: started.elapsed() });
        reasons.extend(judged.err());
        let payload = payload::of(&DelegationPostVerify { post: post.clone(), attempt });
        match self.fire(&Event::DelegationPostVerify, payload).await {
            Ok(payload) => post.result = payload.get("result").cloned().unwrap_or_default(),
            // Another attempt mends no hook.
            Err(block) if block.failed => return Err(Ended::blocked(block)),
            Err(block) => reasons.push(block.to_prompt(NOT_ACCEPTED_SAYS_A_PLUGIN)),
        }
        Ok(if reasons.is_empty() { Ok(post.result) } else { Err(reasons.join("; ")) })
    }

    /// Runs the policy's script on a result. What it cannot judge is no matter for another attempt.
    async fn judged(&mut self, script: Wanted<'_>, result: &Json) -> Result<Result<(), String>, Ended> {
        let failed = |why: String| Ended::Failed(format!("verify: {why}"));
        let loaded = &self.by.loaded;
        let grant = Arc::new(loaded.policy().grant_for("", None));
        let mut limits = grant.limits();
        let (input, until) = (result.to_string(), self.place.load_deadline(Instant::now(), limits.timeout));
        let waiter = Waiter { run: &self.place.run, input: &input };
        let (image, loading) = loaded.image(script, waiter, until).await;
        let image = image.map_err(|error| match error {
            Unloadable::Script(failure) | Unloadable::Late(failure, _) => failed(describe_failure(&failure)),
            Unloadable::Host(why) => failed(why),
        })?;
        limits.waited = loading;
        harness_dispatch::cap_by(&mut limits, self.left);
        let session = self.place.run.session().clone();
        let (workspace, secrets) = (self.place.workspace.clone(), loaded.secrets().clone());
        let (turn, depth) = (self.place.turn.clone(), self.place.depth);
        let (system, http) = loaded.outside();
        let listener = self.place.run.log_listener(|| "verify".to_owned());
        let context = Context {
            grant,
            workspace,
            session,
            turn,
            namespace: None,
            system,
            http,
            secrets,
            depth,
            listener,
            reentry: None,
        };
        let report = loaded.sandbox().run(&image, context, limits, &input).await;
        self.spend(report.usage);
        let verdict = match report.outcome {
            Outcome::Completed(text) => serde_json::from_str(&text).unwrap_or_default(),
            Outcome::Failed(failure) | Outcome::Denied { failure, .. } => {
                return Err(failed(describe_failure(&failure)));
            }
            Outcome::Limited(limit) => return Err(failed(limit.to_string())),
            Outcome::Busy(busy) => return Err(failed(busy.to_string())),
            Outcome::Fault(_) => return Err(failed("the host failed".to_owned())),
        };
        verdict_of(&verdict).map_err(failed)
    }
}

/// Takes out what a child has called, which is for anyone who judges its result; the one that delegates does not see
/// it. What hooks have put in its place stays.
fn without(result: &mut Json, calls: &[Option<Json>; 2]) {
    let Some(result) = result.as_object_mut() else { return };
    for (key, value) in CALLS.into_iter().zip(calls) {
        if result.get(key) == value.as_ref() {
            result.shift_remove(key);
        }
    }
}

/// The message to a child whose result was rejected.
fn again(reason: &str) -> String {
    format!(
        "Your result was checked and not accepted: {reason}\n\nThe task is not complete. Find out what is wrong, correct \
         it, make sure of it with your tools, and answer again."
    )
}

/// The name of what an agent uses.
fn named<T>(one: &Use<T>, own: impl Fn(&T) -> &String) -> String {
    match one {
        Use::Reference(name) => name.value.clone(),
        Use::Inline(inline) => own(inline).clone(),
    }
}
