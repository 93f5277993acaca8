//! `POST /v1/tools/{name}/calls`: one call of a tool.

use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Response, StatusCode};
use harness_agent::attach;
use harness_artifact::policy::layer;
use harness_dispatch::{Call, CallReport, ClientRequest, Run, as_json};
use harness_policy::layer::Layer;
use harness_sandbox::outcome::Outcome;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::asked::Path;
use super::{Caller, MAX_BODY, answer, once, parse, read, workspaces};
use crate::budget::Resource;
use crate::key::hex;
use crate::problem::Problem;
use crate::runs::{NobodyWaits, Work, wants_async};
use crate::server::Server;
use crate::tenant::{Opened, Tenant};
use crate::tenants::now;

/// The body of a call.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    /// The arguments by name.
    #[serde(default)]
    pub(crate) arguments: Map<String, Json>,
    /// Rules that narrow this call, as in `capabilities:`.
    pub(crate) within: Option<Json>,
    /// The workspace that it is for.
    pub(crate) workspace: Option<String>,
}

pub(super) async fn call(
    State(server): State<Arc<Server>>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response<Body>, Problem> {
    let bytes = read(body, MAX_BODY).await?;
    let route = format!("call/{name}");
    once::once(&server, &caller, &route, &headers, &bytes, || make(&server, &caller, name, &headers, &bytes)).await
}

async fn make(
    server: &Arc<Server>,
    caller: &Caller,
    name: String,
    headers: &HeaderMap,
    bytes: &Bytes,
) -> Result<Response<Body>, Problem> {
    let Asked { arguments, within, workspace } = if bytes.is_empty() { parse(b"{}") } else { parse(bytes) }?;
    let layer = within.as_ref().map(narrowed).transpose()?;
    let is_async = wants_async(headers);
    if is_async { server.accepts_work().await } else { server.accepts_requests().await }?;
    let tenant = caller.tenant()?;
    tenant.ledger.admit(now()).await.map_err(|refused| Problem::refused(&refused, now()))?;
    let opened = workspaces::opened(server, caller, workspace.as_deref()).await?;
    if is_async {
        let work = Work::Call { tool: name, arguments: Json::Object(arguments), within };
        return server.runs.begin(server, caller, opened, work).await;
    }
    let id = format!("call_{}", hex::<12>());
    let run = run(caller, &opened, layer, &id)?;
    run.set_confirmer(Arc::new(NobodyWaits));
    let call = Call { id: Some(id), name, arguments: Json::Object(arguments) };
    let abandoned = Abandoned::unless(tenant);
    let made = opened.project.make(call, &run).await;
    abandoned.not();
    run.end_servers().await;
    let report = made.map_err(|error| Problem::of_call(&error))?;
    spend(server, caller, &report)?;
    respond(&opened, &report)
}

/// A call that is dropped before its end, because its client is gone or its run is stopped. It counts as a call; what it used is not known.
pub(crate) struct Abandoned(Option<Arc<Tenant>>);

impl Abandoned {
    /// Until it is said that it was not.
    pub(crate) fn unless(tenant: &Arc<Tenant>) -> Self {
        Self(Some(tenant.clone()))
    }

    pub(crate) fn not(mut self) {
        self.0 = None;
    }
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        if let Some(tenant) = &self.0 {
            tenant.ledger.spend(now(), Resource::Calls, 1);
        }
    }
}

/// A run for the calls of a key: what narrows them, and what the record says of who asked.
pub(crate) fn run(caller: &Caller, opened: &Opened, within: Option<Layer>, id: &str) -> Result<Arc<Run>, Problem> {
    let tenant = caller.tenant()?;
    let run = Run::narrowed(tenant.layers(&caller.key).into_iter().chain(within).collect());
    run.set_client_request(client(caller, opened, id));
    attach(&opened.project, &run, opened.models.clone());
    Ok(run)
}

/// What the audit log calls a key.
pub(crate) fn name_of(caller: &Caller) -> String {
    let record = &caller.key.record;
    format!("{} ({})", record.label, record.id)
}

/// Who asked, for the audit log.
pub(crate) fn client(caller: &Caller, opened: &Opened, id: &str) -> ClientRequest {
    let workspace = opened.other_workspace();
    ClientRequest { client: name_of(caller), protocol: "http/v1".to_owned(), id: id.to_owned(), workspace }
}

/// The rules of a request that narrow it: as YAML text, or the same as JSON.
pub(crate) fn narrowed(rules: &Json) -> Result<Layer, Problem> {
    let text = match rules {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    };
    let (layer, wrong) = layer::parse("within", &text);
    layer.ok_or_else(|| {
        let wrong: Vec<String> = wrong.iter().map(|one| one.message.clone()).collect();
        Problem::invalid(format!("`within`: {}", wrong.join("; ")))
    })
}

/// Counts what a call used.
pub(crate) fn spend(server: &Server, caller: &Caller, report: &CallReport) -> Result<(), Problem> {
    let (tenant, now) = (caller.tenant()?, now());
    // One for which there was no room was not made.
    let calls = u64::from(!matches!(report.outcome, Outcome::Busy(_)));
    tenant.ledger.spend(now, Resource::Calls, calls);
    tenant.ledger.spend(now, Resource::Fuel, report.total().fuel);
    server.metrics.called(report.outcome.name(), report.usage.wall);
    Ok(())
}

/// The answer to a call that was made. How it ended is its `outcome`; the status says only that it was made, or that there
/// was no room for it.
fn respond(opened: &Opened, report: &CallReport) -> Result<Response<Body>, Problem> {
    let loaded = opened.project.loaded();
    let tool = loaded.registry().tool(&report.tool).ok();
    let mut json = as_json::call(report, tool.and_then(|tool| tool.timeout_ms.as_ref()));
    if let Some(object) = json.as_object_mut() {
        object.insert("call".to_owned(), json!(report.id));
    }
    match &report.outcome {
        Outcome::Busy(busy) => {
            let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "busy", busy.to_string());
            Err(problem.with("outcome", "busy").with("call", report.id.clone()).again(1))
        }
        // Its text is of the machine, and for who runs it.
        Outcome::Fault(_) => Err(Problem::fault().with("call", report.id.clone())),
        _ => Ok(answer(StatusCode::OK, &json)),
    }
}
