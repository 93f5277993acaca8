//! A host with two projects: folders beside or within each other, calls in them, and what may not be seen or changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use harness_audit::{FOLDER, lines, verify};
use harness_capability::system::System;
use harness_dispatch::{Call, CallError, CallReport, Host, HostOptions, OpenError, Options, Project, Run};
use harness_registry::Machine;
use harness_sandbox::outcome::Outcome;
use serde_json::{Value as Json, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::process::CANARY;
use crate::world::folder;

/// The folder of the victim's project, by a name that is in no other text.
pub(super) const VICTIM: &str = "victim-4f1d";
/// That of the attacker's.
pub(super) const ATTACKER: &str = "attacker-90ac";

/// As much as an operator can grant a project that is of this machine and of nobody else's.
pub(super) const WIDE: &str = "meta: { enabled: true }\nsandbox: { async_tools: true, fs: { read: [.], write: [.] }, exec: { allow: [sh, cat, ls, echo] } }";

/// One host, and a folder for its projects.
pub(super) struct House {
    pub(super) base: PathBuf,
    pub(super) host: Host,
    _own: TempDir,
}

impl House {
    /// With room for eight calls.
    pub(super) fn new() -> Self {
        Self::with(HostOptions::default().instances(8))
    }

    pub(super) fn with(options: HostOptions) -> Self {
        let own = folder();
        Self { base: own.path().canonicalize().unwrap(), host: Host::new(options).unwrap(), _own: own }
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.base.join(name)
    }

    /// A project in a folder, of which the policy is written.
    pub(super) fn lay(&self, name: &str, policy: &str) -> Laid<'_> {
        let laid = Laid { house: self, root: self.at(name) };
        laid.file(".harness/harness.md", &format!("---\n{policy}\n---\n"))
    }

    /// The attacker's project, with as much as it can be granted.
    pub(super) fn attacker(&self) -> Laid<'_> {
        self.lay(ATTACKER, WIDE).file("own.txt", "own")
    }

    /// The victim's project: a secret in a file, and a tool that reads it.
    pub(super) fn victim(&self) -> Laid<'_> {
        let laid = self.lay(VICTIM, WIDE).file("secret.txt", CANARY).file("docs/plain.txt", "plain");
        laid.tool("read_secret", "return fs.read('secret.txt')")
    }
}

/// A project that is being written.
pub(super) struct Laid<'a> {
    house: &'a House,
    pub(super) root: PathBuf,
}

impl Laid<'_> {
    pub(super) fn file(self, path: &str, text: &str) -> Self {
        put(&self.root.join(path), text);
        self
    }

    /// A tool by the lines of its `run`.
    pub(super) fn tool(self, name: &str, body: &str) -> Self {
        self.fronted(name, "", body)
    }

    /// The same with front matter.
    pub(super) fn fronted(self, name: &str, front: &str, body: &str) -> Self {
        let path = format!(".harness/tools/{name}.md");
        self.file(&path, &artifact(front, "run(args)", body))
    }

    /// One tool for each expression: `t0`, `t1` and on.
    pub(super) fn each(self, expressions: &[String]) -> Self {
        let tools = expressions.iter().enumerate();
        tools.fold(self, |laid, (n, expression)| laid.tool(&format!("t{n}"), &format!("return {expression}")))
    }

    /// A hook by the lines of its `handle`.
    pub(super) fn hook(self, name: &str, front: &str, body: &str) -> Self {
        let path = format!(".harness/hooks/{name}.md");
        self.file(&path, &artifact(front, "handle(event, payload)", body))
    }

    pub(super) fn open(self) -> Tenant {
        self.open_as(|options| options)
    }

    pub(super) fn open_as(self, change: impl FnOnce(Options) -> Options) -> Tenant {
        let options = change(Options {
            machine: Machine::None,
            system: System::default().with_environment(),
            ..Options::default()
        });
        let project = self.house.host.open(&self.root, options).unwrap_or_else(|error| panic!("{}", why(&error)));
        Tenant { root: self.root, project: Arc::new(project), run: Run::new() }
    }
}

