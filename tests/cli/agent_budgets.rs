//! What agents may use: each budget ends what is beyond it with an error that says which it is and where it is set, and
//! nothing that stays within.

use crate::agent_turns::{agent, spied, told};
use crate::project::{Project, Ran};

const STEP: &str = "- tool_calls: [{ name: step }]\n";
const CHILD_STEP: &str = "- { agent: worker, tool_calls: [{ name: step }] }\n";
const ASKS: &str = "- tool_calls: [{ name: delegate, args: { agent: worker, task: Work. } }]\n";

fn project(policy: &str, replies: &str) -> Project {
    agent(policy, replies).tool("step", "", "def run(args):\n    return 'stepped'\n")
}

fn with_worker(policy: &str, own: &str, replies: &str) -> Project {
    project(policy, replies).file(".harness/agents/worker.md", &format!("---\n{own}---\nYou work.\n"))
}

/// What the root's model got last.
fn last_result(ran: &Ran) -> String {
    let asked = told(ran, "completion.pre");
    let root = asked.iter().rfind(|request| request["messages"][0]["content"] == "You help.").unwrap();
    let messages = root["messages"].as_array().unwrap();
    messages.iter().rfind(|message| message["role"] == "tool").unwrap()["content"].as_str().unwrap().to_owned()
}

#[test]
fn rounds_and_calls_of_a_turn() {
    let replies = format!("{}- text: Done.\n", STEP.repeat(3));
    let ran =
        |key: &str| project(&format!("delegation: {{ tree_budget: {{ {key} }} }}\n"), &replies).run(&["run", "Go"]);
    ran("rounds: 3").gives("Done.");
    ran("rounds: 2").says(
        4,
        "error: round budget used up (2 of 2): `delegation.tree_budget.rounds` in `.harness/harness.md:3:38` sets it",
    );
    ran("calls: 3").gives("Done.");
    ran("calls: 2").says(
        4,
        "error: call budget used up (2 of 2): `delegation.tree_budget.calls` in `.harness/harness.md:3:37` sets it",
    );
    // Of several calls of one reply too, the first ones are made.
    let several = "- tool_calls: [{ name: step }, { name: step }, { name: step }]\n- text: Done.\n";
    let project = spied(project("delegation: { tree_budget: { calls: 2 } }\n", several), &["tool.post"]);
    let ran = project.run(&["run", "Go"]);
    ran.says(4, "call budget used up");
    assert_eq!(told(&ran, "tool.post").len(), 2);
}

#[test]
fn tokens_of_a_turn() {
    let long = "x".repeat(4000);
    let replies = format!("{STEP}- text: {long}\n");
    let ran = |most: u32| {
        let policy = format!("delegation: {{ tree_budget: {{ tokens: {most} }} }}\n");
        project(&policy, &replies).run(&["run", &long])
    };
    // The prompt alone is about 1000 tokens, twice.
    ran(500).says(4, "token budget used up (");
    ran(500).says(4, " of 500): `delegation.tree_budget.tokens` in `.harness/harness.md:3:38` sets it");
    assert_eq!(ran(100_000).code, 0);
    // In JSON it is a limit like any other.
    let policy = "delegation: { tree_budget: { tokens: 1 } }\n";
    let json = project(policy, &replies).run(&["run", "Go", "--json"]).json();
    assert_eq!((json["outcome"].as_str(), json["error"]["kind"].as_str()), (Some("limited"), Some("limit")));
}

#[test]
fn time_of_a_turn() {
    let sleeps = |ms: u32, most: u32| {
        let policy = format!("delegation: {{ tree_budget: {{ time_ms: {most} }} }}\n");
        let replies = "- tool_calls: [{ name: wait }]\n- text: Done.\n";
        agent(&policy, replies)
            .tool("wait", "", &format!("def run(args):\n    sleep({ms})\n    return 1\n"))
            .run(&["run", "Go"])
    };
    sleeps(20_000, 200).says(
        4,
        "error: time budget used up (200 of 200): `delegation.tree_budget.time_ms` in `.harness/harness.md:3:39` sets it",
    );
    sleeps(1, 20_000).gives("Done.");
}

