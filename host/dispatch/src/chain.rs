//! One event through its hooks: the same five steps for every event.
//!
//! Filter by `when`, in order of priority call `handle`, apply a `modify` for all that come after, stop at the first
//! block, return decision and payload.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value as Json;
use tracing::Instrument as _;

use super::builtin::BuiltIns;
use super::caps::cap_by;
use super::decision::NO_REASON;
pub use super::decision::{Block, Decision, Voice};
use super::hearing::{Link, Subject};
use super::loaded::{Callable, Loaded};
use super::loading::LoadDeadline;
use super::matching::{Asking, Holds, Payload};
use super::payload::{self, AgentAt};
use super::progress::Progress;
use super::recorder::{Recorder, Unfinished};
use super::reentry::{self, Inner, Nested};
use super::run::{Added, AddedTool, Run};
use super::spans;
use super::tasks::{Begun, Tasks};
use super::trail::Room;
pub use super::verdict::Verdict;
use super::view::View;
use harness_artifact::event::Event;
use harness_artifact::hook::Hook;
use harness_artifact::policy::hearing::Shows;
use harness_artifact::policy::hooks::OnError;
use harness_artifact::{third_party, tool::Tool};
use harness_capability::coverage::Coverage;
use harness_capability::fs::Workspace;
use harness_capability::log::Log;
use harness_capability::reentry::{Allowance, Reentry};
use harness_capability::turn::Turn;
use harness_policy::{grant::Grant, layer::Service, refusal::Refusal};
use harness_sandbox::imports::Role;
use harness_sandbox::outcome::{Answer, Failure, HostCall, Outcome, Report, Usage};
use harness_sandbox::state::Context;

/// What became of an event.
#[derive(Debug, Clone)]
pub struct Dispatch {
    /// The event.
    pub event: Event,
    /// Its hooks in the order they are called, those that did not match or were not reached as well.
    pub hooks: Vec<HookRun>,
    /// What they decided together.
    pub decision: Decision,
    /// The payload as they left it.
    pub payload: Json,
}

/// One hook in a dispatch.
#[derive(Debug, Clone)]
pub struct HookRun {
    /// The hook.
    pub name: String,
    /// Its file.
    pub file: String,
    /// Its priority.
    pub priority: i64,
    /// What it decided.
    pub verdict: Verdict,
    /// Why it blocked.
    pub reason: Option<String>,
    /// What went wrong without ending anything.
    pub warnings: Vec<String>,
    /// What it used; nothing where its `when` was decided without it.
    pub usage: Usage,
    /// What it logged.
    pub log: Log,
    /// Its host calls.
    pub calls: Vec<HostCall>,
    /// Which of its lines were reached, where scripts tell.
    pub coverage: Option<Coverage>,
    /// What it started in turn.
    pub nested: Vec<Nested>,
    /// Whose words its reason is in.
    pub voice: Voice,
    /// What it sees of the payload.
    pub shows: Shows,
}

impl Dispatch {
    /// What all its hooks used, and what they started in turn.
    pub fn usage(&self) -> Usage {
        self.hooks.iter().map(HookRun::total).fold(Usage::default(), Usage::and)
    }
}

impl HookRun {
    fn new(hook: &Hook, verdict: Verdict) -> Self {
        Self {
            name: hook.name.clone(),
            file: hook.source.file.to_string(),
            priority: *hook.priority,
            verdict,
            reason: None,
            warnings: Vec::new(),
            usage: Usage::default(),
            log: Log::default(),
            calls: Vec::new(),
            coverage: None,
            nested: Vec::new(),
            voice: third_party::author(&hook.source_name)
                .map_or(Voice::Own, |author| Voice::ThirdParty { author: author.to_owned(), prompts: false }),
            shows: Shows::All,
        }
    }

    /// Says why it blocks. What a third party says is cut here, for anyone who learns of it.
    fn blocks(&mut self, reason: String) {
        self.reason = Some(match &self.voice {
            Voice::Own => reason,
            Voice::ThirdParty { .. } => third_party::cut(&reason, third_party::MOST).into_owned(),
        });
    }