/// Why a project cannot be opened or read again.
pub(super) fn why(error: &OpenError) -> String {
    match error {
        OpenError::Artifacts(registry) => {
            registry.diagnostics().iter().map(|one| one.message.as_str()).collect::<Vec<_>>().join("; ")
        }
        other => other.to_string(),
    }
}

pub(super) fn artifact(front: &str, head: &str, body: &str) -> String {
    let body: String = body.lines().map(|line| format!("      {line}\n")).collect();
    let front = if front.is_empty() { String::new() } else { format!("{}\n", front.trim_end()) };
    format!("---\n{front}script: |\n  def {head}:\n{body}---\n# it\n")
}

pub(super) fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// An open project and a run of it.
pub(super) struct Tenant {
    pub(super) root: PathBuf,
    pub(super) project: Arc<Project>,
    pub(super) run: Arc<Run>,
}

impl Tenant {
    pub(super) fn call(&self, runtime: &Runtime, tool: &str) -> Seen {
        self.call_with(runtime, tool, json!({}))
    }

    pub(super) fn call_with(&self, runtime: &Runtime, tool: &str, arguments: Json) -> Seen {
        Seen::of(runtime.block_on(self.project.call(tool, arguments, &self.run)))
    }

    /// Calls as many of the tools of [`Laid::each`].
    pub(super) fn all(&self, runtime: &Runtime, count: usize) -> Vec<Seen> {
        (0..count).map(|n| self.call(runtime, &format!("t{n}"))).collect()
    }

    /// The same project, in another run.
    pub(super) fn anew(&self) -> Self {
        self.in_run(Run::new())
    }

    pub(super) fn in_run(&self, run: Arc<Run>) -> Self {
        Self { root: self.root.clone(), project: self.project.clone(), run }
    }

    /// A call that continues by itself until it ends or is aborted.
    pub(super) fn begin(&self, runtime: &Runtime, tool: &str) -> tokio::task::JoinHandle<Seen> {
        self.begin_with(runtime, tool, json!({}))
    }

    pub(super) fn begin_with(&self, runtime: &Runtime, tool: &str, arguments: Json) -> tokio::task::JoinHandle<Seen> {
        let (project, run, name) = (self.project.clone(), self.run.clone(), tool.to_owned());
        runtime.spawn(async move { Seen::of(project.make(Call { id: None, name, arguments }, &run).await) })
    }

    /// The entries of the audit log, which is whole.
    pub(super) fn entries(&self) -> Result<Vec<Json>, String> {
        entries(&self.root)
    }

    /// The tools that the entries are about, in order.
    pub(super) fn logged(&self) -> Result<Vec<String>, String> {
        self.project.audited()?;
        let entries = self.entries()?;
        Ok(entries.iter().map(|entry| entry["tool"].as_str().unwrap_or_default().to_owned()).collect())
    }
}

pub(super) fn entries(root: &Path) -> Result<Vec<Json>, String> {
    let folder = root.join(FOLDER);
    let count = verify(&folder).map_err(|broken| broken.to_string())?.lines;
    let lines = lines(&folder).map_err(|broken| broken.to_string())?;
    same(lines.len() as u64, count)?;
    Ok(lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// How a call ended, and all that its caller got.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// `completed`, `failed`, `denied`, `limited`, `busy`, `fault`; `rejected` for a call that was not made.
    pub(super) word: &'static str,
    /// What its caller gets.
    pub(super) says: String,
    /// All that is known of it.
    pub(super) shown: String,
    pub(super) report: Option<Box<CallReport>>,
}

impl Seen {
    pub(super) fn of(called: Result<CallReport, CallError>) -> Self {
        let shown = format!("{called:?}");
        match called {
            Ok(report) => {
                let word = match report.outcome {
                    Outcome::Completed(_) => "completed",
                    Outcome::Failed(_) => "failed",
                    Outcome::Denied { .. } => "denied",
                    Outcome::Limited(_) => "limited",
                    Outcome::Busy(_) => "busy",
                    Outcome::Fault(_) => "fault",
                };
                Self { word, says: report.content.clone(), shown, report: Some(Box::new(report)) }
            }
            Err(error) => Self { word: "rejected", says: error.to_string(), shown, report: None },
        }
    }

    pub(super) fn ended(&self) -> (&str, &str) {
        (self.word, &self.says)
    }

    /// What it gave, where it did.
    pub(super) fn gave(&self) -> Result<&str, String> {
        if self.word == "completed" { Ok(&self.says) } else { Err(format!("{}: {}", self.word, self.says)) }
    }

    pub(super) fn fuel(&self) -> u64 {
        self.report.as_ref().map_or(0, |report| report.usage.fuel)
    }
}

pub(super) fn same<T: PartialEq + std::fmt::Debug>(found: T, wanted: T) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{found:?} and not {wanted:?}")) }
}

