//! `harness --server URL` with servers that do harm, that end, and that answer late.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use serde_json::json;

use crate::project::{FINE, Project, Ran};
use crate::remote::command;
use crate::site::Site;

const KEY: &str = "hk_0123456789abcdef_the-secret-of-the-tests";

/// A request as a server got it: its line, its headers in lower case, its body.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) line: String,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(one, _)| one == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn read(stream: &mut BufReader<TcpStream>) -> Self {
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        let mut headers = Vec::new();
        loop {
            let mut header = String::new();
            stream.read_line(&mut header).unwrap();
            let Some((name, value)) = header.trim_end().split_once(": ") else { break };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let length =
            headers.iter().find(|(name, _)| name == "content-length").map_or(0, |(_, value)| value.parse().unwrap());
        let mut body = vec![0; length];
        stream.read_exact(&mut body).unwrap();
        Self { line: line.trim_end().to_owned(), headers, body: String::from_utf8(body).unwrap() }
    }
}

/// A server that gives these answers, one to each connection, and the requests that it got. An answer without a text is
/// none: the connection is closed.
fn server(answers: Vec<Vec<u8>>) -> (String, Receiver<Asked>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for answer in answers {
            let Ok((stream, _)) = listener.accept() else { return };
            let mut stream = BufReader::new(stream);
            let _ = sender.send(Asked::read(&mut stream));
            let _ = stream.get_mut().write_all(&answer);
        }
    });
    (url, receiver)
}

pub(crate) fn answer(status: &str, more: &str, kind: &str, body: &str) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nConnection: close\r\n{more}");
    format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn json_answer(status: &str, body: &serde_json::Value) -> Vec<u8> {
    answer(status, "", "application/json", &body.to_string())
}

fn run(url: &str, arguments: &[&str]) -> Ran {
    let project = Project::new();
    let ran = project.ran(&command(&project, url, KEY, arguments).output().unwrap());
    assert!(!ran.out.contains("the-secret") && !ran.err.contains("the-secret"), "{ran}");
    ran
}

#[test]
fn a_redirect_does_not_take_the_key_along() {
    let tools =
        json!({"tools": [{"name": "it", "description": "A tool.", "parameters": {"type": "object"}, "file": "it.md"}]});
    let (other, reached) = server(vec![json_answer("200 OK", &tools)]);
    for status in ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"] {
        let location = format!("Location: {other}/v1/tools?key={KEY}\r\n");
        let (url, asked) = server(vec![answer(status, &location, "text/plain", "")]);
        let ran = run(&url, &["tools"]);
        ran.says(5, &format!("it redirects to `{other}/v1/tools?key=[key]`, and the key is sent to `{url}/` only"));
        assert_eq!(asked.recv().unwrap().header("authorization"), Some(format!("Bearer {KEY}").as_str()));
        assert!(reached.try_recv().is_err());
    }
    // The control: the other server answers who asks it.
    assert_eq!(run(&other, &["tools"]).out, "it()  it.md\n    A tool.\n");
    assert!(reached.try_recv().is_ok());
}

#[test]
fn nothing_of_a_server_acts_on_a_terminal() {
    let evil = "a\u{1b}[2Jb\u{202e}c\u{7}";
    let problem = json!({"type": "urn:harness:problem:invalid", "detail": evil, "hint": evil, "errors": [evil]});
    let tools = json!({"tools": [{"name": evil, "description": evil, "parameters": {"type": "object"}, "file": evil}],
        "refused": [{"name": evil, "by": evil, "reason": evil, "file": evil}]});
    let (url, _asked) = server(vec![
        answer("400 Bad Request", "", "application/problem+json", &problem.to_string()),
        json_answer("200 OK", &tools),
        json_answer(
            "200 OK",
            &json!({"approvals": [{"id": evil, "tool": evil, "rule": evil, "arguments": {"x": evil}}]}),
        ),
        json_answer(
            "200 OK",
            &json!({"tenant": evil, "class": evil, "budgets": [{"budget": evil, "used": 1, "resets": 1}]}),
        ),
    ]);
    let shown =
        [["tools"].as_slice(), &["tools"], &["approvals", "list"], &["usage"]].map(|arguments| run(&url, arguments));
    assert_eq!(shown.each_ref().map(|ran| ran.code), [2, 0, 0, 0]);
    for ran in &shown {
        let all = format!("{}{}", ran.out, ran.err);
        assert!(all.contains("a\\u{1b}[2Jb"), "{ran}");
        assert!(!all.contains(['\u{1b}', '\u{202e}', '\u{7}']), "{ran}");
    }
}

