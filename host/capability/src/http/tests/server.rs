//! Responses of a server as the tests of `http` write them.

use std::net::SocketAddr;

use harness_testing::server::{self, Step};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

/// The response to a request.
pub(super) enum Say {
    /// These bytes, and then the end.
    All(Vec<u8>),
    /// These bytes, and then one byte after another, far apart.
    Drip(Vec<u8>),
    /// These bytes, and then the second without end.
    Endless(Vec<u8>, Vec<u8>),
}

impl Say {
    fn steps(self) -> Vec<Step> {
        match self {
            Self::All(bytes) => vec![Step::Send(bytes)],
            Self::Drip(bytes) => vec![Step::Send(bytes), Step::Drip],
            Self::Endless(bytes, more) => vec![Step::Send(bytes), Step::Repeat(more)],
        }
    }
}

/// A server, with the requests that it got.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    server: server::Server,
}

impl Server {
    pub(super) async fn new(answer: impl Fn(&str) -> Say + Send + Sync + 'static) -> Self {
        let server = server::Server::new(move |request, _| answer(&request.text()).steps()).await;
        Self { address: server.address(), server }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.server.url())
    }

    pub(super) fn seen(&self) -> Vec<String> {
        self.server.received().iter().map(server::Received::text).collect()
    }
}

/// Sends bytes to a client, and closes the connection.
pub(super) async fn speak(mut stream: TcpStream, bytes: &[u8]) {
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
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
