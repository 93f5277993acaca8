//! Hooks of agent clients that `harness fire --format` answers. Payloads are those of
//! <https://code.claude.com/docs/en/hooks> for Claude Code, and those that `command_input_json` writes in
//! `codex-rs/hooks/src/events/` of <https://github.com/openai/codex> for Codex.

use std::process::{Command, Stdio};

use serde_json::{Value as Json, json};

use crate::project::{HARNESS, Project, Ran};

/// What Claude Code sends with every event: "Common input fields".
fn claude(event: &str, fields: &Json) -> Json {
    let mut payload = json!({
        "session_id": "abc123",
        "transcript_path": "/home/user/.claude/projects/my-project/transcript.jsonl",
        "cwd": "/home/user/my-project",
        "permission_mode": "default",
        "hook_event_name": event,
    });
    payload.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    payload
}

/// What Codex sends with every event of a turn: the structures of `codex-rs/hooks/src/schema.rs`.
fn codex(event: &str, fields: &Json) -> Json {
    let mut payload = json!({
        "session_id": "0199a213-81c0-7800-8aa1-bbab2a035a53",
        "turn_id": "turn-1",
        "transcript_path": null,
        "cwd": "/home/user/my-project",
        "hook_event_name": event,
        "model": "gpt-5.2-codex",
        "permission_mode": "default",
    });
    payload.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    payload
}

/// "PreToolUse input" of the page, for its tool `Bash`.
fn bash(command: &str) -> Json {
    let input = json!({"command": command, "description": "Run test suite", "timeout": 120_000});
    claude("PreToolUse", &json!({"tool_name": "Bash", "tool_input": input, "tool_use_id": "toolu_01ABC123"}))
}

/// "PostToolUse input", with the response of `Bash`.
fn ran_bash(stdout: &str) -> Json {
    claude(
        "PostToolUse",
        &json!({
            "tool_name": "Bash",
            "tool_input": {"command": "env"},
            "tool_response": {"stdout": stdout, "stderr": "", "interrupted": false, "isImage": false},
            "tool_use_id": "toolu_01ABC123",
        }),
    )
}

fn answers(project: &Project, client: &str, payload: &Json) -> Ran {
    project.run_with_input(&["fire", "--format", client], &payload.to_string())
}

/// A block: JSON for clients that read it, the reason on standard error for the others, and the one code that blocks.
fn block(json: Option<&Json>, why: &str) -> Ran {
    Ran { code: 2, out: json.map(|json| format!("{json}\n")).unwrap_or_default(), err: format!("{why}\n") }
}

fn deny(why: &str) -> Ran {
    let output = json!({"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": why});
    block(Some(&json!({ "hookSpecificOutput": output })), why)
}

fn refuse(why: &str) -> Ran {
    block(Some(&json!({"decision": "block", "reason": why})), why)
}

fn json_of(json: &Json) -> Ran {
    Ran { code: 0, out: format!("{json}\n"), err: String::new() }
}

fn nothing() -> Ran {
    Ran { code: 0, out: String::new(), err: String::new() }
}

/// A hook on `event` with this body.
fn hook(event: &str, front: &str, body: &str) -> Project {
    Project::new().with_handle("guard", event, front, body)
}

/// A guard of the client's shell, as the page on clients has it.
fn shell_guard(prefix: &str) -> Project {
    let body = "command = payload['args']['command']
log('saw ' + command)
if 'rm' in command:
    return block('no rm')
if command == 'npm test':
    return modify({'args': dict(payload['args'], command = 'pnpm test')})
return allow()";
    hook("tool.pre", &format!("when: payload[\"name\"] == \"{prefix}.Bash\"\n"), body)
}

