//! Appending to the record.

use std::fs::File;
use std::io::{Error, ErrorKind, Read as _, Result, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, mkdirat, open, openat};
use serde_json::{Map, Value as Json};

use super::chain::{Head, Link};

/// A file of this many bytes is followed by another.
const ROTATE: u64 = 16 << 20;
/// The longest that a record's head can be.
const MAX_HEAD: u64 = 256;
/// The longest line that is taken for one: more than any entry has.
const MAX_LINE: u64 = 1 << 20;

/// A record that is open for appending. Threads and processes may append at one time: each line follows the one that is
/// last then.
#[derive(Debug)]
pub struct Log {
    folder: OwnedFd,
    head: File,
    current: Mutex<Option<(u32, File)>>,
    rotate: u64,
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
        let name = folder.file_name().ok_or(ErrorKind::InvalidInput)?;
        let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = open(parent, flags, Mode::empty())?;
        let made = match mkdirat(&parent, name, Mode::RWXU) {
            Ok(()) => true,
            Err(rustix::io::Errno::EXIST) => false,
            Err(error) => return Err(error.into()),
        };
        let folder = openat(&parent, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
        if made {
            // What happened on one machine is not for a repository.
            file(&folder, ".gitignore", OFlags::WRONLY)?.write_all(b"*\n")?;
        }
        let head = file(&folder, "head", OFlags::RDWR)?;
        Ok(Self { folder, head, current: Mutex::new(None), rotate })
    }

    /// Appends an entry, as one line.
    ///
    /// # Errors
    ///
    /// What the system says, or that the record was changed by somebody else; nothing is appended then.
    pub fn append(&self, entry: Map<String, Json>) -> Result<()> {
        // One thread at a time; and one process.
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        flock(&self.head, FlockOperation::LockExclusive)?;
        let appended = self.append_alone(&mut current, entry);
        flock(&self.head, FlockOperation::Unlock)?;
        appended
    }

    fn append_alone(&self, current: &mut Option<(u32, File)>, entry: Map<String, Json>) -> Result<()> {
        let mut head = self.read_head()?;
        if head.length >= self.rotate {
            head = Head { file: head.file.saturating_add(1), length: 0, ..head };
        }
        let lines = match current {
            Some((number, lines)) if *number == head.file => lines,
            _ => &mut current.insert((head.file, file(&self.folder, &name(head.file), OFlags::RDWR)?)).1,
        };
        let length = lines.metadata()?.len();
        if length != head.length {
            head = recovered(lines, head, length)?;
        }
        let (mut line, link) = head.link.line(entry);
        line.push('\n');
        lines.write_all_at(line.as_bytes(), head.length)?;
        let length = head.length.saturating_add(line.len() as u64);
        self.head.write_all_at(Head { link, length, ..head }.to_string().as_bytes(), 0)
    }

    fn read_head(&self) -> Result<Head> {
        let mut text = [0_u8; MAX_HEAD as usize];
        let length = self.head.read_at(&mut text, 0)?;
        let text = text.get(..length).unwrap_or_default();
        if text.is_empty() {
            return Ok(Head::start());
        }
        let head = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        head.ok_or_else(|| Error::new(ErrorKind::InvalidData, "`head` is not what was written"))
    }
}

/// A process may have been ended between a line and `head`: a whole line that follows counts, and half a line was never
/// one.
fn recovered(lines: &mut File, head: Head, length: u64) -> Result<Head> {
    let broken = || Error::new(ErrorKind::InvalidData, format!("`{}` is not as long as it was", name(head.file)));
    if length < head.length || length.saturating_sub(head.length) > MAX_LINE {
        return Err(broken());
    }
    let mut rest = String::new();
    lines.seek(SeekFrom::Start(head.length))?;
    lines.take(MAX_LINE).read_to_string(&mut rest)?;
    match rest.split_once('\n') {
        Some((line, "")) => {
            let link = head.link.follow(line).map_err(|_| broken())?;
            Ok(Head { link, length, ..head })
        }
        Some(_) => Err(broken()),
        None => {
            lines.set_len(head.length)?;
            lines.flush()?;
            Ok(head)
        }
    }
}

/// The name of a file of lines.
pub(super) fn name(file: u32) -> String {
    format!("{file:06}.jsonl")
}

fn file(folder: &OwnedFd, name: &str, flags: OFlags) -> Result<File> {
    let flags = flags | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::from(openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?);
    if !file.metadata()?.is_file() {
        return Err(Error::new(ErrorKind::InvalidInput, format!("`{name}` is not a regular file")));
    }
    Ok(file)
}

/// Where the chain is, for a reader.
pub(super) fn head_of(text: &str) -> Option<Link> {
    text.parse::<Head>().ok().map(|head| head.link)
}
