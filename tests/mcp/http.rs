//! The protocol over HTTP: messages, headers, and the end of a call.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use rustix::process::Signal;
use serde_json::{Value as Json, json};

use crate::client::{LEGACY, audited, capabilities, meta};
use crate::project::{FINE, Project};
use crate::streams::{endless, wait_until_begun};
use crate::web::{Reply, Web, exchange, request};

fn call(web: &Web, tool: &str, more: &[(&str, &str)]) -> Reply {
    web.modern("tools/call", json!({"name": tool}), more)
}

#[test]
fn both_eras_are_served_without_sessions() {
    let project = Project::with_script(FINE);
    let web = Web::open(&project);
    let found = web.modern("server/discover", json!({}), &[]);
    assert_eq!(found.json()["result"]["capabilities"], capabilities(), "{found:?}");
    assert!(found.head.contains("content-type: application/json"), "{found:?}");
    assert_eq!(web.modern("tools/list", json!({}), &[]).json()["result"]["tools"][0]["name"], "it");
    let text = json!([{"type": "text", "text": "fine"}]);
    let modern = call(&web, "it", &[]).json();
    assert_eq!(modern["result"], json!({"resultType": "complete", "content": text, "isError": false}));

    let info = json!({"name": "older", "version": "1.0"});
    let params = json!({"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": info});
    let agreed =
        web.post(&[], &json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).to_string());
    assert_eq!(agreed.json()["result"]["protocolVersion"], LEGACY);
    assert!(agreed.head.contains("mcp-session-id: "), "{agreed:?}");
    let version = ("MCP-Protocol-Version", LEGACY);
    let accepted = web.post(&[version], "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}");
    assert_eq!((accepted.status, accepted.body.as_str()), (202, ""));
    let older = json!({"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": {"name": "it"}}).to_string();
    let answer = web.post(&[version], &older).json();
    assert_eq!(answer, json!({"jsonrpc": "2.0", "id": "a", "result": {"content": text, "isError": false}}));
    // Without the header it is the version of before the header.
    assert_eq!(web.post(&[], &older).status, 200);

    let entries = audited(&project);
    let of = |key: &str| entries.iter().map(|entry| entry[key].clone()).collect::<Vec<Json>>();
    assert_eq!(of("client"), ["tester", "unknown", "unknown"]);
    assert_eq!(of("protocol"), ["mcp/2026-07-28", "mcp/2025-11-25", "mcp/2025-03-26"]);
    assert_eq!(of("request"), ["1", "a", "a"]);
}

/// A plain call goes a shorter way than one whose headers have to be read first, such as a name in base64.
#[test]
fn every_call_comes_to_the_same_whichever_way_it_goes() {
    let asks = "def run(args):\n    return ask.user('Who?', {'type': 'object', 'properties': {}})\n";
    let project = Project::with_script(FINE)
        .policy("sandbox:\n  services: [ask_user]\ntools_policy: { deny: [not] }\n")
        .tool("fails", "", "def run(args):\n    fail('not today')\n")
        .tool("not", "", FINE)
        .tool("asks", "", asks)
        .tool("confirm", "confirm: true\n", FINE)
        .tool("value", "returns: { type: object }\n", "def run(args):\n    return {'a': [1, 2.5]}\n")
        .tool("needs", "parameters:\n  n: { type: integer, required: true }\n", FINE);
    let web = Web::open(&project);
    let names =
        [("it", "aXQ="), ("fails", "ZmFpbHM="), ("not", "bm90"), ("asks", "YXNrcw=="), ("confirm", "Y29uZmlybQ==")];
    let names = names.into_iter().chain([("value", "dmFsdWU="), ("needs", "bmVlZHM="), ("none", "bm9uZQ==")]);
    let mut statuses = Vec::new();
    for (name, encoded) in names {
        let plain = call(&web, name, &[]);
        let other = call(&web, name, &[("Mcp-Name", &format!("=?base64?{encoded}?="))]);
        let head = |reply: &Reply| -> Vec<String> {
            reply.head.lines().filter(|line| !line.starts_with("date: ")).map(str::to_owned).collect()
        };
        assert_eq!((plain.status, head(&plain), &plain.body), (other.status, head(&other), &other.body), "{name}");
        statuses.push((name, plain.status, plain.json()["result"]["isError"].as_bool()));
    }
    let [fine, failed] = [Some(false), Some(true)];
    assert_eq!(
        statuses,
        [
            ("it", 200, fine),
            ("fails", 200, failed),
            ("not", 200, None),
            ("asks", 400, None),
            ("confirm", 200, failed),
            ("value", 200, fine),
            ("needs", 200, failed),
            ("none", 200, None),
        ]
    );
    let entries = audited(&project);
    let of = |n: usize| ["tool", "outcome", "client", "protocol", "request"].map(|key| entries[n][key].clone());
    assert!((0..entries.len() / 2).all(|n| of(2 * n) == of(2 * n + 1)), "{entries:?}");
}