#[test]
fn hooks_govern_a_tool_of_claude_code() {
    let project = shell_guard("claude_code");
    assert_eq!(answers(&project, "claude-code", &bash("rm -rf /")), deny("blocked by hook \"guard\": no rm"));
    // What hooks log is for standard error, which the client shows nobody at code 0.
    let logged = |command: &str| format!("[info] guard: saw {command}\n");
    let changed = json!({"hookSpecificOutput": {
        "hookEventName": "PreToolUse",
        "updatedInput": {"command": "pnpm test", "description": "Run test suite", "timeout": 120_000},
    }});
    let ran = Ran { err: logged("npm test"), ..json_of(&changed) };
    assert_eq!(answers(&project, "claude-code", &bash("npm test")), ran);
    // No opinion, and not `allow`, which would be an answer to the client's own question.
    assert_eq!(answers(&project, "claude-code", &bash("ls")), Ran { err: logged("ls"), ..nothing() });
    // A hook on one tool does not hear of others: `Write` of the page, and a tool over MCP.
    for (tool, input) in [
        ("Write", json!({"file_path": "/path/to/file.txt", "content": "rm"})),
        ("mcp__memory__create_entities", json!({"entities": ["rm"]})),
    ] {
        let payload = claude("PreToolUse", &json!({"tool_name": tool, "tool_input": input, "tool_use_id": "toolu_02"}));
        assert_eq!(answers(&project, "claude-code", &payload), nothing(), "{tool}");
    }
    // The same call of the other client has another name.
    assert_eq!(answers(&project, "codex", &bash("rm -rf /")), nothing());
}

#[test]
fn hooks_see_the_whole_payload() {
    let project = hook("tool.pre", "", "return block(json.encode(payload))");
    let payload = claude(
        "PreToolUse",
        &json!({
            "tool_name": "mcp__github__create_issue", "tool_input": {"title": "t"}, "tool_use_id": "toolu_1",
            "agent_id": "agent-abc123", "agent_type": "Explore",
        }),
    );
    let ran = answers(&project, "claude-code", &payload);
    let why = ran.err.strip_prefix("blocked by hook \"guard\": ").unwrap();
    let seen: Json = serde_json::from_str(why).unwrap();
    let wanted = json!({
        "id": "toolu_1",
        "name": "claude_code.mcp__github__create_issue",
        "arguments": "{\"title\":\"t\"}",
        "args": {"title": "t"},
        "agent": {"name": "Explore", "depth": 1, "path": ["Explore"]},
        "client": {
            "session_id": "abc123",
            "transcript_path": "/home/user/.claude/projects/my-project/transcript.jsonl",
            "cwd": "/home/user/my-project",
            "permission_mode": "default",
            "hook_event_name": "PreToolUse",
            "agent_id": "agent-abc123",
            "agent_type": "Explore",
            "name": "claude-code",
        },
    });
    assert_eq!((ran.code, seen), (2, wanted));
}

#[test]
fn results_are_blocked_and_changed() {
    let body = "out = payload['result']['stdout']
if out == 'bad':
    return block('look away')
if out == 'form':
    return modify({'result': 'a text'})
return modify({'result': dict(payload['result'], stdout = out.replace('hunter2', '***'))})";
    let project = hook("tool.post", "", body);
    assert_eq!(answers(&project, "claude-code", &ran_bash("bad")), refuse("blocked by hook \"guard\": look away"));
    let response = json!({"stdout": "PASSWORD=***", "stderr": "", "interrupted": false, "isImage": false});
    let output = json!({"hookEventName": "PostToolUse", "updatedToolOutput": response});
    assert_eq!(
        answers(&project, "claude-code", &ran_bash("PASSWORD=hunter2")),
        json_of(&json!({ "hookSpecificOutput": output }))
    );
    assert_eq!(answers(&project, "claude-code", &ran_bash("fine")), nothing());
    // The client would ignore another form without a word, so its turn ends.
    let why = "blocked by harness: a hook changed the result to another form, which claude-code ignores; change values \
               within `result` instead";
    let ends = json!({"continue": false, "stopReason": why, "systemMessage": why, "decision": "block", "reason": why});
    assert_eq!(answers(&project, "claude-code", &ran_bash("form")), json_of(&ends));
    // Codex replaces the result by the reason.
    let ran = codex(
        "PostToolUse",
        &json!({
            "tool_name": "Bash", "tool_input": {"command": "env"}, "tool_response": "PASSWORD=hunter2",
            "tool_use_id": "call-1",
        }),
    );
    let redacts = hook("tool.post", "", "return modify({'content': payload['content'].replace('hunter2', '***')})");
    let reason = json!({"decision": "block", "reason": "PASSWORD=***"});
    assert_eq!(answers(&redacts, "codex", &ran), json_of(&reason));
}