    /// That it is not what lets the event through, where that is so.
    fn block(&self) -> Decision {
        match (self.verdict, &self.reason) {
            (Verdict::Block | Verdict::Error, Some(reason)) => Decision::Block(Box::new(Block {
                hook: self.name.clone(),
                reason: reason.clone(),
                voice: self.voice.clone(),
                failed: self.verdict == Verdict::Error,
            })),
            _ => Decision::Allow,
        }
    }

    /// What it used, and what it started in turn.
    pub fn total(&self) -> Usage {
        self.usage.around(reentry::started(&self.nested))
    }
}

/// Where an event is fired: one state of the project and of the run, however deep in calls.
#[derive(Debug, Clone)]
pub struct CallContext {
    /// The artifacts and the policy in force.
    pub loaded: Arc<Loaded>,
    /// What it belongs to.
    pub run: Arc<Run>,
    /// What the run has added to itself so far.
    pub added: Arc<Added>,
    /// What is seen of that later, in this strand.
    pub view: Arc<View>,
    /// The folder that scripts work in.
    pub workspace: Arc<Workspace>,
    /// Calls of scripts that wait for this one.
    pub depth: u32,
    /// Calls of tools by tools that wait for this one.
    pub calls: u32,
    /// What is left to the script that fired it, where one did.
    pub left: Option<Allowance>,
    /// Until when scripts are waited for to be loaded, in a call.
    pub loads: Option<LoadDeadline>,
    /// The tool whose script is at work.
    pub at_work: Option<Arc<AtWork>>,
    /// Only these hooks are called, where there are such.
    pub only: Option<Arc<str>>,
    /// The script that this is for, such as `tool deploy`; none for the program itself.
    pub caller: Option<Arc<str>>,
    /// The name of the source of that script.
    pub caller_source: Option<Arc<str>>,
    /// The name of the source of the script or the agent that acts here; none for the root and the program itself.
    pub actor: Option<Arc<str>>,
    /// What an event that is fired here is about.
    pub about: Option<Subject>,
    /// The agent that this is for; the root where there is none.
    pub agent: Arc<AgentAt>,
    /// What the scripts of its turn share.
    pub turn: Arc<Turn>,
    /// The tools of the agent that calls are made for, where agents run.
    pub built_ins: Option<Arc<dyn BuiltIns>>,
    /// What was started here and runs in the background.
    pub tasks: Arc<Tasks>,
    /// Those of them that the outermost script has begun, with what it calls; none where no script is at work.
    pub begun: Option<Arc<Begun>>,
    /// Whether the caller here can ask for that later: a model and a tool's script can, a hook and a program cannot.
    pub asks_later: bool,
}

/// A tool whose script is at work.
#[derive(Debug)]
pub struct AtWork {
    pub(crate) tool: String,
    /// The name of its source.
    pub source: String,
}

impl CallContext {
    /// A place that nothing waits for.
    pub fn outermost(loaded: Arc<Loaded>, run: Arc<Run>) -> Self {
        let (added, workspace, built_ins) = (run.added(), loaded.parts.workspace.clone(), run.built_ins());
        let (tasks, view, turn) = (run.tasks().clone(), run.view().clone(), run.turn().clone());
        Self {
            loaded,
            run,
            added,
            view,
            workspace,
            depth: 0,
            calls: 0,
            left: None,
            loads: None,
            at_work: None,
            only: None,
            caller: None,
            caller_source: None,
            actor: None,
            about: None,
            agent: Arc::default(),
            turn,
            built_ins,
            tasks,
            begun: None,
            asks_later: false,
        }
    }

    /// The tools that the run has added, without those that have the name of one that is here anyway: what an agent has of its
    /// own is not known where another adds one.
    pub fn added_tools(&self) -> impl Iterator<Item = &AddedTool> {
        let taken = |name: &str| self.loaded.parts.registry.tools().iter().any(|tool| tool.name == name);
        let lent = |tool: &Tool| self.loaded.lends(tool);
        self.added.tools.iter().filter(move |added| !taken(&added.tool.name) && lent(&added.tool))
    }

    /// One of them.
    pub fn added_tool(&self, name: &str) -> Option<&AddedTool> {
        self.added_tools().find(|added| added.tool.name == name)
    }

