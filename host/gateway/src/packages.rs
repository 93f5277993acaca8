//! Packages of servers whose command is a package runner, such as `npx`.
//!
//! The host fetches them before the server starts, behind a wall of their own that reaches the registry and nothing else, and
//! no script of a package runs there. What was installed is kept under the digest of all of it, in a folder of the operator's
//! own. The server is started from there, without a network for that, and only while it is what the lock says.

mod install;
mod program;
mod registry;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::failure::Failure;
use crate::own;
use crate::process::Host;
use harness_artifact::pinned::{Change, Pinned, PinnedEndpoint, PinnedPackages};
use harness_artifact::policy::mcp::{Endpoint, McpServer, Packages, ServerCommand};
use harness_capability::env::Variables;
use harness_policy::refusal::Refusal;
use harness_sys as sys;
use harness_sys::store::Store;
use harness_sys::tree::Most;
pub(crate) use program::Program;
use registry::Registry;

/// Where packages are.
const PACKAGES: own::Kind =
    own::Kind { variable: "XDG_CACHE_HOME", below_home: ".cache", path: "harness/packages", what: "packages" };

/// What the packages of one server may be together: the largest published ones have a tenth of this.
const MOST: Most = Most { entries: 200_000, bytes: 2 << 30, levels: 64 };

/// Bytes of what is kept of a fetch.
const MAX_BYTES: usize = 4 << 10;

/// Folders that were found to be what their names say. Process-wide, because what a digest names is the same for all
/// projects, and because reading a hundred megabytes before each call would be felt.
static FOUND: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// The folder of the packages of all servers, where the host's variables name one.
pub fn folder(variables: &Variables) -> Option<PathBuf> {
    PACKAGES.folder(variables)
}

/// Where packages come from when a server is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fetch {
    /// What is here, and the registry only for what is not.
    Missing,
    /// The registry, as it is now.
    Anew,
}

/// The packages of a server, here and checked.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    /// What is locked of them.
    pub(crate) pinned: PinnedPackages,
    /// The folder that they are in, absolute and without links.
    folder: PathBuf,
    packages: Packages,
}

/// What is remembered of a fetch, so that the next look at the same command needs no registry.
#[derive(Serialize, Deserialize)]
struct Fetched {
    tree: String,
    before: String,
}

/// The packages of a server as they are to be locked: those of the lock where the command is the same, else what was fetched
/// for this command before, else what is fetched now. None where the command is no package runner.
///
/// # Errors
///
/// Why they cannot be fetched or kept.
pub(crate) async fn look(
    server: &McpServer,
    locked: Option<&Pinned>,
    fetch: Fetch,
    host: &Host<'_>,
) -> Result<Option<Kept>, Failure> {
    let Some((command, packages)) = fetched_by(server) else { return Ok(None) };
    let registry = Registry::of(packages.installer, host.variables)?;
    let store = store(host)?;
    let record = record(&store, &packages, &registry);
    let locked = locked.and_then(|locked| locked_of(&locked.endpoint, command));
    let mut before = None;
    if fetch == Fetch::Missing {
        if let Some(kept) = locked.cloned().or_else(|| remembered(&record)) {
            if let Some(folder) = find(&store, kept.tree()).await? {
                return Ok(Some(Kept { pinned: kept, folder, packages }));
            }
            before = Some(kept.before().to_owned());
        }
    }
    let before = before.unwrap_or_else(now);
    let tree = Box::pin(install::install(&store, (command, &packages), (&registry, &before), host)).await?;
    // Fetched once more, and the same.
    let same = locked.filter(|locked| locked.tree() == tree).cloned();
    let pinned = match same {
        Some(same) => same,
        None => PinnedPackages::new(tree, before).map_err(Failure::Broken)?,
    };
    remember(&record, &pinned);
    let gone = || Failure::Broken("its packages are gone again".to_owned());
    let folder = find(&store, pinned.tree()).await?.ok_or_else(gone)?;
    Ok(Some(Kept { pinned, folder, packages }))
}

/// Fetches the packages of a server that are not here, and gives their digest. None where its command is no package runner.
///
/// # Errors
///
/// Why they cannot be fetched. They are not those of the lock.
pub async fn fetch(server: &McpServer, locked: Option<&Pinned>, host: Host<'_>) -> Result<Option<String>, Failure> {
    let Some(Kept { pinned, .. }) = look(server, locked, Fetch::Missing, &host).await? else { return Ok(None) };
    let was = fetched_by(server).and_then(|(command, _)| locked_of(&locked?.endpoint, command));
    match was.filter(|was| **was != pinned) {
        Some(_) => Err(Failure::drift(&server.name, &[Change::packages()])),
        None => Ok(Some(pinned.tree().to_owned())),
    }
}

