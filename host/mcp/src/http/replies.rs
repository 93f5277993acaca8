//! Requests of the server over HTTP, up to 2025-11-25: they are in the stream that answers a request, and the client sends
//! what it answers in a request of its own.
//!
//! Nothing is kept of a client. What it can do is in its sealed session identifier, and what it answers finds its call by the
//! identifier of the server's request, which nobody can guess.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use http_body_util::combinators::BoxBody;
use hyper::body::{Body, Bytes, Frame};
use rmcp::model::{ClientCapabilities, RequestId};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tokio::sync::oneshot;

/// Bytes of one event of a stream; a longer one is passed on as it is.
const MAX_EVENT: usize = 4 << 20;

/// What a client of an older version said of itself with `initialize`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Session {
    /// Its name.
    pub(crate) client: String,
    /// What it can do.
    pub(crate) capabilities: ClientCapabilities,
}

/// An answer of a client, or why there is none.
type Answer = Result<Json, String>;

/// The requests of the server that are not answered yet.
#[derive(Debug, Default)]
pub(crate) struct Replies(Mutex<HashMap<String, oneshot::Sender<Answer>>>);

impl Replies {
    /// Gives an answer to the call that waits for it. False: none does.
    pub(crate) fn deliver(&self, id: &RequestId, answer: Answer) -> bool {
        let waiting = match id {
            RequestId::String(token) => self.waiting().remove(&**token),
            RequestId::Number(_) => None,
        };
        waiting.is_some_and(|waiting| waiting.send(answer).is_ok())
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<String, oneshot::Sender<Answer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One request of a client, in whose answer the server can ask it.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) session: Session,
    replies: Arc<Replies>,
    sent: Mutex<Sent>,
}

/// Requests of the server that were sent, by the identifiers that rmcp gave them.
#[derive(Debug, Default)]
struct Sent {
    tokens: Vec<String>,
    answers: HashMap<RequestId, oneshot::Receiver<Answer>>,
    /// Who waits for the request to be sent.
    waiting: HashMap<RequestId, oneshot::Sender<oneshot::Receiver<Answer>>>,
}

impl Exchange {
    pub(crate) fn new(session: Session, replies: Arc<Replies>) -> Arc<Self> {
        Arc::new(Self { session, replies, sent: Mutex::default() })
    }

    /// What the client answers to a request that was given to rmcp with this identifier.
    pub(crate) async fn answer(&self, id: RequestId) -> Answer {
        let sent = {
            let mut state = self.state();
            match state.answers.remove(&id) {
                Some(answer) => Ok(answer),
                None => {
                    let (tell, sent) = oneshot::channel();
                    state.waiting.insert(id, tell);
                    Err(sent)
                }
            }
        };
        let gone = |_| "the client is gone".to_owned();
        let answer = match sent {
            Ok(answer) => answer,
            Err(sent) => sent.await.map_err(gone)?,
        };
        answer.await.map_err(gone)?
    }

    /// Takes note that a request is sent. Returns the identifier that the client gets.
    fn send(&self, id: RequestId) -> String {
        let mut number = [0; 16];
        harness_sys::fill_random(&mut number);
        let token = format!("harness-{:032x}", u128::from_ne_bytes(number));
        let (answer, answered) = oneshot::channel();
        self.replies.waiting().insert(token.clone(), answer);
        let mut state = self.state();
        state.tokens.push(token.clone());
        match state.waiting.remove(&id) {
            Some(waiting) => drop(waiting.send(answered)),
            None => drop(state.answers.insert(id, answered)),
        }
        token
    }

    fn state(&self) -> MutexGuard<'_, Sent> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An event of the stream as the client gets it.
    fn event(&self, event: &str) -> String {
        let line = |line: &str| {
            let data = line.strip_prefix("data:")?;
            let mut message: Json = serde_json::from_str(data).ok()?;
            let object = message.as_object_mut().filter(|object| object.contains_key("method"))?;
            let id: RequestId = serde_json::from_value(object.get("id")?.clone()).ok()?;
            object.insert("id".to_owned(), self.send(id).into());
            Some(format!("data: {message}"))
        };
        event.split('\n').map(|each| line(each).unwrap_or_else(|| each.to_owned())).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let tokens = std::mem::take(&mut self.state().tokens);
        let mut waiting = self.replies.waiting();
        tokens.iter().for_each(|token| drop(waiting.remove(token)));
    }
}

