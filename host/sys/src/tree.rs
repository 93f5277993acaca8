//! The files in a folder of the project, at any depth, each with its length and digest: what someone looked at is what
//! is read later.
//!
//! Every folder and file is opened from the handle of the folder that it is in, and no link is followed, so that
//! nothing outside is read, whatever anyone moves meanwhile.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Error, ErrorKind, Read as _, Result, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, open, openat, statat};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use crate::digest::hex;

/// What a folder may hold at most.
#[derive(Debug, Clone, Copy)]
pub struct Most {
    /// Files and folders.
    pub entries: usize,
    /// Bytes of all files.
    pub bytes: u64,
    /// Folders inside each other.
    pub levels: usize,
}

/// A file in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// From the folder, with `/` between its parts.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// `sha256:` and hexadecimal digits.
    pub sha256: String,
    /// Whether anyone may execute it.
    pub is_executable: bool,
}

/// What is in a folder, each by its path, sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    /// Its files, sorted by path.
    pub files: Vec<Entry>,
    /// The folders in it, sorted by path.
    pub folders: Vec<String>,
    /// What was not looked into, and why.
    pub left_out: Vec<(String, String)>,
}

/// What reading a folder took, whether it could be read to its end or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Taken {
    /// Files and folders that were seen, those that were left out too.
    pub entries: usize,
    /// Bytes that were read.
    pub bytes: u64,
}

/// What something is by itself: a link is a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A link, wherever it leads.
    Link,
    /// A device, a FIFO, a socket.
    Other,
}

impl Kind {
    /// Of what is at a path. Nothing is opened.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn at(path: &Path) -> Result<Self> {
        Ok(Self::of(FileType::from_raw_mode(rustix::fs::lstat(path)?.st_mode)))
    }

    fn of(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Folder,
            FileType::Symlink => Self::Link,
            _ => Self::Other,
        }
    }
}

/// The names in a folder with what each is, in no order. A folder that is a link is not listed.
///
/// # Errors
///
/// What the system says, and that there are more than `most`.
pub fn list(folder: &Path, most: usize) -> Result<Vec<(OsString, Kind)>> {
    let dir = open(folder, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let mut names = Vec::new();
    for entry in Dir::read_from(&dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        if names.len() >= most {
            return Err(over(&format!("more than {most} files and folders")));
        }
        let kind = match entry.file_type() {
            // Not every file system has it in its folders.
            FileType::Unknown => match statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(facts) => FileType::from_raw_mode(facts.st_mode),
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(error.into()),
            },
            kind => kind,
        };
        names.push((OsStr::from_bytes(name.to_bytes()).to_owned(), Kind::of(kind)));
    }
    Ok(names)
}

/// Reads a folder. `leaves_out` says of a name why it is not looked at, `Some("")` where that is not worth a word. What it
/// took is added to `taken`, also where it fails: reading what is too large takes time each time.
///
/// # Errors
///
/// What the system says, and that there is more than there may be.
pub fn read(folder: &Path, most: Most, leaves_out: impl Fn(&str) -> Option<String>, taken: &mut Taken) -> Result<Tree> {
    let mut files = Vec::new();
    let mut tree = walk(folder, most, leaves_out, taken, |path, file, is_executable, left| {
        let (bytes, sha256) = digest(file, left)?;
        files.push(Entry { path, bytes, sha256, is_executable });
        Ok(bytes)
    })?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    tree.files = files;
    Ok(tree)
}

/// A file with all that is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// From the folder, with `/` between its parts.
    pub path: String,
    /// What is in it.
    pub bytes: Vec<u8>,
    /// Whether anyone may execute it.
    pub is_executable: bool,
}

/// The same with all that is in the files instead of their digests, in no order: each file is opened once.
///
/// # Errors
///
/// As of [`read`].
pub fn read_texts(folder: &Path, most: Most, leaves_out: impl Fn(&str) -> Option<String>) -> Result<(Tree, Vec<Text>)> {
    let mut texts = Vec::new();
    let tree = walk(folder, most, leaves_out, &mut Taken::default(), |path, file, is_executable, left| {
        let mut bytes = Vec::new();
        File::from(file).take(left.saturating_add(1)).read_to_end(&mut bytes)?;
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        texts.push(Text { path, bytes, is_executable });
        Ok(length)
    })?;
    Ok((tree, texts))
}

