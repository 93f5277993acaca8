//! The engine: the interpreter's machine code, a pool of memory for instances, a clock that ticks, and a linker for
//! each role. One of each in a process.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use tokio::sync::Semaphore;
use wasmtime::component::{Component, ComponentExportIndex, InstancePre, Linker};
use wasmtime::{
    Enabled, Engine, Error, InstanceAllocationStrategy, Module, PoolingAllocationConfig, Result, Store, format_err,
};

pub use super::cache::Image;
use super::cache::{self, Cache};
use super::compile;
use super::image::{self, Changes, LoadError, Template};
use super::imports::{self, Role};
use super::in_place::Placed;
pub use super::loader::{Budget, LOAD_FUEL, LOAD_MEMORY};
use super::loader::{CODE, Loader, MEMORY, SCRIPT};
use super::occupant::Occupant;
use super::outcome::{Entry, Failure, Limit, LimitKind, Source};
use super::scheduling::admission::Admission;
use super::scheduling::gate::Gate;
use super::scheduling::guests::{self, Guests};
use super::scheduling::quota::{Quota, Share};
use super::scheduling::slices::Pause;
use super::spare::{SPARE, Spares};
use super::ticker::Ticker;

/// The first memory of the interpreter, made by the build script and part of this binary, as its machine code is: there is
/// no compiling at the start, and nothing on disk is trusted.
mod embedded {
    pub(super) static MEMORY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/memory.bin"));
}

/// What images are made of, by size: the first is for a memory that loading has not made larger.
static TEMPLATES: &[Template] = include!(concat!(env!("OUT_DIR"), "/templates.rs"));

/// Where the interpreter in this binary came from: the digest of its component.
pub const INTERPRETER: &str = env!("HARNESS_GUEST_DIGEST");

/// What the machine code of the interpreter was compiled for.
const TARGET: &str = env!("HARNESS_TARGET");

/// The release line of the engine.
pub const WASMTIME: &str = "48";

/// Core instances of one component instance: memory, shim and code.
const CORE_INSTANCES: u32 = 3;
/// Tables of one component instance: the code's and the one it shares with the shell.
const TABLES: u32 = 2;
/// Scripts that may be loaded at one time, beside calls: each is two core instances.
pub const LOADS: u32 = 16;
/// Those of one project among them.
pub(crate) const LOADS_OF_ONE: u32 = LOADS / 4;
/// The most instances of a host: each stack takes two of the 65,530 mappings that a process has.
const MAX_INSTANCES: u32 = 10_000;
/// Calls within calls: a script that fires an event or calls a tool waits, with its instance, for what that starts.
pub const NESTING: u32 = 8;
/// Memory of a finished call that stays with its slot, reset in place for the next. Counted from the start of memory,
/// where more than four megabytes of stack lie before the data and the heap, so it has to reach well past those.
const KEEP_RESIDENT: usize = 16 << 20;
/// The same for tables and for the stacks of waiting calls.
const KEEP_TABLE: usize = 1 << 20;

/// Fuel that is more than enough to start an instance in which nothing is called.
const START_FUEL: u64 = 1_000_000;

/// How large a host is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Instances at one time, those of nested calls counted; one more of each of the [`NESTING`] levels is held back for
    /// them. At most 10,000. Each reserves 4 GiB of address space, and none of the machine's memory until it is used.
    pub instances: u32,
    /// Bytes of images that are kept ready for the next call. Of those that no call uses, the one that was used least
    /// recently is given up first; its next call takes about a millisecond longer.
    pub image_bytes: u64,
}

impl Default for Settings {
    /// 64 instances and 256 MiB of images.
    fn default() -> Self {
        Self { instances: 64, image_bytes: 256 << 20 }
    }
}

/// The engine and all that is made once with it, as one project has it. Cheap to clone; shared by all threads.
#[derive(Clone)]
pub struct Sandbox {
    inner: Arc<Inner>,
    /// The share of the project that this is for.
    share: Arc<Share>,
}

struct Inner {
    settings: Settings,
    engine: Engine,
    shell: Component,
    code: Module,
    /// The memory of an interpreter that has loaded nothing.
    prepared: Module,
    linkers: Vec<(Role, Linker<Occupant>)>,
    /// That of tools to whose calls hooks listen, made when the first is called.
    observed: OnceLock<Linker<Occupant>>,
    exports: Exports,
    ticker: Ticker,
    /// Turns of those who load while calls continue.
    loads: Arc<Semaphore>,
    images: Cache,
    admission: Arc<Admission>,
    gate: Arc<Gate>,
    guests: Arc<Guests>,
    spares: Arc<Spares>,
    /// When it was made.
    began: Instant,
    pooling: Result<(), String>,
}

