//! Runs, their events, and the questions that they wait for.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use axum::http::{HeaderMap, Response, StatusCode};
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::asked::{Path, Query};
use super::calls::narrowed;
use super::{Caller, MAX_BODY, answer, once, parse, read, workspaces};
use crate::problem::Problem;
use crate::runs::{RunRecord, Work, log, shown};
use crate::server::Server;
use crate::tenants::now;
use crate::webhooks::event::Event;

type Answer = Result<Response<Body>, Problem>;

/// Runs of a page, at most.
const PAGE: usize = 100;
/// Events that are sent at once.
const EVENTS: usize = 100;
/// After this time without an event a client gets a comment, so that both ends see that the other one is there.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// The body of a new run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    /// What the agent is asked.
    input: String,
    /// The session that is resumed.
    session: Option<String>,
    /// Rules that narrow its calls.
    within: Option<Json>,
    /// The workspace that it is for.
    workspace: Option<String>,
}

/// The body of an answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answered {
    answer: YesOrNo,
    args_digest: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum YesOrNo {
    Yes,
    No,
}

/// What part of a list is wanted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Page {
    pub(super) after: Option<String>,
    pub(super) limit: Option<usize>,
}

pub(super) async fn begin(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let bytes = read(body, MAX_BODY).await?;
    once::once(&server, &caller, "runs", &headers, &bytes, || make(&server, &caller, &bytes)).await
}

async fn make(server: &Arc<Server>, caller: &Caller, bytes: &Bytes) -> Answer {
    let New { input, session, within, workspace } = parse(bytes)?;
    begin_turn(server, caller, Turn { input, session, within }, workspace.as_deref()).await
}

/// A turn of the agent, in a session of its own or in one that is resumed.
pub(super) struct Turn {
    pub(super) input: String,
    pub(super) session: Option<String>,
    pub(super) within: Option<Json>,
}

/// Begins a turn, in the workspace that the request names. A session that is resumed continues in its own.
pub(super) async fn begin_turn(server: &Arc<Server>, caller: &Caller, turn: Turn, workspace: Option<&str>) -> Answer {
    let Turn { input, session, within } = turn;
    if input.trim().is_empty() {
        return Err(Problem::invalid("`input` is empty"));
    }
    // What is no rules is refused before the run begins.
    within.as_ref().map(narrowed).transpose()?;
    server.accepts_work().await?;
    let tenant = caller.tenant()?;
    let mut named = workspace.map(str::to_owned);
    if let Some(session) = &session {
        let of_session = server.runs.may_see_session(&*server.tenants.store, caller, session).await?;
        if caller.names_workspace(workspace) && caller.workspace(workspace)? != of_session {
            let why = format!("the session was held in the workspace `{of_session}`, and continues there");
            return Err(Problem::new(StatusCode::CONFLICT, "conflict", why));
        }
        named = Some(of_session);
    }
    tenant.ledger.admit(now()).await.map_err(|refused| Problem::refused(&refused, now()))?;
    let opened = workspaces::opened(server, caller, named.as_deref()).await?;
    server.runs.begin(server, caller, opened, Work::Turn { input, session, within }).await
}

/// The record of a run, if this key may see it: a caller sees those of its own.
pub(crate) async fn visible(server: &Server, caller: &Caller, id: &str) -> Result<(String, RunRecord), Problem> {
    let tenant = caller.tenant()?.id();
    let record = server.runs.record(&*server.tenants.store, &tenant, id).await?;
    match caller.sees_of(&record.key, &record.workspace) {
        true => Ok((tenant, record)),
        false => Err(Problem::not_found("there is no such run")),
    }
}

pub(super) async fn list(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Query(Page { after, limit }): Query<Page>,
) -> Answer {
    let most = limit.unwrap_or(PAGE).clamp(1, PAGE);
    let tenant = caller.tenant()?.id();
    let page = server.runs.list(&*server.tenants.store, &tenant, after.as_deref(), most).await?;
    // The last run of a full page is the cursor of the next one, also if this key may not see that run.
    let next = page.last().filter(|_| page.len() == most).map(|record| record.id.clone());
    let runs: Vec<Json> =
        page.iter().filter(|record| caller.sees_of(&record.key, &record.workspace)).map(shown).collect();
    Ok(answer(StatusCode::OK, &json!({"runs": runs, "next": next})))
}

