//! `parallel.launch`, `wait_all`, `wait_any`, `race`: calls of several tools, over `meta.call_tool` and `task.wait`.
//!
//! A tool with `async: true` runs in the background; any other has ended when `launch` returns.

use serde_json::{Value as Json, json};
use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::list::ListRef;
use starlark::values::none::NoneOr;
use starlark::values::{Heap, Value};

use super::{import, told};
use crate::bindings::harness::sandbox::{meta, tasks};
use crate::phase::{self, Needs};
use crate::value;

/// Milliseconds after which `race` looks again which task has ended.
const LOOK_AGAIN: u32 = 50;

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    builder.namespace("parallel", functions);
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// A dict with `id`, `tool`, `status`, `result` and `is_error`, which the other functions take.
    fn launch<'v>(
        tool: &str,
        #[starlark(default = NoneOr::None)] args: NoneOr<Value<'v>>,
        #[starlark(default = NoneOr::None)] depends_on: NoneOr<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        phase::check("parallel.launch", Needs::Tool)?;
        if let NoneOr::Other(first) = depends_on {
            all("parallel.launch", refs("parallel.launch", "depends_on", first)?)?;
        }
        let arguments = match args {
            NoneOr::None => json!({}),
            NoneOr::Other(args) => told("parallel.launch", "args", args)?,
        };
        anyhow::ensure!(arguments.is_object(), "parallel.launch: args must be a dict");
        let content = import("parallel.launch", meta::call_tool(tool, &arguments.to_string()))?;
        value::from_json(&launched(tool, content), heap)
    }

    /// What each has become, in the order given.
    fn wait_all<'v>(refs: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        phase::check("parallel.wait_all", Needs::Tool)?;
        let ended = all("parallel.wait_all", self::refs("parallel.wait_all", "refs", refs)?)?;
        value::from_json(&Json::Array(ended), heap)
    }

    /// The first that has ended.
    fn wait_any<'v>(refs: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        first("parallel.wait_any", refs, heap)
    }

    /// The same; the others run on.
    fn race<'v>(refs: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        first("parallel.race", refs, heap)
    }
}

/// What a call gave: its result, or a task where the tool runs in the background.
fn launched(tool: &str, content: String) -> Json {
    let task = serde_json::from_str::<Json>(&content).ok();
    let id = task.as_ref().and_then(|task| task.get("task_id")).and_then(Json::as_str);
    // A result may look like a task; then the host knows none of this name.
    if let Some(now) = id.and_then(|id| tasks::poll(id).ok()).and_then(|now| serde_json::from_str(&now).ok()) {
        return of_task(&now);
    }
    let is_error = content.starts_with("error: ");
    let status = if is_error { "failed" } else { "completed" };
    json!({ "id": tool, "tool": tool, "status": status, "result": content, "is_error": is_error })
}

/// A task as the host tells of it.
fn of_task(task: &Json) -> Json {
    let field = |name: &str| task.get(name).cloned().unwrap_or_default();
    let error = task.get("error");
    let result = error.cloned().unwrap_or_else(|| field("result"));
    json!({
        "id": field("task_id"), "tool": field("tool"), "status": field("status"),
        "result": result, "is_error": error.is_some(),
    })
}

fn is_running(launched: &Json) -> bool {
    launched.get("status").and_then(Json::as_str) == Some("running")
}

fn refs<'v>(builtin: &str, argument: &str, given: Value<'v>) -> anyhow::Result<Vec<Json>> {
    let items = ListRef::from_value(given).map_or_else(|| vec![given], |list| list.content().to_vec());
    let read = |item: &Value<'v>| {
        let json = told(builtin, argument, *item)?;
        anyhow::ensure!(
            json.get("id").is_some_and(Json::is_string) && json.get("status").is_some_and(Json::is_string),
            "{builtin}: {argument} must be what parallel.launch returned, got {}",
            item.get_type()
        );
        Ok(json)
    };
    items.iter().map(read).collect()
}

fn wait(builtin: &str, waited: &[&Json], timeout_ms: Option<u32>) -> anyhow::Result<Vec<Json>> {
    let id = |launched: &&Json| launched.get("id").and_then(Json::as_str).unwrap_or_default().to_owned();
    let ids: Vec<String> = waited.iter().map(id).collect();
    let answer = import(builtin, tasks::wait(&ids, timeout_ms))?;
    Ok(serde_json::from_str::<Vec<Json>>(&answer)?.iter().map(of_task).collect())
}

fn all(builtin: &str, mut launched: Vec<Json>) -> anyhow::Result<Vec<Json>> {
    let mut waiting: Vec<&mut Json> = launched.iter_mut().filter(|one| is_running(one)).collect();
    if !waiting.is_empty() {
        let ended = wait(builtin, &waiting.iter().map(|one| &**one).collect::<Vec<_>>(), None)?;
        for (one, ended) in waiting.iter_mut().zip(ended) {
            **one = ended;
        }
    }
    Ok(launched)
}

fn first<'v>(builtin: &str, given: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    phase::check(builtin, Needs::Tool)?;
    let mut launched = refs(builtin, "refs", given)?;
    anyhow::ensure!(!launched.is_empty(), "{builtin}: refs must not be empty");
    loop {
        if let Some(ended) = launched.iter().find(|one| !is_running(one)) {
            return value::from_json(ended, heap);
        }
        // The time of the call ends this.
        launched = wait(builtin, &launched.iter().collect::<Vec<_>>(), Some(LOOK_AGAIN))?;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::phase::{self, Phase};
    use crate::testing::{check, fail_all};

    #[test]
    fn not_in_a_hook() {
        phase::enter(Phase::Hook);
        let why = "is not there in a hook: hooks inspect and decide, they run and change nothing";
        fail_all([
            ("parallel.launch('a')", &*format!("`parallel.launch` {why}")),
            ("parallel.wait_all([])", &*format!("`parallel.wait_all` {why}")),
            ("parallel.wait_any([])", &*format!("`parallel.wait_any` {why}")),
            ("parallel.race([])", &*format!("`parallel.race` {why}")),
        ]);
    }

    #[test]
    fn what_has_ended_is_not_waited_for() {
        phase::enter(Phase::Tool);
        let done = "{'id': 'a', 'tool': 'a', 'status': 'completed', 'result': '1', 'is_error': False}";
        let json = json!({"id": "a", "tool": "a", "status": "completed", "result": "1", "is_error": false});
        check(&format!("parallel.wait_all([{done}, {done}])"), json!([json, json]));
        check(&format!("parallel.race([{done}])"), json);
        fail_all([
            ("parallel.race([])", "parallel.race: refs must not be empty"),
            ("parallel.wait_all(['a'])", "parallel.wait_all: refs must be what parallel.launch returned, got string"),
            ("parallel.launch('a', args = [1])", "parallel.launch: args must be a dict"),
        ]);
    }
}
