//! The files of a plugin: their names, their bounds and their digest.
//!
//! The same plugin has to be the same on every machine, and nothing of it is run by the system. So there are regular files
//! alone, none of which is executable, with names that every file system keeps as they are.

use std::collections::BTreeMap;
use std::path::Path;

use harness_policy::text::{is_hidden, quoted};
use harness_sys::digest::digest_of;
use harness_sys::tree::{self, Most};
use unicode_normalization::{UnicodeNormalization as _, is_nfc};

use crate::{Rejected, signature};

/// Files of a plugin.
pub const MAX_FILES: usize = 1_000;
/// Bytes of all of them.
pub const MAX_BYTES: usize = 16 << 20;
/// Folders inside each other.
const MAX_LEVELS: usize = 16;
/// Bytes of a path, and of its name and folders in a packed file.
const MAX_NAME: usize = 100;
const MAX_FOLDERS: usize = 155;
/// The mode of each file, as the digest and a packed file have it.
const MODE: &str = "100644";
/// What belongs to git, and not to a plugin in a repository.
const GIT: &str = ".git";

/// The files of a plugin, each by its path from the plugin's folder, with `/` between its parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Content {
    files: BTreeMap<String, File>,
}

/// A file with its digest.
#[derive(Debug, Clone, PartialEq, Eq)]
struct File {
    text: Vec<u8>,
    sha256: String,
}

impl Content {
    /// The content that has these files.
    ///
    /// # Errors
    ///
    /// A name that not every system keeps, two that are one on some, more than there may be.
    pub fn new(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Result<Self, Rejected> {
        let (mut content, mut bytes) = (Self::default(), 0_usize);
        for (path, text) in files {
            check_path(&path)?;
            if signature::FILES.iter().any(|name| path.eq_ignore_ascii_case(name)) {
                return Err(Rejected::new(format!("{} is a signature, and no file of a plugin", quoted(&path))));
            }
            bytes = bytes.saturating_add(text.len());
            if bytes > MAX_BYTES {
                return Err(Rejected::new(format!("it has more than {MAX_BYTES} bytes")));
            }
            if content.files.len() >= MAX_FILES {
                return Err(Rejected::new(format!("it has more than {MAX_FILES} files")));
            }
            let file = File { sha256: digest_of(&text), text };
            if content.files.insert(path.clone(), file).is_some() {
                return Err(Rejected::new(format!("it has {} twice", quoted(&path))));
            }
        }
        content.check_names()?;
        Ok(content)
    }

    /// Reads the folder of an author. What git keeps in it is left out, and so are [signatures](signature::FILES).
    ///
    /// # Errors
    ///
    /// What the system says; links, special and executable files; see [`Content::new`].
    pub fn read(folder: &Path) -> Result<Self, Rejected> {
        Self::read_without(folder, (&signature::FILES, false), &|name| (name == GIT).then(String::new))
            .map(|(content, _)| content)
    }

    /// Reads the folder of a plugin of another program, whose files may be executable: of what comes along, nothing is run.
    ///
    /// # Errors
    ///
    /// As of [`Content::read`].
    pub fn read_foreign(folder: &Path) -> Result<Self, Rejected> {
        Self::read_without(folder, (&signature::FILES, true), &|name| (name == GIT).then(String::new))
            .map(|(content, _)| content)
    }

    /// Reads the folder of a project, without what is at these paths. Its files may be executable: nothing of it is run by the
    /// system.
    ///
    /// # Errors
    ///
    /// As of [`Content::read`].
    pub fn read_project(folder: &Path, without: &[&str]) -> Result<Self, Rejected> {
        let (read, _) = Self::read_without(folder, (&[], true), &|name| (name == GIT).then(String::new))?;
        let is_out =
            |path: &str| without.iter().any(|out| path.strip_prefix(out).is_some_and(|rest| rest.starts_with('/')));
        Ok(Self { files: read.files.into_iter().filter(|(path, _)| !is_out(path)).collect() })
    }

    /// Reads a folder that holds a plugin and nothing else: no empty folder either.
    ///
    /// # Errors
    ///
    /// As of [`Content::read`].
    pub fn read_exactly(folder: &Path) -> Result<Self, Rejected> {
        let (content, folders) = Self::read_without(folder, (&[], false), &|_| None)?;
        let holds = |folder: &String| {
            let inside = format!("{folder}/");
            content.files.range(inside.clone()..).next().is_some_and(|(path, _)| path.starts_with(&inside))
        };
        match folders.iter().find(|folder| !holds(folder)) {
            Some(empty) => Err(Rejected::new(format!("{} is an empty folder", quoted(empty)))),
            None => Ok(content),
        }
    }

    fn read_without(
        folder: &Path,
        (signatures, is_foreign): (&[&str], bool),
        leaves_out: &dyn Fn(&str) -> Option<String>,
    ) -> Result<(Self, Vec<String>), Rejected> {
        let bytes = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX);
        let most = Most { entries: MAX_FILES.saturating_mul(2), bytes, levels: MAX_LEVELS };
        let (tree, texts) = tree::read_texts(folder, most, leaves_out)?;
        if let Some((path, why)) = tree.left_out.first() {
            return Err(Rejected::new(format!("{}: {why}", quoted(path))));
        }
        // The first by its name, so that the same folder gives the same message.
        if let Some(file) =
            texts.iter().filter(|file| file.is_executable && !is_foreign).min_by(|a, b| a.path.cmp(&b.path))
        {
            let why = "is executable: nothing of a plugin is run by the system (`chmod -x`)";
            return Err(Rejected::new(format!("{} {why}", quoted(&file.path))));
        }
        let mut texts: Vec<_> = texts.into_iter().filter(|file| !signatures.contains(&file.path.as_str())).collect();
        texts.sort_by(|a, b| a.path.cmp(&b.path));
        Ok((Self::new(texts.into_iter().map(|file| (file.path, file.bytes)))?, tree.folders))
    }

