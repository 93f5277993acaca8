//! One call: an instance that no other call has had, with its own fuel, deadline and limits. All that the call had is dropped
//! before its caller has the outcome.

use std::time::{Duration, Instant};

use serde::Serialize;
use tracing::{Instrument as _, Span};
use wasmtime::component::{ComponentNamedList, Instance, Lift, Lower};
use wasmtime::{Error, Store, Trap, UpdateDeadline};

use super::cache::Image;
use super::compile;
use super::engine::Sandbox;
use super::imports::Role;
use super::last_words::Said;
use super::occupant::{Occupant, Occupied};
use super::outcome::{Answer, Failure, FailureKind, Limit, LimitKind, Outcome, Report, Usage};
use super::scheduling::admission::Busy;
use super::scheduling::guests::Work as Scheduled;
use super::scheduling::quota::Standing;
use super::scheduling::slices::{self, Sliced};
use super::spans;
use super::spare::{Made, Next};
use super::state::{Context, State};
use super::stop::Stop;
use super::strand;
use super::tape::{Late, LatePoint, Taping};
use harness_capability::log::Log;
use harness_capability::reentry::Listening;
use harness_policy::limits::Limits;

/// Calls within calls that the interpreter allows; see `guest/src/dialect.rs`.
const MAX_DEPTH: u64 = 100;
/// What an import can be handed at most beyond a file, in bytes: the largest cap of the price table.
const MAX_GIVEN: u64 = 16 << 20;
/// The time of a script of the past that is run again, at least.
const MAX_AGAIN: Duration = Duration::from_secs(600);
/// The most fuel of a call whose instance is cleared up after its caller has the answer.
const SMALL: u64 = 2_000_000;
/// Handles to host resources that an instance may hold: the contract has none.
const MAX_HANDLES: usize = 0;

impl Sandbox {
    /// Calls `run(args)` of a tool. `args` is a JSON object, and so is what comes back a JSON value.
    pub async fn run(&self, image: &Image, context: Context, limits: Limits, args: &str) -> Report<String> {
        let invocation = Invocation { when: None, export: Export::Run, params: (args.to_owned(),) };
        let report = self.call(image, Role::Tool, invocation, &[args], context, limits).await.map(Outcome::whole);
        bounded(report, &limits, |result| result.len() as u64)
    }

    /// Calls `handle(event, payload)` of a hook. `payload` is a JSON value; what comes back is a decision, as JSON.
    pub async fn handle(
        &self,
        image: &Image,
        context: Context,
        limits: Limits,
        event: &str,
        payload: &str,
    ) -> Report<String> {
        let invocation = Invocation { when: None, export: Export::Handle, params: owned(event, payload) };
        let report =
            self.call(image, Role::Hook, invocation, &[event, payload], context, limits).await.map(Outcome::whole);
        bounded(report, &limits, |result| result.len() as u64)
    }

    /// Evaluates the `when` of a hook and, in the same instance, calls `handle` where it is true. While `when` runs, no
    /// import is open.
    pub async fn decide(
        &self,
        image: &Image,
        context: Context,
        limits: Limits,
        event: &str,
        payload: &str,
    ) -> Report<Answer> {
        let params = owned(event, payload);
        let invocation = Invocation { when: Some(params.clone()), export: Export::Handle, params };
        let report = self.call(image, Role::Hook, invocation, &[event, payload], context, limits).await;
        let report =
            bounded(report, &limits, |ran| if let Ran::Whole(result) = ran { String::len(result) as u64 } else { 0 });
        report.map(|outcome| {
            outcome.map(|ran| match ran {
                Ran::Unmatched => Answer::Unmatched,
                Ran::WhenFailed(failure) => Answer::WhenFailed(failure),
                Ran::Whole(decision) => Answer::Decided(decision),
            })
        })
    }

    /// Evaluates the `when` of a hook. `payload` is a JSON value.
    pub async fn matches(
        &self,
        image: &Image,
        context: Context,
        limits: Limits,
        event: &str,
        payload: &str,
    ) -> Report<bool> {
        let invocation = Invocation { when: None, export: Export::Matches, params: owned(event, payload) };
        self.call(image, Role::Predicate, invocation, &[event, payload], context, limits).await.map(Outcome::whole)
    }

