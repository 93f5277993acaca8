//! One call, and how it ended.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness_agent::{Configured, attach};
use harness_artifact::event::Event;
use harness_artifact::policy::layer;
use harness_capability::env::Variables;
use harness_capability::http::Client;
use harness_dispatch::{CallError, Decision, OpenError, Project, Run};
use harness_registry::lock::{self, Lock};
use harness_registry::{Machine, Registry};
use harness_sandbox::outcome::Outcome;
use harness_sandbox::state::{Overrides, Session};
use serde_json::{Value as Json, json};
use tokio::runtime::Runtime;

use crate::answers::Answers;
use crate::case::{Setting, Verdict};
use crate::compose::component;
use crate::process::Stretch;
use crate::world::World;

/// What came of it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) verdict: Verdict,
    /// Everything that its caller was told, and the record.
    pub(crate) told: String,
    /// The record.
    pub(crate) record: String,
    /// How long the call took, without what was set up for it.
    pub(crate) took: Duration,
    /// How long it may take.
    pub(crate) deadline: Duration,
    /// How long, meanwhile, the machine was busy with something else.
    pub(crate) busy: Duration,
}

/// How much later than its deadline a call may come back, beside what the machine was busy with something else.
const GRACE: Duration = Duration::from_millis(10);

impl Seen {
    /// Whether it came back later than it may.
    pub(crate) fn late(&self) -> bool {
        self.took > self.deadline + GRACE + self.busy
    }
}

/// How often a call is made at most that ends while its script is loaded.
const LOADS: usize = 100;

/// The time that a call has where no policy was read.
const NO_POLICY: Duration = Duration::from_secs(30);

/// Does what a setting says in a world that its artifacts were written to.
pub(crate) fn attempt(runtime: &Runtime, project: &Project, world: &World, setting: &Setting, each: &str) -> Seen {
    if let Some(arguments) = &setting.program {
        return program(world, arguments, each);
    }
    let stretch = Stretch::begin();
    if let Err(error) = project.reload() {
        let says = match &error {
            OpenError::Artifacts(registry) => {
                registry.diagnostics().iter().map(|one| one.message.as_str()).collect::<Vec<_>>().join("; ")
            }
            other => other.to_string(),
        };
        let verdict = Verdict::new("refused", says);
        let (took, busy) = stretch.end();
        return Seen { verdict, told: format!("{error:?}"), took, deadline: NO_POLICY, busy, record: String::new() };
    }
    let loaded = project.loaded();
    for (name, guest) in &setting.guests {
        loaded.stand_in(name, || component(&guest.imports, &world.filled(&guest.wat, each))).unwrap();
    }
    let run = run(world, setting, each);
    run.set_respondent(Arc::new(Answers));
    if !loaded.registry().agents().is_empty() {
        attach(project, &run, Arc::new(Configured::new(&world.work(), &loaded.policy().models, &Variables::Host)));
    }
    let args = setting.args.as_ref().map_or("{}".to_owned(), |args| world.filled(args, each));
    let args: Json = serde_json::from_str(&args).unwrap_or_else(|error| panic!("{args}: {error}"));
    let seen = if let Some(event) = &setting.fire {
        let event = Event::parse(&world.filled(event, each)).unwrap();
        let stretch = Stretch::begin();
        let fired = runtime.block_on(project.fire(&event, args, &run));
        let (took, busy) = stretch.end();
        let verdict = match &fired.decision {
            Decision::Allow => Verdict::new("gives", fired.payload.to_string()),
            Decision::Block(block) => Verdict::new("denied", block.reason.clone()),
        };
        Seen { verdict, told: format!("{fired:?}"), took, deadline: NO_POLICY, busy, record: String::new() }
    } else {
        let name = setting.call.as_ref().map_or("it".to_owned(), |name| world.filled(name, each));
        let mut stretch = Stretch::begin();
        let mut called = runtime.block_on(project.call(&name, args.clone(), &run));
        // Whether its script was loaded in time is a matter of how busy the machine is; the load continues.
        for _ in 0..LOADS {
            if !matches!(called, Err(CallError::Late(..))) {
                break;
            }
            stretch = Stretch::begin();
            called = runtime.block_on(project.call(&name, args.clone(), &run));
        }
        let (took, busy) = stretch.end();
        let told = format!("{called:?}");
        let (verdict, deadline) = match called {
            Ok(report) => {
                let verdict = match report.outcome {
                    Outcome::Completed(output) => Verdict::new("gives", output.result.to_string()),
                    Outcome::Failed(failure) => Verdict::new("failed", failure.message),
                    Outcome::Denied { refusal, .. } => Verdict::new("denied", refusal.reason),
                    Outcome::Limited(limit) => Verdict::new("limited", limit.kind.name()),
                    Outcome::Busy(busy) => Verdict::new("busy", busy.to_string()),
                    Outcome::Fault(message) => Verdict::new("fault", message),
                };
                (verdict, report.grant.limits().timeout)
            }
            Err(CallError::Script(failure)) => (Verdict::new("refused", failure.message), NO_POLICY),
            Err(CallError::Arguments { errors, .. }) => {
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                (Verdict::new("rejected", errors.join("; ")), NO_POLICY)
            }
            Err(error) => (Verdict::new("rejected", error.to_string()), NO_POLICY),
        };
        Seen { verdict, told, took, deadline, busy, record: String::new() }
    };
    // What is recorded outlives the call, and is read by people.
    let record = std::fs::read_dir(world.work().join(".harness/audit")).into_iter().flatten().filter_map(Result::ok);
    let lines = record.filter(|file| file.file_name() != "old.jsonl");
    let lines: String = lines.filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect();
    Seen { told: format!("{}\n{lines}", seen.told), record: lines, ..seen }
}

