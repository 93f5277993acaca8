//! One child process, from its start to the end of its group.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use cap_std::fs::Dir;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

use super::wall::Wall;

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
    /// What the kernel holds it to; nothing where the policy says that it is not confined.
    pub(super) wall: Option<Wall>,
}

/// Prepares a child. This is the one place where a child is made what it is: whatever confines it belongs here.
///
/// What it has: exactly the given variables, three pipes (or an empty standard input), and a process group of its own.
/// The folder is reached through its open handle, so that a link put in its place after the check changes nothing. All
/// files that the host opens are closed on exec. Around it is its [`Wall`].
fn prepare(start: &Start<'_>) -> Command {
    let mut command = Command::new(&start.program);
    command
        .arg0(start.name)
        .args(start.args)
        .env_clear()
        .envs(&start.env)
        .current_dir(Path::new("/proc/self/fd").join(start.dir.as_raw_fd().to_string()))
        .stdin(if start.stdin { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    if let Some(wall) = start.wall.clone() {
        // SAFETY: between fork and exec it makes system calls only: it allocates nothing and takes no lock.
        #[expect(unsafe_code, reason = "the one way to have something done between fork and exec")]
        unsafe {
            command.pre_exec(move || wall.raise());
        }
    }
    command
}

/// A child with its group. Dropping it kills the group, and then lets the runtime reap the child.
#[derive(Debug)]
pub(super) struct Running {
    // Dropped first: as long as the child is not reaped, its group's number cannot belong to anybody else.
    group: Group,
    /// Done when the child has ended.
    ended: JoinHandle<()>,
    /// For its pipes.
    pub(super) child: Child,
}

impl Running {
    /// Starts a child. Errors are the system's.
    pub(super) fn start(start: &Start<'_>) -> std::io::Result<Self> {
        let child = prepare(start).spawn()?;
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        Ok(Self { group: Group(pid), ended: tokio::task::spawn_blocking(move || wait_without_reaping(pid)), child })
    }

    /// Waits for the child to end; others of its group may go on. Only to be awaited to its end once.
    pub(super) async fn ended(&mut self) {
        let _ = (&mut self.ended).await;
    }

    /// Kills the child and all of its group.
    pub(super) fn kill(&self) {
        self.group.kill();
    }

    /// Kills what is left and reaps the child. `None` where it does not die, which only a broken disk or driver does.
    pub(super) async fn reap(mut self) -> Option<ExitStatus> {
        self.group.kill();
        let status = tokio::time::timeout(Duration::from_secs(1), self.child.wait()).await.ok()?.ok();
        self.group.0 = None;
        status
    }
}

/// Returns when the child has ended and leaves it to be reaped. The runtime's own wait would reap it, and the number of
/// its group would be free for others before the group is killed.
fn wait_without_reaping(pid: Option<Pid>) {
    if let Some(pid) = pid {
        while matches!(waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT), Err(Errno::INTR)) {}
    }
}

#[derive(Debug)]
struct Group(Option<Pid>);

impl Group {
    fn kill(&self) {
        if let Some(group) = self.0 {
            // Fails where nobody is left.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
