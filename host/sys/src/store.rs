//! Folders that are kept under the digest of all that is in them, in a folder of the operator's own: what is found by a
//! digest is what it was when it was kept.

use std::ffi::OsString;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::digest::{digest_of, digest_of_file, hex};
use crate::tree::{self, Kind, Most};

/// What the names of folders begin with that are not kept yet.
const FRESH: &str = ".fresh-";

/// The folder of all of them.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
    most: Most,
}

/// A new folder of a store, which is removed with all that is in it when this is dropped.
#[derive(Debug)]
pub struct Fresh {
    folder: TempDir,
    /// Locked as long as it is used: what nobody holds was left behind by a process that was killed.
    _held: OwnedFd,
}

impl Fresh {
    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Store {
    /// The one in a folder, which need not be there yet. Each folder in it holds so much at most.
    pub fn new(folder: PathBuf, most: Most) -> Self {
        Self { folder, most }
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A new empty folder. Only its owner opens it. Those that killed processes have left are removed.
    ///
    /// # Errors
    ///
    /// What the system says. Others can write to the store.
    pub fn fresh(&self) -> Result<Fresh> {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        self.is_there()?;
        self.sweep();
        // Another process may sweep one away that is not claimed yet.
        const TRIES: usize = 8;
        let fresh = || {
            let folder = tempfile::Builder::new().prefix(FRESH).tempdir_in(&self.folder)?;
            let held = claim(folder.path())?;
            Ok(Fresh { folder, _held: held })
        };
        (1..TRIES).find_map(|_| fresh().ok()).map_or_else(fresh, Ok)
    }

    fn sweep(&self) {
        for (name, kind) in tree::list(&self.folder, usize::MAX).unwrap_or_default() {
            let path = self.folder.join(&name);
            if kind == Kind::Folder && name.as_bytes().starts_with(FRESH.as_bytes()) && claim(&path).is_ok() {
                let _ = std::fs::remove_dir_all(&path);
            }
        }
    }

    /// Whether the store is there, and nobody else can put anything into it: they would choose what its names mean.
    fn is_there(&self) -> Result<bool> {
        let facts = match std::fs::metadata(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            facts => facts?,
        };
        if facts.uid() == crate::user() && facts.mode() & 0o022 == 0 {
            return Ok(true);
        }
        let why = format!("others can write to `{}`: it has to be yours alone (`chmod 700`)", self.folder.display());
        Err(Error::new(ErrorKind::PermissionDenied, why))
    }

    /// Keeps a folder that is in a fresh one, and gives its digest. Files `without` are removed before, by their paths in it.
    /// Nobody may change it any more.
    ///
    /// # Errors
    ///
    /// What the system says. It is no folder, it holds more than it may, something that is no file, folder or link, or a link
    /// that leads out of it: what is there is not part of the digest.
    pub fn keep(&self, fresh: &Fresh, name: &str, without: &[&str]) -> Result<String> {
        let folder = &fresh.path().join(name);
        if Kind::at(folder)? != Kind::Folder {
            return Err(odd(folder, "is not a folder"));
        }
        for path in without {
            remove_below(folder, path)?;
        }
        let digest = digest_of_folder(folder, self.most)?;
        let place = self.place(&digest)?;
        // One that is there and is something else would be found and refused for ever.
        if !self.find(&digest).is_ok_and(|found| found.is_some()) {
            replace(folder, &place)?;
        }
        Ok(digest)
    }

    /// Keeps a folder that is in a fresh one under a digest of the caller's own, instead of what is there.
    ///
    /// # Errors
    ///
    /// What the system says. The digest is none.
    pub fn keep_as(&self, fresh: &Fresh, name: &str, digest: &str) -> Result<()> {
        replace(&fresh.path().join(name), &self.place(digest)?)
    }

    /// Where the folder with a digest of the caller's own is, which nobody has read; none where it is not there.
    ///
    /// # Errors
    ///
    /// What the system says. It is no folder. Others can write to the store.
    pub fn located(&self, digest: &str) -> Result<Option<PathBuf>> {
        let place = self.place(digest)?;
        if !self.is_there()? {
            return Ok(None);
        }
        match Kind::at(&place) {
            Ok(Kind::Folder) => Ok(Some(place)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Ok(_) => Err(changed(&place)),
            Err(error) => Err(error),
        }
    }

    /// The folder with a digest, which is read whole; none where it is not there.
    ///
    /// # Errors
    ///
    /// What the system says. It is no longer what its name says. Others can write to the store.
    pub fn find(&self, digest: &str) -> Result<Option<PathBuf>> {
        let Some(place) = self.located(digest)? else { return Ok(None) };
        let now = digest_of_folder(&place, self.most)?;
        if now == digest { Ok(Some(place)) } else { Err(changed(&place)) }
    }

    fn place(&self, digest: &str) -> Result<PathBuf> {
        let name = digest.strip_prefix("sha256:").filter(|hex| hex.len() == 64);
        let name = name.filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
        Ok(self.folder.join(name.ok_or(ErrorKind::InvalidInput)?))
    }
}

/// Moves a folder to its place, instead of what is there.
fn replace(folder: &Path, place: &Path) -> Result<()> {
    match std::fs::symlink_metadata(place) {
        Ok(facts) if !facts.is_dir() => std::fs::remove_file(place)?,
        Ok(_) => std::fs::remove_dir_all(place)?,
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Err(_) => {}
    }
    match std::fs::rename(folder, place) {
        // Another process was faster.
        Err(error) if matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists) => Ok(()),
        moved => moved,
    }
}

/// Holds a folder that nobody else holds.
fn claim(path: &Path) -> Result<OwnedFd> {
    let folder = open(path, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    flock(&folder, FlockOperation::NonBlockingLockExclusive)?;
    // Removed between the two.
    if fstat(&folder)?.st_nlink == 0 { Err(Errno::NOENT.into()) } else { Ok(folder) }
}

/// Removes a file of a folder, where it is there. No link is followed on the way.
fn remove_below(folder: &Path, path: &str) -> Result<()> {
    let mut at = folder.to_owned();
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    for part in folders.split('/').filter(|part| !part.is_empty()) {
        at.push(part);
        match Kind::at(&at) {
            Ok(Kind::Folder) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Ok(_) => return Err(odd(&at, "is not a folder")),
            Err(error) => return Err(error),
        }
    }
    match std::fs::remove_file(at.join(name)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn changed(place: &Path) -> Error {
    Error::new(ErrorKind::InvalidData, format!("`{}` was changed: remove it", place.display()))
}

/// The digest of a folder: of the names, the contents, the links and which files may be run. Neither owners nor times nor
/// other rights are part of it.
///
/// # Errors
///
/// What the system says; see [`Store::keep`].
fn digest_of_folder(folder: &Path, most: Most) -> Result<String> {
    let root = std::fs::canonicalize(folder)?;
    let (mut hash, mut entries, mut bytes) = (Sha256::new(), 0_usize, 0_u64);
    // Sorted, and the last is taken first.
    let mut waiting = vec![(OsString::new(), Kind::Folder, 0_usize)];
    while let Some((name, kind, level)) = waiting.pop() {
        let path = root.join(&name);
        let value = match kind {
            Kind::Folder => {
                if level > most.levels {
                    return Err(over(&format!("more than {} folders inside each other", most.levels)));
                }
                let mut inside = tree::list(&path, most.entries)?;
                entries = entries.saturating_add(inside.len());
                if entries > most.entries {
                    return Err(over(&format!("more than {} files and folders", most.entries)));
                }
                inside.sort_by(|a, b| b.0.cmp(&a.0));
                let level = level.saturating_add(1);
                waiting.extend(inside.into_iter().map(|(part, kind)| (join(&name, &part), kind, level)));
                "folder".to_owned()
            }
            Kind::File => {
                let facts = std::fs::symlink_metadata(&path)?;
                bytes = bytes.saturating_add(facts.len());
                if bytes > most.bytes {
                    return Err(over(&format!("more than {} bytes", most.bytes)));
                }
                let kind = if facts.permissions().mode() & 0o100 == 0 { "file" } else { "program" };
                format!("{kind} {}", digest_of_file(&path)?)
            }
            Kind::Link => {
                let leads_out = std::fs::canonicalize(&path).is_ok_and(|end| !end.starts_with(&root));
                let target = std::fs::read_link(&path)?;
                if leads_out || target.is_absolute() {
                    return Err(odd(&path, "is a link that leads out of it"));
                }
                format!("link {}", digest_of(target.as_os_str().as_bytes()))
            }
            Kind::Other => return Err(odd(&path, "is neither a file nor a folder")),
        };
        let mut line = format!("{} ", name.len()).into_bytes();
        line.extend(name.as_bytes());
        line.extend(format!(" {value}\n").as_bytes());
        hash.update(&line);
    }
    Ok(format!("sha256:{}", hex(&hash.finalize())))
}

fn join(folder: &OsString, name: &OsString) -> OsString {
    if folder.is_empty() {
        return name.clone();
    }
    let mut path = folder.clone();
    path.push("/");
    path.push(name);
    path
}

fn over(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

fn odd(path: &Path, what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("`{}` {what}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    const MOST: Most = Most { entries: 6, bytes: 100, levels: 3 };

    type Change<'a> = &'a dyn Fn(&Path);

    /// A folder to keep, with a program, a file further down and a link to it.
    fn fresh(store: &Store) -> (Fresh, PathBuf) {
        let fresh = store.fresh().unwrap();
        let folder = fresh.path().join("kept");
        let at = |path: &str| folder.join(path);
        std::fs::create_dir_all(at("a/b")).unwrap();
        std::fs::write(at("a/b/file"), "one").unwrap();
        std::fs::write(at("program"), "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(at("program"), std::fs::Permissions::from_mode(0o700)).unwrap();
        symlink("a/b/file", at("link")).unwrap();
        (fresh, folder)
    }

    fn keep(store: &Store) -> String {
        store.keep(&fresh(store).0, "kept", &[]).unwrap()
    }

    fn store() -> (TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(folder.path().join("x/store"), MOST);
        (folder, store)
    }

    #[test]
    fn what_is_kept_is_found_by_its_digest() {
        let (_folder, store) = store();
        let digest = keep(&store);
        let found = store.find(&digest).unwrap().unwrap();
        assert_eq!(std::fs::read_to_string(found.join("link")).unwrap(), "one");
        // Once more, and the same folder.
        assert_eq!(keep(&store), digest);
        assert_eq!(tree::list(store.folder(), 10).unwrap().len(), 1);
        let mode = std::fs::metadata(store.folder()).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o700);
        assert_eq!(store.find(&format!("sha256:{}", "0".repeat(64))).unwrap(), None);
        for wrong in ["", "sha256:", "sha256:../../x", &format!("sha256:{}", "../".repeat(22))] {
            assert_eq!(store.find(wrong).unwrap_err().kind(), ErrorKind::InvalidInput, "{wrong}");
        }
    }

    #[test]
    fn every_change_is_another_digest() {
        let (_folder, store) = store();
        let digest = keep(&store);
        let changes: [(&str, Change<'_>); 8] = [
            ("a byte", &|at| std::fs::write(at.join("a/b/file"), "two").unwrap()),
            ("a name", &|at| std::fs::rename(at.join("a/b"), at.join("a/c")).unwrap()),
            ("a file that is gone", &|at| std::fs::remove_file(at.join("program")).unwrap()),
            ("one more folder", &|at| std::fs::create_dir(at.join("c")).unwrap()),
            ("no program any more", &|at| {
                std::fs::set_permissions(at.join("program"), std::fs::Permissions::from_mode(0o600)).unwrap();
            }),
            ("another end of a link", &|at| {
                std::fs::remove_file(at.join("link")).unwrap();
                symlink("program", at.join("link")).unwrap();
            }),
            ("a file instead of a link", &|at| {
                std::fs::remove_file(at.join("link")).unwrap();
                std::fs::write(at.join("link"), "one").unwrap();
            }),
            ("a folder instead of a file", &|at| {
                std::fs::remove_file(at.join("program")).unwrap();
                std::fs::create_dir(at.join("program")).unwrap();
            }),
        ];
        for (what, change) in changes {
            // One that is kept is no longer found, and can be kept again.
            let kept = store.find(&digest).unwrap().unwrap();
            change(&kept);
            let why = store.find(&digest).unwrap_err();
            assert_eq!(why.to_string(), format!("`{}` was changed: remove it", kept.display()), "{what}");
            assert_eq!(keep(&store), digest);
            assert!(store.find(&digest).unwrap().is_some(), "{what}");
            // And another one is another folder.
            let (fresh, other) = fresh(&store);
            change(&other);
            assert_ne!(store.keep(&fresh, "kept", &[]).unwrap(), digest, "{what}");
        }
        // What is no part of it.
        let (fresh, other) = fresh(&store);
        std::fs::set_permissions(other.join("a/b/file"), std::fs::Permissions::from_mode(0o604)).unwrap();
        assert_eq!(store.keep(&fresh, "kept", &[]).unwrap(), digest);
        // A link in the place of a kept folder is not followed.
        let kept = store.find(&digest).unwrap().unwrap();
        std::fs::rename(&kept, store.folder().join("moved")).unwrap();
        symlink("moved", &kept).unwrap();
        assert!(store.find(&digest).is_err());
    }

    #[test]
    fn what_cannot_be_held_to_a_digest_is_not_kept() {
        let (folder, store) = store();
        std::fs::write(folder.path().join("outside"), "").unwrap();
        let told = |make: &dyn Fn(&Path)| {
            let fresh = store.fresh().unwrap();
            let folder = fresh.path().join("kept");
            std::fs::create_dir(&folder).unwrap();
            let real = std::fs::canonicalize(&folder).unwrap().display().to_string();
            make(&folder);
            store.keep(&fresh, "kept", &[]).map_err(|why| why.to_string().replace(&real, "."))
        };
        let leads_out = Err("`./x` is a link that leads out of it".to_owned());
        assert_eq!(told(&|at| symlink("../../../../outside", at.join("x")).unwrap()), leads_out);
        assert_eq!(told(&|at| symlink("/nowhere", at.join("x")).unwrap()), leads_out);
        assert_eq!(told(&|at| symlink(at, at.join("x")).unwrap()), leads_out);
        // Out of it by another link.
        let by_another = |at: &Path| {
            std::fs::create_dir_all(at.join("a/b")).unwrap();
            symlink("../..", at.join("a/b/up")).unwrap();
            symlink("a/b/up/../../..", at.join("x")).unwrap();
        };
        assert_eq!(told(&by_another), leads_out);
        assert!(told(&|at| symlink("nowhere", at.join("x")).unwrap()).is_ok());
        let fifo = |at: &Path| {
            rustix::fs::mknodat(rustix::fs::CWD, at.join("x"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        };
        assert_eq!(told(&fifo), Err("`./x` is neither a file nor a folder".to_owned()));
        let many = |count: usize| {
            move |at: &Path| (0..count).for_each(|n| std::fs::write(at.join(n.to_string()), "").unwrap())
        };
        assert!(told(&many(6)).is_ok());
        assert!(told(&many(7)).unwrap_err().starts_with("more than 6 "));
        let deep = |path: &'static str| move |at: &Path| std::fs::create_dir_all(at.join(path)).unwrap();
        assert!(told(&deep("a/b/c")).is_ok());
        assert_eq!(told(&deep("a/b/c/d")), Err("more than 3 folders inside each other".to_owned()));
        let long = |bytes: usize| move |at: &Path| std::fs::write(at.join("x"), vec![0; bytes]).unwrap();
        assert!(told(&long(100)).is_ok());
        assert_eq!(told(&long(101)), Err("more than 100 bytes".to_owned()));
        // Nothing of it stays.
        let left = tree::list(store.folder(), 100).unwrap();
        assert!(left.iter().all(|(name, _)| name.len() == 64), "{left:?}");
    }

    /// What an installer leaves in the place of the folder, or in the way of a file that is left out of it.
    #[test]
    fn nothing_outside_is_kept_or_removed() {
        let (folder, store) = store();
        let outside = folder.path().join("outside");
        std::fs::create_dir_all(outside.join("a")).unwrap();
        std::fs::write(outside.join("a/note"), "").unwrap();
        let fresh = store.fresh().unwrap();
        let at = |path: &str| fresh.path().join(path);
        let told = |name: &str| {
            let kept = store.keep(&fresh, name, &["a/note"]);
            kept.map_err(|why| why.to_string().replace(&fresh.path().display().to_string(), "."))
        };
        symlink(&outside, at("link")).unwrap();
        assert_eq!(told("link"), Err("`./link` is not a folder".to_owned()));
        std::fs::create_dir(at("inner")).unwrap();
        symlink(outside.join("a"), at("inner/a")).unwrap();
        assert_eq!(told("inner"), Err("`./inner/a` is not a folder".to_owned()));
        assert!(outside.join("a/note").exists());
        // A link in the place of the file itself goes, and a file.
        for file in [true, false] {
            std::fs::create_dir_all(at("good/a")).unwrap();
            match file {
                true => std::fs::write(at("good/a/note"), "").unwrap(),
                false => symlink(outside.join("a/note"), at("good/a/note")).unwrap(),
            }
            let kept = store.find(&told("good").unwrap()).unwrap().unwrap();
            assert!(!kept.join("a/note").is_symlink() && kept.join("a").is_dir() && outside.join("a/note").exists());
            let _ = std::fs::remove_dir_all(at("good"));
        }
    }

    #[test]
    fn a_store_that_others_can_write_to_is_not_used() {
        let (_folder, store) = store();
        let digest = keep(&store);
        let mode = |mode| std::fs::set_permissions(store.folder(), std::fs::Permissions::from_mode(mode)).unwrap();
        for open in [0o770, 0o707, 0o722] {
            mode(open);
            let why =
                format!("others can write to `{}`: it has to be yours alone (`chmod 700`)", store.folder().display());
            assert_eq!(store.find(&digest).unwrap_err().to_string(), why);
            assert_eq!(store.fresh().unwrap_err().to_string(), why);
        }
        for closed in [0o700, 0o755] {
            mode(closed);
            assert!(store.find(&digest).unwrap().is_some());
        }
    }

    #[test]
    fn what_killed_processes_have_left_is_removed() {
        let (_folder, store) = store();
        let (used, _) = fresh(&store);
        let left = store.folder().join(format!("{FRESH}left"));
        std::fs::create_dir_all(left.join("a")).unwrap();
        let kept = store.find(&keep(&store)).unwrap().unwrap();
        assert!(!left.exists() && used.path().join("kept").exists() && kept.exists());
    }
}
