//! What belongs to one call: its grant, its limits, and the count of what it used.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use wasmtime::component::ResourceTable;
use wasmtime_wasi::{HostMonotonicClock, WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

use super::ends::Ends;
use super::loader::SEED;
use super::outcome::{HostCall, LimitKind, Usage};
use super::scheduling::quota::Standing;
use super::tape::{Tape, Taping};
use harness_capability::cache::Cache;
use harness_capability::clock::Clock;
use harness_capability::coverage::Coverage;
use harness_capability::env::Variables;
use harness_capability::exec::Runner;
use harness_capability::fs::Workspace;
use harness_capability::http::Client;
use harness_capability::log::{Log, LogListener};
use harness_capability::metrics::Metrics;
use harness_capability::progress::Steps;
use harness_capability::random::Random;
use harness_capability::reentry::{Allowance, Reentry, Tree};
use harness_capability::secrets::{Handles, Vault};
use harness_capability::spaces::Spaces;
use harness_capability::system::System;
use harness_capability::turn::Turn;
use harness_policy::grant::Grant;
use harness_policy::limits::Limits;
use harness_policy::refusal::Refusal;
use harness_policy::shared::{Namespace, SharedKind};

/// Host calls that are recorded of a call; the others are only counted.
pub const MAX_CALLS: usize = 1000;
/// Refused ones that are recorded beyond that.
pub const MAX_REFUSED: usize = 1000;
/// Instances, memories and tables of a component instance: the interpreter has three, one and two.
const MAX_PARTS: usize = 16;
/// Elements of a table. The interpreter's own has some ten thousand.
const MAX_TABLE: usize = 100_000;

/// Reports the runs of a process apart.
#[derive(Debug)]
pub struct RunId(u64);

impl Default for RunId {
    /// One that no other run has.
    fn default() -> Self {
        static RUNS: AtomicU64 = AtomicU64::new(1);
        Self(RUNS.fetch_add(1, Ordering::Relaxed))
    }
}

/// What the calls of one run share: one command of the command line, or one session. Never shared between tenants.
#[derive(Debug, Default)]
pub struct Session {
    /// Which run it is, for the order in which calls compute.
    pub run: RunId,
    /// Values that tools and hooks share.
    pub cache: Cache,
    /// Counters and gauges.
    pub metrics: Metrics,
    /// The same of each plugin.
    pub plugins: Spaces,
    /// What it has instead of the project's own, for a test or a replay.
    pub overrides: Overrides,
    /// Who keeps what host calls answer, or gives it.
    pub tape: Option<Arc<dyn Tape>>,
}

/// What a run has instead of what its project has.
#[derive(Debug, Default)]
pub struct Overrides {
    /// Where time comes from.
    pub clock: Option<Arc<Clock>>,
    /// Where random numbers come from.
    pub random: Option<Random>,
    /// Who sends requests.
    pub http: Option<Client>,
    /// Who runs commands.
    pub exec: Runner,
    /// Where variables come from.
    pub variables: Option<Variables>,
}

impl Session {
    pub(crate) fn id(&self) -> u64 {
        self.run.0
    }
}

/// What a call may touch.
#[derive(Debug, Clone)]
pub struct Context {
    /// Calls of scripts that wait for this one: 0 of one that no script has made.
    pub depth: u32,
    /// What it may do.
    pub grant: Arc<Grant>,
    /// The folder it works in.
    pub workspace: Arc<Workspace>,
    /// What it shares with other calls of its run.
    pub session: Arc<Session>,
    /// What it shares with other calls of its turn.
    pub turn: Arc<Turn>,
    /// The names of its plugin; none where it is of none.
    pub namespace: Option<Arc<Namespace>>,
    /// The machine as its project sees it.
    pub system: Arc<System>,
    /// Sends the requests of its project.
    pub http: Arc<Client>,
    /// The secrets of the project: what may be used by name, and is looked for in all that goes in and out.
    pub secrets: Arc<Vault>,
    /// Who hears its log as it is written.
    pub listener: Option<Arc<dyn LogListener>>,
    /// The way back into dispatch. Without it, a script fires nothing and calls no tool.
    pub reentry: Option<Arc<dyn Reentry>>,
}

impl Context {
    /// The plugin whose own this name is; none where it is the project's. Without a name, whose all names are that are not
    /// shared.
    fn owner(&self, kind: SharedKind, name: Option<&str>) -> Option<&str> {
        let namespace = self.namespace.as_ref()?;
        let is_shared = name.is_some_and(|name| namespace.shares(kind, name));
        (!is_shared).then_some(namespace.plugin.as_str())
    }

    /// Does something with the cache that has a key, or with that of all keys of its own.
    pub(crate) fn in_cache<T>(&self, key: Option<&str>, work: impl FnOnce(&Cache) -> T) -> T {
        match self.owner(SharedKind::Cache, key) {
            Some(plugin) => work(&self.session.plugins.of(plugin).cache),
            None => work(&self.session.cache),
        }
    }

    /// The same with the values of the turn.
    pub(crate) fn in_turn<T>(&self, key: Option<&str>, work: impl FnOnce(&Turn) -> T) -> T {
        match self.owner(SharedKind::Ctx, key) {
            Some(plugin) => work(&self.turn.of(plugin)),
            None => work(&self.turn),
        }
    }

    /// The same with the metrics.
    pub(crate) fn in_metrics<T>(&self, name: Option<&str>, work: impl FnOnce(&Metrics) -> T) -> T {
        match self.owner(SharedKind::Metrics, name) {
            Some(plugin) => work(&self.session.plugins.of(plugin).metrics),
            None => work(&self.session.metrics),
        }
    }

    /// Where time comes from.
    pub fn clock(&self) -> &Arc<Clock> {
        self.session.overrides.clock.as_ref().unwrap_or(&self.system.clock)
    }

    /// Where random numbers come from.
    pub fn random(&self) -> &Random {
        self.session.overrides.random.as_ref().unwrap_or(&self.system.random)
    }

    /// Who sends requests.
    pub fn http(&self) -> &Client {
        self.session.overrides.http.as_ref().unwrap_or(&self.http)
    }

    /// Who runs commands.
    pub fn exec(&self) -> &Runner {
        &self.session.overrides.exec
    }

    /// Where variables come from.
    pub fn variables(&self) -> &Variables {
        self.session.overrides.variables.as_ref().unwrap_or(&self.system.variables)
    }
}

/// The state of one call.
#[expect(missing_debug_implementations, reason = "it holds what the engine gives no debug form")]
pub struct State {
    pub(crate) context: Context,
    pub(crate) limits: Limits,
    pub(crate) standing: Standing,
    pub(crate) deadline: Instant,
    pub(crate) ends: Ends,
    pub(crate) usage: Usage,
    pub(crate) log: Log,
    pub(crate) calls: Vec<HostCall>,
    /// What stands for secrets in this call.
    pub handles: Handles,
    /// The last refusal: an interpreter that says it was denied is believed only where this is set.
    pub refusal: Option<Refusal>,
    /// The limit that the last host call told the script of.
    pub over: Option<LimitKind>,
    /// Bytes of log and records that the host keeps.
    pub kept: u64,
    /// Whether a `when` is running: every import but the interpreter's own ends the instance then.
    pub closed: bool,
    /// Counts what it reports of its progress.
    pub steps: Steps,
    /// What the script told of its lines.
    pub coverage: Option<Coverage>,
    /// Whether it waits for a host call.
    pub waits: bool,
    /// Whether memory was refused: what traps after that was over the limit.
    pub memory_refused: bool,
    /// What the interpreter said when it died.
    pub last_words: Vec<u8>,
    /// What keeps or gives the answers of its host calls.
    pub taping: Option<Box<Taping>>,
    memory: u64,
    /// Whether it was given more of it than it began with.
    has_grown: bool,
    /// Whether memory was refused because the project has no more.
    project_is_out: bool,
    wasi: Option<Box<Wasi>>,
}

/// WASI as the interpreter gets it: nothing.
struct Wasi {
    context: WasiCtx,
    table: ResourceTable,
}

impl State {
    pub(crate) fn new(context: Context, limits: Limits, deadline: Instant, standing: Standing) -> Self {
        let handles = Handles::new(context.secrets.clone());
        Self {
            context,
            handles,
            limits,
            standing,
            deadline,
            ends: Ends::at(deadline),
            usage: Usage::default(),
            log: Log::default(),
            calls: Vec::new(),
            refusal: None,
            over: None,
            kept: 0,
            closed: false,
            steps: Steps::default(),
            coverage: None,
            waits: false,
            memory_refused: false,
            last_words: Vec::new(),
            taping: None,
            memory: 0,
            has_grown: false,
            project_is_out: false,
            wasi: None,
        }
    }

    /// What is left for what it starts now, with so much fuel.
    pub(crate) fn allowance(&self, fuel: u64) -> Allowance {
        let shared = self.context.reentry.as_ref().and_then(|reentry| reentry.shared_host_calls());
        let tree = shared.map(|started| Tree {
            host_calls: self.limits.host_calls.saturating_sub(self.usage.host_calls.saturating_add(started)),
            memory: self.limits.memory_bytes.saturating_sub(self.memory),
        });
        Allowance { fuel, deadline: self.deadline, tree }
    }

    /// Its host calls, with those of what it has started where that shares them.
    pub(crate) fn host_calls(&self) -> u64 {
        let shared = self.context.reentry.as_ref().and_then(|reentry| reentry.shared_host_calls());
        self.usage.host_calls.saturating_add(shared.unwrap_or(0))
    }

    /// Whether memory was refused that its own limit would have let it have.
    pub(crate) fn is_project_out_of_memory(&self) -> bool {
        self.project_is_out
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.standing.share.give_back(self.memory);
    }
}

impl WasiView for State {
    /// Made when the interpreter first asks, which in an ordinary call it does not.
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let wasi = self.wasi.get_or_insert_with(|| {
            // The builder starts with nothing: no folder, argument, variable or socket, and an empty standard input.
            let context = WasiCtxBuilder::new().monotonic_clock(Fixed).insecure_random_seed(SEED).build();
            Box::new(Wasi { context, table: ResourceTable::new() })
        });
        WasiCtxView { ctx: &mut wasi.context, table: &mut wasi.table }
    }
}

