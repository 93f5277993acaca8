//! Webhooks: what happens to a tenant, sent to addresses that the tenant has named.
//!
//! A delivery is a row of the store and a timer. Both are there before what happened is over for the server, and stay until
//! the receiver has taken it: it is sent at least once, always with the same identifier, also after the death of the process.
//!
//! - [`event`]: what happens, and what is sent of it
//! - [`sign`]: secrets and signatures
//! - [`address`]: where something may be sent
//! - [`send`]: one attempt
//! - [`deliver`]: what is due, in turn
//! - [`sweep`]: the removal of what is kept no longer

pub(crate) mod address;
mod deliver;
pub(crate) mod event;
mod send;
mod sign;
mod sweep;

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use axum::http::StatusCode;
use harness_store::{Expected, Store, StoreError, Versioned};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use tokio::sync::Notify;
use url::Url;

pub(crate) use self::deliver::run;
use self::event::{Event, Kind};
pub(crate) use self::sweep::sweep;
use crate::budget::Exceeded;
use crate::key::hex;
use crate::problem::Problem;
use crate::server::Server;
use crate::tenant::Tenant;
use crate::tenants::now;

/// Where the store has webhooks: `TENANT/WEBHOOK`.
pub(crate) const BUCKET: &str = "webhooks";
/// Where it has what is sent: `TENANT/WEBHOOK/DELIVERY`.
pub(crate) const DELIVERIES: &str = "webhook_deliveries";
/// Where it has secrets, sealed: `TENANT/WEBHOOK/signing`, and `TENANT/WEBHOOK/previous` after a rotation.
pub(crate) const SECRETS: &str = "webhook_secrets";
/// What the names of timers begin with, before the key of the delivery.
const TIMER: &str = "webhook/";
/// How long the secret before a rotation signs too, in milliseconds: a day.
const ROTATION: u64 = 86_400_000;
/// Deliveries of a tenant that wait.
const MAX_WAITING: usize = 1_000;
/// Values that are read at once.
const PAGE: usize = 500;

/// A webhook as it is kept, without its secrets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Webhook {
    pub(crate) id: String,
    /// Where it is sent to. Checked when it was set, and again before each attempt.
    pub(crate) url: String,
    pub(crate) events: Vec<Kind>,
    pub(crate) created: u64,
    /// The key that it was made with.
    pub(crate) created_by: String,
    /// Why nothing is sent to it any more. None: it is active.
    pub(crate) disabled: Option<String>,
    /// Since when no attempt has succeeded.
    pub(crate) failing_since: Option<u64>,
    /// Until when the secret before the last rotation signs too.
    pub(crate) previous_until: Option<u64>,
    /// What was not sent, because too much was waiting.
    pub(crate) dropped: u64,
}

/// Something that is sent, as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Delivery {
    /// The same at each attempt.
    pub(crate) id: String,
    pub(crate) kind: Kind,
    pub(crate) created: u64,
    /// What is sent, byte by byte.
    pub(crate) body: String,
    pub(crate) state: DeliveryState,
    pub(crate) attempts: Vec<Attempt>,
    /// When the next attempt is due.
    pub(crate) next: Option<u64>,
}

/// What became of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DeliveryState {
    Waiting,
    Delivered,
    Failed,
}

/// One attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attempt {
    pub(crate) at: u64,
    /// What the receiver answered.
    pub(crate) status: Option<u16>,
    /// Why that is no success.
    pub(crate) error: Option<String>,
}

/// What a server has of webhooks in memory.
#[derive(Debug, Default)]
pub(crate) struct Webhooks {
    /// Wakes up who sends.
    wake: Notify,
    /// Deliveries that wait, by tenant, once they were counted.
    waiting: Mutex<HashMap<String, usize>>,
    /// Held while a tenant's webhooks are counted and one is added.
    adding: tokio::sync::Mutex<()>,
    /// Budgets that were reported as exhausted, with the end of their period.
    exhausted: Mutex<HashMap<(String, &'static str), u64>>,
    /// Deliveries that have a timer, and are about to be written.
    beginning: Mutex<HashSet<String>>,
}

/// What a webhook is to be.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    pub(crate) url: Option<String>,
    pub(crate) events: Option<Vec<Kind>>,
    pub(crate) state: Option<Wanted>,
}

