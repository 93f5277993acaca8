//! Runs: turns of a tenant's agent and asynchronous calls, which continue after the response.
//!
//! A run has a record and a log in the store: a line for each event, in order, and `end` as the last. Both are there before
//! the request is answered. Who reads the log sees the same, at whichever moment, as often as wanted.
//!
//! - `activity`: what was done in a turn
//! - `asks`: questions whether calls may be made
//! - `events`: the log of a run
//! - `job`: a run that is under way
//! - `resume`: runs that the next process continues
//! - `sessions`: what is recorded of turns
//! - `retention`: the removal of what is kept no longer

mod activity;
mod asks;
mod events;
mod job;
mod resume;
mod retention;
mod sessions;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{HeaderName, HeaderValue, LOCATION};
use axum::http::{HeaderMap, Response, StatusCode};
use harness_dispatch::confirm::Answer;
use harness_store::{Expected, Store, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio_util::sync::CancellationToken;

pub use self::asks::ANSWERED_LATER;
pub(crate) use self::asks::{APPROVALS, Approval, NobodyWaits};
use self::events::LogWriter;
use self::job::Job;
use self::resume::{Begun, Resumed};
pub(crate) use self::retention::sweep;
use crate::api::Caller;
use crate::key::hex;
use crate::problem::Problem;
use crate::server::Server;
use crate::tenant::{Opened, Tenant};
use crate::tenants::now;
use crate::workspaces::DEFAULT;

/// Where the store has records of runs: `TENANT/RUN`.
pub(crate) const BUCKET: &str = "runs";
/// Where it has the runs that have not ended yet, by the same names.
pub(crate) const OPEN: &str = "open_runs";
/// Where it has the key that each session was begun with: `TENANT/SESSION`.
pub(crate) const SESSIONS: &str = "sessions";
/// How long the end of runs is waited for when the server ends.
const FAREWELL: Duration = Duration::from_secs(2);

/// What a run does. `within` has rules that narrow its calls, and that were read once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Work {
    /// A call of a tool.
    Call { tool: String, arguments: Json, within: Option<Json> },
    /// A turn of the agent, in a session of its own or in one that is resumed.
    Turn { input: String, session: Option<String>, within: Option<Json> },
}

/// A run as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunRecord {
    /// Its identifier: the later of two has the greater one.
    pub(crate) id: String,
    /// The key that it was begun with.
    pub(crate) key: String,
    /// `call` or `turn`.
    pub(crate) kind: String,
    /// The tool of a call.
    pub(crate) tool: Option<String>,
    /// `running`, or how it ended: `completed`, `failed`, `denied`, `limited`, `stopped`, `interrupted` and so on.
    pub(crate) state: String,
    /// When it began, in milliseconds since 1970.
    pub(crate) created: u64,
    /// When it ended.
    pub(crate) ended: Option<u64>,
    /// The session that it is recorded in.
    pub(crate) session: Option<String>,
    /// The workspace that it works in.
    #[serde(default = "usual")]
    pub(crate) workspace: String,
    /// What came of it.
    pub(crate) result: Option<Json>,
}

/// The workspace of what was kept before there were others.
fn usual() -> String {
    DEFAULT.to_owned()
}

/// Whether a run of a tenant has not ended that is in a workspace.
pub(crate) async fn are_open_in(store: &dyn Store, tenant: &str, workspace: &str) -> Result<bool, StoreError> {
    let mut after: Option<String> = None;
    loop {
        let page = store.list(OPEN, &place(tenant, ""), after.as_deref(), 500).await?;
        let Some((last, _)) = page.last() else { return Ok(false) };
        after = Some(last.clone());
        for (key, _) in &page {
            let Some(found) = store.get(BUCKET, key).await? else { continue };
            let record = serde_json::from_slice::<RunRecord>(&found.value);
            if record.is_ok_and(|record| record.state == "running" && record.workspace == workspace) {
                return Ok(true);
            }
        }
    }
}

