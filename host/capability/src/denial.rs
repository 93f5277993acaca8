//! A refusal as the guest gets it.

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
