//! The machine that a project is loaded on: its policy, and the plugins that it keeps.

use std::path::{Path, PathBuf};

use super::Machine;
use super::lock::Lock;
use super::unsaved::Unsaved;

/// Where the policy of the machine is, and where its plugins are.
#[derive(Debug, Clone)]
pub struct Host<'m> {
    pub(super) machine: &'m Machine,
    pub(super) plugins: Option<PathBuf>,
}

/// What is to be written, and is loaded as if it was.
#[derive(Debug, Clone, Copy, Default)]
pub struct Proposal<'p> {
    /// The lock.
    pub lock: Option<&'p Lock>,
    /// The text of the project's policy.
    pub policy: Option<&'p str>,
    /// A plugin that is loaded from the cache, wherever the lock says that it is.
    pub from_cache: Option<&'p str>,
    /// Texts that an editor has not saved.
    pub unsaved: Option<&'p Unsaved>,
    /// Whether only the policy matters: repositories that `artifact_sources` names are left out, because they may have to be
    /// fetched first, and so is what `trusted_sources` says of the plugins that are there.
    pub bare: bool,
}

impl<'m> Host<'m> {
    /// A machine that keeps plugins in a [folder](harness_plugin::cache::folder). Without one, a project whose lock names
    /// plugins outside of it does not load.
    pub fn new(machine: &'m Machine, plugins: Option<PathBuf>) -> Self {
        Self { machine, plugins }
    }

    /// The folder of its plugins.
    pub fn plugins(&self) -> Option<&Path> {
        self.plugins.as_deref()
    }
}

impl<'m> From<&'m Machine> for Host<'m> {
    fn from(machine: &'m Machine) -> Self {
        Self { machine, plugins: None }
    }
}
