//! Filters on the system calls of a command.
//!
//! - Without `exec.network` it makes no socket that leads anywhere, to this machine's own (`AF_UNIX`) neither: only
//!   pairs that are connected to each other for good. Where it is granted some hosts, those of the internet, in a network of
//!   its own.
//! - It does not trace other processes, mount, load modules, enter or make namespaces, or type on a terminal.
//! - It makes no file that others run as its owner: that would outlast the wall. It takes no lease on a file: anyone who opens
//!   it would wait.
//! - Where Landlock alone holds its files, it changes nothing about a file by its name: neither mode, owner, times nor
//!   attributes. Landlock has no rule for these. There it has no namespaces either: it sets the priority and the
//!   processors of no other process, and neither makes nor reaches memory and queues that are the whole machine's.
//! - Where nothing counts the memory of all of its processes, it makes none that no limit of a process counts.
//!
//! A filter sees numbers and not what pointers lead to.

use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter, sock_filter,
};
use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::offers::Memory;
use crate::confine::{Programs, Sockets};

/// The calls that a child may not make whatever it is granted: they reach into the system or into other processes.
const NEVER: [i64; 44] = [
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    LISTNS,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    OPEN_TREE_ATTR,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    QUOTACTL_FD,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];

/// Newer calls of the kind above. The numbers are the same on all kinds of machines that there are filters for.
const QUOTACTL_FD: i64 = 443;
const OPEN_TREE_ATTR: i64 = 467;
const LISTNS: i64 = 470;

/// Those of them with which the wall of a command is made; `setns` too, for the network alone.
const MAKES_WALLS: [i64; 7] = [
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_pivot_root,
    libc::SYS_umount2,
    libc::SYS_unshare,
];

/// Calls that start a program.
const STARTS: [i64; 2] = [libc::SYS_execve, libc::SYS_execveat];

/// Calls that a filter cannot look into. Programs take an older one where these are not there.
const NOT_THERE: [i64; 3] = [libc::SYS_clone3, libc::SYS_io_uring_setup, libc::SYS_openat2];

/// Those of them that are not there for the host either; the second where it makes no namespaces. It opens as it likes:
/// which modes it gives to files, and where it opens them, no filter of its own looks at.
const NOT_THERE_FOR_HOST: [i64; 2] = [libc::SYS_io_uring_setup, libc::SYS_clone3];

/// Memory, semaphores and queues by a key: the whole machine's where there is no namespace for them, they outlive who made
/// them, and no limit of a process counts them. A kernel may be built without these calls, and programs know that.
const BY_KEY: [i64; 11] = [
    libc::SYS_msgctl,
    libc::SYS_msgget,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    libc::SYS_semctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmget,
];
/// The same of queues by a name; what they take is counted.
const BY_NAME: [i64; 2] = [libc::SYS_mq_open, libc::SYS_mq_unlink];
/// Files that are memory: no limit of a process counts those that it does not map.
const MEMORY_FILES: [i64; 2] = [libc::SYS_memfd_create, MEMFD_SECRET];
/// The same on all kinds of machines that there are filters for.
const MEMFD_SECRET: i64 = 447;

/// Commands of `fcntl` that take a lease on a file or a folder: anyone who opens it next is refused, or waits until the
/// lease is given up. As in `linux/fcntl.h`.
const LEASES: [u64; 2] = [1024, 1024 + 16];

/// Calls that change how a process runs, and which argument has to be what: of the process that makes them.
const HOW_IT_RUNS: [(i64, u8, u64); 8] = [
    (libc::SYS_ioprio_set, 0, WHO_PROCESS),
    (libc::SYS_ioprio_set, 1, 0),
    (libc::SYS_sched_setaffinity, 0, 0),
    (libc::SYS_sched_setattr, 0, 0),
    (libc::SYS_sched_setparam, 0, 0),
    (libc::SYS_sched_setscheduler, 0, 0),
    (libc::SYS_setpriority, 0, PRIO_PROCESS),
    (libc::SYS_setpriority, 1, 0),
];
/// As in `linux/ioprio.h` and in `linux/resource.h`.
const WHO_PROCESS: u64 = 1;
const PRIO_PROCESS: u64 = 0;

