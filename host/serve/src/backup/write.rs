//! A backup of a server that runs.

use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::http::StatusCode;
use harness_store::Backup;
use harness_sys::copy::{self, Item};
use harness_sys::{self as sys, tree};
use serde_json::{Value as Json, json};

use super::manifest::Writer;
use super::{AUDIT, MANIFEST, STORE, TENANTS};
use crate::archive::OF_HOST;
use crate::data::DataFolder;
use crate::key::hex;
use crate::problem::Problem;
use crate::server::Server;
use crate::tenants;

/// What the name of a backup begins with that is not whole yet. No name of a whole one has a dot.
const INCOMING: &str = "incoming.";
/// Files that were left out and are named in the answer.
const MAX_NAMED: usize = 20;

/// What was written.
#[derive(Debug, Default)]
struct Written {
    tenants: u64,
    files: u64,
    bytes: u64,
    left_out: u64,
    named: Vec<Json>,
}

/// Writes a copy of everything into the folder `backups`, under this name. It is there when it is whole, or not at all.
pub(crate) async fn write(server: &Arc<Server>, name: &str) -> std::result::Result<Json, Problem> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if name.is_empty() || name.len() > 100 || !name.bytes().all(is_plain) {
        return Err(Problem::invalid("`name` is 1 to 100 letters, digits, `-` and `_`"));
    }
    let (server, to) = (server.clone(), server.data().backups().join(name));
    // Whether its client waits for it or not: half a one would stay until the next start.
    let work = async move {
        let incoming = server.data().backups().join(format!("{INCOMING}{}", hex::<8>()));
        let written = into(&server, &incoming, &to).await;
        if written.is_err() {
            tree::remove(&incoming).map_err(|_| Problem::fault())?;
        }
        let Written { tenants, files, bytes, left_out, named } = written?;
        let folder = to.display().to_string();
        Ok(
            json!({"folder": folder, "tenants": tenants, "files": files, "bytes": bytes, "left_out": left_out, "such_as": named}),
        )
    };
    tokio::spawn(work).await.map_err(|_| Problem::fault())?
}

async fn into(server: &Server, incoming: &Path, to: &Path) -> std::result::Result<Written, Problem> {
    if !sys::is_gone(to) {
        return Err(exists());
    }
    copy::new_folder(incoming).map_err(|error| failed(&error))?;
    // First: what it names is in the folders by then.
    server.tenants.store.backup(&incoming.join(STORE)).await?;
    let (data, incoming, to) = (server.data().clone(), incoming.to_owned(), to.to_owned());
    let filled = tokio::task::spawn_blocking(move || {
        let written = fill(&data, &incoming)?;
        copy::publish(&incoming, &to).map(|()| written)
    });
    filled.await.map_err(|_| Problem::fault())?.map_err(|error| failed(&error))
}

fn exists() -> Problem {
    Problem::new(StatusCode::CONFLICT, "exists", "there is a backup of this name")
}

fn failed(error: &Error) -> Problem {
    match error.kind() {
        ErrorKind::AlreadyExists => exists(),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            Problem::new(StatusCode::INSUFFICIENT_STORAGE, "full", "the disk of the server is full")
                .hint("remove old backups, or make room otherwise")
        }
        _ => {
            let detail = format!("the backup cannot be written: {error}");
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "backup", detail)
        }
    }
}

/// Copies the folders beside the store, and writes the list of all.
fn fill(data: &DataFolder, incoming: &Path) -> Result<Written> {
    let store = Backup::open(&incoming.join(STORE)).map_err(Error::other)?;
    let mut ids = Vec::new();
    store.values(tenants::TENANTS, |id, _| ids.push(id.to_owned())).map_err(Error::other)?;
    let mut list = Writer::new(incoming, store.version())?;
    let mut written = Written { tenants: u64::try_from(ids.len()).unwrap_or(u64::MAX), ..Written::default() };
    for id in &ids {
        let below = format!("{TENANTS}/{id}/");
        for folder in ["workspace", "workspaces"] {
            copy_folder(data.path(), incoming, &format!("{below}{folder}"), &mut list, &mut written)?;
        }
        for folder in OF_HOST {
            let path = format!("{below}project/{folder}");
            if folder == harness_audit::FOLDER {
                copy_log(data.path(), incoming, &path)?;
            } else {
                copy_folder(data.path(), incoming, &path, &mut list, &mut written)?;
            }
        }
    }
    copy_log(data.path(), incoming, AUDIT)?;
    copy::survey(incoming, |path, item| {
        if path == MANIFEST.as_bytes() {
            return Ok(());
        }
        if let Item::File { bytes, .. } = &item {
            written.files = written.files.saturating_add(1);
            written.bytes = written.bytes.saturating_add(*bytes);
        }
        list.put(path, item)
    })?;
    list.finish()?;
    Ok(written)
}

/// A folder that both have at this path. One that is not there is left out.
fn copy_folder(data: &Path, incoming: &Path, path: &str, list: &mut Writer, written: &mut Written) -> Result<()> {
    let (from, to) = (data.join(path), incoming.join(path));
    if !sys::is_folder(&from) {
        return Ok(());
    }
    copy::new_folder(&to)?;
    let copied = copy::copy(&from, &to, |inside, item| {
        let whole = [path.as_bytes(), b"/", inside].concat();
        match &item {
            Item::Folder | Item::File { .. } => return Ok(()),
            Item::Link(_) => {}
            Item::Other(why) => {
                written.left_out = written.left_out.saturating_add(1);
                if written.named.len() < MAX_NAMED {
                    written.named.push(json!({"path": String::from_utf8_lossy(&whole), "why": why}));
                }
            }
        }
        list.put(&whole, item)
    });
    match copied {
        // Its tenant was removed meanwhile.
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        copied => copied.map_err(|error| Error::new(error.kind(), format!("`{path}`: {error}"))),
    }
}

/// An audit log that both have at this path, as it is at one moment.
fn copy_log(data: &Path, incoming: &Path, path: &str) -> Result<()> {
    let (from, to) = (data.join(path), incoming.join(path));
    if !sys::is_folder(&from) {
        return Ok(());
    }
    copy::new_folder(&to)?;
    let copied = harness_audit::copy(&from, &to);
    copied.map(|_| ()).map_err(|why| Error::other(format!("the audit log `{path}`: {why}")))
}

/// Removes what a backup has left that a death of the process ended.
pub(crate) fn clear(data: &DataFolder) -> Result<()> {
    let folder = data.backups();
    if sys::is_gone(&folder) {
        return Ok(());
    }
    let is_left = |path: &&PathBuf| {
        path.file_name().and_then(std::ffi::OsStr::to_str).is_some_and(|name| name.starts_with(INCOMING))
    };
    sys::entries(&folder)?.iter().filter(is_left).try_for_each(|path| tree::remove(path).map(|_| ()))
}
