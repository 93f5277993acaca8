//! Calls that last, as tasks.

use serde_json::{Value as Json, json};

use crate::client::{Client, LEGACY, audited, capabilities, meta};
use crate::project::{FINE, Project};
use crate::streams::{ENDLESS, wait_until_begun};
use crate::web::Web;

const POLICY: &str = "sandbox:\n  async_tools: true\n  limits: { timeout_ms: 600000, fuel: 1000000000000 }\n";

/// A project whose tool `job` runs in the background where clients can follow it.
fn with_job(front: &str, script: &str) -> Project {
    Project::new().policy(POLICY).tool("job", &format!("async: true\n{front}"), script)
}

/// What every request of a client that can follow tasks has.
fn able() -> Json {
    let mut meta = meta();
    let tasks = json!({"io.modelcontextprotocol/tasks": {}});
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({"extensions": tasks, "elicitation": {"form": {}}});
    meta
}

fn ask(client: &mut Client, method: &str, mut params: Json) -> Json {
    params["_meta"] = able();
    client.request(method, params)
}

/// Begins a task and returns its identifier.
fn begin(client: &mut Client, tool: &str) -> Json {
    let answer = ask(client, "tools/call", json!({"name": tool}));
    assert_eq!(answer["result"]["resultType"], "task", "{answer}");
    answer["result"]["taskId"].clone()
}

/// The state of a task once it is another one than this.
fn once_not(client: &mut Client, task: &Json, status: &str) -> Json {
    loop {
        let mut answer = ask(client, "tasks/get", json!({"taskId": task}));
        if answer["result"]["status"] != status {
            return answer["result"].take();
        }
    }
}

/// Takes what differs from run to run out of a state.
fn without_times(mut state: Json) -> Json {
    let object = state.as_object_mut().unwrap();
    for key in ["createdAt", "lastUpdatedAt"] {
        let time = object.remove(key).unwrap();
        assert!(time.as_str().is_some_and(|time| time.starts_with("20") && time.contains('T')), "{time}");
    }
    let ttl = object.remove("ttlMs").unwrap();
    assert!(ttl.as_u64().is_some_and(|ttl| ttl >= 600_000), "{ttl}");
    state
}

#[test]
fn tasks_are_of_the_newest_revision() {
    let project = Project::with_script(FINE);
    let mut client = Client::start(&project, &[]);
    let found = client.modern("server/discover", json!({}));
    let mut want = capabilities();
    assert_eq!(found["result"]["capabilities"], want);
    want.as_object_mut().unwrap().remove("extensions");
    assert_eq!(client.initialize(LEGACY)["result"]["capabilities"], want);
}

#[test]
fn a_call_is_a_task_for_clients_that_can_follow_it() {
    let project = with_job(
        "parameters:\n  n: { type: integer, default: 2 }\nreturns: { type: object }\n",
        "def run(args):\n    return {'n': args['n']}\n",
    );
    let mut client = Client::start(&project, &[]);
    let created = ask(&mut client, "tools/call", json!({"name": "job"}))["result"].take();
    let task = created["taskId"].clone();
    assert!(task.as_str().is_some_and(|task| task.len() == 32), "{created}");
    let want = json!({"resultType": "task", "taskId": task, "status": "working", "pollIntervalMs": 1000});
    assert_eq!(without_times(created), want);
    let ended = without_times(once_not(&mut client, &task, "working"));
    let result = json!({
        "resultType": "complete",
        "content": [{"type": "text", "text": "{\"n\":2}"}],
        "structuredContent": {"n": 2},
        "isError": false,
    });
    let want = json!({"resultType": "complete", "taskId": task, "status": "completed", "pollIntervalMs": 1000, "result": result});
    assert_eq!(ended, want);
    let entries = audited(&project);
    assert_eq!(entries.len(), 1);
    for (key, want) in [("tool", "job"), ("outcome", "completed"), ("client", "tester"), ("request", "1")] {
        assert_eq!(entries[0][key], want);
    }
    // Each has its own.
    assert_ne!(begin(&mut client, "job"), task);
    // Any other client gets the result.
    assert_eq!(client.call("job", json!({})), result);
    let plain = Project::new().tool("job", "async: true\n", FINE);
    let answer = ask(&mut Client::start(&plain, &[]), "tools/call", json!({"name": "job"}));
    assert_eq!(answer["result"]["content"][0]["text"], "fine", "{answer}");
    let mut older = Client::start(&project, &[]);
    let (info, tasks) = (json!({"name": "older", "version": "1.0"}), json!({"io.modelcontextprotocol/tasks": {}}));
    let capabilities = json!({"extensions": tasks});
    older.request("initialize", json!({"protocolVersion": LEGACY, "capabilities": capabilities, "clientInfo": info}));
    assert_eq!(older.request("tools/call", json!({"name": "job"}))["result"]["isError"], false);
}

#[test]
fn only_a_client_that_can_follow_tasks_asks_for_them() {
    let project = with_job("", FINE);
    let web = Web::open(&project);
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let params = json!({"taskId": "x", "inputResponses": {}});
        let reply = web.modern(method, params.clone(), &[("Mcp-Name", "x")]);
        assert_eq!(reply.refusal(), (400, -32021), "{method}: {reply:?}");
        let required = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
        assert_eq!(reply.json()["error"]["data"]["requiredCapabilities"], required);
        let unknown = ask(&mut Client::start(&project, &[]), method, params);
        let want = json!({"code": -32602, "message": "there is no task with this `taskId`, or it ended too long ago"});
        assert_eq!(unknown["error"], want);
        let unread = ask(&mut Client::start(&project, &[]), method, json!({}));
        assert_eq!(unread["error"]["code"], -32602, "{unread}");
    }
}

