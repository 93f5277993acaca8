//! The interface `tasks`: work that continues while a script does something else.

use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lower};

use super::denial::Denial;

/// The variant `error` of the interface.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lower, Serialize, Deserialize)]
#[component(variant)]
pub enum Error {
    /// The grant holds neither of what starts a task.
    #[component(name = "access-denied")]
    AccessDenied(Denial),
    /// No such task, too many at once, or none at all. Carries what is wrong.
    #[component(name = "invalid")]
    Invalid(String),
}
