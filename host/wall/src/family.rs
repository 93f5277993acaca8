//! The processes that a command is made of, from their beginning to the moment in which it runs.
//!
//! A command could leave its group and continue in the background, and a host that is killed can kill nobody. So
//! between the host and a command stands a *keeper*: a program of its own (`host/keeper`) that holds nothing of the
//! host's, and waits for two things, the end of the command and the end of a pipe that only the host holds open.
//! Whatever ends the host closes the pipe. A byte in it has the keeper send SIGTERM. (The kernel's own signal for this is
//! bound to the thread that made a process, and a runtime's threads come and go.)
//!
//! With namespaces, the keeper is the first process of the command's own; when it ends, the kernel ends all the others,
//! and only then is it over. Without, the keeper is given every process that loses its parent, and kills until none is
//! left.
//!
//! All of this runs in processes that [share the host's memory](super::launch): system calls alone, and nothing is
//! allocated. The command waits for the keeper: what shares the host's memory is never beside a program of a third
//! party's.

use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{
    DumpableBehavior, WaitId, WaitIdOptions, dumpable_behavior, set_child_subreaper, set_dumpable_behavior, setpgid,
    setsid, waitid,
};

use super::launch::{self, Quiet, Stack, Work};
use super::network::{self, Network};
use super::reach::Identity;
use super::view::Plan;
use super::{Confinement, Step, keeper};

/// How the processes of a command are held together.
#[derive(Debug)]
pub(super) enum Bond {
    /// In namespaces of their own, with files of their own.
    Namespaces {
        /// Where the host may not make namespaces: what a user namespace learns of this user.
        user: Option<UserMap>,
        network: Network,
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

    /// Reports the namespace of the calling process, whose memory is its own where it may not be looked into.
    fn tell(&self, own_memory: bool) -> Result<(), Errno> {
        // Who may not be looked into may not report itself either.
        if own_memory {
            set_dumpable_behavior(DumpableBehavior::Dumpable)?;
        }
        write(c"/proc/self/setgroups", b"deny")?;
        write(c"/proc/self/uid_map", self.uid.as_bytes())?;
        write(c"/proc/self/gid_map", self.gid.as_bytes())?;
        if own_memory { set_dumpable_behavior(DumpableBehavior::NotDumpable) } else { Ok(()) }
    }
}

/// Everything that a command's processes need, made before they are.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) bond: Bond,
    pub(super) confinement: Confinement,
    /// Where a process writes `0` to be in a control group.
    pub(super) doors: Vec<OwnedFd>,
}

/// A program, as the system takes it.
#[derive(Debug)]
pub(super) struct Program<'a> {
    pub(super) path: CString,
    pub args: Vec<CString>,
    pub(super) env: Vec<CString>,
    /// Its three streams, none of them one of the host's own three.
    pub(super) streams: [OwnedFd; 3],
    /// The folder to start in, where there is no view.
    pub(super) folder: BorrowedFd<'a>,
}

/// A command that runs, or has run.
#[derive(Debug)]
pub(super) struct Begun {
    /// The keeper, which ends after all that came of the command.
    pub(super) keeper: OwnedFd,
    /// When this is closed, all is over.
    lifeline: Option<OwnedFd>,
    /// Where the keeper shows the command's code. Not to be waited for: nothing is reported where it was killed.
    ending: OwnedFd,
    /// The sockets that listen in the command's own network.
    pub(super) listeners: Vec<OwnedFd>,
}

impl Begun {
    /// Has the keeper send SIGTERM to all of it. One that has ended reads nothing any more.
    pub(super) fn terminate(&self) {
        if let Some(lifeline) = &self.lifeline {
            let _ = rustix::io::write(lifeline, &[1]);
        }
    }

    /// Ends all of it.
    pub(super) fn end(&mut self) {
        self.lifeline = None;
    }

    /// Ends all of it, waits for that, and leaves nothing to be reaped. Gives what [`code`] gives.
    pub(super) fn finish(self) -> Option<i32> {
        let Self { keeper, lifeline, ending, listeners } = self;
        drop(listeners);
        drop(lifeline);
        reap(&keeper);
        code(&ending)
    }
}

