//! Hooks as policies: what they may use to decide, and guards as a project would write them.

use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::{Value as Json, json};

use crate::hooks::{decisions, reason};
use crate::project::{FINE, Project};

#[test]
fn hooks_have_the_pure_built_ins_and_read_files() {
    let cases = [
        ("json.decode('{\"a\": [1]}')['a']", "[1]"),
        ("json.encode({'b': None})", "\"{\\\"b\\\":null}\""),
        ("re.match('a+', 'aab')['matched']", "true"),
        ("re.search('b', 'aab')['matched']", "true"),
        ("re.findall('a', 'aab')", "[\"a\",\"a\"]"),
        ("string.truncate('abcdef', 3)", "\"abc\""),
        ("fs.read('a.txt')", "\"text\""),
        ("fs.exists('b.txt')", "false"),
        ("hash.sha256('')[:8]", "\"e3b0c442\""),
    ];
    let mut project = Project::new().file("a.txt", "text");
    for (n, (expression, _)) in cases.iter().enumerate() {
        project = project.with_handle(
            &format!("h{n}"),
            &format!("custom.h{n}"),
            "",
            &format!("return block(json.encode({expression}))"),
        );
    }
    for (n, (expression, wanted)) in cases.iter().enumerate() {
        let ran = project.run(&["fire", &format!("custom.h{n}")]);
        assert_eq!(reason(&ran), *wanted, "{expression}");
    }
}

#[test]
fn hooks_run_and_change_nothing() {
    let cases = [
        ("exec.run", "exec.run('touch', ['b.txt'])"),
        ("fs.write", "fs.write('b.txt', 'x')"),
        ("fs.append", "fs.append('a.txt', 'x')"),
        ("fs.remove", "fs.remove('a.txt')"),
        ("fs.mkdir", "fs.mkdir('d')"),
        ("fs.copy", "fs.copy('a.txt', 'c.txt')"),
        ("fs.move", "fs.move('a.txt', 'm.txt')"),
        ("meta.register_tool", "meta.register_tool('t', 'd', {}, 's')"),
        ("meta.register_hook", "meta.register_hook('h', 'custom.x', 's')"),
    ];
    let policy = "meta: { enabled: true }\nsandbox: { exec: { allow: [\"touch *\"] } }\n";
    let project = Project::with_script("def run(args):\n    return exec.run('touch', ['b.txt'])['ok']\n")
        .file("a.txt", "text")
        .policy(policy)
        .with_handle("it", "tool.pre", "", "return allow()");
    for (name, call) in cases {
        let project_hook = format!(
            "---\nevent: tool.pre\nscript: |\n  def handle(event, payload):\n    {call}\n    return allow()\n---\n"
        );
        project.write(".harness/hooks/it.md", &project_hook);
        let ran = project.run(&["call", "it"]);
        let why =
            "is not there in a hook: hooks inspect and decide, they run and change nothing (.harness/hooks/it.md:5:5)";
        ran.says(3, &format!("blocked by hook \"it\": the hook failed: `{name}` {why}"));
    }
    let mut names: Vec<_> = std::fs::read_dir(project.root())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, [".harness", "a.txt"]);
    assert_eq!(std::fs::read_to_string(project.path("a.txt")).unwrap(), "text");
    // The same grant lets a tool do it.
    std::fs::remove_file(project.path(".harness/hooks/it.md")).unwrap();
    project.run(&["call", "it"]).gives("true");
    assert!(project.path("b.txt").exists());
}

/// A hook changes state by calling a tool, which goes through the whole pipeline.
#[test]
fn a_hook_calls_a_tool() {
    let project = Project::new()
        .tool("it", "", FINE)
        .tool("keeps", "", "def run(args):\n    fs.write('kept.txt', args['text'])\n    return 'kept'\n")
        .policy("meta: { enabled: true }\n")
        .with_handle(
            "audit",
            "tool.pre",
            "priority: 1\nwhen: payload[\"name\"] == \"it\"\n",
            "log(meta.call_tool('keeps', {'text': payload['id']}))\nreturn allow()",
        )
        .with_handle("sees", "tool.pre", "priority: 2\n", "log(payload['name'])\nreturn allow()");
    let ran = project.run(&["call", "it"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "fine\n"), "{ran}");
    assert_eq!(std::fs::read_to_string(project.path("kept.txt")).unwrap(), "call_1");
    let mut lines: Vec<&str> = ran.err.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[info] audit: kept", "[info] sees: it", "[info] sees: keeps"]);
    // Not around the hooks, and not where the project does not let tools be called by scripts.
    let project = project.with_handle(
        "sees",
        "tool.pre",
        "priority: 2\nwhen: payload[\"name\"] == \"keeps\"\n",
        "return block('not that')",
    );
    let ran = project.run(&["call", "it"]);
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (0, "[info] audit: error: tool blocked: blocked by hook \"sees\": not that\n")
    );
    let project = project.policy("meta: { enabled: false }\n");
    project
        .run(&["call", "it"])
        .says(3, "blocked by hook \"audit\": the hook failed: meta.call_tool: `meta` is not enabled");
}

