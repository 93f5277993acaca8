//! Which line sets the deadline of a call.

use proptest::prelude::*;

use harness_artifact::policy::ProjectPolicy;
use harness_policy::deadline::{Author, Deadline, Decides, MOST_ASKED};
use harness_policy::grant::Grant;

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
