//! What a role may call: one linker for each, filled once.
//!
//! Every import goes through one meter, so that none can be without a price, a cap and a place in the record. What a
//! role may not do is not linked for it: such an import is there, because one component serves all roles, but calling
//! it ends the instance.

mod grants;
mod observed;

use std::sync::Arc;
use std::time::{Duration, Instant};

use wasmtime::component::{Component, ComponentNamedList, Lift, Linker, LinkerInstance, Lower};
use wasmtime::{Engine, Module, Result, StoreContextMut};

use self::observed::Heard;
use super::loader::{MEMORY, keep_last_words};
use super::measure::{Answer, Measure, Subject};
use super::meter::{Meter, pay};
use super::outcome::LimitKind;
use super::price::{Callers, Import, Seen};
use super::state::{Context, State};
use super::stop::Stop;
use super::tape::Spent;
use super::texts::Texts;
use super::wasi;
use harness_capability::coverage::Coverage;
use harness_capability::fs::Workspace;
use harness_capability::reentry::{Allowance, Patience, Reentry};
use harness_capability::{cache, clock, env, events, exec, fs, http, log, meta, metrics, observe, random, turn};
use harness_policy::grant::Grant;
use harness_policy::layer::Service;
use harness_policy::limits::LimitKey;
use harness_policy::refusal::Refusal;

/// What an instance is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// `run` of a tool: everything that its grant allows.
    Tool,
    /// `handle` of a hook: no command, nothing that changes a file, nothing that adds to the run.
    Hook,
    /// `when` of a hook, in the same instance before `handle`: nothing but what the interpreter itself needs. It has no
    /// linker of its own; the meter that every import goes through keeps it shut.
    Predicate,
}

impl Role {
    /// Those with a linker.
    pub const LINKED: [Self; 2] = [Self::Tool, Self::Hook];

    /// The word for it in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Hook => "hook",
            Self::Predicate => "`when`",
        }
    }

    /// Whether an import is linked for this role.
    pub fn may(self, import: Import) -> bool {
        match (self, import.facts().callers) {
            (Self::Tool | Self::Hook | Self::Predicate, Callers::Interpreter)
            | (Self::Tool | Self::Hook, Callers::Scripts)
            | (Self::Tool, Callers::Tools) => true,
            (Self::Predicate, Callers::Scripts | Callers::Tools) | (Self::Hook, Callers::Tools) => false,
        }
    }
}

/// The linker of a role: a memory that has loaded nothing, and what the role may call. What the component imports
/// beyond that ends the instance when it is called. Of calls that are `observed` hooks hear.
pub fn linker(
    engine: &Engine,
    shell: &Component,
    memory: &Module,
    role: Role,
    observed: bool,
) -> Result<Linker<State>> {
    let mut linker = Linker::new(engine);
    linker.root().module(MEMORY, memory)?;
    for import in Import::ALL {
        if role.may(*import) {
            define(&mut linker, *import, observed)?;
        } else {
            refuse(&mut linker, shell, *import, role)?;
        }
    }
    Ok(linker)
}

/// Fills the place of a function that a role may not call, because a component with an empty place cannot start:
/// calling it ends the instance.
fn refuse(linker: &mut Linker<State>, shell: &Component, import: Import, role: Role) -> Result<()> {
    let (interface, function) = import.path();
    let name = interface_name(interface);
    // A component that does not import it has no place to fill.
    if shell.component_type().get_import(linker.engine(), &name).is_none() {
        return Ok(());
    }
    linker.instance(&name)?.func_new(function, move |_, _, _, _| Err(Stop::NotLinked { import, role }.into()))
}

/// An interface with its package and version.
fn interface_name(interface: &str) -> String {
    match interface {
        "monotonic-clock" => "wasi:clocks/monotonic-clock@0.2.6".to_owned(),
        "insecure-seed" => "wasi:random/insecure-seed@0.2.6".to_owned(),
        ours => format!("harness:sandbox/{ours}@0.1.0"),
    }
}

/// Where functions are linked, and whether hooks hear of their calls.
struct Target<'l> {
    instance: LinkerInstance<'l, State>,
    observed: bool,
}

