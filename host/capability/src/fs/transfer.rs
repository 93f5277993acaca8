//! `fs.copy` and `fs.move`: to a place where nothing is, all of it or nothing.

use std::io::{self, Read};

use cap_fs_ext::DirExt;
use cap_std::fs::{Dir, FileType, MetadataExt, OpenOptions};

use super::folder::{Budget, entries, odd_kind};
use super::replace::{Unfinished, create, rename_to_free};
use super::resolve::{LastLink, ResolvedPath, Spot, failed, make_folders};
use super::space::Change;
use super::{Error, MAX_VISITED, Room, Workspace, denied, open_file, repository};
use harness_policy::grant::Grant;
use harness_policy::limits::LimitKey;
use harness_policy::path::{Access, WorkspacePath};

impl Workspace {
    /// Copies a file, or a folder with all that is in it, with permission bits of files. Folders above the target
    /// that are missing are made.
    ///
    /// The copy is made beside its place under another name: where anything in the folder is refused at either end,
    /// is a link or is not a file, nothing is copied and the error is about the first of them.
    pub fn copy(&self, grant: &Grant, source: &str, target: &str) -> Result<String, Error> {
        let limits = grant.limits();
        self.copy_within(grant, source, target, &mut Room { files: limits.files, bytes: limits.io_bytes, over: None })
    }

    /// As [`copy`](Self::copy). What it takes is taken from `room`, which says afterwards what there was not enough of.
    pub fn copy_within(&self, grant: &Grant, source: &str, target: &str, room: &mut Room) -> Result<String, Error> {
        let from = self.place(grant, source, Access::Read, LastLink::Keep)?;
        let to = self.place(grant, target, Access::Write, LastLink::Keep)?;
        let (folder, name, kind) = transferred(&from, &to)?;
        if kind.is_symlink() {
            return Err(no_link(&from.asked));
        }
        if let Some(kind) = odd_kind(kind).filter(|_| !kind.is_dir()) {
            return Err(Error::NotAFile(kind.to_owned()));
        }
        let mut change = self.change()?;
        let (place, free) = free_place(&mut change, &to)?;
        let unfinished = Unfinished::new(&place).map_err(|error| to.failed(&error))?;
        change.unfinished();
        let budget = Budget::new(room.files);
        let cap = grant.limits().file_bytes;
        let (alone, bytes) = (!kind.is_dir(), room.bytes);
        let mut copy = Copy { workspace: self, change: &mut change, grant, budget, alone, cap, bytes, over: None };
        let ends = Ends { from: (folder, name, &from.real), to: (&place, unfinished.name(), &to.real) };
        let copied = copy.anything(&ends, kind);
        let (files, more) = copy.budget.used();
        let over = copy.over.or(more.then_some(LimitKey::Files));
        *room = Room { files: room.files.saturating_sub(files), bytes: copy.bytes, over };
        copied?;
        change.finish(|| unfinished.place(&free)).map_err(|error| to.failed(&error))?;
        Ok(self.absolute_of(&to.real))
    }

    /// Moves a file or folder; a link is moved itself. The source must be granted for reading too: moving a file to
    /// where it can be read is a way to read it. Folders above the target that are missing are made.
    ///
    /// A folder that holds something refused at either end is not moved.
    pub fn rename(&self, grant: &Grant, source: &str, target: &str) -> Result<String, Error> {
        let from = self.place(grant, source, Access::Write, LastLink::Keep)?;
        grant.decide_path(&from.real, Access::Read)?;
        let to = self.place(grant, target, Access::Write, LastLink::Keep)?;
        let (folder, name, kind) = transferred(&from, &to)?;
        if kind.is_dir() {
            let mut check = Check { grant, budget: Budget::new(MAX_VISITED) };
            check.folder(&from.folder()?, &from.real, &to.real)?;
        }
        let mut change = self.change()?;
        let (place, free) = free_place(&mut change, &to)?;
        let renamed = change.alone(|_| rename_to_free(folder, name, &place, &free));
        renamed.map_err(|error| to.failed(&error))?;
        Ok(self.absolute_of(&to.real))
    }
}

/// What is to be transferred, after what is wrong with it at first sight.
fn transferred<'a>(from: &'a ResolvedPath, to: &ResolvedPath) -> Result<(&'a Dir, &'a str, FileType), Error> {
    match &from.spot {
        Spot::There { folder, name, metadata } => {
            if to.real != from.real && to.real.is_within(&from.real) {
                return Err(Error::Invalid(format!("`{}` is inside `{}`", to.asked, from.asked)));
            }
            if !matches!(to.spot, Spot::Missing { .. }) {
                return Err(Error::AlreadyExists(to.asked.to_string()));
            }
            Ok((folder, name, metadata.file_type()))
        }
        Spot::Folder(_) => Err(denied("the workspace itself may not be copied or moved")),
        Spot::Missing { .. } | Spot::Blocked(_) => Err(from.missing()),
    }
}

/// The folder of the target, made where it is missing, and the free name in it.
fn free_place(change: &mut Change<'_>, to: &ResolvedPath) -> Result<(Dir, String), Error> {
    match &to.spot {
        Spot::Missing { folder, names, .. } => {
            change.take((names.len() as u64).saturating_sub(1), 0)?;
            make_folders(change, folder, names).map_err(|error| to.failed(&error))
        }
        _ => Err(Error::AlreadyExists(to.asked.to_string())),
    }
}