/// Walks through a folder. `read` gets each file with its path, whether anyone may execute it, and how many bytes it may
/// have, and returns how many it has, or one more than that.
fn walk(
    folder: &Path,
    most: Most,
    leaves_out: impl Fn(&str) -> Option<String>,
    taken: &mut Taken,
    mut read: impl FnMut(String, OwnedFd, bool, u64) -> Result<u64>,
) -> Result<Tree> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut waiting = vec![(String::new(), open(folder, flags, Mode::empty())?, 1_usize)];
    let (mut tree, mut entries, mut bytes) = (Tree::default(), 0_usize, 0_u64);
    while let Some((above, dir, level)) = waiting.pop() {
        for entry in Dir::read_from(&dir)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            entries = entries.saturating_add(1);
            taken.entries = taken.entries.saturating_add(1);
            if entries > most.entries {
                return Err(over(&format!("more than {} files and folders", most.entries)));
            }
            let Ok(name) = name.to_str() else {
                tree.left_out
                    .push((format!("{above}{}", name.to_string_lossy()), "its name is not UTF-8 text".to_owned()));
                continue;
            };
            let path = format!("{above}{name}");
            match leaves_out(name) {
                Some(why) if why.is_empty() => continue,
                Some(why) => {
                    tree.left_out.push((path, why));
                    continue;
                }
                None => {}
            }
            // A FIFO would keep the open waiting.
            let file = match openat(&dir, name, OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty()) {
                Ok(file) => file,
                Err(Errno::LOOP) => {
                    tree.left_out.push((path, "it is a link".to_owned()));
                    continue;
                }
                Err(Errno::NXIO) => {
                    tree.left_out.push((path, "it is not a file".to_owned()));
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let facts = fstat(&file)?;
            match FileType::from_raw_mode(facts.st_mode) {
                FileType::Directory if level >= most.levels => {
                    return Err(over(&format!("more than {} folders inside each other", most.levels)));
                }
                FileType::Directory => {
                    waiting.push((format!("{path}/"), file, level.saturating_add(1)));
                    tree.folders.push(path);
                }
                // Another name of it may be that of a secret elsewhere.
                FileType::RegularFile if facts.st_nlink > 1 => {
                    tree.left_out.push((path, "it has other names too (hard links)".to_owned()));
                }
                FileType::RegularFile => {
                    let is_executable = facts.st_mode & 0o111 != 0;
                    let length = read(path, file, is_executable, most.bytes.saturating_sub(bytes))?;
                    bytes = bytes.saturating_add(length);
                    taken.bytes = taken.bytes.saturating_add(length);
                    if bytes > most.bytes {
                        return Err(over(&format!("more than {} bytes", most.bytes)));
                    }
                }
                _ => tree.left_out.push((path, "it is not a file".to_owned())),
            }
        }
    }
    tree.folders.sort();
    tree.left_out.sort();
    Ok(tree)
}

/// A file of a folder, by the path that [`read`] has for it, as it is now.
///
/// # Errors
///
/// What the system says; no regular file, over `most` bytes.
pub fn read_file(folder: &Path, path: &str, most: u64) -> Result<Vec<u8>> {
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = open(folder, flags | OFlags::DIRECTORY, Mode::empty())?;
    let (folders, name) = path.rsplit_once('/').map_or((None, path), |(folders, name)| (Some(folders), name));
    for part in folders.into_iter().flat_map(|folders| folders.split('/')).chain([name]) {
        if matches!(part, "" | "." | "..") {
            return Err(ErrorKind::InvalidInput.into());
        }
    }
    for part in folders.into_iter().flat_map(|folders| folders.split('/')) {
        at = openat(&at, part, flags | OFlags::DIRECTORY, Mode::empty())?;
    }
    let file = openat(&at, name, flags | OFlags::NONBLOCK, Mode::empty())?;
    if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
        return Err(Error::new(ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut bytes = Vec::new();
    File::from(file).take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > most {
        return Err(over(&format!("more than {most} bytes")));
    }
    Ok(bytes)
}

/// Writes files into a new folder, each by its path in it. Folders on the way are created.
///
/// # Errors
///
/// What the system says; there is something of that name, or a path that leads out of the folder.
pub fn write<'f>(folder: &Path, files: impl Iterator<Item = (&'f str, &'f [u8])>) -> Result<()> {
    std::fs::create_dir(folder)?;
    for (path, text) in files {
        if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(ErrorKind::InvalidInput.into());
        }
        let path = folder.join(path);
        path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        File::options().write(true).create_new(true).open(path)?.write_all(text)?;
    }
    Ok(())
}

