//! One call of a tool: the six steps, for every caller.
//!
//! 1. resolve the name, under the policy for names;
//! 2. check the arguments against the parameters;
//! 3. `tool.pre`: hooks look at the call, change its arguments, or stop it; what needs confirmation is asked for then;
//! 4. run the tool in an instance of its own;
//! 5. `tool.post`: hooks look at what it gave, change it, or keep it back;
//! 6. return that, cut to what a model gets.
//!
//! A call that runs in the background goes through the first three steps, returns the identifier of a task, and
//! continues.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use super::blocks::{self, Content, Returned};
use super::builtin::{Answered, BuiltInCall, BuiltIns, DONE, READ_SKILL};
pub use super::call_error::CallError;
use super::chain::{CallContext, Dispatch, Verdict};
use super::code;
use super::confirm::{self, Answer};
use super::content::ToolOutput;
use super::loaded::{Callable, Unloadable};
use super::loading::LoadDeadline;
use super::native::{NativeTool, native_outcome};
use super::past::Happened;
use super::payload::{self, ToolPost, ToolPre};
use super::progress::Progress;
use super::raw;
use super::recorder::Unfinished;
use super::reentry::{self, Nested};
use super::schedule::Time;
use super::scripted::{self, Of, Standing};
use super::served;
use super::spans;
use super::tasks::{Kind, MAX_AGENTS, MAX_TOOLS, New};
use super::verify::{self, Judgement};
use harness_artifact::definition::Served;
use harness_artifact::event::Event;
use harness_artifact::tool::Tool;
use harness_audit::Entry;
use harness_capability::coverage::Coverage;
use harness_capability::log::Log;
use harness_policy::grant::Grant;
use harness_policy::layer::Service;
use harness_policy::limits::Limits;
use harness_sandbox::engine::Image;
use harness_sandbox::outcome::{Failure, FailureKind, HostCall, Limit, LimitKind, Outcome, Report, Usage};
use tracing::Instrument as _;

/// A call to make.
#[derive(Debug, Clone)]
pub struct Call {
    /// What its caller calls it; without one the run counts.
    pub id: Option<String>,
    /// The tool.
    pub name: String,
    /// A JSON object.
    pub arguments: Json,
}

/// Everything that is known of a call.
#[derive(Debug, Clone)]
pub struct CallReport {
    /// What its caller calls it.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// What a person said to it, where one was to be asked.
    pub confirmed: Option<Answer>,
    /// The task that it continues as, where it was not waited for. This is then what was known when it began.
    pub task: Option<String>,
    /// The task that this is the end of.
    pub ends: Option<String>,
    /// What it was granted.
    pub grant: Arc<Grant>,
    /// How it ended. Of one that completed, what its caller gets, after the hooks.
    pub outcome: Outcome<ToolOutput>,
    /// The text that a model gets, of an error too.
    pub content: String,
    /// The blocks of a result that is content, after the hooks. `content` is then what of them is text.
    pub rich: Option<Content>,
    /// The value of that.
    pub result: Json,
    /// Whether it is an error.
    pub is_error: bool,
    /// What the tool used, without its hooks.
    pub usage: Usage,
    /// What it logged.
    pub log: Log,
    /// Its host calls in order.
    pub calls: Vec<HostCall>,
    /// Which of its lines were reached, where scripts tell.
    pub coverage: Option<Coverage>,
    /// How its `verify` judged that, where it has one and ended.
    pub verify: Option<Judgement>,
    /// What the hooks on `tool.pre` decided, where there are any.
    pub pre: Option<Dispatch>,
    /// What the hooks on `tool.post` decided, where there are any and it came to that.
    pub post: Option<Dispatch>,
    /// What it started in turn.
    pub nested: Vec<Nested>,
}

impl CallReport {
    /// What the tool, its hooks and what they started used together.
    pub fn total(&self) -> Usage {
        let hooks = self.dispatches().map(Dispatch::usage);
        let judged = self.verify.iter().map(Judgement::total);
        judged.chain(hooks).fold(self.usage.around(reentry::started(&self.nested)), Usage::and)
    }

    /// What its hooks decided, before it and after.
    pub fn dispatches(&self) -> impl DoubleEndedIterator<Item = &Dispatch> {
        self.pre.iter().chain(&self.post)
    }
}

