//! Folders of the operator's own, outside of the workspace: what is kept between runs.

use std::path::{Path, PathBuf};

use harness_capability::env::Variables;
use harness_sys as sys;

use crate::failure::Failure;

/// A kind of folder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    /// The variable that names where such folders are.
    pub(crate) variable: &'static str,
    /// Where they are below `HOME` without it.
    pub(crate) below_home: &'static str,
    /// Where there in.
    pub(crate) path: &'static str,
    /// What is kept there, as a sentence begins.
    pub(crate) what: &'static str,
}

impl Kind {
    /// The folder, where the host's variables name one.
    pub(crate) fn folder(self, variables: &Variables) -> Option<PathBuf> {
        let absolute = |name: &str| variables.value(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let above = absolute(self.variable).or_else(|| Some(absolute("HOME")?.join(self.below_home)))?;
        Some(above.join(self.path))
    }

    /// The same, where no tool reaches it.
    ///
    /// # Errors
    ///
    /// Where there is no place for it.
    pub(crate) fn outside(self, workspace: &Path, variables: &Variables) -> Result<PathBuf, Failure> {
        let Self { variable, what, .. } = self;
        let none = || Failure::Broken(format!("{what} are kept in `${variable}` or `$HOME`, and neither is set"));
        let folder = self.folder(variables).ok_or_else(none)?;
        if folder.starts_with(workspace) || real(&folder).starts_with(workspace) {
            let what = format!("{what} would be kept in `{}`, which is in the workspace", folder.display());
            return Err(Failure::Broken(format!("{what}: set `{variable}`")));
        }
        Ok(folder)
    }
}

/// Where a folder is in truth, as far as it is there: links may lead elsewhere.
fn real(folder: &Path) -> PathBuf {
    let there = folder.ancestors().find_map(|part| Some((part, sys::real_path(part).ok()?)));
    let rest = |part| folder.strip_prefix(part).unwrap_or(Path::new(""));
    there.map_or_else(|| folder.to_owned(), |(part, real)| real.join(rest(part)))
}
