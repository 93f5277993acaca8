//! One message over HTTP, and what comes back.

use std::time::Instant;

use serde_json::{Value as Json, json};
use tokio::sync::oneshot;

use super::{LOST, Session, Shared};
use crate::askers::{Asked, Replies};
use crate::connection::{Answer, Flood};
use crate::elicit;
use crate::era::params;
use crate::failure::Failure;
use crate::headers;
use crate::limits::{
    FLOOD, ID_BYTES, LINE_BYTES, LINE_DEPTH, LINE_VALUES, MAX_RESUME, REFUSAL_BYTES, RESUME, RESUMES, STREAM_BYTES,
    STREAM_MESSAGES,
};
use crate::message::{self, Incoming, MODERN, Size};
use crate::oauth::challenge::Challenge;
use crate::sse::{Events, TooLong};
use harness_artifact::escape;
use harness_capability::http::Error;
use harness_capability::http::own::{Answer as Opened, OwnRequest};
use harness_policy::network::Method;
use harness_policy::refusal::Refusal;

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// Counts what comes in the stream of one answer.
#[derive(Debug, Default)]
struct Stream {
    bytes: usize,
    messages: u32,
    resumes: u32,
}

impl Replies for Shared {
    async fn reply(&self, message: Vec<u8>) {
        let _ = self.post("", &Json::Null, message).await;
    }
}

impl Shared {
    /// Sends a request, and reads its answer.
    pub(super) async fn ask(&self, id: u64, method: &str, params: &Json) -> Result<Answer, Failure> {
        let mut opened = self.post(method, params, message::request(id, method, params)).await?;
        if !(200..300).contains(&opened.status()) {
            return self.refused(&mut opened).await;
        }
        let session = opened.header("mcp-session-id").map(str::to_owned);
        let mut answer = match kind(&opened) {
            JSON => {
                let body = opened.whole(LINE_BYTES).await.map_err(failure)?;
                self.take(body, id).await?.ok_or_else(|| self.ended("it answered a request with no answer"))?
            }
            EVENTS => self.answer_of(opened, id).await?,
            _ => {
                let status = opened.status();
                return Err(Failure::Broken(format!("it answered a request with HTTP status {status} and no message")));
            }
        };
        self.redact(&mut answer);
        if let (true, Ok(result)) = (method == "initialize", &answer) {
            self.agreed(result, session)?;
        }
        Ok(answer)
    }

    /// Keeps what a server has agreed to in its answer to `initialize`.
    fn agreed(&self, result: &Json, id: Option<String>) -> Result<(), Failure> {
        let is_plain = |id: &String| id.len() <= ID_BYTES && id.bytes().all(|byte| (b'!'..=b'~').contains(&byte));
        if id.as_ref().is_some_and(|id| !is_plain(id)) {
            return Err(self.ended("the identifier of its session is none"));
        }
        let version = result.get("protocolVersion").and_then(Json::as_str).map(str::to_owned);
        let mut session = self.session();
        (session.version, session.id) = (version, id);
        Ok(())
    }

    /// Takes tokens out of what a server says. What else is secret is taken out where results are used.
    fn redact(&self, answer: &mut Answer) {
        match (&self.reach.login, answer) {
            (None, _) => {}
            (Some(login), Ok(result)) => login.redact(result),
            (Some(login), Err(error)) => login.redact_text(&mut error.message),
        }
    }

    /// What an answer says that is no success.
    async fn refused(&self, opened: &mut Opened) -> Result<Answer, Failure> {
        let status = opened.status();
        if status == 404 && self.session().id.is_some() {
            return Err(self.ended(LOST));
        }
        if status == 401 {
            let hint = "name its key in `headers`, as in `headers: { Authorization: \"Bearer {secret:NAME}\" }`";
            return Err(
                Refusal::new(format!("`{}` wants authorization (HTTP status 401)", self.reach.url), hint).into()
            );
        }
        let body = opened.whole(REFUSAL_BYTES).await.unwrap_or_default();
        match message::error_of(&body) {
            Some(error) => {
                let mut answer = Err(error);
                self.redact(&mut answer);
                Ok(answer)
            }
            None => Err(Failure::Said(format!("it answered with HTTP status {status}"))),
        }
    }

