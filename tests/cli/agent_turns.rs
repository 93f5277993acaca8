//! Turns of an agent whose model has its replies in a file: every event of the loop at its place, what its hooks can
//! change and stop, and how a turn ends.

use serde_json::{Value as Json, json};

use crate::hooks_events::not_taken;
use crate::project::{Project, Ran};

/// The policy of a project whose model is scripted.
pub(crate) const SCRIPTED: &str = "model: { provider: script, script: replies.yaml }\n";

/// A project with these replies, which says its task in its prompt.
pub(crate) fn agent(policy: &str, replies: &str) -> Project {
    let policy = format!("---\n{SCRIPTED}{policy}---\nYou help.\n");
    Project::new().file(".harness/harness.md", &policy).file("replies.yaml", replies)
}

/// A hook that tells each event that it hears and its payload.
pub(crate) fn spied(mut project: Project, events: &[&str]) -> Project {
    for (index, event) in events.iter().enumerate() {
        let body = "log.info(event + ' ' + json.encode(payload))\nreturn allow()";
        project = project.with_handle(&format!("spy{index}"), event, "priority: 90\n", body);
    }
    project
}

/// A payload without the agent by which it came about, which `hooks_words` looks at.
fn apart_from_agent(mut payload: Json) -> Json {
    if let Some(object) = payload.as_object_mut().filter(|object| object.get("agent").is_some_and(Json::is_object)) {
        object.remove("agent");
    }
    payload
}

/// What the spies told of one event, in order.
pub(crate) fn told(ran: &Ran, event: &str) -> Vec<Json> {
    let payload = |line: &str| {
        let (_, rest) = line.strip_prefix("[info] spy")?.split_once(": ")?;
        let (name, payload) = rest.split_once(' ')?;
        (name == event).then(|| apart_from_agent(serde_json::from_str(payload).unwrap()))
    };
    ran.err.lines().filter_map(payload).collect()
}

/// Which events the spies told of, in order.
pub(crate) fn order(ran: &Ran) -> Vec<String> {
    let event = |line: &str| {
        let (_, rest) = line.strip_prefix("[info] spy")?.split_once(": ")?;
        Some(rest.split(' ').next()?.to_owned())
    };
    ran.err.lines().filter_map(event).collect()
}

const READ: &str = "def run(args):\n    log.info('reading')\n    return fs.read(args['path'])\n";

/// The flow that the loop is for: a file is read, and the answer comes from it.
fn reads() -> Project {
    let replies = "- text: Let me see.\n  tool_calls: [{ name: read_file, args: { path: config.yaml } }]\n\
                   - expect: 'port: 8080'\n  text: It uses port 8080.\n";
    agent("", replies)
        .tool("read_file", "parameters:\n  path: { type: string, required: true }\n", READ)
        .file("config.yaml", "port: 8080\n")
}

#[test]
fn a_file_is_read_and_the_answer_comes_from_it() {
    let ran = reads().run(&["run", "What port does config.yaml name?"]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "It uses port 8080.\n", "[info] reading\n"));
    let json = reads().run(&["run", "--json", "What port?"]).json();
    assert_eq!(
        json,
        json!({
            "outcome": "completed",
            "answer": "It uses port 8080.",
            "rounds": 1,
            "calls": [{"name": "read_file", "args": {"path": "config.yaml"}}],
            "usage": json["usage"],
            "log": [{"source": "read_file", "level": "info", "message": "reading"}],
            "warning": null,
        })
    );
    assert!(json["usage"]["input_tokens"].as_u64().unwrap() > 0, "{json}");
    // The same from standard input, and for a pipeline.
    reads().run_with_input(&["run"], "What port?\n").says(0, "reading");
    assert_eq!(reads().run_with_input(&["deploy"], "What port?").out, "It uses port 8080.\n");
    assert_eq!(reads().run(&["deploy", "--input", "What port?"]).out, "It uses port 8080.\n");
}

const LOOP: [&str; 9] = [
    "session.start",
    "turn.start",
    "completion.pre",
    "completion.post",
    "tool.pre",
    "tool.post",
    "agent.stop",
    "turn.end",
    "session.end",
];

