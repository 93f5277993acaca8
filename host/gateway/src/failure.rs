//! Why a server gave no result.

use std::fmt;

use harness_artifact::pinned::{Change, describe};
use harness_policy::refusal::Refusal;

/// Why a server gave no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// It may not be asked, or is not what it was when it was locked.
    Refused {
        /// What is refused, and what would allow it.
        refusal: Refusal,
        /// What differs, line by line, where that is the reason.
        difference: Option<String>,
    },
    /// It cannot be started, has ended, or does not speak the protocol. In one line.
    Broken(String),
    /// It answered with an error. In one line.
    Said(String),
}

impl Failure {
    /// A server that is not what it was.
    pub(crate) fn drift(server: &str, changes: &[Change]) -> Self {
        let (what, difference) = describe(server, changes);
        let hint = "`harness lock` shows what changed, and accepts it";
        Self::Refused { refusal: Refusal::new(what, hint), difference }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { refusal, .. } => f.write_str(&refusal.reason),
            Self::Broken(why) | Self::Said(why) => f.write_str(why),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused { refusal, difference: None }
    }
}
