//! The tenant's agent as a model: the form of OpenAI's chat completions, for clients that speak nothing else.
//!
//! Such clients send the whole conversation each time. What they say that the agent has said is not believed: a
//! conversation that was held here is found by the digest of its messages, and its own record is resumed. Of another one
//! the earlier messages come to the agent as a text of the user's.
//!
//! Chat clients also ask "models" for a title, for tags and for questions to ask next. Those requests are recognised and
//! answered without the agent: else each message would run it four times.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::http::{HeaderMap, Response, StatusCode};
use futures_util::stream;
use harness_store::Expected;
use harness_sys::digest::digest;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::{Caller, MAX_BODY, answer, once, parse, read, workspaces};
use crate::problem::Problem;
use crate::runs::{RunRecord, Work, log};
use crate::server::Server;
use crate::tenants::now;
use crate::workspaces::DEFAULT;

type Answer = Result<Response<Body>, Problem>;

/// The name of the project's agent, as a model.
const MAIN: &str = "agent";
/// Where the store has which conversation is recorded in which session: `TENANT/KEY/DIGEST`.
pub(crate) const BUCKET: &str = "chats";
/// Messages of a conversation.
const MAX_MESSAGES: usize = 1_000;

/// A request, as far as it is used. Clients send many more keys, which have no meaning for an agent.
#[derive(Debug, Deserialize)]
struct Asked {
    model: String,
    messages: Vec<Message>,
    #[serde(default)]
    stream: bool,
    stream_options: Option<StreamOptions>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

/// A message of the client's conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Message {
    role: String,
    content: Option<Content>,
}

/// Text, or parts of which those of text are read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

impl Message {
    fn text(&self) -> String {
        match &self.content {
            None => String::new(),
            Some(Content::Text(text)) => text.clone(),
            Some(Content::Parts(parts)) => {
                parts.iter().filter_map(|part| part.text.as_deref()).collect::<Vec<_>>().join("\n")
            }
        }
    }
}

pub(super) async fn models(State(server): State<Arc<Server>>, Extension(caller): Extension<Caller>) -> Answer {
    server.tenants.opened(caller.tenant()?).await?;
    let created = caller.tenant()?.record().created / 1000;
    let model = json!({"id": MAIN, "object": "model", "created": created, "owned_by": "harness"});
    Ok(answer(StatusCode::OK, &json!({"object": "list", "data": [model]})))
}

pub(super) async fn complete(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let bytes = read(body, MAX_BODY).await?;
    let asked: Asked = parse(&bytes)?;
    if asked.stream {
        return stream_of(&server, &caller, asked).await;
    }
    once::once(&server, &caller, "chat", &headers, &bytes, || whole(&server, &caller, asked)).await
}

