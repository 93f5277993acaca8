//! How much a workspace may hold: counted as its files change, so that no change walks the whole folder.
//!
//! Each entry counts as a file, a folder and a link too, and a file with several names counts for each of them. So what a
//! removal gives back is what the name counted for. The folder is walked before the first change, and before the next change
//! after anything else than these functions may have written: a command, or a change that failed half-way. The walk ends as
//! soon as it has seen more than there may be.
//!
//! What a change adds is taken from the quota before the disk has it. Names are given, moved and removed one at a time: what
//! a name stood for until then is read in the same moment.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use cap_std::fs::Dir;

use super::count::counted;
use super::{Error, Workspace};
use crate::denial::Denial;
use harness_policy::grant::Grant;

/// How long the end of a command that was not waited for may take. Until then no count is kept.
const SETTLED: Duration = Duration::from_secs(5);

/// What a workspace may hold at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceQuota {
    /// Bytes of all files, by their length.
    pub bytes: u64,
    /// Files, folders and links.
    pub files: u64,
    /// Who says so, for messages, such as "the class `default` of the tenant".
    pub set_by: String,
}

/// What a workspace holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    /// Bytes of all files, by their length.
    pub bytes: u64,
    /// Files, folders and links.
    pub files: u64,
    /// Whether there may be more: counting ended where it was over the quota.
    pub is_cut: bool,
}

/// A change that the quota has no room for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Full {
    /// The limit: `workspace_bytes` or `workspace_files`.
    pub limit: &'static str,
    /// What it allows.
    pub most: u64,
    /// What there would be.
    pub would: u64,
    /// Who set it.
    pub set_by: String,
    /// Whether there is too much already.
    is_over: bool,
}

impl Full {
    /// What would help.
    pub fn hint(&self) -> String {
        format!("remove files of the workspace, or ask the operator for a larger `{}`", self.limit)
    }
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, most, would, set_by, is_over } = self;
        let unit = if *limit == "workspace_bytes" { "bytes" } else { "files, folders and links" };
        match is_over {
            true => {
                write!(f, "the workspace is full: it has more than {most} {unit}, the limit `{limit}`, set by {set_by}")
            }
            false => {
                write!(
                    f,
                    "the workspace is full: it would have {would} of {most} {unit}, the limit `{limit}`, set by {set_by}"
                )
            }
        }
    }
}

impl std::error::Error for Full {}

impl From<Full> for Denial {
    fn from(full: Full) -> Self {
        Self { reason: full.to_string(), hint: full.hint() }
    }
}

impl From<Full> for Error {
    fn from(full: Full) -> Self {
        Self::AccessDenied(full.into())
    }
}

impl From<Full> for io::Error {
    fn from(full: Full) -> Self {
        Self::other(full)
    }
}

/// Whether an error is that the quota has no room.
pub(super) fn is_full(error: &io::Error) -> Option<&Full> {
    error.get_ref()?.downcast_ref()
}

/// Why a file was not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unwritten {
    /// For another reason than the quota.
    Failed(Error),
    /// The quota has no room for it.
    Full(Full),
}

impl From<Error> for Unwritten {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Full> for Unwritten {
    fn from(full: Full) -> Self {
        Self::Full(full)
    }
}

impl From<Unwritten> for Error {
    fn from(unwritten: Unwritten) -> Self {
        match unwritten {
            Unwritten::Failed(error) => error,
            Unwritten::Full(full) => full.into(),
        }
    }
}

/// The quota of one folder and what is used of it. Everyone who has the folder open shares it.
#[derive(Debug)]
pub struct Space {
    quota: SpaceQuota,
    /// Shared by changes; the count has it alone, so that it sees no change half-way.
    gate: RwLock<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    used: Used,
    /// Whether that is so.
    is_known: bool,
    /// Until when a command that nobody waited for may still write.
    unsettled: Option<Instant>,
}

impl Space {
    /// A folder of which nothing is counted yet.
    pub fn new(quota: SpaceQuota) -> Self {
        Self { quota, gate: RwLock::default(), state: Mutex::default() }
    }

