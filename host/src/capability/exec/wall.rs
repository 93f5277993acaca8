//! What the kernel holds a command to, beside the rules that decided on it.
//!
//! - Its files are those that the grant opens (`reach`) and the machine's folders of programs (`system`), in a file
//!   system of its own (`view`), by rules of the kernel's (`landlock`), or by both. A view comes first where both are
//!   there: it takes a secret out of an open folder, which rules cannot, and with it come the command's own processes and
//!   nobody else's. Rules go around it, so that a mistake in one of them opens nothing.
//! - It makes no system call that reaches into the system or into other processes, and without `exec.network` no socket
//!   (`filters`). It gains no privileges and keeps none but, as root, those over files.
//! - Its processes are counted, and so are the memory and the processor time of each and the size of its files. They end
//!   with the command, with its time, and with the host (`family`).
//!
//! There is no crate for this that a library can use: those that are kept build containers, start helper programs, or
//! confine their caller.

mod cgroup;
mod family;
mod filters;
pub(crate) mod host;
mod landlock;
mod offers;
mod reach;
mod system;
mod view;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{Resource, Rlimit, WaitOptions, setrlimit, waitpid};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::Place;
use crate::ambient;
use crate::policy::grant::Grant;
use cgroup::Group;
use family::{Bond, Family, UserMap};
use filters::Filters;
use system::System;
use view::{Plan, Shown};

pub use offers::{Count, Files, Namespaces, Offers, Standing, Tier};

/// Bytes of memory that each process of a command may make its own. Compilers take two.
pub const MEMORY: u64 = 4 << 30;

/// What a command keeps of root's privileges: those over files, which the wall holds in other ways. Without them root
/// could not write into a folder of somebody else's.
const KEPT: CapabilitySet =
    CapabilitySet::CHOWN.union(CapabilitySet::DAC_OVERRIDE).union(CapabilitySet::FOWNER).union(CapabilitySet::FSETID);

/// What a command's first process does before it is the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Step {
    Session = 1,
    Processes,
    UserNamespace,
    Namespaces,
    View,
    Folder,
    Limits,
    Privileges,
    Rules,
    Filters,
}