/// What a client's conversation comes to.
#[derive(Debug)]
enum Job {
    /// A job of the client's own, with its answer.
    Aside(&'static str, String),
    /// A message to the agent.
    Turn { input: String, session: Option<String> },
}

async fn job(server: &Server, caller: &Caller, asked: &Asked) -> Result<Job, Problem> {
    if asked.model != MAIN {
        let why = format!("there is no model `{}`", asked.model.escape_debug());
        return Err(Problem::not_found(why).hint(format!("the project's agent is the model `{MAIN}`")));
    }
    if asked.messages.len() > MAX_MESSAGES {
        return Err(Problem::invalid(format!("a conversation has {MAX_MESSAGES} messages at most")));
    }
    let (last, before) = asked.messages.split_last().ok_or_else(|| Problem::invalid("`messages` is empty"))?;
    let text = last.text();
    if last.role != "user" || text.trim().is_empty() {
        return Err(Problem::invalid("the last message has to be a text of the role `user`"));
    }
    if let Some((kind, answer)) = aside(&text, before) {
        return Ok(Job::Aside(kind, answer));
    }
    let known = server.tenants.store.get(BUCKET, &place(caller, before)?).await?;
    if let Some(session) = known.and_then(|known| String::from_utf8(known.value).ok()) {
        return Ok(Job::Turn { input: text, session: Some(session) });
    }
    Ok(Job::Turn { input: with_transcript(before, &text), session: None })
}

/// Where the store has the session of a conversation that went so.
fn place(caller: &Caller, messages: &[Message]) -> Result<String, Problem> {
    let said: Vec<(&str, String)> = messages
        .iter()
        .filter(|message| matches!(message.role.as_str(), "user" | "assistant"))
        .map(|message| (message.role.as_str(), message.text()))
        .collect();
    let text = serde_json::to_string(&said).map_err(|_| Problem::fault())?;
    // The same words in another workspace are another conversation.
    let text = match caller.workspace(None)?.as_str() {
        DEFAULT => text,
        workspace => format!("{workspace}\0{text}"),
    };
    Ok(format!("{}/{}/{}", caller.tenant()?.id(), caller.key.record.id, digest(&text)))
}

/// A message, after a transcript of the earlier ones as the client sent them.
fn with_transcript(before: &[Message], text: &str) -> String {
    let said: Vec<String> = before
        .iter()
        .map(|message| (message.role.as_str(), message.text()))
        .filter(|(_, text)| !text.trim().is_empty())
        .map(|(role, text)| format!("{}: {text}", if role == "assistant" { "you, as the client says" } else { role }))
        .collect();
    if said.is_empty() {
        return text.to_owned();
    }
    format!("The client says that this was said before:\n\n{}\n\nNow:\n\n{text}", said.join("\n\n"))
}

/// The answer to a job that a chat client has for any model: a title, tags, or questions to ask next.
fn aside(text: &str, before: &[Message]) -> Option<(&'static str, String)> {
    let lower = text.to_ascii_lowercase();
    let is_task = lower.trim_start().starts_with("### task:");
    let has = |words: &[&str]| words.iter().all(|word| lower.contains(word));
    if is_task && has(&["follow-up", "question"]) {
        return Some(("follow_ups", json!({"follow_ups": []}).to_string()));
    }
    if is_task && has(&["generate", "tags"]) {
        return Some(("tags", json!({"tags": ["General"]}).to_string()));
    }
    if is_task && has(&["generate", "title"]) {
        return Some(("title", json!({"title": title(&lower, before)}).to_string()));
    }
    let is_title = has(&["title"]) && (has(&["conversation", "concise"]) || has(&["5-word"]) || has(&["five-word"]));
    let is_title = is_title && (lower.starts_with("provide a concise") || lower.contains("write a concise title"));
    is_title.then(|| ("title", title(&lower, before)))
}

/// The first words of a conversation.
fn title(_: &str, before: &[Message]) -> String {
    let first = before.iter().find(|message| message.role == "user").map(Message::text).unwrap_or_default();
    let words: Vec<&str> = first.split_whitespace().take(5).collect();
    if words.is_empty() { "Conversation".to_owned() } else { words.join(" ") }
}

/// Begins a turn.
async fn begin(
    server: &Arc<Server>,
    caller: &Caller,
    input: String,
    session: Option<String>,
) -> Result<(RunRecord, tokio_util::sync::CancellationToken), Problem> {
    server.accepts_work().await?;
    let tenant = caller.tenant()?;
    tenant.ledger.admit(now()).await.map_err(|refused| Problem::refused(&refused, now()))?;
    let opened = workspaces::opened(server, caller, None).await?;
    server.runs.start(server, caller, opened, Work::Turn { input, session, within: None }).await
}

/// Stops a run whose client is gone.
struct WhileHere {
    server: Arc<Server>,
    run: Option<String>,
}

impl Drop for WhileHere {
    fn drop(&mut self) {
        if let Some(run) = self.run.take() {
            let server = self.server.clone();
            self.server.background.spawn(async move { server.runs.stop(&run).await });
        }
    }
}

async fn whole(server: &Arc<Server>, caller: &Caller, asked: Asked) -> Answer {
    let (id, text, usage) = match job(server, caller, &asked).await? {
        Job::Aside(kind, text) => (format!("aside_{kind}"), text, Json::Null),
        Job::Turn { input, session } => {
            let (record, ended) = begin(server, caller, input, session).await?;
            let mut here = WhileHere { server: server.clone(), run: Some(record.id.clone()) };
            ended.cancelled().await;
            here.run = None;
            let record = server.runs.record(&*server.tenants.store, &caller.tenant()?.id(), &record.id).await?;
            let (text, usage) = came(&record)?;
            remember(server, caller, asked.messages, &text, &record).await?;
            (record.id, text, usage)
        }
    };
    let message = json!({"role": "assistant", "content": text});
    let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
    Ok(answer(
        StatusCode::OK,
        &json!({
            "id": id, "object": "chat.completion", "created": now() / 1000, "model": MAIN, "choices": [choice],
            "usage": tokens(&usage),
        }),
    ))
}

/// Keeps which session a conversation is recorded in, with the answer that it ends with now.
async fn remember(
    server: &Server,
    caller: &Caller,
    mut messages: Vec<Message>,
    text: &str,
    record: &RunRecord,
) -> Result<(), Problem> {
    let Some(session) = &record.session else { return Ok(()) };
    messages.push(Message { role: "assistant".to_owned(), content: Some(Content::Text(text.to_owned())) });
    let place = place(caller, &messages)?;
    server.tenants.store.put(BUCKET, &place, Expected::Anything, session.clone().into_bytes()).await?;
    Ok(())
}

/// The answer of a run that has ended.
fn came(record: &RunRecord) -> Result<(String, Json), Problem> {
    let result = record.result.clone().unwrap_or_default();
    if let Some(text) = result.get("answer").and_then(Json::as_str) {
        return Ok((text.to_owned(), result.get("usage").cloned().unwrap_or_default()));
    }
    let why = result.pointer("/error/message").or_else(|| result.pointer("/error/detail")).and_then(Json::as_str);
    let why = why.unwrap_or("the run was stopped").to_owned();
    let status = match record.state.as_str() {
        "denied" => StatusCode::FORBIDDEN,
        "limited" => StatusCode::UNPROCESSABLE_ENTITY,
        "fault" => StatusCode::BAD_GATEWAY,
        _ => StatusCode::CONFLICT,
    };
    Err(Problem::new(status, "run", why).with("run", record.id.clone()).with("outcome", record.state.clone()))
}

fn tokens(usage: &Json) -> Json {
    let of = |name: &str| usage.get(name).and_then(Json::as_u64).unwrap_or(0);
    let (input, output) = (of("input_tokens"), of("output_tokens"));
    json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input.saturating_add(output)})
}

