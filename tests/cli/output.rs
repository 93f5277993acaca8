//! Where results go: files that are named, standard output, and the report where they cannot be written.

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

    // The operator's own pipe is written to, and stays.
    let own = tempfile::tempdir().unwrap();
    let at = |path: &str| own.path().join(path);
    let shown = |name: &str| at(name).to_str().unwrap().to_owned();
    let pipe = shown("pipe");
    let read = format!("mkfifo {pipe}; timeout 20 cat {pipe} > got & \"$HARNESS\" sessions show --html {pipe}; wait");
    let wrote = project.shell(&read);
    assert_eq!((wrote.code, wrote.out.as_str()), (0, ""), "{wrote}");
    assert!(std::fs::metadata(&pipe).unwrap().file_type().is_fifo());
    assert_eq!(std::fs::read_to_string(project.path("got")).unwrap(), page);

    // A link is replaced, wherever it leads: a command may have planted it in a workspace that is not the project's.
    std::fs::create_dir(at("pages")).unwrap();
    std::fs::write(at("pages/old.html"), "what was there").unwrap();
    for (link, to) in [("page", "pages/old.html"), ("next", "pages/new.html"), ("round", "round")] {
        symlink(to, at(link)).unwrap();
        let wrote = project.run(&["sessions", "show", "--html", &shown(link)]);
        assert_eq!((wrote.code, wrote.out.as_str()), (0, ""), "{wrote}");
        assert_eq!(std::fs::read_to_string(at(link)).unwrap(), page);
        assert!(!at(link).is_symlink());
    }
    assert_eq!(std::fs::read_to_string(at("pages/old.html")).unwrap(), "what was there");
    assert!(!at("pages/new.html").exists());
    // No link leads to the folder.
    symlink("pages", at("way")).unwrap();
    let wrong = format!("error: cannot write `{}`: `", shown("way/page.html"));
    project.run(&["sessions", "show", "--html", &shown("way/page.html")]).says(2, &wrong);
    assert!(!at("pages/page.html").exists());
    // A file is replaced as a whole.
    let before = std::fs::metadata(at("pages/old.html")).unwrap().ino();
    let wrote = project.run(&["sessions", "show", "--html", &shown("pages/old.html")]);
    assert_eq!((wrote.code, wrote.out.as_str()), (0, ""), "{wrote}");
    assert!(std::fs::metadata(at("pages/old.html")).unwrap().ino() != before);
    project.run(&["sessions", "show", "--html", ".harness"]).says(2, "error: cannot write `.harness`: Is a directory");
}

/// A command may have left anything at the name that the operator's next command writes to.
#[test]
fn what_is_planted_in_the_project_is_not_written_through() {
    let project = used();
    let own = tempfile::tempdir().unwrap();
    let notes = own.path().join("notes");
    std::fs::write(&notes, "mine").unwrap();
    let writing: [(&[&str], &str, bool); 2] =
        [(&["sessions", "show", "--html"], "<!doctype html>", true), (&["test", "--junit"], "<?xml ", false)];
    for (arguments, begins, says_so) in writing {
        for name in ["link", "dangling", "hard", "pipe"] {
            let _ = std::fs::remove_file(project.path(name));
            match name {
                "link" => symlink(&notes, project.path(name)).unwrap(),
                "dangling" => symlink(own.path().join("none"), project.path(name)).unwrap(),
                "hard" => std::fs::hard_link(&notes, project.path(name)).unwrap(),
                _ => assert_eq!(project.shell("mkfifo pipe").code, 0),
            }
            let ran = project.run(&[arguments, &[name]].concat());
            let said = if says_so { format!("wrote `{name}`\n") } else { String::new() };
            assert_eq!((ran.code, ran.err.as_str()), (0, said.as_str()), "{ran}");
            assert!(std::fs::symlink_metadata(project.path(name)).unwrap().is_file(), "{name}");
            assert!(std::fs::read_to_string(project.path(name)).unwrap().starts_with(begins), "{name}");
        }
        let _ = std::fs::remove_file(project.path("planted"));
        symlink(own.path(), project.path("planted")).unwrap();
        let why =
            "error: cannot write `planted/notes`: `[project]/planted` is a link, which a command may have planted";
        project.run(&[arguments, &["planted/notes"]].concat()).says(2, why);
    }
    assert_eq!(std::fs::read_to_string(&notes).unwrap(), "mine");
    assert_eq!(std::fs::read_dir(own.path()).unwrap().count(), 1);
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
    let (link, report) = (elsewhere.path().join("link.xml"), elsewhere.path().join("report.xml"));
    symlink(&report, &link).unwrap();
    for _ in 0..2 {
        let ran = project.run(&["test", "--junit", link.to_str().unwrap()]);
        assert!(ran.code == 0 && ran.err.is_empty(), "{ran}");
        assert!(std::fs::read_to_string(&link).unwrap().starts_with("<?xml ") && !link.is_symlink());
        assert!(!report.exists());
    }
    let pipe = elsewhere.path().join("pipe");
    let pipe = pipe.display();
    let read = format!("mkfifo {pipe}; timeout 20 cat {pipe} > got & \"$HARNESS\" test --junit {pipe}; wait");
    let ran = project.shell(&read);
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