/// Whether each of these was stopped.
pub(super) fn stopped(seen: &[Seen], expressions: &[String]) -> Result<(), String> {
    for (seen, expression) in seen.iter().zip(expressions) {
        if seen.word == "completed" {
            return Err(format!("ESCAPE: {expression} gave {}", seen.says));
        }
    }
    same(seen.len(), expressions.len())
}

/// Whether each of these has come through.
pub(super) fn through(seen: &[Seen], expressions: &[String]) -> Result<String, String> {
    for (seen, expression) in seen.iter().zip(expressions) {
        seen.gave().map_err(|why| format!("{expression}: {why}"))?;
    }
    same(seen.len(), expressions.len())?;
    Ok("through".to_owned())
}

/// Whether the victim's marker is in nothing that the attacker got, and in none of its files.
pub(super) fn unseen(attacker: &Tenant, seen: &[Seen]) -> Result<(), String> {
    if let Some(seen) = seen.iter().find(|seen| seen.shown.contains(CANARY)) {
        return Err(format!("ESCAPE: the caller got the canary: {}", seen.shown));
    }
    let files = tree(&attacker.root);
    match files.iter().find(|(path, text)| text.contains(CANARY) && !path.contains(VICTIM)) {
        Some((path, _)) => Err(format!("ESCAPE: the canary is in {path}")),
        None => Ok(()),
    }
}

/// Whether texts name neither the victim's folder nor anything that is in it.
pub(super) fn names_nothing(texts: &[String]) -> Result<(), String> {
    match texts.iter().find(|text| text.contains(CANARY) || text.contains(VICTIM)) {
        Some(text) => Err(format!("ESCAPE: the victim was named: {text}")),
        None => Ok(()),
    }
}

/// All below a folder, by its path there: the text of files, and where links lead.
pub(super) fn tree(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            let text = match () {
                () if kind.is_dir() => "a folder".to_owned(),
                () if kind.is_symlink() => format!("a link to {}", fs::read_link(&path).unwrap().display()),
                () => String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned(),
            };
            if kind.is_dir() {
                waiting.push(path);
            }
            found.insert(name, text);
        }
    }
    found
}

/// What is different in a folder, but for the audit log, which grows.
pub(super) fn unchanged(root: &Path, before: &BTreeMap<String, String>) -> Result<(), String> {
    let after = tree(root);
    let all = before.keys().chain(after.keys()).filter(|path| !path.starts_with(".harness/audit"));
    for path in all.collect::<std::collections::BTreeSet<_>>() {
        if before.get(path) != after.get(path) {
            return Err(format!("ESCAPE: {path} was {:?} and is {:?}", before.get(path), after.get(path)));
        }
    }
    Ok(())
}

/// Waits for something that happens by itself, if it ever does.
pub(super) fn wait_until(what: &str, mut happened: impl FnMut() -> bool) -> Result<(), String> {
    for _ in 0..12_000 {
        if happened() {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    Err(format!("in a minute it did not happen that {what}"))
}