#[test]
fn a_tool_that_failed_is_an_error() {
    // "PostToolUseFailure input".
    let failed = claude(
        "PostToolUseFailure",
        &json!({
            "tool_name": "Bash", "tool_input": {"command": "npm test"}, "tool_use_id": "toolu_01ABC123",
            "error": "Command exited with non-zero status code 1", "is_interrupt": false,
        }),
    );
    let project = hook("tool.post", "", "return block(payload['content']) if payload['is_error'] else allow()");
    let why = "blocked by hook \"guard\": Command exited with non-zero status code 1";
    assert_eq!(answers(&project, "claude-code", &failed), refuse(why));
    assert_eq!(answers(&project, "claude-code", &ran_bash("fine")), nothing());
}

#[test]
fn prompts_are_blocked() {
    let project = hook(
        "turn.start",
        "",
        "if 'secret' in payload:
    return block('no secrets')
return modify(payload.replace('hunter2', '***'))",
    );
    for (client, payload) in [("claude-code", claude as fn(&str, &Json) -> Json), ("codex", codex)] {
        let asks = |prompt: &str| answers(&project, client, &payload("UserPromptSubmit", &json!({ "prompt": prompt })));
        assert_eq!(asks("the secret is"), refuse("blocked by hook \"guard\": no secrets"));
        // Neither client takes another prompt, and the one that the hook would not have is not sent.
        let why = format!(
            "blocked by harness: a hook changed the prompt, and {client} cannot change it. Send this instead:\nit is ***"
        );
        assert_eq!(asks("it is hunter2"), refuse(&why));
        assert_eq!(asks("Write a function"), nothing());
    }
}

/// "Stop input" and "SubagentStop input".
fn stop(event: &str, text: &str, again: bool) -> Json {
    claude(event, &json!({"stop_hook_active": again, "last_assistant_message": text}))
}

#[test]
fn agents_that_stop_are_sent_back() {
    let body = "if payload['text'] == 'crash':
    fail('broken')
return allow() if payload['text'] == 'tested' else block('run the tests')";
    let project = hook("agent.stop", "", body);
    for event in ["Stop", "SubagentStop"] {
        for again in [false, true] {
            let stops = |text: &str| answers(&project, "claude-code", &stop(event, text, again));
            assert_eq!(stops("done"), refuse("blocked by hook \"guard\": run the tests"));
            assert_eq!(stops("tested"), nothing());
        }
        // A guard that does not work sends back once, and does not keep the agent running forever.
        let why = "blocked by hook \"guard\": the hook failed: broken (.harness/hooks/guard.md:6:11)";
        assert_eq!(answers(&project, "claude-code", &stop(event, "crash", false)), refuse(why));
        let ends = json!({"continue": false, "stopReason": why, "systemMessage": why});
        assert_eq!(answers(&project, "claude-code", &stop(event, "crash", true)), json_of(&ends));
    }
}

#[test]
fn sessions_begin_and_end() {
    // "SessionStart input" and "SessionEnd input".
    let start = claude("SessionStart", &json!({"source": "startup", "model": "claude-sonnet-4-5-20250929"}));
    let end = claude("SessionEnd", &json!({"reason": "other"}));
    let blocks = Project::new().with_handle("start", "session.start", "", "return block('not today')").with_handle(
        "end",
        "session.end",
        "",
        "return block('never')",
    );
    let why = "blocked by hook \"start\": not today";
    let ends = json!({"continue": false, "stopReason": why, "systemMessage": why});
    assert_eq!(answers(&blocks, "claude-code", &start), json_of(&ends));
    // Nothing is left to block; the user sees the reason.
    assert_eq!(answers(&blocks, "claude-code", &end), block(None, "blocked by hook \"end\": never"));
    for payload in [start, end] {
        assert_eq!(answers(&Project::new(), "claude-code", &payload), nothing());
    }
}

#[test]
fn hooks_govern_a_tool_of_codex() {
    let project = shell_guard("codex");
    let call = |command: &str| {
        codex("PreToolUse", &json!({"tool_name": "Bash", "tool_input": {"command": command}, "tool_use_id": "call-1"}))
    };
    assert_eq!(answers(&project, "codex", &call("rm -rf /")), deny("blocked by hook \"guard\": no rm"));
    let changed = json!({"hookSpecificOutput": {
        "hookEventName": "PreToolUse", "permissionDecision": "allow", "updatedInput": {"command": "pnpm test"},
    }});
    let ran = Ran { err: "[info] guard: saw npm test\n".to_owned(), ..json_of(&changed) };
    assert_eq!(answers(&project, "codex", &call("npm test")), ran);
    assert_eq!(answers(&project, "codex", &call("ls")), Ran { err: "[info] guard: saw ls\n".to_owned(), ..nothing() });
}

