//! Very many calls, of every kind of ending: does the host stay as large as it was?

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use harness::dispatch::{Options, Project, Run};
use harness::sandbox::imports::Role;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::process::Held;
use crate::state::Guest;
use crate::world::{Servers, World};

/// Calls where ATTACKS_SOAK_CALLS does not say.
const CALLS: u64 = 1_000_000;
/// Calls at one time where ATTACKS_SOAK_AT_ONCE does not say.
const AT_ONCE: u64 = 8;
/// By how much resident memory may grow after the first fifth, in KiB.
const MAY_GROW: u64 = 16 << 10;

/// Each kind: how it must end, its limits and the body of its script. How often each is called is in `kind`.
const KINDS: [(&str, &str, &str); 9] = [
    ("completed", "", "return args['n']"),
    ("completed", "", "return fs.read('inside.txt')"),
    ("completed", "", "cache.set('k' + str(args['n'] % 100), 'v')\n    log('x')\n    return metrics.incr('m')"),
    ("failed", "", "fail('no')"),
    ("denied", "", "return fs.read('../outside/canary.txt')"),
    ("denied", "", "return http.get('http://127.0.0.1:9/')"),
    ("limited", "fuel: 3000000", "return len([0 for i in range(1 << 30)])"),
    ("limited", "memory_mb: 16", "return len('x' * ((17 << 20) + len(args)))"),
    ("limited", "timeout_ms: 3", "sleep(60000)"),
];

/// Which kind the call of a number is: mostly those that complete, one in 200 of those that wait, and one in 500 is given
/// up by its caller.
fn kind(n: u64) -> usize {
    match n % 200 {
        0 => 8,
        1..=4 => 7,
        5..=10 => 6,
        n => usize::try_from(n % 6).unwrap(),
    }
}

/// Whether the host stayed as it was.
pub(crate) fn run(runtime: &Runtime) -> bool {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let calls = number("ATTACKS_SOAK_CALLS").unwrap_or(CALLS);
    let at_once = number("ATTACKS_SOAK_AT_ONCE").unwrap_or(AT_ONCE);
    let servers = runtime.block_on(Servers::start());
    let world = World::new(&servers);
    let tools = world.work().join(".harness/tools");
    std::fs::create_dir_all(&tools).unwrap();
    std::fs::write(world.work().join(".harness/harness.md"), "---\nsandbox: { audit: false }\n---\n").unwrap();
    for (n, (_, limits, body)) in KINDS.iter().enumerate() {
        let front =
            if limits.is_empty() { String::new() } else { format!("capabilities: {{ limits: {{ {limits} }} }}\n") };
        let script = format!("  def run(args):\n      {}\n", body.replace("\n    ", "\n      "));
        std::fs::write(tools.join(format!("t{n}.md")), format!("---\n{front}script: |\n{script}---\n")).unwrap();
    }
    let options = Options { concurrency: u32::try_from(at_once).unwrap(), ..Options::default() };
    let project = Arc::new(Project::open(&world.work(), options).unwrap());
    let guest = Guest::new(&servers);

    let interval = (calls / 20).max(1);
    println!("{:>10} {:>9}  held", "calls", "a second");
    let (done, started) = (AtomicU64::new(0), Instant::now());
    let mut first = None;
    let mut fine = true;
    while done.load(Ordering::Relaxed) < calls {
        let (from, begun) = (done.load(Ordering::Relaxed), Instant::now());
        let to = (from + interval).min(calls);
        let wrong = runtime.block_on(some(&project, from, to, at_once));
        done.store(to, Ordering::Relaxed);
        // Between them, a guest that looks for what others have left: 100,000 in a million.
        for _ in 0..(to - from) / 10 {
            let said = guest.call(runtime, Role::Tool);
            if said != "passed" {
                println!("FAILED a canary was found: {said}");
                return false;
            }
        }
        if wrong > 0 {
            println!("FAILED {wrong} calls did not end as they must");
            fine = false;
        }
        let rate = u128::from(to - from) * 1000 / begun.elapsed().as_millis().max(1);
        let held = Held::settled(runtime, first);
        println!("{to:>10} {rate:>9}  {held}");
        match first {
            // What is made once was made in the first fifth: slots of the pools are used for the first time now and then.
            None if done.load(Ordering::Relaxed) < calls / 5 => {}
            None => first = Some(held),
            Some(first) => {
                let grown = held.memory > first.memory + MAY_GROW
                    || held.descriptors > first.descriptors
                    || held.threads > first.threads
                    || held.children > first.children;
                if grown {
                    println!("FAILED the host has grown since {first}");
                    fine = false;
                }
            }
        }
    }
    println!("{calls} calls in {:.0} s", started.elapsed().as_secs_f64());
    fine
}

/// Calls of these numbers, several at a time. Gives back how many did not end as they must.
async fn some(project: &Arc<Project>, from: u64, to: u64, at_once: u64) -> usize {
    let next = Arc::new(AtomicU64::new(from));
    let wrong = Arc::new(AtomicUsize::new(0));
    let mut callers = JoinSet::new();
    for _ in 0..at_once {
        let (project, next, wrong) = (project.clone(), next.clone(), wrong.clone());
        callers.spawn(async move {
            let mut run = Run::new();
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= to {
                    return;
                }
                if n % 1000 == 0 {
                    run = Run::new();
                }
                let kind = kind(n);
                let (ends, name) = (KINDS[kind].0, format!("t{kind}"));
                let call = project.call(&name, json!({"n": n}), &run);
                if n % 500 == 250 {
                    // Given up, in the middle of it or just after.
                    let _ = tokio::time::timeout(Duration::from_micros(n % 90), call).await;
                } else if call.await.map_or(true, |report| report.outcome.name() != ends) {
                    wrong.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    callers.join_all().await;
    wrong.load(Ordering::Relaxed)
}
