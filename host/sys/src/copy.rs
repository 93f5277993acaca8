//! Copies of whole folders that others change meanwhile, and what is in such a copy.
//!
//! Each folder and file is opened from the handle of the folder that it is in, and no link is followed: programs that move
//! folders and links about during a copy get nothing into it that is outside of the folder.

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, fstat, mkdirat, open, openat, readlinkat, renameat_with,
    statat, symlinkat, syncfs,
};
use rustix::io::Errno;

use crate::digest::Running;

/// Folders inside each other. Each that is open takes two descriptors.
const MAX_LEVELS: usize = 128;
const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What is at a path of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// A folder.
    Folder,
    /// A regular file.
    File {
        /// Its length.
        bytes: u64,
        /// `sha256:` and hexadecimal digits.
        digest: String,
        /// Whether its owner may execute it.
        is_executable: bool,
    },
    /// A link, with what it leads to.
    Link(Vec<u8>),
    /// What is none of these, or cannot be read, and why.
    Other(String),
}

/// Copies what is in a folder into another one, which must exist: folders and files, for their owner alone. Links, and what
/// cannot be copied, are not created: `each` gets them. What disappears meanwhile is left out, and of a file that grows as
/// much is copied as it had when it was opened.
///
/// # Errors
///
/// What the system says of the copy, or of reading a file, and what `each` returns.
pub fn copy(from: &Path, to: &Path, mut each: impl FnMut(&[u8], Item) -> Result<()>) -> Result<()> {
    let (from, to) = (open(from, FOLDER, Mode::empty())?, open(to, FOLDER, Mode::empty())?);
    walk(&from, Some(&to), &mut Vec::new(), 1, &mut each)
}

/// Reads all that is in a folder, in no order.
///
/// # Errors
///
/// What the system says, and what `each` returns.
pub fn survey(folder: &Path, mut each: impl FnMut(&[u8], Item) -> Result<()>) -> Result<()> {
    walk(&open(folder, FOLDER, Mode::empty())?, None, &mut Vec::new(), 1, &mut each)
}

fn walk(
    from: &OwnedFd,
    to: Option<&OwnedFd>,
    path: &mut Vec<u8>,
    level: usize,
    each: &mut dyn FnMut(&[u8], Item) -> Result<()>,
) -> Result<()> {
    for entry in Dir::read_from(from)? {
        let entry = match entry {
            Ok(entry) => entry,
            // The folder itself was removed meanwhile.
            Err(Errno::NOENT) => break,
            Err(error) => return Err(error.into()),
        };
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let before = path.len();
        if before > 0 {
            path.push(b'/');
        }
        path.extend(name.to_bytes());
        one(from, to, name, path, level, each)?;
        path.truncate(before);
    }
    Ok(())
}

fn one(
    from: &OwnedFd,
    to: Option<&OwnedFd>,
    name: &std::ffi::CStr,
    path: &mut Vec<u8>,
    level: usize,
    each: &mut dyn FnMut(&[u8], Item) -> Result<()>,
) -> Result<()> {
    // Asked before it is opened: opening a device may do something.
    let kind = match statat(from, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(facts) => FileType::from_raw_mode(facts.st_mode),
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    match kind {
        FileType::Symlink => match readlinkat(from, name, Vec::new()) {
            Ok(target) => return each(path, Item::Link(target.into_bytes())),
            Err(Errno::NOENT | Errno::INVAL) => return Ok(()),
            Err(error) => return Err(error.into()),
        },
        FileType::RegularFile | FileType::Directory => {}
        _ => return each(path, Item::Other("it is neither a file nor a folder".to_owned())),
    }
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = match openat(from, name, flags, Mode::empty()) {
        Ok(opened) => opened,
        Err(Errno::NOENT) => return Ok(()),
        Err(error @ (Errno::ACCESS | Errno::PERM | Errno::LOOP | Errno::NXIO)) => {
            return each(path, Item::Other(Error::from(error).to_string()));
        }
        Err(error) => return Err(error.into()),
    };
    let facts = fstat(&opened)?;
    match FileType::from_raw_mode(facts.st_mode) {
        FileType::Directory if level >= MAX_LEVELS => {
            each(path, Item::Other(format!("more than {MAX_LEVELS} folders inside each other")))
        }
        FileType::Directory => {
            let into = to.map(|to| {
                mkdirat(to, name, Mode::RWXU)?;
                openat(to, name, FOLDER, Mode::empty())
            });
            each(path, Item::Folder)?;
            walk(&opened, into.transpose()?.as_ref(), path, level.saturating_add(1), each)
        }
        FileType::RegularFile => {
            let is_executable = facts.st_mode & 0o100 != 0;
            let length = u64::try_from(facts.st_size).unwrap_or(0);
            let into = to.map(|to| {
                let mode = if is_executable { Mode::RWXU } else { Mode::RUSR | Mode::WUSR };
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
                openat(to, name, flags, mode).map(File::from)
            });
            let (bytes, digest) = pour(&mut File::from(opened).take(length), into.transpose()?)?;
            each(path, Item::File { bytes, digest, is_executable })
        }
        _ => each(path, Item::Other("it is neither a file nor a folder".to_owned())),
    }
}

/// Reads to the end, and writes what was read if it is to be written. Returns its length and digest.
fn pour(from: &mut impl Read, mut to: Option<File>) -> Result<(u64, String)> {
    let (mut hash, mut length, mut buffer) = (Running::default(), 0_u64, vec![0; 128 << 10]);
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let part = buffer.get(..read).unwrap_or_default();
        hash.update(part);
        if let Some(to) = &mut to {
            std::io::Write::write_all(to, part)?;
        }
        length = length.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
    }
    Ok((length, hash.finish()))
}

