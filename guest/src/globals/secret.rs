//! `secret(name)`: a text that stands for a secret, for the value of a header or a variable of a command.

use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;

use super::{import, only_denied};
use crate::bindings::harness::sandbox::secrets;
use crate::phase::{self, Needs};

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    functions(builder);
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn secret(name: &str) -> anyhow::Result<String> {
        phase::check("secret", Needs::Any)?;
        import("secret", secrets::handle(name))
    }
}

only_denied!(secrets);
