//! Tools that fail an agent again and again: after some failures in a row they are not called again.

use serde_json::{Value as Json, json};

use crate::agent_turns::{agent, spied, told};
use crate::project::{Project, Ran};
use crate::pty::Person;

/// Fails where it is asked to, and counts how often it ran.
const FLAKY: &str =
    "def run(args):\n    fs.append('ran', 'x')\n    if args.get('bad', True):\n        fail('no')\n    return 'fine'\n";
const FAILED: &str = "tool error: no (.harness/tools/flaky.md:6:11)";

fn project(policy: &str, replies: &str) -> Project {
    agent(&format!("exit_policy: {{ max_iterations: 20 }}\n{policy}"), replies)
        .tool("flaky", "", FLAKY)
        .tool("steady", "", "def run(args):\n    return 'steady'\n")
        .file("ran", "")
}

fn times_run(project: &Project) -> usize {
    std::fs::read_to_string(project.path("ran")).unwrap().len()
}

/// What a model got for its calls, in order, by what is in its system prompt.
fn got(ran: &Ran, prompt: &str) -> Vec<String> {
    let asked = told(ran, "completion.pre");
    let last = asked.iter().rfind(|request| request["messages"][0]["content"] == prompt).unwrap();
    let tools = last["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "tool");
    tools.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

fn refused(tool: &str, times: u64) -> String {
    format!(
        "error: the tool `{tool}` has failed {times} times in a row and is not called again until this task is over; \
         `delegation.max_tool_failures` in `harness.md` raises that"
    )
}

/// How calls of `flaky` end: `bad` fails, `good` does not, `no` was refused after so many failures.
fn ended(project: Project) -> (usize, Vec<String>) {
    let project = spied(project, &["completion.pre"]);
    let ran = project.run(&["run", "Go"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "Enough.\n"), "{ran}");
    (times_run(&project), got(&ran, "You help."))
}

fn calls(good: &[bool]) -> String {
    let one = |good: &bool| format!("- tool_calls: [{{ name: flaky, args: {{ bad: {} }} }}]\n", !good);
    format!("{}- text: Enough.\n", good.iter().map(one).collect::<String>())
}

#[test]
fn after_five_failures_in_a_row_it_is_not_called_again() {
    let (times, got) = ended(project("", &calls(&[false; 7])));
    let mut wanted = vec![FAILED.to_owned(); 5];
    wanted.extend(vec![refused("flaky", 5); 2]);
    assert_eq!((times, got), (5, wanted));
    // The policy says how many, and that it does not matter.
    let (times, got) = ended(project("delegation: { max_tool_failures: 1 }\n", &calls(&[false, true])));
    assert_eq!((times, got), (1, vec![FAILED.to_owned(), refused("flaky", 1)]));
    let (times, got) = ended(project("delegation: { max_tool_failures: 0 }\n", &calls(&[false; 7])));
    assert_eq!((times, got), (7, vec![FAILED.to_owned(); 7]));
    let wrong = project("delegation: { max_tool_failures: -1 }\n", &calls(&[]));
    wrong.run(&["validate"]).says(2, "delegation.max_tool_failures");
}

/// In a row: one that it did not fail begins again. Each tool counts for itself, in whatever order they are called.
#[test]
fn what_counts_is_each_tool_s_own_row() {
    let policy = "delegation: { max_tool_failures: 2 }\n";
    let (times, got) = ended(project(policy, &calls(&[false, true, false, true, false, false, true])));
    let good = || "fine".to_owned();
    let bad = || FAILED.to_owned();
    assert_eq!((times, got), (6, vec![bad(), good(), bad(), good(), bad(), bad(), refused("flaky", 2)]));
    // What was called last is not what failed: the result of each call counts for its tool.
    let both = "- tool_calls: [{ name: flaky }, { name: steady }, { name: nothing }]\n".repeat(3);
    let (times, got) = ended(project(policy, &format!("{both}- text: Enough.\n")));
    let unknown = || "error: there is no tool `nothing`".to_owned();
    let steady = || "steady".to_owned();
    let wanted =
        [bad(), steady(), unknown(), bad(), steady(), unknown(), refused("flaky", 2), steady(), refused("nothing", 2)];
    assert_eq!((times, got), (2, wanted.to_vec()));
}

/// What hooks stop and what the policy denies has failed too, whatever was wrong.
#[test]
fn whatever_it_fails_by() {
    let policy = "delegation: { max_tool_failures: 3 }\ntools_policy: { deny: [steady] }\n";
    let replies = "- tool_calls: [{ name: steady }]\n".repeat(4);
    let (_, got) = ended(project(policy, &format!("{replies}- text: Enough.\n")));
    let mut wanted = vec!["error: the tool `steady` is denied by `steady`".to_owned(); 3];
    wanted.push(refused("steady", 3));
    assert_eq!(got, wanted);
    let blocks = project("delegation: { max_tool_failures: 2 }\n", &calls(&[true, true, true]));
    let (times, got) = ended(blocks.with_handle("no", "tool.pre", "", "return block('not now')"));
    let blocked = || "tool blocked: blocked by hook \"no\": not now".to_owned();
    assert_eq!((times, got), (0, vec![blocked(), blocked(), refused("flaky", 2)]));
}

/// Each agent counts for itself, over all attempts of one delegation; the next one begins again.
#[test]
fn each_agent_has_its_own() {
    let policy = "delegation:\n  max_tool_failures: 2\n  verify: |\n    def run(result):\n        return result['attempts'] > 1\n";
    let delegates = "- tool_calls: [{ name: delegate, args: { agent: worker, task: Go. } }]\n";
    let once = "- { agent: worker, tool_calls: [{ name: flaky }] }\n- { agent: worker, text: First. }\n\
                - { agent: worker, tool_calls: [{ name: flaky }] }\n- { agent: worker, tool_calls: [{ name: flaky }] }\n\
                - { agent: worker, text: Second. }\n";
    let root = "- tool_calls: [{ name: flaky }]\n".repeat(3);
    let project = project(policy, &format!("{root}{}- text: Enough.\n{}", delegates.repeat(2), once.repeat(2)))
        .file(".harness/agents/worker.md", "---\n---\nYou work.\n");
    let project = spied(project, &["completion.pre"]);
    let ran = project.run(&["run", "Go"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "Enough.\n"), "{ran}");
    let wanted = [FAILED.to_owned(), FAILED.to_owned(), refused("flaky", 2)];
    assert_eq!(got(&ran, "You help.")[..3], wanted);
    // The last of the worker's conversations is the second one.
    assert_eq!(got(&ran, "You work.\n"), wanted);
    // Two of the root, two of each delegation.
    assert_eq!(times_run(&project), 6);
}

/// The next turn begins again: what was wrong may have been mended.
#[test]
fn the_next_turn_begins_anew() {
    let twice = "- tool_calls: [{ name: flaky }]\n- tool_calls: [{ name: flaky }]\n- text: Enough.\n".repeat(2);
    let project = project("delegation: { max_tool_failures: 1 }\n", &twice);
    let mut person = Person::with(&project, &["run"], &[]);
    for _ in 0..2 {
        person.sees("> ");
        person.types("Go\r");
        person.sees("Enough.");
    }
    person.sees("> ");
    person.types("/quit\r");
    assert_eq!(person.leaves(), 0, "{}", person.seen);
    assert_eq!(times_run(&project), 2);
}

/// An agent that has to call `done` may call it however often that was kept back.
#[test]
fn an_agent_can_always_end() {
    let policy = "delegation: { max_tool_failures: 1 }\n";
    let early = "- tool_calls: [{ name: done, args: { early: true } }]\n".repeat(3);
    let replies = format!("{early}- tool_calls: [{{ name: done }}]\n- text: Enough.\n");
    let mode = "exit_policy: { mode: done_tool, max_iterations: 20 }\n";
    let blocks = "return block('not yet') if payload['args'].get('early') else allow()";
    let project = agent(&format!("{mode}{policy}"), &replies).with_handle("keeps", "tool.pre", "", blocks);
    let ran = project.run(&["run", "Go"]);
    let denied = "denied: done: tool blocked: blocked by hook \"keeps\": not yet\n".repeat(3);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "Enough.\n", denied.as_str()), "{ran}");
    // A tool that only has that name is like any other.
    let natural = agent(policy, &replies.replace("early: true", "bad: true")).tool("done", "", FLAKY).file("ran", "");
    let (times, got) = ended(natural);
    assert_eq!((times, &got[3]), (1, &refused("done", 1)));
}

