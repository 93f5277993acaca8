//! Files that the operator names and a command of the program's writes, such as `--html FILE`.
//!
//! The commands that an agent ran may have left anything at that name in the project: a link to a file of the
//! operator's, a pipe that someone listens at, a hard link. So below the project and the workspace a new file replaces
//! what has the name, and no link leads there. Elsewhere the operator's links and pipes are followed: nobody else
//! planted them.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Error, ErrorKind, Result, Write as _};
use std::path::{Component, Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, openat, openat2, renameat, unlinkat};
use rustix::io::Errno;

/// Who may read what is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    /// As of other files that the operator creates.
    All,
    /// The operator alone.
    Owner,
}

/// Writes a file as a whole: anyone who reads it sees the old text or the new one. `shared` are the folders in which
/// others may have planted something.
///
/// # Errors
///
/// What the system says; a link on the way, below a shared folder.
pub fn write(path: &Path, text: &str, readers: Readers, shared: &[&Path]) -> Result<()> {
    let shared: Vec<PathBuf> = shared.iter().filter_map(|folder| super::real_path(folder).ok()).collect();
    let name = path.file_name().ok_or(ErrorKind::IsADirectory)?;
    let (folder, within) = parent(path, &shared)?;
    match within {
        Some(shared) => replace(&open_below(&shared, &folder)?, name, text, readers),
        None => write_elsewhere(&folder.join(name), text, readers),
    }
}

/// The folder that [`write()`] writes in.
///
/// # Errors
///
/// As there.
pub fn folder(path: &Path, shared: &[&Path]) -> Result<PathBuf> {
    let shared: Vec<PathBuf> = shared.iter().filter_map(|folder| super::real_path(folder).ok()).collect();
    let name = path.file_name().ok_or(ErrorKind::IsADirectory)?;
    let (folder, within) = parent(path, &shared)?;
    let end = if within.is_some() { folder.join(name) } else { super::end_of_links(&folder.join(name)) };
    Ok(end.parent().map_or(folder, Path::to_owned))
}

