//! A control group that counts the processes of one command, for where the user's own limit does not: for root.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::ambient;

/// What names begin with; the number of the host follows, and one of its own.
const PREFIX: &str = "harness-";

/// A group with nobody in it yet. It is removed when this is dropped, as far as nobody is in it then.
#[derive(Debug)]
pub(super) struct Group(PathBuf);

impl Group {
    /// A group of at most this many processes and threads, one more for the keeper.
    ///
    /// # Errors
    ///
    /// Why there is none, for a person.
    pub(super) fn new(processes: u64) -> Result<Self, String> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("{PREFIX}{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        static SWEPT: Once = Once::new();
        SWEPT.call_once(|| parents().iter().for_each(|parent| sweep(parent)));
        let mut why = "there are none that count processes".to_owned();
        for parent in parents() {
            let path = parent.join(&name);
            if let Err(error) = rustix::fs::mkdir(&path, Mode::from_raw_mode(0o755)) {
                why = std::io::Error::from(error).to_string();
                continue;
            }
            let group = Self(path);
            match group.write("pids.max", &processes.saturating_add(1).to_string()) {
                Ok(()) => return Ok(group),
                Err(error) => why = std::io::Error::from(error).to_string(),
            }
        }
        Err(why)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Errno> {
        rustix::io::write(self.open(name)?, text.as_bytes()).map(drop)
    }

    fn open(&self, name: &str) -> Result<OwnedFd, Errno> {
        rustix::fs::open(self.0.join(name), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
    }

    /// Who writes `0` there is in the group, and so is what comes of it.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub(super) fn door(&self) -> std::io::Result<OwnedFd> {
        Ok(self.open("cgroup.procs")?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Fails where somebody is left, which only a process can be that cannot be killed.
        let _ = rustix::fs::rmdir(&self.0);
    }
}

/// Removes the groups of hosts that were killed.
fn sweep(parent: &Path) {
    for path in ambient::entries(parent).unwrap_or_default() {
        let name = path.file_name().and_then(|name| name.to_str());
        let host = name.and_then(|name| name.strip_prefix(PREFIX)?.split_once('-')).map(|(host, _)| host);
        // Fails where somebody is still in it.
        if host.is_some_and(|host| !ambient::is_folder(&Path::new("/proc").join(host))) {
            let _ = rustix::fs::rmdir(&path);
        }
    }
}

/// Groups in which one can be made, the nearest first: below this process's own, where processes are counted.
fn parents() -> Vec<PathBuf> {
    let read = |path: &str| ambient::read_text_whole(Path::new(path)).unwrap_or_default();
    of(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"))
}

/// From what the kernel tells of this process's groups and of what is mounted.
fn of(groups: &str, mounts: &str) -> Vec<PathBuf> {
    let mut parents = Vec::new();
    for line in mounts.lines() {
        // ID, parent, device, root, mount point, options, tags ... `-` kind, source, options.
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let mut before = before.split(' ').skip(3);
        let (Some(root), Some(mount_point)) = (before.next(), before.next()) else { continue };
        let mut after = after.split(' ');
        let (kind, options) = (after.next(), after.nth(1).unwrap_or_default());
        let counts = |controllers: &str| controllers.split(',').any(|name| name == "pids");
        let own = groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?);
            let fits = match kind {
                Some("cgroup") => counts(options) && counts(controllers),
                Some("cgroup2") => controllers.is_empty(),
                _ => false,
            };
            fits.then_some(path)
        });
        let Some(below) = own.and_then(|own| Path::new(own).strip_prefix(root).ok()) else { continue };
        // Of the newer kind, a group that has processes counts none for groups in it: one further up has to.
        let own = Path::new(mount_point).join(below);
        let up = if kind == Some("cgroup2") { usize::MAX } else { 1 };
        parents.extend(own.ancestors().take_while(|group| group.starts_with(mount_point)).take(up).map(Path::to_owned));
    }
    parents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_made_where_processes_are_counted() {
        let paths = |groups, mounts| of(groups, mounts).iter().map(|p| p.display().to_string()).collect::<Vec<_>>();
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

    /// Only where this machine has such groups; [`Offers`](super::super::Offers) tells whether it has.
    #[test]
    fn a_group_goes_away() {
        if let Ok(group) = Group::new(5) {
            let path = group.0.clone();
            assert_eq!(std::fs::read_to_string(path.join("pids.max")).unwrap(), "6\n");
            drop(group);
            assert!(!path.exists());
            let left = path.with_file_name(format!("{PREFIX}{}-0", i32::MAX));
            std::fs::create_dir(&left).unwrap();
            let kept = Group::new(5).unwrap();
            sweep(left.parent().unwrap());
            assert!(!left.exists() && kept.0.exists());
        }
    }
}
