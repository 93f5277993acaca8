//! `read_file`, `list_files`, `search_files` and `word_count`.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use super::support::Project;

#[test]
fn read_file_reads_all_or_some_lines() {
    let project = Project::new();
    project.write("src/a.txt", "one\ntw\u{f6}\nthree\n");
    project.write("no-end.txt", "x\ny");
    project.write("empty.txt", "");
    for (arguments, text, start, end, total) in [
        (json!({"path": "src/a.txt"}), "one\ntw\u{f6}\nthree", 1, 3, 3),
        (json!({"path": "src/../src/a.txt", "start_line": 2}), "tw\u{f6}\nthree", 2, 3, 3),
        (json!({"path": "src/a.txt", "start_line": 2, "end_line": 2}), "tw\u{f6}", 2, 2, 3),
        (json!({"path": "src/a.txt", "end_line": 99}), "one\ntw\u{f6}\nthree", 1, 3, 3),
        (json!({"path": "no-end.txt"}), "x\ny", 1, 2, 2),
        (json!({"path": "empty.txt"}), "", 1, 0, 0),
    ] {
        assert_eq!(
            project.call("read_file", arguments.clone()).result(),
            json!({
                "path": arguments["path"],
                "text": text,
                "start_line": start,
                "end_line": end,
                "total_lines": total,
            })
        );
    }
}

#[test]
fn read_file_is_bounded() {
    let project = Project::new();
    project.write("many.txt", "x\n".repeat(3000));
    project.write("wide.txt", format!("{}\n", "y".repeat(50_000)));
    project.write("long.txt", format!("{}\n", "z".repeat(9_999)).repeat(5));
    for (path, start, text, end, total, note) in [
        (
            "many.txt",
            1,
            vec!["x"; 2000].join("\n"),
            2000,
            3000,
            Some("cut after line 2000: go on with start_line 2001"),
        ),
        ("many.txt", 2001, vec!["x"; 1000].join("\n"), 3000, 3000, None),
        ("wide.txt", 1, "y".repeat(40_000), 1, 1, Some("line 1 is longer than 40000 characters and was cut")),
        ("long.txt", 1, vec!["z".repeat(9_999); 4].join("\n"), 4, 5, Some("cut after line 4: go on with start_line 5")),
    ] {
        let mut expected =
            json!({"path": path, "text": text, "start_line": start, "end_line": end, "total_lines": total});
        if let Some(note) = note {
            expected["note"] = json!(note);
        }
        assert_eq!(project.call("read_file", json!({"path": path, "start_line": start})).result(), expected);
    }
}

#[test]
fn read_file_says_what_is_wrong() {
    let project = Project::new();
    project.write("folder/a.txt", "one\n");
    for (arguments, error) in [
        (json!({"path": "folder"}), "`folder` is a folder: list_files shows what is in it"),
        (json!({"path": "folder/a.txt", "start_line": 2}), "start_line is 2, but `folder/a.txt` has 1 lines"),
        (json!({"path": "folder/a.txt", "start_line": 0}), "start_line must be a whole number from 1"),
        (json!({"path": "folder/a.txt", "start_line": 1.5}), "start_line must be a whole number from 1"),
        (
            json!({"path": "folder/a.txt", "start_line": 3, "end_line": 2}),
            "end_line must be a whole number that is not below start_line",
        ),
    ] {
        assert_eq!(project.call("read_file", arguments).result(), json!({"error": error}));
    }
    assert_eq!(project.call("read_file", json!({"path": "b.txt"})).failed(), "fs.stat: `b.txt` does not exist");
    project.write("binary.txt", b"\xff\xfe");
    assert_eq!(
        project.call("read_file", json!({"path": "binary.txt"})).failed(),
        "fs.read: `binary.txt` is not UTF-8 text"
    );
}

#[test]
fn what_may_not_be_read_is_not_read() {
    let project = Project::with_policy("sandbox: { fs: { read: [\".\"], protect: [src/private] } }");
    for path in [".env", "src/server.pem", "agents/a.md", "src/private/a.txt", "docs/a.txt", "src/a.txt"] {
        project.write(path, "needle\n");
    }
    symlink("../.env", project.at("src/link.txt")).unwrap();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("a.txt"), "needle\n").unwrap();
    symlink(outside.path(), project.at("src/out")).unwrap();
    for (path, reason) in [
        (".env", "reading `.env` is never allowed: `.env*` is a sensitive name"),
        ("./src/../.env", "reading `.env` is never allowed: `.env*` is a sensitive name"),
        ("src/link.txt", "reading `.env` is never allowed: `.env*` is a sensitive name"),
        ("src/server.pem", "reading `src/server.pem` is never allowed: `*.pem` is a sensitive name"),
        ("agents/a.md", "reading `agents/a.md` is never allowed: the folder `agents/` is protected"),
        (
            "src/private/a.txt",
            "reading `src/private/a.txt` is not allowed: `src/private` is in `sandbox.fs.protect` in \
             `.harness/harness.md:2:41`",
        ),
        ("../a.txt", "`../a.txt` is outside the workspace"),
    ] {
        for (tool, builtin) in [("read_file", "fs.stat"), ("word_count", "fs.read")] {
            let (message, hint) = project.call(tool, json!({"path": path})).denied();
            assert_eq!((message, hint), (format!("{builtin}: {reason}"), String::new()), "{tool} {path}");
        }
    }
    project.call("read_file", json!({"path": "src/out/a.txt"})).denied();
    // The controls: the same content under a name that may be read, alone and in a search of everything.
    assert_eq!(project.call("read_file", json!({"path": "src/a.txt"})).result()["text"], "needle");
    assert_eq!(
        project.call("search_files", json!({"pattern": "needle", "glob": "*"})).result(),
        json!({"matches": ["docs/a.txt:1:needle", "src/a.txt:1:needle"], "files_searched": 2})
    );
    assert_eq!(
        project.call("list_files", json!({"path": "src"})).result(),
        json!({"path": "src", "entries": ["src/a.txt", "src/link.txt@", "src/out@"]})
    );
}