/// Runs the program in the workspace. One that waits for ever is ended.
fn program(world: &World, arguments: &str, each: &str) -> Seen {
    let arguments = world.filled(arguments, each);
    let mut command = Command::new("timeout");
    command.args(["60", env!("CARGO_BIN_EXE_harness")]).args(arguments.split_whitespace());
    command.current_dir(world.work()).stdin(Stdio::null());
    let stretch = Stretch::begin();
    let ran = command.output().unwrap();
    let (took, busy) = stretch.end();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    let (out, err) = (text(&ran.stdout), text(&ran.stderr));
    let verdict = match ran.status.code() {
        Some(0) => Verdict::new("gives", json!(out).to_string()),
        Some(2) => Verdict::new("refused", err.clone()),
        _ => Verdict::new("failed", format!("{}: {err}", ran.status)),
    };
    Seen { verdict, told: format!("{out}\n{err}"), took, deadline: NO_POLICY, busy, record: String::new() }
}

/// Writes the artifacts.
pub(crate) fn write(world: &World, setting: &Setting, each: &str) {
    let home = world.work().join(".harness");
    let put = |path: &str, text: &str| {
        let path = home.join(world.filled(path, each));
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).unwrap();
        std::fs::write(path, world.filled(text, each)).unwrap();
    };
    if let Some(policy) = &setting.policy {
        put("harness.md", &format!("---\n{}\n---\n", policy.trim_end()));
    }
    if let Some(script) = &setting.script {
        let front = setting.front.as_ref().map_or(String::new(), |front| format!("{}\n", front.trim_end()));
        put("tools/it.md", &format!("---\n{front}script: |\n{}---\n# it\n", indented(&whole(script), "  ")));
    }
    for (name, guest) in &setting.guests {
        // What is kept of a script is found by its text: another guest has another.
        let mut hasher = DefaultHasher::new();
        (world.filled(&guest.wat, each), &guest.imports).hash(&mut hasher);
        let front = if guest.front.is_empty() { String::new() } else { format!("{}\n", guest.front.trim_end()) };
        let kind = if front.contains("event:") { "hooks" } else { "tools" };
        let script = format!("{front}script: |\n  # A guest stands in: {:016x}\n", hasher.finish());
        put(&format!("{kind}/{name}.md"), &format!("---\n{script}---\n# {name}\n"));
    }
    std::fs::write(world.machine(), world.filled(setting.machine.as_deref().unwrap_or("{}"), each)).unwrap();
    // What a control leaves out is empty.
    for (path, text) in setting.artifacts.iter().filter(|(_, text)| !text.is_empty()) {
        put(path, text);
    }
    if let Some(changes) = &setting.locked {
        let registry = Registry::load_unlocked(&world.work(), &Machine::None);
        std::fs::write(world.work().join(lock::FILE), Lock::of(&registry).text().unwrap()).unwrap();
        for (path, text) in changes {
            let path = &world.filled(path, each);
            if text.is_empty() {
                std::fs::remove_file(home.join(path)).unwrap();
            } else {
                put(path, text);
            }
        }
    }
}

/// The run that a call belongs to.
fn run(world: &World, setting: &Setting, each: &str) -> Arc<Run> {
    if let Some(caller) = &setting.caller {
        let (layer, diagnostics) = layer::parse("caller", &world.filled(caller, each));
        return Run::narrowed(vec![layer.unwrap_or_else(|| panic!("{diagnostics:?}"))]);
    }
    if setting.names.is_empty() {
        return Run::new();
    }
    let names = setting.names.clone();
    let asked = Mutex::new(HashMap::<String, usize>::new());
    let http = Client::resolving(move |name| {
        let mut asked = asked.lock().unwrap();
        let count = asked.entry(name.to_owned()).or_default();
        *count += 1;
        let answers = names.get(name).map(Vec::as_slice).unwrap_or_default();
        answers.get(*count - 1).or(answers.last()).cloned().unwrap_or_default()
    });
    let overrides = Overrides { http: Some(http), ..Overrides::default() };
    Run::with_session(Session { overrides, ..Session::default() })
}

/// A script from the short forms: an expression, or the lines of `run`.
fn whole(script: &str) -> String {
    if script.lines().any(|line| line.starts_with("def run(")) {
        script.to_owned()
    } else if script.contains('\n') {
        format!("def run(args):\n{}", indented(script, "    "))
    } else {
        format!("def run(args):\n    return {script}\n")
    }
}

fn indented(text: &str, by: &str) -> String {
    text.lines().map(|line| if line.is_empty() { "\n".to_owned() } else { format!("{by}{line}\n") }).collect()
}