/// Flags of `clone` that make a namespace.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
];

/// Requests of `ioctl` that type on a terminal as if its person had.
const TYPING: [u64; 2] = [libc::TIOCSTI, libc::TIOCLINUX];

/// Calls that give a file its mode, and which argument that is.
const MODES: &[(i64, u8)] = &[
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (FCHMODAT2, 2),
    (libc::SYS_mknodat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
];
/// The same, where a file may be made, with which argument says so.
const OPENS: &[(i64, u8, u8)] = &[
    (libc::SYS_openat, 3, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 2, 1),
];
/// The same on all kinds of machines that there are filters for.
const FCHMODAT2: i64 = 452;
/// Calls that change what is known about a file, which they are given by its name.
const ABOUT_FILES: &[i64] = &[
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    SETXATTRAT,
    REMOVEXATTRAT,
    FILE_SETATTR,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
];
/// The same on all kinds of machines that there are filters for, as the next two.
const SETXATTRAT: i64 = 463;
const REMOVEXATTRAT: i64 = 466;
const FILE_SETATTR: i64 = 469;
/// Who runs such a file runs it as its owner or in its group: outside of the wall too.
const FOR_OTHERS: [libc::mode_t; 2] = [libc::S_ISUID, libc::S_ISGID];
/// Flags after which a file may be made: of the second, the bit that is its own.
const MAKES: [i32; 2] = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY];

/// What of the second argument of `socket` and `socketpair` is the kind.
const KIND: u64 = 0xf;
/// The families of the internet.
const INTERNET: [i32; 2] = [libc::AF_INET, libc::AF_INET6];
/// As in `linux/net.h`: an old name for sockets of whole packets.
const SOCK_PACKET: i32 = 10;
/// The kinds that are neither streams nor datagrams; the fifth is `SOCK_DCCP`.
const OTHER_KINDS: [i32; 5] = [libc::SOCK_RAW, libc::SOCK_RDM, libc::SOCK_SEQPACKET, SOCK_PACKET, 6];

/// The second calling convention of x86-64 kernels, where they have it: the same calls with this bit in their numbers,
/// and some under others. No program that anyone has uses it, and none of its calls is there.
const X32: u32 = 0x4000_0000;

/// Filters, ready to be applied between fork and exec, where nothing may be allocated.
#[derive(Debug)]
pub(super) struct Filters(Vec<BpfProgram>);

