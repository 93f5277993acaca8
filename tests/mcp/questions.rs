//! Questions of tools to the client: its person, its model, its folders.

use serde_json::{Value as Json, json};

use crate::client::{Client, LEGACY, audited, meta};
use crate::project::Project;
use crate::web::{Reply, Web};

const SERVICES: &str = "sandbox:\n  services: [cache, metrics, clock, random, events, meta, delegate, modify, prompt, ask_user, ask_model, ask_roots]\n";
/// What the person is shown: the host says who asks.
const SHOWN: &str = "The tool `it` asks:\nWho?";
/// Writes a file, asks twice, and writes another.
const TWICE: &str = "\
def run(args):
    fs.append('before', 'x')
    name = ask.user('Who?', {'type': 'object', 'properties': {'name': {'type': 'string'}}, 'required': ['name']}, key='name')
    if name['action'] != 'accept':
        return name['action']
    both = ask.all([{'model': 'Greet ' + name['content']['name'], 'max_tokens': 50}, {'roots': True}])
    fs.append('after', 'x')
    return [both[0]['text'], both[1][0]['uri']]
";

fn project() -> Project {
    Project::new().policy(SERVICES).tool("it", "", TWICE).tool("can", "", "def run(args):\n    return ask.can()\n")
}

fn able() -> Json {
    json!({"elicitation": {"form": {}}, "sampling": {}, "roots": {}})
}

/// A request of the newest revision by a client with these capabilities.
fn asked(client: &mut Client, tool: &str, capabilities: &Json, more: &Json) -> Json {
    let mut meta = meta();
    meta["io.modelcontextprotocol/clientCapabilities"] = capabilities.clone();
    let mut params = json!({"name": tool, "arguments": {}, "_meta": meta});
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    client.request("tools/call", params)
}

fn named(name: &str) -> Json {
    json!({"action": "accept", "content": {"name": name}})
}

fn reply(text: &str) -> Json {
    json!({"role": "assistant", "content": {"type": "text", "text": text}, "model": "m", "stopReason": "endTurn"})
}

fn roots() -> Json {
    json!({"roots": [{"uri": "file:///work", "name": "work"}]})
}

fn read(project: &Project, path: &str) -> String {
    std::fs::read_to_string(project.path(path)).unwrap_or_default()
}

#[test]
fn a_newer_client_answers_with_further_requests_and_nothing_is_done_twice() {
    let project = project();
    let mut client = Client::start(&project, &[]);
    let first = asked(&mut client, "it", &able(), &json!({}))["result"].take();
    assert_eq!(first["resultType"], "input_required", "{first}");
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
    let question = &first["inputRequests"]["name"];
    assert_eq!((&question["method"], &question["params"]["message"]), (&json!("elicitation/create"), &json!(SHOWN)));
    assert_eq!(question["params"]["requestedSchema"], schema);

    let answers = json!({"name": named("Ada"), "other": 1});
    let second =
        asked(&mut client, "it", &able(), &json!({"requestState": first["requestState"], "inputResponses": answers}));
    let second = second["result"].clone();
    let requests = second["inputRequests"].as_object().unwrap_or_else(|| panic!("{second}"));
    assert_eq!(requests.keys().collect::<Vec<_>>(), ["q1", "q2"]);
    let prompt = json!([{"role": "user", "content": {"type": "text", "text": "Greet Ada"}}]);
    assert_eq!((&requests["q1"]["params"]["messages"], &requests["q1"]["params"]["maxTokens"]), (&prompt, &json!(50)));
    assert_eq!(requests["q2"]["method"], "roots/list");
    assert_ne!(first["requestState"], second["requestState"]);

    let answers = json!({"q1": reply("Hello Ada"), "q2": roots()});
    let third =
        asked(&mut client, "it", &able(), &json!({"requestState": second["requestState"], "inputResponses": answers}));
    assert_eq!(third["result"]["content"][0]["text"], "[\"Hello Ada\",\"file:///work\"]", "{third}");
    assert_eq!((read(&project, "before"), read(&project, "after")), ("x".to_owned(), "x".to_owned()));
    // Each state was good for once.
    for state in [&first["requestState"], &second["requestState"]] {
        let again = asked(&mut client, "it", &able(), &json!({"requestState": state, "inputResponses": answers}));
        let why = "the call that asked this has ended: call the tool again";
        assert_eq!(again["error"], json!({"code": -32602, "message": why}));
    }
    let outcomes: Vec<_> = audited(&project).iter().map(|entry| entry["outcome"].clone()).collect();
    assert_eq!(outcomes, ["completed"]);
}

