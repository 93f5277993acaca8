//! The count of what a folder holds: a walk with one open folder at a time, however deep it is.

use std::ffi::CString;
use std::io;
use std::os::fd::AsRawFd as _;

use cap_std::fs::Dir;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, chmodat, fstat, openat, statat};
use rustix::io::Errno;

use super::space::{SpaceQuota, Used};

/// How often a folder is walked that changes meanwhile.
const ATTEMPTS: u32 = 3;
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What is in a folder, at most one entry or file more than the quota has.
///
/// # Errors
///
/// What the system says; a folder that is moved while it is walked, again and again.
pub(super) fn counted(root: &Dir, quota: &SpaceQuota) -> io::Result<Used> {
    let mut last = io::Error::from(io::ErrorKind::Other);
    for _ in 0..ATTEMPTS {
        match once(root, quota) {
            Ok(used) => return Ok(used),
            // A command removes or moves what is just walked.
            Err(error) if error.kind() == io::ErrorKind::NotFound => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

fn once(root: &Dir, quota: &SpaceQuota) -> io::Result<Used> {
    let mut used = Used::default();
    let mut here = openat(root, c".", FOLDER, Mode::empty())?;
    let mut inside = entries(&here, quota, &mut used)?;
    // Folders still to be visited, of each folder above.
    let mut above: Vec<Vec<CString>> = Vec::new();
    while !used.is_cut {
        match inside.pop() {
            Some(name) => {
                let Some(folder) = opened(&here, &name)? else { continue };
                above.push(inside);
                inside = entries(&folder, quota, &mut used)?;
                here = folder;
            }
            None => match above.pop() {
                Some(up) => {
                    here = openat(&here, c"..", FOLDER, Mode::empty())?;
                    inside = up;
                }
                None => break,
            },
        }
    }
    Ok(used)
}

/// Counts the entries of a folder, and gives the names of folders in it.
fn entries(folder: &OwnedFd, quota: &SpaceQuota, used: &mut Used) -> io::Result<Vec<CString>> {
    let mut folders = Vec::new();
    for entry in rustix::fs::Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let mut kind = entry.file_type();
        if matches!(kind, FileType::RegularFile | FileType::Unknown) {
            let stat = match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(error.into()),
            };
            kind = FileType::from_raw_mode(stat.st_mode);
            if kind == FileType::RegularFile {
                used.bytes = used.bytes.saturating_add(u64::try_from(stat.st_size).unwrap_or(u64::MAX));
            }
        }
        used.files = used.files.saturating_add(1);
        if kind == FileType::Directory {
            folders.push(name.to_owned());
        }
        if used.files > quota.files || used.bytes > quota.bytes {
            used.is_cut = true;
            break;
        }
    }
    Ok(folders)
}

/// A folder in another one; none where it is gone, or something else by now.
fn opened(here: &OwnedFd, name: &CString) -> io::Result<Option<OwnedFd>> {
    let folder = match openat(here, name, FOLDER, Mode::empty()) {
        Err(Errno::ACCESS) => {
            let closed = openat(here, name, FOLDER.difference(OFlags::RDONLY).union(OFlags::PATH), Mode::empty());
            closed.and_then(|closed| {
                open_to_owner(&closed)?;
                openat(here, name, FOLDER, Mode::empty())
            })
        }
        opened => opened,
    };
    match folder {
        Ok(folder) => {
            // Where a folder cannot be entered, its names can be listed, and nothing in it can be read.
            if fstat(&folder)?.st_mode & Mode::XUSR.bits() == 0 {
                open_to_owner(&folder)?;
            }
            Ok(Some(folder))
        }
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Opens a folder to its owner that a command has closed: nothing hides in there. By its handle, so that no link that takes
/// its name leads elsewhere.
fn open_to_owner(folder: &OwnedFd) -> rustix::io::Result<()> {
    chmodat(CWD, format!("/proc/self/fd/{}", folder.as_raw_fd()), Mode::RWXU, AtFlags::empty())
}
