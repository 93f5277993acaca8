//! Tools of servers without their servers: fakes in cases of tests, and replays of sessions. And who calls them: scripts,
//! sub-agents.

use serde_json::{Value as Json, json};

use crate::project::Project;

/// A server that leaves a line in `out/started` when it begins, and one in `out/called` for each call.
const SERVER: &str = r#"cd "$HARNESS_WORKSPACE" || exit 1
echo x >>out/started
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
while IFS= read -r line; do
  id=${line#*'"id":'}
  id=${id%%,*}
  case $line in
    *server/discover*) answer '{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}' ;;
    *tools/list*) answer '{"tools":[{"name":"port","description":"Says a port.","inputSchema":{"type":"object","properties":{"of":{"type":"string"}}}}]}' ;;
    *'"of":"none"'*) echo x >>out/called; answer '{"isError":true,"content":[{"type":"text","text":"there is none"}]}' ;;
    *tools/call*) echo x >>out/called; answer '{"content":[{"type":"text","text":"8080"}],"structuredContent":{"port":8080}}' ;;
  esac
done
"#;

fn project(policy: &str, replies: &Json) -> Project {
    let project = Project::new().file("docs/server.sh", SERVER).file("out/kept", "");
    let command = json!(["sh", project.root().canonicalize().unwrap().join("docs/server.sh")]);
    let files = "fs: { read: [docs, out], write: [out] }";
    let server = format!("mcp:\n  servers:\n    s: {{ command: {command}, {files} }}\n");
    let model = "model: { provider: script, script: replies.yaml }\n";
    let project = project.policy(&format!("{model}{policy}{server}")).file("replies.yaml", &replies.to_string());
    project.file(
        ".harness/tools/ask.md",
        "---\nscript: |\n  def run(args):\n      return [meta.call_tool('s_port', {'of': 'a'}), meta.call_tool('s_port', {'of': 'none'})]\n\
         tests:\n\
         - name: gives what the case gives\n  \
           given:\n    mcp:\n    - { tool: s_port, args: { of: a }, text: \"7\", structured: { port: 7 } }\n    - { tool: s_port, text: no, is_error: true }\n  \
           expect: { result: [\"7\", \"error: no\"] }\n\
         - name: gives nothing that the case does not give\n  \
           given: { mcp: [{ tool: s_port, args: { of: b }, text: \"7\" }] }\n  \
           contains: { result: [\"error: the case gives no result of `s_port` with these arguments in `given.mcp`\"] }\n\
         ---\n# ask\n\nAsks.\n",
    )
}

fn locked(policy: &str, replies: &Json) -> Project {
    let project = project(policy, replies);
    let ran = project.run(&["lock"]);
    assert_eq!(ran.code, 0, "{ran}");
    project
}

const META: &str = "meta: { enabled: true }\n";

/// How often the server has begun, and how often it was called.
fn counts(project: &Project) -> (usize, usize) {
    let lines = |name: &str| std::fs::read_to_string(project.path(name)).unwrap_or_default().lines().count();
    (lines("out/started"), lines("out/called"))
}

#[test]
fn a_case_gives_results_of_servers_and_none_is_started() {
    let project = locked(META, &json!([]));
    let before = counts(&project);
    let ran = project.run(&["test", "ask"]);
    assert_eq!(ran.code, 0, "{ran}");
    assert_eq!(counts(&project), before);
    // The control: the real one.
    let ran = project.run(&["call", "ask"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "[\"8080\",\"error: there is none\"]\n"), "{ran}");
    assert_eq!(counts(&project), (before.0 + 1, 2));
}

#[test]
fn a_misspelled_key_of_a_result_is_an_error() {
    let project = project(META, &json!([]));
    let path = ".harness/tools/ask.md";
    let text = std::fs::read_to_string(project.path(path)).unwrap();
    project.write(path, &text.replacen("structured:", "structure:", 1));
    let ran = project.run(&["validate"]);
    assert!(ran.code != 0 && format!("{ran}").contains("structure"), "{ran}");
}

/// A recorded result is used, whatever calls the tool, and no server is started.
#[test]
fn a_replay_starts_no_server() {
    let helper = "---\ndescription: Helps.\ntools: [s_port]\n---\n\n# Helper\n\nYou help.\n";
    let replies = json!([
        {"tool_calls": [{"name": "s_port", "args": {"of": "a"}}, {"name": "s_port", "args": {"of": "none"}}, {"name": "ask"}]},
        {"tool_calls": [{"name": "delegate", "args": {"agent": "helper", "task": "Ask."}}]},
        {"agent": "helper", "tool_calls": [{"name": "s_port", "args": {"of": "b"}}]},
        {"agent": "helper", "expect": "8080", "text": "It is 8080."},
        {"text": "Done."},
    ]);
    let project = locked(META, &replies).file(".harness/agents/helper.md", helper);
    assert_eq!(project.run(&["lock"]).code, 0);
    let ran = project.run(&["run", "Ask."]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "Done.\n"), "{ran}");
    let before = counts(&project);
    assert_eq!(before.1, 5);
    // The server does something else now, and is not asked.
    project.write("docs/server.sh", "exit 9\n");
    let ran = project.run(&["sessions", "replay"]);
    assert!(ran.code == 0 && ran.out.contains(": replay matches: "), "{ran}");
    assert_eq!(counts(&project), before);
}
