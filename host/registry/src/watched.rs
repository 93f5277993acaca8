//! What is to be watched for changes of a project: all that loading it reads.
//!
//! Each path is followed from `/` as the kernel does, so that a link on the way that leads elsewhere, and a folder that
//! is created later, are changes too. The folders of artifacts are watched with those in them; of other folders only some
//! names are. A link inside a folder of artifacts is followed as long as it stays in there, as loading does.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::{Error, ErrorKind};
use std::path::{Component, Path, PathBuf};

use super::load::{BUNDLES, FOLDER, OTHERS, SINGLES};
use super::{Machine, POLICIES_BESIDE, lock};
use crate::load::NOT_BESIDE;
use harness_artifact::policy::machine;
use harness_artifact::suggest::closest;
use harness_sys::tree::{self, Kind};

/// Files and folders that are looked at in all folders of artifacts: as many as loading reads.
const MOST: usize = 20_000;
/// Folders in folders: more than loading reads.
const DEEPEST: usize = 24;
/// Links that are followed one after another, as by the kernel.
const MAX_LINKS: usize = 40;
/// Times that one step of a path is looked at while it changes.
const TRIES: usize = 8;
/// Folders of logs, which the host itself writes.
const LOGS: [&str; 2] = ["audit", "sessions"];

/// Something to be watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Watched {
    /// A folder on the way: whether it is moved or removed.
    Folder,
    /// A name in a folder.
    Name(OsString, Named),
    /// The content of a file.
    File,
    /// Everything in a folder of artifacts, or in a folder in one, but not in those in it.
    Artifacts {
        /// Whether it is the folder of artifacts itself.
        is_top: bool,
    },
}

/// What a name is watched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// A file: a folder of this name is nothing that loading reads.
    File,
    /// The folder of artifacts. While a command runs, an empty folder may hold its name.
    Home,
    /// Anything.
    Any,
}

/// Where a project is.
#[derive(Debug, Clone, Copy)]
pub struct Project<'a> {
    /// The folder that holds `.harness/`.
    pub root: &'a Path,
    /// The host policy.
    pub machine: &'a Machine,
    /// Further folders with artifacts, see [`Registry::named_roots`](super::Registry::named_roots).
    pub roots: &'a [PathBuf],
    /// Further files.
    pub files: &'a [PathBuf],
}

/// Visits everything that is to be watched for a project, each folder before what is in it is looked at: what changes
/// while it is visited is seen by then. Returns whether there is a folder `.harness`.
///
/// # Errors
///
/// Those of `watch`, and where there is more than loading would read.
pub fn visit<E: From<(PathBuf, Error)>>(
    project: Project<'_>,
    watch: &mut dyn FnMut(&Path, Watched) -> Result<(), E>,
) -> Result<bool, E> {
    let mut visit = Visit { watch, left: MOST };
    match project.machine {
        Machine::Installed => visit.follow(Path::new(machine::FILE), None)?,
        Machine::File(path) | Machine::Server(path) => visit.follow(path, None)?,
        Machine::None => None,
    };
    for file in project.files {
        visit.follow(file, None)?;
    }
    let mut has_home = false;
    if let Some(root) = visit.follow(project.root, None)? {
        for name in POLICIES_BESIDE.iter().chain(&NOT_BESIDE).chain(&[lock::FILE]) {
            (visit.watch)(&root, Watched::Name(name.into(), Named::File))?;
            let file = root.join(name);
            if matches!(Kind::at(&file), Ok(Kind::File | Kind::Link)) {
                visit.follow(&file, None)?;
            }
        }
        let home = root.join(FOLDER);
        (visit.watch)(&root, Watched::Name(FOLDER.into(), Named::Home))?;
        if Kind::at(&home).is_ok()
            && let Some(home) = visit.follow(&home, None)?
        {
            has_home = true;
            visit.artifacts(&home, None)?;
        }
    }
    for further in project.roots {
        if let Some(real) = visit.follow(further, None)? {
            visit.artifacts(&real, Some(&[&SINGLES[..], &BUNDLES, &OTHERS].concat()))?;
        }
    }
    Ok(has_home)
}

struct Visit<'a, E> {
    watch: &'a mut dyn FnMut(&Path, Watched) -> Result<(), E>,
    /// Files and folders that may still be looked at.
    left: usize,
}

