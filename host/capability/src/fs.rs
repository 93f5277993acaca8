//! Files of the workspace: the interface `fs`.
//!
//! Everything starts from one open handle on the workspace. A path of a script is followed part by part, and link by
//! link, in `resolve`, the only place that does so; the decision is made on the place where that ends; and what is done
//! is done on the handle of the folder that was arrived at, never following a link again. Anyone who swaps a folder for
//! a link in between makes a call fail, and never makes it reach out of the workspace.
//!
//! All of it blocks, but what is in `cached`: callers in async code use a thread for it.

mod cached;
mod count;
mod folder;
mod other_names;
mod replace;
mod repository;
mod resolve;
mod search;
mod space;
mod transfer;

#[cfg(test)]
mod cached_tests;
#[cfg(test)]
mod folder_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod repository_tests;
#[cfg(test)]
mod tests;

use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cap_fs_ext::{FollowSymlinks, OpenOptionsFollowExt, OpenOptionsSyncExt};
use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, Metadata, MetadataExt, OpenOptions};
use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lower};

use self::other_names::Searched;
use self::replace::replace;
use self::resolve::{LastLink, ResolvedPath, Spot, make_folders};
use self::space::is_full;
pub use self::space::{Full, Space, SpaceQuota, Unwritten, Used, Writing};
use super::denial::Denial;
use harness_policy::grant::Grant;
use harness_policy::limits::LimitKey;
use harness_policy::path::{Access, PathError, WorkspacePath};
use harness_policy::refusal::Refusal;
use harness_wall::Listings;

/// Most names that a listing and most paths that a search answers with: more than a script can use.
pub const MAX_NAMES: u64 = 10_000;
/// Most entries that a search, or the check before a folder is moved, looks at. About a second of work.
pub const MAX_VISITED: u64 = 100_000;
/// Most folders inside each other that a search, a copy or a move goes down. One open handle each.
pub const MAX_LEVELS: u64 = 64;

/// The variant `error` of the interface.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lower, Serialize, Deserialize)]
#[component(variant)]
pub enum Error {
    /// The grant does not cover it, or a rule that no grant lifts forbids it.
    #[component(name = "access-denied")]
    AccessDenied(Denial),
    /// Nothing is there. Carries the path.
    #[component(name = "not-found")]
    NotFound(String),
    /// Something is there already. Carries the path.
    #[component(name = "already-exists")]
    AlreadyExists(String),
    /// A file was needed. Carries what it is: `directory`, `fifo`, `socket`, `device`.
    #[component(name = "not-a-file")]
    NotAFile(String),
    /// A directory was needed. Carries the path.
    #[component(name = "not-a-directory")]
    NotADirectory(String),
    /// A directory with something in it was to be removed. Carries the path.
    #[component(name = "not-empty")]
    NotEmpty(String),
    /// Over the cap. Carries the cap: bytes for files, entries for listings, levels for what is too deep.
    #[component(name = "too-large")]
    TooLarge(u64),
    /// Not UTF-8 text. Carries the path.
    #[component(name = "not-text")]
    NotText(String),
    /// Not a path or pattern at all. Carries what is wrong with it.
    #[component(name = "invalid")]
    Invalid(String),
    /// The system refused. Carries the kind of its error in words, which hold no path.
    #[component(name = "io")]
    Io(String),
}

/// The record `facts` of the interface.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lower, Serialize, Deserialize)]
#[component(record)]
pub struct Facts {
    /// Last part of the path that was asked for; `.` for the workspace.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Whether it is a folder.
    #[component(name = "is-dir")]
    pub is_dir: bool,
    /// Permission bits, such as 0o644.
    pub mode: u32,
    /// When its content last changed, in seconds since 1970, UTC.
    pub modified: i64,
}

impl Facts {
    fn of(asked: &WorkspacePath, metadata: &Metadata) -> Self {
        Self {
            name: asked.name().unwrap_or(".").to_owned(),
            size: metadata.len(),
            is_dir: metadata.is_dir(),
            mode: metadata.mode() & 0o7777,
            modified: metadata.mtime(),
        }
    }
}

