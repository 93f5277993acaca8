//! How long one project's small call takes alone, and beside others in the same host that try to take all of it; and how
//! the processor is shared between projects that compute.
//!
//! ```text
//! cargo bench --bench neighbours             all
//! cargo bench --bench neighbours -- loops    those whose name has this in it
//! ```
//!
//! Prints a table, and writes `target/bench/neighbours.json`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measurement ends where something fails"
)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use harness_bench::Samples;
use harness_dispatch::{Host, HostOptions, Options, Project, Run};
use harness_registry::Machine;
use harness_sandbox::scheduling::quota::Quota;
use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// Calls of the measured project, one after the other with a pause between them.
const CALLS: usize = 1000;
const PAUSE: Duration = Duration::from_millis(2);
/// Tools of a project whose scripts are called when they are not loaded yet. Loaded, they take less than the 128 MiB that
/// the scripts of one project may.
const COLD: usize = 50;

/// What others do: a name, how many projects, how many calls at one time in each, and the script of their tool.
const NEIGHBOURS: &[(&str, usize, usize, &str)] = &[
    ("one project, 1,000 endless loops", 1, 1000, "for i in range(1000000000):\n        pass"),
    ("ten projects, 100 endless loops each", 10, 100, "for i in range(1000000000):\n        pass"),
    ("allocation to the limit", 1, 100, "all = []\n    for i in range(1000000):\n        all.append('x' * 100000)"),
    ("100,000 host calls", 1, 100, "for i in range(100000):\n        cache.set('k', i)"),
    ("pattern bombs", 1, 100, "for i in range(100000):\n        re.match('(a|aa)+$', 'a' * 5000 + 'b')"),
    ("log floods", 1, 100, "for i in range(100000):\n        log.info('x' * 1000)"),
    (
        "computing for most of a tick, then sleeping",
        1,
        500,
        "for i in range(100000):\n        [x for x in range(16000)]\n        sleep(1)",
    ),
    ("sleep storms", 1, 500, "for i in range(100000):\n        sleep(1)"),
    (
        "commands that fork",
        1,
        20,
        "for i in range(1000):\n        exec.run('sh', ['-c', 'for n in 1 2 3 4 5; do (true) & done; wait'])",
    ),
];

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
    println!("{:<48} {:>10} {:>10} {:>10}", "a small call", "p50 µs", "p99 µs", "p99/alone");
    let mut rows = Vec::new();
    let (alone, _) = beside("alone", 0, 0, "pass");
    let floor = alone.percentile(0.99);
    rows.push(row(&alone, floor));
    for (name, projects, calls, script) in NEIGHBOURS.iter().filter(|(name, ..)| is_wanted(name)) {
        let (samples, ended) = beside(name, *projects, *calls, script);
        rows.push(row(&samples, floor));
        println!("    the others' calls that ended meanwhile: {ended}");
    }
    if is_wanted("cold scripts") {
        let (samples, loaded) = beside_loads();
        rows.push(row(&samples, floor));
        println!("    scripts that were loaded meanwhile: {loaded}");
    }
    if is_wanted("shares") {
        shares();
    }
    if let Some(folder) = harness_bench::target() {
        let folder = folder.join("bench");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("neighbours.json"), serde_json::to_string_pretty(&rows).unwrap()).unwrap();
    }
}

fn row(samples: &Samples, alone: f64) -> serde_json::Value {
    let (p50, p99) = (samples.median(), samples.percentile(0.99));
    println!("{:<48} {p50:>10.1} {p99:>10.1} {:>10.2}", samples.name, p99 / alone);
    json!({"name": samples.name, "p50_us": p50, "p99_us": p99, "alone": p99 / alone})
}

/// The threads of a front end, which also measures.
fn runtime() -> Runtime {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.on_thread_start(harness_sys::slices::ask_for_short_slices);
    runtime.worker_threads(2).enable_all().build().unwrap()
}

fn host() -> Host {
    Host::new(HostOptions::default().instances(1500)).unwrap()
}

/// A project of one tool `it`, with limits that end nothing here.
fn project(host: &Host, script: &str, quota: Quota) -> (TempDir, Arc<Project>) {
    let folder = tempfile::tempdir().unwrap();
    let policy = "---\nsandbox:\n  exec: { allow: [sh] }\n  limits: { timeout_ms: 600000, fuel: 100000000000000, host_calls: 1000000000 }\n---\n";
    write(folder.path(), ".harness/harness.md", policy);
    write(folder.path(), ".harness/tools/it.md", &tool(script));
    let options = Options { quota, audit: false, machine: Machine::None, ..Options::default() };
    let project = host.open(folder.path(), options).unwrap();
    (folder, Arc::new(project))
}

