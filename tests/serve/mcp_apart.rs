//! What clients of the Model Context Protocol try with what belongs to another key, of the same tenant and of another. Each
//! attempt has its control: the same with the key that it belongs to.

use serde_json::{Value as Json, json};

use crate::client::LEGACY;
use crate::mcp::{OFTEN, Peer, endless, event, wait_until_begun};
use crate::project::{FINE, Project};
use crate::site::Site;

/// Two tenants with the same project, and the keys: the victim's, another of its tenant, and one of the other tenant.
fn site(project: &Project) -> (Site, [String; 3]) {
    let site = Site::with_config(OFTEN);
    let (victim, stranger) = (site.tenant("victim", project), site.tenant("stranger", project));
    let sister = site.key("victim", "owner");
    (site, [victim.key, sister, stranger.key])
}

#[test]
fn a_session_is_of_the_key_that_began_it() {
    let (site, [victim, sister, stranger]) = site(&Project::with_script(FINE));
    let peers = [&victim, &sister, &stranger].map(|key| Peer::new(&site, key));
    let sessions = peers.each_ref().map(|peer| peer.session(&json!({})));
    for (at, peer) in peers.iter().enumerate() {
        let forged = peer.older("x", "tools/list", &json!({}));
        assert_eq!(forged.refusal(), (404, -32600));
        for (of, session) in sessions.iter().enumerate() {
            let reply = peer.older(session, "tools/call", &json!({"name": "it"}));
            if at == of {
                assert_eq!(reply.json()["result"]["content"][0]["text"], "fine", "{reply:?}");
            } else {
                // As of a session that never was.
                assert_eq!((reply.status, &reply.body), (404, &forged.body), "{at} {of}");
            }
        }
    }
}

#[test]
fn cursors_and_states_of_requests_are_of_the_key_that_got_them() {
    let mut project = Project::new().policy("mcp: { search_above: off }\n").tool("asks", "confirm: true\n", FINE);
    for n in 0..100 {
        project = project.tool(&format!("t{n:03}"), "", FINE);
    }
    let (site, [victim, sister, stranger]) = site(&project);
    let forms = json!({"elicitation": {"form": {}}});
    let owner = Peer::new(&site, &victim).able(forms.clone());
    let cursor = owner.ask("tools/list", json!({}))["result"]["nextCursor"].take();
    assert!(cursor.is_string(), "{cursor}");
    let state = owner.ask("tools/call", json!({"name": "asks"}))["result"]["requestState"].take();
    assert!(state.is_string(), "{state}");
    let answer = json!({"action": "accept", "content": {"confirm": true}});
    let confirmed = json!({"name": "asks", "requestState": state, "inputResponses": {"confirm": answer}});
    for key in [&sister, &stranger] {
        let peer = Peer::new(&site, key).able(forms.clone());
        let forged = peer.ask("tools/list", json!({"cursor": "x"}));
        assert_eq!(forged["error"]["code"], -32602);
        assert_eq!(peer.ask("tools/list", json!({"cursor": cursor})), forged);
        assert_eq!(peer.ask("tools/call", confirmed.clone())["error"]["code"], -32602);
    }
    let last = owner.ask("tools/list", json!({"cursor": cursor}));
    assert_eq!(last["result"]["tools"].as_array().unwrap().len(), 1, "{last}");
    assert_eq!(owner.ask("tools/call", confirmed)["result"]["content"][0]["text"], "fine");
}

#[test]
fn tasks_are_of_the_key_that_began_them() {
    let policy = "sandbox:\n  async_tools: true\n";
    let asks = "def run(args):\n    return ask.user('Who?', {'type': 'object', 'properties': {}})\n";
    let policy = format!("{policy}  services: [ask_user]\n");
    let (site, [victim, sister, stranger]) = site(&Project::new().policy(&policy).tool("job", "async: true\n", asks));
    let able = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}, "elicitation": {"form": {}}});
    let owner = Peer::new(&site, &victim).able(able.clone());
    let begun = owner.ask("tools/call", json!({"name": "job"}));
    let id = begun["result"]["taskId"].clone();
    assert!(id.is_string(), "{begun}");
    let question = loop {
        let state = owner.ask("tasks/get", json!({"taskId": id}))["result"].take();
        match state["status"].as_str().unwrap() {
            "working" => {}
            "input_required" => break state["inputRequests"].as_object().unwrap().keys().next().unwrap().clone(),
            _ => panic!("{state}"),
        }
    };
    let answers =
        |of: &str| json!({"taskId": id, "inputResponses": {&question: {"action": "accept", "content": {"of": of}}}});
    for key in [&sister, &stranger] {
        let peer = Peer::new(&site, key).able(able.clone());
        for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
            let (mut real, mut forged) = (answers("stranger"), answers("stranger"));
            forged["taskId"] = json!("00000000000000000000000000000000");
            if method != "tasks/update" {
                (real, forged) = (json!({"taskId": id}), json!({"taskId": forged["taskId"]}));
            }
            let (real, forged) = (peer.ask(method, real), peer.ask(method, forged));
            assert_eq!(real["error"]["code"], -32602, "{method}: {real}");
            assert_eq!(real, forged, "{method}");
        }
    }
    owner.ask("tasks/update", answers("owner"));
    let ended = loop {
        let state = owner.ask("tasks/get", json!({"taskId": id}))["result"].take();
        if state["status"] != "working" {
            break state;
        }
    };
    assert_eq!(ended["status"], "completed", "{ended}");
    assert!(ended.to_string().contains("owner") && !ended.to_string().contains("stranger"), "{ended}");
}