    /// The same after something was used of what is left.
    pub fn after(&self, used: Usage) -> Cow<'_, Self> {
        match self.left {
            Some(left) => Cow::Owned(Self { left: Some(left.after(used.fuel)), ..self.clone() }),
            None => Cow::Borrowed(self),
        }
    }

    /// Dispatches an event to its hooks, and records what they decided.
    pub async fn fire(&self, event: &Event, mut payload: Json) -> Dispatch {
        self.loaded.parts.secrets.redact_json(&mut payload);
        let chain = self.chain(event);
        let Some(recorder) = self.loaded.parts.recorder.as_ref().filter(|_| !chain.is_empty()) else {
            return self.through(chain, event, payload).await;
        };
        let unfinished = match recorder.ready(self).await.and_then(|()| recorder.fired(self, event)) {
            Ok(known) => Unfinished::new(recorder, known),
            Err(why) => return unrecorded(event, payload, why),
        };
        let dispatch = self.through(chain, event, payload).await;
        match unfinished.ended(|known| recorder.event(self, known, &dispatch)).await {
            Ok(()) => dispatch,
            Err(why) => unrecorded(event, dispatch.payload, why),
        }
    }

    /// The same while the script of a tool is at work, where there are hooks that may want to know.
    pub fn working(&self, tool: &Tool) -> Cow<'_, Self> {
        let registry = &self.loaded.parts.registry;
        if [Event::BuiltinPre, Event::BuiltinPost].iter().all(|event| registry.chain(event).is_empty()) {
            return Cow::Borrowed(self);
        }
        let at_work = AtWork { tool: tool.name.clone(), source: tool.source_name.clone() };
        Cow::Owned(Self { at_work: Some(Arc::new(at_work)), ..self.clone() })
    }

    /// Until when something that began then, and has this long, waits for scripts to be loaded: not longer than what it
    /// is part of. A replay waits as long as it takes.
    pub fn load_deadline(&self, began: Instant, timeout: Duration) -> Option<LoadDeadline> {
        if !self.run.schedule().has_clock() {
            return None;
        }
        let own = LoadDeadline::new(began, timeout).min(self.loads);
        let left = self.left.map(|left| LoadDeadline { at: left.deadline, ..own });
        Some(own.min(left))
    }

    /// Whether an event has hooks.
    pub fn hears(&self, event: &Event) -> bool {
        !self.chain(event).is_empty()
    }

    /// Dispatches an event that nobody may hear: without hooks the payload is not made. The caller records what was decided.
    pub async fn fire_if_heard(&self, event: &Event, payload: impl FnOnce() -> Json) -> Option<Dispatch> {
        let chain = self.chain(event);
        if chain.is_empty() { None } else { Some(self.through(chain, event, payload()).await) }
    }

    /// Dispatches an event of a built-in. A decision is recorded; that all allow it is not, as there may be thousands.
    pub async fn fire_builtin(&self, event: &Event, mut payload: Json) -> Option<Dispatch> {
        let chain = self.chain(event);
        if chain.is_empty() {
            return None;
        }
        self.loaded.parts.secrets.redact_json(&mut payload);
        let dispatch = self.through(chain, event, payload).await;
        let decided = |hook: &HookRun| matches!(hook.verdict, Verdict::Modify | Verdict::Block | Verdict::Error);
        let recorder = self.loaded.parts.recorder.as_ref().filter(|_| dispatch.hooks.iter().any(decided));
        let recorded = Recorder::decided(recorder.map(|it| &**it), self, event, &dispatch).await;
        Some(match recorded {
            Ok(()) => dispatch,
            Err(why) => unrecorded(event, dispatch.payload, why),
        })
    }

    async fn through(&self, chain: Vec<Link<'_>>, event: &Event, payload: Json) -> Dispatch {
        let span = spans::hooks(event, chain.len());
        let dispatch = self.pass(chain, event, payload).instrument(span.clone()).await;
        spans::decided(&span, &dispatch);
        dispatch
    }

    async fn pass(&self, chain: Vec<Link<'_>>, event: &Event, payload: Json) -> Dispatch {
        let mut payload = Payload::new(payload);
        let (mut hooks, mut decision) = (Vec::new(), Decision::Allow);
        let name = event.to_string();
        let mut fuel = 0_u64;
        let mut room = Room::default();
        // An event by itself has as long as a call of the project's.
        let loads = self.load_deadline(Instant::now(), self.loaded.timeout);
        let until = self.run.schedule().has_clock().then(|| Instant::now() + self.loaded.timeout);
        for link in chain {
            if decision != Decision::Allow {
                hooks.push(HookRun::new(link.hook, Verdict::NotReached));
                continue;
            }
            let mut narrowed = link.narrowed(self, event, &payload);
            let payload = narrowed.as_mut().unwrap_or(&mut payload);
            let holds = payload.holds(link.hook, &name);
            if holds == Holds::No {
                hooks.push(HookRun::new(link.hook, Verdict::Skip));
                continue;
            }
            let left = self.left.map(|left| left.after(fuel));
            let mut run = self.call(&link, event, holds, payload, (left, loads, until)).await;
            fuel = fuel.saturating_add(run.total().fuel);
            decision = run.block();
            room.take(&mut run);
            hooks.push(run);
        }
        let dispatch = Dispatch { event: event.clone(), hooks, decision, payload: payload.now };
        if !dispatch.hooks.is_empty() {
            self.run.progress(&Progress::Fired(&dispatch));
        }
        dispatch
    }

    /// Calls one hook.
    async fn call(
        &self,
        link: &Link<'_>,
        event: &Event,
        holds: Holds,
        payload: &mut Payload,
        (left, loads, until): (Option<Allowance>, Option<LoadDeadline>, Option<Instant>),
    ) -> HookRun {
        let hook = link.hook;
        let mut run = HookRun { shows: link.shows, ..HookRun::new(hook, Verdict::Allow) };
        let Callable { image, grant, loading, .. } = match link.added {
            Some((grant, image)) => {
                let (image, grant) = (Some(Ok(image.clone())), grant.clone());
                Callable { image, verify: None, grant, loading: Duration::ZERO }
            }
            None => self.loaded.hook(hook, self.waiter(&payload.text()), loads).await,
        };
        run.usage.loading = loading;
        if let Voice::ThirdParty { prompts, .. } = &mut run.voice {
            *prompts = grant.decide_service(Service::Prompt).is_ok();
        }
        let image = match image {
            // Without a script it has nothing to say.
            None => return run,
            Some(Err(unloadable)) => {
                self.failed(&mut run, event, &unloadable.message());
                return run;
            }
            Some(Ok(image)) => image,
        };
        let mut limits = self.loaded.measured(grant.limits());
        limits.waited = loading;
        cap_by(&mut limits, left);
        limits.end_within(until.map(|until| until.saturating_duration_since(Instant::now())));
        let inner =
            Arc::new(Inner::new(self, format!("hook {}", hook.name), &hook.source_name, grant.clone(), Role::Hook));
        let context = Context {
            grant: grant.clone(),
            workspace: self.workspace.clone(),
            session: self.run.session().clone(),
            turn: self.turn.clone(),
            namespace: self.loaded.namespace(&hook.source_name),
            system: self.loaded.parts.system.clone(),
            http: self.loaded.parts.http.clone(),
            secrets: self.loaded.parts.secrets.clone(),
            depth: self.depth,
            listener: self.run.log_listener(|| format!("hook {}", hook.name)),
            // What watches built-ins starts nothing that could call others.
            reentry: (!event.is_builtin()).then(|| inner.clone() as Arc<dyn Reentry>),
        };
        let (sandbox, event_name, has_script) = (&self.loaded.parts.sandbox, event.to_string(), hook.script.is_some());
        let now = payload.text();
        let asking = Asking { sandbox, image: &image, context, limits, event: &event_name, has_script };
        let Report { outcome, usage, log, calls, coverage } = asking.ask(holds, &now, payload.fired()).await;
        (run.usage, run.log, run.calls, run.coverage) = (usage, log, calls, coverage);
        run.nested = inner.take();
        match outcome {
            Outcome::Completed(Answer::Unmatched) => run.verdict = Verdict::Skip,
            Outcome::Completed(Answer::WhenFailed(failure)) => {
                let why = format!("its `when` failed: {}", describe_failure(&failure));
                run.verdict = Verdict::Skip;
                self.wrong(&mut run, event, why);
            }
            Outcome::Completed(Answer::Decided(decision)) => {
                self.decided(&mut run, event, &decision, payload, (link, &grant));
            }
            Outcome::Failed(failure) | Outcome::Denied { failure, .. } => {
                self.failed(&mut run, event, &describe_failure(&failure))
            }
            Outcome::Limited(limit) => self.failed(&mut run, event, &limit.to_string()),
            Outcome::Busy(busy) => self.failed(&mut run, event, &busy.to_string()),
            Outcome::Fault(message) => self.failed(&mut run, event, &format!("the host failed: {message}")),
        }
        run
    }

    /// Takes what `handle` returned: a decision as the interpreter shows it, with a warning instead of anything else.
    fn decided(
        &self,
        run: &mut HookRun,
        event: &Event,
        decision: &str,
        payload: &mut Payload,
        (link, grant): (&Link<'_>, &Grant),
    ) {
        let mut decision: Json = match serde_json::from_str(decision) {
            Ok(decision) => decision,
            Err(error) => return self.failed(run, event, &format!("the interpreter returned no JSON: {error}")),
        };
        self.loaded.parts.secrets.redact_json(&mut decision);
        if let Some(warning) = decision.get("warning").and_then(Json::as_str) {
            return self.wrong(run, event, warning.to_owned());
        }
        match decision.get("action").and_then(Json::as_str) {
            Some("allow") => {}
            Some("block") => {
                let reason = match decision.get("reason") {
                    Some(Json::String(reason)) if !reason.is_empty() => reason.clone(),
                    None | Some(Json::Null | Json::String(_)) => NO_REASON.to_owned(),
                    Some(other) => other.to_string(),
                };
                run.verdict = Verdict::Block;
                run.blocks(reason);
            }
            Some("modify") => match decision.get("payload") {
                Some(new) => self.modified(run, event, new.clone(), payload, (link, grant)),
                None => self.wrong(run, event, "`handle` returned a `modify` without a `payload`".to_owned()),
            },
            _ => self.wrong(run, event, "`handle` returned what is not a decision".to_owned()),
        }
    }

    /// Takes a `modify`, where the hook may.
    fn modified(
        &self,
        run: &mut HookRun,
        event: &Event,
        new: Json,
        payload: &mut Payload,
        (link, grant): (&Link<'_>, &Grant),
    ) {
        if link.shows < Shows::All {
            let what = format!("it may not modify `{event}`: it sees only a part of the payload");
            return self.failed(run, event, &what);
        }
        if !matches!(event, Event::Custom(_)) {
            // With the grant of who added it, it could else make a tool with a wider one do as it likes.
            if link.added.is_some() {
                return run.warnings.push(format!("a hook that the run has added cannot modify `{event}`"));
            }
            // And so could a plugin's hook with the project's tools.
            if let Err(refusal) = grant.decide_service(Service::Modify) {
                let Refusal { reason, hint } = refusal;
                return self.failed(run, event, &format!("it may not modify `{event}`: {reason}; {hint}"));
            }
        }
        let mut changed = payload.now.clone();
        match payload::modify(event, &mut changed, new) {
            Ok(warnings) => {
                run.warnings.extend(warnings);
                run.verdict = Verdict::Modify;
                payload.change(changed);
            }
            Err(why) => self.failed(run, event, &why),
        }
    }

    /// A `when` that fails, and anything but a decision, pass with a warning; the strict setting makes failures of them.
    fn wrong(&self, run: &mut HookRun, event: &Event, why: String) {
        if self.loaded.parts.policy.hooks.strict {
            self.failed(run, event, &why);
        } else {
            run.warnings.push(why);
        }
    }

    /// Where a block stops something, a hook that fails blocks, unless the policy says otherwise of it.
    fn failed(&self, run: &mut HookRun, event: &Event, why: &str) {
        run.verdict = Verdict::Error;
        let why = format!("the hook failed: {why}");
        if event.can_block() && self.loaded.parts.policy.hooks.for_hook(&run.name) == OnError::Block {
            run.blocks(why);
        } else {
            run.warnings.push(why);
        }
    }
}

/// What cannot be recorded does not pass.
fn unrecorded(event: &Event, payload: Json, why: String) -> Dispatch {
    let block = Block { hook: "the record".to_owned(), reason: why, voice: Voice::Own, failed: true };
    Dispatch { event: event.clone(), hooks: Vec::new(), decision: Decision::Block(Box::new(block)), payload }
}

/// A script's error in one line.
pub fn describe_failure(failure: &Failure) -> String {
    match failure.line {
        0 => failure.message.clone(),
        line => format!("{} ({}:{line}:{})", failure.message, failure.file, failure.column),
    }
}
