//! What a script that another one waits for may use.

use std::time::{Duration, Instant};

use harness_capability::reentry::Allowance;
use harness_policy::limits::Limits;

/// Limits of a script that another one waits for: not more than is left to that now.
pub fn cap_by(limits: &mut Limits, left: Option<Allowance>) {
    if let Some(left) = left {
        limits.fuel = limits.fuel.min(left.fuel);
        if let Some(tree) = left.tree {
            limits.host_calls = limits.host_calls.min(tree.host_calls);
            limits.memory_bytes = limits.memory_bytes.min(tree.memory);
        }
        let left = left.deadline.saturating_duration_since(Instant::now());
        if left < limits.timeout.saturating_sub(limits.waited) {
            (limits.timeout, limits.waited) = (left, Duration::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use harness_capability::reentry::Tree;

    /// What a hook took of the time is gone for the tool behind it: the deadline does not move.
    #[test]
    fn what_is_left_ends_when_the_caller_does() {
        let left = |deadline| {
            let mut limits = Limits::default();
            cap_by(&mut limits, Some(Allowance { fuel: 7, deadline, tree: None }));
            (limits.fuel, limits.timeout)
        };
        let now = Instant::now();
        assert_eq!(left(now), (7, Duration::ZERO));
        assert!(left(now + Duration::from_secs(5)).1 <= Duration::from_secs(5));
        // One that is further away than the limit changes nothing.
        assert_eq!(left(now + Duration::from_secs(3600)), (7, Limits::default().timeout));
        let mut shared = Limits::default();
        let tree = Some(Tree { host_calls: 3, memory: 5 });
        cap_by(&mut shared, Some(Allowance { fuel: 7, deadline: now, tree }));
        assert_eq!((shared.host_calls, shared.memory_bytes), (3, 5));
        let mut alone = Limits::default();
        cap_by(&mut alone, None);
        assert_eq!(alone, Limits::default());
    }
}
