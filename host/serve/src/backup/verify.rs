//! All parts of a backup, each checked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use harness_store::Backup;
use harness_sys as sys;
use harness_sys::copy::{self, Item};
use serde::Serialize;

use super::manifest::Manifest;
use super::{AUDIT, MANIFEST, STORE, TENANTS};
use crate::key::KeyRecord;
use crate::record::TenantRecord;
use crate::seal::Sealer;
use crate::tenants;
use crate::webhooks;

/// What is reported as wrong, at most.
const MAX_FAULTS: usize = 50;

/// What was checked, and what is wrong.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// When the backup was begun.
    pub created: Option<String>,
    /// The parts that were checked.
    pub checked: Vec<Check>,
    /// What is wrong: none where the backup is whole.
    pub faults: Vec<Fault>,
    /// How many more faults there are.
    pub more_faults: u64,
    /// How many secrets are sealed in it.
    #[serde(skip)]
    pub secrets: u64,
}

/// A part that was checked.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// `files`, `store`, `tenants`, `audit` or `secrets`.
    pub part: &'static str,
    /// What there is of it.
    pub what: String,
}

/// What is wrong with a part.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// The part, by its path in the backup or its name.
    pub part: String,
    /// What is wrong.
    pub why: String,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_whole(&self) -> bool {
        self.faults.is_empty()
    }

    fn fault(&mut self, part: impl Into<String>, why: impl std::fmt::Display) {
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(Fault { part: part.into(), why: why.to_string() });
        } else {
            self.more_faults = self.more_faults.saturating_add(1);
        }
    }

    fn checked(&mut self, part: &'static str, what: String) {
        self.checked.push(Check { part, what });
    }
}

/// Checks a backup: that it has the files of its list and no others, each with its digest; that the store is one of this
/// program or an older one, and its pages, blobs and logs are whole; that records of tenants and keys can be read, and each
/// project is there; that audit logs are unbroken; and with a sealing key that each secret opens.
pub fn verify(folder: &Path, key: Option<&Sealer>) -> Report {
    let mut report = Report::default();
    match Manifest::read(folder) {
        Ok(manifest) => {
            report.created = Some(manifest.head.created.clone());
            files(folder, &manifest, &mut report);
        }
        Err(why) => report.fault(MANIFEST, why),
    }
    match Backup::open(&folder.join(STORE)) {
        Ok(store) => in_store(folder, &store, key, &mut report),
        Err(why) => report.fault(STORE, why),
    }
    report
}

/// What a folder has, compared with the list. What cannot be in a backup, such as a link, is no part of it.
fn files(folder: &Path, manifest: &Manifest, report: &mut Report) {
    let (mut count, mut size) = (0_u64, 0_u64);
    let left_out = manifest.items.values().filter(|item| matches!(item, Item::Other(_))).count();
    let compared = compare(folder, &manifest.items, |fault| match fault {
        Ok(bytes) => (count, size) = (count.saturating_add(1), size.saturating_add(bytes)),
        Err((path, why)) => report.fault(path, why),
    });
    match compared {
        Ok(()) => {
            let left_out = if left_out == 0 { String::new() } else { format!("; {left_out} were left out of it") };
            report.checked("files", format!("{count} with {size} bytes, each by its digest{left_out}"));
        }
        Err(error) => report.fault("files", error),
    }
}

