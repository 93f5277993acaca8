//! Backups: a copy of all that a server keeps, what is wrong with one, and a data folder that is made of one.
//!
//! ```text
//! NAME/manifest.jsonl                            each file, folder and link with its digest; the digest of this list is last
//! NAME/store.db                                  the store, as it was at one moment
//! NAME/audit/                                    the audit log of the server
//! NAME/tenants/ID/workspace/                     the files of a tenant
//! NAME/tenants/ID/project/.harness/audit/        its audit log
//! NAME/tenants/ID/project/.harness/sessions/     what is recorded of its agents
//! ```
//!
//! Files of projects are blobs of the store. Neither the sealing key nor a key of the operator is in a backup: who has one
//! of them and a backup has the secrets of all tenants.
//!
//! - `manifest`: the list
//! - `write`: a backup, while requests are served
//! - `verify`: all parts of one, each checked
//! - `restore`: a data folder that is made of one

mod manifest;
mod restore;
mod verify;
mod write;

pub use self::restore::{Refused, restore};
pub use self::verify::{Check, Fault, Report, verify};
pub(crate) use self::write::{clear, write};

/// The list of what a backup has.
const MANIFEST: &str = "manifest.jsonl";
/// The copy of the store.
const STORE: &str = "store.db";
/// Folders that both a data folder and a backup have.
const AUDIT: &str = "audit";
const TENANTS: &str = "tenants";
