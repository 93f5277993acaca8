//! The open files of one audit log: where the log ends, and groups of lines that are appended there.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FlockOperation, Stat, flock, fstat, lstat, stat, statat};

use super::chain::{Head, Link};
use super::entry::Entry;
use super::key::{self, Key};
use harness_sys as sys;
use harness_sys::own::{self, file};

/// A file of this many bytes is followed by another.
pub(super) const ROTATE: u64 = 16 << 20;
/// The file that says where the log ends, and the lock of all of it.
pub(super) const HEAD: &str = "head";
/// The file that says where the log begins, once files of it were removed.
pub(super) const START: &str = "start";
/// The longest that this can be, in bytes.
const MAX_HEAD: usize = 256;
/// The longest line, in bytes, and the longest group.
const MAX_LINE: u64 = 1 << 20;
/// Lines of one group at most. A process that is killed may leave as many after the end that `head` names.
pub(super) const GROUP_LINES: usize = 64;
/// Bytes of the entries of one group at most, unless it has only one.
pub(super) const GROUP_BYTES: usize = 256 << 10;

/// For how long a folder that has not changed is taken to be where it was, by what begins after a check. Looking resolves
/// all of its path, and makes the next write to `head` dearer.
const LOOK: Duration = Duration::from_millis(20);
/// Two changes of a folder that are further apart than this have different times, on every kernel.
const TICK: Duration = Duration::from_millis(20);
/// Attempts to take the lock of `head` before it counts as held: another process holds it for microseconds.
const ATTEMPTS: usize = 4;

/// How long a removal waits for the lock, and between two attempts.
const WAIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);

/// Device and number of a file.
type Identity = (u64, u64);

/// The open files of an audit log. Closed ones leave `None` and where they ended.
#[derive(Debug, Default)]
pub(super) struct Files {
    open: Option<Open>,
    /// The folder that was open last, and where the log in it ended. A log never goes back.
    last: Option<(Identity, Link)>,
}

/// Where the files are, and when a new one begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Location<'a> {
    pub(super) folder: &'a Path,
    pub(super) rotate: u64,
    pub(super) root: Option<&'a Root>,
}

/// The folder of the project that a log is of, as it was when the log was made.
#[derive(Debug)]
pub(super) struct Root {
    path: PathBuf,
    identity: Option<Identity>,
}

impl Root {
    pub(super) fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), identity: Self::now(path) }
    }

    fn now(path: &Path) -> Option<Identity> {
        stat(path).ok().map(|there| identity(&there))
    }

    pub(super) fn is_in_place(&self) -> bool {
        Self::now(&self.path) == self.identity
    }

    /// # Errors
    ///
    /// Where another folder has its path now. A log is opened by its path: it could be that of another project.
    fn check(&self) -> Result<()> {
        if self.is_in_place() {
            return Ok(());
        }
        let why = format!("`{}` is no longer the folder that was opened: reload the project", self.path.display());
        Err(Error::new(ErrorKind::NotFound, why))
    }
}

#[derive(Debug)]
struct Open {
    folder: OwnedFd,
    place: Identity,
    head: File,
    identity: Identity,
    key: Key,
    /// What `head` said when it was last read or written, as text and parsed.
    said: (String, Head),
    lines: Option<Lines>,
    /// When the folder was last found at its path, and the time of its last change then; none if it had only just changed.
    found: Option<(Instant, Duration)>,
}

/// The file that lines are appended to.
#[derive(Debug)]
struct Lines {
    number: u32,
    file: File,
    identity: Identity,
}

/// Why a group is not in the log.
struct Failed {
    error: Error,
    /// Whether none of it is: then its entries can be tried one by one.
    undone: bool,
}

impl Files {
    /// Whether no descriptor is held.
    pub(super) fn are_closed(&self) -> bool {
        self.open.is_none()
    }

    /// Closes the files. The next use opens what is at the path then.
    pub(super) fn close(&mut self) {
        if let Some(open) = self.open.take() {
            self.last = Some((open.place, open.said.1.link));
        }
    }

