//! What the kernel holds a command to, beside the rules that decided on it.
//!
//! - Its files are those that the grant opens (`reach`) and the machine's folders of programs (`system`), in a file
//!   system of its own (`view`), by rules of the kernel's (`landlock`), or by both. A view comes first where both are
//!   there: it takes a secret out of an open folder, which rules cannot, and with it come the command's own processes and
//!   nobody else's. Rules go around it, so that a mistake in one of them opens nothing.
//! - It creates none of the names by which the project or a repository is governed (`names`).
//! - It makes no system call that reaches into the system or into other processes, and without `exec.network` no socket
//!   (`filters`). It gains no privileges and keeps none but, as root, those over files.
//! - Its processes are counted, and so are the memory and the processor time of each and the size of its files. They end
//!   with the command, with its time, and with the host (`family`).
//!
//! There is no crate for this that a library can use: those that are kept build containers, start helper programs, or
//! confine their caller.

#![cfg_attr(test, expect(clippy::disallowed_methods, reason = "tests make files and programs"))]

mod assemble;
mod beside;
mod cgroup;
pub mod confine;
mod family;
mod filters;
pub mod hard_links;
mod host;
mod keeper;
mod landlock;
mod launch;
mod listings;
mod names;
mod network;
mod offers;
mod reach;
mod system;
mod temporary;
mod view;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use cap_std::fs::Dir;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};

pub use assemble::For;
use assemble::user_map;
use cgroup::Group;
pub use cgroup::Hit;
pub use family::above_streams;
use family::{Begun, Bond, Failed, Family};
use filters::Filters;
use harness_policy::grant::Grant;
use harness_sys as sys;
pub use listings::Listings;
pub use network::LocalNetwork;
use network::Network;
use system::System;
use temporary::Temporary;
use view::{Plan, Shown};

pub use names::ClosedNames;
pub use offers::{Count, Files, Memory, Namespaces, Offers, Standing, Tier};

/// What a command keeps of root's privileges: those over files, which the wall holds in other ways. Without them root
/// could not write into a folder of a third party's. Not `FSETID`, with which a file that others run as its owner stays
/// one when something else is written into it; nor those that go by file handles (`DAC_READ_SEARCH`), give files
/// privileges (`SETFCAP`) or make them immutable.
const KEPT: CapabilitySet = CapabilitySet::CHOWN.union(CapabilitySet::DAC_OVERRIDE).union(CapabilitySet::FOWNER);

/// What a command's first process does before it is the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Step {
    Session = 1,
    Processes,
    UserNamespace,
    Namespaces,
    Network,
    View,
    Folder,
    Limits,
    Privileges,
    Rules,
    Filters,
    Keeper,
}

impl Step {
    const ALL: [Self; 12] = [
        Self::Session,
        Self::Processes,
        Self::UserNamespace,
        Self::Namespaces,
        Self::Network,
        Self::View,
        Self::Folder,
        Self::Limits,
        Self::Privileges,
        Self::Rules,
        Self::Filters,
        Self::Keeper,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Session => "its own session",
            Self::Processes => "a count of its processes",
            Self::UserNamespace => "a user namespace",
            Self::Namespaces => "namespaces",
            Self::Network => "its own network",
            Self::View => "its view of the files",
            Self::Folder => "the folder to start in",
            Self::Limits => "limits",
            Self::Privileges => "dropping privileges",
            Self::Rules => "Landlock",
            Self::Filters => "filters of system calls",
            Self::Keeper => "the process that ends what it leaves behind",
        }
    }
}

/// What a process puts on itself just before it becomes the command.
#[derive(Debug)]
struct Confinement(Option<Parts>);

#[derive(Debug)]
struct Parts {
    limits: Vec<(Resource, u64)>,
    kept: CapabilitySet,
    rules: Option<(landlock::Rules, Vec<landlock::Later>)>,
    filters: &'static Filters,
}

impl Confinement {
    /// Allocates nothing and takes no lock.
    fn raise(&self) -> Result<(), (Step, Errno)> {
        let Some(parts) = &self.0 else { return Ok(()) };
        let at = |step: Step| move |error: Errno| (step, error);
        for (resource, most) in &parts.limits {
            // Who may not raise a limit may still lower it.
            let most = rustix::process::getrlimit(*resource).maximum.map_or(*most, |maximum| maximum.min(*most));
            setrlimit(*resource, Rlimit { current: Some(most), maximum: Some(most) }).map_err(at(Step::Limits))?;
        }
        give_up_privileges(parts.kept).map_err(at(Step::Privileges))?;
        rustix::thread::set_no_new_privs(true).map_err(at(Step::Privileges))?;
        if let Some((rules, later)) = &parts.rules {
            later.iter().try_for_each(|folder| rules.add(folder)).map_err(at(Step::Rules))?;
            rules.enforce().map_err(at(Step::Rules))?;
        }
        parts.filters.apply().map_err(at(Step::Filters))
    }
}