/// A sub-agent's own file counts before `delegation.budget`; its error is its caller's result, and the caller
/// continues.
#[test]
fn of_a_sub_agent() {
    let replies = format!("{ASKS}- text: Thanks.\n{}- {{ agent: worker, text: Done. }}\n", CHILD_STEP.repeat(3));
    let result = |policy: &str, own: &str| {
        let ran = spied(with_worker(policy, own, &replies), &["completion.pre"]).run(&["run", "Go"]);
        assert_eq!((ran.code, ran.out.as_str()), (0, "Thanks.\n"), "{ran}");
        last_result(&ran)
    };
    let ended = |what: &str, key: &str, place: &str| {
        format!("tool error: agent \"worker\": {what} budget used up (2 of 2): `{key}` in `{place}` sets it")
    };
    let file = ".harness/agents/worker.md:2:19";
    assert_eq!(result("", "budget: { rounds: 2 }\n"), ended("round", "budget.rounds", file));
    assert_eq!(result("", "budget: { calls: 2 }\n"), ended("call", "budget.calls", ".harness/agents/worker.md:2:18"));
    assert!(result("", "budget: { calls: 3, rounds: 3 }\n").contains("Done."));
    let policy = "delegation: { budget: { rounds: 2 } }\n";
    assert_eq!(result(policy, ""), ended("round", "delegation.budget.rounds", ".harness/harness.md:3:33"));
    assert!(result(policy, "budget: { rounds: 5 }\n").contains("Done."));
    let tokens = result("", "budget: { tokens: 1 }\n");
    assert!(tokens.ends_with(" of 1): `budget.tokens` in `.harness/agents/worker.md:2:19` sets it"), "{tokens}");
    assert!(result("", "budget: { tokens: 1000000 }\n").contains("Done."));

    let waits = |own: &str| {
        let replies = format!(
            "{ASKS}- text: Thanks.\n- {{ agent: worker, tool_calls: [{{ name: wait }}] }}\n- {{ agent: worker, text: Done. }}\n"
        );
        let project =
            with_worker("", own, &replies).tool("wait", "", "def run(args):\n    sleep(1000)\n    return 1\n");
        last_result(&spied(project, &["completion.pre"]).run(&["run", "Go"]))
    };
    assert_eq!(
        waits("budget: { time_ms: 50 }\n"),
        "tool error: agent \"worker\": time budget used up (50 of 50): `budget.time_ms` in `.harness/agents/worker.md:2:20` sets it"
    );
    assert!(waits("budget: { time_ms: 30000 }\n").contains("Done."));
}

/// What agents below use is used of the budget of those above, whatever their own is.
#[test]
fn of_a_whole_tree() {
    let replies = format!("{ASKS}- text: Thanks.\n{}- {{ agent: worker, text: Done. }}\n", CHILD_STEP.repeat(3));
    let ran = |most: u32| {
        let policy = format!("delegation: {{ tree_budget: {{ calls: {most} }} }}\n");
        let own = "budget: { calls: 100 }\n";
        spied(with_worker(&policy, own, &replies), &["completion.pre"]).run(&["run", "Go"])
    };
    // The call of `delegate` and three of the worker's.
    assert_eq!(ran(4).code, 0);
    let ran = ran(3);
    assert_eq!(ran.code, 0, "the root needs no further call");
    assert!(last_result(&ran).contains("call budget used up (3 of 3): `delegation.tree_budget.calls`"), "{ran}");
    // A budget is a turn's: the next one has all of it again.
    let policy = "delegation: { tree_budget: { calls: 1 } }\n";
    let project = project(policy, &format!("{STEP}- text: One.\n{STEP}- text: Two.\n"));
    let mut person = crate::pty::Person::starts(&project, &["run"]);
    for answer in ["One.", "Two."] {
        person.sees("> ");
        person.types("Go\r");
        person.sees(answer);
    }
    person.sees("> ");
    person.types("/quit\r");
    assert_eq!(person.leaves(), 0, "{}", person.seen);
}

#[test]
fn a_budget_that_is_not_understood_is_an_error() {
    for policy in ["budget: { token: 5 }", "budget: { tokens: 0 }", "budget: 7", "tree_budgets: { calls: 1 }"] {
        assert_eq!(
            project(&format!("delegation: {{ {policy} }}\n"), "- text: x\n").run(&["run", "Go"]).code,
            2,
            "{policy}"
        );
    }
    assert_eq!(with_worker("", "budgt: { calls: 1 }\n", "- text: x\n").run(&["run", "Go"]).code, 2);
}