/// Replaces all files of a folder by these, each by its path in it. What is at one of the `kept` paths stays as it is. The
/// folder is created where it is not there. It is not done at once: who needs that marks when it is whole.
///
/// # Errors
///
/// What the system says; a path that leads out of the folder, or to what is kept.
pub fn replace<'f>(folder: &Path, kept: &[&str], files: impl Iterator<Item = (&'f str, &'f [u8])>) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    empty(folder, "", kept)?;
    for (path, text) in files {
        let is_kept = kept
            .iter()
            .any(|kept| path.strip_prefix(kept).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')));
        if is_kept || path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(ErrorKind::InvalidInput.into());
        }
        let path = folder.join(path);
        path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        File::options().write(true).create_new(true).open(path)?.write_all(text)?;
    }
    Ok(())
}

/// Removes all that is in a folder but what is kept. Links are removed, and what they lead to stays.
fn empty(folder: &Path, below: &str, kept: &[&str]) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = match entry.file_name().to_str() {
            Some(name) => format!("{below}{name}"),
            None => String::new(),
        };
        if kept.contains(&path.as_str()) {
            continue;
        }
        let is_folder = entry.file_type()?.is_dir();
        let inside = format!("{path}/");
        if is_folder && kept.iter().any(|kept| kept.starts_with(&inside)) {
            empty(&entry.path(), &inside, kept)?;
        } else if is_folder {
            std::fs::remove_dir_all(entry.path())?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Creates a folder, and those above it.
///
/// # Errors
///
/// What the system says.
pub fn create(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)
}

