//! A service on the loopback interface that says what a test wants, in the pieces that it wants, and remembers what it
//! was asked.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value as Json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// What a service does next.
pub(super) enum Do {
    /// Sends bytes.
    Send(Vec<u8>),
    /// Sends bytes one by one.
    Split(Vec<u8>),
    /// Sends bytes until nobody takes them.
    Repeat(Vec<u8>),
    /// Lets time pass.
    Wait(Duration),
    /// Waits until the other side is gone.
    Hang,
}

/// What a service was asked.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    /// The first line and the headers, names in lower case.
    pub(super) head: String,
    pub(super) body: String,
}

impl Asked {
    pub(super) fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub(super) fn json(&self) -> Json {
        serde_json::from_str(&self.body).unwrap()
    }
}

pub(super) struct Server {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Asked>>>,
    gone: Arc<Semaphore>,
}

impl Server {
    pub(super) async fn new(answer: impl Fn(&Asked, usize) -> Vec<Do> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Vec<Asked>>>::default();
        let gone = Arc::new(Semaphore::new(0));
        let (log, left, answer) = (seen.clone(), gone.clone(), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (log, left, answer) = (log.clone(), left.clone(), answer.clone());
                tokio::spawn(async move {
                    let Some((mut stream, asked)) = asked(stream).await else { return };
                    let steps = {
                        let mut log = log.lock().unwrap();
                        log.push(asked.clone());
                        answer(&asked, log.len() - 1)
                    };
                    for step in steps {
                        step.on(&mut stream).await;
                    }
                    let _ = stream.shutdown().await;
                    left.add_permits(1);
                });
            }
        });
        Self { address, seen, gone }
    }

    /// Where it is.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn seen(&self) -> Vec<Asked> {
        self.seen.lock().unwrap().clone()
    }

    /// Waits until an answer is at its end, whoever ended it.
    pub(super) async fn ended(&self) {
        self.gone.acquire().await.unwrap().forget();
    }
}

impl Do {
    async fn on(self, stream: &mut TcpStream) {
        match self {
            Self::Send(bytes) => drop(stream.write_all(&bytes).await),
            Self::Split(bytes) => {
                for byte in bytes {
                    let _ = stream.write_all(&[byte]).await;
                    tokio::task::yield_now().await;
                }
            }
            Self::Repeat(bytes) => while stream.write_all(&bytes).await.is_ok() {},
            Self::Wait(time) => tokio::time::sleep(time).await,
            Self::Hang => while stream.read(&mut [0; 64]).await.is_ok_and(|read| read > 0) {},
        }
    }
}

async fn asked(mut stream: TcpStream) -> Option<(TcpStream, Asked)> {
    stream.set_nodelay(true).unwrap();
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
            if body.len() >= length {
                let asked = Asked { head: head.to_owned(), body: body.to_owned() };
                return Some((stream, asked));
            }
        }
        let mut buffer = [0; 16384];
        let read = stream.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&buffer[..read]);
    }
}

/// The head of an answer whose body ends with the connection.
pub(super) fn head(status: &str, kind: &str, more: &str) -> Do {
    Do::Send(format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: {kind}\r\n{more}\r\n").into_bytes())
}

/// An answer in one piece.
pub(super) fn json(status: &str, body: &Json) -> Vec<Do> {
    vec![head(status, "application/json", ""), Do::Send(body.to_string().into_bytes())]
}

/// Server-sent events.
pub(super) fn events(body: &str) -> Vec<Do> {
    vec![head("200 OK", "text/event-stream", ""), Do::Send(body.as_bytes().to_vec())]
}
