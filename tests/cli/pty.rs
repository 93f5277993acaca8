//! A terminal, and a person at it who reads before typing.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::project::Project;

/// Longer than anything here takes, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A person at a terminal on which the binary runs.
pub(crate) struct Person {
    terminal: File,
    child: Child,
    /// What stands on the terminal.
    pub(crate) seen: String,
    /// How much of it was looked for already.
    read: usize,
}

impl Person {
    /// Starts the binary with a terminal for all three streams.
    pub(crate) fn starts(project: &Project, arguments: &[&str]) -> Self {
        Self::with(project, arguments, &[])
    }

    /// The same with these variables.
    pub(crate) fn with(project: &Project, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::at(project.command(arguments).envs(variables.iter().copied()), None)
    }

    /// The same with standard error in a file.
    pub(crate) fn tells(project: &Project, arguments: &[&str], errors: &Path) -> Self {
        Self::at(&mut project.command(arguments), Some(File::create(errors).unwrap()))
    }

    fn at(command: &mut Command, errors: Option<File>) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let inside: OwnedFd = ioctl_tiocgptpeer(&terminal, OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        let stream = || Stdio::from(inside.try_clone().unwrap());
        command.env("TERM", "xterm-256color").env("NO_COLOR", "1");
        let child =
            command.stdin(stream()).stdout(stream()).stderr(errors.map_or_else(stream, Stdio::from)).spawn().unwrap();
        // What the command holds of the terminal would keep it open.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self { terminal: File::from(terminal), child, seen: String::new(), read: 0 }
    }

    /// Types, whatever is there.
    pub(crate) fn types(&mut self, text: &str) {
        self.terminal.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until this is there, behind what was waited for before.
    #[track_caller]
    pub(crate) fn sees(&mut self, part: &str) {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.seen.get(self.read..).unwrap().find(part) {
                self.read += at + part.len();
                return;
            }
            assert!(self.more(end), "waited for {part:?}, saw {:?}", self.seen);
        }
    }

    /// Makes the terminal this wide, and the binary see it.
    pub(crate) fn resizes(&mut self, columns: u16) {
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.terminal, size).unwrap();
        self.signals(Signal::WINCH);
    }

    /// Ctrl-C, as the terminal shows it to the binary.
    pub(crate) fn interrupts(&mut self) {
        self.signals(Signal::INT);
    }

    pub(crate) fn signals(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Whether the terminal shows what is typed, line by line, as it does for every program that says nothing else.
    pub(crate) fn is_shown_what_it_types(&self) -> bool {
        let modes = tcgetattr(&self.terminal).unwrap().local_modes;
        modes.contains(LocalModes::ECHO | LocalModes::ICANON)
    }

    /// The directory of the kernel that reports the binary.
    pub(crate) fn process(&self) -> PathBuf {
        format!("/proc/{}", self.child.id()).into()
    }

    /// Waits for the end. Gives back the exit code.
    #[track_caller]
    pub(crate) fn leaves(&mut self) -> i32 {
        let end = Instant::now() + PATIENCE;
        while self.more(end) {}
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap();
            }
            assert!(Instant::now() < end, "it does not end: {:?}", self.seen);
            std::thread::yield_now();
        }
    }

    /// Reads more. False: nothing more comes.
    fn more(&mut self, end: Instant) -> bool {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: i64::try_from(left.as_secs()).unwrap(), tv_nsec: 1 };
        if poll(&mut [PollFd::new(&self.terminal, PollFlags::IN)], Some(&timeout)).unwrap() == 0 {
            return false;
        }
        let mut bytes = [0; 4096];
        // When nobody has the other side open any more, reading fails.
        let Ok(count @ 1..) = self.terminal.read(&mut bytes) else { return false };
        self.seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
        true
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
