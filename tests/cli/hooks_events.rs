//! Events: every one of the catalogue through its hooks, what scripts emit, what `fire` prints, what a run adds to
//! itself.

use serde_json::{Value as Json, json};

use crate::hooks::{decisions, reason, steady};
use crate::project::{FINE, Project};

/// Every event with a payload of its shape.
fn catalogue() -> Vec<(&'static str, Json)> {
    let delegated =
        json!({"id": "d1", "parent_id": null, "agent": "a", "result": {"text": "r"}, "depth": 1, "path": ["a"]});
    let mut verified = delegated.clone();
    verified["attempt"] = json!(1);
    vec![
        ("session.start", Json::Null),
        ("session.end", Json::Null),
        ("turn.start", json!("what the user said")),
        ("mcp.list", json!({"server": "s", "transport": "stdio", "tools": []})),
        (
            "turn.end",
            json!({"text": "t", "tool_calls": [{"name": "x", "args": {}}], "usage": {"input_tokens": 1234, "output_tokens": 567}, "log": []}),
        ),
        ("tool.pre", json!({"id": "call_abc123", "name": "x", "arguments": "{\"a\":1}", "args": {"a": 1}})),
        (
            "tool.post",
            json!({"call_id": "call_abc123", "name": "x", "content": "{\"out\":1}", "blocks": null, "is_error": false, "result": {"out": 1}}),
        ),
        ("completion.pre", json!({"model": "m", "messages": [], "tools": [], "max_tokens": null, "temperature": 0.5})),
        (
            "completion.post",
            json!({"id": "c", "model": "m", "choices": [], "usage": {"input_tokens": 1, "output_tokens": 2}, "finish_reason": "stop"}),
        ),
        (
            "delegation.pre",
            json!({"id": "d1", "parent_id": null, "agent": "a", "prompt": "p", "depth": 1, "path": ["a"], "model": null, "tools": [], "hooks": []}),
        ),
        ("delegation.post", delegated),
        ("delegation.post_verify", verified),
        (
            "agent.stop",
            json!({
                "id": "s", "parent_id": null, "finish_reason": "stop", "iteration": 1, "text": "t", "response": "t",
                "tool_calls": [], "tool_results": [], "usage": {"input_tokens": 1, "output_tokens": 2},
            }),
        ),
        ("error", json!({"kind": "limit", "message": "m", "source": "x"})),
        ("custom.my_event2", json!({"any": ["thing"]})),
        (
            "meta.tool_register",
            json!({"name": "n", "description": "d", "parameters": {}, "script": "s", "replace": false}),
        ),
    ]
}

/// What a hook may change of each event whose payload is not taken back whole.
const TAKEN: [(&str, &str); 12] = [
    ("turn.end", "a hook can change `text`"),
    ("tool.pre", "a hook can change `arguments` and `args`"),
    ("tool.post", "a hook can change `content`, `blocks`, `is_error` and `result`"),
    ("completion.pre", "a hook can change `model`, `messages`, `tools`, `max_tokens` and `temperature`"),
    ("completion.post", "a hook can change `choices` and `finish_reason`"),
    ("delegation.pre", "a hook can change `prompt` and `model`"),
    ("delegation.post", "a hook can change `result`"),
    ("delegation.post_verify", "a hook can change `result`"),
    ("agent.stop", "a hook can change `text` and `response`"),
    ("mcp.list", "a hook can change `tools`"),
    ("error", "a hook can change nothing of it"),
    ("meta.tool_register", "a hook can change `description`"),
];

/// What is said of a change that only hooks see.
pub(crate) fn not_taken(event: &str, key: &str) -> String {
    let (_, taken) = TAKEN.iter().find(|(name, _)| *name == event).unwrap();
    format!("`{key}` of `{event}` is changed for later hooks only: {taken}")
}

