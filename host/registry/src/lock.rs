//! `harness.lock`: what the artifacts of a project were when someone looked at them.
//!
//! One entry for each artifact, with digests of what it is written as and of the parts that count: its script, the
//! parameters and the description that a model is shown. The last two are there as text too, so that a change of them
//! can be reported line by line. Where the file is there, a project whose artifacts are not what it says does not run.
//!
//! - `entry`: what is kept of an artifact
//! - `drift`: what is not as it was
//! - `plugin`: what is kept of a plugin
//! - `repository`: what is kept of a git repository with artifacts
//! - `signed`: what is kept of the signatures of a plugin
//! - `server`: what is kept of a server of `mcp.servers`

mod drift;
mod entry;
mod plugin;
mod repository;
mod server;
mod signed;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Registry;
use harness_artifact::diagnostic::Diagnostic;

pub use drift::Drift;
pub use entry::{Entry, Kind, of_plugin};
use plugin::PluginDocument;
pub use plugin::{LockedPlugin, Staged};
pub use repository::LockedRepository;
use repository::RepositoryDocument;
pub use server::LockedServer;
use server::ServerDocument;
pub use signed::LockedSignature;

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

/// The same where it has plugins alone.
const PLUGINS_HEADER: &str = "\
# The plugins of this project as they were consented to. `harness plugin` writes this file. `harness lock` adds the
# artifacts of the project itself, which may change until then.
";
/// What is locked where that is not all.
const PLUGINS: &str = "plugins";

/// What a lock file says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Lock {
    /// Whether artifacts that are in no plugin may be anything, and servers are not locked.
    only_plugins: bool,
    /// By kind and name, which no two artifacts share.
    entries: BTreeMap<(Kind, String), Entry>,
    /// By name.
    servers: BTreeMap<String, LockedServer>,
    /// By name.
    plugins: BTreeMap<String, LockedPlugin>,
    /// By what is fetched.
    repositories: BTreeMap<String, LockedRepository>,
}

/// The file as TOML has it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    /// [`PLUGINS`], or all without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    only: Option<String>,
    #[serde(default, rename = "plugin", skip_serializing_if = "Vec::is_empty")]
    plugins: Vec<PluginDocument>,
    #[serde(default, rename = "repository", skip_serializing_if = "Vec::is_empty")]
    repositories: Vec<RepositoryDocument>,
    #[serde(default, rename = "artifact", skip_serializing_if = "Vec::is_empty")]
    artifacts: Vec<Entry>,
    #[serde(default, rename = "server", skip_serializing_if = "Vec::is_empty")]
    servers: Vec<ServerDocument>,
}

impl Lock {
    /// What the artifacts of a registry are.
    pub fn of(registry: &Registry) -> Self {
        let entries = entry::all(registry).into_iter().map(|entry| ((entry.kind, entry.name.clone()), entry));
        Self { entries: entries.collect(), ..Self::default() }
    }

    /// The same with servers, as they were read.
    #[must_use]
    pub fn with_servers(mut self, servers: impl IntoIterator<Item = LockedServer>) -> Self {
        self.servers = servers.into_iter().map(|server| (server.pinned.server.clone(), server)).collect();
        self
    }

    /// A lock of plugins alone, without any yet.
    pub fn of_plugins() -> Self {
        Self { only_plugins: true, ..Self::default() }
    }

    /// Whether it says nothing of artifacts that are in no plugin, and of servers.
    pub fn has_plugins_only(&self) -> bool {
        self.only_plugins
    }

    /// The same with a plugin, instead of the one of its name.
    #[must_use]
    pub fn with_plugin(mut self, plugin: LockedPlugin) -> Self {
        self.plugins.insert(plugin.name.clone(), plugin);
        self
    }

    /// The same without a plugin.
    #[must_use]
    pub fn without_plugin(mut self, name: &str) -> Self {
        self.plugins.remove(name);
        self
    }

    /// The same with the plugins and repositories of another one.
    #[must_use]
    pub fn with_plugins_of(mut self, other: &Self) -> Self {
        self.plugins = other.plugins.clone();
        self.repositories = other.repositories.clone();
        self
    }

    /// The plugins, in the order of their names.
    pub fn plugins(&self) -> impl Iterator<Item = &LockedPlugin> {
        self.plugins.values()
    }

    /// A plugin by its name.
    pub fn plugin(&self, name: &str) -> Option<&LockedPlugin> {
        self.plugins.get(name)
    }

    /// The same with these repositories and no others.
    #[must_use]
    pub fn with_repositories(mut self, all: impl IntoIterator<Item = LockedRepository>) -> Self {
        self.repositories = all.into_iter().map(|one| (one.source.to_string(), one)).collect();
        self
    }

    /// The repositories, in the order of what is fetched.
    pub fn repositories(&self) -> impl Iterator<Item = &LockedRepository> {
        self.repositories.values()
    }

    /// A repository by what is fetched.
    pub fn repository(&self, source: &str) -> Option<&LockedRepository> {
        self.repositories.get(source)
    }

    /// Whether it says nothing at all.
    pub fn is_empty(&self) -> bool {
        self.only_plugins && self.plugins.is_empty() && self.repositories.is_empty()
    }

    /// Whether the text of a lock has plugins or repositories, also one that cannot be read.
    pub fn names_plugins(text: &str) -> bool {
        text.contains("[[plugin]]") || text.contains("[[repository]]") || text.contains("\nplugin")
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
        let only_plugins = match document.only.as_deref() {
            None => false,
            Some(PLUGINS) => true,
            Some(other) => return Err(Diagnostic::error(format!("`{FILE}` has `only = {other:?}`"))),
        };
        let mut plugins = BTreeMap::new();
        for document in document.plugins {
            let plugin = LockedPlugin::read(document, text)?;
            if let Some(first) = plugins.insert(plugin.name.clone(), plugin) {
                let wrong = format!("`{FILE}` has the plugin `{}` twice", first.name);
                return Err(Diagnostic::error(wrong).hint("restore the file as it was committed"));
            }
        }
        let mut repositories = BTreeMap::new();
        for document in document.repositories {
            let repository = LockedRepository::read(document, text)?;
            if let Some(first) = repositories.insert(repository.source.to_string(), repository) {
                let wrong = format!("`{FILE}` has the repository `{}` twice", first.source);
                return Err(Diagnostic::error(wrong).hint("restore the file as it was committed"));
            }
        }
        let lock = Self { only_plugins, entries, servers, plugins, repositories };
        let has_third_parties = only_plugins || !lock.plugins.is_empty() || !lock.repositories.is_empty();
        // They may be guards: not even a space of their lock is another one.
        if has_third_parties && lock.text().ok().as_deref() != Some(text) {
            let wrong = format!("`{FILE}` is not as it was written: it was changed by hand, or by a merge");
            return Err(Diagnostic::error(wrong).hint("restore the file as it was committed"));
        }
        Ok(lock)
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
        let plugins = self.plugins.values().map(LockedPlugin::document).collect();
        let only = self.only_plugins.then(|| PLUGINS.to_owned());
        let header = if self.only_plugins { PLUGINS_HEADER } else { HEADER };
        let repositories = self.repositories.values().map(LockedRepository::document).collect();
        let document = Document { version: VERSION, only, plugins, repositories, artifacts, servers };
        Ok(format!("{header}{}", toml::to_string_pretty(&document)?))
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
mod signed_tests;
#[cfg(test)]
mod tests;
