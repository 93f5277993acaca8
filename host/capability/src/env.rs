//! `env`: variables of the host's environment that the policy names.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lower};

use super::denial::Denial;
use harness_policy::grant::Grant;
use harness_sys as sys;

/// The variant `error` of the interface.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lower, Serialize, Deserialize)]
#[component(variant)]
pub enum Error {
    /// The policy does not name this variable.
    #[component(name = "access-denied")]
    AccessDenied(Denial),
}

/// Where variables come from.
#[derive(Debug, Clone, Default)]
pub enum Variables {
    /// The environment of the host.
    #[default]
    Host,
    /// These, for a test or a replay.
    Given(BTreeMap<String, String>),
}

impl Variables {
    /// The value of a variable, if the grant names it and it is set to text.
    ///
    /// # Errors
    ///
    /// Where the grant does not name it, whether or not it is set.
    pub fn get(&self, grant: &Grant, name: &str) -> Result<Option<String>, Error> {
        grant.decide_env(name).map_err(|refusal| Error::AccessDenied(refusal.into()))?;
        Ok(match self {
            Self::Host => sys::variable(name),
            Self::Given(variables) => variables.get(name).cloned(),
        })
    }
}
