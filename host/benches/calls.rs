//! What a call costs.
//!
//! Every time is printed next to F, the floor: a fresh store, an instance of a component that does nothing, and a call of
//! it, on an engine with the same settings, measured in the same run. Machines differ and are shared; ratios to F
//! carry over. Prints a table, and writes `target/bench/calls.json`.
//!
//! ```text
//! cargo bench --bench calls                 all
//! cargo bench --bench calls -- rows         only the times of one call
//! cargo bench --bench calls -- throughput   only calls a second, by calls in flight
//! ```

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measurement ends where something fails"
)]

mod floor;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use harness_artifact::policy::ProjectPolicy;
use harness_bench::{Samples, files_in_memory, private_memory, time};
use harness_capability::fs::Workspace;
use harness_policy::limits::Limits;
use harness_sandbox::engine::{Image, Sandbox, Settings};
use harness_sandbox::outcome::{Entry, Outcome, Source};
use harness_sandbox::state::{Context, Session};
use serde_json::{Value, json};

use floor::floor;

/// A small tool without I/O: what a command wrapper does beside its command.
const SMALL: &str = r#"
def run(args):
    command = args.get("command", "")
    timeout = args.get("timeout_ms", 15000)
    if not command:
        return {"error": "command is required"}
    result = {"stdout": command, "stderr": "", "exit_code": 0}
    return {
        "stdout": string.truncate(result.get("stdout", ""), 4000),
        "stderr": string.truncate(result.get("stderr", ""), 2000),
        "exit_code": result.get("exit_code", 0),
    }
"#;
const SMALL_ARGS: &str = r#"{"command":"ls -la","timeout_ms":1000}"#;
const READ: &str = "def run(args):\n    return {\"size\": len(fs.read(\"kilobyte.txt\"))}\n";
const LOOP: &str =
    "def run(args):\n    s = 0\n    for i in range(args[\"n\"]):\n        s += i * 2 % 7\n    return s\n";
const WAIT: &str = "def run(args):\n    sleep(args[\"ms\"])\n    return 0\n";
const ITERATIONS: u32 = 1_000_000;

fn main() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("kilobyte.txt"), "x".repeat(1024)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bench = Bench::new(folder.path());

    if std::env::args().any(|argument| argument == "memory") {
        drop(memory(&bench));
        return;
    }
    let floor = floor();
    let small = bench.load(SMALL);
    if std::env::args().any(|argument| argument == "throughput") {
        [1, 32, 320].into_iter().for_each(|in_flight| drop(throughput(&bench, &small, in_flight)));
        return;
    }
    let read = bench.load(READ);
    let instantiate = || {
        let instance = bench.sandbox.instantiate(&small, bench.context.clone(), Limits::default());
        runtime.block_on(instance).unwrap();
    };
    let mut rows = Samples::times_in_turn(
        &mut [
            ("F: fresh store, trivial component, one call", &mut || time(&mut || floor())),
            ("instantiate the interpreter, do nothing", &mut || time(&mut || instantiate())),
            // What the caller waits for. The instance is cleared up, and the next one made, when the caller has its answer.
            ("tool call, no I/O, until the answer", &mut || runtime.block_on(bench.answer(&small, SMALL_ARGS))),
            ("tool call, no I/O, and cleared up", &mut || {
                time(&mut || runtime.block_on(bench.call(&small, SMALL_ARGS)))
            }),
            ("tool call with one fs.read of 1 KiB", &mut || time(&mut || runtime.block_on(bench.call(&read, "{}")))),
        ],
        80,
        250,
    );
    let f = rows.first().map_or(f64::NAN, Samples::median);
    // Each is another script: images are kept by their content.
    let mut loaded = 0;
    rows.push(Samples::take("load a script into an image", 100, || {
        loaded += 1;
        drop(bench.load(&format!("{SMALL}\nN = {loaded}\n")));
    }));
    let only_rows = std::env::args().any(|argument| argument == "rows");
    if !only_rows {
        rows.push(start_to_result(folder.path()));
    }

    println!("{:<48} {:>10} {:>10} {:>8}", "", "p50 µs", "p99 µs", "p50 / F");
    for row in &rows {
        println!("{}", row.row(f));
    }
    if only_rows {
        return;
    }
    let interpreting = interpreting(&bench, &runtime);
    let throughput: Vec<Value> =
        [1, 32, 320].into_iter().map(|in_flight| throughput(&bench, &small, in_flight)).collect();
    let best = throughput.iter().filter_map(|row| row["calls_a_second"].as_f64()).fold(0.0, f64::max);
    let open_loop: Vec<Value> = [0.5, 0.8].into_iter().map(|part| open_loop(&bench, &small, best * part)).collect();
    let memory = memory(&bench);
    let result = json!({
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "rows": rows.iter().map(|row| row.json(f)).collect::<Vec<_>>(),
        "interpreting": interpreting,
        "throughput": throughput,
        "open_loop": open_loop,
        "memory": memory,
    });
    let out = harness_bench::target().unwrap().join("bench");
    std::fs::create_dir_all(&out).unwrap();
    std::fs::write(out.join("calls.json"), format!("{result:#}\n")).unwrap();
    println!("\nwritten: {}", out.join("calls.json").display());
}

