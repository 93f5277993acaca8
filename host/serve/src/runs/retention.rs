//! The removal of what is kept no longer: runs that have ended, their events, questions that are closed, and sessions.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use harness_session::FOLDER;
use harness_store::{Expected, Store, StoreError};
use harness_sys::{self as sys, private};

use super::asks::Approval;
use super::resume::Begun;
use super::{APPROVALS, BUCKET, OPEN, RunRecord, SESSIONS, Work, log_of, place};
use crate::api::CHATS;
use crate::server::Server;
use crate::tenant::Tenant;
use crate::tenants::now;

/// Values that are read at once.
const PAGE: usize = 500;
/// How old a session is at least that is removed, in milliseconds: one that is just begun may not be known as a run's yet.
const YOUNG: u64 = 60_000;

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
        sessions(store, &tenant).await?;
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

/// Removes sessions whose last line was written long enough ago, with their files, and then which conversation of a chat each
/// was. One that a run works on or resumes stays: each file has all of its conversation, and needs no other.
async fn sessions(store: &dyn Store, tenant: &Tenant) -> Result<(), StoreError> {
    let Some(kept) = tenant.class.retention.sessions else { return Ok(()) };
    let before = Duration::from_millis(now().saturating_sub(kept.max(YOUNG)));
    let prefix = place(&tenant.id(), "");
    let folder = tenant.project_folder().join(FOLDER);
    let mut stay = HashSet::new();
    let mut after: Option<String> = None;
    loop {
        let page = store.list(SESSIONS, &prefix, after.as_deref(), PAGE).await?;
        let Some((last, _)) = page.last() else { break };
        after = Some(last.clone());
        let names = page.iter().filter_map(|(key, _)| key.strip_prefix(&prefix).map(str::to_owned));
        let old = old(folder.clone(), names.collect(), before).await;
        // Looked at after the sessions are: a run is open before its session is there.
        let in_use = if old.is_empty() { HashSet::new() } else { in_use(store, &prefix).await? };
        for (key, found) in &page {
            let Some(name) = key.strip_prefix(&prefix) else { continue };
            if !old.contains(name) || in_use.contains(name) {
                stay.insert(name.to_owned());
                continue;
            }
            let file = folder.join(format!("{name}.jsonl"));
            let removed = tokio::task::spawn_blocking(move || private::remove(&file)).await;
            match removed {
                Ok(Ok(_)) => gone(store.delete(SESSIONS, key, Expected::Version(found.version)).await)?,
                // Its file is there still: it is removed the next time.
                _ => drop(stay.insert(name.to_owned())),
            }
        }
    }
    chats(store, &prefix, &stay).await
}

/// Those of some sessions whose last line is old enough, or of which there is no file.
async fn old(folder: PathBuf, names: Vec<String>, before: Duration) -> HashSet<String> {
    let looked = tokio::task::spawn_blocking(move || {
        let is_old = |name: &String| {
            let file = folder.join(format!("{name}.jsonl"));
            sys::is_gone(&file) || sys::changed_at(&file).is_ok_and(|at| at <= before)
        };
        names.into_iter().filter(is_old).collect()
    });
    looked.await.unwrap_or_default()
}

/// The sessions that runs of a tenant work on or resume.
async fn in_use(store: &dyn Store, prefix: &str) -> Result<HashSet<String>, StoreError> {
    let (mut used, mut after) = (HashSet::new(), None::<String>);
    loop {
        let page = store.list(OPEN, prefix, after.as_deref(), PAGE).await?;
        let Some((last, _)) = page.last() else { return Ok(used) };
        after = Some(last.clone());
        for (_, found) in &page {
            let Ok(begun) = serde_json::from_slice::<Begun>(&found.value) else { continue };
            used.extend(begun.session);
            if let Work::Turn { session: Some(session), .. } = begun.work {
                used.insert(session);
            }
        }
    }
}

/// Removes what conversations of chats are of sessions that are gone: the next message begins another one.
async fn chats(store: &dyn Store, prefix: &str, stay: &HashSet<String>) -> Result<(), StoreError> {
    let mut after: Option<String> = None;
    loop {
        let page = store.list(CHATS, prefix, after.as_deref(), PAGE).await?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = Some(last.clone());
        for (key, found) in &page {
            let session = String::from_utf8_lossy(&found.value);
            // One that was begun since the sessions were listed is there.
            if !stay.contains(&*session) && store.get(SESSIONS, &format!("{prefix}{session}")).await?.is_none() {
                gone(store.delete(CHATS, key, Expected::Version(found.version)).await)?;
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
