//! Fetches plugins from elsewhere.
//!
//! What is fetched is third-party, and a program that reads what a server sends may be taken over by it. So it runs behind a
//! wall, in a new folder of the cache, without any secret of the project, and reaches the host of the source alone. What it
//! leaves is read by a second process, behind a wall without a network, which writes the files of the plugin or refuses
//! them.
//!
//! - [`catalogue`]: an index of plugins, and the sources that it names
//! - [`git`]: a folder of a git repository
//! - [`registry`]: an artifact of a registry, which the host itself asks for; what comes is unpacked in the same way
//! - [`unpack`]: what the second process does
//! - `walled`: a command in the new folder

#![cfg_attr(test, expect(clippy::disallowed_methods, reason = "tests start programs"))]

pub mod catalogue;
pub mod git;
pub mod registry;
pub mod unpack;
mod walled;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use harness_capability::env::Variables;
use harness_capability::exec;
use harness_capability::http::Client;
use harness_plugin::Rejected;
use harness_plugin::source::Source;
use harness_policy::layer::Layer;
use harness_policy::network::HostRule;
use harness_policy::network::address::AddressKind;
use harness_policy::refusal::Refusal;
use harness_sys as sys;
use harness_sys::store::{Fresh, Store};
use harness_sys::tree::Most;
use url::{Host, Url};

/// How long a fetch takes at most, and each step of it.
const STEP: Duration = Duration::from_secs(120);
/// In the new folder: the files of the plugin.
const PLUGIN: &str = "plugin";

/// Where plugins are fetched, and with what.
#[derive(Debug, Clone, Copy)]
pub struct FetchContext<'a> {
    /// The layers of the host policy. They bound each request and each command of a fetch.
    pub machine: &'a [Arc<Layer>],
    /// The folder of the cache, in which new folders are made.
    pub cache: &'a Path,
    /// This program, absolute and without links: it unpacks what was fetched, as [`unpack::COMMAND`] with the names of a
    /// file and of a folder.
    pub program: &'a Path,
    /// The variables of the machine.
    pub variables: &'a Variables,
    /// Whose names and share of lookups count.
    pub http: &'a Client,
    /// The login at a registry, where one was named.
    pub credentials: Option<&'a Credentials>,
    /// Whether the source may be at an address that is not public.
    pub is_private: bool,
}

/// A secret that a registry is shown.
#[derive(Clone)]
pub struct Credentials {
    /// Its name in the policy.
    pub name: String,
    /// `USER:PASSWORD`.
    pub value: String,
    /// The hosts that may be sent it.
    pub hosts: Vec<HostRule>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Who packed what is unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packed {
    /// `git archive`: the files of a commit, in the form of git.
    ByGit,
    /// `harness plugin pack`, in the one form that this has.
    ByHarness,
}

impl Packed {
    const fn name(self) -> &'static str {
        match self {
            Self::ByGit => "git",
            Self::ByHarness => "harness",
        }
    }

    /// The one with this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::ByGit, Self::ByHarness].into_iter().find(|packed| packed.name() == name)
    }
}

/// What was fetched.
#[derive(Debug)]
pub struct Found {
    /// The folder with the files of the plugin.
    pub folder: PathBuf,
    /// What the source was then: the whole name of a commit, or the digest of a manifest.
    pub resolved: String,
    /// Removed with all that is in it when this is dropped.
    _fresh: Fresh,
}

/// Why nothing was fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// A sentence without a full stop. It may quote what a server said, fit for a terminal.
    pub why: String,
    /// What can be done about it.
    pub hint: Option<String>,
}

impl Failure {
    fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), hint: None }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Failure {}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self { why: refusal.reason.to_string(), hint: Some(refusal.hint.to_string()).filter(|hint| !hint.is_empty()) }
    }
}

impl From<Rejected> for Failure {
    fn from(why: Rejected) -> Self {
        Self::new(why.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(error.to_string())
    }
}

/// Fetches what is at a source; none where that is a path of this machine, which is read where it is. `resolved` is what it
/// was, where exactly that is wanted.
///
/// To be called in a tokio runtime with I/O and time. Dropping the future ends what was started.
///
/// # Errors
///
/// Why nothing was fetched.
pub async fn fetch(source: &Source, resolved: Option<&str>, place: FetchContext<'_>) -> Result<Option<Found>, Failure> {
    match source {
        Source::Path(_) => Ok(None),
        Source::Git(source) => Box::pin(git::fetch(source, resolved, place)).await.map(Some),
        Source::Registry(source) => Box::pin(registry::fetch(source, resolved, place)).await.map(Some),
    }
}

/// That a fetch took too long.
fn late() -> Failure {
    Failure::new(format!("it took more than {} seconds", STEP.as_secs()))
}

/// That a folder has none of the files that it was to have.
fn none_of(files: &[&str]) -> Failure {
    let files: Vec<String> = files.iter().map(|file| format!("`{file}`")).collect();
    Failure::new(format!("it has no {}", files.join(" and no ")))
}

/// Whether a source may be at a host that a rule is for. A rule for an address names that address; here, too, one that is
/// not public has to be allowed.
fn decide(rule: &HostRule, url: &Url, place: FetchContext<'_>) -> Result<(), Failure> {
    if rule.literal().is_none() {
        return Err(Failure::new("the address is not of one host"));
    }
    let kind = match url.host() {
        Some(Host::Ipv4(address)) => AddressKind::of(address.into()),
        Some(Host::Ipv6(address)) => AddressKind::of(address.into()),
        Some(Host::Domain(_)) | None => return Ok(()),
    };
    if kind == AddressKind::Public || place.is_private {
        return Ok(());
    }
    Err(Failure {
        why: format!("the host is {} address, which is not public", kind.words()),
        hint: Some("name it in `trusted_sources`, with `private: true`".to_owned()),
    })
}

/// A new folder of the cache.
fn fresh(place: FetchContext<'_>) -> Result<(Fresh, PathBuf), Failure> {
    // What it holds is bounded by what reads it.
    let store = Store::new(place.cache.to_owned(), Most { entries: 0, bytes: 0, levels: 0 });
    let unmade = |error: std::io::Error| Failure::new(format!("`{}`: {error}", place.cache.display()));
    let fresh = store.fresh().map_err(unmade)?;
    let folder = sys::real_path(fresh.path()).map_err(unmade)?;
    Ok((fresh, folder))
}

/// Unpacks what was fetched, behind a wall of its own.
async fn unpacked(folder: &Path, (packed, file): (Packed, &str), place: FetchContext<'_>) -> Result<(), Failure> {
    let args: Vec<String> =
        unpack::COMMAND.into_iter().chain([packed.name(), file, PLUGIN]).map(str::to_owned).collect();
    let own = place.program.parent().unwrap_or(Path::new("/")).to_owned();
    if folder.starts_with(&own) {
        return Err(Failure {
            why: format!("the cache is inside of `{}`, the folder of this program", own.display()),
            hint: Some("name another folder in `XDG_CACHE_HOME`".to_owned()),
        });
    }
    let installed = exec::Installed { program: place.program.to_owned(), args: args.clone(), folder: own };
    let program = place.program.to_string_lossy().into_owned();
    let command = walled::Step { installed: Some(installed), ..walled::Step::new(&program, args) };
    let output = walled::run(folder, command, place).await?;
    match output.exit_code {
        0 => Ok(()),
        _ => Err(Failure::new(walled::said(&output, "it cannot be unpacked"))),
    }
}