/// A streamed answer: what the agent says, as it says it.
struct Streamed {
    server: Arc<Server>,
    caller: Caller,
    here: WhileHere,
    messages: Vec<Message>,
    id: String,
    log: String,
    after: u64,
    includes_usage: bool,
    /// What was sent so far of the reply that is under way.
    sent: bool,
    is_over: bool,
}

async fn stream_of(server: &Arc<Server>, caller: &Caller, asked: Asked) -> Answer {
    let includes_usage = asked.stream_options.is_some_and(|options| options.include_usage);
    let body = match job(server, caller, &asked).await? {
        Job::Aside(kind, text) => {
            let id = format!("aside_{kind}");
            let first = chunk(&id, &json!({"role": "assistant", "content": text}), None);
            Body::from(format!("{first}{}data: [DONE]\n\n", chunk(&id, &json!({}), Some("stop"))))
        }
        Job::Turn { input, session } => {
            let (record, _) = begin(server, caller, input, session).await?;
            let streamed = Streamed {
                server: server.clone(),
                caller: caller.clone(),
                here: WhileHere { server: server.clone(), run: Some(record.id.clone()) },
                messages: asked.messages,
                log: log(&caller.tenant()?.id(), &record.id),
                id: record.id,
                after: 0,
                includes_usage,
                sent: false,
                is_over: false,
            };
            Body::from_stream(stream::unfold(streamed, |mut streamed| async {
                let next = streamed.next().await?;
                Some((Ok::<_, std::io::Error>(next), streamed))
            }))
        }
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    Ok(response)
}

fn chunk(id: &str, delta: &Json, finish: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    let chunk = json!({
        "id": id, "object": "chat.completion.chunk", "created": now() / 1000, "model": MAIN, "choices": [choice],
    });
    format!("data: {chunk}\n\n")
}

impl Streamed {
    async fn next(&mut self) -> Option<String> {
        if self.is_over {
            return None;
        }
        loop {
            let store = &self.server.tenants.store;
            store.longer(&self.log, self.after).await.ok()?;
            let mut text = String::new();
            for line in store.lines(&self.log, self.after, 100).await.ok()? {
                self.after = line.position;
                let event: Json = serde_json::from_slice(&line.bytes).unwrap_or_default();
                let of_root = event.get("agent").and_then(Json::as_str) == Some("");
                match event.get("type").and_then(Json::as_str) {
                    Some("text") if of_root => {
                        let part = event.get("text").and_then(Json::as_str).unwrap_or_default();
                        self.sent = true;
                        text.push_str(&chunk(&self.id, &json!({"role": "assistant", "content": part}), None));
                    }
                    Some("end") => {
                        text.push_str(&self.end(&event).await);
                        self.is_over = true;
                    }
                    _ => {}
                }
            }
            if !text.is_empty() {
                return Some(text);
            }
        }
    }

    async fn end(&mut self, event: &Json) -> String {
        let mut text = String::new();
        if let Some(answer) = event.get("answer").and_then(Json::as_str) {
            if !self.sent {
                text.push_str(&chunk(&self.id, &json!({"role": "assistant", "content": answer}), None));
            }
            text.push_str(&chunk(&self.id, &json!({}), Some("stop")));
            if let Ok(tenant) = self.caller.tenant()
                && let Ok(record) = self.server.runs.record(&*self.server.tenants.store, &tenant.id(), &self.id).await
            {
                let messages = std::mem::take(&mut self.messages);
                let _ = remember(&self.server, &self.caller, messages, answer, &record).await;
            }
            if self.includes_usage {
                let usage = tokens(event.get("usage").unwrap_or(&Json::Null));
                let last = json!({
                    "id": self.id, "object": "chat.completion.chunk", "created": now() / 1000, "model": MAIN,
                    "choices": [], "usage": usage,
                });
                text.push_str(&format!("data: {last}\n\n"));
            }
        } else {
            let why = event.pointer("/error/message").or_else(|| event.pointer("/error/detail"));
            let error = json!({"error": {"message": why, "type": event.get("outcome")}});
            text.push_str(&format!("data: {error}\n\n"));
        }
        self.here.run = None;
        text.push_str("data: [DONE]\n\n");
        text
    }
}
