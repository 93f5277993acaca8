//! What of the workspace a command reaches: the grant of files, as places that the kernel can hold.
//!
//! A grant is patterns and names, and it decides on one path at a time. The kernel holds folders and files that are
//! there. So the workspace is walked before each command, and where what the grant says changes, there is a [`Place`].
//! What a command makes itself is in a folder that it may write in, whatever its name.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::policy::grant::Grant;
use crate::policy::path::{Access, WorkspacePath, protected};
use crate::policy::watch::Request;

/// Entries of folders that are looked at before a command.
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
pub(super) struct Place {
    /// Absolute, without links.
    pub(super) path: PathBuf,
    pub(super) reach: Reach,
    pub(super) is_dir: bool,
    /// Which one it was.
    pub(super) identity: Identity,
}

/// A file or folder, whatever its name is: its file system and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity(u64, u64);

impl Identity {
    pub(super) fn of(stat: &Stat) -> Self {
        Self(stat.st_dev, stat.st_ino)
    }
}

/// The places of a workspace, each after the folder that it is in. The workspace itself, where it is not listed, is
/// [`Reach::Closed`].
///
/// # Errors
///
/// What cannot be looked at, for a person; without a path.
pub(super) fn places(grant: &Grant, workspace: &Path) -> Result<Vec<Place>, String> {
    let failed = |error: Errno| format!("the workspace cannot be looked at: {}", std::io::Error::from(error));
    let root = rustix::fs::open(workspace, FOLDER, Mode::empty()).map_err(failed)?;
    let stat = rustix::fs::fstat(&root).map_err(failed)?;
    let (at, quiet) = (WorkspacePath::root(), grant.unwatched());
    let mut walk =
        Walk { grant: &quiet, shown: grant, picky: grant.protects_paths(), left: MAX_ENTRIES, places: Vec::new() };
    let reach = walk.reach(&at);
    if reach != Reach::Closed {
        walk.place(workspace.to_owned(), reach, true, &stat)?;
        walk.show(&at, reach);
    }
    walk.folder(root, workspace, &at, reach)?;
    Ok(walk.places)
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

struct Walk<'a> {
    grant: &'a Grant,
    /// The same, for who watches: told of what a command gets, and not of each name that is looked at.
    shown: &'a Grant,
    /// Whether any path may be protected by the policy, beside the built-in names.
    picky: bool,
    left: u64,
    places: Vec<Place>,
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
        self.places.push(Place { path, reach, is_dir, identity: Identity::of(stat) });
        Ok(())
    }

    /// Looks at everything in a folder in which a command may do `outer`.
    fn folder(&mut self, folder: OwnedFd, path: &Path, at: &WorkspacePath, outer: Reach) -> Result<(), String> {
        // All below is as it is here, but for names that are always closed.
        let even = !self.picky
            && match outer {
                Reach::Closed => false,
                Reach::Read => self.grant.covers(at, Access::Read) && !self.could_write_below(at),
                Reach::Write => self.grant.covers(at, Access::Read) && self.grant.covers(at, Access::Write),
            };
        let entries = Dir::read_from(&folder).map_err(|error| failed(&error))?;
        for entry in entries {
            let entry = entry.map_err(|error| failed(&error))?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            self.left = self.left.checked_sub(1).ok_or_else(|| {
                format!("the workspace has over {MAX_ENTRIES} files and folders; grant or name a smaller one")
            })?;
            // Most need no look: a link leads to what has a name of its own, and an ordinary name is as its folder is.
            let kind = entry.file_type();
            let known = !matches!(kind, FileType::Unknown | FileType::Directory);
            if kind == FileType::Symlink || (known && even && !suspicious(name)) {
                continue;
            }
            self.entry(&folder, &path.join(name), at, kind, outer, even)?;
        }
        Ok(())
    }

    /// Whether writing may begin further down than reading does.
    fn could_write_below(&self, at: &WorkspacePath) -> bool {
        let mut rules = self.grant.layers().iter().filter_map(|layer| layer.fs.as_ref());
        rules.all(|fs| !fs.write.is_empty()) && protected::rule_against(at, Access::Write).is_none()
    }

    fn entry(
        &mut self,
        folder: &OwnedFd,
        path: &Path,
        outer_at: &WorkspacePath,
        kind: FileType,
        outer: Reach,
        even: bool,
    ) -> Result<(), String> {
        let name = path.file_name().unwrap_or_default();
        let known = !matches!(kind, FileType::Unknown);
        // A name that no script could give is closed as it is for scripts.
        let at = name.to_str().and_then(|name| outer_at.child(name).ok());
        let reach = match &at {
            None => Reach::Closed,
            Some(_) if even && !suspicious(name) => outer,
            Some(at) => self.reach(at),
        };
        let stat = || rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
        let kind = match known {
            true => kind,
            false => match stat() {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(Errno::NOENT) => return Ok(()),
                Err(error) => return Err(failed(&error)),
            },
        };
        if kind == FileType::Symlink {
            return Ok(());
        }
        let is_dir = kind == FileType::Directory;
        if reach != outer {
            match stat() {
                Ok(stat) => {
                    self.place(path.to_owned(), reach, is_dir, &stat)?;
                    at.iter().for_each(|at| self.show(at, reach));
                }
                Err(Errno::NOENT) => return Ok(()),
                Err(error) => return Err(failed(&error)),
            }
        }
        let Some(at) = at.filter(|_| is_dir) else { return Ok(()) };
        let is_repository = at.name() == Some(".git");
        if is_repository || (reach == Reach::Closed && !self.grant.could_read_below(&at)) {
            return Ok(());
        }
        match rustix::fs::openat(folder, name, FOLDER, Mode::empty()) {
            Ok(inner) => self.folder(inner, path, &at, reach),
            // What this user may not list, a command of theirs may not either.
            Err(Errno::NOENT | Errno::ACCESS | Errno::NOTDIR | Errno::LOOP) => Ok(()),
            Err(error) => Err(failed(&error)),
        }
    }
}

fn suspicious(name: &OsStr) -> bool {
    name.to_str().is_none_or(protected::could_be_protected)
}

fn failed(error: &Errno) -> String {
    format!("the workspace cannot be looked at: {}", std::io::Error::from(*error))
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
    use crate::policy::layer::{Layer, Origin, Scope};
    use crate::policy::limits::LimitRules;
    use crate::policy::path::{FsRules, PathPattern};

    fn patterns(texts: &[&str]) -> Vec<PathPattern> {
        texts.iter().map(|text| PathPattern::parse(text).unwrap()).collect()
    }

    fn layer(read: &[&str], write: &[&str], protect: &[&str]) -> Layer {
        let fs = FsRules { read: patterns(read), write: patterns(write), protect: patterns(protect) };
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

    #[test]
    fn a_name_that_no_script_can_give_is_closed() {
        assert_eq!(
            walked(vec![layer(&["."], &["."], &[])], &["a\u{202e}b", "plain"]),
            ["/ Write", "a\u{202e}b Closed"]
        );
    }
}
