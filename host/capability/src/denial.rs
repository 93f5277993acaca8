//! A refusal as the guest gets it.

use std::fmt;

use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lower};

use harness_policy::refusal::Refusal;

/// The record `denial` of the interface `refusal`.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lower, Serialize, Deserialize)]
#[component(record)]
pub struct Denial {
    /// What was tried and which rule refused it.
    pub reason: String,
    /// What would allow it; empty where nothing would.
    pub hint: String,
}

/// On one line.
impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        if self.hint.is_empty() { Ok(()) } else { write!(f, "; {}", self.hint) }
    }
}

impl From<Refusal> for Denial {
    fn from(Refusal { reason, hint }: Refusal) -> Self {
        Self { reason, hint }
    }
}

impl From<Denial> for Refusal {
    fn from(Denial { reason, hint }: Denial) -> Self {
        Self { reason, hint }
    }
}
