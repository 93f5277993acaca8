//! Helpers that tests of several crates share. Only tests use this crate.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, clippy::print_stderr, reason = "tests")]

pub mod server;
pub mod skip;
