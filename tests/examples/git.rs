//! `git_command` as it is meant to be used.

use serde_json::{Value, json};

use super::support::Project;

/// What the tool needs.
pub(crate) const GRANTED: &str = "sandbox: { exec: { allow: [\"git *\"] } }";

/// A repository with three commits, and the names of these.
fn repository() -> (Project, [String; 3]) {
    let project = Project::with_policy(GRANTED);
    project.git(&["init", "--quiet", "--initial-branch", "main"]);
    project.write("a.txt", "one\ntwo\n");
    project.write(".gitignore", ".harness\nhome\n");
    let first = project.commit("first");
    project.write("a.txt", "one\n2\n");
    project.write("src/b.txt", "b\n");
    let second = project.commit("second");
    let third = project.commit("third, empty");
    (project, [first, second, third])
}

fn output(project: &Project, subcommand: &str, args: &[&str]) -> String {
    let result = project.call("git_command", json!({"subcommand": subcommand, "args": args})).result();
    let output = result["output"].as_str().unwrap_or_default().to_owned();
    assert_eq!(result, json!({"output": output, "truncated": false}), "{subcommand} {args:?}");
    output
}

fn error(project: &Project, subcommand: &str, args: Value) -> Value {
    project.call("git_command", json!({"subcommand": subcommand, "args": args})).result()
}

#[test]
fn status_and_diff() {
    let (project, [first, second, _]) = repository();
    assert_eq!(output(&project, "status", &["--short", "--branch"]), "## main\n");
    project.write("a.txt", "one\n2\nthree\n");
    project.write("new.txt", "");
    assert_eq!(output(&project, "status", &["-s"]), " M a.txt\n?? new.txt\n");
    assert_eq!(output(&project, "status", &["-s", "-uno"]), " M a.txt\n");
    assert_eq!(output(&project, "status", &["-s", "--", "src"]), "");
    let patch = "@@ -1,2 +1,3 @@\n one\n 2\n+three\n";
    let diff = output(&project, "diff", &[]);
    assert!(diff.starts_with("diff --git a/a.txt b/a.txt\n") && diff.ends_with(patch), "{diff}");
    assert_eq!(output(&project, "diff", &["--cached"]), "");
    assert_eq!(output(&project, "diff", &["--stat", &first, &second, "--", "src"]).lines().count(), 2);
    for args in [&["--name-status", "HEAD~2..HEAD~1"][..], &["--name-status", "HEAD~2", "HEAD~1"]] {
        assert_eq!(output(&project, "diff", args), "M\ta.txt\nA\tsrc/b.txt\n");
    }
    assert_eq!(output(&project, "diff", &["--name-only", "HEAD~2", "main", "src"]), "src/b.txt\n");
}

#[test]
fn log_and_show() {
    let (project, [first, second, third]) = repository();
    let line = |name: &String, message: &str| format!("{} {message}\n", &name[..7]);
    let all = line(&third, "third, empty") + &line(&second, "second") + &line(&first, "first");
    assert_eq!(output(&project, "log", &["--oneline"]), all);
    assert_eq!(output(&project, "log", &["--oneline", "-n", "1"]), line(&third, "third, empty"));
    assert_eq!(
        output(&project, "log", &["--oneline", "-2", "--reverse", "HEAD~1"]),
        line(&first, "first") + &line(&second, "second")
    );
    assert_eq!(output(&project, "log", &["--oneline", "HEAD~1..", "^main~2"]), line(&third, "third, empty"));
    assert_eq!(output(&project, "log", &["--oneline", "--", "src/b.txt"]), line(&second, "second"));
    assert_eq!(output(&project, "log", &["--oneline", "--author=Nobody"]), "");
    assert_eq!(
        output(&project, "log", &["--oneline", "--name-only"]),
        format!(
            "{}{}a.txt\nsrc/b.txt\n{}.gitignore\na.txt\n",
            line(&third, "third, empty"),
            line(&second, "second"),
            line(&first, "first")
        )
    );
    assert_eq!(
        output(&project, "show", &["--date=iso", "-U0", &second[..10], "--", "a.txt"]),
        format!(
            "commit {second}\nAuthor: Ada <ada@example.com>\nDate:   2001-02-03 04:05:06 +0000\n\n    second\n\n\
             diff --git a/a.txt b/a.txt\nindex {}..{} 100644\n--- a/a.txt\n+++ b/a.txt\n@@ -2 +2 @@ one\n-two\n+2\n",
            project.git(&["rev-parse", "--short", &format!("{first}:a.txt")]),
            project.git(&["rev-parse", "--short", &format!("{second}:a.txt")]),
        )
    );
    let shown = output(&project, "show", &["--stat"]);
    assert!(shown.starts_with(&format!("commit {third}\n")), "{shown}");
}

#[test]
fn blame() {
    let (project, [first, second, _]) = repository();
    let line = |name: &str, number: u32, text: &str| format!("{name} {number}) {text}\n");
    let short = |name: &String| name[..8].to_owned();
    let root = format!("^{}", &first[..7]);
    assert_eq!(output(&project, "blame", &["-s", "a.txt"]), line(&root, 1, "one") + &line(&short(&second), 2, "2"));
    assert_eq!(output(&project, "blame", &["-s", "-L", "2,2", "HEAD~2", "--", "a.txt"]), line(&root, 2, "two"));
    assert_eq!(error(&project, "blame", json!([])), json!({"error": "blame takes one path, and one revision at most"}));
}

#[test]
fn long_output_is_cut() {
    let (project, _) = repository();
    project.write("a.txt", "line\n".repeat(10_000));
    let result = project.call("git_command", json!({"subcommand": "diff"})).result();
    assert_eq!((result["output"].as_str().unwrap().len(), &result["truncated"]), (30_000, &json!(true)));
}

#[test]
fn what_is_wrong_is_said() {
    let (project, _) = repository();
    for (subcommand, args, told) in [
        ("commit", json!([]), "subcommand must be one of status, diff, log, show, blame"),
        ("log", json!([1]), "each of args must be a string that is not empty"),
        ("log", json!(["-n"]), "a number is missing after `-n`"),
        ("log", json!(["nowhere"]), "`nowhere` is neither a commit nor a file that is there and may be read"),
        ("diff", json!(["--", "gone.txt"]), "`gone.txt` is not a file that is there and may be read"),
    ] {
        assert_eq!(error(&project, subcommand, args), json!({"error": told}));
    }
    let bare = Project::with_policy(GRANTED);
    let result = error(&bare, "diff", json!([]));
    let told = result["error"].as_str().unwrap_or_default();
    assert!(told.starts_with("there is no git repository here: "), "{result}");
}

#[test]
fn without_a_grant_git_is_not_run() {
    let project = Project::new();
    project.git(&["init", "--quiet"]);
    let (message, _) = project.call("git_command", json!({"subcommand": "status"})).denied();
    assert!(message.starts_with("exec.run: the command `git --no-pager "), "{message}");
    project.write(".harness/harness.md", format!("---\n{GRANTED}\n---\n"));
    project.call("git_command", json!({"subcommand": "status"})).result();
}
