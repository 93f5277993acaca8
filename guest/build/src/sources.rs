//! The digest of everything that goes into the guest component.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::patches;

/// Folders and files, from the project's top, whose content goes into the component. A folder stands for the files
/// of these kinds in it.
const SOURCES: &[&str] = &[
    "guest/Cargo.toml",
    "guest/src",
    "guest/build/src/encode.rs",
    "guest/build/src/patches.rs",
    "guest/build/src/seal.rs",
    patches::FOLDER,
    "wit",
];
const EXTENSIONS: &[&str] = &["patch", "rs", "toml", "wit"];

/// Packages whose locked versions, with all that they depend on, go into the component.
const PACKAGES: &[&str] = &["harness-guest", "wasm-encoder", "wit-component"];

/// SHA-256, in hex, of the guest's sources, its contract, its locked dependencies and its compiler settings.
///
/// # Errors
///
/// Where a source cannot be read.
pub fn digest(root: &Path) -> Result<String> {
    let mut hash = Sha256::new();
    let mut add = |name: &str, content: &[u8]| {
        // Lengths first, so that no two lists of files can look the same.
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name);
        hash.update((content.len() as u64).to_le_bytes());
        hash.update(content);
    };
    for path in files(root)? {
        let content = std::fs::read(root.join(&path)).with_context(|| path.display().to_string())?;
        add(&path.to_string_lossy(), &content);
    }
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).context("Cargo.lock")?;
    add("Cargo.lock", locked(&lock)?.as_bytes());
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).context("Cargo.toml")?;
    let manifest: toml::Table = manifest.parse().context("Cargo.toml")?;
    let profile = manifest.get("profile").and_then(|profiles| profiles.get("guest"));
    add("profile", toml::to_string(&profile.context("Cargo.toml has no profile `guest`")?)?.as_bytes());
    add("flags", crate::toolchain::FLAGS.as_bytes());
    let mut text = String::new();
    for byte in hash.finalize() {
        write!(text, "{byte:02x}")?;
    }
    Ok(text)
}

/// The files that go into the component, from the project's top, sorted.
///
/// # Errors
///
/// Where a folder cannot be read.
pub fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut waiting: Vec<PathBuf> = SOURCES.iter().map(PathBuf::from).collect();
    while let Some(path) = waiting.pop() {
        let full = root.join(&path);
        if full.is_dir() {
            for entry in std::fs::read_dir(&full).with_context(|| full.display().to_string())? {
                waiting.push(path.join(entry?.file_name()));
            }
        } else if path.extension().is_some_and(|found| EXTENSIONS.iter().any(|wanted| found == *wanted)) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[derive(Debug, Deserialize)]
struct Lock {
    package: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    version: String,
    checksum: Option<String>,
    #[serde(default)]
    dependencies: Vec<String>,
}

/// The locked packages that the component depends on, one a line, sorted.
fn locked(lock: &str) -> Result<String> {
    let lock: Lock = toml::from_str(lock).context("Cargo.lock")?;
    let mut by_name: BTreeMap<&str, Vec<&Package>> = BTreeMap::new();
    for package in &lock.package {
        by_name.entry(&package.name).or_default().push(package);
    }
    let mut seen = BTreeSet::new();
    let mut waiting: Vec<&str> = PACKAGES.to_vec();
    while let Some(wanted) = waiting.pop() {
        // `name`, `name version` where there are several, sometimes followed by the source.
        let mut words = wanted.split(' ');
        let (name, version) = (words.next().unwrap_or_default(), words.next());
        let packages = by_name.get(name).map(Vec::as_slice).unwrap_or_default();
        let mut matching = packages.iter().filter(|p| version.is_none_or(|version| p.version == version)).peekable();
        if matching.peek().is_none() {
            bail!("Cargo.lock has no package `{wanted}`");
        }
        for package in matching {
            let checksum = package.checksum.as_deref().unwrap_or("local");
            // Development dependencies are in the list too: they change the digest, which is only more careful.
            if seen.insert(format!("{} {} {checksum}\n", package.name, package.version)) {
                waiting.extend(package.dependencies.iter().map(String::as_str));
            }
        }
    }
    Ok(seen.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = r#"
[[package]]
name = "harness-guest"
version = "1.0.0"
dependencies = ["a", "b 2.0.0"]

[[package]]
name = "wit-component"
version = "1.0.0"
checksum = "w"

[[package]]
name = "wasm-encoder"
version = "1.0.0"
checksum = "p"

[[package]]
name = "a"
version = "1.0.0"
checksum = "1"

[[package]]
name = "b"
version = "1.0.0"
checksum = "2"

[[package]]
name = "b"
version = "2.0.0"
checksum = "3"

[[package]]
name = "unrelated"
version = "1.0.0"
checksum = "4"
"#;

    #[test]
    fn only_what_the_guest_depends_on_is_locked() {
        assert_eq!(
            locked(LOCK).unwrap(),
            "a 1.0.0 1\nb 2.0.0 3\nharness-guest 1.0.0 local\nwasm-encoder 1.0.0 p\n\
             wit-component 1.0.0 w\n"
        );
    }

    #[test]
    fn a_missing_package_is_an_error() {
        let error = locked(&LOCK.replace("name = \"a\"", "name = \"z\"")).unwrap_err();
        assert_eq!(error.to_string(), "Cargo.lock has no package `a`");
    }
}
