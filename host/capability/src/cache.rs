//! `cache`: values that the tools and hooks of one run share.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lower};

use super::denial::Denial;

/// Bytes of a key.
pub const MAX_KEY: u64 = 1024;
/// Bytes of a value, as JSON.
pub const MAX_VALUE: u64 = 1 << 20;
/// Keys of a run.
const MAX_KEYS: usize = 10_000;
/// Bytes of all keys and values of a run.
const MAX_TOTAL: u64 = 16 << 20;

/// The variant `error` of the interface.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lower, Serialize, Deserialize)]
#[component(variant)]
pub enum Error {
    /// The grant does not hold the cache.
    #[component(name = "access-denied")]
    AccessDenied(Denial),
    /// The cache of the run is full. Its cap in bytes.
    #[component(name = "full")]
    Full(u64),
    /// The key or the value is over its cap, in bytes.
    #[component(name = "too-large")]
    TooLarge(u64),
}

/// The cache of one run. Shared by all its calls, and by nothing else.
#[derive(Debug)]
pub struct Cache {
    values: Mutex<Values>,
    most_keys: usize,
    most_bytes: u64,
}

impl Default for Cache {
    fn default() -> Self {
        Self::bounded(MAX_KEYS, MAX_TOTAL)
    }
}

#[derive(Debug, Default)]
struct Values {
    by_key: HashMap<String, String>,
    bytes: u64,
}

impl Cache {
    /// An empty one that keeps at most so many keys, and so many bytes of keys and values.
    pub(crate) fn bounded(most_keys: usize, most_bytes: u64) -> Self {
        Self { values: Mutex::default(), most_keys, most_bytes }
    }

    /// A value, as JSON.
    pub fn get(&self, key: &str) -> Option<String> {
        self.lock().by_key.get(key).cloned()
    }

    /// Whether there is a value.
    pub fn has(&self, key: &str) -> bool {
        self.lock().by_key.contains_key(key)
    }

    /// Sets a value.
    ///
    /// # Errors
    ///
    /// Where the key, the value or the cache would be over its cap; nothing changes then.
    pub fn set(&self, key: String, value: String) -> Result<(), Error> {
        if key.len() as u64 > MAX_KEY {
            return Err(Error::TooLarge(MAX_KEY));
        }
        if value.len() as u64 > MAX_VALUE {
            return Err(Error::TooLarge(MAX_VALUE));
        }
        let mut values = self.lock();
        let old = values.by_key.get(&key).map(|old| (key.len() + old.len()) as u64);
        let bytes = values.bytes - old.unwrap_or(0) + (key.len() + value.len()) as u64;
        if bytes > self.most_bytes || (old.is_none() && values.by_key.len() >= self.most_keys) {
            return Err(Error::Full(self.most_bytes));
        }
        values.bytes = bytes;
        values.by_key.insert(key, value);
        Ok(())
    }

    /// Removes a value; shows whether there was one.
    pub fn delete(&self, key: &str) -> bool {
        let mut values = self.lock();
        let Some((key, value)) = values.by_key.remove_entry(key) else { return false };
        values.bytes -= (key.len() + value.len()) as u64;
        true
    }

    /// Removes all values.
    pub fn clear(&self) {
        *self.lock() = Values::default();
    }

    /// All values as JSON, by key, sorted.
    pub fn entries(&self) -> BTreeMap<String, String> {
        self.lock().by_key.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// A panic while the lock was held can only have been in the allocator; the map is whole.
    fn lock(&self) -> MutexGuard<'_, Values> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_it_keeps() {
        let cache = Cache::default();
        let value = "x".repeat(1 << 20);
        for n in 0..15 {
            cache.set(n.to_string(), value.clone()).unwrap();
        }
        assert_eq!(cache.set("last".to_owned(), value.clone()), Err(Error::Full(MAX_TOTAL)));
        // Replacing does not count twice, and what is removed makes room.
        cache.set("0".to_owned(), value.clone()).unwrap();
        assert!(cache.delete("0") && !cache.delete("0"));
        cache.set("last".to_owned(), value).unwrap();
        assert!(cache.has("last") && !cache.has("0"));
        cache.clear();
        assert_eq!(cache.get("last"), None);
    }

    #[test]
    fn refuses_what_is_too_large() {
        let cache = Cache::default();
        assert_eq!(cache.set("k".repeat(1025), String::new()), Err(Error::TooLarge(MAX_KEY)));
        assert_eq!(cache.set("k".to_owned(), "x".repeat((1 << 20) + 1)), Err(Error::TooLarge(MAX_VALUE)));
        assert_eq!(cache.set("k".repeat(1024), "x".repeat(1 << 20)), Ok(()));
    }

    #[test]
    fn holds_a_bounded_number_of_keys() {
        let cache = Cache::default();
        for n in 0..MAX_KEYS {
            cache.set(n.to_string(), String::new()).unwrap();
        }
        assert_eq!(cache.set("one more".to_owned(), String::new()), Err(Error::Full(MAX_TOTAL)));
        cache.set("0".to_owned(), "1".to_owned()).unwrap();
    }
}