/// The runs that are under way.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    live: Mutex<HashMap<String, Live>>,
    waiting: Mutex<HashMap<String, oneshot::Sender<Answer>>>,
    /// Those that an earlier process began, until they have ended: their questions can be answered before they are asked
    /// again.
    resuming: Mutex<HashSet<String>>,
    /// Those of them that nobody continues yet.
    found: Mutex<Vec<Resumed>>,
}

#[derive(Debug)]
struct Live {
    tenant: String,
    stop: CancellationToken,
    ended: CancellationToken,
}

impl Live {
    fn tokens(&self) -> (CancellationToken, CancellationToken) {
        (self.stop.clone(), self.ended.clone())
    }
}

/// Stops runs, and waits for them, for a moment each.
async fn stop_and_wait(runs: Vec<(CancellationToken, CancellationToken)>) {
    runs.iter().for_each(|(stop, _)| stop.cancel());
    for (_, ended) in runs {
        let _ = tokio::time::timeout(FAREWELL, ended.cancelled()).await;
    }
}

/// The key of a run or an approval in the store.
fn place(tenant: &str, id: &str) -> String {
    format!("{tenant}/{id}")
}

/// The name of the log of a run.
pub(crate) fn log(tenant: &str, id: &str) -> String {
    log_of(&place(tenant, id))
}

/// The same by the key of the run in the store.
pub(crate) fn log_of(place: &str) -> String {
    format!("run/{place}")
}

/// An identifier whose order is that of time, and that nobody guesses.
fn fresh(kind: &str) -> String {
    format!("{kind}_{:011x}{}", now(), hex::<10>())
}

/// Whether a request does not wait for what it asks for: `Prefer: respond-async` (RFC 7240).
pub(crate) fn wants_async(headers: &HeaderMap) -> bool {
    let prefer = HeaderName::from_static("prefer");
    let values = headers.get_all(prefer).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|one| one.trim().eq_ignore_ascii_case("respond-async"))
}

impl Runs {
    /// Begins a run, and answers that it was begun.
    ///
    /// # Errors
    ///
    /// There is no room for it, or the store does not take it.
    pub(crate) async fn begin(
        &self,
        server: &Arc<Server>,
        caller: &Caller,
        opened: Arc<Opened>,
        work: Work,
    ) -> Result<Response<Body>, Problem> {
        let (record, _) = self.start(server, caller, opened, work).await?;
        let location = format!("/v1/runs/{}", record.id);
        let mut response = crate::api::answer(StatusCode::ACCEPTED, &shown(&record));
        if let Ok(location) = HeaderValue::from_str(&location) {
            response.headers_mut().insert(LOCATION, location);
        }
        Ok(response)
    }

    /// Begins a run, and gives what ends when it has ended.
    pub(crate) async fn start(
        &self,
        server: &Arc<Server>,
        caller: &Caller,
        opened: Arc<Opened>,
        work: Work,
    ) -> Result<(RunRecord, CancellationToken), Problem> {
        let tenant = caller.tenant()?;
        let room = self.room(tenant)?;
        let (kind, tool) = match &work {
            Work::Call { tool, .. } => ("call", Some(tool.clone())),
            Work::Turn { .. } => ("turn", None),
        };
        let record = RunRecord {
            id: fresh("run"),
            key: caller.key.record.id.clone(),
            kind: kind.to_owned(),
            tool,
            state: "running".to_owned(),
            created: now(),
            ended: None,
            session: None,
            workspace: opened.workspace().to_owned(),
            result: None,
        };
        let id = tenant.id();
        let store = &server.tenants.store;
        let here = place(&id, &record.id);
        // First that it is open: what is begun is found after the death of the process.
        let artifacts = harness_session::digest_of_artifacts(&opened.project);
        let begun = Begun { work: work.clone(), artifacts: artifacts.clone(), session: None, attempts: 1 };
        store.put(OPEN, &here, Expected::Absent, bytes(&begun)?).await?;
        let version = store.put(BUCKET, &here, Expected::Absent, bytes(&record)?).await?;
        let (stop, ended) = (CancellationToken::new(), CancellationToken::new());
        self.live().insert(record.id.clone(), Live { tenant: id.clone(), stop: stop.clone(), ended: ended.clone() });
        let writer = LogWriter { store: store.clone(), log: log(&id, &record.id), length: 0 };
        let mut job = Job::new(server.clone(), caller.clone(), opened, id, record.clone(), version);
        job.artifacts = artifacts;
        server.background.spawn(job.run(work, writer, stop, ended.clone(), room));
        Ok((record, ended))
    }

