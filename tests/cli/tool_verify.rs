//! Tools that judge what they did: `verify`.

use serde_json::{Value as Json, json};

use crate::agent_turns::{agent, spied, told};
use crate::project::Project;

/// A tool that says that it has written a file, and may not have.
const CLAIMS: &str = "def run(args):\n    if args.get('write'):\n        fs.write(args['path'], 'text')\n    return {'path': args['path']}\n";

fn verified(body: &str) -> Project {
    verified_by("", CLAIMS, body)
}

/// A tool whose `verify` has this body, before its script.
fn verified_by(front: &str, script: &str, body: &str) -> Project {
    let body: String = body.lines().map(|line| format!("      {line}\n")).collect();
    Project::new().tool("it", &format!("{front}verify: |\n  def run(result):\n{body}"), script)
}

const THERE: &str = "if fs.exists(result['args']['path']):\n    return True\n\
                     return {'verified': False, 'reason': 'there is no ' + result['result']['path']}";

#[test]
fn a_call_that_is_not_accepted_has_failed() {
    let project = verified(THERE);
    project.run(&["call", "it", "--args", "{\"path\": \"a\", \"write\": true}"]).gives("{\"path\":\"a\"}");
    project.run(&["call", "it", "path=b"]).says(1, "not verified: there is no b");
    let report = project.run(&["call", "it", "path=b", "--json"]).json();
    assert_eq!(
        json!([report["outcome"], report["is_error"], report["error"]["message"]]),
        json!(["failed", true, "not verified: there is no b"])
    );
    assert_eq!(report["verify"]["accepted"], json!(false));
    // A tool that has failed by itself is not judged.
    let failing = verified_by("", "def run(args):\n    fail('broken')\n", "log('judged')\nreturn True");
    let ran = failing.run(&["call", "it"]);
    assert!(ran.code == 1 && ran.err.contains("broken") && !ran.err.contains("judged"), "{ran}");
}

/// The form of the tools that other hosts have: one dict of the calls and what they gave, and JSON text for an answer.
#[test]
fn an_unmodified_verifier_reads_the_calls() {
    let body = "calls = result.get('tool_calls', [])\n\
                if len(calls) == 0:\n    return json.encode({'verified': False, 'reason': 'missing tool_calls'})\n\
                args = json.decode(calls[0].get('arguments', '{}'))\n\
                if result['tool_results'][0]['content'] != result['response']:\n    return False\n\
                return json.encode({'verified': args.get('path') == 'a', 'reason': calls[0]['name'] + ' of ' + args['path']})";
    verified(body).run(&["call", "it", "path=a"]).gives("{\"path\":\"a\"}");
    verified(body).run(&["call", "it", "path=b"]).says(1, "not verified: it of b");
    for (body, said) in [
        ("return False", "not verified: the verifier returned False"),
        ("return 7", "verify: its result must be True, False or a dict with `verified`"),
        ("fail('broken')", " --> .harness/tools/it.md:4:7"),
        ("fs.read('../x')", "verify: "),
        ("for i in range(1000000000):\n    pass", "over the limit `fuel`"),
    ] {
        let ran = verified(body).run(&["call", "it", "path=a"]);
        assert!(ran.code != 0 && ran.err.contains(said), "{body}: {ran}");
    }
}

/// It is the tool's: its grant, its time and fuel, its hooks; and it is loaded before anything is done.
#[test]
fn it_has_what_its_tool_has() {
    let narrow = "capabilities: { fs: { read: [a] } }\n";
    let ran = verified_by(narrow, "def run(args):\n    return 1\n", "return fs.read('b') == ''").run(&["call", "it"]);
    assert!(ran.code == 3 && ran.err.contains("verify: "), "{ran}");
    // A guard of built-ins guards both scripts.
    let reads = verified("return fs.read('a') == 'text'").file("a", "text");
    reads.run(&["call", "it", "path=a"]).gives("{\"path\":\"a\"}");
    let when = "when: payload['function'] == 'fs.read'\n";
    let project = reads.with_handle("guard", "builtin.pre", when, "return block('not that')");
    project.run(&["call", "it", "path=a"]).says(3, "verify: ");
    // Together they have no more than one call has.
    let spends = "def run(args):\n    for i in range(60000):\n        pass\n    return 1\n";
    let again = "for i in range(60000):\n    pass\nreturn True";
    let alone = Project::with_script(spends).run(&["call", "it", "--json"]).json();
    let fuel = alone["usage"]["fuel"].as_u64().unwrap();
    let most = |fuel: u64| format!("sandbox: {{ limits: {{ fuel: {fuel} }} }}\n");
    verified_by("", spends, again).policy(&most(fuel * 3)).run(&["call", "it"]).gives("1");
    let ran = verified_by("", spends, again).policy(&most(fuel * 3 / 2)).run(&["call", "it"]);
    assert!(ran.code == 4 && ran.err.contains("over the limit `fuel`"), "{ran}");
    // What cannot judge is found before the tool is run, and by `validate`.
    let project = verified("return (").file("a", "").tool("other", "", "def run(args):\n    return 1\n");
    project.run(&["call", "it", "--args", "{\"path\": \"b\", \"write\": true}"]).says(2, ".harness/tools/it.md:");
    assert!(!project.path("b").exists());
    project.run(&["validate"]).says(2, ".harness/tools/it.md:");
    verified("return fs.raed('a')").run(&["validate"]).says(2, "there is no built-in `fs.raed`");
    let policy = "verify_policy: { max_retries: 3 }\n";
    verified_by(policy, CLAIMS, "return True").run(&["validate"]).says(0, "a call is verified once");
}