/// The state that a client may set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Wanted {
    Active,
    Disabled,
}

fn place(tenant: &str, id: &str) -> String {
    format!("{tenant}/{id}")
}

fn bytes(value: &impl Serialize) -> Result<Vec<u8>, Problem> {
    serde_json::to_vec(value).map_err(|_| Problem::fault())
}

impl Webhook {
    /// As clients get it.
    pub(crate) fn shown(&self) -> Json {
        json!({
            "id": self.id,
            "url": self.url,
            "events": self.events,
            "state": if self.disabled.is_some() { "disabled" } else { "active" },
            "reason": self.disabled,
            "failing_since": self.failing_since,
            "previous_until": self.previous_until,
            "dropped": self.dropped,
            "created": self.created,
            "created_by": self.created_by,
        })
    }
}

impl Delivery {
    /// As clients get it.
    pub(crate) fn shown(&self) -> Json {
        json!({
            "id": self.id, "type": self.kind, "created": self.created, "state": self.state, "attempts": self.attempts,
            "next": self.next,
        })
    }
}

/// The events of a webhook, each once.
fn events(given: Vec<Kind>) -> Result<Vec<Kind>, Problem> {
    let mut events: Vec<Kind> = Vec::new();
    for kind in given {
        if kind == Kind::Test {
            return Err(Problem::invalid("`webhook.test` is sent when it is asked for, to every webhook"));
        }
        if !events.contains(&kind) {
            events.push(kind);
        }
    }
    if events.is_empty() {
        return Err(Problem::invalid("`events` is empty: nothing would be sent"));
    }
    Ok(events)
}

/// A delivery that is about to be written.
struct Beginning<'a> {
    all: &'a Webhooks,
    key: &'a str,
}

impl<'a> Beginning<'a> {
    fn new(all: &'a Webhooks, key: &'a str) -> Self {
        all.beginning.lock().unwrap_or_else(PoisonError::into_inner).insert(key.to_owned());
        Self { all, key }
    }
}

impl Drop for Beginning<'_> {
    fn drop(&mut self) {
        self.all.beginning.lock().unwrap_or_else(PoisonError::into_inner).remove(self.key);
    }
}

impl Webhooks {
    /// Makes a webhook. Its secret is given back, and never again.
    ///
    /// # Errors
    ///
    /// The class has no room for it, or nothing may be sent there.
    pub(crate) async fn create(
        &self,
        server: &Server,
        tenant: &Tenant,
        by: &str,
        url: &str,
        kinds: Vec<Kind>,
    ) -> Result<(Webhook, String), Problem> {
        let url = address::checked(url, &tenant.class).map_err(|why| address::refused(&why))?;
        let events = events(kinds)?;
        let (most, class) = (tenant.class.webhooks, &tenant.class.name);
        let _one = self.adding.lock().await;
        if self.list(&*server.tenants.store, &tenant.id()).await?.len() >= most {
            let why = match most {
                0 => "the class of this tenant has no webhooks".to_owned(),
                most => format!("there are {most} webhooks"),
            };
            let problem = Problem::new(StatusCode::CONFLICT, "too_many_webhooks", why);
            return Err(problem.with("limit", "webhooks").with("set_by", format!("the class `{class}` of the tenant")));
        }
        let webhook = Webhook {
            id: format!("wh_{:011x}{}", now(), hex::<8>()),
            url: url.to_string(),
            events,
            created: now(),
            created_by: by.to_owned(),
            disabled: None,
            failing_since: None,
            previous_until: None,
            dropped: 0,
        };
        let secret = sign::fresh();
        let here = place(&tenant.id(), &webhook.id);
        self.put_secret(server, &format!("{here}/signing"), &secret).await?;
        server.tenants.store.put(BUCKET, &here, Expected::Absent, bytes(&webhook)?).await?;
        Ok((webhook, secret))
    }

