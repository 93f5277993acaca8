//! What commands have beside the workspace and the machine's own folders: the folders that the policy names, without
//! what in them is someone's secret.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};

use super::system::System;
use crate::hard_links::Identity;
use harness_policy::grant::Grant;
use harness_policy::path::protected;
use harness_sys as sys;

/// Names in a folder that are checked, those nearer to its top first. A folder of tools may have a hundred thousand,
/// and each command would wait for all of them.
const MAX_LOOKS: usize = 1_000;
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Without links, all of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Beside {
    pub(super) folders: Vec<PathBuf>,
    /// What of them and of the machine's folders is not seen, and whether it is a folder.
    pub(super) closed: Vec<(PathBuf, bool)>,
}

/// Names in these folders that are checked where a secret's file has several names: one of them may be the other one.
const MAX_LINKS: usize = 200_000;

impl Beside {
    /// `holders` are files that hold the values of secrets. `installed` is a folder without links that the host itself has
    /// filled: no name in it makes a file someone's secret there.
    ///
    /// # Errors
    ///
    /// Where the other names of such a file cannot all be looked for.
    pub(super) fn new(
        grant: &Grant,
        home: Option<&Path>,
        system: &System,
        holders: &[PathBuf],
        installed: Option<&Path>,
    ) -> Result<Self, String> {
        let mut folders: Vec<PathBuf> = (grant.exec_folders().iter().filter_map(|folder| folder.path(home)))
            .filter_map(|folder| sys::real_path(&folder).ok())
            .collect();
        let mut closed: Vec<_> = folders.iter().flat_map(|folder| sensitive(folder, MAX_LOOKS)).collect();
        folders.extend(installed.map(Path::to_owned));
        let seen = |path: &Path| system.shows(path) || folders.iter().any(|folder| path.starts_with(folder));
        let linked: Vec<Identity> = (holders.iter().filter_map(|holder| rustix::fs::stat(holder).ok()))
            .filter(|facts| facts.st_nlink > 1)
            .map(|facts| Identity::of(&facts))
            .collect();
        let holders = holders.iter().filter_map(|holder| sys::real_path(holder).ok()).filter(|path| seen(path));
        closed.extend(holders.map(|path| (path, false)));
        closed.extend(other_names(&folders, &linked, MAX_LINKS)?.into_iter().map(|path| (path, false)));
        closed.sort();
        closed.dedup();
        Ok(Self { folders, closed })
    }
}

/// Every name in some folders of these files. Links are not followed.
fn other_names(folders: &[PathBuf], files: &[Identity], most: usize) -> Result<Vec<PathBuf>, String> {
    let (mut found, mut left) = (Vec::new(), most);
    let mut waiting = if files.is_empty() { Vec::new() } else { folders.to_vec() };
    while let Some(path) = waiting.pop() {
        let opened = rustix::fs::openat(CWD, &path, FOLDER, Mode::empty());
        let Ok(entries) = opened.and_then(|folder| Dir::read_from(&folder)) else { continue };
        for entry in entries.filter_map(Result::ok) {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            left = left.checked_sub(1).ok_or_else(|| {
                format!(
                    "the file of a secret has several names, and `exec.folders` opens over {most} files that one of them \
                     may be; open smaller folders, or give the secret a file of one name"
                )
            })?;
            let facts = || rustix::fs::statat(CWD, path.join(name), AtFlags::SYMLINK_NOFOLLOW);
            match kind(&path, name, entry.file_type()) {
                FileType::Directory => waiting.push(path.join(name)),
                // Most are others by their number alone.
                FileType::RegularFile
                    if files.iter().any(|file| file.has_number(entry.ino()))
                        && facts().is_ok_and(|facts| files.contains(&Identity::of(&facts))) =>
                {
                    found.push(path.join(name));
                }
                _ => {}
            }
        }
    }
    Ok(found)
}

/// What in a folder has a sensitive name, as far down as so many names lead, and whether it is a folder. Links are not
/// followed: what they lead to has a name of its own.
fn sensitive(top: &Path, most: usize) -> Vec<(PathBuf, bool)> {
    let (mut closed, mut left) = (Vec::new(), most);
    let mut folders = VecDeque::from([top.to_owned()]);
    while let Some(path) = folders.pop_front() {
        // What this user may not list, a command of theirs may not either.
        let opened = rustix::fs::openat(CWD, &path, FOLDER, Mode::empty());
        let Ok(entries) = opened.and_then(|folder| Dir::read_from(&folder)) else { continue };
        for entry in entries.filter_map(Result::ok) {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            let Some(less) = left.checked_sub(1) else { return closed };
            left = less;
            let is_dir = match kind(&path, name, entry.file_type()) {
                FileType::Symlink => continue,
                kind => kind == FileType::Directory,
            };
            if protected::is_sensitive(&name.to_string_lossy()) {
                closed.push((path.join(name), is_dir));
            } else if is_dir {
                folders.push_back(path.join(name));
            }
        }
    }
    closed
}

/// Not every file system reports it with the name.
fn kind(folder: &Path, name: &OsStr, told: FileType) -> FileType {
    if told != FileType::Unknown {
        return told;
    }
    let facts = rustix::fs::statat(CWD, folder.join(name), AtFlags::SYMLINK_NOFOLLOW);
    facts.map_or(told, |facts| FileType::from_raw_mode(facts.st_mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_names_of_a_file_are_found_or_it_is_said_that_they_may_be_there() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        std::fs::create_dir_all(at("tools/deep")).unwrap();
        std::fs::write(at("token"), "SECRET").unwrap();
        std::fs::write(at("tools/token"), "another").unwrap();
        for name in ["tools/plain", "tools/deep/plain"] {
            std::fs::hard_link(at("token"), at(name)).unwrap();
        }
        std::os::unix::fs::symlink("../token", at("tools/link")).unwrap();
        let files = [Identity::of(&rustix::fs::stat(at("token")).unwrap())];
        let found = |most| {
            let mut found = other_names(&[at("tools")], &files, most)?;
            found.sort();
            Ok::<_, String>(found)
        };
        assert_eq!(found(5), Ok(vec![at("tools/deep/plain"), at("tools/plain")]));
        assert!(found(4).unwrap_err().contains("opens over 4 files"));
        assert_eq!(other_names(&[at("tools")], &[], 0), Ok(Vec::new()));
    }

    #[test]
    fn sensitive_names_are_found_as_far_as_the_bound_leads() {
        let root = tempfile::tempdir().unwrap();
        for file in ["bin/tool", "bin/id_rsa", ".env.d/x.pem", "a/b/c/Server.KEY", "key"] {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        std::os::unix::fs::symlink("bin/id_rsa", root.path().join("id_link")).unwrap();
        let found = |most| {
            let mut found: Vec<_> = (sensitive(root.path(), most).iter())
                .map(|(path, is_dir)| (path.strip_prefix(root.path()).unwrap().display().to_string(), *is_dir))
                .collect();
            found.sort();
            found
        };
        let named = |path: &str, is_dir| (path.to_owned(), is_dir);
        let near = [named(".env.d", true), named("bin/id_rsa", false)];
        let all = [named(".env.d", true), named("a/b/c/Server.KEY", false), named("bin/id_rsa", false)];
        // Five names at the top, three in its folders, and two on the way to the last.
        assert_eq!((found(1_000), found(10), found(9)), (all.to_vec(), all.to_vec(), near.to_vec()));
        assert_eq!(found(0), []);
    }
}
