//! Very many calls, of every kind of ending: does the host stay as large as it was?

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use harness_dispatch::{Host, HostOptions, Options, Project, Run};
use harness_policy::limits::Limits;
use harness_sandbox::outcome::Outcome;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::process::Held;
use crate::state::{Guest, LEFT, found_by_commands, kept_apart};
use crate::world::{Servers, World};

/// Calls where ATTACKS_SOAK_CALLS does not say.
const CALLS: u64 = 1_000_000;
/// Runs at most that look for what one of them has left in the cache.
const RUNS: u64 = 100_000;
/// Commands at most that look for files of those before, where ATTACKS_SOAK_COMMANDS does not say: each is a process behind
/// its wall, and takes as long as a hundred calls that start none.
const COMMANDS: u64 = 2_000;
/// Calls at one time where ATTACKS_SOAK_AT_ONCE does not say.
const AT_ONCE: u64 = 8;
/// By how much resident memory may grow after the first fifth, in KiB.
const MAY_GROW: u64 = 16 << 10;

/// Each kind: how it must end, its limits and the body of its script. How often each is called is in `kind`.
const KINDS: [(&str, &str, &str); 14] = [
    ("completed", "", "return len(args['x'] * 20000) + args['n']"),
    ("completed", "", "return fs.read('inside.txt')"),
    ("completed", "", "cache.set('k' + str(args['n'] % 100), 'v')\n    log('x')\n    return metrics.incr('m')"),
    ("failed", "", "fail('no')"),
    ("denied", "", "return fs.read('../outside/canary.txt')"),
    ("denied", "", "return http.get('http://127.0.0.1:9/')"),
    ("fuel", "fuel: 3000000", "return len([0 for i in range(1 << 30)])"),
    ("memory", "memory_mb: 16", "return len('x' * ((17 << 20) + len(args)))"),
    ("timeout_ms", "timeout_ms: 3", "sleep(60000)"),
    ("host calls", "host_calls: 10", "return [cache.get('k') for i in range(20)]"),
    ("output", "result_bytes: 256", "return 'x' * 1000"),
    ("call depth", "", "f = lambda g, n: g(g, n + 1)\n    return f(f, 0)"),
    // These two by other numbers.
    ("completed", "", "return exec.run('true')['exit_code']"),
    ("given up", "", "sleep(60000)"),
];
const COMMAND: usize = 12;
const SLEEPS: usize = 13;

