//! `harness policy`: what tools are granted, what a new policy allows, what a call needs.

use super::args::{Policy, ProjectArgs};
use super::exit::Exit;
use super::printer::Printer;

mod diff;
mod learn;
mod learn_server;

mod show;

pub(crate) fn run(command: &Policy, place: &ProjectArgs, printer: &Printer) -> Result<Exit, Exit> {
    match command {
        Policy::Show(command) => show::run(command, place, *printer),
        Policy::Diff(command) => diff::run(command, place, *printer),
        Policy::Learn(command) => learn::run(command, place, *printer),
    }
}