/// The code of a command whose keeper has ended; none where a signal ended it.
fn code(ending: &OwnedFd) -> Option<i32> {
    let mut code = [0; size_of::<i32>()];
    let told = rustix::io::read(ending, &mut code).is_ok_and(|count| count == code.len());
    Some(i32::from_ne_bytes(code)).filter(|code| told && *code >= 0)
}

/// Waits for a keeper to end, and takes it away.
fn reap(keeper: &OwnedFd) {
    while matches!(waitid(WaitId::PidFd(keeper.as_fd()), WaitIdOptions::EXITED), Err(Errno::INTR)) {}
}

/// What failed of a start. No step: the program itself.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) step: Option<Step>,
    pub(super) error: io::Error,
}

impl From<Errno> for Failed {
    fn from(error: Errno) -> Self {
        Self { step: Some(Step::Session), error: error.into() }
    }
}

type Done = Result<(), (Step, Errno)>;

fn at(step: Step) -> impl FnOnce(Errno) -> (Step, Errno) {
    move |error| (step, error)
}

impl Family {
    /// Makes the processes, and returns when the program runs. Without a program the command's process ends where it
    /// would have begun, with 0.
    ///
    /// # Errors
    ///
    /// What failed; nothing is left of the processes then.
    pub(super) fn start(&self, program: Option<&Program<'_>>) -> Result<Begun, Failed> {
        let runs = keeper::program().map_err(|error| Failed { step: Some(Step::Keeper), error })?;
        let (lifeline_in, lifeline) = pipe()?;
        let (ending, ending_in) = pipe()?;
        let (gate, opens_gate) = pipe()?;
        let (told, report) = pipe()?;
        rustix::io::ioctl_fionbio(&ending, true)?;
        let (listeners, hands_over) = if self.listens() > 0 {
            let (host, keeper) = network::pair()?;
            (Some(host), Some(keeper))
        } else {
            (None, None)
        };
        let pointers = program.map(Pointers::of);
        let own_memory = self.needs_memory_of_its_own();
        let making = Making {
            family: self,
            own_memory,
            keeper: runs,
            program: program.zip(pointers.as_ref()),
            stack: Stack::new()?,
            gate,
            opens_gate,
            lifeline: lifeline_in,
            ending: ending_in,
            report,
            hands_over,
        };
        let stack = Stack::new()?;
        let shared = if own_memory { 0 } else { libc::CLONE_VM | libc::CLONE_VFORK };
        let keeper = {
            let _quiet = Quiet::new();
            // SAFETY: the stack is new, and the flags are namespaces and those for memory. Where that is shared, this thread
            // waits until the keeper is a program of its own or has ended, and then, below, until the command is one too:
            // `making` and both stacks stay, but for the host's ends of pipes, which are not theirs. Until then it asks for
            // no error number of the C library, and no call of it here fails: pipes are read by rustix, without it. The
            // keeper is delivered no signal until it has no handlers.
            #[expect(unsafe_code, reason = "processes that share memory with this one")]
            unsafe {
                launch::child_with_handle(&stack, &Keeper(&making), self.namespaces() | shared)
            }
        };
        let keeper = keeper.map_err(|error| Failed { step: Some(Step::Namespaces), error: error.into() })?;
        let mut begun = Begun { keeper, lifeline: Some(lifeline), ending, listeners: Vec::new() };
        let Making { report, gate, opens_gate, hands_over, stack: second, .. } = making;
        // Nobody else is to hold the other ends.
        drop((report, gate, opens_gate, hands_over));
        // The end comes when both processes are programs of their own: what they were lent may go then.
        let mut said = Vec::new();
        let mut buffer = [0; 16];
        loop {
            match rustix::io::read(&told, &mut buffer) {
                Ok(0) => break,
                Ok(count) => said.extend(buffer.iter().take(count)),
                Err(Errno::INTR) => {}
                Err(error) => {
                    // Not to be known; they have to have ended before anything is taken from them.
                    begun.finish();
                    return Err(error.into());
                }
            }
        }
        drop((second, stack));
        if let Some((step, error)) = read_report(&said) {
            begun.finish();
            return Err(Failed { step, error });
        }
        let handed = listeners.map_or(Ok(Vec::new()), |listeners| network::receive(&listeners, self.listens()));
        match handed {
            Ok(listeners) => {
                begun.listeners = listeners;
                Ok(begun)
            }
            Err(error) => {
                begun.finish();
                Err(Failed { step: Some(Step::Network), error: error.into() })
            }
        }
    }