/// Where the interpreter's functions are.
#[derive(Debug, Clone)]
pub struct Exports {
    pub(crate) run: ComponentExportIndex,
    pub(crate) handle: ComponentExportIndex,
    pub(crate) matches: ComponentExportIndex,
    /// Not there in a component that is no interpreter.
    pub listen: Option<ComponentExportIndex>,
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox").field("interpreter", &INTERPRETER).finish_non_exhaustive()
    }
}

/// Why a script could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The script's own fault.
    #[error("{}", .0.message)]
    Script(Failure),
    /// Loading it would use more than it may.
    #[error("loading the script is {}: move work into a function", Limit { at: None, ..(.0).clone() })]
    Over(Limit),
    /// The host's.
    #[error("cannot load the script: {0:#}")]
    Host(Error),
}

impl From<LoadError> for ScriptError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Script(failure) => Self::Script(failure),
            LoadError::Over(limit) => Self::Over(limit),
            LoadError::Host(error) => Self::Host(error),
        }
    }
}

impl Sandbox {
    /// Makes the engine. Takes a few milliseconds, most of it to map the interpreter's machine code.
    ///
    /// # Errors
    ///
    /// Where the machine lacks what the engine needs at all. Where it lacks only the room for the pools, instances
    /// are made one by one, and [`pooling`](Self::pooling) says why.
    pub fn new(settings: Settings) -> Result<Self> {
        let settings = Settings { instances: settings.instances.clamp(1, MAX_INSTANCES), ..settings };
        let placed = Placed::next();
        let (engine, pooling) = match engine(Some(settings), placed) {
            Ok(engine) => (engine, Ok(())),
            Err(error) => (engine(None, placed)?, Err(format!("{error:#}"))),
        };
        let shell = placed.shell(&engine)?;
        let start = TEMPLATES.first().map_or(0, |template| template.start);
        let prepared = Changes::none(start, embedded::MEMORY);
        let prepared = image::module(&engine, TEMPLATES, embedded::MEMORY, &prepared)?;
        let linkers = Role::LINKED
            .into_iter()
            .map(|role| {
                let mut linker = imports::linker(&engine, &shell, &prepared, role, false)?;
                // For the memory of a script instead of the empty one.
                linker.allow_shadowing(true);
                Ok((role, linker))
            })
            .collect::<Result<_>>()?;
        let code = code(&engine, &shell, &prepared)?;
        let exports = Exports::of(&shell)?;
        let gate = Gate::new(guests::slots());
        let spares = Arc::<Spares>::default();
        let ticker = Ticker::new(&engine, gate.clone(), &spares);
        let inner = Inner {
            settings,
            engine,
            shell,
            code,
            prepared,
            linkers,
            observed: OnceLock::new(),
            exports,
            ticker,
            loads: Arc::new(Semaphore::new(LOADS as usize)),
            images: Cache::new(settings.image_bytes),
            admission: Admission::new(settings.instances),
            gate,
            guests: Arc::default(),
            spares,
            began: Instant::now(),
            pooling,
        };
        Ok(Self { inner: Arc::new(inner), share: Share::new(Quota::default()) })
    }

    /// The same engine for another project, which has no more of it than this.
    pub fn for_project(&self, quota: Quota) -> Self {
        Self { inner: self.inner.clone(), share: Share::new(quota) }
    }

    /// The project's share of the host.
    pub fn share(&self) -> &Arc<Share> {
        &self.share
    }

    /// Parses a script, checks its dialect, runs its top level and keeps the memory that is left.
    ///
    /// # Errors
    ///
    /// The script's own error with its place, or the host's.
    pub fn load(&self, source: &Source) -> Result<Image, ScriptError> {
        self.load_within(source, Budget::default()).0
    }

    /// The same with no more than this, and the units of fuel that it took: the same on every run. Waits on this thread
    /// until the project may compute. A script that is loaded already, by whichever project, is not loaded again.
    pub fn load_within(&self, source: &Source, budget: Budget) -> (Result<Image, ScriptError>, u64) {
        let Inner { engine, code, prepared, ticker, images, .. } = &*self.inner;
        let key = cache::key(source);
        if let Some((image, fuel)) = images.loaded(&key, &budget) {
            return (Ok(image), fuel);
        }
        let begun = ticker.call().map_err(Error::from);
        // Loads are no run's in particular.
        let mut pause = Pause::begin(self.inner.gate.turn(self.share.id(), 0, self.share.quota().weight));
        let tick = move || pause.tick();
        let begun = begun.and_then(|ticking| Ok((ticking, Loader::new(engine, code, prepared, budget, tick)?)));
        let (_ticking, mut loader) = match begun {
            Ok(begun) => begun,
            Err(error) => return (Err(ScriptError::Host(error)), 0),
        };
        let loaded = image::loaded(&mut loader, source, budget);
        let used = loader.used();
        let image = loaded.map_err(ScriptError::from).and_then(|()| self.image(&mut loader, source));
        if let Ok(image) = &image {
            images.keep(key, image, used, &budget);
        }
        (image, used)
    }

