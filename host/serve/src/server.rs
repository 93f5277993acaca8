//! The server: what its interfaces share, its start and its end.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use harness_artifact::server::ServerConfig;
use harness_dispatch::{Host, HostOptions};
use harness_mcp::http::{Limits, Listener, Names, Threads, serve_connections};
use harness_store::{Sqlite, Store};
use hyper_util::service::TowerToHyperService;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::api;
use crate::backup;
use crate::dashboard::{self, Sessions};
use crate::data::{DataFolder, RESTORED};
use crate::journal::Journal;
use crate::key::hex;
use crate::mcp;
use crate::metrics::Metrics;
use crate::problem::Problem;
use crate::role::Role;
use crate::runs::{self, Runs};
use crate::tenants::{Tenants, Wanted, now};
use crate::trail;
use crate::webhooks::{self, Webhooks};
use axum::Router;
use axum::http::StatusCode;

/// Connections of all tenants at one time.
pub const CONNECTIONS: usize = 10_000;
/// Threads that answer tenants, at most.
const MAX_THREADS: usize = 16;
/// How long an end of the server waits for answers to what was asked, and then for the end of runs.
const DRAIN: Duration = Duration::from_secs(30);
/// How often answers are removed that are kept no longer.
const SWEEP: Duration = Duration::from_secs(3600);
/// For how long it is believed that the store can be written, once it was.
const BELIEVED: Duration = Duration::from_secs(1);

/// How a server is started.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The folder that everything is kept in.
    pub data: PathBuf,
    /// What tenants are given.
    pub config: ServerConfig,
    /// The folder that paths of the configuration are relative to.
    pub beside: PathBuf,
}

/// A server with its tenants. Nobody is let in before [`serve`](Server::serve).
#[derive(Debug)]
pub struct Server {
    pub(crate) tenants: Tenants,
    pub(crate) runs: Runs,
    pub(crate) metrics: Metrics,
    /// What the operator changes, and keys that were refused.
    pub(crate) journal: Journal,
    /// Who is signed in.
    pub(crate) dashboard: Sessions,
    /// What is sent to receivers of tenants.
    pub(crate) webhooks: Webhooks,
    /// This start of the server, as no other.
    pub(crate) boot: String,
    /// Lets turns of the agent go that are under way, for the next process to continue.
    pub(crate) release: CancellationToken,
    /// Ends streams that nobody ends.
    pub(crate) ending: CancellationToken,
    /// What the keys are derived from that seal sessions of the Model Context Protocol.
    mcp_root: hmac::Key,
    /// Where runs are done: they outlive the requests that begin them.
    pub(crate) background: Handle,
    data: DataFolder,
    began: Instant,
    written: std::sync::Mutex<Option<Instant>>,
}

fn mcp_root() -> hmac::Key {
    let mut bytes = [0; 32];
    harness_sys::fill_random(&mut bytes);
    hmac::Key::new(hmac::HMAC_SHA256, &bytes)
}

/// Where a server lets clients in.
#[derive(Debug)]
pub struct Doors {
    /// Tenants, with the API and their dashboard.
    pub tenants: Listener,
    /// The operator, with the admin API.
    pub operator: Listener,
    /// The operator's dashboard, at an address of the loopback interface.
    pub operator_dashboard: Option<Listener>,
    /// Whether browsers of tenants get here by TLS alone, its own or a proxy's: cookies are bound to it then.
    pub is_secure: bool,
}

/// The first key of the operator, which was just made.
#[derive(Debug)]
pub struct FirstKey {
    /// The whole of it: nobody sees it again.
    pub text: String,
}

