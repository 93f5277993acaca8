//! The root names that a command must not create, held while it runs.
//!
//! In a view, a command that may write the workspace may create any name in it, and the kernel has no rule for a single
//! name that is not there. A mount point is such a rule: nobody in the command's namespaces removes, renames or replaces
//! it. So the host creates a [placeholder] for each closed name that is missing, an empty folder, which the view mounts
//! read-only over itself, and removes it when the last command that needs it has ended.
//!
//! Several commands, of several hosts, share a placeholder: each holds a shared lock on it, and anyone who gets the
//! exclusive one removes it. A host that was killed holds no lock, and the next command clears up after it. A
//! placeholder counts as absent wherever the host looks for the name.
//!
//! [placeholder]: harness_sys::is_placeholder

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{AtFlags, FlockOperation, Mode};
use rustix::io::Errno;

use crate::hard_links::{FOLDER, Identity};
use harness_policy::path::protected::CLOSED_AT_ROOT;
use harness_sys::PLACEHOLDER;

/// How often a name is taken that others remove in the same moment.
const TRIES: usize = 1_000;

/// Between tries where somebody removes a placeholder: with all tries some seconds, which no machine is so busy for.
const PAUSE: Duration = Duration::from_millis(5);

/// The closed root names of a workspace: as long as this is there, each of them is.
#[derive(Debug)]
pub struct ClosedNames {
    workspace: OwnedFd,
    held: Vec<Held>,
}

#[derive(Debug)]
struct Held {
    name: &'static str,
    folder: OwnedFd,
    /// Whether it goes with the last one who holds it: not a folder of a third party's.
    is_placeholder: bool,
}

impl ClosedNames {
    /// Creates those that are missing.
    ///
    /// # Errors
    ///
    /// Where one can be created by a command and not by the host, for a person; without a path.
    pub fn hold(workspace: &Path) -> Result<Self, String> {
        let failed =
            |error: Errno| format!("the workspace's closed names cannot be held: {}", std::io::Error::from(error));
        let workspace = rustix::fs::open(workspace, FOLDER, Mode::empty()).map_err(failed)?;
        let mut names = Self { workspace, held: Vec::new() };
        for name in CLOSED_AT_ROOT {
            let held = hold(&names.workspace, name).map_err(failed)?;
            names.held.extend(held);
        }
        Ok(names)
    }

    /// Removes what a host that was killed has left, for who is about to create one of these names.
    pub fn sweep(workspace: &Path) {
        let Ok(folder) = rustix::fs::open(workspace, FOLDER, Mode::empty()) else { return };
        for name in CLOSED_AT_ROOT {
            if harness_sys::is_placeholder(&workspace.join(name))
                && let Ok(placeholder) = rustix::fs::openat(&folder, name, FOLDER, Mode::empty())
            {
                remove(&folder, &Held { name, folder: placeholder, is_placeholder: true });
            }
        }
    }
}

impl Drop for ClosedNames {
    fn drop(&mut self) {
        self.held.iter().filter(|held| held.is_placeholder).for_each(|held| remove(&self.workspace, held));
    }
}

/// Holds one name: what it is now, or a placeholder. Nothing where it needs no holding: there is something of a third
/// party's, or nobody can create it.
fn hold(workspace: &OwnedFd, name: &'static str) -> Result<Option<Held>, Errno> {
    let mode = Mode::from_raw_mode(PLACEHOLDER);
    for _ in 0..TRIES {
        let created = match rustix::fs::mkdirat(workspace, name, mode) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            // Neither can the command.
            Err(Errno::ROFS | Errno::PERM) => return Ok(None),
            Err(Errno::ACCESS) if !is_own(workspace)? => return Ok(None),
            Err(error) => return Err(error),
        };
        let folder = match rustix::fs::openat(workspace, name, FOLDER, Mode::empty()) {
            Ok(folder) => folder,
            // Its last holder was faster.
            Err(Errno::NOENT) => continue,
            Err(Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) if !created => return Ok(None),
            Err(error) => return Err(error),
        };
        match rustix::fs::flock(&folder, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {}
            // Who removes it has it for a few system calls, but may lose the processor between them.
            Err(Errno::WOULDBLOCK) => {
                std::thread::sleep(PAUSE);
                continue;
            }
            Err(error) => return Err(error),
        }
        if created {
            // Whatever the process's mask is.
            rustix::fs::fchmod(&folder, mode)?;
        }
        let facts = rustix::fs::fstat(&folder)?;
        match rustix::fs::statat(workspace, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(now) if Identity::of(&now) == Identity::of(&facts) => {}
            Ok(_) | Err(Errno::NOENT) => continue,
            Err(error) => return Err(error),
        }
        let is_placeholder = created || harness_sys::is_marked(facts.st_mode);
        return Ok(Some(Held { name, folder, is_placeholder }));
    }
    Err(Errno::BUSY)
}