#[test]
fn headers_of_the_newest_revision_are_what_the_message_says() {
    let project = Project::with_script(FINE).tool("other", "", FINE);
    let web = Web::open(&project);
    assert_eq!(call(&web, "it", &[]).json()["result"]["isError"], false);
    // `it` as the specification encodes what a header cannot hold.
    assert_eq!(call(&web, "it", &[("Mcp-Name", "=?base64?aXQ=?=")]).json()["result"]["isError"], false);
    for more in [
        ("Mcp-Name", "other"),
        ("Mcp-Name", ""),
        ("Mcp-Method", "tools/list"),
        ("Mcp-Method", ""),
        ("MCP-Protocol-Version", LEGACY),
        ("MCP-Protocol-Version", ""),
    ] {
        let reply = call(&web, "it", &[more]);
        assert_eq!(reply.refusal(), (400, -32020), "{more:?}: {reply:?}");
    }
    for name in ["Mcp-Name", "Mcp-Method", "MCP-Protocol-Version"] {
        let value = [("Mcp-Name", "it"), ("Mcp-Method", "tools/call")].into_iter().find(|(known, _)| *known == name);
        let value = value.map_or(crate::client::MODERN, |(_, value)| value);
        let reply = call(&web, "it", &[(name, value), (name, "another")]);
        assert_eq!(reply.refusal(), (400, -32020), "{name}: {reply:?}");
    }
    let outcomes = audited(&project).len();
    assert_eq!(outcomes, 2, "a call was made that its headers do not name");
}

#[test]
fn errors_of_the_protocol_have_their_status() {
    let project = Project::with_script(FINE);
    let web = Web::open(&project);
    assert!(web.lists(&[]));
    for (body, code) in [
        ("nonsense", -32700),
        ("", -32700),
        ("[]", -32600),
        ("{\"id\":4}", -32600),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}", -32600),
    ] {
        assert_eq!(web.post(&[], body).refusal(), (400, code), "{body}");
    }
    assert_eq!(web.modern("nothing/there", json!({}), &[]).refusal(), (404, -32601));
    assert_eq!(call(&web, "nothing", &[]).refusal(), (200, -32602));
    let mut later = meta();
    later["io.modelcontextprotocol/protocolVersion"] = json!("2030-01-01");
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": later}}).to_string();
    let headers = [("MCP-Protocol-Version", "2030-01-01"), ("Mcp-Method", "tools/list")];
    assert_eq!(web.post(&headers, &body).refusal(), (400, -32022));
    let mut bare = meta();
    bare.as_object_mut().unwrap().remove("io.modelcontextprotocol/clientCapabilities");
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": bare}}).to_string();
    let headers = [("MCP-Protocol-Version", crate::client::MODERN), ("Mcp-Method", "tools/list")];
    assert_eq!(web.post(&headers, &body).refusal(), (400, -32602));
    assert_eq!(web.modern("tools/list", json!({}), &[("Content-Type", "text/plain")]).status, 415);
    assert_eq!(web.modern("tools/list", json!({}), &[("Accept", "text/html")]).status, 406);
}

#[test]
fn messages_are_posted_to_one_path() {
    let project = Project::with_script(FINE);
    let web = Web::open(&project);
    for method in ["GET", "DELETE", "PUT", "OPTIONS"] {
        let reply = web.send(&format!("{method} /mcp"), &[], "");
        assert!(reply.status == 405 && reply.head.contains("allow: post"), "{method}: {reply:?}");
    }
    for path in ["/", "/mcp/", "/mcpx", "/MCP"] {
        assert_eq!(web.send(&format!("POST {path}"), &[], "{}").status, 404, "{path}");
    }
    assert!(web.lists(&[]));
}

#[test]
fn a_body_that_is_too_long_is_refused_and_the_longest_one_is_read() {
    let project = Project::with_script("def run(args):\n    return len(args['x'])\n");
    let web = Web::open(&project);
    let most = 4 << 20;
    let params = |length: usize| json!({"name": "it", "arguments": {"x": "y".repeat(length)}});
    let length_of = |length: usize| crate::web::modern("tools/call", params(length)).0.to_string().len();
    let room = most - length_of(0);
    assert_eq!(length_of(room), most);
    let reply = web.modern("tools/call", params(room), &[]);
    assert_eq!((reply.status, reply.json()["error"].is_null()), (200, true), "{}", reply.body);
    // Refused for its length, before any of it is there.
    let head = request("POST /mcp", &[("Host", web.address()), ("Content-Length", "4194305")], "");
    assert_eq!(exchange(&mut web.connect(), &head).refusal(), (413, -32600));
    // And without one, when it is there.
    let chunks = [("Host", web.address()), ("Transfer-Encoding", "chunked"), ("Content-Length", "")];
    let mut endless = request("POST /mcp", &chunks, "");
    endless.extend(format!("400001\r\n{}\r\n0\r\n\r\n", "x".repeat(0x0040_0001)).bytes());
    assert_eq!(exchange(&mut web.connect(), &endless).refusal(), (413, -32600));
    assert!(web.lists(&[("X-Padding", &"x".repeat(30_000))]));
    assert_eq!(web.post(&[("X-Padding", &"x".repeat(70_000))], "{}").status, 431);
}