    /// The processes of a user namespace are reported through files that are not theirs where the host may not be
    /// looked into. What is shared is not changed: these are forks.
    fn needs_memory_of_its_own(&self) -> bool {
        matches!(&self.bond, Bond::Namespaces { user: Some(_), .. })
            && !matches!(dumpable_behavior(), Ok(DumpableBehavior::Dumpable))
    }

    fn namespaces(&self) -> c_int {
        match &self.bond {
            Bond::Children => 0,
            Bond::Namespaces { user, network, .. } => {
                let spaces = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC;
                let spaces = if user.is_some() { spaces | libc::CLONE_NEWUSER } else { spaces };
                if network.is_new() { spaces | libc::CLONE_NEWNET } else { spaces }
            }
        }
    }

    /// How many sockets listen in the command's own network.
    fn listens(&self) -> usize {
        match &self.bond {
            Bond::Namespaces { network: Network::Local(addresses), .. } => addresses.len(),
            Bond::Namespaces { .. } | Bond::Children => 0,
        }
    }
}

/// A step, or 0 for the program, and the number of the error.
fn read_report(said: &[u8]) -> Option<(Option<Step>, io::Error)> {
    let (step, error) = (said.first()?, said.get(1..5)?);
    let error = i32::from_ne_bytes(error.try_into().ok()?);
    Some((Step::ALL.into_iter().find(|known| *known as u8 == *step), io::Error::from_raw_os_error(error)))
}

/// What the processes are lent until they are programs of their own.
struct Making<'a> {
    family: &'a Family,
    own_memory: bool,
    keeper: BorrowedFd<'a>,
    program: Option<(&'a Program<'a>, &'a Pointers<'a>)>,
    /// For the command's process.
    stack: Stack,
    /// The command continues when a byte comes, and ends when none will.
    gate: OwnedFd,
    opens_gate: OwnedFd,
    lifeline: OwnedFd,
    ending: OwnedFd,
    report: OwnedFd,
    /// Where sockets of the command's own network are handed to the host.
    hands_over: Option<OwnedFd>,
}

impl Making<'_> {
    fn tell(&self, step: u8, error: Errno) -> c_int {
        let mut said = [step, 0, 0, 0, 0];
        for (place, byte) in said.iter_mut().skip(1).zip(error.raw_os_error().to_ne_bytes()) {
            *place = byte;
        }
        let _ = rustix::io::write(&self.report, &said);
        1
    }
}

/// The process that becomes the keeper.
struct Keeper<'a>(&'a Making<'a>);

// SAFETY: it makes system calls alone, by rustix and by functions of the C library that are nothing else, on texts that
// were made before, and writes to its stack alone. It owns no file but those that it opens itself.
#[expect(unsafe_code, reason = "it runs on the host's memory")]
unsafe impl Work for Keeper<'_> {
    unsafe fn run(&self) -> c_int {
        // SAFETY: as for this function.
        let Err((step, error)) = unsafe { self.make() };
        self.0.tell(step as u8, error)
    }
}

