//! Many projects in one host: what opening one takes, what one holds while nothing is called, what its first call and the
//! others take, and when a changed file is in force.
//!
//! ```text
//! cargo bench --bench projects             1,000 projects, and 10,000 times open and closed
//! cargo bench --bench projects -- 100000   so many times
//! cargo bench --bench projects -- watched  only how long a changed file takes
//! ```
//!
//! Prints a table, and writes `target/bench/projects.json`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measurement ends where something fails"
)]

use std::path::Path;
use std::time::{Duration, Instant};

use harness_bench::{Samples, private_memory};
use harness_dispatch::{Host, HostOptions, Options, Project, Run};
use harness_registry::Machine;
use serde_json::json;
use tempfile::TempDir;

const PROJECTS: usize = 1000;
const TOOLS: usize = 10;
/// Changes of a file that is watched.
const CHANGES: usize = 200;

fn main() {
    if std::env::args().any(|argument| argument == "watched") {
        return print(1, &[watched(&Host::new(HostOptions::default()).unwrap())]);
    }
    let times = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(10_000_usize);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let host = Host::new(HostOptions::default()).unwrap();
    let folders: Vec<TempDir> = (0..PROJECTS).map(folder).collect();
    let before = private_memory();
    let mut opening = Vec::new();
    let projects: Vec<Project> = folders
        .iter()
        .map(|folder| {
            let began = Instant::now();
            let project = open(&host, folder.path());
            opening.push(began.elapsed());
            project
        })
        .collect();
    let each = (private_memory().saturating_sub(before)) / PROJECTS as u64;
    let run = Run::new();
    let mut called = |project: &Project| -> Duration {
        let began = Instant::now();
        let report = runtime.block_on(project.call("tool_3", json!({}), &run)).unwrap();
        assert!(!report.is_error, "{}", report.content);
        began.elapsed()
    };
    let first: Vec<Duration> = projects.iter().take(200).map(&mut called).collect();
    // In turn, so that what else the machine does touches both.
    let lonely = Host::new(HostOptions::default()).unwrap();
    let lonely = open(&lonely, folders.first().unwrap().path());
    called(&lonely);
    let (mut warm, mut alone) = (Vec::new(), Vec::new());
    for _ in 0..5000 {
        warm.push(called(projects.first().unwrap()));
        alone.push(called(&lonely));
    }
    let rows = [
        Samples::of("open a project of ten tools", opening),
        Samples::of("first call of a project", first),
        Samples::of("warm call beside 999 others", warm),
        Samples::of("warm call of the only project", alone),
        watched(&host),
    ];
    print(PROJECTS, &rows);
    let (images, bytes) = host.images();
    println!("idle project: {} KiB; images ready: {images}, {} MiB", each >> 10, bytes >> 20);
    drop(projects);
    let level = || (private_memory() >> 10, descriptors());
    let folder = folders.first().unwrap().path();
    (0..100).for_each(|_| drop(open(&host, folder)));
    let (memory, open_files) = level();
    for _ in 0..times {
        let project = open(&host, folder);
        drop(project);
    }
    let (memory_after, open_files_after) = level();
    println!(
        "{times} times opened and closed: memory {memory} KiB before, {memory_after} after; descriptors {open_files} before, {open_files_after} after"
    );
    if let Some(folder) = harness_bench::target() {
        let folder = folder.join("bench");
        std::fs::create_dir_all(&folder).unwrap();
        let rows: Vec<_> = rows.iter().map(|row| row.json(rows[3].median())).collect();
        let all = json!({"rows": rows, "idle_bytes": each, "memory_kib": [memory, memory_after], "descriptors": [open_files, open_files_after]});
        std::fs::write(folder.join("projects.json"), serde_json::to_string_pretty(&all).unwrap()).unwrap();
    }
}

fn print(projects: usize, rows: &[Samples]) {
    println!("{projects:<48} {:>10} {:>10}", "p50 µs", "p99 µs");
    for row in rows {
        println!("{:<48} {:>10.1} {:>10.1}", row.name, row.median(), row.percentile(0.99));
    }
}

/// From the end of the last write of a tool's file until the listener hears that it is in force.
fn watched(host: &Host) -> Samples {
    let folder = folder(0);
    let project = open(host, folder.path());
    let (sender, results) = std::sync::mpsc::channel();
    let _watch = project.watch(move |result| sender.send((Instant::now(), result.is_ok())).unwrap()).unwrap();
    let file = folder.path().join(".harness/tools/tool_3.md");
    let change = |n: usize| {
        std::fs::write(&file, format!("---\nscript: |\n  def run(args):\n      return {n}\n---\nA tool.\n")).unwrap();
        let written = Instant::now();
        loop {
            let (at, is_ok) = results.recv().unwrap();
            assert!(is_ok);
            // Where the write was seen in two steps, the second one counts.
            let loaded = project.loaded();
            let script = loaded.registry().tool("tool_3").unwrap().script.as_ref().unwrap();
            if script.text.contains(&format!("return {n}\n")) {
                return at.saturating_duration_since(written);
            }
        }
    };
    Samples::of("watched reload of a project of ten tools", (0..CHANGES).map(change).collect())
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn open(host: &Host, folder: &Path) -> Project {
    let options = Options { audit: false, machine: Machine::None, ..Options::default() };
    host.open(folder, options).unwrap()
}

/// A project of ten tools, whose scripts are its own.
fn folder(n: usize) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let tools = folder.path().join(".harness/tools");
    std::fs::create_dir_all(&tools).unwrap();
    for tool in 0..TOOLS {
        let text = format!("---\nscript: |\n  def run(args):\n      return [{n}, {tool}]\n---\nA tool.\n");
        std::fs::write(tools.join(format!("tool_{tool}.md")), text).unwrap();
    }
    folder
}
