//! Files that change while the server runs: they take force, and clients that want it are notified.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use rustix::process::Signal;
use serde_json::{Value as Json, json};

use crate::client::{Client, LEGACY, meta};
use crate::project::{FINE, Project};
use crate::web::{Web, modern, request};

const ID: &str = "io.modelcontextprotocol/subscriptionId";

fn list_changed(of: &str) -> Json {
    json!({"jsonrpc": "2.0", "method": format!("notifications/{of}/list_changed")})
}

fn tool(script: &str) -> String {
    let script: String = script.lines().map(|line| format!("  {line}\n")).collect();
    format!("---\nscript: |\n{script}---\nA tool.\n")
}

/// Puts a file in its place at once, so that nobody reads half of it.
fn put(project: &Project, path: &str, text: &str) {
    let (new, place) = (project.path("new.tmp"), project.path(path));
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, place).unwrap();
}

const SKILL: &str = "---\nname: new\ndescription: New.\n---\nDo it.\n";

/// Begins to listen, and returns the identifier and what is accepted.
fn listen(client: &mut Client, notifications: Json) -> (i64, Json) {
    let id = client.begin("subscriptions/listen", json!({"_meta": meta(), "notifications": notifications}));
    let mut first = client.receive();
    assert_eq!(first["method"], "notifications/subscriptions/acknowledged", "{first}");
    assert_eq!(first["params"]["_meta"][ID], id, "{first}");
    (id, first["params"]["notifications"].take())
}

