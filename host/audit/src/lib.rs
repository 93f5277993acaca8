//! The record of what was called and what was decided: JSON Lines in `.harness/audit/`, each with the hash of the one
//! before, so that a line that was cut out, changed or moved is found.
//!
//! - `entry`: what is said of something that happened
//! - `chain`: a line, its hash, and whether it follows another
//! - `key`: what digests of arguments are made with
//! - `log`: appending, by any number of processes
//! - `verify`: reading it all back
//!
//! ```text
//! .harness/audit/head           the number and hash of the last line, and where it ends
//! .harness/audit/key            what the digests of arguments are made with
//! .harness/audit/000001.jsonl   the lines from the first on
//! .harness/audit/000002.jsonl   the next, after a file has grown over 16 MiB
//! ```
//!
//! Who can write the folder can forge a whole new record. No built-in of a script can; a command that a policy grants
//! to scripts may. To have what such a one cannot change, keep the hash that `harness audit verify` prints elsewhere.

#![cfg_attr(test, expect(clippy::disallowed_methods, reason = "tests make files and programs"))]

mod chain;
mod entry;
mod key;
mod log;
mod verify;

pub use entry::Entry;
pub use entry::{Cut, MAX_NAME, MAX_TEXT, Room, Row, kept, kept_list};
pub use key::Key;
pub use log::Log;
pub use verify::{Broken, Summary, lines, verify};

/// The folder, below the one that holds `.harness/`.
pub const FOLDER: &str = ".harness/audit";

#[cfg(test)]
mod tests;
