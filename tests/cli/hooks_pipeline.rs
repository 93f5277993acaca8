//! Hooks around the call of a tool: `tool.pre`, the tool, `tool.post`, for every tool from everywhere.

use serde_json::{Value as Json, json};

use crate::hooks::{decisions, steady};
use crate::project::{FINE, Project, Ran};

/// The payload of a hook that logs or blocks with it as JSON.
#[track_caller]
fn logged(ran: &Ran, hook: &str) -> Vec<Json> {
    let start = format!("[info] {hook}: ");
    let lines = ran.err.lines().filter_map(|line| line.strip_prefix(&start));
    lines.map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

const LOGS: &str = "log(json.encode(payload))\nreturn allow()";

#[test]
fn hooks_see_the_whole_call_and_the_whole_result() {
    let project = Project::new()
        .tool(
            "it",
            "parameters: { n: { type: number } }\n",
            "def run(args):\n    return {'n': args['n'], 'x': [1.5, None]}\n",
        )
        .with_handle("pre", "tool.pre", "", LOGS)
        .with_handle("post", "tool.post", "", LOGS);
    let ran = project.run(&["call", "it", "n=3", "other=x"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "{\"n\":3,\"x\":[1.5,null]}\n"));
    let pre = json!({"id": "call_1", "name": "it", "arguments": r#"{"n":3,"other":"x"}"#, "args": {"n": 3, "other": "x"}, "agent": {"name": "", "depth": 0, "path": []}});
    let post = json!({
        "call_id": "call_1",
        "name": "it",
        "content": r#"{"n":3,"x":[1.5,null]}"#,
        "blocks": null,
        "is_error": false,
        "result": {"n": 3, "x": [1.5, null]},
        "agent": {"name": "", "depth": 0, "path": []},
    });
    assert_eq!((logged(&ran, "pre"), logged(&ran, "post")), (vec![pre], vec![post]));
}

#[test]
fn what_a_hook_gets_is_of_one_call() {
    let equal = "log(json.encode([type(payload['arguments']), type(payload['args']), json.decode(payload['arguments']) == payload['args']]))\nreturn allow()";
    let result = "log(json.encode([type(payload['content']), json.decode(payload['content']) == payload['result']]))\nreturn allow()";
    let project = Project::with_script("def run(args):\n    return {'got': args}\n")
        .with_handle("pre", "tool.pre", "", equal)
        .with_handle("post", "tool.post", "", result);
    let ran = project.run(&["call", "it", "--args", "{\"a\": [1, {\"b\": null}], \"c\": 12345678901234567890123}"]);
    assert_eq!(logged(&ran, "pre"), [json!(["string", "dict", true])], "{ran}");
    assert_eq!(logged(&ran, "post"), [json!(["string", true])], "{ran}");
}

#[test]
fn each_call_has_its_own_identifier() {
    let project =
        Project::with_script("def run(args):\n    return [meta.call_tool('inner'), meta.call_tool('inner')]\n")
            .tool("inner", "", FINE)
            .policy("meta: { enabled: true }\n")
            .with_handle("pre", "tool.pre", "", "log(payload['name'] + ' ' + payload['id'])\nreturn allow()")
            .with_handle("post", "tool.post", "", "log(payload['name'] + ' ' + payload['call_id'])\nreturn allow()");
    let ran = project.run(&["call", "it"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "[\"fine\",\"fine\"]\n"), "{ran}");
    assert_eq!(
        ran.err.lines().collect::<Vec<_>>(),
        [
            "[info] pre: it call_1",
            "[info] pre: inner call_2",
            "[info] post: inner call_2",
            "[info] pre: inner call_3",
            "[info] post: inner call_3",
            "[info] post: it call_1",
        ]
    );
}

/// A tool that logs, in the form of a list entry.
fn entry(name: &str) -> String {
    format!(
        "tools:\n  - name: {name}\n    parameters: {{ n: {{ type: number }} }}\n    script: |\n      def run(args):\n          log('run')\n          return args.get('n')\n"
    )
}

#[test]
fn every_tool_goes_through_the_same_steps() {
    let script = "def run(args):\n    log('run')\n    return args.get('n')\n";
    let project = Project::new()
        .tool("single", "parameters: { n: { type: number } }\n", script)
        .policy(&format!("meta: {{ enabled: true }}\n{}", entry("inline")))
        .file(".harness/plugins/p.md", &format!("---\n{}---\n", entry("in_a_plugin")))
        .file(".harness/plugins/q/bundle.md", &format!("---\n{}---\n", entry("in_a_folder")))
        .file(".harness/builtins/b.md", &format!("---\n{}---\n", entry("in_a_builtin")))
        .file(".harness/overrides/o.md", &format!("---\n{}---\n", entry("in_an_override")))
        .tool("calls", "", "def run(args):\n    return meta.call_tool(args['tool'], {'n': args['n']})\n")
        .tool(
            "adds",
            "",
            "def run(args):\n    meta.register_tool('added', 'a', {'n': {'type': 'number'}}, \"def run(args):\\n    log('run')\\n    return args.get('n')\\n\")\n    return meta.call_tool('added', {'n': args['n']})\n",
        )
        .with_handle("pre", "tool.pre", "", "if payload['name'] not in ['calls', 'adds']:\n    log('pre')\nreturn allow()")
        .with_handle("post", "tool.post", "", "if payload['name'] not in ['calls', 'adds']:\n    log('post')\nreturn allow()");
    let steps = "[info] pre: pre\n[info] run\n[info] post: post\n";
    let tools = ["single", "inline", "in_a_plugin", "in_a_folder", "in_a_builtin", "in_an_override"];
    for tool in tools {
        let ran = project.run(&["call", tool, "n=1"]);
        assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "1\n", steps), "{tool}");
        let ran = project.run(&["call", tool, "--args", "{\"n\": \"x\"}"]);
        assert_eq!(
            (ran.code, ran.err),
            (
                2,
                format!(
                    "error: the arguments of `{tool}` do not fit its parameters\n  the argument `n` must be of type number, found string\n\nhint: harness call {tool} [n=NUMBER]\n"
                )
            )
        );
        let ran = project.call_with("calls", &json!({"tool": tool, "n": 1}));
        assert_eq!((ran.json()["result"].as_str(), ran.err.as_str()), (Some("1"), steps), "{tool}");
        let ran = project.call_with("calls", &json!({"tool": tool, "n": "x"}));
        let why = format!(
            "error: the arguments of `{tool}` do not fit its parameters: the argument `n` must be of type number, found string"
        );
        assert_eq!((ran.json()["result"].as_str(), ran.err.as_str()), (Some(why.as_str()), ""), "{tool}");
    }
    let ran = project.call_with("adds", &json!({"n": 1}));
    assert_eq!((ran.json()["result"].as_str(), ran.err.as_str()), (Some("1"), steps));
    let ran = project.call_with("adds", &json!({"n": "x"}));
    assert_eq!(ran.err, "", "{ran}");

    // One hook without a `when` covers them all.
    let project = project.with_handle(
        "pre",
        "tool.pre",
        "",
        "if payload['name'] in ['calls', 'adds']:\n    return allow()\nreturn block('all of them')",
    );
    for tool in tools {
        project.run(&["call", tool, "n=1"]).says(3, "blocked by hook \"pre\": all of them");
        let ran = project.call_with("calls", &json!({"tool": tool, "n": 1}));
        let blocked = "error: tool blocked: blocked by hook \"pre\": all of them";
        assert_eq!((ran.json()["result"].as_str(), ran.err.as_str()), (Some(blocked), ""), "{tool}");
    }
    let ran = project.call_with("adds", &json!({"n": 1}));
    assert_eq!(ran.json()["result"], "error: tool blocked: blocked by hook \"pre\": all of them");
}

#[test]
fn what_is_refused_before_fires_no_hook() {
    let project = Project::new()
        .tool("it", "parameters: { n: { type: number, required: true } }\n", FINE)
        .tool("not_allowed", "", FINE)
        .file(".harness/tools/no_script.md", "---\n---\n")
        .policy("tools_policy: { deny: [not_allowed] }\n")
        .with_handle("pre", "tool.pre", "", "log('pre')\nreturn allow()")
        .with_handle("post", "tool.post", "", "log('post')\nreturn allow()");
    for (arguments, code) in [
        (&["call", "it"][..], 2),
        (&["call", "it", "n=x"], 2),
        (&["call", "it", "--args", "[]"], 2),
        (&["call", "itt", "n=1"], 2),
        (&["call", "no_script"], 2),
        (&["call", "not_allowed"], 3),
    ] {
        let ran = project.run(arguments);
        assert_eq!((ran.code, ran.err.contains("[info]")), (code, false), "{arguments:?}: {ran}");
    }
    let ran = project.run(&["call", "it", "n=1"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, "[info] pre: pre\n[info] post: post\n"));
}

#[test]
fn a_block_vetoes_the_call() {
    let project = Project::new()
        .tool("a", "", "def run(args):\n    fs.write('mark.txt', 'x')\n    return 'ran'\n")
        .tool("b", "", FINE)
        .with_handle(
            "guard",
            "tool.pre",
            "when: payload[\"name\"] == \"a\"\n",
            "return block('not with ' + payload['args']['x'])",
        )
        .with_handle("post", "tool.post", "", "log('post')\nreturn allow()");
    let ran = project.run(&["call", "a", "x=this"]);
    assert_eq!((ran.code, ran.out.as_str()), (3, ""));
    assert_eq!(
        ran.err,
        "error: tool `a` was denied: blocked by hook \"guard\": not with this\n |\n = hint: the hook is `.harness/hooks/guard.md`; `--explain` shows each hook's decision\n"
    );
    assert!(!project.path("mark.txt").exists());
    let ran = project.call_with("a", &json!({"x": "that"}));
    let mut told = steady(&ran);
    told["usage"].take();
    without_place(&mut told["error"]);
    let wanted = json!({
        "outcome": "denied",
        "result": null,
        "content": null,
        "truncated": false,
        "is_error": true,
        "usage": null,
        "log": [],
        "hooks": [{
            "event": "tool.pre",
            "name": "guard",
            "file": ".harness/hooks/guard.md",
            "priority": 0,
            "matched": true,
            "decision": "block",
            "reason": "not with that",
            "warnings": [],
            "log": [],
        }],
        "error": {
            "kind": "denied",
            "message": "blocked by hook \"guard\": not with that",
            "stack": [],
            "hint": "",
        },
    });
    assert_eq!((ran.code, &told), (3, &wanted));
    let ran = project.run(&["call", "b", "x=this"]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "fine\n", "[info] post: post\n"));
    std::fs::remove_file(project.path(".harness/hooks/guard.md")).unwrap();
    let ran = project.run(&["call", "a", "x=this"]);
    assert_eq!((ran.code, ran.out.as_str(), project.path("mark.txt").exists()), (0, "ran\n", true));
}

