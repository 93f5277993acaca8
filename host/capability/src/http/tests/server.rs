//! A server that says what a test wants, and remembers what it was asked.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// What a server says to a request.
pub(super) enum Say {
    /// These bytes, and then the end.
    All(Vec<u8>),
    /// These bytes, and then one byte after another, far apart.
    Drip(Vec<u8>),
    /// These bytes, and then the second without end.
    Endless(Vec<u8>, Vec<u8>),
}

/// A server, and the requests that it got.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(super) async fn new(answer: impl Fn(&str) -> Say + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let log = seen.clone();
        let answer = Arc::new(answer);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (log, answer) = (log.clone(), answer.clone());
                tokio::spawn(async move {
                    let (stream, request) = request(stream).await;
                    let say = answer(&request);
                    log.lock().unwrap().push(request);
                    speak(stream, say).await;
                });
            }
        });
        Self { address, seen }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(super) fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

/// Head and body, as far as `content-length` goes.
async fn request(mut stream: TcpStream) -> (TcpStream, String) {
    let mut text = String::new();
    loop {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        if text.contains("\r\n\r\n") && body.len() >= length.unwrap_or(0) {
            return (stream, text);
        }
        let mut buffer = [0; 4096];
        let read = stream.read(&mut buffer).await.unwrap_or(0);
        if read == 0 {
            return (stream, text);
        }
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
    }
}

pub(super) async fn speak(mut stream: TcpStream, say: Say) {
    match say {
        Say::All(bytes) => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
        }
        Say::Drip(bytes) => {
            let _ = stream.write_all(&bytes).await;
            while stream.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Say::Endless(bytes, more) => {
            let _ = stream.write_all(&bytes).await;
            while stream.write_all(&more).await.is_ok() {}
        }
    }
}

/// A gzip file of this many zero bytes.
pub(super) fn gzip_of_zeros(length: usize) -> Vec<u8> {
    let repeats = (length - 1) / 258;
    let rest = (length - 1) % 258;
    // One final block with fixed codes (RFC 1951): the bits of each code come from its highest.
    let mut bits = vec![true, true, false];
    let mut code = |value: u32, count: u32| bits.extend((0..count).rev().map(|bit| value >> bit & 1 == 1));
    code(0x30, 8);
    for _ in 0..repeats {
        code(0b1100_0101, 8);
        code(0, 5);
    }
    for _ in 0..rest {
        code(0x30, 8);
    }
    code(0, 7);
    let mut crc = u32::MAX;
    if length <= 1 << 20 {
        // Of the bomb nobody reads so far.
        for _ in 0..length * 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    out.extend(bits.chunks(8).map(|bits| bits.iter().rev().fold(0, |byte, &bit| byte << 1 | u8::from(bit))));
    out.extend((!crc).to_le_bytes());
    out.extend(u32::try_from(length).unwrap().to_le_bytes());
    out
}