#[test]
fn a_judgement_is_shown_and_recorded() {
    let project = verified(THERE);
    let ran = project.run(&["call", "it", "path=b", "--explain"]);
    assert!(ran.err.contains("verify: rejected: tool error: not verified: there is no b; fuel "), "{ran}");
    assert!(ran.err.contains("  fs.exists b: fuel ") && ran.err.contains("together: fuel "), "{ran}");
    project.run(&["call", "it", "--args", "{\"path\": \"a\", \"write\": true}"]).says(0, "");
    let entries = project.run(&["audit", "show", "--json"]).out;
    let entries: Vec<Json> = entries.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let verdicts: Vec<&Json> = entries.iter().map(|entry| &entry["verify"]["verdict"]).collect();
    assert_eq!(verdicts, ["refused", "accepted"]);
    assert!(entries.iter().all(|entry| entry["verify"]["usage"]["fuel"].as_u64() > Some(0)), "{entries:?}");
    // Arguments and results are in no entry, nor what a judge says of them.
    assert!(entries.iter().all(|entry| !entry.to_string().contains("there is no b")), "{entries:?}");
    let shown = project.run(&["inspect", "it"]).out;
    assert!(shown.contains("  verify: a script checks each result\n"), "{shown}");
    assert_eq!(project.run(&["inspect", "it", "--json"]).json()["tools"][0]["verify"], json!(true));
    // The lock holds the script that judges as it does the one that is judged.
    project.run(&["lock"]).says(0, "");
    let weaker = verified("return True");
    let text = std::fs::read_to_string(weaker.path(".harness/tools/it.md")).unwrap();
    project.write(".harness/tools/it.md", &text);
    project.run(&["call", "it", "path=b"]).says(2, "its script changed");
}

/// A model gets the reason, hooks on `tool.post` see a failed call, and a session with it can be run again.
#[test]
fn a_model_learns_what_was_not_accepted() {
    let replies = "- tool_calls: [{ name: it, args: { path: b } }]\n- text: Sorry.\n";
    let project = spied(agent("", replies), &["tool.post", "completion.pre"]);
    let body: String = THERE.lines().map(|line| format!("      {line}\n")).collect();
    let project = project.tool("it", &format!("verify: |\n  def run(result):\n{body}"), CLAIMS);
    let ran = project.run(&["run", "Go."]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "Sorry.\n"), "{ran}");
    let post = &told(&ran, "tool.post")[0];
    let said = "tool error: not verified: there is no b";
    assert_eq!(json!([post["content"], post["is_error"]]), json!([said, true]));
    let asked = told(&ran, "completion.pre");
    assert_eq!(asked[1]["messages"].as_array().unwrap().last().unwrap()["content"], json!(said));
    let again = project.run(&["sessions", "replay"]);
    assert!(again.code == 0 && again.out.contains(": replay matches: "), "{again}");
    let page = project.run(&["sessions", "show"]).out;
    assert!(page.contains("verify not accepted: "), "{page}");
}

/// A hook on `artifact.load` sees that script too.
#[test]
fn a_script_that_judges_is_looked_at_before_it_is_loaded() {
    let refuses = "return block('it reaches the web') if 'http.' in payload['script'] else allow()";
    let project =
        verified("return http.get('https://a.example')['ok']").with_handle("gate", "artifact.load", "", refuses);
    project.run(&["call", "it", "path=a"]).says(2, "there is no tool `it`");
    let listed = project.run(&["tools"]);
    let gate =
        "it  .harness/tools/it.md:1:1\n    rejected by hook `gate`: blocked by hook \"gate\": it reaches the web\n";
    assert_eq!(listed.out, gate, "{listed}");
    let as_json = project.run(&["tools", "--json"]).json();
    let refused = json!({"by": "gate", "reason": "blocked by hook \"gate\": it reaches the web"});
    assert_eq!(as_json, json!([{"name": "it", "refused": refused}]));
    // Who opens the project to call something leaves it in the audit log.
    let entries = project.run(&["audit", "show", "--json"]).out;
    let loads: Vec<Json> = entries
        .lines()
        .map(|line| serde_json::from_str::<Json>(line).unwrap())
        .filter(|entry| entry["event"] == "artifact.load")
        .collect();
    assert_eq!(loads.len(), 1, "{entries}");
    let load = &loads[0];
    assert_eq!(
        json!([
            load["outcome"],
            load["artifact"],
            load["file"],
            load["hooks"][0]["hook"],
            load["hooks"][0]["verdict"],
            load["hooks"][0]["reason"]
        ]),
        json!(["denied", "tool it", ".harness/tools/it.md:1:1", "gate", "block", "it reaches the web"])
    );
    let shown = project.run(&["audit", "show"]).out;
    assert!(shown.contains("event artifact.load of tool it: denied"), "{shown}");
    project.run(&["audit", "verify"]).says(0, "");
}