    /// Reads events until the answer is among them. A stream of an older server that ends before is continued.
    async fn answer_of(&self, mut opened: Opened, id: u64) -> Result<Answer, Failure> {
        let (mut events, mut stream) = (Events::new(LINE_BYTES), Stream::default());
        loop {
            let next = opened.next().await;
            if let Ok(Some(bytes)) = next {
                stream.bytes = stream.bytes.saturating_add(bytes.len());
                if stream.bytes > STREAM_BYTES {
                    return Err(self.ended(&format!("its answer has more than {STREAM_BYTES} bytes")));
                }
                for event in self.events(&mut events, &bytes)? {
                    if let Some(answer) = self.take(event.into_bytes(), id).await? {
                        return Ok(answer);
                    }
                    stream.messages = stream.messages.saturating_add(1);
                    if stream.messages > STREAM_MESSAGES {
                        let what = format!("it sent more than {STREAM_MESSAGES} messages with one answer");
                        return Err(self.ended(&what));
                    }
                }
                continue;
            }
            stream.resumes = stream.resumes.saturating_add(1);
            let last = events.last_id().map(str::to_owned).filter(|_| self.session().version.is_some());
            let Some(last) = last.filter(|_| stream.resumes <= RESUMES) else {
                return Err(Failure::Broken("its answer ended before it was whole".to_owned()));
            };
            tokio::time::sleep(events.retry().unwrap_or(RESUME).min(MAX_RESUME)).await;
            events = events.again();
            opened = self.get(Some(last)).await?;
            if opened.status() != 200 || kind(&opened) != EVENTS {
                let status = opened.status();
                return Err(Failure::Broken(format!("it does not continue its answer (HTTP status {status})")));
            }
        }
    }

    fn events(&self, events: &mut Events, bytes: &[u8]) -> Result<Vec<String>, Failure> {
        events.feed(bytes).map_err(|TooLong| self.ended(&format!("it sent an event of more than {LINE_BYTES} bytes")))
    }

    /// Takes a message that came while a request waits for its answer. Returns the answer, where it is that.
    async fn take(&self, text: Vec<u8>, id: u64) -> Result<Option<Answer>, Failure> {
        // An event that is there for its identifier alone.
        if text.trim_ascii().is_empty() {
            return Ok(None);
        }
        if let Some(why) = too_large(&text) {
            return Err(self.ended(&why));
        }
        match Incoming::read(&text) {
            Incoming::Answer { id: of, answer } if of == id => return Ok(Some(answer)),
            Incoming::Answer { id: of, .. } => {
                return Err(self.ended(&format!("it answered the request {of} instead of {id}")));
            }
            Incoming::Broken { id } => {
                return Err(self
                    .ended(&format!("it answered the request {id} with neither a result nor an error, or with both")));
            }
            Incoming::Foreign(of) => {
                let of = escape::line(&of).chars().take(40).collect::<String>();
                return Err(self.ended(&format!("it answered the request {of}, which was not made")));
            }
            Incoming::Request { id: asked, method, params } => self.asked(asked, &method, params, Some(id)).await,
            Incoming::Notification(method) => self.notified(&method),
            Incoming::Noise => {}
        }
        Ok(None)
    }

    fn notified(&self, method: &str) {
        if method == "notifications/tools/list_changed" {
            self.changed.store(true, std::sync::atomic::Ordering::Release);
        }
    }

    /// Answers a request of an older server; a newer one may not ask. A person is asked by the call in whose stream it
    /// came, or by the one that has waited longest.
    async fn asked(&self, id: Json, method: &str, mut params: Json, call: Option<u64>) {
        if self.session().version.is_none() {
            return;
        }
        if !self.reach.can_ask || method != elicit::METHOD {
            return Replies::reply(self, message::reply(&id, method)).await;
        }
        if let Some(login) = &self.reach.login {
            login.redact(&mut params);
        }
        if let Some(asked) = self.askers.ask(call, Asked { id, params }) {
            Replies::reply(self, message::response(&asked.id, &Ok(elicit::declined()))).await;
        }
    }

    /// Sends a notification.
    pub(super) async fn notify(&self, method: &str, params: &Json) {
        let _ = self.post(method, params, message::notification(method, params)).await;
    }

    /// Ends the session at the server.
    pub(super) async fn end_session(&self) {
        let headers = self.session().headers();
        let _ = self.send(Method::Delete, headers, None).await;
    }

    /// Hears what the server notifies of, until it ends that. `ready` is dropped when the server has begun.
    pub(super) async fn hear(&self, id: u64, is_modern: bool, ready: oneshot::Sender<()>) {
        let mut ready = Some(ready);
        let opened = if is_modern {
            let asked = params(MODERN, json!({"notifications": {"toolsListChanged": true}}));
            let method = "subscriptions/listen";
            self.post(method, &asked, message::request(id, method, &asked)).await
        } else {
            self.get(None).await
        };
        let Ok(mut opened) = opened else { return };
        if !is_modern && opened.status() == 405 {
            self.is_mute.store(true, std::sync::atomic::Ordering::Release);
        }
        if opened.status() != 200 || kind(&opened) != EVENTS {
            return;
        }
        if !is_modern {
            drop(ready.take());
        }
        let (mut events, mut flood) = (Events::new(LINE_BYTES), Flood::default());
        while let Ok(Some(bytes)) = opened.next().await {
            let Ok(data) = self.events(&mut events, &bytes) else { return };
            for event in data {
                if flood.add(Instant::now()) {
                    self.end(&format!("it sent more than {FLOOD} messages in a second that answer nothing"));
                    return;
                }
                if let Some(why) = too_large(event.as_bytes()) {
                    self.end(&why);
                    return;
                }
                match Incoming::read(event.as_bytes()) {
                    Incoming::Notification(method) => self.notified(&method),
                    Incoming::Request { id, method, params } => self.asked(id, &method, params, None).await,
                    Incoming::Answer { .. } | Incoming::Broken { .. } | Incoming::Foreign(_) if is_modern => return,
                    Incoming::Answer { .. } | Incoming::Broken { .. } | Incoming::Foreign(_) | Incoming::Noise => {}
                }
                // The first message says what is accepted.
                drop(ready.take());
            }
        }
    }

