//! `harness mcp fetch`: the packages of servers whose commands are package runners.

use std::path::Path;

use clap::Args;
use harness_artifact::escape;
use harness_capability::system::System;
use harness_dispatch::{self as dispatch, Options};
use harness_registry::Registry;

use crate::args::ProjectArgs;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::progress::Progress;
use crate::project;

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 all are here, 1 some cannot be fetched or are not those of the lock, 2 there is no such \
                  server."
)]
pub(crate) struct Fetch {
    /// The server. Default: all.
    pub(crate) name: Option<String>,
}

pub(super) fn run(command: &Fetch, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    let root = project::root(place);
    let registry = Registry::load_unlocked(&root, project::host(&project::machine(place)));
    let Some(policy) = registry.policy() else {
        project::report(&registry, printer);
        return Err(Exit::Usage);
    };
    if let Some(name) = command.name.as_ref().filter(|name| policy.mcp.server(name).is_none()) {
        let why = format!("there is no server `{name}`");
        printer.error(&why, &[], Some("`harness mcp list` lists them"));
        return Err(Exit::Usage);
    }
    let any = packages(&root, &registry, command.name.as_deref(), place, printer)?;
    match any {
        Some(exit) => Ok(exit),
        None => {
            printer.say("no packages: no server's command is a package runner, such as `npx` or `uvx`");
            Ok(Exit::Completed)
        }
    }
}

/// Fetches the packages that are not here, and prints what is. None where no server has any.
pub(super) fn packages(
    root: &Path,
    registry: &Registry,
    only: Option<&str>,
    place: &ProjectArgs,
    printer: Printer,
) -> Result<Option<Exit>, Exit> {
    let (machine, system) = (project::machine(place), System::default().with_environment());
    let options = Options { machine, system, ..Options::default() };
    let progress = Progress::start("fetching packages".to_owned());
    let fetched = project::block_on(dispatch::fetch_packages(root, registry, &options, only), printer)?;
    drop(progress);
    let fetched = fetched.map_err(|error| project::unopened(&error, printer))?;
    let mut exit = None;
    for (name, fetched) in fetched {
        match fetched {
            Ok(tree) => {
                printer.data(&format!("{name}  {tree}"));
                exit = exit.or(Some(Exit::Completed));
            }
            Err(failure) => {
                let why = format!("the server `{name}`: {}", escape::line(&failure.to_string()));
                let hint = match &failure {
                    dispatch::ServerFailure::Refused { refusal, .. } => Some(refusal.hint.as_str()),
                    dispatch::ServerFailure::Broken(_) | dispatch::ServerFailure::Said(_) => None,
                };
                printer.error(&why, &[], hint);
                exit = Some(Exit::Failed);
            }
        }
    }
    Ok(exit)
}
