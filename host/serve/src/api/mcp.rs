//! `POST /mcp`: one message of the Model Context Protocol.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::Response;
use axum::http::header::AUTHORIZATION;
use harness_mcp::http::Names;

use super::{Caller, workspaces};
use crate::problem::Problem;
use crate::server::Server;

pub(super) async fn message(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Extension(names): Extension<Names>,
    mut request: Request,
) -> Result<Response<Body>, Problem> {
    // The key is known by now, and nothing behind this needs it.
    request.headers_mut().remove(AUTHORIZATION);
    let tenant = caller.tenant()?;
    let opened = workspaces::opened(&server, &caller, None).await?;
    let endpoint = tenant.mcp.of(&server, &caller, &opened, &names).await?;
    Ok(endpoint.answer(request).await.map(Body::new))
}