#[test]
fn what_is_missing_is_asked_again_and_what_is_forged_is_refused() {
    let project = project();
    let mut client = Client::start(&project, &[]);
    let mut state = asked(&mut client, "it", &able(), &json!({}))["result"]["requestState"].take();
    for answers in
        [json!({}), json!({"q1": named("Ada")}), json!({"name": 12345}), json!({"name": {"action": "accept"}})]
    {
        let again = asked(&mut client, "it", &able(), &json!({"requestState": state, "inputResponses": answers}));
        assert_eq!(again["result"]["resultType"], "input_required", "{again}");
        assert_eq!(again["result"]["inputRequests"]["name"]["method"], "elicitation/create");
        state = again["result"]["requestState"].clone();
    }
    let forged = json!(format!("{}-TAMPERED", state.as_str().unwrap()));
    let answers = json!({"name": named("Ada")});
    for (tool, state) in [("it", &forged), ("can", &state)] {
        let refused = asked(&mut client, tool, &able(), &json!({"requestState": state, "inputResponses": answers}));
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
    let other = json!({"requestState": state, "inputResponses": answers, "arguments": {"x": 1}});
    assert_eq!(asked(&mut client, "it", &able(), &other)["error"]["code"], -32602);
    // The call still waits for its own client.
    let declined = json!({"requestState": state, "inputResponses": {"name": {"action": "decline"}}});
    assert_eq!(asked(&mut client, "it", &able(), &declined)["result"]["content"][0]["text"], "decline");
}

#[test]
fn answers_that_come_first_are_taken() {
    let project = project();
    let mut client = Client::start(&project, &[]);
    let early = json!({"inputResponses": {"name": named("Ada"), "unknown": {"action": "accept", "content": {}}}});
    let answer = asked(&mut client, "it", &able(), &early);
    assert_eq!(answer["result"]["inputRequests"]["q1"]["method"], "sampling/createMessage", "{answer}");
    let wrong = json!({"inputResponses": {"name": 12345}});
    let answer = asked(&mut client, "it", &able(), &wrong);
    assert_eq!(answer["result"]["inputRequests"]["name"]["method"], "elicitation/create", "{answer}");
}

#[test]
fn an_answer_that_does_not_fit_the_form_fails_the_call() {
    let project = project();
    let mut client = Client::start(&project, &[]);
    let state = asked(&mut client, "it", &able(), &json!({}))["result"]["requestState"].take();
    let answers = json!({"name": {"action": "accept", "content": {"name": 3}}});
    let answer =
        asked(&mut client, "it", &able(), &json!({"requestState": state, "inputResponses": answers}))["result"].take();
    let text = answer["content"][0]["text"].as_str().unwrap();
    assert!(answer["isError"] == true && text.contains("ask.user: the answer does not fit the form: "), "{text}");
}

#[test]
fn a_client_is_asked_for_what_it_declares_only() {
    let project = project();
    let mut client = Client::start(&project, &[]);
    for (capabilities, can) in [
        (json!({}), json!([])),
        (able(), json!(["user", "model", "roots"])),
        (json!({"sampling": {}}), json!(["model"])),
        (json!({"elicitation": {"url": {}}}), json!([])),
    ] {
        let answer = asked(&mut client, "can", &capabilities, &json!({}));
        assert_eq!(answer["result"]["content"][0]["text"], can.to_string());
    }
    let refused = asked(&mut client, "it", &json!({"sampling": {}}), &json!({}));
    assert_eq!(refused["error"]["code"], -32021, "{refused}");
    assert_eq!(refused["error"]["data"], json!({"requiredCapabilities": {"elicitation": {}}}));
}

#[test]
fn what_the_policy_does_not_grant_is_denied() {
    let script = "def run(args):\n    return ask.roots()\n";
    let project = Project::new().tool("it", "", script).tool("can", "", "def run(args):\n    return ask.can()\n");
    let mut client = Client::start(&project, &[]);
    let answer = asked(&mut client, "it", &able(), &json!({}));
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
    assert!(text.starts_with("tool denied: ") && text.contains("`ask_roots` is not granted"), "{text}");
    let hint = "hint: write `sandbox.services: [cache, metrics, clock, random, events, meta, delegate, modify, prompt, \
                ask_roots]` in `.harness/harness.md`";
    assert!(text.ends_with(hint), "{text}");
    assert_eq!(asked(&mut client, "can", &able(), &json!({}))["result"]["content"][0]["text"], "[]");
    // The control is what the hint says.
    let project = project.policy(&SERVICES.replace(", ask_user, ask_model", ""));
    let answer = asked(&mut Client::start(&project, &[]), "it", &able(), &json!({}));
    assert_eq!(answer["result"]["inputRequests"]["q1"]["method"], "roots/list", "{answer}");
}

#[test]
fn no_more_calls_wait_than_there_is_room_for() {
    let project = project();
    let mut client = Client::start(&project, &[]);
    let ask = |client: &mut Client| asked(client, "it", &able(), &json!({}))["result"].take();
    let states: Vec<Json> = (0..16).map(|_| ask(&mut client)["requestState"].take()).collect();
    assert!(states.iter().all(Json::is_string), "{states:?}");
    let full = ask(&mut client);
    let text = full["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{full}"));
    assert!(text.contains("too many calls wait for answers of their clients"), "{text}");
    // One that is answered makes room.
    let decline = json!({"requestState": states[0], "inputResponses": {"name": {"action": "decline"}}});
    assert_eq!(asked(&mut client, "it", &able(), &decline)["result"]["content"][0]["text"], "decline");
    assert_eq!(ask(&mut client)["resultType"], "input_required");
}

