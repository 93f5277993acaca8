//! When a turn is over: each mode of `exit_policy`, what becomes of one with too many rounds, and what is left of it.

use serde_json::{Value as Json, json};

use crate::agent_services::{ASKED, SAID, project, results};
use crate::agent_turns::{agent, order, spied, told};
use crate::project::Project;
use crate::pty::Person;
use crate::services::{KEY, Service, WIRES};

/// Lets an agent stop when it says that it has looked.
const JUDGE: &str = "if payload['text'] != 'checked':\n    return block('check it')\nreturn allow()";

/// What a model learns of a hook's block.
fn told_by(hook: &str, reason: &str) -> String {
    format!("blocked by hook \"{hook}\": {reason}")
}

/// What came back from the agent, and what its model was told in between.
fn said(project: Project) -> (i32, String, Vec<String>) {
    let ran = spied(project, &["completion.pre", "agent.stop"]).run(&["run", "Do it."]);
    let asked = told(&ran, "completion.pre");
    let messages = asked.last().map(|request| request["messages"].as_array().unwrap().clone()).unwrap_or_default();
    let users = messages.iter().filter(|message| message["role"] == "user").skip(1);
    let users = users.map(|message| message["content"].as_str().unwrap().to_owned()).collect();
    (ran.code, if ran.code == 0 { ran.out } else { ran.err.lines().last().unwrap().to_owned() }, users)
}

/// The first reply without calls is the end, unless a hook says no; the same where the mode says that hooks decide.
#[test]
fn a_reply_without_calls() {
    for mode in ["", "exit_policy: { mode: natural }\n", "exit_policy: { mode: hook }\n"] {
        let replies = "- text: early\n- { expect: check it, text: checked }\n";
        assert_eq!(said(agent(mode, replies)), (0, "early\n".to_owned(), vec![]), "{mode}");
        let judged = agent(mode, replies).with_handle("judge", "agent.stop", "", JUDGE);
        assert_eq!(said(judged), (0, "checked\n".to_owned(), vec![told_by("judge", "check it")]), "{mode}");
    }
}

const CALL_DONE: &str = "Call the `done` tool when you have completed the task.";

/// Until `done` was called, the model is asked for it, as often as rounds are left; hooks are asked when it was.
#[test]
fn until_done_is_called() {
    let policy = "exit_policy: { mode: done_tool, max_iterations: 3 }\n";
    let replies =
        "- text: one\n- { expect: Call the `done` tool, text: two }\n- tool_calls: [{ name: done }]\n- text: Done.\n";
    let project = spied(agent(policy, replies), &["agent.stop"]);
    let ran = project.run(&["run", "Do it."]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "Done.\n"), "{ran}");
    let stops: Vec<Json> = told(&ran, "agent.stop").iter().map(|stop| stop["text"].clone()).collect();
    assert_eq!(stops, ["Done."]);
    let again = vec![CALL_DONE.to_owned(); 2];
    assert_eq!(said(agent(policy, replies)), (0, "Done.\n".to_owned(), again));
    // It does not continue for ever.
    let never = "- text: no\n".repeat(9);
    let limit = "error: max tool rounds reached (3); `exit_policy.max_iterations` in `harness.md` raises it";
    let (code, error, _) = said(agent(policy, &never));
    assert_eq!((code, error.as_str()), (4, limit));
    // It says which key that is.
    let by_depth = "exit_policy: { mode: done_tool }\ndelegation: { iterations_per_depth: [2] }\n";
    let other = "error: max tool rounds reached (2); `delegation.iterations_per_depth` in `harness.md` raises it";
    let (code, error, _) = said(agent(by_depth, &never));
    assert_eq!((code, error.as_str()), (4, other));
    // A call of it that was stopped is none.
    let blocked = agent(policy, replies).with_handle(
        "no",
        "tool.pre",
        "when: payload['name'] == 'done'\n",
        "return block('not yet')",
    );
    let (code, error, _) = said(blocked);
    assert_eq!((code, error.as_str()), (4, limit));
}

