//! A clock on each core, while guests of several projects compute on all of them.
//!
//! A thread that has answered a request, sleeps, and is woken for the next one within microseconds has for that moment used
//! more of its core than the guest that computes there. So the kernel does not let it interrupt the guest when it is woken; it
//! may a few microseconds later, but the kernel looks again only at its own tick, every 4 ms where it has 250 of them in a
//! second. Whenever a clock on that core wakes up, the kernel looks again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::gate::Gate;
use super::guests::slots;
use crate::ticker::SLICE;

/// The clocks of a gate, which end with this.
pub(crate) struct Cores {
    gate: Arc<Gate>,
    end: Arc<AtomicBool>,
    /// None until the gate first needs them.
    clocks: Option<Vec<JoinHandle<()>>>,
}

impl Cores {
    pub(crate) fn new(gate: &Arc<Gate>) -> Self {
        Self { gate: gate.clone(), end: Arc::default(), clocks: None }
    }

    /// Lets them go as long as the gate needs them.
    pub(crate) fn wake(&mut self) {
        let clocks = self.clocks.get_or_insert_with(|| {
            let cores = cores();
            // Where there are more cores than guests compute on, some are free for others.
            let cores = if cores.len() > slots() { Vec::new() } else { cores };
            cores.into_iter().filter_map(|core| begin(core, &self.gate, &self.end)).collect()
        });
        clocks.iter().for_each(|clock| clock.thread().unpark());
    }
}

impl Drop for Cores {
    fn drop(&mut self) {
        self.end.store(true, Ordering::SeqCst);
        for clock in self.clocks.take().into_iter().flatten() {
            clock.thread().unpark();
            let _ = clock.join();
        }
    }
}

/// The cores that this process may use.
fn cores() -> Vec<usize> {
    let allowed = sched_getaffinity(None);
    allowed.map_or_else(|_| Vec::new(), |allowed| (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect())
}

/// Keeps this thread on a core. Returns whether the kernel lets it.
fn stay_on(core: usize) -> bool {
    let mut only = CpuSet::new();
    only.set(core);
    sched_setaffinity(None, &only).is_ok()
}

/// None where the machine has no thread for it: calls take longer then, and work.
fn begin(core: usize, gate: &Arc<Gate>, end: &Arc<AtomicBool>) -> Option<JoinHandle<()>> {
    let (gate, end) = (gate.clone(), end.clone());
    let clock = move || {
        if !stay_on(core) {
            return;
        }
        harness_sys::slices::ask_for_short_slices();
        while !end.load(Ordering::SeqCst) {
            if gate.needs_clocks() {
                thread::sleep(SLICE);
            } else {
                thread::park();
            }
        }
    };
    thread::Builder::new().name(format!("harness-core-{core}")).spawn(clock).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_clock_on_each_core_from_when_they_are_needed_until_they_are_dropped() {
        let gate = Gate::new(1);
        let mut clocks = Cores::new(&gate);
        assert!(clocks.clocks.is_none());
        clocks.wake();
        let begun: Vec<_> =
            clocks.clocks.iter().flatten().map(|clock| clock.thread().name().unwrap().to_owned()).collect();
        let wanted: Vec<_> = cores().iter().map(|core| format!("harness-core-{core}")).collect();
        assert_eq!(begun, wanted);
        drop(clocks);
        assert_eq!(Arc::strong_count(&gate), 1);
    }

    #[test]
    fn a_clock_stays_on_its_core() {
        for core in cores() {
            let allowed = thread::spawn(move || (stay_on(core), cores())).join().unwrap();
            assert_eq!(allowed, (true, vec![core]));
        }
    }
}