/// What is called.
struct Callee {
    tool: Arc<Tool>,
    grant: Arc<Grant>,
    body: Body,
    /// What the script is granted that calls it, where one does.
    caller: Option<Arc<Grant>>,
    /// What judges each of its calls, where it declares that.
    verify: Option<Image>,
    /// How long its scripts were waited for.
    loading: Duration,
    /// Until when the call waits for scripts to be loaded.
    loads: Option<LoadDeadline>,
}

impl Callee {
    /// One of which nothing is to be loaded, and that nothing judges.
    fn ready(
        (tool, grant, body): (Arc<Tool>, Arc<Grant>, Body),
        caller: Option<&Arc<Grant>>,
        loads: Option<LoadDeadline>,
    ) -> Self {
        Self { tool, grant, body, caller: caller.cloned(), verify: None, loading: Duration::ZERO, loads }
    }

    fn of(&self) -> Of<'_> {
        Of { tool: &self.tool, grant: &self.grant, standing: Standing::Artifact }
    }

    /// Until when what it calls waits for scripts to be loaded. What came before it is not its time: someone may have
    /// taken minutes to confirm it. The work of an agent ends by limits of its own.
    fn working_loads(&self, place: &CallContext) -> Option<LoadDeadline> {
        if matches!(self.body, Body::BuiltIn(_)) {
            return place.loads;
        }
        let (now, timeout) = (Instant::now(), place.loaded.limits(&self.tool, &self.grant).timeout);
        place.load_deadline(now.checked_sub(self.loading).unwrap_or(now), timeout)
    }
}

/// Its implementation.
enum Body {
    Script(Image),
    Native(Arc<dyn NativeTool>),
    BuiltIn(Arc<dyn BuiltIns>),
    Served(Served),
    Code,
}

/// Whether a call is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// As its tool says.
    AsDeclared,
    /// It is not.
    AsTask,
}

/// Makes a call, and records it. `caller` is the grant of the script that makes it, where one does: no call gets more
/// than that.
pub async fn call(place: &CallContext, call: Call, caller: Option<&Arc<Grant>>) -> Result<CallReport, CallError> {
    made(place, call, caller, How::AsDeclared).await
}

/// The same without waiting: the report of a call that was begun has its task.
pub async fn start(place: &CallContext, call: Call, caller: Option<&Arc<Grant>>) -> Result<CallReport, CallError> {
    made(place, call, caller, How::AsTask).await
}

/// A call that is not made, which is recorded as any other.
pub async fn refuse(place: &CallContext, call: Call, why: CallError) -> Result<CallReport, CallError> {
    let span = spans::call(place, &call.name);
    let called = recorded(place, call, |_| std::future::ready(Err(why))).instrument(span.clone()).await;
    spans::called(&span, &called);
    called
}

async fn made(place: &CallContext, call: Call, caller: Option<&Arc<Grant>>, how: How) -> Result<CallReport, CallError> {
    let span = spans::call(place, &call.name);
    let called = recorded(place, call, |call| steps(place, call, caller, how)).instrument(span.clone()).await;
    spans::called(&span, &called);
    called
}

async fn recorded<F>(place: &CallContext, mut call: Call, work: impl FnOnce(Call) -> F) -> Result<CallReport, CallError>
where
    F: Future<Output = Result<CallReport, CallError>>,
{
    let vault = &place.loaded.parts.secrets;
    for text in call.id.iter_mut().chain([&mut call.name]) {
        vault.redact(text);
    }
    vault.redact_json(&mut call.arguments);
    let (run, tool, depth) = (&place.run, call.name.clone(), place.depth);
    run.progress(&Progress::Began { tool: &tool, depth });
    let called = unless_unrecorded(place, call, work).await;
    run.progress(&match &called {
        Ok(report) => Progress::Ended { depth, report },
        Err(error) => Progress::Refused { tool: &tool, depth, error },
    });
    called
}

/// Makes a call and records it, where calls are recorded.
async fn unless_unrecorded<F>(
    place: &CallContext,
    call: Call,
    work: impl FnOnce(Call) -> F,
) -> Result<CallReport, CallError>
where
    F: Future<Output = Result<CallReport, CallError>>,
{
    let Some(recorder) = &place.loaded.parts.recorder else { return work(call).await };
    recorder.ready(place).await.map_err(CallError::Host)?;
    let known = recorder.called(place, &call.name, &call.arguments).map_err(CallError::Host)?;
    let unfinished = Unfinished::new(recorder, known);
    let called = work(call).await;
    // What a call gave is not handed out where nobody could see later that it was made.
    unfinished.ended(|known| recorder.call(place, known, &called)).await.map_err(CallError::Host)?;
    called
}

