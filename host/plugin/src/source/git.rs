//! A plugin in a git repository: `git+https://host/repository@reference#folder`.

use std::fmt;
use std::path::PathBuf;

use url::Url;

use super::address;
use crate::{Rejected, content};

/// Bytes of a reference.
const MAX_REFERENCE: usize = 200;

/// A folder of a git repository at a commit, or at a tag or branch that may move.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GitSource {
    url: Url,
    reference: Option<String>,
    folder: Option<String>,
}

impl GitSource {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.strip_prefix("git+").unwrap_or(text);
        let (text, folder) = match text.split_once('#') {
            Some((text, folder)) => (text, Some(folder)),
            None => (text, None),
        };
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err("it has the form `git+https://HOST/REPOSITORY`".to_owned());
        };
        if !matches!(scheme, "https" | "file") {
            return Err("git repositories are fetched by `git+https:`, and by `git+file:` on this machine".to_owned());
        }
        // An `@` before the first slash is of a user.
        let path = rest.find('/').ok_or("it names no repository")?;
        let (address_end, reference) = match rest.rfind('@').filter(|at| *at > path) {
            Some(at) => (at, rest.get(at..).map(|reference| reference.trim_start_matches('@'))),
            None => (rest.len(), None),
        };
        let url = address(&format!("{scheme}://{}", rest.get(..address_end).unwrap_or_default()))?;
        let has_host = url.host_str().is_some_and(|host| !host.is_empty());
        if has_host != (scheme == "https") {
            return Err("a repository at `https:` has a host, and one at `file:` has none".to_owned());
        }
        if url.path().len() < 2 || url.path().ends_with('/') {
            return Err("it names no repository".to_owned());
        }
        if scheme == "file" && url.path().contains('%') {
            return Err("the path of a repository on this machine has no `%` and only ASCII characters".to_owned());
        }
        reference.map_or(Ok(()), check_reference)?;
        folder.map_or(Ok(()), |folder| content::check_path(folder).map_err(|why| why.to_string()))?;
        Ok(Self { url, reference: reference.map(str::to_owned), folder: folder.map(str::to_owned) })
    }

    /// The repository: `https:` with a host, or `file:` without one.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// The path of a repository of this machine.
    pub fn local(&self) -> Option<PathBuf> {
        (self.url.scheme() == "file").then(|| PathBuf::from(self.url.path()))
    }

    /// A commit, a tag or a branch; none: what the repository has as its own.
    pub fn reference(&self) -> Option<&str> {
        self.reference.as_deref()
    }

    /// The folder of the plugin; none: the root.
    pub fn folder(&self) -> Option<&str> {
        self.folder.as_deref()
    }

    /// The same at a commit, a tag or a branch.
    ///
    /// # Errors
    ///
    /// It cannot be the name of one.
    pub fn at(&self, reference: &str) -> Result<Self, Rejected> {
        check_reference(reference).map_err(Rejected::new)?;
        Ok(Self { reference: Some(reference.to_owned()), ..self.clone() })
    }

    /// A folder in the one that it is.
    ///
    /// # Errors
    ///
    /// The path leads out of it, or is none that a plugin can be at.
    pub fn below(&self, folder: &str) -> Result<Self, Rejected> {
        content::check_path(folder)?;
        let folder = self.folder.as_ref().map_or_else(|| folder.to_owned(), |own| format!("{own}/{folder}"));
        content::check_path(&folder)?;
        Ok(Self { folder: Some(folder), ..self.clone() })
    }

    /// Whether both are the same folder of the same repository, perhaps at different commits.
    pub(super) fn is_version_of(&self, other: &Self) -> bool {
        (&self.url, &self.folder) == (&other.url, &other.folder)
    }
}

