//! What of the machine a command sees beside the workspace: the folders that programs are run from, and nothing of any
//! user's own.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use harness_sys as sys;

/// Folders of programs, their libraries and the machine's settings. A command reads them and runs what is in them.
const FOLDERS: [&str; 10] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/nix/store", "/run/current-system"];
/// The one of them that holds what not every user may read.
const SETTINGS: &str = "/etc";
/// The devices that programs expect.
pub(super) const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];
/// What the kernel reports the machine as a whole in `/proc` that programs need: how many processors and how much
/// memory there are, how long it runs, what it is called. What has a namespace of the command's own is there too.
const OF_MACHINE: [&str; 14] = [
    "cgroups",
    "cpuinfo",
    "filesystems",
    "loadavg",
    "meminfo",
    "mounts",
    "net",
    "self",
    "stat",
    "sys",
    "sysvipc",
    "thread-self",
    "uptime",
    "version",
];
/// What is closed of it in any case, whether this process sees it or not.
const CLOSED_OF_MACHINE: [&str; 12] = [
    "cmdline",
    "config.gz",
    "interrupts",
    "iomem",
    "kallsyms",
    "kcore",
    "keys",
    "kmsg",
    "modules",
    "slabinfo",
    "sysrq-trigger",
    "timer_list",
];
/// Entries of [`SETTINGS`] that are checked.
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
    /// What of `/proc` is the machine's and no business of a command: logs, tables and counters of the kernel's. Below the
    /// root.
    pub(super) machine: Vec<PathBuf>,
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
            match sys::link_target(&folder) {
                Some(target) => system.links.push((folder, target)),
                None if sys::is_folder(&folder) => system.folders.push(folder),
                None => {}
            }
        }
        system.closed = sys::closed_to_others(Path::new(SETTINGS), MAX_ENTRIES)
            .map_err(|error| format!("the settings of the system cannot be read: {error}"))?;
        system.machine = closed_of_machine(&sys::entries(Path::new("/proc")).unwrap_or_default());
        let resolver = sys::real_path(Path::new("/etc/resolv.conf")).ok();
        system.resolver = resolver.filter(|path| !system.shows(path));
        Ok(system)
    }

    /// Whether a path without links is in one of the folders.
    pub(super) fn shows(&self, path: &Path) -> bool {
        self.folders.iter().any(|folder| path.starts_with(folder))
            && !self.closed.iter().any(|(closed, _)| path.starts_with(closed))
    }
}

/// All that is in `/proc` but processes and what programs need. What a newer kernel adds is closed too.
fn closed_of_machine(entries: &[PathBuf]) -> Vec<PathBuf> {
    let names = entries.iter().filter_map(|entry| entry.file_name()?.to_str());
    let process = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    let closed: BTreeSet<&str> = names.filter(|name| !process(name)).chain(CLOSED_OF_MACHINE).collect();
    closed.into_iter().filter(|name| !OF_MACHINE.contains(name)).map(|name| Path::new("proc").join(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_tells_is_closed_unless_programs_need_it() {
        let entries =
            ["1", "4321", "cpuinfo", "newest", "self", "timer_list"].map(|name| Path::new("/proc").join(name));
        let mut wanted: Vec<PathBuf> = ["newest"].into_iter().chain(CLOSED_OF_MACHINE).map(PathBuf::from).collect();
        wanted.sort();
        assert_eq!(
            closed_of_machine(&entries),
            wanted.iter().map(|name| Path::new("proc").join(name)).collect::<Vec<_>>()
        );
        assert!(CLOSED_OF_MACHINE.iter().all(|name| !OF_MACHINE.contains(name)));
    }

    #[test]
    fn programs_are_there_and_the_settings_of_root_are_not() {
        let system = System::get().unwrap();
        for shown in ["/usr/bin/env", "/etc/passwd"] {
            assert!(system.shows(&sys::real_path(Path::new(shown)).unwrap()), "{shown}");
        }
        for hidden in ["/etc/shadow", "/root/x", "/home", "/var/lib", "/proc/1", "/etcetera", "/"] {
            assert!(!system.shows(Path::new(hidden)), "{hidden}");
        }
        let closed = |path: &str| system.closed.contains(&(PathBuf::from(path), false));
        assert_eq!(closed("/etc/shadow"), Path::new("/etc/shadow").exists());
        assert!(!closed("/etc/passwd"));
    }
}
