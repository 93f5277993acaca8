//! Requests and answers of one process of a server.
//!
//! One task writes, reads and watches the process. What it reads is held against what was asked: an answer to something
//! else, a line that is too long or a flood of messages ends the process, and with it all requests that wait.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::askers::{Asked, Askers, Replies};
use crate::elicit::{self, Answerer};
use crate::failure::Failure;
use crate::frame::Lines;
use crate::limits::{END, FLOOD, IN_FLIGHT, LAST_WORDS, LINE_BYTES, LINE_DEPTH, LINE_VALUES, QUOTED, TERMINATE};
use crate::message::{self, Incoming, RpcError, Size};
use harness_artifact::escape;
use harness_capability::exec::Service;

/// How often it is looked whether a process has read what was written.
const READ_POLL: Duration = Duration::from_millis(10);

/// Requests that were given up and may still be answered.
const MAX_ABANDONED: usize = 1024;

/// Why a process ends that does not read what it is answered.
const ASKS_FASTER: &str = "it asks faster than it reads";

/// What a request came to.
pub(crate) type Answer = Result<Json, RpcError>;

/// The connection to one process. Dropping it closes the process's standard input. One that is still there a second later
/// gets SIGTERM, and is killed after one more.
#[derive(Debug)]
pub(crate) struct Connection {
    shared: Arc<Shared>,
    out: mpsc::Sender<Vec<u8>>,
    /// Asks whether the process has read all that was written.
    asks: mpsc::Sender<oneshot::Sender<()>>,
    room: Semaphore,
    next: AtomicU64,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Whether the server may ask a person.
    can_ask: bool,
    /// The calls that answer what it asks.
    askers: Askers,
    /// Whether the server has said that its tools are others.
    changed: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    pending: HashMap<u64, oneshot::Sender<Answer>>,
    abandoned: HashSet<u64>,
    /// Why it is over.
    over: Option<String>,
    flood: Flood,
}

/// Counts messages that answer nothing.
#[derive(Debug, Default)]
pub(crate) struct Flood {
    since: Option<Instant>,
    count: u32,
}

impl Flood {
    /// Whether there are too many.
    pub(crate) fn add(&mut self, now: Instant) -> bool {
        let fresh = self.since.is_some_and(|since| now.saturating_duration_since(since) < Duration::from_secs(1));
        if !fresh {
            (self.since, self.count) = (Some(now), 0);
        }
        self.count = self.count.saturating_add(1);
        self.count > FLOOD
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all requests, for this reason; the first one counts.
    fn end(&self, why: String) {
        let mut state = self.state();
        state.over.get_or_insert(why);
        state.pending.clear();
    }

    /// Takes a line.
    ///
    /// # Errors
    ///
    /// Why the process is to be ended.
    fn take(&self, line: &[u8], replies: &mpsc::Sender<Vec<u8>>) -> Result<(), String> {
        let Size { values, depth } = Size::of(line);
        if values > LINE_VALUES {
            return Err(format!("it sent a line of more than {LINE_VALUES} values"));
        }
        if depth > LINE_DEPTH {
            return Err(format!("it sent a line that is nested more than {LINE_DEPTH} levels deep"));
        }
        let incoming = Incoming::read(line);
        let mut state = self.state();
        match incoming {
            Incoming::Answer { id, answer } => {
                if let Some(waiting) = state.pending.remove(&id) {
                    let _ = waiting.send(answer);
                } else if !state.abandoned.remove(&id) {
                    return Err(format!("it answered the request {id}, which does not wait for an answer"));
                }
                return Ok(());
            }
            Incoming::Foreign(id) => {
                let id = escape::line(&id).chars().take(40).collect::<String>();
                return Err(format!("it answered the request {id}, which was not made"));
            }
            Incoming::Broken { id } => {
                return Err(format!("it answered the request {id} with neither a result nor an error, or with both"));
            }
            Incoming::Request { id, method, params } if self.can_ask && method == elicit::METHOD => {
                if let Some(asked) = self.askers.ask(None, Asked { id, params }) {
                    let declined = message::response(&asked.id, &Ok(elicit::declined()));
                    replies.try_send(declined).map_err(|_| ASKS_FASTER.to_owned())?;
                }
            }
            Incoming::Request { id, method, .. } => {
                replies.try_send(message::reply(&id, &method)).map_err(|_| ASKS_FASTER.to_owned())?;
            }
            Incoming::Notification(method) => {
                if method == "notifications/tools/list_changed" {
                    self.changed.store(true, Ordering::Release);
                }
            }
            Incoming::Noise => {}
        }
        if state.flood.add(Instant::now()) {
            return Err(format!("it sent more than {FLOOD} messages in a second that answer nothing"));
        }
        Ok(())
    }
}

impl Replies for Connection {
    async fn reply(&self, message: Vec<u8>) {
        let _ = self.out.send(message).await;
    }
}

impl Connection {
    /// Talks to a process that was just started, which may ask a person or not. To be called in a runtime.
    pub(crate) fn new(service: Service, can_ask: bool) -> Self {
        let shared = Arc::new(Shared { can_ask, ..Shared::default() });
        let (out, outgoing) = mpsc::channel(IN_FLIGHT);
        let (asks, asked) = mpsc::channel(1);
        let task = tokio::spawn(serve(service, (outgoing, asked), shared.clone()));
        Self { shared, out, asks, room: Semaphore::new(IN_FLIGHT), next: AtomicU64::new(1), task }
    }