/// The sandbox and what its calls may touch.
struct Bench {
    sandbox: Sandbox,
    context: Context,
}

impl Bench {
    fn new(folder: &Path) -> Self {
        let sandbox = Sandbox::new(Settings { instances: 400, ..Settings::default() }).unwrap();
        let grant = ProjectPolicy::absent(".harness/harness.md").grant_for("tools/bench", None);
        let context = Context {
            grant: Arc::new(grant),
            workspace: Arc::new(Workspace::open(folder).unwrap()),
            session: Arc::new(Session::default()),
            turn: Arc::default(),
            namespace: None,
            system: Arc::default(),
            http: Arc::default(),
            listener: None,
            secrets: Arc::default(),
            depth: 0,
            reentry: None,
        };
        Self { sandbox, context }
    }

    fn load(&self, text: &str) -> Image {
        let source = Source {
            file: "bench.md".to_owned(),
            text: text.to_owned(),
            first_line: 1,
            indent: 0,
            entry: Entry::Tool,
            predicate: None,
            coverage: false,
        };
        self.sandbox.load(&source).unwrap()
    }

    async fn call(&self, image: &Image, args: &str) {
        let report = self.sandbox.run(image, self.context.clone(), Limits::default(), args).await;
        assert!(matches!(report.outcome, Outcome::Completed(_)), "{:?}", report.outcome);
    }
}

impl Bench {
    /// How long the caller of a tool waits: a task that does nothing else.
    async fn answer(&self, image: &Image, args: &'static str) -> Duration {
        let (sandbox, context, image) = (self.sandbox.clone(), self.context.clone(), image.clone());
        let call = async move {
            let begun = Instant::now();
            let report = sandbox.run(&image, context, Limits::default(), args).await;
            let took = begun.elapsed();
            assert!(matches!(report.outcome, Outcome::Completed(_)), "{:?}", report.outcome);
            took
        };
        tokio::spawn(call).await.unwrap()
    }
}

/// The whole program: from its start to the result of a tool, nothing cached.
fn start_to_result(folder: &Path) -> Samples {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--locked", "--quiet", "--manifest-path"])
        // All packages that are built by default, or the engine would be built anew with other features.
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"))
        .status();
    assert!(built.unwrap().success());
    let tools = folder.join(".harness/tools");
    std::fs::create_dir_all(&tools).unwrap();
    let script: String = SMALL.trim().lines().map(|line| format!("  {line}\n")).collect();
    std::fs::write(tools.join("small.md"), format!("---\nscript: |\n{script}---\nSmall.\n")).unwrap();
    let binary = harness_bench::target().unwrap().join("release/harness");
    Samples::take("process start to first result, nothing cached", 50, || {
        let mut command = Command::new(&binary);
        command.arg("-C").arg(folder).args(["call", "small", "command=ls"]).stdout(Stdio::null());
        assert!(command.status().unwrap().success());
    })
}

