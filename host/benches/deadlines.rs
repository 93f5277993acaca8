//! How late a call ends whose time is up, wherever it waits.
//!
//! Each row is a script that never ends by itself, called again and again with a deadline; the report is how much later
//! than that the call came back. Prints a table, and writes `target/bench/deadlines.json`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measurement ends where something fails"
)]

use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use harness_bench::Samples;
use harness_dispatch::{Options, Project, Run};
use harness_sandbox::outcome::Outcome;
use serde_json::json;

/// What waits: its name, the time that it has in milliseconds, and the body of its script.
const ROWS: [(&str, u32, &str); 10] = [
    ("in a loop", 50, "for i in range(1 << 30):\n        pass"),
    ("in a built-in: a sort again and again", 50, "for i in range(1 << 30):\n        sorted(range(20000))"),
    ("in sleep", 50, "sleep(60000)"),
    ("in http: a server that never answers", 50, "http.get('http://{server}/', timeout_seconds = 60)"),
    (
        "in exec: a command that ignores SIGTERM",
        200,
        "exec.run('sh', ['-c', 'trap \"\" TERM; while :; do sleep 60; done'])",
    ),
    ("in exec: a command that reads a pipe", 200, "exec.run('cat', ['pipe'])"),
    ("in exec: while a command is being started", 8, "exec.run('sleep', ['60'])"),
    ("on a disk: a search of many files", 20, "for i in range(1 << 30):\n        fs.glob('many/**/none')"),
    (
        "on a disk: 8 MiB, written to it again and again",
        20,
        "text = 'x' * (8 << 20)\n    for i in range(1 << 30):\n        fs.write('big', text)",
    ),
    ("in a tool that a tool called", 50, "meta.call_tool('t0')"),
];
const SAMPLES: usize = 100;
/// Between two calls: what one has begun on a disk, or of a command, continues for a moment after its end.
const PAUSE: Duration = Duration::from_millis(100);

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let project = project(folder.path());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let run = Run::new();
    let mut rows = Vec::new();
    println!("{:<48} {:>10} {:>10} {:>10}", "late by", "p50 ms", "p99 ms", "most ms");
    for (number, (name, millis, _)) in ROWS.into_iter().enumerate() {
        let deadline = Duration::from_millis(u64::from(millis));
        let late = (0..SAMPLES).map(|_| {
            std::thread::sleep(PAUSE);
            let started = Instant::now();
            let report = runtime.block_on(project.call(&format!("t{number}"), json!({}), &run)).unwrap();
            let took = started.elapsed();
            assert!(matches!(report.outcome, Outcome::Limited(_)), "{name}: {:?}", report.outcome);
            took.saturating_sub(deadline)
        });
        let samples = Samples::of(name, late.collect());
        let [p50, p99, most] = [0.5, 0.99, 1.0].map(|part| samples.percentile(part) / 1e3);
        println!("{name:<48} {p50:>10.2} {p99:>10.2} {most:>10.2}");
        rows.push(json!({"name": name, "deadline_ms": millis, "p50_ms": p50, "p99_ms": p99, "most_ms": most, "samples": SAMPLES}));
    }
    // target/release/deps/deadlines-…
    let target = std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned();
    let out = target.join("bench");
    std::fs::create_dir_all(&out).unwrap();
    std::fs::write(out.join("deadlines.json"), format!("{:#}\n", json!({"rows": rows}))).unwrap();
    println!("\nwritten: {}", out.join("deadlines.json").display());
}

/// A project with a tool for each row, a pipe that nobody writes to, many files, and a server that takes connections and
/// says nothing.
fn project(folder: &Path) -> Project {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming().filter_map(Result::ok) {
            // Not for ever: the machine has so many descriptors.
            open.truncate(100);
            open.insert(0, stream);
        }
    });
    let write = |path: &str, text: &str| {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let policy = format!(
        "network: {{ allowed_domains: [\"{server}\"] }}\nmeta: {{ enabled: true }}\nsandbox:\n  exec: {{ allow: [sh, cat, sleep] }}\n  limits: {{ fuel: 1000000000000, io_bytes: 1000000000000 }}\n"
    );
    write(".harness/harness.md", &format!("---\n{policy}---\n"));
    for (number, (_, millis, body)) in ROWS.into_iter().enumerate() {
        let script = format!("def run(args):\n    {}\n", body.replace("{server}", &server));
        let script: String = script.lines().map(|line| format!("  {line}\n")).collect();
        let front = format!("capabilities: {{ limits: {{ timeout_ms: {millis} }} }}\n");
        write(&format!(".harness/tools/t{number}.md"), &format!("---\n{front}script: |\n{script}---\nWaits.\n"));
    }
    for number in 0..20_000 {
        write(&format!("many/{}/file_{number}.txt", number % 100), "");
    }
    assert!(Command::new("mkfifo").arg(folder.join("pipe")).status().unwrap().success());
    let project = Project::open(folder, Options { audit: false, ..Options::default() }).unwrap();
    assert_eq!(project.loaded().load_all().len(), 0);
    project
}