    /// What there may be.
    pub fn quota(&self) -> &SpaceQuota {
        &self.quota
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a change, or a look at what is used: counts first, if what is used is not known.
    fn enter(&self, root: &Dir) -> io::Result<Gate<'_>> {
        let shared = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        if self.state().is_known {
            return Ok(Gate::Shared(shared));
        }
        drop(shared);
        let alone = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        if !self.state().is_known {
            // Before the walk: what a command writes during it makes it unknown again.
            let mut state = self.state();
            let is_settled = state.unsettled.is_none_or(|until| until <= Instant::now());
            state.is_known = is_settled;
            drop(state);
            let used = counted(root, &self.quota);
            let mut state = self.state();
            match used {
                Ok(used) => state.used = used,
                Err(error) => {
                    state.is_known = false;
                    return Err(error);
                }
            }
        }
        Ok(Gate::Alone(alone))
    }
}

impl State {
    /// Takes room for what is added.
    fn take(&mut self, quota: &SpaceQuota, files: u64, bytes: u64) -> Result<(), Full> {
        if files == 0 && bytes == 0 {
            return Ok(());
        }
        let (all_files, all_bytes) = (self.used.files.saturating_add(files), self.used.bytes.saturating_add(bytes));
        // Where there is too much of one, nothing is added of the other either.
        for (limit, most, used, would) in [
            ("workspace_bytes", quota.bytes, self.used.bytes, all_bytes),
            ("workspace_files", quota.files, self.used.files, all_files),
        ] {
            if would > most {
                return Err(Full { limit, most, would, set_by: quota.set_by.clone(), is_over: used > most });
            }
        }
        (self.used.files, self.used.bytes) = (all_files, all_bytes);
        Ok(())
    }

    /// Gives back what is there no more.
    fn give(&mut self, files: u64, bytes: u64) {
        self.used.files = self.used.files.saturating_sub(files);
        self.used.bytes = self.used.bytes.saturating_sub(bytes);
        // Of what was not counted, nobody knows what is left.
        self.is_known &= !self.used.is_cut || (files == 0 && bytes == 0);
    }
}

/// Held while something is changed.
#[derive(Debug)]
#[expect(dead_code, reason = "held for its lock")]
enum Gate<'s> {
    Shared(RwLockReadGuard<'s, ()>),
    Alone(RwLockWriteGuard<'s, ()>),
}

/// A change of files. Where the workspace has no quota, none of this does anything.
#[derive(Debug)]
pub(super) struct Change<'s> {
    space: Option<&'s Space>,
    /// What was taken and is not on the disk yet.
    files: u64,
    bytes: u64,
    /// Whether something is on the disk that has not its name yet.
    is_unfinished: bool,
    _gate: Option<Gate<'s>>,
}

impl Change<'_> {
    /// Takes room for what will be added.
    pub(super) fn take(&mut self, files: u64, bytes: u64) -> Result<(), Full> {
        if let Some(space) = self.space {
            space.state().take(&space.quota, files, bytes)?;
            (self.files, self.bytes) = (self.files.saturating_add(files), self.bytes.saturating_add(bytes));
        }
        Ok(())
    }

    /// So many bytes fewer were added than were taken for it.
    pub(super) fn give_back(&mut self, bytes: u64) {
        if let Some(space) = self.space {
            let bytes = bytes.min(self.bytes);
            space.state().give(0, bytes);
            self.spent(0, bytes);
        }
    }

    /// So much of it is on the disk, to stay.
    pub(super) fn spent(&mut self, files: u64, bytes: u64) {
        (self.files, self.bytes) = (self.files.saturating_sub(files), self.bytes.saturating_sub(bytes));
    }

    /// Something is made on the disk that may have to be removed again. Until [`finish`](Self::finish) or the like.
    pub(super) fn unfinished(&mut self) {
        self.is_unfinished = true;
    }

    /// Gives a name to what was made, in place of nothing. Everything that was taken is on the disk then.
    pub(super) fn finish(&mut self, name: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.alone(|_| name())?;
        (self.files, self.bytes, self.is_unfinished) = (0, 0, false);
        Ok(())
    }