impl Server {
    /// Reads all that the data folder has, and ends runs that were under way when it was last written.
    ///
    /// # Errors
    ///
    /// What is wrong, in one line.
    pub async fn open(settings: Settings) -> Result<(Arc<Self>, Option<FirstKey>), String> {
        let data = DataFolder::open(&settings.data)?;
        let sealer = data.sealer()?;
        let store = Sqlite::open(data.path()).map_err(|error| error.to_string())?;
        backup::clear(&data).map_err(|error| format!("the folder of backups cannot be used: {error}"))?;
        let store: Arc<dyn Store> = Arc::new(store);
        let host = Host::new(HostOptions::default().instances(settings.config.instances));
        let host = host.and_then(|host| host.with_roots(&[data.tenants()])).map_err(|error| error.to_string())?;
        let policy_of = |file: &str| settings.beside.join(file);
        let tenants = Tenants::load(store, host, data.clone(), sealer, &settings.config, policy_of).await?;
        for tenant in tenants.all() {
            let failed = |error| format!("the folder of the tenant `{}` cannot be used: {error}", tenant.id());
            tenant.clear().map_err(failed)?;
        }
        let server = Self {
            tenants,
            runs: Runs::default(),
            metrics: Metrics::default(),
            journal: Journal::open(&data),
            dashboard: Sessions::default(),
            webhooks: Webhooks::default(),
            boot: hex::<8>(),
            release: CancellationToken::new(),
            ending: CancellationToken::new(),
            mcp_root: mcp_root(),
            background: Handle::current(),
            data,
            began: Instant::now(),
            written: std::sync::Mutex::default(),
        };
        let restored = server.data.path().join(RESTORED);
        let is_restored = harness_sys::is_there(&restored);
        server
            .runs
            .recover((&server.tenants.store, &server.webhooks), is_restored)
            .await
            .map_err(|error| error.to_string())?;
        if is_restored {
            let failed = |error| format!("`{}`: {error}", restored.display());
            harness_sys::private::remove(&restored).map_err(failed)?;
        }
        let first = match server.tenants.has_operator() {
            true => None,
            false => {
                let label = "first key".to_owned();
                let wanted = Wanted {
                    tenant: None,
                    role: Role::Operator,
                    label,
                    policy: None,
                    expires: None,
                    workspaces: None,
                    certificate: None,
                };
                let key = server.tenants.create_key(wanted).await;
                Some(key.map_err(|problem| problem.as_json().to_string())?)
            }
        };
        server.journal.started(first.as_ref().map(|key| key.id.as_str())).await?;
        Ok((Arc::new(server), first.map(|key| FirstKey { text: key.text })))
    }

