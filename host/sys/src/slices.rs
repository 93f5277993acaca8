//! How long the kernel lets a thread run before it looks at others.

/// What the kernel grants at least, and at most, in nanoseconds.
const SHORTEST: u64 = 100_000;
const LONGEST: u64 = 100_000_000;

/// Asks for the shortest slices for the thread that calls this, as of a clock or of one that answers requests, which does
/// little and is late where it waits for a core: of those that want one, the kernel takes first whose slice ends first, and
/// even a thread with the longest slices is in the last milliseconds of one at times. It gets no larger part of the
/// processor, and needs no right. What it starts, a thread or a process, has ordinary slices, and no priority above the
/// ordinary one. Linux 6.12 and later know it;
/// elsewhere nothing changes.
pub fn ask_for_short_slices() {
    ask(SHORTEST);
}

/// Asks for the longest slices for the thread that calls this, as of one that computes without end: a thread that has a
/// little to do interrupts it as soon as it has that, and not when its slice is over. It gets no smaller part of the
/// processor. The same holds of what it starts, of rights and of kernels.
pub fn ask_for_long_slices() {
    ask(LONGEST);
}

fn ask(nanoseconds: u64) {
    let nice = rustix::process::getpriority_process(None).unwrap_or(0);
    let mut wanted = attributes();
    // What stays as it is.
    (wanted.sched_policy, wanted.sched_nice) = (libc::SCHED_OTHER.unsigned_abs(), nice);
    (wanted.sched_runtime, wanted.sched_flags) =
        (nanoseconds, u64::try_from(libc::SCHED_FLAG_RESET_ON_FORK).unwrap_or(0));
    // SAFETY: the kernel reads one structure of the size that is written in it.
    #[expect(unsafe_code, reason = "the C library has no function for it")]
    let _ = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) };
}

fn attributes() -> libc::sched_attr {
    libc::sched_attr {
        size: u32::try_from(size_of::<libc::sched_attr>()).unwrap_or(0),
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_this_thread() -> libc::sched_attr {
        let mut now = attributes();
        // SAFETY: the kernel writes as much as it is said to have.
        #[expect(unsafe_code, reason = "the C library has no function for it")]
        let error = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut now, now.size, 0) };
        assert_eq!(error, 0);
        now
    }

    /// Older kernels say nothing of slices.
    #[test]
    fn only_the_slices_of_this_thread_change() {
        let before = of_this_thread();
        for (ask, slices) in [(ask_for_short_slices as fn(), SHORTEST), (ask_for_long_slices, LONGEST)] {
            let of_another = std::thread::spawn(move || {
                let _ = rustix::process::nice(3);
                ask();
                let now = of_this_thread();
                (now.sched_nice, now.sched_runtime)
            });
            let wanted = (before.sched_nice + 3, if before.sched_runtime == 0 { 0 } else { slices });
            assert_eq!(of_another.join().unwrap(), wanted);
        }
        assert_eq!(of_this_thread().sched_runtime, before.sched_runtime);
    }

    #[test]
    fn what_a_thread_with_other_slices_starts_has_ordinary_ones() {
        let ordinary = of_this_thread();
        for ask in [ask_for_short_slices as fn(), ask_for_long_slices] {
            let of_its_child = std::thread::spawn(move || {
                let _ = rustix::process::nice(3);
                ask();
                std::thread::spawn(of_this_thread).join().unwrap()
            });
            let of_its_child = of_its_child.join().unwrap();
            assert_eq!(
                (of_its_child.sched_nice, of_its_child.sched_runtime, of_its_child.sched_flags),
                (ordinary.sched_nice + 3, ordinary.sched_runtime, ordinary.sched_flags)
            );
        }
    }
}
