//! The limits of the loop: what the policy says, and what holds where it says nothing.

use std::time::Duration;

use harness_artifact::located::Located;
use harness_artifact::policy::ProjectPolicy;
use harness_artifact::policy::budget::Budget;
use harness_artifact::policy::exit::{ExitMode, OnMaxIterations};
use harness_dispatch::MAX_AGENTS;

/// Rounds with tools of one turn at the root.
const ROOT_ROUNDS: u64 = 10;
/// Rounds with tools by depth; the last holds for all that are deeper.
const ROUNDS_PER_DEPTH: [u64; 4] = [20, 10, 5, 3];
/// The key that sets them.
const ROUNDS_BY_DEPTH: &str = "`delegation.iterations_per_depth` in `harness.md`";
/// How deep agents call agents.
const MAX_DEPTH: u64 = 3;
/// How often a result that was refused is asked for again.
const VERIFY_RETRIES: u64 = 2;
/// How often in a row a tool may fail an agent, until it is not called again.
const TOOL_FAILURES: u64 = 5;
/// Most time of one delegation. Long: models are slow, and each call has its own deadline.
const DELEGATION_TIMEOUT: Duration = Duration::from_secs(600);
/// How many tool calls of one reply run at a time.
const CONCURRENCY: u64 = 1;
/// Messages of a conversation that a model gets.
const MAX_HISTORY: u64 = 50;
/// Tokens of a request.
const MAX_TOKENS: u64 = 128_000;
/// Bytes of the prose of bundles and tools in a system prompt, some 8,000 tokens; and as many of the list of skills.
const MAX_PROSE: u64 = 32_768;

/// The limits of the loop.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    rounds: Vec<u64>,
    pub(super) max_depth: u32,
    pub(super) allow_recursive: bool,
    pub(super) verify_retries: u32,
    /// 0: as often as it likes.
    pub(super) tool_failures: u64,
    /// The key that sets the rounds of the root, and where that is.
    rounds_of_root: &'static str,
    pub(super) delegation_timeout: Duration,
    pub(super) budget: Option<Budget>,
    pub(super) tree_budget: Budget,
    pub(super) exit: ExitMode,
    pub(super) on_max: OnMaxIterations,
    /// Whether an agent whose tools keep failing answers without them.
    pub(super) in_words: bool,
    /// How many tool calls of one reply run at a time.
    pub(super) concurrency: u64,
    /// How many sub-agents work at a time that are not waited for one by one.
    pub(super) max_concurrent: u64,
    pub(super) max_history: usize,
    pub(super) max_tokens: u64,
    pub(super) max_prose: usize,
}

impl Settings {
    pub(super) fn of(policy: &ProjectPolicy) -> Self {
        let delegation = &policy.delegation;
        let mut rounds = ROUNDS_PER_DEPTH.to_vec();
        // The root is bounded by the turn's own default, unless the policy speaks of it.
        if let Some(root) = rounds.first_mut() {
            *root = ROOT_ROUNDS;
        }
        if let Some(own) = &delegation.iterations_per_depth {
            rounds.clone_from(own);
        }
        if let (Some(most), Some(root)) = (policy.exit.max_iterations, rounds.first().copied()) {
            // It is the root's alone: the list says what holds deeper.
            if rounds.len() == 1 {
                rounds.push(root);
            }
            if let Some(first) = rounds.first_mut() {
                *first = most;
            }
        }
        let small = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let rounds_of_root = match (policy.exit.max_iterations, &delegation.iterations_per_depth) {
            (None, Some(_)) => ROUNDS_BY_DEPTH,
            _ => "`exit_policy.max_iterations` in `harness.md`",
        };
        Self {
            rounds,
            rounds_of_root,
            max_depth: small(delegation.max_depth.unwrap_or(MAX_DEPTH)),
            allow_recursive: delegation.allow_recursive.unwrap_or(false),
            verify_retries: small(delegation.max_verify_retries.unwrap_or(VERIFY_RETRIES)),
            tool_failures: delegation.max_tool_failures.unwrap_or(TOOL_FAILURES),
            delegation_timeout: delegation.timeout_ms.map_or(DELEGATION_TIMEOUT, Duration::from_millis),
            budget: delegation.budget.clone(),
            tree_budget: delegation.tree_budget.clone().unwrap_or_default(),
            exit: policy.exit.mode,
            on_max: policy.exit.on_max_iterations,
            in_words: policy.exit.in_words.unwrap_or(true),
            max_concurrent: delegation.max_concurrent.unwrap_or(MAX_AGENTS),
            concurrency: policy.tools.concurrency().unwrap_or(CONCURRENCY),
            max_history: usize::try_from(policy.context.max_history.unwrap_or(MAX_HISTORY)).unwrap_or(usize::MAX),
            max_tokens: policy.context.max_tokens.unwrap_or(MAX_TOKENS),
            max_prose: usize::try_from(policy.context.max_prose_bytes.unwrap_or(MAX_PROSE)).unwrap_or(usize::MAX),
        }
    }