/// Takes the place of an error away: gives it back as it was told.
fn without_place(error: &mut Json) -> Json {
    let error = error.as_object_mut().unwrap();
    ["file", "line", "column"].iter().map(|key| error.shift_remove(*key).unwrap()).collect()
}

/// As for every error that has none.
#[test]
fn a_block_has_no_place_in_a_script() {
    let project = Project::with_script(FINE).with_handle("guard", "tool.pre", "", "return block('no')");
    let mut told = project.call_with("it", &json!({})).json();
    assert_eq!(without_place(&mut told["error"]), json!([null, null, null]));
}

#[test]
fn a_modify_changes_what_runs() {
    let project = Project::new()
        .tool(
            "it",
            "parameters: { n: { type: number, required: true } }\n",
            "def run(args):\n    log('ran')\n    return args\n",
        )
        .with_handle("strips", "tool.pre", "priority: 1\n", "return modify({'args': {'n': payload['args']['n']}})")
        .with_handle(
            "adds",
            "tool.pre",
            "priority: 2\n",
            "return modify({'arguments': json.encode({'n': payload['args']['n'] + 1})})",
        )
        .with_handle("sees", "tool.pre", "priority: 3\n", LOGS);
    let ran = project.run(&["call", "it", "n=1", "other=x"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "{\"n\":2}\n"), "{ran}");
    assert_eq!(
        logged(&ran, "sees"),
        [
            json!({"id": "call_1", "name": "it", "arguments": "{\"n\":2}", "args": {"n": 2}, "agent": {"name": "", "depth": 0, "path": []}})
        ]
    );
    // What an added key says is for later hooks only; what the call is about stays.
    let project =
        project.with_handle("adds", "tool.pre", "priority: 2\n", "return modify({'name': 'other', 'note': 1})");
    let ran = project.run(&["call", "it", "n=1"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "{\"n\":1}\n"), "{ran}");
    ran.says(0, "warning: hook `adds`: `name` of `tool.pre` cannot be changed: the change is ignored\n");
    assert_eq!(logged(&ran, "sees")[0]["note"], 1);
}

