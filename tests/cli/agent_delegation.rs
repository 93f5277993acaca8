//! Sub-agents: who may set whom to work, what each sees, whose hooks are asked, and what judges a result.

use serde_json::{Value as Json, json};

use crate::agent_turns::{SCRIPTED, agent, order, spied, told};
use crate::project::{Project, Ran};

/// The root's replies: it sets `researcher` a task and shows what it gets.
const ASKS: &str = "- tool_calls: [{ name: delegate, args: { agent: researcher, task: Find it. } }]\n- text: Thanks.\n";

const RESEARCHER: &str = "---\ndescription: Finds things.\ntools:\n  - name: secret_source\n    description: Its own.\n    script: |\n      def run(args):\n          return 'the answer is 42'\n---\n\n# Researcher\n\nYou research.\n";

/// A project whose root asks a researcher, who answers as these replies say.
fn delegating(policy: &str, replies: &str) -> Project {
    agent(policy, &format!("{ASKS}{replies}")).file(".harness/agents/researcher.md", RESEARCHER)
}

/// The researcher uses its own tool and answers.
const FOUND: &str = "- { agent: researcher, tool_calls: [{ name: secret_source }] }\n\
                     - { agent: researcher, expect: the answer is 42, text: It is 42. }\n";

/// What the root's model got for its calls.
fn results(ran: &Ran) -> Vec<String> {
    let asked = told(ran, "completion.pre");
    let of_root = asked.iter().rfind(|request| request["messages"][0]["content"] == "You help.").unwrap();
    let messages = of_root["messages"].as_array().unwrap();
    let tool = messages.iter().filter(|message| message["role"] == "tool");
    tool.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn an_agent_sets_another_a_task_and_gets_its_result() {
    let ran = spied(delegating("", FOUND), &["completion.pre", "turn.start"]).run(&["run", "What is it?"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "Thanks.\n"), "{ran}");
    let result: Json = serde_json::from_str(&results(&ran)[0]).unwrap();
    assert_eq!(
        result,
        json!({"agent": "researcher", "response": "It is 42.", "calls": 1, "rounds": 1, "attempts": 1, "usage": result["usage"]})
    );
    let asked = told(&ran, "completion.pre");
    assert_eq!(asked.len(), 4);
    // The root is told whom it may ask, and what for.
    let delegate = &asked[0]["tools"][0]["function"];
    assert_eq!(delegate["name"], "delegate");
    assert!(delegate["description"].as_str().unwrap().contains("- researcher: Finds things."), "{delegate}");
    assert_eq!(delegate["parameters"]["required"], json!(["agent", "task"]));
    // The child's prompt is its file's prose, every character; its conversation begins with the task.
    assert_eq!(asked[1]["messages"][0], json!({"role": "system", "content": "\n# Researcher\n\nYou research.\n"}));
    assert_eq!(asked[1]["messages"][2], json!({"role": "user", "content": "Find it."}));
    assert_eq!(told(&ran, "turn.start"), [json!("What is it?"), json!("Find it.")]);
    // Of the child's own calls the root sees nothing.
    let root = asked[3]["messages"].to_string();
    assert!(root.contains("It is 42.") && !root.contains("secret_source"), "{root}");
}

/// A child has what its parent has, and its own beside; what is its own nobody else has.
#[test]
fn an_agent_s_own_tools_are_its_own() {
    let tools = |request: &Json| -> Vec<String> {
        let names = request["tools"].as_array().unwrap().iter();
        names.map(|tool| tool["function"]["name"].as_str().unwrap().to_owned()).collect()
    };
    let policy = "tools_policy: { deny: [denied] }\n";
    let replies = format!("{FOUND}- tool_calls: []\n  text: unused\n");
    let project = delegating(policy, &replies).tool("shared", "", "def run(args):\n    return 1\n").tool(
        "denied",
        "",
        "def run(args):\n    return 1\n",
    );
    let ran = spied(project, &["completion.pre"]).run(&["run", "What is it?"]);
    let asked = told(&ran, "completion.pre");
    assert_eq!(tools(&asked[0]), ["shared", "delegate", "delegate_async", "delegate_status", "delegate_await"]);
    assert_eq!(
        tools(&asked[1]),
        ["shared", "secret_source", "delegate", "delegate_async", "delegate_status", "delegate_await"]
    );
    // The root cannot call what it cannot see.
    let replies = "- tool_calls: [{ name: secret_source }]\n- { expect: there is no tool, text: no }\n";
    agent("", replies).file(".harness/agents/researcher.md", RESEARCHER).run(&["run", "Try"]).gives("no");
    // Nor can an agent that the researcher starts.
    let helper = "---\ndescription: Helps.\n---\nYou help.";
    let replies = "- { agent: researcher, tool_calls: [{ name: delegate, args: { agent: helper, task: Do. } }] }\n\
                   - { agent: researcher, expect: helped, text: Done. }\n\
                   - { agent: helper, tool_calls: [{ name: secret_source }] }\n\
                   - { agent: helper, expect: there is no tool, text: helped }\n";
    delegating("", replies).file(".harness/agents/helper.md", helper).run(&["run", "Try"]).gives("Thanks.");
}

/// The model of a child is its file's, or the parent's; nobody else's changes.
#[test]
fn an_agent_may_have_a_model_of_its_own() {
    let models = |front: &str| -> Vec<Json> {
        let project = agent("", &format!("{ASKS}- {{ agent: researcher, text: Fine. }}\n"))
            .file(".harness/agents/researcher.md", &format!("---\n{front}---\nYou research.\n"));
        let ran = spied(project, &["completion.pre"]).run(&["run", "What?"]);
        told(&ran, "completion.pre").iter().map(|request| request["model"].clone()).collect()
    };
    assert_eq!(models(""), ["script", "script", "script"]);
    assert_eq!(models("model: small\n"), ["script", "small", "script"]);
}

/// The parent's hooks are asked before and after, and see what the pages say; they can stop and change it.
#[test]
fn hooks_govern_a_delegation() {
    let events = ["delegation.pre", "delegation.post", "turn.start", "tool.pre", "tool.post"];
    let ran = spied(delegating("", FOUND), &events).run(&["run", "What is it?"]);
    let wanted = [
        "turn.start",
        "tool.pre",
        "delegation.pre",
        "turn.start",
        "tool.pre",
        "tool.post",
        "delegation.post",
        "tool.post",
    ];
    // The lines of a call come when it has ended; those of the loop at once.
    let mut seen = order(&ran);
    let mut all: Vec<String> = wanted.iter().map(ToString::to_string).collect();
    seen.sort();
    all.sort();
    assert_eq!(seen, all);
    assert_eq!(
        told(&ran, "delegation.pre"),
        [json!({
            "id": "delegation_1", "parent_id": "root", "agent": "researcher", "prompt": "Find it.", "depth": 1, "path": ["researcher"],
            "model": null, "tools": ["secret_source"], "hooks": [],
        })]
    );
    let post = &told(&ran, "delegation.post")[0];
    assert_eq!(post["result"]["response"], "It is 42.");
    assert_eq!(
        *post,
        json!({"id": "delegation_1", "parent_id": "root", "agent": "researcher", "result": post["result"], "depth": 1, "path": ["researcher"]})
    );
    // Who judges it sees what was called, which the one that asked does not.
    assert_eq!(post["result"]["tool_calls"], json!([{"id": "call_2", "name": "secret_source", "args": {}}]));
    let given = json!({"call_id": "call_2", "name": "secret_source", "content": "the answer is 42", "is_error": false});
    assert_eq!(post["result"]["tool_results"], json!([given]));

    let with = |event: &str, decision: &str| {
        let project = spied(delegating("", FOUND), &["completion.pre"]);
        let ran = project.with_handle("h", event, "", &format!("return {decision}")).run(&["run", "What?"]);
        assert_eq!(ran.out, "Thanks.\n", "{ran}");
        (results(&ran)[0].clone(), told(&ran, "completion.pre"))
    };
    let (result, asked) = with("delegation.pre", "block('no help')");
    assert_eq!(result, "tool denied: delegation blocked: blocked by hook \"h\": no help");
    assert_eq!(asked.len(), 2);
    let (result, asked) = with("delegation.post", "block('not that')");
    assert_eq!(result, "tool denied: delegation blocked: blocked by hook \"h\": not that");
    assert_eq!(asked.len(), 4);
    assert_eq!(with("delegation.post", "modify({'result': {'short': True}})").0, "{\"short\":true}");
    let kept =
        "modify({'result': {'tool_calls': payload['result']['tool_calls'], 'tool_results': [], 'response': 'x'}})";
    assert_eq!(with("delegation.post", kept).0, "{\"tool_results\":[],\"response\":\"x\"}");
    let (_, asked) = with("delegation.pre", "modify({'prompt': 'Find less.', 'model': 'tiny'})");
    assert_eq!((&asked[1]["messages"][2]["content"], &asked[1]["model"]), (&json!("Find less."), &json!("tiny")));
    // Nothing else of it is changed, and nobody is to believe that it was.
    for (key, value) in [
        ("agent", "'other'"),
        ("tools", "[]"),
        ("hooks", "['strict']"),
        ("depth", "9"),
        ("path", "[]"),
        ("parent_id", "'x'"),
    ] {
        let (result, asked) = with("delegation.pre", &format!("modify({{'{key}': {value}}})"));
        assert_eq!(result, format!("tool error: delegation.pre modify payload: `{key}` cannot be changed"));
        assert_eq!(asked.len(), 2, "the child was asked");
    }
    // It is a tool like any other.
    let (result, _) = with("tool.pre", "block('no') if payload['name'] == 'delegate' else allow()");
    assert_eq!(result, "tool blocked: blocked by hook \"h\": no");
}

/// A child's chain is its parent's and its own, which acts while it works and no longer.
#[test]
fn a_child_inherits_hooks_and_has_its_own() {
    let own = "---\nhooks:\n  - event: tool.pre\n    priority: 50\n    script: |\n      def handle(event, payload):\n          return block('by its own') if payload['name'] == 'shared' else allow()\n---\nYou research.\n";
    let calls = |agent: &str| format!("- {{ {agent}tool_calls: [{{ name: shared }}, {{ name: guarded }}] }}\n");
    let replies = format!(
        "- tool_calls: [{{ name: delegate, args: {{ agent: researcher, task: Go. }} }}]\n{}- text: Thanks.\n{}- {{ agent: researcher, text: Fine. }}\n",
        calls(""),
        calls("agent: researcher, "),
    );
    let body = "return block('by its parent') if payload['name'] == 'guarded' else allow()";
    let project = agent("", &replies)
        .file(".harness/agents/researcher.md", own)
        .tool("shared", "", "def run(args):\n    return 'ran'\n")
        .tool("guarded", "", "def run(args):\n    return 'ran'\n")
        .with_handle("guard", "tool.pre", "priority: 10\n", body);
    let ran = spied(project, &["completion.pre"]).run(&["run", "Go"]);
    let asked = told(&ran, "completion.pre");
    let contents = |request: &Json| -> Vec<String> {
        let messages = request["messages"].as_array().unwrap().iter();
        messages.filter(|m| m["role"] == "tool").map(|m| m["content"].as_str().unwrap().to_owned()).collect()
    };
    let child = asked.iter().rfind(|request| request["messages"][0]["content"] == "You research.\n").unwrap();
    assert_eq!(
        contents(child),
        [
            "tool blocked: blocked by hook \"researcher.hooks[0]\": by its own",
            "tool blocked: blocked by hook \"guard\": by its parent",
        ]
    );
    assert_eq!(contents(asked.last().unwrap())[1..], ["ran", "tool blocked: blocked by hook \"guard\": by its parent"]);
}

/// What a hook blocks at one depth is there at the others.
#[test]
fn hooks_take_a_tool_away_at_one_depth() {
    let calls = |agent: &str| format!("- {{ {agent}tool_calls: [{{ name: shared }}] }}\n");
    let (root, child) = (calls(""), calls("agent: researcher, "));
    let replies = format!(
        "{root}- {{ expect: ran, tool_calls: [{{ name: delegate, args: {{ agent: researcher, task: Go. }} }}] }}\n- text: Thanks.\n\
         {child}- {{ agent: researcher, expect: not so deep, text: Fine. }}\n"
    );
    let body = "return block('not so deep') if payload['agent']['depth'] > 0 else allow()";
    let project = agent("", &replies)
        .file(".harness/agents/researcher.md", "---\n---\nYou research.\n")
        .tool("shared", "", "def run(args):\n    return 'ran'\n")
        .with_handle("guard", "tool.pre", "when: payload['name'] == 'shared'\n", body);
    let ran = project.run(&["run", "Go"]);
    let denied = "researcher: denied: shared: tool blocked: blocked by hook \"guard\": not so deep\n";
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "Thanks.\n", denied), "{ran}");
}