    async fn put_secret(&self, server: &Server, at: &str, secret: &str) -> Result<(), Problem> {
        let sealed = server.tenants.sealer().seal(at, secret).map_err(|_| Problem::fault())?;
        server.tenants.store.put(SECRETS, at, Expected::Anything, sealed).await?;
        Ok(())
    }

    /// The secrets that sign now, the newest first.
    async fn secrets(&self, server: &Server, tenant: &str, webhook: &Webhook) -> Result<Vec<String>, Problem> {
        let here = place(tenant, &webhook.id);
        let mut names = vec![format!("{here}/signing")];
        if webhook.previous_until.is_some_and(|until| until > now()) {
            names.push(format!("{here}/previous"));
        }
        let mut secrets = Vec::new();
        for name in names {
            let Some(sealed) = server.tenants.store.get(SECRETS, &name).await? else { continue };
            secrets.push(server.tenants.sealer().open(&name, &sealed.value).map_err(|_| Problem::fault())?);
        }
        Ok(secrets)
    }

    /// The webhooks of a tenant, the oldest first.
    pub(crate) async fn list(&self, store: &dyn Store, tenant: &str) -> Result<Vec<Webhook>, Problem> {
        let page = store.list(BUCKET, &place(tenant, ""), None, PAGE).await?;
        page.iter().map(|(_, found)| serde_json::from_slice(&found.value).map_err(|_| Problem::fault())).collect()
    }

    /// One of them, and its version.
    pub(crate) async fn find(&self, store: &dyn Store, tenant: &str, id: &str) -> Result<(Webhook, u64), Problem> {
        let found = store.get(BUCKET, &place(tenant, id)).await?;
        let Versioned { version, value } = found.ok_or_else(|| Problem::not_found("there is no such webhook"))?;
        Ok((serde_json::from_slice(&value).map_err(|_| Problem::fault())?, version))
    }

    /// Changes one of them.
    ///
    /// # Errors
    ///
    /// There is none, or it cannot be so.
    pub(crate) async fn change(
        &self,
        server: &Server,
        tenant: &Tenant,
        id: &str,
        change: Change,
    ) -> Result<Webhook, Problem> {
        let url = change.url.as_deref().map(|url| address::checked(url, &tenant.class)).transpose();
        let url: Option<Url> = url.map_err(|why| address::refused(&why))?;
        let kinds = change.events.map(events).transpose()?;
        let store = &*server.tenants.store;
        let (mut webhook, version) = self.find(store, &tenant.id(), id).await?;
        if let Some(url) = url {
            webhook.url = url.to_string();
        }
        if let Some(kinds) = kinds {
            webhook.events = kinds;
        }
        match change.state {
            Some(Wanted::Active) => (webhook.disabled, webhook.failing_since) = (None, None),
            Some(Wanted::Disabled) if webhook.disabled.is_none() => {
                webhook.disabled = Some("it was disabled by a client".to_owned());
            }
            Some(Wanted::Disabled) | None => {}
        }
        store.put(BUCKET, &place(&tenant.id(), id), Expected::Version(version), bytes(&webhook)?).await?;
        Ok(webhook)
    }

