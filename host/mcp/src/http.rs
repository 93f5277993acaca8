//! The protocol over HTTP: one message a request, at one path, without sessions.
//!
//! rmcp checks the headers of the protocol against the message and makes the answer. Before it stands what it does not
//! do: names and tokens, bodies and heads that take long, and numbers of connections and of requests. A plain call takes a
//! shorter way: `direct`.

pub(crate) mod connections;
mod direct;
mod endpoint;
pub(crate) mod guard;
mod listener;
pub(crate) mod replies;
#[cfg(test)]
mod tests;
mod threads;

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{
    ALLOW, CONNECTION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use rmcp::model::{
    CallToolRequest, ClientJsonRpcMessage, ClientRequest, ErrorCode, InitializeRequestParams, JsonRpcMessage,
    JsonRpcRequest, ProtocolVersion, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::tower::StreamableHttpService;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

pub use connections::{Answers, serve_connections};
pub use endpoint::{Bounds, Endpoint};
pub use guard::{Access, MIN_TOKEN, Names, Token};
pub use hyper::http::uri::Authority;
pub use listener::{ClientCertificate, Clients, Identity, Listener};
pub use threads::Threads;

use crate::elicit::Seals;
use crate::message::{self, MAX_IN_FLIGHT, MAX_LISTENING, MAX_MESSAGE, Rejected};
use crate::server::Server;
use direct::Direct;
use guard::Refused;
use replies::{Exchange, Replies, Session, Stream};

/// The path of requests.
pub(crate) const PATH: &str = "/mcp";
/// Why a body of more than [`MAX_MESSAGE`] bytes is refused.
const TOO_LARGE: &str = "a message has 4194304 bytes at most";
/// The header of a session's identifier.
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// Bytes of it. A client that says more of itself than fits has none.
const MAX_SESSION: usize = 4 << 10;
/// The media type of a stream.
const EVENTS: &[u8] = b"text/event-stream";
/// Headers of the protocol. One that is there twice could be read as either.
const OF_PROTOCOL: [&str; 3] = ["mcp-protocol-version", "mcp-method", "mcp-name"];

type Answer = Response<BoxBody<Bytes, Infallible>>;
/// Why a body cannot be read.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What one server gives to all of its clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections at one time. A further one is closed at once.
    pub connections: usize,
    /// How long a connection may take for the head of a request, from its begin or from the answer before.
    pub head: Duration,
    /// How long a client may take for the body of a request.
    pub body: Duration,
    /// How long a client may take nothing of an answer.
    pub answer: Duration,
    /// How long answers to what was asked are waited for at the end.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let (head, body, answer) = (Duration::from_secs(30), Duration::from_secs(30), Duration::from_secs(30));
        Self { connections: 128, head, body, answer, drain: Duration::from_secs(2) }
    }
}

/// Serves clients until `end` is there. Then running calls end at once, what was asked is answered, and the socket in the
/// file system is removed. Connections are given to `threads`.
///
/// `names` are further names of the server, as requests have them in `Host`: with a port, or for any.
///
/// # Errors
///
/// That nobody can be let in, or that the socket cannot be removed.
pub async fn serve<T>(
    server: Server,
    listener: Listener,
    access: Access,
    names: Vec<Authority>,
    limits: Limits,
    threads: &Threads,
    end: impl Future<Output = T>,
) -> io::Result<T> {
    let of = listener.names(names);
    let handler = Arc::new(Handler::new(server.clone(), access, of, limits.clone()));
    serve_connections(listener, limits, threads, handler.service(), end, || server.close()).await
}

/// What a request is to its transport.
enum Kind {
    /// `initialize`, of older versions.
    Begins(Box<InitializeRequestParams>),
    /// It is answered for long.
    Listens,
    /// A call that needs nothing but its answer.
    Plain(Box<CallToolRequest>),
    Other,
}

/// Answers requests of all connections.
pub(crate) struct Handler {
    service: StreamableHttpService<Server, NeverSessionManager>,
    access: Access,
    names: Names,
    pub(crate) limits: Limits,
    bounds: Bounds,
    /// What it shares with others.
    shared: Option<Bounds>,
    direct: Direct,
    seals: Arc<Seals>,
    replies: Arc<Replies>,
}

