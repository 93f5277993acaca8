//! Texts that an editor shows and has not saved: a project is loaded as if they were in their files.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use harness_sys as sys;

/// Texts by the real path of their file. Cheap to clone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unsaved(BTreeMap<PathBuf, Arc<str>>);

impl Unsaved {
    /// Adds the text of a file, which may be a new one in a folder that exists. A text whose folder does not exist is
    /// left out.
    pub fn insert(&mut self, path: &Path, text: Arc<str>) {
        if let Some(real) = real_path(path) {
            self.0.insert(real, text);
        }
    }

    /// The text of a file, by its real path. An error where it is longer than a file may be.
    pub(super) fn text(&self, real: &Path) -> Option<std::io::Result<String>> {
        let text = self.0.get(real)?;
        let fits = u64::try_from(text.len()).is_ok_and(|length| length <= sys::MAX_TEXT_BYTES);
        let over = || std::io::Error::other(format!("it has more than {} bytes", sys::MAX_TEXT_BYTES));
        Some(if fits { Ok(text.to_string()) } else { Err(over()) })
    }

    /// Whether there is a text for this path, which is real as far as it exists.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.0.contains_key(path)
    }

    /// Adds the names of new files in a folder to those that are listed, which are sorted.
    pub(super) fn list(&self, folder: &Path, listed: &mut Vec<OsString>) {
        let before = listed.len();
        for path in self.0.keys().filter(|path| path.parent() == Some(folder)) {
            let name = path.file_name().filter(|name| !listed.iter().any(|other| other == name));
            listed.extend(name.map(OsString::from));
        }
        if listed.len() > before {
            listed.sort();
        }
    }
}

/// Where a file really is; of one that does not exist, where it would be.
fn real_path(path: &Path) -> Option<PathBuf> {
    let in_folder = || Some(sys::real_path(path.parent()?).ok()?.join(path.file_name()?));
    sys::real_path(path).ok().or_else(in_folder)
}
