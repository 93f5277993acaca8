//! The host's own confinement, with the parts that commands are held by.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use super::filters::Filters;
use super::landlock::{self, May, Rule, Rules};
use super::system::System;
use crate::confine::{Programs, Sockets};
use harness_sys as sys;

/// What a host keeps of root's privileges: a workspace may be a third party's, and files in it.
const KEPT: CapabilitySet = CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::FOWNER);

/// Takes from this process all files but the machine's own and these, which are to be read and to be changed.
///
/// # Errors
///
/// What could not be done. Nothing is where the process has other threads: the kernel would hold this one, and those that
/// it starts later.
pub(crate) fn hold_files(read: &BTreeSet<PathBuf>, write: &BTreeSet<PathBuf>) -> Result<(), String> {
    alone()?;
    let rules = Rules::new(&rules(read, write)?, false)?;
    let failed = |error: Errno| format!("Landlock: {}", std::io::Error::from(error));
    rustix::thread::set_no_new_privs(true).map_err(failed)?;
    rules.enforce().map_err(failed)
}

/// Takes from this process the privileges of root, but for those over files.
///
/// # Errors
///
/// As above.
pub(crate) fn hold_privileges() -> Result<(), String> {
    alone()?;
    super::give_up_privileges(KEPT).map_err(|error| format!("privileges: {}", std::io::Error::from(error)))
}

fn rules(read: &BTreeSet<PathBuf>, write: &BTreeSet<PathBuf>) -> Result<Vec<Rule>, String> {
    let mut rules = landlock::of_open_system(System::get()?, &[], &[])?;
    let rule = |path: &PathBuf, may| Rule { path: path.clone(), may };
    rules.extend(read.iter().map(|path| rule(path, May::Read)));
    rules.extend(write.iter().map(|path| rule(path, May::Change)));
    rules.push(Rule { path: "/proc".into(), may: May::Read });
    // A terminal that is asked for by its name.
    rules.push(Rule { path: "/dev/tty".into(), may: May::Use });
    Ok(rules)
}

/// Whether this is the only thread. Nobody else could start another then.
fn alone() -> Result<(), String> {
    let threads = sys::entries(Path::new("/proc/self/task"))
        .map_err(|error| format!("its threads cannot be counted: {error}"))?;
    // One that has been waited for may still be on its way out of the kernel, and runs nothing any more.
    let runs = |thread: &&PathBuf| match sys::read_text(&thread.join("stat")) {
        Ok(stat) => !is_ending(&stat),
        Err(_) => sys::is_there(thread),
    };
    match threads.iter().filter(runs).count() {
        1 => Ok(()),
        many => {
            Err(format!("it has {many} threads, of which the kernel holds the one that asks and those that it starts"))
        }
    }
}

/// Whether a thread's `stat` says that it has ended but for what the kernel does: `PF_EXITING` of its flags, the seventh field
/// after its name.
fn is_ending(stat: &str) -> bool {
    const EXITING: u64 = 4;
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    after_name
        .split_whitespace()
        .nth(6)
        .and_then(|flags| flags.parse().ok())
        .is_some_and(|flags: u64| flags & EXITING > 0)
}

/// Takes system calls from all threads of this process.
///
/// # Errors
///
/// What could not be done.
pub(crate) fn hold_calls(programs: Programs, sockets: Sockets) -> Result<(), String> {
    Filters::of_host(programs, sockets)?.apply_to_all_threads()
}

/// A child that ends at once, with these namespaces: whether one can be made.
#[cfg(test)]
pub(crate) fn ends(namespaces: i32) -> Result<(), Errno> {
    use super::launch::{Stack, Work, child};
    struct Nothing;
    // SAFETY: it does nothing.
    #[expect(unsafe_code, reason = "work of a new process")]
    unsafe impl Work for Nothing {
        unsafe fn run(&self) -> i32 {
            0
        }
    }
    let stack = Stack::new()?;
    // SAFETY: memory is not shared, and the stack is new.
    #[expect(unsafe_code, reason = "a new process")]
    let pid = unsafe { child(&stack, &Nothing, namespaces)? };
    let pid = rustix::process::Pid::from_raw(pid);
    rustix::process::waitpid(pid, rustix::process::WaitOptions::empty()).map(drop)
}

/// Whether a socket can be made. The third number is that of a protocol, which raw ones need.
#[cfg(test)]
pub(crate) fn socket(family: i32, kind: i32) -> bool {
    let protocol = if kind == libc::SOCK_RAW { libc::IPPROTO_ICMP } else { 0 };
    // SAFETY: it takes numbers, and what is made goes with this process.
    #[expect(unsafe_code, reason = "the function for it is not among those that the host has a use for")]
    let made = unsafe { libc::socket(family, kind, protocol) };
    made >= 0
}

/// Whether rules can be made for a command, for a folder that is there.
#[cfg(test)]
pub(crate) fn makes_rules(folder: &Path) -> Result<(), String> {
    Rules::new(&[Rule { path: folder.to_owned(), may: May::Read }], true).map(drop)
}

/// What the kernel says to a request for a key that is not there.
#[cfg(test)]
pub(crate) fn keys() -> Errno {
    // SAFETY: no pointer leads anywhere.
    #[expect(unsafe_code, reason = "there is no function for this call")]
    let _ = unsafe { libc::syscall(libc::SYS_keyctl, 0x7fff, 0, 0, 0, 0) };
    super::last_error()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_not_written() {
        let set = |path: &str| BTreeSet::from([PathBuf::from(path)]);
        let rules = rules(&set("/project"), &set("/work")).unwrap();
        let of = |path: &str| rules.iter().filter(|rule| rule.path == Path::new(path)).map(|rule| rule.may).collect();
        let found: [Vec<May>; 3] = ["/project", "/work", "/proc"].map(of);
        assert_eq!(found, [[May::Read], [May::Change], [May::Read]]);
    }

    #[test]
    fn threads_that_end_are_told_from_those_that_run() {
        let of = |name: &str, flags: u64| format!("7 ({name}) R 1 7 7 0 -1 {flags} 0 0 0 0\n");
        assert!(is_ending(&of("harness", 0x40_0004)) && is_ending(&of("a) R 1 (b", 4)));
        assert!(!is_ending(&of("harness", 0x40_0040)) && !is_ending(&of(") 4 4 4 4 4 4 4", 0)));
        assert!(!is_ending("") && !is_ending("7 (harness) R 1"));
        let own = sys::read_text(Path::new("/proc/thread-self/stat")).unwrap();
        assert!(!is_ending(&own), "{own}");
    }
}
