//! One call: a new store and a new instance, with their own fuel, deadline and limits; all dropped at its end.

use std::time::{Duration, Instant};

use serde::Serialize;
use wasmtime::component::{ComponentExportIndex, ComponentNamedList, Lift, Lower};
use wasmtime::{Error, Store, Trap, UpdateDeadline};

use super::compile;
use super::engine::{Image, Sandbox};
use super::imports::Role;
use super::last_words::Said;
use super::outcome::{Answer, Failure, FailureKind, Limit, LimitKind, Outcome, Report};
use super::state::{Context, State};
use super::stop::Stop;
use super::strand;
use super::tape::{LatePoint, Taping};
use harness_policy::limits::Limits;

/// Calls within calls that the interpreter allows; see `guest/src/dialect.rs`.
const MAX_DEPTH: u64 = 100;
/// What an import can be handed at most beyond a file, in bytes: the largest cap of the price table.
const MAX_GIVEN: u64 = 16 << 20;
/// The time of a script of the past that is run again, at least.
const MAX_AGAIN: Duration = Duration::from_secs(600);
/// Handles to host resources that an instance may hold: the contract has none.
const MAX_HANDLES: usize = 0;

impl Sandbox {
    /// Calls `run(args)` of a tool. `args` is a JSON object, and so is what comes back a JSON value.
    pub async fn run(&self, image: &Image, context: Context, limits: Limits, args: &str) -> Report<String> {
        let work = Work { when: None, export: &image.exports().run, input: &[args], params: (args,) };
        let report = self.call(image, Role::Tool, work, context, limits).await.map(Outcome::whole);
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
        let input = &[event, payload];
        let work = Work { when: None, export: &image.exports().handle, input, params: (event, payload) };
        let report = self.call(image, Role::Hook, work, context, limits).await.map(Outcome::whole);
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
        let params = (event, payload);
        let work = Work { when: Some(params), export: &image.exports().handle, input: &[event, payload], params };
        let report = self.call(image, Role::Hook, work, context, limits).await;
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
        let input = &[event, payload];
        let work = Work { when: None, export: &image.exports().matches, input, params: (event, payload) };
        self.call(image, Role::Predicate, work, context, limits).await.map(Outcome::whole)
    }

    /// Makes an instance of the interpreter and drops it: for measuring what a call does beside that.
    ///
    /// # Errors
    ///
    /// Where there is no room for an instance.
    #[doc(hidden)]
    pub async fn instantiate(&self, image: &Image, context: Context, limits: Limits) -> wasmtime::Result<()> {
        let mut store = Store::new(self.engine(), State::new(context, limits, Instant::now() + limits.timeout));
        prepare(&mut store, &limits)?;
        self.ready(image, Role::Tool, false)?.instantiate_async(&mut store).await?;
        Ok(())
    }

