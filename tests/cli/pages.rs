//! The examples of the pages that the format of artifacts is from: a project writes their code as it is. Sentences that
//! tell something, to a model or a reader, are others.

use serde_json::{Value as Json, json};

use crate::hooks::{decisions, reason};
use crate::project::{Project, Ran};

/// The reference's tool.
const SHORT: &str = r#"---
parameters:
  command: { type: string, required: true }
  timeout_ms: { type: number, required: false }
script: |
  def run(args):
      return exec.run("bash", ["-lc", args["command"]], 15000)
timeout_ms: 30000
---
# run_command

Runs a line of bash.
"#;

/// The same as the page on concepts has it.
const FULL: &str = r#"---
parameters:
  command: { type: string, required: true }
  timeout_ms: { type: number, required: false }
script: |
  def run(args):
      command = args.get("command", "")
      timeout = args.get("timeout_ms", 15000)
      if not command:
          return {"error": "command is required"}
      result = exec.run("bash", ["-lc", command], timeout)
      return {
          "stdout": string.truncate(result.get("stdout", ""), 4000),
          "stderr": string.truncate(result.get("stderr", ""), 2000),
          "exit_code": result.get("exit_code", 0),
      }
---

# run_command

Runs a line of bash.
"#;

const GUARD: &str = r#"---
event: tool.pre
priority: 10
when: payload["name"] == "run_command"
script: |
  def handle(event, payload):
      cmd = payload.get("args", {}).get("command", "")
      if "rm -rf /" in cmd:
          return block("dangerous command pattern blocked")
      return allow()
---
# command_guard

Stops what would remove everything.
"#;

const RESEARCHER: &str = r#"---
model: gpt-4o-mini
description: Looks things up.

tools:
  - name: fetch_url
    parameters:
      url: { type: string, required: true }
    script: |
      def run(args):
          return http.get(args["url"], {}, 30)
  - search_text      # ← .harness/tools/

hooks:
  - researcher_guard # ← .harness/hooks/
---

# Researcher

Find out what was asked.
"#;

const PARAMETERS: &str = "parameters:
  path:
    type: string
    description: A path.
    required: true
  encoding:
    type: string
    description: An encoding.
    required: false
  max_bytes:
    type: number
    required: false
";

/// All of them in one project. What the agent refers to, the pages do not show.
fn pages(tool: &str) -> Project {
    Project::new()
        .file(".harness/tools/run_command.md", tool)
        .tool("read_part", PARAMETERS, "def run(args):\n    return args\n")
        .tool("search_text", "", "def run(args):\n    # ...\n    return {\"ok\": True}\n")
        .file(".harness/hooks/command_guard.md", GUARD)
        .with_handle(
            "researcher_guard",
            "tool.pre",
            "when: payload[\"name\"] == \"fetch_url\"\n",
            "return {\"action\": \"block\", \"reason\": \"path traversal not allowed\"}",
        )
        .file(".harness/agents/researcher.md", RESEARCHER)
}

fn run_command(project: &Project, command: &str) -> Ran {
    project.call_with("run_command", &json!({"command": command}))
}

#[test]
fn the_pages_are_read_without_an_error_or_a_warning() {
    for tool in [SHORT, FULL] {
        pages(tool).run(&["validate"]).gives(
            "tools: read_part, run_command, search_text\nhooks: command_guard, researcher_guard\nagents: researcher\nvalid: 3 tools, 2 hooks, 1 agent; 0 errors, 0 warnings",
        );
    }
    // A policy that is meant to last wants cases of a guard.
    let strict = pages(FULL).run(&["validate", "--strict"]);
    strict.says(2, "warning: hook \"command_guard\" has neither a case that it blocks nor one that it allows\n");
    assert_eq!(strict.err.matches("warning: ").count(), 2, "{strict}");
}