/// Removes a folder with everything in it. Links in it are removed, and what they lead to stays. Returns whether it was
/// there.
///
/// # Errors
///
/// What the system says; it is no folder.
pub fn remove(folder: &Path) -> Result<bool> {
    match std::fs::remove_dir_all(folder) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The length and the digest of a file, of one byte more than there may be at most.
fn digest(file: OwnedFd, most: u64) -> Result<(u64, String)> {
    let (mut file, mut hash, mut length) = (File::from(file).take(most.saturating_add(1)), Sha256::new(), 0_u64);
    let mut buffer = vec![0; 65_536];
    loop {
        let read = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hash.update(buffer.get(..read).unwrap_or_default());
        length = length.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
    }
    Ok((length, format!("sha256:{}", hex(&hash.finalize()))))
}

fn over(what: &str) -> Error {
    Error::other(what.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const MOST: Most = Most { entries: 20, bytes: 100, levels: 3 };

    fn paths(tree: &Tree) -> Vec<&str> {
        tree.files.iter().map(|file| file.path.as_str()).collect()
    }

    #[test]
    fn files_at_any_depth_and_no_links() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "s").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        std::fs::create_dir_all(at("b/c")).unwrap();
        std::fs::write(at("z.md"), "z").unwrap();
        std::fs::write(at("b/c/x.md"), "").unwrap();
        std::fs::write(at(".hidden"), "h").unwrap();
        symlink(outside.path().join("secret"), at("link")).unwrap();
        symlink(outside.path(), at("b/folder")).unwrap();
        std::fs::hard_link(outside.path().join("secret"), at("hard")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let leaves_out = |name: &str| match name {
            "z.md" => Some("why".to_owned()),
            name => name.starts_with('.').then(String::new),
        };
        let tree = read(folder.path(), MOST, leaves_out, &mut Taken::default()).unwrap();
        assert_eq!(paths(&tree), ["b/c/x.md"]);
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!((tree.files[0].bytes, tree.files[0].sha256.as_str()), (0, empty));
        let left_out: Vec<(&str, &str)> =
            tree.left_out.iter().map(|(path, why)| (path.as_str(), why.as_str())).collect();
        assert_eq!(
            left_out,
            [
                ("b/folder", "it is a link"),
                ("hard", "it has other names too (hard links)"),
                ("link", "it is a link"),
                ("pipe", "it is not a file"),
                ("z.md", "why")
            ]
        );
        // Nor is the folder itself a link.
        symlink(folder.path(), outside.path().join("tree")).unwrap();
        assert!(read(&outside.path().join("tree"), MOST, |_| None, &mut Taken::default()).is_err());
    }

    #[test]
    fn what_is_in_a_folder_is_listed_as_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        std::fs::create_dir(at("a")).unwrap();
        std::fs::write(at("b"), "").unwrap();
        symlink(at("a"), at("c")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at("d"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let mut listed = list(folder.path(), 4).unwrap();
        listed.sort_by(|one, other| one.0.cmp(&other.0));
        let listed: Vec<(&str, Kind)> = listed.iter().map(|(name, kind)| (name.to_str().unwrap(), *kind)).collect();
        assert_eq!(listed, [("a", Kind::Folder), ("b", Kind::File), ("c", Kind::Link), ("d", Kind::Other)]);
        assert!(listed.iter().all(|(name, kind)| Kind::at(&at(name)).unwrap() == *kind));
        assert_eq!(list(folder.path(), 3).unwrap_err().to_string(), "more than 3 files and folders");
        assert!(list(&at("c"), 4).is_err());
    }

    #[test]
    fn a_file_is_read_in_the_folder_alone() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::create_dir(outside.path().join("in")).unwrap();
        std::fs::write(outside.path().join("secret"), "s").unwrap();
        let folder = outside.path().join("in");
        std::fs::create_dir(folder.join("a")).unwrap();
        std::fs::write(folder.join("a/b"), "text").unwrap();
        symlink(outside.path(), folder.join("out")).unwrap();
        symlink("../secret", folder.join("link")).unwrap();
        assert_eq!(read_file(&folder, "a/b", 4).unwrap(), b"text");
        assert!(read_file(&folder, "a/b", 3).is_err());
        let absolute = outside.path().join("secret").display().to_string();
        for path in ["../secret", "a/../../secret", "out/secret", "link", "a", "", "a//b", "./a/b", absolute.as_str()] {
            assert!(read_file(&folder, path, 100).is_err(), "{path}");
        }
    }

    #[test]
    fn files_are_replaced_but_for_what_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("stays"), "s").unwrap();
        std::fs::create_dir_all(at("a/kept")).unwrap();
        std::fs::create_dir_all(at("a/kept-not")).unwrap();
        for file in ["a/kept/log", "a/old", "old", "a/kept-not/x"] {
            std::fs::write(at(file), "old").unwrap();
        }
        symlink(outside.path(), at("link")).unwrap();
        let files = [("a/new", &b"n"[..]), ("b/c", b"")];
        replace(folder.path(), &["a/kept"], files.into_iter()).unwrap();
        let tree = read(folder.path(), MOST, |_| None, &mut Taken::default()).unwrap();
        assert_eq!(paths(&tree), ["a/kept/log", "a/new", "b/c"]);
        assert!(!at("link").exists() && outside.path().join("stays").exists());
        for path in ["../x", "a/kept", "a/kept/log", "/x", ""] {
            let refused = replace(folder.path(), &["a/kept"], [(path, &b"x"[..])].into_iter());
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput, "{path}");
        }
        assert_eq!(std::fs::read(at("a/kept/log")).unwrap(), b"old");
    }

    #[test]
    fn no_more_than_there_may_be() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        let told = |most: Most| read(folder.path(), most, |_| None, &mut Taken::default()).unwrap_err().to_string();
        std::fs::write(at("a"), "x".repeat(100)).unwrap();
        let mut taken = Taken::default();
        assert_eq!(paths(&read(folder.path(), MOST, |_| None, &mut taken).unwrap()), ["a"]);
        assert_eq!(taken, Taken { entries: 1, bytes: 100 });
        // What was read before it was seen to be too much counts too.
        let fewer = Most { bytes: 20, ..MOST };
        assert!(read(folder.path(), fewer, |_| None, &mut taken).is_err());
        assert_eq!(taken, Taken { entries: 2, bytes: 121 });
        std::fs::write(at(".hidden"), "").unwrap();
        let hidden = |name: &str| name.starts_with('.').then(String::new);
        assert!(read(folder.path(), MOST, hidden, &mut taken).is_ok());
        assert_eq!(taken, Taken { entries: 4, bytes: 221 });
        std::fs::remove_file(at(".hidden")).unwrap();
        std::fs::write(at("b"), "x").unwrap();
        assert_eq!(told(MOST), "more than 100 bytes");
        assert_eq!(told(Most { entries: 1, ..MOST }), "more than 1 files and folders");
        std::fs::create_dir_all(at("c/d/e")).unwrap();
        assert_eq!(told(Most { bytes: 1000, ..MOST }), "more than 3 folders inside each other");
    }
}
