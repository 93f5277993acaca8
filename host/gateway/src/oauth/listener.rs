//! Where the browser comes back to: a listener on the loopback interface, for one answer.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::flow::Returned;
use crate::failure::Failure;

/// Bytes of a request.
const MAX_BYTES: usize = 16 << 10;

/// How long a connection has to say what it wants, and to take the answer. Others wait meanwhile.
const TIME: Duration = Duration::from_secs(2);
/// How long is waited where no connection can be taken.
const REST: Duration = Duration::from_millis(100);

/// A listener that is known by its port.
#[derive(Debug)]
pub(super) struct Listener {
    listener: TcpListener,
    pub(super) port: u16,
}

impl Listener {
    /// One on this port; on any free one where it is 0.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub(super) async fn bind(port: u16) -> Result<Self, Failure> {
        let wrong = |error| Failure::Broken(format!("no browser can come back to 127.0.0.1:{port}: {error}"));
        let listener = TcpListener::bind(("127.0.0.1", port)).await.map_err(wrong)?;
        let port = listener.local_addr().map_err(wrong)?.port();
        Ok(Self { listener, port })
    }

    /// Waits for the answer with this state. What comes otherwise is not taken.
    pub(super) async fn returned(&self, state: &str) -> Returned {
        loop {
            let Ok((mut stream, _)) = self.listener.accept().await else {
                tokio::time::sleep(REST).await;
                continue;
            };
            // Browsers connect in advance, and others may keep a connection open.
            let Ok(query) = timeout(TIME, query(&mut stream)).await else { continue };
            let Some(query) = query else {
                answer(&mut stream, "404 Not Found", "Nothing is here.").await;
                continue;
            };
            let returned = Returned::read(&query);
            if returned.state.as_deref() == Some(state) {
                answer(&mut stream, "200 OK", "Harness has the answer. You may close this page.").await;
                return returned;
            }
            answer(&mut stream, "400 Bad Request", "This answer is to another question.").await;
        }
    }
}

/// The query of a request to the place that the browser comes back to.
async fn query(stream: &mut TcpStream) -> Option<String> {
    let (mut head, mut buffer) = (Vec::new(), [0; 2048]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
        head.extend_from_slice(buffer.get(..count)?);
        if head.len() > MAX_BYTES {
            return None;
        }
    }
    let head = String::from_utf8(head).ok()?;
    let place = head.strip_prefix("GET ")?.split(' ').next()?;
    place.strip_prefix("/callback?").map(str::to_owned)
}

/// Whether it was read is the browser's business.
async fn answer(stream: &mut TcpStream, status: &str, text: &str) {
    let length = text.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\nConnection: close\r\nCache-Control: no-store\r\n\r\n"
    );
    let written = async {
        let _ = stream.write_all(format!("{head}{text}").as_bytes()).await;
        let _ = stream.shutdown().await;
    };
    let _ = timeout(TIME, written).await;
}
