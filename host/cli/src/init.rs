//! `harness init`: a small project that works, or one with the tools and guards of an agent.

use std::io::Write;
use std::path::Path;

use harness_registry::POLICIES_BESIDE;
use harness_wall::ClosedNames;

use super::args::{Init, ProjectArgs};
use super::exit::Exit;
use super::printer::Printer;

/// What is written, below the folder.
pub(crate) const FILES: &[(&str, &str)] = &[
    (".harness/harness.md", include_str!("init/harness.md")),
    (".harness/tools/word_count.md", include_str!("init/word_count.md")),
    (".harness/tools/add_note.md", include_str!("init/add_note.md")),
    (".harness/hooks/guard_notes.md", include_str!("init/guard_notes.md")),
];

/// A file of this repository's own project: `init/tools` and `init/hooks` are links there.
macro_rules! own {
    ($($path:literal),* $(,)?) => {
        &[$((concat!(".harness/", $path), include_str!(concat!("init/", $path)))),*]
    };
}

/// The tools and guards that an agent begins with: those that this repository uses and tries.
const AGENT: &[(&str, &str)] = own!(
    "tools/edit_file.md",
    "tools/fetch_url.md",
    "tools/git_command.md",
    "tools/list_files.md",
    "tools/read_file.md",
    "tools/run_command.md",
    "tools/search_files.md",
    "tools/write_file.md",
    "hooks/audit_tool_post.md",
    "hooks/audit_tool_pre.md",
    "hooks/command_guard.md",
    "hooks/completion_window_guard.md",
    "hooks/meta_register_guard.md",
    "hooks/meta_tool_guard.md",
    "hooks/path_guard.md",
    "hooks/prefer_named_tools.md",
    "hooks/secret_guard.md",
);
/// The policy that they begin under.
const AGENT_POLICY: (&str, &str) = (".harness/harness.md", include_str!("init/agent.md"));

pub(crate) fn run(command: &Init, place: &ProjectArgs, printer: &Printer) -> Exit {
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
    let files = if command.agent { [&[AGENT_POLICY], AGENT].concat() } else { FILES.to_vec() };
    for (path, text) in &files {
        let path = dir.join(path);
        if let Err(error) = write(&path, text) {
            printer.error(&format!("cannot write `{}`: {error}", path.display()), &[], None);
            return Exit::Fault;
        }
    }
    let written: Vec<&str> = files.iter().map(|(path, _)| *path).collect();
    printer.data(&written.join("\n"));
    let place = if dir == Path::new(".") { String::new() } else { format!(" -C {}", dir.display()) };
    let then = match command.agent {
        true => format!("name a `model` in `.harness/harness.md`, then\n  harness{place} run"),
        false => format!("harness{place} call word_count path=.harness/harness.md"),
    };
    printer.say(&format!("\nnext:\n  harness{place} validate\n  {then}"));
    Exit::Completed
}

/// Writes a file that must not be there yet.
#[expect(clippy::disallowed_methods, reason = "the folder that the operator named, before there is a project")]
pub(crate) fn write(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}
