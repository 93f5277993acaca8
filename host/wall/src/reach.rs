//! What of the workspace a command reaches: the grant of files, as places that the kernel can hold.
//!
//! A grant is patterns and names, and it decides on one path at a time. The kernel holds folders and files that are
//! there. So the workspace is walked before each command, with what is known of its folders ([`listings`](super::listings)), and where what the grant says changes, there is a [`AccessEntry`].
//! What a command makes itself is in a folder that it may write in, whatever its name.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, Stat};
use rustix::io::Errno;

pub(super) use crate::hard_links::Identity;
use crate::hard_links::{FOLDER, HardLinks, Unsearched};
use crate::listings;
use harness_policy::grant::Grant;
use harness_policy::path::{Access, WorkspacePath, protected};
use harness_policy::watch::Request;

/// Entries of folders that are checked before a command.
pub(super) const MAX_ENTRIES: u64 = 200_000;
/// Places that differ from the folder they are in: each is a mount, or some rules.
pub(super) const MAX_PLACES: usize = 2_000;

/// What a command may do in a place and in all that is in it, as far as no place further down says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Nothing.
    Closed,
    /// Read it, and run programs in it.
    Read,
    /// Change it too. What may be written and not read is [`Closed`](Self::Closed): the kernel knows no such folder.
    Write,
}

/// A file or folder in which a command may do something else than in the folder that it is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AccessEntry {
    /// Absolute, without links.
    pub(super) path: PathBuf,
    pub(super) reach: Reach,
    pub(super) is_dir: bool,
    /// Which one it was.
    pub(super) identity: Identity,
}

/// The places of a workspace, each after the folder that it is in. The workspace itself, where it is not listed, is
/// [`Reach::Closed`].
///
/// # Errors
///
/// What cannot be looked at, for a person; without a path.
pub(super) fn places(
    grant: &Grant,
    workspace: &Path,
    listings: listings::Walk<'_>,
) -> Result<Vec<AccessEntry>, String> {
    let failed = |error: Errno| format!("the workspace cannot be read: {}", std::io::Error::from(error));
    let root = rustix::fs::open(workspace, FOLDER, Mode::empty()).map_err(failed)?;
    let stat = rustix::fs::fstat(&root).map_err(failed)?;
    let (at, quiet, links) = (WorkspacePath::root(), grant.unwatched(), HardLinks::default());
    let picky = grant.protects_paths();
    let mut walk = Walk { grant: &quiet, shown: grant, picky, listings, left: MAX_ENTRIES, places: Vec::new(), links };
    let reach = walk.reach(&at);
    if reach != Reach::Closed {
        walk.place(workspace.to_owned(), reach, true, &stat)?;
        walk.show(&at, reach);
    }
    let again = root.try_clone().map_err(|error| format!("the workspace cannot be read: {error}"))?;
    walk.folder(root, workspace, &at, reach)?;
    walk.other_names(&again, workspace)?;
    Ok(walk.places)
}

struct Walk<'a> {
    grant: &'a Grant,
    /// The same, for the observer, which gets what a command gets and not each name that is checked.
    shown: &'a Grant,
    /// Whether any path may be protected by the policy, beside the built-in names.
    picky: bool,
    listings: listings::Walk<'a>,
    left: u64,
    places: Vec<AccessEntry>,
    /// Protected files with several names, of those that the walk came by.
    links: HardLinks,
}

/// A folder that the walk is in.
struct Folder<'a> {
    file: OwnedFd,
    at: &'a WorkspacePath,
    /// What a command may do in it.
    reach: Reach,
    /// Whether all below is as it is here, but for names that are always closed: what grants a folder grants what is in
    /// it.
    even: bool,
}

