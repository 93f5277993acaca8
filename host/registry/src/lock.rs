//! `harness.lock`: what the artifacts of a project were when someone looked at them.
//!
//! One entry for each artifact, with digests of what it is written as and of the parts that count: its script, the
//! parameters and the description that a model is shown. The last two are there as text too, so that a change of them
//! can be reported line by line. Where the file is there, a project whose artifacts are not what it says does not run.
//!
//! - `entry`: what is kept of an artifact
//! - `drift`: what is not as it was
//! - `server`: what is kept of a server of `mcp.servers`

mod drift;
mod entry;
mod server;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Registry;
use harness_artifact::diagnostic::Diagnostic;

pub use drift::Drift;
pub use entry::{Entry, Kind};
pub use server::LockedServer;
use server::ServerDocument;

/// Its name, in the folder that holds `.harness/`.
pub const FILE: &str = "harness.lock";
/// Bytes of it at most.
pub const MAX_BYTES: u64 = 64 << 20;

/// The form of the file. Another one is another program's.
const VERSION: u32 = 1;
/// What stands at its top.
const HEADER: &str = "\
# The artifacts of this project as they were reviewed. `harness lock` writes this file, and artifacts that differ from it
# are rejected. Review a change before you lock it.
";

/// What a lock file says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lock {
    /// By kind and name, which no two artifacts share.
    entries: BTreeMap<(Kind, String), Entry>,
    /// By name.
    servers: BTreeMap<String, LockedServer>,
}

/// The file as TOML has it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    #[serde(default, rename = "artifact", skip_serializing_if = "Vec::is_empty")]
    artifacts: Vec<Entry>,
    #[serde(default, rename = "server", skip_serializing_if = "Vec::is_empty")]
    servers: Vec<ServerDocument>,
}

impl Lock {
    /// What the artifacts of a registry are.
    pub fn of(registry: &Registry) -> Self {
        let entries = entry::all(registry).into_iter().map(|entry| ((entry.kind, entry.name.clone()), entry));
        Self { entries: entries.collect(), servers: BTreeMap::new() }
    }

    /// The same with servers, as they were read.
    #[must_use]
    pub fn with_servers(mut self, servers: impl IntoIterator<Item = LockedServer>) -> Self {
        self.servers = servers.into_iter().map(|server| (server.pinned.server.clone(), server)).collect();
        self
    }

    /// Reads a lock file.
    ///
    /// # Errors
    ///
    /// What is wrong with it, where it is known, at its line.
    pub fn parse(text: &str) -> Result<Self, Diagnostic> {
        let document: Document = toml::from_str(text).map_err(|error| {
            let wrong = Diagnostic::error(format!("`{FILE}` cannot be read: {}", error.message()));
            wrong.at(entry::position(text, error.span())).hint("write it again with `harness lock`")
        })?;
        if document.version != VERSION {
            let wrong = format!("`{FILE}` has the version {}, and this program reads {VERSION}", document.version);
            return Err(Diagnostic::error(wrong).hint("write it again with `harness lock`"));
        }
        let mut entries = BTreeMap::new();
        for entry in document.artifacts {
            let key = (entry.kind, entry.name.clone());
            if let Some(first) = entries.insert(key, entry) {
                let wrong = format!("`{FILE}` has the {} {:?} twice", first.kind, first.name);
                return Err(Diagnostic::error(wrong).hint("after a merge, write it again with `harness lock`"));
            }
        }
        let mut servers = BTreeMap::new();
        for document in document.servers {
            let server = LockedServer::read(document, text)?;
            if let Some(first) = servers.insert(server.pinned.server.clone(), server) {
                let wrong = format!("`{FILE}` has the server {:?} twice", first.pinned.server);
                return Err(Diagnostic::error(wrong).hint("after a merge, write it again with `harness lock`"));
            }
        }
        Ok(Self { entries, servers })
    }

    /// The text of the file: sorted, so that the same artifacts are always the same text, and each entry on lines of its
    /// own.
    ///
    /// # Errors
    ///
    /// Where a text cannot be written as TOML.
    pub fn text(&self) -> Result<String, toml::ser::Error> {
        let artifacts = self.entries.values().cloned().collect();
        let servers = self.servers.values().map(LockedServer::document).collect();
        Ok(format!("{HEADER}{}", toml::to_string_pretty(&Document { version: VERSION, artifacts, servers })?))
    }

    /// The servers, in the order of their names.
    pub fn servers(&self) -> impl Iterator<Item = &LockedServer> {
        self.servers.values()
    }

    /// A server by its name.
    pub fn server(&self, name: &str) -> Option<&LockedServer> {
        self.servers.get(name)
    }

    /// The artifacts.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// What is another now than this says, by kind and name.
    pub fn drifts(&self, now: &Self) -> Vec<Drift> {
        let changed = self.entries.iter().filter_map(|(key, old)| match now.entries.get(key) {
            Some(new) => Drift::between(old, new),
            None => Some(Drift::Removed(old.clone())),
        });
        let added = now.entries.iter().filter(|(key, _)| !self.entries.contains_key(key));
        let mut all: Vec<Drift> = changed.chain(added.map(|(_, new)| Drift::Added(new.clone()))).collect();
        all.sort_by(|a, b| a.entry().cmp(b.entry()));
        all
    }
}

#[cfg(test)]
mod tests;
