//! `Idempotency-Key`: a request that is sent again is answered again, and done once.
//!
//! A key is one tenant's, one API key's and one path's. What is in the store before the work begins is that it began: after
//! the death of the process nobody knows whether it was done, and who asks again learns exactly that.

use std::sync::Arc;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::header::{CONTENT_TYPE, HeaderName, HeaderValue, LOCATION};
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse as _;
use harness_store::{Expected, Store, StoreError, Versioned};
use harness_sys::digest::digest_of;
use serde::{Deserialize, Serialize};

use super::Caller;
use crate::problem::Problem;
use crate::server::Server;
use crate::tenants::now;

/// The header.
const NAME: HeaderName = HeaderName::from_static("idempotency-key");
/// The header of an answer that was given before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");
/// Where the store has what was asked.
pub(crate) const BUCKET: &str = "idempotency";
/// Characters of a key.
const MAX_KEY: usize = 255;
/// Bytes of an answer that are kept.
const MAX_ANSWER: usize = 512 << 10;

/// A request that was asked for with a key.
#[derive(Debug, Serialize, Deserialize)]
struct Asked {
    /// The digest of its body.
    body: String,
    /// The start of the server in which it began.
    boot: String,
    /// Until when it is kept, in milliseconds since 1970.
    until: u64,
    /// Its answer, once there is one.
    answer: Option<Given>,
}

/// An answer as it was given.
#[derive(Debug, Serialize, Deserialize)]
struct Given {
    status: u16,
    kind: String,
    location: Option<String>,
    /// None: it was too long to be kept.
    body: Option<String>,
}

/// Does what is asked for, unless it was done before for the same key.
pub(super) async fn once<F>(
    server: &Arc<Server>,
    caller: &Caller,
    route: &str,
    headers: &HeaderMap,
    bytes: &Bytes,
    work: impl FnOnce() -> F,
) -> Result<Response<Body>, Problem>
where
    F: Future<Output = Result<Response<Body>, Problem>>,
{
    let Some(key) = key(headers)? else { return work().await };
    let (tenant, kept_for) = (caller.tenant()?.id(), caller.tenant()?.class.retention.answers);
    let route = &match &caller.workspace {
        Some(workspace) => format!("{route}\0{workspace}"),
        None => route.to_owned(),
    };
    // The key of a client and the path may hold any text.
    let place = format!("{tenant}/{}/{}", caller.key.record.id, digest_of(format!("{route}\0{key}").as_bytes()));
    let body = digest_of(bytes);
    let mut expected = Expected::Absent;
    let version = loop {
        let asked = Asked {
            body: body.clone(),
            boot: server.boot.clone(),
            until: now().saturating_add(kept_for),
            answer: None,
        };
        let text = serde_json::to_vec(&asked).map_err(|_| Problem::fault())?;
        match server.tenants.store.put(BUCKET, &place, expected, text).await {
            Ok(version) => break version,
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let Some(Versioned { version, value }) = server.tenants.store.get(BUCKET, &place).await? else {
            expected = Expected::Absent;
            continue;
        };
        let asked: Asked = serde_json::from_slice(&value).map_err(|_| Problem::fault())?;
        if asked.until > now() {
            return repeated(server, &body, asked);
        }
        expected = Expected::Version(version);
    };
    let (answer, given) = kept(work().await).await;
    let asked = Asked { body, boot: server.boot.clone(), until: now().saturating_add(kept_for), answer: Some(given) };
    let text = serde_json::to_vec(&asked).map_err(|_| Problem::fault())?;
    server.tenants.store.put(BUCKET, &place, Expected::Version(version), text).await?;
    Ok(answer)
}

/// Removes what is kept no longer.
pub(crate) async fn sweep(store: &dyn Store) -> Result<(), StoreError> {
    let mut after: Option<String> = None;
    loop {
        let page = store.list(BUCKET, "", after.as_deref(), 500).await?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = Some(last.clone());
        for (key, found) in &page {
            let is_over = serde_json::from_slice::<Asked>(&found.value).is_ok_and(|asked| asked.until <= now());
            if is_over {
                // One that was asked for again meanwhile stays.
                match store.delete(BUCKET, key, Expected::Version(found.version)).await {
                    Ok(()) | Err(StoreError::Conflict { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
}

/// The answer to a request that was made before.
fn repeated(server: &Server, body: &str, asked: Asked) -> Result<Response<Body>, Problem> {
    let conflict = |status, kind, why: &str| Err(Problem::new(status, kind, why));
    if asked.body != body {
        let why = "this `Idempotency-Key` was used for another body";
        return conflict(StatusCode::UNPROCESSABLE_ENTITY, "idempotency_mismatch", why);
    }
    match asked.answer {
        Some(Given { status, kind, location, body: Some(body) }) => {
            let mut response = Response::new(Body::from(body));
            *response.status_mut() = StatusCode::from_u16(status).map_err(|_| Problem::fault())?;
            let headers = response.headers_mut();
            headers.insert(REPLAYED, HeaderValue::from_static("true"));
            for (name, value) in [(CONTENT_TYPE, Some(kind)), (LOCATION, location)] {
                if let Some(value) = value.and_then(|value| HeaderValue::from_str(&value).ok()) {
                    headers.insert(name, value);
                }
            }
            Ok(response)
        }
        Some(Given { body: None, .. }) => {
            let why = "it was done, and its answer was too long to be kept";
            conflict(StatusCode::CONFLICT, "idempotency_done", why)
        }
        None if asked.boot == server.boot => {
            conflict(StatusCode::CONFLICT, "idempotency_in_progress", "it is being done")
                .map_err(|problem: Problem| problem.again(1))
        }
        None => {
            let why = "the server ended while it was being done: whether it was done is unknown";
            conflict(StatusCode::CONFLICT, "idempotency_unknown", why)
        }
    }
}

/// An answer, and the same as it is kept.
async fn kept(answer: Result<Response<Body>, Problem>) -> (Response<Body>, Given) {
    let answer = answer.unwrap_or_else(|problem| problem.into_response());
    let (head, body) = answer.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let text = |name: &HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let body = (bytes.len() <= MAX_ANSWER).then(|| String::from_utf8_lossy(&bytes).into_owned());
    let given = Given {
        status: head.status.as_u16(),
        kind: text(&CONTENT_TYPE).unwrap_or_default(),
        location: text(&LOCATION),
        body,
    };
    (Response::from_parts(head, Body::from(bytes)), given)
}

/// The key of a request, if it has one.
fn key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut values = headers.get_all(&NAME).iter();
    let Some(first) = values.next() else { return Ok(None) };
    let fits = |text: &&str| (1..=MAX_KEY).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    let text = first.to_str().ok().filter(fits).filter(|_| values.next().is_none());
    text.map(Some)
        .ok_or_else(|| Problem::invalid("an `Idempotency-Key` is 1 to 255 characters of ASCII without spaces, once"))
}