#[test]
fn every_event_of_a_turn_fires_at_its_place_with_its_payload() {
    let ran = spied(reads(), &LOOP).run(&["run", "What port?"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "It uses port 8080.\n"), "{ran}");
    let round = ["completion.pre", "completion.post"];
    let first = ["session.start", "turn.start"];
    let call = ["tool.pre", "tool.post"];
    let last = ["agent.stop", "turn.end", "session.end"];
    let wanted: Vec<&str> = [&first[..], &round, &call, &round, &last].concat();
    assert_eq!(order(&ran), wanted);
    assert_eq!(told(&ran, "session.start"), [Json::Null]);
    assert_eq!(told(&ran, "session.end"), [Json::Null]);
    assert_eq!(told(&ran, "turn.start"), [json!("What port?")]);
    assert_eq!(
        told(&ran, "turn.end"),
        [json!({
            "text": "It uses port 8080.",
            "tool_calls": [{"name": "read_file", "args": {"path": "config.yaml"}}],
            "usage": told(&ran, "turn.end")[0]["usage"],
            "log": told(&ran, "turn.end")[0]["log"],
        })]
    );
    let stop = json!({
        "id": "root", "parent_id": null, "finish_reason": "stop", "iteration": 1,
        "text": "It uses port 8080.", "response": "It uses port 8080.",
        "tool_calls": [{"id": "call_1", "name": "read_file", "args": {"path": "config.yaml"}}],
        "tool_results": [{"call_id": "call_1", "name": "read_file", "content": "port: 8080\n", "is_error": false}],
        "usage": told(&ran, "turn.end")[0]["usage"],
    });
    assert_eq!(told(&ran, "agent.stop"), [stop]);
    let called = json!([{"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": "{\"path\":\"config.yaml\"}"}}]);
    let asked = told(&ran, "completion.pre");
    let system = asked[0]["messages"][1].clone();
    assert_eq!(system["role"], "system");
    let messages = json!([
        {"role": "system", "content": "You help."},
        system,
        {"role": "user", "content": "What port?"},
        {"role": "assistant", "content": "Let me see.", "tool_calls": called},
        {"role": "tool", "tool_call_id": "call_1", "name": "read_file", "content": "port: 8080\n"},
    ]);
    let request = json!({"model": "script", "messages": messages, "tools": asked[0]["tools"], "max_tokens": null, "temperature": null});
    assert_eq!(asked[1], request);
    assert_eq!(asked[0]["messages"].as_array().unwrap().len(), 3);
    let answers = told(&ran, "completion.post");
    let message = json!({"role": "assistant", "content": "Let me see.", "tool_calls": called});
    assert_eq!(
        answers[0],
        json!({
            "id": "reply_1",
            "model": "script",
            "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
            "usage": answers[0]["usage"],
            "finish_reason": "tool_calls",
        })
    );
    assert!(answers[0]["usage"]["input_tokens"].is_u64() && answers[0]["usage"]["output_tokens"].is_u64());
    assert_eq!(answers[1]["finish_reason"], "stop");
}

/// What scripts say in a turn, tools and hooks, is in what `turn.end` tells.
#[test]
fn what_is_logged_in_a_turn_reaches_its_end() {
    let project = reads().with_handle("audit", "tool.pre", "", "log.warn('called ' + payload['name'])\nreturn allow()");
    let ran = spied(project, &["turn.end"]).run(&["run", "What port?"]);
    assert_eq!(
        told(&ran, "turn.end")[0]["log"],
        json!([
            {"source": "audit", "level": "warn", "message": "called read_file"},
            {"source": "read_file", "level": "info", "message": "reading"},
        ])
    );
}

/// Tools are described in every request, prose and all; hooks, by name or prose, in none.
#[test]
fn a_model_sees_tools_and_no_hook() {
    let project = spied(reads(), &["completion.pre"]).file(
        ".harness/hooks/hidden_guard.md",
        "---\nevent: tool.pre\nscript: |\n  def handle(event, payload):\n      return allow()\n---\nSecretive prose.\n",
    );
    let ran = project.run(&["run", "What port?"]);
    let asked = told(&ran, "completion.pre");
    assert_eq!(asked.len(), 2);
    for request in &asked {
        let parameters = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
        let function = json!({"name": "read_file", "description": "# read_file\n\nA tool.", "parameters": parameters});
        assert_eq!(request["tools"], json!([{"type": "function", "function": function}]));
        let text = request.to_string();
        assert!(!text.contains("hidden_guard") && !text.contains("Secretive") && !text.contains("spy0"), "{text}");
    }
}

