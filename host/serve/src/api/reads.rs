//! What a tenant reads of itself: tools, usage and the audit log.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use axum::http::{Response, StatusCode};
use harness_artifact::tool::Tool;
use harness_audit::Kept;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::asked::Query;
use super::{Caller, answer, workspaces};
use crate::problem::Problem;
use crate::server::Server;
use crate::tenants::now;

type Answer = Result<Response<Body>, Problem>;

/// Lines of the audit log in an answer, at most.
const LINES: usize = 10_000;
/// The header with the hash of the last line of the whole log.
const HEAD: HeaderName = HeaderName::from_static("audit-head");
/// The header with the number and the hash of the last line that was removed.
const START: HeaderName = HeaderName::from_static("audit-start");

pub(super) async fn tools(State(server): State<Arc<Server>>, Extension(caller): Extension<Caller>) -> Answer {
    let opened = server.tenants.opened(caller.tenant()?).await?;
    let loaded = opened.project.loaded();
    let allowed = |tool: &&Arc<Tool>| loaded.policy().tools.decide(&tool.name).is_ok();
    let tools: Vec<Json> = loaded.registry().tools().iter().filter(allowed).map(|tool| shown(tool)).collect();
    let refused = loaded.registry().refused().iter().filter(|one| one.kind == "tool");
    let refused: Vec<Json> =
        refused.map(|one| json!({"name": one.name, "by": one.by, "reason": one.reason, "file": one.at})).collect();
    Ok(answer(StatusCode::OK, &json!({"tools": tools, "refused": refused})))
}

fn shown(tool: &Tool) -> Json {
    let (description, parameters) = tool.offered();
    let mut shown =
        json!({"name": tool.name, "description": description, "parameters": parameters, "file": &*tool.source.file});
    if let (Some(shown), Some(returns)) = (shown.as_object_mut(), &tool.returns) {
        shown.insert("returns".to_owned(), returns.json().clone());
    }
    shown
}

pub(super) async fn usage(Extension(caller): Extension<Caller>) -> Answer {
    let tenant = caller.tenant()?;
    tenant.ledger.read(now()).await?;
    let requests = tenant.requests.rate();
    let workspaces = workspaces::shown(tenant, |name| caller.key.record.has_workspace(name)).await?;
    let (free, runs) = (tenant.runs.available_permits(), tenant.class.runs);
    Ok(answer(
        StatusCode::OK,
        &json!({
            "tenant": tenant.id(),
            "class": tenant.class.name,
            "budgets": tenant.ledger.shown(now()),
            "requests": {"per_minute": requests.per_minute, "burst": requests.burst},
            "runs": {"under_way": runs.saturating_sub(free), "limit": runs},
            "workspaces": workspaces,
        }),
    ))
}

/// What part of the log is wanted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// The number of the line before the first that is wanted.
    after: Option<u64>,
    /// How many lines.
    limit: Option<usize>,
}

/// The audit log as it is: JSON Lines, whose hashes can be verified anywhere.
pub(super) async fn audit(Extension(caller): Extension<Caller>, Query(wanted): Query<Wanted>) -> Answer {
    log_of(caller.tenant()?.project_folder().join(harness_audit::FOLDER), wanted).await
}

/// Lines of the log in a folder, as they are.
pub(super) async fn log_of(folder: std::path::PathBuf, Wanted { after, limit }: Wanted) -> Answer {
    if harness_sys::is_gone(&folder) {
        return Ok(lines(String::new(), None, None));
    }
    let read =
        tokio::task::spawn_blocking(move || harness_audit::kept_lines(&folder)).await.map_err(|_| Problem::fault())?;
    let Kept { removed, start, lines: all } = read.map_err(|why| broken(&why))?;
    let start = (removed > 0).then(|| format!("{removed} {start}"));
    let number = |line: &str| {
        let json: Json = serde_json::from_str(line).unwrap_or_default();
        (json.get("seq").and_then(Json::as_u64), json.get("hash").and_then(Json::as_str).map(str::to_owned))
    };
    let head = all.last().and_then(|line| number(line).1);
    let after = after.unwrap_or(0);
    let wanted = all.iter().filter(|line| number(line).0.is_some_and(|at| at > after));
    let text: String = wanted.take(limit.unwrap_or(LINES).clamp(1, LINES)).map(|line| format!("{line}\n")).collect();
    Ok(lines(text, head.as_deref(), start.as_deref()))
}

/// A log that is not what was written.
pub(super) fn broken(why: &harness_audit::Broken) -> Problem {
    Problem::new(StatusCode::CONFLICT, "broken", format!("the audit log is not whole: {why}"))
}

fn lines(text: String, head: Option<&str>, start: Option<&str>) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    for (name, value) in [(HEAD, head), (START, start)] {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}