    async fn post(&self, method: &str, params: &Json, mut body: Vec<u8>) -> Result<Opened, Failure> {
        body.truncate(body.trim_ascii_end().len());
        let named = params.get("_meta").and_then(|meta| meta.get("io.modelcontextprotocol/protocolVersion"));
        let mut headers = match named.and_then(Json::as_str) {
            Some(version) => {
                let session = self.session();
                let tool = params.get("name").and_then(Json::as_str).unwrap_or_default();
                let mirrored = session.mirrored.get(tool).filter(|_| method == "tools/call");
                headers::of_request(version, method, params, mirrored.map(Vec::as_slice).unwrap_or_default())
            }
            None => self.session().headers(),
        };
        headers.push(("accept".to_owned(), format!("{JSON}, {EVENTS}")));
        headers.push(("content-type".to_owned(), JSON.to_owned()));
        self.send(Method::Post, headers, Some(body)).await
    }

    async fn get(&self, last: Option<String>) -> Result<Opened, Failure> {
        let mut headers = self.session().headers();
        headers.push(("accept".to_owned(), EVENTS.to_owned()));
        headers.extend(last.map(|id| ("last-event-id".to_owned(), id)));
        self.send(Method::Get, headers, None).await
    }

    async fn send(
        &self,
        method: Method,
        headers: Vec<(String, String)>,
        body: Option<Vec<u8>>,
    ) -> Result<Opened, Failure> {
        let reach = &self.reach;
        let mut is_replaced = false;
        loop {
            let token = match &reach.login {
                Some(login) => login.token().await?,
                None => None,
            };
            let mut sealed = reach.sealed.clone();
            sealed.extend(token.iter().map(|token| ("authorization".to_owned(), format!("Bearer {token}"))));
            let request = OwnRequest {
                method,
                url: &reach.url,
                headers: headers.clone(),
                sealed,
                body: body.clone(),
                anywhere: false,
            };
            let opened = reach.http.open(&reach.grant, &reach.vault, request).await.map_err(failure)?;
            let (status, Some(login)) = (opened.status(), &reach.login) else { return Ok(opened) };
            if !matches!(status, 401 | 403) {
                return Ok(opened);
            }
            // Once: what is refused with a new token too is refused.
            if let (401, Some(token), false) = (status, &token, is_replaced) {
                is_replaced = true;
                if login.replace(token).await? {
                    continue;
                }
            }
            let challenge = Challenge::read(opened.header_values("www-authenticate"));
            if status == 403 && challenge.scopes.is_empty() {
                return Ok(opened);
            }
            return Err(login.wanted(status, challenge).await);
        }
    }

    /// Ends the session. Returns why, as the failure of a request.
    fn ended(&self, why: &str) -> Failure {
        self.end(why);
        Failure::Broken(why.to_owned())
    }
}

impl Session {
    /// The headers of each message of an older revision after its first.
    fn headers(&self) -> Vec<(String, String)> {
        let version = self.version.iter().map(|version| ("mcp-protocol-version".to_owned(), version.clone()));
        version.chain(self.id.iter().map(|id| ("mcp-session-id".to_owned(), id.clone()))).collect()
    }
}

/// Why a message is not read, where it is too large once it is.
fn too_large(text: &[u8]) -> Option<String> {
    let size = Size::of(text);
    if size.values > LINE_VALUES {
        return Some(format!("it sent a message of more than {LINE_VALUES} values"));
    }
    (size.depth > LINE_DEPTH).then(|| format!("it sent a message of more than {LINE_DEPTH} nested levels"))
}

/// What an answer is, without parameters.
fn kind(opened: &Opened) -> &'static str {
    let kind = opened.header("content-type").unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    [JSON, EVENTS].into_iter().find(|known| kind.eq_ignore_ascii_case(known)).unwrap_or_default()
}

/// Why a message could not be exchanged.
pub(crate) fn failure(error: Error) -> Failure {
    match error {
        Error::AccessDenied(denial) => Failure::Refused { refusal: denial.into(), difference: None },
        Error::InvalidUrl(why) | Error::InvalidRequest(why) | Error::Connection(why) => Failure::Broken(why),
        Error::TooLarge(most) => Failure::Broken(format!("a message has more than {most} bytes")),
        Error::Timeout(millis) => Failure::Broken(format!("it did not answer within {millis} ms")),
        Error::TooManyRedirects => Failure::Broken("it redirects too often".to_owned()),
    }
}