/// Whether a text is the whole name of a commit: of SHA-1 or of SHA-256.
pub fn is_commit(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether a text may be the beginning of the name of a commit. A tag may have such a name too, and no branch.
pub fn is_abbreviated(text: &str) -> bool {
    (7..40).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Stricter than git: no character that git or a shell reads otherwise.
fn check_reference(reference: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '/' | '+' | '-');
    let parts = || reference.split('/');
    let is_part = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    let is_good = reference.len() <= MAX_REFERENCE
        && reference.chars().all(plain)
        && !reference.starts_with('-')
        && !reference.ends_with('.')
        && !reference.contains("..")
        && parts().all(is_part);
    match is_good {
        true => Ok(()),
        false => Err("after `@` is the name of a commit, a tag or a branch".to_owned()),
    }
}

impl fmt::Display for GitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "git+{}", self.url)?;
        self.reference.as_ref().map_or(Ok(()), |reference| write!(f, "@{reference}"))?;
        self.folder.as_ref().map_or(Ok(()), |folder| write!(f, "#{folder}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::*;

    fn parsed(text: &str) -> Result<(String, Option<String>, Option<String>), String> {
        match Source::parse(text) {
            Ok(Source::Git(git)) => {
                assert_eq!(git.to_string(), text);
                Ok((git.url.to_string(), git.reference, git.folder))
            }
            Ok(other) => panic!("{other:?}"),
            Err(why) => Err(why.to_string()),
        }
    }

    #[test]
    fn parts_of_a_source() {
        let some = |text: &str| Some(text.to_owned());
        for (text, url, reference, folder) in [
            ("git+https://a.example/x", "https://a.example/x", None, None),
            ("git+https://a.example/x@v1.2", "https://a.example/x", some("v1.2"), None),
            ("git+https://a.example/x@release/1", "https://a.example/x", some("release/1"), None),
            ("git+https://a.example/a@b/x@v1#p/q", "https://a.example/a@b/x", some("v1"), some("p/q")),
            ("git+https://a.example:8443/x.git#a", "https://a.example:8443/x.git", None, some("a")),
            ("git+file:///srv/x.git@v1", "file:///srv/x.git", some("v1"), None),
        ] {
            assert_eq!(parsed(text), Ok((url.to_owned(), reference, folder)), "{text}");
        }
        assert_eq!(GitSource::parse("git+file:///srv/x").unwrap().local(), Some("/srv/x".into()));
        assert_eq!(GitSource::parse("git+https://a.example/x").unwrap().local(), None);
        assert!(is_commit(&"a1".repeat(20)) && is_commit(&"0f".repeat(32)));
        assert!(!is_commit(&"A1".repeat(20)) && !is_commit("a1") && !is_commit(""));
    }

    #[test]
    fn what_git_could_read_otherwise_is_no_source() {
        for (text, why) in [
            ("git+ext::sh -c x", "it has the form `git+https://HOST/REPOSITORY`"),
            (
                "git+ssh://a.example/x",
                "git repositories are fetched by `git+https:`, and by `git+file:` on this machine",
            ),
            (
                "git+http://a.example/x",
                "git repositories are fetched by `git+https:`, and by `git+file:` on this machine",
            ),
            ("git+https://ada@a.example/x", "an address with a user or a password is not kept"),
            ("git+https://ada:pass@a.example/x", "an address with a user or a password is not kept"),
            ("git+https://a.example/x?y", "an address has no `?`"),
            ("git+https://A.example/x", "write the address as `https://a.example/x`"),
            ("git+https://a.example/../x", "write the address as `https://a.example/x`"),
            ("git+https://a.example:443/x", "write the address as `https://a.example/x`"),
            ("git+https://\u{430}.example/x", "write the address as `https://xn--80a.example/x`"),
            ("git+https://a.example", "it names no repository"),
            ("git+https://a.example/", "it names no repository"),
            ("git+https://a.example/x/", "it names no repository"),
            ("git+https://a.example/x@-v1", "after `@` is the name of a commit, a tag or a branch"),
            ("git+https://a.example/x@--all", "after `@` is the name of a commit, a tag or a branch"),
            ("git+file://a.example/x", "a repository at `https:` has a host, and one at `file:` has none"),
            ("git+file:///a%20b", "the path of a repository on this machine has no `%` and only ASCII characters"),
            ("git+https://a.example/x@", "after `@` is the name of a commit, a tag or a branch"),
            ("git+https://a.example/x@--upload-pack=x", "after `@` is the name of a commit, a tag or a branch"),
            ("git+https://a.example/x@a..b", "after `@` is the name of a commit, a tag or a branch"),
            ("git+https://a.example/x@a:b", "after `@` is the name of a commit, a tag or a branch"),
            ("git+https://a.example/x@a^{tree}", "after `@` is the name of a commit, a tag or a branch"),
            ("git+https://a.example/x@a b", "after `@` is the name of a commit, a tag or a branch"),
            ("git+https://a.example/x@v1#../y", "`../y` is not a path inside the plugin"),
            ("git+https://a.example/x@v1#", "`` is not a path inside the plugin"),
        ] {
            let told = parsed(text).unwrap_err();
            assert!(told.ends_with(&format!(" is not a source: {why}")), "{text}: {told}");
        }
    }
}
