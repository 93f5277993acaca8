//! Where programs are looked up.

use std::path::{Path, PathBuf};

use harness_sys as sys;

/// What is searched where the grant does not give the host's own `PATH`.
const DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";

/// The folders of a `PATH` in which a program is looked for, and which the child gets. None is relative and none
/// is in the workspace: what a script can write must not become a program by being named like one.
#[derive(Debug)]
pub(super) struct SearchPath {
    folders: Vec<PathBuf>,
    /// With links resolved, to compare with.
    workspace: PathBuf,
}

impl SearchPath {
    /// The folders of `path`, else of the default, that exist and are not in the workspace.
    pub(super) fn new(path: Option<&str>, workspace: &Path) -> Self {
        let workspace = sys::real_path(workspace).unwrap_or_else(|_| workspace.to_owned());
        let outside = |folder: &PathBuf| sys::real_path(folder).is_ok_and(|real| !real.starts_with(&workspace));
        let folders = path.unwrap_or(DEFAULT).split(':').map(PathBuf::from);
        let folders = folders.filter(|folder| folder.is_absolute()).filter(outside).collect();
        Self { folders, workspace }
    }

    /// The first program of this name. A link into the workspace is passed over like a folder in it.
    pub(super) fn find(&self, name: &str) -> Option<PathBuf> {
        self.folders.iter().map(|folder| folder.join(name)).find(|path| {
            sys::is_executable(path) && sys::real_path(path).is_ok_and(|real| !real.starts_with(&self.workspace))
        })
    }

    /// As a value for `PATH`.
    pub(super) fn value(&self) -> String {
        let folders: Vec<_> = self.folders.iter().map(|folder| folder.to_string_lossy()).collect();
        folders.join(":")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn program(path: &Path, mode: u32) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn nothing_in_the_workspace_and_nothing_relative_is_found() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        program(&at("work/bin/tool"), 0o755);
        program(&at("bin/tool"), 0o755);
        program(&at("bin/plain"), 0o644);
        symlink(at("work/bin"), at("linked")).unwrap();
        symlink(at("work/bin/tool"), at("bin/inside")).unwrap();
        symlink(at("bin/tool"), at("bin/outside")).unwrap();
        std::fs::create_dir(at("bin/folder")).unwrap();

        let list = [at("work/bin"), at("linked"), PathBuf::from("."), PathBuf::new(), at("missing"), at("bin")];
        let list = list.map(|folder| folder.display().to_string()).join(":");
        let path = SearchPath::new(Some(&list), &at("work"));
        assert_eq!(path.value(), at("bin").display().to_string());
        assert_eq!(path.find("tool"), Some(at("bin/tool")));
        assert_eq!(path.find("outside"), Some(at("bin/outside")));
        for name in ["inside", "plain", "folder", "absent", ".", ".."] {
            assert_eq!(path.find(name), None, "{name}");
        }
        assert_eq!(SearchPath::new(Some(&list), &at("elsewhere")).find("tool"), Some(at("work/bin/tool")));
    }
}