#[test]
fn an_older_client_is_notified_of_what_changed() {
    let project = Project::with_script(FINE);
    let mut client = Client::legacy(&project, &[]);
    put(&project, ".harness/tools/new.md", &tool(FINE));
    assert_eq!(client.receive(), list_changed("tools"));
    let listed = client.request("tools/list", json!({}));
    let names: Vec<&Json> = listed["result"]["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["it", "new"]);
    // A skill is a prompt and a resource.
    put(&project, ".harness/skills/new.md", SKILL);
    assert_eq!([client.receive(), client.receive()], [list_changed("prompts"), list_changed("resources")]);
    let listed = client.request("prompts/list", json!({}));
    assert_eq!(listed["result"]["prompts"][0]["name"], "new", "{listed}");
    put(&project, ".harness/harness.md", "---\nmcp: { templates: ['docs/{x}'] }\n---\n");
    assert_eq!(client.receive(), list_changed("resources"));
    std::fs::remove_file(project.path(".harness/tools/new.md")).unwrap();
    assert_eq!(client.receive(), list_changed("tools"));
    let (rest, code, err) = client.end();
    assert_eq!((rest, code, err.as_str()), (vec![], 0, ""));
}

#[test]
fn what_cannot_be_loaded_leaves_the_version_before_and_is_said_once() {
    let project = Project::with_script(FINE);
    let mut client = Client::legacy(&project, &[]);
    put(&project, ".harness/tools/bad.md", "---\nscript: [\n---\n");
    let said = client.complaint();
    assert_eq!(said, "error: the changed files are not in force: the version before stays");
    let call = |client: &mut Client| {
        client.request("tools/call", json!({"name": "it"}))["result"]["content"][0]["text"].take()
    };
    assert_eq!(call(&mut client), "fine");
    // Another change, after which the same is wrong.
    put(&project, ".harness/tools/more.md", &tool(FINE));
    put(&project, ".harness/tools/bad.md", &tool(FINE));
    assert_eq!(client.receive(), list_changed("tools"));
    let names = client.request("tools/list", json!({}));
    assert_eq!(names["result"]["tools"].as_array().unwrap().len(), 3, "{names}");
    assert_eq!(call(&mut client), "fine");
    let (_, code, err) = client.end();
    assert_eq!(code, 0);
    assert!(err.contains("bad.md") && !err.contains("not in force"), "{err}");
}

#[test]
fn a_call_keeps_the_version_that_it_began_with() {
    let script = |text: &str| format!("def run(args):\n    return '{text}'\n");
    let project = Project::new().tool("it", "confirm: true\n", &script("before"));
    let mut client = Client::start(&project, &[]);
    let info = json!({"name": "older", "version": "1.0"});
    let capabilities = json!({"elicitation": {}});
    client.request("initialize", json!({"protocolVersion": LEGACY, "capabilities": capabilities, "clientInfo": info}));
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    client.begin("tools/call", json!({"name": "it"}));
    let question = client.receive();
    assert_eq!(question["method"], "elicitation/create", "{question}");
    let confirmed =
        tool(&script("after")).replacen("---\n", "---\nconfirm: true\n", 1).replace("A tool.", "# it\n\nA tool.");
    put(&project, ".harness/tools/it.md", &confirmed);
    put(&project, ".harness/tools/new.md", &tool(FINE));
    assert_eq!(client.receive(), list_changed("tools"));
    let mut said = |question: &Json| {
        let result = json!({"action": "accept", "content": {"confirm": true}});
        client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": result}));
        client.receive()["result"]["content"][0]["text"].take()
    };
    assert_eq!(said(&question), "before");
    client.begin("tools/call", json!({"name": "it"}));
    let question = client.receive();
    let result = json!({"action": "accept", "content": {"confirm": true}});
    client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": result}));
    assert_eq!(client.receive()["result"]["content"][0]["text"], "after");
}

#[test]
fn a_request_to_listen_gets_what_it_asked_for() {
    let project = Project::with_script(FINE).policy("mcp: { resources: [docs/*] }\n").file("docs/a.md", "one");
    let mut client = Client::start(&project, &[]);
    let uris = json!(["file:///docs/a.md", "file:///docs/b.md", "file:///other.md"]);
    let asked = json!({"promptsListChanged": true, "resourceSubscriptions": uris});
    let (id, accepted) = listen(&mut client, asked);
    let uris = json!(["file:///docs/a.md", "file:///docs/b.md"]);
    assert_eq!(accepted, json!({"promptsListChanged": true, "resourceSubscriptions": uris}));
    let (all, accepted) = listen(&mut client, json!({"toolsListChanged": true}));
    assert_eq!(accepted, json!({"toolsListChanged": true}));
    // Both are in the same version: each stream has its own.
    put(&project, ".harness/skills/new.md", SKILL);
    let of = |method: &str, id: i64| json!({"jsonrpc": "2.0", "method": format!("notifications/{method}"), "params": {"_meta": {ID: id}}});
    assert_eq!(client.receive(), of("prompts/list_changed", id));
    put(&project, ".harness/tools/new.md", &tool(FINE));
    assert_eq!(client.receive(), of("tools/list_changed", all));
    let mut updated = of("resources/updated", id);
    for name in ["a.md", "b.md"] {
        put(&project, &format!("docs/{name}"), "two");
        updated["params"]["uri"] = json!(format!("file:///docs/{name}"));
        assert_eq!(client.receive(), updated);
    }
    // Nobody listens any more.
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}));
    assert_eq!(client.tools().len(), 2);
    let (rest, code, err) = client.end();
    let closed = json!({"jsonrpc": "2.0", "id": all, "result": {"resultType": "complete", "_meta": {ID: all}}});
    let last = rest.iter().find(|message| message["id"] == all).unwrap_or_else(|| panic!("{rest:?}"));
    assert_eq!(
        (&last["result"]["resultType"], &last["result"]["_meta"][ID]),
        (&closed["result"]["resultType"], &json!(all))
    );
    assert_eq!((code, err.as_str()), (0, ""));
}