#[test]
fn a_hook_asks_a_server_that_the_policy_names() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = Vec::new();
            let mut buffer = [0; 1024];
            while !request.ends_with(b"\"it\"") && !request.ends_with(b"\r\n\r\n") {
                match stream.read(&mut buffer) {
                    Ok(0) | Err(_) => break,
                    Ok(n) => request.extend_from_slice(&buffer[..n]),
                }
            }
            let answer = if request.starts_with(b"POST") { "allowed" } else { "refused" };
            let text = format!("HTTP/1.1 200 OK\r\ncontent-length: 7\r\nconnection: close\r\n\r\n{answer}");
            let _ = stream.write_all(text.as_bytes());
        }
    });
    let asks =
        |call: &str| format!("answer = http.{call}['body']\nreturn allow() if answer == 'allowed' else block(answer)");
    let (get, post) =
        (asks(&format!("get('http://{address}/')")), asks(&format!("post('http://{address}/', body = '\"it\"')")));
    let project = Project::with_script(FINE).with_handle("asks", "tool.pre", "", &get);
    project
        .run(&["call", "it"])
        .says(3, &format!("blocked by hook \"asks\": the hook failed: http.get: the host `{address}` is not allowed (.harness/hooks/asks.md:5:16)"));
    let project = project.policy(&format!("network: {{ allowed_domains: [\"{address}\"] }}\n"));
    project.run(&["call", "it"]).says(3, "blocked by hook \"asks\": refused");
    project.with_handle("asks", "tool.pre", "", &post).run(&["call", "it"]).gives("fine");
}

const RUN_COMMAND: &str = "def run(args):\n    exec.run('touch', ['ran'])\n    return args['command']\n";

/// The guard of the format's page. Whatever command it is given, this tool only leaves a mark.
#[test]
fn a_command_guard() {
    let guard = "cmd = payload.get(\"args\", {}).get(\"command\", \"\")\nfor pattern in [\"rm -rf /\", \"mkfs\", \"dd if=\"]:\n    if pattern in cmd:\n        return block(\"dangerous command pattern blocked: \" + pattern)\nreturn allow()";
    let project = Project::new()
        .tool("run_command", "parameters: { command: { type: string, required: true } }\n", RUN_COMMAND)
        .tool("other", "", FINE)
        .policy("sandbox: { exec: { allow: [\"touch *\"] } }\n")
        .with_handle("command_guard", "tool.pre", "priority: 10\nwhen: payload[\"name\"] == \"run_command\"\n", guard);
    for (command, pattern) in
        [("sudo rm -rf / --no-preserve-root", "rm -rf /"), ("mkfs.ext4 x", "mkfs"), ("dd if=a of=b", "dd if=")]
    {
        let ran = project.call_with("run_command", &json!({"command": command}));
        let why = format!("blocked by hook \"command_guard\": dangerous command pattern blocked: {pattern}");
        assert_eq!((ran.code, ran.json()["error"]["message"].as_str()), (3, Some(why.as_str())));
        // Not one call reached the host.
        assert_eq!((ran.json()["usage"]["host_calls"].as_u64(), project.path("ran").exists()), (Some(0), false));
    }
    project.run(&["call", "run_command", "command=ls"]).gives("ls");
    assert!(project.path("ran").exists());
    project.run(&["call", "other", "command=mkfs"]).gives("fine");
}

/// A named tool is let through, a raw one is not.
#[test]
fn named_tools_are_preferred() {
    let project = Project::new().tool("run_command", "", FINE).tool("exec", "", FINE).with_handle(
        "prefer_named_tools",
        "tool.pre",
        "priority: 20\nwhen: payload[\"name\"] in [\"exec\", \"shell\"]\n",
        "return block('use run_command')",
    );
    project.run(&["call", "run_command"]).gives("fine");
    project.run(&["call", "exec"]).says(3, "blocked by hook \"prefer_named_tools\": use run_command");
}

