//! A server behind its wall for a client of its own: lines pass as they are, in both directions, and are bounded.

use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::connection::Flood;
use crate::failure::Failure;
use crate::frame::Lines;
use crate::limits::{END, FLOOD, LAST_WORDS, LINE_BYTES, LINE_DEPTH, LINE_VALUES, TERMINATE};
use crate::message::{Incoming, Size};
use crate::packages::{self, Fetch};
use crate::pool::KEPT_TIME;
use crate::process::{self, Found, Host};
use harness_artifact::pinned::Pinned;
use harness_artifact::policy::mcp::{Endpoint, McpServer};
use harness_capability::exec::Service;

/// The time between two looks at whether the client of a server that reads nothing is still there.
const LOOK: Duration = Duration::from_millis(100);

/// The ends of the client's streams.
#[derive(Debug)]
pub struct Streams {
    /// Bytes of the client, until it closes.
    pub input: mpsc::Receiver<Vec<u8>>,
    /// Lines for the client. Where nobody takes them, the client is gone.
    pub output: mpsc::Sender<Vec<u8>>,
    /// What the server says to its operator.
    pub errors: mpsc::Sender<Vec<u8>>,
}

/// Starts a server and relays until it ends or its client closes, and ends all of its processes then. Gives its exit code,
/// where it ended by itself with one. `locked` is what is locked of it, for its packages.
///
/// # Errors
///
/// Why it cannot be started, or which bound it or its client went over.
pub async fn relay(
    server: &McpServer,
    locked: Option<&Pinned>,
    host: Host<'_>,
    streams: Streams,
) -> Result<Option<i32>, Failure> {
    let Endpoint::Command(command) = &server.endpoint else {
        return Err(Failure::Broken(format!("the server `{}` is at a URL: nothing is started for it", server.name)));
    };
    let found = Found::new(packages::look(server, locked, Fetch::Missing, &host).await?)?;
    let Service { running, stdin, stdout, stderr } = process::service(command, &found, &host, KEPT_TIME).await?;
    let Streams { input, output, errors } = streams;
    let over = {
        let mut down = pin!(downwards(stdout, output));
        let closed = async {
            if let Some(why) = upwards(input, stdin).await {
                return Some(why);
            }
            // Its client has closed: it may finish what it answers.
            if timeout(END, running.ended()).await.is_err() {
                running.terminate();
                if timeout(TERMINATE, running.ended()).await.is_err() {
                    return None;
                }
            }
            // All that it has said is in its pipe.
            std::future::pending().await
        };
        let mut closed = pin!(closed);
        let mut told = pin!(aside(stderr, errors));
        let mut is_told = false;
        let why = loop {
            tokio::select! {
                biased;
                why = &mut down => break why,
                why = &mut closed => break why,
                () = &mut told, if !is_told => is_told = true,
            }
        };
        // What it said last may still be on its way.
        if !is_told {
            let _ = timeout(LAST_WORDS, told).await;
        }
        why
    };
    if timeout(END, running.ended()).await.is_err() {
        running.terminate();
        let _ = timeout(TERMINATE, running.ended()).await;
    }
    let code = running.finish().await;
    match over {
        Some(why) => Err(Failure::Broken(why)),
        None => Ok(code),
    }
}

/// Passes what the client says, until it closes; then the server's input is closed. Gives what is wrong with it.
async fn upwards(mut input: mpsc::Receiver<Vec<u8>>, mut to: Sender) -> Option<String> {
    let mut lines = Lines::new(LINE_BYTES);
    while let Some(bytes) = input.recv().await {
        let Ok(lines) = lines.feed(&bytes) else {
            return Some(format!("its client sent a line of more than {LINE_BYTES} bytes"));
        };
        for mut line in lines {
            line.push(b'\n');
            let written = tokio::select! {
                written = to.write_all(&line) => written,
                // A server that reads nothing does not keep this from seeing that the client is gone.
                () = closed(&input) => return None,
            };
            if written.is_err() {
                // What it has said is still to be read.
                return std::future::pending().await;
            }
        }
    }
    None
}

/// Waits until the client has closed, and what it said before has had time to be read.
async fn closed(input: &mpsc::Receiver<Vec<u8>>) {
    while !input.is_closed() {
        tokio::time::sleep(LOOK).await;
    }
    tokio::time::sleep(END).await;
}

/// Passes what the server says, until it ends. Gives what is wrong with it.
async fn downwards(mut from: Receiver, output: mpsc::Sender<Vec<u8>>) -> Option<String> {
    let (mut lines, mut flood) = (Lines::new(LINE_BYTES), Flood::default());
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = from.read(&mut buffer).await.unwrap_or(0);
        if count == 0 {
            return None;
        }
        let Ok(lines) = lines.feed(buffer.get(..count).unwrap_or_default()) else {
            return Some(format!("it sent a line of more than {LINE_BYTES} bytes"));
        };
        for mut line in lines {
            let Size { values, depth } = Size::of(&line);
            if values > LINE_VALUES {
                return Some(format!("it sent a line of more than {LINE_VALUES} values"));
            }
            if depth > LINE_DEPTH {
                return Some(format!("it sent a line that is nested more than {LINE_DEPTH} levels deep"));
            }
            let answers = matches!(Incoming::read(&line), Incoming::Answer { .. } | Incoming::Foreign(_));
            if !answers && flood.add(Instant::now()) {
                return Some(format!("it sent more than {FLOOD} messages in a second that answer nothing"));
            }
            line.push(b'\n');
            if output.send(line).await.is_err() {
                return None;
            }
        }
    }
}

/// Passes what the server says to its operator.
async fn aside(mut from: Receiver, errors: mpsc::Sender<Vec<u8>>) {
    let mut buffer = vec![0; 8 << 10];
    loop {
        let count = from.read(&mut buffer).await.unwrap_or(0);
        if count == 0 {
            return;
        }
        // Where nobody reads it, it is read all the same: its pipe is not to fill.
        let _ = errors.send(buffer.get(..count).unwrap_or_default().to_vec()).await;
    }
}