/// The six steps.
async fn steps(
    place: &CallContext,
    call: Call,
    caller: Option<&Arc<Grant>>,
    how: How,
) -> Result<CallReport, CallError> {
    match begin(place, call, caller).await? {
        Begun::Over(report) => Ok(*report),
        Begun::Ready(ready) if how == How::AsTask || place.goes_on(&ready.callee.tool) => Ok(ready.start(place)),
        Begun::Ready(ready) => Ok(ready.finish(place).await),
    }
}

/// How the first three steps ended.
enum Begun {
    /// The call is not made.
    Over(Box<CallReport>),
    /// It may be.
    Ready(Box<Ready>),
}

/// A call that hooks, policy and whoever had to confirm it have let pass.
struct Ready {
    callee: Callee,
    arguments: Json,
    report: CallReport,
}

/// The first three steps.
async fn begin(place: &CallContext, mut call: Call, caller: Option<&Arc<Grant>>) -> Result<Begun, CallError> {
    let id = call.id.unwrap_or_else(|| place.run.strand().next_call());
    let callee = match resolve(place, (&id, &call.name), caller).await {
        Err(CallError::Unknown(_)) if raw::is_built_in(&call.name) => {
            return Ok(Begun::Over(Box::new(raw::reject(place, id, &call.name, &call.arguments).await)));
        }
        resolved => resolved?,
    };
    let place = &CallContext { loads: callee.loads, ..place.concerning(&callee.tool) };
    callee.tool.fill_defaults(&mut call.arguments);
    check(&callee.tool, &call.arguments, None)?;

    let pre = place.before(&id, (&callee.tool.name, callee.tool.served.as_ref()), &call.arguments).await;
    let blocked = pre.as_ref().and_then(|pre| pre.decision.blocked());
    let mut report = CallReport::begun(id, callee.tool.name.clone(), callee.grant.clone(), pre);
    if let Some(reason) = blocked {
        report.block("tool blocked", &reason);
        report.cut(callee.grant.limits().output_bytes);
        return Ok(Begun::Over(Box::new(report)));
    }
    let arguments = match report.pre.as_ref().filter(|pre| !changed_by(pre).is_empty()) {
        Some(pre) => {
            let mut arguments = pre.payload.get("args").cloned().unwrap_or_default();
            callee.tool.fill_defaults(&mut arguments);
            check(&callee.tool, &arguments, Some(pre))?;
            arguments
        }
        None => call.arguments,
    };
    // Of what will run, whatever hooks made of it, and nothing that they say makes it unasked.
    if let Some(rule) = confirm::rule(place, &callee.tool) {
        let (answer, refusal) = confirm::ask(place, &report.id, &callee.tool, &rule, &arguments).await;
        report.confirmed = Some(answer);
        if let Some(refusal) = refusal {
            let failure = Failure::without_place(FailureKind::Denied, "", refusal.reason.clone());
            report.end(Outcome::Denied { failure, refusal });
            report.cut(callee.grant.limits().output_bytes);
            return Ok(Begun::Over(Box::new(report)));
        }
    }
    Ok(Begun::Ready(Box::new(Ready { callee, arguments, report })))
}

impl Ready {
    /// The last three steps.
    async fn finish(self: Box<Self>, place: &CallContext) -> CallReport {
        let Self { callee, arguments, mut report } = *self;
        let working = CallContext { loads: callee.working_loads(place), ..place.clone() };
        let limits = execute(&working.after(report.total()), &callee, &arguments, &mut report).await;
        // Hooks on what came of it have a time of their own: that the tool took all of its own fails no guard.
        let post = || {
            let payload = place.agent.payload(&ToolPost {
                call_id: report.id.clone(),
                name: report.tool.clone(),
                content: report.content.clone(),
                blocks: report.rich.as_ref().map(|rich| blocks::as_json(&rich.blocks)),
                is_error: report.is_error,
                result: report.result.clone(),
            });
            let structured = report.rich.as_ref().is_some_and(|rich| rich.structured).then(|| report.result.clone());
            payload::of_server(payload, callee.tool.served.as_ref(), Some(structured.unwrap_or_default()))
        };
        let here = place.after(report.total()).concerning(&callee.tool);
        if let Some(post) = here.fire_if_heard(&Event::ToolPost, post).await {
            report.settle(&post, &place.loaded.parts.secrets);
            report.post = Some(post);
        }
        report.fit(&callee.tool);
        report.cut(limits.output_bytes);
        report
    }

