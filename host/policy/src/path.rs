//! Files: what a layer of policy says of them, and the decision on one path.
//!
//! The decision is on a [`WorkspacePath`] that no link stands in the way of: following links is the work of
//! `capability::fs`, which asks here about the place it arrived at.

pub mod pattern;
pub mod protected;
pub mod workspace_path;

pub use pattern::{PathPattern, PatternError};
pub use workspace_path::is_refused;
pub use workspace_path::{PathError, WorkspacePath};

use super::grant::Grant;
use super::item;
use super::refusal::Refusal;
use super::watch::Request;

/// What a layer says of files. A list that is empty allows nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FsRules {
    /// What may be read, listed and looked at.
    pub read: Vec<PathPattern>,
    /// What may be written, made, moved and removed.
    pub write: Vec<PathPattern>,
    /// What may be neither read nor written, in any letter case, whatever the other two lists of any layer say. It
    /// adds to the [built-in names](protected).
    pub protect: Vec<PathPattern>,
    /// What may not be written either: the project's git repository, where the host found it outside of a `.git/`. No
    /// policy names it.
    pub repository: Vec<PathPattern>,
    /// The project's own folder, where the host found it below the workspace: no command creates there what governs the
    /// project. No policy names it.
    pub home: Option<WorkspacePath>,
}

impl FsRules {
    pub(crate) fn patterns(&self, access: Access) -> &[PathPattern] {
        match access {
            Access::Read => &self.read,
            Access::Write => &self.write,
        }
    }
}

/// What is to be done with a file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Its content, its facts, its name in a listing, that it is there.
    Read,
    /// Anything that changes it.
    Write,
}

impl Access {
    /// The key of a policy that grants it.
    pub fn key(self) -> &'static str {
        match self {
            Self::Read => "fs.read",
            Self::Write => "fs.write",
        }
    }

    /// The word for a refusal.
    pub fn doing(self) -> &'static str {
        match self {
            Self::Read => "reading",
            Self::Write => "writing",
        }
    }
}

impl Grant {
    /// Whether a file or folder may be read or written.
    ///
    /// Refused always: the [built-in names](protected), then what any layer protects. Everything else needs a
    /// pattern in each layer that speaks of files. The folders above a path need no grant of their own.
    pub fn decide_path(&self, path: &WorkspacePath, access: Access) -> Result<(), Refusal> {
        let doing = access.doing();
        if let Some(rule) = protected::rule_against(path, access) {
            return Err(Refusal::always(format!("{doing} `{path}` is never allowed: {rule}")));
        }
        for layer in self.layers() {
            let protect = layer.fs.iter().flat_map(|fs| &fs.protect);
            let found = protect.enumerate().find(|(_, pattern)| pattern.matches_in_any_case(path));
            if let Some((index, pattern)) = found {
                let origin = &layer.origin;
                let (key, file) = (origin.key("fs.protect"), origin.at(origin.places.rule("fs.protect", index)));
                return Err(Refusal::always(format!(
                    "{doing} `{path}` is not allowed: `{pattern}` is in `{key}` in `{file}`"
                )));
            }
        }
        if let Some(place) = self.repository(path).filter(|_| access == Access::Write) {
            return Err(Refusal::always(format!(
                "{doing} `{path}` is never allowed: `{place}` is protected: it is part of this project's git repository"
            )));
        }
        self.every(
            |layer| layer.fs.as_ref(),
            |fs| fs.patterns(access).iter().any(|pattern| pattern.matches(path)),
            |origin| {
                let (key, file) = (origin.key(access.key()), origin.of(access.key()));
                let reason = format!("{doing} `{path}` is not granted: nothing in `{key}` in `{file}` covers it");
                match PathPattern::text_for(path) {
                    Some(pattern) => Refusal::new(reason, origin.add(&item::in_message(&pattern), access.key())),
                    None => Refusal::new(reason, "the path is too long or too deep for a rule of its own"),
                }
            },
        )?;
        self.note(|| Request::Path(path.clone(), access));
        Ok(())
    }

    /// Whether any layer protects paths beside the [built-in names](protected).
    pub fn protects_paths(&self) -> bool {
        self.protected_paths().next().is_some() || self.repositories().next().is_some()
    }

    /// Whether a folder is a `.git/`, or in one that has another name.
    pub fn is_repository(&self, folder: &WorkspacePath) -> bool {
        folder.name() == Some(".git") || self.repository(folder).is_some()
    }