/// Both: `done`, and hooks that allow it.
#[test]
fn until_done_is_called_and_hooks_agree() {
    let policy = "exit_policy: { mode: hybrid }\n";
    let replies =
        "- text: one\n- tool_calls: [{ name: done }]\n- { text: early }\n- { expect: check it, text: checked }\n";
    let project = agent(policy, replies).with_handle("judge", "agent.stop", "", JUDGE);
    let asked = vec![CALL_DONE.to_owned(), told_by("judge", "check it")];
    assert_eq!(said(project), (0, "checked\n".to_owned(), asked));
    // Without a hook `done` is enough, and without `done` no hook is.
    assert_eq!(said(agent(policy, replies)).1, "early\n");
    let project = agent(policy, "- text: checked\n").with_handle("judge", "agent.stop", "", JUDGE);
    assert!(said(project).1.contains("no more replies"));
}

/// Where the policy asks for `done` and does not let it be called, no turn could end: that is said before any begins, with
/// the line that would allow it.
#[test]
fn a_done_that_may_not_be_called() {
    let replies = "- tool_calls: [{ name: done }]\n- text: Done.\n";
    let project = |mode: &str, tools: &str| {
        let policy = format!("exit_policy: {{ mode: {mode} }}\ntools_policy: {tools}\n");
        agent(&policy, replies).tool("fine", "", "def run(args):\n    return 1\n")
    };
    let said = |project: &Project| {
        let (checked, ran) = (project.run(&["validate"]), project.run(&["run", "Do it."]));
        assert_eq!((checked.code, ran.code, ran.out.as_str()), (2, 2, ""), "{checked}{ran}");
        assert!(checked.out.contains(&ran.err) || checked.err.contains(&ran.err), "{checked}{ran}");
        ran.err
    };
    insta::assert_snapshot!(said(&project("done_tool", "{ allow: [fine] }")), @r"
    error: with this `exit_policy.mode` no agent could end a turn: the tool `done` is not allowed
     --> .harness/harness.md:3:22
      |
    3 | exit_policy: { mode: done_tool }
      |                      ^^^^^^^^^
      |
      = hint: add `done` to `tools_policy.allow` in `.harness/harness.md:4:24`
    ");
    insta::assert_snapshot!(said(&project("hybrid", "{ deny: [fine, 'd*'] }")), @r"
    error: with this `exit_policy.mode` no agent could end a turn: the tool `done` is denied by `d*`
     --> .harness/harness.md:3:22
      |
    3 | exit_policy: { mode: hybrid }
      |                      ^^^^^^
      |
      = hint: remove `d*` from `tools_policy.deny` in `.harness/harness.md:4:30`
    ");
    for (mode, tools) in [("done_tool", "{ allow: [fine, done] }"), ("hybrid", "{ allow: ['*'], deny: [fine] }")] {
        let project = project(mode, tools);
        project.run(&["run", "Do it."]).gives("Done.");
        project.run(&["validate", "--strict"]).says(0, "");
    }
    // Where nothing asks for it, nothing has to allow it.
    let natural = project("natural", "{ allow: [fine] }");
    natural.write("replies.yaml", "- text: Fine.\n");
    natural.run(&["run", "Do it."]).gives("Fine.");
    // The machine has its say as well.
    let project = project("done_tool", "{}").file("machine.yaml", "tools_policy:\n  allow: [fine]\n");
    let ran = project.run(&["--policy", "machine.yaml", "run", "Do it."]);
    assert!(ran.code == 2 && ran.err.contains("add `done` to `tools_policy.allow` in `"), "{ran}");
    assert!(ran.err.contains("machine.yaml:2:10`"), "{ran}");
}

/// A tool of the project that has the name is the one that is called.
#[test]
fn a_done_of_the_project() {
    let replies = "- tool_calls: [{ name: done, args: { summary: all } }]\n- { expect: noted all, text: Done. }\n";
    let parameters = "parameters:\n  summary: { type: string, required: true }\n";
    let own = "def run(args):\n    return 'noted ' + args['summary']\n";
    let project = agent("exit_policy: { mode: done_tool }\n", replies).tool("done", parameters, own);
    let ran = spied(project, &["completion.pre"]).run(&["run", "Do it."]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "Done.\n"), "{ran}");
    assert_eq!(told(&ran, "completion.pre")[0]["tools"].as_array().unwrap().len(), 1);
}

/// A hook that gives no reason still gets something said in its place; one that never agrees ends the turn.
#[test]
fn hooks_that_keep_an_agent_going() {
    let body = "return block('') if payload['text'] == 'early' else allow()";
    let replies = "- text: early\n- { expect: Continue until the task is fully complete., text: late }\n";
    assert_eq!(said(agent("", replies).with_handle("keep", "agent.stop", "", body)).1, "late\n");
    // In a row: a call in between begins again.
    let early = "- text: early\n".repeat(8);
    let project = agent("", &format!("{early}- tool_calls: [{{ name: fine }}]\n{early}- text: late\n"))
        .tool("fine", "", "def run(args):\n    return 1\n")
        .with_handle("keep", "agent.stop", "", "return block('go on') if payload['text'] == 'early' else allow()");
    assert_eq!(said(project).1, "late\n");
    let project =
        agent("", &"- text: early\n".repeat(20)).with_handle("keep", "agent.stop", "", "return block('go on')");
    let (code, error, users) = said(project);
    assert_eq!(
        (code, error.as_str()),
        (
            4,
            &*format!(
                "error: hooks on agent.stop blocked 8 times in a row, the last time: {}",
                told_by("keep", "go on")
            )
        )
    );
    assert_eq!(users, vec![told_by("keep", "go on"); 8]);
}

/// The two words for a warning instead of the error: what is over the limit is not done in either.
#[test]
fn too_many_rounds() {
    let rounds = "- tool_calls: [{ name: count }]\n".repeat(4);
    let count = "def run(args):\n    fs.append('count', 'x')\n    return 1\n";
    let warning = "max tool rounds reached (2); `exit_policy.max_iterations` in `harness.md` raises it";
    for (word, code) in [("error", 4), ("warn_and_exit", 0), ("continue_with_warning", 0)] {
        let policy = format!("exit_policy: {{ max_iterations: 2, on_max_iterations: {word} }}\n");
        let project = spied(agent(&policy, &rounds).tool("count", "", count).file("count", ""), &["turn.end", "error"]);
        let ran = project.run(&["run", "--json", "Go"]);
        assert_eq!(
            (ran.code, std::fs::read_to_string(project.path("count")).unwrap().as_str()),
            (code, "xx"),
            "{word}"
        );
        if code == 0 {
            assert_eq!(order(&ran), ["turn.end"], "{word}");
            assert_eq!(ran.json()["warning"], json!(warning), "{word}");
            assert_eq!(ran.json()["answer"], json!(format!("warning: {warning}")), "{word}");
        } else {
            assert_eq!(order(&ran), ["error"], "{word}");
            assert_eq!(ran.json()["error"], json!({"kind": "limit", "message": warning}));
        }
    }
}

/// Anyone who is started ends as the policy says, too.
#[test]
fn of_a_sub_agent() {
    let replies = "- tool_calls: [{ name: delegate, args: { agent: worker, task: Work. } }]\n- tool_calls: [{ name: done }]\n- text: Thanks.\n\
                   - { agent: worker, text: I think so. }\n\
                   - { agent: worker, expect: Call the `done` tool, tool_calls: [{ name: done }] }\n\
                   - { agent: worker, text: Worked. }\n";
    let project =
        agent("exit_policy: { mode: done_tool }\n", replies).file(".harness/agents/worker.md", "---\n---\nYou work.\n");
    let ran = spied(project, &["delegation.post"]).run(&["run", "Go"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "Thanks.\n"), "{ran}");
    assert_eq!(told(&ran, "delegation.post")[0]["result"]["response"], "Worked.");
}

#[test]
fn words_that_are_none() {
    for (policy, part) in [
        ("mode: sometimes", "exit_policy.mode \"sometimes\" must be natural|done_tool|hook|hybrid"),
        (
            "on_max_iterations: stop",
            "exit_policy.on_max_iterations \"stop\" must be error|warn_and_exit|continue_with_warning",
        ),
        ("max_iterations: -1", "exit_policy.max_iterations"),
        ("max_iterations: many", "exit_policy.max_iterations"),
    ] {
        let project = agent(&format!("exit_policy: {{ {policy} }}\n"), "- text: x\n");
        project.run(&["validate"]).says(2, part);
        project.run(&["run", "Go"]).says(2, part);
    }
}

/// A turn that was ended by its limit leaves a conversation that knows what was done, and in which no call is open.
#[test]
fn what_is_left_of_a_turn_that_was_ended() {
    for (wire, name) in WIRES {
        let call = |path: &str| [("read_file", json!({ "path": path }))];
        let service = Service::new(vec![
            wire.reply(true, "", &call("config.yaml")),
            wire.reply(true, "", &call("other.yaml")),
            wire.reply(true, SAID, &[]),
        ]);
        let project = project(name, &service, "")
            .policy_of(|text| text.replacen("---\n", "---\nexit_policy: { max_iterations: 1 }\n", 1));
        let mut person = Person::with(&project, &["run"], &[("HARNESS_TEST_KEY", KEY)]);
        person.sees("> ");
        person.types(&format!("{ASKED}\r"));
        person.sees("max tool rounds reached (1)");
        person.sees("> ");
        person.types("And now?\r");
        person.sees(SAID);
        person.sees("> ");
        person.types("/quit\r");
        assert_eq!(person.leaves(), 0, "{name}: {}", person.seen);
        let asked = service.chats()[2].json();
        assert_eq!(results(&asked), ["port: 8080\n"], "{name}: {asked}");
        let text = asked["messages"].to_string();
        assert!(text.contains("config.yaml") && !text.contains("other.yaml"), "{name}: {text}");
        assert!(text.contains(ASKED) && text.contains("And now?"), "{name}: {text}");
    }
}

/// A limit that is misspelled does not leave its default standing.
#[test]
fn a_limit_that_is_misspelled() {
    for (section, meant) in
        [("exit_policy: { max_iteration: 3 }", "max_iterations"), ("context: { max_histroy: 3 }", "max_history")]
    {
        let ran = agent(&format!("{section}\n"), "- text: x\n").run(&["run", "hi"]);
        ran.says(2, &format!("did you mean `{meant}`?"));
        let known = section.replace("max_iteration:", "max_iterations:").replace("max_histroy", "max_history");
        agent(&format!("{known}\n"), "- text: x\n").run(&["run", "hi"]).gives("x");
    }
}

/// A turn without rounds left may have the model sum up: once more, in words, whatever it calls then.
#[test]
fn a_turn_without_rounds_left_may_sum_up() {
    let calls = "- { text: I look., tool_calls: [{ name: look }] }\n";
    for (last, code, out, err) in [
        (
            "- { expect: Answer now in words, text: I looked once. }\n",
            0,
            "I looked once.\n",
            "warning: max tool rounds \
           reached (1); `exit_policy.max_iterations` in `harness.md` raises it; the agent summed up\n",
        ),
        (
            "- { text: In short., tool_calls: [{ name: look }] }\n",
            0,
            "In short.\n",
            "warning: max tool rounds reached \
           (1); `exit_policy.max_iterations` in `harness.md` raises it; the agent summed up\n",
        ),
        (
            "- { tool_calls: [{ name: look }] }\n",
            4,
            "",
            "error: max tool rounds reached (1); \
           `exit_policy.max_iterations` in `harness.md` raises it\n",
        ),
    ] {
        let policy = "exit_policy: { max_iterations: 1, on_max_iterations: summarize }\n";
        let project =
            agent(policy, &format!("{calls}{calls}{last}")).tool("look", "", "def run(args):\n    return 1\n");
        let ran = project.run(&["run", "Look."]);
        assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (code, out, err));
        let replayed = project.run(&["sessions", "replay"]);
        assert_eq!(replayed.code, 0, "{replayed}");
        let shown = project.run(&["sessions", "show"]).out;
        assert_eq!(shown.matches("tool look").count(), 1, "{shown}");
    }
}
