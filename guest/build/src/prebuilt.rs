//! The component that is kept in the repository, so that building the host needs no WebAssembly compiler.

use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::sources;

const COMPONENT: &str = "guest/prebuilt/interpreter.wasm.gz";
const RECORD: &str = "guest/prebuilt/record.toml";

/// More than a component will ever be; a damaged file must not fill the memory.
const MAX_COMPONENT: u64 = 64 << 20;

/// What the component was made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// [`sources::digest`] of the sources.
    pub sources: String,
    /// The compiler's own name and version.
    pub compiler: String,
    /// SHA-256 of the component, in hex.
    pub component: String,
}

/// The prebuilt component, if it was made of the sources below `root`.
///
/// # Errors
///
/// Where the component is there but damaged.
pub fn load(root: &Path) -> Result<Option<Vec<u8>>> {
    let Some(record) = record(root)? else { return Ok(None) };
    if record.sources != sources::digest(root)? {
        return Ok(None);
    }
    let compressed = std::fs::read(root.join(COMPONENT)).context(COMPONENT)?;
    let mut bytes = Vec::new();
    GzDecoder::new(compressed.as_slice()).take(MAX_COMPONENT).read_to_end(&mut bytes).context(COMPONENT)?;
    ensure!(hex(&bytes) == record.component, "{COMPONENT} is not the component that {RECORD} tells of");
    Ok(Some(bytes))
}

/// The record, if there is one.
///
/// # Errors
///
/// Where it cannot be read.
pub fn record(root: &Path) -> Result<Option<Record>> {
    match std::fs::read_to_string(root.join(RECORD)) {
        Ok(text) => Ok(Some(toml::from_str(&text).context(RECORD)?)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).context(RECORD),
    }
}

/// Keeps a component as the prebuilt one.
///
/// # Errors
///
/// Where a file cannot be written.
pub fn store(root: &Path, component: &[u8], compiler: &str) -> Result<Record> {
    let record = Record { sources: sources::digest(root)?, compiler: compiler.to_owned(), component: hex(component) };
    std::fs::create_dir_all(root.join("guest/prebuilt"))?;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(component)?;
    std::fs::write(root.join(COMPONENT), encoder.finish()?).context(COMPONENT)?;
    let text =
        format!("# What interpreter.wasm.gz was made of; written by guest-build.\n{}", toml::to_string(&record)?);
    std::fs::write(root.join(RECORD), text).context(RECORD)?;
    Ok(record)
}

/// SHA-256 in hex.
pub fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