    /// Lets the last three steps continue by themselves. Gives back what is known by now.
    fn start(mut self: Box<Self>, place: &CallContext) -> CallReport {
        let mut begun = self.report.clone();
        // What its hooks did before is in what is returned.
        self.report.pre = None;
        let (kind, most) = match &self.callee.body {
            Body::BuiltIn(_) => {
                (Kind::Agent, place.loaded.parts.policy.delegation.max_concurrent.unwrap_or(MAX_AGENTS))
            }
            Body::Script(_) | Body::Native(_) | Body::Served(_) | Body::Code => (Kind::Tool, MAX_TOOLS),
        };
        let strand = place.run.strand().next_task();
        let tool = begun.tool.clone();
        let recorder = place.loaded.parts.recorder.as_ref();
        let (call, of) = (begun.id.clone(), strand.clone());
        let tell = |task: Result<&str, &str>| {
            place.tell(&Happened::Began { call: &call, tool: &tool, strand: of.name(), task });
        };
        let started = place.run.schedule().begin_task(&place.run, &strand, most).and_then(|(id, most)| {
            let entry = recorder.map(|recorder| recorder.task(place, &tool, &self.arguments, &id)).transpose()?;
            let beside = CallContext { view: place.view.concurrent(), ..place.clone() };
            let work = on_its_own(beside, self, id.clone(), entry);
            let new = New { kind, most, id: &id, tool: &tool };
            place.start(new, strand.clone(), || tell(Ok(&id)), work)?;
            Ok(id)
        });
        match started {
            Ok(id) => {
                begun.complete(json!({"task_id": id, "status": "running"}), &place.loaded.parts.secrets);
                begun.task = Some(id);
                begun.cut(begun.grant.limits().output_bytes);
            }
            Err(why) => {
                tell(Err(&why));
                begun.end(Outcome::Failed(Failure::without_place(FailureKind::Script, "", why)));
            }
        }
        begun
    }
}

/// The last three steps of a call that nobody waits for, recorded by itself. Where a script began it, it has the time
/// that the script had left.
async fn on_its_own(place: CallContext, ready: Box<Ready>, id: String, known: Option<Entry>) -> CallReport {
    let recorder = place.loaded.parts.recorder.clone();
    let unfinished = recorder.as_ref().zip(known).map(|(recorder, known)| Unfinished::new(recorder, known));
    let mut going = Going { place: &place, task: &id, tool: ready.report.tool.clone(), ended: false };
    let mut cut_short = ready.report.clone();
    let left = place.left.map(|left| left.deadline.saturating_duration_since(Instant::now()));
    let (time, allowed) = place.run.schedule().task_time(&id, left);
    let span = spans::call(&place, &ready.report.tool);
    let ended = time.limit(ready.finish(&place).instrument(span.clone())).await.ok_or(allowed);
    // Its script has the same deadline, and may have ended by it just before the task was given up: what is recorded of
    // the task decides.
    let ended = ended.and_then(|report| {
        let by_deadline = matches!(&report.outcome, Outcome::Limited(limit) if limit.kind == LimitKind::Deadline);
        if time == Time::Recorded && by_deadline { Err(allowed) } else { Ok(report) }
    });
    let late = ended.as_ref().err().copied();
    let mut report = ended.unwrap_or_else(|allowed| {
        cut_short.end(Outcome::Limited(Limit::of(LimitKind::Deadline, allowed)));
        cut_short
    });
    report.ends = Some(id.clone());
    if let (Some(recorder), Some(unfinished)) = (&recorder, unfinished)
        && let Err(why) = unfinished.ended(|known| recorder.ended(&place, known, &report)).await
    {
        report.end(Outcome::Fault(why));
    }
    spans::reported(&span, &report);
    going.ended = true;
    place.run.progress(&Progress::Ended { depth: place.depth, report: &report });
    place.tell(&Happened::Ended { task: &id, report: &report, late });
    report
}

