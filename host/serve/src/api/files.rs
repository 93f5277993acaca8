//! The files of a tenant's workspace, under the same rules as those of its scripts: the policy says what may be read and
//! written, and no link leads out.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::http::{Response, StatusCode};
use harness_capability::denial::Denial;
use harness_capability::fs::{Error, Unwritten};
use harness_policy::grant::Grant;
use serde::Deserialize;
use serde_json::json;

use super::asked::{Path, Query};
use super::{Caller, answer, read as read_body, workspaces};
use crate::problem::Problem;
use crate::server::Server;
use crate::tenant::Opened;

type Answer = Result<Response<Body>, Problem>;

/// Bytes of a file that is sent or got.
const MAX_FILE: usize = 16 << 20;

/// Which files are listed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// A pattern, such as `docs/**`. Default: all.
    pattern: Option<String>,
}

/// What a key may do with files: what the project's policy grants to its own artifacts, narrowed by the tenant and the key.
fn grant(caller: &Caller, opened: &Opened) -> Result<Grant, Problem> {
    let grant = opened.project.loaded().policy().grant_for("", None);
    let layers = caller.tenant()?.layers(&caller.key);
    Ok(if layers.is_empty() { grant } else { grant.meet(&Grant::new(layers)) })
}

/// Does something with the files of a tenant on a thread for that.
async fn with_files<T: Send + 'static>(
    server: &Arc<Server>,
    caller: &Caller,
    work: impl FnOnce(&Opened, &Grant) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let opened = workspaces::opened(server, caller, None).await?;
    let grant = grant(caller, &opened)?;
    let done = tokio::task::spawn_blocking(move || work(&opened, &grant)).await;
    done.map_err(|_| Problem::fault())?
}

pub(super) async fn list(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Query(Wanted { pattern }): Query<Wanted>,
) -> Answer {
    let pattern = pattern.unwrap_or_else(|| "**".to_owned());
    let found = with_files(&server, &caller, move |opened, grant| {
        opened.project.loaded().workspace().glob(grant, &pattern).map_err(refused)
    });
    Ok(answer(StatusCode::OK, &json!({"files": found.await?})))
}

pub(super) async fn read(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(path): Path<String>,
) -> Answer {
    let bytes = with_files(&server, &caller, move |opened, grant| {
        opened.project.loaded().workspace().read_bytes(grant, &path, MAX_FILE as u64).map_err(refused)
    });
    let mut response = Response::new(Body::from(bytes.await?));
    // Whatever is in it: nothing that a browser would show or run.
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    Ok(response)
}

pub(super) async fn write(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(path): Path<String>,
    body: Body,
) -> Answer {
    let bytes = read_body(body, MAX_FILE).await?;
    let text = String::from_utf8(bytes.to_vec()).map_err(|_| {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "not_text", "a file of a workspace is UTF-8 text")
    })?;
    server.accepts_requests().await?;
    let size = text.len();
    let shown = path.clone();
    with_files(&server, &caller, move |opened, grant| {
        opened.project.loaded().workspace().put(grant, &path, &text).map_err(unwritten).map(|_| ())
    })
    .await?;
    Ok(answer(StatusCode::OK, &json!({"path": shown, "bytes": size})))
}

pub(super) async fn remove(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(path): Path<String>,
) -> Answer {
    let shown = path.clone();
    with_files(&server, &caller, move |opened, grant| {
        opened.project.loaded().workspace().remove(grant, &path).map_err(refused).map(|_| ())
    })
    .await?;
    Ok(answer(StatusCode::OK, &json!({"path": shown})))
}

fn unwritten(error: Unwritten) -> Problem {
    match error {
        Unwritten::Failed(error) => refused(error),
        Unwritten::Full(full) => {
            let problem = Problem::new(StatusCode::INSUFFICIENT_STORAGE, "quota", full.to_string());
            problem.with("limit", full.limit).with("set_by", full.set_by.clone()).hint(full.hint())
        }
    }
}

fn refused(error: Error) -> Problem {
    match error {
        Error::AccessDenied(Denial { reason, hint, .. }) => {
            let problem = Problem::new(StatusCode::FORBIDDEN, "denied", reason).with("outcome", "denied");
            if hint.is_empty() { problem } else { problem.hint(hint) }
        }
        Error::NotFound(path) => Problem::not_found(format!("there is no `{path}`")),
        Error::AlreadyExists(path) => {
            Problem::new(StatusCode::CONFLICT, "exists", format!("`{path}` is there already"))
        }
        Error::NotAFile(what) => {
            Problem::new(StatusCode::CONFLICT, "not_a_file", format!("it is a {what}, and no file"))
        }
        Error::NotADirectory(path) => {
            Problem::new(StatusCode::CONFLICT, "not_a_folder", format!("`{path}` is no folder"))
        }
        Error::NotEmpty(path) => Problem::new(StatusCode::CONFLICT, "not_empty", format!("`{path}` is not empty")),
        Error::TooLarge(most) => {
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", format!("it is larger than {most}, the most"))
        }
        Error::NotText(path) => {
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "not_text", format!("`{path}` is not text"))
        }
        Error::Invalid(why) => Problem::invalid(why),
        Error::Io(why) if why.contains("space") || why.contains("quota") => {
            Problem::new(StatusCode::INSUFFICIENT_STORAGE, "full", "the disk of the server is full").again(60)
        }
        Error::Io(_) => Problem::fault(),
    }
}
