//! Files that are protected under one name and can be had under another: hard links.
//!
//! A name shows nothing of the other names of its file, and the system does not list them. So folders are searched for
//! the protected names of files that have several. Scripts make no hard links: they are what another process has made.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fmt;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use harness_policy::grant::Grant;
use harness_policy::path::{Access, WorkspacePath, protected};

/// Most entries of folders that a search looks at: some seconds of work.
pub const MAX_ENTRIES: u64 = 1_000_000;
/// Most folders inside each other that a search goes down. One open handle each.
const MAX_LEVELS: u64 = 64;
/// How a folder is opened to be looked through.
pub const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A file or folder, whatever its name is: its file system and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity(u64, u64);

impl Identity {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self(stat.st_dev, stat.st_ino)
    }

    /// Whether this is its number, on whichever file system.
    pub fn has_number(&self, number: u64) -> bool {
        self.1 == number
    }

    /// The file with a number on a device.
    pub fn new(device: u64, number: u64) -> Self {
        Self(device, number)
    }
}

/// Why a search has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsearched {
    /// Over [`MAX_ENTRIES`].
    Entries,
    /// Over `MAX_LEVELS`.
    Levels,
    /// The system refused.
    System(Errno),
}

impl fmt::Display for Unsearched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entries => write!(f, "there are over {MAX_ENTRIES} files and folders to search"),
            Self::Levels => write!(f, "there are over {MAX_LEVELS} folders inside each other"),
            Self::System(error) => write!(f, "a folder cannot be read: {}", std::io::Error::from(*error)),
        }
    }
}

/// Files with several names of which one, at the least, is protected: the least access that this forbids. What may not
/// be read may not be written either.
#[derive(Debug, Default)]
pub struct HardLinks(HashMap<Identity, Access>);

impl HardLinks {
    /// All of a folder, which has this path in the workspace.
    pub fn search(grant: &Grant, folder: OwnedFd, at: &WorkspacePath) -> Result<Self, Unsearched> {
        let mut links = Self::default();
        links.add_folder(grant, folder, at)?;
        Ok(links)
    }

    /// Adds those of a folder.
    pub fn add_folder(&mut self, grant: &Grant, folder: OwnedFd, at: &WorkspacePath) -> Result<(), Unsearched> {
        let picky = grant.protects_paths();
        // `None` for a path that no script could give, which is closed to all of them.
        let start = (Some(at.clone()), grant.protected_from(at));
        let mut walk = Walk { left: MAX_ENTRIES, levels: MAX_LEVELS };
        walk.folder(&folder, &start, &mut |(at, outer), entry| {
            let here = entry.name.to_str().and_then(|name| at.as_ref()?.child(name).ok());
            // A repository's objects are many, have several names where it was cloned from a neighbour, and no program
            // is made to run by them.
            let objects = entry.name == "objects" && at.as_ref().is_some_and(|at| grant.is_repository(at));
            let from = match &here {
                None => Some(Access::Read),
                Some(here) if picky || entry.is_suspicious() => grant.protected_from(here),
                Some(_) => *outer,
            };
            if entry.kind == FileType::Directory {
                return Ok((!objects).then_some((here, from)));
            }
            if let Some(from) = from.filter(|_| entry.kind == FileType::RegularFile) {
                self.add(&entry.stat()?, from);
            }
            Ok(None)
        })
    }