impl<E: From<(PathBuf, Error)>> Visit<'_, E> {
    /// Follows a path to its end and watches each step, all of them or those `inside` a folder. Nothing where it ends before.
    fn follow(&mut self, path: &Path, inside: Option<&Path>) -> Result<Option<PathBuf>, E> {
        let Ok(path) = std::path::absolute(path) else { return Ok(None) };
        let mut at = PathBuf::from("/");
        let mut rest = Vec::new();
        push(&mut rest, &path);
        if inside.is_none() {
            (self.watch)(&at, Watched::Folder)?;
        }
        let mut links: usize = 0;
        while let Some(part) = rest.pop() {
            if part == ".." {
                at.pop();
                continue;
            }
            let next = at.join(&part);
            let step = match inside {
                Some(inside) if !at.starts_with(inside) => Step::look(&next),
                _ => self.step(&at, &part, &next)?,
            };
            match step {
                Step::Into => at = next,
                Step::Link(to) if links < MAX_LINKS => {
                    links = links.saturating_add(1);
                    if to.is_absolute() {
                        at = PathBuf::from("/");
                    }
                    push(&mut rest, &to);
                }
                Step::File if rest.is_empty() => at = next,
                Step::File | Step::Link(_) | Step::End => return Ok(None),
            }
        }
        Ok(Some(at))
    }

    /// Watches what decides on a step, and looks at it until it is the same before and after that.
    fn step(&mut self, at: &Path, part: &OsStr, next: &Path) -> Result<Step, E> {
        let mut step = Step::look(next);
        for _ in 0..TRIES {
            if step == Step::Into {
                (self.watch)(next, Watched::Folder)?;
            } else {
                (self.watch)(at, Watched::Name(part.to_owned(), Named::Any))?;
            }
            if step == Step::File {
                (self.watch)(next, Watched::File)?;
            }
            let now = Step::look(next);
            if now == step {
                break;
            }
            step = now;
        }
        Ok(step)
    }

    /// The folders of artifacts in a folder of them. `known` are the names that are read there; all without it.
    fn artifacts(&mut self, top: &Path, known: Option<&[&str]>) -> Result<(), E> {
        let mut waiting = vec![(top.to_owned(), 0_usize)];
        // Links may lead from one folder to another, and back.
        let mut seen = HashSet::new();
        while let Some((folder, depth)) = waiting.pop() {
            if !seen.insert(folder.clone()) {
                continue;
            }
            (self.watch)(&folder, Watched::Artifacts { is_top: depth == 0 })?;
            let entries = match tree::list(&folder, self.left) {
                Ok(entries) => entries,
                Err(error) if error.kind() == ErrorKind::Other => {
                    let why = format!("{error}; move those that are not artifacts elsewhere");
                    return Err(E::from((top.to_owned(), Error::other(why))));
                }
                // It is gone, or closed. That it is there again is a change.
                Err(_) => continue,
            };
            self.left = self.left.saturating_sub(entries.len());
            for (name, kind) in entries {
                if depth >= DEEPEST || is_hidden(&name) || depth == 0 && !is_read(&name, known) {
                    continue;
                }
                let below = folder.join(&name);
                let leads = match kind {
                    Kind::Folder => Some(below),
                    Kind::Link => self.follow(&below, Some(top))?,
                    Kind::File | Kind::Other => None,
                };
                let is_folder = |path: &PathBuf| matches!(Kind::at(path), Ok(Kind::Folder));
                let leads = leads.filter(|path| path.starts_with(top) && is_folder(path));
                waiting.extend(leads.map(|path| (path, depth.saturating_add(1))));
            }
        }
        Ok(())
    }
}

/// What a step of a path leads to.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Into,
    Link(PathBuf),
    File,
    /// Nothing, or nothing that a path continues in.
    End,
}

impl Step {
    fn look(path: &Path) -> Self {
        match Kind::at(path) {
            Ok(Kind::Folder) => Self::Into,
            Ok(Kind::Link) => harness_sys::link_target(path).map_or(Self::End, Self::Link),
            Ok(Kind::File) => Self::File,
            Ok(Kind::Other) | Err(_) => Self::End,
        }
    }
}

/// The parts of a path, the first one last.
fn push(rest: &mut Vec<OsString>, path: &Path) {
    let parts = path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    rest.extend(parts);
}

/// Whether loading looks into a folder of this name at the top of a folder of artifacts.
fn is_read(name: &OsStr, known: Option<&[&str]>) -> bool {
    let Some(name) = name.to_str() else { return false };
    let meant = |known: &[&str]| closest(&name.to_lowercase(), known.iter().copied()).is_some();
    !LOGS.contains(&name) && known.is_none_or(|known| known.contains(&name) || meant(known))
}

/// Whether loading passes over a name in a folder of artifacts.
pub fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// Whether a name at the top of a folder of artifacts is that of logs, which the host itself writes.
pub fn is_log(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| LOGS.contains(&name))
}

#[cfg(test)]
mod tests;
