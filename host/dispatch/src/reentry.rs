//! What a script starts in turn: events, calls of tools, additions to the run. All of it goes through the same functions
//! as everything else, with what is left of the caller's fuel and time, and with no more than its grant.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value as Json, json};

use super::added::{self, By};
use super::builtin::{DELEGATE, DELEGATE_ASYNC};
use super::chain::{CallContext, Dispatch, Verdict};
use super::code;
use super::payload::{self, BuiltinPost, BuiltinPre, Emitted};
use super::pipeline::{self, Call, CallError, CallReport};
use super::tasks::{Found, MAX_WAITED, Wanted};
use super::trail::Trail;
use harness_artifact::event::Event;
use harness_artifact::policy::tools::NamePattern;
use harness_artifact::third_party;
use harness_capability::denial::Denial;
use harness_capability::reentry::{Allowance, Answering, Ended, Listening, Patience, Reentry};
use harness_capability::{agents, ask, events, meta, tasks};
use harness_policy::grant::Grant;
use harness_policy::refusal::Refusal;
use harness_policy::text::quoted;
use harness_sandbox::engine::NESTING;
use harness_sandbox::imports::Role;
use harness_sandbox::outcome::{Outcome, Usage};

/// Something that a script started.
#[derive(Debug, Clone)]
pub enum Nested {
    /// An event.
    Event(Dispatch),
    /// A call of a tool.
    Call(Box<CallReport>),
    /// The work of a sub-agent.
    Agent {
        /// Which.
        name: String,
        /// What it started.
        nested: Vec<Nested>,
    },
    /// What there was no room for, all after those before it.
    Rest {
        /// How many.
        count: u64,
        /// What they used.
        usage: Usage,
    },
}

impl Nested {
    /// What it used, with what it started in turn.
    pub fn usage(&self) -> Usage {
        match self {
            Self::Event(dispatch) => dispatch.usage(),
            Self::Call(report) => report.total(),
            Self::Agent { nested, .. } => started(nested),
            Self::Rest { usage, .. } => *usage,
        }
    }
}

/// What all of these used together.
pub fn started(nested: &[Nested]) -> Usage {
    nested.iter().map(Nested::usage).fold(Usage::default(), Usage::and)
}

/// The way back into dispatch of one call.
#[derive(Debug)]
pub struct Inner {
    /// Where what it starts is dispatched: one level deeper.
    pub(super) place: CallContext,
    /// The caller's.
    pub(super) grant: Arc<Grant>,
    /// The third party that it is of; none for the project's own.
    author: Option<String>,
    /// Tools that wait for this call.
    pub(super) calls: u32,
    /// Of a script that a model or a client wrote: the grant of who runs it, where that is a script.
    pub(super) code: Option<Option<Arc<Grant>>>,
    /// Which hooks listen to what it calls.
    listening: Listening,
    nested: Mutex<Trail>,
    /// Host calls of what it has started, where these are shared.
    shared: Option<AtomicU64>,
}

impl Inner {
    /// For a script that is called at a place, from its source, with its grant and as what it is called.
    pub fn new(place: &CallContext, script: String, source: &str, grant: Arc<Grant>, role: Role) -> Self {
        let depth = place.depth.saturating_add(1);
        let asks_later = role == Role::Tool;
        let begun = Some(place.begun.clone().unwrap_or_default());
        let (caller, caller_source) = (Some(script.into()), Some(source.into()));
        let (actor, about) = (caller_source.clone(), None);
        let deeper = CallContext { depth, caller, caller_source, actor, about, asks_later, begun, ..place.clone() };
        let hears = |event| role == Role::Tool && deeper.at_work.is_some() && deeper.hears(event);
        let listening = Listening { before: hears(&Event::BuiltinPre), after: hears(&Event::BuiltinPost) };
        let author = third_party::author(source).map(str::to_owned);
        // Within a script of code mode all share with it.
        let shared = place.left.and_then(|left| left.tree).map(|_| AtomicU64::default());
        let (calls, nested) = (place.calls, Mutex::default());
        Self { place: deeper, grant, author, calls, code: None, listening, nested, shared }
    }

    /// The same for a script that a model or a client wrote, which the audit log knows by its digest. It has no source of
    /// its own: its calls count as those of `outer`, which runs it, so that a third party reaches no more by a script.
    pub(super) fn of_code(self, outer: &CallContext, caller: Option<Arc<Grant>>, digest: &str) -> Self {
        let author = outer.caller_source.as_deref().and_then(third_party::author).map(str::to_owned);
        let (caller_source, by) = (outer.caller_source.clone(), Some(format!("script {digest}").into()));
        let place = CallContext { caller: by, caller_source, actor: outer.actor.clone(), ..self.place };
        Self { place, author, code: Some(caller), shared: Some(AtomicU64::default()), ..self }
    }

