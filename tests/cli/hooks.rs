//! Hooks: which of them an event is for, in what order they are called, and what their decisions come to.

use serde_json::{Value as Json, json};

use crate::project::{FINE, Project, Ran};

impl Project {
    /// A hook: its event, then lines of front matter, then the script, which begins at line 4 where there are none.
    pub(crate) fn with_hook(self, name: &str, event: &str, front: &str, script: &str) -> Self {
        let script: String = script.lines().map(|line| format!("  {line}\n")).collect();
        let text = format!("---\nevent: {event}\n{front}script: |\n{script}---\n# {name}\n");
        self.file(&format!(".harness/hooks/{name}.md"), &text)
    }

    /// A hook by the body of its `handle`.
    pub(crate) fn with_handle(self, name: &str, event: &str, front: &str, body: &str) -> Self {
        let body: String = body.lines().map(|line| format!("    {line}\n")).collect();
        self.with_hook(name, event, front, &format!("def handle(event, payload):\n{body}"))
    }

    /// `fire` with a payload.
    pub(crate) fn fire(&self, event: &str, payload: &Json) -> Ran {
        self.run(&["fire", event, "--payload", &payload.to_string()])
    }

    /// `call --json` with arguments.
    pub(crate) fn call_with(&self, tool: &str, arguments: &Json) -> Ran {
        self.run(&["call", tool, "--json", "--args", &arguments.to_string()])
    }
}

/// What `fire` printed, or `call --json`, without what differs from run to run, which is checked here.
#[track_caller]
pub(crate) fn steady(ran: &Ran) -> Json {
    let mut told = ran.json();
    for hook in told["hooks"].as_array_mut().unwrap_or_else(|| panic!("no hooks: {ran}")) {
        let hook = hook.as_object_mut().unwrap();
        let fuel = hook.remove("fuel").unwrap().as_u64().unwrap();
        assert!(["wall_us", "loading_us"].iter().all(|key| hook.remove(*key).unwrap().is_u64()));
        let reached = hook["decision"] != "not reached";
        assert!(reached || fuel == 0, "{ran}");
    }
    told
}

/// The hooks of a run by name, each with what it decided.
#[track_caller]
pub(crate) fn decisions(ran: &Ran) -> Vec<String> {
    let hooks = ran.json()["hooks"].as_array().unwrap_or_else(|| panic!("no hooks: {ran}")).clone();
    hooks
        .iter()
        .map(|hook| format!("{} {}", hook["name"].as_str().unwrap(), hook["decision"].as_str().unwrap()))
        .collect()
}

/// Why an event was blocked.
#[track_caller]
pub(crate) fn reason(ran: &Ran) -> String {
    let reason = ran.json()["reason"].as_str().unwrap_or_else(|| panic!("not blocked: {ran}")).to_owned();
    assert_eq!(ran.code, 3, "{ran}");
    reason
}

const SEES: &str = "cache.set('seen', cache.get('seen', []) + [payload['me']])\nreturn allow()";