/// Whether a command, which runs as this user, could open a folder to itself.
fn is_own(folder: &OwnedFd) -> Result<bool, Errno> {
    Ok(rustix::fs::fstat(folder)?.st_uid == rustix::process::geteuid().as_raw())
}

/// Removes a placeholder that nobody else holds. It is empty, or it stays.
fn remove(workspace: &OwnedFd, held: &Held) {
    if rustix::fs::flock(&held.folder, FlockOperation::NonBlockingLockExclusive).is_err() {
        return;
    }
    let same = |now: rustix::fs::Stat| {
        rustix::fs::fstat(&held.folder).is_ok_and(|held| Identity::of(&held) == Identity::of(&now))
    };
    if rustix::fs::statat(workspace, held.name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(same) {
        let _ = rustix::fs::unlinkat(workspace, held.name, AtFlags::REMOVEDIR);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    const ALL: [&str; 5] = [".git", ".harness", "harness.lock", "harness.md", "harness.yaml"];

    #[test]
    fn they_are_there_as_long_as_somebody_holds_them() {
        let root = tempfile::tempdir().unwrap();
        let first = ClosedNames::hold(root.path()).unwrap();
        let second = ClosedNames::hold(root.path()).unwrap();
        assert_eq!(names(root.path()), ALL);
        assert!(ALL.iter().all(|name| harness_sys::is_placeholder(&root.path().join(name))));
        drop(first);
        ClosedNames::sweep(root.path());
        assert_eq!(names(root.path()), ALL);
        drop(second);
        assert_eq!(names(root.path()), [""; 0]);
    }

    #[test]
    fn what_is_somebody_elses_stays() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir(at(".git")).unwrap();
        fs::create_dir_all(at(".harness/tools")).unwrap();
        fs::write(at("harness.lock"), "version = 1\n").unwrap();
        symlink("nowhere", at("harness.md")).unwrap();
        let held = ClosedNames::hold(root.path()).unwrap();
        assert_eq!(names(root.path()), ALL);
        drop(held);
        ClosedNames::sweep(root.path());
        assert_eq!(names(root.path()), [".git", ".harness", "harness.lock", "harness.md"]);
        assert_eq!(fs::read_to_string(at("harness.lock")).unwrap(), "version = 1\n");
    }

    #[test]
    fn what_a_killed_host_left_goes_with_the_next_one() {
        for swept in [true, false] {
            let root = tempfile::tempdir().unwrap();
            let held = ClosedNames::hold(root.path()).unwrap();
            held.held.iter().for_each(|held| rustix::fs::flock(&held.folder, FlockOperation::Unlock).unwrap());
            std::mem::forget(held);
            assert_eq!(names(root.path()), ALL);
            if swept {
                ClosedNames::sweep(root.path());
            } else {
                drop(ClosedNames::hold(root.path()).unwrap());
            }
            assert_eq!(names(root.path()), [""; 0]);
        }
    }

    #[test]
    fn a_workspace_that_its_owner_closed_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o555)).unwrap();
        let held = ClosedNames::hold(root.path());
        // Root writes there all the same.
        if rustix::process::geteuid().is_root() {
            assert_eq!(held.unwrap().held.len(), ALL.len());
        } else {
            assert!(held.unwrap_err().starts_with("the workspace's closed names cannot be held: "));
        }
    }

    /// Anyone who comes while another one goes holds what is there.
    #[test]
    fn many_at_once_hold_them() {
        let root = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let held = ClosedNames::hold(root.path()).unwrap();
                        assert_eq!(names(root.path()), ALL);
                        drop(held);
                    }
                });
            }
        });
        assert_eq!(names(root.path()), [""; 0]);
    }
}
