//! What there is one of in a process, for as many projects as it serves.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::opening::Openings;
use super::watch::Watcher;
use super::{Inner, OpenError, Options, Project};
use harness_audit::AuditWriter;
use harness_capability::http::{Client, Connector};
use harness_capability::outbound::Outbound;
use harness_capability::system::System;
use harness_sandbox::engine::{Sandbox, Settings};
use harness_sandbox::scheduling::quota::{Quota, Share};
use harness_sys as sys;

/// How large a host is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostOptions {
    /// Instances at one time for all projects, those of nested calls counted: 1 to 10,000. A call that finds none waits
    /// within its deadline. Each reserves 4 GiB of address space, and memory only while it is used.
    pub instances: u32,
    /// Bytes of images of scripts that are kept ready for the next call.
    pub image_bytes: u64,
}

impl Default for HostOptions {
    /// 64 instances, 256 MiB of images.
    fn default() -> Self {
        let Settings { instances, image_bytes } = Settings::default();
        Self { instances, image_bytes }
    }
}

impl HostOptions {
    /// The same with another number of instances.
    pub fn instances(self, instances: u32) -> Self {
        Self { instances, ..self }
    }

    /// The same with another bound on images, in bytes.
    pub fn image_bytes(self, bytes: u64) -> Self {
        Self { image_bytes: bytes, ..self }
    }
}

/// One engine, its instances, its threads, its images, the connector of HTTP and the writer of audit logs, shared by many
/// projects. Each project has a [quota] of it, and shares nothing else with the others. Cheap to clone; it lives as long as
/// any of its projects.
///
/// [quota]: harness_sandbox::scheduling::quota::Quota
#[derive(Debug, Clone)]
pub struct Host {
    pub(crate) sandbox: Sandbox,
    /// Writes the audit logs of all projects.
    pub(crate) audit: AuditWriter,
    /// Makes the connections of all projects.
    connector: Arc<Connector>,
    /// Whether all projects that are opened with it have one share of it together.
    is_shared: bool,
    /// The folders below which its projects are, where it has such.
    roots: Option<Arc<[PathBuf]>>,
    /// Watches the files of projects.
    pub(crate) watcher: Watcher,
    /// Turns of projects that are opened or loaded again.
    pub(crate) openings: Arc<Openings>,
}

impl Host {
    /// Makes a host. Takes some milliseconds.
    ///
    /// # Errors
    ///
    /// Where the machine lacks what the engine needs.
    pub fn new(options: HostOptions) -> Result<Self, OpenError> {
        let settings = Settings { instances: options.instances, image_bytes: options.image_bytes };
        let sandbox = Sandbox::new(settings).map_err(OpenError::Sandbox)?;
        let (audit, watcher) = (AuditWriter::new(), Watcher::default());
        let (connector, openings) = (Arc::default(), Arc::default());
        Ok(Self { sandbox, audit, watcher, connector, is_shared: false, roots: None, openings })
    }

    /// The same for projects below these folders only. A process that is confined to them
    /// ([`needs_below`](super::confinement::needs_below)) opens further ones there without a new right.
    ///
    /// # Errors
    ///
    /// Where one of them is no folder.
    pub fn with_roots(self, roots: &[PathBuf]) -> Result<Self, OpenError> {
        let real =
            |root: &PathBuf| sys::real_path(root).map_err(|source| OpenError::Workspace { path: root.clone(), source });
        let roots = roots.iter().map(real).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { roots: Some(roots.into()), ..self })
    }

    /// The same for projects that have one share of it together, however often one of them is opened: the quota of each
    /// project's own options does not count.
    #[must_use]
    pub fn with_share(&self, quota: Quota) -> Self {
        Self { sandbox: self.sandbox.for_project(quota), is_shared: true, ..self.clone() }
    }

    /// The share of it that its projects have together ([`with_share`](Self::with_share)).
    pub fn share(&self) -> &Arc<Share> {
        self.sandbox.share()
    }

    /// Opens the project in a folder: the one that holds `.harness/`. The same folder may be open more than once; each
    /// project has its own quota. Waits with this thread while as many others are opened or loaded again as the machine has
    /// cores, less one.
    ///
    /// # Errors
    ///
    /// Where any artifact cannot be used, the workspace is not a folder, or one of both is not below the host's folders.
    pub fn open(&self, root: &Path, options: Options) -> Result<Project, OpenError> {
        let root = &*self.within_roots(root)?;
        let workspace = options.workspace.as_deref().map(|folder| self.within_roots(folder)).transpose()?;
        let workspace = workspace.map(Cow::into_owned);
        let options = Options { workspace, ..options };
        let sandbox = if self.is_shared { self.sandbox.clone() } else { self.sandbox.for_project(options.quota) };
        let host = Self { sandbox, ..self.clone() };
        Ok(Project { inner: Arc::new(Inner::new(root, options, host)?) })
    }

    /// A folder that is below those of the host; where it has such, without links: what is checked is what is opened.
    pub(crate) fn within_roots<'f>(&self, folder: &'f Path) -> Result<Cow<'f, Path>, OpenError> {
        let Some(roots) = &self.roots else { return Ok(folder.into()) };
        let real = sys::real_path(folder);
        let real = real.map_err(|source| OpenError::Workspace { path: folder.to_owned(), source })?;
        if roots.iter().any(|root| real.starts_with(root)) {
            return Ok(real.into());
        }
        Err(OpenError::Outside { path: folder.to_owned(), roots: roots.to_vec() })
    }

    /// Who sends the requests of a project.
    pub(crate) fn client(&self, system: &System, outbound: &Outbound) -> Arc<Client> {
        let client = Client::of(&self.connector, system, self.sandbox.share().resources());
        Arc::new(client.counted_by(outbound.clone()))
    }

    /// Images of scripts that are kept ready, and their bytes.
    pub fn images(&self) -> (usize, u64) {
        self.sandbox.images()
    }
}