    /// Asks, and waits for the answer. A request whose future is dropped is canceled.
    ///
    /// # Errors
    ///
    /// Why there will be no answer.
    pub(crate) async fn request(&self, method: &str, params: &Json) -> Result<Answer, Failure> {
        let _room = self.room.acquire().await;
        let (id, answer) = self.register()?;
        let waiting = Waiting { connection: self, id };
        // Where nobody takes it, the reason follows.
        let _ = self.out.send(message::request(id, method, params)).await;
        let answer = answer.await;
        drop(waiting);
        answer.map_err(|_| self.broken())
    }

    /// The same for a call, during which the server may ask a person.
    ///
    /// # Errors
    ///
    /// As for [`request`](Self::request).
    pub(crate) async fn call(
        &self,
        method: &str,
        params: &Json,
        answerer: Option<&dyn Answerer>,
    ) -> Result<Answer, Failure> {
        let Some(answerer) = answerer else { return self.request(method, params).await };
        let _room = self.room.acquire().await;
        let (id, answer) = self.register()?;
        let asking = self.shared.askers.enter(id);
        let waiting = Waiting { connection: self, id };
        let _ = self.out.send(message::request(id, method, params)).await;
        let answer = asking.until(answer, answerer, self).await;
        drop(waiting);
        answer.map_err(|_| self.broken())
    }

    /// Waits until the process has read all that was written to it so far: a program that starts slowly has not.
    pub(crate) async fn has_read(&self) {
        let (done, read) = oneshot::channel();
        if self.asks.send(done).await.is_err() || read.await.is_err() {
            // It is over, and whoever waits for an answer learns why.
            std::future::pending::<()>().await;
        }
    }

    /// Whether the server may ask a person.
    pub(crate) fn can_ask(&self) -> bool {
        self.shared.can_ask
    }

    /// Asks for something that lasts: nobody waits for the answer.
    ///
    /// # Errors
    ///
    /// As for [`request`](Self::request).
    pub(crate) async fn begin(&self, method: &str, params: &Json) -> Result<(), Failure> {
        let (id, _) = self.register()?;
        self.out.send(message::request(id, method, params)).await.map_err(|_| self.broken())
    }

    /// Sends a notification.
    pub(crate) async fn notify(&self, method: &str, params: &Json) {
        let _ = self.out.send(message::notification(method, params)).await;
    }

    /// Whether the server has said, since this was last asked, that its tools are others.
    pub(crate) fn take_changed(&self) -> bool {
        self.shared.changed.swap(false, Ordering::AcqRel)
    }

    /// Why it is over, where it is.
    pub(crate) fn over(&self) -> Option<String> {
        self.shared.state().over.clone()
    }

    /// Requests that wait for an answer.
    pub(crate) fn in_flight(&self) -> usize {
        IN_FLIGHT.saturating_sub(self.room.available_permits())
    }

    /// Ends the process at once.
    pub(crate) fn kill(&self, why: &str) {
        self.shared.end(why.to_owned());
        self.task.abort();
    }

    /// Ends the process, and waits until it has.
    pub(crate) async fn close(self) {
        let Self { out, task, .. } = self;
        drop(out);
        let _ = task.await;
    }

