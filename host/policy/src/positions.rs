//! Where in its file each rule of a layer is written.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A place in the file of a layer: line and column from 1, the column in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "said above")]
pub struct RulePosition {
    pub line: u32,
    pub column: u32,
}

impl fmt::Display for RulePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Where the rules of a layer are, by key: `fs`, `fs.read`, `network`, `limits.fuel`. Empty for what no file says, such
/// as the defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RulePositions {
    own: Option<RulePosition>,
    keys: Arc<BTreeMap<&'static str, Spot>>,
}

/// Where one key of a layer is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spot {
    /// Its value: a list where that is on one line, else the key.
    pub value: RulePosition,
    /// Of a list each rule, in the order of the layer's.
    pub rules: Vec<RulePosition>,
}

impl RulePositions {
    /// `own` is where the layer as a whole is, if that is one place.
    pub fn new(own: Option<RulePosition>, keys: BTreeMap<&'static str, Spot>) -> Self {
        Self { own, keys: Arc::new(keys) }
    }

    /// Where the layer as a whole is: the name of a source, the key `capabilities`. None for the project's policy,
    /// which is several keys.
    pub fn own(&self) -> Option<RulePosition> {
        self.own
    }

    /// Where a key is, or the key that holds it: for `fs.write` that of `fs`, where it has no `write`.
    pub fn key(&self, key: &str) -> Option<RulePosition> {
        let outer = || self.keys.get(key.split_once('.')?.0);
        self.keys.get(key).or_else(outer).map(|spot| spot.value)
    }

    /// Where a rule of a list is.
    pub fn rule(&self, key: &str, index: usize) -> Option<RulePosition> {
        self.keys.get(key)?.rules.get(index).copied()
    }

    /// All keys that the layer has, by name.
    pub fn keys(&self) -> impl Iterator<Item = (&'static str, &Spot)> {
        self.keys.iter().map(|(key, spot)| (*key, spot))
    }
}
