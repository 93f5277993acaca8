//! The command line. Everything it does, a program that embeds the library can do too.

use std::process::ExitCode;

fn main() -> ExitCode {
    harness_cli::main()
}