#[test]
fn how_deep_and_who() {
    let first = |policy: &str, replies: &str| {
        let project = agent(policy, replies).file(".harness/agents/researcher.md", RESEARCHER);
        let ran = spied(project, &["completion.pre"]).run(&["run", "Go"]);
        assert_eq!(ran.code, 0, "{ran}");
        results(&ran)[0].clone()
    };
    let asks = |who: &str, whom: &str| {
        format!("- {{ {who}tool_calls: [{{ name: delegate, args: {{ agent: {whom}, task: Go. }} }}] }}\n")
    };
    let unknown = format!("{}- text: no\n", asks("", "reasercher"));
    assert_eq!(
        first("", &unknown),
        "tool error: agent \"reasercher\" not found (available: researcher); did you mean \"researcher\"?"
    );
    // An agent does not call itself, unless the policy lets it; then depth is what ends it.
    let child = "agent: researcher, ";
    let again =
        format!("{}- text: ok\n{}- {{ {child}text: stopped }}\n", asks("", "researcher"), asks(child, "researcher"));
    assert!(first("", &again).contains("\"response\":\"stopped\""));
    let deep = format!(
        "{}- text: ok\n{}{}- {{ {child}expect: 'delegation depth limit reached (2/2); `delegation.max_depth` in `harness.md` raises it', text: deepest }}\n- {{ {child}expect: deepest, text: upper }}\n",
        asks("", "researcher"),
        asks(child, "researcher"),
        asks(child, "researcher"),
    );
    let policy = "delegation: { allow_recursive: true, max_depth: 2 }\n";
    assert!(first(policy, &deep).contains("\"response\":\"upper\""));
    // With none allowed, nobody is offered; who is called anyway does not start, and the limit is named.
    let none = "delegation: { max_depth: 0 }\n";
    let called = format!("{}- text: alone\n", asks("", "researcher"));
    let project = agent(none, &called).file(".harness/agents/researcher.md", RESEARCHER);
    let ran = spied(project, &["completion.pre"]).run(&["run", "Go"]);
    assert_eq!(told(&ran, "completion.pre")[0]["tools"], json!([]));
    let limit = "tool error: delegation depth limit reached (0/0); `delegation.max_depth` in `harness.md` raises it";
    assert_eq!(results(&ran), [limit]);
    // Missing arguments are refused before anything is asked.
    let missing = "- tool_calls: [{ name: delegate, args: { agent: researcher } }]\n- text: no\n";
    assert_eq!(
        first("", missing),
        "error: the arguments of `delegate` do not fit its parameters: the argument `task` (string) is missing"
    );
}