#[test]
fn hooks_are_called_from_the_lowest_priority_to_the_highest() {
    let mut project = Project::new();
    for (name, front) in
        [("a", "priority: 30\n"), ("b", ""), ("c", "priority: -1\n"), ("d", "priority: 10\n"), ("e", "priority: 1\n")]
    {
        project = project.with_handle(name, "custom.x", front, &SEES.replace("payload['me']", &format!("'{name}'")));
    }
    let project =
        project.with_handle("last", "custom.x", "priority: 1000000\n", "return block(json.encode(cache.get('seen')))");
    let ran = project.fire("custom.x", &json!({}));
    // The one without a priority has 0.
    assert_eq!(reason(&ran), r#"["c","b","e","d","a"]"#);
    let told = ran.json();
    let priorities: Vec<i64> =
        told["hooks"].as_array().unwrap().iter().map(|h| h["priority"].as_i64().unwrap()).collect();
    assert_eq!(priorities, [-1, 0, 1, 10, 30, 1_000_000]);
}

#[test]
fn equal_priorities_are_called_in_the_order_of_their_files() {
    let entry = |name: &str| format!("hooks:\n  - handler: {name}\n    event: custom.x\n    priority: 5\n");
    let project = Project::new()
        .with_handle("b", "custom.x", "priority: 5\n", "return allow()")
        .with_handle("a", "custom.x", "priority: 5\n", "return allow()")
        .file(".harness/plugins/p.md", &format!("---\n{}---\n", entry("in_a_plugin")))
        .file(".harness/builtins/z.md", &format!("---\n{}---\n", entry("in_a_builtin")))
        .file(".harness/overrides/o.md", &format!("---\n{}---\n", entry("in_an_override")))
        .policy(&format!("{}sandbox: {{ sources: {{ plugins/p: {{ events: [custom.x] }} }} }}\n", entry("inline")));
    let files = |ran: &Ran| {
        let told = ran.json();
        let files: Vec<String> =
            told["hooks"].as_array().unwrap().iter().map(|h| h["file"].as_str().unwrap().to_owned()).collect();
        files
    };
    let wanted = [
        ".harness/builtins/z.md",
        ".harness/harness.md",
        ".harness/hooks/a.md",
        ".harness/hooks/b.md",
        ".harness/overrides/o.md",
        ".harness/plugins/p.md",
    ];
    for _ in 0..2 {
        let ran = project.run(&["fire", "custom.x"]);
        assert_eq!((ran.code, files(&ran).as_slice()), (0, wanted.map(str::to_owned).as_slice()), "{ran}");
    }
}

#[test]
fn the_first_block_wins() {
    let project = Project::new()
        .with_handle("first", "custom.x", "priority: 1\n", "log('first')\nreturn allow()")
        .with_handle("second", "custom.x", "priority: 2\n", "return block('not today')")
        .with_handle("third", "custom.x", "priority: 3\n", "log('third')\nreturn allow()")
        .with_handle("fourth", "custom.x", "priority: 4\n", "return modify({'undone': True})");
    let ran = project.fire("custom.x", &json!({"n": 1}));
    assert_eq!((ran.code, ran.err.as_str()), (3, "[info] first: first\n"));
    let hook = |name: &str, priority: i64, decision: &str, reason: Json, log: Json| {
        json!({
            "name": name,
            "file": format!(".harness/hooks/{name}.md"),
            "priority": priority,
            "matched": decision != "not reached",
            "decision": decision,
            "reason": reason,
            "warnings": [],
            "log": log,
        })
    };
    let wanted = json!({
        "event": "custom.x",
        "decision": "block",
        "hook": "second",
        "reason": "not today",
        "payload": {"n": 1},
        "hooks": [
            hook("first", 1, "allow", Json::Null, json!([{"level": "info", "message": "first"}])),
            hook("second", 2, "block", json!("not today"), json!([])),
            hook("third", 3, "not reached", Json::Null, json!([])),
            hook("fourth", 4, "not reached", Json::Null, json!([])),
        ],
    });
    assert_eq!(steady(&ran), wanted);
    // Without it the others are reached.
    std::fs::remove_file(project.path(".harness/hooks/second.md")).unwrap();
    let ran = project.fire("custom.x", &json!({"n": 1}));
    assert_eq!((ran.code, ran.err.as_str()), (0, "[info] first: first\n[info] third: third\n"));
    assert_eq!(decisions(&ran), ["first allow", "third allow", "fourth modify"]);
    assert_eq!(ran.json()["payload"], json!({"n": 1, "undone": true}));
}

/// By later hooks, in `handle` and in `when`, whether that is decided with an instance or without.
#[test]
fn a_modify_is_seen_by_what_comes_after() {
    let project = Project::new()
        .with_handle("changes", "custom.x", "priority: 1\n", "return modify({'name': 'new', 'in': {'n': 2}})")
        .with_handle("old", "custom.x", "priority: 2\nwhen: payload[\"name\"] == \"old\"\n", "return allow()")
        .with_handle("new", "custom.x", "priority: 3\nwhen: payload[\"name\"] == \"new\"\n", "return allow()")
        .with_handle(
            "inner",
            "custom.x",
            "priority: 4\nwhen: payload[\"in\"][\"n\"] == 2\n",
            "return modify({'in': 3})",
        )
        .with_handle("inner_old", "custom.x", "priority: 5\nwhen: payload[\"in\"] == 2\n", "return block('old')")
        .with_handle("tells", "custom.x", "priority: 6\n", "return block(json.encode(payload))");
    let ran = project.fire("custom.x", &json!({"name": "old", "in": {"n": 1}, "kept": [None::<u8>, Some(1)]}));
    let wanted = json!({"name": "new", "in": 3, "kept": [null, 1]});
    assert_eq!(serde_json::from_str::<Json>(&reason(&ran)).unwrap(), wanted);
    assert_eq!(ran.json()["payload"], wanted);
    assert_eq!(
        decisions(&ran),
        ["changes modify", "old allow", "new allow", "inner modify", "inner_old skip", "tells block"]
    );
}

/// Which guards look at a payload: those whose `when` held before it was changed, so that no change keeps it from one; and
/// those whose `when` holds since. Both by expressions that only the interpreter can tell, and what fails for one of the two
/// payloads may hold for the other.
#[test]
fn a_change_neither_dodges_a_guard_nor_escapes_one() {
    let guards = [
        ("text_before", "payload[\"to\"] == \"/etc/passwd\"", true),
        ("text_after", "payload[\"to\"] == \"/tmp/x\"", true),
        ("text_never", "payload[\"to\"] == \"/home\"", false),
        ("code_before", "payload[\"to\"].startswith(\"/etc\")", true),
        ("code_after", "payload[\"to\"].startswith(\"/tmp\")", true),
        ("code_never", "payload[\"to\"].startswith(\"/home\")", false),
        ("gone", "payload[\"secret\"][0] == 1", true),
        ("new", "payload[\"extra\"][0] == 1", true),
        ("nowhere", "payload[\"nothing\"][0] == 1", false),
    ];
    let hides = "return modify({'to': '/tmp/x', 'secret': None, 'extra': [1]})";
    for (name, when, looks) in guards {
        let front = format!("priority: 2\nwhen: {when}\n");
        let project = Project::new().with_handle("hides", "custom.x", "priority: 1\n", hides);
        let payload = json!({"to": "/etc/passwd", "secret": [1]});
        for (body, word) in [("return block('no')", "block"), ("return allow()", "allow")] {
            let project = Project::new()
                .with_handle("hides", "custom.x", "priority: 1\n", hides)
                .with_handle(name, "custom.x", &front, body);
            let ran = project.fire("custom.x", &payload);
            let decided = if looks { word } else { "skip" };
            assert_eq!(decisions(&ran), ["hides modify".to_owned(), format!("{name} {decided}")], "{when}: {ran}");
        }
        // Without anything to call it only matches, or does not.
        let hook = format!("---\nevent: custom.x\n{front}---\n");
        let ran = project.file(&format!(".harness/hooks/{name}.md"), &hook).fire("custom.x", &payload);
        let decided = if looks { "allow" } else { "skip" };
        assert_eq!(decisions(&ran), ["hides modify".to_owned(), format!("{name} {decided}")], "{when}: {ran}");
    }
}

#[test]
fn a_decision_is_made_by_a_constructor_or_by_hand() {
    let cases = [
        ("allow()", json!(["allow", null, {"n": 1}])),
        ("{'action': 'allow'}", json!(["allow", null, {"n": 1}])),
        ("block('no: ' + event)", json!(["block", "no: custom.x", {"n": 1}])),
        ("{'action': 'block', 'reason': 'no'}", json!(["block", "no", {"n": 1}])),
        ("block('')", json!(["block", "no reason was given", {"n": 1}])),
        ("{'action': 'block'}", json!(["block", "no reason was given", {"n": 1}])),
        ("block(5)", json!(["block", "5", {"n": 1}])),
        ("{'action': 'block', 'reason': [5]}", json!(["block", "[5]", {"n": 1}])),
        ("modify({'m': 2})", json!(["allow", null, {"n": 1, "m": 2}])),
        ("{'action': 'modify', 'payload': {'n': 2}}", json!(["allow", null, {"n": 2}])),
    ];
    for (returned, wanted) in cases {
        let project = Project::new().with_handle("it", "custom.x", "", &format!("return {returned}"));
        let ran = project.fire("custom.x", &json!({"n": 1}));
        let told = ran.json();
        assert_eq!(json!([told["decision"], told["reason"], told["payload"]]), wanted, "{returned}: {ran}");
        assert_eq!((ran.code == 3, ran.err.as_str()), (wanted[0] == "block", ""), "{returned}");
    }
}

#[test]
fn what_is_no_decision_passes_with_a_warning() {
    let not =
        |found: &str| format!("`handle` returned a value of type `{found}` that is not a decision: taken as allow");
    let cases = [
        ("pass", not("NoneType")),
        ("return 42", not("int")),
        ("return True", not("bool")),
        ("return 'block'", not("string")),
        ("return {'action': 'deny'}", not("dict")),
        ("return {'action': 'modify'}", "`handle` returned a `modify` without a `payload`".to_owned()),
    ];
    let mut project = Project::new();
    for (n, (body, _)) in cases.iter().enumerate() {
        let (name, when) = (format!("h{n}"), format!("when: payload[\"name\"] == \"h{n}\"\n"));
        project = project.tool(&name, "", FINE).with_handle(&name, "tool.pre", &when, body);
    }
    // Nothing of it is found out before.
    let ran = project.run(&["validate"]);
    assert_eq!(ran.code, 0, "{ran}");
    for (n, (body, warning)) in cases.iter().enumerate() {
        let name = format!("h{n}");
        let ran = project.run(&["call", &name]);
        let wanted = format!("warning: hook `{name}`: {warning}\n");
        assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "fine\n", wanted.as_str()), "{body}");
        let told = project.call_with(&name, &json!({})).json();
        let hook = told["hooks"].as_array().unwrap().iter().find(|hook| hook["name"] == name.as_str()).unwrap();
        assert_eq!((&hook["decision"], &hook["warnings"]), (&json!("allow"), &json!([warning])));
    }
}

