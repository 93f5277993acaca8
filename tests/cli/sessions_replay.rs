//! Recorded sessions that are run again.

use insta::assert_snapshot;
use serde_json::json;

use crate::agent_turns::agent;
use crate::project::Project;
use crate::services::{Answer, KEY, Service, WIRES};
use crate::sessions::{PATH, READ, example, files, last, lines, reads, shown};

fn same(project: &Project) {
    let ran = project.run(&["sessions", "replay"]);
    assert!(ran.code == 0 && ran.out.contains(": replay matches: "), "{ran}");
}

/// Files, time, chance, the cache and an event: all of it comes from the record.
#[test]
fn what_scripts_were_answered_is_answered_again() {
    let script = "def run(args):\n    cache.set('n', 7)\n    found = emit('custom.looked', {'n': 1})\n    \
                  return [fs.read('a.txt'), fs.exists('b.txt'), time.now(), random(), cache.get('n'), \
                  metrics.incr('n'), env('HARNESS_TEST_VARIABLE'), found]\n";
    let replies = "- tool_calls: [{ name: look }]\n- text: Done.\n";
    let project = agent("sandbox: { env: [HARNESS_TEST_VARIABLE] }\n", replies)
        .tool("look", "", script)
        .file("a.txt", "first\n")
        .with_handle("seen", "custom.looked", "", "return modify({'n': len(fs.read('a.txt'))})");
    project.run(&["run", "Look."]).says(0, "");
    same(&project);
    // What is in the files now, and whether there are any, does not matter: nobody looks.
    project.write("a.txt", "another text\n");
    project.write("b.txt", "");
    same(&project);
    std::fs::remove_file(project.path("a.txt")).unwrap();
    std::fs::remove_file(project.path("replies.yaml")).unwrap();
    let before = last(&project);
    same(&project);
    // Nor does it leave anything.
    assert_eq!((files(&project).len(), last(&project)), (1, before));
    let report = project.run(&["sessions", "replay", "--json"]).json();
    assert_eq!(
        (&report["same"], &report["compared"], &report["differences"], &report["artifacts"]),
        (
            &json!(true),
            &json!({"turns": 1, "calls": 1, "events": 0, "scripts": 2, "replies": 2}),
            &json!([]),
            &json!([])
        )
    );
}

/// A plugin's hook that sees digests sees the same ones again: their key is in the record, and a hook cannot read that.
#[test]
fn digests_of_what_a_hook_does_not_see_are_those_of_the_record() {
    let policy = "sandbox: { sources: { plugins/acme: { events: [{ event: tool.pre, shows: digests }] } } }\n";
    let replies = "- tool_calls: [{ name: look }]\n- text: Done.\n";
    let guard =
        "---\nevent: tool.pre\nscript: |\n  def handle(event, payload):\n      return block(payload['args'])\n---\n";
    let project = agent(policy, replies).tool("look", "", "def run(args):\n    return 1\n");
    let project = project.file(".harness/plugins/acme/hooks/guard.md", guard);
    project.run(&["run", "Look."]).says(0, "");
    let text = last(&project);
    assert!(text.contains("hmac-sha256:") && text.contains("\"digest_key\":\""), "{text}");
    same(&project);
}