/// What a hook logs on the events of a delegation is said once, also where it blocks it, and with what tools log beside.
#[test]
fn what_hooks_log_of_a_delegation_is_said_once() {
    let said = |event: &str, decision: &str| {
        let project = delegating("", FOUND).with_handle("says", event, "", &format!("log.info('heard')\n{decision}"));
        let ran = project.run(&["run", "What is it?"]);
        ran.err.lines().filter(|line| *line == "[info] says: heard").count()
    };
    for event in ["delegation.pre", "delegation.post", "delegation.post_verify"] {
        assert_eq!(said(event, "return allow()"), usize::from(event != "delegation.post_verify"), "{event}");
    }
    assert_eq!(said("delegation.pre", "return block('no')"), 1);
    assert_eq!(said("delegation.post", "return block('no')"), 1);
    // A tool that delegates, and calls another that logs.
    let replies = "- tool_calls: [{ name: both }]\n- text: Done.\n- { agent: researcher, text: Found. }\n";
    let project = agent("meta: { enabled: true }\n", replies)
        .file(".harness/agents/researcher.md", RESEARCHER)
        .tool("both", "", "def run(args):\n    delegate('researcher', 'Go.')\n    return meta.call_tool('logs', {})\n")
        .tool("logs", "", "def run(args):\n    log.info('beside')\n")
        .with_handle("says", "delegation.pre", "", "log.info('heard')\nreturn allow()");
    let ran = project.run(&["run", "Go"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, "[info] says: heard\n[info] beside\n"), "{ran}");
}