/// Each `when` on one payload, with whether it matches.
const WHENS: [(&str, bool); 22] = [
    ("", true),
    ("payload[\"name\"] == \"run_command\"", true),
    ("payload[\"name\"] == \"run\"", false),
    ("payload[\"name\"] in [\"read_file\", \"run_command\"]", true),
    ("payload[\"name\"] in [\"read_file\", \"write_file\"]", false),
    ("payload[\"is_error\"] == True", true),
    ("payload[\"is_error\"] == False", false),
    ("len(payload.get(\"content\", \"\")) > 10", true),
    ("len(payload.get(\"content\", \"\")) > 11", false),
    ("event == \"custom.x\"", true),
    ("event == \"custom.y\"", false),
    ("True", true),
    ("False", false),
    ("type(payload) == \"dict\"", true),
    ("any([v == \"run_command\" for v in payload.values()])", true),
    ("payload.get(\"nothing\")", false),
    ("payload[\"name\"].startswith(\"run_\") and not payload[\"list\"]", true),
    ("payload[\"list\"] or payload.get(\"none\") != None", false),
    ("sorted(payload.keys())[0] == \"content\"", true),
    ("max([1, 2]) == 2 and str(5) == \"5\"", true),
    ("\"error\" in payload[\"result\"]", true),
    ("payload[\"result\"][\"error\"] == \"else\"", false),
];

