//! HTTP as a script writes it: what the server gets, and what comes back.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

use serde_json::json;

use crate::project::Project;

/// A server that answers each request with the same text, and hands on what it was asked: the lines of the head, and
/// the body.
fn server() -> (String, Receiver<(Vec<String>, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, asked) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut head = Vec::new();
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if line.trim().is_empty() {
                    break;
                }
                head.push(line.trim().to_ascii_lowercase());
            }
            let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let answer = "HTTP/1.1 201 Created\r\nX-Kind: test\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
            stream.write_all(answer.as_bytes()).unwrap();
            sender.send((head, String::from_utf8(body).unwrap())).unwrap();
        }
    });
    (address, asked)
}

/// A text goes as it is, a dict or list as JSON; the answer has the same shape for both, and for `get`.
#[test]
fn what_is_posted_and_what_comes_back() {
    let (address, asked) = server();
    let policy = format!("network: {{ allowed_domains: [\"{address}\"] }}\n");
    let answer = json!({
        "status": 201, "ok": true, "url": format!("http://{address}/a"), "body": "ok", "kind": "test",
    });
    for (call, line, kind, body) in [
        ("http.post(url, 'text')", "post /a http/1.1", None, "text"),
        (
            "http.post(url, {'a': [1, None]})",
            "post /a http/1.1",
            Some("content-type: application/json"),
            "{\"a\":[1,null]}",
        ),
        ("http.post(url, [True])", "post /a http/1.1", Some("content-type: application/json"), "[true]"),
        // Headers and seconds by their place.
        ("http.get(url, {'x-mine': 'yes'}, 30)", "get /a http/1.1", Some("x-mine: yes"), ""),
    ] {
        let script = format!(
            "def run(args):\n    url = 'http://{address}/a'\n    r = {call}\n    return {{'status': r['status'], 'ok': r['ok'], 'url': r['url'], 'body': r['body'], 'kind': r['headers']['x-kind']}}\n"
        );
        let ran = Project::with_script(&script).policy(&policy).run(&["call", "it"]);
        assert_eq!((ran.code, ran.json()), (0, answer.clone()), "{call}: {ran}");
        let (head, sent) = asked.recv().unwrap();
        assert_eq!((head[0].as_str(), sent.as_str()), (line, body), "{call}");
        assert!(kind.is_none_or(|kind| head.iter().any(|line| line == kind)), "{call}: {head:?}");
        if kind.is_none() {
            assert!(!head.iter().any(|line| line.contains("application/json")), "{call}: {head:?}");
        }
    }
}

/// The tool's own deadline ends a request that nobody answers.
#[test]
fn a_request_past_the_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let project = Project::new()
        .tool("it", "timeout_ms: 200\n", &format!("def run(args):\n    return http.get('http://{address}/')\n"))
        .policy(&format!("network: {{ allowed_domains: [\"{address}\"] }}\n"));
    project.run(&["call", "it"]).says(4, "over the limit `timeout_ms` of 200 ms");
}
