//! `run_command`.

use serde_json::json;

use super::support::Project;

const GRANTED: &str = "sandbox: { exec: { allow: [\"bash -lc *\"], env: [PATH, HOME] } }";

#[test]
fn a_command_runs_in_the_workspace() {
    let project = Project::with_policy(GRANTED);
    project.write("a.txt", "one\n");
    let result =
        project.call("run_command", json!({"command": "cat a.txt; echo two >&2; echo three > b.txt"})).result();
    assert_eq!(result, json!({"stdout": "one\n", "stderr": "two\n", "exit_code": 0}));
    assert_eq!(project.read("b.txt"), "three\n");
}

#[test]
fn a_command_that_fails_is_a_result() {
    let project = Project::with_policy(GRANTED);
    let result = project.call("run_command", json!({"command": "echo so far; exit 7"})).result();
    assert_eq!(result, json!({"stdout": "so far\n", "stderr": "", "exit_code": 7}));
    let result = project.call("run_command", json!({"command": ""})).result();
    assert_eq!(result, json!({"error": "command is required"}));
}

#[test]
fn a_command_that_takes_too_long_is_a_result() {
    let project = Project::with_policy(GRANTED);
    let command = "trap '' TERM; echo so far; sleep 600";
    let result = project.call("run_command", json!({"command": command, "timeout_ms": 2000})).result();
    assert_eq!(result, json!({"stdout": "so far\n", "stderr": "", "exit_code": -1}));
}

#[test]
fn what_a_command_prints_is_cut() {
    let project = Project::with_policy(GRANTED);
    let command = "head -c 5000 /dev/zero | tr '\\0' o; head -c 5000 /dev/zero | tr '\\0' e >&2";
    let result = project.call("run_command", json!({"command": command})).result();
    assert_eq!(result, json!({"stdout": "o".repeat(4000), "stderr": "e".repeat(2000), "exit_code": 0}));
}

#[test]
fn without_a_grant_no_command_runs() {
    let arguments = json!({"command": "echo ran > marker"});
    for (policy, place) in [("{}", ""), ("sandbox: { exec: { allow: [\"git *\", \"bash -c *\"] } }", ":2:27")] {
        let project = Project::with_policy(policy);
        assert_eq!(
            project.call("run_command", arguments.clone()).denied(),
            (
                "exec.run: the command `bash -lc echo ran > marker` is not allowed".to_owned(),
                format!("add `bash -lc \"echo ran > marker\"` to `sandbox.exec.allow` in `.harness/harness.md{place}`")
            )
        );
        assert!(!project.at("marker").exists());
    }
    let project = Project::with_policy(GRANTED);
    project.call("run_command", arguments).result();
    assert!(project.at("marker").exists());
}