#[test]
fn an_older_client_subscribes_to_resources() {
    let project =
        Project::new().policy("mcp: { resources: [docs/*] }\n").file("docs/a.md", "one").file("docs/b.md", "one");
    let project = project.file(".harness/skills/new.md", SKILL);
    let mut client = Client::legacy(&project, &[]);
    let ask =
        |client: &mut Client, what: &str, uri: &str| client.request(&format!("resources/{what}"), json!({"uri": uri}));
    let updated =
        |uri: &str| json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}});
    let uris = ["file:///docs/a.md", "file:///docs/b.md", "skill://new/SKILL.md"];
    for uri in uris {
        assert_eq!(ask(&mut client, "subscribe", uri), json!({"result": {}}));
    }
    for uri in ["file:///docs/../b.md", "file:///other.md", "skill://other/SKILL.md"] {
        assert_eq!(ask(&mut client, "subscribe", uri)["error"]["code"], -32002, "{uri}");
    }
    put(&project, "docs/a.md", "two");
    assert_eq!(client.receive(), updated(uris[0]));
    assert_eq!(ask(&mut client, "unsubscribe", uris[0]), json!({"result": {}}));
    put(&project, "docs/a.md", "three");
    put(&project, "docs/b.md", "two");
    assert_eq!(client.receive(), updated(uris[1]));
    put(&project, ".harness/skills/new.md", &SKILL.replace("Do it.", "Do it well."));
    assert_eq!(client.receive(), updated(uris[2]));
    // There is a bound.
    for n in 2..64 {
        assert_eq!(ask(&mut client, "subscribe", &format!("file:///docs/{n}")), json!({"result": {}}));
    }
    let refused = ask(&mut client, "subscribe", "file:///docs/64");
    assert_eq!(refused["error"]["code"], -32000, "{refused}");
    // In 2026-07-28 there is no such method.
    let refused = client.modern("resources/subscribe", json!({"uri": uris[1]}));
    assert_eq!(refused["error"]["code"], -32601, "{refused}");
}

#[test]
fn listening_takes_no_place_of_calls_and_has_a_bound() {
    let project = Project::with_script(FINE);
    let mut client = Client::start(&project, &[]);
    for _ in 0..16 {
        listen(&mut client, json!({"toolsListChanged": true}));
    }
    let refused = client.modern("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    assert_eq!(refused["error"]["code"], -32000, "{refused}");
    assert_eq!(client.text("it", json!({})), ("fine".to_owned(), false));
    // One that ends makes room.
    client.send(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}));
    listen(&mut client, json!({"toolsListChanged": true}));
}

/// A request to listen over HTTP.
fn stream(web: &Web, notifications: Json) -> BufReader<TcpStream> {
    let (body, headers) = modern("subscriptions/listen", json!({"notifications": notifications}));
    let mut all: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    all.push(("Host", web.address()));
    let mut stream = web.connect();
    stream.write_all(&request("POST /mcp", &all, &body.to_string())).unwrap();
    BufReader::new(stream)
}

/// The next message of a stream.
fn event(stream: &mut BufReader<TcpStream>) -> Json {
    loop {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the stream has ended");
        if let Some(data) = line.strip_prefix("data:").map(str::trim).filter(|data| !data.is_empty()) {
            return serde_json::from_str(data).unwrap();
        }
    }
}

#[test]
fn a_stream_over_http_is_acknowledged_and_answered_at_its_end() {
    let project = Project::with_script(FINE);
    let web = Web::open(&project);
    let mut streams: Vec<_> = (0..16).map(|_| stream(&web, json!({"toolsListChanged": true}))).collect();
    for stream in &mut streams {
        assert_eq!(event(stream)["method"], "notifications/subscriptions/acknowledged");
    }
    let refused = web.modern("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}), &[]);
    assert_eq!(refused.refusal(), (503, -32000));
    assert!(web.lists(&[]));
    put(&project, ".harness/tools/new.md", &tool(FINE));
    for stream in &mut streams {
        let changed = event(stream);
        assert_eq!(changed["method"], "notifications/tools/list_changed", "{changed}");
        assert_eq!(changed["params"]["_meta"][ID], 1, "{changed}");
    }
    web.signal(Signal::TERM);
    for stream in &mut streams {
        let last = event(stream);
        assert_eq!((&last["id"], &last["result"]["_meta"][ID]), (&json!(1), &json!(1)), "{last}");
    }
    // No stream leads to an older client, which may subscribe all the same.
    let web = Web::open(&project);
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"},
    }});
    let can = web.post(&[], &initialize.to_string()).json()["result"]["capabilities"].take();
    assert_eq!(can, json!({"completions": {}, "logging": {}, "prompts": {}, "resources": {}, "tools": {}}));
}
