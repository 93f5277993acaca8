//! Requests over HTTP: names that lead here, headers that can be read in two ways, and connections that are held.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::json;

use super::{Ended, cases, completed, echo, held, project, works};
use crate::client::{LEGACY, MODERN};
use crate::corpus::Coded;
use crate::project::Project;
use crate::web::{TOKEN, Web, exchange, modern, request};

pub(super) const CASES: &[Coded] = cases! {
    "401" "reaches the server by a name that was bound again to its address": refused(&["evil.example", "evil.example:PORT", "localhost.evil.example:PORT", "127.0.0.1.evil.example:PORT", "localhost:1", "10.0.0.1:PORT", "0.0.0.0:PORT"], "Host", &[403]), fine("Host", "localhost:PORT");
    "402" "reaches the server by a name with a user in it, or with what is no name": refused(&["evil@localhost:PORT", "localhost:PORT@evil.example", "localhost:PORT/", "localhost:PORT, evil.example", " ", "localhost:PORTx", "[::1"], "Host", &[400, 403]), fine("Host", "LOCALHOST:PORT");
    "403" "sends two names, of which one is right": twice("Host", &["localhost:PORT", "evil.example"], &[400]), fine("Host", "127.0.0.1:PORT");
    "404" "names another server in the line of the request": absolute(), fine("Host", "localhost:PORT");
    "405" "is a page of another site in a browser": refused(&["http://evil.example", "https://evil.example", "http://localhost:1", "http://localhost", "null", "file://", "chrome-extension://x", "http://localhost:PORT.evil.example"], "Origin", &[400, 403]), fine("Origin", "http://localhost:PORT");
    "406" "sends two origins, of which one is right": twice("Origin", &["http://localhost:PORT", "http://evil.example"], &[400]), fine("Origin", "http://127.0.0.1:PORT");
    "407" "asks what a page may do, to be allowed it": preflight(), fine("Origin", "http://localhost:PORT");
    "408" "hides a call behind a body whose length is said in two ways": smuggled("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n"), pipelined();
    "409" "hides a call behind two lengths": smuggled("Content-Length: 4\r\nContent-Length: 300\r\n"), pipelined();
    "410" "hides a call behind a coding that looks like `chunked`": all_smuggled(&["Transfer-Encoding: xchunked\r\n", "Transfer-Encoding: chunked, identity\r\n", "Transfer-Encoding : chunked\r\n", "Transfer-Encoding:\u{b}chunked\r\n", "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n"]), pipelined();
    "411" "has a length that is no number": all_smuggled(&["Content-Length: +4\r\n", "Content-Length: 0x4\r\n", "Content-Length: -1\r\n", "Content-Length: 4,4\r\n", "Content-Length: 99999999999999999999\r\n"]), pipelined();
    "412" "folds a header, to hide another in it": all_smuggled(&["X: 1\r\n Content-Length: 4\r\n", "X: 1\r\n\tTransfer-Encoding: chunked\r\n"]), pipelined();
    "413" "names a harmless tool in the header, and another in the message": unlike(&[("Mcp-Name", "wait"), ("Mcp-Name", "ECHO"), ("Mcp-Name", "=?base64?d2FpdA==?="), ("Mcp-Name", "")]), fine("Mcp-Name", "=?base64?ZWNobw==?=");
    "414" "names a harmless method in the header, and another in the message": unlike(&[("Mcp-Method", "tools/list"), ("Mcp-Method", "TOOLS/CALL"), ("Mcp-Method", "")]), fine("Mcp-Method", "tools/call");
    "415" "names another version in the header, to be read by other rules": unlike(&[("MCP-Protocol-Version", LEGACY), ("MCP-Protocol-Version", ""), ("MCP-Protocol-Version", "2030-01-01")]), fine("MCP-Protocol-Version", MODERN);
    "416" "says another argument in its header than in the message": unlike(&[("Mcp-Param-Text", "b"), ("Mcp-Param-Text", "A"), ("Mcp-Param-Text", ""), ("Mcp-Param-Text", "=?base64?Yg==?=")]), fine("Mcp-Param-Text", "=?base64?YQ==?=");
    "417" "encodes a header in a way that can be read as two values": unlike(&[("Mcp-Param-Text", "=?base64?YQ?="), ("Mcp-Param-Text", "=?base64?YR==?="), ("Mcp-Param-Text", "=?BASE64?YQ==?="), ("Mcp-Param-Text", "=?base64?Y Q==?="), ("Mcp-Param-Text", "=?base64?_w==?=")]), fine("Mcp-Param-Text", "=?base64?YQ==?=");
    "418" "sends a header of the protocol twice, once right": both(), fine("Mcp-Name", "echo");
    "419" "has no token, another, or nearly the one": tokens(&["", "Bearer", "Bearer x", "Basic a-token-of-the-tests", "Bearer a-token-of-the-test", "Bearer a-token-of-the-testsx", "Bearer A-TOKEN-OF-THE-TESTS", "a-token-of-the-tests", "Bearer a-token-of-the-tests, Bearer x"], false), tokens(&["Bearer a-token-of-the-tests", "bearer a-token-of-the-tests"], true);
    "420" "sends its token in the line of the request, or in a cookie": elsewhere(), tokens(&["Bearer a-token-of-the-tests"], true);
    "421" "sends a session that it has made up": sessions(&["forged", "AAAA", "", "null"], false), sessions(&[], true);
    "422" "sends the session of another server, or one that was changed": foreign_sessions(), sessions(&[], true);
    "423" "answers a question that is another client's, by its number": replies(), sessions(&[], true);
    "424" "sends a head that is larger than one may be": large_head(), fine("X-More", "x");
    "425" "sends a body that is larger than a message may be, with its length or without": large_body(), fine("X-More", "x");
    "426" "holds as many connections as the server lets in, and says nothing": held_open(b""), fine("X-More", "x");
    "427" "holds connections in the middle of a head": held_open(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nX: "), fine("X-More", "x");
    "428" "closes connections in the middle of bodies, very often": half_sent(), fine("X-More", "x");
    "429" "speaks another protocol": other_protocols(), fine("X-More", "x");
    "430" "asks for a stream, a file or another path": other_paths(), fine("X-More", "x");
};

/// A call of `echo` with more headers, or others. `PORT` in them is the server's.
fn call(web: &Web, more: &[(&str, &str)]) -> u16 {
    let port = web.address().rsplit_once(':').unwrap().1;
    let more: Vec<(&str, String)> = more.iter().map(|(name, value)| (*name, value.replace("PORT", port))).collect();
    let (body, headers) = modern("tools/call", json!({"name": "echo", "arguments": {"text": "a"}}));
    let mut all: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    all.push(("Mcp-Param-Text", "a"));
    all.push(("Host", web.address()));
    all.retain(|(name, _)| !more.iter().any(|(other, _)| other == name));
    all.extend(more.iter().map(|(name, value)| (*name, value.as_str())));
    exchange(&mut web.connect(), &request("POST /mcp", &all, &body.to_string())).status
}

fn fine(name: &str, value: &str) -> Ended {
    let project = project();
    let status = call(&Web::open(&project), &[(name, value)]);
    works(status == 200 && completed(&project) == 1, (status, completed(&project)))
}

fn refused(values: &[&str], name: &str, statuses: &[u16]) -> Ended {
    let project = project();
    let web = Web::open(&project);
    let seen: Vec<(&str, u16)> = values.iter().map(|value| (*value, call(&web, &[(name, value)]))).collect();
    held(seen.iter().all(|(_, status)| statuses.contains(status)) && completed(&project) == 0, seen)
}

fn twice(name: &str, values: &[&str], statuses: &[u16]) -> Ended {
    let project = project();
    let web = Web::open(&project);
    let orders = [[values[0], values[1]], [values[1], values[0]], [values[0], values[0]]];
    let seen: Vec<u16> = orders.iter().map(|[one, other]| call(&web, &[(name, one), (name, other)])).collect();
    held(seen.iter().all(|status| statuses.contains(status)) && completed(&project) == 0, seen)
}

fn unlike(headers: &[(&str, &str)]) -> Ended {
    let project = project();
    let web = Web::open(&project);
    let seen: Vec<_> = headers.iter().map(|header| (header, call(&web, &[*header]))).collect();
    held(seen.iter().all(|(_, status)| *status == 400) && completed(&project) == 0, seen)
}

fn both() -> Ended {
    let project = project();
    let web = Web::open(&project);
    let pairs = [
        ("Mcp-Name", "echo", "wait"),
        ("Mcp-Method", "tools/call", "tools/list"),
        ("MCP-Protocol-Version", MODERN, LEGACY),
        ("Mcp-Param-Text", "a", "b"),
    ];
    let seen: Vec<_> = pairs
        .iter()
        .flat_map(|(name, one, other)| {
            [call(&web, &[(name, one), (name, other)]), call(&web, &[(name, other), (name, one)])]
        })
        .collect();
    held(seen.iter().all(|status| *status == 400) && completed(&project) == 0, seen)
}

fn absolute() -> Ended {
    let project = project();
    let web = Web::open(&project);
    let port = web.address().rsplit_once(':').unwrap().1;
    let (body, headers) = modern("tools/call", json!({"name": "echo", "arguments": {"text": "a"}}));
    let mut all: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    all.extend([("Mcp-Param-Text", "a"), ("Host", web.address())]);
    let lines = [
        "POST http://evil.example/mcp".to_owned(),
        format!("POST http://evil.example:{port}/mcp"),
        "POST http:///mcp".to_owned(),
    ];
    let seen: Vec<u16> =
        lines.iter().map(|line| exchange(&mut web.connect(), &request(line, &all, &body.to_string())).status).collect();
    held(seen.iter().all(|status| matches!(status, 400 | 403)) && completed(&project) == 0, seen)
}

fn preflight() -> Ended {
    let project = project();
    let web = Web::open(&project);
    let headers = [("Origin", "http://evil.example"), ("Access-Control-Request-Method", "POST")];
    let reply = web.send("OPTIONS /mcp", &headers, "");
    held(reply.status == 403 && !reply.head.contains("access-control"), reply)
}

/// All that comes back on a connection.
fn all(web: &Web, sent: &[u8]) -> String {
    let (mut stream, mut text) = (web.connect(), Vec::new());
    let _ = stream.write_all(sent);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let _ = stream.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// The head of a call, without its length and its end.
fn head(web: &Web) -> String {
    let (_, headers) = modern("tools/call", json!({"name": "echo"}));
    let mut head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nMcp-Param-Text: a\r\nMcp-Name: echo\r\n",
        web.address()
    );
    headers.iter().filter(|(name, _)| *name != "Mcp-Name").for_each(|(name, value)| {
        head.push_str(&format!("{name}: {value}\r\n"));
    });
    head
}

/// A second call behind a first body, for a program between that takes another end of it.
fn smuggled(how: &str) -> Ended {
    let project = project();
    let web = Web::open(&project);
    let hidden = format!("{}Content-Length: {}\r\n\r\n{}", head(&web), echo("2").len(), echo("2"));
    let text = all(&web, format!("{}{how}\r\n0\r\n\r\n{hidden}", head(&web)).as_bytes());
    let answers = text.matches("HTTP/1.1 ").count();
    held(completed(&project) == 0 && answers <= 1 && !text.contains("HTTP/1.1 200"), text)
}

fn all_smuggled(ways: &[&str]) -> Ended {
    ways.iter().try_fold(String::new(), |_, how| smuggled(how).map_err(|wrong| format!("{how:?}: {wrong}")))
}

/// Two calls on one connection, each with its own end.
fn pipelined() -> Ended {
    let project = project();
    let web = Web::open(&project);
    let one =
        |id: &str, more: &str| format!("{}{more}Content-Length: {}\r\n\r\n{}", head(&web), echo(id).len(), echo(id));
    let sent = format!("{}{}", one("1", ""), one("2", "Connection: close\r\n"));
    let (mut stream, mut text) = (web.connect(), String::new());
    stream.write_all(sent.as_bytes()).unwrap();
    let _ = stream.read_to_string(&mut text);
    works(text.matches("HTTP/1.1 200").count() == 2 && completed(&project) == 2, text)
}

fn guarded(project: &Project) -> Web {
    Web::start(project, &["--http", "127.0.0.1:0", "--token-env", "HARNESS_TOKEN"])
}

fn tokens(shown: &[&str], is_control: bool) -> Ended {
    let project = project();
    let web = guarded(&project);
    let seen: Vec<u16> = shown.iter().map(|shown| call(&web, &[("Authorization", shown)])).collect();
    match is_control {
        true => works(seen.iter().all(|status| *status == 200), seen),
        false => held(seen.iter().all(|status| *status == 401) && completed(&project) == 0, seen),
    }
}

fn elsewhere() -> Ended {
    let project = project();
    let web = guarded(&project);
    let cookie = format!("token={TOKEN}; authorization=Bearer {TOKEN}");
    let seen = [
        call(&web, &[("Cookie", &cookie)]),
        call(&web, &[("X-Authorization", &format!("Bearer {TOKEN}"))]),
        call(&web, &[("Proxy-Authorization", &format!("Bearer {TOKEN}"))]),
        web.send(&format!("POST /mcp?token={TOKEN}&access_token={TOKEN}"), &[], &echo("1")).status,
        web.send(&format!("POST http://x:{TOKEN}@{}/mcp", web.address()), &[], &echo("1")).status,
    ];
    held(seen.iter().all(|status| matches!(status, 400 | 401 | 403)) && completed(&project) == 0, seen)
}

/// The answer to `initialize`, with its session.
fn session(web: &Web) -> String {
    let info = json!({"name": "older", "version": "1"});
    let params = json!({"protocolVersion": LEGACY, "capabilities": {"elicitation": {}}, "clientInfo": info});
    let begun = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    web.post(&[], &begun.to_string()).header("mcp-session-id")
}

/// A call of an older client.
fn older(web: &Web, session: &str) -> u16 {
    let params = json!({"name": "echo", "arguments": {"text": "a"}});
    let body = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}).to_string();
    web.post(&[("MCP-Protocol-Version", LEGACY), ("Mcp-Session-Id", session)], &body).status
}

