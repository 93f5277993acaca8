//! All tenants and keys of a server: in the store, and in memory for every request.

mod keys;
mod unopened;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use axum::http::StatusCode;
use harness_artifact::server::{DEFAULT_CLASS, ServerConfig};
use harness_capability::env::Variables;
use harness_dispatch::{Host, Project};
use harness_plugin::archive;
use harness_plugin::content::Content;
use harness_policy::text::quoted;
use harness_registry::Registry;
use harness_store::{Expected, Store, StoreError, Versioned};
use harness_sys as sys;

use crate::api;
use crate::budget;
use crate::class::Class;
use crate::data::DataFolder;
use crate::egress::Sent;
use crate::key::{self, KeyRecord};
use crate::prices::Prices;
use crate::problem::Problem;
use crate::record::{self, State, TenantRecord};
use crate::runs;
use crate::seal::Sealer;
use crate::tenant::{AsyncSecrets, Key, Opened, Tenant, Unopened};
use crate::webhooks;
use crate::workspaces::DEFAULT;

pub use keys::Wanted;
pub(crate) use unopened::problem;

/// Buckets of the store.
pub(crate) const TENANTS: &str = "tenants";
pub(crate) const KEYS: &str = "keys";
pub(crate) const SECRETS: &str = "secrets";
/// The policy of a project, in its archive.
const POLICY_FILE: &str = ".harness/harness.md";
/// Values that are read at once.
const PAGE: usize = 500;
/// Secrets of one tenant, and bytes of each.
const MAX_SECRETS: usize = 100;
const MAX_SECRET: usize = 16 << 10;

/// The moment, in milliseconds since 1970.
pub fn now() -> u64 {
    u64::try_from(sys::since_epoch().as_millis()).unwrap_or(u64::MAX)
}

/// All tenants and keys.
#[derive(Debug)]
pub struct Tenants {
    /// What everything is kept in.
    pub store: Arc<dyn Store>,
    host: Host,
    data: DataFolder,
    sealer: Sealer,
    classes: HashMap<String, Arc<Class>>,
    /// What models cost, and what was spent.
    pub(crate) prices: Arc<Prices>,
    /// What was sent for all tenants.
    pub(crate) sent: Arc<Sent>,
    tenants: RwLock<HashMap<String, Arc<Tenant>>>,
    keys: RwLock<HashMap<String, Arc<Key>>>,
    /// Held while blobs of projects come and go: two tenants with the same files have one blob.
    blobs: tokio::sync::Mutex<()>,
}

impl Tenants {
    /// Reads all that the store has.
    ///
    /// # Errors
    ///
    /// What is wrong with it, with the name of what it is about.
    pub async fn load(
        store: Arc<dyn Store>,
        host: Host,
        data: DataFolder,
        sealer: Sealer,
        config: &ServerConfig,
        policy_of: impl Fn(&str) -> std::path::PathBuf,
    ) -> Result<Self, String> {
        let (prices, sent) = (Arc::new(Prices::new(config.prices.clone())), Arc::new(Sent::default()));
        let class = |(name, given): &(String, harness_artifact::server::TenantClass)| {
            let policy = given.policy.as_ref().map_or_else(|| data.default_policy(), |file| policy_of(&file.value));
            (name.clone(), Arc::new(Class::new(name, given.clone(), policy, (prices.clone(), sent.clone()))))
        };
        let classes = config.classes.iter().map(class).collect();
        let all = Self {
            store,
            host,
            data,
            sealer,
            classes,
            prices: prices.clone(),
            sent: sent.clone(),
            tenants: RwLock::default(),
            keys: RwLock::default(),
            blobs: tokio::sync::Mutex::default(),
        };
        for (id, text) in all.values(TENANTS, "").await.map_err(|error| error.to_string())? {
            let record: TenantRecord = serde_json::from_slice(&text)
                .map_err(|error| format!("the tenant {} cannot be read: {error}", quoted(&id)))?;
            let tenant = all.tenant_of(record).map_err(|why| format!("the tenant {}: {why}", quoted(&id)))?;
            all.write_tenants(|tenants| tenants.insert(id, Arc::new(tenant)));
        }
        for (id, text) in all.values(KEYS, "").await.map_err(|error| error.to_string())? {
            let record: KeyRecord = serde_json::from_slice(&text)
                .map_err(|error| format!("the key {} cannot be read: {error}", quoted(&id)))?;
            let key = Key::new(record).map_err(|why| format!("the key {}: {why}", quoted(&id)))?;
            all.write_keys(|keys| keys.insert(id, Arc::new(key)));
        }
        Ok(all)
    }