/// Everything but these, for what is run from here too.
fn give_up_privileges(kept: CapabilitySet) -> Result<(), Errno> {
    let has = rustix::thread::capabilities(None)?;
    for number in 0..64 {
        if kept.bits() & (1 << number) != 0 {
            continue;
        }
        // SAFETY: it takes two numbers.
        #[expect(unsafe_code, reason = "there is no function that takes numbers the kernel may not know")]
        let done = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) };
        if done == 0 {
            continue;
        }
        match last_error() {
            // The last one that the kernel knows was before it.
            Errno::INVAL => break,
            // Who has no privileges may not even do this, and gains none from what is run.
            Errno::PERM if has.permitted.is_empty() => break,
            error => return Err(error),
        }
    }
    let (effective, permitted) = (has.effective & kept, has.permitted & kept);
    rustix::thread::set_capabilities(None, CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() })
}

/// What a command needs to be started with, and what it is held to. Made before its processes.
#[derive(Debug)]
pub struct Wall {
    family: Family,
    removed: Removed,
    /// The command's own temporary folder, where it has one.
    pub temporary: Option<PathBuf>,
}

/// What is started.
#[derive(Debug)]
pub struct Program<'a> {
    /// Absolute.
    pub path: &'a Path,
    /// As the script named it: what the program sees as its own name.
    pub name: &'a str,
    /// Its arguments.
    pub args: &'a [String],
    /// All variables; there are no others.
    pub env: &'a BTreeMap<String, String>,
    /// Folder to start in.
    pub folder: &'a Dir,
    /// Its three streams.
    pub streams: [OwnedFd; 3],
}

impl Wall {
    /// Starts a program behind it.
    ///
    /// # Errors
    ///
    /// What could not be done, for the script's author; without a path of the host's.
    pub fn start(self, program: Program<'_>) -> Result<Held, String> {
        let Program { path, name, args, env, folder, streams } = program;
        let text = |bytes: &[u8]| CString::new(bytes).map_err(|_| "there is a NUL in it".to_owned());
        let args = std::iter::once(name).chain(args.iter().map(String::as_str));
        let program = family::Program {
            path: text(path.as_os_str().as_bytes())?,
            args: args.map(|arg| text(arg.as_bytes())).collect::<Result<_, _>>()?,
            env: env
                .iter()
                .map(|(name, value)| text(format!("{name}={value}").as_bytes()))
                .collect::<Result<_, _>>()?,
            streams,
            folder: folder.as_fd(),
        };
        let mut begun = self.family.start(Some(&program)).map_err(|Failed { step, error }| match step {
            Some(step) => format!("it cannot be confined: {}: {error}", step.name()),
            None => error.to_string(),
        })?;
        let listeners = std::mem::take(&mut begun.listeners);
        Ok(Held { begun: Some(begun), listeners, left: Some((self.removed, Left::new())) })
    }
}

/// What the host holds of a command that runs. Dropping it ends all of the command's processes, and leaves nothing of it.
#[derive(Debug)]
pub struct Held {
    begun: Option<Begun>,
    listeners: Vec<OwnedFd>,
    left: Option<(Removed, Left)>,
}

/// What is removed when it is dropped; to be kept until the last of the command's processes has ended.
#[derive(Debug)]
struct Removed {
    group: Option<Group>,
    temporary: Option<Temporary>,
    names: Vec<ClosedNames>,
}

/// Commands of this process of which something is left: processes, or what is [removed](Removed) after these.
static LEFT: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

/// One of them.
#[derive(Debug)]
struct Left;

impl Left {
    fn new() -> Self {
        let mut count = LEFT.0.lock().unwrap_or_else(PoisonError::into_inner);
        *count = count.saturating_add(1);
        Self
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        let mut count = LEFT.0.lock().unwrap_or_else(PoisonError::into_inner);
        *count = count.saturating_sub(1);
        LEFT.1.notify_all();
    }
}

/// A command that is being started on a thread that nobody may wait for any more: what is made for it is there before its
/// processes are. To be dropped when it is started.
#[derive(Debug)]
pub struct Starting {
    _left: Left,
}

