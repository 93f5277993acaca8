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

/// The folder of both, from the project's top.
const FOLDER: &str = "guest/prebuilt";
const COMPONENT: &str = "interpreter.wasm.gz";
const RECORD: &str = "record.toml";

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
    component(&root.join(FOLDER), &record).map(Some)
}

/// The prebuilt component in a folder, whatever its sources were: a package has none of them.
///
/// # Errors
///
/// Where it is not there, or damaged.
pub fn packaged(folder: &Path) -> Result<Vec<u8>> {
    let path = folder.join(RECORD);
    let record = read(&path)?.with_context(|| format!("{} does not exist", path.display()))?;
    component(folder, &record)
}

fn component(folder: &Path, record: &Record) -> Result<Vec<u8>> {
    let compressed = std::fs::read(folder.join(COMPONENT)).context(COMPONENT)?;
    let mut bytes = Vec::new();
    GzDecoder::new(compressed.as_slice()).take(MAX_COMPONENT).read_to_end(&mut bytes).context(COMPONENT)?;
    ensure!(hex(&bytes) == record.component, "{COMPONENT} is not the component that {RECORD} names");
    Ok(bytes)
}

/// The record, if there is one.
///
/// # Errors
///
/// Where it cannot be read.
pub fn record(root: &Path) -> Result<Option<Record>> {
    read(&root.join(FOLDER).join(RECORD))
}

fn read(path: &Path) -> Result<Option<Record>> {
    match std::fs::read_to_string(path) {
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
    let folder = root.join(FOLDER);
    std::fs::create_dir_all(&folder)?;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(component)?;
    std::fs::write(folder.join(COMPONENT), encoder.finish()?).context(COMPONENT)?;
    let text =
        format!("# What interpreter.wasm.gz was made of; written by guest-build.\n{}", toml::to_string(&record)?);
    std::fs::write(folder.join(RECORD), text).context(RECORD)?;
    Ok(record)
}

/// SHA-256 in hex.
pub fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A package has the component and its record alone; one that is damaged is refused.
    #[test]
    fn a_packaged_component_is_the_one_that_its_record_names() {
        let folder = std::env::temp_dir().join(format!("harness-packaged-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(FOLDER);
        for file in [COMPONENT, RECORD] {
            std::fs::copy(own.join(file), folder.join(file)).unwrap();
        }
        let bytes = packaged(&folder).unwrap();
        assert!(bytes.starts_with(b"\0asm"));

        let text = std::fs::read_to_string(folder.join(RECORD)).unwrap();
        std::fs::write(folder.join(RECORD), text.replace(&hex(&bytes), &hex(b"another"))).unwrap();
        let error = packaged(&folder).unwrap_err();
        assert_eq!(error.to_string(), "interpreter.wasm.gz is not the component that record.toml names");

        std::fs::remove_file(folder.join(RECORD)).unwrap();
        let error = packaged(&folder).unwrap_err();
        assert_eq!(error.to_string(), format!("{} does not exist", folder.join(RECORD).display()));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
