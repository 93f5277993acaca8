//! `metrics.incr`, `set`, `get`, `reset`, `snapshot`: counters and gauges of one run.

use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::dict::AllocDict;
use starlark::values::float::UnpackFloat;
use starlark::values::none::{NoneOr, NoneType};
use starlark::values::{Heap, Value};

use super::{ImportError, import};
use crate::bindings::harness::sandbox::metrics;
use crate::phase::{self, Needs};

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    builder.namespace("metrics", functions);
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// Gives the new value back.
    fn incr<'v>(
        name: &str,
        #[starlark(default = UnpackFloat(1.0))] delta: UnpackFloat,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        phase::check("metrics.incr", Needs::Any)?;
        Ok(number(import("metrics.incr", metrics::incr(name, delta.0))?, heap))
    }

    fn set(name: &str, value: UnpackFloat) -> anyhow::Result<NoneType> {
        phase::check("metrics.set", Needs::Any)?;
        import("metrics.set", metrics::set(name, value.0))?;
        Ok(NoneType)
    }

    fn get<'v>(name: &str, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        phase::check("metrics.get", Needs::Any)?;
        Ok(number(import("metrics.get", metrics::get(name))?, heap))
    }

    fn reset(#[starlark(default = NoneOr::None)] name: NoneOr<&str>) -> anyhow::Result<NoneType> {
        phase::check("metrics.reset", Needs::Any)?;
        import("metrics.reset", metrics::reset(name.into_option()))?;
        Ok(NoneType)
    }

    fn snapshot<'v>(heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        phase::check("metrics.snapshot", Needs::Any)?;
        let all = import("metrics.snapshot", metrics::snapshot())?;
        Ok(heap.alloc(AllocDict(all.into_iter().map(|(name, value)| (name, number(value, heap))))))
    }
}

/// Counters are whole numbers wherever they can be.
fn number(value: f64, heap: Heap<'_>) -> Value<'_> {
    /// Every whole number up to here is exact in a float: 2^53.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() <= EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "whole and within 2^53")]
        return heap.alloc(value as i64);
    }
    heap.alloc(value)
}

impl ImportError for metrics::Error {
    fn tell(self) -> (String, bool) {
        match self {
            Self::AccessDenied(denial) => (denial.reason, true),
            Self::TooMany => ("too many names, or a name over 256 bytes".to_owned(), false),
        }
    }
}