/// Compares a folder with a list: files, with their sizes, and what is wrong at which path.
fn compare(
    folder: &Path,
    items: &BTreeMap<Vec<u8>, Item>,
    mut found: impl FnMut(Result<u64, (String, &'static str)>),
) -> std::io::Result<()> {
    let name = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    let mut seen = BTreeSet::new();
    copy::survey(folder, |path, item| {
        if path == MANIFEST.as_bytes() {
            return Ok(());
        }
        seen.insert(path.to_vec());
        match (items.get(path), &item) {
            (Some(listed), Item::File { bytes, .. }) if *listed == item => found(Ok(*bytes)),
            (Some(listed), _) if *listed == item => {}
            (Some(Item::File { .. }), Item::File { .. }) => found(Err((name(path), "it is not what was written"))),
            (Some(_), _) => found(Err((name(path), "it is of another kind"))),
            (None, _) => found(Err((name(path), "it is no part of the backup"))),
        }
        Ok(())
    })?;
    for (path, item) in items {
        if matches!(item, Item::Folder | Item::File { .. }) && !seen.contains(path) {
            found(Err((name(path), "it is missing")));
        }
    }
    Ok(())
}

/// What is wrong with a copy of the files of a backup.
pub(super) fn differences(folder: &Path, manifest: &Manifest) -> std::io::Result<Vec<String>> {
    let mut wrong = Vec::new();
    compare(folder, &manifest.items, |fault| {
        if let Err((path, why)) = fault {
            wrong.push(format!("`{path}`: {why}"));
        }
    })?;
    Ok(wrong)
}

fn in_store(folder: &Path, store: &Backup, key: Option<&Sealer>, report: &mut Report) {
    let problems = store.problems();
    if problems.is_empty() {
        match store.counts() {
            Ok((values, blobs, lines)) => {
                let version = store.version();
                let what = format!("version {version}: {values} values, {blobs} blobs and {lines} lines of logs");
                report.checked("store", what);
            }
            Err(error) => report.fault(STORE, error),
        }
    }
    for why in problems {
        report.fault(STORE, why);
    }
    let ids = of_tenants(store, report);
    let mut logs = vec![AUDIT.to_owned()];
    logs.extend(ids.iter().map(|id| format!("{TENANTS}/{id}/project/{}", harness_audit::FOLDER)));
    audit(folder, &logs, report);
    secrets(store, key, report);
}

/// The records of tenants and keys. Returns the tenants.
fn of_tenants(store: &Backup, report: &mut Report) -> Vec<String> {
    let mut wrong: Vec<(String, String)> = Vec::new();
    let (mut ids, mut keys) = (BTreeSet::new(), 0_u64);
    let read = store.values(tenants::TENANTS, |id, text| {
        match serde_json::from_slice::<TenantRecord>(text) {
            Ok(record) => match record.project.as_deref().map(|project| store.has_blob(project)) {
                None | Some(Ok(true)) => {}
                Some(Ok(false)) => wrong.push((format!("tenant `{id}`"), "its project is missing".to_owned())),
                Some(Err(error)) => wrong.push((format!("tenant `{id}`"), error.to_string())),
            },
            Err(error) => wrong.push((format!("tenant `{id}`"), format!("its record cannot be read: {error}"))),
        }
        ids.insert(id.to_owned());
    });
    let read = read.and_then(|()| {
        store.values(tenants::KEYS, |id, text| {
            match serde_json::from_slice::<KeyRecord>(text) {
                Ok(record) if record.tenant.as_ref().is_none_or(|tenant| ids.contains(tenant)) => {}
                Ok(_) => wrong.push((format!("key `{id}`"), "its tenant is missing".to_owned())),
                Err(error) => wrong.push((format!("key `{id}`"), format!("its record cannot be read: {error}"))),
            }
            keys = keys.saturating_add(1);
        })
    });
    if let Err(error) = read {
        wrong.push(("tenants".to_owned(), error.to_string()));
    }
    if wrong.is_empty() {
        report.checked("tenants", format!("{} tenants and {keys} keys", ids.len()));
    }
    wrong.into_iter().for_each(|(part, why)| report.fault(part, why));
    ids.into_iter().collect()
}

/// The chains of audit logs.
fn audit(folder: &Path, logs: &[String], report: &mut Report) {
    let (mut count, mut lines, mut is_whole) = (0_u64, 0_u64, true);
    for path in logs {
        let log = folder.join(path);
        if sys::is_gone(&log) {
            continue;
        }
        match harness_audit::verify(&log) {
            Ok(summary) => (count, lines) = (count.saturating_add(1), lines.saturating_add(summary.lines)),
            Err(why) => {
                is_whole = false;
                report.fault(path.clone(), why);
            }
        }
    }
    if is_whole {
        report.checked("audit", format!("{count} unbroken logs with {lines} lines"));
    }
}

fn secrets(store: &Backup, key: Option<&Sealer>, report: &mut Report) {
    let (mut count, mut wrong) = (0_u64, Vec::new());
    let mut look = |at: &str, sealed: &[u8]| {
        count = count.saturating_add(1);
        if let Some(Err(why)) = key.map(|key| key.open(at, sealed)) {
            wrong.push((format!("secret `{at}`"), why));
        }
    };
    let read = store.values(tenants::SECRETS, &mut look);
    let read = read.and_then(|()| store.values(webhooks::SECRETS, &mut look));
    report.secrets = count;
    match read {
        Err(error) => report.fault("secrets", error),
        Ok(()) if key.is_none() => {
            report.checked("secrets", format!("{count} sealed, and not opened: there is no sealing key"));
        }
        Ok(()) if wrong.is_empty() => report.checked("secrets", format!("{count} opened with the sealing key")),
        Ok(()) => wrong.into_iter().for_each(|(part, why)| report.fault(part, why)),
    }
}
