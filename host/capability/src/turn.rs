//! `ctx`: values that the tools and hooks of one turn of an agent share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lower};

use super::cache::{self, Cache};
use super::denial::Denial;

/// Keys of a turn.
const MAX_KEYS: usize = 1000;
/// Bytes of all keys and values of a turn.
pub const MAX_TOTAL: u64 = 2 << 20;
/// The key that holds the number of the turn. It is the host's: hooks may rely on it.
pub const NUMBER: &str = "turn";

/// The variant `error` of the interface.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lower, Serialize, Deserialize)]
#[component(variant)]
pub enum Error {
    /// The grant does not hold the cache.
    #[component(name = "access-denied")]
    AccessDenied(Denial),
    /// The values of the turn are full. Their cap in bytes.
    #[component(name = "full")]
    Full(u64),
    /// The key or the value is over its cap, in bytes.
    #[component(name = "too-large")]
    TooLarge(u64),
    /// The key is the host's: it can be read only.
    #[component(name = "read-only")]
    ReadOnly,
}

/// The state of one turn of one agent. Shared by all its calls, and by nothing else.
#[derive(Debug)]
pub struct Turn {
    number: u64,
    values: Cache,
    /// What plugins keep in it, each apart.
    plugins: Mutex<HashMap<String, Arc<Self>>>,
}

impl Default for Turn {
    /// The state of what happens outside of any turn.
    fn default() -> Self {
        Self::new(0)
    }
}

impl Turn {
    /// The state of a turn, which is empty but for its number. Turns of a conversation are counted from 1.
    pub fn new(number: u64) -> Self {
        Self { number, values: Cache::bounded(MAX_KEYS, MAX_TOTAL), plugins: Mutex::default() }
    }

    /// The same turn for the scripts of a plugin, which have values of their own.
    pub fn of(&self, plugin: &str) -> Arc<Self> {
        let mut plugins = self.plugins.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = plugins.get(plugin) {
            return own.clone();
        }
        plugins.entry(plugin.to_owned()).or_insert_with(|| Arc::new(Self::new(self.number))).clone()
    }

    /// A value, as JSON.
    pub fn get(&self, key: &str) -> Option<String> {
        if key == NUMBER { Some(self.number.to_string()) } else { self.values.get(key) }
    }

    /// Whether there is a value.
    pub fn has(&self, key: &str) -> bool {
        key == NUMBER || self.values.has(key)
    }

    /// Sets a value.
    ///
    /// # Errors
    ///
    /// Where the key is the host's, or where the key, the value or all of them would be over their cap; nothing changes
    /// then.
    pub fn set(&self, key: String, value: String) -> Result<(), Error> {
        if key == NUMBER {
            return Err(Error::ReadOnly);
        }
        self.values.set(key, value).map_err(|error| match error {
            cache::Error::AccessDenied(denial) => Error::AccessDenied(denial),
            cache::Error::Full(cap) => Error::Full(cap),
            cache::Error::TooLarge(cap) => Error::TooLarge(cap),
        })
    }

    /// Removes a value; shows whether there was one.
    ///
    /// # Errors
    ///
    /// Where the key is the host's.
    pub fn delete(&self, key: &str) -> Result<bool, Error> {
        if key == NUMBER { Err(Error::ReadOnly) } else { Ok(self.values.delete(key)) }
    }

    /// Removes all values but the number.
    pub fn clear(&self) {
        self.values.clear();
    }

    /// All values by key, sorted: a JSON object.
    pub fn snapshot(&self) -> String {
        let mut all = self.values.entries();
        all.insert(NUMBER.to_owned(), self.number.to_string());
        let pairs: Vec<String> =
            all.iter().map(|(key, value)| format!("{}:{value}", serde_json::Value::from(key.as_str()))).collect();
        format!("{{{}}}", pairs.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_the_hosts() {
        let turn = Turn::new(3);
        assert_eq!((turn.get("turn").as_deref(), turn.has("turn")), (Some("3"), true));
        assert_eq!(turn.set("turn".to_owned(), "9".to_owned()), Err(Error::ReadOnly));
        assert_eq!(turn.delete("turn"), Err(Error::ReadOnly));
        turn.set("a\"b".to_owned(), "[1]".to_owned()).unwrap();
        turn.set("z".to_owned(), "null".to_owned()).unwrap();
        assert_eq!(turn.snapshot(), r#"{"a\"b":[1],"turn":3,"z":null}"#);
        assert_eq!((turn.delete("z"), turn.delete("z")), (Ok(true), Ok(false)));
        turn.clear();
        assert_eq!(turn.snapshot(), r#"{"turn":3}"#);
    }

    #[test]
    fn a_plugin_has_values_of_its_own_in_the_same_turn() {
        let turn = Turn::new(3);
        turn.set("k".to_owned(), "1".to_owned()).unwrap();
        turn.of("plugins/a").set("k".to_owned(), "2".to_owned()).unwrap();
        let seen = [turn.snapshot(), turn.of("plugins/a").snapshot(), turn.of("plugins/b").snapshot()];
        assert_eq!(seen, [r#"{"k":1,"turn":3}"#, r#"{"k":2,"turn":3}"#, r#"{"turn":3}"#]);
    }

    #[test]
    fn it_keeps_less_than_the_cache() {
        let turn = Turn::default();
        for n in 0..MAX_KEYS {
            turn.set(n.to_string(), "1".to_owned()).unwrap();
        }
        assert_eq!(turn.set("more".to_owned(), "1".to_owned()), Err(Error::Full(MAX_TOTAL)));
        turn.clear();
        let value = "x".repeat((MAX_TOTAL / 2) as usize - 1);
        turn.set("1".to_owned(), value.clone()).unwrap();
        turn.set("2".to_owned(), value.clone()).unwrap();
        assert_eq!(turn.set("3".to_owned(), String::new()), Err(Error::Full(MAX_TOTAL)));
        assert_eq!(turn.set("4".to_owned(), value + "xx"), Err(Error::TooLarge(cache::MAX_VALUE)));
    }
}