    /// The key of the digests in this log.
    pub(super) fn key(&mut self, at: Location<'_>) -> Result<Key> {
        self.opened(at).map(|open| open.key.clone())
    }

    /// Whether a line could be appended, as far as that is known without the lock: by what was last seen of `head`. If
    /// another process has appended since, or is about to, the answer is no.
    pub(super) fn seem_ready(&mut self, at: Location<'_>) -> bool {
        self.open.as_mut().is_some_and(|open| open.seem_whole() && (open.seem_there() || open.are_those_of(at.folder)))
    }

    /// Whether the folder that is open was deleted. One that was moved away was not.
    pub(super) fn are_deleted(&self) -> bool {
        self.open.as_ref().is_some_and(|open| fstat(&open.folder).is_ok_and(|stat| stat.st_nlink == 0))
    }

    /// Whether a line could be appended now, but for room on the disk. The error is `WouldBlock` if the lock is held.
    pub(super) fn check(&mut self, at: Location<'_>) -> Result<()> {
        let open = self.opened(at)?;
        lock(&open.head)?;
        // The folder may have been moved away, to begin a new log.
        if open.are_those_of(at.folder) {
            let done = open.end(at.rotate).map(drop);
            flock(&open.head, FlockOperation::Unlock)?;
            return done;
        }
        flock(&open.head, FlockOperation::Unlock)?;
        // Users of the files that were open keep them if the new ones cannot be opened.
        let last = (open.place, open.said.1.link.clone());
        let open = self.open.insert(Open::of(at, Some(&last))?);
        lock(&open.head)?;
        let done = open.end(at.rotate).map(drop);
        flock(&open.head, FlockOperation::Unlock)?;
        done
    }

    /// Appends one entry. The error is `WouldBlock` if the lock is held; then nothing was done.
    ///
    /// If the folder was moved away since the last check, the entry goes with it.
    pub(super) fn append_one(&mut self, at: Location<'_>, entry: &Entry) -> Result<()> {
        let open = self.opened(at)?;
        lock(&open.head)?;
        let done = open.append(at.rotate, &[entry]).map_err(|failed| failed.error);
        flock(&open.head, FlockOperation::Unlock)?;
        done
    }

    /// Appends entries as one group, in this order, and returns for each whether it is in the log. If one cannot be
    /// written, the others still are. Otherwise as for one.
    pub(super) fn append(&mut self, at: Location<'_>, entries: &[&Entry]) -> Result<Vec<Result<()>>> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let open = self.opened(at)?;
        lock(&open.head)?;
        let done = match open.append(at.rotate, entries) {
            Ok(()) => entries.iter().map(|_| Ok(())).collect(),
            Err(Failed { undone: true, .. }) if entries.len() > 1 => {
                entries.iter().map(|entry| open.append(at.rotate, &[entry]).map_err(|failed| failed.error)).collect()
            }
            Err(Failed { error, .. }) => entries.iter().map(|_| Err(same(&error))).collect(),
        };
        flock(&open.head, FlockOperation::Unlock)?;
        Ok(done)
    }

    fn opened(&mut self, at: Location<'_>) -> Result<&mut Open> {
        match &mut self.open {
            Some(open) => Ok(open),
            none => Ok(none.insert(Open::of(at, self.last.as_ref())?)),
        }
    }
}

impl Open {
    fn of(at: Location<'_>, last: Option<&(Identity, Link)>) -> Result<Self> {
        at.root.map_or(Ok(()), Root::check)?;
        let folder = own::folder(at.folder)?;
        let head = file(&folder, HEAD)?;
        let (place, identity) = (identity(&fstat(&folder)?), identity(&fstat(&head)?));
        let key = key::of(&folder)?;
        let link = last.filter(|(folder, _)| *folder == place).map(|(_, link)| link.clone());
        let said = Head { link: link.unwrap_or_else(Link::start), ..Head::start() };
        Ok(Self { folder, place, head, identity, key, said: (String::new(), said), lines: None, found: None })
    }

