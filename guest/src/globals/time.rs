//! `time.now()` and `sleep(ms)`.

use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::none::NoneType;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{import, only_denied};
use crate::bindings::harness::sandbox::clock;
use crate::phase::{self, Needs};

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    builder.namespace("time", functions);
    globals(builder);
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// RFC 3339, UTC, whole seconds.
    fn now() -> anyhow::Result<String> {
        phase::check("time.now", Needs::Any)?;
        let moment = import("time.now", clock::now())?;
        Ok(OffsetDateTime::from_unix_timestamp(moment.seconds)?.format(&Rfc3339)?)
    }
}

#[starlark_module]
fn globals(builder: &mut GlobalsBuilder) {
    fn sleep(ms: i64) -> anyhow::Result<NoneType> {
        phase::check("sleep", Needs::Any)?;
        anyhow::ensure!(ms >= 0, "sleep: ms must be >= 0");
        import("sleep", clock::sleep(u32::try_from(ms).unwrap_or(u32::MAX)))?;
        Ok(NoneType)
    }
}

only_denied!(clock);
