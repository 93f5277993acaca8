//! Project, secrets and keys of one tenant.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::asked::Path;
use super::{Caller, MAX_BODY, answer, noted, parse, read};
use crate::archive::MAX_ARCHIVE;
use crate::problem::Problem;
use crate::role::Role;
use crate::server::Server;
use crate::tenant::{Key, Tenant};
use crate::tenants::{Tenants, Wanted};

type Answer = Result<Response<Body>, Problem>;

/// The body of a new secret.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Secret {
    value: String,
}

/// The body of a new key.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewKey {
    pub(super) role: Role,
    pub(super) label: String,
    pub(super) policy: Option<String>,
    pub(super) expires: Option<u64>,
    pub(super) workspaces: Option<Vec<String>>,
    pub(super) certificate: Option<String>,
}

pub(super) async fn project(Extension(caller): Extension<Caller>) -> Answer {
    let record = caller.tenant()?.record();
    Ok(answer(StatusCode::OK, &json!({"tenant": record.id, "digest": record.project})))
}

pub(super) async fn upload(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Answer {
    put_project(&server, caller.tenant()?, body).await
}

/// Takes an archive in force as the project of a tenant.
pub(super) async fn put_project(server: &Server, tenant: &Arc<Tenant>, body: Body) -> Answer {
    let bytes = read(body, MAX_ARCHIVE).await?;
    server.accepts_requests().await?;
    let digest = server.tenants.upload(tenant, &bytes).await?;
    let details = json!({"project": digest});
    Ok(noted(answer(StatusCode::OK, &json!({"tenant": tenant.id(), "digest": digest})), details))
}

pub(super) async fn secrets(State(server): State<Arc<Server>>, Extension(caller): Extension<Caller>) -> Answer {
    let names = server.tenants.secret_names(caller.tenant()?).await?;
    Ok(answer(StatusCode::OK, &json!({"secrets": names})))
}

pub(super) async fn set_secret(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    body: Body,
) -> Answer {
    put_secret(&server.tenants, caller.tenant()?, &name, body).await
}

/// Sets a secret to what a body says.
pub(super) async fn put_secret(tenants: &Tenants, tenant: &Tenant, name: &str, body: Body) -> Answer {
    let Secret { value } = parse(&read(body, MAX_BODY).await?)?;
    tenants.set_secret(tenant, name, &value).await?;
    Ok(noted(answer(StatusCode::OK, &json!({"secret": name})), json!({"secret": name})))
}

pub(super) async fn remove_secret(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Answer {
    server.tenants.remove_secret(caller.tenant()?, &name).await?;
    Ok(answer(StatusCode::OK, &json!({"secret": name})))
}

pub(super) async fn keys(State(server): State<Arc<Server>>, Extension(caller): Extension<Caller>) -> Answer {
    Ok(answer(StatusCode::OK, &listed(&server.tenants, Some(&caller.tenant()?.id()))))
}

/// The keys of a tenant, or of the operator.
pub(super) fn listed(tenants: &Tenants, tenant: Option<&str>) -> Json {
    let keys: Vec<Json> = tenants.keys_of(tenant).iter().map(|key| shown(key)).collect();
    json!({"keys": keys})
}

fn shown(key: &Key) -> Json {
    let record = &key.record;
    let used = key.used.load(std::sync::atomic::Ordering::Relaxed);
    json!({
        "id": record.id,
        "role": record.role.name(),
        "label": record.label,
        "policy": record.policy,
        "created": record.created,
        "expires": record.expires,
        "workspaces": record.workspaces,
        "certificate": record.certificate,
        "used": (used > 0).then_some(used),
    })
}

/// That a key may make others.
///
/// # Errors
///
/// Its calls are narrowed, and those of a new key would not be.
pub(crate) fn may_make_keys(caller: &Caller) -> Result<(), Problem> {
    if caller.key.record.policy.is_none() {
        return Ok(());
    }
    let why = "a key whose calls are narrowed makes no keys: they would not be";
    Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", why).with("set_by", "the rules of the key"))
}

pub(super) async fn create_key(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Answer {
    may_make_keys(&caller)?;
    put_key(&server.tenants, Some(caller.tenant()?.id()), caller.key.record.certificate.clone(), body).await
}

/// Makes a key as a body wants it. `maker` is the certificate that the key which makes it is bound to: a new one is bound to that
/// where the body names no other, so that a bound key makes none that counts everywhere.
pub(super) async fn put_key(tenants: &Tenants, tenant: Option<String>, maker: Option<String>, body: Body) -> Answer {
    let NewKey { role, label, policy, expires, workspaces, certificate } = parse(&read(body, MAX_BODY).await?)?;
    let certificate = certificate.or(maker);
    let mut details = json!({"role": role, "label": label, "policy": policy, "expires": expires});
    if let (Some(details), Some(workspaces)) = (details.as_object_mut(), &workspaces) {
        details.insert("workspaces".to_owned(), json!(workspaces));
    }
    if let (Some(details), Some(certificate)) = (details.as_object_mut(), &certificate) {
        details.insert("certificate".to_owned(), json!(certificate));
    }
    let wanted = Wanted { tenant, role, label, policy, expires, workspaces, certificate };
    let new = tenants.create_key(wanted).await?;
    if let Some(details) = details.as_object_mut() {
        details.insert("key".to_owned(), json!(new.id));
    }
    Ok(noted(answer(StatusCode::CREATED, &json!({"id": new.id, "key": new.text})), details))
}

pub(super) async fn remove_key(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Answer {
    delete_key(&server.tenants, Some(&caller.tenant()?.id()), &id).await
}

/// Removes a key of a tenant, or of the operator.
pub(crate) async fn delete_key(tenants: &Tenants, tenant: Option<&str>, id: &str) -> Answer {
    if !tenants.keys_of(tenant).iter().any(|key| key.record.id == id) {
        return Err(Problem::not_found("there is no such key"));
    }
    tenants.remove_key(id).await?;
    Ok(answer(StatusCode::OK, &json!({"id": id})))
}
