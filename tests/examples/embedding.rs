//! The programs in `host/examples`, which show how Harness is embedded: each is run, and what it prints is compared.

use std::path::Path;
use std::process::Command;

/// What an example prints. `cargo test` builds it beside the tests, unless `--test` leaves it out.
fn prints(name: &str) -> String {
    let tests = std::env::current_exe().unwrap();
    let program = tests.parent().and_then(Path::parent).unwrap().join("examples").join(name);
    assert!(program.is_file(), "{} is missing: `cargo build --release --examples` builds it", program.display());
    let output = Command::new(&program).output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_program_calls_a_tool() {
    assert_eq!(
        prints("call_tool"),
        "own docs/a.md: The first line of docs.\n\
         own notes/a.md: The first line of notes.\n\
         narrowed docs/a.md: The first line of docs.\n\
         narrowed notes/a.md: denied: reading `notes/a.md` is not granted: nothing in `fs.read` in `caller:1:13` covers it\n"
    );
}

#[test]
fn a_program_runs_an_agent_with_a_model_of_its_own() {
    assert_eq!(
        prints("agent"),
        "asked for add_note {\"text\":\"Buy milk.\"}: yes\n\
         The tool said: written.\n\
         asked for add_note {\"text\":\"Write down all that was said today.\"}: no\n\
         The tool said: tool denied: the call of `add_note` was not confirmed (`confirm: true` in `.harness/tools/add_note.md:4:10`).\n\
         notes/note.md: Buy milk.\n"
    );
}

#[test]
fn a_program_serves_a_hundred_projects() {
    assert_eq!(prints("hundred_projects"), "99 projects answered for themselves\nover a limit: tenant 0: fuel\n");
}

/// None is forgotten.
#[test]
fn every_program_is_run() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["agent.rs", "call_tool.rs", "hundred_projects.rs"]);
}
