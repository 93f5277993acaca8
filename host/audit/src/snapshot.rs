//! What a reader sees of a log: where it ended at one moment. The lines are read afterwards, without the lock, so that no
//! reader holds up a call.

use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, lstat, open};
use rustix::io::Errno;

use super::chain::Head;
use super::files::{HEAD, START, name};
use super::key::FILE as KEY;
use super::trim;
use super::verify::Broken;
use harness_sys as sys;
use harness_sys::own;

/// Bytes of a line that is read: several times as many as any that is written has.
const MAX_LINE_BYTES: u64 = 4 << 20;
/// Bytes that a process may leave after the end that `head` names, if it is killed.
const MAX_GROUP_BYTES: u64 = 1 << 20;
/// How long a reader waits for the lock, which those who append hold for a moment only.
const WAIT: Duration = Duration::from_secs(5);
/// How often a reader looks again for a `head` that is just being created.
const ATTEMPTS: usize = 2;
/// Between two attempts to take it.
const PAUSE: Duration = Duration::from_micros(100);

/// The end of a log at one moment.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// Where the log begins.
    pub(super) start: Head,
    /// What `head` said.
    pub(super) head: Head,
    /// Whether `head` had a text.
    pub(super) begun: bool,
    /// The file that `head` named and the one after it, if they were there.
    last: Vec<Part>,
    /// Keeps the files from being removed while they are read.
    _reading: Option<File>,
}

/// A file of lines as it was at that moment.
#[derive(Debug)]
pub(super) struct Part {
    number: u32,
    file: File,
    /// Bytes that are read from the file: they do not change any more.
    length: u64,
    /// What came after them. It may be cut off by the next process that appends.
    rest: Vec<u8>,
}

/// The end of the lines that were read.
pub(super) struct End {
    /// How many files there are.
    pub(super) files: u32,
    /// Whether half a line is at the end of the last.
    pub(super) half_a_line: bool,
}

impl Snapshot {
    /// Looks where the log in a folder ends. Holds the lock for that, for as long as it takes to read `head` and to open
    /// two files.
    pub(super) fn of(folder: &Path) -> Result<Self, Broken> {
        let reading = reading(folder)?;
        Ok(Self { _reading: reading, ..Self::unlocked(folder)? })
    }

    /// The same for one that removes files itself.
    pub(super) fn unlocked(folder: &Path) -> Result<Self, Broken> {
        let path = folder.join(HEAD);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mut attempts = 0..ATTEMPTS;
        loop {
            // Checked first: opening a device may do something, and a FIFO by then would keep the open waiting.
            let odd = lstat(&path).is_ok_and(|facts| !own::is_regular(&facts));
            let head = if odd { Err(Errno::INVAL) } else { open(&path, flags, Mode::empty()) };
            if let Ok(head) = &head {
                locked(head)?;
            }
            let snapshot = Self::now(folder)?;
            // Without `head` there is no lock. It may just have been created, and lines after it.
            let begins =
                head.is_err_and(|error| error == Errno::NOENT) && (snapshot.begun || !snapshot.last.is_empty());
            if !begins || attempts.next().is_none() {
                return Ok(snapshot);
            }
        }
    }

    /// The file of this number, as it was at that moment.
    pub(super) fn take(&mut self, number: u32) -> Option<Part> {
        let known = self.last.iter().position(|part| part.number == number);
        known.map(|at| self.last.swap_remove(at))
    }

    fn now(folder: &Path) -> Result<Self, Broken> {
        let text = match sys::read_text(&folder.join(HEAD)) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(at_head(error.to_string())),
        };
        let begun = !text.is_empty();
        let head = if begun { text.parse().ok() } else { Some(Head::start()) };
        let head: Head = head.ok_or_else(|| at_head("it is not what was written".to_owned()))?;
        let start = trim::start(folder)?;
        let mut last = Vec::new();
        // Anyone who appends begins one file after that of `head`.
        for (number, length) in [(head.file, head.length), (head.file.saturating_add(1), 0)] {
            let Some(file) = opened(folder, number)? else { break };
            last.push(Part::of(number, file, length).map_err(|error| unread(number, &error))?);
        }
        Ok(Self { start, head, begun, last, _reading: None })
    }

    /// Writes what the log was at that moment into another folder, without looking into it.
    pub(super) fn copy(mut self, folder: &Path, to: &Path) -> Result<(), Broken> {
        let head = if self.begun { self.head.to_string() } else { String::new() };
        let unwritten = |file: &str, error: &std::io::Error| Broken {
            file: file.to_owned(),
            line: None,
            why: format!("it cannot be copied: {error}"),
            held: false,
        };
        for number in self.start.file..=self.head.file.saturating_add(1) {
            let part = match self.take(number) {
                Some(part) => part,
                None if number >= self.head.file => break,
                None => match whole(folder, number)? {
                    Some(part) => part,
                    None => break,
                },
            };
            let name = name(number);
            let mut new = sys::copy::new_file(&to.join(&name)).map_err(|error| unwritten(&name, &error))?;
            let mut all = part.file.take(part.length).chain(&*part.rest);
            std::io::copy(&mut all, &mut new).map_err(|error| unwritten(&name, &error))?;
        }
        if self.start != Head::start() {
            let new = sys::copy::new_file(&to.join(START));
            let written = new.and_then(|mut new| new.write_all(self.start.to_string().as_bytes()));
            written.map_err(|error| unwritten(START, &error))?;
        }
        let new = sys::copy::new_file(&to.join(HEAD));
        let written = new.and_then(|mut new| new.write_all(head.as_bytes()));
        written.map_err(|error| unwritten(HEAD, &error))
    }

    /// Reads the lines up to there. `line` gets the file, the number of the line in it and its text.
    pub(super) fn each(
        mut self,
        folder: &Path,
        mut line: impl FnMut(&str, u64, &str) -> Result<(), Broken>,
    ) -> Result<End, Broken> {
        let mut half = None;
        let mut files = 0;
        for number in self.start.file..=self.head.file.saturating_add(1) {
            let part = match self.take(number) {
                Some(part) => part,
                None if number >= self.head.file => break,
                // It has been full for long.
                None => match whole(folder, number)? {
                    Some(part) => part,
                    None => break,
                },
            };
            // Nothing comes after the end, in whichever file.
            if let Some(before) = half {
                return Err(before);
            }
            half = part.read(&mut line)?;
            files = number.saturating_sub(self.start.file).saturating_add(1);
        }
        Ok(End { files, half_a_line: half.is_some() })
    }
}

