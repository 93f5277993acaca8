//! The audit log of the server itself: what its operator changes, and keys that are refused.
//!
//! It is a chain of lines like the audit logs of tenants, in `DATA/audit`. A change has two lines: `change` before it is
//! made, and `changed` with how it ended. A change that cannot be recorded is not made. Neither line has a secret, a key
//! or a file of a project.
//!
//! Anyone who reaches the server can show wrong keys. So their lines are bounded in rate, and the next line that is
//! written says how many were left out.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::{Method, StatusCode, Uri};
use harness_artifact::server::Rate;
use harness_audit::{AuditWriter, Entry, Log, MAX_NAME, MAX_TEXT};
use serde_json::Value as Json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::data::DataFolder;
use crate::key::{self, KeyRecord, hex};
use crate::problem::Problem;
use crate::rate::Meter;

/// Lines about refused keys: a hundred at once, and then ten in a minute, which is 5 MB in a day.
const REFUSED: Rate = Rate { per_minute: 10, burst: 100 };

/// What a handler adds to the line about the change that it has made.
#[derive(Debug, Clone)]
pub(crate) struct Note(pub(crate) Json);

/// The audit log of the server.
#[derive(Debug)]
pub(crate) struct Journal {
    log: Log,
    refused: Meter,
    left_out: AtomicU64,
}

/// A change whose first line is written.
#[derive(Debug)]
pub(crate) struct Begun {
    /// The identifier that both of its lines have.
    request: String,
}

/// Why a key is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// What was shown is no key.
    Malformed,
    /// There is no key with this identifier.
    Unknown,
    /// There is one, and its secret is another.
    Secret,
    /// Its time is over.
    Expired,
    /// It is bound to another certificate than the connection has shown.
    Certificate,
    /// Its tenant is suspended, or was removed.
    Suspended,
    /// It is valid, and not one of the operator.
    Role,
}

impl Refusal {
    fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Unknown => "unknown",
            Self::Secret => "secret",
            Self::Expired => "expired",
            Self::Certificate => "certificate",
            Self::Suspended => "suspended",
            Self::Role => "role",
        }
    }
}

impl Journal {
    /// The log in a data folder. Nothing is opened yet.
    pub(crate) fn open(data: &DataFolder) -> Self {
        let log = AuditWriter::new().log(&data.audit());
        Self { log, refused: Meter::new(REFUSED), left_out: AtomicU64::new(0) }
    }

    /// An entry of this moment.
    fn entry(&self) -> std::io::Result<Entry> {
        let mut entry = self.log.entry()?;
        let now = OffsetDateTime::UNIX_EPOCH + harness_sys::since_epoch();
        entry.put("time", &now.format(&Rfc3339).unwrap_or_default());
        Ok(entry)
    }

    /// Records a start of the server; `key` is the first key of the operator, if it was just made.
    ///
    /// # Errors
    ///
    /// The log cannot be written, in one line.
    pub(crate) async fn started(&self, key: Option<&str>) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("the audit log of the server cannot be written: {error}");
        let mut entry = self.entry().map_err(failed)?;
        entry.put("event", "started");
        entry.put("version", env!("CARGO_PKG_VERSION"));
        entry.put("first_key", &key);
        self.log.append(entry).await.map_err(failed)
    }

    /// Records that a change begins.
    ///
    /// # Errors
    ///
    /// It cannot be recorded, and must not be made.
    pub(crate) async fn begin(&self, by: &KeyRecord, method: &Method, uri: &Uri) -> Result<Begun, Problem> {
        let begun = Begun { request: format!("adm_{}", hex::<8>()) };
        // Whether the files are those that were written.
        self.log.ready().await.map_err(|_| unwritable("the change was not made"))?;
        let mut entry = self.entry().map_err(|_| unwritable("the change was not made"))?;
        entry.put("event", "change");
        entry.put("request", &begun.request);
        entry.put("key", &by.id);
        entry.put("label", &by.label);
        entry.put("method", method.as_str());
        entry.put_text("path", uri.path(), MAX_TEXT);
        if let Some(tenant) = tenant_of(uri) {
            entry.put_text("tenant", tenant, MAX_NAME);
        }
        self.log.append(entry).await.map_err(|_| unwritable("the change was not made"))?;
        Ok(begun)
    }

    /// Records how a change ended.
    ///
    /// # Errors
    ///
    /// It cannot be recorded.
    pub(crate) async fn end(&self, begun: Begun, status: StatusCode, note: Option<&Note>) -> Result<(), Problem> {
        let failed = || unwritable("whether the change was made is not recorded");
        let mut entry = self.entry().map_err(|_| failed())?;
        entry.put("event", "changed");
        entry.put("request", &begun.request);
        entry.put("status", &status.as_u16());
        if let Some(Note(details)) = note {
            // Rules of a policy are as long as its author likes.
            let text = details.to_string();
            if text.len() <= MAX_TEXT {
                entry.put("details", details);
            } else {
                entry.put_text("details", &text, MAX_TEXT);
            }
        }
        self.log.append(entry).await.map_err(|_| failed())
    }

    /// Records that a key was refused, unless too many were just now. The request does not wait for it.
    ///
    /// `now` is in nanoseconds of a clock that does not go back; `tenant` is the one of the key, where it is known.
    pub(crate) fn refuse(&self, shown: &str, why: Refusal, tenant: Option<&str>, uri: &Uri, now: u64) {
        if self.refused.take(now).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let Ok(mut entry) = self.entry() else { return };
        entry.put("event", "refused");
        entry.put("why", why.name());
        // What identifies a key is no secret. What is no key may be anything, such as a secret of another program.
        entry.put("key", &key::id_of(shown));
        entry.put("tenant", &tenant);
        entry.put_text("path", uri.path(), MAX_NAME);
        entry.put("left_out", &self.left_out.swap(0, Ordering::Relaxed));
        self.log.leave(entry);
    }
}

/// The tenant that a path of the operator's interface names.
fn tenant_of(uri: &Uri) -> Option<&str> {
    let id = uri.path().strip_prefix("/admin/v1/tenants/")?.split('/').next();
    id.filter(|id| !id.is_empty())
}

fn unwritable(what: &str) -> Problem {
    let detail = format!("the audit log of the server cannot be written: {what}");
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "audit", detail)
        .hint("see that `DATA/audit` can be written, and that the disk has room")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tenant_is_the_one_that_the_path_names() {
        let of = |path: &str| tenant_of(&path.parse().unwrap()).map(str::to_owned);
        assert_eq!(of("/admin/v1/tenants/acme/keys/0123"), Some("acme".to_owned()));
        assert_eq!(of("/admin/v1/tenants/acme?x=1"), Some("acme".to_owned()));
        for path in ["/admin/v1/tenants", "/admin/v1/tenants/", "/admin/v1/keys/0123", "/admin/v1/backup"] {
            assert_eq!(of(path), None, "{path}");
        }
    }
}