    /// The digest of all of it: over a line for each file, sorted by path, with the path, the mode and the digest of what is
    /// in the file.
    pub fn digest(&self) -> String {
        let mut lines = Vec::new();
        for (path, file) in &self.files {
            lines.extend(format!("{path}\0{MODE}\0{}\n", file.sha256).into_bytes());
        }
        digest_of(&lines)
    }

    /// The checksum that `artifact_sources` has of it, as hexadecimal digits: over the path and the text of each file, each
    /// with a line break, without those whose path begins with `.git`.
    pub fn checksum(&self) -> String {
        let files = self.files.iter().filter(|(path, _)| !path.starts_with(GIT));
        let all: Vec<u8> =
            files.flat_map(|(path, file)| [path.as_bytes(), b"\n", &file.text, b"\n"].concat()).collect();
        digest_of(&all).trim_start_matches("sha256:").to_owned()
    }

    /// The files, sorted by path.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.iter().map(|(path, file)| (path.as_str(), file.text.as_slice()))
    }

    /// A file as text; none where it is not there or is no text.
    pub fn text(&self, path: &str) -> Option<&str> {
        std::str::from_utf8(self.bytes(path)?).ok()
    }

    /// The part of it that is in a folder, by the paths from there.
    #[must_use]
    pub fn below(&self, folder: &str) -> Self {
        let inside = |path: &str| path.strip_prefix(folder)?.strip_prefix('/').map(str::to_owned);
        let files = self.files.iter().filter_map(|(path, file)| Some((inside(path)?, file.clone())));
        Self { files: files.collect() }
    }

    /// Whether there are no files.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// What is in a file; none where it is not there.
    pub fn bytes(&self, path: &str) -> Option<&[u8]> {
        self.files.get(path).map(|file| file.text.as_slice())
    }

    /// The digest of each file, by its path.
    pub fn digests(&self) -> BTreeMap<&str, &str> {
        self.files.iter().map(|(path, file)| (path.as_str(), file.sha256.as_str())).collect()
    }

    /// The digest of what is in a file; none where it is not there.
    pub fn digest_of(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(|file| file.sha256.as_str())
    }

    /// Writes the files into a new folder.
    ///
    /// # Errors
    ///
    /// What the system says; there is something of that name.
    pub fn write(&self, folder: &Path) -> std::io::Result<()> {
        tree::write(folder, self.files())
    }

    /// That no two names are one on a system without letter case, and that no file is a folder too.
    fn check_names(&self) -> Result<(), Rejected> {
        let mut seen: BTreeMap<String, &str> = BTreeMap::new();
        for path in self.files.keys() {
            let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
            for part in ends.filter_map(|end| path.get(..end)) {
                let folded: String = part.to_lowercase().nfc().collect();
                match seen.insert(folded, part) {
                    Some(other) if other != part => {
                        let what = format!("{} and {} differ by letter case alone", quoted(other), quoted(part));
                        return Err(Rejected::new(what));
                    }
                    _ => {}
                }
                if part.len() < path.len() && self.files.contains_key(part) {
                    return Err(Rejected::new(format!("{} is a file and a folder", quoted(part))));
                }
            }
        }
        Ok(())
    }
}

