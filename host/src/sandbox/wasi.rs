//! The WASI imports of the interpreter, linked to a context that holds nothing.
//!
//! Rust's standard library asks for a seed for its hash tables and for a clock. It gets a fixed seed and a clock that
//! stands still: what a script does must not hang on them. There is no way to an argument, a variable, a folder, a
//! stream or a socket, because nothing that would give one is linked.

use wasmtime::Result;
use wasmtime::component::Linker;
use wasmtime_wasi::clocks::{WasiClocks, WasiClocksView};
use wasmtime_wasi::p2::bindings::{clocks, random};
use wasmtime_wasi::random::{WasiRandom, WasiRandomView};

use super::state::State;

/// What the interpreter may import of WASI, exactly; a test fails on one more or one less.
pub const INTERFACES: &[&str] = &["wasi:clocks/monotonic-clock", "wasi:random/insecure-seed"];

/// Links the interfaces above.
pub(crate) fn link(linker: &mut Linker<State>) -> Result<()> {
    clocks::monotonic_clock::add_to_linker::<State, WasiClocks>(linker, State::clocks)?;
    random::insecure_seed::add_to_linker::<State, WasiRandom>(linker, State::random)?;
    Ok(())
}