    /// All values of a bucket whose keys begin so.
    async fn values(&self, bucket: &'static str, prefix: &str) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let mut all: Vec<(String, Vec<u8>)> = Vec::new();
        loop {
            let after = all.last().map(|(key, _)| key.clone());
            let page = self.store.list(bucket, prefix, after.as_deref(), PAGE).await?;
            if page.is_empty() {
                return Ok(all);
            }
            all.extend(page.into_iter().map(|(key, value)| (key, value.value)));
        }
    }

    fn tenant_of(&self, record: TenantRecord) -> Result<Tenant, String> {
        // A class that the configuration has no more: the one that gives least by default.
        let class =
            self.classes.get(&record.class).ok_or_else(|| format!("there is no class {}", quoted(&record.class)))?;
        let folder = self.data.tenant(&record.id);
        Tenant::new(record, class.clone(), folder, self.store.clone())
    }

    fn write_tenants<T>(&self, work: impl FnOnce(&mut HashMap<String, Arc<Tenant>>) -> T) -> T {
        work(&mut self.tenants.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn write_keys<T>(&self, work: impl FnOnce(&mut HashMap<String, Arc<Key>>) -> T) -> T {
        work(&mut self.keys.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// What seals secrets at rest.
    pub(crate) fn sealer(&self) -> &Sealer {
        &self.sealer
    }

    /// A tenant by its identifier.
    pub fn tenant(&self, id: &str) -> Option<Arc<Tenant>> {
        self.tenants.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    /// All tenants, by identifier.
    pub fn all(&self) -> Vec<Arc<Tenant>> {
        let mut all: Vec<_> = self.tenants.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        all.sort_by_key(|tenant| tenant.id());
        all
    }

    /// How many tenants there are.
    pub fn count(&self) -> usize {
        self.tenants.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Makes a tenant.
    ///
    /// # Errors
    ///
    /// There is one, or what was asked for cannot be.
    pub async fn create(&self, id: &str, class: Option<&str>, policy: Option<String>) -> Result<Arc<Tenant>, Problem> {
        if let Some(wrong) = record::id_problem(id) {
            return Err(Problem::invalid(wrong));
        }
        let class = class.unwrap_or(DEFAULT_CLASS).to_owned();
        let record = TenantRecord {
            id: id.to_owned(),
            class,
            state: State::Active,
            policy,
            project: None,
            created: now(),
            workspaces: Vec::new(),
        };
        let tenant = Arc::new(self.tenant_of(record.clone()).map_err(Problem::invalid)?);
        let put = self.store.put(TENANTS, id, Expected::Absent, as_bytes(&record)?).await;
        put.map_err(|error| match error {
            StoreError::Conflict { .. } => {
                Problem::new(StatusCode::CONFLICT, "exists", format!("there is a tenant {}", quoted(id)))
            }
            other => other.into(),
        })?;
        self.write_tenants(|tenants| tenants.insert(id.to_owned(), tenant.clone()));
        Ok(tenant)
    }

    /// Changes the record of a tenant.
    ///
    /// # Errors
    ///
    /// What was asked for cannot be, or someone else has changed it meanwhile.
    pub async fn change(&self, tenant: &Tenant, change: impl FnOnce(&mut TenantRecord)) -> Result<(), Problem> {
        let id = tenant.id();
        let Versioned { version, value } =
            self.store.get(TENANTS, &id).await?.ok_or_else(|| Problem::not_found("there is no such tenant"))?;
        let mut record: TenantRecord = serde_json::from_slice(&value).map_err(|_| Problem::fault())?;
        change(&mut record);
        if let Some(rules) = &record.policy {
            key::narrowing(&format!("tenant {id}"), rules).map_err(Problem::invalid)?;
        }
        self.store.put(TENANTS, &id, Expected::Version(version), as_bytes(&record)?).await?;
        let is_active = record.state == State::Active;
        tenant.set_record(record).map_err(Problem::invalid)?;
        if !is_active {
            tenant.mcp.close_all();
        }
        Ok(())
    }

    /// Removes a tenant, with its keys, secrets, files and record.
    ///
    /// # Errors
    ///
    /// What the store or the system says. It may be asked for again.
    pub async fn remove(&self, tenant: &Tenant) -> Result<(), Problem> {
        let id = tenant.id();
        for key in self.keys_of(Some(&id)) {
            self.remove_key(&key.record.id).await?;
        }
        for (run, _) in self.values(runs::BUCKET, &format!("{id}/")).await? {
            self.store.remove_log(&runs::log_of(&run)).await?;
        }
        for bucket in
            [SECRETS, runs::BUCKET, runs::OPEN, runs::SESSIONS, runs::APPROVALS, budget::BUCKET, api::CHATS, api::ONCE]
        {
            for (name, _) in self.values(bucket, &format!("{id}/")).await? {
                self.store.delete(bucket, &name, Expected::Anything).await?;
            }
        }
        webhooks::forget(&*self.store, &format!("{id}/")).await?;
        for (name, _) in self.values(webhooks::BUCKET, &format!("{id}/")).await? {
            self.store.delete(webhooks::BUCKET, &name, Expected::Anything).await?;
        }
        tenant.remove().await.map_err(|_| Problem::fault())?;
        let _one = self.blobs.lock().await;
        self.store.delete(TENANTS, &id, Expected::Anything).await?;
        self.write_tenants(|tenants| tenants.remove(&id));
        Ok(self.drop_blob(tenant.record().project.clone()).await?)
    }

    /// Sets a secret of a tenant. Nothing reads it back but what the tenant's policy names it for.
    ///
    /// # Errors
    ///
    /// It cannot be one, or there are too many.
    pub async fn set_secret(&self, tenant: &Tenant, name: &str, value: &str) -> Result<(), Problem> {
        if let Some(wrong) = record::secret_problem(name) {
            return Err(Problem::invalid(wrong));
        }
        if value.is_empty() || value.len() > MAX_SECRET || value.contains('\0') {
            return Err(Problem::invalid(format!("a secret is 1 to {MAX_SECRET} bytes of text")));
        }
        let place = format!("{}/{name}", tenant.id());
        let names = self.secret_names(tenant).await?;
        if names.len() >= MAX_SECRETS && !names.iter().any(|there| there == name) {
            return Err(Problem::new(
                StatusCode::CONFLICT,
                "too_many_secrets",
                format!("there are {MAX_SECRETS} secrets"),
            ));
        }
        let sealed = self.sealer.seal(&place, value).map_err(|_| Problem::fault())?;
        self.store.put(SECRETS, &place, Expected::Anything, sealed).await?;
        tenant.forget().await;
        Ok(())
    }

    /// Removes a secret.
    ///
    /// # Errors
    ///
    /// There is none of this name.
    pub async fn remove_secret(&self, tenant: &Tenant, name: &str) -> Result<(), Problem> {
        let place = format!("{}/{name}", tenant.id());
        if self.store.get(SECRETS, &place).await?.is_none() {
            return Err(Problem::not_found(format!("there is no secret {}", quoted(name))));
        }
        self.store.delete(SECRETS, &place, Expected::Anything).await?;
        tenant.forget().await;
        Ok(())
    }

    /// The names of a tenant's secrets.
    ///
    /// # Errors
    ///
    /// What the store says.
    pub async fn secret_names(&self, tenant: &Tenant) -> Result<Vec<String>, Problem> {
        let prefix = format!("{}/", tenant.id());
        let all = self.values(SECRETS, &prefix).await?;
        Ok(all.into_iter().filter_map(|(place, _)| place.strip_prefix(&prefix).map(str::to_owned)).collect())
    }

    /// Takes a project in force that came as an archive. Gives its digest.
    ///
    /// # Errors
    ///
    /// The archive is none, or the project cannot be opened: with all that is wrong. The one before stays in force.
    pub async fn upload(&self, tenant: &Arc<Tenant>, bytes: &[u8]) -> Result<String, Problem> {
        let content = crate::archive::unpack(bytes)
            .map_err(|why| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "archive", why))?;
        tenant.try_out(&self.host, &content).await.map_err(|error| problem(&error))?;
        let packed = archive::pack(&content).map_err(|why| Problem::invalid(why.to_string()))?;
        let _one = self.blobs.lock().await;
        let before = tenant.record().project.clone();
        let digest = self.store.put_blob(packed).await?;
        self.change(tenant, |record| record.project = Some(digest.clone())).await?;
        tenant.replace(&content, &digest).await.map_err(|error| problem(&error))?;
        self.drop_blob(before).await?;
        for workspace in tenant.mcp.workspaces() {
            let opened = self.opened_in(tenant, &workspace).await?;
            tenant.mcp.renew(&opened).await?;
        }
        Ok(digest)
    }

    /// Removes the blob of a project that no tenant has any more.
    async fn drop_blob(&self, digest: Option<String>) -> Result<(), StoreError> {
        let Some(digest) = digest else { return Ok(()) };
        if self.all().iter().any(|tenant| tenant.record().project.as_ref() == Some(&digest)) {
            return Ok(());
        }
        self.store.remove_blob(&digest).await
    }

    /// The project of a tenant, open in its workspace `default`: for what is asked about the project itself.
    ///
    /// # Errors
    ///
    /// It has none, or it cannot be opened.
    pub async fn opened(&self, tenant: &Tenant) -> Result<Arc<Opened>, Problem> {
        self.opened_in(tenant, DEFAULT).await
    }

    /// The project of a tenant, open in a workspace.
    ///
    /// # Errors
    ///
    /// It has none, or it cannot be opened, or there is no such workspace.
    pub async fn opened_in(&self, tenant: &Tenant, workspace: &str) -> Result<Arc<Opened>, Problem> {
        let secrets = Secrets { all: self, tenant };
        tenant.opened(workspace, &self.host, &*self.store, secrets).await.map_err(|error| problem(&error))
    }
}

impl Tenants {
    /// What is seen in the project of a tenant with another `harness.md`. Nothing changes.
    ///
    /// # Errors
    ///
    /// It has no project, or this one cannot be opened: with all that is wrong.
    pub(crate) async fn with_policy<T: Send + 'static>(
        &self,
        tenant: &Tenant,
        text: &str,
        look: impl FnOnce(&Registry) -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let digest = tenant.record().project.clone().ok_or_else(|| problem(&Unopened::None))?;
        let packed = self.store.blob(&digest).await?.ok_or_else(Problem::fault)?;
        let content = archive::unpack(&packed).map_err(|_| Problem::fault())?;
        let others = content.files().filter(|(path, _)| *path != POLICY_FILE);
        let files = others.map(|(path, bytes)| (path.to_owned(), bytes.to_vec()));
        let policy = (POLICY_FILE.to_owned(), text.as_bytes().to_vec());
        let content = Content::new(files.chain([policy])).map_err(|why| Problem::invalid(why.to_string()))?;
        tenant.looked_at(&self.host, &content, look).await.map_err(|error| problem(&error))
    }

    /// The project of a tenant, open once more, with calls that are in no record: for what is only tried out.
    ///
    /// # Errors
    ///
    /// As for [`opened`](Self::opened).
    pub(crate) async fn unrecorded(&self, tenant: &Tenant) -> Result<Project, Problem> {
        self.opened(tenant).await?;
        let secrets = Secrets { all: self, tenant };
        tenant.unrecorded(&self.host, secrets).await.map_err(|error| problem(&error))
    }
}

/// The secrets of a tenant, as the variables that its policy names.
struct Secrets<'s> {
    all: &'s Tenants,
    tenant: &'s Tenant,
}

impl AsyncSecrets for Secrets<'_> {
    async fn read(self) -> Result<Variables, Unopened> {
        let prefix = format!("{}/", self.tenant.id());
        let sealed = self.all.values(SECRETS, &prefix).await.map_err(Unopened::Store)?;
        let of_tenant = |place: &str| !record::is_of_server(place.strip_prefix(&prefix).unwrap_or(place));
        sealed
            .into_iter()
            .filter(|(place, _)| of_tenant(place))
            .map(|(place, sealed)| {
                let value = self.all.sealer.open(&place, &sealed).map_err(|why| Unopened::Host(why.to_owned()))?;
                Ok((place.strip_prefix(&prefix).unwrap_or(&place).to_owned(), value))
            })
            .collect()
    }
}

fn as_bytes(value: &impl serde::Serialize) -> Result<Vec<u8>, Problem> {
    serde_json::to_vec(value).map_err(|_| Problem::fault())
}
