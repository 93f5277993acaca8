//! The removal of what is kept no longer: runs that have ended, their events, and questions that are closed.

use harness_store::{Expected, Store, StoreError};

use super::asks::Approval;
use super::{APPROVALS, BUCKET, RunRecord, log_of, place};
use crate::server::Server;
use crate::tenant::Tenant;
use crate::tenants::now;

/// Values that are read at once.
const PAGE: usize = 500;

/// Removes what the class of each tenant keeps no longer.
///
/// # Errors
///
/// What the store says. What is left is removed the next time.
pub(crate) async fn sweep(server: &Server) -> Result<(), StoreError> {
    let store = &*server.tenants.store;
    for tenant in server.tenants.all() {
        runs(store, &tenant).await?;
        approvals(store, &tenant).await?;
    }
    Ok(())
}

/// Removes runs that ended long enough ago. Their events go first: a record whose events are gone is removed the next time.
async fn runs(store: &dyn Store, tenant: &Tenant) -> Result<(), StoreError> {
    let before = now().saturating_sub(tenant.class.retention.runs);
    let prefix = place(&tenant.id(), "");
    let mut after: Option<String> = None;
    loop {
        let page = store.list(BUCKET, &prefix, after.as_deref(), PAGE).await?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = Some(last.clone());
        for (key, found) in &page {
            let Ok(run) = serde_json::from_slice::<RunRecord>(&found.value) else { continue };
            // They are in the order of their beginning, and none ends before it begins.
            if run.created > before {
                return Ok(());
            }
            if run.ended.is_some_and(|ended| ended <= before) {
                store.remove_log(&log_of(key)).await?;
                gone(store.delete(BUCKET, key, Expected::Version(found.version)).await)?;
            }
        }
    }
}

/// Removes questions that were closed long enough ago: those that were answered count from when they were asked.
async fn approvals(store: &dyn Store, tenant: &Tenant) -> Result<(), StoreError> {
    let before = now().saturating_sub(tenant.class.retention.approvals);
    let prefix = place(&tenant.id(), "");
    let mut after: Option<String> = None;
    loop {
        let page = store.list(APPROVALS, &prefix, after.as_deref(), PAGE).await?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = Some(last.clone());
        for (key, found) in &page {
            let Ok(approval) = serde_json::from_slice::<Approval>(&found.value) else { continue };
            let closed = if approval.answer.is_some() { approval.asked() } else { approval.expires };
            if closed <= before {
                gone(store.delete(APPROVALS, key, Expected::Version(found.version)).await)?;
            }
        }
    }
}

/// What was changed meanwhile stays.
fn gone(deleted: Result<(), StoreError>) -> Result<(), StoreError> {
    match deleted {
        Err(StoreError::Conflict { .. }) => Ok(()),
        other => other,
    }
}
