//! What is in a folder: listings, and the entries that searches, copies and moves go through.

use std::ffi::OsString;
use std::io;

use cap_fs_ext::DirExt;
use cap_std::fs::{Dir, DirEntry, FileType, FileTypeExt, PermissionsExt as _};

use super::resolve::{LastLink, ResolvedPath, Spot};
use super::{Error, MAX_LEVELS, MAX_NAMES, MAX_VISITED, Workspace};
use harness_policy::grant::Grant;
use harness_policy::path::{Access, protected};
use harness_sys as sys;

impl Workspace {
    /// Names in a folder, sorted, without those that are refused. A link is judged by its own name, not by where it
    /// leads; names that no script could send back (not UTF-8, control characters) are left out too.
    pub fn list(&self, grant: &Grant, path: &str) -> Result<Vec<String>, Error> {
        let place = self.place(grant, path, Access::Read, LastLink::Follow)?;
        let folder = place.folder()?;
        let mut budget = Budget::new(MAX_VISITED);
        let mut names = Vec::new();
        for (name, _) in entries(&folder, &mut budget, |error| place.failed(error))? {
            let Ok(name) = name.into_string() else { continue };
            let Ok(path) = place.real.child(&name) else { continue };
            if grant.decide_path(&path, Access::Read).is_ok() {
                if names.len() as u64 == MAX_NAMES {
                    return Err(Error::TooLarge(MAX_NAMES));
                }
                names.push(name);
            }
        }
        Ok(names)
    }

    /// A handle of a folder that may be read, to start a child process in. It stays on that folder wherever the folder
    /// is moved. On Linux it is good for going into, not for listing.
    pub fn open_dir(&self, grant: &Grant, path: &str) -> Result<Dir, Error> {
        self.place(grant, path, Access::Read, LastLink::Follow)?.folder()
    }

    /// The folder that a server starts in: the workspace where the grant lets it be read, else one of the machine's, as
    /// the workspace is not there for it.
    ///
    /// # Errors
    ///
    /// Where neither can be opened.
    pub fn service_dir(&self, grant: &Grant) -> Result<Dir, Error> {
        match self.open_dir(grant, ".") {
            Err(Error::AccessDenied(_)) => {
                let opened = Dir::open_ambient_dir("/usr", cap_std::ambient_authority());
                opened.map_err(|error| Error::Io(error.to_string()))
            }
            opened => opened,
        }
    }
}

impl ResolvedPath {
    /// A handle of what must be a folder.
    pub(super) fn folder(&self) -> Result<Dir, Error> {
        let folder = match &self.spot {
            Spot::Folder(folder) => folder.try_clone(),
            Spot::There { folder, name, metadata } if metadata.is_dir() => folder.open_dir_nofollow(name),
            Spot::There { .. } => Err(io::ErrorKind::NotADirectory.into()),
            Spot::Missing { .. } | Spot::Blocked(_) => return Err(self.missing()),
        };
        folder.map_err(|error| self.failed(&error))
    }
}

/// How many more entries may be looked at, and how many more levels gone down.
#[derive(Debug)]
pub(super) struct Budget {
    entries: u64,
    left: u64,
    levels: u64,
    /// Whether there were more entries.
    spent: bool,
}

impl Budget {
    /// So many entries, and [`MAX_LEVELS`].
    pub(super) fn new(entries: u64) -> Self {
        Self { entries, left: entries, levels: MAX_LEVELS, spent: false }
    }

    /// One level further down.
    pub(super) fn down(&mut self) -> Result<(), Error> {
        self.levels = self.levels.checked_sub(1).ok_or(Error::TooLarge(MAX_LEVELS))?;
        Ok(())
    }

    /// And back.
    pub(super) fn up(&mut self) {
        self.levels += 1;
    }

    /// How many entries were checked, and whether there were more.
    pub(super) fn used(&self) -> (u64, bool) {
        (self.entries.saturating_sub(self.left), self.spent)
    }

    fn take(&mut self) -> Result<(), Error> {
        match self.left.checked_sub(1) {
            Some(left) => self.left = left,
            None => {
                self.spent = true;
                return Err(Error::TooLarge(self.entries));
            }
        }
        Ok(())
    }
}

/// The entries of a folder, sorted by name, with what each is; a link is a link. Without what only holds a name while a
/// command runs: the workspace has no such entry.
pub(super) fn entries(
    folder: &Dir,
    budget: &mut Budget,
    failed: impl Fn(&io::Error) -> Error,
) -> Result<Vec<(OsString, FileType)>, Error> {
    let mut entries = Vec::new();
    for entry in folder.entries().map_err(|error| failed(&error))? {
        budget.take()?;
        let entry = entry.map_err(|error| failed(&error))?;
        let mut kind = entry.file_type().map_err(|error| failed(&error))?;
        // Some file systems do not say in the listing what an entry is.
        if kind == FileType::unknown() {
            match entry.metadata() {
                Ok(metadata) => kind = metadata.file_type(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed(&error)),
            }
        }
        if !(kind.is_dir() && is_placeholder(&entry)) {
            entries.push((entry.file_name(), kind));
        }
    }
    entries.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    Ok(entries)
}

/// Whether a folder only holds a closed name.
fn is_placeholder(entry: &DirEntry) -> bool {
    entry.file_name().to_str().is_some_and(protected::is_closed_at_root)
        && entry.metadata().is_ok_and(|facts| sys::is_marked(facts.permissions().mode()))
}

/// The word for what is not a regular file; `None` for what is.
pub(super) fn odd_kind(kind: FileType) -> Option<&'static str> {
    if kind.is_file() {
        None
    } else if kind.is_dir() {
        Some("directory")
    } else if kind.is_fifo() {
        Some("fifo")
    } else if kind.is_socket() {
        Some("socket")
    } else if kind.is_symlink() {
        Some("link")
    } else {
        Some("device")
    }
}