    fn register(&self) -> Result<(u64, oneshot::Receiver<Answer>), Failure> {
        let mut state = self.shared.state();
        if let Some(why) = &state.over {
            return Err(Failure::Broken(why.clone()));
        }
        let (sender, receiver) = oneshot::channel();
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        state.pending.insert(id, sender);
        Ok((id, receiver))
    }

    fn broken(&self) -> Failure {
        Failure::Broken(self.over().unwrap_or_else(|| "it was ended".to_owned()))
    }
}

/// A request that waits. Dropping it before the answer is there cancels it.
struct Waiting<'c> {
    connection: &'c Connection,
    id: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.connection.shared.state();
        if state.pending.remove(&self.id).is_none() || state.over.is_some() {
            return;
        }
        if state.abandoned.len() >= MAX_ABANDONED {
            state.over = Some("too many of its requests were canceled and not answered".to_owned());
            state.pending.clear();
            self.connection.task.abort();
            return;
        }
        state.abandoned.insert(self.id);
        drop(state);
        let cancelled = message::notification("notifications/cancelled", &json!({"requestId": self.id}));
        let _ = self.connection.out.try_send(cancelled);
    }
}

/// Serves a connection until it is closed or the process ends, and then ends the process.
async fn serve(
    service: Service,
    (mut outgoing, mut asked): (mpsc::Receiver<Vec<u8>>, mpsc::Receiver<oneshot::Sender<()>>),
    shared: Arc<Shared>,
) {
    let Service { running, mut stdin, stdout, mut stderr } = service;
    let (reply, mut replies) = mpsc::channel(IN_FLIGHT);
    let mut words = Vec::new();
    let why = {
        let write = async {
            loop {
                let line = tokio::select! {
                    biased;
                    line = outgoing.recv() => line,
                    line = replies.recv() => line,
                    // The connection keeps the other end.
                    Some(done) = asked.recv() => {
                        while harness_sys::unread(&stdin).is_ok_and(|bytes| bytes > 0) {
                            tokio::time::sleep(READ_POLL).await;
                        }
                        let _ = done.send(());
                        continue;
                    }
                };
                let Some(line) = line else { return None };
                if stdin.write_all(&line).await.is_err() {
                    // What it has said is still to be read.
                    std::future::pending::<()>().await;
                }
            }
        };
        let read = async { Some(read(stdout, |line| shared.take(line, &reply)).await) };
        tokio::select! {
            biased;
            why = read => why,
            why = write => why,
            () = listen(&mut stderr, &mut words) => None,
        }
    };
    drop(stdin);
    if let Some(why) = why {
        // What it said last may still be on its way.
        let _ = tokio::time::timeout(LAST_WORDS, last_words(&mut stderr, &mut words)).await;
        let words = String::from_utf8_lossy(&words);
        let last = words.lines().rev().map(str::trim).find(|line| !line.is_empty());
        let last = last.map(|line| format!("; its last line of errors: {}", escape::line(line))).unwrap_or_default();
        shared.end(format!("{why}{last}"));
    } else {
        shared.end("it was closed".to_owned());
    }
    if tokio::time::timeout(END, running.ended()).await.is_err() {
        running.terminate();
        let _ = tokio::time::timeout(TERMINATE, running.ended()).await;
    }
    running.finish().await;
}

/// Reads lines until the end, and says why that is.
async fn read(mut from: impl AsyncRead + Unpin, take: impl Fn(&[u8]) -> Result<(), String>) -> String {
    let mut lines = Lines::new(LINE_BYTES);
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = from.read(&mut buffer).await.unwrap_or(0);
        if count == 0 {
            return "it ended".to_owned();
        }
        let Ok(lines) = lines.feed(buffer.get(..count).unwrap_or_default()) else {
            return format!("it sent a line of more than {LINE_BYTES} bytes");
        };
        if let Err(why) = lines.iter().try_for_each(|line| take(line)) {
            return why;
        }
    }
}

/// Keeps the end of what a process says to its operator, as long as it says something.
async fn last_words(from: &mut (impl AsyncRead + Unpin), kept: &mut Vec<u8>) {
    let mut buffer = vec![0; 8 << 10];
    loop {
        let count = from.read(&mut buffer).await.unwrap_or(0);
        if count == 0 {
            return;
        }
        kept.extend_from_slice(buffer.get(..count).unwrap_or_default());
        let more = kept.len().saturating_sub(QUOTED);
        kept.drain(..more);
    }
}

