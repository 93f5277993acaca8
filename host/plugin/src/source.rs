//! Where a plugin is fetched from, as a person names it and as `harness.lock` keeps it.

mod git;
mod registry;

use std::fmt;
use std::path::{Component, Path, PathBuf};

use harness_policy::text::quoted;
use url::Url;

use crate::Rejected;

pub use git::{GitSource, is_abbreviated, is_commit};
pub use registry::{RegistrySource, Version, is_digest};

/// Bytes of a source.
const MAX_BYTES: usize = 4 << 10;
/// The part of messages that lists the sources.
const SUPPORTED: &str =
    "supported are `./FOLDER`, `./FILE.tar`, `git+https://HOST/REPOSITORY@TAG#FOLDER` and `oci://HOST/NAME:TAG`";

/// Where a plugin is fetched from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A folder, or a packed plugin, of this machine: a path that begins with `./`, `../` or `/`. A relative one is from
    /// the folder of the project.
    Path(String),
    /// A folder of a git repository.
    Git(GitSource),
    /// An artifact of a registry of the Open Container Initiative.
    Registry(RegistrySource),
}

impl Source {
    /// Reads a source.
    ///
    /// # Errors
    ///
    /// It is none, or none that this version fetches.
    pub fn parse(text: &str) -> Result<Self, Rejected> {
        let is_scheme = |scheme: &str| {
            let rest = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
            scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(rest)
        };
        let is_path = ["./", "../", "/"].iter().any(|begin| text.starts_with(begin)) || matches!(text, "." | "..");
        let why = match text.split_once(':') {
            _ if text.len() > MAX_BYTES || text.contains('\0') => format!("a source has up to {MAX_BYTES} bytes"),
            _ if is_path => return Ok(Self::Path(text.to_owned())),
            Some((scheme, _)) if scheme.starts_with("git+") => {
                return GitSource::parse(text).map(Self::Git).map_err(|why| wrong(text, &why));
            }
            Some(("oci", _)) => {
                return RegistrySource::parse(text).map(Self::Registry).map_err(|why| wrong(text, &why));
            }
            Some((scheme, _)) if is_scheme(scheme) => format!("sources of `{scheme}:` are not supported: {SUPPORTED}"),
            _ => format!("{} is not a source: {SUPPORTED}", quoted(text)),
        };
        Err(Rejected::new(why))
    }

    /// The same with a path that is relative to `folder`, where a person named it, as one from the project's folder. Both
    /// are absolute. Everything else stays as it is.
    #[must_use]
    pub fn from_project(&self, folder: &Path, project: &Path) -> Self {
        let Self::Path(path) = self else { return self.clone() };
        if path.starts_with('/') {
            return self.clone();
        }
        let place = plain(&folder.join(path));
        let shared = place.components().zip(project.components()).take_while(|(one, other)| one == other).count();
        let up = project.components().skip(shared).count();
        let down: PathBuf = place.components().skip(shared).collect();
        let begin = if up == 0 { "./".to_owned() } else { "../".repeat(up) };
        Self::Path(format!("{begin}{}", down.display()).trim_end_matches('/').to_owned())
    }
}

fn wrong(text: &str, why: &str) -> Rejected {
    Rejected::new(format!("{} is not a source: {why}", quoted(text)))
}

/// An address in the one form that it is kept and compared in, without a user, a password, a query and a fragment.
fn address(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("an address with a user or a password is not kept".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("an address has no `?`".to_owned());
    }
    if url.as_str() != text {
        return Err(format!("write the address as `{url}`"));
    }
    Ok(url)
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => f.write_str(path),
            Self::Git(git) => git.fmt(f),
            Self::Registry(registry) => registry.fmt(f),
        }
    }
}

/// A path without `.` and `..`, as a person reads it.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources() {
        for text in [
            "./acme",
            "../x/acme.tar",
            "/opt/acme",
            "./a:b",
            ".",
            "git+https://a.example/x@v1",
            "git+https://a.example:8443/team/x.git#plugins/acme",
            "git+file:///srv/x@v1#a",
            "oci://a.example/x:1.2",
        ] {
            assert_eq!(Source::parse(text).map(|source| source.to_string()), Ok(text.to_owned()));
        }
        for (text, why) in [
            ("ext::sh -c x", "sources of `ext:` are not supported: "),
            ("https://a.example/x", "sources of `https:` are not supported: "),
            ("acme", "`acme` is not a source: "),
            ("", "`` is not a source: "),
        ] {
            assert_eq!(Source::parse(text).unwrap_err().to_string(), format!("{why}{SUPPORTED}"));
        }
        assert!(Source::parse("./a\0b").is_err() && Source::parse(&format!("./{}", "a".repeat(5000))).is_err());
    }

    #[test]
    fn a_path_is_kept_from_the_project() {
        for (path, from, kept) in [
            ("./acme", "/home/p", "./acme"),
            ("./acme/", "/home/p", "./acme"),
            ("../acme", "/home/p", "../acme"),
            ("./acme", "/home", "../acme"),
            ("./acme", "/other", "../../other/acme"),
            ("../../a/./b", "/home/p/x", "../a/b"),
            ("/opt/acme", "/home", "/opt/acme"),
        ] {
            let source = Source::parse(path).unwrap().from_project(Path::new(from), Path::new("/home/p"));
            assert_eq!(source.to_string(), kept, "{path} from {from}");
            assert_eq!(Source::parse(kept), Ok(source));
        }
    }
}
