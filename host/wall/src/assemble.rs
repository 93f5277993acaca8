//! Puts a wall together: from what a command is granted, by what the kernel offers.
//!
//! Everything is made here, before the fork: texts, rules, folders and the control group. The command's processes only
//! put it in force.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cap_std::fs::Dir;
use rustix::process::Resource;
use rustix::thread::CapabilitySet;

use super::beside::Beside;
use super::cgroup::Group;
use super::confine::Sockets;
use super::family::{Bond, Family, UserMap};
use super::filters::Filters;
use super::landlock::{self, Later, May, Rule, Rules};
use super::listings::{Listings, Now};
use super::names::ClosedNames;
use super::network::{LocalNetwork, Network};
use super::offers::{Count, Files, Memory, Namespaces, Offers, Standing};
use super::reach::{self, AccessEntry};
use super::system::System;
use super::temporary::Temporary;
use super::view::{self, Plan, Shown};
use super::{Confinement, KEPT, Parts, Removed, Wall};
use harness_policy::command::CommandReach;
use harness_policy::grant::Grant;
use harness_policy::limits::Limits;
use harness_policy::path::WorkspacePath;
use harness_sys as sys;

/// What a wall is made for.
#[derive(Debug, Clone, Copy)]
pub struct For<'a> {
    /// What the command is held to.
    pub grant: &'a Grant,
    /// The folder to start in, opened by the decision on it.
    pub dir: &'a Dir,
    /// The workspace, absolute.
    pub workspace: &'a Path,
    /// What its folders held when commands of the project were last started.
    pub listings: &'a Listings,
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
    /// The command's own network, where it is granted some hosts.
    pub network: Option<&'a LocalNetwork>,
    /// A folder, absolute and without links, that the host has put its program in: it is seen whole, beside what is granted.
    pub installed: Option<&'a Path>,
}

impl Wall {
    /// # Errors
    ///
    /// Why the command cannot be held, for the script's author; without a path of the host's.
    pub fn new(wanted: &For<'_>) -> Result<Self, String> {
        let grant = wanted.grant;
        if grant.exec_unconfined() {
            return match grant.exec_network() {
                CommandReach::Hosts => Err(format!(
                    "`exec.network` names hosts, and nothing holds a command to them that runs with `exec.unconfined: true`; \
                     remove one of the two in `{}`",
                    grant.nearest_origin().file
                )),
                CommandReach::None | CommandReach::All => Ok(Self::none()),
            };
        }
        let offers = Offers::get();
        let stands = offers.wall().map_err(|missing| {
            format!("the kernel lacks {}; `exec.unconfined: true` would run it without a wall", missing.join(", and "))
        })?;
        let system = System::get()?;
        let governed = wanted.governed_folders();
        // Before the workspace is walked: it finds them.
        let names = match stands.namespaces {
            Some(_) => governed.iter().map(|folder| ClosedNames::hold(folder)).collect::<Result<_, _>>()?,
            None => Vec::new(),
        };
        let reached = Reached::new(wanted, system)?;
        let FileAccess { bond, temporary, own_temporary, rules, later } = match stands.namespaces {
            Some(namespaces) => {
                let network = command_network(wanted, &stands, namespaces)?;
                reached.in_view(wanted, namespaces, network, offers.landlock.unwrap_or_default())?
            }
            None if grant.exec_network() == CommandReach::Hosts => return Err(no_network_of_its_own()),
            None => reached.by_rules(wanted, &governed)?,
        };
        let rules = match stands.files {
            Files::View => None,
            Files::ViewAndRules => Some((Rules::new(&rules, false)?, later)),
            Files::Rules => Some((Rules::new(&rules, true)?, later)),
        };
        let limits = grant.limits();
        let (group, user) = process_count(stands.count, &limits)?;
        let confinement = Confinement(Some(Parts {
            limits: resources(&limits, wanted.time, user, stands.memory),
            kept: match stands.namespaces {
                Some(Namespaces::User) => CapabilitySet::empty(),
                Some(Namespaces::Own) | None => KEPT,
            },
            rules,
            filters: Filters::of_command(sockets(grant), stands.files == Files::Rules, stands.memory)?,
        }));
        let doors = group.as_ref().map_or_else(|| Ok(Vec::new()), Group::doors);
        let family = Family { bond, confinement, doors: doors.map_err(|error| error.to_string())? };
        Ok(Self { family, removed: Removed { group, temporary: own_temporary, names }, temporary: Some(temporary) })
    }

    /// No wall: the processes end with the command and with the host, and that is all.
    fn none() -> Self {
        let family = Family { bond: Bond::Children, confinement: Confinement(None), doors: Vec::new() };
        Self { family, removed: Removed { group: None, temporary: None, names: Vec::new() }, temporary: None }
    }
}

impl For<'_> {
    /// The folders that govern the project or a repository and in which the command may create entries.
    fn governed_folders(&self) -> Vec<PathBuf> {
        let open = self.grant.governed_folders().filter(|folder| reach::may_create_in(self.grant, folder));
        let path = |folder: WorkspacePath| match folder.is_root() {
            true => self.workspace.to_owned(),
            false => self.workspace.join(folder.to_string()),
        };
        open.map(path).collect()
    }
}

/// What a command reaches of the machine's files.
struct Reached<'a> {
    system: &'static System,
    /// Of the workspace.
    places: Vec<AccessEntry>,
    /// The user's own folder.
    home: Option<&'a Path>,
    /// Of the folders that the policy names.
    beside: Beside,
}

