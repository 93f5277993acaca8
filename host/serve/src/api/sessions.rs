//! Sessions: what was recorded of turns of the agent, as a timeline, a file and a page; further turns, and replays.

use std::path::PathBuf;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use axum::http::{HeaderMap, Response, StatusCode};
use harness_session::read::{self, Recording};
use harness_session::timeline::Timeline;
use harness_session::{FOLDER, html};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::asked::{Path, Query};
use super::runs::{Page, Turn, begin_turn};
use super::{Caller, MAX_BODY, answer, once, parse, read as read_body};
use crate::problem::Problem;
use crate::server::Server;

type Answer = Result<Response<Body>, Problem>;

/// Sessions of a page, at most.
const PAGE: usize = 100;
/// What a browser does with the page of a session: it shows it. Texts in it are of models, tools and servers.
const SHOWN_ONLY: HeaderValue =
    HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox");

/// The body of a further turn.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Further {
    /// What the agent is asked.
    input: String,
    /// Rules that narrow its calls.
    within: Option<Json>,
}

pub(super) async fn list(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Query(Page { after, limit }): Query<Page>,
) -> Answer {
    let most = limit.unwrap_or(PAGE).clamp(1, PAGE);
    let page = server.runs.sessions(&*server.tenants.store, &caller, after.as_deref(), most).await?;
    // As for runs: the cursor may be a session that this key does not see.
    let next = page.last().filter(|_| page.len() == most).map(|(id, _)| id.clone());
    let seen = page.iter().filter(|(_, begun)| caller.sees_of(&begun.by, &begun.workspace));
    let sessions: Vec<Json> =
        seen.map(|(id, begun)| json!({"id": id, "begun_by": begun.by, "workspace": begun.workspace})).collect();
    Ok(answer(StatusCode::OK, &json!({"sessions": sessions, "next": next})))
}

/// The folder of a session that this key may see.
async fn visible(server: &Server, caller: &Caller, id: &str) -> Result<PathBuf, Problem> {
    server.runs.may_see_session(&*server.tenants.store, caller, id).await?;
    Ok(caller.tenant()?.project_folder().join(FOLDER))
}

/// A session: `ID` is its timeline, `ID.jsonl` its file, `ID.html` a page.
pub(super) async fn show(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Answer {
    if let Some(id) = name.strip_suffix(".jsonl") {
        let folder = visible(&server, &caller, id).await?;
        let file = folder.join(&name);
        let bytes = off_thread(move || harness_sys::read_bytes(&file, harness_session::writer::MAX_BYTES)).await?;
        let bytes = bytes.map_err(|_| unrecorded())?;
        return Ok(of_kind("application/x-ndjson", Body::from(bytes)));
    }
    let id = name.strip_suffix(".html");
    let is_page = id.is_some();
    let id = id.unwrap_or(&name).to_owned();
    let folder = visible(&server, &caller, &id).await?;
    let prices = prices(&server, &caller).await;
    let shown: serde_json::Map<String, Json> = prices
        .iter()
        .map(|(name, (input, output))| (name.clone(), json!({"input": input, "output": output})))
        .collect();
    let timeline = {
        let id = id.clone();
        off_thread(move || {
            let timeline = Timeline::of(&recording(&folder, &id)?);
            Ok::<_, Problem>(timeline.with_prices(&|name| prices.iter().find(|one| one.0 == name).map(|one| one.1)))
        })
    };
    let timeline = timeline.await??;
    if !is_page {
        return Ok(answer(StatusCode::OK, &json!({"id": id, "timeline": timeline.to_json(), "prices": shown})));
    }
    let mut response = of_kind("text/html; charset=utf-8", Body::from(html::render(&timeline)));
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, SHOWN_ONLY);
    Ok(response)
}

/// What the models of the project cost now. Without a project nothing is known of them.
async fn prices(server: &Server, caller: &Caller) -> Vec<(String, (f64, f64))> {
    let Ok(tenant) = caller.tenant() else { return Vec::new() };
    let Ok(opened) = server.tenants.opened(tenant).await else { return Vec::new() };
    let loaded = opened.project.loaded();
    let models = loaded.policy().models.all();
    models
        .filter_map(|model| Some((model.name.value.clone(), model.prices.map(|prices| (prices.input, prices.output))?)))
        .collect()
}

/// A further turn: a run that resumes the session.
pub(super) async fn turn(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let bytes = read_body(body, MAX_BODY).await?;
    let route = format!("turns/{id}");
    once::once(&server, &caller, &route, &headers, &bytes, || async {
        let Further { input, within } = parse(&bytes)?;
        begin_turn(&server, &caller, Turn { input, session: Some(id.clone()), within }, None).await
    })
    .await
}

/// Runs the session again with what it recorded, and says what differs. Nothing outside of the scripts is asked.
pub(super) async fn replay(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let bytes = read_body(body, MAX_BODY).await?;
    if !bytes.is_empty() {
        let _: Nothing = parse(&bytes)?;
    }
    let route = format!("replay/{id}");
    once::once(&server, &caller, &route, &headers, &bytes, || async {
        let folder = visible(&server, &caller, &id).await?;
        let recording = {
            let id = id.clone();
            off_thread(move || recording(&folder, &id)).await??
        };
        let found = server.runs.replay(&server, &caller, &recording).await?;
        Ok(answer(StatusCode::OK, &json!({"id": id, "replay": found})))
    })
    .await
}

/// The body of a request that has nothing to say.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

fn recording(folder: &std::path::Path, id: &str) -> Result<Recording, Problem> {
    read::read(folder, id).map_err(|_| unrecorded())
}

/// It was begun, and nothing that can be read was recorded.
fn unrecorded() -> Problem {
    Problem::not_found("nothing is recorded of this session")
}

fn of_kind(kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Reads files on a thread for that.
async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Problem::fault())
}
