//! One command, from its start to the end of all its processes.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use cap_std::fs::Dir;
use rustix::fs::{Mode, OFlags};
use rustix::pipe::PipeFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe::{Receiver, Sender};

use harness_wall::{Held, Hit, Program, Wall, above_streams};

/// What a child is started with; all of it is decided already.
#[derive(Debug)]
pub(super) struct Start<'a> {
    /// Absolute.
    pub(super) program: &'a Path,
    /// As the script named it: what the program sees as its own name.
    pub(super) name: &'a str,
    pub(super) args: &'a [String],
    /// All variables; there are no others.
    pub(super) env: &'a BTreeMap<String, String>,
    /// Folder to start in.
    pub(super) dir: &'a Dir,
    /// Whether there is something for standard input.
    pub(super) stdin: bool,
    /// What the kernel holds it to.
    pub(super) wall: Wall,
}

/// The host's ends of a command's streams.
#[derive(Debug)]
pub(super) struct Pipes {
    pub(super) stdin: Option<Sender>,
    pub(super) stdout: Receiver,
    pub(super) stderr: Receiver,
}

/// A command with all its processes. Dropping it ends them.
#[derive(Debug)]
pub(super) struct Running {
    held: Held,
    ended: AsyncFd<OwnedFd>,
}

impl Running {
    /// Starts a command. In a runtime with I/O.
    ///
    /// What it has: exactly the given variables, three pipes (or an empty standard input), and what its [`Wall`] makes
    /// around it. The folder is reached through its open handle, so that a link put in its place after the check changes
    /// nothing.
    ///
    /// # Errors
    ///
    /// The system's, with what could not be done.
    pub(super) fn start(start: Start<'_>) -> Result<(Self, Pipes), String> {
        let Start { program: path, name, args, env, dir: folder, stdin, wall } = start;
        let failed = |error: io::Error| error.to_string();
        let (theirs, pipes) = streams(stdin).map_err(failed)?;
        let held = wall.start(Program { path, name, args, env, folder, streams: theirs })?;
        let handle = held.handle().map_err(failed)?;
        // SAFETY: it owns the handle, and always gives the same number.
        #[expect(unsafe_code, reason = "there is no other function for it")]
        let ended = unsafe { AsyncFd::register_with_interest(handle, Interest::READABLE) };
        let ended = ended.map_err(|error| failed(error.into()))?;
        Ok((Self { held, ended }, pipes))
    }

    /// The sockets that listen in the command's own network. Once.
    pub(super) fn listeners(&mut self) -> Vec<OwnedFd> {
        self.held.listeners()
    }

    /// Waits for the command to end, and for all its processes, which end with it.
    pub(super) async fn ended(&self) {
        // A handle that cannot be waited for shows nothing: what has a deadline ends by that.
        if self.ended.readable().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Asks all its processes to end, by SIGTERM.
    pub(super) fn terminate(&self) {
        self.held.terminate();
    }

    /// Ends what is left of it and reaps it; gives the command's code, and what it ran into. No code where a signal ended it,
    /// and where it does not end, which only a broken disk or driver does.
    pub(super) async fn finish(self) -> (Option<i32>, Hit) {
        let Self { held, ended } = self;
        let over = held.end();
        if tokio::time::timeout(Duration::from_secs(1), ended.readable()).await.is_err() {
            return (None, Hit::default());
        }
        drop(ended);
        over.finish().await
    }
}

/// The command's ends of its streams, and the host's.
fn streams(stdin: bool) -> io::Result<([OwnedFd; 3], Pipes)> {
    let pipe = || {
        let (from, to) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        io::Result::Ok((above_streams(from)?, above_streams(to)?))
    };
    let (input, feed) = if stdin {
        let (input, feed) = pipe()?;
        (input, Some(Sender::from_owned_fd(feed)?))
    } else {
        let nothing = rustix::fs::open(c"/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        (above_streams(nothing)?, None)
    };
    let (stdout, output) = pipe()?;
    let (stderr, errors) = pipe()?;
    let (stdout, stderr) = (Receiver::from_owned_fd(stdout)?, Receiver::from_owned_fd(stderr)?);
    Ok(([input, output, errors], Pipes { stdin: feed, stdout, stderr }))
}