    async fn call<P, R>(
        &self,
        image: &Image,
        role: Role,
        work: Work<'_, P>,
        context: Context,
        limits: Limits,
    ) -> Report<Ran<R>>
    where
        P: ComponentNamedList + Lower + Send + Sync,
        R: Lift + Serialize + Send + Sync + 'static,
        (Result<R, Failure>,): ComponentNamedList + Lift,
    {
        let started = Instant::now();
        let taping = Taping::begin(&context.session, image, role, work.input);
        // Whose time was over in the past is known, and how fast this machine is has no say in it.
        let again = taping.as_ref().is_some_and(|taping| taping.is_given());
        let time = if again { limits.timeout.max(MAX_AGAIN) } else { limits.left() };
        let deadline = started + time;
        let (late, abandoned) = taping.as_ref().map_or((None, false), |taping| (taping.late(), taping.is_abandoned()));
        let fuel = match late.map(|late| late.place) {
            Some(LatePoint::Computing(fuel)) => fuel.min(limits.fuel),
            _ => limits.fuel,
        };
        let waits = late.is_some_and(|late| matches!(late.place, LatePoint::Waiting(_)));
        let listening = context.reentry.as_ref().map(|reentry| reentry.listening()).unwrap_or_default();
        let mut state = State::new(context, limits, deadline);
        state.taping = taping;
        let mut store = Store::new(self.engine(), state);
        let begun = prepare(&mut store, &Limits { fuel, ..limits }).and_then(|()| Ok(self.ticker().call()?));
        let result = match begun {
            Err(error) => Err(error),
            Ok(_ticking) => {
                let work = async {
                    let instance = self.ready(image, role, listening.any())?.instantiate_async(&mut store).await?;
                    if let Some(params) = work.when {
                        store.data_mut().closed = true;
                        let when = instance
                            .get_typed_func::<_, (Result<bool, Failure>,)>(&mut store, &image.exports().matches)?;
                        let (matched,) = when.call_async(&mut store, params).await?;
                        match matched {
                            Ok(true) => store.data_mut().closed = false,
                            Ok(false) => return Ok(Ok(Ran::Unmatched)),
                            Err(failure) => return Ok(Ok(Ran::WhenFailed(failure))),
                        }
                    }
                    store.data_mut().closed = role == Role::Predicate;
                    if let Some(listen) =
                        image.exports().listen.as_ref().filter(|_| role == Role::Tool && listening.any())
                    {
                        let listen = instance.get_typed_func::<(bool, bool), ()>(&mut store, listen)?;
                        listen.call_async(&mut store, (listening.before, listening.after)).await?;
                    }
                    let function = instance.get_typed_func::<P, (Result<R, Failure>,)>(&mut store, work.export)?;
                    let (result,) = function.call_async(&mut store, work.params).await?;
                    Ok(result.map(Ran::Whole))
                };
                let work = async { if waits { strand::until_cut(work).await } else { Some(work.await) } };
                // Guest code is ended by its epoch; this ends what it waits for.
                match tokio::time::timeout_at(deadline.into(), work).await {
                    Ok(Some(result)) => result,
                    Ok(None) | Err(_) => Err(Stop::Deadline.into()),
                }
            }
        };
        if abandoned {
            // Further than this it did not come, whatever kept it.
            strand::cut::<()>().await;
        }
        let left = store.get_fuel().unwrap_or(0);
        let state = store.data_mut();
        state.usage.fuel = fuel.saturating_sub(left);
        let mut outcome = match result {
            Ok(Ok(value)) => Outcome::Completed(value),
            Ok(Err(failure)) => failed(failure, state),
            // As far as it came then.
            Err(error) if fuel < limits.fuel && error.downcast_ref() == Some(&Trap::OutOfFuel) => {
                limited(LimitKind::Deadline, &limits)
            }
            Err(error) => ended(&error, state, image.file()),
        };
        if let (Some(late), Outcome::Limited(limit)) = (late, &mut outcome)
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
        // Here and now. Another thread could do it while the caller resumes its answer; but memory that one core
        // returns, the other has to be told of, and calls one after the other took half as long again.
        drop(store);
        usage.wall = started.elapsed();
        usage.loading = limits.waited;
        Report { outcome, usage, log, calls, coverage }
    }
}

/// What to call in an instance.
struct Work<'a, P> {
    /// The event and payload to evaluate `when` with before.
    when: Option<(&'a str, &'a str)>,
    export: &'a ComponentExportIndex,
    /// What it is called with, for a tape.
    input: &'a [&'a str],
    params: P,
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
            Self::Fault(message) => Outcome::Fault(message),
        }
    }
}

fn prepare(store: &mut Store<State>, limits: &Limits) -> wasmtime::Result<()> {
    store.limiter(|state| state);
    store.set_fuel(limits.fuel)?;
    store.set_hostcall_fuel(usize::try_from(limits.file_bytes.max(MAX_GIVEN).saturating_add(MAX_GIVEN))?);
    store.set_max_component_handles(MAX_HANDLES);
    // At each tick: end what is late, let other calls have the thread.
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|store| {
        if Instant::now() >= store.data().deadline {
            return Err(Stop::Deadline.into());
        }
        Ok(UpdateDeadline::Yield(1))
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
        (Some(stop @ (Stop::TooMuchGivenBack { .. } | Stop::NotKept { .. })), _) => Outcome::Fault(stop.to_string()),
        (_, Some(Trap::OutOfFuel)) => limited(LimitKind::Fuel),
        (_, Some(Trap::StackOverflow)) => fixed(LimitKind::Stack, compile::MAX_STACK as u64),
        // Without a trap where there was too little for it even to start.
        _ if state.memory_refused => {
            let at = Said::of(&state.last_words).at;
            Outcome::Limited(Limit { at, ..Limit::of(LimitKind::Memory, limits.memory_bytes) })
        }
        (_, Some(trap)) => {
            let said = Said::of(&state.last_words);
            let over = |kind, allowed| Outcome::Limited(Limit { at: said.at, ..Limit::of(kind, allowed) });
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