#[test]
fn changed_arguments_are_checked_again() {
    let tool = "def run(args):\n    log('ran')\n    return args\n";
    let front = "parameters: { n: { type: number, required: true } }\n";
    let changed = "error: the arguments of `it` do not fit its parameters after they were changed by ";
    for (new, by, why) in [
        ("{'n': 'text'}", "one", "the argument `n` must be of type number, found string"),
        ("{}", "one", "the argument `n` (number) is missing"),
        ("[1]", "one", "the arguments must be an object, found array"),
    ] {
        let project = Project::new()
            .tool("it", front, tool)
            .with_handle("one", "tool.pre", "", &format!("return modify({{'args': {new}}})"))
            .with_handle("other", "tool.pre", "", "return allow()");
        let ran = project.run(&["call", "it", "n=1"]);
        let wanted = format!("{changed}{by}\n  {why}\n\nhint: harness call it n=NUMBER\n");
        assert_eq!((ran.code, ran.out.as_str(), ran.err), (2, "", wanted), "{new}");
    }
    // All that changed them are named.
    let project = Project::new()
        .tool("it", front, tool)
        .with_handle("one", "tool.pre", "", "return modify({'args': {'n': 2}})")
        .with_handle("two", "tool.pre", "", "return modify({'args': {'n': [payload['args']['n']]}})");
    project
        .run(&["call", "it", "n=1"])
        .says(2, &format!("{changed}one, two\n  the argument `n` must be of type number, found array\n"));
    std::fs::remove_file(project.path(".harness/hooks/two.md")).unwrap();
    let ran = project.run(&["call", "it", "n=1"]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "{\"n\":2}\n", "[info] ran\n"));
}