    /// Most rounds with tools of a turn at a depth; the root has 0.
    pub(super) fn rounds(&self, depth: u32) -> u64 {
        let at = usize::try_from(depth).unwrap_or(usize::MAX);
        self.rounds.get(at).or_else(|| self.rounds.last()).copied().unwrap_or(ROOT_ROUNDS)
    }

    /// The key that sets them, and where that is.
    pub(super) fn rounds_key(&self, depth: u32) -> &'static str {
        if depth == 0 { self.rounds_of_root } else { ROUNDS_BY_DEPTH }
    }
}

/// What a policy lets agents do at most, by key: to compare two. `None`: without bound.
pub fn allowances(policy: &ProjectPolicy) -> Vec<(String, Option<u64>)> {
    /// The deepest that `max_depth` may say.
    const DEEPEST: u32 = 16;
    let settings = Settings::of(policy);
    let time = u64::try_from(settings.delegation_timeout.as_millis()).unwrap_or(u64::MAX);
    let mut found = vec![
        ("delegation.max_depth".to_owned(), Some(settings.max_depth.into())),
        ("delegation.max_concurrent".to_owned(), Some(settings.max_concurrent)),
        ("delegation.timeout_ms".to_owned(), Some(time)),
        ("delegation.max_verify_retries".to_owned(), Some(settings.verify_retries.into())),
    ];
    found.push(("tools_policy.concurrency".to_owned(), Some(settings.concurrency)));
    let failures = Some(settings.tool_failures).filter(|most| *most > 0);
    found.push(("delegation.max_tool_failures".to_owned(), failures));
    let rounds = |depth| (format!("delegation.iterations_per_depth[{depth}]"), Some(settings.rounds(depth)));
    found.extend((0..=settings.max_depth.min(DEEPEST)).map(rounds));
    for (key, budget) in [("budget", &policy.delegation.budget), ("tree_budget", &policy.delegation.tree_budget)] {
        found.extend(bounds(budget.as_ref()).map(|(name, bound)| (format!("delegation.{key}.{name}"), bound)));
    }
    found
}

/// The bounds of a budget, by key.
pub fn bounds(budget: Option<&Budget>) -> impl Iterator<Item = (&'static str, Option<u64>)> {
    let of = |get: fn(&Budget) -> Option<&Located<u64>>| budget.and_then(get).map(|bound| bound.value);
    [
        ("rounds", of(|budget| budget.rounds.as_ref())),
        ("tokens", of(|budget| budget.tokens.as_ref())),
        ("time_ms", of(|budget| budget.time_ms.as_ref())),
        ("calls", of(|budget| budget.calls.as_ref())),
    ]
    .into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(keys: &str) -> Vec<u64> {
        let (policy, diagnostics) = ProjectPolicy::parse("harness.md", &format!("---\n{keys}\n---\n"));
        assert_eq!(diagnostics.iter().count(), 0, "{keys}");
        let settings = Settings::of(&policy.unwrap());
        (0..6).map(|depth| settings.rounds(depth)).collect()
    }

    #[test]
    fn rounds_by_depth() {
        assert_eq!(rounds(""), [10, 10, 5, 3, 3, 3]);
        assert_eq!(rounds("delegation: { iterations_per_depth: [7, 2] }"), [7, 2, 2, 2, 2, 2]);
        assert_eq!(rounds("exit_policy: { max_iterations: 4 }"), [4, 10, 5, 3, 3, 3]);
        assert_eq!(rounds("exit_policy: { max_iterations: 0 }"), [10, 10, 5, 3, 3, 3]);
        let both = "delegation: { iterations_per_depth: [7] }\nexit_policy: { max_iterations: 4 }";
        assert_eq!(rounds(both), [4, 7, 7, 7, 7, 7]);
    }
}
