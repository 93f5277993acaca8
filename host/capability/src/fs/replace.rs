//! Files and folders that appear whole or not at all: made under a name of their own, then renamed.

use std::io::{self, Write};

use cap_fs_ext::{FollowSymlinks, OpenOptionsFollowExt};
use cap_std::fs::{Dir, File, OpenOptions, OpenOptionsExt, Permissions, PermissionsExt};
use rustix::fs::RenameFlags;
use rustix::io::Errno;

use super::repository;
use super::space::Change;

/// Something being made in a folder, removed again unless it is given its place.
#[derive(Debug)]
pub(super) struct Unfinished<'a> {
    folder: &'a Dir,
    name: String,
    placed: bool,
}

impl<'a> Unfinished<'a> {
    /// A name that nobody can guess and nothing has. Nothing is made yet.
    pub(super) fn new(folder: &'a Dir) -> io::Result<Self> {
        let mut random = [0; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
        Ok(Self { folder, name: format!(".harness-tmp-{:016x}", u64::from_ne_bytes(random)), placed: false })
    }

    /// Its name for now.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Gives it its name, replacing a file that has it.
    fn replace(mut self, name: &str) -> io::Result<()> {
        repository::naming(self.folder, name, || self.folder.rename(&self.name, self.folder, name))?;
        self.placed = true;
        Ok(())
    }

    /// Gives it its name, which must be free.
    pub(super) fn place(mut self, name: &str) -> io::Result<()> {
        rename_to_free(self.folder, &self.name, self.folder, name)?;
        self.placed = true;
        Ok(())
    }
}

/// Failing here leaves rubbish behind, which is nothing that the call could do anything about.
impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.placed && self.folder.remove_file(&self.name).is_err() {
            drop(self.folder.remove_dir_all(&self.name));
        }
    }
}

/// Makes a file, or replaces one, with `mode` for its permission bits. A reader sees the old content or the new, and
/// after a crash one of the two is there.
pub(super) fn replace(
    change: &mut Change<'_>,
    (folder, name): (&Dir, &str),
    content: &[u8],
    mode: Option<u32>,
) -> io::Result<()> {
    let unfinished = Unfinished::new(folder)?;
    change.unfinished();
    // What replaces a private file is never readable for others, not even for a moment.
    let mut file = create(folder, unfinished.name(), if mode.is_some() { 0o600 } else { 0o666 })?;
    file.write_all(content)?;
    if let Some(mode) = mode {
        file.set_permissions(Permissions::from_mode(mode & 0o777))?;
    }
    file.sync_all()?;
    change.put((folder, name), content.len() as u64, || unfinished.replace(name))
}

/// Makes a file of a name that must be free, whole or not at all.
pub(super) fn make(change: &mut Change<'_>, (folder, name): (&Dir, &str), content: &[u8]) -> io::Result<()> {
    let unfinished = Unfinished::new(folder)?;
    change.unfinished();
    let mut file = create(folder, unfinished.name(), 0o666)?;
    file.write_all(content)?;
    file.sync_all()?;
    change.finish(|| unfinished.place(name))
}

/// Adds to a file that was opened for that. Where it fails, as on a full disk, the file is as it was before; but for
/// what another process has added in the meantime, with which it stays as it is.
pub(super) fn append(file: &mut File, content: &[u8]) -> io::Result<()> {
    let before = file.metadata()?.len();
    let mut rest = content;
    while !rest.is_empty() {
        match file.write(rest) {
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                let added = content.len().saturating_sub(rest.len()) as u64;
                if file.metadata()?.len() == before.saturating_add(added) {
                    file.set_len(before)?;
                }
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Makes a file that must not be there, with these permission bits as far as the process's mask lets them be.
pub(super) fn create(folder: &Dir, name: &str, mode: u32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode).follow(FollowSymlinks::No);
    repository::naming(folder, name, || folder.open_with(name, &options))
}

/// Renames to a name that must be free. Where the file system cannot promise that (some network file systems), the name
/// is checked first, and a file that appears in that moment would be replaced.
pub(super) fn rename_to_free(from: &Dir, name: &str, to: &Dir, free: &str) -> io::Result<()> {
    repository::naming(to, free, || match rustix::fs::renameat_with(from, name, to, free, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => match to.symlink_metadata(free) {
            Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => from.rename(name, to, free),
            Err(error) => Err(error),
        },
        renamed => Ok(renamed?),
    })
}
