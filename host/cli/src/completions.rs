//! `harness completions SHELL`.

use clap::CommandFactory;

use super::args::{Arguments, Completions};
use super::exit::Exit;
use super::printer::Printer;

pub(crate) fn run(command: &Completions, printer: &Printer) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(command.shell, &mut Arguments::command(), "harness", &mut script);
    printer.data(&String::from_utf8_lossy(&script));
    Exit::Completed
}
