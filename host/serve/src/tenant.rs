//! One tenant: its record, its meters, and its project once something was asked of it.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use harness_agent::{Configured, Models};
use harness_capability::env::Variables;
use harness_capability::fs::{SpaceQuota, Used, Workspace};
use harness_capability::outbound::Outbound;
use harness_capability::system::System;
use harness_dispatch::{Host, OpenError, Options, Project};
use harness_plugin::content::Content;
use harness_policy::layer::Layer;
use harness_registry::{Machine, Registry};
use harness_sandbox::scheduling::quota::Share;
use harness_store::Store;
use harness_sys::{self as sys, private, tree};
use tokio::sync::Semaphore;

use crate::archive::OF_HOST;
use crate::budget::Ledger;
use crate::changing::Changing;
use crate::class::Class;
use crate::egress::Egress;
use crate::key::{KeyRecord, narrowing};
use crate::mcp::Endpoints;
use crate::metered::{Meter as ModelMeter, Metered};
use crate::rate::Meter;
use crate::record::TenantRecord;
use crate::workspaces::{DEFAULT, Named, Spaces};

/// What the folder begins with that an upload is tried out in.
const INCOMING: &str = "incoming-";

/// A key of a tenant, ready to be used.
#[derive(Debug)]
pub struct Key {
    /// As it is kept.
    pub record: KeyRecord,
    /// The rules that narrow its calls.
    pub layer: Option<Layer>,
    /// When it was last used, in milliseconds since 1970; 0: not since the server was started.
    pub used: AtomicU64,
}

impl Key {
    /// A key as it is kept.
    ///
    /// # Errors
    ///
    /// What is wrong with its rules.
    pub fn new(record: KeyRecord) -> Result<Self, String> {
        let layer =
            record.policy.as_deref().map(|rules| narrowing(&format!("key {}", record.id), rules)).transpose()?;
        Ok(Self { record, layer, used: AtomicU64::new(0) })
    }

    /// Says that it is used.
    pub fn touch(&self, now: u64) {
        self.used.store(now, Ordering::Relaxed);
    }
}

/// A project that is open in a workspace, with the models that it names.
pub struct Opened {
    /// The project.
    pub project: Project,
    /// Its models, at public addresses alone. What they take is counted.
    pub models: Arc<dyn Models>,
    /// The workspace: it is in use as long as this is.
    workspace: Arc<Named>,
}

impl Opened {
    /// The name of its workspace.
    pub fn workspace(&self) -> &str {
        &self.workspace.name
    }

    /// The same for the audit log, which does not say it of the usual one.
    pub(crate) fn other_workspace(&self) -> Option<String> {
        Some(self.workspace().to_owned()).filter(|name| name != DEFAULT)
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Opened")
    }
}

/// A tenant. Until something is asked of its project, nothing of that is in memory.
#[derive(Debug)]
pub struct Tenant {
    /// As it is kept.
    record: RwLock<Arc<TenantRecord>>,
    /// The rules of its record.
    layer: RwLock<Option<Layer>>,
    /// Its class.
    pub class: Arc<Class>,
    /// Its folder.
    folder: PathBuf,
    /// Its requests.
    pub requests: Meter,
    /// What it uses.
    pub ledger: Arc<Ledger>,
    /// Runs at one time.
    pub runs: Arc<Semaphore>,
    /// What its workspaces may hold, and what they do.
    spaces: Spaces,
    /// The host, with the share of this tenant.
    host: OnceLock<Host>,
    /// Its project, by the workspace that it is open in. Changed while that is opened or replaced.
    opened: Changing<HashMap<String, Arc<Opened>>>,
    /// What its keys are served by of the Model Context Protocol.
    pub(crate) mcp: Endpoints,
    /// Whether it was removed: what was asked before is not done after.
    is_removed: AtomicBool,
}

impl Tenant {
    /// A tenant as it is kept.
    ///
    /// # Errors
    ///
    /// What is wrong with its rules.
    pub fn new(
        record: TenantRecord,
        class: Arc<Class>,
        folder: PathBuf,
        store: Arc<dyn Store>,
    ) -> Result<Self, String> {
        let layer = of_record(&record)?;
        let ledger = Arc::new(Ledger::new(&record.id, &class.given.budgets, class.prices.are_set(), store));
        Ok(Self {
            layer: RwLock::new(layer),
            requests: Meter::new(class.requests),
            runs: Arc::new(Semaphore::new(class.runs)),
            spaces: Spaces::default(),
            host: OnceLock::new(),
            ledger,
            class,
            folder,
            record: RwLock::new(Arc::new(record)),
            opened: Changing::default(),
            mcp: Endpoints::default(),
            is_removed: AtomicBool::new(false),
        })
    }