impl Filters {
    /// For a child that may make these sockets, whose files are in a view, or held by Landlock `alone`, and of whose
    /// memory something is held. Made once in a process.
    ///
    /// # Errors
    ///
    /// On a kind of machine that the filters are not made for.
    pub(super) fn of_command(sockets: Sockets, alone: bool, memory: Memory) -> Result<&'static Self, String> {
        type Made = OnceLock<Result<Filters, String>>;
        static MADE: [[[Made; 2]; 2]; 3] = [const { [const { [const { OnceLock::new() }; 2] }; 2] }; 3];
        let [none, internet, all] = &MADE;
        let [in_view, only_rules] = match sockets {
            Sockets::None => none,
            Sockets::Internet => internet,
            Sockets::Commands => all,
        };
        let [together, each] = if alone { only_rules } else { in_view };
        let made = if memory == Memory::Command { together } else { each };
        made.get_or_init(|| Self::new(sockets, alone, memory)).as_ref().map_err(Clone::clone)
    }

    fn new(sockets: Sockets, alone: bool, memory: Memory) -> Result<Self, String> {
        let mut never: Rules = NEVER.iter().map(|call| (*call, Vec::new())).collect();
        never.insert(libc::SYS_clone, namespaces()?);
        let typing = TYPING.iter().map(|request| rule(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, *request));
        never.insert(libc::SYS_ioctl, typing.collect::<Result<_, _>>()?);
        let leases = LEASES.iter().map(|command| rule(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, *command));
        never.insert(libc::SYS_fcntl, leases.collect::<Result<_, _>>()?);
        // Limits of its own, not of another process of the same user.
        never.insert(libc::SYS_prlimit64, vec![rule(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, 0)?]);
        never.extend(modes()?);
        if alone {
            never.extend(ABOUT_FILES.iter().map(|call| (*call, Vec::new())));
            // Without a name it is about a file that was opened, as `touch` does it.
            never.insert(libc::SYS_utimensat, vec![rule(1, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?]);
            for (call, argument, own) in HOW_IT_RUNS {
                never.entry(call).or_default().push(rule(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, own)?);
            }
        }
        let each = memory == Memory::Process;
        let by_key = if alone || each { &BY_KEY[..] } else { &[] };
        let by_name = if alone { &BY_NAME[..] } else { &[] };
        let files = if each { &MEMORY_FILES[..] } else { &[] };
        let not_there =
            [&NOT_THERE[..], by_key, by_name, files].concat().into_iter().map(|call| (call, Vec::new())).collect();
        let mut programs = vec![program(never, libc::EPERM)?, program(not_there, libc::ENOSYS)?];
        if sockets != Sockets::Commands {
            programs.push(program(refused_sockets(sockets)?, libc::EACCES)?);
        }
        Ok(Self(programs))
    }

    /// For the host itself, by what its commands need, and which sockets there is a use for.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new).
    pub(super) fn of_host(programs: Programs, sockets: Sockets) -> Result<Self, String> {
        let makes_walls = programs == Programs::InNamespaces;
        let mut never: Rules = (NEVER.iter().filter(|call| !(makes_walls && MAKES_WALLS.contains(call))))
            .map(|call| (*call, Vec::new()))
            .collect();
        if makes_walls {
            // Of namespaces it enters the empty network that commands have.
            never.insert(libc::SYS_setns, vec![all(vec![is(1, SeccompCmpOp::Ne, libc::CLONE_NEWNET)?])?]);
        } else {
            never.insert(libc::SYS_clone, namespaces()?);
        }
        if programs == Programs::None {
            never.extend(STARTS.map(|call| (call, Vec::new())));
            never.extend(signals(std::process::id())?);
        }
        let not_there = NOT_THERE_FOR_HOST.iter().take(if makes_walls { 1 } else { 2 });
        let not_there = not_there.map(|call| (*call, Vec::new())).collect();
        let sockets = refused_sockets(sockets)?;
        let refused = [(never, libc::EPERM), (not_there, libc::ENOSYS), (sockets, libc::EACCES)];
        Ok(Self(refused.into_iter().map(|(rules, errno)| program(rules, errno)).collect::<Result<_, _>>()?))
    }

    /// Applies them to all threads of the process.
    ///
    /// # Errors
    ///
    /// Where the kernel does not do it, for the operator.
    pub(super) fn apply_to_all_threads(&self) -> Result<(), String> {
        self.0.iter().try_for_each(|program| {
            seccompiler::apply_filter_all_threads(program).map_err(|error| format!("filters of system calls: {error}"))
        })
    }

    /// Applies them to the calling process. Allocates nothing and takes no lock.
    ///
    /// # Errors
    ///
    /// Where the kernel does not do it: the process must not continue then.
    pub(super) fn apply(&self) -> Result<(), Errno> {
        // Sets `no_new_privs` too.
        self.0.iter().try_for_each(|program| apply_filter(program).map_err(|_| Errno::PERM))
    }
}

