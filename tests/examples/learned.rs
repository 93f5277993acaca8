//! What `harness policy learn` says that the tools need, under the policy and the hooks of this repository.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::fetch::Server;
use super::support::{BINARY, Project, REPOSITORY};

/// All that lies in the workspace before each call.
const FILES: [(&str, &str); 4] =
    [("README.md", "# Read\nme\n"), ("src/a.rs", "// TODO: more\nfn a() {}\n"), ("src/b.rs", ""), ("out/x", "x\n")];

/// A project with all that is in `.harness` of the repository.
struct Shipped {
    project: Project,
    /// Two policies to compare, out of the tools' sight.
    beside: TempDir,
    tool: &'static str,
    arguments: Value,
}

impl Shipped {
    fn new(tool: &'static str, arguments: Value, server: &Server) -> Self {
        let project = Project::new();
        copy(&Path::new(REPOSITORY).join(".harness"), &project.at(".harness"));
        let policy = project.read(".harness/harness.md").replace("127.0.0.1:8080", &server.address);
        project.write(".harness/harness.md", policy);
        let shipped = Self { project, beside: tempfile::tempdir().unwrap(), tool, arguments };
        shipped.fill();
        shipped.project.git(&["init", "--quiet"]);
        shipped.project.commit("first");
        shipped
    }

    fn fill(&self) {
        FILES.iter().for_each(|(path, text)| self.project.write(path, text));
    }

    fn run(&self, before: &[&str], after: &[&str]) -> Output {
        self.fill();
        let mut command = Command::new(BINARY);
        command.arg("-C").arg(self.project.at(".")).args(before).args(["call", self.tool]).args(after);
        command.args(["--args", &self.arguments.to_string()]).env("HOME", self.project.at("home"));
        command.output().unwrap()
    }

    /// How the call goes under a policy: what comes of it, what went through calls of the host on the way, and what
    /// the hooks said.
    fn under(&self, policy: &str) -> (Option<i32>, Value) {
        self.project.write(".harness/harness.md", format!("---\n{policy}---\n"));
        let output = self.run(&[], &["--json"]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let hooks: Vec<Value> = report["hooks"].as_array().into_iter().flatten().cloned().collect();
        let hooks = hooks.iter().map(|hook| json!([hook["name"], hook["decision"], hook["reason"], hook["warnings"]]));
        let usage = ["host_calls", "bytes_in", "bytes_out"].map(|key| &report["usage"][key]);
        let went = json!([report["outcome"], report["result"], usage, hooks.collect::<Vec<_>>()]);
        (output.status.code(), went)
    }

    /// Whether the second policy allows what the first does not.
    fn is_wider(&self, least: &str, less: &str) -> bool {
        let file = |name: &str, policy: &str| {
            let path = self.beside.path().join(name);
            fs::write(&path, format!("---\n{policy}---\n")).unwrap();
            path
        };
        let mut diff = Command::new(BINARY);
        diff.args(["policy", "diff"]).arg(file("least.md", least)).arg(file("less.md", less));
        diff.output().unwrap().status.code() == Some(1)
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(from, to).unwrap();
        }
    }
}

/// Under what was learned a call goes as it did; and without any one line it does not, or the line had closed what is open
/// by default.
#[test]
fn every_line_that_a_tool_is_said_to_need_is_needed() {
    let server = Server::start();
    let url = server.url("/page");
    for (tool, arguments, how) in [
        ("edit_file", json!({ "path": "src/a.rs", "old": "TODO", "new": "DONE" }), None),
        ("fetch_url", json!({ "url": url }), None),
        ("git_command", json!({ "subcommand": "log", "args": ["-n1"] }), None),
        ("list_files", json!({ "path": "src" }), None),
        ("read_file", json!({ "path": "README.md" }), None),
        ("run_command", json!({ "command": "wc -l < README.md; sort src/a.rs" }), None),
        ("run_command", json!({ "command": "date > out/y; wc -c < out/y" }), Some("--again")),
        ("search_files", json!({ "pattern": "fn" }), None),
        ("todo_scan", json!({}), None),
        ("word_count", json!({ "path": "README.md" }), None),
        ("write_file", json!({ "path": "out/new/z", "content": "z" }), None),
    ] {
        let shipped = Shipped::new(tool, arguments, &server);
        let before: Vec<&str> = ["policy", "learn"].into_iter().chain(how).chain(["--"]).collect();
        let learned = shipped.run(&before, &[]);
        let told = String::from_utf8(learned.stderr).unwrap();
        assert_eq!((learned.status.code(), told.contains("not tried")), (Some(0), false), "{tool}: {told}");
        let policy = String::from_utf8(learned.stdout).unwrap();
        let whole = shipped.under(&policy);
        assert_eq!((whole.0, &whole.1[0]), (Some(0), &json!("completed")), "{tool}: {policy}");
        for number in 0..policy.lines().count() {
            let lines = policy.lines().enumerate().filter(|(n, _)| *n != number);
            let less: String = lines.map(|(_, line)| format!("{line}\n")).collect();
            let needed = shipped.under(&less) != whole || shipped.is_wider(&policy, &less);
            assert!(needed, "{tool} does not need line {number} of\n{policy}");
        }
    }
}