    /// As it is kept.
    pub fn record(&self) -> Arc<TenantRecord> {
        self.record.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Its identifier.
    pub fn id(&self) -> String {
        self.record().id.clone()
    }

    /// Takes another record of it in force.
    ///
    /// # Errors
    ///
    /// What is wrong with its rules; the one before stays.
    pub fn set_record(&self, record: TenantRecord) -> Result<(), String> {
        let layer = of_record(&record)?;
        *self.layer.write().unwrap_or_else(PoisonError::into_inner) = layer;
        *self.record.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(record);
        Ok(())
    }

    /// What narrows each call with a key: the tenant's rules, and the key's.
    pub fn layers(&self, key: &Key) -> Vec<Layer> {
        let own = self.layer.read().unwrap_or_else(PoisonError::into_inner).clone();
        own.into_iter().chain(key.layer.clone()).collect()
    }

    /// The folder of its project.
    pub fn project_folder(&self) -> PathBuf {
        self.folder.join("project")
    }

    /// The folder that its tools work in, in a workspace.
    pub(crate) fn workspace(&self, name: &str) -> PathBuf {
        if name == DEFAULT { self.folder.join("workspace") } else { self.other_workspaces().join(name) }
    }

    /// The folder of the workspaces beside `default`.
    fn other_workspaces(&self) -> PathBuf {
        self.folder.join("workspaces")
    }

    /// The names of its workspaces.
    pub(crate) fn workspaces(&self) -> Vec<String> {
        std::iter::once(DEFAULT.to_owned()).chain(self.record().workspaces.iter().cloned()).collect()
    }

    fn named(&self, workspace: &str) -> Arc<Named> {
        self.spaces.of(workspace, || self.class.space())
    }

    /// What a workspace holds, and may hold.
    ///
    /// # Errors
    ///
    /// It cannot be counted.
    pub(crate) async fn space_used(&self, workspace: &str) -> Result<(Used, SpaceQuota), Unopened> {
        let (folder, named) = (self.workspace(workspace), self.named(workspace));
        let quota = named.space.quota().clone();
        let used = off_thread(move || {
            if sys::is_gone(&folder) {
                return Ok(Some(Used::default()));
            }
            Workspace::open(&folder)?.with_space(Some(named.space.clone())).used()
        });
        let used = used.await?.map_err(|error| Unopened::Host(error.to_string()))?;
        Ok((used.unwrap_or_default(), quota))
    }

    /// Its project in a workspace, if it is open there and nothing changes that.
    pub(crate) fn open_in(&self, workspace: &str) -> Option<Arc<Opened>> {
        self.opened.look(|opened| opened.get(workspace).cloned()).flatten()
    }

    /// Its project in a workspace. The first time it is opened, and its files are written where they are not there.
    ///
    /// # Errors
    ///
    /// It has none, or it cannot be opened.
    pub async fn opened(
        &self,
        workspace: &str,
        host: &Host,
        store: &dyn Store,
        variables: impl AsyncSecrets,
    ) -> Result<Arc<Opened>, Unopened> {
        if let Some(opened) = self.open_in(workspace) {
            return Ok(opened);
        }
        let mut opened = self.opened.change().await;
        if let Some(opened) = opened.get(workspace) {
            return Ok(opened.clone());
        }
        self.is_there()?;
        if workspace != DEFAULT && !self.record().workspaces.iter().any(|name| name == workspace) {
            return Err(Unopened::NoWorkspace(workspace.to_owned()));
        }
        let digest = self.record().project.clone().ok_or(Unopened::None)?;
        if !self.has(&digest) {
            let packed = store.blob(&digest).await.map_err(Unopened::Store)?;
            let packed =
                packed.ok_or_else(|| Unopened::Host("the files of the project are not in the store".to_owned()))?;
            let content = harness_plugin::archive::unpack(&packed).map_err(|why| Unopened::Host(why.to_string()))?;
            self.write(&content, &digest).map_err(|error| Unopened::Host(error.to_string()))?;
        }
        let variables = variables.read().await?;
        let folder = self.workspace(workspace);
        tree::create(&folder).map_err(|error| Unopened::Host(error.to_string()))?;
        let new = Arc::new(self.open(workspace, host, variables).await?);
        opened.insert(workspace.to_owned(), new.clone());
        Ok(new)
    }

    /// Whether its folder has the files of this project, whole.
    fn has(&self, digest: &str) -> bool {
        sys::read_at_most(&self.marker(), 256).is_ok_and(|there| there == digest)
    }

    fn marker(&self) -> PathBuf {
        self.folder.join("project.digest")
    }

    /// Writes the files of a project. The marker is there only while they are whole.
    fn write(&self, content: &Content, digest: &str) -> std::io::Result<()> {
        private::remove(&self.marker())?;
        tree::create(&self.workspace(DEFAULT))?;
        tree::replace(&self.project_folder(), &OF_HOST, content.files())?;
        private::write(&self.marker(), digest)
    }

    /// What leaves the machine for it.
    fn outbound(&self) -> Outbound {
        let (ledger, sent) = (self.ledger.clone(), self.class.sent.clone());
        Egress { ledger, sent, set_by: self.class.set_by() }.outbound()
    }

    fn options(&self, workspace: &Named, variables: Variables) -> Options {
        Options {
            workspace: Some(self.workspace(&workspace.name)),
            space: Some(workspace.space.clone()),
            quota: self.class.quota,
            system: System::default().with_variables(variables),
            outbound: self.outbound(),
            machine: Machine::Server(self.class.policy.clone()),
            ..Options::default()
        }
    }

    async fn open(&self, workspace: &str, host: &Host, variables: Variables) -> Result<Opened, Unopened> {
        // All its workspaces have one share together.
        let host = self.host.get_or_init(|| host.with_share(self.class.quota)).clone();
        let workspace = self.named(workspace);
        let (root, options) = (self.project_folder(), self.options(&workspace, variables.clone()));
        let models_root = root.clone();
        let project = off_thread(move || host.open(&root, options)).await?.map_err(Unopened::Project)?;
        let models = Configured::new(&models_root, &project.loaded().policy().models, &variables).at_public_addresses();
        let models = models.counted_by(self.outbound());
        let (ledger, prices) = (self.ledger.clone(), self.class.prices.clone());
        let meter = ModelMeter { ledger, prices, set_by: self.class.set_by() };
        Ok(Opened { project, models: Arc::new(Metered { models: Arc::new(models), meter }), workspace })
    }

    /// Its project once more, whose calls are in no record. Its files are there: it was opened before.
    ///
    /// # Errors
    ///
    /// It cannot be opened.
    pub async fn unrecorded(&self, host: &Host, variables: impl AsyncSecrets) -> Result<Project, Unopened> {
        let variables = variables.read().await?;
        // While it is held, no upload replaces the files.
        let _whole = self.opened.change().await;
        self.is_there()?;
        let options = Options { audit: false, ..self.options(&self.named(DEFAULT), variables) };
        let (host, root) = (host.clone(), self.project_folder());
        off_thread(move || host.open(&root, options)).await?.map_err(Unopened::Project)
    }

    /// Whether a project can be opened for this tenant: as if it was uploaded, and nothing else changes.
    ///
    /// # Errors
    ///
    /// Why not.
    pub async fn try_out(&self, host: &Host, content: &Content) -> Result<(), Unopened> {
        self.looked_at(host, content, |_| ()).await
    }

    /// What is seen in a project that is opened for that, as if it was uploaded.
    ///
    /// # Errors
    ///
    /// It cannot be opened.
    pub(crate) async fn looked_at<T: Send + 'static>(
        &self,
        host: &Host,
        content: &Content,
        look: impl FnOnce(&Registry) -> T + Send + 'static,
    ) -> Result<T, Unopened> {
        let folder = self.folder.join(format!("{INCOMING}{}", crate::key::hex::<8>()));
        let host_error = |error: std::io::Error| Unopened::Host(error.to_string());
        self.is_there()?;
        tree::create(&self.folder).map_err(host_error)?;
        tree::create(&self.workspace(DEFAULT)).map_err(host_error)?;
        let written = tree::write(&folder, content.files());
        let opened = match written {
            Ok(()) => {
                let options = Options { audit: false, ..self.options(&self.named(DEFAULT), Variables::default()) };
                let (host, root) = (host.clone(), folder.clone());
                let open = move || host.open(&root, options).map(|project| look(project.loaded().registry()));
                off_thread(open).await.and_then(|opened| opened.map_err(Unopened::Project))
            }
            Err(error) => Err(host_error(error)),
        };
        tree::remove(&folder).map_err(host_error)?;
        opened
    }