/// Whether there are filters for this kind of machine, and the kernel takes them from this process.
///
/// # Errors
///
/// Why not, for the operator.
pub(super) fn offered() -> Result<(), String> {
    Filters::of_command(Sockets::None, false, Memory::Process)?;
    let action = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the kernel reads the one number that the pointer leads to, and changes nothing.
    #[expect(unsafe_code, reason = "there is no function for this call")]
    let asked = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) };
    if asked == 0 {
        Ok(())
    } else {
        Err(format!("the kernel takes none: {}", std::io::Error::from(super::last_error())))
    }
}

/// By number of the call: when it is refused. Without a rule always.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Of calls that give a file its mode: where it is one that others run as its owner.
fn modes() -> Result<Rules, String> {
    let has = |argument: u8, bits: u64| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bits), bits)
            .map_err(|error| error.to_string())
    };
    let mut rules = Rules::new();
    for bit in FOR_OTHERS.map(u64::from) {
        for (call, mode) in MODES {
            rules.entry(*call).or_default().push(all(vec![has(*mode, bit)?])?);
        }
        for (call, mode, flags) in OPENS {
            for flag in MAKES {
                let makes = has(*flags, u64::from(flag.cast_unsigned()))?;
                rules.entry(*call).or_default().push(all(vec![makes, has(*mode, bit)?])?);
            }
        }
    }
    Ok(rules)
}

/// Of `clone`: where it makes a namespace.
fn namespaces() -> Result<Vec<SeccompRule>, String> {
    let made = NAMESPACES.iter().map(|flag| {
        let flag = u64::from(flag.cast_unsigned());
        rule(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flag), flag)
    });
    made.collect()
}

/// Of sockets: what is not for who may make these.
fn refused_sockets(sockets: Sockets) -> Result<Rules, String> {
    Ok(match sockets {
        Sockets::None => no_sockets()?,
        Sockets::Internet => sockets_of_the_internet()?,
        Sockets::Commands => no_raw_sockets()?,
    })
}

/// Of sockets: all, and of pairs those that can be pointed elsewhere.
fn no_sockets() -> Result<Rules, String> {
    Ok(Rules::from([(libc::SYS_socket, Vec::new()), (libc::SYS_socketpair, pairs()?)]))
}

/// Of sockets: all but streams and datagrams of the internet; of pairs as above.
fn sockets_of_the_internet() -> Result<Rules, String> {
    let other_family = INTERNET.map(|family| is(0, SeccompCmpOp::Ne, family)).into_iter().collect::<Result<_, _>>()?;
    let other_kinds = OTHER_KINDS.map(|kind| all(vec![of_kind(kind)?]));
    let mut refused = vec![all(other_family)?];
    refused.extend(other_kinds.into_iter().collect::<Result<Vec<_>, String>>()?);
    Ok(Rules::from([(libc::SYS_socket, refused), (libc::SYS_socketpair, pairs()?)]))
}

/// Of sockets: what sees or makes whole packets. Where commands have the network, they have the rest.
fn no_raw_sockets() -> Result<Rules, String> {
    let mut refused = vec![all(vec![is(0, SeccompCmpOp::Eq, libc::AF_PACKET)?])?];
    for family in INTERNET {
        for kind in [libc::SOCK_RAW, SOCK_PACKET] {
            refused.push(all(vec![is(0, SeccompCmpOp::Eq, family)?, of_kind(kind)?])?);
        }
    }
    Ok(Rules::from([(libc::SYS_socket, refused)]))
}

/// Pairs that are not streams can be pointed elsewhere.
fn pairs() -> Result<Vec<SeccompRule>, String> {
    [libc::SOCK_DGRAM, libc::SOCK_RAW].into_iter().map(|kind| all(vec![of_kind(kind)?])).collect()
}

/// Of a socket: whether it is of a kind, which is the second argument, beside flags.
fn of_kind(kind: i32) -> Result<SeccompCondition, String> {
    is(1, SeccompCmpOp::MaskedEq(KIND), kind)
}