/// Whatever fails before the hooks decide blocks, in the form of the event as far as it is known.
#[test]
fn every_failure_blocks() {
    let harness = |why: &str| format!("blocked by harness, which cannot decide: {why}");
    let project = Project::new();
    // The control: the same project answers a payload that is right.
    assert_eq!(answers(&project, "claude-code", &bash("ls")), nothing());
    for (given, why) in [
        ("", "the payload of the client is not JSON: EOF while parsing a value at line 1 column 0"),
        (
            "{\"hook_event_name\": \"PreTool",
            "the payload of the client is not JSON: EOF while parsing a string at line 1 column 28",
        ),
        ("[]", "the payload of claude-code has no text `hook_event_name`"),
        ("{\"hook_event_name\": 1}", "the payload of claude-code has no text `hook_event_name`"),
        (
            "{\"hook_event_name\": \"BeforeTool\"}",
            "`BeforeTool` is no hook event of claude-code that this version of Harness knows",
        ),
        (
            "{\"hook_event_name\": \"Stop\", \"hook_event_name\": \"Setup\"}",
            "the key `hook_event_name` is given twice at line 1 column 45",
        ),
    ] {
        let ran = project.run_with_input(&["fire", "--format", "claude-code"], given);
        assert_eq!(ran, block(None, &harness(why)), "{given}");
    }
    for (event, fields, why) in [
        ("PreToolUse", json!({"tool_input": {}}), "the payload of the client has no text `tool_name`"),
        ("PreToolUse", json!({"tool_name": "Bash"}), "`PreToolUse` of claude-code has no object `tool_input`"),
        ("PostToolUse", json!({"tool_name": "Bash"}), "`PostToolUse` of claude-code has no `tool_response`"),
        ("UserPromptSubmit", json!({"prompt": ["x"]}), "the payload of the client has no text `prompt`"),
    ] {
        let wanted = if event == "PreToolUse" { deny(&harness(why)) } else { refuse(&harness(why)) };
        assert_eq!(answers(&project, "claude-code", &claude(event, &fields)), wanted);
    }
    // A project that is not there, is none, or cannot be loaded.
    let empty = tempfile::tempdir().unwrap();
    let why = harness("`gone` does not exist (hint: `-C` names the folder that holds `.harness`)");
    let gone = ["fire", "--format", "claude-code", "-C", "gone"];
    assert_eq!(project.run_with_input(&gone, &bash("ls").to_string()), deny(&why));
    let why = harness("there is not a folder `.harness` here (hint: make one with `harness init`)");
    let none = ["fire", "--format", "claude-code", "-C", empty.path().to_str().unwrap()];
    assert_eq!(project.run_with_input(&none, &bash("ls").to_string()), deny(&why));
    let broken = Project::new().policy("sandbox: [\n");
    for client in ["claude-code", "codex"] {
        let ran = answers(&broken, client, &bash("ls"));
        let why = ran.err.trim_end().to_owned();
        assert!(why.starts_with(&harness(".harness/harness.md:")), "{ran}");
        assert_eq!(ran, deny(&why));
    }
    // A hook that is no script is one that fails.
    let broken = Project::new().with_hook("guard", "tool.pre", "", "def handle(event, payload:\n    return allow()\n");
    let ran = answers(&broken, "codex", &bash("ls"));
    assert!(ran.err.starts_with("blocked by hook \"guard\": the hook failed: Parse error"), "{ran}");
    assert_eq!(ran, deny(ran.err.trim_end()));
    // The client, and the arguments.
    for arguments in [&["fire", "--format", "other"][..], &["fire", "--format", "codex", "tool.pre"], &["fire"]] {
        let ran = project.run_with_input(arguments, "");
        assert!(ran.code == 2 && ran.out.is_empty() && !ran.err.is_empty(), "{ran}");
    }
}

