//! The protocol over standard input and output: one message a line.
//!
//! Between its two `streams` and the requests is this transport, which refuses what rmcp would lose: lines that are too
//! long, texts that are no message, identifiers that are in use, and more requests than fit.

mod streams;

use std::collections::{HashSet, VecDeque};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, GetExtensions as _, JsonRpcMessage, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::service::serve_directly;
use rmcp::transport::Transport;
use tokio::sync::watch;

use self::streams::Lines;
pub(crate) use self::streams::Outlet;
use crate::frame::Frame;
use crate::listening::Connection;
use crate::message::{self, MAX_IN_FLIGHT, MAX_LISTENING, MAX_MESSAGE, Rejected};
use crate::server::Server;

/// Identifiers of canceled requests that stay in use: an answer that was on its way must not be taken for another's.
const MAX_CANCELED: usize = 1024;
/// How long answers are still written after the last request, to a client that does not read them.
const FLUSH: Duration = Duration::from_secs(2);

/// Serves one client until its stream ends. Then calls that are running end at once, and other requests are answered.
///
/// # Errors
///
/// That the two threads cannot be started, or that a message could not be written.
pub async fn serve(
    server: Server,
    input: impl Read + AsFd + Send + 'static,
    output: impl Write + AsFd + Send + 'static,
) -> io::Result<()> {
    let lines = Lines::new(input)?;
    let (out, written) = Outlet::new(output)?;
    let (ids, connection) = (Arc::new(Ids::new()), Arc::<Connection>::default());
    let notifying = tokio::spawn(connection.clone().notify(out.clone()));
    let transport = Messages { server: server.clone(), lines, out, ids, connection, unsent: None };
    // Without the handshake of rmcp: it would hold a connection to the era of its first request.
    let running = serve_directly(server, transport, None);
    let ended = running.waiting().await;
    // It holds an end of the channel whose end is waited for.
    notifying.abort();
    ended.map_err(io::Error::other)?;
    match tokio::time::timeout(FLUSH, written).await {
        Ok(Ok(result)) => result,
        // It reads no answers. Its stream ended, so that nothing is due to it.
        Ok(Err(_)) | Err(_) => Ok(()),
    }
}

/// Messages of one client.
struct Messages {
    server: Server,
    lines: Lines,
    out: Outlet,
    ids: Arc<Ids>,
    connection: Arc<Connection>,
    /// An answer of this transport's own that waits to be written.
    unsent: Option<Vec<u8>>,
}

impl Transport<RoleServer> for Messages {
    type Error = io::Error;

    fn send(&mut self, item: ServerJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
        if let JsonRpcMessage::Response(answer) = &item {
            self.ids.answered(&answer.id);
        }
        if let JsonRpcMessage::Error(answer) = &item {
            answer.id.iter().for_each(|id| self.ids.answered(id));
        }
        let (line, out) = (line(&item), self.out.clone());
        async move { out.send(line?).await.map_err(|_| io::ErrorKind::BrokenPipe.into()) }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            if let Some(answer) = &self.unsent {
                self.out.send(answer.clone()).await.ok()?;
                self.unsent = None;
            }
            // What follows `initialize` goes by the version that is agreed on.
            self.ids.initialized().await;
            // A client that is gone reads nothing, and needs nothing any more.
            let frame = tokio::select! {
                frame = self.lines.next() => frame,
                () = self.out.closed() => None,
            };
            let Some(frame) = frame else {
                self.server.close();
                return None;
            };
            match decode(frame).and_then(|message| self.ids.admit(message)) {
                Ok(mut message) => {
                    match &mut message {
                        JsonRpcMessage::Request(request) => {
                            request.request.extensions_mut().insert(self.connection.clone());
                        }
                        JsonRpcMessage::Notification(said) => {
                            if let ClientNotification::InitializedNotification(_) = said.notification {
                                self.connection.begin(&self.server);
                            }
                        }
                        JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
                    }
                    return Some(message);
                }
                Err(rejected) => self.unsent = line(&rejected.into_answer()).ok(),
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.lines.close();
        Ok(())
    }
}

fn line(message: &ServerJsonRpcMessage) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// Reads a line as a message.
fn decode(frame: Frame) -> Result<ClientJsonRpcMessage, Rejected> {
    match frame {
        Frame::Line(text) => message::decode(&text),
        Frame::TooLong(id) => {
            let id = id.and_then(message::identifier);
            Err(Rejected::invalid(id, format!("a message has {MAX_MESSAGE} bytes at most")))
        }
    }
}

/// Identifiers of requests that are in use.
#[derive(Debug)]
struct Ids {
    state: Mutex<State>,
    /// Whether `initialize` is being answered.
    initializing: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    active: HashSet<RequestId>,
    /// Those of them that listen.
    listening: HashSet<RequestId>,
    /// The oldest first.
    canceled: VecDeque<RequestId>,
    initialize: Option<RequestId>,
}

impl Ids {
    fn new() -> Self {
        Self { state: Mutex::default(), initializing: watch::Sender::new(false) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no `initialize` is being answered.
    async fn initialized(&self) {
        let _ = self.initializing.subscribe().wait_for(|busy| !busy).await;
    }

    /// Takes note of a message that is to be handled.
    fn admit(&self, message: ClientJsonRpcMessage) -> Result<ClientJsonRpcMessage, Rejected> {
        let mut state = self.state();
        match &message {
            JsonRpcMessage::Request(request) => {
                let id = &request.id;
                if state.active.contains(id) || state.canceled.contains(id) {
                    return Err(Rejected::invalid(Some(id.clone()), "this `id` belongs to an earlier request"));
                }
                if state.active.len() >= MAX_IN_FLIGHT {
                    return Err(Rejected::busy(id.clone()));
                }
                if matches!(request.request, ClientRequest::SubscriptionsListenRequest(_)) {
                    if state.listening.len() >= MAX_LISTENING {
                        return Err(Rejected::too_many(id.clone()));
                    }
                    state.listening.insert(id.clone());
                }
                state.active.insert(id.clone());
                if matches!(request.request, ClientRequest::InitializeRequest(_)) {
                    state.initialize = Some(id.clone());
                    self.initializing.send_replace(true);
                }
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(canceled) = &notification.notification
                    && let Some(id) = &canceled.params.request_id
                    && state.initialize.as_ref() != Some(id)
                    && state.active.remove(id)
                {
                    state.listening.remove(id);
                    state.canceled.push_back(id.clone());
                    if state.canceled.len() > MAX_CANCELED {
                        state.canceled.pop_front();
                    }
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
        Ok(message)
    }

    /// A request was answered: its identifier is free.
    fn answered(&self, id: &RequestId) {
        let mut state = self.state();
        state.active.remove(id);
        state.listening.remove(id);
        if state.initialize.as_ref() == Some(id) {
            state.initialize = None;
            self.initializing.send_replace(false);
        }
    }
}