#[test]
fn a_command_is_denied_until_the_line_that_is_told_is_added() {
    for tool in [SHORT, FULL] {
        let project = pages(tool);
        let denied = project.run(&["call", "run_command", "command=echo hi"]);
        denied.says(3, "error: tool `run_command` was denied: exec.run: the command `bash -lc echo hi` is not allowed");
        denied.says(3, "= hint: add `bash -lc \"echo hi\"` to `sandbox.exec.allow` in `.harness/harness.md`");
        let project = project.policy("sandbox:\n  exec:\n    allow:\n      - bash -lc \"echo hi\"\n");
        let ran = run_command(&project, "echo hi");
        let result = &ran.json()["result"];
        assert_eq!((ran.code, &result["stdout"], &result["exit_code"]), (0, &json!("hi\n"), &json!(0)), "{ran}");
        // And nothing else.
        run_command(&project, "echo ho").says(3, "");
    }
}

#[test]
fn a_granted_command_gives_its_output_and_its_exit_code() {
    let granted = "sandbox: { exec: { allow: [\"bash -lc *\"] } }\n";
    for tool in [SHORT, FULL] {
        let project = pages(tool).policy(granted);
        let ran = run_command(&project, "echo out; echo err >&2; exit 3");
        let result = &ran.json()["result"];
        assert_eq!((ran.code, &result["stdout"], &result["exit_code"]), (0, &json!("out\n"), &json!(3)), "{ran}");
        // What the machine's own profile says may come before it.
        assert!(result["stderr"].as_str().unwrap().ends_with("err\n") || tool == FULL, "{ran}");
        let keys: Vec<&String> = result.as_object().unwrap().keys().collect();
        assert_eq!(tool == FULL, keys == ["stdout", "stderr", "exit_code"], "{ran}");
    }
    let long = pages(FULL).policy(granted).call_with("run_command", &json!({"command": "printf '%05000d' 1"}));
    assert_eq!(long.json()["result"]["stdout"].as_str().map(|text| text.chars().count()), Some(4000), "{long}");
    let slow = pages(FULL).policy(granted).call_with("run_command", &json!({"command": "sleep 60", "timeout_ms": 50}));
    assert_eq!(slow.json()["result"]["exit_code"], json!(-1), "{slow}");
}