    /// Whether these are the files that are at the path now.
    fn are_those_of(&mut self, folder: &Path) -> bool {
        // While it is open, no other file gets its number.
        let same = lstat(folder.join(HEAD)).is_ok_and(|there| identity(&there) == self.identity)
            && self.lines.as_ref().is_none_or(|lines| lines.are_in(&self.folder));
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
        let (Some(lines), (_, head)) = (&self.lines, &self.said) else { return false };
        let fits = |stat: Stat| stat.st_nlink > 0 && u64::try_from(stat.st_size) == Ok(head.length);
        head.file == lines.number && fstat(&lines.file).is_ok_and(fits)
    }

    /// Where the next line goes, for what was checked: a process that appends makes the lines longer, and begins another
    /// file only after one that is full. If neither is so, `head` says what this one has written there last.
    fn checked_end(&mut self, rotate: u64) -> Result<(Head, &File)> {
        if self.said.1.length < rotate && self.seem_whole() {
            let lines = self.lines.as_ref().ok_or(ErrorKind::NotFound)?;
            return Ok((self.said.1.clone(), &lines.file));
        }
        self.end(rotate)
    }

    fn append(&mut self, rotate: u64, entries: &[&Entry]) -> std::result::Result<(), Failed> {
        let untouched = |error| Failed { error, undone: true };
        let (before, _) = self.checked_end(rotate).map_err(untouched)?;
        let start = before.length;
        let mut group = Vec::new();
        let mut link = before.link.clone();
        for entry in entries {
            let (mut line, next) = link.line(entry);
            line.push(b'\n');
            if line.len() as u64 > MAX_LINE {
                return Err(untouched(Error::new(ErrorKind::InvalidInput, "an entry is over 1 MiB")));
            }
            link = next;
            if group.is_empty() { group = line } else { group.append(&mut line) }
        }
        if entries.len() > 1 && self.said.0.is_empty() {
            // After a `head` without text only one line is recovered.
            let text = before.to_string();
            self.head.write_all_at(text.as_bytes(), 0).map_err(untouched)?;
            self.said = (text, before.clone());
        }
        let length = start.saturating_add(group.len() as u64);
        let head = Head { link, length, ..before };
        let text = head.to_string();
        let Some(Lines { file: lines, .. }) = &self.lines else { return Err(untouched(ErrorKind::NotFound.into())) };
        let written = lines.write_all_at(&group, start);
        if let Err(error) = written.and_then(|()| self.head.write_all_at(text.as_bytes(), 0)) {
            return Err(Failed { error, undone: lines.set_len(start).is_ok() });
        }
        self.said = (text, head);
        Ok(())
    }

    /// Begins another file after the last line.
    fn close_file(&mut self) -> Result<()> {
        let (_, before) = &self.said;
        let head = Head { file: before.file.saturating_add(1), length: 0, ..before.clone() };
        let lines = Lines::open(&self.folder, head.file)?;
        let text = head.to_string();
        self.head.write_all_at(text.as_bytes(), 0)?;
        (self.lines, self.said) = (Some(lines), (text, head));
        Ok(())
    }

    /// Where the next line goes.
    fn end(&mut self, rotate: u64) -> Result<(Head, &File)> {
        let mut head = self.read_head()?;
        let most = if self.said.0.is_empty() { 1 } else { GROUP_LINES };
        if head.length >= rotate {
            head = Head { file: head.file.saturating_add(1), length: 0, ..head };
        }
        let open = self.lines.take().filter(|lines| lines.number == head.file && lines.are_in(&self.folder));
        let open = open.map_or_else(|| Lines::open(&self.folder, head.file), Ok)?;
        let lines = &self.lines.insert(open).file;
        let length = u64::try_from(fstat(lines)?.st_size).unwrap_or_default();
        if length != head.length {
            head = recovered(lines, head, length, most)?;
        }
        Ok((head, lines))
    }

