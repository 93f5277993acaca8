//! The temporary folder of a command that has no file system of its own: on the machine's disk, and gone with the command.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Once;

use rustix::fs::{AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use harness_sys as sys;

/// What names begin with.
const PREFIX: &str = "harness-command-";
/// How often another one is made, where someone who cleared up was faster.
const TRIES: usize = 3;
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A folder that is removed with all that is in it when this is dropped. No process may be left that writes there.
#[derive(Debug)]
pub(super) struct Temporary {
    pub(super) path: PathBuf,
    /// Locked as long as its host is there, so that no other one takes it for left behind.
    folder: OwnedFd,
}

impl Temporary {
    /// One in the machine's folder for that, from which those of hosts that were killed are removed first.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub(super) fn new() -> io::Result<Self> {
        static SWEPT: Once = Once::new();
        // As it is without links: by one no rule is found.
        let parent = sys::real_path(&sys::temporary_folder())?;
        SWEPT.call_once(|| sweep(&parent));
        Self::create_in(&parent)
    }

    fn create_in(parent: &Path) -> io::Result<Self> {
        let mut last = Errno::AGAIN;
        for _ in 0..TRIES {
            let path = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?.keep();
            match claim(&path) {
                Ok(folder) => return Ok(Self { path, folder }),
                Err(error) => last = error,
            }
        }
        Err(last.into())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // What fails here is tried again by the next host.
        if empty(&self.folder).is_ok() {
            let _ = rustix::fs::rmdir(&self.path);
        }
    }
}

/// Opens a folder that no other host holds.
fn claim(path: &Path) -> Result<OwnedFd, Errno> {
    let folder = rustix::fs::open(path, FOLDER, Mode::empty())?;
    rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive)?;
    // Removed between the two.
    if rustix::fs::fstat(&folder)?.st_nlink == 0 { Err(Errno::NOENT) } else { Ok(folder) }
}

/// Removes what hosts left that were killed.
fn sweep(parent: &Path) {
    for path in sys::entries(parent).unwrap_or_default() {
        let named = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(PREFIX));
        if !named || !is_own_folder(&path) {
            continue;
        }
        // A command may have closed it.
        let _ = rustix::fs::chmod(&path, Mode::RWXU);
        if let Ok(folder) = claim(&path) {
            drop(Temporary { path, folder });
        }
    }
}

/// Whether it is a folder of this user's, and no link.
fn is_own_folder(path: &Path) -> bool {
    rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|facts| FileType::from_raw_mode(facts.st_mode) == FileType::Directory && facts.st_uid == sys::user())
}

/// Removes all that is in a folder, whatever its modes are and however deep it is: what is further down is moved up, so
/// that two folders are open at one time. No link is followed.
fn empty(folder: &OwnedFd) -> Result<(), Errno> {
    rustix::fs::fchmod(folder, Mode::RWXU)?;
    let mut moved = 0_u64;
    loop {
        let names = names(folder)?;
        if names.is_empty() {
            return Ok(());
        }
        for name in names {
            if !is_folder_left(folder, &name)? {
                continue;
            }
            let inner = rustix::fs::openat(folder, &name, FOLDER, Mode::empty())?;
            for below in self::names(&inner)? {
                if is_folder_left(&inner, &below)? {
                    move_up(&inner, &below, folder, &mut moved)?;
                }
            }
            rustix::fs::unlinkat(folder, &name, AtFlags::REMOVEDIR)?;
        }
    }
}

/// Removes what is not a folder, and opens one to its user.
fn is_folder_left(folder: &OwnedFd, name: &CStr) -> Result<bool, Errno> {
    match rustix::fs::unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) => Ok(false),
        // It is no link then.
        Err(Errno::ISDIR) => rustix::fs::chmodat(folder, name, Mode::RWXU, AtFlags::empty()).map(|()| true),
        Err(error) => Err(error),
    }
}

/// Gives a folder a name in another one that nothing has there.
fn move_up(from: &OwnedFd, name: &CStr, to: &OwnedFd, moved: &mut u64) -> Result<(), Errno> {
    loop {
        *moved = moved.saturating_add(1);
        match rustix::fs::renameat(from, name, to, format!("moved-{moved}")) {
            Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
            done => return done,
        }
    }
}

fn names(folder: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let entries = Dir::read_from(folder)?.map(|entry| entry.map(|entry| entry.file_name().to_owned()));
    entries.filter(|name| !name.as_ref().is_ok_and(|name| matches!(name.to_bytes(), b"." | b".."))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a command may leave in its folder: folders that are closed, deeper ones than a path may be long or files may be
    /// open, names that something else has, links.
    #[test]
    fn it_goes_away_with_all_that_is_in_it() {
        let around = tempfile::tempdir().unwrap();
        let outside = around.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("kept"), "").unwrap();
        let temporary = Temporary::create_in(around.path()).unwrap();
        let at = |path: &str| temporary.path.join(path);
        std::fs::create_dir_all(at("closed/inner")).unwrap();
        std::fs::write(at("closed/inner/file"), "").unwrap();
        std::os::unix::fs::symlink(&outside, at("closed/link")).unwrap();
        std::os::unix::fs::symlink(&outside, at("link")).unwrap();
        std::fs::write(at("moved-1"), "").unwrap();
        std::fs::create_dir_all(at("moved-2/full")).unwrap();
        let mut folder = temporary.folder.try_clone().unwrap();
        for _ in 0..3_000 {
            rustix::fs::mkdirat(&folder, "deep", Mode::RWXU).unwrap();
            folder = rustix::fs::openat(&folder, "deep", FOLDER, Mode::empty()).unwrap();
        }
        for path in ["closed/inner", "closed", ""] {
            rustix::fs::chmod(at(path), Mode::empty()).unwrap();
        }
        drop(temporary);
        let left: Vec<_> = std::fs::read_dir(around.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left, [outside.as_path()]);
        assert!(outside.join("kept").exists());
    }

    #[test]
    fn what_a_host_left_that_was_killed_is_removed_and_what_others_have_is_not() {
        let around = tempfile::tempdir().unwrap();
        let kept = Temporary::create_in(around.path()).unwrap();
        let left = Temporary::create_in(around.path()).unwrap();
        std::fs::write(left.path.join("file"), "").unwrap();
        rustix::fs::chmod(&left.path, Mode::empty()).unwrap();
        let path = left.path.clone();
        // A host that is killed removes nothing, and holds no lock any more.
        rustix::fs::flock(&left.folder, FlockOperation::Unlock).unwrap();
        std::mem::forget(left);
        let others = ["other", "harness-command-file", "harness-command-link"].map(|name| around.path().join(name));
        std::fs::create_dir(&others[0]).unwrap();
        std::fs::write(&others[1], "").unwrap();
        std::os::unix::fs::symlink(&others[0], &others[2]).unwrap();
        sweep(around.path());
        assert!(!path.exists());
        assert!(kept.path.exists() && others.iter().all(|path| path.exists()));
    }
}