/// A change of what nothing but hooks would see is told, key by key; what is the same as before is no change.
#[test]
fn a_change_that_nothing_takes_back_is_told() {
    for (event, payload) in catalogue() {
        let Some((_, taken)) = TAKEN.iter().find(|(name, _)| *name == event) else { continue };
        for key in payload.as_object().unwrap().keys() {
            if ["id", "call_id", "name", "server", "transport"].contains(&key.as_str())
                || taken.contains(&format!("`{key}`"))
            {
                continue;
            }
            let body = format!("return modify({{'{key}': ['other']}})");
            let ran = Project::new().with_handle("it", event, "", &body).fire(event, &payload);
            let mut after = payload.clone();
            after[key] = json!(["other"]);
            let said = format!("warning: hook `it`: {}\n", not_taken(event, key));
            assert_eq!((ran.code, &ran.json()["payload"], ran.err), (0, &after, said));
        }
        let ran = Project::new().with_handle("it", event, "", "return modify(dict(payload))").fire(event, &payload);
        assert_eq!((ran.code, &ran.json()["payload"], ran.err.as_str()), (0, &payload, ""));
    }
}

fn file_name(event: &str) -> String {
    event.replace('.', "_")
}

/// The same five steps for every event: one hook rewrites, the next sees that and blocks, the last is not reached.
#[test]
fn every_event_is_dispatched_in_the_same_way() {
    let mut project = Project::new();
    for (event, payload) in catalogue() {
        let name = file_name(event);
        let modify = if payload.is_string() { "modify('rewritten')" } else { "modify({'extra': [event]})" };
        project = project
            .with_handle(&format!("{name}_1"), event, "priority: 1\n", &format!("return {modify}"))
            .with_handle(
                &format!("{name}_2"),
                event,
                &format!("priority: 2\nwhen: event == \"{event}\"\n"),
                "return block(json.encode(payload))",
            )
            .with_handle(&format!("{name}_3"), event, "priority: 3\n", "return allow()");
    }
    for (event, payload) in catalogue() {
        let (name, ran) = (file_name(event), project.fire(event, &payload));
        let mut after = payload.clone();
        match &mut after {
            Json::Object(object) => drop(object.insert("extra".to_owned(), json!([event]))),
            Json::String(text) => "rewritten".clone_into(text),
            _ => {}
        }
        assert_eq!(serde_json::from_str::<Json>(&reason(&ran)).unwrap(), after, "{event}");
        let told = ran.json();
        assert_eq!(
            json!([told["event"], told["decision"], told["hook"], told["payload"]]),
            json!([event, "block", format!("{name}_2"), after])
        );
        // Where there is no payload there is nothing to rewrite, which is reported; and so is what nothing takes back.
        let warning = |what: &str| format!("warning: hook `{name}_1`: {what}\n");
        let warnings = match payload {
            Json::Null => warning(&format!("`{event}` has no payload: `modify` is ignored")),
            Json::Object(_) if event != "custom.my_event2" => warning(&not_taken(event, "extra")),
            _ => String::new(),
        };
        assert_eq!(ran.err, warnings);
        assert_eq!(
            decisions(&ran),
            [format!("{name}_1 modify"), format!("{name}_2 block"), format!("{name}_3 not reached")]
        );
    }
    // Nothing blocks where the second hook is not asked.
    let ran = project.fire("custom.other", &json!(1));
    assert_eq!((ran.code, ran.json()["hooks"].clone()), (0, json!([])));
}

#[test]
fn a_modify_has_the_shape_of_its_event() {
    let cases = [
        ("turn.start", json!("a"), "'b'", Ok(json!("b"))),
        ("turn.start", json!("a"), "{'b': 1}", Err("`modify` of `turn.start` takes a string, not a dict")),
        (
            "tool.pre",
            json!({"name": "x", "args": {}, "arguments": "{}"}),
            "'x'",
            Err("`modify` of `tool.pre` takes a dict, not a string"),
        ),
        (
            "tool.pre",
            json!({"name": "x", "args": {}, "arguments": "{}"}),
            "None",
            Err("`modify` of `tool.pre` takes a dict, not None"),
        ),
        ("completion.pre", json!({"model": "m"}), "[1]", Err("`modify` of `completion.pre` takes a dict, not a list")),
        ("custom.x", json!([1]), "{'a': 1}", Ok(json!({"a": 1}))),
        ("custom.x", json!({"a": 1, "b": 2}), "{'a': None}", Ok(json!({"a": null, "b": 2}))),
    ];
    for (event, payload, new, wanted) in cases {
        let project = Project::new().with_handle("it", event, "", &format!("return modify({new})"));
        let ran = project.fire(event, &payload);
        match wanted {
            Ok(after) => assert_eq!((ran.code, &ran.json()["payload"]), (0, &after), "{event} {new}"),
            Err(why) => {
                assert_eq!(reason(&ran), format!("the hook failed: {why}"));
                assert_eq!(ran.json()["payload"], payload, "{event} {new}");
            }
        }
    }
}