/// Of calls that send a signal: where it goes to another process than this one.
fn signals(own: u32) -> Result<Rules, String> {
    let own = own.cast_signed();
    let to_others = || Ok::<_, String>(vec![all(vec![is(0, SeccompCmpOp::Ne, own)?])?]);
    let mut rules: Rules = [libc::SYS_tkill, libc::SYS_pidfd_send_signal].map(|call| (call, Vec::new())).into();
    for call in [libc::SYS_tgkill, libc::SYS_rt_sigqueueinfo, libc::SYS_rt_tgsigqueueinfo] {
        rules.insert(call, to_others()?);
    }
    // To its own group, who waits at a terminal stops what it was asked to by Ctrl-Z.
    let other = || is(0, SeccompCmpOp::Ne, own);
    let not_group = all(vec![other()?, is(0, SeccompCmpOp::Ne, 0)?])?;
    let not_stop = all(vec![other()?, is(1, SeccompCmpOp::Ne, libc::SIGTSTP)?])?;
    rules.insert(libc::SYS_kill, vec![not_group, not_stop]);
    Ok(rules)
}

/// Of a number among the arguments.
fn is(argument: u8, op: SeccompCmpOp, value: i32) -> Result<SeccompCondition, String> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, u64::from(value.cast_unsigned()))
        .map_err(|error| error.to_string())
}

/// A rule that holds where all of these do.
fn all(conditions: Vec<SeccompCondition>) -> Result<SeccompRule, String> {
    SeccompRule::new(conditions).map_err(|error| error.to_string())
}

fn rule(argument: u8, length: SeccompCmpArgLen, op: SeccompCmpOp, value: u64) -> Result<SeccompRule, String> {
    let condition = SeccompCondition::new(argument, length, op, value).map_err(|error| error.to_string())?;
    all(vec![condition])
}

fn program(rules: Rules, errno: i32) -> Result<BpfProgram, String> {
    let refused = SeccompAction::Errno(errno.cast_unsigned());
    let machine = std::env::consts::ARCH.try_into().map_err(|_| "no filters for this machine".to_owned())?;
    let filter =
        SeccompFilter::new(rules, SeccompAction::Allow, refused, machine).map_err(|error| error.to_string())?;
    let rules: BpfProgram = filter.try_into().map_err(|error: seccompiler::BackendError| error.to_string())?;
    if cfg!(target_arch = "x86_64") { Ok([without_x32().to_vec(), rules].concat()) } else { Ok(rules) }
}

/// What comes first on x86-64: one look at the number, where rules for both conventions would be twice as many. The kernel
/// goes through them for each call that it knows when a filter is put in force.
fn without_x32() -> [sock_filter; 3] {
    const LOAD_NUMBER: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS, of `seccomp_data.nr`
    const IF_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
    const GIVE: u16 = 0x06; // BPF_RET | BPF_K
    let refused = u32::from(SeccompAction::Errno(libc::ENOSYS.cast_unsigned()));
    let step = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    [step(LOAD_NUMBER, 0, 0, 0), step(IF_AT_LEAST, 0, 1, X32), step(GIVE, 0, 0, refused)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not every kernel knows the other numbers; where it does not, no command can try them.
    #[test]
    fn each_filter_begins_with_calls_by_other_numbers() {
        let steps = |program: &[sock_filter]| -> Vec<(u16, u8, u8, u32)> {
            program.iter().take(3).map(|step| (step.code, step.jt, step.jf, step.k)).collect()
        };
        for sockets in [Sockets::None, Sockets::Internet, Sockets::Commands] {
            for (alone, memory) in [false, true]
                .into_iter()
                .flat_map(|alone| [Memory::Command, Memory::Process].map(|memory| (alone, memory)))
            {
                for program in &Filters::of_command(sockets, alone, memory).unwrap().0 {
                    let begins = steps(program) == steps(&without_x32());
                    assert_eq!(begins, cfg!(target_arch = "x86_64"), "{sockets:?} {alone} {memory:?}");
                }
            }
        }
    }
}
