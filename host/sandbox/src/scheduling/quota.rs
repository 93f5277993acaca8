//! What one project may have of a host that it shares with others, and what it has of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::fair;
use crate::engine::LOADS_OF_ONE;
use harness_capability::resources::{Amounts, Resources};

/// What one project may have at most. The default is a host that it has to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quota {
    /// Its share of the processor beside other projects that compute, relative to theirs: 1 to 10,000, and 100 where
    /// nothing is said.
    pub weight: u32,
    /// Calls at one time, not counting those that they nest.
    pub concurrent_calls: u32,
    /// Instances at one time, those of nested calls and background tasks counted. A nested call beyond them waits for the
    /// one instance that the host reserves for its level of nesting.
    pub instances: u32,
    /// Calls that may wait for one of those to end, or for the host to have room. More are refused as busy.
    pub queued_calls: u32,
    /// Bytes of linear memory that its instances may have together.
    pub memory_bytes: u64,
    /// Bytes of images of its scripts that are kept ready for the next call.
    pub image_bytes: u64,
    /// Commands that run at one time. More wait, within their time.
    pub commands: u32,
    /// Calls of `fs.*` that have files open at one time; each has a few. More wait.
    pub open_files: u32,
    /// Bytes of the bodies of HTTP requests and answers that are under way. A request that would exceed them fails.
    pub http_bytes: u64,
    /// Connections of its commands to the hosts of `exec.network` at one time. More are closed at once.
    pub connections: u32,
}

impl Default for Quota {
    fn default() -> Self {
        let Amounts { commands, open_files, http_bytes, connections } = Amounts::default();
        Self {
            weight: fair::WEIGHT,
            concurrent_calls: u32::MAX,
            instances: u32::MAX,
            queued_calls: 1_000,
            memory_bytes: u64::MAX,
            image_bytes: u64::MAX,
            commands,
            open_files,
            http_bytes,
            connections,
        }
    }
}

impl Quota {
    /// The same with another share of the processor.
    pub fn weight(self, weight: u32) -> Self {
        Self { weight: weight.clamp(1, 10_000), ..self }
    }

    /// The same with another number of calls at one time.
    pub fn concurrent_calls(self, calls: u32) -> Self {
        Self { concurrent_calls: calls, ..self }
    }

    /// The same with another number of instances at one time.
    pub fn instances(self, instances: u32) -> Self {
        Self { instances, ..self }
    }

    /// The same with another number of calls that may wait.
    pub fn queued_calls(self, calls: u32) -> Self {
        Self { queued_calls: calls, ..self }
    }

    /// The same with other memory of its instances, in bytes.
    pub fn memory_bytes(self, bytes: u64) -> Self {
        Self { memory_bytes: bytes, ..self }
    }

    /// The same with other bytes of images that are kept ready.
    pub fn image_bytes(self, bytes: u64) -> Self {
        Self { image_bytes: bytes, ..self }
    }

    /// The same with another number of commands at one time.
    pub fn commands(self, commands: u32) -> Self {
        Self { commands, ..self }
    }

    /// The same with another number of calls that have files open at one time.
    pub fn open_files(self, calls: u32) -> Self {
        Self { open_files: calls, ..self }
    }

    /// The same with other bytes of HTTP bodies under way.
    pub fn http_bytes(self, bytes: u64) -> Self {
        Self { http_bytes: bytes, ..self }
    }

    /// The same with another number of connections of its commands.
    pub fn connections(self, connections: u32) -> Self {
        Self { connections, ..self }
    }
}

/// How often and how long something was waited for, since a project was opened.
#[derive(Debug, Default)]
pub struct Waits {
    count: AtomicU64,
    micros: AtomicU64,
    longest: AtomicU64,
}

impl Waits {
    /// Counts one wait.
    pub(crate) fn note(&self, waited: Duration) {
        let micros = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
        self.longest.fetch_max(micros, Ordering::Relaxed);
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// All of them together.
    pub fn total(&self) -> Duration {
        Duration::from_micros(self.micros.load(Ordering::Relaxed))
    }

    /// The longest of them.
    pub fn longest(&self) -> Duration {
        Duration::from_micros(self.longest.load(Ordering::Relaxed))
    }
}

/// A project among those of a host.
#[derive(Debug)]
pub struct Share {
    quota: Quota,
    id: u64,
    memory: AtomicU64,
    resources: Arc<Resources>,
    queue: Waits,
    slices: Waits,
    /// Turns of its scripts that are loaded while calls continue.
    loads: Arc<Semaphore>,
}

impl Share {
    /// The share of a project that is opened.
    pub fn new(quota: Quota) -> Arc<Self> {
        static SHARES: AtomicU64 = AtomicU64::new(1);
        let Quota { commands, open_files, http_bytes, connections, .. } = quota;
        let resources = Arc::new(Resources::new(Amounts { commands, open_files, http_bytes, connections }));
        let (id, memory) = (SHARES.fetch_add(1, Ordering::Relaxed), AtomicU64::new(0));
        let loads = Arc::new(Semaphore::new(LOADS_OF_ONE as usize));
        let (queue, slices) = (Waits::default(), Waits::default());
        Arc::new(Self { quota, id, memory, resources, queue, slices, loads })
    }

    /// What it may have.
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// What else its calls use.
    pub fn resources(&self) -> &Arc<Resources> {
        &self.resources
    }

    /// How long its calls have waited for an instance, those that had to.
    pub fn queue(&self) -> &Waits {
        &self.queue
    }

    /// How long its calls have waited for a slice of the processor, those that had to.
    pub fn slices(&self) -> &Waits {
        &self.slices
    }

    /// Bytes of linear memory that its instances have now.
    pub fn memory(&self) -> u64 {
        self.memory.load(Ordering::Relaxed)
    }

    /// A turn to load a script, when fewer of the project's are loaded than may be. Nothing where there is none any more.
    pub(crate) async fn load(&self) -> Option<OwnedSemaphorePermit> {
        self.loads.clone().acquire_owned().await.ok()
    }

    /// Unique in the process.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Takes memory for an instance, if there is as much left.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        let more = |taken: u64| taken.checked_add(bytes).filter(|after| *after <= self.quota.memory_bytes);
        self.memory.try_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Gives it back.
    pub(crate) fn give_back(&self, bytes: u64) {
        self.memory.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Where a call stands among others: whose it is, and how many calls wait for it.
#[derive(Debug, Clone)]
pub struct Standing {
    /// The project's share.
    pub share: Arc<Share>,
    /// Calls of scripts that wait for this one: 0 of one that no script has made.
    pub depth: u32,
}

impl Default for Standing {
    /// A project by itself, and a call that nothing waits for.
    fn default() -> Self {
        Self { share: Share::new(Quota::default()), depth: 0 }
    }
}