#[test]
fn what_an_event_is_about_stays() {
    let delegation = json!({"id": "d", "agent": "a"});
    let cases = [
        ("tool.pre", json!({"id": "1", "name": "a", "arguments": "{}", "args": {}}), "name"),
        ("tool.pre", json!({"id": "1", "name": "a", "arguments": "{}", "args": {}}), "id"),
        ("tool.post", json!({"call_id": "1", "name": "a", "content": "", "is_error": false, "result": ""}), "call_id"),
        ("tool.post", json!({"call_id": "1", "name": "a", "content": "", "is_error": false, "result": ""}), "name"),
        ("delegation.pre", delegation, "id"),
    ];
    for (event, payload, key) in cases {
        let project = Project::new().with_handle("it", event, "", &format!("return modify({{'{key}': 'other'}})"));
        let ran = project.fire(event, &payload);
        let warning = format!("warning: hook `it`: `{key}` of `{event}` cannot be changed: the change is ignored\n");
        assert_eq!((ran.code, &ran.json()["payload"], ran.err), (0, &payload, warning));
        // What is the same as before is no change.
        project.write(
            ".harness/hooks/it.md",
            &format!(
                "---\nevent: {event}\nscript: |\n  def handle(event, payload):\n    return modify(payload)\n---\n"
            ),
        );
        let ran = project.fire(event, &payload);
        assert_eq!((ran.code, &ran.json()["payload"], ran.err.as_str()), (0, &payload, ""));
    }
    // A custom event is about whatever its author says.
    let project = Project::new().with_handle("it", "custom.x", "", "return modify({'id': 'other', 'name': 'other'})");
    let ran = project.fire("custom.x", &json!({"id": 1, "name": 2}));
    assert_eq!((&ran.json()["payload"], ran.err.as_str()), (&json!({"id": "other", "name": "other"}), ""));
}

/// The arguments twice, as JSON text and decoded: a change of either is a change of both.
#[test]
fn arguments_and_args_stay_equal() {
    let counts = "warning: hook `it`: `arguments` and `args` say different things: `args` counts\n";
    let cases = [
        ("{'args': {'b': [1]}}", Ok((json!({"b": [1]}), ""))),
        ("{'arguments': '{\"b\": 2}'}", Ok((json!({"b": 2}), ""))),
        ("{'arguments': {'b': 2}}", Ok((json!({"b": 2}), ""))),
        ("{'arguments': '{\"b\": 2}', 'args': {'b': 2}}", Ok((json!({"b": 2}), ""))),
        ("{'arguments': '{\"b\": 2}', 'args': {'b': 1}}", Ok((json!({"b": 1}), counts))),
        ("dict(payload, args = {'c': 3})", Ok((json!({"c": 3}), ""))),
        ("{'arguments': '{'}", Err("`arguments` is not JSON")),
        ("{'arguments': 1}", Err("`arguments` must be JSON text, not a number")),
    ];
    for event in ["tool.pre", "meta.call_tool"] {
        let payload = json!({"name": "x", "arguments": "{\"a\":1}", "args": {"a": 1}});
        for (new, wanted) in &cases {
            let project = Project::new().with_handle("it", event, "", &format!("return modify({new})"));
            let ran = project.fire(event, &payload);
            match wanted {
                Ok((args, told)) => {
                    let after = json!({"name": "x", "arguments": args.to_string(), "args": args});
                    assert_eq!((ran.code, &ran.json()["payload"], ran.err.as_str()), (0, &after, *told), "{new}");
                }
                Err(why) => {
                    assert_eq!(reason(&ran), format!("the hook failed: {why}"));
                    assert_eq!(ran.json()["payload"], payload, "{new}");
                }
            }
        }
    }
}