impl Walk<'_> {
    fn reach(&self, at: &WorkspacePath) -> Reach {
        let may = |access| self.grant.decide_path(at, access).is_ok();
        match may(Access::Read) {
            false => Reach::Closed,
            true if may(Access::Write) => Reach::Write,
            true => Reach::Read,
        }
    }

    fn show(&self, at: &WorkspacePath, reach: Reach) {
        let accesses: &[Access] = match reach {
            Reach::Closed => &[],
            Reach::Read => &[Access::Read],
            Reach::Write => &[Access::Read, Access::Write],
        };
        accesses.iter().for_each(|access| self.shown.note(|| Request::Shown(at.clone(), *access)));
    }

    fn place(&mut self, path: PathBuf, reach: Reach, is_dir: bool, stat: &Stat) -> Result<(), String> {
        if self.places.len() >= MAX_PLACES {
            return Err(format!(
                "over {MAX_PLACES} files and folders of the workspace are closed or open on their own; grant whole folders"
            ));
        }
        self.places.push(AccessEntry { path, reach, is_dir, identity: Identity::of(stat) });
        Ok(())
    }

    /// Looks at everything in a folder in which a command may do `reach`.
    fn folder(&mut self, file: OwnedFd, path: &Path, at: &WorkspacePath, reach: Reach) -> Result<(), String> {
        let even = !self.picky
            && match reach {
                Reach::Closed => false,
                Reach::Read => !self.could_write_below(at),
                Reach::Write => true,
            };
        let outer = Folder { file, at, reach, even };
        if even {
            return self.even_folder(&outer, path);
        }
        for entry in Dir::read_from(&outer.file).map_err(|error| failed(&error))? {
            let entry = entry.map_err(|error| failed(&error))?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            self.left = self.left.checked_sub(1).ok_or_else(too_many)?;
            let kind = entry.file_type();
            if kind != FileType::Symlink || self.is_pinned(&outer, name) {
                self.entry(&outer, &path.join(name), kind)?;
            }
        }
        Ok(())
    }

    /// The same of a folder whose ordinary files are as it is.
    fn even_folder(&mut self, outer: &Folder<'_>, path: &Path) -> Result<(), String> {
        let listing = self.listings.listing(&outer.file, self.left).map_err(|error| failed(&error))?;
        let listing = listing.ok_or_else(too_many)?;
        self.left -= listing.entries;
        for (name, kind) in &listing.notable {
            self.entry(outer, &path.join(OsStr::from_bytes(name)), *kind)?;
        }
        Ok(())
    }

    /// Whether a link in a folder must stay as it is: another one of its name would govern the project.
    fn is_pinned(&self, folder: &Folder<'_>, name: &OsStr) -> bool {
        folder.reach == Reach::Write
            && name.to_str().is_some_and(protected::is_closed_at_root)
            && self.grant.governed_folders().any(|governed| governed == *folder.at)
    }

    /// A protected file is no more open under its other names, as far as these are in what the command reaches.
    fn other_names(&mut self, root: &OwnedFd, workspace: &Path) -> Result<(), String> {
        if self.links.is_empty() {
            return Ok(());
        }
        let links = std::mem::take(&mut self.links);
        let mut names = Vec::new();
        let enter = |folder: &WorkspacePath| self.grant.could_read_below(folder);
        let found = |at: WorkspacePath, stat: &Stat, from: Access| names.push((at, *stat, from));
        links.names(root, &WorkspacePath::root(), enter, found).map_err(unsearched)?;
        for (at, stat, from) in names {
            let own = self.reach(&at);
            let reach = match (own, from) {
                (Reach::Closed, _) | (_, Access::Read) => Reach::Closed,
                (Reach::Read | Reach::Write, Access::Write) => Reach::Read,
            };
            if reach == own {
                continue;
            }
            let path = workspace.join(at.to_string());
            match self.places.iter_mut().find(|place| place.path == path) {
                Some(place) => place.reach = reach,
                None => self.place(path, reach, false, &stat)?,
            }
        }
        Ok(())
    }

    /// Whether writing may begin further down than reading does.
    fn could_write_below(&self, at: &WorkspacePath) -> bool {
        let mut rules = self.grant.layers().iter().filter_map(|layer| layer.fs.as_ref());
        rules.all(|fs| !fs.write.is_empty()) && protected::rule_against(at, Access::Write).is_none()
    }

    /// Looks at an entry of a folder, and at what is in it. `kind` is what the folder says of it.
    fn entry(&mut self, outer: &Folder<'_>, path: &Path, kind: FileType) -> Result<(), String> {
        let name = path.file_name().unwrap_or_default();
        // A name that no script could give is closed as it is for scripts.
        let at = name.to_str().and_then(|name| outer.at.child(name).ok());
        let reach = match &at {
            None => Reach::Closed,
            Some(_) if outer.even && !suspicious(name) => outer.reach,
            Some(at) => self.reach(at),
        };
        let kind = match kind {
            FileType::Unknown => match outer.stat(name)? {
                Some(stat) => FileType::from_raw_mode(stat.st_mode),
                None => return Ok(()),
            },
            kind => kind,
        };
        if kind == FileType::Symlink {
            return self.link(outer, path, name);
        }
        let is_dir = kind == FileType::Directory;
        let protected = match &at {
            Some(at) if self.picky || suspicious(name) => self.grant.protected_from(at),
            _ => None,
        };
        if reach != outer.reach || (protected.is_some() && !is_dir) {
            let Some(stat) = outer.stat(name)? else { return Ok(()) };
            if reach != outer.reach {
                self.place(path.to_owned(), reach, is_dir, &stat)?;
                at.iter().for_each(|at| self.show(at, reach));
            }
            if let Some(from) = protected.filter(|_| kind == FileType::RegularFile) {
                self.links.add(&stat, from);
            }
        }
        match at.filter(|_| is_dir) {
            Some(at) => self.inner_folder(outer, path, &at, reach, protected.is_some()),
            None => Ok(()),
        }
    }

    /// A link is a place of its own only where it is pinned.
    fn link(&mut self, outer: &Folder<'_>, path: &Path, name: &OsStr) -> Result<(), String> {
        if !self.is_pinned(outer, name) {
            return Ok(());
        }
        let Some(stat) = outer.stat(name)? else { return Ok(()) };
        self.place(path.to_owned(), Reach::Read, false, &stat)
    }

    /// Looks into a folder in a folder, as far as anything in it may be open or have another name.
    fn inner_folder(
        &mut self,
        outer: &Folder<'_>,
        path: &Path,
        at: &WorkspacePath,
        reach: Reach,
        is_protected: bool,
    ) -> Result<(), String> {
        let name = path.file_name().unwrap_or_default();
        // What is in a protected folder has ordinary names, and the walk may not go there.
        if is_protected && self.grant.protected_from(outer.at).is_none() {
            let Some(inner) = outer.open(name)? else { return Ok(()) };
            self.links.add_folder(self.grant, inner, at).map_err(unsearched)?;
        }
        if self.grant.is_repository(at) || (reach == Reach::Closed && !self.grant.could_read_below(at)) {
            return Ok(());
        }
        match outer.open(name)? {
            Some(inner) => self.folder(inner, path, at, reach),
            None => Ok(()),
        }
    }
}

