//! What there is one of in a process, for as many projects as it serves.

use std::path::Path;
use std::sync::Arc;

use super::watch::Watcher;
use super::{Inner, OpenError, Options, Project};
use harness_audit::AuditWriter;
use harness_sandbox::engine::{Sandbox, Settings};

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

/// One engine, its instances, its threads, its images and the writer of audit logs, shared by many projects. Each project has a [quota] of it, and
/// shares nothing else with the others. Cheap to clone; it lives as long as any of its projects.
///
/// [quota]: harness_sandbox::scheduling::quota::Quota
#[derive(Debug, Clone)]
pub struct Host {
    pub(crate) sandbox: Sandbox,
    /// Writes the audit logs of all projects.
    pub(crate) audit: AuditWriter,
    /// Watches the files of projects.
    pub(crate) watcher: Watcher,
}

impl Host {
    /// Makes a host. Takes some milliseconds.
    ///
    /// # Errors
    ///
    /// Where the machine lacks what the engine needs.
    pub fn new(options: HostOptions) -> Result<Self, OpenError> {
        let settings = Settings { instances: options.instances, image_bytes: options.image_bytes };
        Ok(Self {
            sandbox: Sandbox::new(settings).map_err(OpenError::Sandbox)?,
            audit: AuditWriter::new(),
            watcher: Watcher::default(),
        })
    }

    /// Opens the project in a folder: the one that holds `.harness/`. The same folder may be open more than once; each
    /// project has its own quota.
    ///
    /// # Errors
    ///
    /// Where any artifact cannot be used, or the workspace is not a folder.
    pub fn open(&self, root: &Path, options: Options) -> Result<Project, OpenError> {
        let host = Self {
            sandbox: self.sandbox.for_project(options.quota),
            audit: self.audit.clone(),
            watcher: self.watcher.clone(),
        };
        Ok(Project { inner: Arc::new(Inner::new(root, options, host)?) })
    }

    /// Images of scripts that are kept ready, and their bytes.
    pub fn images(&self) -> (usize, u64) {
        self.sandbox.images()
    }
}
