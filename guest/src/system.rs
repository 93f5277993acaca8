//! What Rust's standard library asks of WASI 0.1, answered in here.
//!
//! The build puts each of these functions in the place of the import that has its name, so that the component imports
//! nothing of WASI but a seed and a clock. There are no arguments, variables, folders or sockets to ask for: a new
//! import of WASI 0.1 ends the build.

use crate::bindings::harness::sandbox::last_words;
use crate::bindings::wasi::clocks::monotonic_clock;
use crate::bindings::wasi::random::insecure_seed;
use crate::ending;

/// Results of WASI 0.1, from its `errno`.
const SUCCESS: i32 = 0;
const BAD_FILE_DESCRIPTOR: i32 = 8;

/// `ciovec` of WASI 0.1: a part of what is written.
#[repr(C)]
struct Part {
    bytes: *const u8,
    length: usize,
}

/// Standard output and error, which are one record.
#[unsafe(export_name = "wasi_snapshot_preview1#fd_write")]
unsafe extern "C" fn fd_write(descriptor: i32, parts: *const Part, count: usize, written: *mut usize) -> i32 {
    if !matches!(descriptor, 1 | 2) {
        return BAD_FILE_DESCRIPTOR;
    }
    // Nothing but a panic and the end of memory writes here.
    ending::report();
    let mut total = 0;
    for n in 0..count {
        // SAFETY: the caller is the standard library, with `count` parts that it may read, and a place for the sum.
        let bytes = unsafe {
            let part = &*parts.add(n);
            std::slice::from_raw_parts(part.bytes, part.length)
        };
        last_words::write(bytes);
        total += bytes.len();
    }
    // SAFETY: as above.
    unsafe { written.write(total) };
    SUCCESS
}

/// Seeds of hash tables, 16 bytes each, and nothing else.
#[unsafe(export_name = "wasi_snapshot_preview1#random_get")]
unsafe extern "C" fn random_get(out: *mut u8, length: usize) -> i32 {
    let (low, high) = insecure_seed::insecure_seed();
    let seed = (u128::from(high) << 64 | u128::from(low)).to_le_bytes();
    for (n, byte) in seed.iter().cycle().take(length).enumerate() {
        // SAFETY: the caller is the standard library, with room for so many bytes.
        unsafe { out.add(n).write(*byte) };
    }
    SUCCESS
}

/// All clocks are one.
#[unsafe(export_name = "wasi_snapshot_preview1#clock_time_get")]
unsafe extern "C" fn clock_time_get(_clock: i32, _precision: i64, out: *mut u64) -> i32 {
    // SAFETY: the caller is the standard library, with a place for the time.
    unsafe { out.write(monotonic_clock::now()) };
    SUCCESS
}

/// There are no variables.
#[unsafe(export_name = "wasi_snapshot_preview1#environ_sizes_get")]
unsafe extern "C" fn environ_sizes_get(count: *mut usize, bytes: *mut usize) -> i32 {
    // SAFETY: the caller is the standard library, with places for both.
    unsafe {
        count.write(0);
        bytes.write(0);
    }
    SUCCESS
}

/// There are no variables.
#[unsafe(export_name = "wasi_snapshot_preview1#environ_get")]
extern "C" fn environ_get(_variables: i32, _bytes: i32) -> i32 {
    SUCCESS
}

/// Nothing exits: the instance ends.
#[unsafe(export_name = "wasi_snapshot_preview1#proc_exit")]
extern "C" fn proc_exit(_code: i32) -> ! {
    std::arch::wasm32::unreachable()
}