/// A loop in the sandbox and the same interpreter without one.
fn interpreting(bench: &Bench, runtime: &tokio::runtime::Runtime) -> Value {
    let image = bench.load(LOOP);
    let args = json!({"n": ITERATIONS}).to_string();
    let sandboxed = Samples::take("sandboxed", 15, || runtime.block_on(bench.call(&image, &args)));
    let native = Samples::take("native", 15, native_loop);
    let (sandboxed, native) = (sandboxed.median() / 1e3, native.median() / 1e3);
    println!(
        "\na loop of {ITERATIONS} iterations: {sandboxed:.1} ms in the sandbox, {native:.1} ms native, {:.2} times",
        sandboxed / native
    );
    json!({"sandboxed_ms": sandboxed, "native_ms": native, "times": sandboxed / native})
}

fn native_loop() {
    use starlark::environment::{Globals, Module};
    use starlark::eval::Evaluator;
    use starlark::syntax::{AstModule, Dialect};
    let text = format!("{LOOP}\nrun({{\"n\": {ITERATIONS}}})\n");
    let ast = AstModule::parse("loop", text, &Dialect::Standard).unwrap();
    Module::with_temp_heap(|module| {
        let mut evaluator = Evaluator::new(&module);
        assert_eq!(evaluator.eval_module(ast, &Globals::standard()).unwrap().unpack_i32(), Some(2_999_997));
    });
}

/// Calls a second, with so many in flight: each begins when one before it has ended.
fn throughput(bench: &Bench, image: &Image, in_flight: usize) -> Value {
    /// Long enough that the start does not count.
    const TIME: Duration = Duration::from_secs(3);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(cores).enable_all().build().unwrap();
    let start = Instant::now();
    let tasks: Vec<_> = (0..in_flight)
        .map(|_| {
            let (sandbox, context, image) = (bench.sandbox.clone(), bench.context.clone(), image.clone());
            runtime.spawn(async move {
                let mut times = Vec::new();
                while start.elapsed() < TIME {
                    let begun = Instant::now();
                    let report = sandbox.run(&image, context.clone(), Limits::default(), SMALL_ARGS).await;
                    assert!(matches!(report.outcome, Outcome::Completed(_)), "{:?}", report.outcome);
                    times.push(begun.elapsed());
                    tokio::task::yield_now().await;
                }
                times
            })
        })
        .collect();
    let times: Vec<Duration> = runtime.block_on(async {
        let mut all = Vec::new();
        for task in tasks {
            all.extend(task.await.unwrap());
        }
        all
    });
    let a_second = times.len() as f64 / start.elapsed().as_secs_f64();
    let samples = Samples::of("in flight", times);
    let (p50, p99) = (samples.median(), samples.percentile(0.99));
    println!(
        "{in_flight:>4} in flight: {a_second:>8.0} calls a second on {cores} cores, each p50 {p50:.1} µs, p99 {p99:.1} µs"
    );
    json!({"in_flight": in_flight, "calls_a_second": a_second, "p50_us": p50, "p99_us": p99})
}