impl Part {
    fn of(number: u32, file: File, length: u64) -> std::io::Result<Self> {
        let all = file.metadata()?.size();
        // More than a process leaves that was killed: that is for anyone who reads it to find, without the lock.
        if all.saturating_sub(length) > MAX_GROUP_BYTES {
            return Ok(Self { number, file, length: all, rest: Vec::new() });
        }
        let mut rest = vec![0; usize::try_from(all.saturating_sub(length)).unwrap_or_default()];
        file.read_exact_at(&mut rest, length)?;
        Ok(Self { number, file, length, rest })
    }

    /// Reads the lines; returns what is wrong with half a line at the end.
    pub(super) fn read(
        self,
        line: &mut impl FnMut(&str, u64, &str) -> Result<(), Broken>,
    ) -> Result<Option<Broken>, Broken> {
        let file = name(self.number);
        let broken = |line, why: String| Broken { file: file.clone(), line: Some(line), why, held: false };
        let mut reader = BufReader::with_capacity(64 << 10, self.file.take(self.length).chain(&*self.rest));
        let mut bytes = Vec::new();
        for at in 1.. {
            bytes.clear();
            match reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut bytes) {
                Ok(0) => break,
                Ok(count) if u64::try_from(count).unwrap_or(u64::MAX) >= MAX_LINE_BYTES => {
                    return Err(broken(at, "the line is longer than any that is written".to_owned()));
                }
                Ok(_) => match bytes.strip_suffix(b"\n").map(std::str::from_utf8) {
                    Some(Ok(text)) => line(&file, at, text)?,
                    Some(Err(_)) => return Err(broken(at, "it is not UTF-8 text".to_owned())),
                    None => return Ok(Some(broken(at, "it is cut short".to_owned()))),
                },
                Err(error) => return Err(broken(at, error.to_string())),
            }
        }
        Ok(None)
    }
}

/// A lock that keeps files of the log from being removed, until it is dropped. Without a key, there is no line.
fn reading(folder: &Path) -> Result<Option<File>, Broken> {
    let Ok(key) = sys::open_file(&folder.join(KEY)) else { return Ok(None) };
    let until = Instant::now() + WAIT;
    loop {
        match flock(&key, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(PAUSE),
            Err(Errno::WOULDBLOCK) => {
                let why = format!("another process has held its lock for {} s", WAIT.as_secs());
                return Err(Broken { file: KEY.to_owned(), line: None, why, held: true });
            }
            _ => return Ok(Some(key)),
        }
    }
}

/// The lock of one that removes files; none while somebody reads the log.
pub(super) fn without_readers(folder: &Path) -> std::io::Result<Option<File>> {
    let key = sys::open_file(&folder.join(KEY))?;
    match flock(&key, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Ok(None),
        taken => taken.map(|()| Some(key)).map_err(Into::into),
    }
}

/// A file of lines that no process appends to any more; none where it is not there.
pub(super) fn whole(folder: &Path, number: u32) -> Result<Option<Part>, Broken> {
    let file = opened(folder, number)?;
    Ok(file.map(|file| Part { number, file, length: u64::MAX, rest: Vec::new() }))
}

/// Takes the lock, which closing the file releases.
fn locked(head: &OwnedFd) -> Result<(), Broken> {
    let until = Instant::now() + WAIT;
    loop {
        match flock(head, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(PAUSE),
            Err(Errno::WOULDBLOCK) => {
                let why = format!("another process has held its lock for {} s", WAIT.as_secs());
                return Err(Broken { held: true, ..at_head(why) });
            }
            // What is at its name is seen when it is read.
            _ => return Ok(()),
        }
    }
}

fn at_head(why: String) -> Broken {
    Broken { file: HEAD.to_owned(), line: None, why, held: false }
}

fn opened(folder: &Path, number: u32) -> Result<Option<File>, Broken> {
    match sys::open_file(&folder.join(name(number))) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unread(number, &error)),
    }
}

fn unread(number: u32, error: &std::io::Error) -> Broken {
    Broken { file: name(number), line: None, why: error.to_string(), held: false }
}
