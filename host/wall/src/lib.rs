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

use beside::Beside;
use cgroup::Group;
pub use cgroup::Hit;
pub use family::above_streams;
use family::{Begun, Bond, Failed, Family, UserMap};
use filters::Filters;
use harness_policy::grant::Grant;
use harness_policy::limits::Limits;
use harness_policy::path::WorkspacePath;
use harness_sys as sys;
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
            Self::Network => "an empty network",
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
        let begun = self.family.start(Some(&program)).map_err(|Failed { step, error }| match step {
            Some(step) => format!("it cannot be confined: {}: {error}", step.name()),
            None => error.to_string(),
        })?;
        Ok(Held { begun: Some(begun), left: Some((self.removed, Left::new())) })
    }
}

/// What the host holds of a command that runs. Dropping it ends all of the command's processes, and leaves nothing of it.
#[derive(Debug)]
pub struct Held {
    begun: Option<Begun>,
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

/// Waits until nothing is left of the commands whose calls were dropped, so long at most. For a process that is about to
/// end: what is left then of temporary folders, the next one removes.
pub fn wait_for_ends(most: Duration) {
    let count = LEFT.0.lock().unwrap_or_else(PoisonError::into_inner);
    drop(LEFT.1.wait_timeout_while(count, most, |count| *count > 0));
}

impl Held {
    /// A handle that can be read from when the command and all that came of it has ended.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn handle(&self) -> io::Result<OwnedFd> {
        self.begun.as_ref().ok_or(io::ErrorKind::NotFound)?.keeper.try_clone()
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

/// What a wall is made for.
#[derive(Debug, Clone, Copy)]
pub struct For<'a> {
    /// What the command is held to.
    pub grant: &'a Grant,
    /// The folder to start in, opened by the decision on it.
    pub dir: &'a Dir,
    /// The workspace, absolute.
    pub workspace: &'a Path,
    /// Files that hold secrets of the call: closed to the command.
    pub secrets: &'a [PathBuf],
    /// The home folder: what `~` in a rule means.
    pub home: Option<&'a Path>,
    /// As it was found.
    pub program: &'a Path,
    /// As the script named it.
    pub name: &'a str,
    /// The time that the command has.
    pub time: Duration,
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

impl Wall {
    /// # Errors
    ///
    /// Why the command cannot be held, for the script's author; without a path of the host's.
    pub fn new(wanted: &For<'_>) -> Result<Self, String> {
        if wanted.grant.exec_unconfined() {
            return Ok(Self::none());
        }
        let offers = Offers::get();
        let stands = offers.wall().map_err(|missing| {
            format!("the kernel lacks {}; `exec.unconfined: true` would run it without a wall", missing.join(", and "))
        })?;
        let system = System::get()?;
        let grant = wanted.grant;
        // The walk comes by them.
        let governed: Vec<WorkspacePath> =
            grant.governed_folders().filter(|folder| reach::may_create_in(grant, folder)).collect();
        let inside = |folder: &WorkspacePath| match folder.is_root() {
            true => wanted.workspace.to_owned(),
            false => wanted.workspace.join(folder.to_string()),
        };
        let names =
            governed.iter().filter(|_| stands.namespaces.is_some()).map(|folder| ClosedNames::hold(&inside(folder)));
        let names = names.collect::<Result<Vec<_>, _>>()?;
        let mut places = reach::places(grant, wanted.workspace)?;
        let home = wanted.home;
        let beside = Beside::new(grant, home, system, wanted.secrets)?;
        let folders = beside.folders.as_slice();
        if folders.iter().any(|folder| wanted.workspace.starts_with(folder)) {
            return Err("the workspace is inside of a folder that `exec.folders` opens".to_owned());
        }
        is_there(wanted, system, folders)?;
        let limits = grant.limits();
        let mut own_temporary = None;
        let (bond, temporary, rules, later) = match stands.namespaces {
            Some(namespaces) => {
                let view = Plan::new(&Shown {
                    system,
                    folders,
                    closed: &beside.closed,
                    places: &places,
                    workspace: wanted.workspace,
                    home,
                })?;
                let rules = [landlock::of_system(system, folders), landlock::of_view(&places)].concat();
                let later = landlock::Later::of_view(&view.private, offers.landlock.unwrap_or_default())?;
                let temporary = PathBuf::from(view.temporary);
                let network = match stands.network && !grant.exec_network() {
                    true => Network::none(namespaces),
                    false => Network::Hosts,
                };
                (namespaced(namespaces, network, view, wanted.dir)?, temporary, rules, later)
            }
            None if system.shows(wanted.workspace) => {
                return Err(
                    "the workspace is inside of a folder of the system's, which only namespaces could close".to_owned()
                );
            }
            None => {
                governed.iter().for_each(|folder| reach::close_names(&mut places, &inside(folder)));
                let list = |folder: &Path| sys::entries(folder);
                let listed = landlock::of_workspace(&places, &list);
                let mut rules = landlock::of_open_system(system, folders, &beside.closed)?;
                rules.extend(listed.map_err(|error| format!("the workspace cannot be read: {error}"))?);
                let folder = Temporary::new().map_err(|error| format!("there is no temporary folder: {error}"))?;
                let temporary = folder.path.clone();
                rules.push(landlock::Rule { path: temporary.clone(), may: landlock::May::Change });
                // Not to be written: what root writes there is for the whole machine.
                rules.push(landlock::Rule { path: "/proc".into(), may: landlock::May::Read });
                own_temporary = Some(folder);
                (Bond::Children, temporary, rules, Vec::new())
            }
        };
        let rules = match stands.files {
            Files::View => None,
            Files::ViewAndRules => Some((landlock::Rules::new(&rules, false)?, later)),
            Files::Rules => Some((landlock::Rules::new(&rules, true)?, later)),
        };
        let (group, user) = match stands.count {
            Count::Group => (Some(Group::new(limits.processes, limits.command_memory_bytes)?), None),
            // One more: the keeper.
            Count::Namespace => (None, Some(limits.processes.saturating_add(1))),
            Count::User => {
                let now = sys::tasks_of(sys::user()).map_err(|error| format!("processes: {error}"))?;
                (None, Some(limits.processes.saturating_add(now).saturating_add(1)))
            }
        };
        let confinement = Confinement(Some(Parts {
            limits: resources(&limits, wanted.time, user, stands.memory),
            kept: match stands.namespaces {
                Some(Namespaces::User) => CapabilitySet::empty(),
                Some(Namespaces::Own) | None => KEPT,
            },
            rules,
            filters: Filters::of_command(grant.exec_network(), stands.files == Files::Rules, stands.memory)?,
        }));
        let system_error = |error: io::Error| error.to_string();
        let doors = group.as_ref().map_or_else(|| Ok(Vec::new()), Group::doors).map_err(system_error)?;
        let family = Family { bond, confinement, doors };
        Ok(Self { family, removed: Removed { group, temporary: own_temporary, names }, temporary: Some(temporary) })
    }

