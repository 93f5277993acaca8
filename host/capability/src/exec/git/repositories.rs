//! The repositories of a workspace: git looks into those inside another one, as submodules, and goes by their
//! configuration there.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, FileType, Mode};
use rustix::io::Errno;

use harness_wall::hard_links::{FOLDER, MAX_ENTRIES};

/// All folders that git may take for the `.git/` of a repository, whatever their names are: that of a submodule may be
/// anywhere, as a file says where it is.
///
/// # Errors
///
/// What cannot be looked at, for a person; without a path.
pub(in super::super) fn all(workspace: &Path) -> Result<Vec<PathBuf>, String> {
    among(workspace, MAX_ENTRIES)
}

/// The same, of at most so many files and folders.
fn among(workspace: &Path, most: u64) -> Result<Vec<PathBuf>, String> {
    let failed = |error: Errno| format!("the workspace cannot be read: {}", std::io::Error::from(error));
    let (mut found, mut left) = (Vec::new(), most);
    let mut folders = vec![workspace.to_owned()];
    while let Some(path) = folders.pop() {
        let folder = match rustix::fs::open(&path, FOLDER, Mode::empty()) {
            Ok(folder) => folder,
            // Gone, no folder after all, or as closed to git as it is here.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => continue,
            Err(error) => return Err(failed(error)),
        };
        let (mut head, mut objects) = (false, false);
        for entry in Dir::read_from(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            match name {
                b"." | b".." => continue,
                b"HEAD" => head = true,
                // Its own, or those of the repository that it is a second work tree of.
                b"objects" | b"commondir" => objects = true,
                _ => {}
            }
            left = left.checked_sub(1).ok_or_else(|| {
                format!("the workspace has over {most} files and folders, and git may look into each")
            })?;
            if matches!(entry.file_type(), FileType::Directory | FileType::Unknown) {
                folders.push(path.join(OsStr::from_bytes(name)));
            }
        }
        if head && objects {
            found.push(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_wherever_it_is() {
        let root = tempfile::tempdir().unwrap();
        for file in [
            ".git/HEAD",
            ".git/objects/pack/a.pack",
            ".git/logs/HEAD",
            ".git/modules/HEAD",
            ".git/modules/objects/sub/HEAD",
            ".git/modules/objects/sub/objects/x",
            ".git/worktrees/two/HEAD",
            ".git/worktrees/two/commondir",
            "any/name/HEAD",
            "any/name/objects/x",
            "objects/a.txt",
            "sub/.git",
        ] {
            std::fs::create_dir_all(root.path().join(file).parent().unwrap()).unwrap();
            std::fs::write(root.path().join(file), "").unwrap();
        }
        std::os::unix::fs::symlink("any/name", root.path().join("linked")).unwrap();
        let mut found = all(root.path()).unwrap();
        found.sort();
        let wanted = [".git", ".git/modules", ".git/modules/objects/sub", ".git/worktrees/two", "any/name"];
        assert_eq!(found, wanted.map(|path| root.path().join(path)));
        assert_eq!(all(&root.path().join("none")), Ok(Vec::new()));
    }

    #[test]
    fn there_are_so_many_files_to_look_at() {
        let root = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            std::fs::write(root.path().join(name), "").unwrap();
        }
        let over = "the workspace has over 2 files and folders, and git may look into each";
        assert_eq!(among(root.path(), 2), Err(over.to_owned()));
        assert_eq!(among(root.path(), 3), Ok(Vec::new()));
    }

    /// Git would come there from folder to folder.
    #[test]
    fn what_is_too_deep_to_be_looked_at_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let name = "x".repeat(255);
        let mut folder = rustix::fs::open(root.path(), FOLDER, Mode::empty()).unwrap();
        for _ in 0..17 {
            rustix::fs::mkdirat(&folder, &name, Mode::RWXU).unwrap();
            folder = rustix::fs::openat(&folder, &name, FOLDER, Mode::empty()).unwrap();
        }
        let too_long = std::io::Error::from(Errno::NAMETOOLONG);
        assert_eq!(all(root.path()), Err(format!("the workspace cannot be read: {too_long}")));
    }
}
