//! What reads bytes of clients, as the fuzz targets in `fuzz/` reach it. It is no part of the API.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use harness_artifact::policy::mcp::Schemas;
use harness_artifact::tool::Tool;
use rmcp::model::ClientCapabilities;
use serde_json::Value as Json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use crate::elicit;
use crate::frame::{Frame, Framer};
use crate::http::connections::requests;
use crate::http::guard::{Access, Names};
use crate::http::replies::Session;
use crate::http::{Handler, Limits};
use crate::server::Server;
use crate::{catalog, message};

/// The port of an [`Endpoint`].
pub const PORT: u16 = 8787;
/// How long a request may take that is not whole.
const SOON: Duration = Duration::from_millis(20);
/// Bytes between a client and an [`Endpoint`].
const PIPE: usize = 1 << 20;

/// A line of a stream, or the identifier that was found in one that is too long.
pub type Line = Result<Vec<u8>, Option<Json>>;

/// The lines of a stream that comes in these pieces.
pub fn lines<'b>(most: usize, pieces: impl Iterator<Item = &'b [u8]>) -> Vec<Line> {
    let mut framer = Framer::new(most);
    let mut frames: Vec<Frame> = pieces.flat_map(|piece| framer.feed(piece)).collect();
    frames.extend(framer.end());
    let line = |frame| match frame {
        Frame::Line(line) => Ok(line),
        Frame::TooLong(id) => Err(id),
    };
    frames.into_iter().map(line).collect()
}

/// A text as a message and as JSON again, or the answer that it gets instead.
pub fn message(text: &[u8]) -> Result<Json, Json> {
    let json = |message: Result<Json, serde_json::Error>| message.unwrap_or_default();
    match message::decode(text) {
        Ok(message) => Ok(json(serde_json::to_value(message))),
        Err(rejected) => Err(json(serde_json::to_value(rejected.into_answer()))),
    }
}

/// A tool as clients get it.
pub fn definition(tool: &Tool) -> Json {
    serde_json::to_value(catalog::define("x", tool, None, Schemas::Plain)).unwrap_or_default()
}

/// What one server seals.
#[derive(Default)]
pub struct Seals(elicit::Seals);

impl std::fmt::Debug for Seals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seals")
    }
}

impl Seals {
    /// The session of a client, the cursor of a listing, and the state of a parked call, each with this text in it.
    pub fn seal(&self, text: &str) -> [String; 3] {
        let session = Session { client: text.to_owned(), capabilities: ClientCapabilities::default() };
        let session = self.0.seal_session(&session).unwrap_or_default();
        [session, self.0.seal_cursor("tools/list", text), self.0.park(text, "it")]
    }

    /// What is in a text if it is taken for each of these.
    pub fn open(&self, sealed: &str) -> [Option<String>; 3] {
        let session = self.0.session(sealed).map(|session| session.client);
        [session, self.0.open_cursor("tools/list", sealed), self.0.parked(sealed, "it")]
    }
}

/// A server over HTTP, of which each connection is in memory.
pub struct Endpoint(Arc<Handler>);

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Endpoint")
    }
}

impl Endpoint {
    /// As if it was reached on the loopback interface.
    pub fn new(server: Server) -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
        let limits = Limits { head: SOON, body: SOON, answer: SOON, ..Limits::default() };
        Self(Arc::new(Handler::new(server, Access::Open, Names::Of { address, more: Vec::new() }, limits)))
    }

    /// Sends these bytes on a connection, and returns all that comes back.
    pub async fn exchange(&self, sent: &[u8]) -> Vec<u8> {
        let (mut near, far) = tokio::io::duplex(PIPE);
        let client = async {
            let mut answers = Vec::new();
            // One that is refused early may be closed before it is sent.
            let _ = near.write_all(sent).await;
            let _ = near.read_to_end(&mut answers).await;
            answers
        };
        let (answers, ()) = tokio::join!(
            client,
            requests(far, self.0.clone().service(), &self.0.limits, CancellationToken::new(), None)
        );
        answers
    }
}