#[test]
fn what_is_not_granted_is_not_read() {
    let project = Project::with_policy("sandbox: { fs: { read: [src] } }");
    project.write("src/a.txt", "needle\n");
    project.write("docs/a.txt", "needle\n");
    for (tool, arguments, path) in [
        ("read_file", json!({"path": "docs/a.txt"}), "docs/a.txt"),
        ("word_count", json!({"path": "docs/a.txt"}), "docs/a.txt"),
        ("list_files", json!({"path": "docs"}), "docs"),
        ("search_files", json!({"path": "docs", "pattern": "needle"}), "docs"),
    ] {
        let (_, hint) = project.call(tool, arguments).denied();
        assert_eq!(hint, format!("add `{path}` to `sandbox.fs.read` in `.harness/harness.md:2:24`"), "{tool}");
    }
    assert_eq!(
        project.call("search_files", json!({"path": "src", "pattern": "needle"})).result(),
        json!({"matches": ["src/a.txt:1:needle"], "files_searched": 1})
    );
}

#[test]
fn list_files_shows_folders_files_and_links() {
    let project = Project::new();
    for path in ["README.md", "src/main.rs", "src/deep/er/x.rs", "src/deep/y.txt", ".gitignore", "odd[1]/z.rs"] {
        project.write(path, "");
    }
    symlink("src", project.at("link")).unwrap();
    for (arguments, entries) in [
        (json!({}), json!([".gitignore", ".harness/", "README.md", "link@", "odd[1]/", "src/"])),
        (json!({"path": "src"}), json!(["src/deep/", "src/main.rs"])),
        (
            json!({"path": "./src/", "depth": 10}),
            json!(["src/deep/", "src/deep/er/", "src/deep/er/x.rs", "src/deep/y.txt", "src/main.rs"]),
        ),
        (json!({"depth": 2, "pattern": "*.r?"}), json!(["odd[1]/z.rs", "src/main.rs"])),
        (json!({"depth": 4, "pattern": "x.rs"}), json!(["src/deep/er/x.rs"])),
        (json!({"path": "odd[1]"}), json!(["odd[1]/z.rs"])),
        (json!({"path": ".harness"}), json!([".harness/tools/"])),
    ] {
        let path = arguments.get("path").cloned().unwrap_or(json!("."));
        assert_eq!(project.call("list_files", arguments).result(), json!({"path": path, "entries": entries}),);
    }
    for (arguments, error) in [
        (json!({"path": "README.md"}), "`README.md` is not a folder"),
        (json!({"path": "/"}), "path must be relative to the project's folder"),
        (json!({"depth": 0}), "depth must be a whole number from 1 to 10"),
        (json!({"depth": 11}), "depth must be a whole number from 1 to 10"),
        (json!({"pattern": "src/*"}), "pattern is for names and holds no `/`; give the folder as path"),
    ] {
        assert_eq!(project.call("list_files", arguments).result(), json!({"error": error}));
    }
}

#[test]
fn list_files_is_bounded() {
    let project = Project::new();
    for number in 0..1001 {
        project.write(&format!("many/{number:04}"), "");
    }
    let entries: Vec<String> = (0..1000).map(|number| format!("many/{number:04}")).collect();
    assert_eq!(
        project.call("list_files", json!({"path": "many"})).result(),
        json!({"path": "many", "entries": entries, "note": "cut after 1000 entries: name a folder below, or less depth"})
    );
}

