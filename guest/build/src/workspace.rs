//! The workspace that the guest is built in: the project's own, with patched copies of some crates.
//!
//! It is made below the build's folder, and cargo does the rest as in any workspace:
//!
//! ```text
//! workspace/
//!   Cargo.toml        the project's, and `[patch.crates-io]` with the copies
//!   Cargo.lock        the project's; the entries of the copies have no source
//!   guest, host, wit  links to the project's
//!   starlark          the copy
//! ```
//!
//! `[patch]` stands here and not in the project's own manifest, because a clean clone has no copies. The lock file is
//! derived, so `--locked` holds, no version can differ from the project's, and nothing is downloaded that the project
//! does not name. Cargo knows the copies as sources of its own: it builds them again when a patch changes, keeps them
//! apart from the original in a shared target folder, and treats both toolchains alike. A wrapper around the compiler
//! could do none of these, and a source replacement needs all crates of the project copied.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::patches::{self, Patches};
use crate::prebuilt;

/// What the workspace shares with the project: the members' folders, what these refer to, and the linter's settings.
const SHARED: &[&str] = &[".clippy.toml", "guest", "host", "tests", "wit"];
/// In a copy: the digest of what it was made of.
const STAMP: &str = ".patched";

/// Makes the workspace below `scratch`, or brings it up to date. Returns the path of its manifest.
///
/// `cargo` starts the cargo that will build there, in the project's folder.
///
/// # Errors
///
/// Where a patched crate is not of the version that its patches are for or cannot be downloaded, where a patch does not
/// apply, and where a file cannot be written.
pub fn make(root: &Path, scratch: &Path, cargo: impl Fn() -> Command) -> Result<PathBuf> {
    let folder = scratch.join("workspace");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let read = |name: &str| std::fs::read_to_string(root.join(name)).context(name.to_owned());
    let patches = patches::read(root)?;

    let lock = read("Cargo.lock")?;
    let mut sources = None;
    for patches in &patches {
        let checksum = checksum(&lock, patches)?;
        let stamp = prebuilt::hex(format!("{checksum} {patches:?}").as_bytes());
        let copy = folder.join(&patches.name);
        if std::fs::read_to_string(copy.join(STAMP)).is_ok_and(|found| found == stamp) {
            continue;
        }
        let sources = match &mut sources {
            Some(sources) => sources,
            none => none.insert(Sources::find(cargo())?),
        };
        let original = sources.of(patches)?;
        remake(&original, &copy, patches).with_context(|| format!("patching {}", original.display()))?;
        std::fs::write(copy.join(STAMP), stamp)?;
    }

    for name in SHARED {
        let (target, link) = (root.join(name), folder.join(name));
        if std::fs::read_link(&link).ok().as_ref() != Some(&target) {
            let _ = std::fs::remove_file(&link);
            symlink(&target, &link).with_context(|| link.display().to_string())?;
        }
    }
    write_if_other(&folder.join("Cargo.lock"), &derived_lock(&lock, &patches))?;
    let manifest = folder.join("Cargo.toml");
    write_if_other(&manifest, &derived_manifest(&read("Cargo.toml")?, &patches)?)?;
    Ok(manifest)
}

/// The unpacked sources of the project's dependencies, as cargo knows them.
#[derive(Debug, Deserialize)]
struct Sources {
    packages: Vec<Source>,
}

#[derive(Debug, Deserialize)]
struct Source {
    name: String,
    version: String,
    manifest_path: PathBuf,
}