#[test]
fn an_answer_has_a_bound() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{\"tools\": [";
    let mut endless = head.as_bytes().to_vec();
    endless.resize((64 << 20) + head.len() + 1, b' ');
    let (url, _asked) = server(vec![endless]);
    run(&url, &["tools"]).says(5, "its answer has more than 67108864 bytes");
    // An event too.
    let run_json = json!({"id": "run_1"});
    let mut event =
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\nid: 1\ndata: ".to_vec();
    event.resize(event.len() + (2 << 20) + 1, b'x');
    let (url, _asked) = server(vec![json_answer("202 Accepted", &run_json), event]);
    run(&url, &["run", "x"]).says(5, "an event has more than 2097152 bytes");
    // What is no JSON is no answer.
    let (url, _asked) = server(vec![answer("200 OK", "", "text/html", "<html>")]);
    run(&url, &["tools"]).says(5, "answers with no JSON");
}

#[test]
fn a_request_is_sent_again_only_where_that_does_its_work_once() {
    let tools = json!({"tools": []});
    let done =
        json!({"call": "call_1", "outcome": "completed", "result": "fine", "content": "fine", "is_error": false});
    // The first call is lost, and the server says for a while that it is under way.
    let busy = json!({"type": "urn:harness:problem:idempotency_in_progress", "detail": "it is being done"}).to_string();
    let (url, asked) = server(vec![
        Vec::new(),
        json_answer("200 OK", &tools),
        Vec::new(),
        answer("409 Conflict", "Retry-After: 1\r\n", "application/problem+json", &busy),
        json_answer("200 OK", &done),
    ]);
    run(&url, &["call", "it"]).gives("fine");
    let asked: Vec<Asked> = asked.iter().collect();
    let lines: Vec<&str> = asked.iter().map(|one| one.line.as_str()).collect();
    let call = "POST /v1/tools/it/calls HTTP/1.1";
    assert_eq!(lines, ["GET /v1/tools HTTP/1.1", "GET /v1/tools HTTP/1.1", call, call, call]);
    let keys: Vec<Option<&str>> = asked[2..].iter().map(|one| one.header("idempotency-key")).collect();
    assert!(keys[0].is_some_and(|key| key.len() == 32) && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    assert!(asked[2..].iter().all(|one| one.body == "{\"arguments\":{}}"), "{asked:?}");

    // An answer to a question has no such key: it is sent once.
    let (url, asked) = server(vec![Vec::new(), json_answer("200 OK", &json!({"run": "run_1"}))]);
    run(&url, &["approvals", "approve", "apr_1", "--digest", "sha256:1"]).says(5, "does not answer");
    assert_eq!(asked.try_iter().count(), 1);
}

#[test]
fn events_continue_after_the_last_one_that_came() {
    let stream = |events: &str| {
        format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n{events}").into_bytes()
    };
    let text = |id: u32, text: &str| {
        format!("id: {id}\nevent: text\ndata: {}\n\n", json!({"type": "text", "agent": "", "text": text}))
    };
    let end = json!({"type": "end", "outcome": "completed", "answer": "abc", "rounds": 0, "calls": [], "usage": {}, "log": []});
    let (url, asked) = server(vec![
        json_answer("202 Accepted", &json!({"id": "run_1"})),
        // It ends in the middle of an event.
        stream(&format!("{}{}id: 3\nevent: te", text(1, "a"), text(2, "b"))),
        answer("503 Service Unavailable", "", "application/problem+json", "{}"),
        stream(&format!(": alive\n\n{}{}id: 4\nevent: end\ndata: {end}\n\n", text(2, "b"), text(3, "c"))),
    ]);
    let ran = run(&url, &["run", "x", "--output", "stream-json"]);
    let lines: Vec<serde_json::Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let texts: Vec<&str> = lines.iter().filter_map(|line| line["text"].as_str()).collect();
    assert_eq!(
        (ran.code, texts, lines.last().unwrap()["type"].as_str()),
        (0, vec!["a", "b", "c"], Some("end")),
        "{ran}"
    );
    let after: Vec<Option<String>> = asked.iter().map(|one| one.header("last-event-id").map(str::to_owned)).collect();
    assert_eq!(after, [None, Some("0".to_owned()), Some("2".to_owned()), Some("2".to_owned())]);
}

#[test]
fn a_key_comes_from_a_variable_or_a_file_and_goes_over_tls_or_to_this_machine() {
    let site = Site::open();
    let acme = site.tenant("acme", &Project::with_script(FINE));
    let url = format!("http://{}", site.address());
    let project = Project::new().file("key", &format!("{}\n", acme.key));
    let ran = |key: Option<&str>, arguments: &[&str]| {
        let mut command = project.command(arguments);
        command.env_remove("HARNESS_API_KEY");
        key.map(|key| command.env("HARNESS_API_KEY", key));
        project.ran(&command.output().unwrap())
    };
    ran(Some(&acme.key), &["--server", &url, "call", "it"]).gives("fine");
    ran(None, &["--server", &url, "--key-file", "key", "call", "it"]).gives("fine");
    ran(Some("wrong"), &["--server", &url, "--key-file", "key", "call", "it"]).gives("fine");
    ran(None, &["--server", &url, "call", "it"]).says(2, "there is no key for the server");
    ran(None, &["--server", &url, "--key-file", "none", "call", "it"]).says(2, "cannot read the key in `none`");
    ran(None, &["--key-file", "key", "call", "it"]).says(2, "--server <URL>");
    ran(Some("hk_0123456789abcdef_wrong"), &["--server", &url, "call", "it"])
        .says(3, "error: the key is missing, unknown or expired\n\nhint: set `HARNESS_API_KEY` to a key of a tenant of this server");
    for wrong in ["http://192.0.2.1:8080", "http://tools.example.com", "ftp://127.0.0.1", "127.0.0.1:8080"] {
        assert_eq!(ran(Some(&acme.key), &["--server", wrong, "call", "it"]).code, 2, "{wrong}");
    }
    // No variable names a server: a call would go elsewhere without a word.
    let mut unnamed = project.command(&["usage"]);
    unnamed.env("HARNESS_SERVER", &url).env("HARNESS_API_KEY", &acme.key);
    project.ran(&unnamed.output().unwrap()).says(2, "none is named");

    let tls = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("tests/tls");
    let [certificate, private] = ["certificate.pem", "key.pem"].map(|name| tls.join(name).to_str().unwrap().to_owned());
    let folder = std::sync::Arc::new(tempfile::TempDir::new().unwrap());
    std::fs::write(folder.path().join("serve.yaml"), "").unwrap();
    let site = Site::start(folder, &["--tls-cert", &certificate, "--tls-key", &private]);
    let made = site.admin("POST /admin/v1/tenants", &json!({"id": "acme"}));
    assert_eq!(made.status, 201, "{made:?}");
    let key = site.key("acme", "owner");
    let url = format!("https://{}", site.address());
    let over_tls = |trusted: Option<&str>| {
        let mut command = command(&project, &url, &key, &["usage"]);
        command.env_remove("SSL_CERT_FILE").env_remove("SSL_CERT_DIR");
        trusted.map(|trusted| command.env("SSL_CERT_FILE", trusted));
        project.ran(&command.output().unwrap())
    };
    assert!(over_tls(Some(&certificate)).out.starts_with("tenant acme, class default\n"));
    over_tls(None).says(5, "invalid peer certificate: UnknownIssuer");
}
