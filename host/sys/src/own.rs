//! Folders that the program keeps for itself in a project, such as that of the audit log: for their owner alone, and not
//! for a repository.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fchmod, fstat, mkdir, mkdirat, open, openat, statat};
use rustix::io::Errno;

/// What a project keeps its artifacts in, and what is made here.
const HOME: &str = ".harness";

/// Opens such a folder, and makes it where it is not there; `.harness` above it too. Errors: what the system says; one that
/// is a link is refused.
pub fn folder(path: &Path) -> Result<OwnedFd> {
    let name = path.file_name().ok_or(ErrorKind::InvalidInput)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = match open(parent, flags, Mode::empty()) {
        // A project whose policy lies beside `.harness/` may have none yet.
        Err(Errno::NOENT) if parent.ends_with(HOME) => {
            match mkdir(parent, Mode::RWXU | Mode::RWXG | Mode::RWXO) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            open(parent, flags | OFlags::NOFOLLOW, Mode::empty())?
        }
        parent => parent?,
    };
    match mkdirat(&parent, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let folder = openat(&parent, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
    // One that came with someone's project may have been open to all.
    fchmod(&folder, Mode::RWXU)?;
    // What happened on one machine is not for a repository.
    let ignored = file(&folder, ".gitignore")?;
    if ignored.metadata()?.len() == 0 {
        ignored.write_all_at(b"*\n", 0)?;
    }
    Ok(folder)
}

/// Opens a file in one, and makes it where it is not there. Errors: what the system says; what is no regular file, or a
/// link, is refused.
pub fn file(folder: &OwnedFd, name: &str) -> Result<File> {
    let odd = || Error::new(ErrorKind::InvalidInput, format!("`{name}` is not a regular file"));
    // Asked before: opening a device may do something. And after: another file may have the name by then.
    if statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|facts| !is_regular(&facts)) {
        return Err(odd());
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mode = Mode::RUSR | Mode::WUSR;
    let file = File::from(openat(folder, name, flags, mode)?);
    if !is_regular(&fstat(&file)?) {
        return Err(odd());
    }
    fchmod(&file, mode)?;
    Ok(file)
}

/// Whether there is a file of these facts, and no folder, link, pipe, socket or device.
pub fn is_regular(facts: &Stat) -> bool {
    FileType::from_raw_mode(facts.st_mode).is_file()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn it_is_for_its_owner_alone_and_no_link() {
        let outer = tempfile::tempdir().unwrap();
        let path = |name: &str| outer.path().join(name);
        std::fs::create_dir(path("open")).unwrap();
        std::fs::set_permissions(path("open"), Permissions::from_mode(0o777)).unwrap();
        std::os::unix::fs::symlink("open", path("link")).unwrap();
        std::fs::write(path("file"), "").unwrap();
        for name in ["open", "new"] {
            let folder = folder(&path(name)).unwrap();
            file(&folder, "kept").unwrap();
            let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!((mode(&path(name)), mode(&path(name).join("kept"))), (0o700, 0o600));
            assert_eq!(std::fs::read_to_string(path(name).join(".gitignore")).unwrap(), "*\n");
            std::os::unix::fs::symlink("kept", path(name).join("link")).unwrap();
            file(&folder, "link").unwrap_err();
        }
        for name in ["link", "file", "none/inner", "none/.harness/inner"] {
            folder(&path(name)).unwrap_err();
        }
        folder(&path(".harness/inner")).unwrap();
    }

    /// A pipe takes the words of anyone who opens it, and a device may do more.
    #[test]
    fn what_is_no_file_is_not_opened() {
        use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
        let outer = tempfile::tempdir().unwrap();
        let folder = folder(&outer.path().join("own")).unwrap();
        let pipe = outer.path().join("own/pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let opened = init(CreateFlags::NONBLOCK).unwrap();
        add_watch(&opened, &pipe, WatchFlags::OPEN).unwrap();
        assert_eq!(file(&folder, "pipe").unwrap_err().to_string(), "`pipe` is not a regular file");
        assert_eq!(rustix::io::read(&opened, &mut [0; 256]), Err(Errno::AGAIN));
        // The control: who opens it is seen.
        File::options().read(true).write(true).open(&pipe).unwrap();
        assert!(rustix::io::read(&opened, &mut [0; 256]).is_ok());
    }
}