impl Folder<'_> {
    /// Nothing where the entry is not there any more.
    fn stat(&self, name: &OsStr) -> Result<Option<Stat>, String> {
        match rustix::fs::statat(&self.file, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    /// Opens a folder in it. Nothing where there is none, or this user may not list it: a command of theirs may not
    /// either.
    fn open(&self, name: &OsStr) -> Result<Option<OwnedFd>, String> {
        match rustix::fs::openat(&self.file, name, FOLDER, Mode::empty()) {
            Ok(inner) => Ok(Some(inner)),
            Err(Errno::NOENT | Errno::ACCESS | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }
}

fn unsearched(why: Unsearched) -> String {
    format!("whether protected files have other names cannot be seen: {why}")
}

/// Closes the names in a folder that are not there yet and would govern the project, for rules that can only name what is:
/// with such a place in it, the folder itself is opened entry by entry, and no entry can be created.
pub(super) fn close_names(places: &mut Vec<AccessEntry>, folder: &Path) {
    let outer = places.iter().filter(|place| folder.starts_with(&place.path));
    let Some(outer) = outer.max_by_key(|place| place.path.as_os_str().len()).cloned() else { return };
    if outer.reach != Reach::Write {
        return;
    }
    for name in protected::CLOSED_AT_ROOT {
        let path = folder.join(name);
        if !places.iter().any(|place| place.path == path) {
            places.push(AccessEntry { path, reach: Reach::Read, ..outer.clone() });
        }
    }
}

/// Whether a command of this grant may create entries in a folder itself.
pub(super) fn may_create_in(grant: &Grant, folder: &WorkspacePath) -> bool {
    let grant = grant.unwatched();
    [Access::Read, Access::Write].into_iter().all(|access| grant.decide_path(folder, access).is_ok())
}

fn too_many() -> String {
    format!("the workspace has over {MAX_ENTRIES} files and folders; grant or name a smaller one")
}

fn suspicious(name: &OsStr) -> bool {
    name.to_str().is_none_or(protected::could_be_protected)
}

fn failed(error: &Errno) -> String {
    format!("the workspace cannot be read: {}", std::io::Error::from(*error))
}

/// Where an open folder is now, and which one it is.
///
/// # Errors
///
/// Those of the system.
pub(super) fn whereabouts(folder: &impl AsFd) -> std::io::Result<(PathBuf, Identity)> {
    use std::os::fd::AsRawFd as _;
    let link = format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd());
    let path = rustix::fs::readlink(link, Vec::new())?;
    Ok((PathBuf::from(OsStr::from_bytes(path.as_bytes())), Identity::of(&rustix::fs::fstat(folder)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listings::{Listings, Now};
    use harness_policy::layer::{Layer, Origin, Scope};
    use harness_policy::limits::LimitRules;
    use harness_policy::path::{FsRules, PathPattern};

    fn places(grant: &Grant, workspace: &Path) -> Result<Vec<AccessEntry>, String> {
        super::places(grant, workspace, Listings::default().walk(Now::get()))
    }

    fn patterns(texts: &[&str]) -> Vec<PathPattern> {
        texts.iter().map(|text| PathPattern::parse(text).unwrap()).collect()
    }

    fn layer(read: &[&str], write: &[&str], protect: &[&str]) -> Layer {
        let fs =
            FsRules { read: patterns(read), write: patterns(write), protect: patterns(protect), ..FsRules::default() };
        let origin = Origin::new(".harness/harness.md", Scope::Project);
        let limits = LimitRules::default();
        Layer { origin, fs: Some(fs), network: None, exec: None, env: None, services: None, secrets: None, limits }
    }

    /// The places of a workspace with these files, as `reach path`.
    fn walked(layers: Vec<Layer>, files: &[&str]) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        for file in files {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let workspace = root.path().canonicalize().unwrap();
        let mut places: Vec<String> = places(&Grant::new(layers), &workspace)
            .unwrap()
            .iter()
            .map(|place| {
                let path = place.path.strip_prefix(&workspace).unwrap().display().to_string();
                let folder = if place.is_dir { "/" } else { "" };
                format!("{path}{folder} {:?}", place.reach)
            })
            .collect();
        places.sort();
        places
    }

    const FILES: [&str; 16] = [
        "src/a.rs",
        "src/deep/.ENV",
        "src/deep/b.rs",
        "out/x.txt",
        "out/y.bin",
        "agents/a.md",
        "sub/agents/b.md",
        "sub/.harness/tools/t.md",
        ".harness/harness.md",
        ".harness/audit/log",
        ".git/config",
        ".git/x.pem",
        "secrets/s.txt",
        ".env/in",
        "docs/Key.PEM",
        "docs/guide.md",
    ];

    #[test]
    fn an_open_workspace_has_its_closed_names() {
        assert_eq!(
            walked(vec![layer(&["."], &["."], &[])], &FILES),
            [
                ".env/ Closed",
                ".git/ Read",
                ".harness/ Read",
                ".harness/audit/ Closed",
                "/ Write",
                "agents/ Closed",
                "docs/Key.PEM Closed",
                "src/deep/.ENV Closed",
                "sub/.harness/ Read",
            ]
        );
    }

    #[test]
    fn what_is_not_granted_is_not_there() {
        assert_eq!(
            walked(vec![layer(&["src"], &["src/deep"], &[])], &FILES),
            ["src/ Read", "src/deep/ Write", "src/deep/.ENV Closed"]
        );
        assert_eq!(
            walked(vec![layer(&["out/*.txt", "docs"], &["out"], &[])], &FILES),
            ["docs/ Read", "docs/Key.PEM Closed", "out/x.txt Write"]
        );
        assert_eq!(walked(vec![layer(&[], &["."], &[])], &FILES), [""; 0]);
        assert_eq!(walked(vec![], &FILES), [""; 0]);
    }

    #[test]
    fn every_layer_counts_and_so_does_what_any_protects() {
        let project = layer(&["."], &["."], &["secrets/**"]);
        let tool = layer(&["src", "secrets", "docs/*.md"], &["src/*.rs"], &[]);
        assert_eq!(
            walked(vec![project.clone(), tool], &FILES),
            ["docs/guide.md Read", "src/ Read", "src/a.rs Write", "src/deep/.ENV Closed"]
        );
        assert!(walked(vec![project], &FILES).contains(&"secrets/ Closed".to_owned()));
    }

    /// Under another name a protected file is as closed as under its own, wherever a command could come upon it.
    #[test]
    fn other_names_of_protected_files_are_as_closed() {
        let grant = Grant::new(vec![layer(&["src", "docs", "out/*.txt"], &["src", "out"], &["docs/private"])]);
        let root = tempfile::tempdir().unwrap();
        let workspace = root.path().canonicalize().unwrap();
        let links = [
            (".git/hooks/pre-commit", "src/hook"),
            (".git/objects/aa/bb", "src/object"),
            (".harness/audit/log", "src/log"),
            (".harness/tools/t.md", "out/tool.txt"),
            ("agents/a.md", "docs/team"),
            ("docs/private/x", "src/deep/x"),
            ("docs/open", "src/open"),
            ("src/.env", "out/env.txt"),
            ("harness.lock", "closed/lock"),
        ];
        for (file, name) in links {
            for path in [file, name] {
                std::fs::create_dir_all(workspace.join(path).parent().unwrap()).unwrap();
            }
            std::fs::write(workspace.join(file), "").unwrap();
            std::fs::hard_link(workspace.join(file), workspace.join(name)).unwrap();
        }
        let mut places: Vec<String> = (places(&grant, &workspace).unwrap().iter())
            .map(|place| format!("{} {:?}", place.path.strip_prefix(&workspace).unwrap().display(), place.reach))
            .collect();
        places.sort();
        assert_eq!(
            places,
            [
                "docs Read",
                "docs/private Closed",
                "docs/team Closed",
                "out/env.txt Closed",
                "out/tool.txt Read",
                "src Write",
                "src/.env Closed",
                "src/deep/x Closed",
                "src/hook Read",
                "src/log Closed",
            ]
        );
    }

    #[test]
    fn a_repository_of_any_name_is_read() {
        let mut layer = layer(&["."], &["."], &[]);
        layer.fs.as_mut().unwrap().repository = patterns(&[".bare", "src/hooks"]);
        let files = [".git", ".bare/config", ".bare/objects/aa/x.pem", "src/hooks/pre-commit", "src/a"];
        assert_eq!(walked(vec![layer], &files), [".bare/ Read", ".git Read", "/ Write", "src/hooks/ Read"]);
    }

    #[test]
    fn links_that_govern_the_project_are_pinned() {
        let root = tempfile::tempdir().unwrap();
        let workspace = root.path().canonicalize().unwrap();
        std::fs::create_dir(workspace.join("sub")).unwrap();
        for link in ["harness.lock", ".git", "Harness.MD", "plain", "sub/harness.md"] {
            std::os::unix::fs::symlink("nowhere", workspace.join(link)).unwrap();
        }
        let found = |read: &[&str], write: &[&str]| {
            let mut found: Vec<String> = (places(&Grant::new(vec![layer(read, write, &[])]), &workspace)
                .unwrap()
                .iter())
            .map(|place| format!("{} {:?}", place.path.strip_prefix(&workspace).unwrap().display(), place.reach))
            .collect();
            found.sort();
            found
        };
        assert_eq!(found(&["."], &["."]), [" Write", ".git Read", "Harness.MD Read", "harness.lock Read"]);
        assert_eq!(found(&["."], &["sub"]), [" Read", "sub Write"]);
    }

    #[test]
    fn rules_close_the_root_names_that_are_not_there() {
        let root = tempfile::tempdir().unwrap();
        let workspace = root.path().canonicalize().unwrap();
        std::fs::write(workspace.join("harness.md"), "").unwrap();
        std::fs::create_dir(workspace.join("sub")).unwrap();
        let closed = |read: &[&str], write: &[&str]| {
            let grant = Grant::new(vec![layer(read, write, &[])]);
            let mut places = places(&grant, &workspace).unwrap();
            close_names(&mut places, &workspace);
            let names = places.iter().map(|place| place.path.strip_prefix(&workspace).unwrap().display().to_string());
            (may_create_in(&grant, &WorkspacePath::root()), names.collect::<Vec<_>>())
        };
        let all = ["", "harness.md", ".harness", ".git", "harness.lock", "harness.yaml"];
        assert_eq!(closed(&["."], &["."]), (true, all.map(str::to_owned).to_vec()));
        assert_eq!(closed(&["."], &["sub"]), (false, vec![String::new(), "sub".to_owned()]));
        assert_eq!(closed(&["sub"], &["."]), (false, vec!["sub".to_owned()]));
        // Of a project further down, in a place that is open as the folder around it.
        std::fs::write(workspace.join("sub/harness.md"), "").unwrap();
        let in_sub = |write: &[&str]| {
            let grant = Grant::new(vec![layer(&["."], write, &[])]);
            let mut places = places(&grant, &workspace).unwrap();
            close_names(&mut places, &workspace.join("sub"));
            let names = places.iter().map(|place| place.path.strip_prefix(&workspace).unwrap().display().to_string());
            names.filter(|name| name.starts_with("sub/")).collect::<Vec<_>>()
        };
        let all = ["harness.md", ".harness", ".git", "harness.lock", "harness.yaml"].map(|name| format!("sub/{name}"));
        assert_eq!((in_sub(&["."]), in_sub(&["sub"])), (all.to_vec(), all.to_vec()));
        assert_eq!(in_sub(&["other"]), [""; 0]);
    }

    #[test]
    fn a_name_that_no_script_can_give_is_closed() {
        assert_eq!(
            walked(vec![layer(&["."], &["."], &[])], &["a\u{202e}b", "plain"]),
            ["/ Write", "a\u{202e}b Closed"]
        );
    }
}
