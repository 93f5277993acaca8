//! `harness`: arguments, one file a command, printing, exit codes.

mod agents;
mod args;
mod audit;
mod call;
mod completions;
mod confirm;
mod context;
mod doctor;
mod exit;
mod fire;
mod grant;
mod hooks;
mod init;
mod input;
mod inspect;
mod lock;
mod policy;
mod printer;
mod progress;
mod project;
mod run;
mod schema;
mod sessions;
mod signals;
mod test;
mod tools;
mod validate;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use args::{Arguments, Command};
use exit::Exit;
use printer::Printer;

/// How long commands of the machine's are waited for, whose calls have ended and they have not.
const ENDS: Duration = Duration::from_secs(10);

/// Reads the arguments, runs the command, and turns its ending into an exit code.
pub(crate) fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are asked for; anything else is a mistake in the arguments.
            let asked = !error.use_stderr();
            let _ = error.print();
            return if asked { Exit::Completed } else { Exit::Usage }.into();
        }
    };
    let printer = Printer::new(arguments.color);
    let exit = dispatch(arguments, &printer);
    harness::capability::exec::wall::wait_for_ends(ENDS);
    exit.into()
}

fn dispatch(arguments: Arguments, printer: &Printer) -> Exit {
    let Arguments { place, command, .. } = arguments;
    match command {
        Command::Call(command) => call::run(&command, &place, printer),
        Command::Run(command) => run::talk(&command, &place, printer),
        Command::Deploy(command) => run::deploy(&command, &place, printer),
        Command::Context(command) => context::run(&command, &place, printer),
        Command::Sessions(command) => sessions::run(&command, &place, printer),
        Command::Fire(command) => fire::run(&command, &place, printer),
        Command::Test(command) => test::run(&command, &place, printer),
        Command::Hooks(command) => hooks::run(&command, &place, printer),
        Command::Agents(command) => agents::run(&command, &place, printer),
        Command::Inspect(command) => inspect::run(&command, &place, printer),
        Command::Schema(command) => schema::run(&command, printer),
        Command::Tools(command) => tools::run(&command, &place, printer),
        Command::Validate(command) => validate::run(&command, &place, printer),
        Command::Policy(command) => policy::run(&command, &place, printer),
        Command::Lock(command) => lock::run(&command, &place, printer),
        Command::Audit(command) => audit::run(&command, &place, printer),
        Command::Doctor(command) => doctor::run(&command, &place, printer),
        Command::Init(command) => init::run(&command, printer),
        Command::Completions(command) => completions::run(&command, printer),
    }
}
