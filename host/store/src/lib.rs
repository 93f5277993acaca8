//! What a server keeps: logs, values, blobs, leases and timers, behind one narrow trait.
//!
//! A server is written against [`Store`]. [`Sqlite`] is the store that is built in, one file on one machine. [`Memory`]
//! keeps nothing after the process, and serves tests. `suite` checks the promises below against any implementation.
//!
//! # Promises of every store
//!
//! - **An operation begins when its future is first polled.** Before that, nothing has happened.
//! - **Durable.** A write whose future returns `Ok` survives the death of the process and of the machine. [`Memory`] is the
//!   exception.
//! - **Whole.** A write is executed as a whole or not at all, also if the process dies at any moment. Every error but
//!   [`StoreError::Unknown`] means that nothing changed.
//! - **Dropped futures.** A write whose future is dropped is executed as a whole or not at all, and its caller does not
//!   learn which.
//! - **Order.** All writes happen one after another, in one order that every reader sees. A write that begins after another
//!   one has returned comes after it. Of two that are under way at the same time, either may be first.
//! - **Reads** return one moment of the store, not older than the last write that had returned when the read began.
//! - **Rivals.** Of any number of writes that expect the same length or version, exactly one succeeds. The others get
//!   [`StoreError::Conflict`] with what they should have expected at that moment.
//! - **Names** (of logs, buckets, keys, leases, holders and timers) are any UTF-8 text of at most [`MAX_NAME_BYTES`], also
//!   the empty text, compared byte by byte.
//! - **Bounds.** What is larger than the constants of this crate gets [`StoreError::TooLarge`]. Work that waits for the
//!   store is bounded too: operations beyond the bound wait in their callers, first come, first served.
//! - **Messages** of errors never contain keys, values or lines.
//! - **Time** is what the caller passes, in milliseconds since 1970. A store reads no clock.

mod memory;
mod sqlite;
#[cfg(any(test, feature = "suite"))]
pub mod suite;
mod waiters;

use std::fmt::Debug;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;

pub use memory::Memory;
pub use sqlite::{Backup, OpenError, SCHEMA, Sqlite, VERSION_OF_SQLITE, user_of, version_of};

/// The longest name of a log, bucket, key, lease, holder or timer, in bytes.
pub const MAX_NAME_BYTES: usize = 512;
/// The longest value, and the longest payload of a timer.
pub const MAX_VALUE_BYTES: usize = 1 << 20;
/// The longest line of a log.
pub const MAX_LINE_BYTES: usize = 1 << 20;
/// The most lines of one append.
pub const MAX_LINES: usize = 1_000;
/// The most bytes of all lines of one append.
pub const MAX_APPEND_BYTES: usize = 16 << 20;
/// The longest blob.
pub const MAX_BLOB_BYTES: usize = 64 << 20;
/// A read of several lines, values or timers ends before it exceeds this many bytes, unless it has only one.
pub const MAX_READ_BYTES: usize = 16 << 20;
/// The latest moment, in milliseconds since 1970. A store takes a later one for this one.
pub const MAX_TIME: u64 = i64::MAX.unsigned_abs();

/// An operation that is under way, once it is polled.
pub type Pending<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

/// Why an operation failed. Nothing changed, except perhaps after [`Unknown`](StoreError::Unknown).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The log has another length, or the value another version, than was expected; 0: it does not exist.
    #[error("another writer was first: it is at {at}, and not at {expected}")]
    Conflict {
        /// What the caller expected.
        expected: u64,
        /// What it is.
        at: u64,
    },
    /// A name, value, line, append or blob is larger than a store takes.
    #[error("{what} of {bytes} bytes is too large, {most} is the most")]
    TooLarge {
        /// What is too large: `a name`, `a value`, `a line`, `an append` or `a blob`.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// One operation has more parts than a store takes.
    #[error("{count} {what} are too many, {most} is the most")]
    TooMany {
        /// What there are too many of: `lines`.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// The limit.
        most: usize,
    },
    /// The disk is full. What is stored stays, and writes succeed again once there is room.
    #[error("the disk is full")]
    Full,
    /// The store was closed before the operation began.
    #[error("the store is closed")]
    Closed,
    /// It could not be read or written for another reason.
    #[error("the store failed: {0}")]
    Failed(String),
    /// The write may have happened or not: read what there is before you repeat it.
    #[error("the write may have happened or not: {0}")]
    Unknown(String),
}