#[test]
fn hooks_that_fail_block() {
    let crash = hook("tool.pre", "", "fail('broken')");
    let why = "blocked by hook \"guard\": the hook failed: broken (.harness/hooks/guard.md:5:7)";
    assert_eq!(answers(&crash, "claude-code", &bash("ls")), deny(why));
    let allowed = hook("tool.pre", "", "fail('broken')").policy("sandbox:\n  hooks: { on_error: allow }\n");
    let ran = answers(&allowed, "claude-code", &bash("ls"));
    assert_eq!((ran.code, ran.out.as_str()), (0, ""), "{ran}");
    // Its own limit of time, and then that of the answer.
    let forever = "for i in range(1000000000):\n    pass\nreturn allow()";
    let limited =
        hook("tool.pre", "", forever).policy("sandbox:\n  limits: { timeout_ms: 200, fuel: 1000000000000000 }\n");
    let ran = answers(&limited, "claude-code", &bash("ls"));
    assert_eq!(ran, deny(ran.err.trim_end()));
    assert!(ran.err.starts_with("blocked by hook \"guard\": the hook failed: "), "{ran}");
    let slow =
        hook("tool.pre", "", "sleep(60000)\nreturn allow()").policy("sandbox:\n  limits: { timeout_ms: 600000 }\n");
    let late = ["fire", "--format", "claude-code", "--deadline-ms", "1500"];
    let why = "blocked by harness, which cannot decide: no decision within 1500 ms (`--deadline-ms`)";
    assert_eq!(slow.run_with_input(&late, &bash("ls").to_string()), deny(why));
}

/// A client that sends nothing and does not end its payload.
#[test]
fn a_payload_that_never_ends_blocks() {
    let project = Project::new();
    let mut command = project.command(&["fire", "--format", "codex", "--deadline-ms", "300"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let open = child.stdin.take();
    let ran = project.ran(&child.wait_with_output().unwrap());
    drop(open);
    let why = "blocked by harness, which cannot decide: no decision within 300 ms (`--deadline-ms`)";
    assert_eq!(ran, block(None, why));
}

/// An answer that cannot be written is none.
#[test]
fn an_answer_that_is_lost_blocks() {
    let project = shell_guard("claude_code");
    let line = |payload: &Json| format!("echo '{payload}' | $HARNESS fire --format claude-code > /dev/full");
    let ran = project.shell(&line(&bash("npm test")));
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{ran}");
    assert!(ran.err.contains("cannot write the result"), "{ran}");
    assert_eq!(project.shell(&line(&bash("ls"))).code, 0);
}

/// Events that nothing of a project stands for are left to the client, without a project too.
#[test]
fn other_events_are_left_to_the_client() {
    let project = hook("tool.pre", "", "return block('all')");
    // "Notification input", "PreCompact input", "PermissionRequest input", "SubagentStart input".
    for (event, fields) in [
        ("Notification", json!({"message": "Claude needs your permission", "notification_type": "permission_prompt"})),
        ("PreCompact", json!({"trigger": "manual", "custom_instructions": ""})),
        ("PermissionRequest", json!({"tool_name": "Bash", "tool_input": {"command": "rm -rf node_modules"}})),
        ("SubagentStart", json!({"agent_id": "agent-abc123", "agent_type": "Explore"})),
    ] {
        assert_eq!(answers(&project, "claude-code", &claude(event, &fields)), nothing(), "{event}");
    }
    assert_eq!(answers(&project, "claude-code", &bash("ls")), deny("blocked by hook \"guard\": all"));
}

/// The audit log has the decisions, as with `harness fire EVENT`.
#[test]
fn decisions_are_in_the_audit_log() {
    let kinds = |project: &Project| -> Vec<Json> {
        let shown = project.run(&["audit", "show", "--json"]).out;
        let lines = shown.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
        lines.map(|line| json!([line["kind"], line["event"], line["decision"], line["hook"]])).collect()
    };
    let (by_client, by_hand) = (shell_guard("claude_code"), shell_guard("claude_code"));
    assert_eq!(answers(&by_client, "claude-code", &bash("rm x")).code, 2);
    let payload = json!({"id": "toolu_01ABC123", "name": "claude_code.Bash", "args": {"command": "rm x"}});
    assert_eq!(by_hand.fire("tool.pre", &payload).code, 3);
    assert!(!kinds(&by_hand).is_empty());
    assert_eq!(kinds(&by_client), kinds(&by_hand));
}

/// The page on clients.
const PAGE: &str = include_str!("../../docs/clients.md");

/// A block of the page, by the heading above it and its language.
fn shown(heading: &str, language: &str) -> &'static str {
    let section = PAGE.split(&format!("## {heading}\n")).nth(1).unwrap().split("\n## ").next().unwrap();
    section.split(&format!("```{language}\n")).nth(1).unwrap().split("```").next().unwrap()
}

/// The command of each event in the settings that the page shows, which are all the same.
fn command_of(settings: &Json, events: &[&str]) -> String {
    let hooks = settings["hooks"].as_object().unwrap();
    assert_eq!(hooks.keys().collect::<Vec<_>>(), events);
    let mut commands: Vec<&str> = Vec::new();
    for groups in hooks.values() {
        let hook = &groups[0]["hooks"][0];
        assert_eq!((&hook["type"], &hook["timeout"]), (&json!("command"), &json!(60)));
        commands.push(hook["command"].as_str().unwrap());
    }
    commands.dedup();
    assert_eq!(commands.len(), 1, "{commands:?}");
    commands[0].to_owned()
}

/// Runs the line as the client does, in another folder than the project's.
fn as_client(line: &str, path: &str, project: &Project, payload: &Json) -> Ran {
    let elsewhere = tempfile::tempdir().unwrap();
    let input = elsewhere.path().join("payload");
    std::fs::write(&input, payload.to_string()).unwrap();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]).current_dir(elsewhere.path()).env("PATH", path);
    command.env("CLAUDE_PROJECT_DIR", project.root()).stdin(std::fs::File::open(&input).unwrap());
    project.ran(&command.output().unwrap())
}

