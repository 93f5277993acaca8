//! Whether the server lives and is ready, and what it has counted.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, HeaderValue};
use axum::http::{Response, StatusCode};
use serde_json::json;

use super::answer;
use crate::problem::Problem;
use crate::server::Server;

/// The process answers.
pub(super) async fn lives() -> Response<Body> {
    answer(StatusCode::OK, &json!({"status": "ok"}))
}

/// It takes work: the store can be written, and it is not ending.
pub(super) async fn is_ready(State(server): State<Arc<Server>>) -> Result<Response<Body>, Problem> {
    server.accepts_work().await?;
    Ok(answer(StatusCode::OK, &json!({"status": "ready"})))
}

/// OpenMetrics, for the operator.
pub(super) async fn metrics(State(server): State<Arc<Server>>) -> Result<Response<Body>, Problem> {
    let (cost, egress) = (server.tenants.prices.spent(), server.tenants.sent.bytes());
    let text = server.metrics.text(server.tenants.count(), server.runs.count(), cost, egress);
    let text = text.map_err(|_| Problem::fault())?;
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}