#[test]
fn a_when_decides_whether_a_hook_is_called() {
    let mut project = Project::new();
    for (n, (when, matches)) in WHENS.iter().enumerate() {
        // What is not to be called would say so.
        let body = if *matches { "log('called')\nreturn allow()" } else { "fail('called')" };
        let when = if when.is_empty() { String::new() } else { format!("when: {}\n", json!(when)) };
        project = project.with_handle(&format!("h{n:02}"), "custom.x", &when, body);
    }
    let payload = json!({"name": "run_command", "is_error": true, "content": "eleven text", "list": [], "result": {"error": "e"}});
    let ran = project.fire("custom.x", &payload);
    for ((when, matches), hook) in WHENS.iter().zip(steady(&ran)["hooks"].as_array().unwrap()) {
        let (decision, lines) = if *matches { ("allow", 1) } else { ("skip", 0) };
        assert_eq!(
            (hook["matched"].as_bool(), hook["decision"].as_str(), hook["log"].as_array().map(Vec::len)),
            (Some(*matches), Some(decision), Some(lines)),
            "{when}: {ran}"
        );
        assert_eq!(hook["warnings"], json!([]), "{when}");
    }
    assert_eq!(ran.code, 0);
}

#[test]
fn a_when_that_fails_is_no_match_and_is_told() {
    let project = Project::new()
        .tool("it", "", FINE)
        .with_handle("key", "tool.pre", "when: payload[\"nothing\"] == 1\n", "return block('called')")
        .with_handle("key_of_text", "tool.pre", "when: payload[\"nothing\"] == \"x\"\n", "return block('called')")
        .with_handle("name", "tool.pre", "when: payload.name == \"it\"\n", "return block('called')");
    let ran = project.run(&["call", "it"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "fine\n"), "{ran}");
    let warnings = [
        "warning: hook `key`: its `when` failed: Key `\"nothing\"` was not found (.harness/hooks/key.md:3:7)",
        "warning: hook `key_of_text`: its `when` failed: Key `\"nothing\"` was not found (.harness/hooks/key_of_text.md:3:7)",
        "warning: hook `name`: its `when` failed: Object of type `dict` has no attribute `name` (.harness/hooks/name.md:3:7)",
    ];
    assert_eq!(ran.err.lines().collect::<Vec<_>>(), warnings);
    let told = steady(&project.call_with("it", &json!({})));
    for hook in told["hooks"].as_array().unwrap() {
        assert_eq!((&hook["matched"], &hook["decision"]), (&json!(false), &json!("skip")));
    }
    // The right way to write the third.
    let project =
        project.with_handle("name", "tool.pre", "when: payload[\"name\"] == \"it\"\n", "return block('called')");
    project.run(&["call", "it"]).says(3, "blocked by hook \"name\": called");
}

