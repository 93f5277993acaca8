//! What is done with an instance when its caller has the answer, so that no caller waits for it: it is cleared up, and for
//! a script that is called again and again the next one is made.
//!
//! Both need a slot of the pool beyond those that calls are admitted to. There are [`SPARE`] of them. Where none is left,
//! an instance is cleared up before its caller has the answer, and the next one is made when it is called.
//!
//! An instance that is made ahead has nothing of any call: no grant, no fuel, no time. Its first call is its only one.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::runtime::Handle;
use wasmtime::component::{Instance, InstancePre};
use wasmtime::{Engine, Result, Store};

use super::cache::Image;
use super::occupant::Occupant;
use super::scheduling::quota::Share;

/// Instances of a host beyond those of calls.
pub(crate) const SPARE: u32 = 64;
/// Instances of a host that are made ahead, at most.
pub(crate) const AHEAD: usize = 32;
/// Those of one project among them. A project with more scripts gives up its own for them.
pub(crate) const AHEAD_OF_ONE: usize = 8;
/// Fuel that is more than enough to start an instance in which nothing is called.
const START_FUEL: u64 = 1_000_000;

/// See the module.
#[derive(Default)]
pub(crate) struct Spares {
    /// Slots that are taken.
    pub(crate) taken: AtomicU32,
    /// Instances that are made ahead, the oldest first.
    ahead: Mutex<Vec<Ahead>>,
}