/// Rounds are counted for each agent, by its depth.
#[test]
fn rounds_of_a_child_are_limited_by_its_depth() {
    let calls = "- { agent: researcher, tool_calls: [{ name: secret_source }] }\n";
    let limited = |policy: &str, rounds: usize| {
        let project = delegating(policy, &format!("{}- {{ agent: researcher, text: Fine. }}\n", calls.repeat(rounds)));
        let ran = spied(project, &["completion.pre"]).run(&["run", "Go"]);
        results(&ran)[0].clone()
    };
    let limit = |most: u32| {
        format!(
            "tool error: agent \"researcher\": max tool rounds reached ({most}); `delegation.iterations_per_depth` in `harness.md` raises it"
        )
    };
    assert_eq!(limited("", 11), limit(10));
    assert!(limited("", 10).contains("Fine."));
    assert_eq!(limited("delegation: { iterations_per_depth: [20, 2] }\n", 3), limit(2));
    assert!(limited("delegation: { iterations_per_depth: [20, 2] }\n", 2).contains("Fine."));
}

const VERIFY: &str = "delegation:\n  verify: |\n    def run(result):\n        ok = 'source' in result['response']\n        return {'verified': ok, 'reason': '' if ok else 'no source'}\n";

/// A result is judged after `delegation.post`, where the policy says how; one that is refused is asked for again.
#[test]
fn a_result_that_is_not_accepted_is_asked_for_again() {
    let replies = "- { agent: researcher, text: It is 42. }\n\
                   - { agent: researcher, expect: no source, text: It is really 42. }\n\
                   - { agent: researcher, expect: no source, text: It is 42 (source). }\n";
    let events = ["delegation.post", "delegation.post_verify", "completion.pre"];
    let ran = spied(delegating(VERIFY, replies), &events).run(&["run", "What?"]);
    let result: Json = serde_json::from_str(&results(&ran)[0]).unwrap();
    assert_eq!((&result["response"], &result["attempts"]), (&json!("It is 42 (source)."), &json!(3)));
    let judged = told(&ran, "delegation.post_verify");
    let attempts: Vec<&Json> = judged.iter().map(|payload| &payload["attempt"]).collect();
    assert_eq!(attempts, [1, 2, 3]);
    let mut like_post = told(&ran, "delegation.post")[2].clone();
    like_post["attempt"] = json!(3);
    assert_eq!(judged[2], like_post);
    let order: Vec<String> = order(&ran).into_iter().filter(|event| event.starts_with("delegation")).collect();
    assert_eq!(order, ["delegation.post", "delegation.post_verify"].repeat(3));

    // Twice again is the most, unless the policy says otherwise.
    let never = "- { agent: researcher, text: It is 42. }\n".repeat(4);
    let ended = |policy: &str| {
        results(&spied(delegating(policy, &never), &["completion.pre"]).run(&["run", "What?"]))[0].clone()
    };
    assert_eq!(ended(VERIFY), "tool error: delegation verification failed after 3 attempt(s): no source");
    let once = format!("{VERIFY}  max_verify_retries: 0\n");
    assert_eq!(ended(&once), "tool error: delegation verification failed after 1 attempt(s): no source");
}

