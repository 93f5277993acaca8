//! `write_file` and `edit_file`.

use std::os::unix::fs::symlink;

use serde_json::json;

use super::support::Project;

#[test]
fn write_file_makes_and_replaces() {
    let project = Project::new();
    assert_eq!(
        project.call("write_file", json!({"path": "new/deep/a.txt", "content": "h\u{e9}\n"})).result(),
        json!({"path": "new/deep/a.txt", "created": true, "bytes": 4})
    );
    assert_eq!(project.read("new/deep/a.txt"), "h\u{e9}\n");
    assert_eq!(
        project.call("write_file", json!({"path": "new/deep/a.txt", "content": ""})).result(),
        json!({"path": "new/deep/a.txt", "created": false, "bytes": 0})
    );
    assert_eq!(project.read("new/deep/a.txt"), "");
    assert_eq!(
        project.call("write_file", json!({"path": "new", "content": "x"})).result(),
        json!({"error": "`new` is a folder"})
    );
}

#[test]
fn edit_file_replaces_what_is_unique() {
    let project = Project::new();
    project.write("a.txt", "one\ntwo\nthree\ntwo\n");
    for (arguments, error) in [
        (json!({"path": "a.txt", "old": "", "new": "x"}), "old must not be empty; write_file makes a new file"),
        (json!({"path": "a.txt", "old": "one", "new": "one"}), "old and new are the same"),
        (
            json!({"path": "a.txt", "old": "four", "new": "x"}),
            "old is not in `a.txt`: read the file and copy the text exactly",
        ),
        (
            json!({"path": "a.txt", "old": "two", "new": "x"}),
            "old is in `a.txt` 2 times: make it longer until it is unique, or set replace_all",
        ),
    ] {
        assert_eq!(project.call("edit_file", arguments).result(), json!({"error": error}));
        assert_eq!(project.read("a.txt"), "one\ntwo\nthree\ntwo\n");
    }
    assert_eq!(
        project.call("edit_file", json!({"path": "a.txt", "old": "two\nthree", "new": "2\n3"})).result(),
        json!({
            "path": "a.txt",
            "replacements": 1,
            "diff": "--- a/a.txt\n+++ b/a.txt\n@@ -1,4 +1,4 @@\n one\n-two\n-three\n+2\n+3\n two\n",
        })
    );
    assert_eq!(project.read("a.txt"), "one\n2\n3\ntwo\n");
    assert_eq!(
        project.call("edit_file", json!({"path": "a.txt", "old": "o", "new": "", "replace_all": true})).result(),
        json!({
            "path": "a.txt",
            "replacements": 2,
            "diff": "--- a/a.txt\n+++ b/a.txt\n@@ -1,4 +1,4 @@\n-one\n+ne\n 2\n 3\n-two\n+tw\n",
        })
    );
    assert_eq!(project.read("a.txt"), "ne\n2\n3\ntw\n");
}

#[test]
fn what_may_not_be_written_stays_as_it_is() {
    let project = Project::with_policy("sandbox: { fs: { read: [\".\"], write: [src, .harness, .git, .env] } }");
    let files = [".env", ".harness/tools/x.txt", ".git/config", "agents/a.md", "docs/a.txt", "src/id_rsa"];
    for path in files {
        project.write(path, "old\n");
    }
    project.write("src/a.txt", "old\n");
    symlink("../docs/a.txt", project.at("src/link.txt")).unwrap();
    for path in files.into_iter().chain(["src/link.txt"]) {
        for (tool, arguments) in [
            ("write_file", json!({"path": path, "content": "new\n"})),
            ("edit_file", json!({"path": path, "old": "old", "new": "new"})),
        ] {
            project.call(tool, arguments).denied();
            assert_eq!(project.read(path), "old\n", "{tool} {path}");
        }
    }
    project.call("write_file", json!({"path": "../escaped.txt", "content": "new\n"})).denied();
    assert!(!project.at("../escaped.txt").exists());
    assert_eq!(
        project.call("write_file", json!({"path": "docs/a.txt", "content": "new\n"})).denied(),
        (
            "fs.write: writing `docs/a.txt` is not granted: nothing in `sandbox.fs.write` in `.harness/harness.md:2:38` \
             covers it"
                .to_owned(),
            "add `docs/a.txt` to `sandbox.fs.write` in `.harness/harness.md:2:38`".to_owned()
        )
    );
    project.call("edit_file", json!({"path": "src/a.txt", "old": "old", "new": "new"})).result();
    assert_eq!(project.read("src/a.txt"), "new\n");
}
