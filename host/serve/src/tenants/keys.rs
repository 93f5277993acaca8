//! The keys of a server: who shows one, and how they come and go.

use std::sync::{Arc, PoisonError};

use axum::http::StatusCode;
use harness_mcp::http::ClientCertificate;
use harness_store::Expected;
use harness_sys::digest::digest;

use super::{KEYS, Tenants, as_bytes, now};
use crate::journal::Refusal;
use crate::key::{self, KeyRecord, NewKey};
use crate::problem::Problem;
use crate::record::State;
use crate::role::Role;
use crate::tenant::{Key, Tenant};

/// Keys of one tenant.
const MAX_KEYS: usize = 100;

/// What a new key is to be.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Whose it is; none: the operator's.
    pub tenant: Option<String>,
    /// What it may do.
    pub role: Role,
    /// What it is called.
    pub label: String,
    /// Rules that narrow its calls.
    pub policy: Option<String>,
    /// When it ends, in milliseconds since 1970.
    pub expires: Option<u64>,
    /// The workspaces that it is narrowed to; none: all of its tenant.
    pub workspaces: Option<Vec<String>>,
    /// The fingerprint of the certificate that it is bound to.
    pub certificate: Option<String>,
}

impl Tenants {
    /// Whether there is a key of the operator.
    pub fn has_operator(&self) -> bool {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.values().any(|key| key.record.tenant.is_none())
    }

    /// The key that this is the text of, if it counts now, on a connection that has shown this certificate; with its tenant.
    pub fn authenticate(
        &self,
        text: &str,
        now: u64,
        certificate: Option<&ClientCertificate>,
    ) -> Option<(Arc<Key>, Option<Arc<Tenant>>)> {
        let id = key::id_of(text)?;
        // Before it is known whether there is such a key: a stranger learns nothing by the time that it takes.
        let digest = digest(text);
        let key = self.keys.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()?;
        if !key.record.has_digest(&digest) {
            return None;
        }
        let found = self.in_force(&key, now).filter(|_| key.record.comes_by(certificate))?;
        key.touch(now);
        Some((key, found))
    }

    /// Whether there is a key of this identifier, in force or not.
    pub(crate) fn has_key(&self, id: &str) -> bool {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).contains_key(id)
    }

    /// What a key is called, if there is one of this identifier.
    pub(crate) fn label_of(&self, id: &str) -> Option<String> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.get(id).map(|key| key.record.label.clone())
    }

    /// The key of this identifier, if it counts now, with its tenant. For those who have shown it before.
    pub(crate) fn key_in_force(&self, id: &str, now: u64) -> Option<(Arc<Key>, Option<Arc<Tenant>>)> {
        let key = self.keys.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()?;
        let tenant = self.in_force(&key, now)?;
        Some((key, tenant))
    }

    /// The tenant of a key that counts now; none for the operator's.
    fn in_force(&self, key: &Key, now: u64) -> Option<Option<Arc<Tenant>>> {
        if !key.record.is_valid(now) {
            return None;
        }
        let Some(tenant) = &key.record.tenant else { return Some(None) };
        let tenant = self.tenant(tenant).filter(|tenant| tenant.record().state == State::Active)?;
        Some(Some(tenant))
    }

    /// Why [`authenticate`](Self::authenticate) refuses a key, and the tenant that it is of, for the audit log of the server.
    pub(crate) fn why_refused(
        &self,
        text: &str,
        now: u64,
        certificate: Option<&ClientCertificate>,
    ) -> (Refusal, Option<String>) {
        let Some(id) = key::id_of(text) else { return (Refusal::Malformed, None) };
        let key = self.keys.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned();
        let Some(key) = key else { return (Refusal::Unknown, None) };
        let why = match () {
            () if !key.record.has_digest(&digest(text)) => Refusal::Secret,
            () if !key.record.is_valid(now) => Refusal::Expired,
            () if !key.record.comes_by(certificate) => Refusal::Certificate,
            () => Refusal::Suspended,
        };
        (why, key.record.tenant.clone())
    }

    /// The keys of a tenant, or of the operator, the oldest first.
    pub fn keys_of(&self, tenant: Option<&str>) -> Vec<Arc<Key>> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let of = |key: &&Arc<Key>| key.record.tenant.as_deref() == tenant;
        let mut keys: Vec<_> = keys.values().filter(of).cloned().collect();
        keys.sort_by(|a, b| (a.record.created, &a.record.id).cmp(&(b.record.created, &b.record.id)));
        keys
    }

    /// Makes a key. Its text is in the answer and nowhere else.
    ///
    /// # Errors
    ///
    /// What was asked for cannot be.
    pub async fn create_key(&self, wanted: Wanted) -> Result<NewKey, Problem> {
        let Wanted { tenant, role, label, policy, expires, workspaces, certificate } = wanted;
        let certificate = certificate.as_deref().map(key::fingerprint).transpose().map_err(Problem::invalid)?;
        self.check_workspaces(tenant.as_deref(), workspaces.as_deref())?;
        if let Some(wrong) = key::label_problem(&label) {
            return Err(Problem::invalid(wrong));
        }
        if (role == Role::Operator) != tenant.is_none() {
            return Err(Problem::invalid("a key of a tenant has another role than `operator`, which is the server's"));
        }
        if certificate.is_some() && tenant.is_none() {
            let why = "a key of the operator is shown at the socket, where there is no certificate to bind it to";
            return Err(Problem::invalid(why));
        }
        if self.keys_of(tenant.as_deref()).len() >= MAX_KEYS {
            return Err(Problem::new(
                StatusCode::CONFLICT,
                "too_many_keys",
                format!("there are {MAX_KEYS} keys already"),
            )
            .hint("remove one that is not used any more"));
        }
        let new = NewKey::random();
        let record = KeyRecord {
            id: new.id.clone(),
            tenant,
            role,
            label,
            digest: digest(&new.text),
            policy,
            created: now(),
            expires,
            workspaces,
            certificate,
        };
        let key = Key::new(record.clone()).map_err(Problem::invalid)?;
        self.store.put(KEYS, &new.id, Expected::Absent, as_bytes(&record)?).await?;
        self.write_keys(|keys| keys.insert(new.id.clone(), Arc::new(key)));
        Ok(new)
    }

    /// Removes a key: no request that begins from then on counts.
    ///
    /// # Errors
    ///
    /// What the store says.
    pub async fn remove_key(&self, id: &str) -> Result<(), Problem> {
        // First where requests look: a store that fails must not leave it valid.
        let removed = self.write_keys(|keys| keys.remove(id));
        let of = removed.as_ref().and_then(|key| key.record.tenant.clone());
        let deleted = self.store.delete(KEYS, id, Expected::Anything).await;
        if let (Err(_), Some(key)) = (&deleted, removed) {
            self.write_keys(|keys| keys.insert(id.to_owned(), key));
        }
        deleted?;
        if let Some(tenant) = of.and_then(|tenant| self.tenant(&tenant)) {
            tenant.mcp.close(id);
        }
        Ok(())
    }
}