/// The same without an end.
async fn listen(from: &mut (impl AsyncRead + Unpin), kept: &mut Vec<u8>) {
    last_words(from, kept).await;
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(id: u64) -> Vec<u8> {
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}").into_bytes()
    }

    #[test]
    fn only_what_was_asked_is_answered() {
        let shared = Shared::default();
        let (reply, _replies) = mpsc::channel(1);
        let (sender, mut receiver) = oneshot::channel();
        shared.state().pending.insert(3, sender);
        shared.state().abandoned.insert(4);
        let take = |id: u64| shared.take(&answer(id), &reply);
        assert_eq!(take(3), Ok(()));
        assert_eq!(receiver.try_recv(), Ok(Ok(json!({}))));
        // Once, and of what was given up also once.
        assert_eq!(take(3), Err("it answered the request 3, which does not wait for an answer".to_owned()));
        assert_eq!(take(4), Ok(()));
        assert!(take(4).is_err() && take(5).is_err());
        let foreign = b"{\"jsonrpc\":\"2.0\",\"id\":\"3\",\"result\":{}}";
        assert_eq!(shared.take(foreign, &reply), Err("it answered the request \"3\", which was not made".to_owned()));
    }

    /// Few bytes make many values, of which each takes far more.
    #[test]
    fn a_line_has_no_more_values_than_so_many() {
        let shared = Shared::default();
        let (reply, _replies) = mpsc::channel(1);
        let (sender, mut receiver) = oneshot::channel();
        shared.state().pending.insert(1, sender);
        let answer = |list: &str| format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{list}}}").into_bytes();
        let take = |list: &str| shared.take(&answer(list), &reply);
        let why = format!("it sent a line of more than {LINE_VALUES} values");
        assert_eq!(take(&format!("[{}0]", "0,".repeat(LINE_VALUES))), Err(why));
        // In a text they are none.
        let text = "[{:,\\\"".repeat(LINE_VALUES / 4);
        assert_eq!(take(&format!("[\"{text}\"]")), Ok(()));
        assert!(receiver.try_recv().unwrap().is_ok());
    }

    #[test]
    fn a_server_that_asks_hears_that_nothing_is_offered() {
        let shared = Shared::default();
        let (reply, mut replies) = mpsc::channel(1);
        let asks = b"{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"sampling/createMessage\",\"params\":{}}";
        assert_eq!(shared.take(asks, &reply), Ok(()));
        assert_eq!(replies.try_recv(), Ok(message::not_offered(&json!("a"))));
        assert_eq!(shared.take(asks, &reply), Ok(()));
        assert_eq!(shared.take(asks, &reply), Err("it asks faster than it reads".to_owned()));
    }

    #[test]
    fn a_person_is_asked_where_a_call_has_one_and_nobody_declines() {
        let shared = Shared { can_ask: true, ..Shared::default() };
        let (reply, mut replies) = mpsc::channel(4);
        let asks =
            b"{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"elicitation/create\",\"params\":{\"message\":\"m\"}}";
        assert_eq!(shared.take(asks, &reply), Ok(()));
        let declined = message::response(&json!("a"), &Ok(json!({"action": "decline"})));
        assert_eq!(replies.try_recv(), Ok(declined));
        let _one = shared.askers.enter(3);
        assert_eq!(shared.take(asks, &reply), Ok(()));
        assert!(replies.try_recv().is_err());
        // A server that may not ask hears that there is no such method.
        let shared = Shared::default();
        assert_eq!(shared.take(asks, &reply), Ok(()));
        assert_eq!(replies.try_recv(), Ok(message::not_offered(&json!("a"))));
    }

    #[test]
    fn a_flood_is_seen_and_a_trickle_is_not() {
        let (mut flood, start) = (Flood::default(), Instant::now());
        let at = |millis: u64| start + Duration::from_millis(millis);
        assert!((0..u64::from(FLOOD) * 3).all(|n| !flood.add(at(n))));
        let mut flood = Flood::default();
        assert!((0..FLOOD).all(|_| !flood.add(at(0))));
        assert!(flood.add(at(999)) && !flood.add(at(1000)));
    }
}
