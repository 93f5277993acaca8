//! Appending to the record.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags, Stat, flock, fstat, lstat, open};

use super::chain::{Head, Link};
use super::entry::Entry;
use super::key::{self, Key};
use harness_sys as sys;
use harness_sys::own::{self, file};

/// A file of this many bytes is followed by another.
const ROTATE: u64 = 16 << 20;
/// The file that says where the record ends, and the lock of all of it.
pub(super) const HEAD: &str = "head";
/// The longest that this can be, in bytes.
const MAX_HEAD: usize = 256;
/// The longest line, in bytes.
const MAX_LINE: u64 = 1 << 20;

/// For how long a folder that has not changed is taken to be where it was, by what is begun after [`Log::check`]. Looking
/// takes the way through all of its path, and makes the next write to `head` dearer.
const LOOK: Duration = Duration::from_millis(20);
/// Two changes of a folder that are further apart than this have different times, on every kernel.
const TICK: Duration = Duration::from_millis(20);

/// A record that is open for appending. Threads and processes may append at one time: each line follows the one that is
/// last then.
#[derive(Debug)]
pub struct Log {
    folder: PathBuf,
    rotate: u64,
    /// One thread at a time.
    files: Mutex<Files>,
}

/// The open files of a record.
#[derive(Debug)]
struct Files {
    folder: OwnedFd,
    head: File,
    /// Device and number of `head`.
    identity: (u64, u64),
    key: Key,
    /// What `head` said when it was last looked at or written, as text and as what it means.
    said: (String, Head),
    lines: Option<(u32, File)>,
    /// When the folder was last found, and the time of its last change then; none where that had only just been.
    found: Option<(Instant, Duration)>,
}

impl Log {
    /// Opens the record in a folder, and makes both where there is none: for their owner alone.
    ///
    /// # Errors
    ///
    /// What the system says. A folder or file that is a link is refused.
    pub fn open(folder: &Path) -> Result<Self> {
        Self::with_files_of(folder, ROTATE)
    }

    pub(super) fn with_files_of(folder: &Path, rotate: u64) -> Result<Self> {
        Ok(Self { folder: folder.to_owned(), rotate, files: Mutex::new(Files::open(folder)?) })
    }

    /// Whether a line could be appended now, but for room on the disk.
    ///
    /// # Errors
    ///
    /// As for [`append`](Self::append).
    pub fn check(&self) -> Result<()> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        // Without the lock, and by what was last seen of `head`: where another process has appended since, or is about
        // to, it is checked again with it.
        if files.seem_whole() && (files.seem_there() || files.are_those_of(&self.folder)) {
            return Ok(());
        }
        drop(files);
        self.alone(|files, rotate| files.end(rotate).map(|_| ()))
    }

    /// What the digests of arguments in this record are made with.
    pub fn key(&self) -> Key {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).key.clone()
    }

    /// Appends an entry, as one line of at most 1 MiB.
    ///
    /// # Errors
    ///
    /// What the system says, that the entry is too long, or that the record was changed by another process; nothing is
    /// appended then.
    pub fn append(&self, entry: &Entry) -> Result<()> {
        self.alone(|files, rotate| files.append(rotate, entry, false))
    }

    /// The same for what was begun after a [`check`](Self::check): where the folder was moved away since, the entry goes
    /// with it, and `head` is not read again where no other process has appended.
    ///
    /// # Errors
    ///
    /// As for [`append`](Self::append).
    pub fn append_to_checked(&self, entry: &Entry) -> Result<()> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        flock(&files.head, FlockOperation::LockExclusive)?;
        let done = files.append(self.rotate, entry, true);
        flock(&files.head, FlockOperation::Unlock)?;
        done
    }

    /// Does something that no other thread or process does at the same time.
    fn alone<T>(&self, work: impl FnOnce(&mut Files, u64) -> Result<T>) -> Result<T> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        flock(&files.head, FlockOperation::LockExclusive)?;
        // The folder may have been moved away, to begin a new record.
        if !files.are_those_of(&self.folder) {
            *files = Files::open(&self.folder)?;
            flock(&files.head, FlockOperation::LockExclusive)?;
        }
        let done = work(&mut files, self.rotate);
        flock(&files.head, FlockOperation::Unlock)?;
        done
    }
}

impl Files {
    fn open(folder: &Path) -> Result<Self> {
        let folder = own::folder(folder)?;
        let head = file(&folder, HEAD)?;
        let open = fstat(&head)?;
        let key = key::of(&folder)?;
        let said = (String::new(), Head::start());
        Ok(Self { folder, identity: (open.st_dev, open.st_ino), head, key, said, lines: None, found: None })
    }

    /// Whether these are the files that are there now.
    fn are_those_of(&mut self, folder: &Path) -> bool {
        // While it is open, no other file gets its number.
        let same = lstat(folder.join(HEAD)).is_ok_and(|there| (there.st_dev, there.st_ino) == self.identity);
        let settled = |changed: &Duration| sys::since_epoch().saturating_sub(*changed) > TICK;
        self.found = self.changed().filter(|changed| same && settled(changed)).map(|changed| (Instant::now(), changed));
        same
    }

    /// Whether the folder was there just now and has not changed since: moving it away changes it.
    fn seem_there(&self) -> bool {
        self.found.is_some_and(|(when, changed)| when.elapsed() < LOOK && self.changed() == Some(changed))
    }