impl Sources {
    /// Asks cargo, which downloads and unpacks what is missing.
    fn find(mut cargo: Command) -> Result<Self> {
        cargo.args(["metadata", "--locked", "--format-version", "1", "--filter-platform", crate::toolchain::TARGET]);
        let output = cargo.output().with_context(|| format!("cannot start {cargo:?}"))?;
        ensure!(
            output.status.success(),
            "cargo cannot find the sources of the guest's crates:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).context("the output of cargo metadata")
    }

    fn of(&self, patches: &Patches) -> Result<PathBuf> {
        let is_it = |source: &&Source| source.name == patches.name && source.version == patches.version;
        let found = self.packages.iter().find(is_it).and_then(|source| source.manifest_path.parent());
        found.map(Path::to_owned).with_context(|| format!("cargo knows no {} {}", patches.name, patches.version))
    }
}

/// Replaces the copy by a new one.
fn remake(original: &Path, copy: &Path, patches: &Patches) -> Result<()> {
    let read = |path: &Path| Ok(std::fs::read_to_string(original.join(path))?);
    let mut changed = patches.apply(read)?;
    let manifest = PathBuf::from("Cargo.toml");
    let without_warnings = quiet(&read(&manifest)?)?;
    changed.insert(manifest, without_warnings);
    if copy.exists() {
        std::fs::remove_dir_all(copy)?;
    }
    let mut waiting = vec![PathBuf::new()];
    while let Some(path) = waiting.pop() {
        let from = original.join(&path);
        if from.is_dir() {
            std::fs::create_dir_all(copy.join(&path))?;
            for entry in std::fs::read_dir(&from)? {
                waiting.push(path.join(entry?.file_name()));
            }
        } else {
            // Not `fs::copy`: a read-only original would make a copy that cannot be replaced.
            let text = changed.get(&path).map_or_else(|| std::fs::read(&from), |text| Ok(text.clone().into_bytes()));
            std::fs::write(copy.join(&path), text?)?;
        }
    }
    Ok(())
}

/// The manifest of a copy: cargo shows the warnings of a crate in a folder as it would the project's own.
fn quiet(manifest: &str) -> Result<String> {
    let mut manifest: toml::Table = manifest.parse().context("Cargo.toml")?;
    let rust = toml::Table::from_iter([("warnings".to_owned(), toml::Value::from("allow"))]);
    let lints = toml::Table::from_iter([("rust".to_owned(), toml::Value::from(rust))]);
    manifest.insert("lints".to_owned(), lints.into());
    Ok(toml::to_string(&manifest)?)
}

/// Cargo builds again what is newer than the last build.
fn write_if_other(path: &Path, text: &str) -> Result<()> {
    if std::fs::read_to_string(path).is_ok_and(|found| found == text) {
        return Ok(());
    }
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

/// The project's manifest, with `[patch.crates-io]`.
fn derived_manifest(manifest: &str, patches: &[Patches]) -> Result<String> {
    let manifest: toml::Table = manifest.parse().context("Cargo.toml")?;
    ensure!(!manifest.contains_key("patch"), "Cargo.toml has a [patch] of its own, which is not supported");
    let copies = patches.iter().map(|patches| {
        let path = toml::Table::from_iter([("path".to_owned(), toml::Value::from(patches.name.clone()))]);
        (patches.name.clone(), toml::Value::from(path))
    });
    let mut manifest = manifest;
    let registry =
        toml::Table::from_iter([("crates-io".to_owned(), toml::Value::from(copies.collect::<toml::Table>()))]);
    manifest.insert("patch".to_owned(), registry.into());
    Ok(toml::to_string(&manifest)?)
}

/// What separates the packages of a lock file.
const PACKAGE: &str = "[[package]]\n";

/// The project's lock file, where the patched crates come from no registry.
fn derived_lock(lock: &str, patches: &[Patches]) -> String {
    let derived = lock.split(PACKAGE).map(|package| {
        if !patches.iter().any(|patches| is_package(package, patches)) {
            return package.to_owned();
        }
        let kept = package
            .split_inclusive('\n')
            .filter(|line| !line.starts_with("source = ") && !line.starts_with("checksum = "));
        kept.collect()
    });
    derived.collect::<Vec<String>>().join(PACKAGE)
}

fn is_package(package: &str, patches: &Patches) -> bool {
    package.lines().next() == Some(&format!("name = \"{}\"", patches.name))
}

/// The checksum of a patched crate in the project's lock file.
fn checksum<'a>(lock: &'a str, patches: &Patches) -> Result<&'a str> {
    let name = &patches.name;
    let mut found = lock.split(PACKAGE).filter(|package| is_package(package, patches));
    let (Some(package), None) = (found.next(), found.next()) else {
        bail!("{} has patches for `{name}`, which Cargo.lock must have once", patches::FOLDER)
    };
    let field = |key: &str| {
        let mut lines = package.lines();
        lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"'))
    };
    let version = field("version").unwrap_or_default();
    ensure!(
        version == patches.version,
        "the patches are for {name} {}, and Cargo.lock has {version}: try each on the new version, and rename {}/{name}-{}",
        patches.version,
        patches::FOLDER,
        patches.version
    );
    field("checksum").with_context(|| format!("Cargo.lock has no checksum of {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: &str = r#"# @generated
version = 4

[[package]]
name = "acme"
version = "1.0.0"
source = "registry+https://example.com"
checksum = "abc"
dependencies = [
 "other",
]

[[package]]
name = "other"
version = "2.0.0"
source = "registry+https://example.com"
checksum = "def"
"#;

    fn acme(version: &str) -> Patches {
        Patches { name: "acme".to_owned(), version: version.to_owned(), files: Vec::new() }
    }

    #[test]
    fn only_patched_crates_lose_their_source() {
        assert_eq!(
            derived_lock(LOCK, &[acme("1.0.0")]),
            LOCK.replace("source = \"registry+https://example.com\"\nchecksum = \"abc\"\n", "")
        );
        assert_eq!(derived_lock(LOCK, &[]), LOCK);
    }

    #[test]
    fn patches_for_another_version_are_an_error() {
        assert_eq!(checksum(LOCK, &acme("1.0.0")).unwrap(), "abc");
        assert_eq!(
            checksum(LOCK, &acme("1.1.0")).unwrap_err().to_string(),
            "the patches are for acme 1.1.0, and Cargo.lock has 1.0.0: try each on the new version, and rename \
             guest/patches/acme-1.1.0"
        );
        assert_eq!(
            checksum("", &acme("1.0.0")).unwrap_err().to_string(),
            "guest/patches has patches for `acme`, which Cargo.lock must have once"
        );
    }

    #[test]
    fn the_manifest_names_the_copies() {
        let manifest = derived_manifest("[workspace]\nmembers = [\"guest\"]\n", &[acme("1.0.0")]).unwrap();
        assert_eq!(manifest, "[patch.crates-io.acme]\npath = \"acme\"\n\n[workspace]\nmembers = [\"guest\"]\n");
        let own = derived_manifest("[patch.crates-io]\n", &[]).unwrap_err();
        assert_eq!(own.to_string(), "Cargo.toml has a [patch] of its own, which is not supported");
    }
}
