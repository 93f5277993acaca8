//! `git_command` against arguments that reach out, names that are secret and configurations that start programs.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

use super::git::GRANTED;
use super::support::Project;

fn call(project: &Project, subcommand: &str, args: &[&str]) -> Value {
    project.call("git_command", json!({"subcommand": subcommand, "args": args})).result()
}

/// A repository whose history and work tree hold secrets beside what is open.
fn repository_with_secrets() -> Project {
    let project = Project::with_policy(GRANTED);
    project.git(&["init", "--quiet", "--initial-branch", "main"]);
    for path in SECRETS {
        project.write(path, "old SECRET\n");
    }
    project.write("open.txt", "old open\n");
    project.commit("first");
    for path in SECRETS {
        project.write(path, "new SECRET\n");
    }
    project.write("open.txt", "new open\n");
    project.commit("second");
    for path in SECRETS {
        project.write(path, "latest SECRET\n");
    }
    project.write("open.txt", "latest open\n");
    project
}

const SECRETS: [&str; 7] =
    [".env", "deep/.ENV.local/inside.txt", "agents/a.txt", "AGENTS/b.txt", "keys/id_rsa", "a.PEM", "x/harvey.yaml"];

#[test]
fn options_that_reach_out_are_refused() {
    let project = repository_with_secrets();
    let outside = tempfile::tempdir().unwrap();
    let file = outside.path().join("file");
    let output = format!("--output={}", file.display());
    for (subcommand, args) in [
        ("diff", vec!["--output=x"]),
        ("diff", vec![output.as_str()]),
        ("log", vec!["-p", "--output=x"]),
        ("show", vec!["--output", "x"]),
        ("diff", vec!["--no-index", "open.txt", ".env"]),
        ("diff", vec!["--no-index", "--", "/etc/passwd", "open.txt"]),
        ("diff", vec!["--ext-diff"]),
        ("diff", vec!["--textconv"]),
        ("diff", vec!["-O.env"]),
        ("diff", vec!["--submodule=diff"]),
        ("log", vec!["--pretty=%(trailers)"]),
        ("log", vec!["--format=%G?"]),
        ("log", vec!["--show-signature"]),
        ("log", vec!["-L1,1:.env"]),
        ("log", vec!["--stdin"]),
        ("log", vec!["--full-diff", "-p"]),
        ("log", vec!["--grep=\u{a}"]),
        ("show", vec!["--remerge-diff"]),
        ("blame", vec!["--contents", "/etc/passwd", "open.txt"]),
        ("blame", vec!["--contents=.env", "open.txt"]),
        ("blame", vec!["--ignore-revs-file=.env", "open.txt"]),
        ("blame", vec!["-S", ".env", "open.txt"]),
        ("blame", vec!["-L/SECRET/,+1", "open.txt"]),
        ("blame", vec!["-L", "1,2\u{a}--contents=.env", "open.txt"]),
        ("status", vec!["-v"]),
        ("status", vec!["--git-dir=/tmp"]),
        ("status", vec!["-c", "core.fsmonitor=x"]),
    ] {
        let result = call(&project, subcommand, &args);
        let told = result["error"].as_str().unwrap_or_default();
        let start = format!("`git {subcommand}` with `-");
        assert!(told.starts_with(&start) && told.ends_with("` is not allowed here"), "{args:?}: {result}");
    }
    assert!(!project.at("x").exists() || project.at("x").is_dir());
    assert!(!file.exists());
    // The control: options that only change what is shown.
    assert_eq!(call(&project, "diff", &["--name-only"]), json!({"output": "open.txt\n", "truncated": false}));
}

#[test]
fn objects_and_paths_that_are_secret_are_not_shown() {
    let project = repository_with_secrets();
    let blob = project.git(&["rev-parse", "HEAD:.env"]);
    let tree = project.git(&["rev-parse", "HEAD^{tree}"]);
    let staged = ":(literal).env";
    for (subcommand, arg) in [
        ("show", "HEAD:.env"),
        ("show", "HEAD:open.txt"),
        ("show", ":.env"),
        ("show", ":0:.env"),
        ("show", "HEAD^{/second}:.env"),
        ("show", &blob),
        ("show", &tree),
        ("show", "HEAD^{tree}"),
        ("diff", &blob),
        ("log", ":/second"),
        ("diff", "HEAD:.env..HEAD:open.txt"),
        ("diff", "..-p"),
        ("log", ".env"),
        ("log", "agents"),
        ("blame", "keys/id_rsa"),
        ("diff", staged),
        ("show", ":/"),
        ("log", ":(top)"),
    ] {
        assert_eq!(
            call(&project, subcommand, &[arg]),
            json!({"error": format!("`{arg}` is neither a commit nor a file that is there and may be read")}),
            "{subcommand}"
        );
    }
    for (subcommand, path) in [
        ("diff", ".env"),
        ("show", ":!open.txt"),
        ("log", "--output=x"),
        ("blame", "agents/a.txt"),
        ("status", "a.PEM"),
    ] {
        assert_eq!(
            call(&project, subcommand, &["--", path]),
            json!({"error": format!("`{path}` is not a file that is there and may be read")}),
            "{subcommand}"
        );
    }
    for path in ["../x", "/etc/passwd"] {
        project.call("git_command", json!({"subcommand": "diff", "args": ["--", path]})).denied();
    }
    // The controls: the same with a commit, and with a file that is open.
    for (subcommand, args) in
        [("show", &["HEAD"][..]), ("log", &["open.txt"]), ("diff", &["--", "open.txt"]), ("blame", &["open.txt"])]
    {
        let result = call(&project, subcommand, args);
        assert_eq!(result["truncated"], false, "{subcommand}: {result}");
    }
}