    /// The same on another thread, so that neither this call's deadline nor others' calls wait for it.
    pub async fn load_beside(&self, source: Source, budget: Budget) -> (Result<Image, ScriptError>, u64) {
        let sandbox = self.clone();
        let work = self.in_turn(move || sandbox.load_within(&source, budget));
        let ended = match budget.deadline {
            Some(deadline) => tokio::time::timeout_at(deadline.into(), work).await,
            None => Ok(work.await),
        };
        match ended {
            Ok(Ok(loaded)) => loaded,
            Ok(Err(error)) => (Err(ScriptError::Host(error)), 0),
            Err(_) => (Err(ScriptError::Over(Limit::of(LimitKind::Deadline, budget.milliseconds))), 0),
        }
    }

    /// Does something that loads on another thread, when it is its turn. A project waits for its own loads first: with
    /// however many, it takes a part of the host's turns only.
    pub async fn in_turn<T: Send + 'static>(&self, load: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let own = self.share.load().await;
        let turn = self.inner.loads.clone().acquire_owned().await;
        let load = move || {
            let _turns = (own, turn);
            load()
        };
        Ok(tokio::task::spawn_blocking(load).await?)
    }

    /// What an interpreter is that has loaded a script.
    fn image(&self, loader: &mut Loader, source: &Source) -> Result<Image, ScriptError> {
        let kept = loader.kept().map_err(ScriptError::Host)?;
        let role = match source.entry {
            Entry::Tool => Role::Tool,
            Entry::Hook => Role::Hook,
        };
        let changes = Changes::between(embedded::MEMORY, kept);
        Ok(Image::new(role, changes, self.inner.exports.clone(), &source.file, source.code()))
    }

    /// Any component instead of the interpreter, on the linker of a role: what a guest that is no interpreter could do
    /// is to be tried on the very imports that scripts have. It gets no more than they do, so that this opens nothing;
    /// it is for tests, because no policy, artifact or command leads here.
    ///
    /// # Errors
    ///
    /// Where the engine does not take it, it imports what the role has not got, or a function of `script` is missing.
    #[doc(hidden)]
    pub fn foreign(&self, component: &[u8], role: Role, file: &str) -> Result<Image> {
        let component = Component::new(&self.inner.engine, component)?;
        self.linker(role)?.instantiate_pre(&component)?;
        let exports = Exports::of(&component)?;
        Ok(Image::foreign(role, component, exports, file))
    }

    fn observed(&self) -> Result<&Linker<Occupant>> {
        let Inner { engine, shell, prepared, observed, .. } = &*self.inner;
        if let Some(linker) = observed.get() {
            return Ok(linker);
        }
        let mut linker = imports::linker(engine, shell, prepared, Role::Tool, true)?;
        linker.allow_shadowing(true);
        Ok(observed.get_or_init(|| linker))
    }

    fn linker(&self, role: Role) -> Result<&Linker<Occupant>> {
        let found = self.inner.linkers.iter().find(|(other, _)| *other == role);
        found.map(|(_, linker)| linker).ok_or_else(|| format_err!("there is no linker for {role:?}"))
    }

    /// A script with its memory, linked for a role. Made when it is first called, and again where it was given up since.
    pub fn ready(&self, image: &Image, role: Role, observed: bool) -> Result<Arc<InstancePre<Occupant>>> {
        // A `when` runs in its hook's instance.
        let linked = if role == Role::Predicate { Role::Hook } else { role };
        if linked != image.role() {
            return Err(format_err!("`{}` is not called as {role:?}", image.file()));
        }
        let observed = observed && linked == Role::Tool;
        if let Some(ready) = image.ready(observed) {
            return Ok(ready);
        }
        let linker = if observed { self.observed()? } else { self.linker(linked)? };
        let ready = match image.component() {
            Some(component) => linker.instantiate_pre(component)?,
            None => {
                let Inner { engine, shell, .. } = &*self.inner;
                let memory = image::module(engine, TEMPLATES, embedded::MEMORY, image.changes())?;
                let mut linker = linker.clone();
                linker.root().module(MEMORY, &memory)?;
                linker.instantiate_pre(shell)?
            }
        };
        // Two calls may do this at once, which does no harm: one of the two is kept.
        Ok(self.inner.images.ready(image, observed, ready, &self.share))
    }

    /// How large its pools were made.
    pub fn settings(&self) -> Settings {
        self.inner.settings
    }

    /// Whether instances come from pools, and if not, why.
    pub fn pooling(&self) -> Result<(), &str> {
        self.inner.pooling.as_ref().copied().map_err(String::as_str)
    }

    /// Whether memory of finished calls is reset in place by `PAGEMAP_SCAN`, which Linux has since 6.7.
    pub fn pagemap_scan() -> bool {
        PoolingAllocationConfig::is_pagemap_scan_available()
    }

    /// What the component imports, each as `package:name/interface@version`, sorted.
    pub fn component_imports(&self) -> Vec<String> {
        let component = self.inner.shell.component_type();
        let mut names: Vec<String> = component.imports(&self.inner.engine).map(|(name, _)| name.to_owned()).collect();
        names.sort();
        names
    }

    /// Images that are kept ready, and their bytes.
    pub fn images(&self) -> (usize, u64) {
        self.inner.images.held()
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.inner.engine
    }

    pub(crate) fn admission(&self) -> &Arc<Admission> {
        &self.inner.admission
    }

    pub(crate) fn gate(&self) -> &Arc<Gate> {
        &self.inner.gate
    }

    pub(crate) fn guests(&self) -> &Arc<Guests> {
        &self.inner.guests
    }

    pub(crate) fn spares(&self) -> &Arc<Spares> {
        &self.inner.spares
    }

    /// Milliseconds since it was made.
    pub(crate) fn milliseconds(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.inner.began).as_millis()).unwrap_or(u64::MAX)
    }

    /// Has no thread of its own and no instance until the next call, where none continues.
    pub fn rest(&self) {
        self.inner.spares.rest();
        self.inner.ticker.rest();
        self.inner.guests.rest();
    }

    pub(crate) fn ticker(&self) -> &Ticker {
        &self.inner.ticker
    }
}

