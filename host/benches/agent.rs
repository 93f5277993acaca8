//! What the loop of an agent takes beside its model: a round with ten tools and six hooks, and a model whose replies are
//! there at once. Prints a table, and writes `target/bench/agent.json`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measurement ends where something fails"
)]

mod floor;

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use harness_agent::{Configured, Listener, Session, Silent};
use harness_bench::Samples;
use harness_capability::env::Variables;
use harness_dispatch::{Options, Project, Run};
use harness_session as session;
use serde_json::json;
use tempfile::TempDir;

use floor::floor;

/// Rounds of a turn: one call each.
const ROUNDS: u32 = 20;
const TURNS: usize = 150;

const TOOL: &str = "def run(args):\n    command = args.get(\"command\", \"\")\n    if not command:\n        return {\"error\": \"command is required\"}\n    return {\"stdout\": string.truncate(command, 4000), \"stderr\": \"\", \"exit_code\": 0}\n";
const GUARD: &str = "def handle(event, payload):\n    command = payload.get(\"args\", {}).get(\"command\", \"\")\n    if \"rm -rf /\" in command:\n        return block(\"dangerous command pattern blocked\")\n    return allow()\n";
const AUDIT: &str = "def handle(event, payload):\n    metrics.incr(\"calls\")\n    return allow()\n";
const WINDOW: &str = "def handle(event, payload):\n    if len(payload[\"messages\"]) > 200:\n        return block(\"too long\")\n    return allow()\n";
const REDACT: &str = "def handle(event, payload):\n    if \"secret\" in payload[\"content\"]:\n        return modify({\"content\": \"[redacted]\"})\n    return allow()\n";

/// Where what happens is written down.
#[derive(Clone, Copy, PartialEq)]
enum Recorded {
    Nowhere,
    /// Calls and decisions, in `.harness/audit/`.
    InAudit,
    /// All of it, in `.harness/sessions/`, as `harness run` does.
    AsSession,
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let floor = floor();
    let f = Samples::take("F: fresh store, trivial component, one call", 2000, &floor).median();
    let mut rows = Vec::new();
    for (name, recorded, hooks) in [
        ("round: ten tools, six hooks", Recorded::Nowhere, true),
        ("round: ten tools, no hooks", Recorded::Nowhere, false),
        ("round: ten tools, six hooks, audit record", Recorded::InAudit, true),
        ("round: ten tools, six hooks, session's record", Recorded::AsSession, true),
    ] {
        let (folder, project) = project(recorded == Recorded::InAudit, hooks);
        let models = Arc::new(Configured::new(folder.path(), &project.loaded().policy().models, &Variables::default()));
        let times = (0..TURNS + TURNS / 10).map(|_| {
            runtime.block_on(async {
                let models = models.clone();
                let recorder = (recorded == Recorded::AsSession).then(|| {
                    let writer = session::create(folder.path()).unwrap();
                    session::begin(writer, &project, "run", None, Arc::new(Silent))
                });
                let (run, listener): (_, Arc<dyn Listener>) = match &recorder {
                    Some(recorder) => (recorder.run(), recorder.clone()),
                    None => (Run::new(), Arc::new(Silent)),
                };
                let mut session = Session::start(&project, &run, models, listener).await.unwrap();
                let start = Instant::now();
                let turn = session.turn("Go on until it is done.").await.unwrap();
                let took = start.elapsed();
                assert_eq!((turn.rounds, turn.text.as_str()), (ROUNDS, "Done."));
                session.end().await;
                if let Some(recorder) = recorder {
                    recorder.end();
                    assert_eq!(recorder.trouble(), None);
                }
                took / ROUNDS
            })
        });
        let times: Vec<_> = times.collect();
        rows.push(Samples::of(name, times.into_iter().skip(TURNS / 10).collect()));
    }
    println!("{:<48} {:>10} {:>10} {:>8}", "", "p50 µs", "p99 µs", "p50 / F");
    for row in &rows {
        println!("{}", row.row(f));
    }
    let result = json!({"rows": rows.iter().map(|row| row.json(f)).collect::<Vec<_>>()});
    let out = harness_bench::target().unwrap().join("bench");
    std::fs::create_dir_all(&out).unwrap();
    std::fs::write(out.join("agent.json"), format!("{result:#}\n")).unwrap();
    println!("\nwritten: {}", out.join("agent.json").display());
}

/// A project of ten tools and, of the events of a round, six hooks; with replies for all turns.
fn project(audit: bool, hooks: bool) -> (TempDir, Project) {
    let folder = tempfile::tempdir().unwrap();
    let policy = format!(
        "---\nmodel: {{ provider: script, script: replies.yaml }}\nexit_policy: {{ max_iterations: {ROUNDS} }}\n---\nYou work.\n"
    );
    text(folder.path(), ".harness/harness.md", &policy);
    let mut replies = String::new();
    for _ in 0..TURNS + TURNS / 10 {
        for round in 0..ROUNDS {
            writeln!(replies, "- tool_calls: [{{ name: tool_{}, args: {{ command: ls -la }} }}]", round % 10).unwrap();
        }
        replies.push_str("- text: Done.\n");
    }
    text(folder.path(), "replies.yaml", &replies);
    for n in 0..10 {
        write(
            folder.path(),
            &format!("tools/tool_{n}.md"),
            "parameters:\n  command: { type: string, required: true }\n",
            TOOL,
        );
    }
    let six = [
        ("window", "completion.pre", 1, WINDOW),
        ("audit_completion", "completion.post", 1, AUDIT),
        ("audit_pre", "tool.pre", 1, AUDIT),
        ("guard", "tool.pre", 10, GUARD),
        ("audit_post", "tool.post", 1, AUDIT),
        ("redact", "tool.post", 40, REDACT),
    ];
    for (name, event, priority, script) in six.iter().filter(|_| hooks) {
        write(folder.path(), &format!("hooks/{name}.md"), &format!("event: {event}\npriority: {priority}\n"), script);
    }
    let project = Project::open(folder.path(), Options { audit, ..Options::default() }).unwrap();
    assert_eq!(project.loaded().load_all().len(), 0);
    (folder, project)
}

fn write(root: &Path, name: &str, front: &str, script: &str) {
    let script: String = script.lines().map(|line| format!("  {line}\n")).collect();
    text(root, &format!(".harness/{name}"), &format!("---\n{front}script: |\n{script}---\nAn artifact.\n"));
}

fn text(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}
