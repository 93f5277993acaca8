//! `cache.set`, `get`, `has`, `delete`, `clear`: values that the tools and hooks of one run share.

use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::none::{NoneOr, NoneType};
use starlark::values::{Heap, Value};

use super::{ImportError, import};
use crate::bindings::harness::sandbox::cache;
use crate::phase::{self, Needs};
use crate::value;

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    builder.namespace("cache", functions);
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// Gives the value back.
    fn set<'v>(key: &str, value: Value<'v>) -> anyhow::Result<Value<'v>> {
        phase::check("cache.set", Needs::Any)?;
        let text = value::to_json(value)?.to_string();
        import("cache.set", cache::set(key, &text))?;
        Ok(value)
    }

    fn get<'v>(
        key: &str,
        #[starlark(default = NoneOr::None)] default: NoneOr<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        phase::check("cache.get", Needs::Any)?;
        match import("cache.get", cache::get(key))? {
            Some(text) => value::from_json(&serde_json::from_str(&text)?, heap),
            None => Ok(default.into_option().unwrap_or_else(Value::new_none)),
        }
    }

    fn has(key: &str) -> anyhow::Result<bool> {
        phase::check("cache.has", Needs::Any)?;
        import("cache.has", cache::has(key))
    }

    fn delete(key: &str) -> anyhow::Result<bool> {
        phase::check("cache.delete", Needs::Any)?;
        import("cache.delete", cache::delete(key))
    }

    fn clear() -> anyhow::Result<NoneType> {
        phase::check("cache.clear", Needs::Any)?;
        import("cache.clear", cache::clear())?;
        Ok(NoneType)
    }
}

impl ImportError for cache::Error {
    fn tell(self) -> (String, bool) {
        match self {
            Self::AccessDenied(denial) => (denial.reason, true),
            Self::Full(cap) => (format!("the cache of this run is full, at {cap} bytes"), false),
            Self::TooLarge(cap) => (format!("the key or value is larger than {cap} bytes"), false),
        }
    }
}