/// What the hooks said is told all the same.
#[test]
fn hooks_are_heard_where_they_changed_the_arguments_to_something_else() {
    let project = Project::new().tool("it", "parameters: { n: { type: number } }\n", FINE).with_handle(
        "one",
        "tool.pre",
        "",
        "log('heard')\nreturn modify({'args': {'n': 'x'}, 'name': 'other'})",
    );
    let ran = project.run(&["call", "it", "n=1"]);
    ran.says(2, "do not fit its parameters after they were changed by one\n");
    let warning = "warning: hook `one`: `name` of `tool.pre` cannot be changed: the change is ignored\n";
    assert!(ran.err.starts_with(&format!("[info] one: heard\n{warning}")), "{ran}");
}

/// What goes back is the result after all hooks: as text, as value and in the record.
#[test]
fn a_result_is_redacted() {
    let project = Project::with_script("def run(args):\n    return {'token': 'abc', 'n': 1}\n")
        .with_handle(
            "first",
            "tool.post",
            "priority: 1\n",
            "return modify({'result': dict(payload['result'], token = '***')})",
        )
        .with_handle(
            "second",
            "tool.post",
            "priority: 2\n",
            "return modify({'result': dict(payload['result'], n = payload['result']['n'] + 1)})",
        )
        .with_handle("sees", "tool.post", "priority: 3\n", LOGS);
    let content = r#"{"token":"***","n":2}"#;
    let ran = project.run(&["call", "it"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, format!("{content}\n").as_str()));
    let seen = json!({"call_id": "call_1", "name": "it", "content": content, "blocks": null, "is_error": false, "result": {"token": "***", "n": 2}, "agent": {"name": "", "depth": 0, "path": []}});
    assert_eq!(logged(&ran, "sees"), [seen]);
    let ran = project.call_with("it", &json!({}));
    let told = ran.json();
    assert_eq!(
        (&told["outcome"], &told["content"], &told["result"]),
        (&json!("completed"), &json!(content), &json!({"token": "***", "n": 2}))
    );
    assert!(!format!("{ran}").contains("abc"), "{ran}");
    assert_eq!(decisions(&ran), ["first modify", "second modify", "sees allow"]);

    // Of text and value the one that was changed counts.
    for (new, content, result) in [
        ("{'content': 'plain'}", "plain", json!("plain")),
        ("{'content': '[1, 2]'}", "[1, 2]", json!([1, 2])),
        ("{'result': 'text'}", "text", json!("text")),
        ("{'result': None}", "null", Json::Null),
        ("{'content': 'x', 'result': 'x'}", "x", json!("x")),
    ] {
        let project = Project::with_script(FINE).with_handle("it", "tool.post", "", &format!("return modify({new})"));
        let told = project.call_with("it", &json!({})).json();
        assert_eq!((&told["content"], &told["result"]), (&json!(content), &result), "{new}");
    }
    // What hooks make of it is cut as everything is.
    let project = Project::with_script(FINE).policy("sandbox: { limits: { output_bytes: 256 } }\n").with_handle(
        "it",
        "tool.post",
        "",
        "return modify({'content': 'x' * 300})",
    );
    project.run(&["call", "it"]).gives(&format!("{}\n[output truncated at 256 bytes]", "x".repeat(256 - 32)));
}