    /// Gives a name in a folder to a file of so many bytes that was made, in place of what has the name. Of what was taken,
    /// one file and all bytes were for it.
    pub(super) fn put(
        &mut self,
        (folder, name): (&Dir, &str),
        bytes: u64,
        rename: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(space) = self.space else { return rename() };
        let mut state = space.state();
        // What has the name in this moment, whatever had it before.
        let (old_files, old_bytes) = match folder.symlink_metadata(name) {
            Ok(old) => (1, if old.is_file() { old.len() } else { 0 }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (0, 0),
            Err(error) => return Err(error),
        };
        let (files, added) = (1_u64.saturating_sub(old_files), bytes.saturating_sub(old_bytes));
        state.take(&space.quota, files.saturating_sub(self.files), added.saturating_sub(self.bytes))?;
        (self.files, self.bytes) = (self.files.max(files), self.bytes.max(added));
        rename()?;
        state.give(0, old_bytes.saturating_sub(bytes));
        (self.files, self.bytes) = (self.files.saturating_sub(files), self.bytes.saturating_sub(added));
        drop(state);
        self.is_unfinished = false;
        Ok(())
    }

    /// Does something while nothing else changes a name.
    pub(super) fn alone<T>(&self, work: impl FnOnce(&mut Counted<'_>) -> T) -> T {
        match self.space {
            Some(space) => work(&mut Counted(Some((&mut space.state(), &space.quota)))),
            None => work(&mut Counted(None)),
        }
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        let Some(space) = self.space else { return };
        let mut state = space.state();
        state.give(self.files, self.bytes);
        // What it had made was under a name that others see: nobody knows what became of it.
        state.is_known &= !self.is_unfinished;
    }
}

/// What is used, while nothing else changes it.
pub(super) struct Counted<'c>(Option<(&'c mut State, &'c SpaceQuota)>);

impl Counted<'_> {
    /// Takes room for what is added at once.
    pub(super) fn take(&mut self, files: u64, bytes: u64) -> Result<(), Full> {
        self.0.as_mut().map_or(Ok(()), |(state, quota)| state.take(quota, files, bytes))
    }

    /// Gives back what was removed.
    pub(super) fn give(&mut self, files: u64, bytes: u64) {
        if let Some((state, _)) = &mut self.0 {
            state.give(files, bytes);
        }
    }

    /// Nobody knows what became of what was begun.
    pub(super) fn forget(&mut self) {
        if let Some((state, _)) = &mut self.0 {
            state.is_known = false;
        }
    }
}

impl Workspace {
    /// The same with a quota.
    #[must_use]
    pub fn with_space(self, space: Option<Arc<Space>>) -> Self {
        Self { space, ..self }
    }

    /// Its quota, if it has one.
    pub fn space(&self) -> Option<&Arc<Space>> {
        self.space.as_ref()
    }

    /// What it holds; none where it has no quota and nothing is counted.
    ///
    /// # Errors
    ///
    /// It has to be counted anew, and cannot be.
    pub fn used(&self) -> io::Result<Option<Used>> {
        let Some(space) = &self.space else { return Ok(None) };
        let _gate = space.enter(&self.root)?;
        Ok(Some(space.state().used))
    }

    /// Begins a change.
    pub(super) fn change(&self) -> Result<Change<'_>, Error> {
        let space = self.space.as_deref();
        let gate = space.map(|space| space.enter(&self.root)).transpose();
        let gate = gate.map_err(|error| Error::Io(error.kind().to_string()))?;
        Ok(Change { space, files: 0, bytes: 0, is_unfinished: false, _gate: gate })
    }

    /// Lets a command in that may write files: what it writes is counted after its end.
    ///
    /// # Errors
    ///
    /// There is too much in the workspace already.
    pub fn admit_command(&self, grant: &Grant) -> Result<Writing, Error> {
        let Some(space) = self.space.as_ref().filter(|_| !grant.writes_no_file()) else {
            return Ok(Writing { space: None, has_ended: true });
        };
        self.has_room()?;
        Ok(Writing { space: Some(space.clone()), has_ended: false })
    }

    /// Counts what is there while a command runs.
    ///
    /// # Errors
    ///
    /// There is more than there may be.
    pub fn count_while_written(&self) -> Result<(), Error> {
        if let Some(space) = &self.space {
            space.state().is_known = false;
        }
        self.has_room()
    }

    fn has_room(&self) -> Result<(), Error> {
        let Some(space) = &self.space else { return Ok(()) };
        let change = self.change()?;
        let used = space.state().used;
        drop(change);
        let quota = &space.quota;
        for (limit, most, would) in
            [("workspace_bytes", quota.bytes, used.bytes), ("workspace_files", quota.files, used.files)]
        {
            if would > most {
                return Err(Full { limit, most, would, set_by: quota.set_by.clone(), is_over: true }.into());
            }
        }
        Ok(())
    }
}

/// A command that may write files. What they hold is counted anew after it is dropped.
#[derive(Debug)]
pub struct Writing {
    space: Option<Arc<Space>>,
    has_ended: bool,
}

impl Writing {
    /// Whether what it writes is counted.
    pub fn is_counted(&self) -> bool {
        self.space.is_some()
    }

    /// All its processes have ended.
    pub fn end(mut self) {
        self.has_ended = true;
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let Some(space) = &self.space else { return };
        let mut state = space.state();
        state.is_known = false;
        if !self.has_ended {
            state.unsettled = Some(Instant::now() + SETTLED);
        }
    }
}
