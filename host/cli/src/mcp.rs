//! `harness mcp`: the project's tools for clients of the Model Context Protocol, and the servers whose tools it has.

mod clients;
mod config;
mod fetch;
pub(crate) mod learned;
mod login;
mod merge;
mod observed;
mod opens;
pub(crate) mod serve;
mod servers;
mod wrap;

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
    /// List the servers whose tools the project has, as they are locked. None is started.
    List(servers::List),
    /// Start a server behind its wall, and compare what it is with the lock.
    Test(servers::Test),
    /// Add a server to the policy. Comments and all else in the file stay as they are.
    Add(servers::Add),
    /// Remove a server from the policy.
    Remove(servers::Remove),
    /// Fetch the packages of servers that are not on this machine, such as those of `npx`, as the lock has them. No script of a
    /// package is run.
    Fetch(fetch::Fetch),
    /// Log in at a server with OAuth: prints an address to open in a browser, and waits for the answer.
    Login(login::Login),
    /// Forget the login at a server.
    Logout(login::Logout),
    /// Run a server behind its wall for the client that starts this command: lines pass as they are.
    Wrap(wrap::Wrap),
}

/// Runs a command of `harness mcp`. An error is that it did nothing, which was reported.
pub(crate) fn run(command: &Mcp, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    match command {
        Mcp::Serve(command) => serve::run(command, place, printer),
        Mcp::Config(command) => config::run(command, place, printer),
        Mcp::List(command) => servers::list(command, place, printer),
        Mcp::Test(command) => servers::test(command, place, printer),
        Mcp::Add(command) => servers::add(command, place, printer),
        Mcp::Remove(command) => servers::remove(command, place, printer),
        Mcp::Fetch(command) => fetch::run(command, place, printer),
        Mcp::Login(command) => login::login(command, place, printer),
        Mcp::Logout(command) => login::logout(command, place, printer),
        Mcp::Wrap(command) => wrap::run(command, place, printer),
    }
}
