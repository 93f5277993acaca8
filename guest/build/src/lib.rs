//! Builds the guest: Rust to a core module, to a WASI component, to the layers that the host starts from.
//!
//! ```text
//! guest crate ── toolchain ──► core module ── seal, encode ──► component ── layers ──► shell + code + memory
//! ```
//!
//! - [`patches`] are the project's own changes to crates that the guest is built with
//! - [`workspace`] is the project's workspace with these applied
//! - [`toolchain`] finds a compiler with a standard library for `wasm32-wasip1` and runs it
//! - [`seal`] puts functions of the module in the place of its WASI 0.1 imports
//! - [`encode`] turns the core module into a component
//! - [`prebuilt`] keeps a component in the repository, with the digest of the sources it was made from
//! - [`layers`] splits a component so that its code is compiled once and its memory can be another for each script
//!
//! The host's build script calls [`component`] and [`layers::split`]; the binary of this crate calls the rest.

pub mod encode;
pub mod layers;
pub mod patches;
pub mod prebuilt;
pub mod seal;
mod shell;
pub mod sources;
pub mod toolchain;
pub mod workspace;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Names a component to use instead of any other; for tests of a component that was built elsewhere.
pub const COMPONENT_VARIABLE: &str = "HARNESS_GUEST_COMPONENT";

/// Where a component came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Provenance {
    /// [`COMPONENT_VARIABLE`] named it.
    Named(PathBuf),
    /// The repository's own, made from the very sources that are here.
    Prebuilt,
    /// That of a package, whose sources are elsewhere.
    Packaged,
    /// Built now, by this compiler.
    Source(String),
}

/// The component for the sources below `root`: the one that is named, else the prebuilt one if its sources are the
/// ones here, else one that is built now. Never one of other sources.
///
/// # Errors
///
/// Where the sources have changed and no compiler can build them; the message says what to install.
pub fn component(root: &Path, scratch: &Path) -> Result<(Vec<u8>, Provenance)> {
    if let Some(named) = named()? {
        return Ok(named);
    }
    if let Some(bytes) = prebuilt::load(root)? {
        return Ok((bytes, Provenance::Prebuilt));
    }
    let built = toolchain::build(root, scratch)?;
    Ok((encode::component(&built.module)?, Provenance::Source(built.compiler)))
}

/// The component for a package of the host, which has the prebuilt one in a folder of its own: the one that is named, else
/// that.
///
/// # Errors
///
/// Where it cannot be read, or is damaged.
pub fn packaged(folder: &Path) -> Result<(Vec<u8>, Provenance)> {
    match named()? {
        Some(named) => Ok(named),
        None => Ok((prebuilt::packaged(folder)?, Provenance::Packaged)),
    }
}

/// The component that [`COMPONENT_VARIABLE`] names.
fn named() -> Result<Option<(Vec<u8>, Provenance)>> {
    let Some(path) = std::env::var_os(COMPONENT_VARIABLE).filter(|path| !path.is_empty()) else { return Ok(None) };
    let path = PathBuf::from(path);
    let bytes = std::fs::read(&path).with_context(|| format!("{COMPONENT_VARIABLE}: {}", path.display()))?;
    Ok(Some((bytes, Provenance::Named(path))))
}
