//! What ends a call, and what it has used by then.

use std::time::Duration;

use harness_policy::limits::Limits;
use harness_sandbox::outcome::{Limit, LimitKind, Outcome};
use harness_sandbox::price::Import;
use serde_json::json;

use crate::kit::Kit;

const ENDLESS: &str =
    "def run(args):\n    for i in range(1 << 30):\n        for j in range(1 << 30):\n            pass\n";
const BOMB: &str =
    "def run(args):\n    x = [0] * 1000\n    for i in range(100):\n        x = x + x\n    return len(x)\n";

fn small() -> Limits {
    Limits { fuel: 1_000_000, timeout: Duration::from_secs(1), memory_bytes: 16 << 20, ..Limits::default() }
}

#[tokio::test]
async fn each_limit_by_its_kind() {
    let kit = Kit::new();
    let plenty = Limits { fuel: 1 << 50, timeout: Duration::from_secs(60), ..small() };
    for (what, script, limits, kind, allowed) in [
        ("fuel", ENDLESS, Limits { timeout: plenty.timeout, ..small() }, LimitKind::Fuel, 1_000_000),
        ("deadline", ENDLESS, Limits { fuel: plenty.fuel, ..small() }, LimitKind::Deadline, 1000),
        ("waiting", "def run(args):\n    sleep(600000)\n", small(), LimitKind::Deadline, 1000),
        (
            "a child",
            "def run(args):\n    exec.run('sleep', ['600'], timeout_ms = 600000)\n",
            Limits { fuel: plenty.fuel, ..small() },
            LimitKind::Deadline,
            1000,
        ),
        ("memory", BOMB, plenty, LimitKind::Memory, 16 << 20),
        (
            "depth",
            "def f(g):\n    x = [g]\n    return g(g)\n\ndef run(args):\n    return f(f)\n",
            plenty,
            LimitKind::Depth,
            100,
        ),
        (
            "stack",
            "def run(args):\n    x = []\n    for i in range(50000):\n        x = [x]\n    return str(x)\n",
            plenty,
            LimitKind::Stack,
            1 << 20,
        ),
        (
            "output",
            "def run(args):\n    return 'x' * ((4 << 20) + len(args))\n",
            Limits { memory_bytes: 64 << 20, ..plenty },
            LimitKind::Output,
            4 << 20,
        ),
        (
            "a host call",
            "def run(args):\n    for i in range(1000):\n        cache.set('k', 'x' * 1000)\n",
            Limits { timeout: plenty.timeout, ..small() },
            LimitKind::Fuel,
            1_000_000,
        ),
    ] {
        let image = kit.tool(script);
        let report = kit.run(&image, limits, "{}").await;
        let Outcome::Limited(Limit { kind: over, allowed: of, .. }) = report.outcome else {
            panic!("{what}: {report:?}")
        };
        assert_eq!((over, of), (kind, allowed), "{what}");
        let usage = report.usage;
        assert!(usage.fuel > 0 && usage.fuel <= limits.fuel, "{what}: {usage:?}");
        assert!(usage.peak_memory > 1 << 20 && usage.peak_memory <= limits.memory_bytes, "{what}: {usage:?}");
        assert!(usage.wall < Duration::from_secs(20), "{what}: {usage:?}");
        if kind == LimitKind::Fuel {
            assert!(usage.fuel > limits.fuel / 2, "{what}: {usage:?}");
        }
        if kind == LimitKind::Deadline {
            assert!(usage.wall >= limits.timeout, "{what}: {usage:?}");
        }
        // The sandbox is as it was.
        let fine = kit.tool("def run(args):\n    return 'fine'\n");
        assert_eq!(kit.completes(&fine, "{}").await, "\"fine\"", "after {what}");
    }
}

/// A small script fits into the small limits, so that these are what ended the others.
#[tokio::test]
async fn an_ordinary_call_is_far_from_its_limits() {
    let kit = Kit::new();
    let image = kit.tool("def run(args):\n    return [x * 2 for x in args['xs']]\n");
    let report = kit.run(&image, Limits { timeout: Duration::from_secs(60), ..small() }, r#"{"xs": [1, 2, 3]}"#).await;
    assert_eq!(report.outcome, Outcome::Completed("[2,4,6]".to_owned()));
    assert!(report.usage.fuel < 500_000, "{:?}", report.usage);
    assert!(report.usage.peak_memory < 12 << 20, "{:?}", report.usage);
}

#[tokio::test]
async fn host_calls_are_counted_with_their_bytes_and_their_price() {
    let kit = Kit::new();
    std::fs::write(kit.root().join("a.txt"), "twelve bytes").unwrap();
    let image =
        kit.tool("def run(args):\n    cache.set('key', 'abc')\n    fs.read('a.txt')\n    return cache.get('key')\n");
    let report = kit.run(&image, Limits::default(), "{}").await;
    assert_eq!(report.outcome, Outcome::Completed("\"abc\"".to_owned()));
    let seen: Vec<_> =
        report.calls.iter().map(|call| (call.import, call.subject.as_str(), call.bytes, call.fuel)).collect();
    // Values are JSON: the quotes count.
    assert_eq!(
        seen,
        [
            (Import::CacheSet, "key", (3 + 5, 0), 5_000 + 4 * 8),
            (Import::FsRead, "a.txt", (5, 12), 100_000 + 2 * 17),
            (Import::CacheGet, "key", (3, 5), 5_000 + 4 * 8),
        ]
    );
    assert_eq!((report.usage.host_calls, report.usage.bytes_in, report.usage.bytes_out), (3, 16, 17));
    let paid: u64 = report.calls.iter().map(|call| call.fuel).sum();
    assert!(report.usage.fuel > paid, "{:?}", report.usage);
}

/// Only so many are reported, all are counted.
#[tokio::test]
async fn a_flood_of_host_calls_and_log_lines() {
    let kit = Kit::new();
    let image = kit.tool("def run(args):\n    for i in range(3000):\n        log('x' * 19000)\n");
    let report = kit.run(&image, Limits::default(), "{}").await;
    assert_eq!(report.outcome, Outcome::Completed("null".to_owned()));
    assert_eq!((report.usage.host_calls, report.calls.len()), (3000, 1000));
    assert_eq!((report.log.lines.len(), report.log.dropped), (1000, 2000));
    assert!(report.log.lines.iter().all(|line| line.message.len() <= 16 << 10));
}

#[tokio::test]
async fn the_same_call_uses_the_same_fuel() {
    let kit = Kit::new();
    let image = kit.tool(
        "def run(args):\n    d = {str(i): i for i in range(500)}\n    return sorted(d.keys())[-1] + str(args['x'])\n",
    );
    let mut fuel = Vec::new();
    for _ in 0..5 {
        fuel.push(kit.run(&image, Limits::default(), r#"{"x": 1}"#).await.usage.fuel);
    }
    // So does another sandbox with the script loaded again.
    let other = Kit::new();
    let image = other.tool(
        "def run(args):\n    d = {str(i): i for i in range(500)}\n    return sorted(d.keys())[-1] + str(args['x'])\n",
    );
    fuel.push(other.run(&image, Limits::default(), r#"{"x": 1}"#).await.usage.fuel);
    assert_eq!(fuel, [fuel[0]; 6]);
    let more = other.run(&image, Limits::default(), &json!({"x": "1234567890".repeat(50)}).to_string()).await;
    assert!(more.usage.fuel > fuel[0]);
}