/// All that went in and all that came out, of every tool.
#[test]
fn an_audit_sees_everything() {
    let project = Project::new()
        .tool("echo", "", "def run(args):\n    return {'echo': args}\n")
        .tool("read", "", "def run(args):\n    return cache.get('log')\n")
        .tool("both", "", "def run(args):\n    meta.call_tool('echo', {'n': 1})\n    meta.call_tool('echo', {'text': 'x' * 10})\n    return cache.get('log')\n")
        .policy("meta: { enabled: true }\n")
        .with_handle("audit_tool_pre", "tool.pre", "priority: 1\n", "cache.set('log', cache.get('log', []) + [[payload['name'], payload['args']]])\nmetrics.incr('calls')\nreturn allow()")
        .with_handle("audit_tool_post", "tool.post", "priority: 1\n", "cache.set('log', cache.get('log', []) + [[payload['name'], payload['result']]])\nreturn allow()");
    let wanted = json!([
        ["both", {"a": true}],
        ["echo", {"n": 1}],
        ["echo", {"echo": {"n": 1}}],
        ["echo", {"text": "xxxxxxxxxx"}],
        ["echo", {"echo": {"text": "xxxxxxxxxx"}}],
    ]);
    assert_eq!(project.call_with("both", &json!({"a": true})).json()["result"], wanted);
}

/// Neither a tool that calls tools nor one that was added gets around a hook.
#[test]
fn there_is_no_way_around_a_hook() {
    let adds = "def run(args):\n    meta.register_tool('added', 'a', {}, 'def run(args):\\n    return meta.call_tool(\"secret\")\\n')\n    return meta.call_tool('added')\n";
    let project = Project::new()
        .tool("secret", "", "def run(args):\n    log('ran')\n    return 'a secret'\n")
        .tool("calls", "", "def run(args):\n    return meta.call_tool('secret')\n")
        .tool("adds", "", adds)
        .policy("meta: { enabled: true }\n");
    for tool in ["secret", "calls", "adds"] {
        let ran = project.run(&["call", tool]);
        assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "a secret\n", "[info] ran\n"));
    }
    let project =
        project.with_handle("guard", "tool.pre", "when: payload[\"name\"] == \"secret\"\n", "return block('no')");
    project.run(&["call", "secret"]).says(3, "error: tool `secret` was denied: blocked by hook \"guard\": no");
    for tool in ["calls", "adds"] {
        project.run(&["call", tool]).gives("error: tool blocked: blocked by hook \"guard\": no");
    }
}

/// A hook that a script has added comes after the project's, and cannot undo what they say.
#[test]
fn an_added_hook_guards_too() {
    let adds = "def run(args):\n    meta.register_hook('mine', 'tool.pre', 'def handle(event, payload):\\n    return block(\"mine\")\\n', priority = -5)\n    return [meta.call_tool('other'), meta.call_tool('third')]\n";
    let project = Project::with_script(adds)
        .tool("other", "", FINE)
        .tool("third", "", FINE)
        .policy("meta: { enabled: true }\n")
        .with_handle(
            "guard",
            "tool.pre",
            "priority: 49\nwhen: payload[\"name\"] == \"third\"\n",
            "return block('guard')",
        );
    let told = |by: &str| format!("error: tool blocked: blocked by hook \"{by}\": {by}");
    assert_eq!(project.run(&["call", "it"]).json(), json!([told("mine"), told("guard")]));
}

const STACK: [(&str, &str, i64, &str); 7] = [
    ("audit_tool_pre", "tool.pre", 1, ""),
    ("audit_tool_post", "tool.post", 1, ""),
    ("command_guard", "tool.pre", 10, "when: payload[\"name\"] == \"run_command\"\n"),
    ("path_guard", "tool.pre", 10, "when: payload[\"name\"] in [\"write_file\", \"edit_file\"]\n"),
    ("prefer_named_tools", "tool.pre", 20, ""),
    ("meta_tool_guard", "tool.pre", 30, ""),
    ("completion_window_guard", "completion.pre", 40, ""),
];