impl Step {
    const ALL: [Self; 10] = [
        Self::Session,
        Self::Processes,
        Self::UserNamespace,
        Self::Namespaces,
        Self::View,
        Self::Folder,
        Self::Limits,
        Self::Privileges,
        Self::Rules,
        Self::Filters,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Session => "its own session",
            Self::Processes => "a count of its processes",
            Self::UserNamespace => "a user namespace",
            Self::Namespaces => "namespaces",
            Self::View => "its view of the files",
            Self::Folder => "the folder to start in",
            Self::Limits => "limits",
            Self::Privileges => "giving up privileges",
            Self::Rules => "Landlock",
            Self::Filters => "filters of system calls",
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
    filters: Filters,
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
        match last_error() {
            _ if done == 0 => {}
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

/// What a command needs to be started with, and what it is held to. Made before the fork.
#[derive(Debug)]
pub(super) struct Wall {
    pub(super) family: Start,
    pub(super) held: Held,
    pub(super) removed: Removed,
    /// The command's own temporary folder, where it has one.
    pub(super) temporary: Option<PathBuf>,
}

/// What goes into the new process.
#[derive(Debug)]
pub(super) struct Start(Family);

impl Start {
    /// To be called between fork and exec. See [`Family::enter`].
    pub(super) fn enter(&self) -> io::Result<()> {
        self.0.enter()
    }
}

/// What the host holds of a command. Dropping it ends all of the command's processes.
#[derive(Debug)]
pub(super) struct Held {
    lifeline: Option<OwnedFd>,
    report: OwnedFd,
}

/// What is removed when it is dropped; to be kept until the last of the command's processes has ended.
#[derive(Debug)]
pub(super) struct Removed {
    _group: Option<Group>,
    _temporary: Option<tempfile::TempDir>,
}

impl Held {
    /// Ends all of the command's processes. The keeper ends after the last of them.
    pub(super) fn end(&mut self) {
        self.lifeline = None;
    }

    /// What failed of the start, where it was not the program itself.
    pub(super) fn failed(&self) -> Option<&'static str> {
        failed_step(&self.report).map(Step::name)
    }
}

fn failed_step(report: &OwnedFd) -> Option<Step> {
    let mut byte = [0];
    match rustix::io::read(report, &mut byte) {
        Ok(1) => Step::ALL.into_iter().find(|step| *step as u8 == byte[0]),
        _ => None,
    }
}

/// The two ends of what holds a command's processes to the host, and of what they tell of a failed start.
fn ties(bond: Bond, confinement: Confinement, count: Option<OwnedFd>) -> io::Result<(Family, OwnedFd, OwnedFd)> {
    let (lifeline, held) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    // It is read after everybody who could write has ended or become the command; and if not, then not waited for.
    let (told, report) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    Ok((Family { bond, confinement, lifeline, report, count }, held, told))
}

/// What a wall is made for.
#[derive(Debug, Clone, Copy)]
pub(super) struct For<'a> {
    pub(super) grant: &'a Grant,
    pub(super) place: Place<'a>,
    /// As it was found.
    pub(super) program: &'a Path,
    /// As the script named it.
    pub(super) name: &'a str,
    /// The time that the command has.
    pub(super) time: Duration,
}

/// The wall that a command of this grant gets, or all that the kernel lacks for one.
///
/// # Errors
///
/// What is missing.
pub(super) fn tier(grant: &Grant, offers: &Offers) -> Result<Tier, Vec<String>> {
    if grant.exec_unconfined() {
        return Ok(Tier::Unconfined);
    }
    offers.wall().map(|wall| Tier::Confined(wall.files))
}

impl Wall {
    /// # Errors
    ///
    /// Why the command cannot be held, for the script's author; without a path of the host's.
    pub(super) fn new(wanted: &For<'_>) -> Result<Self, String> {
        if wanted.grant.exec_unconfined() {
            return Self::none();
        }
        let offers = Offers::get();
        let stands = offers.wall().map_err(|missing| {
            format!("the kernel lacks {}; `exec.unconfined: true` would run it without a wall", missing.join(", and "))
        })?;
        let system = System::get()?;
        let grant = wanted.grant;
        let places = reach::places(grant, wanted.place.workspace)?;
        let home = ambient::variable("HOME").map(PathBuf::from);
        let folders: Vec<PathBuf> = (grant.exec_folders().iter().filter_map(|folder| folder.path(home.as_deref())))
            .filter_map(|folder| ambient::real_path(&folder).ok())
            .collect();
        if folders.iter().any(|folder| wanted.place.workspace.starts_with(folder)) {
            return Err("the workspace is inside of a folder that `exec.folders` opens".to_owned());
        }
        is_there(wanted, system, &folders)?;
        let limits = grant.limits();
        let (mut own_temporary, mut rules) = (None, landlock::of_system(system, &folders));
        let (bond, temporary, later) = match stands.namespaces {
            Some(namespaces) => {
                let view = Plan::new(&Shown {
                    system,
                    folders: &folders,
                    places: &places,
                    workspace: wanted.place.workspace,
                    home: home.as_deref(),
                })?;
                rules.extend(landlock::of_view(&places));
                let later = landlock::Later::of_view(&view.private, offers.landlock.unwrap_or_default())?;
                let temporary = PathBuf::from(view.temporary);
                (namespaced(namespaces, view, wanted.place)?, temporary, later)
            }
            None if system.shows(wanted.place.workspace) => {
                return Err(
                    "the workspace is inside of a folder of the system's, which only namespaces could close".to_owned()
                );
            }
            None => {
                let list = |folder: &Path| ambient::entries(folder);
                let listed = landlock::of_workspace(&places, &list);
                rules.extend(listed.map_err(|error| format!("the workspace cannot be looked at: {error}"))?);
                let folder = tempfile::tempdir().map_err(|error| format!("there is no temporary folder: {error}"))?;
                let temporary = folder.path().to_owned();
                rules.push(landlock::Rule { path: temporary.clone(), may: landlock::May::Change });
                // Not to be written: what root writes there is for the whole machine.
                rules.push(landlock::Rule { path: "/proc".into(), may: landlock::May::Read });
                own_temporary = Some(folder);
                (Bond::Children, temporary, Vec::new())
            }
        };
        let rules = match stands.files {
            Files::View => None,
            Files::ViewAndRules => Some((landlock::Rules::new(&rules, false)?, later)),
            Files::Rules => Some((landlock::Rules::new(&rules, true)?, later)),
        };
        let (group, user) = match stands.count {
            Count::Group => (Some(Group::new(limits.processes)?), None),
            // Two more: those that wait for the command.
            Count::Namespace => (None, Some(limits.processes.saturating_add(2))),
            Count::User => {
                let now = ambient::tasks_of(ambient::user()).map_err(|error| format!("processes: {error}"))?;
                (None, Some(limits.processes.saturating_add(now).saturating_add(2)))
            }
        };
        let confinement = Confinement(Some(Parts {
            limits: resources(limits.file_bytes, wanted.time, user),
            kept: match stands.namespaces {
                Some(Namespaces::User) => CapabilitySet::empty(),
                Some(Namespaces::Own) | None => KEPT,
            },
            rules,
            filters: Filters::new(grant.exec_network())?,
        }));
        let system_error = |error: io::Error| error.to_string();
        let door = group.as_ref().map(Group::door).transpose().map_err(system_error)?;
        let (family, lifeline, report) = ties(bond, confinement, door).map_err(system_error)?;
        let held = Held { lifeline: Some(lifeline), report };
        let removed = Removed { _group: group, _temporary: own_temporary };
        Ok(Self { family: Start(family), held, removed, temporary: Some(temporary) })
    }

