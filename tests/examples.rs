//! The tools in `.harness/tools`, run through the binary on real files, real repositories and a real server.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::disallowed_methods,
    reason = "tests"
)]

#[path = "examples/commands.rs"]
mod commands;
#[path = "examples/edits.rs"]
mod edits;
#[path = "examples/embedding.rs"]
mod embedding;
#[path = "examples/fetch.rs"]
mod fetch;
#[path = "examples/files.rs"]
mod files;
#[path = "examples/git.rs"]
mod git;
#[path = "examples/git_hostile.rs"]
mod git_hostile;
#[path = "examples/learned.rs"]
mod learned;
#[path = "examples/support.rs"]
mod support;

use std::process::Command;

use serde_json::{Value, json};

use support::{BINARY, REPOSITORY, tool_names};

/// The texts of all tests of this suite.
const TESTS: &[&str] = &[
    include_str!("examples/commands.rs"),
    include_str!("examples/edits.rs"),
    include_str!("examples/fetch.rs"),
    include_str!("examples/files.rs"),
    include_str!("examples/git.rs"),
    include_str!("examples/git_hostile.rs"),
];

#[test]
fn every_tool_has_a_test() {
    let names = tool_names();
    assert!(names.len() >= 9, "{names:?}");
    for name in names {
        let call = format!("(\"{name}\", ");
        assert!(TESTS.iter().any(|text| text.contains(&call)), "no test calls `{name}`");
    }
}

/// The cases that the artifacts of the repository carry, all of them.
#[test]
fn the_own_cases_of_this_repository_pass() {
    let output = Command::new(BINARY).args(["-C", REPOSITORY, "test", "--json"]).output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let failed: Vec<&Value> =
        found["cases"].as_array().unwrap().iter().filter(|case| case["passed"] != json!(true)).collect();
    assert_eq!((output.status.code(), failed), (Some(0), Vec::new()));
    assert!(found["cases"].as_array().unwrap().len() > 600);
}

#[test]
fn the_own_project_of_this_repository_is_valid() {
    let output = Command::new(BINARY).args(["-C", REPOSITORY, "validate", "--strict", "--json"]).output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &found["valid"], &found["problems"]), (Some(0), &json!(true), &json!([])));
    let own: Vec<&str> = found["tools"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    // Those of the plugin come first: artifacts are in the order of their paths.
    assert_eq!(own.strip_prefix(["todo_list", "todo_scan"].as_slice()).unwrap(), tool_names());
}
