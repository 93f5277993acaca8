//! What the wall around a command costs: the same command with it and without, and with more to walk before it.
//!
//! Prints a table, and writes `target/bench/commands.json`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measurement ends where something fails"
)]

mod floor;

use std::process::{Command, Stdio};

use harness_bench::Samples;
use harness_dispatch::{Options, Project, Run};
use harness_wall::Offers;
use serde_json::json;
use tempfile::TempDir;

use floor::floor;

const TOOL: &str = "def run(args):\n    return exec.run('true', [])['exit_code']\n";
const NOTHING: &str = "def run(args):\n    return 0\n";

fn main() {
    let wall = Offers::get().wall().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let run = Run::new();
    let call = |project: &Project, tool: &str| {
        let report = runtime.block_on(project.call(tool, json!({}), &run)).unwrap();
        assert_eq!(report.content, "0");
    };
    let (_a, confined) = project("", 0);
    let (_b, unconfined) = project(", unconfined: true", 0);
    let (_c, large) = project("", 10_000);
    let floor = floor();
    let rows = Samples::take_in_turn(
        &mut [
            ("F: fresh store, trivial component, one call", &mut &floor),
            ("`true`, started as the standard library does", &mut || {
                assert!(Command::new("true").stdin(Stdio::null()).status().unwrap().success());
            }),
            ("call of a tool without a command", &mut || call(&confined, "nothing")),
            ("call of a tool that runs `true`, unconfined", &mut || call(&unconfined, "it")),
            ("the same behind the wall", &mut || call(&confined, "it")),
            ("the same in a workspace of 10,000 files", &mut || call(&large, "it")),
        ],
        20,
        20,
    );
    let f = rows.first().map_or(f64::NAN, Samples::median);
    println!("{wall:?}\n{:<48} {:>10} {:>10} {:>8}", "", "p50 µs", "p99 µs", "p50 / F");
    for row in &rows {
        println!("{}", row.row(f));
    }
    let result = json!({"rows": rows.iter().map(|row| row.json(f)).collect::<Vec<_>>(), "wall": format!("{wall:?}")});
    let out = harness_bench::target().unwrap().join("bench");
    std::fs::create_dir_all(&out).unwrap();
    std::fs::write(out.join("commands.json"), format!("{result:#}\n")).unwrap();
    println!("\nwritten: {}", out.join("commands.json").display());
}

/// A project with a tool that runs a command, and so many files in 100 folders.
fn project(exec: &str, files: usize) -> (TempDir, Project) {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let policy = format!("sandbox:\n  fs: {{ read: [.], write: [.] }}\n  exec: {{ allow: [\"true\"]{exec} }}\n");
    write(".harness/harness.md", &format!("---\n{policy}---\n"));
    for (name, script) in [("it", TOOL), ("nothing", NOTHING)] {
        let script: String = script.lines().map(|line| format!("  {line}\n")).collect();
        write(&format!(".harness/tools/{name}.md"), &format!("---\nscript: |\n{script}---\nA tool.\n"));
    }
    for number in 0..files {
        write(&format!("files/{}/file_{number}.txt", number % 100), "");
    }
    let project = Project::open(folder.path(), Options { audit: false, ..Options::default() }).unwrap();
    assert_eq!(project.loaded().load_all().len(), 0);
    (folder, project)
}
