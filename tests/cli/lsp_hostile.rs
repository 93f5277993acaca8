//! `harness lsp` with clients and projects that mean no good: what it answers, and what it does not do.

use serde_json::{Value as Json, json};

use crate::editor::Editor;
use crate::project::Project;

const FILE: &str = ".harness/tools/a.md";
const TOOL: &str = "---\nscript: |\n  def run(args):\n      return 1\n---\nA.\n";

/// That the server still works.
fn works(editor: &mut Editor<'_>) {
    editor.open(FILE, &TOOL.replace("script", "scrip"));
    let found = editor.lines(FILE, 1);
    assert!(found.iter().any(|line| line.contains("unknown key `scrip`")), "{found:?}");
}

#[test]
fn requests_that_cannot_be_answered() {
    let project = Project::new().file(FILE, TOOL);
    let mut editor = Editor::unready(&project);
    let early = editor.request("textDocument/hover", json!({}));
    assert_eq!(early["error"], json!({"code": -32002, "message": "the first request must be `initialize`"}));
    assert!(editor.request("initialize", json!({"capabilities": {}}))["error"].is_null());
    for (method, params, code, message) in [
        ("initialize", json!({"capabilities": {}}), -32600, "the server is initialized already"),
        ("textDocument/rename", json!({}), -32601, "there is no method \"textDocument/rename\""),
        ("textDocument/hover", json!({"a": 1}), -32602, "`params`: missing field `textDocument`"),
        ("textDocument/hover", json!("x"), -32602, "`params`: invalid type: string \"x\", expected struct HoverParams"),
        ("workspace/executeCommand", json!({"command": "rm"}), -32602, "there is no command \"rm\""),
        (
            "workspace/executeCommand",
            json!({"command": "harness.runCases"}),
            -32602,
            "`params`: invalid length 0, expected a tuple of size 2",
        ),
        (
            "workspace/executeCommand",
            json!({"command": "harness.runCases", "arguments": ["file:///none/a.md", {"kind": "tool", "name": "a"}]}),
            -32602,
            "`file:///none/a.md` is in no project",
        ),
    ] {
        let answer = editor.request(method, params);
        assert_eq!(answer["error"], json!({"code": code, "message": message}), "{method}");
    }
    // A file that is not open, and a position that is not there.
    let position = json!({"line": u32::MAX, "character": u32::MAX});
    let unknown = json!({"textDocument": {"uri": editor.uri("none.md")}, "position": position});
    assert_eq!(editor.request("textDocument/completion", unknown)["result"], Json::Null);
    editor.open(FILE, TOOL);
    assert_eq!(editor.at("textDocument/hover", FILE, (u32::MAX, u32::MAX)), Json::Null);
    let negative = json!({"textDocument": {"uri": editor.uri(FILE)}, "position": {"line": -1, "character": 0}});
    assert_eq!(editor.request("textDocument/hover", negative)["error"]["code"], -32602);
    works(&mut editor);
    editor.quit();
}