/// Text that looks like a call is text.
#[test]
fn what_a_model_only_writes_is_not_run() {
    let replies = "- text: |\n    I will call exec.run(\"touch\", [\"made\"]):\n    ```\n    exec.run('touch', ['made'])\n    ```\n";
    let project = agent("sandbox: { exec: { allow: [touch] } }\n", replies).tool(
        "touch",
        "",
        "def run(args):\n    return exec.run('touch', ['made'])['exit_code']\n",
    );
    let ran = project.run(&["run", "Make it"]);
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.out.contains("exec.run(\"touch\"") && !project.path("made").exists(), "{ran}");
    // The tool can.
    project.write("replies.yaml", "- tool_calls: [{ name: touch }]\n- { expect: '0', text: Made. }\n");
    project.run(&["run", "Make it"]).gives("Made.");
    assert!(project.path("made").exists());
}

/// A block at each event that can stop something, and the same project without it.
#[test]
fn what_is_blocked_does_not_happen() {
    let ended = |event: &str| {
        let project = spied(reads(), &["error", "completion.pre"]);
        let ran = project.with_handle("no", event, "priority: 1\n", "return block('not today')").run(&["run", "What?"]);
        let asked = told(&ran, "completion.pre").len();
        (ran.code, ran.out.clone(), ran.err.lines().last().unwrap_or_default().to_owned(), asked)
    };
    let says = |what: &str| format!("error: {what} blocked: blocked by hook \"no\": not today");
    assert_eq!(ended("session.start"), (3, String::new(), says("session"), 0));
    assert_eq!(ended("turn.start"), (3, String::new(), says("turn"), 0));
    assert_eq!(ended("completion.pre"), (3, String::new(), says("completion"), 0));
    assert_eq!(ended("completion.post"), (3, String::new(), says("completion"), 1));
    assert_eq!(ended("turn.end"), (3, String::new(), says("turn"), 2));
    // A session ends whatever a hook says of it.
    assert_eq!(ended("session.end").0, 0);
    reads().run(&["run", "What?"]).says(0, "");
}

/// What hooks make of a payload is what happens.
#[test]
fn what_is_modified_is_what_happens() {
    let with = |event: &str, replies: &str, decision: &str| {
        let project = agent("", replies).tool("read_file", "", "def run(args):\n    return 'port: 8080'\n");
        let project = spied(project, &["completion.pre", "turn.end"]);
        project.with_handle("change", event, "priority: 1\n", &format!("return {decision}")).run(&["run", "What?"])
    };
    let fine = "- text: fine\n";
    let ran = with("turn.start", "- { expect: changed, text: fine }\n", "modify('changed')");
    assert_eq!((ran.code, ran.out.as_str()), (0, "fine\n"), "{ran}");
    let decision = "modify({'messages': payload['messages'] + [{'role': 'user', 'content': 'added'}], 'max_tokens': 7, 'temperature': 0.5, 'tools': []})";
    let ran = with("completion.pre", "- { expect: added, text: fine }\n", decision);
    assert_eq!((ran.code, ran.out.as_str()), (0, "fine\n"), "{ran}");
    let request = &told(&ran, "completion.pre")[0];
    assert_eq!(
        (&request["max_tokens"], &request["temperature"], &request["tools"]),
        (&json!(7), &json!(0.5), &json!([]))
    );
    let decision =
        "modify({'choices': [{'message': {'role': 'assistant', 'content': 'other'}, 'finish_reason': 'stop'}]})";
    assert_eq!(with("completion.post", fine, decision).out, "other\n");
    // A choice that leaves out why it ended has ended for the same reason.
    let decision = "modify({'choices': [{'message': {'role': 'assistant', 'content': 'shorter'}}]})";
    assert_eq!(with("completion.post", fine, decision).out, "shorter\n");
    assert_eq!(with("turn.end", fine, "modify({'text': 'ended'})").out, "ended\n");
    for key in ["text", "response"] {
        assert_eq!(with("agent.stop", fine, &format!("modify({{'{key}': 'stopped'}})")).out, "stopped\n");
    }
    // What nothing takes back is told, and is as it was.
    for (event, key) in [("turn.end", "usage"), ("completion.post", "model"), ("agent.stop", "tool_calls")] {
        let ran = with(event, fine, &format!("modify({{'{key}': 'other'}})"));
        let warning = format!("warning: hook `change`: {}", not_taken(event, key));
        assert_eq!(
            (ran.code, ran.out.as_str(), ran.err.lines().filter(|line| *line == warning).count()),
            (0, "fine\n", 1)
        );
    }
    // What cannot be used says so.
    let wrong = |event: &str, decision: &str| with(event, fine, decision).err.lines().last().unwrap().to_owned();
    assert_eq!(
        wrong("completion.pre", "modify({'messages': 'x'})"),
        "error: completion.pre modify payload: `messages` must be a list"
    );
    assert_eq!(
        wrong("completion.pre", "modify({'messages': [{'role': 'bot'}]})"),
        "error: completion.pre modify payload: `role` of a message is `bot`: it is system, user, assistant or tool"
    );
    assert_eq!(
        wrong("completion.post", "modify({'choices': []})"),
        "error: completion.post modify payload: there is no choice left"
    );
    assert_eq!(wrong("turn.end", "modify({'text': 7})"), "error: turn.end modify payload: `text` must be a string");
}

