//! The processes that a command is made of, from the fork on.
//!
//! A command could leave its group and go on in the background, and a host that is killed can kill nobody. So between
//! the host and a command stands a *keeper*: a fork of the host that runs none of its code, holds none of its files, and
//! waits for two things, the end of the command and the end of a pipe that only the host holds open. Whatever ends the
//! host closes the pipe. (The kernel's own signal for this is bound to the thread that made a process, and a runtime's
//! threads come and go; the keeper has one.)
//!
//! With namespaces, the keeper's child is the first process of the command's own; when it ends, the kernel ends all the
//! others, and only then is it over. Without, the keeper is given every process that loses its parent, and kills until
//! none is left.
//!
//! All of this runs between fork and exec in a process that had threads: system calls alone, and nothing is allocated.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{
    DumpableBehavior, Pid, PidfdFlags, Signal, WaitOptions, kill_process, kill_process_group, set_child_subreaper,
    set_dumpable_behavior, set_parent_process_death_signal, setsid, wait, waitpid,
};

use super::reach::Identity;
use super::view::Plan;
use super::{Confinement, Step};

/// How the processes of a command are held together.
#[derive(Debug)]
pub(super) enum Bond {
    /// In namespaces of their own, with files of their own.
    Namespaces {
        /// Where the host may not make namespaces: what a user namespace is told of this user.
        user: Option<UserMap>,
        view: Plan,
        /// The folder to start in, below the new root.
        folder: CString,
        identity: Identity,
    },
    /// As children of the keeper.
    Children,
}

/// A user namespace that holds this user and group alone, under their own numbers.
#[derive(Debug)]
pub(super) struct UserMap {
    uid: CString,
    gid: CString,
}

impl UserMap {
    pub(super) fn of_this_user() -> Option<Self> {
        let line = |id: u32| CString::new(format!("{id} {id} 1")).ok();
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Some(Self { uid: line(uid)?, gid: line(gid)? })
    }

    /// Makes the namespace and goes into it.
    fn enter(&self) -> Result<(), Errno> {
        // Who may not be looked into may not tell of itself either.
        set_dumpable_behavior(DumpableBehavior::Dumpable)?;
        unshare(libc::CLONE_NEWUSER)?;
        write(c"/proc/self/setgroups", b"deny")?;
        write(c"/proc/self/uid_map", self.uid.as_bytes())?;
        write(c"/proc/self/gid_map", self.gid.as_bytes())?;
        set_dumpable_behavior(DumpableBehavior::NotDumpable)
    }
}

/// Everything that a command's processes need, made before the fork.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) bond: Bond,
    pub(super) confinement: Confinement,
    /// The end of a pipe; when the other end is closed, all is over.
    pub(super) lifeline: OwnedFd,
    /// Where the step is written that failed.
    pub(super) report: OwnedFd,
    /// Where a process writes `0` to be counted.
    pub(super) count: Option<OwnedFd>,
}

/// Told instead of the code of a command that a signal ended.
const SIGNAL: i32 = -1;

/// What failed.
type Failed = (Step, Errno);

impl Family {
    /// Makes the processes. Returns in the one that is to become the command, and where something failed.
    ///
    /// # Errors
    ///
    /// Those of the system; the step is written to the report. The process must end then.
    pub(super) fn enter(&self) -> io::Result<()> {
        self.make().map_err(|(step, error)| {
            let _ = rustix::io::write(&self.report, &[step as u8]);
            io::Error::from(error)
        })
    }