/// A verifier sees what was called in the attempt that it judges, and what that gave.
#[test]
fn a_verifier_sees_the_calls() {
    let calls = "- { agent: researcher, tool_calls: [{ name: secret_source }, { name: none_such }] }\n";
    let replies =
        format!("- {{ agent: researcher, text: '42, I guess.' }}\n{calls}- {{ agent: researcher, text: It is 42. }}\n");
    let policy = "delegation:\n  verify: |\n    def run(result):\n        found = [r['content'] for r in result['tool_results'] if not r['is_error']]\n        return {'verified': 'the answer is 42' in found, 'reason': 'not looked up'}\n";
    let project = delegating(policy, &replies).with_handle(
        "spy",
        "delegation.post_verify",
        "",
        "log.info(json.encode(payload['result']['tool_results']))\nreturn allow()",
    );
    let ran = spied(project, &["completion.pre"]).run(&["run", "What?"]);
    let seen: Vec<&str> = ran.err.lines().filter_map(|line| line.strip_prefix("[info] spy: ")).collect();
    let unknown = "error: there is no tool `none_such`";
    let second = json!([
        {"call_id": "call_2", "name": "secret_source", "content": "the answer is 42", "is_error": false},
        {"call_id": "call_3", "name": "none_such", "content": unknown, "is_error": true},
    ]);
    assert_eq!(seen, ["[]", &second.to_string()], "{ran}");
    let result: Json = serde_json::from_str(&results(&ran)[0]).unwrap();
    assert_eq!(
        result,
        json!({"agent": "researcher", "response": "It is 42.", "calls": 2, "rounds": 1, "attempts": 2, "usage": result["usage"]})
    );
}