/// What is left to a call for what the host copies for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Entries of folders.
    pub files: u64,
    /// Bytes.
    pub bytes: u64,
    /// What there was not enough of.
    pub over: Option<LimitKey>,
}

/// The folder that scripts work in, opened once by the host. Share it in an `Arc`.
///
/// Each function takes the grant of the call and the path as the script sent it, and fails as the interface says.
/// Paths in answers are those of the place that was arrived at, after links; paths in errors are those asked for.
#[derive(Debug)]
pub struct Workspace {
    root: Dir,
    /// Absolute, without links, without a slash at its end.
    absolute: String,
    /// Whether its file system is the machine's own, which is asked what it has in memory.
    local: bool,
    /// The protected files that have several names, as they were last found.
    searched: Mutex<Option<Searched>>,
    /// What its folders held when commands were last started.
    listings: Arc<Listings>,
    /// How much it may hold, where that is bounded.
    space: Option<Arc<Space>>,
    /// What every look at the disk waits for, for a test of what a slow one does.
    pub slow: Option<fn()>,
}

impl Workspace {
    /// Opens a folder as the workspace. The path is the operator's and may have links in it.
    ///
    /// # Errors
    ///
    /// Those of the system; and the root of the file system, or a path that is not UTF-8, is refused as invalid
    /// input: `/` would make `/proc` and every device part of the workspace, and scripts see paths as text.
    pub fn open(path: &Path) -> io::Result<Self> {
        let refuse = |reason| io::Error::new(io::ErrorKind::InvalidInput, reason);
        let canonical = path.canonicalize()?;
        if canonical.parent().is_none() {
            return Err(refuse("the root of the file system cannot be a workspace"));
        }
        let absolute = canonical.to_str().ok_or_else(|| refuse("the path of a workspace must be UTF-8"))?.to_owned();
        let root = Dir::open_ambient_dir(&canonical, ambient_authority())?;
        let (searched, listings) = (Mutex::new(None), Arc::default());
        Ok(Self { local: cached::local(&root), root, absolute, searched, listings, space: None, slow: None })
    }

    /// What is known of its folders from earlier commands.
    pub fn listings(&self) -> &Arc<Listings> {
        &self.listings
    }

    /// Its absolute path, without links and without a slash at the end.
    pub fn absolute(&self) -> &str {
        &self.absolute
    }

    /// The whole of a text file.
    ///
    /// A file with several names (hard links) may be read under any that is granted, unless one of those in the workspace
    /// is protected.
    pub fn read(&self, grant: &Grant, path: &str) -> Result<String, Error> {
        let cap = grant.limits().file_bytes;
        let (asked, content) = self.read_capped(grant, path, cap, cap)?;
        String::from_utf8(content).map_err(|_| Error::NotText(asked.to_string()))
    }

    /// The same of any file, of at most so many bytes.
    pub fn read_bytes(&self, grant: &Grant, path: &str, most: u64) -> Result<Vec<u8>, Error> {
        let cap = grant.limits().file_bytes.min(most);
        Ok(self.read_capped(grant, path, cap, cap)?.1)
    }

    /// The whole of a file of any bytes, as base64 with padding. The text is what `limits.file_bytes` bounds.
    pub fn read_base64(&self, grant: &Grant, path: &str) -> Result<String, Error> {
        let most = grant.limits().file_bytes;
        // Four characters stand for three bytes.
        let (_, content) = self.read_capped(grant, path, most / 4 * 3, most)?;
        Ok(STANDARD.encode(content))
    }

    /// Reads a file of at most `cap` bytes. Of a longer one it says that `shown` is the most.
    fn read_capped(&self, grant: &Grant, path: &str, cap: u64, shown: u64) -> Result<(WorkspacePath, Vec<u8>), Error> {
        let place = self.place(grant, path, Access::Read, LastLink::Follow)?;
        let (folder, name) = place.file()?;
        let (file, metadata) = open_file(folder, name, OpenOptions::new().read(true), |error| place.failed(error))?;
        self.no_other_name_is_protected(grant, &place.asked, &metadata)?;
        if metadata.len() > cap {
            return Err(Error::TooLarge(shown));
        }
        let mut content = Vec::new();
        // One byte more than the cap, to notice a file that grows while it is read.
        file.take(cap.saturating_add(1)).read_to_end(&mut content).map_err(|error| place.failed(&error))?;
        check_length(content.len(), cap).map_err(|_| Error::TooLarge(shown))?;
        Ok((place.asked, content))
    }

