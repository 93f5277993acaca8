//! The interface of the operator: tenants, and what each is given.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::asked::{Path, Query};
use super::own::{delete_key, listed, put_key, put_project, put_secret};
use super::reads::{Wanted, broken, log_of};
use super::{MAX_BODY, answer, noted, parse, read};
use crate::problem::Problem;
use crate::record::State as TenantState;
use crate::server::Server;
use crate::tenant::Tenant;

type Answer = Result<Response<Body>, Problem>;

/// The body of a new tenant.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    id: String,
    class: Option<String>,
    policy: Option<String>,
}

/// The body of a change. What is not there stays.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    state: Option<TenantState>,
    /// Null takes the rules away.
    #[serde(default, deserialize_with = "is_there")]
    policy: Option<Option<String>>,
}

/// A value that is there, `null` too.
fn is_there<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(value).map(Some)
}

/// The body of a backup.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Backup {
    name: String,
}

pub(super) fn tenant(server: &Server, id: &str) -> Result<Arc<Tenant>, Problem> {
    server.tenants.tenant(id).ok_or_else(|| Problem::not_found("there is no such tenant"))
}

fn shown(tenant: &Tenant) -> Json {
    let record = tenant.record();
    json!({
        "id": record.id,
        "class": record.class,
        "state": record.state,
        "policy": record.policy,
        "project": record.project,
        "created": record.created,
    })
}

pub(super) async fn list(State(server): State<Arc<Server>>) -> Answer {
    let all: Vec<Json> = server.tenants.all().iter().map(|tenant| shown(tenant)).collect();
    Ok(answer(StatusCode::OK, &json!({"tenants": all})))
}

pub(super) async fn create(State(server): State<Arc<Server>>, body: Body) -> Answer {
    let New { id, class, policy } = parse(&read(body, MAX_BODY).await?)?;
    let tenant = server.tenants.create(&id, class.as_deref(), policy).await?;
    let record = tenant.record();
    let details = json!({"tenant": record.id, "class": record.class, "policy": record.policy});
    Ok(noted(answer(StatusCode::CREATED, &shown(&tenant)), details))
}

pub(super) async fn show(State(server): State<Arc<Server>>, Path(id): Path<String>) -> Answer {
    let tenant = tenant(&server, &id)?;
    tenant.ledger.read(crate::tenants::now()).await?;
    let mut json = shown(&tenant);
    if let Some(object) = json.as_object_mut() {
        object.insert("budgets".to_owned(), json!(tenant.ledger.shown(crate::tenants::now())));
    }
    Ok(answer(StatusCode::OK, &json))
}

pub(super) async fn change(State(server): State<Arc<Server>>, Path(id): Path<String>, body: Body) -> Answer {
    let tenant = tenant(&server, &id)?;
    let Change { state, policy } = parse(&read(body, MAX_BODY).await?)?;
    let mut details = json!({});
    if let Some(details) = details.as_object_mut() {
        details.extend(state.map(|state| ("state".to_owned(), json!(state))));
        details.extend(policy.clone().map(|policy| ("policy".to_owned(), json!(policy))));
    }
    let change = |record: &mut crate::record::TenantRecord| {
        record.state = state.unwrap_or(record.state);
        if let Some(policy) = policy {
            record.policy = policy;
        }
    };
    server.tenants.change(&tenant, change).await?;
    if state == Some(TenantState::Suspended) {
        server.runs.stop_all(&id).await;
    }
    Ok(noted(answer(StatusCode::OK, &shown(&tenant)), details))
}

pub(super) async fn remove(State(server): State<Arc<Server>>, Path(id): Path<String>) -> Answer {
    let tenant = tenant(&server, &id)?;
    server.runs.stop_all(&id).await;
    server.tenants.remove(&tenant).await?;
    server.webhooks.forget_tenant(&id);
    Ok(answer(StatusCode::OK, &json!({"id": id})))
}

pub(super) async fn upload(State(server): State<Arc<Server>>, Path(id): Path<String>, body: Body) -> Answer {
    put_project(&server, &tenant(&server, &id)?, body).await
}

pub(super) async fn set_secret(
    State(server): State<Arc<Server>>,
    Path((id, name)): Path<(String, String)>,
    body: Body,
) -> Answer {
    put_secret(&server.tenants, &*tenant(&server, &id)?, &name, body).await
}

pub(super) async fn keys(State(server): State<Arc<Server>>, Path(id): Path<String>) -> Answer {
    tenant(&server, &id)?;
    Ok(answer(StatusCode::OK, &listed(&server.tenants, Some(&id))))
}

pub(super) async fn create_key(State(server): State<Arc<Server>>, Path(id): Path<String>, body: Body) -> Answer {
    tenant(&server, &id)?;
    put_key(&server.tenants, Some(id), None, body).await
}

pub(super) async fn remove_key(State(server): State<Arc<Server>>, Path((id, key)): Path<(String, String)>) -> Answer {
    tenant(&server, &id)?;
    delete_key(&server.tenants, Some(&id), &key).await
}

pub(super) async fn own_keys(State(server): State<Arc<Server>>) -> Answer {
    Ok(answer(StatusCode::OK, &listed(&server.tenants, None)))
}

pub(super) async fn create_own_key(State(server): State<Arc<Server>>, body: Body) -> Answer {
    put_key(&server.tenants, None, None, body).await
}

pub(super) async fn remove_own_key(State(server): State<Arc<Server>>, Path(key): Path<String>) -> Answer {
    if server.tenants.keys_of(None).len() <= 1 {
        let why = "it is the last key of the operator: nobody could administer the server any more";
        return Err(Problem::new(StatusCode::CONFLICT, "last_key", why).hint("make another one first"));
    }
    delete_key(&server.tenants, None, &key).await
}

/// Writes a whole copy of the store beside it, while requests are served.
pub(super) async fn backup(State(server): State<Arc<Server>>, body: Body) -> Answer {
    let Backup { name } = parse(&read(body, MAX_BODY).await?)?;
    let written = crate::backup::write(&server, &name).await?;
    Ok(noted(answer(StatusCode::CREATED, &written), json!({"backup": name})))
}

/// The audit log of the server, verified: what its operator changed, and keys that were refused.
pub(super) async fn audit(State(server): State<Arc<Server>>, Query(wanted): Query<Wanted>) -> Answer {
    let folder = server.data().audit();
    let verified = {
        let folder = folder.clone();
        tokio::task::spawn_blocking(move || harness_audit::verify(&folder)).await.map_err(|_| Problem::fault())?
    };
    verified.map_err(|why| broken(&why))?;
    log_of(folder, wanted).await
}