    /// Gives it another secret. The one before signs too for a day.
    ///
    /// # Errors
    ///
    /// There is no such webhook.
    pub(crate) async fn rotate(&self, server: &Server, tenant: &str, id: &str) -> Result<(Webhook, String), Problem> {
        let store = &*server.tenants.store;
        let (mut webhook, version) = self.find(store, tenant, id).await?;
        let here = place(tenant, id);
        let name = format!("{here}/signing");
        let before = store.get(SECRETS, &name).await?.ok_or_else(Problem::fault)?;
        let before = server.tenants.sealer().open(&name, &before.value).map_err(|_| Problem::fault())?;
        webhook.previous_until = Some(now().saturating_add(ROTATION));
        // First what would be lost: a process that ends in between has both, and clients verify with either.
        self.put_secret(server, &format!("{here}/previous"), &before).await?;
        store.put(BUCKET, &here, Expected::Version(version), bytes(&webhook)?).await?;
        let secret = sign::fresh();
        self.put_secret(server, &name, &secret).await?;
        Ok((webhook, secret))
    }

    /// Removes it, with what waits to be sent to it.
    ///
    /// # Errors
    ///
    /// There is no such webhook.
    pub(crate) async fn remove(&self, store: &dyn Store, tenant: &str, id: &str) -> Result<(), Problem> {
        self.find(store, tenant, id).await?;
        let here = place(tenant, id);
        store.delete(BUCKET, &here, Expected::Anything).await?;
        forget(store, &format!("{here}/")).await?;
        self.waiting().remove(tenant);
        Ok(())
    }

    /// Deliveries of a webhook after one of them, the oldest first.
    pub(crate) async fn deliveries(
        &self,
        store: &dyn Store,
        (tenant, id): (&str, &str),
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<Delivery>, Problem> {
        self.find(store, tenant, id).await?;
        let prefix = format!("{}/", place(tenant, id));
        let after = after.map(|after| format!("{prefix}{after}"));
        let page = store.list(DELIVERIES, &prefix, after.as_deref(), most).await?;
        page.iter().map(|(_, found)| serde_json::from_slice(&found.value).map_err(|_| Problem::fault())).collect()
    }

    /// Sends an event to one webhook, whatever it is for.
    ///
    /// # Errors
    ///
    /// There is no such webhook, or it is disabled.
    pub(crate) async fn test(&self, server: &Server, tenant: &str, id: &str) -> Result<Delivery, Problem> {
        let store = &*server.tenants.store;
        let (webhook, _) = self.find(store, tenant, id).await?;
        if let Some(why) = &webhook.disabled {
            let problem = Problem::new(StatusCode::CONFLICT, "disabled", format!("the webhook is disabled: {why}"));
            return Err(problem.hint("`PATCH` it with `{\"state\": \"active\"}`"));
        }
        let event = Event::test(&hex::<8>());
        let delivery = self.enqueue(store, tenant, &webhook, &event).await?;
        delivery.ok_or_else(|| {
            let why = format!("{MAX_WAITING} deliveries of this tenant wait");
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "busy", why).with("limit", "webhook_deliveries").again(60)
        })
    }

    /// Sends an event to the webhooks of a tenant that are for it. The same event is sent once, however often this is called.
    pub(crate) async fn emit(&self, store: &dyn Store, tenant: &str, event: &Event) -> Result<(), Problem> {
        for webhook in self.list(store, tenant).await? {
            if webhook.disabled.is_none() && webhook.events.contains(&event.kind) {
                self.enqueue(store, tenant, &webhook, event).await?;
            }
        }
        Ok(())
    }

    /// That a budget is used up: once in its period.
    pub(crate) async fn exhausted(&self, server: &Server, tenant: &str, exceeded: &Exceeded) {
        let (budget, resets) = (exceeded.budget, exceeded.resets);
        let known =
            self.exhausted.lock().unwrap_or_else(PoisonError::into_inner).get(&(tenant.to_owned(), budget)).copied();
        if known == Some(resets) {
            return;
        }
        let event = Event::budget(exceeded);
        if self.emit(&*server.tenants.store, tenant, &event).await.is_ok() {
            let mut all = self.exhausted.lock().unwrap_or_else(PoisonError::into_inner);
            all.insert((tenant.to_owned(), budget), resets);
        }
    }

