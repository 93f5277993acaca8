//! Folders that git takes for a repository, whatever they are called.
//!
//! The next git that starts in one of them goes by its configuration, which names programs. So no script makes such a
//! folder, and of one that is there no script changes what git knows it by and what says which programs run. What is
//! asked of the disk for that is asked only about the few names that matter.

use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};

use cap_std::fs::Dir;

use super::{Error, denied};
use harness_policy::path::WorkspacePath;
use harness_policy::path::protected::fold;

/// What git knows a repository by, and what it is configured by; folded.
const NAMES: [&str; 7] = ["head", "objects", "refs", "commondir", "config", "config.worktree", "hooks"];

/// Held from the look at a folder until the name is in it: two calls may each make a part of a repository.
static NAMING: Mutex<()> = Mutex::new(());

/// Whether this name in a folder is a repository's: that which is there already, or would be with this name in it.
pub(super) fn is_governed_by(folder: &Dir, name: &str) -> bool {
    of_git(name).is_some_and(|name| makes_a_repository(folder, &name))
}

/// Gives something a name in a folder by `make`, unless the name is a repository's.
pub(super) fn naming<T>(folder: &Dir, name: &str, make: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let Some(name) = of_git(name) else { return make() };
    let _alone = NAMING.lock().unwrap_or_else(PoisonError::into_inner);
    if makes_a_repository(folder, &name) { Err(io::Error::other(Refused)) } else { make() }
}

/// Makes a folder, unless its name is a repository's.
pub(super) fn create_dir(folder: &Dir, name: &str) -> io::Result<()> {
    naming(folder, name, || folder.create_dir(name))
}

/// Whether it was [`naming`] that failed.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Refused>())
}

/// The refusal to write there.
pub(super) fn refused(path: &WorkspacePath) -> Error {
    denied(format!(
        "writing `{path}` is never allowed: git takes a folder with `HEAD`, `objects` and `refs` for a repository, and runs \
         what is configured in it"
    ))
}

/// The name, folded, if it is one of [`NAMES`].
fn of_git(name: &str) -> Option<String> {
    Some(fold(name)).filter(|name| NAMES.contains(&name.as_str()))
}

/// Whether git takes a folder for a repository once this name is in it. What has the names is not looked at: a link to
/// nothing will do for git as `HEAD`, and a file that may be run as `objects`.
fn makes_a_repository(folder: &Dir, name: &str) -> bool {
    let has = |part: &str| {
        part.eq_ignore_ascii_case(name)
            || !matches!(folder.symlink_metadata(part), Err(error) if error.kind() == io::ErrorKind::NotFound)
    };
    // A second work tree's has its objects elsewhere.
    has("HEAD") && (has("commondir") || (has("objects") && has("refs")))
}

/// Why a name was not given.
#[derive(Debug)]
struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("git would take the folder for a repository")
    }
}

impl std::error::Error for Refused {}
