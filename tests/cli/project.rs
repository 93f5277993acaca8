//! A project in a temporary folder, and the binary that is run on it.

use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Once;

use serde_json::{Value as Json, json};
use tempfile::TempDir;

/// The binary under test.
pub(crate) const HARNESS: &str = env!("CARGO_BIN_EXE_harness");

/// A tool that always works, to see that a project still does.
pub(crate) const FINE: &str = "def run(args):\n    return 'fine'\n";

/// A folder with a `.harness` that a test fills.
pub(crate) struct Project {
    folder: TempDir,
}

/// What these tests start ends by SIGHUP, also where they were started with `nohup`.
#[expect(unsafe_code, reason = "there is no function for it")]
fn hears_a_hang_up() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: it takes two numbers, and there is no handler.
        let _before = unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) };
    });
}

impl Project {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(".harness")).unwrap();
        Self { folder }
    }

    /// A project with one tool, `it`, that takes anything.
    pub(crate) fn with_script(script: &str) -> Self {
        Self::new().tool("it", "", script)
    }

    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    /// Writes a file, with the folders above it.
    pub(crate) fn file(self, path: &str, text: &str) -> Self {
        self.write(path, text);
        self
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A tool: lines of front matter, then the script, which begins two lines and two columns into the file when
    /// there are none.
    pub(crate) fn tool(self, name: &str, front: &str, script: &str) -> Self {
        let script: String = script.lines().map(|line| format!("  {line}\n")).collect();
        self.file(
            &format!(".harness/tools/{name}.md"),
            &format!("---\n{front}script: |\n{script}---\n# {name}\n\nA tool.\n"),
        )
    }

    /// The policy, as lines of YAML.
    pub(crate) fn policy(self, yaml: &str) -> Self {
        self.file(".harness/harness.md", &format!("---\n{yaml}---\n"))
    }

    /// Its `harness.md`, changed.
    pub(crate) fn policy_of(self, change: impl Fn(&str) -> String) -> Self {
        let text = std::fs::read_to_string(self.path(".harness/harness.md")).unwrap();
        self.file(".harness/harness.md", &change(&text))
    }

    /// The binary in the project's folder, in an environment that has the same things on every machine.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        hears_a_hang_up();
        let mut command = Command::new(HARNESS);
        command
            .args(arguments)
            .current_dir(self.root())
            .env("COLUMNS", "100")
            .env("HARNESS_TEST_VARIABLE", "a value")
            .env_remove("NO_COLOR")
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        self.ran(&self.command(arguments).output().unwrap())
    }

    /// The same, again where a script was not loaded before its deadline: that depends on how busy the machine is.
    pub(crate) fn run_loaded(&self, arguments: &[&str]) -> Ran {
        let is_late = |ran: &Ran| ran.err.contains("was ended while its script was loaded");
        (0..100).map(|_| self.run(arguments)).find(|ran| !is_late(ran)).unwrap_or_else(|| self.run(arguments))
    }

    pub(crate) fn run_with_input(&self, arguments: &[&str], input: &str) -> Ran {
        let mut command = self.command(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        self.ran(&child.wait_with_output().unwrap())
    }

    /// Runs a shell line; `$HARNESS` in it is the binary.
    pub(crate) fn shell(&self, line: &str) -> Ran {
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(self.root()).env("HARNESS", HARNESS).env_remove("NO_COLOR");
        self.ran(&command.stdin(Stdio::null()).output().unwrap())
    }

    /// Runs a shell line with a terminal for all three streams; what a person would see is standard output.
    pub(crate) fn on_terminal(&self, line: &str) -> Ran {
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--command", line, "/dev/null"]).current_dir(self.root());
        command.env("HARNESS", HARNESS).env("TERM", "xterm-256color").env_remove("NO_COLOR");
        self.ran(&command.stdin(Stdio::null()).output().unwrap())
    }

    pub(crate) fn ran(&self, output: &Output) -> Ran {
        let root = self.root().canonicalize().unwrap();
        let text =
            |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap().replace(root.to_str().unwrap(), "[project]");
        Ran { code: output.status.code().unwrap(), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

/// What came of a run. Its text is all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// Standard output as JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Json {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self}"))
    }

    /// The report of `call --json`, without what differs from run to run: the usage is checked here.
    #[track_caller]
    pub(crate) fn report(&self) -> Json {
        let mut report = self.json();
        let mut usage = report["usage"].take();
        let keys: Vec<&String> = usage.as_object().unwrap().keys().collect();
        let counted = ["host_calls", "bytes_in", "bytes_out", "bytes_copied", "files", "peak_host_memory", "tier"];
        assert_eq!(keys, [&["fuel", "wall_us", "loading_us", "peak_memory"][..], &counted].concat());
        assert!(usage["tier"].take().is_string(), "{usage}");
        assert!(usage.as_object().unwrap().values().all(|value| value.is_u64() || value.is_null()), "{usage}");
        assert!(usage["fuel"].as_u64().unwrap() > 0 && usage["wall_us"].as_u64().unwrap() > 0, "{usage}");
        report["usage"] = json!("looked at");
        report
    }

    /// That the run ended with this code and this text in what it said, of which a part is enough.
    #[track_caller]
    pub(crate) fn says(&self, code: i32, part: &str) {
        assert!(self.code == code && self.err.contains(part), "wanted {code} and `{part}`, got {self}");
    }

    /// That the run was a success that printed nothing.
    #[track_caller]
    pub(crate) fn gives_nothing(&self) {
        assert!(self.code == 0 && self.out.is_empty() && self.err.is_empty(), "wanted nothing, got {self}");
    }

    /// That the run was a success that printed just this.
    #[track_caller]
    pub(crate) fn gives(&self, out: &str) {
        let wanted = Self { code: 0, out: format!("{out}\n"), err: String::new() };
        assert!(*self == wanted, "wanted {wanted}, got {self}");
    }
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit {}\n--- stdout\n{}--- stderr\n{}", self.code, self.out, self.err)
    }
}
