//! What the runner looks at in its own process, and what it sets before anything else runs in it.

use std::fmt;
use std::io::{Seek as _, Write as _};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::server::identity;

/// What nobody may learn: it is in every file and variable that a case is not granted.
pub(crate) const CANARY: &str = "canary-7f3a91d2-never-to-be-seen";

/// A variable of the host that holds it.
pub(crate) const SECRET_VARIABLE: &str = "HARNESS_ATTACKS_SECRET";

/// Sets up the environment of an unlucky host: a secret in it, and proxies that nobody is to ask. It trusts the
/// certificate of the corpus's servers.
#[expect(unsafe_code, reason = "variables are set before there is a second thread")]
pub(crate) fn set_traps() {
    let proxy = "http://127.0.0.1:9/";
    let variables = [
        (SECRET_VARIABLE, CANARY),
        ("HTTP_PROXY", proxy),
        ("http_proxy", proxy),
        ("HTTPS_PROXY", proxy),
        ("ALL_PROXY", proxy),
    ];
    for (name, value) in variables {
        // SAFETY: this is the first thing that `main` does; there is one thread.
        unsafe { std::env::set_var(name, value) };
    }
    // SAFETY: as above.
    unsafe {
        std::env::remove_var("NO_PROXY");
        std::env::remove_var("SSL_CERT_DIR");
        std::env::set_var("SSL_CERT_FILE", identity("certificate.pem"));
    }
    // As the program has it.
    harness_sys::memory::give_back();
    leave_open();
}

/// The descriptor that a careless program around the host left open, and open to its children.
const LEFT_OPEN: i32 = 200;

fn leave_open() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(CANARY.as_bytes()).unwrap();
    file.rewind().unwrap();
    let left = rustix::io::fcntl_dupfd_cloexec(file, LEFT_OPEN).unwrap();
    rustix::io::fcntl_setfd(&left, rustix::io::FdFlags::empty()).unwrap();
    std::mem::forget(left);
}

/// What is in the command lines of processes that a case wants to leave behind. Another run of the corpus has another.
pub(crate) fn lingers() -> String {
    format!("lingers-{}", std::process::id())
}

/// How often it is looked, with five milliseconds between, whether what was killed has gone: what continues does so for
/// ever, and how long the kernel takes for the rest is a matter of how busy the machine is.
const PATIENCE: usize = 6_000;

/// A stretch of time, and how long something that was ready waited for a core of this machine in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stretch {
    started: Instant,
    busy: Duration,
}

impl Stretch {
    pub(crate) fn begin() -> Self {
        Self { started: Instant::now(), busy: busy() }
    }

    /// Its length, and what of it the machine was busy with something else.
    pub(crate) fn end(self) -> (Duration, Duration) {
        (self.started.elapsed(), busy().saturating_sub(self.busy))
    }
}