impl Starting {
    /// A start begins.
    pub fn begin() -> Self {
        Self { _left: Left::new() }
    }
}

/// Waits until nothing is left of the commands whose calls were dropped, so long at most. For a process that is about to
/// end: what is left then of temporary folders, the next one removes.
pub fn wait_for_ends(most: Duration) {
    let count = LEFT.0.lock().unwrap_or_else(PoisonError::into_inner);
    drop(LEFT.1.wait_timeout_while(count, most, |count| *count > 0));
}

impl Held {
    /// The sockets that listen in the command's own network, in the order of [`LocalNetwork::listen`]. Once.
    pub fn listeners(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.listeners)
    }

    /// A handle that can be read from when the command and all that came of it has ended.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn handle(&self) -> io::Result<OwnedFd> {
        self.begun.as_ref().ok_or(io::ErrorKind::NotFound)?.keeper.try_clone()
    }

    /// Sends SIGTERM to all of its processes; without namespaces, to those of the command's own group.
    pub fn terminate(&self) {
        if let Some(begun) = &self.begun {
            begun.terminate();
        }
    }

    /// Ends all of its processes; someone has to wait for it.
    pub fn end(mut self) -> Self {
        if let Some(begun) = &mut self.begun {
            begun.end();
        }
        self
    }

    /// Ends all of its processes and waits for that; gives the command's code, where it ended by itself with one, and, where
    /// that is not 0, which limits it ran into.
    pub async fn finish(mut self) -> (Option<i32>, Hit) {
        let code = self.begun.take().and_then(Begun::finish);
        let Some((Removed { group, temporary, names }, left)) = self.left.take() else { return (code, Hit::default()) };
        let hit = group.filter(|_| code != Some(0)).map(|group| group.hit()).unwrap_or_default();
        drop(names);
        // What is in it may be much.
        if let Some(folder) = temporary {
            let _ = tokio::task::spawn_blocking(move || drop((folder, left))).await;
        }
        (code, hit)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let (Some(begun), left) = (self.begun.take(), self.left.take()) else { return };
        let ending = Ending { begun: Some(begun), _left: left };
        // Killing takes its time, and nobody here waits for it.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(move || drop(ending))),
            Err(_) => drop(ending),
        }
    }
}

/// A command that nobody waits for: its processes end before the rest is removed, also where a runtime that ends runs
/// nothing any more.
#[derive(Debug)]
struct Ending {
    begun: Option<Begun>,
    _left: Option<(Removed, Left)>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(begun) = self.begun.take() {
            begun.finish();
        }
    }
}

/// The wall that a command of this grant gets, or all that the kernel lacks for one.
///
/// # Errors
///
/// What is missing.
pub fn tier(grant: &Grant, offers: &Offers) -> Result<Tier, Vec<String>> {
    if grant.exec_unconfined() {
        return Ok(Tier::Unconfined);
    }
    offers.wall().map(|wall| Tier::Confined(wall.files))
}

/// Tries what a view needs, in processes that do nothing else, and shows how it works, and whether with a network of
/// its own; or which step does not.
fn probe() -> Result<(Namespaces, bool), String> {
    let system = System::get()?;
    let folder = system.folders.first().ok_or("there are no folders of programs")?;
    let mut why = String::new();
    let kinds = if sys::user() == 0 { &[Namespaces::Own, Namespaces::User][..] } else { &[Namespaces::User] };
    for kind in kinds {
        let own = Network::none(*kind);
        // A kernel may be built without namespaces for networks.
        for network in [own, Network::Machine] {
            let (nowhere, names) = (Path::new("/.workspace"), None);
            let shown = Shown { system, folders: &[], closed: &[], places: &[], workspace: nowhere, home: None, names };
            let has_network = !matches!(network, Network::Machine);
            let stat = rustix::fs::stat(folder).map_err(|error| io::Error::from(error).to_string())?;
            let bond = Bond::Namespaces {
                user: user_map(*kind)?,
                network,
                view: Plan::new(&shown)?,
                folder: view::text(folder.strip_prefix("/").unwrap_or(folder))?,
                identity: reach::Identity::of(&stat),
            };
            match (Family { bond, confinement: Confinement(None), doors: Vec::new() }).start(None) {
                Ok(tried) => {
                    tried.finish();
                    return Ok((*kind, has_network));
                }
                Err(Failed { step, error }) => why = format!("{}: {error}", step.map_or("starting", Step::name)),
            }
        }
    }
    Err(why)
}

/// The error of the last call that the C library made.
fn last_error() -> Errno {
    Errno::from_raw_os_error(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}
