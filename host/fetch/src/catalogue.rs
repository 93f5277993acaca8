//! A catalogue: its index, fetched like a plugin, and the sources that the index names.
//!
//! A catalogue that is not on this machine names nothing that is: neither a path nor a repository at `git+file:`. What it
//! names of itself is at the commit that its index was read at.

use std::path::{Path, PathBuf};

use harness_artifact::catalogue::{self, Catalogue, Entry, Listed, MAX_BYTES};
use harness_artifact::diagnostic::Diagnostics;
use harness_plugin::source::{Source, Version, is_commit};
use harness_policy::text::quoted;
use harness_sys as sys;

use crate::{Failure, FetchContext, git, none_of};

/// An index as its source has it.
#[derive(Debug)]
pub struct Index {
    /// Where the catalogue is: of a repository, at the commit that was fetched.
    at: Source,
    /// Its folder, where it is on this machine.
    folder: Option<PathBuf>,
    /// Which of [`catalogue::FILES`] it is in.
    pub file: String,
    /// Its text.
    pub text: String,
}

/// Fetches the index of a catalogue. A relative path is from the folder of the project.
///
/// To be called in a tokio runtime with I/O and time, as [`fetch`](crate::fetch) is.
///
/// # Errors
///
/// Why it was not fetched.
pub async fn index(source: &Source, project: &Path, place: FetchContext<'_>) -> Result<Index, Failure> {
    match source {
        Source::Path(path) => {
            let folder = sys::real_path(&project.join(path))?;
            let is_there = |file: &&&str| sys::is_there(&folder.join(file));
            let file = catalogue::FILES.iter().find(is_there).ok_or_else(|| none_of(&catalogue::FILES))?;
            let text = text(&folder, file)?;
            Ok(Index { at: source.clone(), folder: Some(folder), file: (*file).to_owned(), text })
        }
        Source::Git(repository) => {
            let (found, file) = Box::pin(git::first_of(repository, &catalogue::FILES, place)).await?;
            let text = text(&sys::real_path(&found.folder)?, &file)?;
            let at = Source::Git(repository.at(&found.resolved)?);
            Ok(Index { at, folder: None, file, text })
        }
        Source::Registry(_) => Err(Failure::new("a catalogue is a folder or a git repository")),
    }
}

/// The text of an index below a folder.
fn text(folder: &Path, file: &str) -> Result<String, Failure> {
    let path = sys::real_path(&folder.join(file))?;
    if !path.starts_with(folder) {
        return Err(Failure::new(format!("`{file}` is outside of the catalogue")));
    }
    let bytes = sys::read_bytes(&path, MAX_BYTES as u64).map_err(|error| Failure::new(format!("`{file}`: {error}")))?;
    String::from_utf8(bytes).map_err(|_| Failure::new(format!("`{file}` is not UTF-8 text")))
}

impl Index {
    /// One of a repository that was kept on this machine: where it was, its file and its text.
    ///
    /// # Errors
    ///
    /// It is not of a commit of the repository at `source`, or not an index.
    pub fn kept(source: &Source, (at, file): (&str, &str), text: String) -> Result<Self, Failure> {
        let of = Source::parse(at)?;
        let is_commit = matches!(&of, Source::Git(git) if git.reference().is_some_and(is_commit));
        match is_commit && of.is_version_of(source) && catalogue::FILES.contains(&file) && text.len() <= MAX_BYTES {
            true => Ok(Self { at: of, folder: None, file: file.to_owned(), text }),
            false => Err(Failure::new(format!("it is no index of `{source}`"))),
        }
    }

    /// Where it is: of a repository, at the commit that was fetched.
    pub fn at(&self) -> &Source {
        &self.at
    }

    /// Reads it. `shown` is for messages.
    pub fn parse(&self, shown: &str) -> (Option<Catalogue>, Diagnostics) {
        Catalogue::parse(&self.file, shown, &self.text)
    }

    /// The source that an entry names.
    ///
    /// # Errors
    ///
    /// Why it is none that is fetched, in words that follow the name of the plugin.
    pub fn resolve(&self, entry: &Entry) -> Result<Source, String> {
        match entry.source.as_ref().map_err(Clone::clone)? {
            Listed::Own(folder) => self.own(folder.as_deref()),
            Listed::Pinned(text) => self.pinned(text),
            Listed::Git { url, reference, folder } => self.git(url, reference.as_deref(), folder.as_deref()),
        }
    }

    /// A folder of the catalogue itself.
    fn own(&self, folder: Option<&str>) -> Result<Source, String> {
        match (&self.at, folder) {
            (at, None) => Ok(at.clone()),
            (Source::Git(repository), Some(folder)) => {
                repository.below(folder).map(Source::Git).map_err(|why| format!("has a source that is none: {why}"))
            }
            (Source::Path(path), Some(folder)) => {
                let root = self.folder.as_deref().unwrap_or(Path::new("/"));
                let real = sys::real_path(&root.join(folder)).map_err(|error| format!("has no folder: {error}"))?;
                match real.starts_with(root) {
                    true => Ok(Source::Path(format!("{}/{folder}", path.trim_end_matches('/')))),
                    false => Err(format!("has the source {}, which is outside of the catalogue", quoted(folder))),
                }
            }
            (Source::Registry(_), Some(_)) => Err("has no folder in a registry".to_owned()),
        }
    }

