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

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use args::{Arguments, Color, Command};
use exit::Exit;
use printer::Printer;

/// Reads the arguments, runs the command, and turns its ending into an exit code.
pub(crate) fn main() -> ExitCode {
    let (exit, printer) = match Arguments::try_parse() {
        Ok(arguments) => {
            let printer = Printer::new(arguments.color);
            (dispatch(arguments, &printer), printer)
        }
        // Help and version are asked for; anything else is a mistake in the arguments.
        Err(error) => (printed(&error), Printer::new(Color::Auto)),
    };
    match printer.lost() {
        // Who ended it does not wait for a result.
        Some(why) if !matches!(exit, Exit::Signal(_)) => {
            printer.error(&format!("cannot write the result: {why}"), &[], None);
            Exit::Fault
        }
        _ => exit,
    }
    .into()
}

/// Prints what clap says of the arguments.
fn printed(error: &clap::Error) -> Exit {
    let written = error.print();
    if error.use_stderr() {
        return Exit::Usage;
    }
    printer::put(written.and_then(|()| std::io::stdout().flush()));
    Exit::Completed
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
