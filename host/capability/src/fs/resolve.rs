//! From a path of a script to the place it names: the only code that follows links.
//!
//! Each part is checked and opened from the handle of the folder before it, without following; a link is read and its
//! target is walked in the same way. So a handle is always on a folder that was reached from the workspace without a
//! link, whatever anyone moves meanwhile, and the path to it is known.

use std::io;
use std::path::Path;

use cap_fs_ext::DirExt;
use cap_std::fs::{Dir, Metadata};

use super::space::{Change, is_full};
use super::{Error, Workspace, denied, folder, repository};
use harness_policy::grant::Grant;
use harness_policy::path::{Access, WorkspacePath};

/// Most links on the way to one place: what Linux follows.
const MAX_LINKS: u32 = 40;
/// Most system calls on the way to one place: all that a path without links can take, and room for some links. A
/// link with `..` in its target costs one for each folder above.
const MAX_STEPS: u32 = 4096;

/// What becomes of a link at the end of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LastLink {
    /// Its target is meant.
    Follow,
    /// The link itself is meant.
    Keep,
}

/// Where a path leads.
#[derive(Debug)]
pub(super) struct ResolvedPath {
    /// What the script asked for.
    pub(super) asked: WorkspacePath,
    /// What that is after links: what decisions are made on.
    pub(super) real: WorkspacePath,
    pub(super) spot: Spot,
}

/// What is at a place.
#[derive(Debug)]
pub(super) enum Spot {
    /// Something with a name in a folder. A link only where [`LastLink::Keep`] was asked for.
    There { folder: Dir, name: String, metadata: Metadata },
    /// A folder that was arrived at without a name: the workspace, or through a link to `.` or `..`.
    Folder(Dir),
    /// Nothing. `folder` is the last one that is there, `names` (one at least) what is missing in it. `dangling`: it
    /// is the target of a link that is missing.
    Missing { folder: Dir, names: Vec<String>, dangling: bool },
    /// The way ends early, with the error to give to those who may know of it.
    Blocked(Error),
}

impl Workspace {
    /// Where a path leads, if that may be read or written. Everything else that could be wrong comes after the
    /// decision, so that an error shows nothing about what is refused.
    pub(super) fn place(
        &self,
        grant: &Grant,
        path: &str,
        access: Access,
        last: LastLink,
    ) -> Result<ResolvedPath, Error> {
        let place = self.locate(&self.parse(path)?, access, last)?;
        grant.decide_path(&place.real, access)?;
        match &place.spot {
            Spot::Blocked(error) => Err(error.clone()),
            // What a link leads to when it leads nowhere may not be what its author thought.
            Spot::Missing { dangling: true, .. } if access == Access::Write => {
                Err(denied(format!("writing `{}` is not allowed: it is a link to nothing", place.asked)))
            }
            _ => Ok(place),
        }
    }

    /// Where a path leads, decided by nobody yet. Fails for a way out of the workspace.
    pub(super) fn locate(&self, asked: &WorkspacePath, access: Access, last: LastLink) -> Result<ResolvedPath, Error> {
        if let Some(wait) = self.slow {
            wait();
        }
        let way = Way {
            workspace: self,
            asked,
            access,
            // The innermost first, to be taken from the end.
            ahead: asked.parts().iter().rev().cloned().collect(),
            of_link: 0,
            links: 0,
            steps: 0,
            folder: self.root.try_clone().map_err(|error| failed(asked, &error))?,
            real: WorkspacePath::root(),
        };
        way.walk(last)
    }
}

impl ResolvedPath {
    /// The folder and the name of what must be a file, or a link that was kept.
    pub(super) fn file(&self) -> Result<(&Dir, &str), Error> {
        match &self.spot {
            Spot::There { folder, name, metadata } => match folder::odd_kind(metadata.file_type()) {
                Some(kind) => Err(Error::NotAFile(kind.to_owned())),
                None => Ok((folder, name)),
            },
            Spot::Folder(_) => Err(Error::NotAFile("directory".to_owned())),
            Spot::Missing { .. } | Spot::Blocked(_) => Err(self.missing()),
        }
    }

    /// The error for a place where nothing is.
    pub(super) fn missing(&self) -> Error {
        match &self.spot {
            Spot::Blocked(error) => error.clone(),
            _ => Error::NotFound(self.asked.to_string()),
        }
    }

    /// The folder of what was asked for, for messages.
    pub(super) fn asked_folder(&self) -> String {
        self.asked.parent().as_ref().unwrap_or(&self.asked).to_string()
    }

    /// An error of the system.
    pub(super) fn failed(&self, error: &io::Error) -> Error {
        failed(&self.asked, error)
    }
}

/// Makes the folders on the way to the last of `names`, which are missing in `folder`, and returns the innermost with
/// that last name. Someone else may make the same ones at the same time. Room for all of them was taken.
pub(super) fn make_folders(change: &mut Change<'_>, folder: &Dir, names: &[String]) -> io::Result<(Dir, String)> {
    let Some((last, above)) = names.split_last() else { return Err(io::ErrorKind::InvalidInput.into()) };
    let mut folder = folder.try_clone()?;
    for name in above {
        match repository::create_dir(&folder, name) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            made => {
                if made.is_ok() {
                    change.spent(1, 0);
                }
                folder = folder.open_dir_nofollow(name)?;
            }
        }
    }
    Ok((folder, last.clone()))
}

