//! The Model Context Protocol for the keys of tenants.
//!
//! Each key has a server of its own, which seals sessions, cursors and states of requests with a key of its own and keeps its
//! own tasks. So nothing that a client with one key was given can be used, answered or ended by one with another key, of the
//! same tenant either: to that one it is what never was.
//!
//! - `principal`: what a key adds to its calls

mod principal;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use harness_mcp::http::{Bounds, Endpoint, Names};
use harness_mcp::{MAX_IN_FLIGHT, MAX_LISTENING};
use tokio_util::sync::CancellationToken;

use self::principal::{ByApprovers, OfKey};
use crate::api::Caller;
use crate::problem::Problem;
use crate::server::Server;
use crate::tenant::Opened;
use crate::tenants::now;

/// Requests of all keys of a tenant that are answered at one time, and those that listen.
const IN_FLIGHT: usize = 4 * MAX_IN_FLIGHT;
const LISTENING: usize = 4 * MAX_LISTENING;
/// Tasks of a key at one time, and with those whose results are kept.
const TASKS: (usize, usize) = (16, 64);
/// How long what is kept for a key stays after its last request. Longer than anything that it has sealed can be answered, but
/// sessions, which any server of the key opens.
const IDLE: Duration = Duration::from_secs(15 * 60);
/// How often that is looked at.
pub(crate) const SWEEP: Duration = Duration::from_secs(60);
/// The longest wait for the end of a key, whose clock may be set meanwhile.
const LOOK: u64 = 60_000;

/// A key, and the workspace that it works in.
type Which = (String, String);

/// The servers of the keys of one tenant that were used lately.
#[derive(Debug)]
pub(crate) struct Endpoints {
    all: Mutex<HashMap<Which, Entry>>,
    /// What they share.
    bounds: Bounds,
}

impl Default for Endpoints {
    fn default() -> Self {
        Self { all: Mutex::default(), bounds: Bounds::new(" of this tenant", IN_FLIGHT, LISTENING) }
    }
}

#[derive(Debug, Clone)]
struct Entry {
    endpoint: Endpoint,
    /// Its own bounds.
    own: Bounds,
    mcp: harness_mcp::Server,
    /// The project that it serves.
    opened: Arc<Opened>,
    used: Instant,
    /// Cancelled when it serves no more.
    closed: CancellationToken,
}

impl Entry {
    fn close(self) {
        self.mcp.close();
        self.closed.cancel();
    }
}

impl Endpoints {
    fn all(&self) -> MutexGuard<'_, HashMap<Which, Entry>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The endpoint of a key, which serves this project from here on.
    ///
    /// # Errors
    ///
    /// The key counts no more, or the server failed.
    pub(crate) async fn of(
        &self,
        server: &Arc<Server>,
        caller: &Caller,
        opened: &Arc<Opened>,
        names: &Names,
    ) -> Result<Endpoint, Problem> {
        let id = &caller.key.record.id;
        let which = (id.clone(), opened.workspace().to_owned());
        let found = self.all().get_mut(&which).map(|entry| {
            entry.used = Instant::now();
            entry.clone()
        });
        let entry = match found {
            Some(entry) => entry,
            None => self.begin(server, caller, opened, names).await?,
        };
        if !Arc::ptr_eq(&entry.opened, opened) {
            self.renew_one(&which, &entry, opened).await?;
        }
        // One that was removed meanwhile would be left behind.
        if server.tenants.key_in_force(id, now()).is_none() {
            self.close(id);
            return Err(Problem::unauthorized());
        }
        Ok(entry.endpoint)
    }

    async fn begin(
        &self,
        server: &Arc<Server>,
        caller: &Caller,
        opened: &Arc<Opened>,
        names: &Names,
    ) -> Result<Entry, Problem> {
        let (id, tenant) = (&caller.key.record.id, caller.tenant()?);
        let settings = harness_mcp::Settings {
            principal: Arc::new(OfKey {
                server: server.clone(),
                caller: caller.clone(),
                workspace: opened.other_workspace(),
            }),
            // What was sealed in one workspace opens nothing in another.
            key: server.mcp_key(&match opened.other_workspace() {
                Some(workspace) => format!("{id}/{workspace}"),
                None => id.clone(),
            }),
            tasks: TASKS,
            ..harness_mcp::Settings::new(opened.models.clone(), Arc::new(ByApprovers))
        };
        let project = opened.project.clone();
        let mcp = off_thread(move || {
            let mcp = harness_mcp::Server::new(project, settings);
            mcp.note();
            mcp
        });
        let mcp = mcp.await?;
        let own = Bounds::new(" of this key", MAX_IN_FLIGHT, MAX_LISTENING);
        let endpoint = Endpoint::new(mcp.clone(), names.clone(), own.clone(), self.bounds.clone());
        let (used, closed) = (Instant::now(), CancellationToken::new());
        let new = Entry { endpoint, own, mcp, opened: opened.clone(), used, closed };
        let mut all = self.all();
        // Of two requests that come first, one is.
        let which = (id.clone(), opened.workspace().to_owned());
        if let Some(entry) = all.get(&which) {
            return Ok(entry.clone());
        }
        all.insert(which, new.clone());
        drop(all);
        let (tenant, id, closed) = (tenant.clone(), id.clone(), new.closed.clone());
        let (ending, expires) = (server.ending.clone(), caller.key.record.expires);
        tokio::spawn(async move {
            tokio::select! {
                () = closed.cancelled() => return,
                () = ending.cancelled() => {}
                () = expired(expires) => {}
            }
            tenant.mcp.close(&id);
        });
        Ok(new)
    }

