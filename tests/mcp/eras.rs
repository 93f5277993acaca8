//! Both eras of the protocol on one process.

use serde_json::{Value as Json, json};

use crate::client::{Client, LEGACY, MODERN, audited, capabilities, meta};
use crate::project::{FINE, Project};

const VERSIONS: [&str; 5] = ["2024-11-05", "2025-03-26", "2025-06-18", LEGACY, MODERN];

#[test]
fn a_client_may_discover_first_and_initialize_then() {
    let project = Project::with_script(FINE);
    let mut client = Client::start(&project, &[]);
    let found = client.modern("server/discover", json!({}));
    assert_eq!(found["result"]["supportedVersions"], json!(VERSIONS));
    assert_eq!(found["result"]["capabilities"], capabilities());
    assert!(found["result"]["ttlMs"].is_u64() && found["result"]["cacheScope"] == "private", "{found}");
    assert_eq!(found["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "harness");
    assert_eq!(client.call("it", json!({}))["resultType"], "complete");

    let agreed = client.initialize(LEGACY);
    assert_eq!(agreed["result"]["protocolVersion"], LEGACY);
    assert_eq!(agreed["result"]["serverInfo"]["name"], "harness");
    let older = client.request("tools/call", json!({"name": "it"}));
    assert_eq!(older["result"], json!({"content": [{"type": "text", "text": "fine"}], "isError": false}));
    assert_eq!(client.request("ping", json!({}))["result"], json!({}));

    // And back again.
    assert_eq!(client.call("it", json!({}))["resultType"], "complete");
    let (rest, code, err) = client.end();
    assert_eq!((rest, code, err), (vec![], 0, String::new()));
    let protocols: Vec<_> = audited(&project).iter().map(|entry| entry["protocol"].clone()).collect();
    assert_eq!(protocols, [json!("mcp/2026-07-28"), json!("mcp/2025-11-25"), json!("mcp/2026-07-28")]);
}

#[test]
fn every_older_version_is_agreed_on_and_others_are_answered_with_the_newest_of_them() {
    let project = Project::with_script(FINE);
    for (asked, agreed) in
        VERSIONS[..4].iter().map(|one| (*one, *one)).chain([(MODERN, LEGACY), ("1999-01-01", LEGACY)])
    {
        let mut client = Client::start(&project, &[]);
        assert_eq!(client.initialize(asked)["result"]["protocolVersion"], agreed);
        assert_eq!(client.request("tools/call", json!({"name": "it"}))["result"]["isError"], false);
    }
}

#[test]
fn what_follows_initialize_without_waiting_for_it_has_its_version() {
    let project = Project::with_script(FINE);
    let mut client = Client::start(&project, &[]);
    let info = json!({"name": "hasty", "version": "1"});
    let params = json!({"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": info});
    let first = client.begin("initialize", params);
    let others: Vec<i64> = (0..20).map(|_| client.begin("tools/list", json!({}))).collect();
    // Answers come in any order.
    let answers: Vec<Json> = (0..=others.len()).map(|_| client.receive()).collect();
    let (initialized, listed): (Vec<&Json>, Vec<&Json>) = answers.iter().partition(|answer| answer["id"] == first);
    assert_eq!(initialized[0]["result"]["protocolVersion"], LEGACY);
    assert!(listed.iter().all(|answer| answer["result"]["tools"].is_array()), "{listed:?}");
    let mut answered: Vec<i64> = listed.iter().map(|answer| answer["id"].as_i64().unwrap()).collect();
    answered.sort_unstable();
    assert_eq!(answered, others);
}

#[test]
fn a_request_of_no_era_is_refused() {
    let mut client = Client::of(Project::with_script(FINE));
    for method in ["tools/list", "tools/call"] {
        let answer = client.request(method, json!({"name": "it"}));
        assert_eq!(answer["error"]["code"], -32600, "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains("`initialize`"), "{answer}");
    }
}

#[test]
fn metadata_is_complete_and_of_a_version_that_is_served() {
    let mut client = Client::of(Project::with_script(FINE));
    let mut bare = meta();
    bare.as_object_mut().unwrap().remove("io.modelcontextprotocol/clientCapabilities");
    assert_eq!(client.request("tools/list", json!({"_meta": bare}))["error"]["code"], -32602);
    assert_eq!(client.request("server/discover", json!({}))["error"]["code"], -32602);
    let mut later = meta();
    later["io.modelcontextprotocol/protocolVersion"] = json!("2030-01-01");
    let answer = client.request("tools/list", json!({"_meta": later}));
    assert_eq!(answer["error"]["code"], -32022);
    assert_eq!(answer["error"]["data"], json!({"requested": "2030-01-01", "supported": VERSIONS}));
    // A method of the older era does not exist in the newer one.
    assert_eq!(client.modern("ping", json!({}))["error"]["code"], -32601);
    assert!(client.modern("tools/list", json!({}))["result"]["tools"].is_array());
}
