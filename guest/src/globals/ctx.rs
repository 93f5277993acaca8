//! `ctx.set`, `get`, `has`, `delete`: values of one run, kept in its cache beside the keys of `cache.*`.

use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::none::NoneOr;
use starlark::values::{Heap, Value};

use super::import;
use crate::bindings::harness::sandbox::cache;
use crate::phase::{self, Needs};
use crate::value;

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    builder.namespace("ctx", functions);
}

/// Keeps the keys apart from those of `cache.*`.
fn own(key: &str) -> String {
    format!("ctx:{key}")
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// Returns the value.
    fn set<'v>(key: &str, value: Value<'v>) -> anyhow::Result<Value<'v>> {
        phase::check("ctx.set", Needs::Any)?;
        let text = value::to_json(value)?.to_string();
        import("ctx.set", cache::set(&own(key), &text))?;
        Ok(value)
    }

    fn get<'v>(
        key: &str,
        #[starlark(default = NoneOr::None)] default: NoneOr<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        phase::check("ctx.get", Needs::Any)?;
        match import("ctx.get", cache::get(&own(key)))? {
            Some(text) => value::from_json(&serde_json::from_str(&text)?, heap),
            None => Ok(default.into_option().unwrap_or_else(Value::new_none)),
        }
    }

    fn has(key: &str) -> anyhow::Result<bool> {
        phase::check("ctx.has", Needs::Any)?;
        import("ctx.has", cache::has(&own(key)))
    }

    fn delete(key: &str) -> anyhow::Result<bool> {
        phase::check("ctx.delete", Needs::Any)?;
        import("ctx.delete", cache::delete(&own(key)))
    }
}

#[cfg(test)]
mod tests {
    use crate::phase::{self, Phase};
    use crate::testing::fail_all;

    #[test]
    fn not_while_loading() {
        phase::enter(Phase::Loading);
        let why = "cannot be called while the script is loaded: call it in `run` or `handle`";
        fail_all([
            ("ctx.set('a', 1)", &*format!("`ctx.set` {why}")),
            ("ctx.get('a')", &*format!("`ctx.get` {why}")),
            ("ctx.has('a')", &*format!("`ctx.has` {why}")),
            ("ctx.delete('a')", &*format!("`ctx.delete` {why}")),
        ]);
    }
}