/// The folder that a file is to be in, without links, and the shared folder that holds it.
fn parent(path: &Path, shared: &[PathBuf]) -> Result<(PathBuf, Option<PathBuf>)> {
    let within = |path: &Path| {
        shared.iter().filter(|folder| path.starts_with(folder)).max_by_key(|folder| folder.as_os_str().len()).cloned()
    };
    let mut at = PathBuf::from("/");
    let whole = std::path::absolute(path)?;
    for part in whole.parent().unwrap_or(Path::new("/")).components() {
        match part {
            Component::Normal(name) => {
                let next = at.join(name);
                let is_link = super::link_target(&next).is_some();
                if is_link && within(&at).is_some() {
                    let why = format!("`{}` is a link, which a command may have planted", next.display());
                    return Err(Error::new(ErrorKind::InvalidInput, why));
                }
                at = if is_link { super::real_path(&next)? } else { next };
            }
            // What was before it has no link in it.
            Component::ParentDir => drop(at.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    let within = within(&at);
    Ok((at, within))
}

/// Opens a folder below another one, which no link leads to, whoever swaps one in.
fn open_below(shared: &Path, folder: &Path) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = rustix::fs::open(shared, flags, Mode::empty())?;
    let below = folder.strip_prefix(shared).ok().filter(|below| !below.as_os_str().is_empty());
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    Ok(openat2(&top, below.unwrap_or(Path::new(".")), flags, Mode::empty(), resolve)?)
}

/// Puts a new file instead of what has the name.
fn replace(folder: &OwnedFd, name: &OsStr, text: &str, readers: Readers) -> Result<()> {
    let mode = match readers {
        Readers::All => Mode::from_raw_mode(0o666),
        Readers::Owner => Mode::RUSR | Mode::WUSR,
    };
    let mut random = [0; 8];
    super::fill_random(&mut random);
    let beside = format!(".harness-tmp-{:016x}", u64::from_ne_bytes(random));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(folder, &beside, flags, mode)?);
    let written = file.write_all(text.as_bytes());
    let written = written.and_then(|()| renameat(folder, &beside, folder, name).map_err(Errno::into));
    if written.is_err() {
        let _ = unlinkat(folder, &beside, AtFlags::empty());
    }
    written
}

/// Where nobody else plants anything: links stay, and what they lead to is replaced; what is there and is no regular file,
/// such as a pipe, is written to.
fn write_elsewhere(path: &Path, text: &str, readers: Readers) -> Result<()> {
    match std::fs::metadata(path) {
        Ok(facts) if facts.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Ok(facts) if !facts.is_file() => std::fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes()),
        // As of links that lead in a circle.
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => {
            let path = super::end_of_links(path);
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let folder = rustix::fs::open(folder, flags, Mode::empty())?;
            replace(&folder, path.file_name().ok_or(ErrorKind::IsADirectory)?, text, readers)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    struct Folder(tempfile::TempDir);

    impl Folder {
        /// A project, and what is the operator's own.
        fn new() -> Self {
            let folder = Self(tempfile::tempdir().unwrap());
            for path in ["work/reports", "own"] {
                fs::create_dir_all(folder.at(path)).unwrap();
            }
            fs::write(folder.at("own/notes"), "mine").unwrap();
            folder
        }

        fn at(&self, path: &str) -> PathBuf {
            self.0.path().canonicalize().unwrap().join(path)
        }

        fn write(&self, path: &str) -> Result<()> {
            write(&self.at(path), "new", Readers::Owner, &[&self.at("work")])
        }

        fn read(&self, path: &str) -> String {
            fs::read_to_string(self.at(path)).unwrap()
        }
    }

    #[test]
    fn what_is_planted_in_the_project_is_replaced() {
        let folder = Folder::new();
        symlink("../../own/notes", folder.at("work/reports/link")).unwrap();
        symlink("../../own/none", folder.at("work/reports/dangling")).unwrap();
        fs::hard_link(folder.at("own/notes"), folder.at("work/reports/hard")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, folder.at("work/reports/fifo"), rustix::fs::FileType::Fifo, Mode::RWXU, 0)
            .unwrap();
        for name in ["link", "dangling", "hard", "fifo", "plain", "../reports/plain"] {
            folder.write(&format!("work/reports/{name}")).unwrap();
            assert_eq!(folder.read(&format!("work/reports/{name}")), "new", "{name}");
            let facts = fs::symlink_metadata(folder.at(&format!("work/reports/{name}"))).unwrap();
            assert!(facts.is_file() && facts.permissions().mode() & 0o777 == 0o600, "{name}");
        }
        assert_eq!(folder.read("own/notes"), "mine");
        assert!(!folder.at("own/none").exists());
        assert_eq!(fs::read_dir(folder.at("work/reports")).unwrap().count(), 5);
    }

    #[test]
    fn no_folder_in_the_project_is_a_link() {
        let folder = Folder::new();
        symlink("../own", folder.at("work/planted")).unwrap();
        let why = format!("`{}` is a link, which a command may have planted", folder.at("work/planted").display());
        for path in ["work/planted/notes", "work/reports/../planted/notes"] {
            assert_eq!(folder.write(path).unwrap_err().to_string(), why, "{path}");
        }
        assert_eq!(folder.read("own/notes"), "mine");
        folder.write("work/reports/../../own/other").unwrap();
        assert_eq!(folder.read("own/other"), "new");
    }

    #[test]
    fn elsewhere_the_operators_links_stay() {
        let folder = Folder::new();
        symlink("notes", folder.at("own/link")).unwrap();
        symlink("work", folder.at("way")).unwrap();
        folder.write("own/link").unwrap();
        folder.write("way/reports/page").unwrap();
        assert_eq!((folder.read("own/notes"), folder.read("work/reports/page")), ("new".to_owned(), "new".to_owned()));
        assert!(folder.at("own/link").is_symlink());
        for path in ["own", "work/reports"] {
            assert_eq!(folder.write(path).unwrap_err().kind(), ErrorKind::IsADirectory, "{path}");
        }
    }
}
