//! The workspaces of a tenant, and which one a request means.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::asked::Path;
use super::{Caller, MAX_BODY, admin, answer, noted, parse, read};
use crate::problem::Problem;
use crate::role::Action;
use crate::server::Server;
use crate::tenant::{Opened, Tenant};
use crate::workspaces::{named, one_of, without_name};

type Answer = Result<Response<Body>, Problem>;

/// The body of a new workspace.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    name: String,
}

/// Takes the name of a workspace from the head of a request that is for one. Others have no parameter of this name.
pub(super) fn taken(request: &mut Request, action: Action) -> Result<Option<String>, Problem> {
    if !matches!(action, Action::Call | Action::Run | Action::ReadFiles | Action::WriteFiles) {
        return Ok(None);
    }
    let workspace = named(request.headers(), request.uri())?;
    if let Some(uri) = without_name(request.uri()) {
        *request.uri_mut() = uri;
    }
    Ok(workspace)
}

/// What a key that is narrowed to some workspaces gets where it asks for something of the whole tenant.
pub(super) fn of_whole_tenant() -> Problem {
    let why = "a key that is narrowed to workspaces may not ask for what is of the whole tenant";
    Problem::new(StatusCode::FORBIDDEN, "forbidden", why).with("set_by", "the workspaces of the key")
}

impl Caller {
    /// The workspace that the request is for; `in_body` is what its body names.
    ///
    /// # Errors
    ///
    /// It names several, or one that the key does not see.
    pub(crate) fn workspace(&self, in_body: Option<&str>) -> Result<String, Problem> {
        let named = one_of(self.workspace.as_deref().into_iter().chain(in_body))?;
        self.key.record.workspace(named.as_deref())
    }

    /// Whether the request names a workspace.
    pub(crate) fn names_workspace(&self, in_body: Option<&str>) -> bool {
        self.workspace.is_some() || in_body.is_some()
    }
}

/// The project of the caller's tenant, open in the workspace that the request is for.
pub(crate) async fn opened(
    server: &Arc<Server>,
    caller: &Caller,
    in_body: Option<&str>,
) -> Result<Arc<Opened>, Problem> {
    let (workspace, tenant) = (caller.workspace(in_body)?, caller.tenant()?);
    if let Some(opened) = tenant.open_in(&workspace) {
        return Ok(opened);
    }
    // The files of the project may have to be unpacked.
    let (of, tenant) = (server.clone(), tenant.clone());
    let opening = server.aside(async move { of.tenants.opened_in(&tenant, &workspace).await });
    opening.await.unwrap_or_else(|| Err(Problem::fault()))
}

/// The workspaces of a tenant that some may see, with what they hold.
pub(super) async fn shown(tenant: &Tenant, are_seen: impl Fn(&str) -> bool) -> Result<Vec<Json>, Problem> {
    let mut shown = Vec::new();
    for name in tenant.workspaces() {
        if !are_seen(&name) {
            continue;
        }
        let (used, most) = tenant.space_used(&name).await.map_err(|_| Problem::fault())?;
        shown.push(json!({
            "name": name,
            "bytes": {"used": used.bytes, "limit": most.bytes},
            "files": {"used": used.files, "limit": most.files},
        }));
    }
    Ok(shown)
}

pub(super) async fn list(Extension(caller): Extension<Caller>) -> Answer {
    let tenant = caller.tenant()?;
    let all = shown(tenant, |name| caller.key.record.has_workspace(name)).await?;
    Ok(answer(StatusCode::OK, &json!({"workspaces": all, "limit": tenant.class.workspaces})))
}

pub(super) async fn create(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Answer {
    make(&server, caller.tenant()?, body).await
}

pub(super) async fn remove(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Answer {
    unmake(&server, caller.tenant()?, &name).await
}

/// For the operator.
pub(super) async fn of_tenant(State(server): State<Arc<Server>>, Path(id): Path<String>) -> Answer {
    let tenant = admin::tenant(&server, &id)?;
    let all = shown(&tenant, |_| true).await?;
    Ok(answer(StatusCode::OK, &json!({"workspaces": all, "limit": tenant.class.workspaces})))
}

/// For the operator.
pub(super) async fn create_of(State(server): State<Arc<Server>>, Path(id): Path<String>, body: Body) -> Answer {
    make(&server, &*admin::tenant(&server, &id)?, body).await
}

/// For the operator.
pub(super) async fn remove_of(State(server): State<Arc<Server>>, Path((id, name)): Path<(String, String)>) -> Answer {
    unmake(&server, &*admin::tenant(&server, &id)?, &name).await
}

async fn make(server: &Server, tenant: &Tenant, body: Body) -> Answer {
    let New { name } = parse(&read(body, MAX_BODY).await?)?;
    server.accepts_work().await?;
    server.tenants.create_workspace(tenant, &name).await?;
    Ok(noted(answer(StatusCode::CREATED, &json!({"name": name})), json!({"workspace": name})))
}

async fn unmake(server: &Server, tenant: &Tenant, name: &str) -> Answer {
    server.tenants.remove_workspace(tenant, name).await?;
    Ok(noted(answer(StatusCode::OK, &json!({"name": name})), json!({"workspace": name})))
}
