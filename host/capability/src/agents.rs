//! The interface `agents`: sub-agents that a script sets a task.

use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lower};

use super::denial::Denial;

/// The variant `error` of the interface.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lower, Serialize, Deserialize)]
#[component(variant)]
pub enum Error {
    /// The grant does not hold it, or a hook blocked this one.
    #[component(name = "access-denied")]
    AccessDenied(Denial),
    /// No such agent, no model, or not a task. Carries what is wrong.
    #[component(name = "invalid")]
    Invalid(String),
    /// Deeper than the policy allows. Carries the levels.
    #[component(name = "too-deep")]
    TooDeep(u32),
    /// The agent ended without a result. Carries why.
    #[component(name = "failed")]
    Failed(String),
}
