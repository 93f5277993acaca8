//! The rules that the kernel's Landlock holds a command's files to.
//!
//! A rule opens a folder with all that is in it, and nothing closes again a part of what is open. So a folder that holds
//! something closed is not opened itself but by what else is in it: what is made there later is not open, and nothing can
//! be made there. Around a [view](super::view), which has closed it already, the rules are for whole folders.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, Scope,
};
use rustix::io::Errno;

use super::reach::{AccessEntry, Reach};
use super::system::{DEVICES, System};
use harness_sys as sys;

/// The version that holds all that is asked of it alone: signals too. Linux 6.12.
pub(super) const WHOLE: u32 = 6;
/// What rules speak of, as far as the kernel knows it.
const VERSION: ABI = ABI::V6;

/// What may be done below a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum May {
    /// List it and what is in it.
    List,
    /// Read it, and run what is in it.
    Read,
    /// Read it and write to what is there, and neither make nor remove anything.
    Use,
    /// Anything.
    Change,
}

impl May {
    fn access(self, is_dir: bool) -> BitFlags<AccessFs> {
        let all = match self {
            Self::List => AccessFs::ReadDir.into(),
            Self::Read => AccessFs::from_read(VERSION),
            Self::Use => AccessFs::from_read(VERSION) | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev,
            // Not devices: nothing that is made is one.
            Self::Change => AccessFs::from_all(VERSION) & !(AccessFs::MakeChar | AccessFs::MakeBlock),
        };
        if is_dir { all } else { all & AccessFs::from_file(VERSION) }
    }
}

/// A folder or file, and what may be done there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) path: PathBuf,
    pub(super) may: May,
}

/// The rules for the machine's folders inside of a view, which has closed what is not for everybody.
pub(super) fn of_system(system: &System, folders: &[PathBuf]) -> Vec<Rule> {
    let read = |path: &PathBuf| Rule { path: path.clone(), may: May::Read };
    system.folders.iter().chain(folders).chain(&system.resolver).map(read).chain(devices()).collect()
}

/// The same with nothing else around it: what of them is not for everybody is not opened, and neither is what else is
/// `closed`.
///
/// # Errors
///
/// Where a folder with such a thing in it cannot be looked at, for a person; without a path.
pub(super) fn of_open_system(
    system: &System,
    folders: &[PathBuf],
    closed: &[(PathBuf, bool)],
) -> Result<Vec<Rule>, String> {
    let open = system.folders.iter().chain(folders).chain(&system.resolver).map(|path| (path.as_path(), Reach::Read));
    let closed = system.closed.iter().chain(closed).map(|(path, _)| (path.as_path(), Reach::Closed));
    // A link opens nothing: what it leads to has a name of its own.
    let list = |folder: &Path| {
        let entries = sys::entries(folder)?.into_iter();
        Ok(entries.filter(|entry| sys::link_target(entry).is_none()).collect())
    };
    let rules = of_places(&open.chain(closed).collect::<Vec<_>>(), &list);
    let rules = rules.map_err(|error: std::io::Error| format!("a folder of the system cannot be read: {error}"))?;
    Ok(rules.into_iter().chain(devices()).collect())
}

fn devices() -> impl Iterator<Item = Rule> {
    DEVICES.into_iter().map(|device| Rule { path: Path::new("/dev").join(device), may: May::Use })
}

/// The rules for the workspace inside of a view of it: what is closed there, the view has closed.
pub(super) fn of_view(places: &[AccessEntry]) -> Vec<Rule> {
    let open = |place: &AccessEntry| match place.reach {
        Reach::Closed => None,
        Reach::Read => Some(Rule { path: place.path.clone(), may: May::Read }),
        Reach::Write => Some(Rule { path: place.path.clone(), may: May::Change }),
    };
    places.iter().filter_map(open).collect()
}

/// The rules for a workspace with nothing else around it. `list` gives what is in a folder.
///
/// # Errors
///
/// Those of `list`.
pub(super) fn of_workspace<E>(
    places: &[AccessEntry],
    list: &impl Fn(&Path) -> Result<Vec<PathBuf>, E>,
) -> Result<Vec<Rule>, E> {
    of_places(&places.iter().map(|place| (place.path.as_path(), place.reach)).collect::<Vec<_>>(), list)
}

/// A path, and what may be done there.
type At<'a> = (&'a Path, Reach);

