//! `harness completions SHELL`.

use clap::CommandFactory;
use clap_complete::Shell;

use super::args::{Arguments, Completions};
use super::exit::Exit;
use super::printer::Printer;

pub(crate) fn run(command: &Completions, printer: &Printer) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(command.shell, &mut Arguments::command(), "harness", &mut script);
    // Names of the project, which the shell asks this program for.
    script.extend_from_slice(match command.shell {
        Shell::Bash => include_str!("completions/names.bash").as_bytes(),
        Shell::Fish => include_str!("completions/names.fish").as_bytes(),
        _ => &[],
    });
    printer.data(&String::from_utf8_lossy(&script));
    Exit::Completed
}
