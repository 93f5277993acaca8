//! The WASI imports of the interpreter, linked to a context that holds nothing.
//!
//! Rust's standard library asks for a seed for its hash tables and for a clock. It gets a fixed seed and a clock that
//! stands still: what a script does must not hang on them. There is no way to an argument, a variable, a folder, a
//! stream or a socket, because nothing that would give one is linked.

use wasmtime_wasi::clocks::WasiClocksView;
use wasmtime_wasi::p2::bindings::clocks::monotonic_clock::Host as _;
use wasmtime_wasi::p2::bindings::random::insecure_seed::Host as _;
use wasmtime_wasi::random::WasiRandomView;

use super::state::State;

/// What the interpreter may import of WASI, exactly; a test fails on one more or one less.
pub const INTERFACES: &[&str] = &["wasi:clocks/monotonic-clock", "wasi:random/insecure-seed"];

/// Nanoseconds on the clock that stands still.
pub fn now(state: &mut State) -> u64 {
    state.clocks().now().unwrap_or(0)
}

/// The seed of the interpreter's hash tables.
pub fn seed(state: &mut State) -> (u64, u64) {
    state.random().insecure_seed().unwrap_or((0, 0))
}
