//! The file of a session: made for its owner alone, locked while it is written to, a line at a time.

use std::fs::File;
use std::io::{Error, ErrorKind, Result, Write as _};
use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, openat, unlinkat};
use rustix::io::Errno;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use harness_sys::own;

/// What the name of a file ends with, after the session's.
pub(super) const ENDING: &str = ".jsonl";
/// Bytes of a record; what is over is not recorded.
pub const MAX_BYTES: u64 = 256 << 20;
/// Microseconds that a name may be behind its time, where others were begun at the same one.
const TRIES: u32 = 8;

/// A session's file. Empty until the first line; one that stays empty is removed.
#[derive(Debug)]
pub struct Writer {
    id: String,
    /// When the session began, UTC.
    began: String,
    folder: OwnedFd,
    file: File,
    bytes: u64,
}

impl Writer {
    /// Makes a file of a session that begins now, in a folder that is made if it is not there.
    ///
    /// # Errors
    ///
    /// What the system says. A folder that is a link is refused.
    pub fn create(folder: &Path, now: OffsetDateTime) -> Result<Self> {
        let folder = own::folder(folder)?;
        let (hour, minute, second) = now.to_hms();
        let (year, month, day) = (now.year(), u8::from(now.month()), now.day());
        let stamp = format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}");
        // The later of two has the larger name, so that there is one that is the latest.
        for later in 0..TRIES {
            let id = format!("{stamp}-{:06}", (now.microsecond() + later).min(999_999));
            let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            match openat(&folder, format!("{id}{ENDING}"), flags | OFlags::NOFOLLOW, Mode::RUSR | Mode::WUSR) {
                Ok(file) => {
                    // A reader sees by it that the session continues.
                    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
                    let began = now.replace_nanosecond(0).unwrap_or(now).format(&Rfc3339).map_err(Error::other)?;
                    return Ok(Self { id, began, folder, file: File::from(file), bytes: 0 });
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// The session's name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// When the session began.
    pub(super) fn began(&self) -> &str {
        &self.began
    }

    /// Appends a line.
    ///
    /// # Errors
    ///
    /// What the system says, or that the file would be too large.
    pub fn append(&mut self, line: &str) -> Result<()> {
        let length = (line.len() as u64).saturating_add(1);
        self.bytes = self.bytes.saturating_add(length);
        if self.bytes > MAX_BYTES {
            return Err(Error::new(ErrorKind::FileTooLarge, format!("it would be over {MAX_BYTES} bytes")));
        }
        let mut text = String::with_capacity(line.len().saturating_add(1));
        text.push_str(line);
        text.push('\n');
        // In one go: anyone who reads meanwhile sees whole lines, and a process that is ended leaves at most half a
        // one.
        self.file.write_all(text.as_bytes())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.bytes == 0 {
            // One that cannot be removed is passed over by readers.
            let _ = unlinkat(&self.folder, format!("{}{ENDING}", self.id), AtFlags::empty());
        }
    }
}

#[cfg(test)]
impl Writer {
    /// The same on a disk that is full.
    pub(super) fn to_full_disk(mut self) -> Self {
        self.file = File::options().write(true).open("/dev/full").unwrap();
        self
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn now() -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_790_000_000).unwrap()
    }

    #[test]
    fn a_file_is_for_its_owner_alone_and_goes_if_it_stays_empty() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = folder.path().join("sessions");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let names = || {
            let names = std::fs::read_dir(&sessions).unwrap().map(|entry| entry.unwrap().file_name());
            names.map(|name| name.into_string().unwrap()).filter(|name| name != ".gitignore").collect::<Vec<_>>()
        };
        let mut kept = Writer::create(&sessions, now()).unwrap();
        let other = Writer::create(&sessions, now()).unwrap();
        assert_ne!(kept.id(), other.id());
        assert!(kept.id().starts_with("20260921-141320-"), "{}", kept.id());
        kept.append("{}").unwrap();
        kept.append("{\"a\":1}").unwrap();
        let path = sessions.join(format!("{}.jsonl", kept.id()));
        drop((kept, other));
        assert_eq!(names(), [path.file_name().unwrap().to_str().unwrap()]);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{}\n{\"a\":1}\n");
        assert_eq!((mode(&sessions), mode(&path)), (0o700, 0o600));
        assert_eq!(std::fs::read_to_string(sessions.join(".gitignore")).unwrap(), "*\n");
    }

    #[test]
    fn a_folder_that_is_a_link_or_a_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", folder.path().join("link")).unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        for name in ["link", "file", "none/sessions"] {
            Writer::create(&folder.path().join(name), now()).unwrap_err();
        }
        assert_eq!(std::fs::read_dir(folder.path().join("elsewhere")).unwrap().count(), 0);
    }
}