    /// Makes an instance of the interpreter and drops it: for measuring what a call does beside that.
    ///
    /// # Errors
    ///
    /// Where there is no room for an instance.
    #[doc(hidden)]
    pub async fn instantiate(&self, image: &Image, context: Context, limits: Limits) -> wasmtime::Result<()> {
        let standing = Standing { share: self.share().clone(), depth: context.depth };
        let state = State::new(context, limits, Instant::now() + limits.timeout, standing);
        let mut store = Store::new(self.engine(), Occupant::Call(Box::new(state)));
        prepare(&mut store, &limits)?;
        self.ready(image, Role::Tool, false)?.instantiate_async(&mut store).await?;
        Ok(())
    }

    /// One call: an instance is waited for, then it runs in slices, and ends with a report. `input` is what a tape keeps
    /// of what it is called with.
    async fn call<P, R>(
        &self,
        image: &Image,
        role: Role,
        invocation: Invocation<P>,
        input: &[&str],
        context: Context,
        limits: Limits,
    ) -> Report<Ran<R>>
    where
        P: ComponentNamedList + Lower + Send + Sync + 'static,
        R: Lift + Serialize + Send + Sync + 'static,
        (Result<R, Failure>,): ComponentNamedList + Lift,
    {
        let started = Instant::now();
        let taping = Taping::begin(&context.session, image, role, input);
        let past = Past::of(taping.as_deref());
        if let Some(busy) = past.busy {
            return refused(busy, taping, started);
        }
        // Whose time was over in the past is known, and how fast this machine is has no say in it.
        let time = if past.is_given { limits.timeout.max(MAX_AGAIN) } else { limits.left() };
        let deadline = started + time;
        let standing = Standing { share: self.share().clone(), depth: context.depth };
        let room = match self.admission().enter(&standing, deadline).instrument(spans::admission()).await {
            Ok(room) => room,
            Err(busy) => return refused(busy, taping, started),
        };
        let turn = self.gate().turn(standing.share.id(), context.session.id(), standing.share.quota().weight);
        let turn = turn.counted_for(&standing.share);
        let mut state = State::new(context, limits, deadline, standing);
        state.taping = taping;
        let call = Running { sandbox: self.clone(), image: image.clone(), role, past, limits, started };
        let work = async move {
            let report = call.to_its_end(invocation, state).await;
            drop(room);
            report
        }
        .instrument(Span::current());
        if past.is_given {
            // Where its past was cut is found by who polls it.
            return Sliced::new(Box::pin(work), turn).await;
        }
        Scheduled::new(self.guests(), turn, work).await
    }
}

fn owned(event: &str, payload: &str) -> (String, String) {
    (event.to_owned(), payload.to_owned())
}

/// The report of a call that was not made because the host is busy.
fn refused<R: Serialize>(busy: Busy, taping: Option<Box<Taping>>, started: Instant) -> Report<R> {
    let (outcome, mut usage) = (Outcome::Busy(busy), Usage::default());
    if let Some(taping) = taping {
        taping.end(&outcome, usage, false);
    }
    usage.wall = started.elapsed();
    Report { outcome, usage, log: Log::default(), calls: Vec::new(), coverage: None }
}

/// The report of a call that the host lost.
fn fault<R>(message: String, started: Instant) -> Report<R> {
    let usage = Usage { wall: started.elapsed(), ..Usage::default() };
    Report { outcome: Outcome::Fault(message), usage, log: Log::default(), calls: Vec::new(), coverage: None }
}

/// What a tape says of a call before it is made.
#[derive(Debug, Clone, Copy, Default)]
struct Past {
    /// Whether what its host calls answer is given.
    is_given: bool,
    late: Option<Late>,
    is_abandoned: bool,
    busy: Option<Busy>,
}

impl Past {
    fn of(taping: Option<&Taping>) -> Self {
        taping.map_or(Self::default(), |taping| Self {
            is_given: taping.is_given(),
            late: taping.late(),
            is_abandoned: taping.is_abandoned(),
            busy: taping.busy(),
        })
    }

    /// The fuel that it has: no more than it had used when its time was over.
    fn fuel(&self, limits: &Limits) -> u64 {
        match self.late.map(|late| late.place) {
            Some(LatePoint::Computing(fuel)) => fuel.min(limits.fuel),
            _ => limits.fuel,
        }
    }

    /// Whether its time was over while it waited for a host call.
    fn waits(&self) -> bool {
        self.late.is_some_and(|late| matches!(late.place, LatePoint::Waiting(_)))
    }
}