/// A new file that only its owner reads.
///
/// # Errors
///
/// What the system says; there is something of that name.
pub fn new_file(path: &Path) -> Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

/// A new folder that only its owner opens, and those above it.
///
/// # Errors
///
/// What the system says.
pub fn new_folder(path: &Path) -> Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Creates a link to `target` at a path of a folder, through no other link.
///
/// # Errors
///
/// What the system says; a path that leads out of the folder.
pub fn link(folder: &Path, path: &[u8], target: &[u8]) -> Result<()> {
    let mut at = open(folder, FOLDER, Mode::empty())?;
    let mut parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    if parts.iter().any(|part| matches!(*part, b"" | b"." | b"..")) {
        return Err(ErrorKind::InvalidInput.into());
    }
    let name = parts.pop().ok_or(ErrorKind::InvalidInput)?;
    for part in parts {
        at = openat(&at, part, FOLDER, Mode::empty())?;
    }
    Ok(symlinkat(target, &at, name)?)
}

/// Gives a folder its name, which nothing has yet, and waits until all of its file system is on the disk.
///
/// # Errors
///
/// What the system says; there is something of that name.
pub fn publish(from: &Path, to: &Path) -> Result<()> {
    durable(from)?;
    renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?;
    durable(to)
}

/// Waits until the file system of a folder is on the disk.
///
/// # Errors
///
/// What the system says.
pub fn durable(folder: &Path) -> Result<()> {
    Ok(syncfs(open(folder, FOLDER, Mode::empty())?.as_fd())?)
}

/// The folder that is made of a path of [`survey`].
pub fn below(folder: &Path, path: &[u8]) -> PathBuf {
    folder.join(std::ffi::OsStr::from_bytes(path))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn found(folder: &Path) -> BTreeMap<String, Item> {
        let mut all = BTreeMap::new();
        survey(folder, |path, item| {
            all.insert(String::from_utf8_lossy(path).into_owned(), item);
            Ok(())
        })
        .unwrap();
        all
    }

    #[test]
    fn files_and_folders_are_copied_and_links_are_named() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "s").unwrap();
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = |path: &str| from.path().join(path);
        std::fs::create_dir_all(at("a/b")).unwrap();
        std::fs::write(at("a/b/c"), "text").unwrap();
        std::fs::write(at("run"), "").unwrap();
        std::fs::set_permissions(at("run"), std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(from.path().join(std::ffi::OsStr::from_bytes(b"\xff")), "odd").unwrap();
        symlink(outside.path(), at("a/link")).unwrap();
        rustix::fs::mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let mut named = BTreeMap::new();
        copy(from.path(), to.path(), |path, item| {
            named.insert(String::from_utf8_lossy(path).into_owned(), item);
            Ok(())
        })
        .unwrap();
        assert_eq!(named, found(from.path()));
        let digest = crate::digest::digest("text");
        assert_eq!(named["a/b/c"], Item::File { bytes: 4, digest, is_executable: false });
        assert_eq!(named["a/link"], Item::Link(outside.path().to_str().unwrap().as_bytes().to_vec()));
        assert_eq!(named["pipe"], Item::Other("it is neither a file nor a folder".to_owned()));
        named.retain(|_, item| matches!(item, Item::Folder | Item::File { .. }));
        assert_eq!(found(to.path()), named);
        let mode = |path: &str| std::fs::metadata(to.path().join(path)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("a"), mode("a/b/c"), mode("run")), (0o700, 0o600, 0o700));
    }

    #[test]
    fn a_link_is_made_in_the_folder_alone() {
        let (outside, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir(folder.path().join("a")).unwrap();
        symlink(outside.path(), folder.path().join("out")).unwrap();
        link(folder.path(), b"a/link", b"anywhere").unwrap();
        assert_eq!(std::fs::read_link(folder.path().join("a/link")).unwrap(), Path::new("anywhere"));
        for path in [&b"out/link"[..], b"../link", b"/link", b"", b"a//link", b"a/link"] {
            assert!(link(folder.path(), path, b"x").is_err(), "{}", String::from_utf8_lossy(path));
        }
    }

    #[test]
    fn what_is_published_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        new_folder(&at("new")).unwrap();
        new_folder(&at("there")).unwrap();
        assert_eq!(publish(&at("new"), &at("there")).unwrap_err().kind(), ErrorKind::AlreadyExists);
        publish(&at("new"), &at("named")).unwrap();
        assert!(at("named").is_dir() && !at("new").exists());
    }

    #[test]
    fn deep_folders_are_named_and_end_nothing() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::create_dir_all(from.path().join("d/".repeat(MAX_LEVELS + 5))).unwrap();
        let mut others = 0;
        copy(from.path(), to.path(), |_, item| {
            others += usize::from(matches!(item, Item::Other(_)));
            Ok(())
        })
        .unwrap();
        assert_eq!(others, 1);
    }
}
