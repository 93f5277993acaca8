//! `env`: variables of the host's environment that the policy names.

use wasmtime::component::{ComponentType, Lower};

use super::denial::Denial;
use crate::ambient;
use crate::policy::grant::Grant;

/// The variant `error` of the interface.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lower)]
#[component(variant)]
pub enum Error {
    /// The policy does not name this variable.
    #[component(name = "access-denied")]
    AccessDenied(Denial),
}

/// The value of a variable, if the grant names it and it is set to text.
///
/// # Errors
///
/// Where the grant does not name it, whether or not it is set.
pub fn get(grant: &Grant, name: &str) -> Result<Option<String>, Error> {
    grant.decide_env(name).map_err(|refusal| Error::AccessDenied(refusal.into()))?;
    Ok(ambient::variable(name))
}