fn define(linker: &mut Linker<State>, import: Import, observed: bool) -> Result<()> {
    let (interface, _) = import.path();
    let observed = observed && import.facts().seen != Seen::Never;
    let it = &mut Target { instance: linker.instance(&interface_name(interface))?, observed };
    match import {
        Import::MonotonicNow => sync(it, import, |state, (): ()| wasi::now(state)),
        Import::InsecureSeed => sync(it, import, |state, (): ()| wasi::seed(state)),
        Import::LastWordsWrite => sync(it, import, |state, (bytes,): (Vec<u8>,)| {
            keep_last_words(&mut state.last_words, &bytes);
        }),
        Import::LimitsRegexBytes => sync(it, import, |state, (): ()| state.limits.regex_bytes),
        Import::LogWrite => sync(it, import, |state, (level, message): (log::Level, String)| {
            let kept = state.log.write(level, message, state.limits.log_lines);
            state.kept += kept;
            if let (Some(listener), Some(line)) = (&state.context.listener, state.log.lines.last().filter(|_| kept > 0))
            {
                listener.line(line.level, &line.message);
            }
        }),

        Import::FsRead => cached(it, import, Workspace::read_cached, Workspace::read),
        Import::FsWrite => on_disk(it, import, |c, (path, text): (String, String), _| {
            keeps_secrets(c, &path, &text)?;
            c.workspace.write(&c.grant, &path, &text)
        }),
        Import::FsAppend => {
            on_disk(it, import, |c, (path, text): (String, String), _| c.workspace.append(&c.grant, &path, &text))
        }
        Import::FsExists => cached(it, import, Workspace::exists_cached, Workspace::exists),
        Import::FsStat => cached(it, import, Workspace::stat_cached, Workspace::stat),
        Import::FsList => on_disk(it, import, |c, (path,): (String,), _| c.workspace.list(&c.grant, &path)),
        Import::FsGlob => on_disk(it, import, |c, (pattern,): (String,), _| c.workspace.glob(&c.grant, &pattern)),
        Import::FsRemove => on_disk(it, import, |c, (path,): (String,), _| c.workspace.remove(&c.grant, &path)),
        Import::FsMkdir => on_disk(it, import, |c, (path,): (String,), _| c.workspace.mkdir(&c.grant, &path)),
        Import::FsCopy => on_disk(it, import, |c, (from, to): (String, String), room| {
            c.workspace.copy_within(&c.grant, &from, &to, room)
        }),
        Import::FsMove => {
            on_disk(it, import, |c, (from, to): (String, String), _| c.workspace.rename(&c.grant, &from, &to))
        }

        Import::HttpSend => waiting(it, import, |state, (request,): (http::Request,)| {
            let (context, handles) = (state.context.clone(), state.handles.clone());
            async move { context.http().send(&context.grant, &handles, request).await }
        }),
        Import::ExecRun => waiting(it, import, |state, (command,): (exec::Command,)| {
            let (context, handles) = (state.context.clone(), state.handles.clone());
            let left = state.deadline.saturating_duration_since(Instant::now());
            if let Some(tier) = context.exec().tier(&context.grant, &command) {
                state.usage.tier = state.usage.tier.max(tier);
            }
            let resources = state.standing.share.resources().clone();
            async move {
                // Before the folder is checked: without a command there is nothing to learn from it.
                context.grant.decide_command(&command.program, &command.args)?;
                let began = Instant::now();
                let _place = resources.command(command.time().min(left)).await.map_err(exec::Error::Start)?;
                let left = left.saturating_sub(began.elapsed());
                // On another thread, as everything that asks a disk.
                let (there, path) = (context.clone(), command.dir.clone());
                let opening = tokio::task::spawn_blocking(move || there.workspace.open_dir(&there.grant, &path));
                let dir = opening.await.map_err(|error| exec::Error::Start(error.to_string()))??;
                let workspace = context.workspace.absolute().as_ref();
                let variables = context.variables();
                let place = exec::ExecContext { dir: &dir, workspace, handles: &handles, variables };
                context.exec().run(&context.grant, place, left, command).await
            }
        }),

        Import::CacheGet => sync(it, import, |s, (key,): (String,)| -> Result<Option<String>, cache::Error> {
            s.cache_granted()?;
            Ok(s.context.session.cache.get(&key))
        }),
        Import::CacheSet => sync(it, import, |s, (key, value): (String, String)| {
            s.cache_granted()?;
            s.context.session.cache.set(key, value)
        }),
        Import::CacheHas => sync(it, import, |s, (key,): (String,)| -> Result<bool, cache::Error> {
            s.cache_granted()?;
            Ok(s.context.session.cache.has(&key))
        }),
        Import::CacheDelete => sync(it, import, |s, (key,): (String,)| -> Result<bool, cache::Error> {
            s.cache_granted()?;
            Ok(s.context.session.cache.delete(&key))
        }),
        Import::CacheClear => sync(it, import, |s, (): ()| -> Result<(), cache::Error> {
            s.cache_granted()?;
            s.context.session.cache.clear();
            Ok(())
        }),

        Import::TurnGet => sync(it, import, |s, (key,): (String,)| -> Result<Option<String>, turn::Error> {
            s.turn_granted()?;
            Ok(s.context.turn.get(&key))
        }),
        Import::TurnSet => sync(it, import, |s, (key, value): (String, String)| {
            s.turn_granted()?;
            s.context.turn.set(key, value)
        }),
        Import::TurnHas => sync(it, import, |s, (key,): (String,)| -> Result<bool, turn::Error> {
            s.turn_granted()?;
            Ok(s.context.turn.has(&key))
        }),
        Import::TurnDelete => sync(it, import, |s, (key,): (String,)| {
            s.turn_granted()?;
            s.context.turn.delete(&key)
        }),
        Import::TurnClear => sync(it, import, |s, (): ()| -> Result<(), turn::Error> {
            s.turn_granted()?;
            s.context.turn.clear();
            Ok(())
        }),
        Import::TurnSnapshot => sync(it, import, |s, (): ()| -> Result<String, turn::Error> {
            s.turn_granted()?;
            Ok(s.context.turn.snapshot())
        }),

        Import::MetricsIncr => sync(it, import, |s, (name, delta): (String, f64)| {
            s.metrics_granted()?;
            s.context.session.metrics.incr(name, delta)
        }),
        Import::MetricsSet => sync(it, import, |s, (name, value): (String, f64)| {
            s.metrics_granted()?;
            s.context.session.metrics.set(name, value)
        }),
        Import::MetricsGet => sync(it, import, |s, (name,): (String,)| -> Result<f64, metrics::Error> {
            s.metrics_granted()?;
            Ok(s.context.session.metrics.get(&name))
        }),
        Import::MetricsReset => sync(it, import, |s, (name,): (Option<String>,)| -> Result<(), metrics::Error> {
            s.metrics_granted()?;
            s.context.session.metrics.reset(name.as_deref());
            Ok(())
        }),
        Import::MetricsSnapshot => sync(it, import, |s, (): ()| -> Result<Vec<(String, f64)>, metrics::Error> {
            s.metrics_granted()?;
            Ok(s.context.session.metrics.snapshot())
        }),

        Import::ClockNow => sync(it, import, |s, (): ()| -> Result<clock::Moment, clock::Error> {
            s.granted(Service::Clock).map_err(|refusal| clock::Error::AccessDenied(refusal.into()))?;
            Ok(s.context.clock().now())
        }),
        Import::ClockSleep => waiting(it, import, |s, (milliseconds,): (u32,)| {
            let granted = s.granted(Service::Clock).map_err(|refusal| clock::Error::AccessDenied(refusal.into()));
            let clock = s.context.clock().clone();
            async move {
                granted?;
                clock.sleep(milliseconds).await;
                Ok::<(), clock::Error>(())
            }
        }),
        Import::RandomBytes => sync(it, import, |s, (count,): (u32,)| -> Result<Vec<u8>, random::Error> {
            s.granted(Service::Random).map_err(|refusal| random::Error::AccessDenied(refusal.into()))?;
            Ok(s.context.random().bytes(count))
        }),
        Import::EventsEmit => nested(it, import, |s, (event, payload): (String, String), left| {
            let granted = s.granted(Service::Events).map_err(|refusal| events::Error::AccessDenied(refusal.into()));
            let denied = || events::Error::Invalid("nothing in this run takes events".to_owned());
            (granted, s.context.reentry.clone().ok_or_else(denied), move |r: Arc<dyn Reentry>| async move {
                r.emit(event, payload, left).await
            })
        }),
        Import::MetaRegisterTool => nested(it, import, |s, (tool,): (meta::NewTool,), left| {
            let (granted, reentry) = s.meta();
            (granted, reentry, move |r: Arc<dyn Reentry>| async move { r.register_tool(tool, left).await })
        }),
        Import::MetaRegisterHook => nested(it, import, |s, (hook,): (meta::NewHook,), left| {
            let (granted, reentry) = s.meta();
            (granted, reentry, move |r: Arc<dyn Reentry>| async move { r.register_hook(hook, left).await })
        }),
        Import::MetaCallTool => nested(it, import, |s, (name, arguments): (String, String), left| {
            let (granted, reentry) = s.meta();
            (granted, reentry, move |r: Arc<dyn Reentry>| async move { r.call_tool(name, arguments, left).await })
        }),
        Import::MetaListTools => nested(it, import, |s, (pattern,): (Option<String>,), left| {
            let (granted, reentry) = s.meta();
            (granted, reentry, move |r: Arc<dyn Reentry>| async move { r.list_tools(pattern, left).await })
        }),
        Import::AgentsDelegate => nested(it, import, |s, (agent, task): (String, String), left| {
            let (granted, reentry) = s.agents();
            (granted, reentry, move |r: Arc<dyn Reentry>| async move { r.delegate(agent, task, left).await })
        }),
        Import::AgentsDelegateAsync => nested(it, import, |s, (agent, task): (String, String), left| {
            let (granted, reentry) = s.agents();
            (granted, reentry, move |r: Arc<dyn Reentry>| async move { r.delegate_async(agent, task, left).await })
        }),
        Import::TasksPoll => nested(it, import, |s, (id,): (String,), _| {
            let (granted, reentry) = s.tasks();
            (granted, reentry, move |r: Arc<dyn Reentry>| async move {
                let (all, used) = r.tasks(vec![id], Patience::None).await;
                // A list of one, without its brackets.
                let one = all.map(|all| all.get(1..all.len().saturating_sub(1)).unwrap_or_default().to_owned());
                (one, used)
            })
        }),
        Import::TasksWait => nested(it, import, |s, (ids, timeout): (Vec<String>, Option<u32>), left| {
            let (granted, reentry) = s.tasks();
            let end = timeout.and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms.into())));
            // Its own deadline ends the script, not the wait: what it does at that moment is not a matter of luck.
            let until = end.filter(|end| *end < left.deadline);
            (granted, reentry, move |r: Arc<dyn Reentry>| async move { r.tasks(ids, Patience::Until(until)).await })
        }),
        Import::CoverageRecord => sync(it, import, |s, (statements, reached): (Vec<u32>, Vec<u32>)| {
            s.coverage = Some(Coverage::of(statements, reached));
        }),
        Import::EnvGet => sync(it, import, |s, (name,): (String,)| {
            let holds_none = s.context.secrets.decide_variable(&name);
            holds_none.map_err(|refusal| env::Error::AccessDenied(refusal.into()))?;
            s.context.variables().get(s.grant(), &name)
        }),
        Import::ObserveBefore => nested(it, import, |s, (function, arguments): (String, String), left| {
            (Ok(()), s.observer(), move |r: Arc<dyn Reentry>| async move {
                observe::before(&*r, &function, &arguments, left).await
            })
        }),
        Import::ObserveAfter => nested(it, import, |s, (function, ended): (String, String), left| {
            (Ok(()), s.observer(), move |r: Arc<dyn Reentry>| async move {
                observe::after(&*r, &function, &ended, left).await
            })
        }),
        Import::SecretsHandle => sync(it, import, |s, (name,): (String,)| s.handles.handle(&s.context.grant, &name)),
    }
}

