//! What the fuzz targets keep: the cases they found and those they start from, and some thousand near them.
//!
//! The targets are in `fuzz/targets.rs`, their cases in `tests/corpus/TARGET/`.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test ends where something is not as expected"
)]

use std::collections::BTreeSet;
use std::path::Path;

use harness::sandbox::price::Import;
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
    let answered: BTreeSet<Import> = cases("imports").iter().flat_map(|case| targets::answered(case)).collect();
    let missing: Vec<_> = Import::ALL.iter().filter(|import| !answered.contains(import)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Kept cases with some bytes cut out and others put in: from another one, or any.
fn near(name: &str) {
    let (_, target) = targets::TARGETS.into_iter().find(|(other, _)| *other == name).unwrap();
    let cases = cases(name);
    let one = proptest::sample::select(cases.clone());
    let other = prop_oneof![proptest::sample::select(cases), proptest::collection::vec(any::<u8>(), 0..8)];
    let near = (one, other, any::<[usize; 4]>()).prop_map(|(one, other, [a, b, c, d])| {
        let (start, cut) = (a % (one.len() + 1), b % 16);
        let end = (start + cut).min(one.len());
        let from = c % (other.len() + 1);
        let to = (from + d % 16).min(other.len());
        [&one[..start], &other[from..to], &one[end..]].concat()
    });
    let several = std::env::var("FUZZ_CASES").ok().and_then(|count| count.parse().ok());
    let config = Config { cases: several.unwrap_or(500), failure_persistence: None, ..Config::default() };
    // The same each time, and others where there are more.
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let ran = TestRunner::new_with_rng(config, rng).run(&near, |case| {
        target(&case);
        Ok(())
    });
    ran.unwrap();
}

#[test]
fn near_imports() {
    near("imports");
}

#[test]
fn near_all_others() {
    targets::TARGETS.into_iter().map(|(name, _)| name).filter(|name| *name != "imports").for_each(near);
}
