//! `env(key)`: a variable that the policy names, the empty string where it is not set.

use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;

use super::{import, only_denied};
use crate::bindings::harness::sandbox::env;
use crate::phase::{self, Needs};

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    functions(builder);
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn env(key: &str) -> anyhow::Result<String> {
        phase::check("env", Needs::Any)?;
        Ok(import("env", env::get(key))?.unwrap_or_default())
    }
}

only_denied!(env);
