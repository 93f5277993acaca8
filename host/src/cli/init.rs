//! `harness init`: a small project that works.

use std::io::Write;
use std::path::Path;

use harness::capability::exec::wall::ClosedNames;
use harness::registry::POLICIES_BESIDE;

use super::args::{Init, Place};
use super::exit::Exit;
use super::printer::Printer;

/// What is written, below the folder.
const FILES: &[(&str, &str)] = &[
    (".harness/harness.md", include_str!("init/harness.md")),
    (".harness/tools/word_count.md", include_str!("init/word_count.md")),
    (".harness/tools/add_note.md", include_str!("init/add_note.md")),
    (".harness/hooks/guard_notes.md", include_str!("init/guard_notes.md")),
];

pub(crate) fn run(command: &Init, place: &Place, printer: &Printer) -> Exit {
    let dir = command.dir.as_deref().or(place.project.as_deref()).unwrap_or(Path::new("."));
    ClosedNames::sweep(dir);
    // A policy beside the folder would be a second one.
    let there = std::iter::once(".harness")
        .chain(POLICIES_BESIDE)
        .map(|name| dir.join(name))
        .find(|path| path.symlink_metadata().is_ok());
    if let Some(there) = there {
        let message = format!("`{}` is there already", there.display());
        printer.error(&message, &[], Some("name another folder: `harness init DIR`"));
        return Exit::Usage;
    }
    for (path, text) in FILES {
        let path = dir.join(path);
        if let Err(error) = write(&path, text) {
            printer.error(&format!("cannot write `{}`: {error}", path.display()), &[], None);
            return Exit::Fault;
        }
    }
    let written: Vec<&str> = FILES.iter().map(|(path, _)| *path).collect();
    printer.data(&written.join("\n"));
    let place = if dir == Path::new(".") { String::new() } else { format!(" -C {}", dir.display()) };
    printer
        .say(&format!("\nnext:\n  harness{place} validate\n  harness{place} call word_count path=.harness/harness.md"));
    Exit::Completed
}

/// Writes a file that must not be there yet.
#[expect(clippy::disallowed_methods, reason = "the folder that the operator named, before there is a project")]
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}
