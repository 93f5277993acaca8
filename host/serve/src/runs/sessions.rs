//! Sessions of a tenant: which there are, who may see them, and replays of them.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use harness_session::read::Recording;
use harness_session::replay::replay_to;
use harness_store::Store;
use serde_json::Value as Json;
use tokio::sync::mpsc::unbounded_channel;

use super::job::Counted;
use super::{Runs, SESSIONS, place};
use crate::api::Caller;
use crate::budget::Resource;
use crate::problem::Problem;
use crate::server::Server;
use crate::tenants::now;
use crate::workspaces::DEFAULT;

/// Who has begun a session, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BegunBy {
    /// The key.
    pub(crate) by: String,
    /// The workspace.
    pub(crate) workspace: String,
}

impl BegunBy {
    /// As the store has it: the key, and the workspace where it is not `default`.
    pub(super) fn write(&self) -> Vec<u8> {
        match self.workspace.as_str() {
            DEFAULT => self.by.clone(),
            workspace => format!("{} {workspace}", self.by),
        }
        .into_bytes()
    }

    fn read(value: &[u8]) -> Self {
        let text = String::from_utf8_lossy(value);
        let (by, workspace) = text.split_once(' ').unwrap_or((&text, DEFAULT));
        Self { by: by.to_owned(), workspace: workspace.to_owned() }
    }
}

impl Runs {
    /// That a key may see and resume a session: with the role `caller` those that it has begun. Gives its workspace.
    ///
    /// # Errors
    ///
    /// There is no such session for it.
    pub(crate) async fn may_see_session(
        &self,
        store: &dyn Store,
        caller: &Caller,
        session: &str,
    ) -> Result<String, Problem> {
        let found = store.get(SESSIONS, &place(&caller.tenant()?.id(), session)).await?;
        match found.map(|found| BegunBy::read(&found.value)) {
            Some(begun) if caller.sees_of(&begun.by, &begun.workspace) => Ok(begun.workspace),
            _ => Err(Problem::not_found("there is no such session")),
        }
    }

    /// Sessions of a tenant after one of them, the oldest first, each with who has begun it where.
    pub(crate) async fn sessions(
        &self,
        store: &dyn Store,
        caller: &Caller,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<(String, BegunBy)>, Problem> {
        let prefix = place(&caller.tenant()?.id(), "");
        let after = after.map(|after| format!("{prefix}{after}"));
        let page = store.list(SESSIONS, &prefix, after.as_deref(), most).await?;
        let id = |place: &str| place.strip_prefix(&prefix).unwrap_or(place).to_owned();
        Ok(page.iter().map(|(place, found)| (id(place), BegunBy::read(&found.value))).collect())
    }

    /// Replays a session on the project as it is now, without a line in the audit log: no call of it is made. It takes the
    /// room of a run, and its fuel is counted: scripts compute as they did.
    ///
    /// # Errors
    ///
    /// There is no room or budget for it, there is no project, or the record does not fit together.
    pub(crate) async fn replay(
        &self,
        server: &Arc<Server>,
        caller: &Caller,
        recording: &Recording,
    ) -> Result<Json, Problem> {
        server.accepts_work().await?;
        let tenant = caller.tenant()?;
        let _room = self.room(tenant)?;
        tenant.ledger.admit(now()).await.map_err(|refused| Problem::refused(&refused, now()))?;
        let project = server.tenants.unrecorded(tenant).await?;
        let counted =
            Arc::new(Counted { events: unbounded_channel().0, fuel: Mutex::default(), count: AtomicU64::new(0) });
        let root = tenant.project_folder();
        let replayed = tokio::select! {
            biased;
            () = server.ending.cancelled() => {
                Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "ending", "the server is ending").again(5))
            }
            replayed = replay_to(&root, &project, recording, counted.clone()) => {
                replayed.map_err(|why| Problem::new(StatusCode::CONFLICT, "session", why))
            }
        };
        let (_, fuel) = *counted.fuel.lock().unwrap_or_else(PoisonError::into_inner);
        tenant.ledger.spend(now(), Resource::Calls, 1);
        tenant.ledger.spend(now(), Resource::Fuel, fuel);
        Ok(replayed?.to_json())
    }
}
