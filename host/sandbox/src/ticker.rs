//! The clock that ends guest code: it advances the engine's epoch, and running code looks at that.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use wasmtime::{Engine, EngineWeak};

use super::scheduling::cores::Cores;
use super::scheduling::gate::Gate;
use super::spare::Spares;

/// Time between two ticks: how late the end of a call that computes can be, and how long it may keep a thread from
/// the others.
const TICK: Duration = Duration::from_millis(1);
/// The same while calls wait for others to let them compute: the length of their slices.
pub(crate) const SLICE: Duration = Duration::from_micros(250);
/// Ticks without a call after which the thread sleeps until the next one.
const IDLE: u8 = 100;

/// A thread that ticks while there are calls. It begins with the first of them, so that a host which has called nothing
/// has no thread of it: what a host gives up, the kernel takes from the thread that asks and from those that it starts
/// later. It ends when the engine is gone, or is told to rest.
pub(crate) struct Ticker {
    shared: Arc<Shared>,
    engine: EngineWeak,
    gate: Arc<Gate>,
    spares: Weak<Spares>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Ticks since the last call began.
    idle: AtomicU8,
    asleep: AtomicBool,
    /// Calls that have not ended.
    calls: std::sync::atomic::AtomicUsize,
    gone: AtomicBool,
}

impl Ticker {
    pub(crate) fn new(engine: &Engine, gate: Arc<Gate>, spares: &Arc<Spares>) -> Self {
        let spares = Arc::downgrade(spares);
        Self { shared: Arc::default(), engine: engine.weak(), gate, spares, thread: Mutex::default() }
    }

    /// Says that a call continues until what is returned is dropped.
    ///
    /// # Errors
    ///
    /// Where the machine has no thread for it.
    pub(crate) fn call(&self) -> io::Result<Call<'_>> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let (shared, engine, gate) = (self.shared.clone(), self.engine.clone(), self.gate.clone());
            let spares = self.spares.clone();
            let builder = thread::Builder::new().name("harness-ticker".to_owned());
            *thread = Some(builder.spawn(move || tick(&shared, &engine, &gate, &spares))?);
        }
        self.shared.calls.fetch_add(1, Ordering::SeqCst);
        self.shared.idle.store(0, Ordering::Relaxed);
        if let Some(thread) = thread.as_ref().filter(|_| self.shared.asleep.load(Ordering::SeqCst)) {
            thread.thread().unpark();
        }
        Ok(Call { shared: &self.shared })
    }

    /// Ends the thread where no call continues. The next call begins another one.
    pub(crate) fn rest(&self) {
        // Calls begin only when this is let go.
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if self.shared.calls.load(Ordering::SeqCst) == 0 {
            self.shared.end(thread.take());
        }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        self.shared.end(thread);
    }
}

impl Shared {
    /// Ends the thread, and waits until it has.
    fn end(&self, thread: Option<JoinHandle<()>>) {
        let Some(thread) = thread else { return };
        self.gone.store(true, Ordering::SeqCst);
        thread.thread().unpark();
        let _ = thread.join();
        self.gone.store(false, Ordering::SeqCst);
        self.asleep.store(false, Ordering::SeqCst);
    }
}

/// A call that continues.
pub(crate) struct Call<'a> {
    shared: &'a Shared,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.shared.calls.fetch_sub(1, Ordering::SeqCst);
    }
}

fn tick(shared: &Shared, engine: &EngineWeak, gate: &Arc<Gate>, spares: &Weak<Spares>) {
    harness_sys::slices::ask_for_short_slices();
    let mut cores = Cores::new(gate);
    let mut last = Instant::now();
    while !shared.gone.load(Ordering::SeqCst) {
        if gate.needs_clocks() {
            cores.wake();
        }
        thread::sleep(if gate.is_contended() { SLICE } else { TICK });
        gate.tick(last.elapsed());
        last = Instant::now();
        let Some(engine) = engine.upgrade() else { return };
        engine.increment_epoch();
        drop(engine);
        if shared.calls.load(Ordering::SeqCst) > 0 {
            shared.idle.store(0, Ordering::Relaxed);
        } else if shared.idle.fetch_add(1, Ordering::Relaxed) >= IDLE {
            // Who is not called has no instance that waits for it.
            if let Some(spares) = spares.upgrade() {
                spares.rest();
            }
            // Both sides write first and look then, so that one of them sees the other.
            shared.asleep.store(true, Ordering::SeqCst);
            while shared.calls.load(Ordering::SeqCst) == 0 && !shared.gone.load(Ordering::SeqCst) {
                thread::park();
            }
            shared.asleep.store(false, Ordering::SeqCst);
            shared.idle.store(0, Ordering::Relaxed);
        }
    }
}
