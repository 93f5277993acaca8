//! Files that the operator names and a command of the program's writes, such as `--html FILE`.
//!
//! The commands that an agent ran may have left anything at that name in the project: a link to a file of the
//! operator's, a pipe that someone listens at, a hard link. So below the project and the workspace a new file replaces
//! what has the name, and no link leads there. Elsewhere the operator's links and pipes are followed where the file is
//! the operator's own, such as a client's configuration. A report is written through no link at all: a run may have had
//! another workspace, of which the command that writes the report knows nothing.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Error, ErrorKind, Result, Write as _};
use std::os::unix::fs::MetadataExt as _;
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

/// Which links lead to a file outside of the shared folders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Links {
    /// All: they are the operator's.
    All,
    /// Only those that no command can have planted.
    System,
}

/// Writes a file as a whole: anyone who reads it sees the old text or the new one. `shared` are the folders in which
/// others may have planted something.
///
/// # Errors
///
/// What the system says; a link on the way, below a shared folder.
pub fn write(path: &Path, text: impl AsRef<[u8]>, readers: Readers, shared: &[&Path]) -> Result<()> {
    let text = text.as_ref();
    let name = path.file_name().ok_or(ErrorKind::IsADirectory)?;
    let (folder, within) = parent(path, &real(shared), Links::All)?;
    match within {
        Some(shared) => replace(&open_below(&shared, &folder)?, name, text, readers),
        None => write_elsewhere(&folder.join(name), text, readers),
    }
}

/// The same for a report, wherever it is: a link that has its name is replaced, and no link leads to its folder but those
/// of the system. `/dev/stdout`, `/dev/stderr` and `/dev/fd/N` are written to.
///
/// # Errors
///
/// What the system says; a link on the way.
pub fn write_report(path: &Path, text: impl AsRef<[u8]>, readers: Readers, shared: &[&Path]) -> Result<()> {
    let text = text.as_ref();
    let name = path.file_name().ok_or(ErrorKind::IsADirectory)?;
    if is_stream(path) {
        return write_elsewhere(path, text, readers);
    }
    let (folder, within) = parent(path, &real(shared), Links::System)?;
    let whole = folder.join(name);
    match (within, std::fs::symlink_metadata(&whole)) {
        (Some(top), _) => replace(&open_below(&top, &folder)?, name, text, readers),
        // A pipe or a device of the operator's.
        (None, Ok(facts)) if !facts.is_file() && !facts.is_symlink() => write_elsewhere(&whole, text, readers),
        (None, _) => replace(&open_below(&folder, &folder)?, name, text, readers),
    }
}

/// Folders whose links are the streams of this process.
const STREAMS: [&str; 3] = ["/dev", "/dev/fd", "/proc/self/fd"];

fn is_stream(path: &Path) -> bool {
    path.parent().is_some_and(|folder| STREAMS.iter().any(|streams| folder == Path::new(streams)))
}

fn real(folders: &[&Path]) -> Vec<PathBuf> {
    folders.iter().filter_map(|folder| super::real_path(folder).ok()).collect()
}

/// The folder that [`write_report`] writes in.
///
/// # Errors
///
/// As there.
pub fn report_folder(path: &Path, shared: &[&Path]) -> Result<PathBuf> {
    path.file_name().ok_or(ErrorKind::IsADirectory)?;
    if is_stream(path) {
        return Ok(super::end_of_links(path).parent().map_or_else(|| PathBuf::from("/"), Path::to_owned));
    }
    parent(path, &real(shared), Links::System).map(|(folder, _)| folder)
}

/// The folder that a file is to be in, without links, and the shared folder that holds it.
fn parent(path: &Path, shared: &[PathBuf], links: Links) -> Result<(PathBuf, Option<PathBuf>)> {
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
                let follows = within(&at).is_none() && (links == Links::All || is_systems(&at));
                if is_link && !follows {
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

/// Whether nothing that runs for this user can have planted a link here. Root may write everywhere, and no command of
/// root's writes in `/` itself.
fn is_systems(folder: &Path) -> bool {
    let may_write = rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok();
    let owner = std::fs::metadata(folder).map(|facts| facts.uid());
    folder == Path::new("/") || owner.is_ok_and(|owner| is_out_of_reach(owner, super::user(), may_write))
}

/// Whether a user neither may write to a folder nor can ever have been allowed to: its owner can close it afterwards.
fn is_out_of_reach(owner: u32, user: u32, may_write: bool) -> bool {
    !may_write && owner != user
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
fn replace(folder: &OwnedFd, name: &OsStr, text: &[u8], readers: Readers) -> Result<()> {
    let mode = match readers {
        Readers::All => Mode::from_raw_mode(0o666),
        Readers::Owner => Mode::RUSR | Mode::WUSR,
    };
    let mut random = [0; 8];
    super::fill_random(&mut random);
    let beside = format!(".harness-tmp-{:016x}", u64::from_ne_bytes(random));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(folder, &beside, flags, mode)?);
    let written = file.write_all(text);
    let written = written.and_then(|()| renameat(folder, &beside, folder, name).map_err(Errno::into));
    if written.is_err() {
        let _ = unlinkat(folder, &beside, AtFlags::empty());
    }
    written
}

/// Where nobody else plants anything: links stay, and what they lead to is replaced; what is there and is no regular file,
/// such as a pipe, is written to.
fn write_elsewhere(path: &Path, text: &[u8], readers: Readers) -> Result<()> {
    match std::fs::metadata(path) {
        Ok(facts) if facts.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Ok(facts) if !facts.is_file() => std::fs::OpenOptions::new().write(true).open(path)?.write_all(text),
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

    #[test]
    fn who_owns_a_folder_may_have_closed_it_over_a_link() {
        let all = [(0, 7, false), (7, 7, false), (0, 7, true), (7, 7, true)];
        let told = all.map(|(owner, user, may_write)| is_out_of_reach(owner, user, may_write));
        assert_eq!(told, [true, false, false, false]);
        let folder = Folder::new();
        fs::set_permissions(folder.at("own"), fs::Permissions::from_mode(0o555)).unwrap();
        assert!(!is_systems(&folder.at("own")) && is_systems(Path::new("/")));
        fs::set_permissions(folder.at("own"), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A run may have had another workspace than the project.
    #[test]
    fn a_report_goes_through_no_link_anywhere() {
        let folder = Folder::new();
        let report = |path: &str| write_report(&folder.at(path), "new", Readers::All, &[&folder.at("work")]);
        symlink("notes", folder.at("own/link")).unwrap();
        symlink("none", folder.at("own/dangling")).unwrap();
        symlink("own", folder.at("planted")).unwrap();
        for name in ["link", "dangling", "plain"] {
            report(&format!("own/{name}")).unwrap();
            assert_eq!(folder.read(&format!("own/{name}")), "new", "{name}");
            assert!(!folder.at(&format!("own/{name}")).is_symlink(), "{name}");
        }
        let why = format!("`{}` is a link, which a command may have planted", folder.at("planted").display());
        assert_eq!(report("planted/notes").unwrap_err().to_string(), why);
        assert_eq!(folder.read("own/notes"), "mine");
        assert!(!folder.at("own/none").exists());
        assert_eq!(report("own").unwrap_err().kind(), ErrorKind::IsADirectory);
        // What the system itself links is followed, and so are the streams of this process.
        let file = File::options().write(true).open(folder.at("own/plain")).unwrap();
        let stream = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        write_report(Path::new(&stream), "stream", Readers::All, &[]).unwrap();
        assert_eq!(folder.read("own/plain"), "stream");
    }
}
