//! What a lock keeps of a git repository that `artifact_sources` names: what was fetched.

use harness_artifact::diagnostic::{Diagnostic, Position};
use harness_plugin::source::{Source, is_commit, is_digest};
use harness_policy::text::quoted;
use harness_sys::digest::digest;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::FILE;
use super::entry::position;

/// A repository, as TOML has it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RepositoryDocument {
    source: Spanned<String>,
    /// The commit.
    resolved: String,
    /// Of its content.
    digest: String,
    /// Of all the rest.
    sha256: String,
}

/// A repository as the lock has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockedRepository {
    /// Where it was fetched from.
    pub source: Source,
    /// The commit that this was.
    pub resolved: String,
    /// The digest of its content.
    pub digest: String,
    /// Where its entry is.
    pub position: Position,
}

impl LockedRepository {
    /// # Errors
    ///
    /// What is wrong with the entry: it was changed by hand, or by a merge.
    pub(super) fn read(document: RepositoryDocument, text: &str) -> Result<Self, Diagnostic> {
        let at = position(text, Some(document.source.span()));
        let wrong = |why: String| {
            let what = format!("`{FILE}`: the repository {}: {why}", quoted(document.source.get_ref()));
            Diagnostic::error(what).at(at.clone()).hint("restore the file as it was committed")
        };
        let source = Source::parse(document.source.get_ref()).map_err(|why| wrong(why.to_string()))?;
        if !is_commit(&document.resolved) || !is_digest(&document.digest) {
            return Err(wrong("it has no commit or no digest".to_owned()));
        }
        let (resolved, digest) = (document.resolved.clone(), document.digest.clone());
        let repository = Self { source, resolved, digest, position: at.clone() };
        match repository.document().sha256 == document.sha256 {
            true => Ok(repository),
            false => Err(wrong("its entry was changed by hand".to_owned())),
        }
    }

    pub(super) fn document(&self) -> RepositoryDocument {
        let source = self.source.to_string();
        let all = serde_json::json!([source, self.resolved, self.digest]);
        RepositoryDocument {
            source: Spanned::new(0..0, source),
            resolved: self.resolved.clone(),
            digest: self.digest.clone(),
            sha256: digest(&all.to_string()),
        }
    }
}
