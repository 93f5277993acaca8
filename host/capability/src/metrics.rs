//! `metrics`: counters and gauges of one run.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lower};

use super::denial::Denial;

/// Names of a run.
const MAX_NAMES: usize = 1000;
/// Bytes of a name.
const MAX_NAME: usize = 256;

/// The variant `error` of the interface.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lower, Serialize, Deserialize)]
#[component(variant)]
pub enum Error {
    /// The grant does not hold the metrics.
    #[component(name = "access-denied")]
    AccessDenied(Denial),
    /// Too many names, or too long a one.
    #[component(name = "too-many")]
    TooMany,
}

/// The metrics of one run.
#[derive(Debug, Default)]
pub struct Metrics {
    values: Mutex<BTreeMap<String, f64>>,
}

impl Metrics {
    /// Adds to a value, 0 where there was none; the new one.
    ///
    /// # Errors
    ///
    /// Where the name is new and there is no room for it.
    pub fn incr(&self, name: String, delta: f64) -> Result<f64, Error> {
        self.change(name, |value| value + delta)
    }

    /// Sets a value.
    ///
    /// # Errors
    ///
    /// As for [`incr`](Self::incr).
    pub fn set(&self, name: String, value: f64) -> Result<(), Error> {
        self.change(name, |_| value).map(|_| ())
    }

    /// A value, 0 where there is none.
    pub fn get(&self, name: &str) -> f64 {
        self.lock().get(name).copied().unwrap_or(0.0)
    }

    /// Removes one value, or all.
    pub fn reset(&self, name: Option<&str>) {
        match name {
            Some(name) => drop(self.lock().remove(name)),
            None => self.lock().clear(),
        }
    }

    /// All values, sorted by name.
    pub fn snapshot(&self) -> Vec<(String, f64)> {
        self.lock().iter().map(|(name, value)| (name.clone(), *value)).collect()
    }

    fn change(&self, name: String, change: impl FnOnce(f64) -> f64) -> Result<f64, Error> {
        let mut values = self.lock();
        if name.len() > MAX_NAME || (values.len() >= MAX_NAMES && !values.contains_key(&name)) {
            return Err(Error::TooMany);
        }
        let value = values.entry(name).or_insert(0.0);
        *value = change(*value);
        Ok(*value)
    }

    /// A panic while the lock was held can only have been in the allocator; the map is whole.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, f64>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_forgets() {
        let metrics = Metrics::default();
        assert_eq!(metrics.incr("calls".to_owned(), 1.0), Ok(1.0));
        assert_eq!(metrics.incr("calls".to_owned(), 2.0), Ok(3.0));
        metrics.set("gauge".to_owned(), 0.5).unwrap();
        assert_eq!(metrics.snapshot(), [("calls".to_owned(), 3.0), ("gauge".to_owned(), 0.5)]);
        metrics.reset(Some("calls"));
        assert_eq!((metrics.get("calls"), metrics.get("gauge")), (0.0, 0.5));
        metrics.reset(None);
        assert_eq!(metrics.snapshot(), []);
    }

    #[test]
    fn holds_a_bounded_number_of_names() {
        let metrics = Metrics::default();
        for n in 0..MAX_NAMES {
            metrics.incr(n.to_string(), 1.0).unwrap();
        }
        assert_eq!(metrics.incr("one more".to_owned(), 1.0), Err(Error::TooMany));
        assert_eq!(metrics.incr("0".to_owned(), 1.0), Ok(2.0));
        assert_eq!(metrics.incr("x".repeat(257), 1.0), Err(Error::TooMany));
    }
}
