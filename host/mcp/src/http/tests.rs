//! Clients that take their time.

use std::time::Duration;

use harness_agent::{Model, Models};
use harness_dispatch::confirm::Granted;
use harness_dispatch::{Options, Project};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::connections::with_write_timeout;
use super::*;
use crate::server::Settings;

#[derive(Debug)]
struct NoModels;

impl Models for NoModels {
    fn main(&self) -> Result<Model, String> {
        Err("there is none".to_owned())
    }

    fn profile(&self, _: &str) -> Option<Result<Model, String>> {
        None
    }
}

/// What a client reads after it has sent this, and nothing more.
async fn after(sent: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join(".harness")).unwrap();
    let options = Options { audit: false, ..Options::default() };
    let project = Project::open(folder.path(), options).unwrap();
    let (models, confirmer) = (Arc::new(NoModels), Arc::new(Granted));
    let server = Server::new(project, Settings::new(models, confirmer));
    let listener = Listener::loopback("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.to_string().replace("http://", "").replace("/mcp", "");
    let soon = Duration::from_millis(50);
    let limits = Limits { connections: 2, head: soon, body: soon, answer: soon, ..Limits::default() };
    let (end, ended) = oneshot::channel::<()>();
    let served = tokio::spawn(async move {
        let threads = Threads::new(2)?;
        serve(server, listener, Access::Open, Vec::new(), limits, &threads, ended).await
    });
    let mut stream = TcpStream::connect(&address).await.unwrap();
    stream.write_all(sent.replace("HOST", &address).as_bytes()).await.unwrap();
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text).await;
    end.send(()).unwrap();
    served.await.unwrap().unwrap().unwrap();
    text
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_is_waited_for_a_bounded_time() {
    let (near, mut far) = tokio::io::duplex(4);
    let mut near = with_write_timeout(near, Duration::from_secs(5));
    near.write_all(b"1234").await.unwrap();
    assert_eq!(near.write_all(b"5678").await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    // The control: once it reads, it gets more.
    let mut read = [0; 4];
    far.read_exact(&mut read).await.unwrap();
    near.write_all(b"9").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_never_ends_is_not_waited_for() {
    for head in ["", "POST /mcp HTTP/1.1\r\nHost: HOST\r\nX-Slow: "] {
        let text = after(head).await;
        assert!(!text.contains("200 OK"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_never_ends_is_not_waited_for() {
    let head = "POST /mcp HTTP/1.1\r\nHost: HOST\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n";
    let body = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}";
    let text = after(&format!("{head}Content-Length: 1000\r\n\r\n{body}")).await;
    assert!(text.starts_with("HTTP/1.1 408 "), "{text}");
    let chunked = after(&format!("{head}Transfer-Encoding: chunked\r\n\r\n2\r\n{{ \r\n")).await;
    assert!(chunked.starts_with("HTTP/1.1 408 "), "{chunked}");
    // The control: one that ends. Then the connection waits for another request as long as for a head.
    let text = after(&format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())).await;
    assert!(
        text.starts_with("HTTP/1.1 200 ") && text.ends_with("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"),
        "{text}"
    );
}