#[test]
fn a_task_fails_only_if_the_server_does() {
    let project = with_job("", "def run(args):\n    fail('no')\n")
        .file(".harness/tools/nothing.md", "---\nasync: true\n---\nDoes nothing.\n");
    let mut client = Client::start(&project, &[]);
    let task = begin(&mut client, "job");
    let ended = once_not(&mut client, &task, "working");
    assert_eq!((&ended["status"], &ended["result"]["isError"]), (&json!("completed"), &json!(true)), "{ended}");
    let task = begin(&mut client, "nothing");
    let ended = once_not(&mut client, &task, "working");
    let why = json!({"code": -32603, "message": "tool `nothing` has no implementation: its file has no `script`"});
    assert_eq!((&ended["status"], &ended["error"], &ended["result"]), (&json!("failed"), &why, &Json::Null), "{ended}");
    // It is the same error without a task.
    assert_eq!(client.modern("tools/call", json!({"name": "nothing"}))["error"], why);
}

#[test]
fn a_secret_is_in_no_task() {
    let value = "a-long-secret-value-of-a-test";
    let policy = format!("{POLICY}  secrets:\n    TOKEN: {{ env: HARNESS_TEST_SECRET, hosts: [example.com] }}\n");
    let script = format!("def run(args):\n    return 'it is {value}'\n");
    let project = Project::new().policy(&policy).tool("job", "async: true\n", &script);
    let mut client = Client::start_with(&project, &[], &[("HARNESS_TEST_SECRET", value)]);
    let task = begin(&mut client, "job");
    let ended = once_not(&mut client, &task, "working");
    assert!(ended.to_string().contains("it is ") && !ended.to_string().contains(value), "{ended}");
}

#[test]
fn a_canceled_task_ends_its_call() {
    let project = with_job("timeout_ms: 600000\n", ENDLESS);
    let mut client = Client::start(&project, &[]);
    let task = begin(&mut client, "job");
    wait_until_begun(&project);
    let cancel = |client: &mut Client| ask(client, "tasks/cancel", json!({"taskId": task}))["result"].take();
    for _ in 0..2 {
        assert_eq!(cancel(&mut client), json!({"resultType": "complete"}));
        assert_eq!(once_not(&mut client, &task, "working")["status"], "cancelled");
    }
    while !audited(&project).iter().any(|entry| entry["outcome"] == "abandoned") {}
}

#[test]
fn the_end_of_input_ends_tasks() {
    let project = with_job("timeout_ms: 600000\n", ENDLESS);
    let mut client = Client::start(&project, &[]);
    begin(&mut client, "job");
    wait_until_begun(&project);
    let (rest, code, err) = client.end();
    assert_eq!((rest, code, err), (vec![], 0, String::new()));
    assert_eq!(audited(&project)[0]["outcome"], "abandoned");
}

#[test]
fn a_task_waits_for_the_confirmation_of_its_call() {
    for (action, confirm, is_error) in [("accept", true, false), ("accept", false, true), ("decline", true, true)] {
        let project = with_job("confirm: true\n", FINE);
        let mut client = Client::start(&project, &[]);
        let task = begin(&mut client, "job");
        let asks = once_not(&mut client, &task, "working");
        assert_eq!(asks["status"], "input_required", "{asks}");
        let (key, question) = asks["inputRequests"].as_object().unwrap().iter().next().unwrap();
        assert_eq!(question["method"], "elicitation/create");
        assert!(question["params"]["message"].as_str().unwrap().contains("`job`"), "{question}");
        // An answer to another question changes nothing.
        let answer = |key: &str| json!({key: {"action": action, "content": {"confirm": confirm}}});
        for key in ["other", key] {
            assert_eq!(once_not(&mut client, &task, "working")["status"], "input_required");
            let said = ask(&mut client, "tasks/update", json!({"taskId": task, "inputResponses": answer(key)}));
            assert_eq!(said["result"], json!({"resultType": "complete"}));
        }
        let ended = once_not(&mut client, &task, "working");
        assert_eq!((&ended["status"], &ended["result"]["isError"]), (&json!("completed"), &json!(is_error)), "{ended}");
    }
}

#[test]
fn a_tool_that_is_only_a_task_is_refused_to_clients_that_cannot_follow_it() {
    let project = Project::new().policy("mcp: { only_as_tasks: [job] }\n").tool("job", "", FINE).tool("it", "", FINE);
    let required = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let web = Web::open(&project);
    let reply = web.modern("tools/call", json!({"name": "job"}), &[]);
    assert_eq!(reply.refusal(), (400, -32021), "{reply:?}");
    assert_eq!(reply.json()["error"]["data"]["requiredCapabilities"], required);
    let mut older = Client::legacy(&project, &[]);
    let refused = older.request("tools/call", json!({"name": "job"}));
    let text = refused["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{refused}"));
    assert!(text.starts_with("tool denied: `job` is only called as a task"), "{text}");
    let outcomes: Vec<Json> = audited(&project).iter().map(|entry| entry["outcome"].clone()).collect();
    assert_eq!(outcomes, ["denied", "denied"]);
    // Another tool is called, and a client that can follows the task.
    let mut client = Client::start(&project, &[]);
    assert_eq!(client.text("it", json!({})), ("fine".to_owned(), false));
    let task = begin(&mut client, "job");
    assert_eq!(once_not(&mut client, &task, "working")["result"]["content"][0]["text"], "fine");
    let ran = Project::new().policy("mcp: { only_as_tasks: [jop] }\n").tool("job", "", FINE).run(&["validate"]);
    assert!(ran.err.contains("`mcp.only_as_tasks`: no tool is named like `jop`"), "{ran}");
}