/// A connection on which a call runs that only ends when it is ended.
fn begin_endless(web: &Web, project: &Project) -> TcpStream {
    let stream = web.begin("endless");
    wait_until_begun(project);
    stream
}

#[test]
fn a_call_ends_when_its_connection_is_closed() {
    let project = endless();
    let web = Web::open(&project);
    let stream = begin_endless(&web, &project);
    drop(stream);
    let is_abandoned = |entry: &Json| entry["tool"] == "endless" && entry["outcome"] == "abandoned";
    while !audited(&project).iter().any(is_abandoned) {}
    assert_eq!(call(&web, "it", &[]).json()["result"]["isError"], false);
}

#[test]
fn a_request_beyond_the_most_at_one_time_is_refused() {
    let project = endless();
    let web = Web::open(&project);
    // Each has its place before the next one comes: else `it` could take one of theirs.
    let mut streams: Vec<_> = (0..64).map(|_| begin_endless(&web, &project)).collect();
    let busy = call(&web, "it", &[]);
    assert_eq!(busy.refusal(), (503, -32000));
    assert!(busy.head.contains("retry-after: 1") && busy.json()["id"] == 1, "{busy:?}");
    drop(streams.pop());
    while call(&web, "it", &[]).status != 200 {}
}

#[test]
fn a_connection_beyond_the_most_is_closed() {
    let project = Project::with_script(FINE);
    let web = Web::open(&project);
    let mut idle: Vec<_> = (0..128).map(|_| web.connect()).collect();
    let mut refused = web.connect();
    let mut byte = [0];
    assert!(matches!(refused.read(&mut byte), Ok(0) | Err(_)));
    drop(idle.pop());
    let (body, headers) = crate::web::modern("tools/list", json!({}));
    let mut all: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    all.push(("Host", web.address()));
    let message = request("POST /mcp", &all, &body.to_string());
    let answered = || {
        let (mut stream, mut text) = (web.connect(), String::new());
        let _ = stream.write_all(&message);
        let _ = stream.read_to_string(&mut text);
        text.starts_with("HTTP/1.1 200 ")
    };
    while !answered() {}
}

#[test]
fn a_signal_ends_calls_and_the_server() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let project = endless();
        let web = Web::open(&project);
        let mut stream = begin_endless(&web, &project);
        web.signal(signal);
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.contains("-32603") && text.contains("the server is closing"), "{text}");
        assert_eq!(web.end(), (code, String::new()));
        assert_eq!(audited(&project)[0]["outcome"], "abandoned");
    }
}

#[test]
fn a_header_of_a_parameter_is_what_the_argument_says() {
    let parameters = "parameters:\n  region: { type: string, x-mcp-header: Region }\n  count: { type: integer, x-mcp-header: Count }\n";
    let project = Project::new().tool("it", parameters, FINE);
    let web = Web::open(&project);
    let listed = web.modern("tools/list", json!({}), &[]).json()["result"]["tools"][0]["inputSchema"].clone();
    assert_eq!(listed["properties"]["region"], json!({"type": "string", "x-mcp-header": "Region"}));
    let call = |arguments: Json, more: &[(&str, &str)]| {
        web.modern("tools/call", json!({"name": "it", "arguments": arguments}), more)
    };
    let both = json!({"region": "eu", "count": 3});
    for fine in [
        call(both.clone(), &[("Mcp-Param-Region", "eu"), ("Mcp-Param-Count", "3")]),
        call(json!({"region": "ü"}), &[("Mcp-Param-Region", "=?base64?w7w=?=")]),
        call(json!({}), &[]),
    ] {
        assert_eq!(fine.json()["result"]["isError"], false, "{fine:?}");
    }
    for wrong in [
        call(both.clone(), &[("Mcp-Param-Region", "us"), ("Mcp-Param-Count", "3")]),
        call(both.clone(), &[("Mcp-Param-Region", "eu")]),
        call(json!({}), &[("Mcp-Param-Region", "eu")]),
        call(both, &[("Mcp-Param-Region", "eu"), ("Mcp-Param-Count", "3"), ("Mcp-Param-Count", "4")]),
    ] {
        assert_eq!(wrong.refusal(), (400, -32020), "{wrong:?}");
    }
    assert_eq!(audited(&project).len(), 3);
    // Clients would drop a tool with a header that is none.
    let ran =
        Project::new().tool("it", "parameters:\n  a: { type: number, x-mcp-header: A }\n", FINE).run(&["validate"]);
    ran.says(2, "`x-mcp-header` of `a`: the type must be string, integer, boolean");
}

#[test]
fn the_newest_revision_has_no_initialize() {
    let web = Web::open(&Project::with_script(FINE));
    let info = json!({"name": "older", "version": "1.0"});
    for params in [json!({}), json!({"protocolVersion": crate::client::MODERN, "capabilities": {}, "clientInfo": info})]
    {
        assert_eq!(web.modern("initialize", params, &[]).refusal(), (404, -32601));
    }
}