/// A clock that stands still: what the interpreter itself would measure must not change what a script does.
struct Fixed;

impl HostMonotonicClock for Fixed {
    fn resolution(&self) -> u64 {
        1
    }

    fn now(&self) -> u64 {
        0
    }
}

impl State {
    /// Its instance asks for memory.
    pub(crate) fn memory_growing(&mut self, current: usize, desired: usize) -> bool {
        let more = desired.saturating_sub(current) as u64;
        let after = self.memory.saturating_add(more);
        if after > self.limits.memory_bytes {
            self.memory_refused = true;
            return false;
        }
        if !self.standing.share.take(more) {
            self.memory_refused = true;
            self.project_is_out = true;
            return false;
        }
        self.has_grown |= self.memory > 0;
        self.memory = after;
        self.usage.peak_memory = self.usage.peak_memory.max(after);
        true
    }

    /// Takes an instance that has this much memory already. Not where that is more than it may have: then nothing is changed.
    pub(crate) fn take_memory(&mut self, bytes: u64) -> bool {
        let takes = self.memory == 0 && bytes <= self.limits.memory_bytes && self.standing.share.take(bytes);
        if takes {
            self.memory = bytes;
            self.usage.peak_memory = self.usage.peak_memory.max(bytes);
        }
        takes
    }

    /// Whether its memory is larger than that of the image.
    pub(crate) fn has_grown(&self) -> bool {
        self.has_grown
    }
}

/// Whether a table may have so many elements.
pub(crate) fn table_fits(elements: usize) -> bool {
    elements <= MAX_TABLE
}

/// Core instances, memories and tables that one instance of a component may have of each.
pub(crate) fn instances_of_one() -> usize {
    MAX_PARTS
}