/// Gives the new session less of the processor than the host has, where the kernel divides it by sessions: with equal
/// shares, calls would wait behind as many sessions as there are commands. Only root may say so as often as commands
/// start; where it cannot be said, the shares are equal.
fn step_back() {
    /// As for `nice`: about a tenth of what another session has.
    const NICE: &[u8] = b"10";
    let group = rustix::fs::open(c"/proc/self/autogroup", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
    let _ = group.map(|group| rustix::io::write(group, NICE));
}

impl Keeper<'_> {
    /// Becomes the keeper, or says what failed.
    ///
    /// # Safety
    ///
    /// As for [`Work::run`].
    #[expect(unsafe_code, reason = "it changes the process that it runs in")]
    unsafe fn make(&self) -> Result<std::convert::Infallible, (Step, Errno)> {
        let Self(making) = self;
        let Making { family, own_memory, keeper, stack, opens_gate, lifeline, ending, hands_over, .. } = making;
        // Nobody's terminal is theirs.
        setsid().map_err(at(Step::Session))?;
        step_back();
        for door in &family.doors {
            rustix::io::write(door, b"0").map_err(at(Step::Processes))?;
        }
        let kind = match &family.bond {
            Bond::Namespaces { user, network, view, folder, identity } => {
                if let Some(user) = user {
                    user.tell(*own_memory).map_err(at(Step::UserNamespace))?;
                }
                // The group that it is in now is the top of what is seen.
                // SAFETY: the flag takes nothing apart but what is seen of control groups.
                unsafe { unshare(libc::CLONE_NEWCGROUP) }.map_err(at(Step::Namespaces))?;
                network.enter(hands_over.as_ref().map(OwnedFd::as_fd)).map_err(at(Step::Network))?;
                view.build().map_err(at(Step::View))?;
                go_to(folder, *identity).map_err(at(Step::Folder))?;
                b'n'
            }
            Bond::Children => {
                set_child_subreaper(Some(rustix::process::getpid())).map_err(at(Step::Session))?;
                b'c'
            }
        };
        // Where the host ignores it, nothing would report a child that ends.
        // SAFETY: this process has handlers of its own, and handles no signal.
        unsafe { launch::plain_signals() };
        // SAFETY: the host made this stack for this one process, and keeps it and all that the process works on until that
        // is a program of its own or has ended: it waits for the end of `report`. There are no handlers any more. No call of
        // that process sets an error number before the gate opens, and then this one is a program of its own.
        let command = unsafe { launch::child(stack, *making, libc::CLONE_VM) }.map_err(at(Step::Namespaces))?;
        for (file, number) in [lifeline, ending, opens_gate].into_iter().zip(0..) {
            // SAFETY: the three streams of this process are nobody's: it was made for this.
            unsafe { put(file, number) }.map_err(at(Step::Keeper))?;
        }
        close_on_exec().map_err(at(Step::Keeper))?;
        Err((Step::Keeper, become_keeper(*keeper, kind, command)))
    }
}

/// The process that becomes the command. What it works on is the host's: the keeper's stack is not there any more when
/// the gate opens.
// SAFETY: as for the keeper. The one file that it closes is in its own table.
#[expect(unsafe_code, reason = "it runs on the host's memory")]
unsafe impl Work for Making<'_> {
    unsafe fn run(&self) -> c_int {
        // SAFETY: of this process's own table, in which nothing uses it: another process opens the gate.
        unsafe { close(&self.opens_gate) };
        let mut byte = [0];
        loop {
            match rustix::io::read(&self.gate, &mut byte) {
                Ok(1) => break,
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) => return 1,
            }
        }
        // SAFETY: as for this function.
        if let Err((step, error)) = unsafe { self.raise() } {
            return self.tell(step as u8, error);
        }
        let Some((_, pointers)) = &self.program else { return 0 };
        self.tell(0, execute(pointers))
    }
}

impl Making<'_> {
    /// All that the command's process is held to.
    ///
    /// # Safety
    ///
    /// As for [`Work::run`].
    #[expect(unsafe_code, reason = "it changes the process that it runs in")]
    unsafe fn raise(&self) -> Done {
        let Self { family, program, .. } = self;
        // A group of its own in the keeper's session.
        setpgid(None, None).map_err(at(Step::Session))?;
        if let Some((program, _)) = program {
            if matches!(family.bond, Bond::Children) {
                rustix::process::fchdir(program.folder).map_err(at(Step::Folder))?;
            }
            for (file, number) in program.streams.iter().zip(0..) {
                // SAFETY: the three streams of this process are nobody's: it was made for this.
                unsafe { put(file, number) }.map_err(at(Step::Session))?;
            }
        }
        // Neither files that an embedder opened without care nor those of this module are the command's.
        close_on_exec().map_err(at(Step::Session))?;
        family.confinement.raise()?;
        // SAFETY: the keeper's process, which made this one, has taken all handlers away.
        unsafe { launch::unblock_signals() };
        Ok(())
    }
}

/// A [`Program`] as the system takes it. Each pointer leads into that.
struct Pointers<'a> {
    path: &'a CStr,
    args: Vec<*const c_char>,
    env: Vec<*const c_char>,
}