    /// The part of the project's git repository that a path is in, where that is not called `.git`.
    fn repository(&self, path: &WorkspacePath) -> Option<&PathPattern> {
        self.repositories().find(|place| place.matches_in_any_case(path))
    }

    fn repositories(&self) -> impl Iterator<Item = &PathPattern> {
        self.layers().iter().filter_map(|layer| layer.fs.as_ref()).flat_map(|fs| &fs.repository)
    }

    /// The folders in which nobody creates what governs the project: the workspace, and the project's own folder where that
    /// is further down.
    pub fn governed_folders(&self) -> impl Iterator<Item = WorkspacePath> {
        let mut homes = self.layers().iter().filter_map(|layer| layer.fs.as_ref()?.home.clone());
        std::iter::once(WorkspacePath::root()).chain(homes.next())
    }

    /// The least access to a path that no policy opens, by its name or by what a layer protects: what may not be read may
    /// not be written either.
    pub fn protected_from(&self, path: &WorkspacePath) -> Option<Access> {
        let closed = protected::rule_against(path, Access::Read).is_some()
            || self.protected_paths().any(|pattern| pattern.matches_in_any_case(path));
        let unwritten = || protected::rule_against(path, Access::Write).is_some() || self.repository(path).is_some();
        match closed {
            true => Some(Access::Read),
            false => unwritten().then_some(Access::Write),
        }
    }

    /// Every pattern of paths that a layer protects beside the [built-in names](protected).
    pub fn protected_paths(&self) -> impl Iterator<Item = &PathPattern> {
        self.layers().iter().filter_map(|layer| layer.fs.as_ref()).flat_map(|fs| &fs.protect)
    }