#[test]
fn nothing_shows_what_is_secret() {
    let project = repository_with_secrets();
    for (subcommand, args) in [
        ("status", &["-s"][..]),
        ("diff", &[]),
        ("diff", &["HEAD~1"]),
        ("diff", &["HEAD~1..HEAD", "--", "."]),
        ("diff", &["-R", "--word-diff", "HEAD~1...HEAD"]),
        ("diff", &["--raw", "-p", "HEAD"]),
        ("log", &["-p"]),
        ("log", &["-p", "--", "."]),
        ("log", &["--stat"]),
        ("log", &["-U5"]),
        ("log", &["--name-status"]),
        ("show", &[]),
        ("show", &["--name-only", "HEAD", "HEAD~1"]),
        ("show", &["-p", "HEAD~1"]),
    ] {
        let result = call(&project, subcommand, args);
        let output = result["output"].as_str().unwrap_or_default();
        assert!(output.contains("open.txt"), "{subcommand} {args:?}: {result}");
        let folded = output.to_lowercase();
        for word in ["secret", ".env", "agents", "id_rsa", "pem", "harvey"] {
            assert!(!folded.contains(word), "`{word}` in {subcommand} {args:?}: {output}");
        }
    }
    // The control: git itself shows all of these.
    let all = project.git(&["log", "-p"]).to_lowercase();
    for word in ["secret", ".env", "agents", "id_rsa", "pem", "harvey"] {
        assert!(all.contains(word), "{word}");
    }
}

#[test]
fn a_commit_of_secrets_alone_is_shown_without_them() {
    let project = repository_with_secrets();
    project.commit("third");
    project.write(".env", "last SECRET\n");
    let fourth = project.commit("fourth");
    let header =
        format!("commit {fourth}\nAuthor: Ada <ada@example.com>\nDate:   2001-02-03 04:05:06 +0000\n\n    fourth\n");
    assert_eq!(call(&project, "show", &["--date=iso"]), json!({"output": header, "truncated": false}));
    assert_eq!(call(&project, "log", &["-p", "-1", "--date=iso"]), json!({"output": header, "truncated": false}));
}

/// A configuration that starts a program, and a plain git command that falls for it.
struct Trap {
    config: &'static [(&'static str, &'static str)],
    attributes: &'static str,
    sprung_by: &'static [&'static str],
}

/// In the values, `TRAP` is the program.
const TRAPS: &[Trap] = &[
    Trap { config: &[("core.fsmonitor", "TRAP")], attributes: "", sprung_by: &["status"] },
    Trap { config: &[("diff.external", "TRAP")], attributes: "", sprung_by: &["diff"] },
    Trap { config: &[("diff.trap.command", "TRAP")], attributes: "* diff=trap", sprung_by: &["diff"] },
    Trap { config: &[("diff.trap.textconv", "TRAP")], attributes: "* diff=trap", sprung_by: &["log", "-p"] },
    Trap { config: &[("diff.trap.textconv", "TRAP")], attributes: "* diff=trap", sprung_by: &["blame", "a.txt"] },
    Trap { config: &[("filter.trap.clean", "TRAP")], attributes: "* filter=trap", sprung_by: &["diff"] },
    Trap {
        config: &[("filter.A.b/c.clean", "TRAP"), ("filter.A.b/c.required", "true")],
        attributes: "* filter=A.b/c",
        sprung_by: &["diff"],
    },
    Trap { config: &[("filter.trap.process", "TRAP")], attributes: "* filter=trap", sprung_by: &["diff"] },
    Trap { config: &[("include.path", "more")], attributes: "* filter=trap", sprung_by: &["diff"] },
    Trap { config: &[("core.hooksPath", ".git/traps")], attributes: "", sprung_by: &["status"] },
    Trap {
        config: &[("gpg.program", "TRAP"), ("log.showSignature", "true"), ("format.pretty", "%G?")],
        attributes: "",
        sprung_by: &["log", "signed"],
    },
    Trap {
        config: &[
            ("core.repositoryFormatVersion", "1"),
            ("extensions.partialClone", "origin"),
            ("remote.origin.promisor", "true"),
            ("remote.origin.url", "."),
            ("remote.origin.uploadPack", "TRAP"),
            ("protocol.file.allow", "always"),
            ("protocol.allow", "always"),
        ],
        attributes: "",
        sprung_by: &["show", "--no-textconv", "lost"],
    },
];

