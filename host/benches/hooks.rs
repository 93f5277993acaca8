//! What hooks add to a call, and what it takes to load a large project.
//!
//! Times are printed next to F, the floor, as in `calls.rs`. Prints a table, and writes `target/bench/hooks.json`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measurement ends where something fails"
)]

mod floor;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use harness_artifact::event::Event;
use harness_bench::{Samples, files_in_memory, private_memory, time};
use harness_dispatch::{Decision, Options, Project, Run};
use serde_json::{Value, json};
use tempfile::TempDir;

use floor::floor;

const TOOL: &str = "def run(args):\n    command = args.get(\"command\", \"\")\n    if not command:\n        return {\"error\": \"command is required\"}\n    return {\"stdout\": string.truncate(command, 4000), \"stderr\": \"\", \"exit_code\": 0}\n";
const GUARD: &str = "def handle(event, payload):\n    command = payload.get(\"args\", {}).get(\"command\", \"\")\n    if \"rm -rf /\" in command:\n        return block(\"dangerous command pattern blocked\")\n    return allow()\n";
const AUDIT: &str = "def handle(event, payload):\n    metrics.incr(\"calls\")\n    return allow()\n";
const REDACT: &str = "def handle(event, payload):\n    if \"secret\" in payload[\"content\"]:\n        return modify({\"content\": \"[redacted]\"})\n    return allow()\n";
const OURS: &str = "when: payload[\"name\"] == \"small\"\n";
const OTHERS: &str = "when: payload[\"name\"] == \"another\"\n";

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let run = Arc::new(Run::new());
    let args = json!({"command": "ls -la", "timeout_ms": 1000});
    // In tasks of their own, as front ends make them: the caller has its answer before instances are cleared up.
    let call = |project: &Arc<Project>| {
        let (project, args, run) = (project.clone(), args.clone(), run.clone());
        let called = async move {
            let begun = Instant::now();
            let report = project.call("small", args, &run).await.unwrap();
            let took = begun.elapsed();
            assert!(!report.is_error, "{}", report.content);
            took
        };
        runtime.block_on(async { tokio::spawn(called).await.unwrap() })
    };
    let payload = json!({"id": "call_1", "name": "small", "arguments": args.to_string(), "args": args});
    let fire = |project: &Arc<Project>| {
        let (project, payload, run) = (project.clone(), payload.clone(), run.clone());
        let fired = async move {
            let begun = Instant::now();
            let dispatch = project.fire(&Event::ToolPre, payload, &run).await;
            let took = begun.elapsed();
            assert_eq!((dispatch.decision, dispatch.hooks.len()), (Decision::Allow, 1));
            took
        };
        runtime.block_on(async { tokio::spawn(fired).await.unwrap() })
    };
    let (_a, alone) = project(&[]);
    let six = [
        ("audit_pre", "tool.pre", 1, OURS, AUDIT),
        ("guard", "tool.pre", 10, OURS, GUARD),
        ("prefer", "tool.pre", 20, "", GUARD),
        ("audit_post", "tool.post", 1, OURS, AUDIT),
        ("shape", "tool.post", 40, "", REDACT),
        ("redact", "tool.post", 45, OURS, REDACT),
    ];
    let (_b, six_hooks) = project(&six);
    let (_c, others) = project(&six.map(|(name, event, priority, _, script)| (name, event, priority, OTHERS, script)));
    let evaluated = "when: len(payload[\"name\"]) > 2\n";
    let (_d, matching) = project(&[("guard", "tool.pre", 10, evaluated, GUARD)]);
    let (_e, decided) = project(&[("guard", "tool.pre", 10, OURS, GUARD)]);
    let (_f, not_matching) = project(&[("guard", "tool.pre", 10, "when: len(payload[\"name\"]) > 200\n", GUARD)]);
    let (_h, recorded) = recorded();
    let (_g, not_decided) = project(&[("guard", "tool.pre", 10, OTHERS, GUARD)]);

    let floor = floor();
    let rows = Samples::times_in_turn(
        &mut [
            ("F: fresh store, trivial component, one call", &mut || time(&mut || floor())),
            ("call of a tool without hooks", &mut || call(&alone)),
            ("call through six hooks and the tool", &mut || call(&six_hooks)),
            ("call past six hooks for another tool", &mut || call(&others)),
            ("call of a tool without hooks, recorded", &mut || call(&recorded)),
            ("hook: `when` evaluated, then `handle`", &mut || fire(&matching)),
            ("hook: `when` decided, then `handle`", &mut || fire(&decided)),
            ("hook: `when` evaluated, no match", &mut || fire(&not_matching)),
            ("hook: `when` decided, no match", &mut || fire(&not_decided)),
        ],
        60,
        200,
    );
    let f = rows.first().map_or(f64::NAN, Samples::median);
    println!("{:<48} {:>10} {:>10} {:>8}", "", "p50 µs", "p99 µs", "p50 / F");
    for row in &rows {
        println!("{}", row.row(f));
    }
    let large = large();
    let result = json!({"rows": rows.iter().map(|row| row.json(f)).collect::<Vec<_>>(), "large": large});
    let out = harness_bench::target().unwrap().join("bench");
    std::fs::create_dir_all(&out).unwrap();
    std::fs::write(out.join("hooks.json"), format!("{result:#}\n")).unwrap();
    println!("\nwritten: {}", out.join("hooks.json").display());
}