    /// Lets all of its workspace serve this project from here on, and notifies the clients that listen of what it changes.
    ///
    /// # Errors
    ///
    /// That the server failed.
    pub(crate) async fn renew(&self, opened: &Arc<Opened>) -> Result<(), Problem> {
        let all: Vec<_> = self.all().iter().map(|(which, entry)| (which.clone(), entry.clone())).collect();
        for (which, entry) in all.into_iter().filter(|((_, workspace), _)| workspace == opened.workspace()) {
            self.renew_one(&which, &entry, opened).await?;
        }
        Ok(())
    }

    async fn renew_one(&self, which: &Which, entry: &Entry, opened: &Arc<Opened>) -> Result<(), Problem> {
        let (mcp, project, models) = (entry.mcp.clone(), opened.project.clone(), opened.models.clone());
        off_thread(move || mcp.replace(project, models)).await?;
        if let Some(entry) = self.all().get_mut(which) {
            entry.opened = opened.clone();
        }
        Ok(())
    }

    /// The workspaces that some of them are in.
    pub(crate) fn workspaces(&self) -> BTreeSet<String> {
        self.all().keys().map(|(_, workspace)| workspace.clone()).collect()
    }

    /// Ends the calls, streams and tasks of a key.
    pub(crate) fn close(&self, id: &str) {
        self.close_those(|(key, _), _| key == id);
    }

    /// Forgets those in a workspace in which nothing is under way.
    pub(crate) fn close_idle_in(&self, workspace: &str) {
        self.close_those(|(_, of), entry| of == workspace && entry.own.is_idle() && entry.mcp.is_idle());
    }

    fn close_those(&self, are_closed: impl Fn(&Which, &Entry) -> bool) {
        let mut all = self.all();
        let closed: Vec<Which> =
            all.iter().filter(|(which, entry)| are_closed(which, entry)).map(|(which, _)| which.clone()).collect();
        let closed: Vec<Entry> = closed.iter().filter_map(|which| all.remove(which)).collect();
        drop(all);
        closed.into_iter().for_each(Entry::close);
    }

    /// Ends those of all keys.
    pub(crate) fn close_all(&self) {
        let all = std::mem::take(&mut *self.all());
        all.into_values().for_each(Entry::close);
    }

    /// Forgets those that were not used for a time, and keep nothing of a client.
    pub(crate) fn sweep(&self, now: Instant) {
        let mut idle = Vec::new();
        self.all().retain(|_, entry| {
            if !entry.own.is_idle() || !entry.mcp.is_idle() {
                entry.used = now;
            }
            let stays = now.saturating_duration_since(entry.used) < IDLE;
            if !stays {
                idle.push(entry.clone());
            }
            stays
        });
        idle.into_iter().for_each(Entry::close);
    }
}

/// Waits until a key counts no more.
async fn expired(expires: Option<u64>) {
    let Some(expires) = expires else { return std::future::pending().await };
    loop {
        match expires.saturating_sub(now()) {
            0 => return,
            left => tokio::time::sleep(Duration::from_millis(left.min(LOOK))).await,
        }
    }
}

/// Does what waits for the disk on a thread for that.
async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Problem::fault())
}

#[cfg(test)]
mod tests {
    use harness_artifact::server::ServerConfig;

    use super::*;
    use crate::server::Settings;

    #[tokio::test]
    async fn what_is_kept_for_a_key_is_forgotten_once_it_is_idle() {
        let folder = tempfile::tempdir().unwrap();
        let (data, config) = (folder.path().join("data"), ServerConfig::default());
        let (server, _) = Server::open(Settings { data, config, beside: folder.path().to_owned() }).await.unwrap();
        let tool = "---\nscript: |\n  def run(args):\n      return 1\n---\nA tool.\n";
        let text = server.demo("acme", &[(".harness/tools/it.md", tool)]).await.unwrap().unwrap();
        let (key, tenant) = server.tenants.authenticate(&text, now(), None).unwrap();
        let tenant = tenant.unwrap();
        let opened = server.tenants.opened(&tenant).await.unwrap();
        let caller = Caller::new(key.clone(), Some(tenant.clone()));
        let which = (key.record.id.clone(), "default".to_owned());
        let endpoint = || tenant.mcp.of(&server, &caller, &opened, &Names::Any);
        endpoint().await.unwrap();
        let used = tenant.mcp.all()[&which].used;
        tenant.mcp.sweep(used + IDLE - Duration::from_millis(1));
        assert!(!tenant.mcp.workspaces().is_empty());
        // A request that is answered keeps it, and it is idle from its end on.
        let place = tenant.mcp.all()[&which].own.take(true).unwrap();
        tenant.mcp.sweep(used + IDLE);
        drop(place);
        tenant.mcp.sweep(used + 2 * IDLE - Duration::from_millis(1));
        assert!(!tenant.mcp.workspaces().is_empty());
        let closed = tenant.mcp.all()[&which].closed.clone();
        tenant.mcp.sweep(used + 2 * IDLE);
        assert!(tenant.mcp.workspaces().is_empty() && closed.is_cancelled());
        // The next request finds another one, and a key that is removed meanwhile none.
        endpoint().await.unwrap();
        assert!(!tenant.mcp.workspaces().is_empty());
        server.tenants.remove_key(&key.record.id).await.unwrap();
        assert!(endpoint().await.is_err() && tenant.mcp.workspaces().is_empty());
        assert_eq!(server.mcp_key("a"), server.mcp_key("a"));
        assert_ne!(server.mcp_key("a"), server.mcp_key("b"));
    }
}