/// The rules for places, each after the folder that it is in.
fn of_places<E>(places: &[At<'_>], list: &impl Fn(&Path) -> Result<Vec<PathBuf>, E>) -> Result<Vec<Rule>, E> {
    let mut rules = Vec::new();
    for (index, (path, reach)) in places.iter().enumerate() {
        if *reach != Reach::Closed {
            // What is further in is listed after it.
            let inner = places.get(index.saturating_add(1)..).unwrap_or_default();
            split(path, *reach, inner, list, &mut rules)?;
        }
    }
    Ok(rules)
}

/// Opens a path as its place says, but for the places that are in it.
fn split<E>(
    path: &Path,
    reach: Reach,
    inner: &[At<'_>],
    list: &impl Fn(&Path) -> Result<Vec<PathBuf>, E>,
    rules: &mut Vec<Rule>,
) -> Result<(), E> {
    let own = |may| Rule { path: path.to_owned(), may };
    let within = || inner.iter().filter(|(inner, _)| inner.starts_with(path));
    let read_only = within().any(|(_, inner)| *inner == Reach::Read);
    if within().any(|(_, inner)| *inner == Reach::Closed) || (read_only && reach == Reach::Write) {
        rules.push(own(May::List));
        for entry in list(path)? {
            if !inner.iter().any(|(inner, _)| *inner == entry) {
                split(&entry, reach, inner, list, rules)?;
            }
        }
    } else {
        rules.push(own(if reach == Reach::Write { May::Change } else { May::Read }));
    }
    Ok(())
}

/// Rules as the kernel takes them, to be put in force between fork and exec.
#[derive(Debug)]
pub(super) struct Rules(OwnedFd);

impl Rules {
    /// Makes the rules. What is not there needs none. `whole`: the kernel must hold all of it.
    ///
    /// # Errors
    ///
    /// Where it cannot, or what is there cannot be opened, for a person; without a path.
    pub(super) fn new(rules: &[Rule], whole: bool) -> Result<Self, String> {
        let mut opened = Vec::new();
        for rule in rules {
            let found = open(&rule.path, whole).map_err(|error| format!("Landlock: a rule cannot be made: {error}"))?;
            opened.extend(found.map(|(path, is_dir)| (path, rule.may.access(is_dir))));
        }
        let made = || {
            let level = if whole { CompatLevel::HardRequirement } else { CompatLevel::BestEffort };
            let mut made = Ruleset::default()
                .set_compatibility(level)
                .handle_access(AccessFs::from_all(VERSION))?
                .scope(Scope::from_all(VERSION))?
                .create()?;
            for (path, access) in &opened {
                made = made.add_rule(PathBeneath::new(path, *access))?;
            }
            Ok::<_, landlock::RulesetError>(Option::<OwnedFd>::from(made))
        };
        match made() {
            Ok(Some(rules)) => Ok(Self(rules)),
            Ok(None) => Err("the kernel has no Landlock".to_owned()),
            Err(error) => Err(format!("Landlock: {error}")),
        }
    }

    /// Adds a rule for a folder of a view. Allocates nothing.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub(super) fn add(&self, folder: &Later) -> Result<(), Errno> {
        use rustix::fs::{Mode, OFlags};
        use std::os::fd::AsRawFd as _;
        let path = rustix::fs::open(folder.path.as_c_str(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        // As in `linux/landlock.h`, where it is packed.
        #[repr(C, packed)]
        struct Beneath {
            allowed_access: u64,
            parent: i32,
        }
        const PATH_BENEATH: i32 = 1;
        let rule = Beneath { allowed_access: folder.access, parent: path.as_raw_fd() };
        // SAFETY: the pointer leads to what this kind of rule has.
        #[expect(unsafe_code, reason = "the crate allocates, which this must not")]
        let done = unsafe {
            libc::syscall(libc::SYS_landlock_add_rule, self.0.as_raw_fd(), PATH_BENEATH, std::ptr::from_ref(&rule), 0)
        };
        if done == 0 { Ok(()) } else { Err(super::last_error()) }
    }

    /// Puts the rules in force for the calling process, which may gain no privileges. Allocates nothing.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub(super) fn enforce(&self) -> Result<(), Errno> {
        use std::os::fd::AsRawFd as _;
        // SAFETY: it takes two numbers.
        #[expect(unsafe_code, reason = "the crate allocates, which this must not")]
        let done = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, self.0.as_raw_fd(), 0) };
        if done == 0 { Ok(()) } else { Err(super::last_error()) }
    }
}

/// What a rule is about, and whether it is a folder; nothing where it is not there. Where nothing else stands around the
/// command, no link leads to it: one in the workspace would open what it leads to. Inside of a view that is not to be seen.
fn open(path: &Path, whole: bool) -> Result<Option<(OwnedFd, bool)>, Errno> {
    use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
    let resolve = if whole { ResolveFlags::NO_SYMLINKS } else { ResolveFlags::empty() };
    match openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve) {
        Ok(path) => {
            let is_dir = FileType::from_raw_mode(fstat(&path)?.st_mode).is_dir();
            Ok(Some((path, is_dir)))
        }
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(Errno::LOOP) if whole => Ok(None),
        Err(error) => Err(error),
    }
}

/// A rule for a folder that is not there yet.
#[derive(Debug)]
pub(super) struct Later {
    path: CString,
    access: u64,
}