/// What ends the loop without an answer is told to hooks on `error`, once.
#[test]
fn what_cannot_be_recovered_from_is_told() {
    let ended = |policy: &str, replies: &str| {
        let project = spied(agent(policy, replies), &["error"]).tool("read_file", "", "def run(args):\n    return 1\n");
        let ran = project.run(&["run", "What?"]);
        let last = ran.err.lines().last().unwrap().to_owned();
        (ran.code, last, told(&ran, "error"))
    };
    let envelope = |kind: &str, message: &str| json!({"kind": kind, "message": message, "source": "agent"});
    let check = |policy: &str, replies: &str, code: i32, kind: &str, message: &str| {
        assert_eq!(ended(policy, replies), (code, format!("error: {message}"), vec![envelope(kind, message)]));
    };
    check("", "- error: it is down\n", 5, "completion", "replies.yaml answers 500: it is down");
    check("", "[]\n", 5, "completion", "`replies.yaml` has no more replies for the root: all 0 were given");
    let expected = "replies.yaml:1:3: the reply expects \"gold\" in the last message, which is \"What?\"";
    check("", "- { expect: gold, text: x }\n", 5, "completion", expected);
    check(
        "",
        "- { text: x, finish_reason: content_filter }\n",
        5,
        "completion",
        "the reply was stopped by the service's content filter",
    );
    check(
        "",
        "- { text: x, finish_reason: odd }\n",
        5,
        "completion",
        "the reply ended with the reason \"odd\" and no calls",
    );
    let rounds = "- tool_calls: [{ name: read_file }]\n".repeat(3);
    check(
        "exit_policy: { max_iterations: 2 }\n",
        &rounds,
        4,
        "limit",
        "max tool rounds reached (2); `exit_policy.max_iterations` in `harness.md` raises it",
    );
    let rounds = "- tool_calls: [{ name: read_file }]\n".repeat(11);
    check(
        "",
        &rounds,
        4,
        "limit",
        "max tool rounds reached (10); `exit_policy.max_iterations` in `harness.md` raises it",
    );
    let cut = "- { text: more, finish_reason: length }\n".repeat(3);
    check("", &cut, 4, "completion", "the reply was cut at its length 3 times in a row; raise `model.max_tokens`");
}