#[test]
fn a_when_has_no_capability() {
    let expressions = [
        ("cache", "cache.get(\"k\")"),
        ("exec", "exec.run(\"true\")"),
        ("fs", "fs.read(\"a\")"),
        ("http", "http.get(\"http://127.0.0.1\")"),
        ("metrics", "metrics.get(\"n\")"),
    ];
    let mut project = Project::new();
    for (name, when) in expressions {
        let front = format!("when: {}\n", json!(format!("payload[\"name\"] == \"{name}\" and {when}")));
        project = project.tool(name, "", FINE).with_handle(&format!("on_{name}"), "tool.pre", &front, "return allow()");
    }
    let ran = project.tool("it", "", FINE).run(&["validate"]);
    assert_eq!(ran.code, 2, "{ran}");
    for (name, _) in expressions {
        assert!(ran.err.contains(&format!("--> .harness/hooks/on_{name}.md:3:")), "{ran}");
        assert!(ran.err.contains(&format!("`{name}`")), "{ran}");
    }
}

/// Without a script there is nothing to call, whatever the prose holds.
#[test]
fn a_hook_without_a_script_does_nothing() {
    let prose = "# it\n\n```python\ndef handle(event, payload):\n    return block('from the prose')\n```\n";
    let project = Project::new()
        .tool("it", "", FINE)
        .file(".harness/hooks/bare.md", &format!("---\nevent: tool.pre\n---\n{prose}"))
        .file(
            ".harness/hooks/with_when.md",
            &format!("---\nevent: tool.pre\nwhen: len(payload[\"name\"]) == 2\n---\n{prose}"),
        );
    project.run(&["call", "it"]).gives("fine");
    assert_eq!(decisions(&project.call_with("it", &json!({}))), ["bare allow", "with_when allow"]);
    let listed = project.run(&["hooks"]);
    assert_eq!(
        listed.out,
        "tool.pre\n     0  bare  .harness/hooks/bare.md  (no script: does nothing)\n     0  with_when  .harness/hooks/with_when.md  when len(payload[\"name\"]) == 2  (no script: does nothing)\n"
    );
    // The same prose does not count beside a script either.
    let project = project.file(
        ".harness/hooks/bare.md",
        &format!("---\nevent: tool.pre\nscript: |\n  def handle(event, payload):\n      return allow()\n---\n{prose}"),
    );
    project.run(&["call", "it"]).gives("fine");
}

