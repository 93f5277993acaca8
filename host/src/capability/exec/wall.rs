//! What the kernel holds a child to, beside the rules that decided on its command.
//!
//! - It gains no privileges from what it runs (`no_new_privs`), and so do its children.
//! - Without `exec.network` it makes no socket that leads anywhere, to this machine's own (`AF_UNIX`) neither: only
//!   pairs that are connected to each other for good.
//! - It does not trace other processes, mount, load modules, enter or make namespaces, or type on a terminal.
//! - It leaves no core files.
//!
//! A filter on system calls sees numbers and not what pointers lead to: files are not held by it. Nor does a child end
//! with a host that is killed: the kernel would end it with the *thread* that started it, and a runtime's threads come
//! and go.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

/// The calls that a child may not make whatever it is granted: they reach into the system or into other processes.
const NEVER: [i64; 35] = [
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_init_module,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];

/// Calls that a filter cannot look into. Programs take an older one where these are not there.
const NOT_THERE: [i64; 2] = [libc::SYS_clone3, libc::SYS_io_uring_setup];

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

/// What of the second argument of `socketpair` is the kind of socket.
const KIND: u64 = 0xf;

/// The second calling convention of x86-64 kernels, where they have it: the same numbers with this bit, but for some
/// calls that have another one there.
const X32: i64 = 0x4000_0000;
/// Those of them that are refused, with their other numbers (`arch/x86/entry/syscalls/syscall_64.tbl`).
const X32_NUMBERS: [(i64, i64); 5] = [
    (libc::SYS_ioctl, 514),
    (libc::SYS_ptrace, 521),
    (libc::SYS_kexec_load, 528),
    (libc::SYS_process_vm_readv, 539),
    (libc::SYS_process_vm_writev, 540),
];

/// Filters, ready to be applied between fork and exec, where nothing may be allocated.
#[derive(Debug, Clone)]
pub(super) struct Wall(Vec<BpfProgram>);

impl Wall {
    /// For a child that may use the network, or not.
    ///
    /// # Errors
    ///
    /// On a kind of machine that the filters are not made for.
    pub(super) fn new(network: bool) -> Result<Self, String> {
        let mut never: Rules = NEVER.iter().map(|call| (*call, Vec::new())).collect();
        let namespaces = NAMESPACES.iter().map(|flag| {
            let flag = u64::from(flag.cast_unsigned());
            rule(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flag), flag)
        });
        never.insert(libc::SYS_clone, namespaces.collect::<Result<_, _>>()?);
        let typing = TYPING.iter().map(|request| rule(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, *request));
        never.insert(libc::SYS_ioctl, typing.collect::<Result<_, _>>()?);
        let not_there = NOT_THERE.iter().map(|call| (*call, Vec::new())).collect();
        let mut programs = vec![program(never, libc::EPERM)?, program(not_there, libc::ENOSYS)?];
        if !network {
            // The kind of a pair is its second argument, beside flags. One that is not a stream can be pointed elsewhere.
            let elsewhere = [libc::SOCK_DGRAM, libc::SOCK_RAW].map(|kind| {
                let kind = u64::from(kind.cast_unsigned());
                rule(1, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(KIND), kind)
            });
            let pairs = elsewhere.into_iter().collect::<Result<_, _>>()?;
            let rules = Rules::from([(libc::SYS_socket, Vec::new()), (libc::SYS_socketpair, pairs)]);
            programs.push(program(rules, libc::EACCES)?);
        }
        Ok(Self(programs))
    }

    /// Puts up the wall around the calling process. Allocates nothing and takes no lock.
    ///
    /// # Errors
    ///
    /// Where the kernel does not do it: the process must not go on then.
    pub(super) fn raise(&self) -> io::Result<()> {
        let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
        rustix::process::setrlimit(rustix::process::Resource::Core, none)?;
        // Sets `no_new_privs` too.
        self.0
            .iter()
            .try_for_each(|program| apply_filter(program).map_err(|_| io::Error::from_raw_os_error(libc::EPERM)))
    }
}

/// By number of the call: when it is refused. Without a rule always.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn rule(argument: u8, length: SeccompCmpArgLen, op: SeccompCmpOp, value: u64) -> Result<SeccompRule, String> {
    let condition = SeccompCondition::new(argument, length, op, value).map_err(|error| error.to_string())?;
    SeccompRule::new(vec![condition]).map_err(|error| error.to_string())
}

fn program(mut rules: Rules, errno: i32) -> Result<BpfProgram, String> {
    if cfg!(target_arch = "x86_64") {
        let other = |call| X32_NUMBERS.iter().find(|(usual, _)| *usual == call).map_or(call, |(_, other)| *other);
        rules.extend(rules.clone().into_iter().map(|(call, rules)| (other(call) | X32, rules)));
    }
    let refused = SeccompAction::Errno(errno.cast_unsigned());
    let machine = std::env::consts::ARCH.try_into().map_err(|_| "no filters for this machine".to_owned())?;
    let filter =
        SeccompFilter::new(rules, SeccompAction::Allow, refused, machine).map_err(|error| error.to_string())?;
    filter.try_into().map_err(|error: seccompiler::BackendError| error.to_string())
}