    /// No wall: the processes end with the command and with the host, and that is all.
    fn none() -> Self {
        let family = Family { bond: Bond::Children, confinement: Confinement(None), doors: Vec::new() };
        Self { family, removed: Removed { group: None, temporary: None, names: Vec::new() }, temporary: None }
    }
}

fn namespaced(namespaces: Namespaces, network: Network, view: Plan, dir: &Dir) -> Result<Bond, String> {
    let (folder, identity) = reach::whereabouts(dir).map_err(|error| format!("the folder to start in: {error}"))?;
    Ok(Bond::Namespaces {
        user: user_map(namespaces)?,
        network,
        view,
        folder: view::text(folder.strip_prefix("/").unwrap_or(&folder))?,
        identity,
    })
}

fn user_map(namespaces: Namespaces) -> Result<Option<UserMap>, String> {
    match namespaces {
        Namespaces::Own => Ok(None),
        Namespaces::User => UserMap::of_this_user().map(Some).ok_or_else(|| "this user has no number".to_owned()),
    }
}

/// Whether a program is where commands see it. Better said here than by the system, which would say that it is not there.
fn is_there(wanted: &For<'_>, system: &System, folders: &[PathBuf]) -> Result<(), String> {
    let real = sys::real_path(wanted.program).map_err(|error| error.to_string())?;
    let seen = system.shows(&real)
        || folders.iter().any(|folder| real.starts_with(folder))
        || real.starts_with(wanted.workspace);
    if seen {
        return Ok(());
    }
    let origin = wanted.grant.nearest_origin();
    Err(format!(
        "`{}` is in none of the folders that commands see; add the folder that it is installed in to `{}` in `{}`",
        wanted.name,
        origin.key("exec.folders"),
        origin.file
    ))
}

/// Files that a process has open at one time, as on most machines.
const OPEN_FILES: u64 = 1024;
/// What a process may have of addresses, beside what it may have of memory, and in any case: some programs set aside much
/// that they do not use.
const ADDRESSES: u64 = 4;
const LEAST_ADDRESSES: u64 = 1 << 30;

fn resources(most: &Limits, time: Duration, user: Option<u64>, memory: Memory) -> Vec<(Resource, u64)> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| u64::try_from(cores.get()).unwrap_or(1));
    let seconds = time.as_secs().saturating_add(1);
    let mut limits = vec![
        (Resource::Core, 0),
        (Resource::Fsize, most.file_bytes),
        (Resource::Data, most.command_memory_bytes),
        (Resource::Nofile, OPEN_FILES),
        // Of each process, which may use all cores; the command's own time ends it before that.
        (Resource::Cpu, seconds.saturating_mul(cores)),
    ];
    limits.extend(user.map(|processes| (Resource::Nproc, processes)));
    // The kernel counts as data what a process writes and shares with nobody. This holds the rest.
    if memory == Memory::Process {
        limits.push((Resource::As, most.command_memory_bytes.saturating_mul(ADDRESSES).max(LEAST_ADDRESSES)));
    }
    limits
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
        for network in [own, Network::Hosts] {
            let nowhere = Path::new("/.workspace");
            let shown = Shown { system, folders: &[], closed: &[], places: &[], workspace: nowhere, home: None };
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
                    return Ok((*kind, !matches!(network, Network::Hosts)));
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

#[cfg(test)]
mod tests;
