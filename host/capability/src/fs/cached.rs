//! Looking at a file or folder, and reading a small file, without waiting: what the system has in its memory already.
//!
//! Another thread costs more than all the rest of a small read, so the usual case is tried here first, on the thread of
//! the call. It is done only where nothing is asked of a disk, a server or another process: on a file system of the
//! machine's own, for a path without links whose every part is in the kernel's cache (`openat2` with `RESOLVE_CACHED`,
//! Linux 5.12), and for content that is there, too (`preadv2` with `RWF_NOWAIT`). Everything else gives nothing, and is
//! done as ever, as is everything that would be an error: what is wrong is said in one place.

use std::fs::{File, Metadata};
use std::io::IoSliceMut;
use std::os::unix::fs::MetadataExt as _;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::{Facts, Workspace};
use harness_policy::grant::Grant;
use harness_policy::path::{Access, WorkspacePath};

/// Most bytes that are read so. Copying them takes some microseconds.
pub(super) const MAX_BYTES: u64 = 64 << 10;

/// File systems that open what is in their memory without asking anyone: of a disk of the machine's, or of its memory.
/// Not those of other processes and machines, nor those that are laid over others. (`statfs(2)`)
const LOCAL: [i64; 5] =
    [libc::EXT4_SUPER_MAGIC, libc::XFS_SUPER_MAGIC, libc::BTRFS_SUPER_MAGIC, libc::F2FS_SUPER_MAGIC, libc::TMPFS_MAGIC];

/// Whether what is in a folder can be looked at without waiting.
pub(super) fn local(folder: &cap_std::fs::Dir) -> bool {
    rustix::fs::fstatfs(folder).is_ok_and(|about| LOCAL.contains(&about.f_type))
}

impl Workspace {
    /// What [`read`](Self::read) answers, where that takes no waiting.
    pub fn read_cached(&self, grant: &Grant, path: &str) -> Option<String> {
        let (asked, seen) = self.look_cached(grant, path).ok()?;
        // Looked at before it is opened: opening a device or a pipe may do something.
        let most = grant.limits().file_bytes.min(MAX_BYTES);
        if !seen.is_file() || seen.len() > most {
            return None;
        }
        // When it was last read is not written down, which might be waited for; only its owner may ask for that.
        let file =
            self.open_cached(&asked, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOATIME).ok()?;
        let opened = file.metadata().ok()?;
        // Which names it has beside this one takes a search.
        if !opened.is_file() || opened.len() > most || opened.nlink() > 1 {
            return None;
        }
        // One byte more, to see its end.
        let mut content = vec![0; usize::try_from(opened.len()).ok()?.checked_add(1)?];
        let mut length = 0;
        loop {
            let mut rest = [IoSliceMut::new(content.get_mut(length..)?)];
            match preadv2(&file, &mut rest, length as u64, ReadWriteFlags::NOWAIT).ok()? {
                0 if length as u64 == opened.len() => break,
                // Shorter or longer than it was a moment ago.
                0 => return None,
                more => length = length.checked_add(more).filter(|length| *length < content.len())?,
            }
        }
        content.truncate(length);
        String::from_utf8(content).ok()
    }

    /// What [`exists`](Self::exists) answers, where that takes no waiting.
    pub fn exists_cached(&self, grant: &Grant, path: &str) -> Option<bool> {
        match self.look_cached(grant, path) {
            Ok(_) => Some(true),
            // Nothing has that name, as the kernel knows; what may not be read is as good as not there, too.
            Err(Some(Errno::NOENT)) => Some(false),
            Err(_) => None,
        }
    }

    /// What [`stat`](Self::stat) answers, where that takes no waiting.
    pub fn stat_cached(&self, grant: &Grant, path: &str) -> Option<Facts> {
        let (asked, seen) = self.look_cached(grant, path).ok()?;
        Some(Facts::of(&asked, &cap_std::fs::Metadata::from_just_metadata(seen)))
    }

    /// What is there, if it may be read. Errors: what the system says, where it was asked.
    fn look_cached(&self, grant: &Grant, path: &str) -> Result<(WorkspacePath, Metadata), Option<Errno>> {
        if self.slow.is_some() {
            return Err(None);
        }
        if !self.local {
            return Err(None);
        }
        let asked = self.parse(path).map_err(|_| None)?;
        // Nothing is found through a link, so that this is the place that would be arrived at.
        grant.decide_path(&asked, Access::Read).map_err(|_| None)?;
        let seen = self.open_cached(&asked, OFlags::PATH | OFlags::NOFOLLOW)?.metadata().map_err(|_| None)?;
        // With `O_PATH` a link at the end is opened itself.
        if seen.is_symlink() { Err(None) } else { Ok((asked, seen)) }
    }

    /// Opens what is at a path without a link, in the file system of the workspace and in the kernel's cache.
    fn open_cached(&self, path: &WorkspacePath, flags: OFlags) -> Result<File, Errno> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV | ResolveFlags::CACHED;
        let name = if path.is_root() { ".".to_owned() } else { path.to_string() };
        openat2(&self.root, name, flags | OFlags::CLOEXEC, Mode::empty(), resolve).map(File::from)
    }
}