/// Whether a file of a plugin may have this path.
pub(crate) fn check_path(path: &str) -> Result<(), Rejected> {
    let parts: Vec<&str> = path.split('/').collect();
    let why = if parts.iter().any(|part| matches!(*part, "" | "." | "..")) {
        "is not a path inside the plugin"
    } else if path.contains('\\') || path.chars().any(|c| is_hidden(c) || c.is_control()) {
        "has a character that not every system has in names"
    } else if parts.iter().any(|part| part.ends_with([' ', '.']) || part.starts_with(' ')) {
        "has a part that begins or ends with a space, or ends with a dot"
    } else if !is_nfc(path) {
        "is not in the Unicode form NFC"
    } else if parts.len() > MAX_LEVELS {
        "is in too many folders inside each other"
    } else if split(path).is_none() {
        "is too long"
    } else {
        return Ok(());
    };
    Err(Rejected::new(format!("{} {why}", quoted(path))))
}

/// A path as a packed file has it: its folders, where it has to be parted, and the rest.
fn split(path: &str) -> Option<(&str, &str)> {
    if path.len() <= MAX_NAME {
        return Some(("", path));
    }
    let parts = path.match_indices('/').filter_map(|(at, _)| path.split_at_checked(at));
    let mut parts = parts.map(|(folders, name)| (folders, name.trim_start_matches('/')));
    parts.find(|(folders, name)| folders.len() <= MAX_FOLDERS && name.len() <= MAX_NAME)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use proptest::prelude::*;

    use super::*;

    fn content(paths: &[&str]) -> Result<Content, String> {
        let files = paths.iter().map(|path| ((*path).to_owned(), path.as_bytes().to_vec()));
        Content::new(files).map_err(|why| why.to_string())
    }

    #[test]
    fn names() {
        let long = format!("{}/{}", "a".repeat(100), "b".repeat(100));
        let too_long = "a".repeat(101);
        let deep = "a/".repeat(16) + "b";
        assert!(content(&["plugin.md", "tools/\u{fc}n\u{ef}.md", "a b", &long]).is_ok());
        for (paths, why) in [
            (&["../x"][..], "`../x` is not a path inside the plugin"),
            (&["/x"], "`/x` is not a path inside the plugin"),
            (&["a//b"], "`a//b` is not a path inside the plugin"),
            (&["a/./b"], "`a/./b` is not a path inside the plugin"),
            (&[""], "`` is not a path inside the plugin"),
            (&["a\\b"], "`a\\b` has a character that not every system has in names"),
            (&["a\u{202e}b"], "has a character that not every system has in names"),
            (&["a\nb"], "has a character that not every system has in names"),
            (&["a "], "`a ` has a part that begins or ends with a space, or ends with a dot"),
            (&["a./b"], "`a./b` has a part that begins or ends with a space, or ends with a dot"),
            (&["cafe\u{301}"], "is not in the Unicode form NFC"),
            (&[&too_long], "is too long"),
            (&[&deep], "is in too many folders inside each other"),
            (&["A", "a"], "`A` and `a` differ by letter case alone"),
            (&["A/x", "a/y"], "`A` and `a` differ by letter case alone"),
            (&["\u{c4}", "\u{e4}"], "differ by letter case alone"),
            (&["a", "a/b"], "`a` is a file and a folder"),
            (&["a", "a"], "it has `a` twice"),
        ] {
            let told = content(paths).unwrap_err();
            assert!(told.ends_with(why), "{paths:?}: {told}");
        }
    }

    #[test]
    fn bounds() {
        let many = |count: usize| Content::new((0..count).map(|n| (n.to_string(), Vec::new())));
        assert!(many(MAX_FILES).is_ok());
        assert_eq!(many(MAX_FILES + 1).unwrap_err().to_string(), "it has more than 1000 files");
        let long = |bytes: usize| Content::new([("a".to_owned(), vec![0; bytes])]);
        assert!(long(MAX_BYTES).is_ok());
        assert_eq!(long(MAX_BYTES + 1).unwrap_err().to_string(), "it has more than 16777216 bytes");
    }

    #[test]
    fn a_folder_is_read_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        std::fs::create_dir_all(at("tools")).unwrap();
        std::fs::create_dir_all(at(".git/objects")).unwrap();
        std::fs::write(at(".git/objects/x"), "x").unwrap();
        std::fs::write(at("plugin.md"), "one").unwrap();
        std::fs::write(at("tools/a.md"), "two").unwrap();
        let read = Content::read(folder.path()).unwrap();
        assert_eq!(read.files().map(|(path, _)| path).collect::<Vec<_>>(), ["plugin.md", "tools/a.md"]);
        assert_eq!(read.digest(), "sha256:cef30686f477441200bab4420fa10ecd98e3d51ca49a676b58c74f105735f3de");
        let exactly = || Content::read_exactly(folder.path()).map(|read| read.digest()).map_err(|why| why.to_string());
        assert!(Content::read_exactly(folder.path()).is_ok_and(|exactly| exactly != read));
        std::fs::remove_dir_all(at(".git")).unwrap();
        assert_eq!(exactly(), Ok(read.digest()));
        // What a digest does not cover is not there.
        let told = |change: &dyn Fn(), undo: &dyn Fn()| {
            change();
            let told = Content::read(folder.path()).map_err(|why| why.to_string());
            undo();
            assert_eq!(Content::read(folder.path()).unwrap(), read);
            told.unwrap_err()
        };
        let remove = || std::fs::remove_file(at("x")).unwrap();
        let link = told(&|| symlink("plugin.md", at("x")).unwrap(), &remove);
        assert_eq!(link, "`x`: it is a link");
        let hard = told(&|| std::fs::hard_link(at("plugin.md"), at("x")).unwrap(), &remove);
        assert_eq!(hard, "`plugin.md`: it has other names too (hard links)");
        let mode = |mode| std::fs::set_permissions(at("plugin.md"), std::fs::Permissions::from_mode(mode)).unwrap();
        let executable = told(&|| mode(0o654), &|| mode(0o644));
        assert_eq!(executable, "`plugin.md` is executable: nothing of a plugin is run by the system (`chmod -x`)");
        std::fs::create_dir(at("empty")).unwrap();
        assert_eq!(Content::read(folder.path()).unwrap(), read);
        assert_eq!(exactly(), Err("`empty` is an empty folder".to_owned()));
    }

    proptest! {
        /// Two contents have one digest where they are the same.
        #[test]
        fn a_digest_is_of_all_of_it(
            one in proptest::collection::btree_map("[a-c/]{1,4}", "[x-z]{0,2}", 0..4),
            other in proptest::collection::btree_map("[a-c/]{1,4}", "[x-z]{0,2}", 0..4),
        ) {
            let of = |files: &BTreeMap<String, String>| {
                Content::new(files.iter().map(|(path, text)| (path.clone(), text.clone().into_bytes())))
            };
            if let (Ok(a), Ok(b)) = (of(&one), of(&other)) {
                prop_assert_eq!(a.digest() == b.digest(), a == b);
            }
        }
    }
}