fn sessions(made_up: &[&str], is_control: bool) -> Ended {
    let project = project();
    let web = Web::open(&project);
    if is_control {
        let status = older(&web, &session(&web));
        return works(status == 200, status);
    }
    // An empty one is none: such a client has no capabilities.
    let seen: Vec<(&str, u16)> =
        made_up.iter().filter(|made_up| !made_up.is_empty()).map(|made_up| (*made_up, older(&web, made_up))).collect();
    held(seen.iter().all(|(_, status)| *status == 404) && completed(&project) == 0, seen)
}

fn foreign_sessions() -> Ended {
    let project = project();
    let (web, other) = (Web::open(&project), Web::open(&project));
    let own = session(&web);
    let mut changed = own.clone().into_bytes();
    changed[own.len() / 2] ^= 1;
    let changed = String::from_utf8(changed).unwrap();
    let mut seen = vec![older(&other, &own), older(&web, &changed), older(&web, &own[..own.len() - 8])];
    seen.push(older(&web, &format!("{own}AAAA")));
    held(seen.iter().all(|status| *status == 404) && completed(&project) == 0, seen)
}

fn replies() -> Ended {
    let project = project();
    let web = Web::open(&project);
    let (one, other) = (session(&web), session(&web));
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "form", "arguments": {}}});
    let mut stream = web.stream(&[("MCP-Protocol-Version", LEGACY), ("Mcp-Session-Id", &one)], &call.to_string());
    let question = stream.message();
    let guesses = [json!(0), json!(1), json!("harness-0"), json!("harness-00000000000000000000000000000000")];
    let result = json!({"action": "accept", "content": {"n": 7}});
    let say = |id: &serde_json::Value| {
        let body = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
        web.post(&[("MCP-Protocol-Version", LEGACY), ("Mcp-Session-Id", &other)], &body).status
    };
    let seen: Vec<u16> = guesses.iter().map(say).collect();
    // The question is still open for the one that it was put to.
    let own = say(&question["id"]);
    let answer = stream.message();
    held(
        seen.iter().all(|status| *status == 400) && own == 202 && answer["result"]["isError"] == false,
        (seen, own, answer),
    )
}

