//! `assert_that(condition, message)`: fails unless the condition holds. (`assert` is a reserved word.)

use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::none::{NoneOr, NoneType};

use crate::observe::pure;

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    pure(builder, "", functions);
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn assert_that<'v>(
        condition: Value<'v>,
        #[starlark(default = NoneOr::None)] message: NoneOr<Value<'v>>,
    ) -> anyhow::Result<NoneType> {
        let tell = || match message {
            NoneOr::None => "assertion failed".to_owned(),
            NoneOr::Other(message) => message.to_str(),
        };
        anyhow::ensure!(condition.to_bool(), "assert: {}", tell());
        Ok(NoneType)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{check_all, fail_all};

    #[test]
    fn holds() {
        check_all([
            ("assert_that(True)", json!(null)),
            ("assert_that(condition = 1, message = 'no')", json!(null)),
            ("assert_that([0])", json!(null)),
        ]);
    }

    #[test]
    fn fails() {
        fail_all([
            ("assert_that(False)", "assert: assertion failed"),
            ("assert_that(1 > 2, 'one is less')", "assert: one is less"),
            ("assert_that(condition = '', message = 'empty')", "assert: empty"),
            ("assert_that(None, None)", "assert: assertion failed"),
            ("assert_that([], ['x', 1])", "assert: [\"x\", 1]"),
        ]);
    }
}
