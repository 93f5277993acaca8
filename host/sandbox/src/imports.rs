//! What a role may call: one linker for each, filled once.
//!
//! Every import goes through one meter, so that none can be without a price, a cap and a place in the record. What a
//! role may not do is not linked for it: such an import is there, because one component serves all roles, but calling
//! it ends the instance.

mod dispatched;
mod files;
mod grants;
mod interpreter;
mod machine;
mod observed;
mod shared;

use std::sync::Arc;

use wasmtime::component::{Component, ComponentNamedList, Lift, Linker, LinkerInstance, Lower};
use wasmtime::{Engine, Module, Result, StoreContextMut, format_err};

use self::observed::Heard;
use super::loader::MEMORY;
use super::measure::{Answer, Measure, Subject};
use super::meter::{Meter, pay};
use super::occupant::{Occupant, Occupied};
use super::outcome::LimitKind;
use super::price::{Callers, Home, Import, Seen};
use super::state::{Context, State};
use super::stop::Stop;
use super::tape::Spent;
use super::texts::Texts;
use harness_capability::fs::{self, Workspace};
use harness_capability::reentry::{Allowance, Reentry};
use harness_policy::grant::Grant;
use harness_policy::limits::LimitKey;

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
) -> Result<Linker<Occupant>> {
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
fn refuse(linker: &mut Linker<Occupant>, shell: &Component, import: Import, role: Role) -> Result<()> {
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
    instance: LinkerInstance<'l, Occupant>,
    observed: bool,
}

fn define(linker: &mut Linker<Occupant>, import: Import, observed: bool) -> Result<()> {
    let (interface, _) = import.path();
    let observed = observed && import.facts().seen != Seen::Never;
    let it = &mut Target { instance: linker.instance(&interface_name(interface))?, observed };
    match import.facts().home {
        Home::Interpreter => interpreter::define(it, import),
        Home::Files => files::define(it, import),
        Home::Machine => machine::define(it, import),
        Home::Shared => shared::define(it, import),
        Home::Dispatched => dispatched::define(it, import),
    }
}

/// An import whose file does not link it: the engine cannot be made then.
fn misplaced(import: Import) -> Result<()> {
    Err(format_err!("{import:?} is not linked in the file that its row names"))
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
    target.instance.func_wrap(import.path().1, move |mut store: StoreContextMut<'_, Occupant>, params: P| {
        let (meter, params) = Meter::start(&mut store, import, params)?;
        let answer = match params {
            Ok(params) => function(store.state_mut()?, params),
            Err(refused) => refused,
        };
        Ok(meter.finish(&mut store, answer, Spent::default())?.returned())
    })
}

/// Begins a call: takes its price, asks the hooks that listen, and the tape.
async fn begun<P, A>(
    store: &mut StoreContextMut<'_, Occupant>,
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
    target.instance.func_wrap_async(import.path().1, move |mut store: StoreContextMut<'_, Occupant>, params: P| {
        Box::new(async move {
            let (meter, params, heard) = begun(&mut store, (import, observed), params).await?;
            let state = store.state_mut()?;
            let future = params.map(|params| function(state, params));
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
    target.instance.func_wrap_async(import.path().1, move |mut store: StoreContextMut<'_, Occupant>, params: P| {
        Box::new(async move {
            let (meter, params, heard) = begun(&mut store, (import, observed), params).await?;
            let State { context, limits, usage, .. } = store.state()?;
            let room = fs::Room {
                files: limits.files.saturating_sub(usage.files),
                bytes: limits.io_bytes.saturating_sub(usage.io_bytes()),
                over: None,
            };
            let resources = store.state()?.standing.share.resources().clone();
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
            let state = store.state_mut()?;
            state.usage.files += spent.files;
            state.usage.bytes_copied += spent.copied;
            let answer = meter.finish(&mut store, answer, spent)?;
            store.state_mut()?.over = spent.over;
            Ok(observed::after(&mut store, import, heard, answer).await?.returned())
        })
    })
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
    target.instance.func_wrap_async(import.path().1, move |mut store: StoreContextMut<'_, Occupant>, params: P| {
        Box::new(async move {
            let (meter, params, heard) = begun(&mut store, (import, observed), params).await?;
            let fuel = store.get_fuel()?;
            let state = store.state_mut()?;
            let left = state.allowance(fuel);
            let begun = params.map(|params| function(state, params, left));
            // How long a person thinks says nothing of the call.
            let held = (import == Import::AskAsk && begun.is_ok()).then(|| state.hold());
            let (answer, used) = match begun {
                Ok((granted, reentry, begin)) => match granted.and(reentry) {
                    Ok(reentry) => begin(reentry).await,
                    Err(error) => (Err(error), 0),
                },
                Err(refused) => (refused, 0),
            };
            if let Some(held) = held {
                store.state_mut()?.resume(held);
            }
            pay(&mut store, used)?;
            let answer = meter.finish(&mut store, answer, Spent::default())?;
            Ok(observed::after(&mut store, import, heard, answer).await?.returned())
        })
    })
}
