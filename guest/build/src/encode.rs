//! From a core module to a component.

use anyhow::{Context, Result};
use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER,
};

/// Encodes the guest's core module as a component, with the adapter that turns what Rust's standard library asks of
/// WASI 0.1 into imports of WASI 0.2.
///
/// # Errors
///
/// Where the module does not hold a description of its world, or does not fit it.
pub fn component(module: &[u8]) -> Result<Vec<u8>> {
    wit_component::ComponentEncoder::default()
        .validate(true)
        .module(module)
        .context("the module does not describe its world")?
        .adapter(WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER)?
        .encode()
        .context("the module does not fit its world")
}
