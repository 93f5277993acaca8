//! Names that a plugin shares with the project: of its `custom.*` events, and of what it keeps in the cache, in the values
//! of a turn and in the metrics. All others are the plugin's own, and no other source sees them.

use std::fmt;

use super::text::quoted;

/// What a name is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SharedKind {
    /// An event that scripts emit.
    Custom,
    /// A key of the cache of a run.
    Cache,
    /// A key of the values of a turn.
    Ctx,
    /// A metric.
    Metrics,
}

impl SharedKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Custom, Self::Cache, Self::Ctx, Self::Metrics];

    /// The word before the dot.
    pub fn name(self) -> &'static str {
        match self {
            Self::Custom => "custom",
            Self::Cache => "cache",
            Self::Ctx => "ctx",
            Self::Metrics => "metrics",
        }
    }
}

/// A name that is shared, or the beginning of names before a `*`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Shared {
    kind: SharedKind,
    name: String,
    is_beginning: bool,
}

impl Shared {
    /// Reads `custom.NAME`, `cache.KEY`, `ctx.KEY` or `metrics.NAME`; a `*` at the end stands for any rest.
    ///
    /// # Errors
    ///
    /// Why it is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let forms = "`custom.NAME`, `cache.KEY`, `ctx.KEY` or `metrics.NAME`";
        let wrong = || format!("{} is not a name to share: write {forms}", quoted(text));
        let (kind, name) = text.split_once('.').ok_or_else(wrong)?;
        let kind = SharedKind::ALL.into_iter().find(|one| one.name() == kind).ok_or_else(wrong)?;
        let (name, is_beginning) = name.strip_suffix('*').map_or((name, false), |name| (name, true));
        if (name.is_empty() && !is_beginning) || name.contains('*') {
            return Err(wrong());
        }
        Ok(Self { kind, name: name.to_owned(), is_beginning })
    }

    /// Whether it names this.
    fn covers(&self, kind: SharedKind, name: &str) -> bool {
        self.kind == kind && if self.is_beginning { name.starts_with(&self.name) } else { name == self.name }
    }
}

impl fmt::Display for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}{}", self.kind.name(), self.name, if self.is_beginning { "*" } else { "" })
    }
}

/// The names of one plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    /// The plugin, as policies name it.
    pub plugin: String,
    /// Lists of which each has to name what is shared: what the policy consents to, and what the plugin asks for.
    lists: Vec<Vec<Shared>>,
}

impl Namespace {
    /// Of a plugin. Without a list nothing is shared.
    pub fn new(plugin: &str, lists: Vec<Vec<Shared>>) -> Self {
        Self { plugin: plugin.to_owned(), lists }
    }

    /// Whether a name is shared with the project.
    pub fn shares(&self, kind: SharedKind, name: &str) -> bool {
        let names = |list: &Vec<Shared>| list.iter().any(|one| one.covers(kind, name));
        !self.lists.is_empty() && self.lists.iter().all(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &[&str]) -> Vec<Shared> {
        names.iter().map(|name| Shared::parse(name).unwrap()).collect()
    }

    #[test]
    fn what_all_lists_name_is_shared() {
        let one = Namespace::new("plugins/acme", vec![list(&["custom.done", "cache.build*"])]);
        for (kind, name, shared) in [
            (SharedKind::Custom, "done", true),
            (SharedKind::Custom, "done2", false),
            (SharedKind::Cache, "done", false),
            (SharedKind::Cache, "build", true),
            (SharedKind::Cache, "build:1", true),
            (SharedKind::Ctx, "build", false),
        ] {
            assert_eq!(one.shares(kind, name), shared, "{kind:?} {name}");
        }
        let two = Namespace::new("plugins/acme", vec![list(&["metrics.*"]), list(&["metrics.calls"])]);
        assert!(two.shares(SharedKind::Metrics, "calls") && !two.shares(SharedKind::Metrics, "other"));
        assert!(!Namespace::new("plugins/acme", Vec::new()).shares(SharedKind::Metrics, "calls"));
        assert!(!Namespace::new("plugins/acme", vec![Vec::new()]).shares(SharedKind::Metrics, "calls"));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for wrong in ["", "done", "custom.", "tool.pre", "cache.a*b", "cache.**"] {
            assert!(Shared::parse(wrong).unwrap_err().contains("is not a name to share"), "{wrong}");
        }
    }
}
