//! `harness`: arguments, one file a command, printing, exit codes.

mod admin;
mod agents;
mod args;
mod audit;
mod call;
mod client;
mod completions;
mod confirm;
mod context;
mod doctor;
mod edit;
mod exit;
mod fire;
mod forms;
mod grant;
mod hooks;
mod init;
mod input;
mod inspect;
mod lock;
mod lsp;
mod manual;
mod mcp;
mod modes;
mod names;
mod new;
mod plugin;
mod policy;
mod printer;
mod progress;
mod project;
mod remote;
mod run;
mod schema;
mod serve;
mod sessions;
mod signals;
mod skills;
mod steps;
mod test;
mod tools;
mod validate;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use harness_sandbox::outcome::LimitKind;

use args::{Arguments, Audit, Color, Command, Deploy, Fire, Listing, ProjectArgs, ServerArgs, Talk};
use exit::Exit;
use harness_dispatch::as_json;
use printer::{Printer, Reported};

/// How long commands of the machine's are waited for, whose calls have ended and they have not.
const ENDS: Duration = Duration::from_secs(10);

/// Reads the arguments, runs the command, and turns its ending into an exit code.
pub fn main() -> ExitCode {
    harness_sys::memory::give_back();
    let (exit, printer, answers) = match Arguments::try_parse() {
        Ok(arguments) => {
            let printer = Printer::new(arguments.color);
            let answers = matches!(&arguments.command, Command::Fire(Fire { format: Some(_), .. }));
            (dispatch(arguments, printer), printer, answers)
        }
        // Help and version are asked for; anything else is a mistake in the arguments.
        Err(error) => (printed(&error), Printer::new(Color::Auto), false),
    };
    harness_wall::wait_for_ends(ENDS);
    let exit = match printer.lost() {
        // Who ended it does not wait for a result.
        Some(why) if !matches!(exit, Exit::Signal(_)) => {
            printer.error(&format!("cannot write the result: {why}"), &[], None);
            Exit::Fault
        }
        _ => exit,
    };
    if answers { client::exit(exit) } else { exit }.into()
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

fn dispatch(arguments: Arguments, printer: Printer) -> Exit {
    let Arguments { place, server, command, .. } = arguments;
    if let (Command::Fire(fire @ Fire { format: Some(client), .. }), None) = (&command, &server.server) {
        return client::run(*client, fire, &place, printer);
    }
    execute(&command, &place, &server, &printer).unwrap_or_else(|exit| {
        report_rejected(&command, exit, printer);
        exit
    })
}

/// Runs the command. An error is that nothing was done, which was reported.
fn execute(command: &Command, place: &ProjectArgs, server: &ServerArgs, printer: &Printer) -> Result<Exit, Exit> {
    if let Some(url) = &server.server {
        return remote::run(command, url, server, place, *printer);
    }
    // `init` makes it, where it is not there.
    if !matches!(command, Command::Init(_)) {
        project::named(place, *printer)?;
    }
    Ok(match command {
        Command::Call(command) => call::run(command, place, printer)?,
        Command::Run(command) => run::talk(command, place, *printer)?,
        Command::Deploy(command) => run::deploy(command, place, *printer)?,
        Command::Context(command) => context::run(command, place, printer),
        Command::Sessions(command) => sessions::run(command, place, printer)?,
        Command::Fire(command) => fire::run(command, place, printer)?,
        Command::Test(command) => test::run(command, place, printer),
        Command::Hooks(command) => hooks::run(command, place, printer),
        Command::Agents(command) => agents::run(command, place, printer),
        Command::Skills(command) => skills::run(command, place, printer),
        Command::Inspect(command) => inspect::run(command, place, printer),
        Command::Schema(command) => schema::run(command, printer),
        Command::Tools(command) => tools::run(command, place, printer),
        Command::Validate(command) => validate::run(command, place, printer),
        Command::Lsp(command) => lsp::run(command, place, *printer)?,
        Command::Policy(command) => policy::run(command, place, printer)?,
        Command::Lock(command) => lock::run(command, place, printer),
        Command::Audit(command) => audit::run(command, place, printer)?,
        Command::Mcp(command) => mcp::run(command, place, *printer)?,
        Command::Approvals(_) | Command::Usage(_) => return Err(remote::needed(*printer)),
        Command::Serve(command) => serve::run(command, place, *printer)?,
        Command::Admin(command) => admin::run(command, *printer)?,
        Command::Plugin(command) => plugin::run(command, place, *printer)?,
        Command::Doctor(command) => doctor::run(command, place, printer),
        Command::Init(command) => init::run(command, place, printer),
        Command::New(command) => new::run(command, place, *printer)?,
        Command::Names(command) => names::run(command, place, printer),
        Command::Manual(command) => manual::run(command, printer),
        Command::Completions(command) => completions::run(command, printer),
    })
}

/// Prints the object for programs of a command that did nothing, with the error that was printed.
fn report_rejected(command: &Command, exit: Exit, printer: Printer) {
    let told = Reported::all();
    let (outcome, kind) = match exit {
        Exit::Usage => ("rejected", "usage"),
        Exit::Denied => ("denied", "denied"),
        Exit::Busy => ("busy", "busy"),
        // The time was over before the script was loaded.
        Exit::Limited => ("limited", LimitKind::Deadline.name()),
        _ => ("fault", "fault"),
    };
    let object = match command {
        Command::Call(command) if command.json => as_json::not_called(outcome, &told.as_json(kind)),
        Command::Fire(command) if command.json => fire::rejected(command.name(), outcome, kind, &told),
        Command::Run(Talk { output, .. }) | Command::Deploy(Deploy { output, .. }) => {
            run::print_rejected(outcome, kind, &told, output.form(), printer);
            return;
        }
        Command::Audit(Audit::Verify(Listing { json: true })) => audit::rejected(&told),
        _ => return,
    };
    printer.json(&object);
}
