//! `log(msg)`, `log.debug`, `log.info`, `log.warn`, `log.error`: lines for the operator.

use std::fmt;

use allocative::Allocative;
use starlark::environment::{GlobalsBuilder, Methods, MethodsBuilder};
use starlark::eval::{Arguments, Evaluator};
use starlark::values::none::NoneType;
use starlark::values::{NoSerialize, ProvidesStaticType, StarlarkPagable, StarlarkValue, Value, starlark_value};
use starlark::{starlark_module, starlark_simple_value};

use crate::bindings::harness::sandbox::log::{self, Level};
use crate::phase::{self, Needs};

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    builder.set("log", Log);
}

/// Callable itself, and with a function for each level.
#[derive(Debug, ProvidesStaticType, NoSerialize, Allocative, StarlarkPagable)]
struct Log;
starlark_simple_value!(Log);

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("log")
    }
}

#[starlark_value(type = "log")]
impl<'v> StarlarkValue<'v> for Log {
    fn get_methods() -> Option<&'static Methods> {
        Some(LOG_METHODS.methods())
    }

    fn invoke(
        &self,
        _me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        args.no_named_args()?;
        let message = args.positional1(eval.heap())?;
        let Some(message) = message.unpack_str() else {
            let found = message.get_type();
            return Err(starlark::Error::new_native(anyhow::anyhow!("log: the message must be a string, got {found}")));
        };
        write("log", Level::Info, message).map_err(starlark::Error::new_native)?;
        Ok(Value::new_none())
    }
}

starlark::methods_static!(LOG_METHODS = methods);

#[starlark_module]
fn methods(builder: &mut MethodsBuilder) {
    fn debug<'v>(#[starlark(this)] _this: Value<'v>, message: &str) -> anyhow::Result<NoneType> {
        write("log.debug", Level::Debug, message)
    }

    fn info<'v>(#[starlark(this)] _this: Value<'v>, message: &str) -> anyhow::Result<NoneType> {
        write("log.info", Level::Info, message)
    }

    fn warn<'v>(#[starlark(this)] _this: Value<'v>, message: &str) -> anyhow::Result<NoneType> {
        write("log.warn", Level::Warn, message)
    }

    fn error<'v>(#[starlark(this)] _this: Value<'v>, message: &str) -> anyhow::Result<NoneType> {
        write("log.error", Level::Error, message)
    }
}

fn write(builtin: &str, level: Level, message: &str) -> anyhow::Result<NoneType> {
    phase::check(builtin, Needs::Any)?;
    log::write(level, message);
    Ok(NoneType)
}