/// An error of the system about a path. Its own text is left out, because it may name a path of the host.
pub(super) fn failed(path: &WorkspacePath, error: &io::Error) -> Error {
    if let Some(full) = is_full(error) {
        return full.clone().into();
    }
    match error.kind() {
        _ if repository::is_refusal(error) => repository::refused(path),
        io::ErrorKind::NotFound => Error::NotFound(path.to_string()),
        io::ErrorKind::AlreadyExists => Error::AlreadyExists(path.to_string()),
        io::ErrorKind::NotADirectory => Error::NotADirectory(path.to_string()),
        io::ErrorKind::DirectoryNotEmpty => Error::NotEmpty(path.to_string()),
        kind => Error::Io(kind.to_string()),
    }
}

/// A walk in progress.
struct Way<'a> {
    workspace: &'a Workspace,
    asked: &'a WorkspacePath,
    access: Access,
    /// What is still to be walked, the next at the end. `..` is in it only where a link has it in its target.
    ahead: Vec<String>,
    /// How many of those, from the end, are targets of links.
    of_link: usize,
    links: u32,
    steps: u32,
    /// The handle of `real`, which has no link in it.
    folder: Dir,
    real: WorkspacePath,
}

impl Way<'_> {
    fn walk(mut self, last: LastLink) -> Result<ResolvedPath, Error> {
        while let Some(part) = self.ahead.pop() {
            let in_link = self.of_link > 0;
            self.of_link = self.of_link.saturating_sub(1);
            if part == ".." {
                self.up()?;
                continue;
            }
            let here = self.real.child(&part)?;
            if self.access == Access::Write && repository::is_governed_by(&self.folder, &part) {
                return self.blocked(here, repository::refused);
            }
            self.step()?;
            let metadata = match self.folder.symlink_metadata(&part) {
                Ok(metadata) => metadata,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return self.missing(here, part, in_link),
                Err(error) => return self.blocked(here, |asked| failed(asked, &error)),
            };
            let at_end = self.ahead.is_empty();
            if metadata.is_symlink() && !(at_end && last == LastLink::Keep) {
                match self.folder.read_link_contents(&part) {
                    Ok(target) => self.follow(&target)?,
                    Err(error) => return self.blocked(here, |asked| failed(asked, &error)),
                }
            } else if at_end {
                let spot = Spot::There { folder: self.folder, name: part, metadata };
                return Ok(ResolvedPath { asked: self.asked.clone(), real: here, spot });
            } else if metadata.is_dir() {
                self.step()?;
                match self.folder.open_dir_nofollow(&part) {
                    Ok(folder) => (self.folder, self.real) = (folder, here),
                    Err(error) => return self.blocked(here, |asked| failed(asked, &error)),
                }
            } else {
                return self.blocked(here, |asked| Error::NotADirectory(asked.to_string()));
            }
        }
        Ok(ResolvedPath { asked: self.asked.clone(), real: self.real, spot: Spot::Folder(self.folder) })
    }

    /// Puts the target of a link ahead.
    fn follow(&mut self, target: &Path) -> Result<(), Error> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(denied(format!("`{}` leads through more than {MAX_LINKS} links", self.asked)));
        }
        let target = target
            .to_str()
            .ok_or_else(|| denied(format!("`{}` leads through a link whose target is not UTF-8 text", self.asked)))?;
        let mut parts = target.split('/').filter(|part| !matches!(*part, "" | "."));
        if target.starts_with('/') {
            for outer in self.workspace.absolute.split('/').filter(|part| !part.is_empty()) {
                if parts.next() != Some(outer) {
                    return Err(self.leaves());
                }
            }
            self.real = WorkspacePath::root();
            self.folder = self.workspace.root.try_clone().map_err(|error| failed(self.asked, &error))?;
        }
        let before = self.ahead.len();
        self.ahead.extend(parts.rev().map(str::to_owned));
        self.of_link += self.ahead.len() - before;
        Ok(())
    }

    /// Goes to the folder above. From the workspace again, because the folder may have been moved since it was
    /// opened, and what is above it now may be outside.
    fn up(&mut self) -> Result<(), Error> {
        self.real = self.real.parent().ok_or_else(|| self.leaves())?;
        let mut folder = self.workspace.root.try_clone().map_err(|error| failed(self.asked, &error))?;
        for part in self.real.clone().parts() {
            self.step()?;
            folder = folder.open_dir_nofollow(part).map_err(|error| failed(self.asked, &error))?;
        }
        self.folder = folder;
        Ok(())
    }

    fn missing(self, here: WorkspacePath, part: String, dangling: bool) -> Result<ResolvedPath, Error> {
        let real = self.rest_below(here)?;
        let mut names = vec![part];
        names.extend(self.ahead.into_iter().rev());
        // `..` in `names` comes from a link, and nothing is made through a link to nothing.
        let spot = Spot::Missing { folder: self.folder, names, dangling };
        Ok(ResolvedPath { asked: self.asked.clone(), real, spot })
    }

    fn blocked(self, here: WorkspacePath, error: impl FnOnce(&WorkspacePath) -> Error) -> Result<ResolvedPath, Error> {
        let real = self.rest_below(here)?;
        Ok(ResolvedPath { asked: self.asked.clone(), real, spot: Spot::Blocked(error(self.asked)) })
    }

    /// The path that was headed for, where the walk ends early, for the decision.
    fn rest_below(&self, here: WorkspacePath) -> Result<WorkspacePath, Error> {
        self.ahead.iter().rev().try_fold(here, |path, part| match part.as_str() {
            ".." => path.parent().ok_or_else(|| self.leaves()),
            part => Ok(path.child(part)?),
        })
    }

    fn leaves(&self) -> Error {
        denied(format!("`{}` leads out of the workspace through a link", self.asked))
    }

    fn step(&mut self) -> Result<(), Error> {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return Err(denied(format!("`{}` takes more than {MAX_STEPS} steps to follow", self.asked)));
        }
        Ok(())
    }
}
