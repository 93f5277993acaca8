//! A project in a folder of its own, with the tools of this repository, and what calling one of them gave.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

/// The command under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_harness");

/// The folder that holds `.harness`.
pub(crate) const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The names of all tools of the repository, sorted.
pub(crate) fn tool_names() -> Vec<String> {
    let files = fs::read_dir(Path::new(REPOSITORY).join(".harness/tools")).unwrap();
    let mut names: Vec<String> =
        files.filter_map(|file| Some(file.unwrap().file_name().to_str()?.strip_suffix(".md")?.to_owned())).collect();
    names.sort();
    names
}

/// A project: the tools of the repository, under a policy of the test.
#[derive(Debug)]
pub(crate) struct Project {
    folder: TempDir,
}

/// The tool with time for a busy machine: how long git takes there is no part of what it does.
fn patient(tool: &str) -> String {
    let patient = tool.replace("args, 20000)", "args, 600000)").replace("timeout_ms: 30000\n", "timeout_ms: 600000\n");
    assert_eq!(patient.len(), tool.len() + 2, "the tool has two times");
    patient
}

impl Project {
    /// Without a policy: the workspace, and no host, command or variable.
    pub(crate) fn new() -> Self {
        Self::within(tempfile::tempdir().unwrap())
    }

    /// In a folder whose name begins so, below another one.
    pub(crate) fn below(above: &Path, prefix: &str) -> Self {
        Self::within(tempfile::Builder::new().prefix(prefix).tempdir_in(above).unwrap())
    }

    fn within(folder: TempDir) -> Self {
        let project = Self { folder };
        for name in tool_names() {
            let file = format!(".harness/tools/{name}.md");
            let text = fs::read_to_string(Path::new(REPOSITORY).join(&file)).unwrap();
            project.write(&file, if name == "git_command" { patient(&text) } else { text });
        }
        project
    }

    /// With this front matter of `harness.md`.
    pub(crate) fn with_policy(policy: &str) -> Self {
        let project = Self::new();
        project.write(".harness/harness.md", format!("---\n{policy}\n---\n"));
        project
    }

    /// Where something of the project is.
    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// Writes a file, and makes the folders above it.
    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// The content of a file.
    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap()
    }

    /// Calls a tool.
    pub(crate) fn call(&self, tool: &str, arguments: Value) -> Called {
        let output = Command::new(BINARY)
            .arg("-C")
            .arg(self.folder.path())
            .args(["call", tool, "--json", "--args", &arguments.to_string()])
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.folder.path().join("home"))
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| Value::from(told.as_str()));
        Called { exit: output.status.code(), report, told }
    }

    /// Runs git to prepare a repository, the same on every machine, and returns what it printed.
    pub(crate) fn git(&self, args: &[&str]) -> String {
        let mut command = Command::new("git");
        command.current_dir(self.folder.path()).args(args).env("GIT_CONFIG_GLOBAL", "/dev/null");
        command.env("GIT_CONFIG_NOSYSTEM", "1");
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "Ada").env(format!("GIT_{who}_EMAIL"), "ada@example.com");
            command.env(format!("GIT_{who}_DATE"), "2001-02-03T04:05:06+00:00");
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// Commits everything that is there but `.harness`, and returns the name of the commit.
    pub(crate) fn commit(&self, message: &str) -> String {
        self.git(&["add", "--all", "--force", "--", ".", ":(exclude).harness", ":(exclude)home"]);
        self.git(&["commit", "--quiet", "--allow-empty", "--message", message]);
        self.git(&["rev-parse", "HEAD"])
    }
}

/// What a call gave.
#[derive(Debug)]
pub(crate) struct Called {
    exit: Option<i32>,
    report: Value,
    told: String,
}

impl Called {
    /// The result of a call that was completed.
    pub(crate) fn result(self) -> Value {
        assert_eq!((self.exit, &self.report["outcome"]), (Some(0), &Value::from("completed")), "{}", self.told);
        self.report["result"].clone()
    }

    /// Message and hint of a call that was denied.
    pub(crate) fn denied(self) -> (String, String) {
        assert_eq!((self.exit, &self.report["outcome"]), (Some(3), &Value::from("denied")), "{self:?}");
        assert_eq!(self.report["result"], Value::Null);
        let text = |key: &str| self.report["error"][key].as_str().unwrap().to_owned();
        (text("message"), text("hint"))
    }

    /// The message of a call whose script failed.
    pub(crate) fn failed(self) -> String {
        assert_eq!((self.exit, &self.report["outcome"]), (Some(1), &Value::from("failed")), "{self:?}");
        assert_eq!(self.report["result"], Value::Null);
        self.report["error"]["message"].as_str().unwrap().to_owned()
    }
}
