//! A file system of a command's own: what it reaches is mounted there, and nothing else is there.
//!
//! A [`Plan`] is made before the fork, with all its texts; it is [built](Plan::build) in the new process, in mount and
//! process namespaces of its own, by system calls alone. Anyone who could rename a folder of the workspace in between
//! gets an error and not another folder: no step follows a link, and what is mounted is compared with what was checked.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags};

use super::reach::{AccessEntry, Identity, Reach};
use super::system::{DEVICES, System};

/// The temporary folder, where the workspace is not there itself.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];
/// Bytes and files of each private folder: a build's scratch space, and no more than the machine can bear. It is memory.
const PRIVATE: &CStr = c"mode=1777,size=512m,nr_inodes=64k";
/// The same of what only holds mount points.
const BARE: &CStr = c"mode=0755,size=1m,nr_inodes=16k";

/// Links in `/dev` to the files that a process has open.
const STREAMS: [(&str, &str); 4] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
];

/// Where the old file system is while the new one is built.
const OLD: &CStr = c"old";
/// A folder that is there on every system: its place is taken for a moment.
const BASE: &CStr = c"/proc";
const CLOSED: &CStr = c".closed";
const CLOSED_FOLDER: &CStr = c".closed/folder";
const CLOSED_FILE: &CStr = c".closed/file";
/// What the names of a command's own network are read from.
const NAMES_FILE: &CStr = c".closed/hosts";
/// Where programs read names.
const HOSTS: &str = "/etc/hosts";

const READ_ONLY: u64 = libc::MOUNT_ATTR_RDONLY;
const PLAIN: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;

/// What is to be mounted. Paths are below the root, without the slash at the beginning.
#[derive(Debug)]
pub(super) struct Plan {
    steps: Vec<Step>,
    /// The text of the file of names, where the command has its own.
    names: Option<Vec<u8>>,
    /// The temporary folder.
    pub(super) temporary: &'static str,
    /// What may be written beside the workspace.
    pub(super) private: Vec<PathBuf>,
}

#[derive(Debug)]
enum Step {
    Folder(CString),
    File(CString),
    Link {
        at: CString,
        to: CString,
    },
    Memory {
        at: CString,
        options: &'static CStr,
    },
    /// What was there, with what is mounted in it.
    Mount {
        at: CString,
        attributes: u64,
        identity: Option<Identity>,
    },
    Closed {
        at: CString,
        is_dir: bool,
    },
    /// The command's own file of names.
    Names(CString),
    /// What the kernel shows, except these names.
    Processes(Vec<CString>),
}

/// What is at a place of the new file system.
#[derive(Debug, Clone, Copy)]
enum What {
    Memory(&'static CStr),
    Mount { attributes: u64, identity: Option<Identity>, is_dir: bool },
    Closed { is_dir: bool },
    Names,
    Processes,
}

/// What a view shows.
#[derive(Debug)]
pub(super) struct Shown<'a> {
    pub(super) system: &'a System,
    /// Further folders that the policy names, without links.
    pub(super) folders: &'a [PathBuf],
    /// What of all these folders is not seen, and whether it is a folder.
    pub(super) closed: &'a [(PathBuf, bool)],
    /// Of the workspace, each after the folder that it is in.
    pub(super) places: &'a [AccessEntry],
    pub(super) workspace: &'a Path,
    /// The user's own folder: there, and empty.
    pub(super) home: Option<&'a Path>,
    /// The text of the command's own file of names, in the place of the machine's.
    pub(super) names: Option<Vec<u8>>,
}

impl Plan {
    /// The steps that make a view.
    ///
    /// # Errors
    ///
    /// Where a path has a NUL in it, which no path has.
    pub(super) fn new(shown: &Shown<'_>) -> Result<Self, String> {
        let temporary = TEMPORARY.into_iter().find(|path| Path::new(path) != shown.workspace).unwrap_or("/tmp");
        let home = shown.home.filter(|home| may_be_private(home, shown));
        let private: Vec<PathBuf> =
            home.map(Path::to_owned).into_iter().chain([temporary.into(), "/dev/shm".into()]).collect();
        let there = content(shown, &private);
        Ok(Self { steps: steps(shown.system, &there)?, names: shown.names.clone(), temporary, private })
    }