/// Of an error nothing is left to be stopped: it ends the turn with its own words, whatever hooks on `error` say. What one
/// of them makes of it is what the next ones see.
#[test]
fn hooks_do_not_undo_an_error() {
    let down = |decision: &str| {
        let project = spied(agent("", "- error: it is down\n"), &["error"]);
        let ran =
            project.with_handle("change", "error", "priority: 1\n", &format!("return {decision}")).run(&["run", "?"]);
        (ran.code, ran.out, ran.err)
    };
    let not_taken = |key: &str| format!("warning: hook `change`: {}\n", not_taken("error", key));
    let ended = |before: &str| (5, String::new(), format!("{before}error: replies.yaml answers 500: it is down\n"));
    assert_eq!(down("block('not today')"), ended(""));
    let all = "modify({'kind': 'odd', 'message': 'it is fine', 'source': 'me', 'more': 1})";
    let root = "\"agent\":{\"name\":\"\",\"depth\":0,\"path\":[]}";
    let seen = format!(
        "[info] spy0: error {{\"kind\":\"odd\",\"message\":\"it is fine\",\"source\":\"me\",{root},\"more\":1}}\n"
    );
    let warned: String = ["kind", "message", "source", "more"].map(not_taken).concat();
    assert_eq!(down(all), ended(&format!("{warned}{seen}")));
    let failed = format!(
        "warning: hook `change`: the hook failed: `modify` of `error` takes a dict, not a string\n\
         [info] spy0: error {{\"kind\":\"completion\",\"message\":\"replies.yaml answers 500: it is down\",\"source\":\"agent\",{root}}}\n"
    );
    assert_eq!(down("modify('it is fine')"), ended(&failed));
}

/// An agent at work for longer than a call has still has its tools and hooks loaded: each call has its own time for that.
#[test]
fn what_is_called_late_is_loaded_all_the_same() {
    let replies = "- tool_calls: [{ name: delegate, args: { agent: worker, task: Go. } }]\n\
                   - { agent: worker, tool_calls: [{ name: sleeps }] }\n- { agent: worker, tool_calls: [{ name: own }] }\n\
                   - { agent: worker, text: Done. }\n- text: Thanks.\n";
    let project = agent("sandbox: { limits: { timeout_ms: 3000 } }\n", replies)
        .file(".harness/agents/worker.md", "---\n---\nYou work.")
        .tool("sleeps", "", "def run(args):\n    sleep(60000)\n")
        .tool("own", "", "def run(args):\n    return 'its own'\n");
    let project = spied(project, &["tool.post"]);
    let ran = project.run(&["run", "Go."]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "Thanks.\n"), "{ran}");
    let told: Vec<Json> = told(&ran, "tool.post").iter().map(|post| json!([post["name"], post["is_error"]])).collect();
    assert_eq!(told, [json!(["sleeps", true]), json!(["own", false]), json!(["delegate", false])], "{ran}");
}

/// A session's beginning and end have no payload that could be another one, and its end is no question.
#[test]
fn there_is_nothing_to_modify_of_a_session() {
    let project = spied(agent("", "- text: fine\n"), &["session.end"]);
    let ran = project.with_handle("no", "session.end", "priority: 1\n", "return block('not today')").run(&["run", "?"]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "fine\n", ""));
    for event in ["session.start", "session.end"] {
        for decision in ["modify({'text': 'other'})", "modify('other')"] {
            let project = spied(agent("", "- { expect: Hello, text: fine }\n"), &[event]);
            let project = project.with_handle("change", event, "priority: 1\n", &format!("return {decision}"));
            let ran = project.run(&["run", "Hello"]);
            let said = format!(
                "warning: hook `change`: `{event}` has no payload: `modify` is ignored\n[info] spy0: {event} null\n"
            );
            assert_eq!((ran.code, ran.out.as_str(), ran.err), (0, "fine\n", said), "{decision}");
        }
    }
}

#[test]
fn a_reply_that_is_cut_is_continued_twice() {
    let replies =
        "- { text: 'one ', finish_reason: length }\n- { text: 'two ', finish_reason: length }\n- text: three\n";
    agent("", replies).run(&["run", "Count"]).gives("one two three");
}

#[test]
fn rounds_may_end_with_a_warning() {
    let rounds = "- tool_calls: [{ name: none_such }]\n".repeat(2);
    let project = agent("exit_policy: { max_iterations: 1, on_max_iterations: warn_and_exit }\n", &rounds);
    let ran = project.run(&["run", "What?"]);
    let limit = "max tool rounds reached (1); `exit_policy.max_iterations` in `harness.md` raises it";
    assert_eq!((ran.code, ran.out), (0, format!("warning: {limit}\n")));
    assert_eq!(ran.err, format!("warning: {limit}\n"));
}

