//! Calls that the person at the client confirms.

use serde_json::{Value as Json, json};

use crate::client::{Client, LEGACY, audited, meta};
use crate::project::{FINE, Project};
use crate::web::Web;

fn confirmed() -> Project {
    Project::new().tool("it", "confirm: true\n", "def run(args):\n    return args['x']\n").tool(
        "other",
        "confirm: true\n",
        FINE,
    )
}

/// A request of the newest revision by a client that can show forms.
fn asked(client: &mut Client, tool: &str, x: &str, more: Json) -> Json {
    let mut meta = meta();
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({"elicitation": {"form": {}}});
    let mut params = json!({"name": tool, "arguments": {"x": x}, "_meta": meta});
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    client.request("tools/call", params)
}

fn said(state: &Json, action: &str, confirm: bool) -> Json {
    let answer = json!({"action": action, "content": {"confirm": confirm}});
    json!({"requestState": state, "inputResponses": {"confirm": answer}})
}

#[test]
fn a_newer_client_asks_and_sends_the_request_again() {
    let project = confirmed();
    let mut client = Client::start(&project, &[]);
    let first = asked(&mut client, "it", "a", json!({}))["result"].take();
    assert_eq!(first["resultType"], "input_required", "{first}");
    let question = &first["inputRequests"]["confirm"];
    assert_eq!(question["method"], "elicitation/create");
    let message = question["params"]["message"].as_str().unwrap();
    assert!(message.contains("`it`") && message.contains("{\"x\":\"a\"}"), "{message}");
    let state = &first["requestState"];

    for no in [said(state, "decline", true), said(state, "cancel", true), said(state, "accept", false)] {
        let answer = asked(&mut client, "it", "a", no);
        assert_eq!(answer["result"]["isError"], true, "{answer}");
    }
    // What was confirmed is this call: another one, and a call without an answer, are asked about.
    for (x, more) in [("b", said(state, "accept", true)), ("a", json!({"requestState": state}))] {
        assert_eq!(asked(&mut client, "it", x, more)["result"]["resultType"], "input_required", "{x}");
    }
    let forged = json!(format!("{}x", state.as_str().unwrap()));
    for (tool, state) in [("it", &forged), ("it", &json!("x")), ("other", state)] {
        let answer = asked(&mut client, tool, "a", said(state, "accept", true));
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
    // The state of another server is none of this one.
    let mut another = Client::start(&project, &[]);
    assert_eq!(asked(&mut another, "it", "a", said(state, "accept", true))["error"]["code"], -32602);
    let made = asked(&mut client, "it", "a", said(state, "accept", true));
    assert_eq!(made["result"]["content"][0]["text"], "a", "{made}");
    // It was confirmed once.
    let again = asked(&mut client, "it", "a", said(state, "accept", true));
    assert_eq!(again["result"]["resultType"], "input_required", "{again}");
    let completed = audited(&project).iter().filter(|entry| entry["outcome"] == "completed").count();
    assert_eq!(completed, 1);
}

/// Begins a call after `initialize` with these capabilities, and returns the next message.
fn begun(client: &mut Client, capabilities: &Json) -> Json {
    let info = json!({"name": "older", "version": "1.0"});
    client.request("initialize", json!({"protocolVersion": LEGACY, "capabilities": capabilities, "clientInfo": info}));
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    client.begin("tools/call", json!({"name": "it", "arguments": {"x": "a"}}));
    client.receive()
}

#[test]
fn an_older_client_is_asked_while_the_call_waits() {
    for (action, confirm, is_error) in [("accept", true, false), ("accept", false, true), ("decline", true, true)] {
        let project = confirmed();
        let mut client = Client::start(&project, &[]);
        let question = begun(&mut client, &json!({"elicitation": {}}));
        assert_eq!(question["method"], "elicitation/create", "{question}");
        let result = json!({"action": action, "content": {"confirm": confirm}});
        client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": result}));
        let answer = client.receive();
        assert_eq!(answer["result"]["isError"], is_error, "{answer}");
    }
}

#[test]
fn a_client_that_cannot_ask_gets_the_way_to_confirm() {
    let project = confirmed();
    for capabilities in [json!({}), json!({"elicitation": {"url": {}}})] {
        let mut client = Client::start(&project, &[]);
        let answer = begun(&mut client, &capabilities);
        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(text.ends_with("confirm it in advance with `--confirm it`"), "{text}");
    }
}

/// What confirms, and what does not.
const SAID: [(&str, bool, bool); 3] = [("accept", true, false), ("accept", false, true), ("decline", true, true)];

/// A call that a running script makes waits for its answer where it is: what the script did is not done again.
#[test]
fn a_newer_client_is_asked_about_the_calls_of_a_script() {
    let script = "def run(args):\n    fs.append('done', 'x')\n    return meta.call_tool('it', {'x': args['x']})\n";
    for (action, confirm, is_error) in SAID {
        let project = confirmed()
            .policy("sandbox: { fs: { read: [.], write: [.] } }\nmeta: { enabled: true }\n")
            .tool("outer", "", script);
        let mut client = Client::start(&project, &[]);
        // What nobody was asked yet is not confirmed.
        let early = json!({"inputResponses": {"confirm": {"action": "accept", "content": {"confirm": true}}}});
        let first = asked(&mut client, "outer", "a", early)["result"].take();
        let message = first["inputRequests"]["confirm"]["params"]["message"].as_str();
        let message = message.unwrap_or_else(|| panic!("{first}"));
        assert!(message.starts_with("`it`, which tool outer calls, needs confirmation because of"), "{message}");
        assert!(message.ends_with("It would be called with {\"x\":\"a\"}"), "{message}");
        let state = &first["requestState"];
        let other = asked(&mut client, "outer", "b", said(state, "accept", true));
        assert_eq!(other["error"]["message"], "`requestState` belongs to a call with other arguments");
        let answer = asked(&mut client, "outer", "a", said(state, action, confirm))["result"].take();
        let text = answer["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert_eq!(text != "a", is_error, "{text}");
        assert!(!is_error || text.contains("the call of `it` was not confirmed"), "{text}");
        assert_eq!(std::fs::read_to_string(project.path("done")).unwrap(), "x");
        let calls = audited(&project).iter().filter(|entry| entry["tool"] == "it").count();
        assert_eq!(calls, 1);
    }
}

#[test]
fn a_newer_client_is_asked_about_each_call_of_its_own_script() {
    let project = confirmed().policy("mcp: { expose: code }\n");
    let mut client = Client::start(&project, &[]);
    let script = "def run(args):\n    return [r.ok for r in meta.parallel([('it', {'x': 'a'}), ('other', {})])]\n";
    let mut meta = meta();
    meta["io.modelcontextprotocol/clientCapabilities"] = json!({"elicitation": {"form": {}}});
    let mut params = json!({"name": "run_script", "arguments": {"script": script}, "_meta": meta});
    let mut asked = Vec::new();
    let answer = loop {
        let answer = client.request("tools/call", params.clone())["result"].take();
        let Some(message) = answer["inputRequests"]["confirm"]["params"]["message"].as_str() else { break answer };
        asked.push(message.split(',').next().unwrap().to_owned());
        // The first one is confirmed, and the other one is not.
        let (state, responses) = (&answer["requestState"], said(&Json::Null, "accept", asked.len() == 1));
        params["requestState"] = state.clone();
        params["inputResponses"] = responses["inputResponses"].clone();
    };
    asked.sort();
    assert_eq!(asked, ["`it`", "`other`"]);
    let text = answer["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
    assert!(["[true,false]", "[false,true]"].contains(&text), "{text}");
}

#[test]
fn an_older_client_over_http_is_asked_in_the_answer() {
    let project = confirmed();
    let web = Web::open(&project);
    let older = |session: &str, message: &Json| {
        web.post(&[("MCP-Protocol-Version", LEGACY), ("Mcp-Session-Id", session)], &message.to_string())
    };
    let begin = |capabilities: Json| {
        let info = json!({"name": "older", "version": "1.0"});
        let params = json!({"protocolVersion": LEGACY, "capabilities": capabilities, "clientInfo": info});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
        older("", &message).header("mcp-session-id")
    };
    let params = json!({"name": "it", "arguments": {"x": "a"}});
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params});
    let session = begin(json!({"elicitation": {}}));
    for (action, confirm, is_error) in SAID {
        let headers = [("MCP-Protocol-Version", LEGACY), ("Mcp-Session-Id", &session)];
        let mut stream = web.stream(&headers, &call.to_string());
        let question = stream.message();
        assert_eq!(question["method"], "elicitation/create", "{question}");
        let result = json!({"action": action, "content": {"confirm": confirm}});
        let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": result});
        assert_eq!(older(&session, &answer).status, 202);
        let answer = stream.message();
        assert_eq!(answer["result"]["isError"], is_error, "{answer}");
    }
    // One that cannot show forms, and one of which nothing is known.
    for session in [begin(json!({"roots": {}})), String::new()] {
        let answer = older(&session, &call).json();
        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(text.ends_with("confirm it in advance with `--confirm it`"), "{text}");
    }
}