/// How the kernel holds a command to that.
struct FileAccess {
    bond: Bond,
    /// The command's temporary folder.
    temporary: PathBuf,
    /// The same, where it is on the machine's disk.
    own_temporary: Option<Temporary>,
    rules: Vec<Rule>,
    /// Rules for folders of the view.
    later: Vec<Later>,
}

impl<'a> Reached<'a> {
    /// # Errors
    ///
    /// What cannot be looked at or held, for the script's author.
    fn new(wanted: &For<'a>, system: &'static System) -> Result<Self, String> {
        let places = reach::places(wanted.grant, wanted.workspace, wanted.listings.walk(Now::get()))?;
        let home = wanted.home;
        let beside = Beside::new(wanted.grant, home, system, wanted.secrets, wanted.installed)?;
        if beside.folders.iter().any(|folder| wanted.workspace.starts_with(folder)) {
            return Err("the workspace is inside of a folder that `exec.folders` opens".to_owned());
        }
        is_there(wanted, system, &beside.folders)?;
        Ok(Self { system, places, home, beside })
    }

    /// In a file system of the command's own. `version` is that of Landlock.
    fn in_view(
        self,
        wanted: &For<'_>,
        namespaces: Namespaces,
        network: Network,
        version: u32,
    ) -> Result<FileAccess, String> {
        let Self { system, places, home, beside } = &self;
        let view = Plan::new(&Shown {
            system,
            folders: &beside.folders,
            closed: &beside.closed,
            places,
            workspace: wanted.workspace,
            home: *home,
            names: match (&network, wanted.network) {
                (Network::Local(_), Some(local)) => Some(local.hosts()),
                _ => None,
            },
        })?;
        let rules = [landlock::of_system(system, &beside.folders), landlock::of_view(places)].concat();
        let later = Later::of_view(&view.private, version)?;
        let temporary = PathBuf::from(view.temporary);
        let (folder, identity) =
            reach::whereabouts(wanted.dir).map_err(|error| format!("the folder to start in: {error}"))?;
        let bond = Bond::Namespaces {
            user: user_map(namespaces)?,
            network,
            view,
            folder: view::text(folder.strip_prefix("/").unwrap_or(&folder))?,
            identity,
        };
        Ok(FileAccess { bond, temporary, own_temporary: None, rules, later })
    }

    /// In the machine's file system, by Landlock's rules alone.
    fn by_rules(self, wanted: &For<'_>, governed: &[PathBuf]) -> Result<FileAccess, String> {
        let Self { system, mut places, beside, .. } = self;
        if system.shows(wanted.workspace) {
            return Err(
                "the workspace is inside of a folder of the system's, which only namespaces could close".to_owned()
            );
        }
        governed.iter().for_each(|folder| reach::close_names(&mut places, folder));
        let list = |folder: &Path| sys::entries(folder);
        let listed = landlock::of_workspace(&places, &list);
        let mut rules = landlock::of_open_system(system, &beside.folders, &beside.closed)?;
        rules.extend(listed.map_err(|error| format!("the workspace cannot be read: {error}"))?);
        let own = Temporary::new().map_err(|error| format!("there is no temporary folder: {error}"))?;
        let temporary = own.path.clone();
        rules.push(Rule { path: temporary.clone(), may: May::Change });
        // Not to be written: what root writes there is for the whole machine.
        rules.push(Rule { path: "/proc".into(), may: May::Read });
        Ok(FileAccess { bond: Bond::Children, temporary, own_temporary: Some(own), rules, later: Vec::new() })
    }
}

fn command_network(wanted: &For<'_>, stands: &Standing, namespaces: Namespaces) -> Result<Network, String> {
    Ok(match wanted.grant.exec_network() {
        CommandReach::All => Network::Machine,
        CommandReach::None if stands.network => Network::none(namespaces),
        CommandReach::None => Network::Machine,
        CommandReach::Hosts if stands.network => {
            Network::Local(wanted.network.map(|network| network.listen.clone()).unwrap_or_default())
        }
        CommandReach::Hosts => return Err(no_network_of_its_own()),
    })
}

fn no_network_of_its_own() -> String {
    "`exec.network` names hosts, and this machine gives commands no network of their own, which could hold them to \
     those; `harness doctor` reports why"
        .to_owned()
}

/// The sockets that a command may make.
fn sockets(grant: &Grant) -> Sockets {
    match grant.exec_network() {
        CommandReach::None => Sockets::None,
        CommandReach::Hosts => Sockets::Internet,
        CommandReach::All => Sockets::Commands,
    }
}

pub(super) fn user_map(namespaces: Namespaces) -> Result<Option<UserMap>, String> {
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

/// What counts the command's processes: a control group, or the limit of their user.
fn process_count(count: Count, limits: &Limits) -> Result<(Option<Group>, Option<u64>), String> {
    Ok(match count {
        Count::Group => (Some(Group::new(limits.processes, limits.command_memory_bytes)?), None),
        // One more: the keeper.
        Count::Namespace => (None, Some(limits.processes.saturating_add(1))),
        Count::User => {
            let now = sys::tasks_of(sys::user()).map_err(|error| format!("processes: {error}"))?;
            (None, Some(limits.processes.saturating_add(now).saturating_add(1)))
        }
    })
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

#[cfg(test)]
mod tests;