#[test]
fn a_hook_is_called_for_its_event_only() {
    let events = [
        "session.start",
        "turn.start",
        "tool.pre",
        "tool.post",
        "completion.pre",
        "agent.stop",
        "error",
        "custom.x",
        "meta.call_tool",
    ];
    let mut project = Project::new().tool("it", "", FINE);
    for event in events {
        let name = event.replace('.', "_");
        project = project.with_handle(&name, event, "", "log(event)\nreturn allow()");
    }
    let ran = project.run(&["call", "it"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, "[info] tool_pre: tool.pre\n[info] tool_post: tool.post\n"), "{ran}");
    let ran = project.run(&["fire", "error"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, "[info] error: error\n"), "{ran}");
}

#[test]
fn a_payload_is_a_dict() {
    let body = "return block(json.encode([event, type(payload), payload['name'], payload.get('none', 5), list(payload.values()), 'n' in payload]))";
    let project = Project::new().with_handle("it", "custom.x", "", body);
    let ran = project.fire("custom.x", &json!({"name": "x", "n": 12_345_678_901_234_567_890_u64}));
    assert_eq!(reason(&ran), r#"["custom.x","dict","x",5,["x",12345678901234567890],true]"#);
}

/// The top level is made once and frozen: nothing is carried from one call to the next.
#[test]
fn a_hook_keeps_nothing_between_its_calls() {
    let script = "SEEN = []\n\ndef handle(event, payload):\n    seen = list(SEEN) + [payload['n']]\n    log(json.encode(seen))\n    SEEN.append(payload['n'])\n    return allow()\n";
    let project = Project::with_script(
        "def run(args):\n    for n in [1, 2]:\n        emit('custom.x', {'n': n})\n    return 'done'\n",
    )
    .policy("sandbox: { hooks: { on_error: allow } }\n")
    .with_hook("keeps", "custom.x", "", script);
    let ran = project.run(&["call", "it"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "done\n"), "{ran}");
    let warning = "warning: hook `keeps`: the hook failed: this value is fixed: what the top level of a script makes is not changed by its functions; change a copy, such as `list(x)` or `dict(x)` (.harness/hooks/keeps.md:9:7)";
    let lines: Vec<&str> = ran.err.lines().collect();
    assert_eq!(lines, ["[info] keeps: [1]", warning, "[info] keeps: [2]", warning]);
}

#[test]
fn cache_and_metrics_are_shared_by_the_hooks_and_tools_of_a_run() {
    let project = Project::with_script(
        "def run(args):\n    cache.set('from_tool', 'b')\n    metrics.incr('calls')\n    return [cache.get('from_hook'), metrics.snapshot()]\n",
    )
    .with_handle("before", "tool.pre", "", "cache.set('from_hook', 'a')\nmetrics.incr('calls')\nmetrics.incr('calls')\nmetrics.set('gauge', 2.5)\nreturn allow()")
    .with_handle("after", "tool.post", "", "return modify({'result': payload['result'] + [cache.get('from_tool'), metrics.snapshot()]})");
    let snapshot = json!({"calls": 3, "gauge": 2.5});
    let ran = project.run(&["call", "it"]);
    assert_eq!((ran.code, ran.json()), (0, json!(["a", snapshot, "b", snapshot])), "{ran}");
    // Another run begins again.
    assert_eq!(project.run(&["call", "it"]).json(), json!(["a", snapshot, "b", snapshot]));
}