/// Hooks judge too, and only where the policy declares `verify`.
#[test]
fn hooks_judge_a_result() {
    let replies =
        "- { agent: researcher, text: one (source) }\n- { agent: researcher, expect: once more, text: two (source) }\n";
    let body = "return block('once more') if payload['attempt'] == 1 else allow()";
    let ended = |policy: &str| {
        let project = delegating(policy, replies).with_handle("judge", "delegation.post_verify", "", body);
        results(&spied(project, &["completion.pre"]).run(&["run", "What?"]))[0].clone()
    };
    assert!(ended(VERIFY).contains("two (source)"));
    assert!(ended("").contains("one (source)"));
}

/// A verifier that cannot judge ends the delegation: another attempt would not help.
#[test]
fn a_verifier_that_fails() {
    let ended = |body: &str| {
        let policy = format!("delegation:\n  verify: |\n    def run(result):\n        {body}\n");
        let project = delegating(&policy, "- { agent: researcher, text: Fine. }\n");
        results(&spied(project, &["completion.pre"]).run(&["run", "What?"]))[0].clone()
    };
    assert_eq!(ended("return 7"), "tool error: verify: its result must be True, False or a dict with `verified`");
    assert_eq!(ended("fail('broken')"), "tool error: verify: broken (.harness/harness.md:6:9)");
    assert!(ended("return True").contains("Fine."));
}

/// A script sets an agent to work as a model does, with no more than it is granted itself.
#[test]
fn a_script_delegates() {
    let script = "def run(args):\n    return delegate('researcher', 'Find it.')\n";
    let replies = "- { agent: researcher, tool_calls: [{ name: read_it }] }\n- { agent: researcher, text: Read. }\n";
    let read = "def run(args):\n    return fs.read('data.txt')\n";
    let project = |front: &str| {
        let project = agent("", replies)
            .file(".harness/agents/researcher.md", RESEARCHER)
            .file("data.txt", "the data")
            .tool("read_it", "", read)
            .tool("ask", front, script);
        spied(project, &["tool.post"])
    };
    let ran = project("").run(&["call", "ask", "--json"]);
    assert_eq!(ran.json()["result"]["response"], "Read.", "{ran}");
    let contents =
        |ran: &Ran| -> Vec<Json> { told(ran, "tool.post").iter().map(|post| post["content"].clone()).collect() };
    assert_eq!(contents(&ran)[0], "the data");
    // The agent's tool could read; for a script that may not, it cannot.
    let ran = project("capabilities: { fs: { read: [] }, services: [delegate] }\n").run(&["call", "ask", "--json"]);
    assert!(contents(&ran)[0].as_str().unwrap().starts_with("tool denied: "), "{ran}");
    // What may not delegate does not.
    let ran = project("capabilities: { services: [cache] }\n").run(&["call", "ask"]);
    assert_eq!(ran.code, 3, "{ran}");
    assert!(ran.err.contains("delegate"), "{ran}");
    // Nor by the tool's name.
    let by_name = "def run(args):\n    return meta.call_tool('delegate', {'agent': 'researcher', 'task': 'Go.'})\n";
    let project = agent("meta: { enabled: true }\n", replies).file(".harness/agents/researcher.md", RESEARCHER).tool(
        "ask",
        "capabilities: { services: [meta] }\n",
        by_name,
    );
    assert!(project.run(&["call", "ask"]).out.starts_with("error: "), "no grant, no agent");
    // Hooks that govern `delegate` govern this as well.
    let guarded = agent("", replies)
        .file(".harness/agents/researcher.md", RESEARCHER)
        .tool("ask", "", script)
        .with_handle("guard", "tool.pre", "when: payload['name'] == 'delegate'\n", "return block('no agents')");
    guarded.run(&["call", "ask"]).says(3, "no agents");
}

