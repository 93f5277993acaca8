//! Git repositories that `artifact_sources` names: what is fetched, whether it may be, and what it has to be.

use super::load::mismatch;
use harness_artifact::diagnostic::{Diagnostic, Position};
use harness_artifact::located::Located;
use harness_artifact::policy::ProjectPolicy;
use harness_artifact::policy::roots::{ArtifactSource, GitRoot};
use harness_artifact::policy::trusted::{TrustedSource, decide};
use harness_plugin::content::Content;
use harness_plugin::source::{Source, is_abbreviated, is_commit};
use harness_policy::trust::Provenance;

/// A git repository with artifacts.
#[derive(Debug, Clone)]
pub struct Repository {
    /// As the policy names it.
    pub root: GitRoot,
    /// What is fetched.
    pub source: Source,
    position: Position,
}

impl Repository {
    /// # Errors
    ///
    /// It cannot be fetched from there.
    pub(super) fn new(named: &Located<GitRoot>) -> Result<Self, Diagnostic> {
        let root = named.value.clone();
        let lower = root.reference.to_ascii_lowercase();
        let reference = match root.reference.as_str() {
            _ if is_commit(&lower) => lower,
            // A tag of this name comes first, as for git.
            name if is_abbreviated(name) => name.to_owned(),
            name => format!("refs/tags/{name}"),
        };
        // A checksum is of all of the repository.
        let folder = root.path.iter().filter(|_| root.checksum.is_none()).map(|path| format!("#{path}"));
        let text: String = std::iter::once(format!("git+{}@{reference}", root.url)).chain(folder).collect();
        let wrong =
            |why| Diagnostic::error(format!("artifact source {:?}: {why}", root.url)).at(named.position.clone());
        let source = Source::parse(&text).map_err(wrong)?;
        Ok(Self { source, position: named.position.clone(), root })
    }

    /// Those of a policy.
    pub fn all(policy: &ProjectPolicy) -> Vec<Result<Self, Diagnostic>> {
        let named = policy.roots.iter().filter_map(|root| match &root.value {
            ArtifactSource::Git(git) => Some(Self::new(&Located::new(git.clone(), root.position.clone()))),
            ArtifactSource::Local { .. } => None,
        });
        named.collect()
    }

    /// That the project's list of trusted sources names it, and the host policy's, where that has one.
    ///
    /// # Errors
    ///
    /// Which does not.
    pub fn check_trust(&self, policy: &ProjectPolicy) -> Result<(), Diagnostic> {
        let source = self.source.to_string();
        let refused = |why: String| Diagnostic::error(why).at(self.position.clone());
        let decided = |list: &[TrustedSource]| match decide(list, Provenance::Pinned(&source, &[])) {
            Ok(_) => Ok(()),
            Err((why, _)) => {
                let what = format!("`trusted_sources` refuses the artifact source {:?}: it {why}", self.root.url);
                Err(refused(what))
            }
        };
        if !policy.trusted.iter().any(|entry| entry.rule.source.matches(&source)) {
            let what = format!("artifact source {:?} is not trusted; add it to trusted_sources", self.root.url);
            return Err(refused(what));
        }
        decided(&policy.trusted)?;
        policy.machine.as_ref().map_or(Ok(()), |machine| decided(&machine.trusted))
    }

    /// That files are what the policy says.
    ///
    /// # Errors
    ///
    /// They are not.
    pub fn check(&self, content: &Content) -> Result<(), Diagnostic> {
        let mismatch = self.root.checksum.as_ref().and_then(|checksum| mismatch(&self.root.url, checksum, content));
        mismatch.map_or(Ok(()), |why| Err(Diagnostic::error(why).at(self.position.clone())))
    }
}
