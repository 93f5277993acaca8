//! `harness mcp`: the project's tools for clients of the Model Context Protocol.

mod clients;
mod config;
mod merge;
mod serve;

use clap::Subcommand;

use super::args::ProjectArgs;
use super::exit::Exit;
use super::printer::Printer;

#[derive(Debug, Subcommand)]
pub(crate) enum Mcp {
    /// Serve the project's tools: over standard input and output until standard input ends, or over HTTP.
    ///
    /// Each call of a client is an ordinary call: hooks, policy, limits and the audit log apply. Revisions of the protocol
    /// up to 2025-11-25 and 2026-07-28 are served by one process. Errors of the host are printed to standard error.
    Serve(serve::Serve),
    /// Print the configuration with which a client starts the server, or write it to the client's file in the project.
    Config(config::Config),
}

/// Runs a command of `harness mcp`. An error is that it did nothing, which was reported.
pub(crate) fn run(command: &Mcp, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    match command {
        Mcp::Serve(command) => serve::run(command, place, printer),
        Mcp::Config(command) => config::run(command, place, printer),
    }
}