pub(super) async fn show(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Answer {
    let (_, record) = visible(&server, &caller, &id).await?;
    Ok(answer(StatusCode::OK, &shown(&record)))
}

pub(super) async fn stop(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Answer {
    visible(&server, &caller, &id).await?;
    server.runs.stop(&id).await;
    let (_, record) = visible(&server, &caller, &id).await?;
    Ok(answer(StatusCode::OK, &shown(&record)))
}

/// Where a client has read to: the header of server-sent events, or a parameter for those who cannot send one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Position {
    after: Option<u64>,
}

pub(super) async fn events(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(Position { after }): Query<Position>,
    headers: HeaderMap,
) -> Answer {
    let (tenant, _) = visible(&server, &caller, &id).await?;
    let last = headers.get(HeaderName::from_static("last-event-id"));
    let last = match last.map(|value| value.to_str().ok().and_then(|text| text.parse().ok())) {
        Some(None) => return Err(Problem::invalid("`Last-Event-ID` is the number of an event")),
        Some(Some(last)) => Some(last),
        None => after,
    };
    let mut response = Response::new(Body::from_stream(follow(server, (&tenant, &id), last.unwrap_or(0))));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    Ok(response)
}

/// The events of a run after a position, as the text of server-sent events, until its end.
pub(crate) fn follow(
    server: Arc<Server>,
    (tenant, run): (&str, &str),
    after: u64,
) -> impl Stream<Item = Result<String, std::io::Error>> + Send + use<> {
    let reader = Reader { server, log: log(tenant, run), after, is_over: false };
    stream::unfold(reader, |mut reader| async {
        let next = reader.next().await?;
        Some((next, reader))
    })
}

/// Reads the log of a run, and waits for more until its end.
struct Reader {
    server: Arc<Server>,
    log: String,
    after: u64,
    is_over: bool,
}

impl Reader {
    /// The next events, or a sign that the server is there. None: the run has ended.
    async fn next(&mut self) -> Option<Result<String, std::io::Error>> {
        if self.is_over {
            return None;
        }
        loop {
            let lines = match self.server.tenants.store.lines(&self.log, self.after, EVENTS).await {
                Ok(lines) => lines,
                Err(error) => {
                    self.is_over = true;
                    return Some(Err(std::io::Error::other(error.to_string())));
                }
            };
            if !lines.is_empty() {
                let mut text = String::new();
                for line in lines {
                    self.after = line.position;
                    let data = String::from_utf8_lossy(&line.bytes);
                    let event: Json = serde_json::from_slice(&line.bytes).unwrap_or_default();
                    let kind = event.get("type").and_then(Json::as_str).unwrap_or("event");
                    self.is_over |= kind == "end";
                    // A line of JSON has no line breaks in it.
                    text.push_str(&format!("id: {}\nevent: {kind}\ndata: {data}\n\n", line.position));
                }
                return Some(Ok(text));
            }
            let more = self.server.tenants.store.longer(&self.log, self.after);
            tokio::select! {
                () = self.server.ending.cancelled() => return None,
                more = more => if let Err(error) = more {
                    self.is_over = true;
                    return Some(Err(std::io::Error::other(error.to_string())));
                },
                () = tokio::time::sleep(HEARTBEAT) => return Some(Ok(": alive\n\n".to_owned())),
            }
        }
    }
}

pub(super) async fn approvals(State(server): State<Arc<Server>>, Extension(caller): Extension<Caller>) -> Answer {
    let open = server.runs.approvals(&*server.tenants.store, &caller).await?;
    let open: Vec<Json> = open
        .iter()
        .map(|one| {
            json!({
                "id": one.id, "run": one.run, "workspace": one.workspace, "asked_by": one.asked_by, "tool": one.tool, "artifact": one.artifact,
                "rule": one.rule, "arguments": one.arguments, "args_digest": one.args_digest, "expires": one.expires,
            })
        })
        .collect();
    Ok(answer(StatusCode::OK, &json!({"approvals": open})))
}

pub(super) async fn answer_question(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    body: Body,
) -> Answer {
    let Answered { answer: given, args_digest } = parse(&read(body, MAX_BODY).await?)?;
    let is_yes = given == YesOrNo::Yes;
    let approval = server.runs.answer(&*server.tenants.store, &caller, &id, is_yes, &args_digest).await?;
    // The answer counts, whether or not it can be sent.
    let _ = server.webhooks.emit(&*server.tenants.store, &caller.tenant()?.id(), &Event::answered(&approval)).await;
    let word = approval.answer.map(|(word, _)| word);
    Ok(answer(StatusCode::OK, &json!({"id": approval.id, "run": approval.run, "answer": word})))
}
