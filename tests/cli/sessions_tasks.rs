//! What is not waited for and what a person is asked, in records of sessions: told, shown, and the same when it is run
//! again, whoever was faster; and what somebody stopped waiting for.

use insta::assert_snapshot;
use serde_json::{Value as Json, json};

use crate::agent_turns::agent;
use crate::project::Project;
use crate::pty::Person;
use crate::sessions::{PATH, READ, last, lines, shown};

const ON: &str = "sandbox: { async_tools: true }\nmeta: { enabled: true }\n";
/// Goes on until `go` was called.
const SLOW: &str = "def run(args):\n    for i in range(4000):\n        if cache.has('go'):\n            cache.delete('go')\n            return {'i': 'slow'}\n        sleep(5)\n";
const GO: &str = "def run(args):\n    cache.set('go', True)\n";
const WORKER: &str = "---\ndescription: Works.\n---\nYou work.\n";
/// Begins two, of which the second ends first, and looks at the first before it ends.
const ASKS: &str = "def run(args):\n    slow = json.decode(meta.call_tool('slow', {}))['task_id']\n    quick = json.decode(meta.call_tool('quick', {}))['task_id']\n    first = task.await(quick)['result']\n    before = [task.poll(slow)['status'], task.await(slow, timeout_ms = 1)['status']]\n    cache.set('go', True)\n    both = task.await([slow, quick])\n    return [first, before, [one['status'] for one in both], time.now() > 0]\n";

/// Two tasks that a script waits for, one that the model waits for, and two agents that work while it does.
fn tasks() -> Project {
    let replies = "- tool_calls: [{ name: asks }]\n\
                   - tool_calls: [{ name: slow }, { name: delegate_async, args: { agent: worker, task: Look. } }, { name: delegate_async, args: { agent: worker, task: Look. } }, { name: go }]\n\
                   - tool_calls: [{ name: task_await }]\n- tool_calls: [{ name: delegate_await }]\n- text: Done.\n\
                   - { agent: worker, tool_calls: [{ name: count }] }\n- { agent: worker, tool_calls: [{ name: count }] }\n\
                   - { agent: worker, text: One. }\n- { agent: worker, text: Two. }\n";
    let quick = "def run(args):\n    log.info('quickly')\n    return 'quick'\n";
    agent(ON, replies)
        .tool("slow", "async: true\n", SLOW)
        .tool("quick", "async: true\n", quick)
        .tool("asks", "", ASKS)
        .tool("go", "", GO)
        .tool("count", "", "def run(args):\n    return metrics.incr('n')\n")
        .file(".harness/agents/worker.md", WORKER)
        .with_handle("guard", "tool.post", "", "log.info(payload['call_id'])\nreturn allow()")
        .with_handle("judges", "delegation.post", "", "return allow()")
}

fn same(project: &Project) {
    let ran = project.run(&["sessions", "replay"]);
    assert!(ran.code == 0 && ran.out.contains(": the same: "), "{ran}\n{}", last(project));
}

/// The tools and states of tasks, as the record has them.
fn states(record: &str) -> Vec<(String, String)> {
    let text = |line: &Json, key: &str| line[key].as_str().unwrap().to_owned();
    lines(record, "task").iter().map(|line| (text(line, "tool"), text(line, "state"))).collect()
}

/// The result that the last message of the model's tools has.
fn told(record: &str, at: usize) -> Json {
    let said = lines(record, "said");
    let tools: Vec<&Json> = said.iter().filter(|line| line["message"]["role"] == "tool").collect();
    serde_json::from_str(tools[at]["message"]["content"].as_str().unwrap()).unwrap()
}

#[test]
fn tasks_are_run_again_whoever_is_faster() {
    let project = tasks();
    let ran = project.run(&["run", "Go."]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "Done.\n"), "{ran}");
    let record = last(&project);
    assert_eq!(told(&record, 0), json!(["quick", ["running", "running"], ["completed", "completed"], true]));
    let of_script: Vec<_> = states(&record).into_iter().take(4).collect();
    let state = |tool: &str, state: &str| (tool.to_owned(), state.to_owned());
    assert_eq!(
        of_script,
        [state("slow", "began"), state("quick", "began"), state("quick", "completed"), state("slow", "completed")]
    );
    assert_eq!(states(&record).len(), 10, "{record}");
    // In a replay nothing takes its time, so that all that is the same is the same by the record.
    for _ in 0..3 {
        same(&project);
    }
    let report = project.run(&["sessions", "replay", "--json"]).json();
    assert_eq!(
        (&report["same"], &report["compared"]["turns"], &report["compared"]["replies"]),
        (&json!(true), &json!(3), &json!(9))
    );
    // What a task does is compared, and so is what it gives.
    let other = project.tool("quick", "async: true\n", "def run(args):\n    return 'quicker'\n");
    let ran = other.run(&["sessions", "replay"]);
    ran.says(1, "`.harness/tools/quick.md` was changed since");
    assert!(ran.out.contains("root in task 2, around the turns: end of the task of quick"), "{ran}");
    assert!(ran.out.contains("root, turn 1: call call_1 of asks"), "{ran}");
}
