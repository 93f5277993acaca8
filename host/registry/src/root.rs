//! A folder with artifacts: `.harness/`, or one that `artifact_sources` names.

use std::ffi::OsString;
use std::path::PathBuf;

use harness_artifact::policy::roots::GIT;
use harness_artifact::policy::sources::name_of;
use harness_plugin::content::Content;
use harness_sys as sys;

/// The ending of a file that is an artifact.
const ENDING: &str = ".md";

/// A folder with artifacts. What is in it is named by its path below it.
#[derive(Debug)]
pub(super) struct Root {
    /// As messages name it.
    shown: String,
    /// As names of sources do; none of `.harness/` and of a plugin.
    name: Option<String>,
    /// The source that it holds, where it is a plugin outside of the project. Its paths begin with that.
    plugin: Option<String>,
    /// Where it really is. Nothing outside it is read.
    pub(super) real: PathBuf,
    /// All that is in it, where that was verified.
    pub(super) content: Option<Content>,
}

/// A file that is an artifact or a bundle, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// Its path below the root.
    pub(super) below: String,
    /// What it is named by: its own name without one ending.
    pub(super) stem: String,
    /// Its place below the root: its path without that ending.
    pub(super) place: String,
}

/// The names of what is in a folder, sorted.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Files that are artifacts.
    pub(super) files: Vec<Found>,
    pub(super) folders: Vec<String>,
    /// Of all else.
    pub(super) others: Vec<String>,
    /// Those that begin with a dot.
    pub(super) hidden: Vec<String>,
    /// What is not text, as well as it can be shown.
    pub(super) unnamed: Vec<String>,
}

impl Root {
    /// The project's own.
    pub(super) fn home(shown: &str, real: PathBuf) -> Self {
        Self { shown: shown.to_owned(), name: None, plugin: None, real, content: None }
    }

    /// One that `artifact_sources` names, with all that is in it, where that was verified.
    pub(super) fn further(name: String, real: PathBuf, content: Option<Content>) -> Self {
        Self { shown: name.clone(), name: Some(name), plugin: None, real, content }
    }

    /// Whether all of it is of a third party.
    pub(super) fn is_third_party(&self) -> bool {
        self.name.as_ref().is_some_and(|name| name.starts_with(GIT))
    }

    /// The folder of one plugin outside of the project. Messages name its files by its source, such as
    /// `plugins/acme/tools/x.md`.
    pub(super) fn plugin(source: String, real: PathBuf) -> Self {
        Self { shown: String::new(), name: None, plugin: Some(source), real, content: None }
    }

    /// Something below it as messages name it.
    pub(super) fn shown(&self, below: &str) -> String {
        match (below.is_empty(), self.shown.is_empty()) {
            (true, _) => self.shown.clone(),
            (false, true) => below.to_owned(),
            (false, false) => format!("{}/{below}", self.shown),
        }
    }

    pub(super) fn path(&self, below: &str) -> PathBuf {
        let own = self.plugin.as_ref().and_then(|plugin| below.strip_prefix(plugin.as_str()));
        self.real.join(own.map_or(below, |own| own.trim_start_matches('/')))
    }

    /// The name of a place as a source.
    pub(super) fn source(&self, place: &str) -> String {
        name_of(self.name.as_deref(), place)
    }

    /// Whether it is the project's own.
    pub(super) fn is_home(&self) -> bool {
        self.name.is_none() && self.plugin.is_none()
    }

    /// What these names in one of its folders are. The one place where an artifact's name is made of a file's.
    pub(super) fn names(&self, folder: &str, listed: Vec<OsString>) -> Names {
        let mut names = Names::default();
        for name in listed {
            let Some(name) = name.to_str() else {
                names.unnamed.push(name.to_string_lossy().into_owned());
                continue;
            };
            let below = format!("{folder}/{name}");
            match name.strip_suffix(ENDING) {
                _ if name.starts_with('.') => names.hidden.push(name.to_owned()),
                Some(stem) => {
                    let place = format!("{folder}/{stem}");
                    names.files.push(Found { below, stem: stem.to_owned(), place });
                }
                None if sys::is_folder(&self.path(&below)) => names.folders.push(name.to_owned()),
                None => names.others.push(name.to_owned()),
            }
        }
        names
    }
}
