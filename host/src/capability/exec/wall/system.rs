//! What of the machine a command sees beside the workspace: the folders that programs are run from, and nothing of any
//! user's own.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::ambient;

/// Folders of programs, their libraries and the machine's settings. A command reads them and runs what is in them.
const FOLDERS: [&str; 10] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/nix/store", "/run/current-system"];
/// The one of them that holds what not every user may read.
const SETTINGS: &str = "/etc";
/// The devices that programs expect.
pub(super) const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];
/// Entries of [`SETTINGS`] that are looked at.
const MAX_ENTRIES: usize = 100_000;

/// The machine's own folders, as they were when they were first asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct System {
    /// Links at the top of the file system, such as `/bin`, with where they lead.
    pub(super) links: Vec<(PathBuf, PathBuf)>,
    /// Folders that are there.
    pub(super) folders: Vec<PathBuf>,
    /// What of the settings is not for everybody, as `/etc/shadow` is not, and whether it is a folder. A host that is
    /// root could read it.
    pub(super) closed: Vec<(PathBuf, bool)>,
    /// Where the settings say how names are looked up, if that is outside of them.
    pub(super) resolver: Option<PathBuf>,
}

impl System {
    /// The machine's.
    ///
    /// # Errors
    ///
    /// Where the settings cannot be looked at.
    pub(super) fn get() -> Result<&'static Self, String> {
        static SYSTEM: OnceLock<Result<System, String>> = OnceLock::new();
        SYSTEM.get_or_init(Self::look).as_ref().map_err(Clone::clone)
    }

    fn look() -> Result<Self, String> {
        let mut system = Self::default();
        for folder in FOLDERS.map(PathBuf::from) {
            match ambient::link_target(&folder) {
                Some(target) => system.links.push((folder, target)),
                None if ambient::is_folder(&folder) => system.folders.push(folder),
                None => {}
            }
        }
        system.closed = ambient::closed_to_others(Path::new(SETTINGS), MAX_ENTRIES)
            .map_err(|error| format!("the system's settings cannot be looked at: {error}"))?;
        let resolver = ambient::real_path(Path::new("/etc/resolv.conf")).ok();
        system.resolver = resolver.filter(|path| !system.shows(path));
        Ok(system)
    }

    /// Whether a path without links is in one of the folders.
    pub(super) fn shows(&self, path: &Path) -> bool {
        self.folders.iter().any(|folder| path.starts_with(folder))
            && !self.closed.iter().any(|(closed, _)| path.starts_with(closed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_there_and_the_settings_of_root_are_not() {
        let system = System::get().unwrap();
        for shown in ["/usr/bin/env", "/etc/passwd"] {
            assert!(system.shows(&ambient::real_path(Path::new(shown)).unwrap()), "{shown}");
        }
        for hidden in ["/etc/shadow", "/root/x", "/home", "/var/lib", "/proc/1", "/etcetera", "/"] {
            assert!(!system.shows(Path::new(hidden)), "{hidden}");
        }
        let closed = |path: &str| system.closed.contains(&(PathBuf::from(path), false));
        assert_eq!(closed("/etc/shadow"), Path::new("/etc/shadow").exists());
        assert!(!closed("/etc/passwd"));
    }
}