#[test]
fn a_command_is_required() {
    pages(FULL).run(&["call", "run_command", "command="]).gives(r#"{"error":"command is required"}"#);
    for tool in [SHORT, FULL] {
        pages(tool).run(&["call", "run_command"]).says(2, "the argument `command` (string) is missing");
    }
}

/// No policy here grants a command: what the guard let pass by mistake would still not run.
#[test]
fn the_guard_blocks_what_is_dangerous() {
    for tool in [SHORT, FULL] {
        let project = pages(tool).policy("sandbox: { exec: { allow: [\"bash -lc \\\"echo hi\\\"\"] } }\n");
        for command in ["rm -rf /", "cd / && rm -rf /home"] {
            let ran = run_command(&project, command);
            let report = ran.json();
            assert_eq!((ran.code, decisions(&ran)[1].as_str()), (3, "command_guard block"), "{ran}");
            assert_eq!(
                report["error"]["message"],
                "blocked by hook \"command_guard\": dangerous command pattern blocked"
            );
        }
        project
            .run(&["call", "run_command", "command=rm -rf /"])
            .says(3, "error: tool `run_command` was denied: blocked by hook \"command_guard\": dangerous command pattern blocked");
        let ran = run_command(&project, "echo hi");
        assert_eq!(
            (ran.code, decisions(&ran)),
            (0, vec!["researcher_guard skip".to_owned(), "command_guard allow".to_owned()])
        );
    }
    // It looks at that tool alone.
    let ran = pages(SHORT).fire("tool.pre", &json!({"name": "search_text", "args": {"command": "rm -rf /"}}));
    assert_eq!((ran.code, decisions(&ran)[1].as_str()), (0, "command_guard skip"), "{ran}");
}

#[test]
fn the_parameters_are_what_a_model_is_told() {
    let project = pages(SHORT);
    let tools = project.run(&["tools", "--json"]).json();
    let told = tools.as_array().unwrap().iter().find(|tool| tool["name"] == "read_part").unwrap();
    // In this order.
    assert_eq!(
        told["parameters"].to_string(),
        r#"{"type":"object","properties":{"path":{"type":"string","description":"A path."},"encoding":{"type":"string","description":"An encoding."},"max_bytes":{"type":"number"}},"required":["path"]}"#
    );
    project.run(&["call", "read_part", "path=a", "max_bytes=5"]).gives(r#"{"path":"a","max_bytes":5}"#);
    project.run(&["call", "read_part", "max_bytes=5"]).says(2, "the argument `path` (string) is missing");
    project.call_with("read_part", &json!({"path": "a", "max_bytes": "5"})).says(2, "`max_bytes`");
}

/// Each as a line of the page, with payloads that it is for and that it is not for.
#[test]
fn the_examples_of_when_match_what_they_say() {
    let of = |name: &str| json!({"name": name});
    let post = |is_error: bool, content: String| json!({"name": "x", "is_error": is_error, "content": content});
    let cases: [(&str, &str, Vec<Json>, Vec<Json>); 4] = [
        ("tool.pre", r#"when: payload["name"] == "run_command""#, vec![of("run_command")], vec![of("run"), of("")]),
        (
            "tool.pre",
            r#"when: payload["name"] in ["read_file", "write_file", "edit_file"]"#,
            vec![of("read_file"), of("write_file"), of("edit_file")],
            vec![of("run_command"), of("file")],
        ),
        (
            "tool.post",
            r#"when: payload["is_error"] == True"#,
            vec![post(true, String::new())],
            vec![post(false, String::new())],
        ),
        (
            "tool.post",
            r#"when: len(payload.get("content", "")) > 4000"#,
            vec![post(false, "x".repeat(4001))],
            vec![post(false, "x".repeat(4000)), of("x")],
        ),
    ];
    for (event, when, fits, not) in cases {
        let project = Project::new().with_handle("it", event, &format!("{when}\n"), "return allow()");
        project.run(&["validate"]).gives("hooks: it\nvalid: 0 tools, 1 hook, 0 agents; 0 errors, 0 warnings");
        for (payloads, wanted) in [(fits, "it allow"), (not, "it skip")] {
            for payload in payloads {
                let ran = project.fire(event, &payload);
                assert_eq!((ran.code, decisions(&ran)), (0, vec![wanted.to_owned()]), "{when}: {ran}");
                assert_eq!(ran.json()["hooks"][0]["warnings"], json!([]), "{when}");
            }
        }
    }
}

#[test]
fn a_decision_can_be_a_dict() {
    let ran = pages(SHORT).fire("tool.pre", &json!({"name": "fetch_url", "args": {"url": "file:///etc/passwd"}}));
    assert_eq!(reason(&ran), "path traversal not allowed");
    assert_eq!(ran.json()["hook"], "researcher_guard");
}

#[test]
fn the_agent_has_a_tool_of_its_own_and_those_it_refers_to() {
    let project = pages(SHORT);
    let wanted = json!([{
        "name": "researcher",
        "description": "Looks things up.",
        "model": "gpt-4o-mini",
        "tools": ["fetch_url (its own)", "search_text"],
        "hooks": ["researcher_guard"],
        "file": ".harness/agents/researcher.md",
        "line": 1,
        "source": "agents/researcher",
    }]);
    assert_eq!(project.run(&["agents", "--json"]).json(), wanted);
    // Its own is nobody else's.
    project.run(&["call", "fetch_url", "url=https://example.com/"]).says(2, "`fetch_url`");
    project.run(&["call", "search_text"]).gives(r#"{"ok":true}"#);
    // Without what it refers to, it is reported where.
    for (folder, kind, name) in [("tools", "tool", "search_text"), ("hooks", "hook", "researcher_guard")] {
        let project = pages(SHORT);
        std::fs::remove_file(project.path(&format!(".harness/{folder}/{name}.md"))).unwrap();
        let ran = project.run(&["validate"]);
        ran.says(2, &format!("agent \"researcher\" refers to the {kind} \"{name}\", which no artifact defines"));
        ran.says(2, "--> .harness/agents/researcher.md:1");
    }
}