/// Begins a call after `initialize` with these capabilities.
fn begun(client: &mut Client, capabilities: &Json) {
    let info = json!({"name": "older", "version": "1.0"});
    client.request("initialize", json!({"protocolVersion": LEGACY, "capabilities": capabilities, "clientInfo": info}));
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    client.begin("tools/call", json!({"name": "it", "arguments": {}}));
}

#[test]
fn an_older_client_is_asked_while_the_call_waits() {
    let project = project();
    let mut client = Client::start(&project, &[]);
    begun(&mut client, &able());
    for (method, answer) in
        [("elicitation/create", named("Ada")), ("sampling/createMessage", reply("Hello Ada")), ("roots/list", roots())]
    {
        let question = client.receive();
        assert_eq!(question["method"], method, "{question}");
        assert!(method != "elicitation/create" || question["params"]["message"] == SHOWN, "{question}");
        client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}));
    }
    let answer = client.receive();
    assert_eq!(answer["result"]["content"][0]["text"], "[\"Hello Ada\",\"file:///work\"]", "{answer}");
    // One that cannot is not asked, and the tool fails.
    let mut client = Client::start(&project, &[]);
    begun(&mut client, &json!({"roots": {}}));
    let answer = client.receive();
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
    assert!(text.contains("ask.user: the client of this call does not answer `ask.user`"), "{text}");
}

#[test]
fn time_in_which_a_client_answers_is_not_the_tools() {
    // As long as this test takes to answer, and the control below shows that the time is the tool's own otherwise.
    let project = Project::new().policy(SERVICES).tool("it", "timeout_ms: 2000\n", TWICE).tool(
        "slow",
        "timeout_ms: 2000\n",
        "def run(args):\n    sleep(60000)\n",
    );
    let mut client = Client::start(&project, &[]);
    let state = asked(&mut client, "it", &able(), &json!({}))["result"]["requestState"].take();
    let (text, is_error) = client.text("slow", json!({}));
    assert!(is_error && text.contains("over the limit `timeout_ms` of 2000"), "{text}");
    let decline = json!({"requestState": state, "inputResponses": {"name": {"action": "decline"}}});
    assert_eq!(asked(&mut client, "it", &able(), &decline)["result"]["content"][0]["text"], "decline");
}

