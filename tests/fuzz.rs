//! What the fuzz targets keep: the cases they found and those they start from, and some thousand near them.
//!
//! The targets are in `fuzz/targets.rs`, their cases in `tests/corpus/TARGET/`.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test ends where something is not as expected"
)]

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use harness_sandbox::price::Import;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

#[expect(unreachable_pub, reason = "the fuzzer uses it too")]
#[path = "../fuzz/targets.rs"]
mod targets;

fn cases(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus").join(target);
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|file| std::fs::read(file).unwrap()).collect()
}

#[test]
fn every_kept_case() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/corpus");
    let folders = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: BTreeSet<String> = targets::TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(folders.collect::<BTreeSet<_>>(), names);
    for (name, target) in targets::TARGETS {
        let cases = cases(name);
        assert!(!cases.is_empty(), "{name}");
        for case in cases {
            target(&case);
        }
    }
}

/// The kept cases of `imports` do not end before they begin: together they are answered by every import there is.
#[test]
fn every_import_is_called() {
    let cases = cases("imports");
    let mut missing: BTreeSet<Import> = Import::ALL.iter().copied().collect();
    // The calls have little time, which is over before the answer on a busy machine, now and then.
    for _ in 0..50 {
        for case in &cases {
            for import in targets::answered(case) {
                missing.remove(&import);
            }
        }
        if missing.is_empty() {
            return;
        }
    }
    panic!("{missing:?}");
}

/// The kept cases of `session` have a line of each kind there is, as the reader itself lists them.
#[test]
fn every_kind_of_line_is_shown() {
    let cases = cases("session");
    let shown: BTreeSet<String> = cases.iter().flat_map(|case| targets::shown(case)).collect();
    let header = String::from_utf8_lossy(&cases[0]).lines().next().unwrap().to_owned();
    let wrong = harness_session::read::parse(format!("{header}\n{{\"at\":1,\"kind\":\"?\"}}\n").as_bytes());
    let (_, listed) = wrong.unwrap_err();
    let listed = listed.split_once("expected one of").unwrap().1;
    let listed: BTreeSet<String> = listed.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    assert!(listed.len() > 10, "{listed:?}");
    assert_eq!(shown, listed);
}

/// Of the kept cases of `mcp_headers` some are calls that are made, and some are not.
#[test]
fn calls_of_clients_are_made_and_refused() {
    let cases = cases("mcp_headers");
    let made = cases.iter().filter(|case| targets::called(case).is_some()).count();
    assert!((2..cases.len() - 2).contains(&made), "{made}");
}

/// Kept cases with some bytes cut out and others put in: from another one, or any. Now and then, nothing but any bytes.
fn near(name: &str) {
    let (_, target) = targets::TARGETS.into_iter().find(|(other, _)| *other == name).unwrap();
    let cases = cases(name);
    let any_bytes = proptest::collection::vec(any::<u8>(), 0..256);
    let one = prop_oneof![3 => proptest::sample::select(cases.clone()), 1 => any_bytes];
    let other = prop_oneof![proptest::sample::select(cases), proptest::collection::vec(any::<u8>(), 0..8)];
    let near = (one, other, any::<[usize; 4]>()).prop_map(|(one, other, [a, b, c, d])| {
        let (start, cut) = (a % (one.len() + 1), b % 16);
        let end = (start + cut).min(one.len());
        let from = c % (other.len() + 1);
        let to = (from + d % 16).min(other.len());
        [&one[..start], &other[from..to], &one[end..]].concat()
    });
    let config = Config { cases: 500, failure_persistence: None, ..Config::default() };
    // The same each time; after them, for as long as is wanted, others.
    let mut runner = TestRunner::new_with_rng(config.clone(), TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let (started, mut rounds) = (Instant::now(), 0_u32);
    loop {
        let ran = runner.run(&near, |case| {
            target(&case);
            Ok(())
        });
        ran.unwrap();
        rounds += 1;
        if started.elapsed() >= wanted() {
            break;
        }
        runner = TestRunner::new(config.clone());
    }
    println!("{name}: {} cases in {:.0} s", rounds * config.cases, started.elapsed().as_secs_f64());
}

/// For how long others are tried: seconds, in `FUZZ_SECONDS`.
fn wanted() -> Duration {
    let seconds = std::env::var("FUZZ_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(0))
}

#[test]
fn near_imports() {
    near("imports");
}

#[test]
fn near_session() {
    near("session");
}

#[test]
fn near_all_others() {
    let others = targets::TARGETS.into_iter().filter(|(name, _)| !["imports", "session"].contains(name));
    others.for_each(|(name, _)| near(name));
}
