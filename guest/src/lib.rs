//! The interpreter that runs inside the sandbox: Starlark, compiled to a WASI component.
//!
//! The host loads a script once ([`interp::load`]), keeps the memory that is left, and starts every call from a fresh
//! copy of it. Nothing here decides what a script may do: checks in this crate are for better messages, the host
//! decides behind each import.
//!
//! - [`interp`]: load, run, handle, when
//! - [`dialect`]: which Starlark this is
//! - [`globals`]: the built-ins, one file for each namespace
//! - [`value`]: JSON to Starlark and back
//! - [`diagnostic`]: errors as data, with positions in the artifact's file
//! - [`coverage`]: which lines of a script were reached, for `harness test`
//! - [`ending`]: where a script is when it ends without an error
//! - [`observe`]: pure built-ins that hooks hear
//! - `allocated`: the allocator, which counts, and keeps what a call writes together
//! - [`phase`]: what is running now, and what may be called then
//! - [`spelling`]: a name of the format that the language keeps for itself
//! - `system`: what the standard library asks of WASI 0.1, answered in here

#![expect(unsafe_code, reason = "the generated bindings, and what is derived for the interpreter's values")]

#[cfg(target_family = "wasm")]
mod allocated;
mod coverage;
mod diagnostic;
mod dialect;
mod ending;
mod globals;
mod interp;
mod observe;
mod phase;
mod record;
mod spelling;
#[cfg(target_family = "wasm")]
mod system;
#[cfg(test)]
mod testing;
mod value;

mod bindings {
    wit_bindgen::generate!({ world: "interpreter", path: "../wit", generate_all });

    use super::Guest;
    export!(Guest);
}

use bindings::exports::harness::sandbox::script;

/// What the host calls.
struct Guest;

impl script::Guest for Guest {
    fn prepare() {
        interp::prepare();
    }

    fn load(source: script::Source) -> Result<(), script::Failure> {
        interp::load(&source)
    }

    fn report_place() {
        ending::report();
    }

    fn listen(before: bool, after: bool) {
        observe::listen(before, after);
    }

    fn run(args: String) -> Result<String, script::Failure> {
        interp::run(&args)
    }

    fn handle(event: String, payload: String) -> Result<String, script::Failure> {
        interp::handle(&event, &payload)
    }

    fn matches(event: String, payload: String) -> Result<bool, script::Failure> {
        interp::matches(&event, &payload)
    }
}