impl<'a> Pointers<'a> {
    fn of(program: &'a Program<'_>) -> Self {
        let list = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect();
        Self { path: &program.path, args: list(&program.args), env: list(&program.env) }
    }
}

/// Becomes a program. Returns where that failed.
fn execute(program: &Pointers<'_>) -> Errno {
    // SAFETY: all texts end with a NUL and are borrowed, and both lists end with a null.
    #[expect(unsafe_code, reason = "there is no function that allocates nothing")]
    unsafe {
        // This one runs a file that says nothing of its kind with the shell, as shells do.
        libc::execvpe(program.path.as_ptr(), program.args.as_ptr(), program.env.as_ptr());
    }
    super::last_error()
}

/// Becomes the keeper of a process. Returns where that failed.
fn become_keeper(keeper: BorrowedFd<'_>, kind: u8, command: i32) -> Errno {
    let kind = [kind, 0];
    let mut text = [0_u8; 12];
    let mut rest = command.unsigned_abs();
    // From the end, where a NUL stays.
    for place in text.iter_mut().rev().skip(1) {
        *place = b'0' + u8::try_from(rest % 10).unwrap_or_default();
        rest /= 10;
    }
    let args = [c"keeper".as_ptr(), kind.as_ptr().cast(), text.as_ptr().cast(), std::ptr::null()];
    let env = [std::ptr::null::<c_char>()];
    // SAFETY: all texts end with a NUL, and both lists with a null.
    #[expect(unsafe_code, reason = "there is no function for this call")]
    unsafe {
        let (empty, flags) = (c"".as_ptr(), libc::AT_EMPTY_PATH);
        libc::syscall(libc::SYS_execveat, keeper.as_raw_fd(), empty, args.as_ptr(), env.as_ptr(), flags);
    }
    super::last_error()
}

/// A pipe, of which neither end is one of the three streams.
fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    let (from, to) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    Ok((above_streams(from)?, above_streams(to)?))
}

/// A file that is not one of the three streams: a host may have begun without them.
pub fn above_streams(file: OwnedFd) -> Result<OwnedFd, Errno> {
    if file.as_raw_fd() > 2 { Ok(file) } else { rustix::io::fcntl_dupfd_cloexec(file, 3) }
}

/// Opens a file of this process under the number of a stream.
///
/// # Safety
///
/// Nothing in this process owns or uses a file of that number, in its own table of files.
#[expect(unsafe_code, reason = "the function for it owns what it changes")]
unsafe fn put(file: &OwnedFd, number: RawFd) -> Result<(), Errno> {
    // SAFETY: it takes two numbers; the rest is the caller's.
    let done = unsafe { libc::dup2(file.as_raw_fd(), number) };
    if done == number { Ok(()) } else { Err(super::last_error()) }
}

/// Closes a file of the calling process.
///
/// # Safety
///
/// The process has a table of files of its own, and nothing uses this one of it afterwards. The owner is in memory that is
/// shared, and keeps the one of the host's table.
#[expect(unsafe_code, reason = "the owner is another process's")]
unsafe fn close(file: &OwnedFd) {
    // SAFETY: the caller's.
    unsafe {
        libc::close(file.as_raw_fd());
    }
}

/// Gives the calling thread namespaces of its own.
///
/// # Errors
///
/// Those of the system.
///
/// # Safety
///
/// The flags are those of namespaces. With `CLONE_FILES`, what holds a file by its number would hold another one.
#[expect(unsafe_code, reason = "as the function of rustix, which has no flag of its own for control groups")]
pub(super) unsafe fn unshare(flags: c_int) -> Result<(), Errno> {
    // SAFETY: it takes a number; the rest is the caller's.
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

/// Has all files but the three streams closed when the process becomes a program.
fn close_on_exec() -> Result<(), Errno> {
    let (first, last) = (3_u32, RawFd::MAX.cast_unsigned());
    // SAFETY: it takes numbers. With this flag it closes nothing while anything here runs.
    #[expect(unsafe_code, reason = "there is no function for this call")]
    let done = unsafe { libc::syscall(libc::SYS_close_range, first, last, libc::CLOSE_RANGE_CLOEXEC) };
    if done == 0 { Ok(()) } else { Err(super::last_error()) }
}
