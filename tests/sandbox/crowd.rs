//! Many scripts, many calls at one time, calls that are given up, and what is left of them.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use harness_policy::limits::Limits;
use harness_sandbox::engine::NESTING;
use harness_sandbox::outcome::Outcome;
use tokio::task::JoinSet;

use crate::kit::{EVERYTHING, Kit};

/// While one call waits, the thread runs others: two hundred calls on one thread, each of which ends when all have begun.
#[tokio::test(flavor = "current_thread")]
async fn calls_that_wait_do_not_wait_for_each_other() {
    const CALLS: u32 = 200;
    let kit = Kit::with_room_for(CALLS);
    let image = Arc::new(kit.tool(
        "def run(args):\n    fs.write('begun/%d' % args['n'], '')\n    for i in range(1000000):\n        if fs.exists('go'):\n            return args['n']\n        sleep(20)\n",
    ));
    let mut calls = JoinSet::new();
    for n in 0..CALLS {
        let (sandbox, image, context) = (kit.sandbox.clone(), image.clone(), kit.context(EVERYTHING));
        let limits =
            Limits { fuel: 1 << 50, timeout: Duration::from_secs(600), host_calls: 1 << 40, ..Limits::default() };
        calls.spawn(async move {
            let report = sandbox.run(&image, context, limits, &format!("{{\"n\": {n}}}")).await;
            (n, report.outcome)
        });
    }
    let begun = kit.root().join("begun");
    while std::fs::read_dir(&begun).map_or(0, Iterator::count) < CALLS as usize {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    std::fs::write(kit.root().join("go"), "").unwrap();
    while let Some(call) = calls.join_next().await {
        let (n, outcome) = call.unwrap();
        assert_eq!(outcome, Outcome::Completed(n.to_string()));
    }
}

/// More calls than there is room for, that of nested ones counted, are told so, and the others continue.
#[tokio::test(flavor = "current_thread")]
async fn more_calls_than_there_is_room_for() {
    let kit = Arc::new(Kit::with_room_for(2));
    let room = 2 * (1 + NESTING as usize);
    let waits = kit.tool(
        "def run(args):\n    for i in range(1000000):\n        if fs.exists('go'):\n            return 1\n        sleep(20)\n",
    );
    let limits = Limits { timeout: Duration::from_secs(600), ..Limits::default() };
    let mut calls = JoinSet::new();
    for _ in 0..=room {
        let (kit, waits) = (kit.clone(), waits.clone());
        calls.spawn(async move { kit.run(&waits, limits, "{}").await.outcome });
    }
    // None of those that have room ends before the one that has none was told so.
    let told = calls.join_next().await.unwrap().unwrap();
    assert!(matches!(told, Outcome::Fault(_)), "{told:?}");
    std::fs::write(kit.root().join("go"), "").unwrap();
    let outcomes = calls.join_all().await;
    assert_eq!(outcomes, vec![Outcome::Completed("1".to_owned()); room]);
    assert_eq!(kit.completes(&waits, "{}").await, "1");
}

/// Each script has its own image, and each call gets the image of its script.
#[tokio::test]
async fn five_hundred_scripts_each_with_its_own_answer() {
    const SCRIPTS: usize = 500;
    let kit = Kit::new();
    let images: Vec<_> = (0..SCRIPTS)
        .map(|n| {
            kit.tool(&format!("mine = 'script {n} ' + 'x' * {n}\n\ndef run(args):\n    return [mine, args['n']]\n"))
        })
        .collect();
    // In an order in which neighbors are far apart, twice each.
    for round in 0..2 {
        for step in 0..SCRIPTS {
            let n = step * 271 % SCRIPTS;
            let result = kit.completes(&images[n], &format!("{{\"n\": {round}}}")).await;
            assert_eq!(result, format!("[\"script {n} {}\",{round}]", "x".repeat(n)));
        }
    }
}

/// A caller that no longer wants the answer ends the call, and the child with it.
#[tokio::test]
async fn a_call_that_is_given_up_kills_its_child() {
    let kit = Kit::with_room_for(1);
    // What a child sees as its number is not what it is here: it is known by its arguments.
    let mark = format!("600.{}", std::process::id());
    let image =
        kit.tool(&format!("def run(args):\n    exec.run('sh', ['-c', 'sleep {mark} & wait'], timeout_ms = 600000)\n"));
    let limits = Limits { timeout: Duration::from_secs(600), ..Limits::default() };
    let until = async |running: bool| {
        while is_running(&mark) != running {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        report = kit.run(&image, limits, "{}") => panic!("{report:?}"),
        () = until(true) => {}
        () = tokio::time::sleep(Duration::from_secs(60)) => panic!("the command did not start"),
    };
    // The call was dropped here.
    tokio::time::timeout(Duration::from_secs(60), until(false)).await.unwrap();
    // Its room is free again.
    let fine = kit.tool("def run(args):\n    return 1\n");
    assert_eq!(kit.completes(&fine, "{}").await, "1");
}

/// Whether a process has a mark among its arguments. One that has ended has no arguments.
pub(crate) fn is_running(mark: &str) -> bool {
    let marked = |text: Vec<u8>| String::from_utf8_lossy(&text).contains(mark);
    let mut processes = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path().join("cmdline"));
    processes.any(|path| std::fs::read(path).is_ok_and(marked))
}

/// Set in the process that counts its own descriptors and threads.
pub(crate) const ALONE: &str = "HARNESS_TEST_ALONE";

/// In a process of its own, because other tests open files and start threads at the same time.
#[test]
fn nothing_is_left_of_a_thousand_calls() {
    if std::env::var_os(ALONE).is_some() {
        // Threads for files and children are kept for a while, which is not what is looked for.
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().thread_keep_alive(Duration::from_millis(20)).build().unwrap();
        runtime.block_on(a_thousand_calls());
        return;
    }
    let name = "crowd::nothing_is_left_of_a_thousand_calls";
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--test-threads=1", "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

async fn a_thousand_calls() {
    let kit = Kit::new();
    std::fs::write(kit.root().join("a.txt"), "text").unwrap();
    let small =
        Limits { fuel: 20_000_000, timeout: Duration::from_millis(20), memory_bytes: 16 << 20, ..Limits::default() };
    let scripts = [
        ("completed", "return fs.read('a.txt')"),
        ("completed", "return fs.write('b.txt', fs.read('a.txt'))"),
        ("failed", "fail('no')"),
        ("failed", "return [][1]"),
        ("denied", "return fs.read('.env')"),
        ("denied", "return http.get('http://example.com/')"),
        ("limited", "return [0 for i in range(1 << 30)]"),
        ("limited", "return len('x' * ((64 << 20) + len(args)))"),
        ("limited", "sleep(60000)"),
    ];
    let images = scripts.map(|(_, body)| kit.tool(&format!("def run(args):\n    {body}\n")));
    let children = kit.tool("def run(args):\n    exec.run('sleep', ['600'], timeout_ms = 600000)\n");
    let round = async |count: usize| {
        for n in 0..count {
            let (wanted, body) = scripts[n % scripts.len()];
            // What is ended by its time gets little of it, the others what they need on a busy machine.
            let limits =
                if body.starts_with("sleep") { small } else { Limits { timeout: Duration::from_secs(60), ..small } };
            let report = kit.run(&images[n % scripts.len()], limits, "{}").await;
            assert_eq!(report.outcome.name(), wanted, "{body}: {report:?}");
            if n % 100 == 0 {
                let report = kit.run(&children, small, "{}").await;
                assert_eq!(report.outcome.name(), "limited", "{report:?}");
            }
        }
    };
    let count = |what: &str| std::fs::read_dir(format!("/proc/self/{what}")).unwrap().count();
    // What is made once is made now.
    round(scripts.len()).await;
    let before = (count("fd"), count("task"));
    round(1000).await;
    let mut after = (count("fd"), count("task"));
    // A child that was killed may take a moment to be reaped.
    for _ in 0..1000 {
        if after <= before {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        after = (count("fd"), count("task"));
    }
    assert!(after.0 <= before.0 && after.1 <= before.1, "descriptors and threads: {before:?} before, {after:?} after");
}
