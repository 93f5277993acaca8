//! Whose turn it is to read a project's files and to parse them.
//!
//! That is work of the host's own, which no gate of guests divides, on whichever threads an embedder opens projects. Were
//! there as many at once as threads, calls of other projects would wait behind all of them.

use std::sync::{Condvar, Mutex, PoisonError};

/// Places for projects that are opened or loaded again. Those who wait get one in the order in which they came.
#[derive(Debug)]
pub(super) struct Openings {
    places: u64,
    counts: Mutex<Counts>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Counts {
    begun: u64,
    ended: u64,
}

impl Default for Openings {
    /// One place fewer than the machine has cores, so that one core is left for calls, and one at least.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self::new(cores.saturating_sub(1))
    }
}

impl Openings {
    fn new(places: usize) -> Self {
        Self { places: places.max(1) as u64, counts: Mutex::default(), ended: Condvar::new() }
    }

    /// Waits with this thread until it is this one's turn, which lasts until what comes back is dropped.
    pub(super) fn turn(&self) -> Turn<'_> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let ticket = counts.begun;
        counts.begun += 1;
        while ticket >= counts.ended + self.places {
            counts = self.ended.wait(counts).unwrap_or_else(PoisonError::into_inner);
        }
        Turn(self)
    }
}

/// A place that is taken.
#[derive(Debug)]
pub(super) struct Turn<'a>(&'a Openings);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.counts.lock().unwrap_or_else(PoisonError::into_inner).ended += 1;
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    #[test]
    fn as_many_as_there_are_places_and_the_others_in_their_order() {
        let openings = Arc::new(Openings::new(2));
        let (one, two) = (openings.turn(), openings.turn());
        let (sender, order) = channel();
        let waiting: Vec<_> = (0..4)
            .map(|n| {
                let (waiting, sender) = (openings.clone(), sender.clone());
                let thread = thread::spawn(move || {
                    let _turn = waiting.turn();
                    sender.send(n).unwrap();
                });
                while openings.counts.lock().unwrap().begun < n + 3 {
                    thread::yield_now();
                }
                thread
            })
            .collect();
        assert!(order.try_recv().is_err());
        // Each that ends lets the next one in: with one place they follow each other.
        drop(one);
        assert_eq!(order.iter().take(4).collect::<Vec<_>>(), [0, 1, 2, 3]);
        waiting.into_iter().for_each(|thread| thread.join().unwrap());
        drop(two);
        let counts = openings.counts.lock().unwrap();
        assert_eq!((counts.begun, counts.ended), (6, 6));
    }

    #[test]
    fn a_panic_gives_its_place_back() {
        let openings = Openings::new(1);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _turn = openings.turn();
            panic!("while a project is read");
        }));
        assert!(caught.is_err());
        drop(openings.turn());
    }
}
