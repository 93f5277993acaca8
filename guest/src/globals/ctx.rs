//! `ctx.set`, `get`, `has`, `delete`, `clear`, `snapshot`: values that the tools and hooks of one turn share.

use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::none::{NoneOr, NoneType};
use starlark::values::{Heap, Value};

use super::{ImportError, import};
use crate::bindings::harness::sandbox::turn;
use crate::phase::{self, Needs};
use crate::value;

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    builder.namespace("ctx", functions);
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// Returns the value.
    fn set<'v>(key: &str, value: Value<'v>) -> anyhow::Result<Value<'v>> {
        phase::check("ctx.set", Needs::Any)?;
        let text = value::to_json(value)?.to_string();
        import("ctx.set", turn::set(key, &text))?;
        Ok(value)
    }

    fn get<'v>(
        key: &str,
        #[starlark(default = NoneOr::None)] default: NoneOr<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        phase::check("ctx.get", Needs::Any)?;
        match import("ctx.get", turn::get(key))? {
            Some(text) => value::from_json(&serde_json::from_str(&text)?, heap),
            None => Ok(default.into_option().unwrap_or_else(Value::new_none)),
        }
    }

    fn has(key: &str) -> anyhow::Result<bool> {
        phase::check("ctx.has", Needs::Any)?;
        import("ctx.has", turn::has(key))
    }

    fn delete(key: &str) -> anyhow::Result<bool> {
        phase::check("ctx.delete", Needs::Any)?;
        import("ctx.delete", turn::delete(key))
    }

    fn clear() -> anyhow::Result<NoneType> {
        phase::check("ctx.clear", Needs::Any)?;
        import("ctx.clear", turn::clear())?;
        Ok(NoneType)
    }

    fn snapshot<'v>(heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        phase::check("ctx.snapshot", Needs::Any)?;
        let all = import("ctx.snapshot", turn::snapshot())?;
        value::from_json(&serde_json::from_str(&all)?, heap)
    }
}

impl ImportError for turn::Error {
    fn tell(self) -> (String, bool) {
        match self {
            Self::AccessDenied(denial) => (denial.reason, true),
            Self::Full(cap) => (format!("the values of this turn are full, at {cap} bytes"), false),
            Self::TooLarge(cap) => (format!("the key or value is larger than {cap} bytes"), false),
            Self::ReadOnly => ("the host sets this key: use another".to_owned(), false),
        }
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
            ("ctx.clear()", &*format!("`ctx.clear` {why}")),
            ("ctx.snapshot()", &*format!("`ctx.snapshot` {why}")),
        ]);
    }
}
