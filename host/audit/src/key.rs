//! What the digests of arguments are made with.
//!
//! Arguments are often short, and anyone who has a plain digest of one can try out what it may have been. With a key
//! that stays in the folder of the record, lines that are handed on show nothing of it; who has the folder can still
//! show whether a call was made with given arguments.

use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use hmac::{Hmac, KeyInit as _, Mac as _};
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, flock};
use sha2::Sha256;

use harness_sys as sys;
use harness_sys::digest::hex;
use harness_sys::own::file;

/// Its file, beside the lines.
pub(super) const FILE: &str = "key";
/// Bytes of it.
const BYTES: usize = 32;

/// A key of a record. It is made with the record, and is a file for its owner alone.
#[derive(Clone)]
pub struct Key(Hmac<Sha256>);

/// Without what it is.
impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// The key of the record in a folder.
    ///
    /// # Errors
    ///
    /// What the system says, or that the file is not what was written.
    pub fn read(folder: &Path) -> Result<Self> {
        let text = sys::read_text(&folder.join(FILE))?;
        Self::parse(text.trim_end())
    }

    fn parse(text: &str) -> Result<Self> {
        let wrong = || Error::new(ErrorKind::InvalidData, format!("`{FILE}` is not what was written"));
        let digits = text.len() == BYTES * 2 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        // Its digits are as good a key as the bytes that they stand for.
        let key = Hmac::new_from_slice(text.as_bytes()).ok().filter(|_| digits);
        key.map(Self).ok_or_else(wrong)
    }

    /// The digest of a text: `hmac-sha256:` and hexadecimal digits.
    pub fn digest(&self, text: &[u8]) -> String {
        let mut mac = self.0.clone();
        mac.update(text);
        format!("hmac-sha256:{}", hex(&mac.finalize().into_bytes()))
    }
}

/// The key of a log, which is made if there is none. The error is `WouldBlock` if another process is just making it.
pub(super) fn of(folder: &OwnedFd) -> Result<Key> {
    let kept = file(folder, FILE)?;
    let mut text = [0; BYTES * 2 + 1];
    let mut length = kept.read_at(&mut text, 0)?;
    // Two processes may begin one log. One that is there needs no lock, so that nobody who holds it stops this.
    if length < BYTES * 2 {
        flock(&kept, FlockOperation::NonBlockingLockExclusive)?;
        length = kept.read_at(&mut text, 0)?;
    }
    if length == 0 {
        let mut random = [0; BYTES];
        sys::fill_random(&mut random);
        let new = hex(&random);
        kept.write_all_at(new.as_bytes(), 0)?;
        return Key::parse(&new);
    }
    let text = text.get(..length).and_then(|text| std::str::from_utf8(text).ok());
    Key::parse(text.unwrap_or_default().trim_end())
}
