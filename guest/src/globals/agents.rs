//! `delegate`: sets a sub-agent a task and gives back its result.

use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::{Heap, Value};

use super::{ImportError, import};
use crate::bindings::harness::sandbox::agents;
use crate::phase::{self, Needs};
use crate::value;

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    functions(builder);
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// The result of the agent, a dict.
    fn delegate<'v>(agent: &str, task: &str, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        phase::check("delegate", Needs::Tool)?;
        let answer = import("delegate", agents::delegate(agent, task))?;
        value::from_json(&serde_json::from_str(&answer)?, heap)
    }
}

impl ImportError for agents::Error {
    fn tell(self) -> (String, bool) {
        match self {
            Self::AccessDenied(denial) => (denial.reason, true),
            Self::Invalid(why) | Self::Failed(why) => (why, false),
            Self::TooDeep(levels) => (format!("agents within agents, deeper than {levels} levels"), false),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::phase::{self, Phase};
    use crate::testing::fail_all;

    #[test]
    fn not_in_a_hook() {
        phase::enter(Phase::Hook);
        fail_all([(
            "delegate('researcher', 'find it')",
            "`delegate` is not there in a hook: hooks inspect and decide, they run and change nothing",
        )]);
    }

    #[test]
    fn not_while_a_script_is_loaded() {
        fail_all([(
            "delegate('researcher', 'find it')",
            "`delegate` cannot be called while the script is loaded: call it in `run` or `handle`",
        )]);
    }

    #[test]
    fn two_texts() {
        phase::enter(Phase::Tool);
        fail_all([(
            "delegate('researcher', 7)",
            "Type of parameter `task` doesn't match, expected `str`, actual `int (repr: 7)`",
        )]);
    }
}