/// A call that was refused is in both records, and the session can be run again.
#[test]
fn it_is_recorded() {
    let project = project("delegation: { max_tool_failures: 1 }\n", &calls(&[false, true]));
    project.run(&["run", "Go"]).gives("Enough.");
    let lines = project.run(&["audit", "show", "--json"]).out;
    let entries: Vec<Json> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of_flaky: Vec<&Json> = entries.iter().filter(|entry| entry["tool"] == "flaky").collect();
    assert_eq!((of_flaky.len(), &of_flaky[0]["outcome"]), (2, &json!("failed")), "{lines}");
    let why = refused("flaky", 1);
    let why = why.strip_prefix("error: ").unwrap();
    assert_eq!((&of_flaky[1]["outcome"], &of_flaky[1]["why"]), (&json!("rejected"), &json!(why)));
    assert!(project.run(&["sessions", "show"]).out.contains(why));
    let replayed = project.run(&["sessions", "replay"]);
    assert!(replayed.code == 0 && replayed.out.contains(": replay matches: 1 turn, 3 requests, 2 calls"), "{replayed}");
}

/// When nothing works any more, whatever it calls, an agent answers in words; what it still calls then is not made.
#[test]
fn when_nothing_works_it_answers_in_words() {
    const IN_WORDS: &str = "Your tools keep failing. Call none of them any more: answer now in words, with what you know, and \
                            say what could not be done and why.";
    let failing = "- tool_calls: [{ name: flaky }, { name: nothing }]\n".repeat(3);
    let last = "- { expect: Your tools keep failing, text: I could not find out., tool_calls: [{ name: steady }] }\n";
    let policy = "delegation: { max_tool_failures: 3 }\n";
    let project = spied(project(policy, &format!("{failing}{last}")), &["completion.pre"]);
    let ran = project.run(&["run", "Go"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "I could not find out.\n"), "{ran}");
    assert!(ran.err.contains("warning: 6 tool calls in a row failed: the agent answered without tools"), "{ran}");
    let asked = told(&ran, "completion.pre");
    let said = asked[3]["messages"].as_array().unwrap().last().unwrap();
    assert_eq!((asked.len(), said), (4, &json!({"role": "user", "content": IN_WORDS})));
    assert!(!format!("{ran}").contains("\"steady\"}"), "{ran}");
    // One that works in between begins again; with less than that it continues.
    let mixed = "- tool_calls: [{ name: flaky }, { name: steady }, { name: nothing }]\n".repeat(3);
    self::project(policy, &format!("{mixed}- text: Enough.\n")).run(&["run", "Go"]).gives("Enough.");
    // The policy can leave that to the limit of rounds.
    let policy = "delegation: { max_tool_failures: 0 }\n";
    let off = "exit_policy: { max_iterations: 12, fallback_to_natural_language: false }\n";
    let many = "- tool_calls: [{ name: flaky }]\n".repeat(13);
    let ran = agent(&format!("{off}{policy}"), &many).tool("flaky", "", FLAKY).file("ran", "").run(&["run", "Go"]);
    ran.says(4, "max tool rounds reached (12)");
    // What answers with nothing but calls has no answer.
    let ran = self::project(policy, &many).run(&["run", "Go"]);
    ran.says(4, "tool failures in a row reached (10); `delegation.max_tool_failures` in `harness.md` raises it");
}

/// The settings of other hosts are answered with the keys that do it here.
#[test]
fn settings_of_the_loop_under_tools_are_answered() {
    let keys = "tools: { enabled: true, max_tool_calls_per_turn: 10, max_output_bytes: 65536, \
                fallback_to_natural_language: true, allowed_tools: [read_file], other: 1 }\n";
    let ran = agent(keys, "- text: x\n").run(&["validate", "--color=never"]);
    assert_eq!(ran.code, 2, "{ran}");
    for (key, here) in [
        ("enabled", "model: { tools: none }"),
        ("max_tool_calls_per_turn", "exit_policy: { max_iterations: 10 }"),
        ("max_output_bytes", "sandbox: { limits: { output_bytes: 65536 } }"),
        ("fallback_to_natural_language", "exit_policy: { fallback_to_natural_language: true }"),
        ("allowed_tools", "tools_policy: { allow: [...] }"),
        ("other", "`tools` is the list of the tools that are written in this file"),
    ] {
        assert!(ran.err.contains(&format!("`{key}` is not set under `tools` here")) && ran.err.contains(here), "{ran}");
    }
}
