//! A server on the loopback interface: it takes the steps that a test wants, and keeps the requests that it got.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value as Json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// The time between two bytes of [`Step::Drip`].
const DRIP: Duration = Duration::from_millis(20);

/// One step of a response.
#[derive(Debug, Clone)]
pub enum Step {
    /// Sends bytes.
    Send(Vec<u8>),
    /// Sends bytes one by one.
    Split(Vec<u8>),
    /// Sends bytes until the client closes the connection.
    Repeat(Vec<u8>),
    /// Sends one byte after another, with a pause before each, until the client closes the connection.
    Drip,
    /// Pauses.
    Wait(Duration),
    /// Waits until the client closes the connection.
    Hang,
}

/// A request that a server got.
#[derive(Debug, Clone)]
pub struct Received {
    /// The first line and the headers.
    pub head: String,
    /// The body, as far as `content-length` goes.
    pub body: String,
}

impl Received {
    /// The path in the first line.
    pub fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap()
    }

    /// The value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// The body as JSON.
    pub fn json(&self) -> Json {
        serde_json::from_str(&self.body).unwrap()
    }

    /// The request as it came.
    pub fn text(&self) -> String {
        format!("{}\r\n\r\n{}", self.head, self.body)
    }
}

/// A running server. It ends with the runtime of the test.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    ended: Arc<Semaphore>,
}

impl Server {
    /// Starts a server. `answer` gets each request with its number, from 0, and returns the steps of the response.
    pub async fn new(answer: impl Fn(&Received, usize) -> Vec<Step> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::<Mutex<Vec<Received>>>::default();
        let ended = Arc::new(Semaphore::new(0));
        let (log, ends, answer) = (received.clone(), ended.clone(), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (log, ends, answer) = (log.clone(), ends.clone(), answer.clone());
                tokio::spawn(async move {
                    let Some(request) = receive(&mut stream).await else { return };
                    let steps = {
                        let mut log = log.lock().unwrap();
                        log.push(request.clone());
                        answer(&request, log.len() - 1)
                    };
                    for step in steps {
                        step.take(&mut stream).await;
                    }
                    let _ = stream.shutdown().await;
                    ends.add_permits(1);
                });
            }
        });
        Self { address, received, ended }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its address as a URL without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All requests so far.
    pub fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// Waits for the end of one more response, whichever side ended it.
    pub async fn ended(&self) {
        self.ended.acquire().await.unwrap().forget();
    }
}

impl Step {
    async fn take(self, stream: &mut TcpStream) {
        match self {
            Self::Send(bytes) => drop(stream.write_all(&bytes).await),
            Self::Split(bytes) => {
                for byte in bytes {
                    let _ = stream.write_all(&[byte]).await;
                    tokio::task::yield_now().await;
                }
            }
            Self::Repeat(bytes) => while stream.write_all(&bytes).await.is_ok() {},
            Self::Drip => {
                while stream.write_all(b"x").await.is_ok() {
                    tokio::time::sleep(DRIP).await;
                }
            }
            Self::Wait(time) => tokio::time::sleep(time).await,
            Self::Hang => while stream.read(&mut [0; 64]).await.is_ok_and(|read| read > 0) {},
        }
    }
}

/// Reads a request. None if the client closes the connection first.
async fn receive(stream: &mut TcpStream) -> Option<Received> {
    stream.set_nodelay(true).unwrap();
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
            if body.len() >= length {
                return Some(Received { head: head.to_owned(), body: body.to_owned() });
            }
        }
        let mut buffer = [0; 16384];
        let read = stream.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(buffer.get(..read)?);
    }
}

/// The head of a response whose body ends with the connection. `more` are further lines.
pub fn head(status: &str, kind: &str, more: &str) -> Step {
    Step::Send(format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: {kind}\r\n{more}\r\n").into_bytes())
}

/// A response with a body of JSON.
pub fn json(status: &str, body: &Json) -> Vec<Step> {
    vec![head(status, "application/json", ""), Step::Send(body.to_string().into_bytes())]
}

/// A response of server-sent events.
pub fn events(body: &str) -> Vec<Step> {
    vec![head("200 OK", "text/event-stream", ""), Step::Send(body.as_bytes().to_vec())]
}
