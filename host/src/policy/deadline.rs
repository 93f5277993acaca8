//! How long a call of a tool may take: what its author asks for, up to what its grant says.

use super::grant::Grant;
use super::layer::Origin;
use super::limits::LimitKey;

/// What a tool of the project itself may ask for where no layer of its grant sets a limit, in milliseconds. The limit's
/// own default is for those that ask for nothing.
pub const MOST_ASKED: u64 = 600_000;

/// Who wrote a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    /// Who wrote the policy, or who they trust as themselves.
    Project,
    /// Somebody else: a plugin's word raises nothing.
    Plugin,
}

/// The line that decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decides<'g> {
    /// The tool's own `timeout_ms`.
    Tool,
    /// A layer of its grant.
    Layer(&'g Origin),
    /// None: no layer sets it, and the tool asks for nothing, or for more than it may.
    Default,
}

/// How long a call may take, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline<'g> {
    /// In milliseconds.
    pub ms: u64,
    /// What decided it.
    pub by: Decides<'g>,
}

impl Deadline<'_> {
    /// Whether it is shorter than what was asked for.
    pub fn cuts(&self, asked: Option<u64>) -> bool {
        asked.is_some_and(|asked| asked > self.ms)
    }
}

impl Grant {
    /// How long a call may take of a tool that asks for so many milliseconds, or for nothing.
    pub fn deadline(&self, asked: Option<u64>, author: Author) -> Deadline<'_> {
        let (set, origin) = self.limit(LimitKey::Timeout);
        let most = match (origin, author) {
            (None, Author::Project) => set.max(MOST_ASKED),
            (Some(_), _) | (None, Author::Plugin) => set,
        };
        match (asked, origin) {
            (Some(asked), _) if asked <= most => Deadline { ms: asked, by: Decides::Tool },
            (_, Some(origin)) => Deadline { ms: set, by: Decides::Layer(origin) },
            (Some(_), None) => Deadline { ms: most, by: Decides::Default },
            (None, None) => Deadline { ms: set, by: Decides::Default },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::artifact::policy::ProjectPolicy;

    fn grant(limits: &str) -> Grant {
        let text = format!("---\nsandbox: {{ limits: {{ {limits} }} }}\n---\n");
        let (policy, diagnostics) = ProjectPolicy::parse("harness.md", &text);
        policy.unwrap_or_else(|| panic!("{diagnostics:?}")).grant_for("tools/it", None)
    }

    #[test]
    fn what_is_asked_for_holds_up_to_what_is_set() {
        let (silent, set) = (grant("fuel: 5"), grant("timeout_ms: 50000"));
        let by = |grant: &Grant, asked, author| {
            let Deadline { ms, by } = grant.deadline(asked, author);
            let by = match by {
                Decides::Tool => "tool",
                Decides::Layer(_) => "layer",
                Decides::Default => "default",
            };
            (ms, by)
        };
        assert_eq!(by(&silent, None, Author::Project), (30_000, "default"));
        assert_eq!(by(&silent, Some(70), Author::Project), (70, "tool"));
        assert_eq!(by(&silent, Some(120_000), Author::Project), (120_000, "tool"));
        assert_eq!(by(&silent, Some(600_000), Author::Project), (600_000, "tool"));
        assert_eq!(by(&silent, Some(600_001), Author::Project), (600_000, "default"));
        assert_eq!(by(&silent, Some(30_000), Author::Plugin), (30_000, "tool"));
        assert_eq!(by(&silent, Some(30_001), Author::Plugin), (30_000, "default"));
        for author in [Author::Project, Author::Plugin] {
            assert_eq!(by(&set, None, author), (50_000, "layer"));
            assert_eq!(by(&set, Some(50_000), author), (50_000, "tool"));
            assert_eq!(by(&set, Some(50_001), author), (50_000, "layer"));
        }
    }

    proptest! {
        /// What a layer says is never exceeded, nor what is asked for; a plugin gets no more than without asking.
        #[test]
        fn never_more_than_any_line_says(set in proptest::option::of(1_u64..2_000_000), asked in proptest::option::of(1_u64..2_000_000), plugin: bool) {
            let grant = grant(&set.map_or("fuel: 5".to_owned(), |set| format!("timeout_ms: {set}")));
            let author = if plugin { Author::Plugin } else { Author::Project };
            let Deadline { ms, .. } = grant.deadline(asked, author);
            prop_assert!(asked.is_none_or(|asked| ms <= asked) && set.is_none_or(|set| ms <= set));
            prop_assert!(ms <= MOST_ASKED || set.is_some());
            prop_assert!(!plugin || ms <= grant.deadline(None, author).ms);
        }
    }
}