/// Which kind the call of a number is: mostly those that complete, one in 200 of those that wait.
fn kind(n: u64) -> usize {
    match n % 200 {
        0 => 8,
        1..=4 => 7,
        5..=10 => 6,
        11 => 9,
        12 => 10,
        13 => 11,
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
    std::fs::write(
        world.work().join(".harness/harness.md"),
        "---\nsandbox: { audit: false, exec: { allow: [\"true\"] } }\n---\n",
    )
    .unwrap();
    for (n, (_, limits, body)) in KINDS.iter().enumerate() {
        let front =
            if limits.is_empty() { String::new() } else { format!("capabilities: {{ limits: {{ {limits} }} }}\n") };
        let script = format!("  def run(args):\n      {}\n", body.replace("\n    ", "\n      "));
        std::fs::write(tools.join(format!("t{n}.md")), format!("---\n{front}script: |\n{script}---\n")).unwrap();
    }
    let options = HostOptions::default().instances(u32::try_from(at_once).unwrap());
    let project = Arc::new(Host::new(options).unwrap().open(&world.work(), Options::default()).unwrap());
    // In the pools that the calls come from.
    let guest = Arc::new(Guest::new(project.loaded().sandbox().clone(), &world));
    let command = runtime
        .block_on(project.call(&format!("t{COMMAND}"), json!({}), &Run::new()))
        .map(|report| ended(&report.outcome));
    let commands = command.is_ok_and(|ended| ended == "completed");
    println!("commands: {}", if commands { "every 500th call" } else { "none, as no wall stands here" });

    let interval = (calls / 20).max(1);
    println!("{:>10} {:>9}  held", "calls", "a second");
    let (done, started) = (AtomicU64::new(0), Instant::now());
    let mut first = None;
    let mut fine = true;
    while done.load(Ordering::Relaxed) < calls {
        let (from, begun) = (done.load(Ordering::Relaxed), Instant::now());
        let to = (from + interval).min(calls);
        let wrong = runtime.block_on(some(&project, &guest, (from, to, at_once), commands));
        done.store(to, Ordering::Relaxed);
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
    let runs = usize::try_from(calls.min(RUNS)).unwrap();
    fine &= clean(&format!("{runs} guests look through memory, globals and tables"), || {
        runtime.block_on(looked(&guest, runs))
    });
    drop((project, guest));
    let some = number("ATTACKS_SOAK_COMMANDS").unwrap_or(calls.min(COMMANDS));
    let some = usize::try_from(some).unwrap();
    fine & clean(&format!("{runs} runs look for what one left in the cache"), || kept_apart(runtime, &servers, runs))
        & clean(&format!("{some} commands look for what others left in files"), || {
            if commands { found_by_commands(runtime, &servers, some) } else { Ok("not tried".to_owned()) }
        })
}

/// Guests, one after the other, that look for what the first of them leaves, and those of the soak have left.
async fn looked(guest: &Guest, runs: usize) -> Result<String, String> {
    guest.leave(Limits { fuel: 2_000_000, ..Limits::default() }).await;
    for run in 0..runs {
        let told = guest.look().await;
        if told != "passed" {
            return Err(format!("guest {run}: {told}"));
        }
    }
    Ok("clean".to_owned())
}

/// Says whether something was found that must not be.
fn clean(what: &str, look: impl FnOnce() -> Result<String, String>) -> bool {
    let (started, found) = (Instant::now(), look());
    println!("{what}: {found:?} in {:.0} s", started.elapsed().as_secs_f64());
    found.is_ok()
}

fn ended<T>(outcome: &Outcome<T>) -> String {
    match outcome {
        Outcome::Limited(limit) => limit.kind.name().to_owned(),
        other => other.name().to_owned(),
    }
}

/// Calls of these numbers, several at a time. Gives back how many did not end as they must.
async fn some(
    project: &Arc<Project>,
    guest: &Arc<Guest>,
    (from, to, at_once): (u64, u64, u64),
    commands: bool,
) -> usize {
    let next = Arc::new(AtomicU64::new(from));
    let wrong = Arc::new(AtomicUsize::new(0));
    let mut callers = JoinSet::new();
    for _ in 0..at_once {
        let (project, guest, next, wrong) = (project.clone(), guest.clone(), next.clone(), wrong.clone());
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
                let told =
                    if n % 20 == 19 { by_guest(&guest, n).await } else { by_script(&project, &run, n, commands).await };
                if let Err(told) = told {
                    println!("FAILED call {n}: {told}");
                    wrong.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    callers.join_all().await;
    wrong.load(Ordering::Relaxed)
}

/// A call of a script, and how else it ended than it must.
async fn by_script(project: &Project, run: &Arc<Run>, n: u64, commands: bool) -> Result<(), String> {
    let kind = match n % 1000 {
        750 => SLEEPS,
        100 | 600 if commands => COMMAND,
        _ => kind(n),
    };
    let name = format!("t{kind}");
    let call = project.call(&name, json!({"n": n, "x": LEFT}), run);
    let wanted = KINDS[kind].0;
    let told = match n % 1000 {
        // Given up while it waits.
        750 => match tokio::time::timeout(Duration::from_millis(1 + n / 1000 % 3), call).await {
            Err(_) => "given up".to_owned(),
            Ok(report) => format!("{report:?}"),
        },
        // Given up in the middle of it or just after.
        250 => {
            let _ = tokio::time::timeout(Duration::from_micros(n % 90), call).await;
            return Ok(());
        }
        _ => call.await.map_or_else(|error| error.to_string(), |report| ended(&report.outcome)),
    };
    if told == wanted { Ok(()) } else { Err(format!("it must be {wanted} and was {told}")) }
}

/// A call of the guest: half of them look, and the others leave something and are ended in one way each.
async fn by_guest(guest: &Guest, n: u64) -> Result<(), String> {
    let default = Limits::default();
    let (wanted, told) = match n / 20 % 6 {
        0 => ("fuel", guest.leave(Limits { fuel: 2_000_000, ..default }).await),
        // Before it has left all of it.
        2 => ("fuel", guest.leave(Limits { fuel: 200_000, ..default }).await),
        4 if (n / 120).is_multiple_of(10) => {
            ("timeout_ms", guest.leave(Limits { timeout: Duration::from_millis(3), ..default }).await)
        }
        4 => match tokio::time::timeout(Duration::from_micros(n % 2_000), guest.leave(default)).await {
            Err(_) => return Ok(()),
            Ok(told) => ("given up", told),
        },
        _ => ("passed", guest.look().await),
    };
    if told == wanted { Ok(()) } else { Err(format!("a guest must be {wanted} and was {told}")) }
}