    /// Whether anything in a folder, at any depth, could be read: a walk need not go down where this is false.
    pub fn could_read_below(&self, folder: &WorkspacePath) -> bool {
        self.protected_from(folder) != Some(Access::Read)
            && self
                .every(
                    |layer| layer.fs.as_ref(),
                    |fs| fs.read.iter().any(|p| p.matches(folder) || p.could_match_below(folder)),
                    |_| Refusal::always("nothing below is granted"),
                )
                .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::{Layer, Origin, Scope};
    use crate::limits::LimitRules;

    fn patterns(texts: &[&str]) -> Vec<PathPattern> {
        texts.iter().map(|text| PathPattern::parse(text).unwrap()).collect()
    }

    fn layer(scope: Scope, fs: Option<FsRules>) -> Layer {
        let origin = Origin::new(".harness/harness.md", scope);
        let limits = LimitRules::default();
        Layer { origin, fs, network: None, exec: None, env: None, services: None, secrets: None, limits }
    }

    fn rules(read: &[&str], write: &[&str], protect: &[&str]) -> FsRules {
        FsRules { read: patterns(read), write: patterns(write), protect: patterns(protect), ..FsRules::default() }
    }

    fn path(text: &str) -> WorkspacePath {
        WorkspacePath::parse(text, "/w").unwrap()
    }

    #[test]
    fn a_repository_of_any_name_is_read_and_not_written() {
        let found = FsRules { repository: patterns(&[".bare"]), ..rules(&["."], &["."], &[]) };
        let grant = Grant::new(vec![
            layer(Scope::Project, Some(rules(&["."], &["."], &[]))),
            layer(Scope::Project, Some(found)),
        ]);
        for text in [".bare", ".bare/config", ".BARE/hooks/x"] {
            let refused = Refusal::always(format!(
                "writing `{text}` is never allowed: `.bare` is protected: it is part of this project's git repository"
            ));
            assert_eq!(grant.decide_path(&path(text), Access::Write), Err(refused), "{text}");
            assert_eq!(grant.protected_from(&path(text)), Some(Access::Write), "{text}");
            assert!(grant.is_repository(&path(text)), "{text}");
        }
        assert_eq!(grant.decide_path(&path(".bare/config"), Access::Read), Ok(()));
        for text in [".bared", "sub/.bare"] {
            assert_eq!(grant.decide_path(&path(text), Access::Write), Ok(()), "{text}");
            assert_eq!(grant.protected_from(&path(text)), None, "{text}");
            assert!(!grant.is_repository(&path(text)), "{text}");
        }
        assert!(grant.protects_paths());
    }

    #[test]
    fn a_pattern_grants_its_folder_and_nothing_beside_it() {
        let grant = Grant::new(vec![layer(Scope::Project, Some(rules(&["."], &["src", "out/*.txt"], &[])))]);
        for allowed in ["src", "src/a.rs", "src/deep/er/a.rs", "out/a.txt"] {
            assert_eq!(grant.decide_path(&path(allowed), Access::Write), Ok(()), "{allowed}");
        }
        for refused in [".", "src2", "srcs/a", "out", "out/a.rs", "out/b/a.txt"] {
            assert!(grant.decide_path(&path(refused), Access::Write).is_err(), "{refused}");
            assert_eq!(grant.decide_path(&path(refused), Access::Read), Ok(()), "{refused}");
        }
    }

    #[test]
    fn a_refusal_names_the_rule_and_the_line_to_add() {
        let project = layer(Scope::Project, Some(rules(&["."], &["."], &[])));
        let source = layer(Scope::Source("plugins/acme".to_owned()), Some(rules(&["docs"], &[], &[])));
        let grant = Grant::new(vec![project, source]);
        assert_eq!(
            grant.decide_path(&path("src/[a].rs"), Access::Write),
            Err(Refusal {
                reason: "writing `src/[a].rs` is not granted: nothing in `sandbox.sources.plugins/acme.fs.write` in \
                         `.harness/harness.md` covers it"
                    .to_owned(),
                hint: "add `\"src/[[]a[]].rs\"` to `sandbox.sources.plugins/acme.fs.write` in `.harness/harness.md`"
                    .to_owned(),
            })
        );
        assert_eq!(grant.decide_path(&path("docs/a.md"), Access::Read), Ok(()));
    }

    #[test]
    fn without_a_rule_nothing_is_granted() {
        for grant in [Grant::new(vec![]), Grant::new(vec![layer(Scope::Default, None)])] {
            assert_eq!(
                grant.decide_path(&path("a"), Access::Read),
                Err(Refusal {
                    reason: "reading `a` is not granted: nothing in `sandbox.fs.read` in `.harness/harness.md` covers \
                             it"
                    .to_owned(),
                    hint: "add `a` to `sandbox.fs.read` in `.harness/harness.md`".to_owned(),
                })
            );
            assert!(!grant.could_read_below(&WorkspacePath::root()));
        }
    }

    #[test]
    fn what_one_layer_protects_no_layer_grants() {
        let outer = layer(Scope::Project, Some(rules(&["."], &["."], &["secrets/**"])));
        let inner = layer(Scope::Artifact, Some(rules(&[".", "secrets"], &["secrets"], &[])));
        let grant = Grant::new(vec![outer, inner]);
        for refused in ["secrets", "secrets/a/b", "SECRETS/a", "Secrets. /a"] {
            for (access, doing) in [(Access::Read, "reading"), (Access::Write, "writing")] {
                let reason = format!(
                    "{doing} `{refused}` is not allowed: `secrets/**` is in `sandbox.fs.protect` in \
                     `.harness/harness.md`"
                );
                assert_eq!(grant.decide_path(&path(refused), access), Err(Refusal { reason, hint: String::new() }));
            }
            assert!(!grant.could_read_below(&path(refused)));
        }
        assert_eq!(grant.decide_path(&path("secret/a"), Access::Read), Ok(()));
    }

    #[test]
    fn built_in_names_are_refused_under_the_widest_grant() {
        let grant = Grant::new(vec![layer(Scope::Project, Some(rules(&["."], &["."], &[])))]);
        assert_eq!(
            grant.decide_path(&path("sub/.ENV.local"), Access::Read),
            Err(Refusal {
                reason: "reading `sub/.ENV.local` is never allowed: `.env*` is a sensitive name".to_owned(),
                hint: String::new()
            })
        );
        assert_eq!(
            grant.decide_path(&path(".harness/harness.md"), Access::Write),
            Err(Refusal {
                reason: "writing `.harness/harness.md` is never allowed: the folder `.harness/` is protected"
                    .to_owned(),
                hint: String::new()
            })
        );
        assert_eq!(grant.decide_path(&path(".harness/harness.md"), Access::Read), Ok(()));
        assert_eq!(grant.decide_path(&path("sub/env.local"), Access::Read), Ok(()));
    }

    #[test]
    fn a_walk_goes_down_towards_what_is_granted() {
        let grant = Grant::new(vec![layer(Scope::Project, Some(rules(&["src/*/doc"], &[], &[])))]);
        for (folder, below) in [(".", true), ("src", true), ("src/a", true), ("src/a/doc/x", true), ("out", false)] {
            assert_eq!(grant.could_read_below(&path(folder)), below, "{folder}");
        }
        assert!(!grant.could_read_below(&path("agents")));
        assert!(!grant.could_read_below(&path("src/a/b")));
    }
}
