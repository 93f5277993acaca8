//! `harness schema KIND`: what an editor checks front matter by.

use harness_artifact::schema;

use super::args::Schema;
use super::exit::Exit;
use super::printer::Printer;

pub(crate) fn run(command: &Schema, printer: &Printer) -> Exit {
    printer.json(&schema::of(command.kind));
    Exit::Completed
}