    /// Takes the files of another project in force. Calls that are under way keep what they began with.
    ///
    /// # Errors
    ///
    /// They cannot be written, or opened.
    pub async fn replace(&self, content: &Content, digest: &str) -> Result<(), Unopened> {
        let opened = self.opened.change().await;
        self.is_there()?;
        self.write(content, digest).map_err(|error| Unopened::Host(error.to_string()))?;
        let all: Vec<_> = opened.values().cloned().collect();
        let reload = move || all.iter().try_for_each(|opened| opened.project.reload());
        off_thread(reload).await?.map_err(Unopened::Project)
    }

    /// Its part of the machine, once its project was opened.
    pub(crate) fn share(&self) -> Option<Arc<Share>> {
        self.host.get().map(|host| host.share().clone())
    }

    /// Lets the next call open the project anew, with the secrets that there are then.
    pub async fn forget(&self) {
        self.opened.change().await.clear();
    }

    /// Removes a workspace in which nothing is under way: first `forgotten` takes its name from where it is kept, then its
    /// files go. Whether there was nothing under way.
    ///
    /// # Errors
    ///
    /// What `forgotten` says, or the system.
    pub(crate) async fn remove_workspace<E: From<Unopened>>(
        &self,
        name: &str,
        forgotten: impl Future<Output = Result<(), E>>,
    ) -> Result<bool, E> {
        let mut opened = self.opened.change().await;
        self.is_there()?;
        self.mcp.close_idle_in(name);
        // What is only kept for the next call holds nothing up.
        if opened.get(name).is_some_and(|opened| Arc::strong_count(opened) == 1) {
            opened.remove(name);
        }
        if opened.contains_key(name) || !self.spaces.forget(name) {
            return Ok(false);
        }
        forgotten.await?;
        let folder = self.workspace(name);
        let removed = off_thread(move || tree::remove(&folder)).await?;
        removed.map_err(|error| Unopened::Host(error.to_string()))?;
        Ok(true)
    }