fn large_head() -> Ended {
    let project = project();
    let web = Web::open(&project);
    let one = call(&web, &[("X-More", &"x".repeat(200_000))]);
    let name = "y".repeat(300);
    let many: Vec<(&str, &str)> = (0..2_000).map(|_| ("X-More", name.as_str())).collect();
    let more = call(&web, &many);
    held(matches!(one, 400 | 431) && matches!(more, 400 | 431) && completed(&project) == 0, (one, more))
}

fn large_body() -> Ended {
    let project = project();
    let web = Web::open(&project);
    let body = echo("1").replace("\"text\":\"a\"", &format!("\"text\":\"a\",\"more\":\"{}\"", "x".repeat(4 << 20)));
    let whole = web.post(&[], &body).status;
    let said = web.post(&[("Content-Length", "100000000000")], "{").status;
    let chunks = format!("{}Transfer-Encoding: chunked\r\n\r\n", head(&web));
    let mut sent = chunks.into_bytes();
    (0..80).for_each(|_| sent.extend([b"10000\r\n".as_slice(), &[b'x'; 0x10000], b"\r\n"].concat()));
    let mut stream = web.connect();
    let chunked = exchange(&mut stream, &sent).status;
    held([whole, said, chunked] == [413; 3] && completed(&project) == 0, (whole, said, chunked))
}

