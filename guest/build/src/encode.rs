//! From a core module to a component.

use anyhow::{Context, Result};

use crate::seal;

/// Encodes the guest's core module as a component. What Rust's standard library asks of WASI 0.1 is answered inside the
/// module, so there is nothing to adapt.
///
/// # Errors
///
/// Where the module does not hold a description of its world, does not fit it, or asks WASI 0.1 for something that
/// nothing in it answers.
pub fn component(module: &[u8]) -> Result<Vec<u8>> {
    wit_component::ComponentEncoder::default()
        .validate(true)
        .module(&seal::seal(module)?)
        .context("the module does not describe its world")?
        .encode()
        .context("the module does not fit its world")
}