/// A call that has an instance to make.
struct Running {
    sandbox: Sandbox,
    image: Image,
    role: Role,
    past: Past,
    limits: Limits,
    started: Instant,
}

impl Running {
    async fn to_its_end<P, R>(self, invocation: Invocation<P>, state: State) -> Report<Ran<R>>
    where
        P: ComponentNamedList + Lower + Send + Sync + 'static,
        R: Lift + Serialize + Send + Sync + 'static,
        (Result<R, Failure>,): ComponentNamedList + Lift,
    {
        let (fuel, ends) = (self.past.fuel(&self.limits), state.ends.clone());
        let listening = state.context.reentry.as_ref().map(|reentry| reentry.listening()).unwrap_or_default();
        let observed = listening.any() && self.role == Role::Tool;
        let Seated { mut store, instance, fuel: left } = self.seated(state, fuel, observed);
        let begun = prepare(&mut store, &Limits { fuel: left, ..self.limits });
        let sandbox = self.sandbox.clone();
        let begun = begun.and_then(|()| Ok(sandbox.ticker().call()?));
        let result = match begun {
            Err(error) => Err(error),
            Ok(_ticking) => {
                let work = self.invoked(invocation, &mut store, instance, listening);
                let work = async { if self.past.waits() { strand::until_cut(work).await } else { Some(work.await) } };
                // Guest code is ended by its epoch; this ends what it waits for.
                match ends.limit(work).await {
                    Some(Some(result)) => result,
                    Some(None) | None => Err(Stop::Deadline.into()),
                }
            }
        };
        if self.past.is_abandoned {
            // Further than this it did not come, whatever kept it.
            strand::cut::<()>().await;
        }
        self.report(result, store, fuel, observed)
    }

    /// A store for this call, with an instance where one was made ahead that it can have.
    fn seated(&self, state: State, fuel: u64, observed: bool) -> Seated {
        let mut state = Box::new(state);
        let made = if self.past.is_given { None } else { self.sandbox.spares().take(&self.image, observed) };
        if let Some(Made { mut store, instance, fuel: taken, memory }) = made
            && let Some(fuel) = fuel.checked_sub(taken)
            && state.take_memory(memory)
        {
            *store.data_mut() = Occupant::Call(state);
            return Seated { store, instance: Some(instance), fuel };
        }
        Seated { store: Store::new(self.sandbox.engine(), Occupant::Call(state)), instance: None, fuel }
    }

    /// Makes an instance, unless there is one, and calls its function.
    async fn invoked<P, R>(
        &self,
        invocation: Invocation<P>,
        mut store: &mut Store<Occupant>,
        made: Option<Instance>,
        listening: Listening,
    ) -> wasmtime::Result<Result<Ran<R>, Failure>>
    where
        P: ComponentNamedList + Lower + Send + Sync + 'static,
        R: Lift + Send + Sync + 'static,
        (Result<R, Failure>,): ComponentNamedList + Lift,
    {
        let (role, exports) = (self.role, self.image.exports());
        let instance = match made {
            Some(instance) => instance,
            None => self.sandbox.ready(&self.image, role, listening.any())?.instantiate_async(&mut store).await?,
        };
        if let Some((event, payload)) = &invocation.when {
            store.state_mut()?.closed = true;
            let when = instance.get_typed_func::<_, (Result<bool, Failure>,)>(&mut store, &exports.matches)?;
            let (matched,) = when.call_async(&mut store, (event.as_str(), payload.as_str())).await?;
            match matched {
                Ok(true) => store.state_mut()?.closed = false,
                Ok(false) => return Ok(Ok(Ran::Unmatched)),
                Err(failure) => return Ok(Ok(Ran::WhenFailed(failure))),
            }
        }
        store.state_mut()?.closed = role == Role::Predicate;
        if let Some(listen) = exports.listen.as_ref().filter(|_| role == Role::Tool && listening.any()) {
            let listen = instance.get_typed_func::<(bool, bool), ()>(&mut store, listen)?;
            listen.call_async(&mut store, (listening.before, listening.after)).await?;
        }
        let export = match invocation.export {
            Export::Run => &exports.run,
            Export::Handle => &exports.handle,
            Export::Matches => &exports.matches,
        };
        let function = instance.get_typed_func::<P, (Result<R, Failure>,)>(&mut store, export)?;
        let (result,) = function.call_async(&mut store, invocation.params).await?;
        Ok(result.map(Ran::Whole))
    }