/// A task that continues: told as abandoned, unless it ends.
struct Going<'a> {
    place: &'a CallContext,
    task: &'a str,
    tool: String,
    ended: bool,
}

impl Drop for Going<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.place.tell(&Happened::Abandoned { task: self.task, tool: &self.tool });
        }
    }
}

/// Step 1. The tool, what it may do and what runs.
async fn resolve(
    place: &CallContext,
    (id, name): (&str, &str),
    caller: Option<&Arc<Grant>>,
) -> Result<Callee, CallError> {
    let (loaded, began) = (&place.loaded, Instant::now());
    let narrowed = |grant: Arc<Grant>| {
        let grant = caller.map_or_else(|| grant.clone(), |caller| Arc::new(grant.meet(caller)));
        match place.run.layers() {
            [] => grant,
            layers => Arc::new(grant.meet(&Grant::new(layers.to_vec()))),
        }
    };
    if let Some(added) = place.added_tool(name) {
        loaded.parts.policy.tools.decide(name).map_err(CallError::NotAllowed)?;
        let grant = narrowed(added.grant.clone());
        let body = Body::Script(added.image.clone());
        let loads = place.load_deadline(began, loaded.limits(&added.tool, &grant).timeout);
        return Ok(Callee::ready((added.tool.clone(), grant, body), caller, loads));
    }
    let built_in = |built_ins: &Arc<dyn BuiltIns>| {
        let tool = built_ins.tools().iter().find(|tool| tool.name == name)?;
        Some((tool.clone(), built_ins.clone()))
    };
    if let Some((tool, built_ins)) = place.built_ins.as_ref().and_then(built_in) {
        loaded.parts.policy.tools.decide(name).map_err(CallError::NotAllowed)?;
        // To say that it is done sets nobody to work.
        if let Some(caller) = caller.filter(|_| name != DONE) {
            let service = if name == READ_SKILL { Service::Prompt } else { Service::Delegate };
            caller.decide_service(service).map_err(CallError::NotAllowed)?;
        }
        let grant = narrowed(Arc::new(loaded.parts.policy.grant_for("", None)));
        let (body, loads) = (Body::BuiltIn(built_ins), place.load_deadline(began, grant.limits().timeout));
        return Ok(Callee::ready((tool, grant, body), caller, loads));
    }
    if let Some(tool) = code::tool(loaded, name) {
        loaded.parts.policy.tools.decide(name).map_err(CallError::NotAllowed)?;
        let (tool, grant) = (tool.clone(), code::grant(loaded, place.run.layers(), caller));
        let loads = place.load_deadline(began, loaded.limits(&tool, &grant).timeout);
        return Ok(Callee::ready((tool, grant, Body::Code), caller, loads));
    }
    let tool = loaded.parts.registry.tool(name)?.clone();
    loaded.parts.policy.tools.decide(name).map_err(CallError::NotAllowed)?;
    if let Some(served) = &tool.served {
        let grant = served::grant(place, &tool, served, caller)?;
        let loads = place.load_deadline(began, loaded.limits(&tool, &grant).timeout);
        let body = Body::Served(served.clone());
        return Ok(Callee::ready((tool, grant, body), caller, loads));
    }
    let until = |limits: Limits| place.load_deadline(began, limits.timeout);
    let Callable { image, verify, grant, loading } = loaded.tool(&tool, place.waiter(id), until).await;
    let loads = place.load_deadline(began, loaded.limits(&tool, &grant).timeout);
    let usable = |image: Result<Image, Unloadable>| {
        image.map_err(|unloadable| match unloadable {
            Unloadable::Script(failure) => CallError::Script(failure),
            Unloadable::Late(_, allowed) => CallError::late(name, allowed),
            Unloadable::Host(message) => CallError::Host(message),
        })
    };
    // What cannot be judged afterwards is not done.
    let verify = verify.map(usable).transpose()?;
    let body = match image {
        Some(image) => Body::Script(usable(image)?),
        None => {
            let native = loaded.parts.natives.iter().find(|(native, _)| native == name);
            Body::Native(native.map(|(_, native)| native.clone()).ok_or_else(|| CallError::NoScript(name.to_owned()))?)
        }
    };
    Ok(Callee { tool, grant: narrowed(grant), body, caller: caller.cloned(), verify, loading, loads })
}

