//! Where results go: files that are named, standard output, and what is told where they cannot be written.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, symlink};

use crate::agent_turns::agent;
use crate::project::{FINE, Project, Ran};

/// A project with an agent, a tool with a case, a hook, and a session and a call in its records.
fn used() -> Project {
    let cases = "tests:\n  - name: is fine\n    expect: { result: fine }\n";
    let project = agent("", "- text: Yes.\n- text: Yes.\n- text: Yes.\n").tool("it", cases, FINE);
    let project = project.with_handle("sees", "tool.pre", "", "return allow()");
    let project = project.file(".harness/agents/helper.md", "---\n{}\n---\nHelps.\n");
    project.run(&["run", "Go"]).gives("Yes.");
    project.run(&["call", "it"]).gives("fine");
    project
}

#[test]
fn a_page_goes_where_its_name_leads() {
    let project = used();
    let page = project.run(&["sessions", "show", "--html"]).out;
    assert!(page.starts_with("<!doctype html>"), "{page}");
    project.run(&["sessions", "show", "--html", "-"]).gives(page.trim_end());
    assert!(!project.path("-").exists());

    // A pipe is written to, and stays.
    let read = "mkfifo pipe; timeout 20 cat pipe > got & \"$HARNESS\" sessions show --html pipe; wait";
    project.shell(read).gives_nothing();
    assert!(std::fs::metadata(project.path("pipe")).unwrap().file_type().is_fifo());
    assert_eq!(std::fs::read_to_string(project.path("got")).unwrap(), page);

    // Links stay too, and their file is replaced as a whole, or made.
    std::fs::create_dir(project.path("pages")).unwrap();
    project.write("pages/old.html", "what was there");
    symlink("old.html", project.path("pages/latest.html")).unwrap();
    for (link, to, file) in
        [("page", "pages/latest.html", "pages/old.html"), ("next", "pages/new.html", "pages/new.html")]
    {
        symlink(to, project.path(link)).unwrap();
        let before = std::fs::metadata(project.path(file)).map(|facts| facts.ino()).ok();
        project.run(&["sessions", "show", "--html", link]).gives_nothing();
        assert_eq!(std::fs::read_link(project.path(link)).unwrap().to_str(), Some(to));
        assert!(project.path("pages/latest.html").is_symlink());
        let file = project.path(file);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), page);
        assert!(std::fs::metadata(&file).unwrap().ino() != before.unwrap_or_default() && !file.is_symlink());
    }
    symlink("round", project.path("round")).unwrap();
    project.run(&["sessions", "show", "--html", "round"]).says(2, "error: cannot write `round`: Too many levels");
    project.run(&["sessions", "show", "--html", "pages"]).says(2, "error: cannot write `pages`: Is a directory");
}

#[test]
fn results_of_cases_go_where_their_name_leads() {
    let project = used();
    let ran = project.run(&["test", "--junit", "-"]);
    assert!(ran.code == 0 && ran.out.starts_with("<?xml ") && ran.out.ends_with("</testsuites>\n"), "{ran}");
    assert!(!ran.out.contains("1 passed") && ran.err.is_empty() && !project.path("-").exists(), "{ran}");
    let both = project.run(&["test", "--junit", "-", "--json"]);
    both.says(2, "error: `--junit -` and `--json` both write to standard output");
    // Elsewhere too, and in the folder that the process has kept.
    let elsewhere = tempfile::tempdir().unwrap();
    symlink(elsewhere.path().join("report.xml"), project.path("report.xml")).unwrap();
    for _ in 0..2 {
        let ran = project.run(&["test", "--junit", "report.xml"]);
        assert!(ran.code == 0 && ran.err.is_empty(), "{ran}");
        assert!(std::fs::read_to_string(elsewhere.path().join("report.xml")).unwrap().starts_with("<?xml "));
    }
    let read = "mkfifo pipe; timeout 20 cat pipe > got & \"$HARNESS\" test --junit pipe; wait";
    let ran = project.shell(read);
    assert!(ran.code == 0 && ran.err.is_empty(), "{ran}");
    assert!(std::fs::read_to_string(project.path("got")).unwrap().starts_with("<?xml "));
}

/// Every command that prints something.
const PRINTING: &[&[&str]] = &[
    &["call", "it"],
    &["call", "it", "--json"],
    &["run", "Go", "--no-record"],
    &["deploy", "--json", "--input", "Go", "--no-record"],
    &["context"],
    &["sessions", "list"],
    &["sessions", "show"],
    &["sessions", "show", "--html"],
    &["sessions", "replay"],
    &["fire", "tool.pre"],
    &["test"],
    &["test", "--json"],
    &["test", "--junit", "-"],
    &["tools"],
    &["hooks"],
    &["agents", "--json"],
    &["inspect"],
    &["schema", "tool"],
    &["validate"],
    &["lock"],
    &["lock", "--check"],
    &["policy", "show", "it"],
    &["policy", "diff", ".", "."],
    &["policy", "learn", "--", "call", "it"],
    &["audit", "verify"],
    &["audit", "show"],
    &["audit", "digest", "{}"],
    &["doctor"],
    &["completions", "bash"],
    &["--help"],
    &["call", "--help"],
    &["--version"],
];

#[test]
fn what_cannot_be_written_is_told() {
    let project = used();
    for arguments in PRINTING {
        // A disk that is full.
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let ran = project.ran(&project.command(arguments).stdout(full).output().unwrap());
        let wanted = "error: cannot write the result: No space left on device (os error 28)";
        assert_eq!((ran.code, ran.err.lines().last()), (5, Some(wanted)), "{arguments:?}: {ran}");
        assert_eq!(ran.err.matches("cannot write the result").count(), 1, "{arguments:?}: {ran}");
    }
}

/// Who has read enough is no failure.
#[test]
fn a_reader_may_go_away() {
    let project = used();
    for arguments in PRINTING {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ran: Ran = project.ran(&project.command(arguments).stdout(writer).output().unwrap());
        assert!(ran.code == 0 && !ran.err.contains("error"), "{arguments:?}: {ran}");
    }
}

/// A call that failed and cannot say so in its object either.
#[test]
fn what_cannot_be_written_counts_most() {
    let project = Project::with_script("def run(args):\n    fail('no')\n");
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ran = project.ran(&project.command(&["call", "it", "--json"]).stdout(full).output().unwrap());
    assert_eq!(ran.code, 5, "{ran}");
    assert!(ran.err.starts_with("error: tool `it` failed: ") && ran.err.contains("cannot write the result"), "{ran}");
    // Without one nothing is to be written.
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ran = project.ran(&project.command(&["call", "it"]).stdout(full).output().unwrap());
    assert_eq!(ran.code, 1, "{ran}");
}
