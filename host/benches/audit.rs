//! What the audit log adds to a call, and whether reading it holds calls up.
//!
//! Times are printed beside F, the floor, as in `calls.rs`. A thread makes calls at a fixed rate, in turn alone, beside a
//! process that only computes, and beside a process that verifies the large log of the same project, as `harness audit
//! verify` does. The second shows what a busy core costs by itself; the third must not cost more. Prints a table, and
//! writes `target/bench/audit.json`.
//!
//! ```text
//! cargo bench --bench audit                 a log of 64 MiB
//! cargo bench --bench audit -- 1024         one of 1 GiB
//! ```

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measurement ends where something fails"
)]

mod floor;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use harness_audit::AuditWriter;
use harness_bench::Samples;
use harness_dispatch::{Options, Project, Run};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use floor::floor;

const TOOL: &str = "---\nscript: |\n  def run(args):\n    return {\"stdout\": string.truncate(args[\"command\"], 4000)}\n---\nA tool.\n";
/// Where this program, started again, finds the log that it is to verify.
const VERIFY: &str = "HARNESS_BENCH_VERIFY";
/// The log that is verified, in MiB, unless an argument says otherwise.
const SIZE: u64 = 64;
/// For how long at least a log is verified, again if it is small.
const SHORTEST: Duration = Duration::from_secs(1);
/// Between two calls.
const PACE: Duration = Duration::from_micros(500);
/// How often each kind of company has its turn.
const ROUNDS: usize = 3;

fn main() {
    if let Ok(folder) = std::env::var(VERIFY) {
        let begun = Instant::now();
        while begun.elapsed() < SHORTEST {
            harness_audit::verify(Path::new(&folder)).unwrap();
        }
        return;
    }
    let size = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(SIZE);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (_a, plain) = project(false);
    let (folder, recorded) = project(true);
    // First: what others free would be taken again.
    let idle = idle();
    let floor = floor();
    let entries = tempfile::tempdir().unwrap();
    let log = AuditWriter::new().log(&entries.path().join("audit"));
    let append = || {
        log.ready().block().unwrap();
        let mut entry = log.entry().unwrap();
        entry.put("text", "a text of a few hundred bytes, as the entry of a call has it");
        log.append(entry).block().unwrap();
    };
    let rows = Samples::take_in_turn(
        &mut [
            ("F: fresh store, trivial component, one call", &mut &floor),
            ("call of a tool, no audit log", &mut || call(&runtime, &plain)),
            ("call of a tool, with its entry", &mut || call(&runtime, &recorded)),
            ("check and entry alone", &mut &append),
        ],
        60,
        200,
    );
    let f = rows.first().map_or(f64::NAN, Samples::median);
    println!("{:<48} {:>10} {:>10} {:>8}", "", "p50 µs", "p99 µs", "p50 / F");
    for row in &rows {
        println!("{}", row.row(f));
    }
    let concurrent: Vec<Value> = [1, 2, 8].into_iter().map(concurrent).collect();
    let reading = reading(&runtime, folder.path(), &recorded, size, f);
    let result = json!({
        "rows": rows.iter().map(|row| row.json(f)).collect::<Vec<_>>(),
        "concurrent": concurrent,
        "idle": idle,
        "reading": reading,
    });
    let out = harness_bench::target().unwrap().join("bench");
    std::fs::create_dir_all(&out).unwrap();
    std::fs::write(out.join("audit.json"), format!("{result:#}\n")).unwrap();
    println!("\nwritten: {}", out.join("audit.json").display());
}

fn project(audit: bool) -> (TempDir, Project) {
    let folder = tempfile::tempdir().unwrap();
    let tools = folder.path().join(".harness/tools");
    std::fs::create_dir_all(&tools).unwrap();
    std::fs::write(tools.join("small.md"), TOOL).unwrap();
    let project = Project::open(folder.path(), Options { audit, ..Options::default() }).unwrap();
    assert_eq!(project.loaded().load_all().len(), 0);
    (folder, project)
}

fn call(runtime: &Runtime, project: &Project) {
    let report = runtime.block_on(project.call("small", json!({"command": "ls"}), &Run::new())).unwrap();
    assert!(!report.is_error, "{}", report.content);
}