#[test]
fn a_name_that_is_no_event() {
    let names = "session.start, session.end, turn.start, turn.end, tool.pre, tool.post, completion.pre, completion.post, \
                 delegation.pre, delegation.post, delegation.post_verify, agent.stop, builtin.pre, builtin.post, artifact.load, \
                 mcp.list, error, `custom.NAME` and `meta.NAME`";
    let project = Project::new();
    for name in ["tool.mid", "Tool.pre", "", "custom.", "custom.A", "custom.a.b", "custom.a-b", "meta.", "meta.X"] {
        let ran = project.run(&["fire", name]);
        let wanted = format!("error: there is no event `{name}`\n\nhint: events are {names}\n");
        assert_eq!((ran.code, ran.out.as_str(), ran.err), (2, "", wanted));
    }
    for name in ["custom.my_event2", "custom._", "meta.tool_register", "meta.anything_0"] {
        assert_eq!(project.run(&["fire", name]).code, 0, "{name}");
    }
}

#[test]
fn fire_takes_its_payload_as_call_takes_arguments() {
    let project = Project::new()
        .with_handle("it", "custom.x", "", "return block(json.encode(payload))")
        .file("payload.json", "{\"from\": \"a file\"}");
    assert_eq!(reason(&project.run(&["fire", "custom.x"])), "null");
    assert_eq!(reason(&project.run(&["fire", "custom.x", "--payload", "-1"])), "-1");
    assert_eq!(reason(&project.run(&["fire", "custom.x", "--payload", "@payload.json"])), r#"{"from":"a file"}"#);
    let ran = project.run_with_input(&["fire", "custom.x", "--payload", "-"], "[1]");
    assert_eq!(reason(&ran), "[1]");
    for (given, said) in
        [("{", "error: the payload is not JSON: "), ("@nothing.json", "error: cannot read `nothing.json`: ")]
    {
        let ran = project.run(&["fire", "custom.x", "--payload", given]);
        ran.says(2, said);
        assert_eq!(ran.out, "");
    }
}

/// What a payload says twice may be given once.
#[test]
fn fire_completes_what_a_payload_says_twice() {
    let fires = |event: &str, payload: &str| {
        let project = Project::new().with_handle("it", event, "", "return block(json.encode(payload))");
        project.run(&["fire", event, "--payload", payload])
    };
    for (event, given, wanted) in [
        ("tool.pre", r#"{"arguments":"{\"a\": 1}"}"#, r#"{"arguments":"{\"a\":1}","args":{"a":1}}"#),
        ("tool.pre", r#"{"name":"t","args":{"a":1}}"#, r#"{"name":"t","args":{"a":1},"arguments":"{\"a\":1}"}"#),
        ("tool.pre", r#"{"name":"t"}"#, r#"{"name":"t"}"#),
        ("meta.call_tool", r#"{"args":{}}"#, r#"{"args":{},"arguments":"{}"}"#),
        ("tool.post", r#"{"result":[1]}"#, r#"{"result":[1],"content":"[1]"}"#),
        ("tool.post", r#"{"content":"[1]"}"#, r#"{"content":"[1]","result":[1]}"#),
        (
            "tool.post",
            r#"{"content":"why","is_error":true}"#,
            r#"{"content":"why","is_error":true,"result":{"error":"why"}}"#,
        ),
        ("agent.stop", r#"{"response":"x"}"#, r#"{"response":"x","text":"x"}"#),
        ("custom.x", r#"{"args":{"a":1}}"#, r#"{"args":{"a":1}}"#),
    ] {
        assert_eq!(reason(&fires(event, given)), wanted, "{event} {given}");
    }
    // Of two that differ one counts, as after a `modify`.
    let ran = fires("tool.pre", r#"{"arguments":"{\"a\":1}","args":{"a":2}}"#);
    assert_eq!(reason(&ran), r#"{"arguments":"{\"a\":2}","args":{"a":2}}"#);
    ran.says(3, "warning: the payload: `arguments` and `args` say different things: `args` counts\n");
    for (event, given, why) in [
        ("tool.pre", r#"{"arguments":"{"}"#, "error: the payload: `arguments` is not JSON\n"),
        ("tool.pre", r#"{"arguments":1}"#, "error: the payload: `arguments` must be JSON text, not a number\n"),
        ("tool.post", r#"{"content":1}"#, "error: the payload: `content` must be a string\n"),
    ] {
        fires(event, given).says(2, why);
    }
}

/// `--explain` reports each hook whether it matched, what it decided and why, and what it used.
#[test]
fn fire_explains() {
    let project = Project::new()
        .file("a.txt", "some text")
        .with_handle("reads", "custom.x", "priority: 1\n", "fs.read('a.txt')\nreturn modify({'n': 2})")
        .with_handle("other", "custom.x", "priority: 2\nwhen: event == \"custom.y\"\n", "return allow()")
        .with_handle("computed", "custom.x", "priority: 3\nwhen: payload[\"n\"] == 3\n", "return allow()")
        .with_handle("warns", "custom.x", "priority: 4\n", "return 5")
        .with_handle("blocks", "custom.x", "priority: 5\n", "return block('two\\nlines')")
        .with_handle("last", "custom.x", "priority: 6\n", "return allow()");
    let arguments = ["fire", "custom.x", "--payload", "{\"n\": 1}", "--explain"];
    let ran = project.run(&arguments);
    let told: Vec<String> = ran.err.lines().map(measured).collect();
    let warning = "`handle` returned a value of type `int` that is not a decision: taken as allow";
    let wanted = [
        &format!("warning: hook `warns`: {warning}"),
        "hooks on custom.x:",
        "     1 reads: modify (measured)",
        "       fs.read a.txt: fuel 100028, (measured)",
        "     2 other: skip (no instance)",
        "     3 computed: skip (measured)",
        "     4 warns: allow (measured)",
        &format!("       warning: {warning}"),
        "     5 blocks: block: two\\nlines (measured)",
        "     6 last: not reached",
    ];
    assert_eq!(told, wanted, "{ran}");
    assert_eq!((ran.code, ran.json()["payload"].clone()), (3, json!({"n": 2})));
    // Talk only.
    let (with, without) = (steady(&ran), steady(&project.run(&arguments[..4])));
    assert_eq!(with, without);
}

/// A line without what was measured at its end.
fn measured(line: &str) -> String {
    if let Some((words, _)) = line.split_once("(fuel ") {
        return format!("{words}(measured)");
    }
    match line.split_once(" ms, ") {
        // The fuel of a host call is the same each time, the milliseconds behind it are not.
        Some((start, _)) => format!("{}, (measured)", start.rsplit_once(", ").unwrap().0),
        None => line.to_owned(),
    }
}

#[test]
fn a_script_emits_events_of_its_own() {
    let emits = "def run(args):\n    return [events.emit('custom.saved', args), emit('custom.other', 5), emit('custom.none')]\n";
    let project = Project::with_script(emits);
    // Without hooks the payload is what it was.
    let given = ["call", "it", "--args", "{\"n\": 1}"];
    project.run(&given).gives(r#"[{"n":1},5,null]"#);
    let project = project
        .with_handle("first", "custom.saved", "priority: 1\n", "log('first')\nreturn modify({'a': payload['n'] + 1})")
        .with_handle("second", "custom.saved", "priority: 2\n", "return modify({'n': payload['a'] + 1})");
    let ran = project.run(&given);
    assert_eq!(
        (ran.code, ran.out.as_str(), ran.err.as_str()),
        (0, "[{\"n\":3,\"a\":2},5,null]\n", "[info] first: first\n")
    );
    // A block is an error where it was emitted.
    let project = project.with_handle("stops", "custom.saved", "priority: 3\n", "return block('not saved')");
    let ran = project.run(&given);
    ran.says(3, "error: tool `it` was denied: events.emit: blocked by hook \"stops\": not saved\n --> .harness/tools/it.md:4:15\n");
    assert_eq!(ran.out, "");
    // From a hook as well, whose own decision it is then that counts.
    let project = Project::new()
        .tool("it", "", FINE)
        .with_handle("asks", "tool.pre", "", "return block(json.encode(emit('custom.asked', {'n': 1})))")
        .with_handle("answers", "custom.asked", "", "return modify({'n': 2})");
    project.run(&["call", "it"]).says(3, "blocked by hook \"asks\": {\"n\":2}");
}

#[test]
fn only_events_of_its_own() {
    let not_custom = |name: &str| format!("event must start with \"custom.\", found `{name}`");
    let not_valid = |name: &str| {
        format!("`{name}` is not an event: after `custom.` come lower-case letters, digits and underscores")
    };
    let cases = [
        ("tool.pre", not_custom("tool.pre")),
        ("meta.call_tool", not_custom("meta.call_tool")),
        ("error", not_custom("error")),
        ("", not_custom("")),
        ("custom.", not_valid("custom.")),
        ("custom.A", not_valid("custom.A")),
        ("custom.a.b", not_valid("custom.a.b")),
    ];
    for (name, why) in cases {
        let project = Project::with_script(&format!("def run(args):\n    return emit('{name}', {{}})\n")).with_handle(
            "guard",
            "tool.pre",
            "",
            "log(payload['name'])\nreturn allow()",
        );
        let ran = project.run(&["call", "it"]);
        ran.says(1, &format!("error: tool `it` failed: emit: {why}\n"));
        // The hook was called for the call itself and for nothing else.
        assert_eq!(ran.err.matches("[info] guard: it").count(), 1, "{ran}");
    }
}

#[test]
fn events_within_events_end() {
    let project = Project::with_script("def run(args):\n    return emit('custom.ping', {'n': 0})\n").with_handle(
        "again",
        "custom.ping",
        "",
        "log(str(payload['n']))\nemit('custom.ping', {'n': payload['n'] + 1})\nreturn allow()",
    );
    let project = project.policy("sandbox: { hooks: { on_error: allow } }\n");
    let ran = project.run(&["call", "it"]);
    let mut wanted: Vec<String> = (0..8).map(|n| format!("[info] again: {n}")).collect();
    let why = "events within events, deeper than 8 levels: does a hook of this event emit it again?";
    wanted.push(format!("warning: hook `again`: the hook failed: emit: {why} (.harness/hooks/again.md:6:7)"));
    let mut told: Vec<&str> = ran.err.lines().collect();
    told.sort_unstable();
    assert_eq!(
        (ran.code, ran.out.as_str(), told),
        (0, "{\"n\":0}\n", wanted.iter().map(String::as_str).collect()),
        "{ran}"
    );
}

const ADDS: &str = "\
def run(args):
    meta.register_tool('added', 'Does something.', {}, 'def run(args):\\n    return \"from the added one\"\\n' + args.get('more', ''))
    return [t['name'] for t in meta.list_tools()] + [meta.call_tool('added', {})]
";

#[test]
fn hooks_govern_what_a_run_adds_to_itself() {
    let project = Project::with_script(ADDS).policy("meta: { enabled: true }\n");
    project.run(&["call", "it"]).gives(r#"["it","added","from the added one"]"#);
    // By name.
    let named = project.with_handle(
        "by_name",
        "meta.tool_register",
        "when: payload[\"name\"] == \"added\"\n",
        "return block('not ' + payload['name'])",
    );
    let ran = named.run(&["call", "it"]);
    ran.says(3, "error: tool `it` was denied: meta.register_tool: blocked by hook \"by_name\": not added\n");
    assert_eq!(ran.out, "");
    // By what the script holds: a hook reads it before it is there.
    let project = Project::with_script(ADDS).policy("meta: { enabled: true }\n").with_handle(
        "lint",
        "meta.tool_register",
        "",
        "if 'exec.run' in payload['script']:\n    return block('a tool must not run commands')\nreturn allow()",
    );
    project.run(&["call", "it"]).gives(r#"["it","added","from the added one"]"#);
    let more = json!({"more": "\ndef other():\n    exec.run('true')\n"}).to_string();
    project
        .run(&["call", "it", "--args", &more])
        .says(3, "meta.register_tool: blocked by hook \"lint\": a tool must not run commands");
    // A broken guard lets nothing through.
    let project = Project::with_script(ADDS).policy("meta: { enabled: true }\n").with_handle(
        "broken",
        "meta.tool_register",
        "",
        "fail('broken')",
    );
    project
        .run(&["call", "it"])
        .says(3, "blocked by hook \"broken\": the hook failed: broken (.harness/hooks/broken.md:5:7)");
}
