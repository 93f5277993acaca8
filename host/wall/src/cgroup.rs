//! A control group that counts the processes of one command, for where the user's own limit does not: for root. It holds
//! the memory of all of them together, where the machine has groups for that.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::offers::Memory;
use harness_sys as sys;

/// What names begin with; the number of the host follows, and one of its own.
const PREFIX: &str = "harness-";

/// A group with nobody in it yet. It is removed when this is dropped, as far as nobody is in it then.
#[derive(Debug)]
pub(super) struct Group {
    /// Where processes are counted.
    processes: PathBuf,
    /// Where memory is held, if that is elsewhere: in the older kind each has a tree of its own.
    memory: Option<PathBuf>,
    holds_memory: bool,
}

/// What a command ran into.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hit {
    /// A process could not be made.
    pub processes: bool,
    /// A process was ended because there was no more memory.
    pub memory: bool,
}

impl Group {
    /// A group of at most this many processes and threads, one more for the keeper, and with this much memory, where the
    /// machine has groups that hold it.
    ///
    /// # Errors
    ///
    /// Why there is none, for a person.
    pub(super) fn new(processes: u64, memory: u64) -> Result<Self, String> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("{PREFIX}{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let parents = Parents::get()?;
        let failed = |error: Errno| std::io::Error::from(error).to_string();
        let mut group =
            Self { processes: make(&parents.processes, &name).map_err(failed)?, memory: None, holds_memory: false };
        write(&group.processes.join(PROCESSES), &processes.saturating_add(1).to_string()).map_err(failed)?;
        if let Some(parent) = &parents.memory {
            let apart = *parent != parents.processes;
            if apart {
                group.memory = Some(make(parent, &name).map_err(failed)?);
            }
            hold_memory(group.memory.as_deref().unwrap_or(&group.processes), memory).map_err(failed)?;
            group.holds_memory = true;
        }
        Ok(group)
    }

    /// What it holds of memory.
    pub(super) fn memory(&self) -> Memory {
        if self.holds_memory { Memory::Command } else { Memory::Process }
    }

    /// Who writes `0` in all of them is in the group, and so is what comes of it.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub(super) fn doors(&self) -> std::io::Result<Vec<OwnedFd>> {
        self.folders().map(|folder| Ok(open(&folder.join("cgroup.procs"))?)).collect()
    }

    /// What those that were in it ran into.
    pub(super) fn hit(&self) -> Hit {
        let counted = |folder: &Path, files: &[&str], name: &str| {
            files.iter().any(|file| {
                let text = sys::read_text_whole(&folder.join(file)).unwrap_or_default();
                let count = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
                count.is_some_and(|count| count != "0")
            })
        };
        let memory = self.memory.as_ref().unwrap_or(&self.processes);
        Hit {
            processes: counted(&self.processes, &["pids.events"], "max"),
            memory: self.holds_memory && counted(memory, &["memory.events", "memory.oom_control"], "oom_kill"),
        }
    }

    fn folders(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.processes).chain(&self.memory)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for folder in self.folders() {
            // Fails where someone is left, which only a process can be that cannot be killed.
            let _ = rustix::fs::rmdir(folder);
        }
    }
}

/// The file that limits processes.
const PROCESSES: &str = "pids.max";