/// Entries a second in one log, by so many threads.
fn concurrent(threads: usize) -> Value {
    const ENTRIES: usize = 40_000;
    let folder = tempfile::tempdir().unwrap();
    let log = AuditWriter::new().log(&folder.path().join("audit"));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for n in 0..ENTRIES / threads {
                    log.ready().block().unwrap();
                    let mut entry = log.entry().unwrap();
                    entry.put("n", &n);
                    log.append(entry).block().unwrap();
                }
            });
        }
    });
    let a_second = ENTRIES as f64 / start.elapsed().as_secs_f64();
    println!("{threads:>4} threads: {a_second:>8.0} entries a second in one log");
    json!({"threads": threads, "entries_a_second": a_second})
}

/// A thousand logs that were used and are idle: memory and descriptors of each.
fn idle() -> Value {
    const LOGS: u64 = 1_000;
    let folder = tempfile::tempdir().unwrap();
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    let (memory, before) = (harness_bench::private_memory(), descriptors());
    let writer = AuditWriter::new();
    let logs: Vec<_> = (0..LOGS).map(|n| writer.log(&folder.path().join(n.to_string()))).collect();
    for log in &logs {
        log.ready().block().unwrap();
        log.append(log.entry().unwrap()).block().unwrap();
    }
    let bytes = harness_bench::private_memory().saturating_sub(memory) / LOGS;
    let open = descriptors().saturating_sub(before);
    println!("{LOGS} idle logs: {bytes} bytes of memory each, {open} descriptors in all");
    json!({"logs": LOGS, "bytes_each": bytes, "descriptors": open})
}

/// What runs beside the calls.
#[derive(Clone, Copy)]
enum Company {
    Nothing,
    Computing,
    Verifying,
}

/// Calls at a fixed rate, alone and in company. Each is timed from its start: that the timer is late is not the log's.
fn reading(runtime: &Runtime, folder: &Path, project: &Project, size: u64, f: f64) -> Value {
    let audit = folder.join(harness_audit::FOLDER);
    fill(&audit, size);
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    let begun = Instant::now();
    harness_audit::verify(&audit).unwrap();
    let verified = begun.elapsed().as_secs_f64();
    let mut last = SHORTEST;
    for _ in 0..ROUNDS {
        let companies = [Company::Verifying, Company::Nothing, Company::Computing];
        for (company, times) in companies.into_iter().zip(&mut times) {
            let mut child = start(company, &audit);
            let begun = Instant::now();
            let mut due = begun;
            let goes_on = |child: &mut Option<Child>| match (company, child) {
                (Company::Verifying, Some(child)) => child.try_wait().unwrap().is_none(),
                _ => begun.elapsed() < last,
            };
            while goes_on(&mut child) {
                due += PACE;
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                let start = Instant::now();
                call(runtime, project);
                times.push(start.elapsed());
            }
            match (company, child) {
                (Company::Verifying, Some(mut child)) => {
                    assert!(child.wait().unwrap().success());
                    last = begun.elapsed();
                }
                (_, Some(mut child)) => {
                    child.kill().unwrap();
                    child.wait().unwrap();
                }
                _ => {}
            }
        }
    }
    let [verifying, alone, computing] = times;
    let rows = [
        Samples::of("recorded call at a fixed rate, alone", alone),
        Samples::of("the same beside a process that computes", computing),
        Samples::of("the same beside `audit verify`", verifying),
    ];
    println!("\na log of {size} MiB, verified in {verified:.1} s");
    for row in &rows {
        println!("{}", row.row(f));
    }
    let [alone, computing, verifying] = rows.each_ref().map(|row| row.percentile(0.99) / 1e3);
    println!(
        "p99 beside `audit verify`: {:+.3} ms of alone, {:+.3} ms of beside a process that computes",
        verifying - alone,
        verifying - computing
    );
    json!({
        "mib": size, "verified_s": verified, "rows": rows.iter().map(|row| row.json(f)).collect::<Vec<_>>(),
        "p99_ms_over_alone": verifying - alone, "p99_ms_over_computing": verifying - computing,
    })
}

/// Makes the log at least as large as that.
fn fill(audit: &Path, mib: u64) {
    let log = AuditWriter::new().log(audit);
    let text = "x".repeat(900);
    for n in 0..mib << 10 {
        let mut entry = log.entry().unwrap();
        entry.put("n", &n);
        entry.put("text", &text);
        log.append(entry).block().unwrap();
    }
}

fn start(company: Company, audit: &Path) -> Option<Child> {
    let mut command = match company {
        Company::Nothing => return None,
        Company::Computing => {
            let mut command = Command::new("sh");
            command.args(["-c", "while :; do :; done"]);
            command
        }
        Company::Verifying => {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.env(VERIFY, audit);
            command
        }
    };
    Some(command.stdout(Stdio::null()).spawn().unwrap())
}
