//! `os.hostname`, `platform`, `arch`: of the machine only what the policy names.
//!
//! The name of the machine is the variable `HOSTNAME`, under the grant of `env`. The others describe the sandbox, the
//! same on every machine: commands run on Linux, and scripts in WebAssembly.

use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;

use super::import;
use crate::bindings::harness::sandbox::env;
use crate::observe::pure;
use crate::phase::{self, Needs};

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    builder.namespace("os", |space| {
        functions(space);
        pure(space, "os", of_the_sandbox);
    });
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn hostname() -> anyhow::Result<String> {
        phase::check("os.hostname", Needs::Any)?;
        Ok(import("os.hostname", env::get("HOSTNAME"))?.unwrap_or_default())
    }
}

#[starlark_module]
fn of_the_sandbox(builder: &mut GlobalsBuilder) {
    fn platform() -> anyhow::Result<&'static str> {
        Ok("linux")
    }

    fn arch() -> anyhow::Result<&'static str> {
        Ok("wasm32")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::phase::{self, Phase};
    use crate::testing::{check, fails};

    #[test]
    fn the_sandbox_is_the_same_everywhere() {
        check("[os.platform(), os.arch()]", json!(["linux", "wasm32"]));
    }

    #[test]
    fn the_machine_has_no_name_while_loading() {
        phase::enter(Phase::Loading);
        let why = "cannot be called while the script is loaded: call it in `run` or `handle`";
        fails("os.hostname()", &format!("`os.hostname` {why}"));
    }
}
