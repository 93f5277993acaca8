//! What becomes of the host's memory that is freed.

/// Larger blocks are mapped one by one, and returned when they are freed.
#[cfg(target_env = "gnu")]
const MAPPED: libc::c_int = 1 << 20;
/// What an arena keeps at its end at most.
#[cfg(target_env = "gnu")]
const KEPT: libc::c_int = 4 << 20;

/// Has memory go back to the system that was freed: for a program to call before it does anything else.
///
/// Without it, glibc keeps some tens of megabytes for each thread that once held a large text, which a script can see
/// to. That is bounded, and no leak; but anyone who runs scripts of others wants it back.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    for (what, bytes) in [(libc::M_MMAP_THRESHOLD, MAPPED), (libc::M_TRIM_THRESHOLD, KEPT)] {
        // SAFETY: sets a number of the allocator, which may be done at any time.
        #[expect(unsafe_code, reason = "a setting of the C library")]
        unsafe {
            libc::mallopt(what, bytes);
        }
    }
}