    /// No wall: the processes end with the command and with the host, and that is all.
    fn none() -> Result<Self, String> {
        let (family, lifeline, report) =
            ties(Bond::Children, Confinement(None), None).map_err(|error| error.to_string())?;
        let held = Held { lifeline: Some(lifeline), report };
        let removed = Removed { _group: None, _temporary: None };
        Ok(Self { family: Start(family), held, removed, temporary: None })
    }
}

fn namespaced(namespaces: Namespaces, view: Plan, place: Place<'_>) -> Result<Bond, String> {
    let (folder, identity) =
        reach::whereabouts(place.dir).map_err(|error| format!("the folder to start in: {error}"))?;
    Ok(Bond::Namespaces {
        user: user_map(namespaces)?,
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
    let real = ambient::real_path(wanted.program).map_err(|error| error.to_string())?;
    let seen = system.shows(&real)
        || folders.iter().any(|folder| real.starts_with(folder))
        || real.starts_with(wanted.place.workspace);
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

fn resources(file_bytes: u64, time: Duration, user: Option<u64>) -> Vec<(Resource, u64)> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| u64::try_from(cores.get()).unwrap_or(1));
    let seconds = time.as_secs().saturating_add(1);
    let mut limits = vec![
        (Resource::Core, 0),
        (Resource::Fsize, file_bytes),
        (Resource::Data, MEMORY),
        // Of each process, which may use all cores; the command's own time ends it before that.
        (Resource::Cpu, seconds.saturating_mul(cores)),
    ];
    limits.extend(user.map(|processes| (Resource::Nproc, processes)));
    limits
}

/// Tries what a view needs, in processes that do nothing else, and tells how it works or which step does not.
fn probe() -> Result<Namespaces, String> {
    let system = System::get()?;
    let folder = system.folders.first().ok_or("there are no folders of programs")?;
    let mut why = String::new();
    let kinds = if ambient::user() == 0 { &[Namespaces::Own, Namespaces::User][..] } else { &[Namespaces::User] };
    for kind in kinds {
        let nowhere = Path::new("/.workspace");
        let shown = Shown { system, folders: &[], places: &[], workspace: nowhere, home: None };
        let stat = rustix::fs::stat(folder).map_err(|error| io::Error::from(error).to_string())?;
        let bond = Bond::Namespaces {
            user: user_map(*kind)?,
            view: Plan::new(&shown)?,
            folder: view::text(folder.strip_prefix("/").unwrap_or(folder))?,
            identity: reach::Identity::of(&stat),
        };
        match attempt(bond) {
            Ok(None) => return Ok(*kind),
            Ok(Some((step, error))) => why = format!("{}: {error}", step.name()),
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}

/// Goes through all steps of a bond in a child; gives the one that failed.
fn attempt(bond: Bond) -> io::Result<Option<(Step, io::Error)>> {
    let (family, lifeline, report) = ties(bond, Confinement(None), None)?;
    let Some(child) = family::fork(0)? else {
        let code = family.enter().map_or_else(|error| error.raw_os_error().unwrap_or(1), |()| 0);
        family::exit(code)
    };
    let status = loop {
        match waitpid(Some(child), WaitOptions::empty()) {
            Err(Errno::INTR) => {}
            status => break status?,
        }
    };
    drop(lifeline);
    match status.and_then(|(_, status)| status.exit_status()) {
        Some(0) => Ok(None),
        code => {
            let error = code.map_or_else(|| io::Error::other("not permitted"), io::Error::from_raw_os_error);
            let step = failed_step(&report).unwrap_or(Step::Namespaces);
            Ok(Some((step, error)))
        }
    }
}

/// The error of the last call that the C library made.
fn last_error() -> Errno {
    Errno::from_raw_os_error(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}
