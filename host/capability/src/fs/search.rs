//! `fs.glob`: a walk that goes only where the pattern and the grant could find something.

use cap_fs_ext::DirExt;
use cap_std::fs::Dir;

use super::folder::{Budget, entries};
use super::resolve::failed;
use super::{Error, MAX_NAMES, MAX_VISITED, Workspace};
use harness_policy::grant::Grant;
use harness_policy::path::pattern::Progress;
use harness_policy::path::protected::is_skipped_by_wildcards;
use harness_policy::path::{Access, PathPattern, WorkspacePath};

impl Workspace {
    /// Paths of files and folders that match a pattern, relative to the workspace, sorted by their bytes.
    ///
    /// Links are neither followed nor found. What is refused is left out, and so is a folder that the system does
    /// not let the host read. `.git` and `.harness` are found and entered only where the pattern spells them out:
    /// `**` passes over them.
    pub fn glob(&self, grant: &Grant, pattern: &str) -> Result<Vec<String>, Error> {
        let pattern = PathPattern::parse(pattern).map_err(|error| Error::Invalid(error.to_string()))?;
        self.search(grant, &pattern, false)
    }

    /// The same without folders.
    pub fn files(&self, grant: &Grant, pattern: &PathPattern) -> Result<Vec<String>, Error> {
        self.search(grant, pattern, true)
    }

    fn search(&self, grant: &Grant, pattern: &PathPattern, only_files: bool) -> Result<Vec<String>, Error> {
        let root = WorkspacePath::root();
        // With nothing at all to read, a refusal says more than an empty list.
        if !grant.could_read_below(&root) {
            grant.decide_path(&root, Access::Read)?;
        }
        let mut search = Search { grant, pattern, only_files, budget: Budget::new(MAX_VISITED), found: Vec::new() };
        search.folder(&self.root, &root, pattern.start())?;
        search.found.sort_unstable();
        Ok(search.found)
    }
}

struct Search<'a> {
    grant: &'a Grant,
    pattern: &'a PathPattern,
    only_files: bool,
    budget: Budget,
    found: Vec<String>,
}

impl Search<'_> {
    fn folder(&mut self, folder: &Dir, path: &WorkspacePath, progress: Progress) -> Result<(), Error> {
        let entries = match entries(folder, &mut self.budget, |error| failed(path, error)) {
            Err(Error::TooLarge(cap)) => return Err(Error::TooLarge(cap)),
            entries => entries.unwrap_or_default(),
        };
        for (name, kind) in entries {
            if kind.is_symlink() {
                continue;
            }
            let Some(name) = name.to_str() else { continue };
            let Ok(here) = path.child(name) else { continue };
            let progress = if is_skipped_by_wildcards(name) {
                self.pattern.step_literally(progress, name)
            } else {
                self.pattern.step(progress, name)
            };
            let is_wanted = kind.is_file() || !self.only_files;
            if is_wanted && self.pattern.is_whole(progress) && self.grant.decide_path(&here, Access::Read).is_ok() {
                if self.found.len() as u64 == MAX_NAMES {
                    return Err(Error::TooLarge(MAX_NAMES));
                }
                self.found.push(here.to_string());
            }
            if kind.is_dir() && self.pattern.goes_on(progress) && self.grant.could_read_below(&here) {
                let Ok(folder) = folder.open_dir_nofollow(name) else { continue };
                self.budget.down()?;
                self.folder(&folder, &here, progress)?;
                self.budget.up();
            }
        }
        Ok(())
    }
}