    /// Room for one more run of a tenant.
    fn room(&self, tenant: &Tenant) -> Result<OwnedSemaphorePermit, Problem> {
        tenant.runs.clone().try_acquire_owned().map_err(|_| {
            let (runs, class) = (tenant.class.runs, &tenant.class.name);
            let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "busy", format!("{runs} runs are under way"));
            let set_by = format!("the class `{class}` of the tenant");
            problem.with("limit", "concurrent_runs").with("set_by", set_by).again(1)
        })
    }

    fn live(&self) -> std::sync::MutexGuard<'_, HashMap<String, Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, HashMap<String, oneshot::Sender<Answer>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn resuming(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.resuming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many runs are under way.
    pub(crate) fn count(&self) -> usize {
        self.live().len()
    }

    /// Stops a run, and waits until it has ended. False: it is not under way.
    pub(crate) async fn stop(&self, id: &str) -> bool {
        let ended = self.live().get(id).map(|live| {
            live.stop.cancel();
            live.ended.clone()
        });
        match ended {
            Some(ended) => {
                ended.cancelled().await;
                true
            }
            None => false,
        }
    }

    /// Stops the runs of a tenant.
    pub(crate) async fn stop_all(&self, tenant: &str) {
        let of_tenant: Vec<_> = self.live().values().filter(|live| live.tenant == tenant).map(Live::tokens).collect();
        stop_and_wait(of_tenant).await;
    }

    /// Stops all runs, and waits for them, for a moment each.
    pub(crate) async fn stop_every(&self) {
        let all: Vec<_> = self.live().values().map(Live::tokens).collect();
        stop_and_wait(all).await;
    }

    /// The record of a run of a tenant.
    pub(crate) async fn record(&self, store: &dyn Store, tenant: &str, id: &str) -> Result<RunRecord, Problem> {
        let found =
            store.get(BUCKET, &place(tenant, id)).await?.ok_or_else(|| Problem::not_found("there is no such run"))?;
        serde_json::from_slice(&found.value).map_err(|_| Problem::fault())
    }

    /// Records of a tenant's runs after one of them, the oldest first.
    pub(crate) async fn list(
        &self,
        store: &dyn Store,
        tenant: &str,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<RunRecord>, Problem> {
        let after = after.map(|after| place(tenant, after));
        let page = store.list(BUCKET, &place(tenant, ""), after.as_deref(), most).await?;
        page.iter().map(|(_, found)| serde_json::from_slice(&found.value).map_err(|_| Problem::fault())).collect()
    }
}

/// A run as clients get it.
pub(crate) fn shown(record: &RunRecord) -> Json {
    json!({
        "id": record.id,
        "kind": record.kind,
        "tool": record.tool,
        "state": record.state,
        "created": record.created,
        "ended": record.ended,
        "session": record.session,
        "workspace": record.workspace,
        "result": record.result,
    })
}

fn bytes(value: &impl Serialize) -> Result<Vec<u8>, Problem> {
    serde_json::to_vec(value).map_err(|_| Problem::fault())
}

/// The last event of a run.
fn end_of(result: &Json) -> Json {
    let mut end = result.clone();
    if let Some(end) = end.as_object_mut() {
        end.insert("type".to_owned(), "end".into());
    }
    end
}