#[test]
fn a_tool_that_has_changed_differs() {
    let project = reads();
    project.run(&["run", "What port?"]).says(0, "");
    same(&project);
    let project =
        project.tool("read_file", PATH, &READ.replace("fs.read(args['path'])", "fs.read(args['path']).upper()"));
    let ran = project.run(&["sessions", "replay"]);
    ran.says(1, "warning: `.harness/tools/read_file.md` was changed since");
    assert_snapshot!(digestless(&ran.out), @"
    SESSION: 4 differences in 1 turn, 3 requests, 2 calls, 0 events, 3 runs of scripts

    root, turn 1: call call_1 of read_file
      result: DIGEST
         now  DIGEST
      fuel of the tool: N
                   now  N
      fuel: N
       now  N

    root, turn 1: request 2
      messages: DIGEST
           now  DIGEST

    root, turn 1: request 3
      messages: DIGEST
           now  DIGEST

    scripts: tool in .harness/tools/read_file.md
      result: DIGEST
         now  DIGEST
      fuel: N
       now  N
      script: DIGEST
         now  DIGEST
    ");
    let report = project.run(&["sessions", "replay", "--json"]).json();
    assert_eq!(report["artifacts"], json!([{"file": ".harness/tools/read_file.md", "change": "changed"}]));
    assert_eq!(report["same"], json!(false));
    // One that asks for what it did not ask for then gets no answer, whatever is there.
    let project = project.tool("read_file", PATH, &READ.replace("args['path']", "'replies.yaml'"));
    let ran = project.run(&["sessions", "replay"]);
    assert!(ran.code == 1 && ran.out.contains("the recording has no answer of `fs.read` to this"), "{ran}");
    // A change that makes no difference is told, and is none.
    let project = project.tool("read_file", &format!("{PATH}timeout_ms: 5000\n"), READ);
    let ran = project.run(&["sessions", "replay"]);
    ran.says(0, "warning: `.harness/tools/read_file.md` was changed since");
}

fn digestless(text: &str) -> String {
    let text = shown(text);
    let mut parts = text.split("sha256:");
    let first = parts.next().unwrap().to_owned();
    let rest = parts.map(|part| format!("DIGEST{}", part.trim_start_matches(|c: char| c.is_ascii_hexdigit())));
    std::iter::once(first).chain(rest).collect()
}

#[test]
fn a_hook_that_has_changed_or_was_added_differs() {
    let project = reads();
    project.run(&["run", "What port?"]).says(0, "");
    let project = project.with_handle("more", "tool.post", "", "return block('never')");
    let ran = project.run(&["sessions", "replay"]);
    ran.says(1, "warning: `.harness/hooks/more.md` was added since");
    assert!(ran.out.contains("root, turn 1: call call_1 of read_file"), "{ran}");
    assert!(ran.out.contains("now  denied"), "{ran}");
}

/// Sub-agents, guards, a script that judges, and a file that is written: nothing is written again.
#[test]
fn the_example_agent_runs_again() {
    let project = example();
    project.run(&["run", "When?"]).says(0, "");
    let summary = project.path("notes/summary.md");
    assert_eq!(std::fs::read_to_string(&summary).unwrap(), "Launch on 12 May.\n");
    std::fs::remove_file(&summary).unwrap();
    same(&project);
    assert!(!summary.exists(), "a replay touches no file");
    // The judge is another one.
    let policy = std::fs::read_to_string(project.path(".harness/harness.md")).unwrap();
    project.write(".harness/harness.md", &policy.replace("\"notes/\" in result", "\"12\" in result"));
    let ran = project.run(&["sessions", "replay"]);
    ran.says(1, "`.harness/harness.md` was changed since");
    assert!(ran.out.contains("\nroot, turn 1: verdict on finder\n  refused: it does not name"), "{ran}");
    assert!(ran.out.contains("  step: delegation to finder, attempt 2\n   now  result of finder"), "{ran}");
}

/// Failures of a model, limits, refused arguments: an ending is an ending.
#[test]
fn sessions_that_failed_run_again() {
    let loops = "- tool_calls: [{ name: spin }]\n- tool_calls: [{ name: read_file, args: { path: 7 } }]\n\
                 - tool_calls: [{ name: none, args: {} }]\n- tool_calls: [{ name: read_file, args: { path: gone } }]\n\
                 - error: it is down\n";
    let spin = "def run(args):\n    for i in range(100000000):\n        pass\n";
    let project =
        agent("sandbox: { limits: { fuel: 20000000 } }\n", loops).tool("spin", "", spin).tool("read_file", PATH, READ);
    let ran = project.run(&["run", "Try."]);
    ran.says(5, "it is down");
    let text = last(&project);
    let outcomes: Vec<_> = lines(&text, "called").iter().map(|line| line["outcome"].clone()).collect();
    assert_eq!(outcomes, ["limited", "rejected", "rejected", "failed"]);
    same(&project);
}

/// A model that could not be had is not to be had again: the project's, that of a sub-agent, and one that a hook names.
#[test]
fn sessions_without_a_model_run_again() {
    let wrong = agent("", "- nothing: here\n");
    wrong.run(&["run", "Go."]).says(2, "replies.yaml:1:3");
    assert_eq!(lines(&last(&wrong), "unmade").len(), 1);
    same(&wrong);
    let models = "models: [{ name: other, provider: script, script: gone.yaml }]\n";
    let replies = "- tool_calls: [{ name: delegate, args: { agent: worker, task: Go. } }]\n- text: Done.\n";
    let below = agent(models, replies)
        .file(".harness/agents/worker.md", "---\ndescription: Works.\nmodel: other\n---\nYou work.\n");
    below.run(&["run", "Go."]).says(0, "");
    assert!(last(&below).contains("cannot read `gone.yaml`"), "{}", last(&below));
    same(&below);
    let change = "payload['model'] = 'other'\nreturn modify(payload)";
    let hooked = agent(models, "- text: Done.\n").with_handle("other", "completion.pre", "", change);
    hooked.run(&["run", "Go."]).says(2, "cannot read `gone.yaml`");
    same(&hooked);
}

/// With a real service, which is busy at first: it is recorded that it was asked again, and a replay asks nobody.
#[test]
fn a_session_with_a_service_runs_again_without_it() {
    for (wire, name) in WIRES {
        let mut busy = Answer::new("429 Too Many Requests", "application/json", "{\"error\": {\"message\": \"slow\"}}");
        busy.headers.push_str("retry-after: 0\r\n");
        let asks = wire.reply(true, "Let me see.", &[("read_file", json!({ "path": "config.yaml" }))]);
        let service = Service::new(vec![busy, asks, wire.reply(true, "It is 8080.", &[])]);
        let policy = format!(
            "---\nmodel:\n  name: m-1\n  provider: {name}\n  base_url: 'http://{}'\n  api_key_env: HARNESS_TEST_KEY\n  \
             tools: structured\n  retry: {{ max_retries: 1, initial_backoff_ms: 1 }}\n---\nYou help.\n",
            service.address
        );
        let project = Project::new()
            .file(".harness/harness.md", &policy)
            .tool("read_file", PATH, READ)
            .file("config.yaml", "port: 8080\n");
        let output = project.command(&["run", "What port?"]).env("HARNESS_TEST_KEY", KEY).output().unwrap();
        assert_eq!(output.stdout, b"It is 8080.\n", "{name}");
        let text = last(&project);
        assert_eq!((lines(&text, "retry").len(), lines(&text, "reply").len()), (1, 2), "{name}: {text}");
        assert!(lines(&text, "retry")[0]["error"].as_str().unwrap().contains("429"), "{name}: {text}");
        assert!(!text.contains(KEY), "{name}");
        let asked = service.chats().len();
        same(&project);
        assert_eq!(service.chats().len(), asked, "{name}");
        let shown = project.run(&["sessions", "show"]).out;
        assert!(shown.contains("asked again after"), "{name}: {shown}");
    }
}