    /// Creates or replaces a file whole, through a file beside it that takes its name. The permission bits of a file
    /// that is replaced stay. Folders that are missing are made.
    ///
    /// A file with several names (hard links) is refused, here and in [`append`](Self::append): another of them may
    /// be outside the workspace, or protected.
    pub fn write(&self, grant: &Grant, path: &str, content: &str) -> Result<String, Error> {
        Ok(self.put(grant, path, content)?)
    }

    /// The same, for a caller who has something else to say where the quota has no room.
    pub fn put(&self, grant: &Grant, path: &str, content: &str) -> Result<String, Unwritten> {
        let place = self.place(grant, path, Access::Write, LastLink::Follow)?;
        check_length(content.len(), grant.limits().file_bytes)?;
        let (mut change, bytes) = (self.change()?, content.len() as u64);
        let replaced = if let Spot::Missing { folder, names, .. } = &place.spot {
            change.take(names.len() as u64, bytes)?;
            let made = make_folders(&mut change, folder, names);
            let (folder, name) = made.map_err(|error| place.failed(&error))?;
            replace(&mut change, (&folder, &name), content.as_bytes(), None)
        } else {
            let (folder, name) = place.file()?;
            // Opened although nothing is written through it: that the file may be written is the system's to say.
            let (_, metadata) = open_file(folder, name, OpenOptions::new().write(true), |error| place.failed(error))?;
            one_name_only(&metadata, &place)?;
            change.take(0, bytes.saturating_sub(metadata.len()))?;
            replace(&mut change, (folder, name), content.as_bytes(), Some(metadata.mode()))
        };
        replaced.map_err(|error| match is_full(&error) {
            Some(full) => Unwritten::Full(full.clone()),
            None => place.failed(&error).into(),
        })?;
        Ok(self.absolute_of(&place.real))
    }

    /// Adds to the end of a file. A missing file is made, a missing folder is not.
    pub fn append(&self, grant: &Grant, path: &str, content: &str) -> Result<String, Error> {
        let place = self.place(grant, path, Access::Write, LastLink::Follow)?;
        let fails = |error: &io::Error| place.failed(error);
        let cap = grant.limits().file_bytes;
        check_length(content.len(), cap)?;
        let (mut change, bytes) = (self.change()?, content.len() as u64);
        match &place.spot {
            Spot::Missing { folder, names, .. } => match names.as_slice() {
                [name] => {
                    change.take(1, bytes)?;
                    replace::make(&mut change, (folder, name), content.as_bytes()).map_err(|error| fails(&error))?;
                }
                _ => return Err(Error::NotFound(place.asked_folder())),
            },
            _ => change.alone(|used| {
                let (folder, name) = place.file()?;
                let (mut file, metadata) = open_file(folder, name, OpenOptions::new().append(true), fails)?;
                one_name_only(&metadata, &place)?;
                if metadata.len().saturating_add(bytes) > cap {
                    return Err(Error::TooLarge(cap));
                }
                used.take(0, bytes)?;
                replace::append(&mut file, content.as_bytes()).map_err(|error| {
                    used.forget();
                    fails(&error)
                })
            })?,
        }
        Ok(self.absolute_of(&place.real))
    }

    /// Whether something is there that the grant lets the script read.
    pub fn exists(&self, grant: &Grant, path: &str) -> Result<bool, Error> {
        let place = self.locate(&self.parse(path)?, Access::Read, LastLink::Follow)?;
        let there = matches!(place.spot, Spot::There { .. } | Spot::Folder(_));
        Ok(there && grant.decide_path(&place.real, Access::Read).is_ok())
    }

    /// Facts about a file or folder, links followed.
    pub fn stat(&self, grant: &Grant, path: &str) -> Result<Facts, Error> {
        let place = self.place(grant, path, Access::Read, LastLink::Follow)?;
        let metadata = match &place.spot {
            Spot::There { metadata, .. } => metadata.clone(),
            Spot::Folder(folder) => folder.dir_metadata().map_err(|error| place.failed(&error))?,
            Spot::Missing { .. } | Spot::Blocked(_) => return Err(place.missing()),
        };
        Ok(Facts::of(&place.asked, &metadata))
    }

