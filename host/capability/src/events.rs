//! The interface `events`: what a script fires for the project's hooks.

use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lower};

use super::denial::Denial;

/// The variant `error` of the interface.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lower, Serialize, Deserialize)]
#[component(variant)]
pub enum Error {
    /// The grant does not hold events, or a hook blocked this one.
    #[component(name = "access-denied")]
    AccessDenied(Denial),
    /// Not an event that a script may fire, or not a payload. Carries what is wrong.
    #[component(name = "invalid")]
    Invalid(String),
    /// Deeper than the host allows. Carries the levels.
    #[component(name = "too-deep")]
    TooDeep(u32),
}