/// The packages of a server as they were locked; nothing is fetched. None where the command is no package runner.
///
/// # Errors
///
/// They are not here, or not what they were.
pub(crate) async fn locked(server: &McpServer, locked: &Pinned, host: &Host<'_>) -> Result<Option<Kept>, Failure> {
    let Some((command, packages)) = fetched_by(server) else { return Ok(None) };
    let Some(pinned) = locked_of(&locked.endpoint, command) else {
        let hint = "`harness lock` fetches and locks them";
        return Err(Refusal::new(format!("the packages of the server `{}` are not locked", server.name), hint).into());
    };
    let missing = || {
        let name = &server.name;
        Failure::Broken(format!("its packages are not on this machine: `harness mcp fetch {name}` fetches them"))
    };
    let folder = find(&store(host)?, pinned.tree()).await?.ok_or_else(missing)?;
    Ok(Some(Kept { pinned: pinned.clone(), folder, packages }))
}

impl Kept {
    /// What is started of them.
    ///
    /// # Errors
    ///
    /// There is no such program.
    pub(crate) fn program(&self) -> Result<Program, Failure> {
        Program::of(&self.folder, &self.packages)
    }
}

fn fetched_by(server: &McpServer) -> Option<(&ServerCommand, Packages)> {
    match &server.endpoint {
        Endpoint::Command(command) => Some((command, command.packages()?)),
        Endpoint::Url(_) => None,
    }
}

/// What the lock has of the packages of a command, where it is this one.
fn locked_of<'a>(endpoint: &'a PinnedEndpoint, now: &ServerCommand) -> Option<&'a PinnedPackages> {
    match endpoint {
        PinnedEndpoint::Command { command, packages, .. } if *command == now.words() => packages.as_ref(),
        PinnedEndpoint::Command { .. } | PinnedEndpoint::Url(_) => None,
    }
}

fn store(host: &Host<'_>) -> Result<Store, Failure> {
    Ok(Store::new(PACKAGES.outside(host.workspace, host.variables)?, MOST))
}

/// The moment in UTC and whole seconds, as RFC 3339 has it.
fn now() -> String {
    let seconds = i64::try_from(sys::since_epoch().as_secs()).unwrap_or_default();
    let moment = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    moment.format(&Rfc3339).unwrap_or_default()
}

/// The file that remembers a fetch, by what was asked for and where.
fn record(store: &Store, packages: &Packages, registry: &Registry) -> PathBuf {
    let asked = format!("{:?}\n{:?}\n{}", packages.installer, packages.specs, registry.url);
    let digest = sys::digest::digest(&asked);
    store.folder().join(format!("{}.json", digest.trim_start_matches("sha256:")))
}

fn remembered(record: &Path) -> Option<PinnedPackages> {
    let text = sys::read_secret(record, MAX_BYTES).ok()?;
    let Fetched { tree, before } = serde_json::from_str(&text).ok()?;
    PinnedPackages::new(tree, before).ok()
}

/// What cannot be remembered is fetched again.
fn remember(record: &Path, pinned: &PinnedPackages) {
    let fetched = Fetched { tree: pinned.tree().to_owned(), before: pinned.before().to_owned() };
    if let Ok(text) = serde_json::to_string(&fetched) {
        let _ = sys::private::write(record, &text);
    }
}

/// The folder with a digest, absolute and without links. It is read whole the first time.
async fn find(store: &Store, tree: &str) -> Result<Option<PathBuf>, Failure> {
    let (store, tree) = (store.clone(), tree.to_owned());
    let looked = tokio::task::spawn_blocking(move || {
        let place = store.folder().join(tree.trim_start_matches("sha256:"));
        if let Ok(real) = sys::real_path(&place) {
            if FOUND.lock().unwrap_or_else(PoisonError::into_inner).contains(&real) {
                return Ok(Some(real));
            }
        }
        let Some(found) = store.find(&tree)? else { return Ok(None) };
        let real = sys::real_path(&found)?;
        FOUND.lock().unwrap_or_else(PoisonError::into_inner).insert(real.clone());
        Ok::<_, std::io::Error>(Some(real))
    });
    let unusable = |why: &dyn std::fmt::Display| Failure::Broken(format!("its packages cannot be used: {why}"));
    match looked.await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => Err(unusable(&error)),
        Err(error) => Err(unusable(&error)),
    }
}