type HookOf<'a> = (&'a str, &'a str, i32, &'a str, &'a str);

/// A project with the tool and these hooks: name, event, priority, `when` as a line, script.
fn project(hooks: &[HookOf<'_>]) -> (TempDir, Arc<Project>) {
    opened(hooks, false)
}

/// The tool alone, with a record of its calls.
fn recorded() -> (TempDir, Arc<Project>) {
    opened(&[], true)
}

fn opened(hooks: &[HookOf<'_>], audit: bool) -> (TempDir, Arc<Project>) {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "tools/small.md", "", TOOL);
    for (name, event, priority, when, script) in hooks {
        write(
            folder.path(),
            &format!("hooks/{name}.md"),
            &format!("event: {event}\npriority: {priority}\n{when}"),
            script,
        );
    }
    let project = Project::open(folder.path(), Options { audit, ..Options::default() }).unwrap();
    assert_eq!(project.loaded().load_all().len(), 0);
    (folder, Arc::new(project))
}

fn write(root: &Path, name: &str, front: &str, script: &str) {
    let path = root.join(".harness").join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let script: String = script.lines().map(|line| format!("  {line}\n")).collect();
    std::fs::write(path, format!("---\n{front}script: |\n{script}---\nAn artifact.\n")).unwrap();
}

/// A project of 1,000 tools and 200 hooks: to read and check it, to load all its scripts, and to start it again.
fn large() -> Value {
    const TOOLS: usize = 1000;
    const HOOKS: usize = 200;
    let folder = tempfile::tempdir().unwrap();
    for n in 0..TOOLS {
        write(folder.path(), &format!("tools/tool_{n:04}.md"), "", &TOOL.replace("4000", &format!("{}", 4000 + n)));
    }
    for n in 0..HOOKS {
        let front = format!("event: tool.pre\npriority: {n}\nwhen: payload[\"name\"] == \"tool_{n:04}\"\n");
        write(folder.path(), &format!("hooks/hook_{n:03}.md"), &front, GUARD);
    }
    let before = private_memory() + files_in_memory();
    let start = Instant::now();
    let project = Arc::new(Project::open(folder.path(), Options::default()).unwrap());
    let opened = start.elapsed();
    let start = Instant::now();
    assert_eq!(project.loaded().load_all().len(), 0);
    let loaded = start.elapsed();
    let memory = (private_memory() + files_in_memory()).saturating_sub(before);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // A second start, and its first call: what is not called is not loaded.
    let start = Instant::now();
    let again = Project::open(folder.path(), Options::default()).unwrap();
    let report = runtime.block_on(again.call("tool_0007", json!({"command": "ls"}), &Run::new())).unwrap();
    let second = start.elapsed();
    assert!(!report.is_error, "{}", report.content);
    let (opened, loaded, second) = (opened.as_secs_f64(), loaded.as_secs_f64(), second.as_secs_f64());
    println!(
        "\n{TOOLS} tools and {HOOKS} hooks: read and checked in {:.0} ms, all scripts loaded in {:.0} ms more, {} MiB; a second start to its first result {:.0} ms",
        opened * 1e3,
        loaded * 1e3,
        memory >> 20,
        second * 1e3
    );
    json!({
        "tools": TOOLS, "hooks": HOOKS, "opened_ms": opened * 1e3, "loaded_ms": loaded * 1e3,
        "second_start_ms": second * 1e3, "memory_bytes": memory,
    })
}