    /// Adds a file with a name that is protected from this access, if it has another.
    pub fn add(&mut self, stat: &Stat, from: Access) {
        if stat.st_nlink > 1 {
            let known = self.0.entry(Identity::of(stat)).or_insert(from);
            if from == Access::Read {
                *known = from;
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What one of a file's names is protected from.
    pub fn protected_from(&self, file: Identity) -> Option<Access> {
        self.0.get(&file).copied()
    }

    /// Calls `found` with the path of each name of these files below a folder, and with what they are protected from. Goes
    /// into the folders that `enter` says.
    pub fn names(
        &self,
        folder: &OwnedFd,
        at: &WorkspacePath,
        enter: impl Fn(&WorkspacePath) -> bool,
        mut found: impl FnMut(WorkspacePath, &Stat, Access),
    ) -> Result<(), Unsearched> {
        let numbers: HashSet<u64> = self.0.keys().map(|Identity(_, number)| *number).collect();
        let mut walk = Walk { left: MAX_ENTRIES, levels: MAX_LEVELS };
        walk.folder(folder, at, &mut |at, entry| {
            let Some(here) = entry.name.to_str().and_then(|name| at.child(name).ok()) else { return Ok(None) };
            if entry.kind == FileType::Directory {
                return Ok(enter(&here).then_some(here));
            }
            if numbers.contains(&entry.number) {
                let stat = entry.stat()?;
                if let Some(from) = self.protected_from(Identity::of(&stat)) {
                    found(here, &stat, from);
                }
            }
            Ok(None)
        })
    }
}

/// What is left of a search's limits.
struct Walk {
    left: u64,
    levels: u64,
}

/// What is in a folder; never a link.
struct Entry<'a> {
    folder: &'a OwnedFd,
    name: &'a OsStr,
    kind: FileType,
    /// Its number in the file system.
    number: u64,
}

impl Entry<'_> {
    fn stat(&self) -> Result<Stat, Errno> {
        rustix::fs::statat(self.folder, self.name, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Whether its name may make a rule apply that its folder's does not.
    fn is_suspicious(&self) -> bool {
        self.name.to_str().is_none_or(protected::could_be_protected)
    }
}

impl Walk {
    /// Visits each entry of a folder, and of the folders in it for which `visit` gives something to hand down. What
    /// went away in the meantime, and what the host may not look into, is left out: nobody reads it through the host.
    fn folder<T>(
        &mut self,
        folder: &OwnedFd,
        down: &T,
        visit: &mut impl FnMut(&T, &Entry<'_>) -> Result<Option<T>, Errno>,
    ) -> Result<(), Unsearched> {
        for entry in Dir::read_from(folder).map_err(Unsearched::System)? {
            let entry = entry.map_err(Unsearched::System)?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            self.left = self.left.checked_sub(1).ok_or(Unsearched::Entries)?;
            let mut seen = Entry { folder, name, kind: entry.file_type(), number: entry.ino() };
            if seen.kind == FileType::Unknown {
                match seen.stat() {
                    Ok(stat) => seen.kind = FileType::from_raw_mode(stat.st_mode),
                    Err(error) => Self::passing(error)?,
                }
            }
            if seen.kind == FileType::Symlink {
                continue;
            }
            match visit(down, &seen) {
                Ok(None) => {}
                Ok(Some(down)) => match rustix::fs::openat(folder, name, FOLDER, Mode::empty()) {
                    Ok(inner) => {
                        self.levels = self.levels.checked_sub(1).ok_or(Unsearched::Levels)?;
                        self.folder(&inner, &down, visit)?;
                        self.levels += 1;
                    }
                    Err(error) => Self::passing(error)?,
                },
                Err(error) => Self::passing(error)?,
            }
        }
        Ok(())
    }

    fn passing(error: Errno) -> Result<(), Unsearched> {
        match error {
            Errno::NOENT | Errno::ACCESS | Errno::NOTDIR | Errno::LOOP => Ok(()),
            error => Err(Unsearched::System(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(folder: &std::path::Path) -> OwnedFd {
        rustix::fs::open(folder, FOLDER, Mode::empty()).unwrap()
    }

    #[test]
    fn a_search_looks_at_so_many_entries() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let walk = |left| {
            let mut walk = Walk { left, levels: MAX_LEVELS };
            walk.folder(&opened(folder.path()), &(), &mut |(), _| Ok(None))
        };
        assert_eq!(walk(3), Ok(()));
        assert_eq!(walk(2), Err(Unsearched::Entries));
    }

    #[test]
    fn of_all_its_names_the_one_that_is_protected_most_counts() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("harness.lock"), "").unwrap();
        std::fs::write(at("plain"), "").unwrap();
        for name in ["a.pem", "b.pem", "plain-too"] {
            std::fs::hard_link(at(if name == "plain-too" { "plain" } else { "harness.lock" }), at(name)).unwrap();
        }
        let links = HardLinks::search(&Grant::new(Vec::new()), opened(folder.path()), &WorkspacePath::root()).unwrap();
        let from = |name: &str| links.protected_from(Identity::of(&rustix::fs::stat(at(name)).unwrap()));
        assert_eq!(from("harness.lock"), Some(Access::Read));
        assert_eq!(from("plain"), None);
        assert_eq!(links.0.len(), 1);
        // In whichever order they are come by.
        let stat = rustix::fs::stat(at("harness.lock")).unwrap();
        for order in [[Access::Write, Access::Read], [Access::Read, Access::Write]] {
            let mut links = HardLinks::default();
            order.into_iter().for_each(|from| links.add(&stat, from));
            assert_eq!(links.protected_from(Identity::of(&stat)), Some(Access::Read));
        }
    }
}
