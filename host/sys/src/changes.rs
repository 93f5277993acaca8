//! Changes of files as the kernel reports them (inotify). Nothing is opened or read to watch it, and no link is followed.

use std::ffi::{OsStr, OsString};
use std::io::{Error, Result};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

/// Bytes of events that are read at once.
const BUFFER: usize = 64 << 10;

/// What is reported of a file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// That a folder is moved or removed.
    Folder,
    /// The names in a folder: which appear, disappear, are replaced, or get other permissions.
    Names,
    /// The content and the permissions of a file.
    Content,
    /// All of these, of a folder and of the files in it.
    All,
    /// How a folder, and what is in it, is used: which files are opened, read and written, and which folders are listed.
    Use,
}

/// How something was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// It was opened, for whatever.
    Opened,
    /// It was read or run; a folder was listed.
    Read,
    /// Its content was written, or could have been: it was open for that.
    Written,
    /// It appeared, was replaced, or is gone.
    Replaced,
}

/// A queue of the changes of all that is watched.
#[derive(Debug)]
pub struct Changes {
    queue: OwnedFd,
    waker: OwnedFd,
}

/// Something that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What [`Changes::watch`] returned.
    pub watched: i32,
    /// The name in the watched folder; none if it is about the folder or file itself.
    pub name: Option<OsString>,
    /// Whether the thing that changed is a folder.
    pub is_folder: bool,
    flags: ReadFlags,
}

impl Scope {
    fn flags(self) -> WatchFlags {
        let moved = WatchFlags::MOVE_SELF | WatchFlags::DELETE_SELF;
        let names = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVE | WatchFlags::ATTRIB;
        let content = WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE | WatchFlags::ATTRIB;
        match self {
            Self::Folder => moved | WatchFlags::ONLYDIR,
            Self::Names => names | WatchFlags::ONLYDIR,
            Self::Content => content,
            Self::All => moved | names | content | WatchFlags::ONLYDIR,
            Self::Use => {
                let names = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVE;
                let files = WatchFlags::OPEN | WatchFlags::ACCESS | WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE;
                names | files | WatchFlags::ONLYDIR
            }
        }
    }
}

impl Change {
    /// Whether it is one that this scope reports: something may be watched in several.
    pub fn is_in(&self, scope: Scope) -> bool {
        let of_file = scope == Scope::Content;
        // A folder reports its own permissions as it reports those of a file in it, without a name.
        let about = match scope {
            Scope::Folder | Scope::Content => self.name.is_none(),
            Scope::Names => self.name.is_some(),
            Scope::All | Scope::Use => true,
        };
        about && (!of_file || !self.is_folder) && self.flags.bits() & scope.flags().bits() != 0
    }

    /// How the thing was used, in [`Scope::Use`].
    pub fn usage(&self) -> Option<Use> {
        let replaced = ReadFlags::CREATE | ReadFlags::DELETE | ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO;
        let written = ReadFlags::MODIFY | ReadFlags::CLOSE_WRITE;
        [
            (replaced, Use::Replaced),
            (written, Use::Written),
            (ReadFlags::ACCESS, Use::Read),
            (ReadFlags::OPEN, Use::Opened),
        ]
        .into_iter()
        .find_map(|(flags, usage)| self.flags.intersects(flags).then_some(usage))
    }

    /// Whether the kernel dropped changes because nobody read them in time: anything may have changed.
    pub fn is_overflow(&self) -> bool {
        self.flags.contains(ReadFlags::QUEUE_OVERFLOW)
    }

    /// Whether the kernel watches this no longer: it is gone.
    pub fn is_end(&self) -> bool {
        self.flags.contains(ReadFlags::IGNORED)
    }
}

impl Changes {
    /// Starts with nothing that is watched.
    ///
    /// # Errors
    ///
    /// What the system says; `EMFILE` if the user or the process has no more queues or descriptors.
    pub fn new() -> Result<Self> {
        let queue = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Self { queue, waker: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    /// Watches a file or folder, also if it is watched in another scope. Returns the same number for the same file or
    /// folder, however it is named.
    ///
    /// # Errors
    ///
    /// What the system says; `ENOSPC` if the user watches as much as it may.
    pub fn watch(&self, path: &Path, scope: Scope) -> Result<i32> {
        let flags = scope.flags() | WatchFlags::DONT_FOLLOW | WatchFlags::MASK_ADD | WatchFlags::EXCL_UNLINK;
        Ok(inotify::add_watch(&self.queue, path, flags)?)
    }

    /// Ends it in all scopes.
    pub fn unwatch(&self, watched: i32) {
        // What is gone is watched no longer.
        let _ = inotify::remove_watch(&self.queue, watched);
    }

    /// Waits for a change, for [`wake`](Self::wake), or until this time is over.
    pub fn wait(&self, most: Option<Duration>) {
        let timeout = most.and_then(|most| Timespec::try_from(most).ok());
        let mut both = [PollFd::new(&self.queue, PollFlags::IN), PollFd::new(&self.waker, PollFlags::IN)];
        // Interrupted, it has nothing yet, and its caller waits again.
        let _ = poll(&mut both, timeout.as_ref());
        let _ = rustix::io::read(&self.waker, &mut [0; 8]);
    }

    /// Ends the waiting of another thread.
    pub fn wake(&self) {
        // A full counter wakes it as well.
        let _ = rustix::io::write(&self.waker, &1_u64.to_ne_bytes());
    }

    /// Takes what has changed so far, at most what one buffer holds. Does not wait.
    pub fn take(&self) -> Vec<Change> {
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER];
        let mut reader = inotify::Reader::new(&self.queue, &mut buffer);
        let mut changes = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()).to_owned());
                    let flags = event.events();
                    let is_folder = flags.contains(ReadFlags::ISDIR);
                    changes.push(Change { watched: event.wd(), name, is_folder, flags });
                }
                Err(Errno::INTR) => continue,
                Err(_) => break,
            }
            if reader.is_buffer_empty() {
                break;
            }
        }
        changes
    }
}

