//! A class of tenants: what each of them may have, and how long what has ended is kept.

use std::path::PathBuf;
use std::sync::Arc;

use harness_artifact::server::{Rate, Retention, TenantClass};
use harness_capability::fs::SpaceQuota;
use harness_sandbox::scheduling::quota::Quota;

use crate::egress::Sent;
use crate::prices::Prices;

/// Requests of a tenant in a minute where its class does not say.
const REQUESTS: Rate = Rate { per_minute: 6_000, burst: 600 };

/// Milliseconds of an hour.
const HOUR: u64 = 3_600_000;

/// A class of tenants, with its defaults filled in.
#[derive(Debug, Clone)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// The host policy of its projects.
    pub policy: PathBuf,
    /// What each project may have of the host.
    pub quota: Quota,
    /// Requests to the interface.
    pub requests: Rate,
    /// Runs of agents at one time.
    pub runs: usize,
    /// Bytes of the files of a workspace.
    pub workspace_bytes: u64,
    /// Files of a workspace.
    pub workspace_files: u64,
    /// Workspaces of a tenant.
    pub workspaces: usize,
    /// How long what has ended is kept.
    pub retention: Kept,
    /// Webhooks of one tenant.
    pub webhooks: usize,
    /// What models cost.
    pub prices: Arc<Prices>,
    /// What was sent for all tenants.
    pub sent: Arc<Sent>,
    /// What the configuration says.
    pub given: TenantClass,
}

/// How long what has ended is kept, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// A run and its events, after its end.
    pub runs: u64,
    /// A question about a call, after it was closed.
    pub approvals: u64,
    /// The answer to a request with an `Idempotency-Key`.
    pub answers: u64,
    /// A session, after its last line; none: for ever.
    pub sessions: Option<u64>,
    /// Lines of the audit log; none: for ever.
    pub audit: Option<u64>,
}

impl Kept {
    fn new(given: Retention) -> Self {
        let days = |given: Option<u64>| given.unwrap_or(30).saturating_mul(24 * HOUR);
        let answers = given.idempotency_hours.unwrap_or(24).saturating_mul(HOUR);
        let sessions = given.sessions_days.map(|given| days(Some(given)));
        let audit = given.audit_days.map(|given| days(Some(given)));
        Self { runs: days(given.runs_days), approvals: days(given.approvals_days), answers, sessions, audit }
    }
}

impl Class {
    /// A class of the configuration; `policy` is the file of its host policy.
    pub fn new(name: &str, given: TenantClass, policy: PathBuf, (prices, sent): (Arc<Prices>, Arc<Sent>)) -> Self {
        let quota = Quota::default()
            .weight(given.weight.unwrap_or(100))
            .concurrent_calls(given.concurrent_calls.unwrap_or(64))
            .queued_calls(given.queued_calls.unwrap_or(1_000))
            .memory_bytes(given.memory_bytes.unwrap_or(1 << 30));
        Self {
            name: name.to_owned(),
            policy,
            quota,
            requests: given.requests.unwrap_or(REQUESTS),
            runs: given.concurrent_runs.map_or(8, |runs| usize::try_from(runs).unwrap_or(usize::MAX)),
            workspace_bytes: given.workspace_bytes.unwrap_or(256 << 20),
            workspace_files: given.workspace_files.unwrap_or(10_000),
            workspaces: given.workspaces.map_or(1, |most| usize::try_from(most).unwrap_or(usize::MAX)),
            retention: Kept::new(given.retention),
            webhooks: given.webhooks.map_or(0, |most| usize::try_from(most).unwrap_or(usize::MAX)),
            prices,
            sent,
            given,
        }
    }

    /// Who sets its limits, for messages.
    pub fn set_by(&self) -> String {
        format!("the class `{}` of the tenant", self.name)
    }

    /// What each workspace of its tenants may hold.
    pub(crate) fn space(&self) -> SpaceQuota {
        SpaceQuota { bytes: self.workspace_bytes, files: self.workspace_files, set_by: self.set_by() }
    }
}
