//! The command line. Everything it does, a program that embeds the library can do too.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    harness::memory::give_back();
    cli::main()
}