    fn read_head(&mut self) -> Result<Head> {
        let wrong = || Error::new(ErrorKind::InvalidData, format!("`{HEAD}` is not what was written"));
        let mut text = [0_u8; MAX_HEAD];
        let length = self.head.read_at(&mut text, 0)?;
        let text = text.get(..length).unwrap_or_default();
        if text.is_empty() && self.said.0.is_empty() {
            // The log only begins. Another folder may have had its number before.
            self.said.1 = Head::start();
        } else if text != self.said.0.as_bytes() {
            let text = std::str::from_utf8(text).map_err(|_| wrong())?;
            let head = if text.is_empty() { Head::start() } else { text.parse().map_err(|()| wrong())? };
            let Link { number, .. } = self.said.1.link;
            if head.link.number < number {
                let back =
                    format!("`{HEAD}` ends the audit log at line {}, and line {number} was there", head.link.number);
                return Err(Error::new(ErrorKind::InvalidData, back));
            }
            self.said = (text.to_owned(), head);
        }
        Ok(self.said.1.clone())
    }
}

impl Lines {
    fn open(folder: &OwnedFd, number: u32) -> Result<Self> {
        let file = file(folder, &name(number))?;
        Ok(Self { number, identity: identity(&fstat(&file)?), file })
    }

    /// Whether the file is still the one of its name.
    fn are_in(&self, folder: &OwnedFd) -> bool {
        let there = statat(folder, name(self.number), AtFlags::SYMLINK_NOFOLLOW);
        there.is_ok_and(|there| identity(&there) == self.identity)
    }
}

fn identity(stat: &Stat) -> Identity {
    (stat.st_dev, stat.st_ino)
}

/// Takes the lock of all that append, in whichever process. Never waits for longer than a write takes.
fn lock(head: &File) -> Result<()> {
    for _ in 1..ATTEMPTS {
        match flock(head, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::yield_now(),
            taken => return Ok(taken?),
        }
    }
    Ok(flock(head, FlockOperation::NonBlockingLockExclusive)?)
}

/// Appends an entry as a process of its own would, closes the file of this number if that is still the last, and does something
/// before others may append.
pub(super) fn append_alone(
    at: Location<'_>,
    fill: impl FnOnce(&mut Entry),
    closes: Option<u32>,
    then: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let mut open = Open::of(at, None)?;
    let until = Instant::now() + WAIT;
    while let Err(error) = lock(&open.head) {
        if error.kind() != ErrorKind::WouldBlock || Instant::now() > until {
            return Err(error);
        }
        std::thread::sleep(PAUSE);
    }
    let mut entry = Entry::new(open.key.clone());
    fill(&mut entry);
    let mut done = open.append(at.rotate, &[&entry]).map_err(|failed| failed.error);
    if done.is_ok() && closes == Some(open.said.1.file) {
        done = open.close_file();
    }
    let done = done.and_then(|()| then());
    flock(&open.head, FlockOperation::Unlock)?;
    done
}

/// The same error for another entry of a group.
pub(super) fn same(error: &Error) -> Error {
    error.raw_os_error().map_or_else(|| Error::new(error.kind(), error.to_string()), Error::from_raw_os_error)
}

/// A process may have been killed between the lines of a group and `head`: whole lines that follow count, and half a line
/// never was one.
fn recovered(lines: &File, head: Head, length: u64, most: usize) -> Result<Head> {
    let broken = || Error::new(ErrorKind::InvalidData, format!("`{}` is not as long as it was", name(head.file)));
    let more = length.checked_sub(head.length).filter(|more| *more <= MAX_LINE).ok_or_else(broken)?;
    let mut rest = vec![0; usize::try_from(more).unwrap_or_default()];
    lines.read_exact_at(&mut rest, head.length)?;
    let (mut link, mut whole, mut count) = (head.link.clone(), 0_u64, 0_usize);
    for line in rest.split_inclusive(|byte| *byte == b'\n') {
        let Some(text) = line.strip_suffix(b"\n") else { break };
        let text = std::str::from_utf8(text).map_err(|_| broken())?;
        link = link.follow(text).map_err(|_| broken())?;
        (whole, count) = (whole.saturating_add(line.len() as u64), count.saturating_add(1));
    }
    if count > most {
        return Err(broken());
    }
    let end = head.length.saturating_add(whole);
    if whole < more {
        lines.set_len(end)?;
    }
    Ok(Head { link, length: end, ..head })
}

/// The name of a file of lines.
pub(super) fn name(file: u32) -> String {
    format!("{file:06}.jsonl")
}
