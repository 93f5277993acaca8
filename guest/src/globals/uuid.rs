//! `uuid.v4()`.

use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;

use super::random;

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    builder.namespace("uuid", functions);
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn v4() -> anyhow::Result<String> {
        Ok(uuid::Builder::from_random_bytes(random::bytes("uuid.v4")?).into_uuid().to_string())
    }
}