    /// Fires an event of a built-in. Gives back what hooks made of one key of its payload, where that is something else.
    async fn builtin(
        &self,
        event: Event,
        payload: Json,
        key: &str,
        left: Allowance,
    ) -> (Result<Option<Json>, Denial>, u64) {
        if self.place.depth > NESTING {
            let why = format!("hooks are called deeper than {NESTING} levels");
            return (Err(Refusal::always(why).into()), 0);
        }
        let before = payload.get(key).cloned();
        let Some(dispatch) = self.place(left).await.fire_builtin(&event, payload).await else { return (Ok(None), 0) };
        let fuel = dispatch.usage().fuel;
        let answer = match dispatch.decision.blocked() {
            Some(reason) => Err(Refusal::always(reason).into()),
            None => {
                let modified = dispatch.hooks.iter().any(|hook| hook.verdict == Verdict::Modify);
                let after = dispatch.payload.get(key).filter(|after| modified && before.as_ref() != Some(after));
                Ok(after.cloned())
            }
        };
        self.record(Nested::Event(dispatch));
        (answer, fuel)
    }

    fn builtin_pre(&self, function: &str, arguments: Json) -> BuiltinPre {
        let tool = self.place.at_work.as_ref().map(|at_work| at_work.tool.clone()).unwrap_or_default();
        BuiltinPre { tool, function: function.to_owned(), arguments }
    }

    /// What was started, in order.
    pub fn take(&self) -> Vec<Nested> {
        std::mem::take(&mut *self.nested.lock().unwrap_or_else(PoisonError::into_inner)).into_nested()
    }

    /// Who adds what it adds.
    fn by(&self) -> By<'_> {
        By { grant: &self.grant, author: self.author.as_deref() }
    }

    pub(super) fn record(&self, nested: Nested) {
        if let Some(shared) = &self.shared {
            shared.fetch_add(nested.usage().host_calls, Ordering::SeqCst);
        }
        self.nested.lock().unwrap_or_else(PoisonError::into_inner).push(nested);
    }

    /// The place for what is started now.
    pub(super) async fn place(&self, left: Allowance) -> CallContext {
        self.place.now(Some(left)).await
    }

    pub(super) fn meta_enabled(&self) -> Result<(), meta::Error> {
        if self.place.loaded.parts.policy.meta.enabled || self.code.is_some() {
            return Ok(());
        }
        let file = &self.place.loaded.parts.policy.project.origin.file;
        let refusal = Refusal::new("`meta` is not enabled", format!("write `meta: {{ enabled: true }}` in `{file}`"));
        Err(meta::Error::AccessDenied(refusal.into()))
    }

    fn may_register(&self, what: &str) -> Result<(), meta::Error> {
        self.meta_enabled()?;
        if self.code.is_some() {
            return Err(meta::Error::Invalid(format!("a script of `{}` cannot register {what}", code::RUN_SCRIPT)));
        }
        if self.calls > 0 {
            return Err(meta::Error::Invalid(format!("cannot register {what} from within meta.call_tool")));
        }
        Ok(())
    }

    /// Fires a `meta` event: what a hook blocks does not happen.
    async fn governed(&self, name: &str, payload: Json, left: Allowance) -> (Result<Json, meta::Error>, u64) {
        if self.place.depth > NESTING {
            return (Err(meta::Error::TooDeep(NESTING)), 0);
        }
        let dispatch = self.place(left).await.fire(&Event::Meta(name.to_owned()), payload).await;
        let fuel = dispatch.usage().fuel;
        let answer = match dispatch.decision.blocked() {
            Some(reason) => Err(meta::Error::AccessDenied(Refusal::always(reason).into())),
            None => Ok(dispatch.payload.clone()),
        };
        self.record(Nested::Event(dispatch));
        (answer, fuel)
    }

    /// Sets an agent a task, as a call of one of the tools for that.
    async fn to_agent(
        &self,
        tool: &str,
        agent: String,
        task: String,
        left: Allowance,
    ) -> (Result<String, agents::Error>, u64) {
        if self.place.built_ins.is_none() {
            let why = "no agents run here: `harness run` and `harness call` run them".to_owned();
            return (Err(agents::Error::Invalid(why)), 0);
        }
        if self.place.depth > NESTING {
            return (Err(agents::Error::TooDeep(NESTING)), 0);
        }
        let arguments = json!({ "agent": agent, "task": task });
        let call = Call { id: None, name: tool.to_owned(), arguments };
        match pipeline::call(&self.place(left).await, call, Some(&self.grant)).await {
            Ok(report) => {
                let used = report.total().fuel;
                let answer = match &report.outcome {
                    Outcome::Completed(_) if !report.is_error => Ok(report.result.to_string()),
                    Outcome::Denied { .. } => {
                        Err(agents::Error::AccessDenied(Refusal::always(report.content.clone()).into()))
                    }
                    _ => Err(agents::Error::Failed(report.content.clone())),
                };
                self.record(Nested::Call(Box::new(report)));
                (answer, used)
            }
            Err(CallError::NotAllowed(refusal)) => (Err(agents::Error::AccessDenied(refusal.into())), 0),
            Err(error) => {
                let why = describe(&error);
                let mut used = 0;
                if let CallError::Arguments { pre: Some(pre), .. } = error {
                    used = pre.usage().fuel;
                    self.record(Nested::Event(*pre));
                }
                (Err(agents::Error::Invalid(why)), used)
            }
        }
    }

    /// What became of tasks, as a JSON list, and what those used whose end nobody learned of before.
    async fn told_of(&self, ids: &[String], patience: Patience) -> (Result<String, String>, u64) {
        if ids.is_empty() || ids.len() > MAX_WAITED {
            return (Err(format!("between 1 and {MAX_WAITED} tasks can be awaited at once, not {}", ids.len())), 0);
        }
        match self.place.look(Wanted::These(ids), patience).await {
            Err(why) => (Err(why), 0),
            Ok(Found { told, reports }) => {
                let used = reports.iter().fold(0_u64, |used, report| used.saturating_add(report.total().fuel));
                reports.into_iter().for_each(|report| self.record(Nested::Call(Box::new(report))));
                (Ok(Json::Array(told).to_string()), used)
            }
        }
    }
}

