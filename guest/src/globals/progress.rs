//! `progress(done, total=None, message=None)`: how far the call is, for its caller.

use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::float::StarlarkFloat;
use starlark::values::none::{NoneOr, NoneType};
use starlark::values::{Value, ValueLike};

use super::argument;
use crate::bindings::harness::sandbox::progress::{self, Step};
use crate::phase::{self, Needs};

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    functions(builder);
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn progress<'v>(
        done: Value<'v>,
        #[starlark(default = NoneOr::None)] total: NoneOr<Value<'v>>,
        #[starlark(default = NoneOr::None)] message: NoneOr<Value<'v>>,
    ) -> anyhow::Result<NoneType> {
        phase::check("progress", Needs::Tool)?;
        let done = number("done", done)?;
        let total = total.into_option().map(|total| number("total", total)).transpose()?;
        let message =
            message.into_option().map(|message| argument::text("progress", "message", message)).transpose()?;
        progress::report(&Step { done, total, message: message.map(str::to_owned) });
        Ok(NoneType)
    }
}

fn number(parameter: &str, value: Value<'_>) -> anyhow::Result<f64> {
    let number = value.unpack_i32().map(f64::from).or_else(|| value.downcast_ref().map(|StarlarkFloat(float)| *float));
    let number =
        number.ok_or_else(|| anyhow::anyhow!("progress: {parameter} must be a number, got {}", value.get_type()))?;
    anyhow::ensure!(number.is_finite() && number >= 0.0, "progress: {parameter} must be finite and >= 0");
    Ok(number)
}

#[cfg(test)]
mod tests {
    use crate::phase::{self, Phase};
    use crate::testing::fail_all;

    #[test]
    fn errors() {
        phase::enter(Phase::Tool);
        fail_all([
            ("progress('1')", "progress: done must be a number, got string"),
            ("progress(-1)", "progress: done must be finite and >= 0"),
            ("progress(float('nan'))", "progress: done must be finite and >= 0"),
            ("progress(1, float('inf'))", "progress: total must be finite and >= 0"),
            ("progress(1, message = 2)", "progress: message must be a string, got int"),
        ]);
    }

    #[test]
    fn not_in_a_hook() {
        phase::enter(Phase::Hook);
        fail_all([(
            "progress(1)",
            "`progress` is not there in a hook: hooks inspect and decide, they run and change nothing",
        )]);
    }
}
