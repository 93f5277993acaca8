//! The project's own changes to crates that the guest is built with: `guest/patches/NAME-VERSION/*.patch`.
//!
//! A patch is a unified diff with a reason above it. It applies to exactly the version in its folder's name, and every
//! hunk must match: a patch that does not apply stops the build.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use diffy::patch_set::{FileOperation, ParseOptions, PatchKind, PatchSet};

/// Where the patches are, from the project's top.
pub const FOLDER: &str = "guest/patches";

/// The patches of one crate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patches {
    /// The crate's name.
    pub name: String,
    /// The version that they apply to.
    pub version: String,
    /// File name and text of each, in the order they apply: by name.
    pub files: Vec<(String, String)>,
}

/// Reads the patches of all crates, sorted by crate.
///
/// # Errors
///
/// Where a folder's name is not `NAME-VERSION`, and where a file cannot be read or is no patch.
pub fn read(root: &Path) -> Result<Vec<Patches>> {
    let mut found = Vec::new();
    for folder in entries(&root.join(FOLDER))? {
        let name = file_name(&folder);
        let version_start = name.match_indices('-').find(|(at, _)| {
            name.get(at + 1..).is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
        });
        let Some((name, version)) = version_start.and_then(|(at, _)| Some((name.get(..at)?, name.get(at + 1..)?)))
        else {
            bail!("{}: the folder must be named after a crate and its version, such as `acme-1.0.0`", folder.display())
        };
        let mut files = Vec::new();
        for file in entries(&folder)? {
            ensure!(file.extension().is_some_and(|kind| kind == "patch"), "{} is not a .patch", file.display());
            let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            files.push((file_name(&file), text));
        }
        found.push(Patches { name: name.to_owned(), version: version.to_owned(), files });
    }
    Ok(found)
}

impl Patches {
    /// Applies the patches to the crate's files.
    ///
    /// Returns the new text of each file that changed. `original` returns the text of a file by its path from the
    /// crate's top.
    ///
    /// # Errors
    ///
    /// Where a patch cannot be parsed, names a file outside the crate, does more than change text, or does not apply.
    pub fn apply(&self, original: impl Fn(&Path) -> Result<String>) -> Result<BTreeMap<PathBuf, String>> {
        let mut changed: BTreeMap<PathBuf, String> = BTreeMap::new();
        for (file, text) in &self.files {
            let place = format!("{FOLDER}/{}-{}/{file}", self.name, self.version);
            for patch in PatchSet::parse(text, ParseOptions::unidiff()) {
                let patch = patch.with_context(|| place.clone())?;
                let FileOperation::Modify { original: from, modified: to } = patch.operation().strip_prefix(1) else {
                    bail!("{place}: only changes of files are supported")
                };
                ensure!(from == to, "{place}: renames `{from}` to `{to}`, which is not supported");
                let path = PathBuf::from(&*from);
                ensure!(
                    path.components().all(|part| matches!(part, Component::Normal(_))),
                    "{place}: `{from}` is not a path within the crate"
                );
                let PatchKind::Text(hunks) = patch.patch() else { bail!("{place}: changes a binary file") };
                let before = match changed.remove(&path) {
                    Some(text) => text,
                    None => original(&path).with_context(|| place.clone())?,
                };
                let after = diffy::apply(&before, hunks)
                    .with_context(|| format!("{place} does not apply to `{from}` of {} {}", self.name, self.version))?;
                changed.insert(path, after);
            }
        }
        Ok(changed)
    }
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        found.push(entry?.path());
    }
    found.sort();
    Ok(found)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "one\ntwo\nthree\n";
    const PATCH: &str = "The reason.\n\n--- a/src/lib.rs\n+++ b/src/lib.rs\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n";

    fn patches(files: &[&str]) -> Patches {
        let files = files.iter().enumerate().map(|(n, text)| (format!("{n}.patch"), (*text).to_owned())).collect();
        Patches { name: "acme".to_owned(), version: "1.0.0".to_owned(), files }
    }

    fn applied(files: &[&str]) -> Result<String, String> {
        let changed = patches(files).apply(|path| {
            ensure!(path == Path::new("src/lib.rs"), "no such file");
            Ok(TEXT.to_owned())
        });
        let changed = changed.map_err(|error| format!("{error:#}"))?;
        assert_eq!(changed.keys().collect::<Vec<_>>(), [Path::new("src/lib.rs")]);
        Ok(changed.into_values().collect())
    }

    #[test]
    fn patches_apply_one_after_another() {
        let second = "--- a/src/lib.rs\n+++ b/src/lib.rs\n@@ -2,2 +2,2 @@\n-2\n+zwei\n three\n";
        assert_eq!(applied(&[PATCH, second]), Ok("one\nzwei\nthree\n".to_owned()));
    }

    #[test]
    fn a_patch_that_does_not_apply_is_an_error() {
        assert_eq!(
            applied(&[&PATCH.replace("-two", "-too")]),
            Err("guest/patches/acme-1.0.0/0.patch does not apply to `src/lib.rs` of acme 1.0.0: \
                 error applying hunk #1"
                .to_owned())
        );
        assert_eq!(
            applied(&[PATCH, PATCH]).unwrap_err().split(':').next(),
            Some("guest/patches/acme-1.0.0/1.patch does not apply to `src/lib.rs` of acme 1.0.0")
        );
    }

    #[test]
    fn a_text_without_a_patch_is_an_error() {
        assert_eq!(
            applied(&["nothing\n"]),
            Err("guest/patches/acme-1.0.0/0.patch: error parsing patches at byte 0: no valid patches found".to_owned())
        );
    }

    #[test]
    fn a_patch_stays_within_its_crate() {
        assert_eq!(
            applied(&[&PATCH.replace("/src/lib.rs", "/../lib.rs")]),
            Err("guest/patches/acme-1.0.0/0.patch: `../lib.rs` is not a path within the crate".to_owned())
        );
        assert_eq!(
            applied(&[&PATCH.replace("b/src/lib.rs", "b/src/other.rs")]),
            Err("guest/patches/acme-1.0.0/0.patch: renames `src/lib.rs` to `src/other.rs`, which is not supported"
                .to_owned())
        );
        assert_eq!(
            applied(&[&PATCH.replace("a/src/lib.rs", "/dev/null")]),
            Err("guest/patches/acme-1.0.0/0.patch: only changes of files are supported".to_owned())
        );
    }

    #[test]
    fn the_repositorys_own_patches_are_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for patches in read(&root).unwrap() {
            assert!(!patches.files.is_empty());
            for (name, text) in &patches.files {
                let reason = text.split("\n---").next().unwrap();
                assert!(reason.len() > 40 && !reason.starts_with("---"), "{name} begins with its reason");
            }
        }
    }
}
