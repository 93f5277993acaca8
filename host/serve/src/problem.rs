//! Errors of the interface: `application/problem+json` (RFC 9457), with what to do about each.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use harness_dispatch::CallError;
use harness_store::StoreError;
use serde_json::{Map, Value as Json, json};

use crate::budget::{Exceeded, Refused};

/// An error as a client gets it.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem(Box<Members>);

#[derive(Debug, Clone, PartialEq)]
struct Members {
    status: StatusCode,
    /// The word for it, which `type` ends with.
    kind: &'static str,
    detail: String,
    /// Members beside those of the RFC: `hint`, `set_by`, `rule`, `limit`.
    more: Map<String, Json>,
    /// Seconds until it is worth trying again.
    again: Option<u64>,
    /// The budget that is used up: the response carries it for others.
    exhausted: Option<Exceeded>,
}

impl Problem {
    /// An error with this status and word; `detail` is a sentence without a full stop.
    pub fn new(status: StatusCode, kind: &'static str, detail: impl Into<String>) -> Self {
        Self(Box::new(Members { status, kind, detail: detail.into(), more: Map::new(), again: None, exhausted: None }))
    }

    /// With what to do about it.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        self.with("hint", hint.into())
    }

    /// With another member.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Json>) -> Self {
        self.0.more.insert(name.to_owned(), value.into());
        self
    }

    /// With the seconds after which it is worth trying again.
    #[must_use]
    pub fn again(mut self, seconds: u64) -> Self {
        self.0.again = Some(seconds);
        self
    }

    /// Who asks has shown no key that counts. Which part of it is wrong is not said.
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", "the key is missing, unknown or expired")
            .hint("send a key of this server as `Authorization: Bearer hk_...`")
    }

    /// The role of the key does not have this.
    pub fn forbidden(role: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", format!("a key with the role `{role}` may not ask for this"))
            .with("set_by", "the role of the key")
    }

    /// There is nothing of this name that the key can see.
    pub fn not_found(what: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", what)
    }

    /// The request cannot be understood.
    pub fn invalid(why: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid", why)
    }

    /// Too many requests: so many in a minute are allowed, by what set it.
    pub fn too_many(per_minute: u32, set_by: &str, again: u64) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", format!("over {per_minute} requests in a minute"))
            .with("limit", "requests")
            .with("set_by", set_by)
            .again(again)
    }

    /// The host failed. Why is in its own log alone.
    pub fn fault() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "fault", "the server failed; its log has the reason")
    }

    /// A budget is used up.
    fn exceeded(exceeded: &Exceeded, now: u64) -> Self {
        let Exceeded { budget, resets, .. } = exceeded;
        let mut problem = Self::new(StatusCode::TOO_MANY_REQUESTS, "budget_exceeded", exceeded.text())
            .with("limit", *budget)
            .with("set_by", "the class of the tenant")
            .with("resets", *resets)
            .again(resets.saturating_sub(now).div_ceil(1000));
        problem.0.exhausted = Some(exceeded.clone());
        problem
    }

    /// A call is not admitted.
    pub fn refused(refused: &Refused, now: u64) -> Self {
        match refused {
            Refused::Exceeded(exceeded) => Self::exceeded(exceeded, now),
            Refused::Store(error) => Self::from(error.clone()),
        }
    }

    /// A call was not made at all.
    pub fn of_call(error: &CallError) -> Self {
        let detail = error.to_string();
        match error {
            CallError::Unknown(unknown) => {
                let problem = Self::new(StatusCode::NOT_FOUND, "unknown_tool", detail);
                match unknown.hint() {
                    Some(hint) => problem.hint(hint),
                    None => problem.hint("`GET /v1/tools` lists the tools"),
                }
            }
            CallError::NotAllowed(refusal) => {
                let problem = Self::new(StatusCode::FORBIDDEN, "denied", detail).with("outcome", "denied");
                if refusal.hint.is_empty() { problem } else { problem.hint(refusal.hint.clone()) }
            }
            CallError::Arguments { errors, .. } => {
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "arguments", detail).with("errors", errors)
            }
            CallError::Late(..) => Self::new(StatusCode::GATEWAY_TIMEOUT, "limited", detail).with("outcome", "limited"),
            CallError::Host(_) => Self::fault(),
            CallError::NoScript(_)
            | CallError::Script(_)
            | CallError::Cut(_)
            | CallError::Interrupted(_)
            | CallError::Failing(..) => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "rejected", detail).with("outcome", "rejected")
            }
        }
    }

    /// What went wrong, in words.
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// What a program gets of it.
    pub fn as_json(&self) -> Json {
        let mut json = json!({
            "type": format!("urn:harness:problem:{}", self.0.kind),
            "title": self.0.status.canonical_reason().unwrap_or("Error"),
            "status": self.0.status.as_u16(),
            "detail": self.0.detail,
        });
        if let Some(object) = json.as_object_mut() {
            object.extend(self.0.more.clone());
        }
        json
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Full => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "full", "the disk of the server is full").again(60)
            }
            StoreError::TooLarge { .. } => Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", error.to_string()),
            StoreError::Conflict { .. } => {
                Self::new(StatusCode::CONFLICT, "conflict", "it was changed by another request meanwhile").again(1)
            }
            StoreError::Closed => Self::new(StatusCode::SERVICE_UNAVAILABLE, "ending", "the server is ending").again(5),
            _ => Self::fault(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.as_json().to_string()));
        *response.status_mut() = self.0.status;
        if let Some(exhausted) = self.0.exhausted {
            response.extensions_mut().insert(exhausted);
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.0.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(again) = self.0.again {
            headers.insert(RETRY_AFTER, HeaderValue::from(again));
        }
        response
    }
}