#[test]
fn search_files_finds_lines() {
    let project = Project::new();
    project.write("a.rs", "fn main() {}\n// Main\r\nfn other() {}");
    project.write("src/b.rs", "fn main_b() {}\n");
    project.write("src/deep/c.md", "main\n");
    project.write("target/d.rs", "main\n");
    project.write(".gitignore", "# main\n/out/deep/\nlogs\n*.md\n");
    project.write("out/deep/main.md", "main\n");
    project.write("src/logs/main.md", "main\n");
    project.write("picture.png", b"main \xff\xfe\n");
    project.write("zeros.txt", b"main\0\n");
    project.write("large.txt", "main\n".repeat(300_000));
    project.write("src[1]/e.rs", format!("{}main\n", "x".repeat(300)));
    let long = format!("src[1]/e.rs:1:{}...", "x".repeat(300));
    for (arguments, matches, searched) in [
        (
            json!({"pattern": "main"}),
            json!([
                ".gitignore:1:# main",
                "a.rs:1:fn main() {}",
                "src/b.rs:1:fn main_b() {}",
                "src/deep/c.md:1:main",
                long
            ]),
            6,
        ),
        (json!({"pattern": "(?i)^// main$"}), json!(["a.rs:2:// Main"]), 6),
        (
            json!({"pattern": "^fn \\w+\\(\\)", "path": "a.rs"}),
            json!(["a.rs:1:fn main() {}", "a.rs:3:fn other() {}"]),
            1,
        ),
        (json!({"pattern": "\\Amain\\z", "path": "src"}), json!(["src/deep/c.md:1:main"]), 2),
        (json!({"pattern": "main", "glob": "src/*.rs"}), json!(["src/b.rs:1:fn main_b() {}"]), 1),
        (json!({"pattern": "main", "glob": "**/*.md"}), json!(["src/deep/c.md:1:main"]), 1),
        (json!({"pattern": "main", "path": "src/", "glob": "?.rs"}), json!(["src/b.rs:1:fn main_b() {}"]), 1),
        (json!({"pattern": "main", "path": "src/logs"}), json!(["src/logs/main.md:1:main"]), 1),
        (json!({"pattern": "main", "path": "target"}), json!(["target/d.rs:1:main"]), 1),
        (json!({"pattern": "nowhere"}), json!([]), 6),
    ] {
        assert_eq!(
            project.call("search_files", arguments.clone()).result(),
            json!({"matches": matches, "files_searched": searched}),
            "{arguments}"
        );
    }
    assert_eq!(
        project.call("search_files", json!({"pattern": "main", "path": "src", "max_matches": 1})).result(),
        json!({"matches": ["src/b.rs:1:fn main_b() {}"], "files_searched": 2, "note": "there are more than 1 matches"})
    );
}

/// A dot at the beginning of a name hides what is in a workspace from none of the tools, where it is the workspace's own
/// name or that of a folder above.
#[test]
fn a_workspace_whose_name_begins_with_a_dot() {
    let above = tempfile::Builder::new().prefix(".above").tempdir().unwrap();
    for name in ["plain", ".dotted"] {
        let project = Project::below(above.path(), name);
        project.write("src/a.txt", "the needle\n");
        let result = |tool: &str, arguments: Value| project.call(tool, arguments).result();
        let found = json!({"matches": ["src/a.txt:1:the needle"], "files_searched": 1});
        assert_eq!(result("search_files", json!({"pattern": "needle"})), found, "{name}");
        let listed = json!({"path": ".", "entries": [".harness/", "src/", "src/a.txt"]});
        assert_eq!(result("list_files", json!({"path": ".", "depth": 2})), listed, "{name}");
        assert_eq!(result("read_file", json!({"path": "src/a.txt"}))["text"], "the needle", "{name}");
        let whole = project.at("src/a.txt").canonicalize().unwrap();
        assert_eq!(result("word_count", json!({"path": whole}))["words"], 2, "{name}");
    }
}

#[test]
fn search_files_says_what_is_wrong() {
    let project = Project::new();
    project.write("large.txt", "x".repeat(1_048_577));
    project.write("latin.csv", b"caf\xe9\n");
    for (arguments, error) in [
        (json!({"pattern": ""}), "pattern must not be empty"),
        (json!({"pattern": "a", "max_matches": 0}), "max_matches must be a whole number from 1 to 1000"),
        (json!({"pattern": "a", "path": "large.txt"}), "`large.txt` has 1048577 bytes, more than 1048576"),
    ] {
        assert_eq!(project.call("search_files", arguments).result(), json!({"error": error}));
    }
    assert_eq!(
        project.call("search_files", json!({"pattern": "a"})).failed(),
        "fs.read: `latin.csv` is not UTF-8 text"
    );
    let message = project.call("search_files", json!({"pattern": "(", "glob": "nothing"})).failed();
    assert!(message.starts_with("re.search: invalid pattern: "), "{message}");
}

#[test]
fn word_count_counts() {
    let project = Project::new();
    project.write("a.txt", "h\u{e9}llo  world\n\nlast");
    project.write("empty.txt", "");
    assert_eq!(
        project.call("word_count", json!({"path": "a.txt"})).result(),
        json!({"path": "a.txt", "lines": 3, "words": 3, "characters": 18, "bytes": 19})
    );
    assert_eq!(
        project.call("word_count", json!({"path": "empty.txt"})).result(),
        json!({"path": "empty.txt", "lines": 0, "words": 0, "characters": 0, "bytes": 0})
    );
}