/// Links a function that answers at once.
fn sync<P, A>(
    target: &mut Target<'_>,
    import: Import,
    function: impl Fn(&mut State, P) -> A + Copy + Send + Sync + 'static,
) -> Result<()>
where
    P: ComponentNamedList + Lift + Measure + Subject + Texts + Send + 'static,
    A: Answer + Send + 'static,
    A::Returned: ComponentNamedList + Lower + 'static,
{
    if target.observed {
        return waiting(target, import, move |state, params| std::future::ready(function(state, params)));
    }
    target.instance.func_wrap(import.path().1, move |mut store: StoreContextMut<'_, State>, params: P| {
        let (meter, params) = Meter::start(&mut store, import, params)?;
        let answer = match params {
            Ok(params) => function(store.data_mut(), params),
            Err(refused) => refused,
        };
        Ok(meter.finish(&mut store, answer, Spent::default())?.returned())
    })
}

/// Begins a call: takes its price, asks the hooks that listen, and the tape.
async fn begun<P, A>(
    store: &mut StoreContextMut<'_, State>,
    (import, observed): (Import, bool),
    params: P,
) -> Result<(Meter, std::result::Result<P, A>, Option<Heard>)>
where
    P: Measure + Subject + Texts,
    A: Answer,
{
    if !observed {
        let (meter, asked) = Meter::start(store, import, params)?;
        return Ok((meter, asked, None));
    }
    let (mut meter, params, refused) = Meter::begin(store, import, params)?;
    if refused.is_some() {
        return Ok((meter, refused.map_or(Ok(params), Err), None));
    }
    let (params, refused, heard) = observed::before(store, &mut meter, import, params).await?;
    let asked = match refused {
        Some(refused) => Err(refused),
        None => meter.ask(store, params, None)?,
    };
    Ok((meter, asked, heard))
}