#[test]
fn a_result_is_kept_back() {
    let project = Project::with_script("def run(args):\n    fs.write('mark.txt', 'x')\n    return 'a secret'\n")
        .with_handle("keeps", "tool.post", "", "return block('too much')");
    let ran = project.run(&["call", "it"]);
    ran.says(3, "error: tool `it` was denied: blocked by hook \"keeps\": too much\n");
    let json = project.call_with("it", &json!({}));
    let told = json.json();
    assert_eq!((&told["outcome"], &told["result"], &told["content"]), (&json!("denied"), &Json::Null, &Json::Null));
    assert_eq!(told["error"]["message"], "blocked by hook \"keeps\": too much");
    for ran in [&ran, &json, &project.run(&["call", "it", "--explain"])] {
        assert!(!format!("{ran}").contains("a secret"), "{ran}");
    }
    // It did run: only what came of it is kept.
    assert!(project.path("mark.txt").exists());
    // So it is for a tool that called it.
    let project = project
        .policy("meta: { enabled: true }\n")
        .tool("calls", "", "def run(args):\n    return {'got': meta.call_tool('it')}\n")
        .with_handle("keeps", "tool.post", "when: payload[\"name\"] == \"it\"\n", "return block('too much')");
    project
        .run(&["call", "calls"])
        .gives(r#"{"got":"error: tool result blocked: blocked by hook \"keeps\": too much"}"#);
}

#[test]
fn a_failed_call_is_seen_as_one() {
    let project = Project::new()
        .tool("good", "", "def run(args):\n    return {'ok': True}\n")
        .tool("own", "", "def run(args):\n    return {'error': 'own'}\n")
        .tool("fails", "", "def run(args):\n    fail('broken')\n")
        .tool("denied", "", "def run(args):\n    return env('HOME')\n")
        .tool("limited", "timeout_ms: 1000\n", "def run(args):\n    sleep(60000)\n")
        .with_handle(
            "errors",
            "tool.post",
            "when: payload[\"is_error\"] == True\n",
            "log(json.encode([payload['content'], payload['result']]))\nreturn allow()",
        )
        .with_handle(
            "error_keys",
            "tool.post",
            "when: \"'error' in payload['result']\"\n",
            "log(json.encode(payload['is_error']))\nreturn allow()",
        );
    let cases = [
        ("good", 0, None, None),
        ("own", 0, None, Some(false)),
        ("fails", 1, Some("tool error: broken (.harness/tools/fails.md:4:7)"), Some(true)),
        (
            "denied",
            3,
            Some("tool denied: env: the variable `HOME` is not granted (.harness/tools/denied.md:4:14)"),
            Some(true),
        ),
        ("limited", 4, Some("tool error: over the limit `timeout_ms` of 1000 ms"), Some(true)),
    ];
    for (tool, code, why, key) in cases {
        let ran = project.run(&["call", tool]);
        assert_eq!(ran.code, code, "{ran}");
        let errors: Vec<Json> = why.iter().map(|why| json!([why, {"error": why}])).collect();
        assert_eq!(logged(&ran, "errors"), errors, "{tool}");
        assert_eq!(logged(&ran, "error_keys"), key.iter().map(|is| json!(is)).collect::<Vec<_>>(), "{tool}");
    }
    // A tool that calls it gets what the hooks made of it.
    let project = project
        .policy("meta: { enabled: true }\n")
        .tool("calls", "", "def run(args):\n    return meta.call_tool('fails')\n")
        .with_handle(
            "redacts",
            "tool.post",
            "when: payload[\"name\"] == \"fails\"\n",
            "return modify({'content': payload['content'].replace('broken', '***')})",
        );
    let ran = project.run(&["call", "calls"]);
    let wanted = "error: tool error: *** (.harness/tools/fails.md:4:7)\n";
    assert_eq!((ran.code, ran.out.as_str()), (0, wanted), "{ran}");
    std::fs::remove_file(project.path(".harness/hooks/redacts.md")).unwrap();
    // A hook may say that it is none, and of a good one that it is.
    let project = project
        .with_handle(
            "mends",
            "tool.post",
            "priority: 1\nwhen: payload[\"name\"] == \"fails\"\n",
            "return modify({'is_error': False, 'result': 'mended'})",
        )
        .with_handle(
            "breaks",
            "tool.post",
            "priority: 1\nwhen: payload[\"name\"] == \"good\"\n",
            "return modify({'is_error': True})",
        );
    let ran = project.run(&["call", "fails"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "mended\n"), "{ran}");
    let ran = project.run(&["call", "good"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, "{\"ok\":true}\n"), "{ran}");
}

/// Nothing that a tool gets, gives or uses reports hooks.
#[test]
fn a_tool_cannot_tell_whether_there_are_hooks() {
    let script =
        "def run(args):\n    return [args, cache.get('k'), metrics.snapshot(), [fs.exists('x')], fs.list('.')]\n";
    let without = Project::with_script(script);
    let with = Project::with_script(script)
        .with_handle("pre", "tool.pre", "", "return allow()")
        .with_handle("post", "tool.post", "", "return allow()")
        .with_handle("rewrites", "tool.pre", "", "return modify(payload)");
    let told = |project: &Project| {
        let mut told = project.call_with("it", &json!({"a": 1})).json();
        let fuel = told["usage"]["fuel"].as_u64().unwrap();
        told["usage"].take();
        let hooks = told.as_object_mut().unwrap().shift_remove("hooks");
        (told, fuel, hooks.map_or(0, |hooks| hooks.as_array().unwrap().len()))
    };
    let ((with, fuel, hooks), (without, same_fuel, none)) = (told(&with), told(&without));
    assert_eq!((with, fuel), (without, same_fuel));
    assert_eq!((hooks, none), (3, 0));
}

/// Who decided is an artifact, each time: `--json` and `--explain` report it.
#[test]
fn explain_and_json_tell_of_every_hook() {
    let project = Project::with_script("def run(args):\n    return emit('custom.x', fs.read('a.txt'))\n")
        .file("a.txt", "text")
        .with_handle("audit", "tool.pre", "priority: 1\n", "fs.exists('a.txt')\nreturn allow()")
        .with_handle("other", "tool.pre", "priority: 2\nwhen: payload[\"name\"] == \"other\"\n", "return allow()")
        .with_handle("inner", "custom.x", "", "return modify(payload + '!')")
        .with_handle("post", "tool.post", "", "return allow()");
    let ran = project.run(&["call", "it", "--explain"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "text!\n"), "{ran}");
    let told: Vec<String> = ran.err.lines().skip_while(|line| !line.starts_with("used: ")).map(first_words).collect();
    let wanted = [
        "used:",
        "  fs.read a.txt:",
        "  events.emit custom.x:",
        "  hooks on custom.x:",
        "       0 inner: modify",
        "hooks on tool.pre:",
        "     1 audit: allow",
        "       fs.exists a.txt:",
        "     2 other: skip",
        "hooks on tool.post:",
        "     0 post: allow",
        "together:",
    ];
    assert_eq!(told, wanted, "{ran}");
    assert_eq!(decisions(&project.call_with("it", &json!({}))), ["audit allow", "other skip", "post allow"]);
    // Without hooks there is nobody that decided.
    let ran = Project::with_script(FINE).run(&["call", "it", "--explain"]);
    assert!(!ran.err.contains("hook") && !ran.err.contains("together"), "{ran}");
}

/// A line up to what was measured.
fn first_words(line: &str) -> String {
    let ends = [" fuel ", " (fuel ", " (no instance)"];
    ends.iter().fold(line, |line, end| line.split(end).next().unwrap_or_default()).to_owned()
}