    fn make(&self) -> Result<(), Failed> {
        let at = |step: Step| move |error: Errno| (step, error);
        // Nobody's terminal is theirs.
        setsid().map_err(at(Step::Session))?;
        mask_signals(libc::SIG_BLOCK).map_err(at(Step::Session))?;
        set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(at(Step::Session))?;
        if let Some(count) = &self.count {
            rustix::io::write(count, b"0").map_err(at(Step::Processes))?;
        }
        match &self.bond {
            Bond::Namespaces { user, view, folder, identity } => {
                if let Some(user) = user {
                    user.enter().map_err(at(Step::UserNamespace))?;
                }
                let (ending, end) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(at(Step::Session))?;
                let spaces = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWCGROUP;
                if let Some(first) = fork(spaces).map_err(at(Step::Namespaces))? {
                    drop(end);
                    keep_namespace(first, &self.lifeline, &ending);
                }
                drop(ending);
                self.first_of_namespace(view, folder, *identity, &end)?;
            }
            Bond::Children => {
                set_child_subreaper(Some(rustix::process::getpid())).map_err(at(Step::Session))?;
                if let Some(child) = fork(0).map_err(at(Step::Session))? {
                    keep_children(child, &self.lifeline);
                }
                setsid().map_err(at(Step::Session))?;
            }
        }
        self.confinement.raise()?;
        mask_signals(libc::SIG_UNBLOCK).map_err(at(Step::Session))?;
        // Neither files that an embedder opened without care nor those of this module are the command's.
        close_range(3, RawFd::MAX, libc::CLOSE_RANGE_CLOEXEC).map_err(at(Step::Session))
    }

    /// The first process of a namespace: builds the files, starts the one that becomes the command, and waits.
    fn first_of_namespace(&self, view: &Plan, folder: &CStr, identity: Identity, end: &OwnedFd) -> Result<(), Failed> {
        let at = |step: Step| move |error: Errno| (step, error);
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(at(Step::Session))?;
        // The keeper may have been killed before that; nobody reads then.
        if is_closed(end.as_fd()) {
            exit(1);
        }
        view.build().map_err(at(Step::View))?;
        go_to(folder, identity).map_err(at(Step::Folder))?;
        if let Some(command) = fork(0).map_err(at(Step::Namespaces))? {
            close_all_but([end.as_raw_fd(), -1]);
            loop {
                match wait(WaitOptions::empty()) {
                    Ok(Some((pid, status))) if pid == command => {
                        let _ = rustix::io::write(end, &status.exit_status().unwrap_or(SIGNAL).to_ne_bytes());
                        // Now the kernel ends whoever is left in the namespace.
                        exit(0);
                    }
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(_) => exit(1),
                }
            }
        }
        setsid().map(drop).map_err(at(Step::Session))
    }
}

/// Waits for the first process of a namespace, and then ends as the command did.
fn keep_namespace(first: Pid, lifeline: &OwnedFd, ending: &OwnedFd) -> ! {
    close_all_but([lifeline.as_raw_fd(), ending.as_raw_fd()]);
    wait_for_either(first, lifeline);
    // Also where it has ended: nobody else can have its number before it is waited for.
    let _ = kill_process(first, Signal::KILL);
    while matches!(waitpid(Some(first), WaitOptions::empty()), Err(Errno::INTR)) {}
    let mut code = [0; size_of::<i32>()];
    // Nothing is told where the first process was killed.
    let told = rustix::io::read(ending, &mut code).is_ok_and(|count| count == code.len());
    let code = i32::from_ne_bytes(code);
    end_as((told && code != SIGNAL).then_some(code))
}

/// Waits for a command, kills all that came of it, and then ends as it did.
fn keep_children(child: Pid, lifeline: &OwnedFd) -> ! {
    close_all_but([lifeline.as_raw_fd(), -1]);
    wait_for_either(child, lifeline);
    let mut code = None;
    loop {
        let _ = kill_process_group(child, Signal::KILL);
        let _ = kill_process(child, Signal::KILL);
        kill_children();
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, ended))) if pid == child => code = ended.exit_status(),
            Ok(_) | Err(Errno::INTR) => {}
            // None is left.
            Err(_) => end_as(code),
        }
    }
}