/// A value and its version.
///
/// A version is at least 1, greater with each change of the key, and never used twice for a key, also after the value was
/// deleted. That it begins at 1 and grows by 1 is no promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versioned {
    /// The version.
    pub version: u64,
    /// The bytes.
    pub value: Vec<u8>,
}

/// What a value must be for a write to succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Any value, or none.
    Anything,
    /// No value. As an error it reads as version 0.
    Absent,
    /// The value of this version. 0, which no value has, is the same as `Absent`.
    Version(u64),
}

/// A line of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its position: 1 for the first line, and 1 more for each further one, without gaps.
    pub position: u64,
    /// Its bytes: any, also none.
    pub bytes: Vec<u8>,
}

/// A lease, as it was when it was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// What is leased.
    pub name: String,
    /// Who holds it.
    pub holder: String,
    /// Greater than that of every earlier lease of this name: what a holder writes can be fenced with it.
    pub epoch: u64,
}

/// A timer that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timer {
    /// Its name.
    pub name: String,
    /// When it was due, in milliseconds since 1970.
    pub due: u64,
    /// What it was set with.
    pub payload: Vec<u8>,
}

/// What a server keeps. The [promises of every store](crate#promises-of-every-store) hold for each operation.
pub trait Store: Debug + Send + Sync {
    /// Appends lines to a log that has `expected` lines now (0: it does not exist yet), and returns its new length, which
    /// is the position of the last line.
    ///
    /// All lines are appended, at neighbouring positions, or none. Without lines only the length is checked.
    ///
    /// # Errors
    ///
    /// [`Conflict`](StoreError::Conflict) with the length of the log. More than [`MAX_LINES`] or [`MAX_APPEND_BYTES`], or a
    /// line over [`MAX_LINE_BYTES`].
    fn append(&self, log: &str, expected: u64, lines: Vec<Vec<u8>>) -> Pending<u64>;

    /// Returns lines after position `after`: in order, without gaps, at most `most`, and at most [`MAX_READ_BYTES`] but
    /// at least one. So only an empty answer means that there are no more. A log that does not exist has none.
    fn lines(&self, log: &str, after: u64, most: usize) -> Pending<Vec<Line>>;

    /// Waits until the log has more than `after` lines, and returns its length.
    ///
    /// Returns at once if it has more already. A log that does not exist has no lines, and may come. Each append that makes
    /// the log long enough wakes all who wait for it. A log that is removed and appended to again counts from 0. Dropping
    /// the future costs nothing, and what does not wait takes no memory.
    ///
    /// # Errors
    ///
    /// [`Closed`](StoreError::Closed), when the store is closed meanwhile.
    fn longer(&self, log: &str, after: u64) -> Pending<u64>;

    /// Removes a log and all its lines, if it exists. Its name can be used again, from position 1.
    fn remove_log(&self, log: &str) -> Pending<()>;