/// Links a function that waits. While it does, the thread runs other calls.
fn waiting<P, A, F>(
    target: &mut Target<'_>,
    import: Import,
    function: impl Fn(&mut State, P) -> F + Copy + Send + Sync + 'static,
) -> Result<()>
where
    P: ComponentNamedList + Lift + Measure + Subject + Texts + Send + 'static,
    A: Answer + Send + 'static,
    A::Returned: ComponentNamedList + Lower + 'static,
    F: Future<Output = A> + Send + 'static,
{
    let observed = target.observed;
    target.instance.func_wrap_async(import.path().1, move |mut store: StoreContextMut<'_, State>, params: P| {
        Box::new(async move {
            let (meter, params, heard) = begun(&mut store, (import, observed), params).await?;
            let future = params.map(|params| function(store.data_mut(), params));
            let answer = match future {
                Ok(future) => future.await,
                Err(refused) => refused,
            };
            let answer = meter.finish(&mut store, answer, Spent::default())?;
            Ok(observed::after(&mut store, import, heard, answer).await?.returned())
        })
    })
}

/// Links a function that looks at a path of the workspace: at once where the answer is in memory, else as [`on_disk`].
fn cached<T>(
    target: &mut Target<'_>,
    import: Import,
    at_once: impl Fn(&Workspace, &Grant, &str) -> Option<T> + Copy + Send + Sync + 'static,
    function: impl Fn(&Workspace, &Grant, &str) -> Result<T, fs::Error> + Copy + Send + Sync + 'static,
) -> Result<()>
where
    T: Send + 'static,
    Result<T, fs::Error>: Answer<Returned: ComponentNamedList + Lower + 'static> + Send + 'static,
{
    let at_once = move |c: &Context, (path,): &(String,)| at_once(&c.workspace, &c.grant, path).map(Ok);
    let function = move |c: &Context, (path,): (String,), _: &mut fs::Room| function(&c.workspace, &c.grant, &path);
    at_once_or_on_disk(target, import, at_once, function)
}

