//! New processes that share the host's memory until they are programs of their own.
//!
//! A fork copies what the kernel knows of all the memory of a process, and a host has much: the pools of its instances.
//! That cost milliseconds for each of the processes that a command needs. So they run on the host's own memory, on a
//! stack of their own, as `posix_spawn` of the C library does it: signals are blocked, the thread that makes them
//! waits, and what it lent them stays as it is until it continues.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::os::fd::{FromRawFd as _, OwnedFd};

use rustix::io::Errno;

/// Bytes of a stack. What runs there is not deep, and a page that is not touched is not there.
const STACK: usize = 256 << 10;
/// What lies below it: who goes further ends.
const GUARD: usize = 64 << 10;

/// A stack for one process.
#[derive(Debug)]
pub(super) struct Stack(*mut c_void);

impl Stack {
    pub(super) fn new() -> Result<Self, Errno> {
        let (flags, none) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK, std::ptr::null_mut());
        // SAFETY: new memory, wherever there is room.
        #[expect(unsafe_code, reason = "memory that is not the allocator's, with a guard")]
        let memory = unsafe { libc::mmap(none, GUARD + STACK, libc::PROT_NONE, flags, -1, 0) };
        if memory == libc::MAP_FAILED {
            return Err(super::last_error());
        }
        let stack = Self(memory);
        // SAFETY: the memory is its own, and as large.
        #[expect(unsafe_code, reason = "as above")]
        let done = unsafe { libc::mprotect(memory.byte_add(GUARD), STACK, libc::PROT_READ | libc::PROT_WRITE) };
        if done == 0 { Ok(stack) } else { Err(super::last_error()) }
    }

    /// Stacks grow down.
    fn top(&self) -> *mut c_void {
        self.0.wrapping_byte_add(GUARD + STACK)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: it is its own memory, and nobody runs on it: whoever made a process on it keeps it until then.
        #[expect(unsafe_code, reason = "as for making it")]
        unsafe {
            libc::munmap(self.0, GUARD + STACK);
        }
    }
}

/// What a new process does. It ends with the code that this gives.
///
/// # Safety
///
/// `run` works in a process that may share the memory of a host with many threads. It
/// - makes system calls alone: it allocates nothing and takes no lock, as another thread may hold any, also none that the
///   C library takes; it does not panic or unwind;
/// - writes to no memory but its own stack, and the error number of the thread that made the process;
/// - closes no file in the host's table, and drops nothing that owns one that the host has: the process has a table of its
///   own, with the same numbers.
#[expect(unsafe_code, reason = "what runs on shared memory has rules that no type holds it to")]
pub(super) unsafe trait Work {
    /// # Safety
    ///
    /// The calling process was made by [`child`] or [`child_with_handle`] for this alone.
    unsafe fn run(&self) -> c_int;
}

/// A child process that does a piece of work on a stack, with a table of files of its own. With `CLONE_VM` in `flags` it
/// has this process's memory.
///
/// # Errors
///
/// Those of the system.
///
/// # Safety
///
/// - No other process runs on the stack.
/// - With `CLONE_VM`, the stack, the work and all that it refers to stay as they are until the process is a program of its
///   own or has ended.
/// - With `CLONE_VM` and without `CLONE_VFORK`, nobody relies on the error number of the C library in this thread until
///   then: both processes have the same one.
/// - With `CLONE_VM`, no handler of the host's runs in the process: signals are [blocked](Quiet), or have
///   [no handlers](plain_signals).
/// - `flags` are `CLONE_VM`, `CLONE_VFORK` and namespaces.
#[expect(unsafe_code, reason = "the kernel takes a stack and a pointer, and knows nothing of their owners")]
pub(super) unsafe fn child<W: Work>(stack: &Stack, work: &W, flags: c_int) -> Result<i32, Errno> {
    // SAFETY: the caller's; without its flag, the place of the handle is not looked at.
    unsafe { clone(stack, work, flags, std::ptr::null_mut()) }
}

/// The same with a handle of the process.
///
/// # Errors
///
/// As above.
///
/// # Safety
///
/// As above.
#[expect(unsafe_code, reason = "as above")]
pub(super) unsafe fn child_with_handle<W: Work>(stack: &Stack, work: &W, flags: c_int) -> Result<OwnedFd, Errno> {
    let mut handle: c_int = -1;
    // SAFETY: the caller's; the place of the handle is there until this returns.
    unsafe { clone(stack, work, flags | libc::CLONE_PIDFD, &raw mut handle)? };
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(handle) })
}

/// # Safety
///
/// As for [`child`]; and with `CLONE_PIDFD` the kernel may write a number to `handle`.
#[expect(unsafe_code, reason = "there is no function that shares memory and makes namespaces")]
unsafe fn clone<W: Work>(stack: &Stack, work: &W, flags: c_int, handle: *mut c_int) -> Result<i32, Errno> {
    extern "C" fn begin<W: Work>(work: *mut c_void) -> c_int {
        // SAFETY: it is the reference that was given below, and the caller keeps it; this process was made for it.
        unsafe { (*work.cast::<W>()).run() }
    }
    let given = std::ptr::from_ref(work).cast_mut().cast::<c_void>();
    // SAFETY: the stack is as large as such a stack has to be, and nobody else's; the rest is the caller's.
    let pid = unsafe { libc::clone(begin::<W>, stack.top(), flags | libc::SIGCHLD, given, handle) };
    if pid > 0 { Ok(pid) } else { Err(super::last_error()) }
}

/// All signals of this thread are blocked while this is there: handlers of the host must not run in a process that only
/// shares its memory.
pub(super) struct Quiet {
    before: libc::sigset_t,
    /// It is of this thread.
    _thread: PhantomData<*const ()>,
}

impl std::fmt::Debug for Quiet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Quiet")
    }
}

impl Quiet {
    pub(super) fn new() -> Self {
        // SAFETY: both sets are made before they are used.
        #[expect(unsafe_code, reason = "there is no function for this call")]
        let before = unsafe {
            let mut all = std::mem::zeroed();
            let mut before = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
            before
        };
        Self { before, _thread: PhantomData }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // SAFETY: the set is the one that there was.
        #[expect(unsafe_code, reason = "as above")]
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut());
        }
    }
}

/// What a program expects of signals when it begins: none is blocked, and none has a handler. What the host ignores stays
/// ignored, but for a pipe that nobody reads and a child that ends.
///
/// # Safety
///
/// The calling process has a table of handlers of its own, as each that [`child`] makes has, and needs none of them.
#[expect(unsafe_code, reason = "the host's own handlers are part of what makes it safe")]
pub(super) unsafe fn plain_signals() {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: the action is filled in before it is checked, and the caller needs no handler.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &raw mut action) != 0 {
                continue;
            }
            let ignored = action.sa_sigaction == libc::SIG_IGN && !matches!(signal, libc::SIGPIPE | libc::SIGCHLD);
            if action.sa_sigaction != libc::SIG_DFL && !ignored {
                action = std::mem::zeroed();
                action.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &raw const action, std::ptr::null_mut());
            }
        }
    }
}

/// Nothing is blocked from here on.
///
/// # Safety
///
/// No handler of the host's is in force in the calling process, if it has the host's memory: [`plain_signals`] was called
/// in it or in the process that made it.
#[expect(unsafe_code, reason = "a handler may run from here on")]
pub(super) unsafe fn unblock_signals() {
    // SAFETY: the set is made before it is used, and no handler runs.
    unsafe {
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}
