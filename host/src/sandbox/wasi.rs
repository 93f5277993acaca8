//! The WASI imports of the interpreter, linked to a context that holds nothing.
//!
//! Rust's standard library asks WASI for what a script never sees: a seed for its hash tables, a clock, the arguments
//! and variables of the program, and somewhere to say why it dies. It gets a fixed seed and a clock that stands still
//! (what a script does must not hang on them), no argument, variable, folder or socket, an empty standard input, and
//! a few kilobytes for its last words.

use wasmtime::Result;
use wasmtime::component::Linker;
use wasmtime_wasi::cli::{WasiCli, WasiCliView};
use wasmtime_wasi::filesystem::{WasiFilesystem, WasiFilesystemView};
use wasmtime_wasi::p2::bindings::{cli, filesystem};

use super::state::State;

/// What the interpreter may import of WASI, exactly; a test fails on one more or one less.
pub const INTERFACES: &[&str] = &[
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stderr",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/wall-clock",
    "wasi:filesystem/preopens",
    "wasi:filesystem/types",
    "wasi:io/error",
    "wasi:io/streams",
    "wasi:random/random",
];

/// Links the interfaces above, and nothing that could open a socket or a file.
pub(crate) fn link(linker: &mut Linker<State>) -> Result<()> {
    // Streams, clocks, random numbers and the three standard streams.
    wasmtime_wasi::p2::add_to_linker_proxy_interfaces_async(linker)?;
    cli::environment::add_to_linker::<State, WasiCli>(linker, State::cli)?;
    cli::exit::add_to_linker::<State, WasiCli>(linker, State::cli)?;
    // Without a folder to start from there is no way to a file.
    filesystem::preopens::add_to_linker::<State, WasiFilesystem>(linker, State::filesystem)?;
    filesystem::types::add_to_linker::<State, WasiFilesystem>(linker, State::filesystem)?;
    Ok(())
}
