//! The program that stands between the host and a command: it ends what is left of the command when the command has
//! ended, and when the host has.
//!
//! It is a program of its own, of a few kilobytes, so that it holds nothing of the host's memory and costs next to
//! nothing to start; the build script compiles it, and the host runs it from memory. It makes system calls and nothing
//! else: there is no library in it.
//!
//! Its streams are the host's:
//! - 0: closed at the other end when all is to be over. A byte before that asks the command to end, by SIGTERM.
//! - 1: where the code of the command goes, in four bytes; -1 where a signal ended it.
//! - 2: a byte goes there as soon as it stands. The command does not begin before.
//!
//! Its arguments: `n` where it is the first process of a namespace, which the kernel empties when it ends, or `c` where it
//! is given every process that loses its parent; and the number of the command's process. All signals are blocked.

#![no_std]
#![no_main]

use core::ffi::{c_char, c_int};

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod machine;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod machine;

use machine::{call, number};

const SIGCHLD: u64 = 17;
const SIGKILL: usize = 9;
const SIGTERM: usize = 15;
const POLLIN: i16 = 1;
const POLLHUP: i16 = 16;
const WNOHANG: usize = 1;
const EINTR: isize = -4;
const ECHILD: isize = -10;
const AT_FDCWD: isize = -100;
const O_CLOEXEC: usize = 0o2_000_000;
const SFD_NONBLOCK: usize = 0o4000;
const PR_SET_DUMPABLE: usize = 4;

/// Told instead of the code of a command that a signal ended.
const SIGNAL: c_int = -1;

#[repr(C)]
struct PollFd {
    fd: c_int,
    events: i16,
    revents: i16,
}

/// Called with the stack as the kernel left it: the count of the arguments, and then the arguments.
#[unsafe(no_mangle)]
unsafe extern "C" fn keep(stack: *const usize) -> ! {
    // SAFETY: the kernel puts them there, and the host gives three.
    let (kind, command) = unsafe {
        let argument = |index: usize| *stack.add(index + 1) as *const c_char;
        (*argument(1) as u8, number_of(argument(2)))
    };
    call(number::PRCTL, [PR_SET_DUMPABLE, 0, 0, 0, 0]);
    let ended: u64 = 1 << (SIGCHLD - 1);
    let ended = call(number::SIGNALFD4, [usize::MAX, address(&ended), size_of::<u64>(), O_CLOEXEC | SFD_NONBLOCK, 0]);
    if ended < 0 || call(number::WRITE, [2, address(&1_u8), 1, 0, 0]) != 1 {
        exit(1);
    }
    call(number::CLOSE, [2, 0, 0, 0, 0]);
    let mut code = wait_for_either(kind, command, ended as c_int);
    if kind == b'c' {
        code = end_all(command, code);
    }
    if let Some(code) = code {
        call(number::WRITE, [1, address(&code), size_of::<c_int>(), 0, 0]);
    }
    exit(0)
}

/// Returns when the command has ended, with its code, or when all is to be over. Who loses its parent and ends in the
/// meantime is taken away.
fn wait_for_either(kind: u8, command: isize, ended: c_int) -> Option<c_int> {
    loop {
        loop {
            match wait(WNOHANG) {
                (pid, code) if pid == command => return Some(code),
                (pid, _) if pid > 0 => {}
                _ => break,
            }
        }
        let mut either = [PollFd { fd: 0, events: POLLIN, revents: 0 }, PollFd { fd: ended, events: POLLIN, revents: 0 }];
        call(number::PPOLL, [address_mut(&mut either), 2, 0, 0, 0]);
        if either[0].revents & POLLHUP != 0 {
            return None;
        }
        let mut told = [0_u8; 128];
        if either[0].revents & POLLIN != 0 && call(number::READ, [0, address_mut(&mut told), 1, 0, 0]) == 1 {
            // In a namespace everything but this process, which is its first; else the command's group.
            let whom = if kind == b'c' { (-command) as usize } else { usize::MAX };
            call(number::KILL, [whom, SIGTERM, 0, 0, 0]);
        }
        call(number::READ, [ended as usize, address_mut(&mut told), 128, 0, 0]);
    }
}

/// Kills all that came of the command until none of it is left. Gives the command's code.
fn end_all(command: isize, mut code: Option<c_int>) -> Option<c_int> {
    loop {
        if code.is_none() {
            // Nobody else can have its number before it is waited for.
            call(number::KILL, [command as usize, SIGKILL, 0, 0, 0]);
        }
        call(number::KILL, [(-command) as usize, SIGKILL, 0, 0, 0]);
        kill_children();
        match wait(0) {
            (pid, ended) if pid == command => code = Some(ended),
            (ECHILD, _) => return code,
            _ => {}
        }
    }
}

/// Kills the children that this process has now, the orphans that it was given too.
fn kill_children() {
    let path = c"/proc/thread-self/children";
    let list = call(number::OPENAT, [AT_FDCWD as usize, path.as_ptr() as usize, O_CLOEXEC, 0, 0]);
    if list < 0 {
        return;
    }
    let (mut text, mut pid) = ([0_u8; 512], 0_usize);
    loop {
        let count = call(number::READ, [list as usize, address_mut(&mut text), 512, 0, 0]);
        if count <= 0 {
            break;
        }
        for byte in text.iter().take(count as usize) {
            if byte.is_ascii_digit() {
                pid = pid.wrapping_mul(10).wrapping_add((byte - b'0') as usize);
            } else if pid != 0 {
                call(number::KILL, [pid, SIGKILL, 0, 0, 0]);
                pid = 0;
            }
        }
    }
    call(number::CLOSE, [list as usize, 0, 0, 0, 0]);
}

/// A child that has ended, or an error as the kernel shows it; and the child's code.
fn wait(options: usize) -> (isize, c_int) {
    let mut status: c_int = 0;
    loop {
        let pid = call(number::WAIT4, [usize::MAX, address_mut(&mut status), options, 0, 0]);
        if pid != EINTR {
            let code = if status & 0x7f == 0 { (status >> 8) & 0xff } else { SIGNAL };
            return (pid, code);
        }
    }
}

/// # Safety
///
/// The text ends with a NUL.
unsafe fn number_of(text: *const c_char) -> isize {
    let (mut at, mut number) = (text, 0_isize);
    // SAFETY: as above.
    unsafe {
        while (*at as u8).is_ascii_digit() {
            number = number.wrapping_mul(10).wrapping_add((*at as u8 - b'0') as isize);
            at = at.add(1);
        }
    }
    number
}

fn address<T>(of: &T) -> usize {
    of as *const T as usize
}

fn address_mut<T>(of: &mut T) -> usize {
    of as *mut T as usize
}

fn exit(code: usize) -> ! {
    loop {
        call(number::EXIT_GROUP, [code, 0, 0, 0, 0]);
    }
}

#[panic_handler]
fn panicked(_: &core::panic::PanicInfo<'_>) -> ! {
    exit(1)
}

/// What the compiler writes instead of a loop that fills memory.
///
/// # Safety
///
/// As in C.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: c_int, count: usize) -> *mut u8 {
    for index in 0..count {
        // SAFETY: the caller's. Volatile, so that it is not made a call of itself.
        unsafe { to.add(index).write_volatile(byte as u8) };
    }
    to
}
