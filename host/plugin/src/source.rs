//! Where a plugin is fetched from, as a person names it and as `harness.lock` keeps it.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use harness_policy::text::quoted;

use crate::Rejected;

/// Bytes of a source.
const MAX_BYTES: usize = 4 << 10;

/// Where a plugin is fetched from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A folder, or a packed plugin, of this machine: a path that begins with `./`, `../` or `/`. A relative one is from
    /// the folder of the project.
    Path(String),
}

impl Source {
    /// Reads a source.
    ///
    /// # Errors
    ///
    /// It is none, or none that this version fetches.
    pub fn parse(text: &str) -> Result<Self, Rejected> {
        const SUPPORTED: &str = "supported are a folder and a packed file, such as `./acme` and `./acme-1.2.0.tar`";
        let is_scheme = |scheme: &str| {
            let rest = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
            scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(rest)
        };
        let is_path = ["./", "../", "/"].iter().any(|begin| text.starts_with(begin)) || matches!(text, "." | "..");
        let why = match text.split_once(':') {
            _ if text.len() > MAX_BYTES || text.contains('\0') => "a source is the path of a folder".to_owned(),
            _ if is_path => return Ok(Self::Path(text.to_owned())),
            Some((scheme, _)) if is_scheme(scheme) => format!("sources of `{scheme}:` are not supported: {SUPPORTED}"),
            _ => format!("{} is not a source: {SUPPORTED}", quoted(text)),
        };
        Err(Rejected::new(why))
    }

    /// The same with a path that is relative to `folder`, where a person named it, as one from the project's folder. Both
    /// are absolute. A path that was absolute stays so.
    #[must_use]
    pub fn from_project(&self, folder: &Path, project: &Path) -> Self {
        let Self::Path(path) = self;
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

    /// The place of a path, where the project's folder is this one.
    pub fn place(&self, project: &Path) -> PathBuf {
        let Self::Path(path) = self;
        project.join(path)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Path(path) = self;
        f.write_str(path)
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
        for path in ["./acme", "../x/acme.tar", "/opt/acme", "./a:b", "."] {
            assert_eq!(Source::parse(path).map(|source| source.to_string()), Ok(path.to_owned()));
        }
        let supported = "supported are a folder and a packed file, such as `./acme` and `./acme-1.2.0.tar`";
        for (text, why) in [
            ("git+https://a.example/x@v1", "sources of `git+https:` are not supported: "),
            ("oci://a.example/x:1.2", "sources of `oci:` are not supported: "),
            ("ext::sh -c x", "sources of `ext:` are not supported: "),
            ("acme", "`acme` is not a source: "),
            ("acme@catalogue", "`acme@catalogue` is not a source: "),
            ("", "`` is not a source: "),
        ] {
            assert_eq!(Source::parse(text).unwrap_err().to_string(), format!("{why}{supported}"));
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
