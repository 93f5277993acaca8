//! `harness plugin unpack-fetched`: what a fetch runs behind a wall.

use std::path::PathBuf;

use clap::Args;
use harness_fetch::{Packed, unpack};

use crate::exit::Exit;
use crate::printer::Printer;

#[derive(Debug, Args)]
pub(crate) struct Unpack {
    /// Who packed it: `git` or `harness`.
    #[arg(value_parser = |name: &str| Packed::named(name).ok_or("it is neither `git` nor `harness`"))]
    packed: Packed,
    /// What was fetched.
    file: PathBuf,
    /// Folder to write.
    folder: PathBuf,
}

pub(crate) fn run(command: &Unpack, printer: Printer) -> Result<Exit, Exit> {
    unpack::unpack(command.packed, &command.file, &command.folder).map_err(|why| {
        printer.error(&why.to_string(), &[], None);
        Exit::Usage
    })?;
    Ok(Exit::Completed)
}