/// Which limit of the system an error of [`Changes`] is about, and how it is raised; empty where it is about none.
pub fn limit_hint(error: &Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::NOSPC) => {
            "; this user watches as many files as it may: raise `fs.inotify.max_user_watches` with sysctl"
        }
        Some(Errno::MFILE) => {
            "; raise `fs.inotify.max_user_instances` with sysctl if this user has as many watchers as it may, or \
             `ulimit -n` if this process has as many open files as it may"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// All changes, which the kernel has queued by the time that the call which makes them returns.
    fn names(changes: &Changes, scope: Scope) -> Vec<String> {
        let all = changes.take().into_iter().filter(|change| change.is_in(scope));
        let mut names: Vec<String> =
            all.map(|change| change.name.unwrap_or_default().to_string_lossy().into_owned()).collect();
        names.dedup();
        names
    }

    #[test]
    fn each_scope_reports_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("a"), "").unwrap();
        let changes = Changes::new().unwrap();
        let watched = changes.watch(folder.path(), Scope::Names).unwrap();
        std::fs::write(at("a"), "content").unwrap();
        assert_eq!(changes.take(), []);
        std::fs::write(at("b"), "").unwrap();
        std::fs::rename(at("b"), at("c")).unwrap();
        std::fs::remove_file(at("c")).unwrap();
        assert_eq!(names(&changes, Scope::Names), ["b", "c"]);

        changes.watch(&at("a"), Scope::Content).unwrap();
        std::fs::write(at("a"), "more").unwrap();
        assert_eq!(names(&changes, Scope::Content), [""]);

        // In another scope it is the same, and reports both.
        assert_eq!(changes.watch(folder.path(), Scope::All).unwrap(), watched);
        std::fs::write(at("a"), "all").unwrap();
        let all = changes.take();
        assert!(all.iter().any(|change| change.watched == watched && change.is_in(Scope::All)));
        assert!(!all.iter().any(|change| change.is_in(Scope::Names)), "{all:?}");

        changes.unwatch(watched);
        std::fs::write(at("d"), "").unwrap();
        let ends: Vec<bool> = changes.take().iter().map(Change::is_end).collect();
        assert_eq!(ends, [true]);
    }

    #[test]
    fn a_link_is_not_followed_and_a_fifo_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        symlink(outside.path(), at("link")).unwrap();
        std::fs::write(outside.path().join("file"), "").unwrap();
        symlink(outside.path().join("file"), at("file")).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let changes = Changes::new().unwrap();
        assert!(changes.watch(&at("link"), Scope::All).is_err());
        changes.watch(&at("file"), Scope::Content).unwrap();
        changes.watch(&at("pipe"), Scope::Content).unwrap();
        std::fs::write(outside.path().join("file"), "new").unwrap();
        std::fs::write(outside.path().join("other"), "new").unwrap();
        assert_eq!(changes.take(), []);
        // The control: the folder itself.
        changes.watch(outside.path(), Scope::All).unwrap();
        std::fs::write(outside.path().join("other"), "again").unwrap();
        assert_eq!(names(&changes, Scope::All), ["other"]);
    }

    #[test]
    fn limits_are_named() {
        let hint = |errno: Errno| limit_hint(&Error::from(errno));
        assert!(hint(Errno::NOSPC).contains("`fs.inotify.max_user_watches`"));
        assert!(hint(Errno::MFILE).contains("`fs.inotify.max_user_instances`"));
        assert_eq!((hint(Errno::ACCESS), limit_hint(&Error::other("x"))), ("", ""));
    }

    #[test]
    fn waiting_ends_with_a_change_and_with_a_word() {
        let folder = tempfile::tempdir().unwrap();
        let changes = Changes::new().unwrap();
        changes.watch(folder.path(), Scope::Names).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| changes.wait(None));
            std::fs::write(folder.path().join("a"), "").unwrap();
            waits.join().unwrap();
            assert_eq!(names(&changes, Scope::Names), ["a"]);
            let waits = scope.spawn(|| changes.wait(None));
            changes.wake();
            waits.join().unwrap();
        });
    }
}