    /// Removes a file or an empty folder. A link is removed itself, not what it leads to.
    pub fn remove(&self, grant: &Grant, path: &str) -> Result<String, Error> {
        let place = self.place(grant, path, Access::Write, LastLink::Keep)?;
        let (folder, name) = match &place.spot {
            Spot::There { folder, name, .. } => (folder, name),
            Spot::Folder(_) => return Err(denied("the workspace itself may not be removed")),
            Spot::Missing { .. } | Spot::Blocked(_) => return Err(place.missing()),
        };
        let removed = self.change()?.alone(|used| {
            // What has the name now is what is removed.
            let metadata = folder.symlink_metadata(name)?;
            if metadata.is_dir() { folder.remove_dir(name) } else { folder.remove_file(name) }?;
            used.give(1, if metadata.is_file() { metadata.len() } else { 0 });
            Ok(())
        });
        removed.map_err(|error: io::Error| place.failed(&error))?;
        Ok(self.absolute_of(&place.real))
    }

    /// Makes a folder and those above it.
    pub fn mkdir(&self, grant: &Grant, path: &str) -> Result<String, Error> {
        let place = self.place(grant, path, Access::Write, LastLink::Follow)?;
        match &place.spot {
            Spot::Folder(_) => {}
            Spot::There { metadata, .. } if metadata.is_dir() => {}
            Spot::There { .. } => return Err(Error::AlreadyExists(place.asked.to_string())),
            Spot::Missing { folder, names, .. } => {
                let mut change = self.change()?;
                change.take(names.len() as u64, 0)?;
                let made = make_folders(&mut change, folder, names);
                let (folder, name) = made.map_err(|error| place.failed(&error))?;
                repository::create_dir(&folder, &name).map_err(|error| place.failed(&error))?;
                change.spent(1, 0);
            }
            Spot::Blocked(_) => return Err(place.missing()),
        }
        Ok(self.absolute_of(&place.real))
    }

    fn parse(&self, path: &str) -> Result<WorkspacePath, Error> {
        Ok(WorkspacePath::parse(path, &self.absolute)?)
    }

    fn absolute_of(&self, path: &WorkspacePath) -> String {
        if path.is_root() { self.absolute.clone() } else { format!("{}/{path}", self.absolute) }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::AccessDenied(refusal.into())
    }
}

impl From<PathError> for Error {
    fn from(error: PathError) -> Self {
        match error {
            PathError::Invalid(reason) => Self::Invalid(reason),
            PathError::Escapes(refusal) => refusal.into(),
        }
    }
}

/// A refusal that no policy lifts.
fn denied(reason: impl Into<String>) -> Error {
    Refusal::always(reason).into()
}

fn check_length(len: usize, cap: u64) -> Result<(), Error> {
    if u64::try_from(len).is_ok_and(|len| len <= cap) { Ok(()) } else { Err(Error::TooLarge(cap)) }
}

/// Opens what is there under a name if it is a regular file, and looks at what was opened, not at the name again.
/// Without waiting: opening a pipe or a terminal may otherwise take for ever.
fn open_file(
    folder: &Dir,
    name: &str,
    options: &mut OpenOptions,
    failed: impl Fn(&io::Error) -> Error,
) -> Result<(File, Metadata), Error> {
    let options = options.follow(FollowSymlinks::No).nonblock(true);
    let file = folder.open_with(name, options).map_err(|error| failed(&error))?;
    let metadata = file.metadata().map_err(|error| failed(&error))?;
    match folder::odd_kind(metadata.file_type()) {
        Some(kind) => Err(Error::NotAFile(kind.to_owned())),
        None => Ok((file, metadata)),
    }
}

fn one_name_only(metadata: &Metadata, place: &ResolvedPath) -> Result<(), Error> {
    if metadata.nlink() > 1 {
        let path = &place.asked;
        return Err(denied(format!("writing `{path}` is not allowed: the file has other names too (hard links)")));
    }
    Ok(())
}