    fn pinned(&self, text: &str) -> Result<Source, String> {
        let source = Source::parse(text).map_err(|why| format!("has a source that is none: {why}"))?;
        match !matches!(source, Source::Path(_)) && is_pinned(&source) {
            true => self.permitted(source),
            false => Err(format!("has the source {}, which names neither a commit nor a digest", quoted(text))),
        }
    }

    fn git(&self, url: &str, reference: Option<&str>, folder: Option<&str>) -> Result<Source, String> {
        let at = reference.map_or_else(String::new, |reference| format!("@{reference}"));
        let below = folder.map_or_else(String::new, |folder| format!("#{folder}"));
        let source = Source::parse(&format!("git+{url}{at}{below}"));
        let source = source.map_err(|why| format!("has a source that is none: {why}"))?;
        match &source {
            // The address brought no reference and no folder of its own.
            Source::Git(git) if git.reference() == reference && git.folder() == folder => self.permitted(source),
            _ => Err(format!("has the address {}, which is not of a repository alone", quoted(url))),
        }
    }

    /// Refuses what is on this machine to a catalogue that is not.
    fn permitted(&self, source: Source) -> Result<Source, String> {
        let is_local = |source: &Source| match source {
            Source::Path(_) => true,
            Source::Git(repository) => repository.local().is_some(),
            Source::Registry(_) => false,
        };
        match is_local(&source) && !is_local(&self.at) {
            true => Err("has a source on this machine, and the catalogue is from elsewhere".to_owned()),
            false => Ok(source),
        }
    }
}

/// Whether a source names exactly one version.
pub fn is_pinned(source: &Source) -> bool {
    match source {
        Source::Path(_) => true,
        Source::Git(repository) => repository.reference().is_some_and(is_commit),
        Source::Registry(artifact) => matches!(artifact.version(), Version::Digest(_)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    fn index(at: &str) -> Index {
        let at = Source::parse(at).unwrap();
        Index { at, folder: None, file: catalogue::FILE.to_owned(), text: String::new() }
    }

    fn resolved(at: &str, listed: Listed) -> Result<String, String> {
        let entry = Entry { name: "a".to_owned(), description: None, version: None, source: Ok(listed), listing: None };
        index(at).resolve(&entry).map(|source| source.to_string())
    }

    fn git(url: &str, reference: Option<&str>, folder: Option<&str>) -> Listed {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Listed::Git { url: url.to_owned(), reference: owned(reference), folder: owned(folder) }
    }

    #[test]
    fn what_a_catalogue_names_of_itself_is_at_its_commit() {
        let at = format!("git+https://a.example/c@{COMMIT}");
        assert_eq!(resolved(&at, Listed::Own(None)), Ok(at.clone()));
        assert_eq!(resolved(&at, Listed::Own(Some("x/y".to_owned()))), Ok(format!("{at}#x/y")));
        assert_eq!(resolved(&format!("{at}#d"), Listed::Own(Some("x".to_owned()))), Ok(format!("{at}#d/x")));
        assert!(resolved(&at, Listed::Own(Some("../x".to_owned()))).is_err());
    }

    #[test]
    fn sources_elsewhere() {
        let (far, near) = (format!("git+https://a.example/c@{COMMIT}"), format!("git+file:///c@{COMMIT}"));
        let pinned = |at: &str, text: &str| resolved(at, Listed::Pinned(text.to_owned()));
        let here = format!("git+file:///x@{COMMIT}");
        let local = "has a source on this machine, and the catalogue is from elsewhere";
        assert_eq!(pinned(&near, &here), Ok(here.clone()));
        assert_eq!(pinned(&far, &here), Err(local.to_owned()));
        assert_eq!(resolved(&far, git("file:///x", Some(COMMIT), None)), Err(local.to_owned()));
        let digest = format!("oci://a.example/x@sha256:{}", "0f".repeat(32));
        assert_eq!(pinned(&far, &digest), Ok(digest.clone()));
        for text in ["git+https://a.example/x@v1", "git+https://a.example/x", "oci://a.example/x:1", "./x"] {
            let why = format!("has the source `{text}`, which names neither a commit nor a digest");
            assert_eq!(pinned(&far, text), Err(why));
        }
        assert_eq!(
            resolved(&far, git("https://a.example/x", Some("v1"), Some("d"))),
            Ok("git+https://a.example/x@v1#d".to_owned())
        );
        for url in ["https://a.example/x@v2", "https://a.example/x#d", "https://a.example/x@v2#d"] {
            assert!(
                resolved(&far, git(url, None, None)).unwrap_err().contains("is not of a repository alone"),
                "{url}"
            );
        }
        for url in
            ["ssh://a.example/x", "http://a.example/x", "git@a.example:x", "ext::sh -c x", "https://u:p@a.example/x"]
        {
            assert!(
                resolved(&far, git(url, None, None)).unwrap_err().starts_with("has a source that is none: "),
                "{url}"
            );
        }
    }
}