/// The name is the host's.
#[test]
fn no_artifact_is_called_delegate() {
    let ran = Project::new().tool("delegate", "", "def run(args):\n    return 1\n").run(&["validate"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("tool \"delegate\" has the name of a built-in tool"), "{ran}");
}

/// An agent that is written in `harness.md` is one like any other.
#[test]
fn an_inline_agent_works_as_one_in_a_file_does() {
    let policy = format!(
        "---\n{SCRIPTED}agents:\n  - name: researcher\n    description: Finds things.\n    system_prompt: You research.\n---\nYou help.\n"
    );
    let replies = format!("{ASKS}- {{ agent: researcher, text: Inline. }}\n");
    let project = Project::new().file(".harness/harness.md", &policy).file("replies.yaml", &replies);
    let ran = spied(project, &["completion.pre"]).run(&["run", "Go"]);
    assert!(results(&ran)[0].contains("Inline."), "{ran}");
}

/// Two levels down, with tools of their own: none gets what the script that began it has not been granted.
#[test]
fn a_child_can_do_nothing_that_who_began_cannot() {
    let tries = [
        "fs.read('data.txt')",
        "fs.write('made', 'x')",
        "env('HARNESS_TEST_VARIABLE')",
        "cache.set('a', 1)",
        "time.now()",
    ];
    let mut own = "---\nhooks:\n  - handler: guard\n    event: tool.pre\n    script: |\n      def handle(event, payload):\n          return allow()\ntools:\n".to_owned();
    for (at, what) in tries.iter().enumerate() {
        own.push_str(&format!("  - name: try{at}\n    script: |\n      def run(args):\n          return {what}\n"));
    }
    own.push_str("---\nYou try.\n");
    let calls: Vec<String> = (0..tries.len()).map(|at| format!("{{ name: try{at} }}")).collect();
    let replies = format!(
        "- {{ agent: worker, tool_calls: [{{ name: delegate, args: {{ agent: helper, task: Try. }} }}] }}\n- {{ agent: worker, text: Done. }}\n\
         - {{ agent: helper, tool_calls: [{}, {{ name: guarded }}] }}\n- {{ agent: helper, text: Tried. }}\n",
        calls.join(", ")
    );
    let script = "def run(args):\n    return delegate('worker', 'Go.')\n";
    let outcomes = |front: &str| -> Vec<bool> {
        let project = agent("sandbox: { env: [HARNESS_TEST_VARIABLE] }\n", &replies)
            .file(".harness/agents/worker.md", "---\n---\nYou work.\n")
            .file(".harness/agents/helper.md", &own)
            .file("data.txt", "the data")
            .tool("ask", front, script)
            .tool("guarded", "", "def run(args):\n    return 1\n")
            .with_handle(
                "guard",
                "tool.pre",
                "priority: 1\nwhen: payload['name'] == 'guarded'\n",
                "return block('no')",
            );
        let ran = spied(project, &["tool.post", "completion.pre"]).run(&["call", "ask"]);
        // The helper's own hook has the name of the project's guard and does not take its place.
        let asked = told(&ran, "completion.pre");
        let last = asked.iter().rfind(|request| request["messages"][0]["content"] == "You try.\n").unwrap();
        assert!(last.to_string().contains("blocked by hook \\\"guard\\\": no"), "{ran}");
        let posts = told(&ran, "tool.post");
        let of =
            |at: usize| posts.iter().find(|post| post["name"] == format!("try{at}")).unwrap_or_else(|| panic!("{ran}"));
        (0..tries.len()).map(|at| of(at)["is_error"] == json!(false)).collect()
    };
    assert_eq!(outcomes(""), [true; 5]);
    assert_eq!(outcomes("capabilities: { fs: { read: [], write: [] }, env: [], services: [delegate] }\n"), [false; 5]);
    let some = "capabilities: { fs: { read: [data.txt], write: [] }, env: [], services: [delegate, clock] }\n";
    assert_eq!(outcomes(some), [true, false, false, false, true]);
}
