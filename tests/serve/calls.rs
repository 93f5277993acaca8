//! Calls of tools, and requests that are repeated.

use serde_json::{Value as Json, json};

use crate::project::{FINE, Project};
use crate::site::{Site, problem};

/// A tool that counts how often it was called.
const COUNTS: &str = "def run(args):\n    n = int(fs.read('n')) if fs.exists('n') else 0\n    fs.write('n', str(n + 1))\n    return n + 1\n";

#[test]
fn a_call_says_how_it_ended() {
    let site = Site::open();
    let project = Project::new()
        .policy("tools_policy: { deny: [hidden] }\n")
        .tool("it", "", FINE)
        .tool("hidden", "", FINE)
        .tool("fails", "", "def run(args):\n    fail('not today')\n")
        .tool("denied", "", "def run(args):\n    return http.get('https://example.com')\n")
        .tool("limited", "limits: { fuel: 100000 }\n", "def run(args):\n    for _ in range(1 << 24):\n        pass\n")
        .tool("needs", "parameters: { n: { type: integer, required: true } }\n", FINE)
        .tool("asks", "confirm: true\n", FINE);
    let acme = site.tenant("acme", &project);
    let call = |tool: &str| site.call(&acme.key, tool, json!({}));
    let reply = call("it");
    let json = reply.json();
    assert_eq!((reply.status, &json["outcome"], &json["result"]), (200, &json!("completed"), &json!("fine")));
    assert!(json["call"].as_str().unwrap().starts_with("call_"), "{json}");
    assert!(json["usage"]["fuel"].as_u64().unwrap() > 0, "{json}");
    let outcomes = ["fails", "denied", "asks"].map(|tool| {
        let json = call(tool).json();
        (json["outcome"].as_str().unwrap().to_owned(), json["error"]["message"].as_str().unwrap().to_owned())
    });
    assert_eq!(outcomes[0], ("failed".to_owned(), "not today".to_owned()));
    assert_eq!(outcomes[1].0, "denied");
    assert_eq!(outcomes[2].0, "denied");
    assert!(outcomes[2].1.contains("needs confirmation"), "{}", outcomes[2].1);
    let hint = call("asks").json()["error"]["hint"].as_str().unwrap().to_owned();
    assert!(hint.contains("Prefer: respond-async"), "{hint}");
    assert_eq!(problem(&call("none")), (404, "unknown_tool".to_owned()));
    assert_eq!(problem(&call("hidden")), (403, "denied".to_owned()));
    assert_eq!(problem(&call("needs")), (422, "arguments".to_owned()));
    assert_eq!(call("needs").json()["errors"], json!(["the argument `n` (integer) is missing"]));
    let tools = site.get(&acme.key, "/v1/tools").json();
    let names: Vec<&str> =
        tools["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["asks", "denied", "fails", "it", "limited", "needs"]);
    let audit = site.get(&acme.key, "/v1/audit");
    let outcomes: Vec<Json> =
        audit.body.lines().map(|line| serde_json::from_str::<Json>(line).unwrap()["outcome"].clone()).collect();
    assert_eq!(
        outcomes[..4],
        [json!("completed"), json!("failed"), json!("denied"), json!("denied")],
        "{}",
        audit.body
    );
    let last: Json = serde_json::from_str(audit.body.lines().last().unwrap()).unwrap();
    assert_eq!(audit.header("audit-head"), last["hash"]);
}

#[test]
fn a_body_that_is_not_understood_calls_nothing() {
    let site = Site::open();
    let acme = site.tenant("acme", &Project::with_script(COUNTS));
    let bearer = format!("Bearer {}", acme.key);
    let post = |body: &str| {
        let request = crate::web::request("POST /v1/tools/it/calls", &[("Authorization", &bearer)], body);
        crate::web::exchange(&mut site.connect(), &request)
    };
    for body in [
        "x",
        "[]",
        "{\"arguments\":[]}",
        "{\"argument\":{}}",
        "{\"arguments\":{\"a\":1,\"a\":2}}",
        "{\"arguments\":{},\"arguments\":{}}",
        "{\"arguments\":{\"a\":1e999}}",
        "\"\\ud800\"",
        "{\"arguments\":{}} {}",
        "{\"within\":{\"exec\":\"all\"}}",
    ] {
        assert_eq!(problem(&post(body)).0, 400, "{body}");
    }
    // The control, which is the first that is called.
    assert_eq!(post("{\"arguments\":{}}").json()["result"], 1);
    assert_eq!(post("").json()["result"], 2);
}

#[test]
fn a_request_that_is_sent_again_is_done_once() {
    let site = Site::open();
    let acme = site.tenant("acme", &Project::with_script(COUNTS));
    let other = site.key("acme", "caller");
    let call = |key: &str, once: &str, body: Json| {
        site.ask_with(key, "POST /v1/tools/it/calls", &[("Idempotency-Key", once)], &body)
    };
    let first = call(&acme.key, "a", json!({}));
    assert_eq!(first.json()["result"], 1);
    let again = call(&acme.key, "a", json!({}));
    assert_eq!((again.status, &again.body), (200, &first.body));
    assert_eq!(again.header("idempotency-replayed"), "true");
    assert_eq!(
        problem(&call(&acme.key, "a", json!({"arguments": {"x": 1}}))),
        (422, "idempotency_mismatch".to_owned())
    );
    // Another key of the client, another key of the tenant and another path are others.
    assert_eq!(call(&acme.key, "b", json!({})).json()["result"], 2);
    assert_eq!(call(&other, "a", json!({})).json()["result"], 3);
    for wrong in ["with space", "ü", &"x".repeat(256)] {
        assert_eq!(problem(&call(&acme.key, wrong, json!({}))), (400, "invalid".to_owned()), "{wrong}");
    }
    let twice = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")];
    assert_eq!(
        problem(&site.ask_with(&acme.key, "POST /v1/tools/it/calls", &twice, &json!({}))),
        (400, "invalid".to_owned())
    );
    assert_eq!(site.result(&acme.key, "it", json!({})), 4);
}

#[test]
fn what_was_being_done_when_the_process_was_killed_is_unknown() {
    let mut site = Site::open();
    let endless = "def run(args):\n    fs.write('began', 'x')\n    for _ in range(1 << 30):\n        pass\n";
    let acme = site.tenant("acme", &Project::new().tool("it", "timeout_ms: 600000\n", endless));
    let began = site.data().join("tenants/acme/workspace/began");
    let stream = site.stream(&acme.key, "POST /v1/tools/it/calls", "Idempotency-Key: a\r\n", "{}");
    while !began.exists() {
        std::thread::yield_now();
    }
    let same =
        |site: &Site| site.ask_with(&acme.key, "POST /v1/tools/it/calls", &[("Idempotency-Key", "a")], &json!({}));
    assert_eq!(problem(&same(&site)), (409, "idempotency_in_progress".to_owned()));
    site.kill();
    drop(stream);
    let site = site.again();
    assert_eq!(problem(&same(&site)), (409, "idempotency_unknown".to_owned()));
}

#[test]
fn a_call_whose_client_is_gone_ends() {
    let site = Site::with_config("classes: { default: { concurrent_calls: 1, queued_calls: 1 } }\n");
    let endless = "def run(args):\n    fs.write('began', 'x')\n    for _ in range(1 << 30):\n        pass\n";
    let project =
        Project::new().tool("endless", "timeout_ms: 600000\n", endless).tool("it", "timeout_ms: 600000\n", FINE);
    let acme = site.tenant("acme", &project);
    let stream = site.stream(&acme.key, "POST /v1/tools/endless/calls", "", "{}");
    while !site.data().join("tenants/acme/workspace/began").exists() {
        std::thread::yield_now();
    }
    drop(stream);
    // It waits for the place of the other one, within its ten minutes.
    assert_eq!(site.result(&acme.key, "it", json!({})), "fine");
}

#[test]
fn a_project_that_is_uploaded_takes_force_at_once_and_a_broken_one_does_not() {
    let site = Site::open();
    let acme = site.tenant("acme", &Project::with_script(FINE));
    let first = site.get(&acme.key, "/v1/project").json()["digest"].clone();
    assert_eq!(site.result(&acme.key, "it", json!({})), "fine");
    let second = Project::with_script("def run(args):\n    return 'second'\n");
    assert_eq!(site.upload(&acme.key, &crate::site::archive(&second)).status, 200);
    assert_eq!(site.result(&acme.key, "it", json!({})), "second");
    let broken = Project::with_script(FINE).policy("sandbx: {}\n");
    let refused = site.upload(&acme.key, &crate::site::archive(&broken));
    assert_eq!(problem(&refused), (422, "project".to_owned()));
    let error = &refused.json()["errors"][0];
    assert_eq!((&error["file"], &error["line"]), (&json!(".harness/harness.md"), &json!(2)), "{error}");
    assert_eq!(site.result(&acme.key, "it", json!({})), "second");
    assert_ne!(site.get(&acme.key, "/v1/project").json()["digest"], first);
    let left: Vec<_> =
        std::fs::read_dir(site.data().join("tenants/acme")).unwrap().map(|one| one.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_str().unwrap().starts_with("incoming")), "{left:?}");
}