/// The settings on the page block what a hook blocks, and also where the program is missing or is killed.
#[test]
fn settings_of_the_page_work() {
    let folder = std::path::Path::new(HARNESS).parent().unwrap().to_str().unwrap();
    let path = format!("{folder}:/usr/bin:/bin");
    let events =
        ["PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop", "SubagentStop", "SessionStart", "SessionEnd"];
    let claude: Json = serde_json::from_str(shown("Claude Code", "json")).unwrap();
    let line = command_of(&claude, &[&events[..2], &["PostToolUseFailure"], &events[2..]].concat());
    for (client, line) in
        [("claude_code", line), ("codex", command_of(&serde_json::from_str(shown("Codex", "json")).unwrap(), &events))]
    {
        let project = shell_guard(client);
        let line = line.replace("/path/to/project", project.root().to_str().unwrap());
        let blocked = as_client(&line, &path, &project, &bash("rm x"));
        let wanted = deny("blocked by hook \"guard\": no rm");
        assert_eq!((blocked.code, &blocked.out), (2, &wanted.out), "{blocked}");
        assert!(blocked.err.starts_with(&wanted.err), "{blocked}");
        let allowed = as_client(&line, &path, &project, &bash("ls"));
        assert_eq!((allowed.code, allowed.out.as_str()), (0, ""), "{allowed}");
        // The program is not there, and is killed for its memory: clients would let both pass.
        for line in [line.replace("harness fire", "harness-is-missing fire"), format!("ulimit -v 4000; {line}")] {
            let ran = as_client(&line, &path, &project, &bash("ls"));
            assert!(ran.code == 2 && ran.out.is_empty() && !ran.err.is_empty(), "{line}: {ran}");
        }
    }
}

/// The hook of the page guards the files that decide.
#[test]
fn the_hook_of_the_page_guards_the_settings() {
    let text = shown("Guard the settings", "markdown");
    let project = Project::new().file(".harness/hooks/guard_settings.md", text);
    let validated = project.run(&["validate", "--strict"]);
    assert_eq!((validated.code, validated.err.as_str()), (0, ""), "{validated}");
    let tests = project.run(&["test"]);
    assert_eq!(tests.code, 0, "{tests}");
    let edit = |path: &str| {
        let input = json!({"file_path": path, "old_string": "original text", "new_string": "replacement text"});
        claude("PreToolUse", &json!({"tool_name": "Edit", "tool_input": input, "tool_use_id": "toolu_01"}))
    };
    let denied = answers(&project, "claude-code", &edit("/home/user/my-project/.harness/hooks/guard.md"));
    assert_eq!(denied.code, 2, "{denied}");
    assert_eq!(answers(&project, "claude-code", &edit("/home/user/my-project/src/main.rs")), nothing());
}
