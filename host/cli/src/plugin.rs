//! `harness plugin`: plugins from elsewhere, reviewed, consented to, and pinned.
//!
//! - `author`: `new` and `pack`
//! - `sign`, `publish`: `sign` and `publish`
//! - `catalogue`, `search`: the catalogues of the policy, and what they name
//! - `indexes`: the indexes of catalogues that are kept on this machine
//! - `fetched`: a plugin as its source has it
//! - `review`: what a person reads before they consent
//! - `cases`: what its cases show, and `test`
//! - `signers`: who signed it
//! - `consent`: what is granted, and by whom
//! - `add`, `update`, `grant`, `installed`: the commands that change the project, or look at what is in it
//! - `unpack`: what a fetch runs behind a wall
//! - `serving`: the servers that a plugin brings
//! - `state`: the project, its lock and its policy, before and after a change

mod add;
mod author;
mod cases;
mod catalogue;
mod consent;
mod fetched;
mod grant;
mod indexes;
mod installed;
mod publish;
mod review;
mod search;
mod serving;
mod sign;
mod signers;
mod state;
mod unpack;
mod update;

use clap::Subcommand;

use super::args::ProjectArgs;
use super::exit::Exit;
use super::printer::Printer;

#[derive(Debug, Subcommand)]
pub(crate) enum Plugin {
    /// Write the folder of a new plugin.
    New(author::New),
    /// Pack a plugin as one file: the same bytes on every machine.
    Pack(author::Pack),
    /// Sign a plugin with a key of minisign or SSH.
    Sign(sign::Sign),
    /// Find plugins in the catalogues that the policy names.
    Search(search::Search),
    /// Add a plugin from a folder, a packed file, a git repository, a registry or a catalogue: show what it asks for, grant
    /// what you consent to, and pin its content.
    Add(add::Add),
    /// Run the cases of a plugin in the sandbox, with all that it asks for as its grant and fakes behind it.
    Test(cases::TestCases),
    /// Publish a plugin in a registry, with its signatures.
    Publish(publish::Publish),
    /// List the plugins of the lock.
    List(installed::List),
    /// Show what a plugin asks for and what that means in this project: one of the lock, or one at a source.
    Show(installed::Show),
    /// Check that the content, the asks and the grant of each plugin are those of the lock.
    Verify,
    /// Update plugins from their sources, after showing what changes.
    ///
    /// A version that asks for more, or that changes what models read, is staged until you consent. The version before it
    /// stays in use.
    Update(update::Update),
    /// Grant what a plugin of the lock asks for, by your consent; `--grant none` takes all of it back.
    Grant(grant::Grant),
    /// Remove a plugin, its grant and its pin.
    Remove(installed::Remove),
    /// Fetch the plugins of the lock that are not on this machine, exactly as the lock has them.
    Sync,
    /// Unpack what was fetched: run behind a wall by the other commands.
    #[command(hide = true)]
    UnpackFetched(unpack::Unpack),
}

/// Runs a command of `harness plugin`. An error is that it did nothing, which was reported.
pub(crate) fn run(command: &Plugin, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    match command {
        Plugin::New(command) => author::new(command, place, printer),
        Plugin::Pack(command) => author::pack(command, printer),
        Plugin::Test(command) => cases::run(command, place, printer),
        Plugin::Sign(command) => sign::run(command, printer),
        Plugin::Search(command) => search::run(command, place, printer),
        Plugin::Add(command) => add::run(command, place, printer),
        Plugin::Publish(command) => publish::publish(command, place, printer),
        Plugin::List(command) => installed::list(command, place, printer),
        Plugin::Show(command) => installed::show(command, place, printer),
        Plugin::Verify => installed::verify(place, printer),
        Plugin::Update(command) => update::run(command, place, printer),
        Plugin::Grant(command) => grant::run(command, place, printer),
        Plugin::Remove(command) => installed::remove(command, place, printer),
        Plugin::Sync => installed::sync(place, printer),
        Plugin::UnpackFetched(command) => unpack::run(command, printer),
    }
}