#[test]
fn a_call_is_cancelled_by_its_own_client_alone() {
    let (site, [victim, sister, stranger]) = site(&endless());
    let owner = Peer::new(&site, &victim);
    let call = owner.begin("tools/call", json!({"name": "endless"}));
    wait_until_begun(&site, "victim");
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}).to_string();
    for key in [&sister, &stranger] {
        let peer = Peer::new(&site, key);
        let session = peer.session(&json!({}));
        for headers in [
            vec![("MCP-Protocol-Version", LEGACY)],
            vec![("MCP-Protocol-Version", LEGACY), ("Mcp-Session-Id", &session)],
        ] {
            assert_eq!(peer.post(&headers, &cancel).status, 202);
        }
    }
    let waiting = |site: &Site| {
        let log = site.get(&victim, "/v1/audit").body;
        log.lines().filter(|line| line.contains("\"tool\":\"endless\"")).count()
    };
    assert_eq!(waiting(&site), 0);
    // The control: its own client is gone.
    drop(call);
    while waiting(&site) == 0 {
        std::thread::yield_now();
    }
}

/// Two clients use the same token and the same identifier of a request: each hears of its own call.
#[test]
fn progress_is_of_the_request_that_wants_it() {
    let script = "def run(args):\n    progress(1, 2, args['who'])\n    return args['who']\n";
    let project = Project::new().tool("it", "parameters: { who: { type: string, required: true } }\n", script);
    let (site, keys) = site(&project);
    let heard = |key: &str, who: &str| -> Vec<Json> {
        let peer = Peer::new(&site, key);
        let session = peer.session(&json!({}));
        let params = json!({"name": "it", "arguments": {"who": who}, "_meta": {"progressToken": "same"}});
        let mut stream = peer.begin_older(&session, "tools/call", &params);
        let mut messages = vec![event(&mut stream)];
        while messages.last().unwrap().get("result").is_none() {
            messages.push(event(&mut stream));
        }
        messages
    };
    let names = ["mark-victim", "mark-sister", "mark-stranger"];
    let all: Vec<Vec<Json>> = std::thread::scope(|scope| {
        let begun: Vec<_> = keys.iter().zip(names).map(|(key, who)| scope.spawn(move || heard(key, who))).collect();
        begun.into_iter().map(|one| one.join().unwrap()).collect()
    });
    for (messages, who) in all.iter().zip(names) {
        let text = json!(messages).to_string();
        assert!(text.contains("notifications/progress") && text.contains(who), "{text}");
        assert!(names.iter().filter(|other| **other != who).all(|other| !text.contains(other)), "{text}");
    }
}

#[test]
fn resources_are_those_of_the_own_workspace() {
    let (site, [victim, _, stranger]) = site(&Project::with_script(FINE).policy("mcp: { resources: ['docs/**'] }\n"));
    assert_eq!(site.ask(&victim, "PUT /v1/files/docs/a.md", &json!("mark-file")).status, 200);
    let outside = site.data().join("tenants/victim/workspace/docs/a.md");
    let uris = [
        "file:///docs/a.md".to_owned(),
        format!("file://{}", outside.display()),
        "file:///docs/../../../victim/workspace/docs/a.md".to_owned(),
        "file:///docs/%2e%2e/%2e%2e/%2e%2e/victim/workspace/docs/a.md".to_owned(),
        "file://victim/docs/a.md".to_owned(),
    ];
    let peer = Peer::new(&site, &stranger);
    for uri in &uris {
        let read = peer.ask("resources/read", json!({"uri": uri}));
        assert!(read["error"].is_object() && !read.to_string().contains("mark-file"), "{uri}: {read}");
        let mut stream = peer.begin("subscriptions/listen", json!({"notifications": {"resourceSubscriptions": [uri]}}));
        event(&mut stream);
    }
    assert_eq!(peer.ask("resources/list", json!({}))["result"]["resources"], json!([]));
    let owner = Peer::new(&site, &victim);
    let read = owner.ask("resources/read", json!({"uri": uris[0]}));
    assert_eq!(read["result"]["contents"][0]["text"], "\"mark-file\"", "{read}");
}

/// The identifier of an event in a stream resumes nothing, whosever it is.
#[test]
fn no_stream_is_resumed() {
    let (site, keys) = site(&Project::with_script(FINE));
    let owner = Peer::new(&site, &keys[0]);
    let _stream = owner.listen();
    for key in &keys {
        for id in ["0", "1", "0/0"] {
            let refused =
                site.ask_with(key, "GET /mcp", &[("Last-Event-ID", id), ("Accept", "text/event-stream")], &Json::Null);
            assert_eq!(refused.status, 405, "{refused:?}");
        }
    }
}
