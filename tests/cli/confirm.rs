//! Calls that a person has to confirm: who is asked, with what, and what is no yes.

use serde_json::{Value as Json, json};

use crate::agent_turns::{agent, spied, told};
use crate::project::Project;
use crate::pty::Person;

const PATH: &str = "parameters:\n  path: { type: string, required: true }\n";
const DROP: &str = "def run(args):\n    fs.write(args['path'], 'dropped')\n    return 'dropped ' + args['path']\n";
const RULE: &str = "`confirm: true` in `.harness/tools/drop.md:4:10`";

/// A project with a tool that needs confirmation.
fn project() -> Project {
    with_drop(Project::new())
}

fn with_drop(project: Project) -> Project {
    project.tool("drop", &format!("{PATH}confirm: true\n"), DROP)
}

/// What the model got for its calls, in order.
fn results(asked: &[Json]) -> Vec<&str> {
    let messages = asked.last().unwrap()["messages"].as_array().unwrap();
    messages.iter().filter(|m| m["role"] == "tool").map(|m| m["content"].as_str().unwrap()).collect()
}

#[test]
fn where_nobody_can_be_asked_it_is_denied() {
    let project = project();
    let ran = project.run(&["call", "drop", "path=a"]);
    ran.says(3, &format!("error: tool `drop` was denied: each call of `drop` needs confirmation ({RULE}), and no confirmer is available\n"));
    ran.says(3, "hint: call it at a terminal, or confirm it in advance with `--confirm drop`");
    assert!(!project.path("a").exists());
    // An answer that nobody asked for is none.
    project.run_with_input(&["call", "drop", "path=a"], "y\ny\n").says(3, "no confirmer is available");
    project.run(&["call", "drop", "path=a", "--confirm", "other"]).says(3, "no confirmer is available");
    let json = project.run(&["call", "drop", "path=a", "--json"]).json();
    assert_eq!((&json["outcome"], &json["error"]["kind"]), (&json!("denied"), &json!("denied")));
    assert!(!project.path("a").exists());
    // What is wrong with a call is told before anyone would be asked.
    project.run(&["call", "drop"]).says(2, "`path` (string) is missing");

    project.run(&["call", "drop", "path=a", "--confirm", "other", "--confirm", "drop"]).gives("dropped a");
    assert!(project.path("a").exists());
    project.run(&["call", "drop", "path=b", "--yes"]).gives("dropped b");
}

#[test]
fn the_policy_may_ask_for_any_tool() {
    let project = Project::new().tool("rm_file", PATH, DROP).tool("read", PATH, "def run(args):\n    return 'read'\n");
    let project = project.policy("tools_policy: { confirm: [\"rm_*\"] }\n");
    let rule = "`rm_*` of `tools_policy.confirm` in `.harness/harness.md:2:27`";
    project.run(&["call", "rm_file", "path=a"]).says(3, &format!("each call of `rm_file` needs confirmation ({rule})"));
    project.run(&["call", "read", "path=a"]).gives("read");
    project.run(&["call", "rm_file", "path=a", "--yes"]).gives("dropped a");
    // So may the machine's, whatever the project says.
    let project = project.policy("tools_policy: { confirm: [] }\n");
    project.run(&["call", "rm_file", "path=a"]).gives("dropped a");
    project.write("machine.yaml", "tools_policy: { confirm: [rm_file] }\n");
    let rule = "`rm_file` of `tools_policy.confirm` in `machine.yaml:1:27`";
    project.run(&["--policy", "machine.yaml", "call", "rm_file", "path=a"]).says(3, rule);
    project.run(&["--policy", "machine.yaml", "call", "read", "path=a"]).gives("read");
}

#[test]
fn a_mistake_in_the_word_is_an_error() {
    for front in ["cofirm: true\n", "confirm: maybe\n", "confirm:\n"] {
        let project = Project::new().tool("drop", front, "def run(args):\n    return 1\n");
        assert_eq!(project.run(&["call", "drop", "--yes"]).code, 2, "{front}");
    }
    Project::new().tool("drop", "confirm: false\n", "def run(args):\n    return 1\n").run(&["call", "drop"]).gives("1");
    let policy = Project::new().policy("tools_policy: { confrim: [x] }\n");
    assert_eq!(policy.run(&["validate"]).code, 2);
}

#[test]
fn a_person_sees_what_will_run_and_decides() {
    // A hook changes the arguments before: what is shown is what runs. It cannot make it unasked.
    let body = "return modify({'args': {'path': 'changed', 'note': '\\x1b[2J'}, 'confirm': False, 'confirmed': True})";
    let project = project().with_handle("changes", "tool.pre", "", body);
    let mut person = Person::starts(&project, &["call", "drop", "path=a"]);
    person.sees("this calls `drop` of .harness/tools/drop.md, which needs confirmation (`confirm: true`");
    person.sees("\"path\": \"changed\"");
    person.sees("\"note\": \"\\u001b[2J\"");
    person.sees("Call it? [y]es, [a]lways in this session, [N]o: ");
    assert!(!project.path("changed").exists());
    person.types("y\n");
    assert_eq!(person.leaves(), 0, "{}", person.seen);
    assert!(project.path("changed").exists());
    assert!(!person.seen.contains("\x1b[2J"), "{:?}", person.seen);
}

