//! `fetch_url`, with a server on this machine.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use super::support::Project;

/// A server that answers one request for each connection, as long as the test runs.
pub(crate) struct Server {
    pub(crate) address: String,
    requests: Arc<AtomicUsize>,
}

impl Server {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::SeqCst);
                // Who does not listen to the answer misses it.
                let _ = answer(stream);
            }
        });
        Self { address, requests }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

fn answer(stream: TcpStream) -> std::io::Result<()> {
    let mut lines = BufReader::new(&stream).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let (status, header, body) = match request.as_str() {
        "GET /page HTTP/1.1" => ("200 OK", "content-type: text/html; charset=utf-8", "<p>h\u{e9}llo</p>\n".to_owned()),
        "GET /data HTTP/1.1" => ("200 OK", "content-type: application/problem+json", "{}".to_owned()),
        "GET /image HTTP/1.1" => ("200 OK", "content-type: image/png", "\u{89}PNG".to_owned()),
        "GET /large HTTP/1.1" => ("200 OK", "content-type: text/plain", "x".repeat(100_000)),
        "GET /moved HTTP/1.1" => ("302 Found", "location: /page", String::new()),
        "GET /away HTTP/1.1" => ("302 Found", "location: http://127.0.0.2:1/", String::new()),
        _ => ("404 Not Found", "content-type: text/plain", "nothing here".to_owned()),
    };
    let length = body.len();
    write!(&stream, "HTTP/1.1 {status}\r\n{header}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
}

fn granted(server: &Server) -> Project {
    Project::with_policy(&format!("network: {{ allowed_domains: [\"{}\"] }}", server.address))
}

#[test]
fn pages_of_granted_hosts() {
    let server = Server::start();
    let project = granted(&server);
    let page = json!({
        "url": server.url("/page"),
        "status": 200,
        "content_type": "text/html; charset=utf-8",
        "text": "<p>h\u{e9}llo</p>\n",
        "truncated": false,
    });
    assert_eq!(project.call("fetch_url", json!({"url": server.url("/page")})).result(), page);
    assert_eq!(project.call("fetch_url", json!({"url": server.url("/moved")})).result(), page);
    assert_eq!(
        project.call("fetch_url", json!({"url": server.url("/data")})).result(),
        json!({
            "url": server.url("/data"),
            "status": 200,
            "content_type": "application/problem+json",
            "text": "{}",
            "truncated": false,
        })
    );
    assert_eq!(
        project.call("fetch_url", json!({"url": server.url("/other")})).result(),
        json!({
            "url": server.url("/other"),
            "status": 404,
            "content_type": "text/plain",
            "text": "nothing here",
            "truncated": false,
        })
    );
    assert_eq!(server.requests(), 5);
}

#[test]
fn long_and_odd_answers() {
    let server = Server::start();
    let project = granted(&server);
    for (most, length) in [(None, 20_000), (Some(7), 7), (Some(50_000), 50_000)] {
        let mut arguments = json!({"url": server.url("/large")});
        if let Some(most) = most {
            arguments["max_characters"] = json!(most);
        }
        assert_eq!(
            project.call("fetch_url", arguments).result(),
            json!({
                "url": server.url("/large"),
                "status": 200,
                "content_type": "text/plain",
                "text": "x".repeat(length),
                "truncated": true,
            })
        );
    }
    assert_eq!(
        project.call("fetch_url", json!({"url": server.url("/image")})).result(),
        json!({
            "url": server.url("/image"),
            "status": 200,
            "content_type": "image/png",
            "error": "the answer is `image/png`, not text",
        })
    );
    let asked = server.requests();
    for most in [json!(0), json!(50_001), json!(1.5)] {
        assert_eq!(
            project.call("fetch_url", json!({"url": server.url("/page"), "max_characters": most})).result(),
            json!({"error": "max_characters must be a whole number from 1 to 50000"})
        );
    }
    assert_eq!(server.requests(), asked);
}

#[test]
fn other_hosts_are_not_asked() {
    let server = Server::start();
    let url = server.url("/page");
    for (policy, place) in [("{}", ""), ("network: { allowed_domains: [\"*\", \"127.0.0.1\"] }", ":2:29")] {
        let (message, hint) = Project::with_policy(policy).call("fetch_url", json!({"url": &url})).denied();
        assert!(message.starts_with("http.get: "), "{message}");
        assert_eq!(
            hint,
            format!(
                "add `{{ host: \"{}\", methods: [GET], scheme: http }}` to `network.allowed_domains` in `.harness/harness.md{place}`",
                server.address
            ),
            "{policy}"
        );
    }
    assert_eq!(server.requests(), 0);
    let project = granted(&server);
    // A redirect is decided on like the first address.
    let (_, hint) = project.call("fetch_url", json!({"url": server.url("/away")})).denied();
    assert_eq!(
        hint,
        "add `{ host: \"127.0.0.2:1\", methods: [GET], scheme: http }` to `network.allowed_domains` in `.harness/harness.md:2:29`"
    );
    assert_eq!(project.call("fetch_url", json!({"url": url})).result()["status"], 200);
    assert_eq!(server.requests(), 2);
}