/// Calls that come at a rate whatever becomes of those before them, so that a stall is not hidden: each is timed from
/// when it was due, not from when it began.
fn open_loop(bench: &Bench, image: &Image, rate: f64) -> Value {
    const TIME: Duration = Duration::from_secs(3);
    /// Who makes the calls. Each takes the next that is due, so that the threads of the calls are those that start them.
    const CALLERS: usize = 64;
    /// The runtime's timer is not finer than this.
    const TIMER: Duration = Duration::from_millis(2);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(cores).enable_all().build().unwrap();
    let (in_flight, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let next = Arc::new(AtomicUsize::new(0));
    let times = runtime.block_on(async {
        let start = Instant::now();
        let callers: Vec<_> = (0..CALLERS)
            .map(|_| {
                let (sandbox, context, image) = (bench.sandbox.clone(), bench.context.clone(), image.clone());
                let (in_flight, most, next) = (in_flight.clone(), most.clone(), next.clone());
                tokio::spawn(async move {
                    let mut times = Vec::new();
                    loop {
                        let due = Duration::from_secs_f64(next.fetch_add(1, Ordering::Relaxed) as f64 / rate);
                        if due >= TIME {
                            return times;
                        }
                        loop {
                            match due.checked_sub(start.elapsed()) {
                                None => break,
                                Some(left) if left > TIMER => tokio::time::sleep(left - TIMER).await,
                                Some(_) => tokio::task::yield_now().await,
                            }
                        }
                        most.fetch_max(in_flight.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                        let report = sandbox.run(&image, context.clone(), Limits::default(), SMALL_ARGS).await;
                        in_flight.fetch_sub(1, Ordering::Relaxed);
                        let took = start.elapsed().saturating_sub(due);
                        // The queue is full: the machine was slower for a moment than when the rate was measured.
                        let refused = matches!(report.outcome, Outcome::Busy(_));
                        assert!(refused || matches!(report.outcome, Outcome::Completed(_)), "{:?}", report.outcome);
                        times.push((!refused).then_some(took));
                        tokio::task::yield_now().await;
                    }
                })
            })
            .collect();
        let mut times = Vec::new();
        for caller in callers {
            times.extend(caller.await.unwrap());
        }
        times
    });
    let begun = times.len();
    let times: Vec<Duration> = times.into_iter().flatten().collect();
    let refused = begun - times.len();
    let samples = Samples::of("open loop", times);
    let (p50, p99, most) = (samples.median(), samples.percentile(0.99), most.load(Ordering::Relaxed));
    println!(
        "open loop, {rate:>6.0} calls a second: p50 {p50:.0} µs, p99 {p99:.0} µs from when due, at most {most} begun, \
         {refused} refused"
    );
    json!({"calls_a_second": rate, "p50_us": p50, "p99_us": p99, "most_in_flight": most, "refused": refused})
}

/// Private memory of a call that continues, and of a script that waits to be called.
fn memory(bench: &Bench) -> Value {
    const CALLS: u64 = 200;
    const SCRIPTS: u64 = 100;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let image = bench.load(WAIT);
    let live = runtime.block_on(async {
        let waiting = async {
            let calls = (0..CALLS)
                .map(|_| bench.sandbox.run(&image, bench.context.clone(), Limits::default(), r#"{"ms":1500}"#));
            let calls: Vec<_> = calls.map(Box::pin).collect();
            join_all(calls).await;
        };
        let measured = async {
            let before = private_memory();
            tokio::time::sleep(Duration::from_millis(750)).await;
            private_memory().saturating_sub(before) / CALLS
        };
        let (live, ()) = tokio::join!(measured, waiting);
        live
    });
    let before = private_memory() + files_in_memory();
    let images: Vec<Image> = (0..SCRIPTS).map(|n| bench.load(&format!("{SMALL}\nN = {n}\n"))).collect();
    let idle = (private_memory() + files_in_memory()).saturating_sub(before) / SCRIPTS;
    drop(images);
    println!("private memory of a live call: {} KiB; memory of an idle script: {} KiB", live >> 10, idle >> 10);
    json!({"live_call_bytes": live, "idle_script_bytes": idle})
}

async fn join_all<F: Future + Unpin>(mut futures: Vec<F>) {
    std::future::poll_fn(|context| {
        futures.retain_mut(|future| std::pin::Pin::new(future).poll(context).is_pending());
        if futures.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}