/// Links a function that works on files, which it does on another thread: a disk that does not answer holds up neither
/// the end of the call nor other calls. What was begun on the disk when the deadline came is not taken back.
fn on_disk<P, T>(
    target: &mut Target<'_>,
    import: Import,
    function: impl Fn(&Context, P, &mut fs::Room) -> Result<T, fs::Error> + Copy + Send + Sync + 'static,
) -> Result<()>
where
    P: ComponentNamedList + Lift + Measure + Subject + Texts + Send + 'static,
    T: Send + 'static,
    Result<T, fs::Error>: Answer<Returned: ComponentNamedList + Lower + 'static> + Send + 'static,
{
    at_once_or_on_disk(target, import, |_, _| None, function)
}

fn at_once_or_on_disk<P, T>(
    target: &mut Target<'_>,
    import: Import,
    at_once: impl Fn(&Context, &P) -> Option<Result<T, fs::Error>> + Copy + Send + Sync + 'static,
    function: impl Fn(&Context, P, &mut fs::Room) -> Result<T, fs::Error> + Copy + Send + Sync + 'static,
) -> Result<()>
where
    P: ComponentNamedList + Lift + Measure + Subject + Texts + Send + 'static,
    T: Send + 'static,
    Result<T, fs::Error>: Answer<Returned: ComponentNamedList + Lower + 'static> + Send + 'static,
{
    let observed = target.observed;
    target.instance.func_wrap_async(import.path().1, move |mut store: StoreContextMut<'_, State>, params: P| {
        Box::new(async move {
            let (meter, params, heard) = begun(&mut store, (import, observed), params).await?;
            let State { context, limits, usage, .. } = store.data();
            let room = fs::Room {
                files: limits.files.saturating_sub(usage.files),
                bytes: limits.io_bytes.saturating_sub(usage.io_bytes()),
                over: None,
            };
            let resources = store.data().standing.share.resources().clone();
            let known = match params {
                Ok(params) => at_once(context, &params).ok_or(params),
                Err(refused) => Ok(refused),
            };
            let known = known.map_err(|params| (params, context.clone()));
            let (answer, left) = match known {
                Ok(answer) => (answer, room),
                Err((params, context)) => {
                    let place = resources.open_files().await;
                    let work = move || {
                        // Held for as long as it really takes: dropping the call does not end it.
                        let _place = place;
                        let mut left = room;
                        (function(&context, params, &mut left), left)
                    };
                    tokio::task::spawn_blocking(work).await?
                }
            };
            let capped = import.price().carries_a_file();
            let over = match (&answer, left.over) {
                (Err(fs::Error::TooLarge(_)), Some(LimitKey::Files)) => Some(LimitKind::Files),
                (Err(fs::Error::TooLarge(_)), Some(LimitKey::Io)) => Some(LimitKind::Io),
                (Err(fs::Error::TooLarge(_)), over) if capped || over.is_some() => Some(LimitKind::FileSize),
                _ => None,
            };
            let (files, copied) = (room.files.saturating_sub(left.files), room.bytes.saturating_sub(left.bytes));
            let spent = meter.spent.unwrap_or(Spent { files, copied, over });
            let state = store.data_mut();
            state.usage.files += spent.files;
            state.usage.bytes_copied += spent.copied;
            let answer = meter.finish(&mut store, answer, spent)?;
            store.data_mut().over = spent.over;
            Ok(observed::after(&mut store, import, heard, answer).await?.returned())
        })
    })
}