/// Whatever is no yes is a no; least of all the end of input, or what was typed before the question.
#[test]
fn what_is_no_yes() {
    for (before, answer) in [("", "\n"), ("", "n\n"), ("", "yess\n"), ("", "\x04"), ("", "y\x04\x04"), ("y\n", "\x04")]
    {
        let project = project();
        let mut person = Person::starts(&project, &["call", "drop", "path=a"]);
        person.types(before);
        person.sees("[N]o: ");
        person.types(answer);
        assert_eq!(person.leaves(), 3, "{answer:?}: {}", person.seen);
        person.sees(&format!("the call of `drop` was not confirmed ({RULE})"));
        assert!(!project.path("a").exists(), "{answer:?}");
    }
    // At a terminal too it may be said beforehand.
    let project = project();
    let mut person = Person::starts(&project, &["call", "drop", "path=a", "--yes"]);
    assert_eq!(person.leaves(), 0, "{}", person.seen);
    assert!(!person.seen.contains("[N]o"));
}

/// A hook that blocks is asked first: a person is not troubled with what will not be.
#[test]
fn what_a_hook_blocks_is_not_asked_for() {
    let project = project().with_handle("guard", "tool.pre", "", "return block('never')");
    let mut person = Person::starts(&project, &["call", "drop", "path=a"]);
    assert_eq!(person.leaves(), 3);
    assert!(person.seen.contains("never") && !person.seen.contains("[N]o"), "{}", person.seen);
}

/// Three calls of a model. `y` is for one; `a` is for the session.
#[test]
fn an_answer_is_remembered_only_where_that_is_asked_for() {
    let calls = "- tool_calls: [{ name: drop, args: { path: a } }, { name: drop, args: { path: b } }]\n\
                 - tool_calls: [{ name: drop, args: { path: c } }]\n- text: Done.\n";
    let runs = || with_drop(agent("", calls));
    let project = runs();
    let mut person = Person::starts(&project, &["run", "Go"]);
    for (path, answer) in [("a", "y\n"), ("b", "n\n"), ("c", "y\n")] {
        person.sees("the agent calls `drop`");
        person.sees(&format!("\"path\": \"{path}\""));
        person.sees("[N]o: ");
        person.types(answer);
    }
    person.sees("Done.");
    assert_eq!(person.leaves(), 0);
    assert_eq!(["a", "b", "c"].map(|path| project.path(path).exists()), [true, false, true]);

    let project = runs();
    let mut person = Person::starts(&project, &["run", "Go"]);
    person.sees("[N]o: ");
    person.types("a\n");
    person.sees("Done.");
    assert_eq!(person.leaves(), 0);
    assert_eq!(person.seen.matches("[N]o: ").count(), 1);
    assert_eq!(["a", "b", "c"].map(|path| project.path(path).exists()), [true, true, true]);
    // The next session asks again.
    project.run_with_input(&["deploy"], "Go").says(0, "");
    let mut person = Person::starts(&project, &["call", "drop", "path=d"]);
    person.sees("[N]o: ");
}

/// Every caller comes through the same door: an agent, one that it starts, a script.
#[test]
fn whoever_calls() {
    let denied = format!("tool denied: each call of `drop` needs confirmation ({RULE}), and no confirmer is available");
    let replies = "- tool_calls: [{ name: drop, args: { path: a } }, { name: indirect }, { name: delegate, args: { agent: cleaner, task: Go. } }]\n\
                   - text: Done.\n\
                   - { agent: cleaner, tool_calls: [{ name: drop, args: { path: c } }] }\n- { agent: cleaner, text: Tried. }\n";
    let indirect = "def run(args):\n    return meta.call_tool('drop', {'path': 'b'})\n";
    let project = || {
        let project = with_drop(agent("meta: { enabled: true }\n", replies)).tool("indirect", "", indirect);
        spied(project.file(".harness/agents/cleaner.md", "---\n---\nYou clean.\n"), &["completion.pre"])
    };
    let refused = project();
    let ran = refused.run(&["run", "Go"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "Done.\n"), "{ran}");
    let asked = told(&ran, "completion.pre");
    assert_eq!(results(&asked)[..2], [denied.as_str(), &format!("error: {denied}")]);
    assert_eq!(results(&asked[..asked.len() - 1]), [denied.as_str()], "the sub-agent's");
    assert!(["a", "b", "c"].iter().all(|path| !refused.path(path).exists()));
    let granted = project();
    assert_eq!(granted.run(&["run", "Go", "--confirm", "drop"]).code, 0);
    assert!(["a", "b", "c"].iter().all(|path| granted.path(path).exists()));
    let granted = project();
    assert_eq!(granted.run(&["deploy", "--input", "Go", "--yes"]).code, 0);
    assert!(["a", "b", "c"].iter().all(|path| granted.path(path).exists()));
    // Who asks is told.
    let project = project();
    let mut person = Person::starts(&project, &["run", "Go"]);
    for who in ["the agent calls `drop`", "tool indirect calls `drop`", "agent cleaner calls `drop`"] {
        person.sees(who);
        person.sees("[N]o: ");
        person.types("y\n");
    }
    person.sees("Done.");
    assert_eq!(person.leaves(), 0);
}

/// What was said is in the record, and cases of an artifact ask nobody: nothing there is real.
#[test]
fn it_is_recorded_and_not_asked_for_in_cases() {
    let tests = "tests:\n  - name: drops\n    args: { path: a }\n    expect: { result: dropped a }\n";
    let project = Project::new().tool("drop", &format!("{PATH}confirm: true\n{tests}"), DROP);
    assert_eq!(project.run(&["test"]).code, 0);
    assert_eq!(project.run(&["call", "drop", "path=a"]).code, 3);
    assert_eq!(project.run(&["call", "drop", "path=a", "--yes"]).code, 0);
    let lines = project.run(&["audit", "show", "--json"]).out;
    let entries: Vec<Json> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let said: Vec<(&Json, &Json)> = entries.iter().map(|entry| (&entry["outcome"], &entry["confirmed"])).collect();
    assert_eq!(said, [(&json!("denied"), &json!("nobody")), (&json!("completed"), &json!("yes"))]);
}