impl Later {
    /// The folders that a view has beside those of the machine.
    ///
    /// # Errors
    ///
    /// Where a path has a NUL in it.
    pub(super) fn of_view(private: &[PathBuf], version: u32) -> Result<Vec<Self>, String> {
        // What the kernel does not know must not be in a rule.
        let known = AccessFs::from_all(match version {
            0 => ABI::Unsupported,
            1 => ABI::V1,
            2 => ABI::V2,
            3 => ABI::V3,
            4 => ABI::V4,
            5 => ABI::V5,
            _ => VERSION,
        });
        let later = |path: &Path, may: May| {
            Ok(Self { path: super::view::text(path)?, access: (may.access(true) & known).bits() })
        };
        let fixed = [("/", May::List), ("/proc", May::Read)].map(|(path, may)| later(Path::new(path), may));
        fixed.into_iter().chain(private.iter().map(|path| later(path, May::Change))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::super::reach::Identity;
    use super::*;

    fn place(path: &str, reach: Reach) -> AccessEntry {
        let stat = rustix::fs::stat("/").unwrap();
        AccessEntry { path: path.into(), reach, is_dir: true, identity: Identity::of(&stat) }
    }

    fn shown(rules: &[Rule]) -> Vec<String> {
        rules.iter().map(|rule| format!("{} {:?}", rule.path.display(), rule.may)).collect()
    }

    /// What is in a folder of the example.
    fn list(folder: &Path) -> Result<Vec<PathBuf>, Infallible> {
        let names: &[&str] = match folder.to_str().unwrap() {
            "/w" => &[".env", ".harness", "docs", "src"],
            "/w/.harness" => &["audit", "harness.md"],
            "/w/src" => &["a.rs", "deep", "x.pem"],
            _ => panic!("nobody asks for {}", folder.display()),
        };
        Ok(names.iter().map(|name| folder.join(name)).collect())
    }

    /// What another process put into the workspace opens nothing outside of it.
    #[test]
    fn no_rule_is_found_by_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().canonicalize().unwrap().join(path);
        std::fs::create_dir_all(at("outside/inner")).unwrap();
        std::os::unix::fs::symlink("outside", at("link")).unwrap();
        for (path, alone, within) in [("outside", true, true), ("link", false, true), ("link/inner", false, true)] {
            let found = |whole| open(&at(path), whole).unwrap().is_some();
            assert_eq!((found(true), found(false)), (alone, within), "{path}");
        }
    }

    /// A rule that is left out would leave a command without what it was granted, and nobody would know why.
    #[test]
    fn a_rule_that_cannot_be_made_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| Rule { path: folder.path().canonicalize().unwrap().join(path), may: May::Read };
        let too_long = format!("Landlock: a rule cannot be made: {}", Errno::NAMETOOLONG);
        for whole in [true, false] {
            assert!(open(&at("not/there").path, whole).unwrap().is_none());
            assert_eq!(Rules::new(&[at(&"x".repeat(300))], whole).unwrap_err(), too_long);
        }
    }

    #[test]
    fn a_folder_with_something_closed_is_opened_by_what_else_is_in_it() {
        let places = [
            place("/w", Reach::Write),
            place("/w/.env", Reach::Closed),
            place("/w/.harness", Reach::Read),
            place("/w/.harness/audit", Reach::Closed),
            place("/w/src/x.pem", Reach::Closed),
        ];
        let rules = of_workspace(&places, &list).unwrap();
        assert_eq!(
            shown(&rules),
            [
                "/w List",
                "/w/docs Change",
                "/w/src List",
                "/w/src/a.rs Change",
                "/w/src/deep Change",
                "/w/.harness List",
                "/w/.harness/harness.md Read",
            ]
        );
        // Inside of a view that has closed them, whole folders.
        assert_eq!(shown(&of_view(&places)), ["/w Change", "/w/.harness Read"]);
    }

    /// What a link leads to has a rule by its own name, or none.
    #[test]
    fn of_the_system_neither_what_is_closed_nor_what_links_lead_to_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for file in ["open", "shadow"] {
            std::fs::write(at(file), "").unwrap();
        }
        std::os::unix::fs::symlink("/", at("link")).unwrap();
        let (folders, closed) = (vec![folder.path().to_owned()], vec![(at("shadow"), false)]);
        let mut rules = of_open_system(&System { folders, closed, ..System::default() }, &[], &[]).unwrap();
        rules.retain(|rule| rule.path.starts_with(folder.path()));
        let read = Rule { path: at("open"), may: May::Read };
        assert_eq!(rules, [Rule { path: folder.path().to_owned(), may: May::List }, read]);
    }

    #[test]
    fn what_is_granted_whole_is_one_rule() {
        let places = [place("/w/docs", Reach::Read), place("/w/out", Reach::Write)];
        assert_eq!(shown(&of_workspace(&places, &list).unwrap()), ["/w/docs Read", "/w/out Change"]);
        let places = [place("/w/docs", Reach::Read), place("/w/docs/out", Reach::Write)];
        assert_eq!(shown(&of_workspace(&places, &list).unwrap()), ["/w/docs Read", "/w/docs/out Change"]);
        assert_eq!(of_workspace(&[place("/w", Reach::Closed)], &list).unwrap(), []);
    }

    #[test]
    fn no_rule_lets_a_device_be_made() {
        for may in [May::List, May::Read, May::Use, May::Change] {
            for is_dir in [true, false] {
                assert!(!may.access(is_dir).intersects(AccessFs::MakeChar | AccessFs::MakeBlock));
            }
            assert!(AccessFs::from_file(VERSION).contains(may.access(false)));
        }
        assert_eq!(May::List.access(true), AccessFs::ReadDir);
    }
}