/// An engine as the sandbox has it, with nothing on it: for measuring what the sandbox adds to the engine.
///
/// # Errors
///
/// As for [`Sandbox::new`].
#[doc(hidden)]
pub fn bare_engine(settings: Settings) -> Result<Engine> {
    engine(Some(settings), Placed::Copied)
}

/// The interpreter's core module, which is part of the shell. The engine gives it out of an instance only.
fn code(engine: &Engine, shell: &Component, memory: &Module) -> Result<Module> {
    let mut linker = Linker::new(engine);
    linker.root().module(MEMORY, memory)?;
    linker.define_unknown_imports_as_traps(shell)?;
    let mut store = Store::new(engine, ());
    // Starting an instance runs the few instructions that fill its tables.
    store.set_fuel(START_FUEL)?;
    store.set_epoch_deadline(u64::MAX / 2);
    let instance = linker.instantiate(&mut store, shell)?;
    instance.get_module(&mut store, CODE).ok_or_else(|| format_err!("the shell exports no `{CODE}`"))
}

fn engine(pools: Option<Settings>, code: Placed) -> Result<Engine> {
    let mut config = compile::config(TARGET)?;
    code.configure(&mut config);
    // All that is compiled here is modules without functions: threads would only wait for each other.
    config.parallel_compilation(false);
    if let Some(Settings { instances, .. }) = pools {
        let calls = instances.clamp(1, MAX_INSTANCES) + NESTING + SPARE;
        let mut pool = PoolingAllocationConfig::default();
        pool.total_component_instances(calls);
        pool.total_core_instances(calls * CORE_INSTANCES + 2 * LOADS);
        pool.total_memories(calls + LOADS);
        pool.total_tables(calls * TABLES + LOADS);
        pool.total_stacks(calls);
        pool.max_core_instances_per_component(CORE_INSTANCES + 1);
        pool.max_memory_size(usize::try_from(compile::MEMORY_RESERVATION)?);
        pool.linear_memory_keep_resident(KEEP_RESIDENT);
        pool.table_keep_resident(KEEP_TABLE);
        // With it, only the pages that a call wrote are reset, in one system call; without, all that may have been.
        pool.pagemap_scan(Enabled::Auto);
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    }
    Engine::new(&config)
}

impl Exports {
    fn of(shell: &Component) -> Result<Self> {
        let script = shell.get_export_index(None, SCRIPT).ok_or_else(|| format_err!("there is no `{SCRIPT}`"))?;
        let find = |name: &str| {
            shell.get_export_index(Some(&script), name).ok_or_else(|| format_err!("there is no `{SCRIPT}#{name}`"))
        };
        let listen = find("listen").ok();
        Ok(Self { run: find("run")?, handle: find("handle")?, matches: find("matches")?, listen })
    }
}