/// Limits the memory of a group of either kind.
fn hold_memory(folder: &Path, bytes: u64) -> Result<(), Errno> {
    let bytes = bytes.to_string();
    match write(&folder.join("memory.max"), &bytes) {
        Ok(()) => {
            // Neither is there everywhere. The limit is not to be had twice, on a disk; and who is ended is all of it.
            let _ = write(&folder.join("memory.swap.max"), "0");
            let _ = write(&folder.join("memory.oom.group"), "1");
            Ok(())
        }
        Err(Errno::NOENT) => {
            write(&folder.join("memory.limit_in_bytes"), &bytes)?;
            // Memory and swap together.
            let _ = write(&folder.join("memory.memsw.limit_in_bytes"), &bytes);
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn make(parent: &Path, name: &str) -> Result<PathBuf, Errno> {
    let path = parent.join(name);
    rustix::fs::mkdir(&path, Mode::from_raw_mode(0o755)).map(|()| path)
}

fn write(path: &Path, text: &str) -> Result<(), Errno> {
    rustix::io::write(open(path)?, text.as_bytes()).map(drop)
}

fn open(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
}

/// The groups in which those of commands are made.
#[derive(Debug)]
struct Parents {
    processes: PathBuf,
    /// The same one, where it holds memory too.
    memory: Option<PathBuf>,
}

impl Parents {
    /// Looked for once, by trying, and cleared of what hosts left that were killed.
    fn get() -> Result<&'static Self, String> {
        static PARENTS: OnceLock<Result<Parents, String>> = OnceLock::new();
        PARENTS.get_or_init(Self::find).as_ref().map_err(Clone::clone)
    }

    fn find() -> Result<Self, String> {
        let name = format!("{PREFIX}{}-try", std::process::id());
        let mut why = "there are none that count processes".to_owned();
        let mut tried = |parents: Vec<PathBuf>, try_it: &dyn Fn(&Path) -> Result<(), Errno>| {
            parents.into_iter().find(|parent| {
                sweep(parent);
                let done = make(parent, &name).and_then(|folder| {
                    let done = try_it(&folder);
                    let _ = rustix::fs::rmdir(&folder);
                    done
                });
                why = done.as_ref().map_or_else(|error| std::io::Error::from(*error).to_string(), |()| String::new());
                done.is_ok()
            })
        };
        let memory = |folder: &Path| hold_memory(folder, 1 << 30);
        let processes = tried(paths(candidates("pids")), &|folder| write(&folder.join(PROCESSES), "1"));
        // In the newer kind a process is in one group alone.
        let same = processes.iter().find(|parent| tried(vec![(*parent).clone()], &memory).is_some()).cloned();
        let older = candidates("memory").into_iter().filter(|(_, newer)| !newer).collect();
        let memory = same.or_else(|| tried(paths(older), &memory));
        processes.map(|processes| Self { processes, memory }).ok_or(why)
    }
}

/// Removes the groups of hosts that were killed.
fn sweep(parent: &Path) {
    for path in sys::entries(parent).unwrap_or_default() {
        let name = path.file_name().and_then(|name| name.to_str());
        let host = name.and_then(|name| name.strip_prefix(PREFIX)?.split_once('-')).map(|(host, _)| host);
        // Fails where someone is still in it.
        if host.is_some_and(|host| !sys::is_folder(&Path::new("/proc").join(host))) {
            let _ = rustix::fs::rmdir(&path);
        }
    }
}

fn paths(candidates: Vec<Candidate>) -> Vec<PathBuf> {
    candidates.into_iter().map(|(path, _)| path).collect()
}

/// A group that one may be made in, and whether it is of the newer kind.
type Candidate = (PathBuf, bool);

/// Groups in which one can be made, the nearest first: below this process's own, where there is such a controller.
fn candidates(controller: &str) -> Vec<Candidate> {
    let read = |path: &str| sys::read_text_whole(Path::new(path)).unwrap_or_default();
    of(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"), controller)
}

/// From what the kernel reports this process's groups and of what is mounted.
fn of(groups: &str, mounts: &str, controller: &str) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for line in mounts.lines() {
        // ID, parent, device, root, mount point, options, tags ... `-` kind, source, options.
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let mut before = before.split(' ').skip(3);
        let (Some(root), Some(mount_point)) = (before.next(), before.next()) else { continue };
        let mut after = after.split(' ');
        let (kind, options) = (after.next(), after.nth(1).unwrap_or_default());
        let has = |controllers: &str| controllers.split(',').any(|name| name == controller);
        let own = groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            let fits = match kind {
                Some("cgroup") => has(options) && has(controllers),
                Some("cgroup2") => controllers.is_empty(),
                _ => false,
            };
            fits.then_some(path)
        });
        let Some(below) = own.and_then(|own| Path::new(own).strip_prefix(root).ok()) else { continue };
        // Of the newer kind, a group that has processes holds nothing of groups in it: one further up has to.
        let own = Path::new(mount_point).join(below);
        let newer = kind == Some("cgroup2");
        let up = if newer { usize::MAX } else { 1 };
        let above = own.ancestors().take_while(|group| group.starts_with(mount_point)).take(up);
        candidates.extend(above.map(|group| (group.to_owned(), newer)));
    }
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_made_where_processes_are_counted() {
        let paths = |groups, mounts| {
            of(groups, mounts, "pids").iter().map(|(path, _)| path.display().to_string()).collect::<Vec<_>>()
        };
        let old = "30 25 0:27 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu\n\
                   31 25 0:28 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n";
        assert_eq!(paths("8:pids:/a/b\n1:cpu:/\n0::/\n", old), ["/sys/fs/cgroup/pids/a/b"]);
        let new = "24 23 0:21 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(
            paths("0::/user.slice/x.scope\n", new),
            ["/sys/fs/cgroup/user.slice/x.scope", "/sys/fs/cgroup/user.slice", "/sys/fs/cgroup"]
        );
        assert_eq!(paths("0::/\n", ""), [""; 0]);
        assert_eq!(paths("", new), [""; 0]);
    }

    /// Only where this machine has such groups; [`Offers`](super::super::Offers) shows whether it has.
    #[test]
    fn a_group_goes_away() {
        if let Ok(group) = Group::new(5, 64 << 20) {
            let folders: Vec<_> = group.folders().cloned().collect();
            assert_eq!(std::fs::read_to_string(folders[0].join("pids.max")).unwrap(), "6\n");
            if group.holds_memory {
                let memory = folders.last().unwrap();
                let most = ["memory.max", "memory.limit_in_bytes"]
                    .into_iter()
                    .find_map(|file| std::fs::read_to_string(memory.join(file)).ok());
                assert_eq!(most.unwrap(), "67108864\n");
                // Not as much again on a disk, where the machine counts that.
                for (file, most) in [("memory.swap.max", "0\n"), ("memory.memsw.limit_in_bytes", "67108864\n")] {
                    let told = std::fs::read_to_string(memory.join(file));
                    assert!(told.as_ref().is_ok_and(|told| told == most) || told.is_err(), "{file}: {told:?}");
                }
            }
            assert_eq!(group.hit(), Hit::default());
            drop(group);
            assert!(folders.iter().all(|folder| !folder.exists()));
            let left = folders[0].with_file_name(format!("{PREFIX}{}-0", i32::MAX));
            std::fs::create_dir(&left).unwrap();
            let kept = Group::new(5, 64 << 20).unwrap();
            sweep(left.parent().unwrap());
            assert!(!left.exists() && kept.processes.exists());
        }
    }
}
