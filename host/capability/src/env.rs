//! `env`: variables of the host's environment that the policy names.

use std::collections::BTreeMap;
use std::sync::Arc;

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
#[derive(Debug, Clone)]
pub enum Variables {
    /// The environment of the process.
    Host,
    /// These.
    Given(Arc<BTreeMap<String, String>>),
}

impl Default for Variables {
    /// None.
    fn default() -> Self {
        Self::Given(Arc::default())
    }
}

impl FromIterator<(String, String)> for Variables {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(variables: T) -> Self {
        Self::Given(Arc::new(variables.into_iter().collect()))
    }
}

impl Variables {
    /// The value of a variable that is set to text, for the host itself: no grant is asked.
    pub fn value(&self, name: &str) -> Option<String> {
        match self {
            Self::Host => sys::variable(name),
            Self::Given(variables) => variables.get(name).cloned(),
        }
    }

    /// The value of a variable, if the grant names it and it is set to text.
    ///
    /// # Errors
    ///
    /// Where the grant does not name it, whether or not it is set.
    pub fn get(&self, grant: &Grant, name: &str) -> Result<Option<String>, Error> {
        grant.decide_env(name).map_err(|refusal| Error::AccessDenied(refusal.into()))?;
        Ok(self.value(name))
    }
}