    /// When the folder was last changed.
    fn changed(&self) -> Option<Duration> {
        let stat = fstat(&self.folder).ok()?;
        Some(Duration::new(u64::try_from(stat.st_ctime).ok()?, u32::try_from(stat.st_ctime_nsec).ok()?))
    }

    /// Whether what `head` was last seen to say fits the lines that are open, and those are still somewhere.
    fn seem_whole(&self) -> bool {
        let (Some((number, lines)), (_, head)) = (&self.lines, &self.said) else { return false };
        let fits = |lines: Stat| lines.st_nlink > 0 && u64::try_from(lines.st_size) == Ok(head.length);
        head.file == *number && fstat(lines).is_ok_and(fits)
    }

    /// Where the next line goes, for what was checked: who appends makes the lines longer, and begins another file only
    /// after one that is full. Where neither is so, `head` says what this has written there last.
    fn checked_end(&mut self, rotate: u64) -> Result<(Head, &File)> {
        if self.said.1.length < rotate && self.seem_whole() {
            let (_, lines) = self.lines.as_ref().ok_or(ErrorKind::NotFound)?;
            return Ok((self.said.1.clone(), lines));
        }
        self.end(rotate)
    }

    fn append(&mut self, rotate: u64, entry: &Entry, checked: bool) -> Result<()> {
        let (head, lines) = if checked { self.checked_end(rotate)? } else { self.end(rotate)? };
        let (mut line, link) = head.link.line(entry);
        line.push(b'\n');
        if line.len() as u64 > MAX_LINE {
            return Err(Error::new(ErrorKind::InvalidInput, "an entry is over 1 MiB"));
        }
        lines.write_all_at(&line, head.length)?;
        let length = head.length.saturating_add(line.len() as u64);
        let head = Head { link, length, ..head };
        let text = head.to_string();
        self.head.write_all_at(text.as_bytes(), 0)?;
        self.said = (text, head);
        Ok(())
    }

    /// Where the next line goes.
    fn end(&mut self, rotate: u64) -> Result<(Head, &File)> {
        let mut head = self.read_head()?;
        if head.length >= rotate {
            head = Head { file: head.file.saturating_add(1), length: 0, ..head };
        }
        let open = match self.lines.take().filter(|(number, _)| *number == head.file) {
            Some(open) => open,
            None => (head.file, file(&self.folder, &name(head.file))?),
        };
        let (_, lines) = self.lines.insert(open);
        let length = u64::try_from(fstat(&*lines)?.st_size).unwrap_or_default();
        if length != head.length {
            head = recovered(lines, head, length)?;
        }
        Ok((head, lines))
    }

    fn read_head(&mut self) -> Result<Head> {
        let mut text = [0_u8; MAX_HEAD];
        let length = self.head.read_at(&mut text, 0)?;
        let text = text.get(..length).unwrap_or_default();
        if text.is_empty() {
            return Ok(Head::start());
        }
        if text != self.said.0.as_bytes() {
            let wrong = || Error::new(ErrorKind::InvalidData, format!("`{HEAD}` is not what was written"));
            let text = std::str::from_utf8(text).map_err(|_| wrong())?;
            self.said = (text.to_owned(), text.parse().map_err(|()| wrong())?);
        }
        Ok(self.said.1.clone())
    }
}

/// A process may have been ended between a line and `head`: a whole line that follows counts, and half a line was never
/// one.
fn recovered(lines: &File, head: Head, length: u64) -> Result<Head> {
    let broken = || Error::new(ErrorKind::InvalidData, format!("`{}` is not as long as it was", name(head.file)));
    let more = length.checked_sub(head.length).filter(|more| *more <= MAX_LINE).ok_or_else(broken)?;
    let mut rest = vec![0; usize::try_from(more).unwrap_or_default()];
    lines.read_exact_at(&mut rest, head.length)?;
    match rest.iter().position(|byte| *byte == b'\n') {
        None => {
            lines.set_len(head.length)?;
            Ok(head)
        }
        Some(end) if end.saturating_add(1) == rest.len() => {
            let line = rest.get(..end).and_then(|line| std::str::from_utf8(line).ok()).ok_or_else(broken)?;
            let link = head.link.follow(line).map_err(|_| broken())?;
            Ok(Head { link, length, ..head })
        }
        Some(_) => Err(broken()),
    }
}

/// Keeps a record as it is while it is read.
pub(super) fn locked<T>(folder: &Path, read: impl FnOnce() -> T) -> T {
    // A FIFO in its place would keep the open waiting.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let lock = open(folder.join(HEAD), flags, Mode::empty());
    let held = lock.as_ref().is_ok_and(|lock| flock(lock, FlockOperation::LockShared).is_ok());
    let done = read();
    if let (true, Ok(lock)) = (held, &lock) {
        // Closing it would do too.
        let _ = flock(lock, FlockOperation::Unlock);
    }
    done
}

/// The name of a file of lines.
pub(super) fn name(file: u32) -> String {
    format!("{file:06}.jsonl")
}

/// Where the chain is, for a reader.
pub(super) fn head_of(text: &str) -> Option<Link> {
    text.parse::<Head>().ok().map(|head| head.link)
}