#[test]
fn a_secret_goes_to_no_client() {
    let value = "a-long-secret-value-of-a-test";
    let script = "def run(args):\n    return ask.model(args['x'])['text']\n";
    let secrets = "  secrets:\n    TOKEN: { env: HARNESS_TEST_SECRET, hosts: [example.com] }\n";
    let project = Project::new().policy(&format!("{SERVICES}{secrets}")).tool("it", "", script);
    let mut client = Client::start_with(&project, &[], &[("HARNESS_TEST_SECRET", value)]);
    let answer = asked(&mut client, "it", &able(), &json!({"arguments": {"x": value}})).to_string();
    assert!(!answer.contains(value), "{answer}");
    let answer = asked(&mut client, "it", &able(), &json!({"arguments": {"x": "no secret"}}));
    assert_eq!(answer["result"]["inputRequests"]["q1"]["params"]["messages"][0]["content"]["text"], "no secret");
}

/// A request of an older client over HTTP, of this session.
fn older(web: &Web, session: &str, message: &Json) -> Reply {
    web.post(&[("MCP-Protocol-Version", LEGACY), ("Mcp-Session-Id", session)], &message.to_string())
}

#[test]
fn an_older_client_over_http_is_asked_in_the_answer_and_answers_with_a_request() {
    let project = project();
    let web = Web::open(&project);
    let begin = |capabilities: Json| {
        let info = json!({"name": "older", "version": "1.0"});
        let params = json!({"protocolVersion": LEGACY, "capabilities": capabilities, "clientInfo": info});
        let begun = older(&web, "", &json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}));
        assert_eq!(begun.status, 200, "{begun:?}");
        begun.header("mcp-session-id")
    };
    let session = begin(able());
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "it", "arguments": {}}});
    let mut stream = web.stream(&[("MCP-Protocol-Version", LEGACY), ("Mcp-Session-Id", &session)], &call.to_string());
    for (method, answer) in
        [("elicitation/create", named("Ada")), ("sampling/createMessage", reply("Hello Ada")), ("roots/list", roots())]
    {
        let question = stream.message();
        assert_eq!(question["method"], method, "{question}");
        assert!(method != "elicitation/create" || question["params"]["message"] == SHOWN, "{question}");
        // Another request of the server, or one that was never sent, is not answered by it.
        let other = json!({"jsonrpc": "2.0", "id": 0, "result": answer});
        assert_ne!(older(&web, &session, &other).status, 202);
        let said = json!({"jsonrpc": "2.0", "id": question["id"], "result": answer});
        assert_eq!(older(&web, &session, &said).status, 202);
        assert_ne!(older(&web, &session, &said).status, 202);
    }
    let answer = stream.message();
    assert_eq!(answer["result"]["content"][0]["text"], "[\"Hello Ada\",\"file:///work\"]", "{answer}");
    assert_eq!(audited(&project)[0]["client"], "older");
    // One that cannot, and one of which nothing is known, are not asked.
    for session in [begin(json!({"roots": {}})), String::new()] {
        let answer = older(&web, &session, &call).json();
        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(text.contains("does not answer `ask.user`"), "{text}");
    }
    // A session of another server is none.
    assert_eq!(older(&web, "forged", &call).status, 404);
    // What the client says instead of an answer fails the tool.
    let mut stream = web.stream(&[("MCP-Protocol-Version", LEGACY), ("Mcp-Session-Id", &session)], &call.to_string());
    let error = json!({"jsonrpc": "2.0", "id": stream.message()["id"], "error": {"code": -1, "message": "not now"}});
    assert_eq!(older(&web, &session, &error).status, 202);
    let text = stream.message()["result"]["content"][0]["text"].take();
    assert!(text.as_str().unwrap().contains("ask.user: not now"), "{text}");
}
