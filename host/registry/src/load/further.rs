//! The folders and repositories that `artifact_sources` names. What is in a folder is the operator's own, as what is in
//! `.harness/` is. What is in a repository is a third party's: it was fetched before, is what the lock says, and has what
//! `sandbox.sources` grants to it.

use std::path::{Path, PathBuf};

use super::pinned::ABSENT;
use super::{Load, Within};
use crate::BundleFile;
use crate::lock::{FILE, Lock};
use crate::repository::Repository;
use crate::root::Root;
use harness_artifact::diagnostic::{Diagnostic, Position};
use harness_artifact::located::Located;
use harness_artifact::policy::roots::{ArtifactSource, Checksum, GitRoot};
use harness_artifact::policy::sources::{covers, name_of};
use harness_plugin::content::Content;
use harness_sys as sys;

impl Load {
    /// Reads all of them; without `lock`, folders alone.
    pub(super) fn further_roots(&mut self, root: &Path, home: Option<Root>, lock: Option<Option<&Lock>>) {
        let roots = self.registry.policy.as_ref().map(|policy| policy.roots.clone()).unwrap_or_default();
        let local = roots.iter().filter_map(|further| further.value.local());
        self.registry.named_roots = local.map(|path| root.join(path)).collect();
        let mut read: Vec<(String, PathBuf)> = home.map(|home| (home.shown(""), home.real)).into_iter().collect();
        for further in roots {
            let name = further.value.name();
            let found = match &further.value {
                ArtifactSource::Local { path, checksum } => {
                    self.folder(root, path, checksum.as_ref(), &further.position)
                }
                ArtifactSource::Git(git) => match lock {
                    Some(lock) => self.repository(git, lock, root, &further.position),
                    None => continue,
                },
            };
            let Some((real, content)) = found else {
                self.guard_lost = true;
                continue;
            };
            if let Some((other, _)) = read.iter().find(|(other, at)| *other == name || *at == real) {
                let message = format!("`{name}` is the folder `{other}`, which is read already");
                let twice = Diagnostic::error(message).at(further.position);
                self.registry.diagnostics.push(twice.hint("name each folder once"));
                self.guard_lost = true;
                continue;
            }
            read.push((name.clone(), real.clone()));
            if further.value.local().is_some() {
                self.registry.roots.push(real.clone());
            }
            let further = Root::further(name.clone(), real, content);
            if further.is_third_party() {
                let bundle = name_of(Some(&name), "");
                self.found.push(bundle.clone());
                let path = further.shown("");
                self.registry.bundles.push(BundleFile { name: bundle, path, ..BundleFile::default() });
            }
            self.walk(&further);
            if further.is_third_party() {
                let whole = name_of(Some(&name), "");
                let inside = self.registry.bundles.iter_mut().filter(|bundle| covers(&whole, &bundle.name));
                inside.for_each(|bundle| bundle.pinned = true);
            }
        }
    }

    /// A folder of this machine, with the files that it has to have where it has a checksum.
    fn folder(
        &mut self,
        root: &Path,
        path: &str,
        checksum: Option<&Checksum>,
        position: &Position,
    ) -> Option<(PathBuf, Option<Content>)> {
        let mut fail = |message: String| {
            self.registry.diagnostics.push(Diagnostic::error(message).at(position.clone()));
            None
        };
        let real = match sys::real_path(&root.join(path)) {
            Ok(real) => real,
            Err(error) => return fail(format!("cannot read `{path}`: {error}")),
        };
        let Some(checksum) = checksum else { return Some((real, None)) };
        let content = match Content::read(&real) {
            Ok(content) => content,
            Err(why) => return fail(format!("the checksum of `{path}` cannot be computed: {why}")),
        };
        match mismatch(path, checksum, &content) {
            Some(mismatch) => fail(mismatch),
            None => Some((real, Some(content))),
        }
    }

    /// A git repository that was fetched, as the lock has it.
    fn repository(
        &mut self,
        git: &GitRoot,
        lock: Option<&Lock>,
        root: &Path,
        position: &Position,
    ) -> Option<(PathBuf, Option<Content>)> {
        let found = Repository::new(&Located::new(git.clone(), position.clone())).and_then(|repository| {
            let wrong = |what: String, hint: &str| Diagnostic::error(what).at(position.clone()).hint(hint);
            let policy = self.registry.policy.as_ref();
            policy.map_or(Ok(()), |policy| repository.check_trust(policy))?;
            let miss = || {
                let what = format!("offline mode: cache miss for source {:?} @ {:?}", git.url, git.reference);
                wrong(what, "`harness plugin sync` fetches it, and pins it in `harness.lock`")
            };
            let source = repository.source.to_string();
            let locked = lock.and_then(|lock| lock.repository(&source)).ok_or_else(miss)?;
            let found = self.found(&locked.digest, root).map_err(|(why, hint)| match why.as_str() {
                ABSENT => miss(),
                _ => wrong(format!("the artifact source {:?} differs from `{FILE}`: {why}", git.url), hint),
            })?;
            repository.check(&found.content)?;
            Ok((source, found))
        });
        let (source, found) = match found {
            Ok(found) => found,
            Err(wrong) => {
                self.registry.diagnostics.push(wrong);
                return None;
            }
        };
        self.registry.plugins.clone_from(&self.plugins);
        self.repositories.push((git.name(), source));
        // With a checksum all of the repository is there, and else the folder alone.
        let Some(path) = git.path.as_ref().filter(|_| git.checksum.is_some()) else {
            return Some((found.folder, Some(found.content)));
        };
        let content = found.content.below(path);
        if content.is_empty() {
            let what = format!("the artifact source {:?} has no files in `{path}`", git.url);
            self.registry.diagnostics.push(Diagnostic::error(what).at(position.clone()));
            return None;
        }
        Some((found.folder.join(path), Some(content)))
    }

    /// What a repository has under `overrides/` would replace what others define.
    pub(super) fn no_overrides(&mut self, here: Within<'_>) {
        if sys::is_gone(&here.root.path("overrides")) {
            return;
        }
        let what = format!("`{}/` is not read: it is a third party's", here.root.shown("overrides"));
        let hint = "a third party replaces nothing: name a folder of the repository without it, with `path`";
        self.registry.diagnostics.push(Diagnostic::error(what).hint(hint));
        self.guard_lost = true;
    }
}

/// What is said of files that are not what a checksum says.
pub(crate) fn mismatch(of: &str, checksum: &Checksum, content: &Content) -> Option<String> {
    let (want, got) = (checksum.hex(), content.checksum());
    (want != got).then(|| format!("checksum mismatch for {of:?}: want sha256:{want} got sha256:{got}"))
}