/// Step 2, and once more after hooks changed the arguments.
fn check(tool: &Tool, arguments: &Json, pre: Option<&Dispatch>) -> Result<(), CallError> {
    tool.check_arguments(arguments).map_err(|errors| {
        let changed_by = pre.map(changed_by).unwrap_or_default();
        CallError::Arguments { tool: tool.name.clone(), errors, changed_by, pre: pre.cloned().map(Box::new) }
    })
}

/// The hooks that changed a payload.
fn changed_by(dispatch: &Dispatch) -> Vec<String> {
    let modified = dispatch.hooks.iter().filter(|hook| hook.verdict == Verdict::Modify);
    modified.map(|hook| hook.name.clone()).collect()
}

/// Step 4. Gives back the limits that held.
async fn execute(place: &CallContext, callee: &Callee, arguments: &Json, report: &mut CallReport) -> Limits {
    let mut limits = place.loaded.limits(&callee.tool, &callee.grant);
    limits.waited = callee.loading;
    super::caps::cap_by(&mut limits, place.left);
    let ran = match &callee.body {
        Body::Script(image) => {
            let (ran, nested) =
                scripted::run(place, callee.of(), (image, "tool"), limits, &arguments.to_string()).await;
            report.nested = nested;
            ran
        }
        Body::BuiltIn(built_ins) => {
            let call = BuiltInCall { name: &callee.tool.name, arguments, caller: callee.caller.as_ref() };
            let Answered { outcome, nested } = built_ins.call(place, call).await;
            report.nested = nested;
            Report { outcome, usage: Usage::default(), log: Log::default(), calls: Vec::new(), coverage: None }
        }
        Body::Code => {
            let who = (&callee.grant, callee.caller.as_ref());
            let (ran, nested) = Box::pin(code::run(place, &callee.tool, who, limits, arguments)).await;
            report.nested = nested;
            ran
        }
        // On the heap: what it waits for is deep, and few calls are its.
        Body::Served(served) => Box::pin(served::run(place, served, &callee.grant, limits, arguments)).await,
        Body::Native(native) => {
            let outcome = native_outcome(native.as_ref(), arguments, &limits).await;
            Report { outcome, usage: Usage::default(), log: Log::default(), calls: Vec::new(), coverage: None }
        }
    };
    let Report { mut outcome, usage, log, calls, coverage } = ran;
    outcome.redact(&place.loaded.parts.secrets);
    (report.usage, report.log, report.calls, report.coverage) = (usage, log, calls, coverage);
    match outcome {
        Outcome::Completed(text) => match Returned::read(&text) {
            Ok(Returned::Value(result)) => report.complete(result, &place.loaded.parts.secrets),
            Ok(Returned::Content(whole)) => report.complete_with(whole, &place.loaded.parts.secrets),
            Err(error) => report.end(Outcome::Fault(format!("the interpreter returned no JSON: {error}"))),
        },
        other => report.end(other.map(|_| ToolOutput::default())),
    }
    if let Some(image) = callee.verify.as_ref().filter(|_| matches!(report.outcome, Outcome::Completed(_))) {
        verify::judge(&place.after(report.total()), (callee.of(), image), limits, arguments, report).await;
    }
    limits
}

impl CallContext {
    /// Whether calls of a tool run in the background: the tool says so, the policy lets it, and the caller can ask for
    /// them later.
    pub(super) fn goes_on(&self, tool: &Tool) -> bool {
        *tool.asynchronous && self.loaded.parts.policy.async_tools && self.asks_later
    }

    /// Asks the hooks on `tool.pre`, where there are any.
    pub(super) async fn before(
        &self,
        id: &str,
        (name, served): (&str, Option<&Served>),
        arguments: &Json,
    ) -> Option<Dispatch> {
        let pre = || {
            let payload = self.agent.payload(&ToolPre {
                id: id.to_owned(),
                name: name.to_owned(),
                arguments: arguments.to_string(),
                args: arguments.clone(),
            });
            payload::of_server(payload, served, None)
        };
        self.fire_if_heard(&Event::ToolPre, pre).await
    }
}