/// How long something has waited for a core, a disk or memory since the machine was started: anything at all where the
/// kernel keeps that account, else the threads of this process. With the time that another machine had on its cores.
fn busy() -> Duration {
    let waited = |of: &str| -> Option<u64> {
        let pressure = std::fs::read_to_string(format!("/proc/pressure/{of}")).ok()?;
        let some = pressure.lines().find(|line| line.starts_with("some "))?;
        some.split("total=").nth(1)?.trim().parse().ok()
    };
    // Eighth of the numbers of all cores, in hundredths of a second (proc_stat(5)).
    let stolen = || {
        let all = std::fs::read_to_string("/proc/stat").ok()?;
        all.lines().next()?.split_whitespace().nth(8)?.parse::<u64>().ok()
    };
    let stolen = Duration::from_millis(stolen().unwrap_or(0).saturating_mul(10));
    if let Some(cores) = waited("cpu") {
        let others = ["io", "memory"].into_iter().filter_map(waited).sum::<u64>();
        return stolen + Duration::from_micros(cores.saturating_add(others));
    }
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().filter_map(Result::ok);
    let waited = threads.filter_map(|thread| {
        let account = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        account.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    stolen + Duration::from_nanos(waited.sum())
}

/// The processes of this machine that are left of a case, wherever they have gone: those that continue after a while.
pub(crate) fn lingering() -> Vec<String> {
    let word = lingers();
    let found = || -> Vec<String> {
        let all = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let lines = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
        lines.map(|line| String::from_utf8_lossy(&line).into_owned()).filter(|line| line.contains(&word)).collect()
    };
    for _ in 0..PATIENCE {
        if found().is_empty() {
            return Vec::new();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    found()
}

/// Threads that have nothing to do end soon, so that they can be counted.
pub(crate) fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).thread_keep_alive(Duration::from_millis(20)).enable_all().build().unwrap()
}

/// What the process holds of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    /// Resident memory, in KiB.
    pub(crate) memory: u64,
    /// That of it which is not in the pools of instances, whose slots keep what they are used for, each up to a bound.
    pub(crate) outside: u64,
    pub(crate) descriptors: usize,
    pub(crate) threads: usize,
    /// Those of them that are a host's for its guests.
    pub(crate) guests: usize,
    pub(crate) children: usize,
}

impl Held {
    /// As it is now.
    pub(crate) fn now() -> Self {
        let count = |what: &str| std::fs::read_dir(format!("/proc/self/{what}")).map_or(0, Iterator::count);
        let memory = status("VmRSS:");
        let outside = memory.saturating_sub(pooled());
        let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().filter_map(Result::ok);
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        let guests =
            names.filter(|name| ["harness-guest", "harness-core-"].iter().any(|of| name.starts_with(of))).count();
        Self { memory, outside, descriptors: count("fd"), threads: count("task"), guests, children: children().len() }
    }

    /// Lets the peak of resident memory begin again, and gives what it begins with, in KiB.
    pub(crate) fn from_here() -> u64 {
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        status("VmRSS:")
    }

    /// The peak since then, in KiB.
    pub(crate) fn peak() -> u64 {
        status("VmHWM:")
    }

    /// As it is when nothing is in progress any more, waited for up to half a minute: what was killed takes a moment to
    /// be reaped, and idle threads to end.
    pub(crate) fn settled(runtime: &Runtime, before: Option<Self>) -> Self {
        let fits = |now: &Self| {
            before.is_none_or(|before| {
                now.descriptors <= before.descriptors
                    && now.threads <= before.threads
                    && now.children <= before.children
            })
        };
        let mut now = Self::now();
        for _ in 0..if before.is_some() { 3_000 } else { 20 } {
            if before.is_some() && fits(&now) {
                break;
            }
            // In the runtime, which reaps what was given up when it wakes.
            runtime.block_on(async { tokio::time::sleep(Duration::from_millis(10)).await });
            now = Self::now();
        }
        now
    }
}

/// What the system reports this process, in KiB.
fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let told = status.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB"));
    told.unwrap().parse().unwrap()
}

/// What is resident of the pools, in KiB: of places that lie next to each other and span more than all other memory.
fn pooled() -> u64 {
    const SPAN: u64 = 4 << 30;
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut begin, mut end, mut resident, mut pooled) = (0, 0, 0, 0);
    for line in maps.lines() {
        if let Some(kib) = line.strip_prefix("Rss:") {
            resident += kib.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
        } else if let Some((from, to)) = line.split(' ').next().and_then(|range| range.split_once('-'))
            && let (Ok(from), Ok(to)) = (u64::from_str_radix(from, 16), u64::from_str_radix(to, 16))
        {
            if from != end {
                pooled += if end - begin > SPAN { resident } else { 0 };
                (begin, resident) = (from, 0);
            }
            end = to;
        }
    }
    pooled + if end - begin > SPAN { resident } else { 0 }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { memory, outside, descriptors, threads, children, .. } = self;
        let (memory, outside) = (memory >> 10, outside >> 10);
        write!(
            f,
            "{memory} MiB resident, {outside} of them outside of the pools, {descriptors} descriptors, {threads} threads, \
             {children} children"
        )
    }
}

/// The processes that this one has started and that are still there, each as the system reports it.
pub(crate) fn children() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let pids: Vec<String> =
        lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect();
    pids.iter().filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()).collect()
}

/// Waits until no child continues; those that do, after a while. One that has ended and is not reaped yet does nothing
/// any more: the runtime reaps it when it next has something to do.
pub(crate) fn children_left() -> Vec<String> {
    let going_on = || -> Vec<String> { children().into_iter().filter(|stat| !stat.contains(") Z ")).collect() };
    for _ in 0..PATIENCE {
        if going_on().is_empty() {
            return Vec::new();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    going_on()
}
