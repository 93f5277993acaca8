//! The files of a plugin, whatever they say: one digest for all of them, one packed form, where they come from and where
//! they are kept.
//!
//! - [`content`]: the files, with the rules that hold for their names and sizes, and their digest
//! - [`archive`]: the same as one file
//! - [`source`]: where a plugin is fetched from
//! - [`signature`]: who vouches for a plugin
//! - [`cache`]: the plugins of this machine, each under its digest

#![cfg_attr(test, expect(clippy::disallowed_methods, reason = "tests make files and folders"))]

pub mod archive;
pub mod cache;
pub mod content;
pub mod signature;
pub mod source;

use std::fmt;

/// Why something is no plugin, or cannot be used as one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected(String);

impl Rejected {
    /// With this reason: a sentence without a full stop.
    pub fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Rejected {}

impl From<std::io::Error> for Rejected {
    fn from(error: std::io::Error) -> Self {
        Self(error.to_string())
    }
}