/// Connections to the last one that is let in; then one ends, and another comes.
fn held_open(begun: &[u8]) -> Ended {
    let project = project();
    let web = Web::open(&project);
    let open = || {
        let mut stream = web.connect();
        let _ = stream.write_all(begun);
        stream
    };
    let mut streams: Vec<TcpStream> = (0..128).map(|_| open()).collect();
    let mut refused = open();
    let closed = matches!(refused.read(&mut [0]), Ok(0) | Err(_));
    streams.clear();
    let (body, headers) = modern("tools/list", json!({}));
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
    held(closed, closed)
}

fn half_sent() -> Ended {
    let project = project();
    let web = Web::open(&project);
    for _ in 0..300 {
        let mut stream = web.connect();
        let _ = stream.write_all(format!("{}Content-Length: 1000\r\n\r\n{{\"jsonrpc\"", head(&web)).as_bytes());
    }
    // All of them are over, or this one would not be let in.
    let mut status = 0;
    while status != 200 {
        let mut stream = web.connect();
        let sent =
            format!("{}Connection: close\r\nContent-Length: {}\r\n\r\n{}", head(&web), echo("1").len(), echo("1"));
        let mut text = String::new();
        let _ = stream.write_all(sent.as_bytes());
        let _ = stream.read_to_string(&mut text);
        status = if text.starts_with("HTTP/1.1 200") { 200 } else { 0 };
    }
    held(completed(&project) == 1, completed(&project))
}