    /// Removes what uploads have left that a death of the process ended.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub(crate) fn clear(&self) -> std::io::Result<()> {
        if sys::is_gone(&self.folder) {
            return Ok(());
        }
        let is_left = |path: &&PathBuf| {
            path.file_name().and_then(std::ffi::OsStr::to_str).is_some_and(|name| name.starts_with(INCOMING))
        };
        sys::entries(&self.folder)?.iter().filter(is_left).try_for_each(|path| tree::remove(path).map(|_| ()))?;
        // Nor is a workspace there whose name is gone.
        let folder = self.other_workspaces();
        if sys::is_gone(&folder) {
            return Ok(());
        }
        let record = self.record();
        let is_named = |path: &PathBuf| {
            let name = path.file_name().and_then(std::ffi::OsStr::to_str);
            name.is_some_and(|name| record.workspaces.iter().any(|one| one == name))
        };
        sys::entries(&folder)?.iter().filter(|path| !is_named(path)).try_for_each(|path| tree::remove(path).map(|_| ()))
    }

    /// Removes its folder, with the record of its calls.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub async fn remove(&self) -> std::io::Result<()> {
        let mut opened = self.opened.change().await;
        self.is_removed.store(true, Ordering::Release);
        self.mcp.close_all();
        opened.clear();
        tree::remove(&self.folder).map(|_| ())
    }

    /// That it was not removed.
    fn is_there(&self) -> Result<(), Unopened> {
        if self.is_removed.load(Ordering::Acquire) { Err(Unopened::None) } else { Ok(()) }
    }
}

/// The secrets of a tenant, read when they are needed.
pub trait AsyncSecrets {
    /// Reads them.
    fn read(self) -> impl Future<Output = Result<Variables, Unopened>> + Send;
}

/// Why a project is not open.
#[derive(Debug)]
pub enum Unopened {
    /// There is none yet.
    None,
    /// The tenant has no workspace of this name.
    NoWorkspace(String),
    /// It cannot be opened.
    Project(OpenError),
    /// What the store says.
    Store(harness_store::StoreError),
    /// The server failed.
    Host(String),
}

/// Does what waits for the disk on a thread for that.
async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Unopened> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Unopened::Host("the project was not opened".to_owned()))
}

fn of_record(record: &TenantRecord) -> Result<Option<Layer>, String> {
    record.policy.as_deref().map(|rules| narrowing(&format!("tenant {}", record.id), rules)).transpose()
}