/// One of the slots; free again when it is dropped. What is made ahead has one, and must not keep what holds it.
struct Slot {
    spares: Weak<Spares>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(spares) = self.spares.upgrade() {
            spares.taken.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// An instance that is made ahead.
pub(crate) struct Ahead {
    pub(crate) image: Image,
    observed: bool,
    pub(crate) project: u64,
    /// Gone with its project.
    share: Weak<Share>,
    // In this order: the slot is free when the instance is gone.
    made: Made,
    #[expect(dead_code, reason = "held as long as the instance is")]
    slot: Slot,
}

/// An instance that nobody has called yet.
pub(crate) struct Made {
    pub(crate) store: Store<Occupant>,
    pub(crate) instance: Instance,
    /// Fuel that it took to make it.
    pub(crate) fuel: u64,
    /// Bytes of its linear memory.
    pub(crate) memory: u64,
}

impl Made {
    /// Makes an instance for nobody yet.
    async fn new(engine: &Engine, ready: &InstancePre<Occupant>) -> Result<Self> {
        let mut store = Store::new(engine, Occupant::Vacant { memory: 0 });
        store.limiter(|occupant| occupant);
        store.set_fuel(START_FUEL)?;
        store.set_epoch_deadline(u64::MAX / 2);
        let instance = ready.instantiate_async(&mut store).await?;
        let fuel = START_FUEL.saturating_sub(store.get_fuel()?);
        let memory = match store.data() {
            Occupant::Vacant { memory } => *memory,
            Occupant::Call(_) => 0,
        };
        Ok(Self { store, instance, fuel, memory })
    }
}

/// How the next instance of a script is made.
pub(crate) struct Next {
    pub(crate) engine: Engine,
    pub(crate) image: Image,
    pub(crate) observed: bool,
    pub(crate) share: Arc<Share>,
}

impl Spares {
    pub(crate) fn ahead(&self) -> MutexGuard<'_, Vec<Ahead>> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot, where one is left.
    fn slot(self: &Arc<Self>) -> Option<Slot> {
        let more = |taken: u32| (taken < SPARE).then_some(taken + 1);
        self.taken.try_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(Slot { spares: Arc::downgrade(self) })
    }

    /// An instance of a script that was made ahead, with its slot free: the caller has one of its own.
    pub(crate) fn take(&self, image: &Image, observed: bool) -> Option<Made> {
        let mut ahead = self.ahead();
        let at = ahead.iter().position(|made| made.observed == observed && made.image.is(image))?;
        Some(ahead.remove(at).made)
    }

    /// Keeps an instance for the next call, and gives up others for it: of the same project where it has as many as may be,
    /// then the oldest. Gives back what is given up, to be dropped by the caller.
    fn keep(&self, made: Ahead) -> Vec<Ahead> {
        let mut ahead = self.ahead();
        let mut gone: Vec<Ahead> = ahead.extract_if(.., |made| made.share.strong_count() == 0).collect();
        let own = ahead.iter().filter(|other| other.project == made.project).count();
        let oldest = if own >= AHEAD_OF_ONE {
            ahead.iter().position(|other| other.project == made.project)
        } else {
            (ahead.len() >= AHEAD).then_some(0)
        };
        gone.extend(oldest.map(|at| ahead.remove(at)));
        ahead.push(made);
        gone
    }

    /// Whether this script has one already.
    pub(crate) fn has(&self, image: &Image, observed: bool) -> bool {
        self.ahead().iter().any(|made| made.observed == observed && made.image.is(image))
    }

    /// Gives up all that are made ahead.
    pub(crate) fn rest(&self) {
        let gone = std::mem::take(&mut *self.ahead());
        drop(gone);
    }

    /// Clears an instance up that has ended, soon after this if it can be, and then makes the next one.
    pub(crate) fn clear_up(self: &Arc<Self>, store: Store<Occupant>, next: Option<Next>) {
        // In a task, its thread comes to another one when this one waits. Elsewhere a thread would have to be woken, which
        // takes longer than to clear up.
        let here = Handle::try_current().ok().filter(|_| tokio::task::try_id().is_some());
        let (Some(runtime), Some(slot)) = (here, self.slot()) else { return };
        let ended = Ended { store, next, slot };
        let Some(ended) = Batch::add(ended) else { return };
        let batch = Arc::new(Batch { ended: Mutex::new(Some(vec![ended])) });
        BATCH.set(Arc::downgrade(&batch));
        runtime.spawn(async move {
            for ended in batch.take() {
                ended.cleared_up().await;
            }
        });
    }
}

/// An instance whose caller has its answer.
struct Ended {
    // In this order: the slot is free when the instance is gone.
    store: Store<Occupant>,
    next: Option<Next>,
    slot: Slot,
}

impl Ended {
    async fn cleared_up(self) {
        let Self { store, next, slot } = self;
        drop(store);
        let Some(Next { engine, image, observed, share }) = next else { return };
        let Some(spares) = slot.spares.upgrade() else { return };
        if spares.has(&image, observed) {
            return;
        }
        // Where it is not kept ready any more, or there is no room for it, the next call finds that out.
        let Some(ready) = image.ready(observed) else { return };
        let Ok(made) = Made::new(&engine, &ready).await else { return };
        let (project, share) = (share.id(), Arc::downgrade(&share));
        drop(spares.keep(Ahead { image, observed, project, share, made, slot }));
    }
}

thread_local! {
    /// What this thread clears up next.
    static BATCH: RefCell<Weak<Batch>> = const { RefCell::new(Weak::new()) };
}

/// Instances that one task clears up: those that ended on a thread before it came to that task.
struct Batch {
    /// None once they are being cleared up.
    ended: Mutex<Option<Vec<Ended>>>,
}

impl Batch {
    fn ended(&self) -> MutexGuard<'_, Option<Vec<Ended>>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one to what this thread clears up next. Gives it back where nothing is to be.
    fn add(ended: Ended) -> Option<Ended> {
        let batch = BATCH.with_borrow(Weak::upgrade);
        let Some(batch) = batch else { return Some(ended) };
        match &mut *batch.ended() {
            Some(all) => all.push(ended),
            None => return Some(ended),
        }
        None
    }

    fn take(&self) -> Vec<Ended> {
        self.ended().take().unwrap_or_default()
    }
}
