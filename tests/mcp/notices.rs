//! Progress and log of a call, as notifications to the client that asked for them.

use serde_json::{Value as Json, json};

use crate::client::{Client, LEGACY, meta};
use crate::project::Project;
use crate::web::Web;

const STEPS: &str = "def run(args):\n    progress(0, 2, 'begins')\n    progress(1, 2)\n    progress(1, 2, 'not further')\n    \
                     progress(0.5)\n    progress(2, 2)\n    return 'done'\n";
const LINES: &str = "def run(args):\n    log.debug('d')\n    log.info('i')\n    log.warn('w')\n    log.error('e')\n    \
                     return 'done'\n";

/// Sends a call, and returns what comes up to its answer, which is last.
fn received(client: &mut Client, name: &str, more: &Json) -> Vec<Json> {
    let mut meta = meta();
    meta.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    client.begin("tools/call", json!({"name": name, "_meta": meta}));
    up_to_answer(client)
}

fn up_to_answer(client: &mut Client) -> Vec<Json> {
    let mut all = vec![client.receive()];
    while all[all.len() - 1].get("id").is_none() {
        all.push(client.receive());
    }
    all
}

fn steps() -> Vec<Json> {
    let of = |params: Json| json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
    vec![
        of(json!({"progressToken": "t", "progress": 0, "total": 2, "message": "begins"})),
        of(json!({"progressToken": "t", "progress": 1, "total": 2})),
        of(json!({"progressToken": "t", "progress": 2, "total": 2})),
    ]
}

#[test]
fn progress_goes_to_who_gave_a_token_and_rises() {
    let outer = "def run(args):\n    progress(1)\n    meta.call_tool('it')\n    return 'done'\n";
    let project = Project::new().policy("meta: { enabled: true }\n").tool("it", "", STEPS).tool("outer", "", outer);
    let mut client = Client::start(&project, &[]);
    let mut all = received(&mut client, "it", &json!({"progressToken": "t"}));
    assert_eq!(all.pop().unwrap()["result"]["content"][0]["text"], "done");
    assert_eq!(all, steps());
    assert_eq!(received(&mut client, "it", &json!({})).len(), 1);
    // What a tool calls in turn reports to the tool.
    let all = received(&mut client, "outer", &json!({"progressToken": 7}));
    let progress: Vec<&Json> = all.iter().filter_map(|one| one.get("params")).collect();
    assert_eq!(progress, [&json!({"progressToken": 7, "progress": 1})]);
    // The older era has the same.
    client = Client::legacy(&project, &[]);
    client.begin("tools/call", json!({"name": "it", "_meta": {"progressToken": "t"}}));
    let mut all = up_to_answer(&mut client);
    all.pop();
    assert_eq!(all, steps());
}

#[test]
fn over_http_notices_and_the_answer_are_one_stream() {
    let project = Project::new().tool("it", "", STEPS);
    let web = Web::open(&project);
    let reply = web.notified("it", &json!({"progressToken": "t"}));
    let mut all = reply;
    assert_eq!(all.pop().unwrap()["result"]["content"][0]["text"], "done");
    assert_eq!(all, steps());
    // Without a token the answer is JSON.
    assert_eq!(web.modern("tools/call", json!({"name": "it"}), &[]).json()["result"]["content"][0]["text"], "done");
}

#[test]
fn a_line_of_the_log_goes_to_who_named_a_level() {
    let project = Project::new().tool("it", "", LINES);
    let mut client = Client::start(&project, &[]);
    let line = |level: &str, data: &str| {
        let params = json!({"level": level, "logger": "tool it", "data": data});
        json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
    };
    let key = "io.modelcontextprotocol/logLevel";
    for (level, want) in [
        ("debug", vec![line("debug", "d"), line("info", "i"), line("warning", "w"), line("error", "e")]),
        ("notice", vec![line("warning", "w"), line("error", "e")]),
        ("error", vec![line("error", "e")]),
        ("critical", vec![]),
    ] {
        let mut all = received(&mut client, "it", &json!({key: level}));
        all.pop();
        assert_eq!(all, want, "{level}");
    }
    // Nothing is kept of a request for the next one.
    assert_eq!(received(&mut client, "it", &json!({})).len(), 1);
    for wrong in [json!("verbose"), json!(3)] {
        let all = received(&mut client, "it", &json!({key: wrong}));
        assert_eq!((all.len(), &all[0]["error"]["code"]), (1, &json!(-32602)), "{all:?}");
    }
}

#[test]
fn an_older_client_sets_its_level() {
    let project = Project::new().tool("it", "", LINES);
    let mut client = Client::legacy(&project, &[]);
    let count = |client: &mut Client| {
        client.begin("tools/call", json!({"name": "it"}));
        up_to_answer(client).len() - 1
    };
    assert_eq!(count(&mut client), 0);
    for (level, lines) in [("debug", 4), ("info", 3), ("warning", 2), ("emergency", 0), ("error", 1)] {
        assert_eq!(client.request("logging/setLevel", json!({"level": level})), json!({"result": {}}));
        assert_eq!(count(&mut client), lines, "{level}");
    }
    assert_eq!(client.request("logging/setLevel", json!({"level": "verbose"}))["error"]["code"], -32602);
    assert_eq!(count(&mut client), 1);
    // There is no such method any more in the newer era.
    assert_eq!(client.modern("logging/setLevel", json!({"level": "debug"}))["error"]["code"], -32601);
    let found = Client::start(&project, &[]).initialize(LEGACY);
    assert_eq!(found["result"]["capabilities"]["logging"], json!({}));
}

#[test]
fn a_secret_is_in_no_notice() {
    let value = "a-long-secret-value-of-a-test";
    let script = "def run(args):\n    log.error(args['x'])\n    progress(1, message=args['x'])\n    return 'done'\n";
    let project = Project::with_script(script)
        .policy("sandbox:\n  secrets:\n    TOKEN: { env: HARNESS_TEST_SECRET, hosts: [example.com] }\n");
    let mut client = Client::start_with(&project, &[], &[("HARNESS_TEST_SECRET", value)]);
    let mut meta = meta();
    meta["progressToken"] = json!(1);
    meta["io.modelcontextprotocol/logLevel"] = json!("debug");
    client.begin("tools/call", json!({"name": "it", "arguments": {"x": value}, "_meta": meta}));
    let all = up_to_answer(&mut client);
    assert_eq!(all.len(), 3, "{all:?}");
    assert_eq!(
        (&all[0]["params"]["data"], &all[1]["params"]["message"]),
        (&json!("[redacted:TOKEN]"), &json!("[redacted:TOKEN]"))
    );
}