    /// What a call is reported as that ended so.
    fn report<R: Serialize>(
        self,
        result: wasmtime::Result<Result<Ran<R>, Failure>>,
        mut store: Store<Occupant>,
        fuel: u64,
        observed: bool,
    ) -> Report<Ran<R>> {
        let Self { sandbox, image, past, limits, started, .. } = self;
        let left = store.get_fuel().unwrap_or(0);
        let Some(mut state) = store.data_mut().leave() else {
            return fault(Stop::Vacant.to_string(), started);
        };
        state.usage.fuel = fuel.saturating_sub(left);
        let mut outcome = match result {
            Ok(Ok(value)) => Outcome::Completed(value),
            Ok(Err(failure)) => failed(failure, &mut state),
            // As far as it came then.
            Err(error) if fuel < limits.fuel && error.downcast_ref() == Some(&Trap::OutOfFuel) => {
                limited(LimitKind::Deadline, &limits)
            }
            // Its own limit would have let it have the memory.
            Err(_) if state.is_project_out_of_memory() => {
                Outcome::Busy(sandbox.admission().out_of_memory(&state.standing))
            }
            Err(error) => ended(&error, &state, image.file()),
        };
        if let (Some(late), Outcome::Limited(limit)) = (past.late, &mut outcome)
            && limit.kind == LimitKind::Deadline
        {
            limit.allowed = late.allowed;
        }
        let vault = &state.context.secrets;
        outcome.redact(vault);
        if let Outcome::Completed(Ran::WhenFailed(failure)) = &mut outcome {
            failure.redact(vault);
        }
        let mut usage = state.usage;
        if let Some(taping) = state.taping.take() {
            taping.end(&outcome, usage, state.waits);
        }
        let (log, calls) = (std::mem::take(&mut state.log), std::mem::take(&mut state.calls));
        let coverage = state.coverage.take();
        let is_small = usage.fuel <= SMALL && !state.has_grown();
        let share = state.standing.share.clone();
        // All that the call had is given back before its caller has the answer. Only the instance is left.
        drop(state);
        let is_hot = image.is_hot(sandbox.milliseconds(started));
        // What a large call wrote takes its time to clear up, and where others wait that time is the caller's own.
        if is_small && !past.is_given && !sandbox.gate().needs_slots() {
            let engine = sandbox.engine().clone();
            let next = is_hot.then(|| Next { engine, image, observed, share });
            sandbox.spares().clear_up(store, next);
        } else {
            drop(store);
        }
        usage.wall = started.elapsed();
        usage.loading = limits.waited;
        Report { outcome, usage, log, calls, coverage }
    }
}

/// A call in its store.
struct Seated {
    store: Store<Occupant>,
    /// Where it was made ahead.
    instance: Option<Instance>,
    /// Fuel that it has left.
    fuel: u64,
}

/// What to call in an instance.
struct Invocation<P> {
    /// The event and payload to evaluate `when` with before.
    when: Option<(String, String)>,
    export: Export,
    params: P,
}

/// A function of the interface `script`.
#[derive(Debug, Clone, Copy)]
enum Export {
    Run,
    Handle,
    Matches,
}

/// How far it got.
#[derive(Serialize)]
enum Ran<R> {
    Unmatched,
    WhenFailed(#[serde(serialize_with = "message")] Failure),
    Whole(R),
}

fn message<S: serde::Serializer>(failure: &Failure, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&failure.message)
}

impl<R> Outcome<Ran<R>> {
    /// Of a call without a `when`, which runs as a whole or not at all.
    fn whole(self) -> Outcome<R> {
        match self {
            Self::Completed(Ran::Whole(value)) => Outcome::Completed(value),
            Self::Completed(Ran::WhenFailed(failure)) => Outcome::Failed(failure),
            Self::Completed(Ran::Unmatched) => Outcome::Fault("a call without a `when` did not match".to_owned()),
            Self::Failed(failure) => Outcome::Failed(failure),
            Self::Denied { failure, refusal } => Outcome::Denied { failure, refusal },
            Self::Limited(limit) => Outcome::Limited(limit),
            Self::Busy(busy) => Outcome::Busy(busy),
            Self::Fault(message) => Outcome::Fault(message),
        }
    }
}