fn other_protocols() -> Ended {
    let project = project();
    let web = Web::open(&project);
    let said: Vec<String> = [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"SSH-2.0-x\r\n",
        b"POST /mcp\r\n\r\n",
        b"POST /mcp HTTP/0.9\r\n\r\n",
        b"\0\0\0\0",
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n",
    ]
    .iter()
    .map(|sent| all(&web, sent))
    .collect();
    held(said.iter().all(|said| !said.contains(" 200 ")) && call(&web, &[]) == 200, said)
}

fn other_paths() -> Ended {
    let project = project();
    let web = Web::open(&project);
    let mut seen: Vec<u16> =
        ["/", "/mcp/", "/mcp/../mcp", "/%6dcp", "//mcp", "/mcp;x", "/.harness/harness.md", "/docs/guide.md"]
            .iter()
            .map(|path| web.send(&format!("POST {path}"), &[], &echo("1")).status)
            .collect();
    seen.extend(["GET", "HEAD", "DELETE", "PUT", "TRACE", "PATCH"].map(|method| {
        let mut stream = web.connect();
        let _ = stream.write_all(&request(&format!("{method} /mcp"), &[("Host", web.address())], ""));
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
    }));
    held(seen.iter().all(|status| matches!(status, 400 | 404 | 405)) && completed(&project) == 0, seen)
}