/// What is wrong with a call is the model's to read, and the turn continues.
#[test]
fn a_call_that_cannot_be_made_is_an_error_result() {
    let replies = "- tool_calls: [{ name: read_fil }, { name: read_file }, { name: fails }, { name: read_file, args: { path: x } }]\n- text: fine\n";
    let project = agent("", replies)
        .tool(
            "read_file",
            "parameters:\n  path: { type: string, required: true }\n",
            "def run(args):\n    return args\n",
        )
        .tool("fails", "", "def run(args):\n    fail('no')\n")
        .with_handle("guard", "tool.pre", "when: payload['args'].get('path') == 'x'\n", "return block('not x')");
    let ran = spied(project, &["completion.pre"]).run(&["run", "What?"]);
    let messages = told(&ran, "completion.pre")[1]["messages"].clone();
    let results: Vec<&str> = messages
        .as_array()
        .unwrap()
        .iter()
        .filter(|m| m["role"] == "tool")
        .map(|m| m["content"].as_str().unwrap())
        .collect();
    insta::assert_snapshot!(results.join("\n"), @r#"
    error: there is no tool `read_fil`; did you mean `read_file`?
    error: the arguments of `read_file` do not fit its parameters: the argument `path` (string) is missing
    tool error: no (.harness/tools/fails.md:4:7)
    tool blocked: blocked by hook "guard": not x
    "#);
    assert_eq!(ran.out, "fine\n");
}

/// Hooks may keep an agent from stopping, at most 8 times in a row.
#[test]
fn an_agent_that_stops_too_early_goes_on() {
    let replies = "- text: early\n- { expect: 'check it', text: checked }\n";
    let body = "if payload['text'] == 'early':\n    return block('check it')\nreturn allow()";
    agent("", replies).with_handle("stop", "agent.stop", "", body).run(&["run", "Do"]).gives("checked");
    let project = agent("", &"- text: early\n".repeat(9)).with_handle("stop", "agent.stop", "", body);
    project.run(&["run", "Do"]).says(4, "hooks on agent.stop blocked 8 times in a row");
}

/// Where the policy asks for `done`, a reply without calls is not enough.
#[test]
fn a_task_is_done_when_the_model_says_so() {
    let policy = "exit_policy: { mode: done_tool }\n";
    let replies =
        "- text: I think so.\n- { expect: Call the `done` tool, tool_calls: [{ name: done }] }\n- text: Done.\n";
    let project = spied(agent(policy, replies), &["completion.pre"]);
    let ran = project.run(&["run", "Do"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "Done.\n"), "{ran}");
    assert_eq!(told(&ran, "completion.pre")[0]["tools"][0]["function"]["name"], "done");
    // Else there is no such tool.
    let ran = spied(agent("", "- text: Done.\n"), &["completion.pre"]).run(&["run", "Do"]);
    assert_eq!(told(&ran, "completion.pre")[0]["tools"], json!([]));
}

/// A guard over the whole window: it caps what a turn sends, and by `agent.stop` what it answers.
#[test]
fn a_window_guard_caps_what_is_sent() {
    let long = "x".repeat(5000);
    let project = agent("", "- { expect: cut, text: fine }\n").with_handle(
        "window",
        "completion.pre",
        "when: len(str(payload['messages'])) > 4000\npriority: 40\n",
        "last = payload['messages'][-1]\nreturn modify({'messages': payload['messages'][:-1] + [{'role': last['role'], 'content': last['content'][:100] + ' cut'}]})",
    );
    project.run(&["run", &long]).gives("fine");
}

#[test]
fn without_a_model_nothing_is_said() {
    let ran = Project::new().run(&["run", "Hello"]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    insta::assert_snapshot!(ran.err, @"error: `.harness/harness.md` names no model: write `model: { name: ..., provider: ... }` in its front matter");
    let ran = agent("", "- txt: x\n").run(&["run", "Hello"]);
    assert_eq!(ran.code, 2);
    insta::assert_snapshot!(ran.err, @"error: replies.yaml:1:3: unknown key `replies[0].txt`");
    agent("", "[]\n").run(&["run", " "]).says(2, "the prompt is empty");
}