fn prepare(store: &mut Store<Occupant>, limits: &Limits) -> wasmtime::Result<()> {
    store.limiter(|occupant| occupant);
    store.set_fuel(limits.fuel)?;
    store.set_hostcall_fuel(usize::try_from(limits.file_bytes.max(MAX_GIVEN).saturating_add(MAX_GIVEN))?);
    store.set_max_component_handles(MAX_HANDLES);
    // At each tick: end what is late, let other calls have the thread.
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|store| {
        if Instant::now() >= store.state()?.deadline {
            return Err(Stop::Deadline.into());
        }
        Ok(if slices::ends_with_this_tick() { UpdateDeadline::Yield(1) } else { UpdateDeadline::Continue(1) })
    });
    Ok(())
}

/// Over a limit that the policy sets.
fn limited<R>(kind: LimitKind, limits: &Limits) -> Outcome<R> {
    let allowed = match kind {
        LimitKind::Memory => limits.memory_bytes,
        LimitKind::HostMemory => limits.host_memory_bytes,
        kind => kind.limit().map_or(0, |key| limits.get(key)),
    };
    Outcome::Limited(Limit::of(kind, allowed))
}

/// The interpreter told of an error.
fn failed<R>(failure: Failure, state: &mut State) -> Outcome<R> {
    match (failure.kind, state.refusal.take()) {
        (FailureKind::Depth, _) => Outcome::Limited(Limit::of(LimitKind::Depth, MAX_DEPTH)),
        (FailureKind::Denied, Some(refusal)) => Outcome::Denied { failure, refusal },
        // No script catches an error: what the last host call said is what ended it.
        (FailureKind::Script, _) if let Some(kind) = state.over => limited(kind, &state.limits),
        _ => Outcome::Failed(failure),
    }
}

/// The instance was ended before the interpreter could report anything.
fn ended<R>(error: &Error, state: &State, file: &str) -> Outcome<R> {
    let limits = &state.limits;
    let fixed = |kind, allowed| Outcome::Limited(Limit::of(kind, allowed));
    let limited = |kind| limited(kind, limits);
    match (error.downcast_ref::<Stop>(), error.downcast_ref::<Trap>()) {
        (Some(Stop::Deadline), _) => limited(LimitKind::Deadline),
        (Some(Stop::Over(kind)), _) => limited(*kind),
        (Some(stop @ (Stop::TooMuchGiven { .. } | Stop::NotLinked { .. })), _) => {
            Outcome::Failed(Failure::without_place(FailureKind::Script, file, stop.to_string()))
        }
        (Some(stop @ (Stop::TooMuchGivenBack { .. } | Stop::NotKept { .. } | Stop::Vacant)), _) => {
            Outcome::Fault(stop.to_string())
        }
        (_, Some(Trap::OutOfFuel)) => limited(LimitKind::Fuel),
        (_, Some(Trap::StackOverflow)) => fixed(LimitKind::Stack, compile::MAX_STACK as u64),
        // Without a trap where there was too little for it even to start.
        _ if state.memory_refused => {
            let at = Said::of(&state.last_words).at;
            Outcome::Limited(Limit { at, file: file.to_owned(), ..Limit::of(LimitKind::Memory, limits.memory_bytes) })
        }
        (_, Some(trap)) => {
            let said = Said::of(&state.last_words);
            let over = |kind, allowed| {
                Outcome::Limited(Limit { at: said.at, file: file.to_owned(), ..Limit::of(kind, allowed) })
            };
            if said.wanted_too_much() {
                return over(LimitKind::Memory, limits.memory_bytes);
            }
            if said.exhausted() {
                return over(LimitKind::Stack, compile::MAX_STACK as u64);
            }
            let failure = Failure::without_place(FailureKind::Script, file, said.stopped(trap));
            let at = said.at.map_or((0, 0), |at| (at.line, at.column));
            Outcome::Failed(Failure { line: at.0, column: at.1, ..failure })
        }
        (None, None) => Outcome::Fault(format!("{error:#}")),
    }
}

/// A result that is larger than the limit is none.
fn bounded<R>(mut report: Report<R>, limits: &Limits, size: impl FnOnce(&R) -> u64) -> Report<R> {
    if let Outcome::Completed(value) = &report.outcome
        && size(value) > limits.result_bytes
    {
        report.outcome = limited(LimitKind::Output, limits);
    }
    report
}