impl Handler {
    pub(crate) fn new(server: Server, access: Access, names: Names, limits: Limits) -> Self {
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            // Both are checked here, ports too.
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_max_request_body_bytes(MAX_MESSAGE)
            .with_sse_retry(None);
        let (seals, direct) = (server.seals().clone(), Direct::new(server.clone()));
        let service = StreamableHttpService::new(move || Ok(server.clone()), Arc::default(), config);
        let bounds = Bounds::new("", MAX_IN_FLIGHT, MAX_LISTENING);
        Self { service, access, names, limits, bounds, shared: None, direct, seals, replies: Arc::default() }
    }

    /// The service of connections.
    pub(crate) fn service(self: Arc<Self>) -> impl Answers {
        service_fn(move |request| {
            let handler = self.clone();
            async move { Ok::<_, Infallible>(handler.answer(request).await) }
        })
    }

    async fn answer<B: Body<Data = Bytes, Error: Into<BoxError>>>(&self, request: Request<B>) -> Answer {
        let (mut head, body) = request.into_parts();
        if let Err(refused) = guard::check(&head, &self.names, &self.access).and_then(|()| aimed(&head)) {
            return refuse(refused);
        }
        let body = match self.read(body).await {
            Ok(body) => body,
            Err(refused) => return refuse(refused),
        };
        let (id, kind) = match message::decode(&body).and_then(|message| once(&head.headers, message)) {
            Ok(JsonRpcMessage::Request(JsonRpcRequest { id, request, .. })) => (id, self.kind(&head.headers, request)),
            Ok(message) => {
                if self.replied(message) {
                    return accepted();
                }
                // Nothing is kept that it could be about.
                (RequestId::Number(0), Kind::Other)
            }
            Err(rejected) => return reject(StatusCode::BAD_REQUEST, rejected),
        };
        let exchange = match self.exchange(&head.headers) {
            Ok(exchange) => exchange,
            Err(rejected) => return reject(StatusCode::NOT_FOUND, Rejected { id: Some(id), ..rejected }),
        };
        head.extensions.insert(exchange.clone());
        let listens = matches!(kind, Kind::Listens);
        let all = std::iter::once(&self.bounds).chain(&self.shared);
        let places = match all.map(|bounds| bounds.take(listens)).collect::<Result<Vec<_>, _>>() {
            Ok(places) => places,
            Err(why) => {
                let rejected = Rejected { id: Some(id), code: message::BUSY, why };
                let mut answer = reject(StatusCode::SERVICE_UNAVAILABLE, rejected);
                answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
                return answer;
            }
        };
        let answer = match kind {
            Kind::Plain(call) => self.direct.answer(id, *call, head).await,
            kind => {
                let mut answer = self.service.handle(Request::from_parts(head, Full::new(body))).await;
                if let (Kind::Begins(begins), true) = (kind, answer.status().is_success()) {
                    answer.headers_mut().extend(self.session(&begins).map(|session| (SESSION, session)));
                }
                answer
            }
        };
        let is_stream = answer.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(EVENTS));
        // It is answered when its last byte is.
        answer.map(|body| {
            let body = if is_stream { Stream::new(body, exchange).boxed() } else { body };
            Held { body, _places: places }.boxed()
        })
    }

    /// What a request is.
    fn kind(&self, headers: &HeaderMap, request: ClientRequest) -> Kind {
        match request {
            ClientRequest::InitializeRequest(begins) => Kind::Begins(Box::new(begins.params)),
            ClientRequest::SubscriptionsListenRequest(_) => Kind::Listens,
            ClientRequest::CallToolRequest(call) if self.direct.takes(headers, &call) => Kind::Plain(Box::new(call)),
            _ => Kind::Other,
        }
    }

    /// Whether a message answers a request of the server.
    fn replied(&self, message: ClientJsonRpcMessage) -> bool {
        match message {
            JsonRpcMessage::Response(answer) => {
                self.replies.deliver(&answer.id, Ok(serde_json::to_value(answer.result).unwrap_or_default()))
            }
            JsonRpcMessage::Error(answer) => {
                answer.id.is_some_and(|id| self.replies.deliver(&id, Err(answer.error.message.into_owned())))
            }
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => false,
        }
    }

    /// What is known of the client of a request.
    fn exchange(&self, headers: &HeaderMap) -> Result<Arc<Exchange>, Rejected> {
        // The newest revision has no sessions: what such a client sends there is ignored.
        let newest = ProtocolVersion::V_2026_07_28;
        let is_modern = headers.get("mcp-protocol-version").is_some_and(|version| version == newest.as_str());
        let session = match headers.get(SESSION).filter(|_| !is_modern) {
            None => Session::default(),
            Some(sealed) => {
                let opened = sealed.to_str().ok().and_then(|sealed| self.seals.session(sealed));
                opened.ok_or_else(|| Rejected::invalid(None, "there is no such session: send `initialize` again"))?
            }
        };
        Ok(Exchange::new(session, self.replies.clone()))
    }

    /// The identifier of a session, which holds what the client said of itself.
    fn session(&self, begins: &InitializeRequestParams) -> Option<HeaderValue> {
        let (client, capabilities) = (begins.client_info.name.clone(), begins.capabilities.clone());
        let sealed = self.seals.seal_session(&Session { client, capabilities })?;
        HeaderValue::from_str(&sealed).ok().filter(|_| sealed.len() <= MAX_SESSION)
    }

    async fn read<B: Body<Data = Bytes, Error: Into<BoxError>>>(&self, body: B) -> Result<Bytes, Refused> {
        let too_large = Refused { status: StatusCode::PAYLOAD_TOO_LARGE, why: TOO_LARGE };
        if body.size_hint().lower() > u64::try_from(MAX_MESSAGE).unwrap_or(u64::MAX) {
            return Err(too_large);
        }
        match timeout(self.limits.body, Limited::new(body, MAX_MESSAGE).collect()).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large),
            Ok(Err(_)) => Err(Refused { status: StatusCode::BAD_REQUEST, why: "the body cannot be read" }),
            Err(_) => Err(Refused { status: StatusCode::REQUEST_TIMEOUT, why: "the body did not come in time" }),
        }
    }
}