    /// Returns the value of a key, if it has one.
    fn get(&self, bucket: &'static str, key: &str) -> Pending<Option<Versioned>>;

    /// Sets the value of a key, and returns its new version.
    ///
    /// # Errors
    ///
    /// [`Conflict`](StoreError::Conflict) with the version of the value. A value over [`MAX_VALUE_BYTES`].
    fn put(&self, bucket: &'static str, key: &str, expected: Expected, value: Vec<u8>) -> Pending<u64>;

    /// Removes the value of a key. That there is none already is a conflict only with a version that was expected.
    ///
    /// # Errors
    ///
    /// [`Conflict`](StoreError::Conflict) with the version of the value.
    fn delete(&self, bucket: &'static str, key: &str, expected: Expected) -> Pending<()>;

    /// Returns the keys of a bucket that begin with `prefix` and are greater than `after`, with their values: in the order
    /// of their bytes, at most `most`, and at most [`MAX_READ_BYTES`] but at least one.
    ///
    /// `after` need not be a key. To read a bucket in pages, pass the last key of each page until a page is empty. Each page
    /// is one moment; keys that are there all the time are in exactly one of them.
    fn list(
        &self,
        bucket: &'static str,
        prefix: &str,
        after: Option<&str>,
        most: usize,
    ) -> Pending<Vec<(String, Versioned)>>;

    /// Keeps bytes and returns their digest, `sha256:` and 64 hexadecimal digits. The same bytes are kept once, however
    /// often they are put.
    ///
    /// # Errors
    ///
    /// A blob over [`MAX_BLOB_BYTES`].
    fn put_blob(&self, bytes: Vec<u8>) -> Pending<String>;

    /// Returns the bytes of a digest, if they are kept. What is no digest has none.
    ///
    /// # Errors
    ///
    /// [`Failed`](StoreError::Failed), if what is kept does not have this digest any more.
    fn blob(&self, digest: &str) -> Pending<Option<Vec<u8>>>;

    /// Removes the bytes of a digest, if they are kept, however often they were put.
    fn remove_blob(&self, digest: &str) -> Pending<()>;

    /// Takes a lease that runs out at `now` + `ms`. Returns nothing if another holder has it.
    ///
    /// A lease is held while `now` is less than its end. The same holder can take it again at any time: it gets a greater
    /// epoch, and its earlier lease is lost.
    fn lease(&self, name: &str, holder: &str, now: u64, ms: u64) -> Pending<Option<Lease>>;

    /// Moves the end of a lease to `now` + `ms`. Returns whether it is still held: false if it ran out, was released, or
    /// was taken since.
    fn renew(&self, lease: &Lease, now: u64, ms: u64) -> Pending<bool>;

    /// Ends a lease, if it is still that of its holder and epoch. Epochs of the name stay used.
    fn release(&self, lease: &Lease) -> Pending<()>;

    /// Sets a timer, instead of one that has the name.
    ///
    /// # Errors
    ///
    /// A payload over [`MAX_VALUE_BYTES`].
    fn set_timer(&self, name: &str, due: u64, payload: Vec<u8>) -> Pending<()>;

    /// Removes a timer, whenever it is due. Returns whether there was one. Of several who cancel the same timer, exactly one
    /// gets `true`.
    fn cancel_timer(&self, name: &str) -> Pending<bool>;

    /// Returns the timers that are due at `now`, the earliest first, of the same time in the order of their names: at most
    /// `most`, and at most [`MAX_READ_BYTES`] but at least one.
    ///
    /// They stay until they are cancelled: cancel a timer after its work is done. A timer that is set anew meanwhile would
    /// be cancelled too, so a handler that sets it again does not cancel it.
    fn due(&self, now: u64, most: usize) -> Pending<Vec<Timer>>;

    /// Writes a copy of one moment to a new file, while reads and writes continue. The copy has every write that had
    /// returned when the backup began. When it returns `Ok`, the copy is durable; otherwise there is no file.
    ///
    /// # Errors
    ///
    /// [`Failed`](StoreError::Failed), if there is a file of that name, or the store cannot copy itself.
    fn backup(&self, to: &Path) -> Pending<()>;

    /// Checks whether the store takes writes now, by a durable write of its own.
    ///
    /// # Errors
    ///
    /// [`Full`](StoreError::Full), also when there is little room left; else what a write would get.
    fn is_writable(&self) -> Pending<()>;
}

/// Checks of sizes, which all stores share.
mod sizes {
    use super::*;

    pub(crate) fn name(name: &str) -> Result<(), StoreError> {
        at_most("a name", name.len(), MAX_NAME_BYTES)
    }

    pub(crate) fn value(value: &[u8]) -> Result<(), StoreError> {
        at_most("a value", value.len(), MAX_VALUE_BYTES)
    }

    pub(crate) fn blob(bytes: &[u8]) -> Result<(), StoreError> {
        at_most("a blob", bytes.len(), MAX_BLOB_BYTES)
    }

    pub(crate) fn lines(lines: &[Vec<u8>]) -> Result<(), StoreError> {
        if lines.len() > MAX_LINES {
            return Err(StoreError::TooMany { what: "lines", count: lines.len(), most: MAX_LINES });
        }
        lines.iter().try_for_each(|line| at_most("a line", line.len(), MAX_LINE_BYTES))?;
        at_most("an append", lines.iter().map(Vec::len).sum(), MAX_APPEND_BYTES)
    }

    fn at_most(what: &'static str, bytes: usize, most: usize) -> Result<(), StoreError> {
        if bytes > most { Err(StoreError::TooLarge { what, bytes, most }) } else { Ok(()) }
    }
}

impl Expected {
    /// Compares what is expected with the version that there is, 0 for none.
    fn check(self, at: u64) -> Result<(), StoreError> {
        let expected = match self {
            Self::Anything => return Ok(()),
            Self::Absent => 0,
            Self::Version(version) => version,
        };
        if expected == at { Ok(()) } else { Err(StoreError::Conflict { expected, at }) }
    }
}

#[cfg(test)]
mod broken_tests;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
