//! One command, from its start to the end of all its processes.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use cap_std::fs::Dir;
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use super::wall::{Held, Removed, Wall};

/// What a child is started with; all of it is decided already.
#[derive(Debug)]
pub(super) struct Start<'a> {
    /// Absolute.
    pub(super) program: PathBuf,
    /// As the script named it: what the program sees as its own name.
    pub(super) name: &'a str,
    pub(super) args: &'a [String],
    /// All variables; there are no others.
    pub(super) env: BTreeMap<String, String>,
    /// Folder to start in.
    pub(super) dir: &'a Dir,
    /// Whether there is something for standard input.
    pub(super) stdin: bool,
    /// What the kernel holds it to.
    pub(super) wall: Wall,
}

/// Prepares a command. This is the one place where it is made what it is: whatever confines it belongs here.
///
/// What it has: exactly the given variables, three pipes (or an empty standard input), and what its [`Wall`] makes around
/// it. The folder is reached through its open handle, so that a link put in its place after the check changes nothing.
fn prepare(start: Start<'_>) -> (Command, Held, Removed) {
    let mut command = Command::new(&start.program);
    command
        .arg0(start.name)
        .args(start.args)
        .env_clear()
        .envs(&start.env)
        .current_dir(Path::new("/proc/self/fd").join(start.dir.as_raw_fd().to_string()))
        .stdin(if start.stdin { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let Wall { family, held, removed, .. } = start.wall;
    // SAFETY: between fork and exec it makes system calls only: it allocates nothing and takes no lock.
    #[expect(unsafe_code, reason = "the one way to have something done between fork and exec")]
    unsafe {
        command.pre_exec(move || family.enter());
    }
    (command, held, removed)
}

/// A command with all its processes. Dropping it ends them; the runtime reaps the one that it started.
#[derive(Debug)]
pub(super) struct Running {
    held: Held,
    /// Done when the command and all that came of it has ended.
    ended: JoinHandle<()>,
    /// For its pipes. The process is the command's keeper, and ends as the command does.
    pub(super) child: Child,
}

impl Running {
    /// Starts a command.
    ///
    /// # Errors
    ///
    /// The system's, with what could not be done.
    pub(super) fn start(start: Start<'_>) -> Result<Self, String> {
        let (mut command, held, removed) = prepare(start);
        let child = command.spawn().map_err(|error| match held.failed() {
            Some(step) => format!("it cannot be confined: {step}: {error}"),
            None => error.to_string(),
        })?;
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let ended = tokio::task::spawn_blocking(move || {
            wait_without_reaping(pid);
            drop(removed);
        });
        Ok(Self { held, ended, child })
    }

    /// Waits for the command to end, and for all its processes, which end with it. Only to be awaited to its end once.
    pub(super) async fn ended(&mut self) {
        let _ = (&mut self.ended).await;
    }

    /// Ends all of its processes. Somebody has to wait for it.
    pub(super) fn end(&mut self) {
        self.held.end();
    }

    /// Ends what is left and reaps the child. `None` where it does not end, which only a broken disk or driver does.
    pub(super) async fn reap(mut self) -> Option<ExitStatus> {
        self.held.end();
        tokio::time::timeout(Duration::from_secs(1), self.child.wait()).await.ok()?.ok()
    }
}

/// Returns when the child has ended and leaves it to be reaped, with its status, by the runtime.
fn wait_without_reaping(pid: Option<Pid>) {
    if let Some(pid) = pid {
        while matches!(waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT), Err(Errno::INTR)) {}
    }
}