/// A repository that has something for every trap.
fn repository_with_a_trap(trap: &Trap) -> Project {
    let project = Project::with_policy(GRANTED);
    project.git(&["init", "--quiet", "--initial-branch", "main"]);
    project.write("a.txt", "one\n");
    project.write("same.txt", "same\n");
    project.commit("first");
    // A commit with a signature, which git hands to a program to check.
    let tree = project.git(&["rev-parse", "HEAD^{tree}"]);
    let who = "Ada <ada@example.com> 981173106 +0000";
    let signed = format!(
        "tree {tree}\nauthor {who}\ncommitter {who}\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n none\n \
         -----END PGP SIGNATURE-----\n\nsigned\n"
    );
    project.write(".git/signed", signed);
    let signed = project.git(&["hash-object", "-t", "commit", "-w", ".git/signed"]);
    project.git(&["branch", "signed", &signed]);
    // A commit with a file whose content is not there, as in a partial clone.
    project.write("lost.txt", "lost\n");
    let lost = project.commit("lost");
    project.git(&["branch", "lost", &lost]);
    let blob = project.git(&["rev-parse", "HEAD:lost.txt"]);
    project.git(&["reset", "--quiet", "--hard", "HEAD~1"]);
    let (folder, name) = blob.split_at(2);
    std::fs::remove_file(project.at(&format!(".git/objects/{folder}/{name}"))).unwrap();

    let program = project.at("home/trap");
    let text = format!("#!/bin/sh\n: > '{}'\n", project.at("home/marker").display());
    for path in ["home/trap", ".git/traps/post-index-change"] {
        project.write(path, &text);
        std::fs::set_permissions(project.at(path), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    project.write(".git/more", format!("[filter \"trap\"]\n\tclean = {}\n", program.display()));
    project.write("a.txt", "two\n");
    project.write(".git/info/attributes", format!("{}\n", trap.attributes));
    for (key, value) in trap.config {
        project.git(&["config", key, &value.replace("TRAP", program.to_str().unwrap())]);
    }
    looks_changed(&project, 1_000_000_000);
    project
}

/// Makes a file look changed, so that git reads it again and writes down that it is not.
fn looks_changed(project: &Project, seconds: u64) {
    let same = std::fs::File::options().write(true).open(project.at("same.txt")).unwrap();
    same.set_modified(UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
}

/// Whether the program ran.
fn sprung(project: &Project) -> bool {
    project.at("home/marker").exists()
}

/// Runs git as anyone would, whatever comes of it.
fn plain_git(project: &Project, args: &[&str]) {
    let mut command = Command::new("git");
    command.current_dir(project.at(".")).args(args).stdin(Stdio::null()).env("GIT_CONFIG_NOSYSTEM", "1");
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").output().unwrap();
}

#[test]
fn no_configuration_starts_a_program() {
    for trap in TRAPS {
        let project = repository_with_a_trap(trap);
        for (subcommand, args) in [
            ("status", &["-s"][..]),
            ("diff", &[]),
            ("diff", &["HEAD"]),
            ("log", &["-p", "signed"]),
            ("show", &["-p", "HEAD"]),
            ("blame", &["a.txt"]),
        ] {
            let result = call(&project, subcommand, args);
            assert_eq!(result["truncated"], false, "{:?} {subcommand} {args:?}: {result}", trap.config);
            assert!(!sprung(&project), "{:?} {subcommand} {args:?}: {result}", trap.config);
        }
        let result = call(&project, "show", &["lost"]);
        assert!(result["error"].is_string() && !sprung(&project), "{:?}: {result}", trap.config);
        // The control: without the tool's care, it does.
        looks_changed(&project, 1_000_000_001);
        plain_git(&project, trap.sprung_by);
        assert!(sprung(&project), "{:?} {:?} is no trap", trap.config, trap.sprung_by);
    }
}

#[test]
fn a_filter_that_cannot_be_turned_off_is_an_error() {
    let trap = Trap { config: &[("filter.a=b.clean", "TRAP")], attributes: "* filter=a=b", sprung_by: &["diff"] };
    let project = repository_with_a_trap(&trap);
    assert_eq!(
        call(&project, "diff", &[]),
        json!({"error": "the repository's configuration has a filter that cannot be turned off: `a=b`"})
    );
    assert!(!sprung(&project));
    plain_git(&project, trap.sprung_by);
    assert!(sprung(&project));
}

#[test]
fn aliases_and_pagers_change_nothing() {
    let trap = Trap {
        config: &[("alias.status", "!TRAP"), ("alias.log", "!TRAP"), ("core.pager", "TRAP"), ("pager.log", "TRAP")],
        attributes: "",
        sprung_by: &[],
    };
    let project = repository_with_a_trap(&trap);
    assert_eq!(call(&project, "status", &["-s", "--", "a.txt"]), json!({"output": " M a.txt\n", "truncated": false}));
    assert_eq!(call(&project, "log", &[])["truncated"], false);
    assert!(!sprung(&project));
}