    /// Builds the file system and goes into it. In a mount and a process namespace of the calling process's own, whose
    /// only process it is. Allocates nothing.
    ///
    /// # Errors
    ///
    /// Those of the system. The process must not continue then.
    pub(super) fn build(&self) -> Result<(), Errno> {
        let mask = rustix::process::umask(Mode::empty());
        rustix::mount::mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        memory(BASE, BARE)?;
        rustix::process::chdir(BASE)?;
        rustix::fs::mkdir(OLD, Mode::from_raw_mode(0o700))?;
        rustix::process::pivot_root(c".", OLD)?;
        rustix::process::chdir(c"/")?;
        rustix::fs::mkdir(CLOSED, Mode::from_raw_mode(0o755))?;
        rustix::fs::mkdir(CLOSED_FOLDER, Mode::empty())?;
        drop(rustix::fs::open(CLOSED_FILE, OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?);
        if let Some(names) = &self.names {
            let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
            let file = rustix::fs::open(NAMES_FILE, flags, Mode::from_raw_mode(0o444))?;
            if rustix::io::write(&file, names)? != names.len() {
                return Err(Errno::NOSPC);
            }
        }
        let root = rustix::fs::open(c"/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        // What is mounted from there in one call is read-only as it is.
        attach(there(root.as_fd(), CLOSED)?.as_fd(), root.as_fd(), CLOSED, READ_ONLY | PLAIN)?;
        let old = rustix::fs::openat(&root, OLD, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        for step in &self.steps {
            step.take(root.as_fd(), old.as_fd())?;
        }
        drop(old);
        rustix::mount::unmount(OLD, UnmountFlags::DETACH)?;
        rustix::fs::rmdir(OLD)?;
        for only_mount_points in [c"/", c"/dev"] {
            set_attributes(CWD, only_mount_points, READ_ONLY | PLAIN, 0)?;
        }
        rustix::process::umask(mask);
        Ok(())
    }
}

/// Whether the user's folder can be an empty one of the command's: nothing that is seen is in a folder around it.
fn may_be_private(home: &Path, shown: &Shown<'_>) -> bool {
    let within = |folder: &Path| home.starts_with(folder);
    home.is_absolute()
        && home.components().count() > 1
        && !within(shown.workspace)
        && !["/proc", "/dev"].into_iter().any(|folder| within(Path::new(folder)))
        && !shown.system.folders.iter().any(|folder| within(folder))
}

/// What is at each place of the new file system. What is named later replaces what is named before.
fn content(shown: &Shown<'_>, private: &[PathBuf]) -> BTreeMap<PathBuf, What> {
    let system = shown.system;
    let mut there: BTreeMap<PathBuf, What> = BTreeMap::new();
    let mount = |is_dir| What::Mount { attributes: READ_ONLY | PLAIN, identity: None, is_dir };
    there.insert("/proc".into(), What::Processes);
    there.insert("/dev".into(), What::Memory(BARE));
    there.insert("/dev/shm".into(), What::Memory(PRIVATE));
    for device in DEVICES {
        let what = What::Mount { attributes: libc::MOUNT_ATTR_NOSUID, identity: None, is_dir: false };
        there.insert(Path::new("/dev").join(device), what);
    }
    there.extend(system.folders.iter().map(|folder| (folder.clone(), mount(true))));
    there.extend(system.closed.iter().map(|(path, is_dir)| (path.clone(), What::Closed { is_dir: *is_dir })));
    there.extend(system.resolver.iter().map(|path| (path.clone(), mount(false))));
    if shown.names.is_some()
        && let Ok(hosts) = harness_sys::real_path(Path::new(HOSTS))
        && system.shows(&hosts)
    {
        there.insert(hosts, What::Names);
    }
    there.extend(private.iter().map(|path| (path.clone(), What::Memory(PRIVATE))));
    there.extend(shown.folders.iter().map(|folder| (folder.clone(), mount(true))));
    there.extend(shown.closed.iter().map(|(path, is_dir)| (path.clone(), What::Closed { is_dir: *is_dir })));
    // What of it is not granted must not be seen because it is in a folder that is.
    if system.shows(shown.workspace) {
        there.insert(shown.workspace.to_owned(), What::Memory(BARE));
    }
    for place in shown.places {
        let (is_dir, identity) = (place.is_dir, Some(place.identity));
        let what = match place.reach {
            Reach::Closed => What::Closed { is_dir },
            Reach::Read => What::Mount { attributes: READ_ONLY | PLAIN, identity, is_dir },
            Reach::Write => What::Mount { attributes: PLAIN, identity, is_dir },
        };
        there.insert(place.path.clone(), what);
    }
    pin(shown.places, &mut there);
    there
}

/// The steps that make it, each after those for the folders around it.
///
/// # Errors
///
/// Where a path has a NUL in it.
fn steps(system: &System, there: &BTreeMap<PathBuf, What>) -> Result<Vec<Step>, String> {
    let link = |at: &Path, to: &Path| Ok::<_, String>(Step::Link { at: relative(at)?, to: text(to)? });
    let mut steps = Vec::new();
    for (at, to) in &system.links {
        steps.push(link(at, to)?);
    }
    let mut made: BTreeSet<&Path> = BTreeSet::new();
    for (path, what) in there {
        make_way(path, *what, there, &mut made, &mut steps)?;
        let at = relative(path)?;
        steps.push(match *what {
            What::Memory(options) => Step::Memory { at, options },
            What::Mount { attributes, identity, .. } => Step::Mount { at, attributes, identity },
            What::Closed { is_dir } => Step::Closed { at, is_dir },
            What::Names => Step::Names(at),
            What::Processes => Step::Processes(system.machine.iter().map(|name| text(name)).collect::<Result<_, _>>()?),
        });
        if path == Path::new("/dev") {
            for (at, to) in STREAMS {
                steps.push(link(Path::new(at), Path::new(to))?);
            }
        }
    }
    Ok(steps)
}

/// Makes mount points of the folders between a place and the one that it is in, where that may be written: no command can
/// rename or remove a mount point. It would take what is closed along with the folder, to where no rule speaks of it.
fn pin(places: &[AccessEntry], there: &mut BTreeMap<PathBuf, What>) {
    let explicit: BTreeMap<&Path, Reach> = places.iter().map(|place| (place.path.as_path(), place.reach)).collect();
    for place in places {
        let mut between = Vec::new();
        for above in place.path.ancestors().skip(1) {
            match explicit.get(above) {
                Some(Reach::Write) => {
                    let pinned = What::Mount { attributes: PLAIN, identity: None, is_dir: true };
                    there.extend(between.drain(..).map(|folder: &Path| (folder.to_owned(), pinned)));
                    break;
                }
                Some(Reach::Read | Reach::Closed) => break,
                None => between.push(above),
            }
        }
    }
}

/// The folders above a mount point, and the mount point, where they are in memory. Everywhere else they are there.
fn make_way<'a>(
    path: &'a Path,
    what: What,
    there: &BTreeMap<PathBuf, What>,
    made: &mut BTreeSet<&'a Path>,
    steps: &mut Vec<Step>,
) -> Result<(), String> {
    let mut missing = Vec::new();
    for above in path.ancestors() {
        if above.parent().is_none() || (above != path && there.contains_key(above)) || made.contains(above) {
            break;
        }
        missing.push(above);
    }
    let ground = path.ancestors().skip(1).find_map(|above| there.get(above));
    if !matches!(ground, None | Some(What::Memory(_))) {
        return Ok(());
    }
    for folder in missing.into_iter().rev() {
        let is_file = folder == path
            && matches!(what, What::Mount { is_dir: false, .. } | What::Closed { is_dir: false } | What::Names);
        steps.push(if is_file { Step::File(relative(folder)?) } else { Step::Folder(relative(folder)?) });
        made.insert(folder);
    }
    Ok(())
}

impl Step {
    fn take(&self, root: BorrowedFd<'_>, old: BorrowedFd<'_>) -> Result<(), Errno> {
        match self {
            Self::Folder(at) => rustix::fs::mkdirat(root, at.as_c_str(), Mode::from_raw_mode(0o755)),
            Self::File(at) => {
                let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
                rustix::fs::openat(root, at.as_c_str(), flags, Mode::from_raw_mode(0o444)).map(drop)
            }
            Self::Link { at, to } => rustix::fs::symlinkat(to.as_c_str(), root, at.as_c_str()),
            Self::Memory { at, options } => memory(at, options),
            Self::Processes(closed) => {
                let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
                rustix::mount::mount(c"proc", c"proc", c"proc", flags, None::<&CStr>)?;
                set_attributes(root, c"proc", READ_ONLY, 0)?;
                closed.iter().try_for_each(|path| cover(path))
            }
            Self::Mount { at, attributes, identity } => {
                let from = there(old, at)?;
                if let Some(identity) = identity
                    && Identity::of(&rustix::fs::fstat(&from)?) != *identity
                {
                    return Err(Errno::STALE);
                }
                attach(from.as_fd(), root, at, *attributes)
            }
            Self::Names(at) => attach(there(root, NAMES_FILE)?.as_fd(), root, at, READ_ONLY | PLAIN),
            Self::Closed { at, is_dir } => {
                let from = there(root, if *is_dir { CLOSED_FOLDER } else { CLOSED_FILE })?;
                match attach(from.as_fd(), root, at, READ_ONLY | PLAIN) {
                    // It was removed in the meantime.
                    Err(Errno::NOENT) => Ok(()),
                    done => done,
                }
            }
        }
    }
}

/// What is at a path below a folder. No part of the path is followed if it is a link.
fn there(folder: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    rustix::fs::openat2(folder, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// Mounts something at a place that is there.
fn attach(from: BorrowedFd<'_>, root: BorrowedFd<'_>, at: &CStr, attributes: u64) -> Result<(), Errno> {
    const RECURSIVE: u32 = libc::AT_RECURSIVE.cast_unsigned();
    let target = there(root, at)?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH
        | OpenTreeFlags::AT_RECURSIVE;
    let tree = rustix::mount::open_tree(from, c"", flags)?;
    set_attributes(tree.as_fd(), c"", attributes, RECURSIVE | AtFlags::EMPTY_PATH.bits())?;
    let both = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    rustix::mount::move_mount(tree.as_fd(), c"", target.as_fd(), c"", both)
}

/// Mounts nothing over something of the kernel's, a file or a folder. In one call, as there are many.
fn cover(path: &CStr) -> Result<(), Errno> {
    let cover = |with: &CStr| rustix::mount::mount_bind(with, path);
    match cover(CLOSED_FILE) {
        Err(Errno::NOTDIR) => cover(CLOSED_FOLDER),
        // This kernel has none.
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

fn memory(at: &CStr, options: &CStr) -> Result<(), Errno> {
    rustix::mount::mount(c"tmpfs", at, c"tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(options))
}

fn set_attributes(folder: BorrowedFd<'_>, path: &CStr, attributes: u64, flags: u32) -> Result<(), Errno> {
    let set = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: the path ends with a NUL, and the size is that of what the pointer leads to.
    #[expect(unsafe_code, reason = "there is no function for this call")]
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            folder.as_raw_fd(),
            path.as_ptr(),
            flags,
            std::ptr::from_ref(&set),
            size_of::<libc::mount_attr>(),
        )
    };
    if done == 0 { Ok(()) } else { Err(super::last_error()) }
}

/// A path below the root.
fn relative(path: &Path) -> Result<CString, String> {
    text(path.strip_prefix("/").unwrap_or(path))
}

/// A path as the system takes it.
pub(super) fn text(path: &Path) -> Result<CString, String> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| "a path has a NUL in it".to_owned())
}
