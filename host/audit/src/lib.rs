//! The record of what was called and what was decided: JSON Lines in `.harness/audit/`, each with the hash of the one
//! before, so that a line that was cut out, changed or moved is found.
//!
//! - `entry`: what is said of something that happened
//! - `chain`: a line, its hash, and whether it follows another
//! - `key`: what digests of arguments are made with
//! - `log`: one log, and what its callers ask of it
//! - `queue`: what waits to be done on a log
//! - `wait`: the answer to that
//! - `writer`: the one thread for all logs of a process
//! - `files`: the open files of a log, and groups of lines appended there, by any number of processes
//! - `snapshot`: where a log ends at one moment, for a reader
//! - `verify`: reading it all back
//! - `trim`: removing what is kept no longer
//!
//! ```text
//! .harness/audit/head           the number and hash of the last line, and where it ends
//! .harness/audit/key            what the digests of arguments are made with
//! .harness/audit/start          where the log begins, once files of it were removed
//! .harness/audit/000001.jsonl   the lines from the first on
//! .harness/audit/000002.jsonl   the next, after a file has grown over 16 MiB
//! ```
//!
//! Who can write the folder can forge a whole new record. No built-in of a script can; a command that a policy grants
//! to scripts may. To have what such a one cannot change, keep the hash that `harness audit verify` prints elsewhere.

#![cfg_attr(test, expect(clippy::disallowed_methods, reason = "tests make files and programs"))]

mod chain;
mod entry;
mod files;
mod key;
mod log;
mod queue;
mod snapshot;
mod trim;
mod verify;
mod wait;
mod writer;

pub use entry::Entry;
pub use entry::{Cut, MAX_NAME, MAX_TEXT, Room, Row, kept, kept_list};
pub use key::Key;
pub use log::{Backlog, Log};
pub use trim::{Retention, Trimmed, trim};
pub use verify::{Broken, Kept, Summary, copy, kept_lines, last_lines, lines, verify};
pub use wait::Wait;
pub use writer::AuditWriter;

/// The folder, below the one that holds `.harness/`.
pub const FOLDER: &str = ".harness/audit";

#[cfg(test)]
mod tests;

#[cfg(test)]
mod failure_tests;

#[cfg(test)]
mod trim_tests;

#[cfg(test)]
mod writer_tests;