fn tool(script: &str) -> String {
    format!("---\nscript: |\n  def run(args):\n      {}\n---\nIt.\n", script.replace('\n', "\n  "))
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Others at work until they are stopped.
fn others(
    runtime: &Runtime,
    host: &Host,
    (projects, calls): (usize, usize),
    script: &str,
    stop: &Arc<AtomicBool>,
) -> (Vec<TempDir>, Vec<JoinHandle<()>>, Arc<AtomicU64>) {
    let ended = Arc::new(AtomicU64::new(0));
    let (mut folders, mut tasks) = (Vec::new(), Vec::new());
    for _ in 0..projects {
        let (folder, project) = project(host, script, Quota::default());
        folders.push(folder);
        for _ in 0..calls {
            let (project, stop, ended) = (project.clone(), stop.clone(), ended.clone());
            tasks.push(runtime.spawn(async move {
                let run = Run::new();
                while !stop.load(Ordering::Relaxed) {
                    let _ = project.call("it", json!({}), &run).await;
                    ended.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
    }
    (folders, tasks, ended)
}

fn measured(name: &'static str, runtime: &Runtime, host: &Host) -> Samples {
    let (_folder, project) = project(host, "return 1", Quota::default());
    let measuring = runtime.spawn(async move {
        let run = Run::new();
        let mut times = Vec::new();
        for n in 0..CALLS + CALLS / 10 {
            tokio::time::sleep(PAUSE).await;
            let began = Instant::now();
            let report = project.call("it", json!({}), &run).await.unwrap();
            assert!(!report.is_error, "{}", report.content);
            if n >= CALLS / 10 {
                times.push(began.elapsed());
            }
        }
        times
    });
    Samples::of(name, runtime.block_on(measuring).unwrap())
}

fn beside(name: &'static str, projects: usize, calls: usize, script: &str) -> (Samples, u64) {
    let (runtime, host, stop) = (runtime(), host(), Arc::new(AtomicBool::new(false)));
    let (_folders, tasks, ended) = others(&runtime, &host, (projects, calls), script, &stop);
    // Until they are at work.
    std::thread::sleep(Duration::from_millis(if projects == 0 { 0 } else { 1000 }));
    let samples = measured(name, &runtime, &host);
    stop.store(true, Ordering::Relaxed);
    tasks.iter().for_each(JoinHandle::abort);
    (samples, ended.load(Ordering::Relaxed))
}

/// Beside a project of many long scripts that are called for the first time, all at one time; then it is opened
/// again, so that none of them is loaded.
fn beside_loads() -> (Samples, u64) {
    let (runtime, host, stop) = (runtime(), host(), Arc::new(AtomicBool::new(false)));
    let folder = tempfile::tempdir().unwrap();
    for n in 0..COLD {
        let text = format!("return [{n}, {}]", "[1, 2, 3], ".repeat(2000));
        write(folder.path(), &format!(".harness/tools/t{n}.md"), &tool(&text));
    }
    let root = folder.path().to_owned();
    let (opening, is_over, loaded) = (host.clone(), stop.clone(), Arc::new(AtomicU64::new(0)));
    let counted = loaded.clone();
    let others = runtime.spawn(async move {
        while !is_over.load(Ordering::Relaxed) {
            let (host, root) = (opening.clone(), root.clone());
            let options = Options { audit: false, machine: Machine::None, ..Options::default() };
            let project = tokio::task::spawn_blocking(move || host.open(&root, options).unwrap()).await.unwrap();
            let (project, run) = (Arc::new(project), Run::new());
            let mut calls = tokio::task::JoinSet::new();
            for n in 0..COLD {
                let (project, run, loaded) = (project.clone(), run.clone(), counted.clone());
                calls.spawn(async move {
                    let report = project.call(&format!("t{n}"), json!({}), &run).await.unwrap();
                    assert!(!report.is_error, "{}", report.content);
                    loaded.fetch_add(1, Ordering::Relaxed);
                });
            }
            calls.join_all().await;
        }
    });
    std::thread::sleep(Duration::from_millis(500));
    let samples = measured("cold scripts", &runtime, &host);
    stop.store(true, Ordering::Relaxed);
    runtime.block_on(others).unwrap();
    (samples, loaded.load(Ordering::Relaxed))
}

/// How the processor is shared: sixteen equal projects of one to sixteen loops each, and three of other weights. Each
/// counts what its loops did, each in a run of its own: two that count in one at the same time wait for each other.
fn shares() {
    const SCRIPT: &str = "for i in range(1000000000):\n        metrics.incr('n')";
    let counted = |quotas: &[Quota], calls: &dyn Fn(usize) -> usize| -> Vec<f64> {
        let (runtime, host) = (runtime(), host());
        let opened: Vec<_> = quotas.iter().map(|quota| project(&host, SCRIPT, *quota)).collect();
        let runs: Vec<Vec<_>> = (0..opened.len()).map(|n| (0..calls(n)).map(|_| Run::new()).collect()).collect();
        for ((_, project), runs) in opened.iter().zip(&runs) {
            for run in runs {
                let (project, run) = (project.clone(), run.clone());
                runtime.spawn(async move { project.call("it", json!({}), &run).await });
            }
        }
        let now = || -> Vec<f64> { runs.iter().map(|runs| runs.iter().map(|run| count(run)).sum()).collect() };
        std::thread::sleep(Duration::from_secs(1));
        let before = now();
        std::thread::sleep(Duration::from_secs(8));
        let after = now();
        runtime.shutdown_background();
        after.iter().zip(&before).map(|(after, before)| after - before).collect()
    };
    let equal = counted(&[Quota::default(); 16], &|n| n + 1);
    let (sum, squares): (f64, f64) = (equal.iter().sum(), equal.iter().map(|x| x * x).sum());
    println!("sixteen equal projects of 1 to 16 loops: Jain's index {:.4}", sum * sum / (equal.len() as f64 * squares));
    let weights = [100, 200, 700];
    let got = counted(&weights.map(|weight| Quota::default().weight(weight)), &|_| 4);
    let sum: f64 = got.iter().sum();
    let parts: Vec<String> =
        got.iter().zip(weights).map(|(got, weight)| format!("{weight}: {:.1} %", got / sum * 100.0)).collect();
    println!("weights {weights:?}, wanted 10, 20 and 70 %: {}", parts.join(", "));
}

fn count(run: &Run) -> f64 {
    run.session().metrics.get("n")
}
