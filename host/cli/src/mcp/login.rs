//! `harness mcp login` and `logout`: tokens for servers at URLs.

use clap::Args;
use harness_artifact::{escape, third_party};
use harness_capability::system::System;
use harness_dispatch::{self as dispatch, LoggedIn, LoginAction, LoginState, Options, Prompt};
use harness_registry::Registry;

use crate::args::ProjectArgs;
use crate::exit::Exit;
use crate::printer::Printer;
use crate::project;

#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 logged in, 1 nobody is, 2 there is no such server.")]
pub(crate) struct Login {
    /// The server, which has `oauth` in the policy.
    pub(crate) name: String,

    /// Port of 127.0.0.1 that the browser comes back to. Default: any free one.
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    pub(crate) port: u16,
}

#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 logged out, 1 the login cannot be removed, 2 there is no such server.")]
pub(crate) struct Logout {
    /// The server.
    pub(crate) name: String,
}

/// Prints the address. A person opens it: no program is started with what a server has sent.
#[derive(Debug)]
struct Printed(Printer);

impl Prompt for Printed {
    fn open(&self, issuer: &str, url: &str) {
        self.0.say(&format!("open this address in a browser, to log in at {}:", third_party::line(issuer)));
        self.0.data(&escape::line(url));
    }
}

pub(super) fn login(command: &Login, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    run(&command.name, LoginAction::In(command.port, &Printed(printer)), place, printer)
}

pub(super) fn logout(command: &Logout, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    run(&command.name, LoginAction::Out, place, printer)
}

fn run(name: &str, action: LoginAction<'_>, place: &ProjectArgs, printer: Printer) -> Result<Exit, Exit> {
    let (root, machine) = (project::root(place), project::machine(place));
    let registry = Registry::load_unlocked(&root, project::host(&machine));
    if registry.policy().is_none() {
        project::report(&registry, printer);
        return Err(Exit::Usage);
    }
    let options = Options { machine, system: System::default().with_environment(), ..Options::default() };
    let done = project::block_on(dispatch::login_server(&root, &registry, &options, name, action), printer)?;
    let done = done.map_err(|error| project::unopened(&error, printer))?;
    let said = match done {
        None => {
            let why = format!("there is no server `{name}`");
            printer.error(&why, &[], Some("`harness mcp list` lists them"));
            return Err(Exit::Usage);
        }
        Some(Err(failure)) => {
            let why = format!("the server `{name}`: {}", escape::line(&failure.to_string()));
            printer.error(&why, &[], None);
            return Ok(Exit::Failed);
        }
        Some(Ok(LoginState::In(LoggedIn::Now))) => "logged in",
        Some(Ok(LoginState::In(LoggedIn::Already))) => "the server takes what it is sent already",
        Some(Ok(LoginState::Out(true))) => "logged out",
        Some(Ok(LoginState::Out(false))) => "nobody was logged in",
    };
    printer.data(said);
    Ok(Exit::Completed)
}