impl Reentry for Inner {
    fn listening(&self) -> Listening {
        self.listening
    }

    fn shared_host_calls(&self) -> Option<u64> {
        self.shared.as_ref().map(|shared| shared.load(Ordering::SeqCst))
    }

    fn before(&self, function: &'static str, arguments: Json, left: Allowance) -> Answering<'_, Option<Json>, Denial> {
        let payload = self.place.agent.payload(&self.builtin_pre(function, arguments));
        Box::pin(self.builtin(Event::BuiltinPre, payload, "arguments", left))
    }

    fn after(&self, call: Ended, left: Allowance) -> Answering<'_, Option<Json>, Denial> {
        let pre = self.builtin_pre(call.function, call.arguments);
        let (result, error) = match call.result {
            Ok(result) => (result, None),
            Err(why) => (Json::Null, Some(why)),
        };
        let payload = self.place.agent.payload(&BuiltinPost { pre, result, error });
        Box::pin(self.builtin(Event::BuiltinPost, payload, "result", left))
    }

    fn emit(&self, event: String, payload: String, left: Allowance) -> Answering<'_, String, events::Error> {
        Box::pin(async move {
            let invalid = |why: String| (Err(events::Error::Invalid(why)), 0);
            let name = event;
            let event = match Event::parse(&name) {
                Some(event @ Event::Custom(_)) => event,
                _ if name.starts_with("custom.") => {
                    let rest = "after `custom.` come lower-case letters, digits and underscores";
                    return invalid(format!("{} is not an event: {rest}", quoted(&name)));
                }
                _ => return invalid(format!("event must start with \"custom.\", found {}", quoted(&name))),
            };
            let Ok(mut payload) = serde_json::from_str(&payload) else {
                return invalid("the payload is not JSON".to_owned());
            };
            if self.place.depth > NESTING {
                return (Err(events::Error::TooDeep(NESTING)), 0);
            }
            let emitted = Emitted::by(&self.place.agent, &mut payload);
            let dispatch = self.place(left).await.fire(&event, payload).await;
            let fuel = dispatch.usage().fuel;
            let answer = match dispatch.decision.blocked() {
                Some(reason) => Err(events::Error::AccessDenied(Refusal::always(reason).into())),
                None => Ok(emitted.back(dispatch.payload.clone()).to_string()),
            };
            self.record(Nested::Event(dispatch));
            (answer, fuel)
        })
    }

    fn register_tool(&self, tool: meta::NewTool, left: Allowance) -> Answering<'_, (), meta::Error> {
        Box::pin(async move {
            let place = match self.may_register("tools") {
                Ok(()) => self.place(left).await,
                Err(error) => return (Err(error), 0),
            };
            let parameters = match added::check_tool(&place, &tool) {
                Ok(parameters) => parameters,
                Err(error) => return (Err(error), 0),
            };
            let event = payload::MetaToolRegister {
                name: tool.name.clone(),
                description: tool.description.clone(),
                parameters,
                script: tool.script.clone(),
                replace: tool.replace,
            };
            let (allowed, fuel) = self.governed("tool_register", self.place.agent.payload(&event), left).await;
            match allowed {
                Ok(payload) => {
                    let left = left.after(fuel);
                    let (added, loading) = added::add_tool(&self.place, self.by(), tool, &payload, left).await;
                    (added, fuel.saturating_add(loading))
                }
                Err(error) => (Err(error), fuel),
            }
        })
    }

    fn register_hook(&self, hook: meta::NewHook, left: Allowance) -> Answering<'_, (), meta::Error> {
        Box::pin(async move {
            let place = match self.may_register("hooks") {
                Ok(()) => self.place(left).await,
                Err(error) => return (Err(error), 0),
            };
            let checked = match added::check_hook(&place, self.by().author, &hook) {
                Ok(checked) => checked,
                Err(error) => return (Err(error), 0),
            };
            let fired = payload::MetaHookRegister {
                name: hook.name.clone(),
                event: hook.event.clone(),
                script: hook.script.clone(),
                when: hook.when.clone(),
                priority: checked.1,
            };
            let (allowed, fuel) = self.governed("hook_register", self.place.agent.payload(&fired), left).await;
            match allowed {
                Ok(_) => {
                    let left = left.after(fuel);
                    let (added, loading) = added::add_hook(&self.place, self.by(), hook, checked, left).await;
                    (added, fuel.saturating_add(loading))
                }
                Err(error) => (Err(error), fuel),
            }
        })
    }

    fn call_tool(&self, name: String, arguments: String, left: Allowance) -> Answering<'_, String, meta::Error> {
        Box::pin(self.content_of(name, arguments, left))
    }

    fn call_all(&self, calls: String, left: Allowance) -> Answering<'_, String, meta::Error> {
        Box::pin(self.values_of(calls, left))
    }

    fn delegate(&self, agent: String, task: String, left: Allowance) -> Answering<'_, String, agents::Error> {
        Box::pin(self.to_agent(DELEGATE, agent, task, left))
    }

    fn delegate_async(&self, agent: String, task: String, left: Allowance) -> Answering<'_, String, agents::Error> {
        Box::pin(self.to_agent(DELEGATE_ASYNC, agent, task, left))
    }

    fn tasks(&self, ids: Vec<String>, patience: Patience) -> Answering<'_, String, tasks::Error> {
        Box::pin(async move {
            let (found, used) = self.told_of(&ids, patience).await;
            (found.map_err(tasks::Error::Invalid), used)
        })
    }

    fn ask(&self, questions: Vec<ask::Asked>, _: Allowance) -> Answering<'_, String, ask::Error> {
        Box::pin(async move { (super::ask::ask(&self.place, self.author.as_deref(), &questions).await, 0) })
    }

    fn can_ask(&self) -> Vec<&'static str> {
        self.place.run.respondent().map(|respondent| respondent.can()).unwrap_or_default()
    }

    fn list_tools(
        &self,
        pattern: Option<String>,
        left: Allowance,
    ) -> Answering<'_, Vec<meta::ToolSummary>, meta::Error> {
        Box::pin(async move {
            let pattern = match self.meta_enabled().and_then(|()| parsed(pattern)) {
                Ok(pattern) => pattern,
                Err(error) => return (Err(error), 0),
            };
            (Ok(summaries(&self.place(left).await, pattern.as_ref())), 0)
        })
    }
}

fn parsed(pattern: Option<String>) -> Result<Option<NamePattern>, meta::Error> {
    pattern.as_deref().map(NamePattern::parse).transpose().map_err(meta::Error::Invalid)
}

/// The tools that may be called at a place.
fn summaries(place: &CallContext, pattern: Option<&NamePattern>) -> Vec<meta::ToolSummary> {
    let loaded = &place.loaded;
    let tools = loaded.parts.registry.tools().iter().chain(place.added_tools().map(|added| &added.tool));
    let shown = tools
        .filter(|tool| loaded.parts.policy.tools.decide(&tool.name).is_ok())
        .filter(|tool| pattern.is_none_or(|pattern| pattern.matches(&tool.name)));
    shown
        .map(|tool| meta::ToolSummary {
            name: tool.name.clone(),
            description: tool.offered().0,
            parameter_count: u32::try_from(tool.parameters.list.len()).unwrap_or(u32::MAX),
        })
        .collect()
}

/// Why a call was not made, in one line.
pub fn describe(error: &CallError) -> String {
    match error {
        CallError::Arguments { errors, .. } => {
            let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
            format!("{error}: {}", all.join("; "))
        }
        other => other.to_string(),
    }
}
