//! The webhooks of a tenant.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::asked::{Path, Query};
use super::runs::Page;
use super::{Caller, MAX_BODY, answer, parse, read};
use crate::problem::Problem;
use crate::server::Server;
use crate::webhooks::event::Kind;
use crate::webhooks::{Change, Webhook};

type Answer = Result<Response<Body>, Problem>;

/// Deliveries of a page, at most.
const PAGE: usize = 100;

/// The body of a new webhook.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    url: String,
    events: Vec<Kind>,
}

/// A webhook with its secret, which is shown once.
fn with_secret(webhook: &Webhook, secret: &str) -> Json {
    let mut shown = webhook.shown();
    if let Some(members) = shown.as_object_mut() {
        members.insert("secret".to_owned(), secret.into());
    }
    shown
}

pub(super) async fn list(State(server): State<Arc<Server>>, Extension(caller): Extension<Caller>) -> Answer {
    let all = server.webhooks.list(&*server.tenants.store, &caller.tenant()?.id()).await?;
    let all: Vec<Json> = all.iter().map(Webhook::shown).collect();
    Ok(answer(StatusCode::OK, &json!({"webhooks": all})))
}

pub(super) async fn create(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Answer {
    let New { url, events } = parse(&read(body, MAX_BODY).await?)?;
    server.accepts_work().await?;
    let by = &caller.key.record.id;
    let (webhook, secret) = server.webhooks.create(&server, caller.tenant()?, by, &url, events).await?;
    Ok(answer(StatusCode::CREATED, &with_secret(&webhook, &secret)))
}

pub(super) async fn show(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Answer {
    let (webhook, _) = server.webhooks.find(&*server.tenants.store, &caller.tenant()?.id(), &id).await?;
    Ok(answer(StatusCode::OK, &webhook.shown()))
}

pub(super) async fn change(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    body: Body,
) -> Answer {
    let change: Change = parse(&read(body, MAX_BODY).await?)?;
    let webhook = server.webhooks.change(&server, caller.tenant()?, &id, change).await?;
    Ok(answer(StatusCode::OK, &webhook.shown()))
}

pub(super) async fn remove(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Answer {
    server.webhooks.remove(&*server.tenants.store, &caller.tenant()?.id(), &id).await?;
    Ok(answer(StatusCode::OK, &json!({"id": id})))
}

pub(super) async fn rotate(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    body: Body,
) -> Answer {
    nothing(body).await?;
    let (webhook, secret) = server.webhooks.rotate(&server, &caller.tenant()?.id(), &id).await?;
    Ok(answer(StatusCode::OK, &with_secret(&webhook, &secret)))
}

pub(super) async fn test(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    body: Body,
) -> Answer {
    nothing(body).await?;
    server.accepts_work().await?;
    let delivery = server.webhooks.test(&server, &caller.tenant()?.id(), &id).await?;
    Ok(answer(StatusCode::ACCEPTED, &delivery.shown()))
}

pub(super) async fn deliveries(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(Page { after, limit }): Query<Page>,
) -> Answer {
    let most = limit.unwrap_or(PAGE).clamp(1, PAGE);
    let (store, tenant) = (&*server.tenants.store, caller.tenant()?.id());
    let page = server.webhooks.deliveries(store, (&tenant, &id), after.as_deref(), most).await?;
    let next = page.last().filter(|_| page.len() == most).map(|one| one.id.clone());
    let page: Vec<Json> = page.iter().map(crate::webhooks::Delivery::shown).collect();
    Ok(answer(StatusCode::OK, &json!({"deliveries": page, "next": next})))
}

/// The body of a request that has nothing to say.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

async fn nothing(body: Body) -> Result<(), Problem> {
    let bytes = read(body, MAX_BODY).await?;
    if !bytes.is_empty() {
        let _: Nothing = parse(&bytes)?;
    }
    Ok(())
}