/// Whether a file still holds what a script, which read it, has only seen a note of: written back, it would be lost.
fn keeps_secrets(context: &Context, path: &str, text: &str) -> Result<(), fs::Error> {
    let vault = &context.secrets;
    let Some(name) = vault.noted(text) else { return Ok(()) };
    match context.workspace.read(&context.grant, path) {
        Ok(old) if vault.find(&old).is_some() => {
            let reason = format!("the file holds the secret `{name}`, and the new text a note in its place");
            Err(fs::Error::AccessDenied(Refusal::always(reason).into()))
        }
        _ => Ok(()),
    }
}

/// Links a function that leads back into dispatch: what is done there is paid for by this call, from the fuel and the
/// time that it has left.
fn nested<P, T, E, B, F>(
    target: &mut Target<'_>,
    import: Import,
    function: impl Fn(&mut State, P, Allowance) -> (Result<(), E>, Result<Arc<dyn Reentry>, E>, B)
    + Copy
    + Send
    + Sync
    + 'static,
) -> Result<()>
where
    P: ComponentNamedList + Lift + Measure + Subject + Texts + Send + 'static,
    Result<T, E>: Answer<Returned: ComponentNamedList + Lower + 'static> + Send + 'static,
    T: Send + 'static,
    E: Send + 'static,
    B: FnOnce(Arc<dyn Reentry>) -> F + Send + 'static,
    F: Future<Output = (Result<T, E>, u64)> + Send + 'static,
{
    let observed = target.observed;
    target.instance.func_wrap_async(import.path().1, move |mut store: StoreContextMut<'_, State>, params: P| {
        Box::new(async move {
            let (meter, params, heard) = begun(&mut store, (import, observed), params).await?;
            let fuel = store.get_fuel()?;
            let state = store.data_mut();
            let left = Allowance { fuel, deadline: state.deadline };
            let begun = params.map(|params| function(state, params, left));
            let (answer, used) = match begun {
                Ok((granted, reentry, begin)) => match granted.and(reentry) {
                    Ok(reentry) => begin(reentry).await,
                    Err(error) => (Err(error), 0),
                },
                Err(refused) => (refused, 0),
            };
            pay(&mut store, used)?;
            let answer = meter.finish(&mut store, answer, Spent::default())?;
            Ok(observed::after(&mut store, import, heard, answer).await?.returned())
        })
    })
}