    /// Makes a tenant with a project of these files and a key of its owner, whose text is given back. None: there is a tenant
    /// of this name.
    ///
    /// # Errors
    ///
    /// What went wrong, in one line.
    pub async fn demo(&self, tenant: &str, files: &[(&str, &str)]) -> Result<Option<String>, String> {
        if self.tenants.tenant(tenant).is_some() {
            return Ok(None);
        }
        let shown = |problem: Problem| problem.as_json().to_string();
        let made = self.tenants.create(tenant, None, None).await.map_err(shown)?;
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec()));
        let content = harness_plugin::content::Content::new(files).map_err(|why| why.to_string())?;
        let packed = harness_plugin::archive::pack(&content).map_err(|why| why.to_string())?;
        self.tenants.upload(&made, &packed).await.map_err(shown)?;
        let (tenant, label) = (Some(tenant.to_owned()), "demo".to_owned());
        let wanted = Wanted {
            tenant,
            role: Role::Owner,
            label,
            policy: None,
            expires: None,
            workspaces: None,
            certificate: None,
        };
        Ok(Some(self.tenants.create_key(wanted).await.map_err(shown)?.text))
    }

    /// The folder that everything is kept in.
    pub fn data(&self) -> &DataFolder {
        &self.data
    }

    /// A path of the dashboard where a browser signs in as the owner of a tenant, once and within 10 minutes. None: the
    /// tenant has no key of an owner.
    pub fn sign_in_link(&self, tenant: &str) -> Option<String> {
        let keys = self.tenants.keys_of(Some(tenant));
        let owner = keys.iter().find(|key| key.record.role == Role::Owner && key.record.is_valid(now()))?;
        Some(format!("/dashboard/link/{}", self.dashboard.link(&owner.record.id, self.monotonic() / 1_000_000)))
    }

    /// Lets clients in until `end` is there. Then nobody is let in any more, what was asked is answered, for half a minute at
    /// most, runs end, within as much, and what was used is written.
    ///
    /// # Errors
    ///
    /// That nobody can be let in, or what was used cannot be written.
    pub async fn serve<T>(self: &Arc<Self>, doors: Doors, end: impl Future<Output = T>) -> std::io::Result<T> {
        let Doors { tenants, operator, operator_dashboard, is_secure } = doors;
        let stop = CancellationToken::new();
        let limits = Limits { connections: CONNECTIONS, drain: DRAIN, ..Limits::default() };
        let beside = |listener: Listener, router: Router| {
            let (limits, stop, router) = (limits.clone(), stop.clone(), TowerToHyperService::new(router));
            tokio::spawn(async move {
                let end = stop.cancelled_owned();
                serve_connections(listener, limits, &Threads::none(), router, end, || ()).await
            })
        };
        let admin = beside(operator, api::operator(self));
        let pages = operator_dashboard.map(|listener| beside(listener, dashboard::of_operator(self)));
        let sweeper = {
            let server = self.clone();
            tokio::spawn(async move {
                let mut due = tokio::time::interval(SWEEP);
                loop {
                    due.tick().await;
                    // What the store does not let go of now is removed the next time.
                    let _ = api::sweep(&*server.tenants.store).await;
                    let _ = runs::sweep(&server).await;
                    let _ = webhooks::sweep(&server).await;
                    trail::sweep(&server).await;
                }
            })
        };
        self.runs.resume(self);
        let sending = tokio::spawn(webhooks::run(self.clone()));
        let idle = {
            let server = self.clone();
            tokio::spawn(async move {
                let mut due = tokio::time::interval(mcp::SWEEP);
                loop {
                    due.tick().await;
                    let now = Instant::now();
                    server.tenants.all().iter().for_each(|tenant| tenant.mcp.sweep(now));
                }
            })
        };
        // By TLS or through a proxy, clients come under names that this process does not know.
        let names = if is_secure { Names::Any } else { tenants.names(Vec::new()) };
        let router = TowerToHyperService::new(api::tenants(self, names).merge(dashboard::of_tenants(self, is_secure)));
        // Until the end of this function: what requests have begun there is waited for below.
        let threads = Threads::new(available_parallelism().map_or(1, NonZeroUsize::get).min(MAX_THREADS))?;
        let at_end = || {
            self.ending.cancel();
            self.release.cancel();
        };
        let served = serve_connections(tenants, limits, &threads, router, end, at_end).await;
        let drained = tokio::time::timeout(DRAIN, self.runs.stop_every()).await;
        drop(drained);
        stop.cancel();
        sweeper.abort();
        idle.abort();
        sending.abort();
        for door in [Some(admin), pages].into_iter().flatten() {
            if let Ok(Err(error)) = door.await {
                return Err(error);
            }
        }
        let ended = served?;
        for tenant in self.tenants.all() {
            tenant.ledger.settle().await.map_err(|error| std::io::Error::other(error.to_string()))?;
        }
        Ok(ended)
    }

    /// Does what may take long where it holds up no call: a thread of connections has others to answer. It ends when it is
    /// not waited for any more. None: it has panicked.
    pub(crate) async fn aside<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
        aside(&self.background, work).await
    }

    /// What seals the sessions of a key, the same as long as this process lives.
    pub(crate) fn mcp_key(&self, id: &str) -> [u8; 32] {
        let mut key = [0; 32];
        let tag = hmac::sign(&self.mcp_root, id.as_bytes());
        key.iter_mut().zip(tag.as_ref()).for_each(|(byte, of_tag)| *byte = *of_tag);
        key
    }

    /// Nanoseconds since the server was started: a clock that does not go back.
    pub(crate) fn monotonic(&self) -> u64 {
        // From a minute on, so that a meter has its whole burst at the start.
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX).saturating_add(60_000_000_000)
    }

    /// Whether work may begin that outlives its request: the server is not ending, and what happens can be written.
    pub(crate) async fn accepts_work(&self) -> Result<(), Problem> {
        if self.ending.is_cancelled() {
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "ending", "the server is ending").again(5));
        }
        self.accepts_requests().await
    }

    /// Whether something may be done within a request: what happens can be written. A server that is ending does that still,
    /// for clients that were connected before.
    pub(crate) async fn accepts_requests(&self) -> Result<(), Problem> {
        let is_believed = |at: Instant| at.elapsed() < BELIEVED;
        if self.written.lock().is_ok_and(|written| written.is_some_and(is_believed)) {
            return Ok(());
        }
        self.tenants.store.is_writable().await?;
        if let Ok(mut written) = self.written.lock() {
            *written = Some(Instant::now());
        }
        Ok(())
    }
}

async fn aside<T: Send + 'static>(threads: &Handle, work: impl Future<Output = T> + Send + 'static) -> Option<T> {
    // One that is dropped ends what it has.
    let mut one = JoinSet::new();
    one.spawn_on(work, threads);
    one.join_next().await?.ok()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn what_is_done_aside_is_done_elsewhere_and_no_longer_than_it_is_waited_for() {
        let others =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).thread_name("others").build().unwrap();
        let here = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let threads = others.handle().clone();
        here.block_on(async {
            let name = async { thread::current().name().map(ToOwned::to_owned) };
            assert_eq!(aside(&threads, name).await.flatten().as_deref(), Some("others"));
            assert_eq!(aside(&threads, async { panic!("of a test") }).await, None::<()>);
            let (held, ended) = std::sync::mpsc::channel::<()>();
            let endless = aside(&threads, async move {
                let _held = held;
                std::future::pending::<()>().await;
            });
            assert!(tokio::time::timeout(Duration::from_millis(1), endless).await.is_err());
            // The other end is gone.
            assert!(ended.recv().is_err());
        });
    }
}