#[test]
fn messages_that_are_none() {
    let project = Project::new().file(FILE, TOOL);
    let mut editor = Editor::new(&project);
    let mut body = |body: &str| {
        editor.send_bytes(format!("Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
        let answer = editor.read();
        (answer["id"].clone(), answer["error"]["code"].clone())
    };
    assert_eq!(body("{"), (Json::Null, json!(-32700)));
    assert_eq!(body(&"[".repeat(1_000_000)), (Json::Null, json!(-32700)));
    assert_eq!(body("[]"), (Json::Null, json!(-32600)));
    assert_eq!(body("{\"id\":3}"), (json!(3), json!(-32600)));
    assert_eq!(body("{\"id\":{},\"method\":\"shutdown\"}"), (Json::Null, json!(-32600)));
    assert_eq!(body(&" ".repeat((16 << 20) + 1)), (Json::Null, json!(-32600)));
    // Notifications have no answer, whatever is in them.
    editor.notify("textDocument/didChange", json!({"textDocument": 5}));
    editor.notify("textDocument/didSomething", json!([]));
    editor.notify("$/cancelRequest", json!({"id": 12345}));
    editor.notify("$/cancelRequest", json!({}));
    let logged = editor.hear("window/logMessage", |params| params["message"].as_str().unwrap().contains("no `id`"));
    assert_eq!(logged, json!({"type": 2, "message": "$/cancelRequest: `params` has no `id`"}));
    works(&mut editor);
    editor.quit();
}

#[test]
fn input_that_cannot_be_followed_ends_the_server() {
    let project = Project::new();
    for (bytes, why) in [
        (&b"Content-Length: many\r\n\r\n{}"[..], "`Content-Length` is \"many\", which is no number of bytes"),
        (b"{}\r\n\r\n", "\"{}\" is no header of a message"),
        (b"\r\n\r\n", "a message has no header `Content-Length`"),
    ] {
        let mut editor = Editor::new(&project);
        editor.send_bytes(bytes);
        let expected = format!("error: {why}\n\nhint: `harness lsp` is started by an editor: see docs/editors.md\n");
        assert_eq!(editor.ended(), (2, expected));
    }
    // An editor that goes away without a word.
    let editor = Editor::new(&project);
    assert_eq!(editor.gone(), (1, String::new()));
    let mut editor = Editor::new(&project);
    editor.notify("exit", Json::Null);
    assert_eq!(editor.ended(), (1, String::new()));
}

#[test]
fn documents_of_any_size() {
    let project = Project::new().file(FILE, TOOL);
    let mut editor = Editor::new(&project);
    let long = format!("{TOOL}{}", "x".repeat(1 << 20));
    editor.open(FILE, &long);
    assert_eq!(editor.problems(FILE, 1), json!([]));
    let uri = editor.uri(".harness/harness.md");
    let found = editor.hear("textDocument/publishDiagnostics", |params| params["uri"] == uri.as_str());
    assert_eq!(found["diagnostics"][0]["message"], format!("cannot read `{FILE}`: it has more than 1048576 bytes"));
    // Deeper than YAML of an artifact is: the positions are still followed.
    let deep = format!("---\n{}\n---\n", "- ".repeat(100_000));
    editor.change(FILE, 2, &deep);
    assert!(editor.problems(FILE, 2)[0]["message"].as_str().unwrap().contains("nested deeper than 32 levels"));
    assert_eq!(editor.at("textDocument/completion", FILE, (1, 200_000))["items"], json!([]));
    editor.change(FILE, 3, TOOL);
    assert_eq!(editor.problems(FILE, 3), json!([]));
    editor.quit();
}

#[test]
fn a_run_that_is_cancelled() {
    let slow = "---\nscript: |\n  def run(args):\n      n = 0\n      for i in range(2000000000):\n          n += i\n      return n\ntimeout_ms: 1000\ntests:\n  - name: slow\n    args: {}\n    expect: { result: 1 }\n---\nA.\n";
    let project = Project::new().file(FILE, slow);
    let mut editor = Editor::new(&project);
    let uri = editor.uri(FILE);
    let params = json!({"command": "harness.runCases", "arguments": [uri, {"kind": "tool", "name": "a"}]});
    let runs: Vec<i64> = (0..2).map(|_| editor.ask("workspace/executeCommand", params.clone())).collect();
    for run in runs {
        editor.notify("$/cancelRequest", json!({"id": run}));
        let answer = editor.answer(run);
        assert_eq!(answer["error"], json!({"code": -32800, "message": "the run was cancelled"}));
    }
    editor.open(FILE, slow);
    assert_eq!(editor.problems(FILE, 1), json!([]));
    editor.quit();
}

/// A project that is opened in an editor gets nothing, whatever it grants itself.
#[test]
fn projects_have_no_power() {
    let script = "---\nscript: |\n  def run(args):\n      fs.write(\"marker\", \"x\")\n      return 1\ntests:\n  - name: writes\n    args: {}\n    expect: { result: 1, files: { marker: x } }\n---\nA.\n";
    let project = Project::new()
        .policy("sandbox: { fs: { write: [\"**\"] }, exec: { allow: [sh, touch] } }\nnetwork: { allowed_domains: [example.com] }\n")
        .file(FILE, script);
    let mut editor = Editor::new(&project);
    editor.open(FILE, script);
    assert_eq!(editor.problems(FILE, 1), json!([]));
    let uri = editor.uri(FILE);
    let arguments = json!([uri, {"kind": "tool", "name": "a"}]);
    let ran =
        editor.request("workspace/executeCommand", json!({"command": "harness.runCases", "arguments": arguments}));
    assert_eq!(ran["result"]["passed"], true, "{ran}");
    let status = std::fs::read_to_string(format!("/proc/{}/status", editor.id())).unwrap();
    assert!(status.contains("Seccomp:\t2\n") && status.contains("NoNewPrivs:\t1\n"), "{status}");
    editor.quit();
    assert!(!project.path("marker").exists());
    let mut names: Vec<String> = std::fs::read_dir(project.root())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, [".harness"]);
    // A call does what a case only seems to do.
    assert_eq!(project.run(&["call", "a"]).code, 0);
    assert!(project.path("marker").exists());
}