#[test]
fn a_stack_of_hooks_runs_in_the_order_of_its_bands() {
    let mut project = Project::new().tool("write_file", "", FINE);
    for (name, event, priority, when) in STACK {
        project = project.with_handle(name, event, &format!("priority: {priority}\n{when}"), "return allow()");
    }
    let ran = project.run(&["validate", "--json"]);
    let mut names: Vec<&str> = STACK.iter().map(|(name, ..)| *name).collect();
    names.sort_unstable();
    assert_eq!((ran.code, &ran.json()["hooks"]), (0, &json!(names)), "{ran}");
    let ran = project.run(&["hooks", "--json"]);
    let listed: Vec<Json> =
        ran.json().as_array().unwrap().iter().map(|hook| json!([hook["name"], hook["priority"]])).collect();
    let wanted = [
        json!(["audit_tool_pre", 1]),
        json!(["command_guard", 10]),
        json!(["path_guard", 10]),
        json!(["prefer_named_tools", 20]),
        json!(["meta_tool_guard", 30]),
        json!(["audit_tool_post", 1]),
        json!(["completion_window_guard", 40]),
    ];
    assert_eq!(listed, wanted);
    let ran = project.call_with("write_file", &json!({}));
    assert_eq!(
        decisions(&ran),
        [
            "audit_tool_pre allow",
            "command_guard skip",
            "path_guard allow",
            "prefer_named_tools allow",
            "meta_tool_guard allow",
            "audit_tool_post allow",
        ]
    );
}

/// Beside the hook the sandbox refuses it too.
#[test]
fn a_guard_of_the_harness_itself() {
    let project = Project::new()
        .tool("write_file", "", "def run(args):\n    fs.write(args['path'], 'x')\n    return 'written'\n")
        .with_handle(
            "meta_tool_guard",
            "tool.pre",
            "priority: 30\nwhen: payload[\"name\"] == \"write_file\"\n",
            "if payload['args']['path'].startswith('.harness/'):\n    return block('the harness is not edited')\nreturn allow()",
        );
    let edit = ["call", "write_file", "path=.harness/tools/x.md"];
    project.run(&edit).says(3, "blocked by hook \"meta_tool_guard\": the harness is not edited");
    project.run(&["call", "write_file", "path=a.txt"]).gives("written");
    std::fs::remove_file(project.path(".harness/hooks/meta_tool_guard.md")).unwrap();
    project.run(&edit).says(3, "error: tool `write_file` was denied: fs.write: ");
    assert!(!project.path(".harness/tools/x.md").exists());
}

/// Hooks in `harness.md`, in a bundle of each kind, and one that an override replaces.
#[test]
fn hooks_from_every_place() {
    let entry = |name: &str| {
        format!(
            "hooks:\n  - handler: {name}\n    event: tool.pre\n    script: |\n      def handle(event, payload):\n          return block('{name}') if payload['args']['by'] == '{name}' else allow()\n"
        )
    };
    let places = [
        (".harness/harness.md", "inline"),
        (".harness/plugins/p.md", "in_a_plugin"),
        (".harness/builtins/b.md", "in_a_builtin"),
        (".harness/overrides/o.md", "replaced"),
    ];
    let mut project =
        Project::with_script(FINE).with_handle("replaced", "tool.pre", "", "return block('the old one')").with_handle(
            "single",
            "tool.pre",
            "",
            "return block('single') if payload['args']['by'] == 'single' else allow()",
        );
    for (file, name) in places {
        project = project.file(file, &format!("---\n{}---\n", entry(name)));
    }
    let consents = "sandbox: { sources: { plugins/p: { events: [tool.pre] } } }\n";
    project = project.policy_of(|text| text.replacen("---\n", &format!("---\n{consents}"), 1));
    let quoted = "blocked by hook \"in_a_plugin\" of plugins/p, a third party, which says: \"in_a_plugin\"\n";
    project.run(&["call", "it", "by=in_a_plugin"]).says(3, quoted);
    for name in ["inline", "in_a_builtin", "replaced", "single"] {
        project.run(&["call", "it", &format!("by={name}")]).says(3, &format!("blocked by hook \"{name}\": {name}\n"));
    }
    project.run(&["call", "it", "by=none"]).gives("fine");
    // The same mistake is told in the same words everywhere.
    for (file, owner) in [
        (".harness/harness.md", "hooks:\n  - handler: x\n"),
        (".harness/plugins/p.md", "hooks:\n  - handler: x\n"),
        (".harness/hooks/x.md", ""),
    ] {
        let broken = Project::with_script(FINE)
            .file(file, &format!("---\n{owner}{}event: tool.per\n---\n", if owner.is_empty() { "" } else { "    " }));
        broken.run(&["call", "it"]).says(2, "hooks[0].event \"tool.per\" is invalid");
    }
}
