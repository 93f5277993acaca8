//! `task.poll`, `task.await`: what has become of work that goes on. `delegate_status` and `delegate_await` are the same
//! by the names that go with `delegate_async`.

use serde_json::Value as Json;
use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::list::ListRef;
use starlark::values::none::NoneOr;
use starlark::values::{Heap, Value};

use super::{ImportError, import};
use crate::bindings::harness::sandbox::{agents, tasks};
use crate::phase::{self, Needs};
use crate::value;

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    builder.namespace("task", functions);
    globals(builder);
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// A dict with `task_id`, `tool`, `status`, and `result` or `error`.
    fn poll<'v>(task_id: &str, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        status("task.poll", task_id, heap)
    }

    /// What a script writes as `task.await`, see [`spelling`](crate::spelling).
    fn wait_<'v>(
        task_id: Value<'v>,
        #[starlark(default = NoneOr::None)] timeout_ms: NoneOr<u32>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        wait("task.await", task_id, timeout_ms, heap)
    }

    /// The same by a name that is no reserved word.
    fn wait<'v>(
        task_id: Value<'v>,
        #[starlark(default = NoneOr::None)] timeout_ms: NoneOr<u32>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        wait("task.wait", task_id, timeout_ms, heap)
    }
}

#[starlark_module]
fn globals(builder: &mut GlobalsBuilder) {
    /// Starts an agent and does not wait for it: a dict with `task_id` and `status`.
    fn delegate_async<'v>(agent: &str, task: &str, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        phase::check("delegate_async", Needs::Tool)?;
        let answer = import("delegate_async", agents::delegate_async(agent, task))?;
        value::from_json(&serde_json::from_str(&answer)?, heap)
    }

    fn delegate_status<'v>(task_id: &str, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        status("delegate_status", task_id, heap)
    }

    fn delegate_await<'v>(
        task_ids: Value<'v>,
        #[starlark(default = NoneOr::None)] timeout_ms: NoneOr<u32>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        wait("delegate_await", task_ids, timeout_ms, heap)
    }
}

fn status<'v>(builtin: &str, id: &str, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    phase::check(builtin, Needs::Tool)?;
    let answer = import(builtin, tasks::poll(id))?;
    value::from_json(&serde_json::from_str(&answer)?, heap)
}

/// Of one identifier what has become of it, of a list a list.
fn wait<'v>(builtin: &str, ids: Value<'v>, timeout_ms: NoneOr<u32>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    phase::check(builtin, Needs::Tool)?;
    let wrong = || anyhow::anyhow!("{builtin}: the identifier of a task is a string, got {}", ids.get_type());
    let text = |value: Value<'v>| value.unpack_str().map(str::to_owned).ok_or_else(wrong);
    let (several, list) = match ListRef::from_value(ids) {
        Some(list) => (true, list.iter().map(text).collect::<anyhow::Result<Vec<String>>>()?),
        None => (false, vec![text(ids)?]),
    };
    let answer = import(builtin, tasks::wait(&list, timeout_ms.into_option()))?;
    let mut answer: Json = serde_json::from_str(&answer)?;
    if !several {
        answer = answer.get_mut(0).map(Json::take).unwrap_or_default();
    }
    value::from_json(&answer, heap)
}

impl ImportError for tasks::Error {
    fn tell(self) -> (String, bool) {
        match self {
            Self::AccessDenied(denial) => (denial.reason, true),
            Self::Invalid(why) => (why, false),
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
        let why = "is not there in a hook: hooks inspect and decide, they run and change nothing";
        fail_all([
            ("task.poll('task_1')", &*format!("`task.poll` {why}")),
            ("task.wait('task_1')", &*format!("`task.wait` {why}")),
            ("delegate_async('researcher', 'find it')", &*format!("`delegate_async` {why}")),
            ("delegate_status('task_1')", &*format!("`delegate_status` {why}")),
            ("delegate_await(['task_1'])", &*format!("`delegate_await` {why}")),
        ]);
    }

    #[test]
    fn identifiers_are_text() {
        phase::enter(Phase::Tool);
        fail_all([
            ("task.wait(7)", "task.wait: the identifier of a task is a string, got int"),
            ("task.wait_({})", "task.await: the identifier of a task is a string, got dict"),
            ("delegate_await(['a', 7])", "delegate_await: the identifier of a task is a string, got list"),
        ]);
    }
}