/// A body that keeps the places of its request.
struct Held {
    body: BoxBody<Bytes, Infallible>,
    _places: Vec<OwnedSemaphorePermit>,
}

impl Body for Held {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Whether a request is for what is served here.
fn aimed(head: &Parts) -> Result<(), Refused> {
    if head.uri.path() != PATH {
        return Err(Refused { status: StatusCode::NOT_FOUND, why: "the path of requests is `/mcp`" });
    }
    if head.method != Method::POST {
        let why = "send messages with `POST`: there are no sessions, and no streams beside those of answers";
        return Err(Refused { status: StatusCode::METHOD_NOT_ALLOWED, why });
    }
    Ok(())
}

/// A message whose headers of the protocol are each there once. rmcp compares them, and would take the first.
fn once(headers: &HeaderMap, message: ClientJsonRpcMessage) -> Result<ClientJsonRpcMessage, Rejected> {
    let is_twice = |name: &&&str| headers.get_all(**name).iter().count() > 1;
    match (OF_PROTOCOL.iter().find(is_twice), &message) {
        (Some(name), JsonRpcMessage::Request(request)) => Err(Rejected {
            id: Some(request.id.clone()),
            code: ErrorCode::HEADER_MISMATCH,
            why: format!("the header `{name}` is there twice"),
        }),
        _ => Ok(message),
    }
}

fn accepted() -> Answer {
    let mut answer = Response::new(Full::<Bytes>::default().boxed());
    *answer.status_mut() = StatusCode::ACCEPTED;
    answer
}

fn refuse(Refused { status, why }: Refused) -> Answer {
    let mut answer = reject(status, Rejected::invalid(None, why));
    let also: Option<(HeaderName, &str)> = match status {
        StatusCode::UNAUTHORIZED => Some((WWW_AUTHENTICATE, "Bearer realm=\"harness\"")),
        StatusCode::METHOD_NOT_ALLOWED => Some((ALLOW, "POST")),
        // The rest of the body would be taken for the next request.
        StatusCode::REQUEST_TIMEOUT | StatusCode::PAYLOAD_TOO_LARGE => Some((CONNECTION, "close")),
        _ => None,
    };
    answer.headers_mut().extend(also.map(|(name, value)| (name, HeaderValue::from_static(value))));
    answer
}

fn reject(status: StatusCode, rejected: Rejected) -> Answer {
    written(status, &rejected.into_answer())
}

fn written(status: StatusCode, message: &ServerJsonRpcMessage) -> Answer {
    let text = serde_json::to_vec(message).unwrap_or_default();
    let mut answer = Response::new(Full::new(Bytes::from(text)).boxed());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}
