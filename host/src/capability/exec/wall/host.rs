//! The host's own confinement, with the parts that commands are held by.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::filters::Filters;
use super::landlock::{self, May, Rule, Rules};
use super::system::System;
use crate::confine::Programs;

/// Holds this thread, and all that come of it, to the machine's own folders and these.
///
/// # Errors
///
/// What could not be done.
pub(crate) fn hold_files(read: &BTreeSet<PathBuf>, write: &BTreeSet<PathBuf>) -> Result<(), String> {
    let mut rules = landlock::of_system(System::get()?, &[]);
    let rule = |path: &PathBuf, may| Rule { path: path.clone(), may };
    rules.extend(read.iter().map(|path| rule(path, May::Read)));
    rules.extend(write.iter().map(|path| rule(path, May::Change)));
    rules.push(Rule { path: "/proc".into(), may: May::Read });
    // A terminal that is asked for by its name.
    rules.push(Rule { path: "/dev/tty".into(), may: May::Use });
    let rules = Rules::new(&rules, false)?;
    rustix::thread::set_no_new_privs(true).map_err(|error| std::io::Error::from(error).to_string())?;
    rules.enforce().map_err(|error| format!("Landlock: {}", std::io::Error::from(error)))
}

/// Takes system calls from all threads of this process.
///
/// # Errors
///
/// What could not be done.
pub(crate) fn hold_calls(programs: Programs) -> Result<(), String> {
    Filters::of_host(programs)?.apply_to_all_threads()
}

/// A child that ends at once, with these namespaces: whether one can be made.
#[cfg(test)]
pub(crate) fn ends(namespaces: i32) -> Result<(), rustix::io::Errno> {
    use super::launch::{Stack, Work, child};
    struct Nothing;
    impl Work for Nothing {
        fn run(&self) -> i32 {
            0
        }
    }
    let pid = rustix::process::Pid::from_raw(child(&Stack::new()?, &Nothing, namespaces)?);
    rustix::process::waitpid(pid, rustix::process::WaitOptions::empty()).map(drop)
}

/// What the kernel says to a request for a key that is not there.
#[cfg(test)]
pub(crate) fn keys() -> rustix::io::Errno {
    // SAFETY: no pointer leads anywhere.
    #[expect(unsafe_code, reason = "there is no function for this call")]
    let _ = unsafe { libc::syscall(libc::SYS_keyctl, 0x7fff, 0, 0, 0, 0) };
    super::last_error()
}