/// The stream that answers a request.
pub(crate) struct Stream {
    body: BoxBody<Bytes, Infallible>,
    exchange: Arc<Exchange>,
    /// The begin of an event.
    held: Vec<u8>,
}

impl Stream {
    pub(crate) fn new(body: BoxBody<Bytes, Infallible>, exchange: Arc<Exchange>) -> Self {
        Self { body, exchange, held: Vec::new() }
    }

    /// What of the bytes so far are whole events.
    fn whole(&mut self, more: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(more);
        let end = self.held.windows(2).rposition(|pair| pair == b"\n\n").map(|at| at.saturating_add(2));
        let end = end.or_else(|| (self.held.len() > MAX_EVENT).then_some(self.held.len()));
        let rest = self.held.split_off(end.unwrap_or(0));
        let events = std::mem::replace(&mut self.held, rest);
        match String::from_utf8(events) {
            Ok(events) => self.exchange.event(&events).into_bytes(),
            Err(other) => other.into_bytes(),
        }
    }
}

impl Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let this = self.get_mut();
        loop {
            return Poll::Ready(match std::task::ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        let whole = this.whole(&data);
                        if whole.is_empty() {
                            continue;
                        }
                        Some(Ok(Frame::data(whole.into())))
                    }
                    Err(frame) => Some(Ok(frame)),
                },
                None if !this.held.is_empty() => Some(Ok(Frame::data(std::mem::take(&mut this.held).into()))),
                end => end,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn asks(id: i64) -> String {
        format!("data: {}\n\n", json!({"jsonrpc": "2.0", "id": id, "method": "roots/list"}))
    }

    fn token(event: &str) -> String {
        let data = event.lines().find_map(|line| line.strip_prefix("data:")).unwrap();
        serde_json::from_str::<Json>(data).unwrap()["id"].as_str().unwrap().to_owned()
    }

    #[tokio::test]
    async fn an_answer_finds_its_request_by_what_nobody_can_guess() {
        let replies = Arc::new(Replies::default());
        let exchanges = [(); 2].map(|()| Exchange::new(Session::default(), replies.clone()));
        let [one, other] = exchanges.each_ref().map(|exchange| token(&exchange.event(&asks(0))));
        assert_ne!(one, other);
        let deliver = |token: &str, answer: Json| replies.deliver(&RequestId::String(token.into()), Ok(answer));
        assert!(deliver(&other, json!(2)) && deliver(&one, json!(1)));
        assert!(!deliver(&one, json!(3)) && !deliver("0", json!(3)));
        assert!(!replies.deliver(&RequestId::Number(0), Ok(json!(3))));
        for (exchange, want) in exchanges.iter().zip([1, 2]) {
            assert_eq!(exchange.answer(RequestId::Number(0)).await, Ok(json!(want)));
        }
        // One that waits before its request is sent gets its answer, too.
        let waits = exchanges[0].answer(RequestId::Number(1));
        let sends = async {
            tokio::task::yield_now().await;
            deliver(&token(&exchanges[0].event(&asks(1))), json!(4))
        };
        assert_eq!(tokio::join!(waits, sends), (Ok(json!(4)), true));
        // What a client that is gone was asked is forgotten.
        let last = token(&exchanges[1].event(&asks(1)));
        drop(exchanges);
        assert!(!deliver(&last, json!(5)));
    }

    #[test]
    fn only_requests_are_changed_and_only_whole_events() {
        let exchange = Exchange::new(Session::default(), Arc::default());
        let other = "id: 1\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"a\": 1}}\n\n: alive\n\ndata: {\"method\":\"notifications/message\"}\n\n";
        assert_eq!(exchange.event(other), other);
        let mut stream = Stream::new(BoxBody::default(), exchange);
        let event = asks(3);
        let (head, tail) = event.split_at(20);
        assert_eq!(stream.whole(head.as_bytes()), b"");
        let whole = String::from_utf8(stream.whole(format!("{tail}data: x").as_bytes())).unwrap();
        assert!(whole.ends_with("\n\n") && token(&whole).starts_with("harness-"), "{whole}");
        assert_eq!(stream.held, b"data: x");
    }
}
