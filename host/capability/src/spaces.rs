//! What the scripts of each plugin share with one another in a run, apart from the project and from other plugins.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::cache::Cache;
use super::metrics::Metrics;

/// What one plugin keeps in a run.
#[derive(Debug, Default)]
pub struct Space {
    /// Values that its tools and hooks share.
    pub cache: Cache,
    /// Counters and gauges.
    pub metrics: Metrics,
}

/// Those of all plugins of a run, made when they are first wanted: no more than the project has plugins.
#[derive(Debug, Default)]
pub struct Spaces(Mutex<HashMap<String, Arc<Space>>>);

impl Spaces {
    /// That of a plugin.
    pub fn of(&self, plugin: &str) -> Arc<Space> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(space) = all.get(plugin) {
            return space.clone();
        }
        all.entry(plugin.to_owned()).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_plugin_has_its_own() {
        let spaces = Spaces::default();
        spaces.of("plugins/a").cache.set("k".to_owned(), "1".to_owned()).unwrap();
        spaces.of("plugins/a").metrics.set("n".to_owned(), 1.0).unwrap();
        let seen = |plugin: &str| (spaces.of(plugin).cache.get("k"), spaces.of(plugin).metrics.get("n"));
        assert_eq!((seen("plugins/a"), seen("plugins/b")), ((Some("1".to_owned()), 1.0), (None, 0.0)));
    }
}