    /// Keeps something to be sent. None: too much of the tenant waits, which its webhook counts.
    async fn enqueue(
        &self,
        store: &dyn Store,
        tenant: &str,
        webhook: &Webhook,
        event: &Event,
    ) -> Result<Option<Delivery>, Problem> {
        let id = event.id_for(tenant, &webhook.id);
        let here = format!("{}/{id}", place(tenant, &webhook.id));
        if store.get(DELIVERIES, &here).await?.is_some() {
            return Ok(None);
        }
        if self.count(store, tenant).await? >= MAX_WAITING {
            let (mut webhook, version) = self.find(store, tenant, &webhook.id).await?;
            webhook.dropped = webhook.dropped.saturating_add(1);
            // Two at one time count as one.
            let _ = store.put(BUCKET, &place(tenant, &webhook.id), Expected::Version(version), bytes(&webhook)?).await;
            return Ok(None);
        }
        let delivery = Delivery {
            body: event.body(&id),
            id,
            kind: event.kind,
            created: now(),
            state: DeliveryState::Waiting,
            attempts: Vec::new(),
            next: Some(now()),
        };
        // The timer first: one without its delivery is removed when it is due, unless that is still to come.
        let _beginning = Beginning::new(self, &here);
        store.set_timer(&format!("{TIMER}{here}"), now(), Vec::new()).await?;
        match store.put(DELIVERIES, &here, Expected::Absent, bytes(&delivery)?).await {
            Ok(_) => {}
            Err(StoreError::Conflict { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        *self.waiting().entry(tenant.to_owned()).or_default() += 1;
        self.wake.notify_one();
        Ok(Some(delivery))
    }

    /// Whether a delivery is about to be written.
    fn is_beginning(&self, key: &str) -> bool {
        self.beginning.lock().unwrap_or_else(PoisonError::into_inner).contains(key)
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, HashMap<String, usize>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets what is in memory of a tenant that was removed: another one may get its name.
    pub(crate) fn forget_tenant(&self, tenant: &str) {
        self.waiting().remove(tenant);
        self.exhausted.lock().unwrap_or_else(PoisonError::into_inner).retain(|(of, _), _| of != tenant);
    }

    /// One delivery of a tenant waits no more.
    fn ended(&self, tenant: &str) {
        if let Some(count) = self.waiting().get_mut(tenant) {
            *count = count.saturating_sub(1);
        }
    }

    /// Deliveries of a tenant that wait. They are counted once, then kept in mind.
    async fn count(&self, store: &dyn Store, tenant: &str) -> Result<usize, Problem> {
        if let Some(count) = self.waiting().get(tenant) {
            return Ok(*count);
        }
        let (mut count, mut after) = (0, None::<String>);
        loop {
            let page = store.list(DELIVERIES, &place(tenant, ""), after.as_deref(), PAGE).await?;
            let Some((last, _)) = page.last() else { break };
            after = Some(last.clone());
            let waits = |value: &[u8]| {
                serde_json::from_slice::<Delivery>(value).is_ok_and(|one| one.state == DeliveryState::Waiting)
            };
            count += page.iter().filter(|(_, found)| waits(&found.value)).count();
        }
        Ok(*self.waiting().entry(tenant.to_owned()).or_insert(count))
    }
}

/// Removes deliveries, their timers and secrets of places that begin so: those of a webhook, or of a tenant.
pub(crate) async fn forget(store: &dyn Store, prefix: &str) -> Result<(), StoreError> {
    for bucket in [DELIVERIES, SECRETS] {
        loop {
            let page = store.list(bucket, prefix, None, PAGE).await?;
            if page.is_empty() {
                break;
            }
            for (name, _) in page {
                if bucket == DELIVERIES {
                    store.cancel_timer(&format!("{TIMER}{name}")).await?;
                }
                store.delete(bucket, &name, Expected::Anything).await?;
            }
        }
    }
    Ok(())
}
