//! `meta.register_tool`, `register_hook`, `call_tool`, `list_tools`: what a run adds to itself, and tools that call
//! tools. `meta.call`, `try_call`, `parallel` and `function`, which give their values, are in `meta/calls.rs`.

mod calls;

use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::none::NoneOr;
use starlark::values::{Heap, Value};

use super::{ImportError, import, told};
use crate::bindings::harness::sandbox::meta;
use crate::phase::{self, Needs};
use crate::record::dict;

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    builder.namespace("meta", |space| {
        functions(space);
        calls::functions(space);
    });
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// `script` has no default that would do; it stands behind one that has, so it is asked for below.
    fn register_tool<'v>(
        name: &str,
        description: &str,
        #[starlark(default = NoneOr::None)] parameters: NoneOr<Value<'v>>,
        #[starlark(default = NoneOr::None)] script: NoneOr<&str>,
        #[starlark(default = false)] replace: bool,
    ) -> anyhow::Result<bool> {
        add_tool("meta.register_tool", name, description, parameters, script, replace)
    }

    /// The same by another name.
    fn tool_register<'v>(
        name: &str,
        description: &str,
        #[starlark(default = NoneOr::None)] parameters: NoneOr<Value<'v>>,
        #[starlark(default = NoneOr::None)] script: NoneOr<&str>,
        #[starlark(default = false)] replace: bool,
    ) -> anyhow::Result<bool> {
        add_tool("meta.tool_register", name, description, parameters, script, replace)
    }

    fn register_hook(
        name: &str,
        event: &str,
        script: &str,
        #[starlark(default = NoneOr::None)] when: NoneOr<&str>,
        #[starlark(default = NoneOr::None)] priority: NoneOr<i32>,
    ) -> anyhow::Result<bool> {
        add_hook("meta.register_hook", name, event, script, when, priority)
    }

    /// The same by another name.
    fn hook_register(
        name: &str,
        event: &str,
        script: &str,
        #[starlark(default = NoneOr::None)] when: NoneOr<&str>,
        #[starlark(default = NoneOr::None)] priority: NoneOr<i32>,
    ) -> anyhow::Result<bool> {
        add_hook("meta.hook_register", name, event, script, when, priority)
    }

    /// The content that a model would get; of a call that failed it begins with `error: `.
    fn call_tool<'v>(
        name: &str,
        #[starlark(default = NoneOr::None)] arguments: NoneOr<Value<'v>>,
    ) -> anyhow::Result<String> {
        phase::check("meta.call_tool", Needs::Any)?;
        let arguments = object("meta.call_tool", "arguments", arguments)?;
        import("meta.call_tool", meta::call_tool(name, &arguments))
    }

    fn list_tools<'v>(
        #[starlark(default = NoneOr::None)] pattern: NoneOr<&str>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Vec<Value<'v>>> {
        phase::check("meta.list_tools", Needs::Any)?;
        let tools = import("meta.list_tools", meta::list_tools(pattern.into_option()))?;
        let summary = |tool: meta::ToolSummary| {
            dict(
                heap,
                [
                    ("name", heap.alloc(tool.name)),
                    ("description", heap.alloc(tool.description)),
                    ("parameter_count", heap.alloc(tool.parameter_count)),
                ],
            )
        };
        Ok(tools.into_iter().map(summary).collect())
    }
}

fn add_tool(
    builtin: &str,
    name: &str,
    description: &str,
    parameters: NoneOr<Value<'_>>,
    script: NoneOr<&str>,
    replace: bool,
) -> anyhow::Result<bool> {
    phase::check(builtin, Needs::Tool)?;
    let script = script.into_option();
    let script = script.ok_or_else(|| anyhow::anyhow!("{builtin}: the argument `script` is missing"))?;
    let tool = meta::NewTool {
        name: name.to_owned(),
        description: description.to_owned(),
        parameters: object(builtin, "parameters", parameters)?,
        script: script.to_owned(),
        replace,
    };
    import(builtin, meta::register_tool(&tool))?;
    Ok(true)
}

fn add_hook(
    builtin: &str,
    name: &str,
    event: &str,
    script: &str,
    when: NoneOr<&str>,
    priority: NoneOr<i32>,
) -> anyhow::Result<bool> {
    phase::check(builtin, Needs::Tool)?;
    let hook = meta::NewHook {
        name: name.to_owned(),
        event: event.to_owned(),
        script: script.to_owned(),
        when: when.into_option().map(str::to_owned),
        priority: priority.into_option(),
    };
    import(builtin, meta::register_hook(&hook))?;
    Ok(true)
}

/// A dict as the text of a JSON object; an empty one where there is none.
fn object(builtin: &str, argument: &str, given: NoneOr<Value<'_>>) -> anyhow::Result<String> {
    let NoneOr::Other(given) = given else { return Ok("{}".to_owned()) };
    let json = told(builtin, argument, given)?;
    anyhow::ensure!(json.is_object(), "{builtin}: {argument} must be a dict, got {}", given.get_type());
    Ok(json.to_string())
}

impl ImportError for meta::Error {
    fn tell(self) -> (String, bool) {
        match self {
            Self::AccessDenied(denial) => (denial.reason, true),
            Self::Invalid(why) => (why, false),
            Self::TooMany(limit) => (format!("registration limit reached ({limit})"), false),
            Self::TooDeep(limit) => (format!("maximum call depth exceeded ({limit})"), false),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::phase::{self, Phase};
    use crate::testing::fail_all;

    #[test]
    fn a_hook_registers_nothing() {
        phase::enter(Phase::Hook);
        let refused = |builtin| {
            format!("`{builtin}` is not there in a hook: hooks inspect and decide, they run and change nothing")
        };
        fail_all([
            ("meta.register_tool('t', 'does', {}, 's')", &refused("meta.register_tool")),
            ("meta.tool_register('t', 'does', script = 's')", &refused("meta.tool_register")),
            ("meta.register_hook('h', 'tool.before', 's')", &refused("meta.register_hook")),
            ("meta.hook_register('h', 'tool.before', 's')", &refused("meta.hook_register")),
        ]);
    }

    #[test]
    fn nothing_of_it_while_a_script_is_loaded() {
        let refused =
            |builtin| format!("`{builtin}` cannot be called while the script is loaded: call it in `run` or `handle`");
        fail_all([
            ("meta.register_tool('t', 'does', script = 's')", &refused("meta.register_tool")),
            ("meta.call_tool('t')", &refused("meta.call_tool")),
            ("meta.list_tools()", &refused("meta.list_tools")),
        ]);
    }

    #[test]
    fn arguments() {
        phase::enter(Phase::Tool);
        fail_all([
            ("meta.register_tool('t', 'does')", "meta.register_tool: the argument `script` is missing"),
            ("meta.tool_register('t', 'does', {})", "meta.tool_register: the argument `script` is missing"),
            ("meta.register_tool('t', 'does', ['a'], 's')", "meta.register_tool: parameters must be a dict, got list"),
            (
                "meta.register_tool('t', 'does', {'a': len}, 's')",
                "meta.register_tool: parameters: a value of type `function` cannot be told as JSON",
            ),
            ("meta.call_tool('t', 'a')", "meta.call_tool: arguments must be a dict, got string"),
            (
                "meta.call_tool('t', arguments = {1: 2})",
                "meta.call_tool: arguments: a dict key must be a string to be told as JSON, got int",
            ),
        ]);
    }
}