/// Kills the children that this process has now, the orphans that it was given too.
fn kill_children() {
    let Ok(list) = rustix::fs::open(c"/proc/thread-self/children", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
    else {
        return;
    };
    let (mut buffer, mut number) = ([0; 512], 0_i32);
    while let Ok(count @ 1..) = rustix::io::read(&list, &mut buffer) {
        for byte in buffer.iter().take(count) {
            if byte.is_ascii_digit() {
                number = number.wrapping_mul(10).wrapping_add(i32::from(byte - b'0'));
            } else if let Some(pid) = Pid::from_raw(std::mem::take(&mut number)) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// Returns when a process has ended, or the other end of the lifeline is closed.
fn wait_for_either(process: Pid, lifeline: &OwnedFd) {
    let Ok(ended) = rustix::process::pidfd_open(process, PidfdFlags::empty()) else { return };
    let mut either = [PollFd::new(lifeline, PollFlags::IN), PollFd::new(&ended, PollFlags::IN)];
    while rustix::event::poll(&mut either, None) == Err(Errno::INTR) {}
}

fn is_closed(pipe: BorrowedFd<'_>) -> bool {
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut poll = [PollFd::from_borrowed_fd(pipe, PollFlags::empty())];
    rustix::event::poll(&mut poll, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Ends with a code, or as by a signal: which one is of no interest to anybody.
fn end_as(code: Option<i32>) -> ! {
    if code.is_none() {
        let _ = kill_process(rustix::process::getpid(), Signal::KILL);
    }
    exit(code.unwrap_or(1))
}

pub(super) fn exit(code: i32) -> ! {
    // SAFETY: it takes a number and does not return.
    #[expect(unsafe_code, reason = "the standard library's exit runs code that a fork must not")]
    unsafe {
        libc::_exit(code)
    }
}

/// A child process; nothing in the child itself. As the C library's function, without what that does for threads and
/// at exit.
pub(super) fn fork(namespaces: i32) -> Result<Option<Pid>, Errno> {
    let flags = libc::c_long::from(namespaces | libc::SIGCHLD);
    // SAFETY: without a stack and without sharing memory the child goes on here with a copy of everything.
    #[expect(unsafe_code, reason = "there is no function that makes namespaces too")]
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0_usize, 0_usize, 0_usize, 0_usize) };
    match i32::try_from(pid) {
        Ok(0) => Ok(None),
        Ok(pid) if pid > 0 => Ok(Pid::from_raw(pid)),
        _ => Err(super::last_error()),
    }
}

fn unshare(flags: i32) -> Result<(), Errno> {
    // SAFETY: the calling process has one thread and shares no files with another.
    #[expect(unsafe_code, reason = "as the function of rustix, which has no flag of its own for this kind")]
    let done = unsafe { libc::unshare(flags) };
    if done == 0 { Ok(()) } else { Err(super::last_error()) }
}

fn write(path: &CStr, text: &[u8]) -> Result<(), Errno> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, text).map(drop)
}

/// Goes to a folder, and sees that it is the one.
fn go_to(folder: &CStr, identity: Identity) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::open(c"/", flags, Mode::empty())?;
    let resolve = rustix::fs::ResolveFlags::BENEATH | rustix::fs::ResolveFlags::NO_SYMLINKS;
    let folder = rustix::fs::openat2(&root, folder, flags, Mode::empty(), resolve)?;
    if Identity::of(&rustix::fs::fstat(&folder)?) != identity {
        return Err(Errno::STALE);
    }
    rustix::process::fchdir(&folder)
}

/// Closes every file but these two, in any order; -1 is none.
fn close_all_but(mut kept: [RawFd; 2]) {
    kept.sort_unstable();
    let mut from = 0;
    for kept in kept {
        if kept > from {
            let _ = close_range(from, kept - 1, 0);
        }
        from = from.max(kept.saturating_add(1));
    }
    let _ = close_range(from, RawFd::MAX, 0);
}

fn close_range(first: RawFd, last: RawFd, flags: u32) -> Result<(), Errno> {
    // SAFETY: it takes numbers; nothing here uses the files that it closes.
    #[expect(unsafe_code, reason = "there is no function for this call")]
    let done = unsafe { libc::syscall(libc::SYS_close_range, first.cast_unsigned(), last.cast_unsigned(), flags) };
    if done == 0 { Ok(()) } else { Err(super::last_error()) }
}

/// Blocks or unblocks all signals: handlers of the host must not run in its forks.
fn mask_signals(how: i32) -> Result<(), Errno> {
    // SAFETY: the set is made before it is used, and the old one is not asked for.
    #[expect(unsafe_code, reason = "there is no function for this call")]
    let done = unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(how, &all, std::ptr::null_mut())
    };
    if done == 0 { Ok(()) } else { Err(super::last_error()) }
}