fn no_link(path: &WorkspacePath) -> Error {
    denied(format!("copying `{path}` is not allowed: it is a link"))
}

/// The two ends of a transfer: a folder's handle, a name in it, and the path that decisions are made on.
#[derive(Clone, Copy)]
struct Ends<'a> {
    from: (&'a Dir, &'a str, &'a WorkspacePath),
    to: (&'a Dir, &'a str, &'a WorkspacePath),
}

struct Copy<'a, 'w> {
    workspace: &'a Workspace,
    change: &'a mut Change<'w>,
    grant: &'a Grant,
    budget: Budget,
    /// Whether it is a file, which is on the disk when it has its place. For each file of a folder that would take longer
    /// than all else.
    alone: bool,
    /// Bytes of one file.
    cap: u64,
    /// Bytes that are left.
    bytes: u64,
    over: Option<LimitKey>,
}

impl Copy<'_, '_> {
    fn too_large(&mut self, limit: LimitKey, cap: u64) -> Error {
        self.over = Some(limit);
        Error::TooLarge(cap)
    }

    fn anything(&mut self, ends: &Ends<'_>, kind: FileType) -> Result<(), Error> {
        if !kind.is_dir() {
            return self.file(ends);
        }
        self.budget.down()?;
        self.folder(ends)?;
        self.budget.up();
        Ok(())
    }

    fn file(&mut self, ends: &Ends<'_>) -> Result<(), Error> {
        let ((from, name, path), (to, new, target)) = (ends.from, ends.to);
        let fails = |error: &io::Error| failed(path, error);
        let (file, metadata) = open_file(from, name, OpenOptions::new().read(true), fails)?;
        self.workspace.no_other_name_is_protected(self.grant, path, &metadata)?;
        if metadata.len() > self.cap {
            return Err(self.too_large(LimitKey::FileBytes, self.cap));
        }
        let most = self.cap.min(self.bytes);
        self.change.take(1, metadata.len())?;
        let mut copy = create(to, new, metadata.mode() & 0o777).map_err(|error| failed(target, &error))?;
        // One byte more, to notice a file that grows while it is read.
        let copied = io::copy(&mut file.take(most.saturating_add(1)), &mut copy).map_err(|error| fails(&error))?;
        self.bytes = self.bytes.saturating_sub(copied);
        // It may grow or shrink while it is read.
        self.change.take(0, copied.saturating_sub(metadata.len()))?;
        self.change.give_back(metadata.len().saturating_sub(copied));
        match copied > most {
            true if most < self.cap => Err(self.too_large(LimitKey::Io, most)),
            true => Err(self.too_large(LimitKey::FileBytes, self.cap)),
            false if self.alone => copy.sync_all().map_err(|error| fails(&error)),
            false => Ok(()),
        }
    }

    fn folder(&mut self, ends: &Ends<'_>) -> Result<(), Error> {
        let ((from, name, path), (to, new, target)) = (ends.from, ends.to);
        let fails = |error: &io::Error| failed(path, error);
        self.change.take(1, 0)?;
        repository::create_dir(to, new).map_err(|error| failed(target, &error))?;
        let to = to.open_dir_nofollow(new).map_err(|error| fails(&error))?;
        let from = from.open_dir_nofollow(name).map_err(|error| fails(&error))?;
        for (name, kind) in entries(&from, &mut self.budget, fails)? {
            let (name, path, target) = both_ends(&name, path, target)?;
            self.grant.decide_path(&path, Access::Read)?;
            self.grant.decide_path(&target, Access::Write)?;
            if kind.is_symlink() {
                return Err(no_link(&path));
            }
            if let Some(kind) = odd_kind(kind).filter(|_| !kind.is_dir()) {
                return Err(Error::NotAFile(kind.to_owned()));
            }
            self.anything(&Ends { from: (&from, name, &path), to: (&to, name, &target) }, kind)?;
        }
        Ok(())
    }
}

/// The look at all of a folder before it is moved.
struct Check<'a> {
    grant: &'a Grant,
    budget: Budget,
}

impl Check<'_> {
    fn folder(&mut self, folder: &Dir, path: &WorkspacePath, target: &WorkspacePath) -> Result<(), Error> {
        let fails = |error: &io::Error| failed(path, error);
        for (name, kind) in entries(folder, &mut self.budget, fails)? {
            let (name, path, target) = both_ends(&name, path, target)?;
            self.grant.decide_path(&path, Access::Read)?;
            self.grant.decide_path(&path, Access::Write)?;
            self.grant.decide_path(&target, Access::Write)?;
            if repository::is_governed_by(folder, name) {
                return Err(repository::refused(&path));
            }
            if kind.is_dir() {
                let folder = folder.open_dir_nofollow(name).map_err(|error| fails(&error))?;
                self.budget.down()?;
                self.folder(&folder, &path, &target)?;
                self.budget.up();
            }
        }
        Ok(())
    }
}

/// The name of an entry and its paths at both ends. One that no script could name cannot be decided on either.
fn both_ends<'a>(
    name: &'a std::ffi::OsStr,
    path: &WorkspacePath,
    target: &WorkspacePath,
) -> Result<(&'a str, WorkspacePath, WorkspacePath), Error> {
    let odd = || Error::Invalid(format!("`{path}` holds a name that is not a plain one"));
    let name = name.to_str().ok_or_else(odd)?;
    Ok((name, path.child(name).map_err(|_| odd())?, target.child(name).map_err(|_| odd())?))
}
