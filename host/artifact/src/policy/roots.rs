//! `artifact_sources`: further folders with artifacts, of this machine and of git repositories.

use serde_json::json;

use crate::decode::{Decoder, Field};
use crate::keys::{self, Unknown, keys};
use crate::located::Located;
use crate::shape::{self, Read, Schema, Shape};
use crate::yaml::Value;
use harness_policy::text::quoted;

/// What the name of a repository begins with, where names of sources have it: `git:github.com/acme/tools//tools/x`.
pub const GIT: &str = "git:";
/// Between the folder of a root and the place in it.
pub(super) const BELOW: &str = "//";
/// The project's own folder.
const OWN: &str = ".harness";
/// The digits that a commit is named with.
const COMMIT: std::ops::RangeInclusive<usize> = 7..=40;
/// Names of branches, which move.
const MUTABLE: [&str; 7] = ["main", "master", "develop", "development", "dev", "trunk", "head"];

/// A folder that is laid out as `.harness/` is, without `harness.md`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArtifactSource {
    /// A folder, relative to the project, whose artifacts are the project's own.
    Local {
        /// Its path.
        path: String,
        /// What all that is in it has to be.
        checksum: Option<Checksum>,
    },
    /// A git repository, whose artifacts are of a third party.
    Git(GitRoot),
}

/// A git repository with artifacts, as the policy names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitRoot {
    /// Its address.
    pub url: String,
    /// A commit or a tag.
    pub reference: String,
    /// The folder in it; none: all of it.
    pub path: Option<String>,
    /// What all that is in the repository has to be.
    pub checksum: Option<Checksum>,
}

/// The SHA-256 of all files of a folder, as hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checksum(String);

impl ArtifactSource {
    /// What names of sources begin with, before `//`.
    pub fn name(&self) -> String {
        match self {
            Self::Local { path, .. } => path.clone(),
            Self::Git(git) => git.name(),
        }
    }

    /// The folder of this machine, relative to the project.
    pub fn local(&self) -> Option<&str> {
        match self {
            Self::Local { path, .. } => Some(path),
            Self::Git(_) => None,
        }
    }
}

impl GitRoot {
    /// What names of sources begin with: the address without its scheme, and the folder.
    pub fn name(&self) -> String {
        let address = self.url.split_once("://").map_or(self.url.as_str(), |(_, rest)| rest);
        let folder = self.path.iter().map(|path| format!("/{path}"));
        std::iter::once(format!("{GIT}{address}")).chain(folder).collect()
    }
}

impl Checksum {
    fn parse(text: &str) -> Result<Self, String> {
        let hex = text.strip_prefix("sha256:").filter(|hex| hex.len() == 64);
        match hex.filter(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit())) {
            Some(hex) => Ok(Self(hex.to_ascii_lowercase())),
            None => Err(format!("unsupported checksum format {text:?}")),
        }
    }

    /// The digits.
    pub fn hex(&self) -> &str {
        &self.0
    }
}

/// Whether a name is that of a commit: of all of it, or of its beginning.
fn is_commit(name: &str) -> bool {
    COMMIT.contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether a name is that of a tag or a commit, as far as it says.
fn is_pinned(name: &str) -> bool {
    is_commit(name) || !name.is_empty() && !name.contains('/') && !MUTABLE.contains(&name.to_ascii_lowercase().as_str())
}

keys! {
    /// The keys of a folder of this machine.
    LocalKeys: Unknown::Refuse;
    /// The type of the source.
    required kind("type"): Local;
    /// The folder, relative to the project. `.harness` is always read.
    required path: String;
    /// `sha256:` and the digest of all files, which the folder has to have.
    given checksum: String;
}

keys! {
    /// The keys of a git repository.
    GitKeys: Unknown::Refuse;
    /// The type of the source.
    required kind("type"): Git;
    /// The address, `https://HOST/REPOSITORY`, which `trusted_sources` has to name.
    required url: String;
    /// A commit, or a tag.
    required reference("ref"): String;
    /// The folder in the repository. Default: all of it.
    given path: String;
    /// `sha256:` and the digest of all files of the repository.
    given checksum: String;
}

/// The one word that `type` has.
struct Local;
struct Git;

impl Shape for Local {
    fn schema() -> Schema {
        shape::schema(json!({"const": "local"}))
    }
}

impl Shape for Git {
    fn schema() -> Schema {
        shape::schema(json!({"const": "git"}))
    }
}

/// An item of the list; none where it is the project's own folder, which is read without it.
pub(super) struct Item(pub(super) Option<Located<ArtifactSource>>);

impl Shape for Item {
    fn schema() -> Schema {
        let local = keys::schema::<LocalKeys<'_>>();
        shape::schema(json!({"anyOf": [local, keys::schema::<GitKeys<'_>>()]}))
    }
}

impl Read for Item {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let kind = match &field.node.value {
            Value::Map(entries) => entries.iter().find(|(key, _)| key.text == "type"),
            _ => None,
        };
        match kind.map(|(key, node)| (key, node, &node.value)) {
            Some((_, _, Value::Str(kind))) if kind == "git" => git(decoder, field),
            Some((_, _, Value::Str(kind))) if kind == "local" => local(decoder, field),
            Some((key, node, Value::Str(kind))) => {
                // The other keys of such a source are of no interest then.
                let at = Field { path: format!("{}.type", field.path), key: Some(key), node };
                let hint = Some("write `local` or `git`".to_owned());
                decoder.error_with(&at, format!("unsupported artifact source type {kind:?}"), hint);
                None
            }
            Some(_) => local(decoder, field),
            None if matches!(field.node.value, Value::Map(_)) => {
                decoder.error(field, format!("{} has no `type`", quoted(&field.path)));
                None
            }
            None => local(decoder, field),
        }
    }
}

fn local(decoder: &mut Decoder, field: &Field<'_>) -> Option<Item> {
    let (keys, fields) = decoder.open::<LocalKeys<'_>>(field)?;
    keys.kind.field().map(|kind| decoder.string(kind));
    let Some(path) = keys.path.field() else {
        decoder.error(field, "artifact_sources local source requires path".to_owned());
        return None;
    };
    let position = decoder.position(path.span());
    let path = decoder.parse_one(path, |text| match folder(text) {
        Ok(path) if path.starts_with(GIT) => Err(format!("a folder of this machine does not begin with `{GIT}`")),
        path => path,
    });
    let checksum = checksum(decoder, keys.checksum.field());
    decoder.finish(&fields, Unknown::Refuse);
    let (path, checksum) = (path?, checksum?);
    let source = || Located::new(ArtifactSource::Local { path: path.clone(), checksum }, position);
    Some(Item((path != OWN).then(source)))
}

fn git(decoder: &mut Decoder, field: &Field<'_>) -> Option<Item> {
    let (keys, fields) = decoder.open::<GitKeys<'_>>(field)?;
    keys.kind.field().map(|kind| decoder.string(kind));
    let url = keys.url.field().map(|url| decoder.parse_one(url, address));
    if url.is_none() {
        decoder.error(field, "artifact_sources git source requires url".to_owned());
    }
    let named = keys.url.field().and_then(|url| decoder.string(url)).unwrap_or_default().to_owned();
    let reference = match keys.reference.field() {
        None if url.is_some() => {
            decoder.error(field, format!("artifact source {named:?} requires ref"));
            None
        }
        None => None,
        Some(at) => decoder.string(at).map(str::to_owned).and_then(|reference| match is_pinned(&reference) {
            true => Some(reference),
            false => {
                let why = format!("artifact source {named:?} uses mutable ref {reference:?}; use a tag or commit SHA");
                decoder.error(at, why);
                None
            }
        }),
    };
    let path = keys.path.field().map(|path| decoder.parse_one(path, folder));
    let checksum = checksum(decoder, keys.checksum.field());
    decoder.finish(&fields, Unknown::Refuse);
    let path = match path {
        Some(path) => Some(path?),
        None => None,
    };
    let position = decoder.position(keys.url.field().unwrap_or(field).span());
    let root = GitRoot { url: url??, reference: reference?, path, checksum: checksum? };
    Some(Item(Some(Located::new(ArtifactSource::Git(root), position))))
}

/// What has to be there, where something has to; none where it cannot be read.
fn checksum(decoder: &mut Decoder, field: Option<&Field<'_>>) -> Option<Option<Checksum>> {
    let Some(field) = field else { return Some(None) };
    let text = decoder.string(field)?;
    match Checksum::parse(text) {
        Ok(checksum) => Some(Some(checksum)),
        Err(why) => {
            decoder.error_with(field, why, Some("write `sha256:` and 64 hexadecimal digits".to_owned()));
            None
        }
    }
}

/// The address of a repository: names of sources are made of it.
fn address(text: &str) -> Result<String, String> {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let is_odd = |part: &str| matches!(part, "" | "." | "..");
    match rest.trim_start_matches('/').split('/').any(is_odd) || rest.starts_with(BELOW) {
        true => Err("write the address of a repository, such as `https://github.com/acme/tools`".to_owned()),
        false => Ok(text.to_owned()),
    }
}

/// The one spelling of a folder's path: it is what names of sources begin with.
pub(super) fn folder(text: &str) -> Result<String, String> {
    if text.starts_with('/') || text.chars().any(char::is_control) {
        return Err("write a path that is relative to the project".to_owned());
    }
    let parts: Vec<&str> = text.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    match parts.join("/").as_str() {
        "" | ".." => Err("name a folder with artifacts".to_owned()),
        path => Ok(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::ProjectPolicy;

    fn read(item: &str) -> Result<Vec<ArtifactSource>, Vec<String>> {
        let (policy, told) = ProjectPolicy::parse("harness.md", &format!("---\nartifact_sources: [{item}]\n---\n"));
        let told = told.iter().map(|one| one.message.clone()).collect();
        policy.map(|policy| policy.roots.into_iter().map(|root| root.value).collect()).ok_or(told)
    }

    #[test]
    fn what_is_named() {
        let hex = "0".repeat(63) + "A";
        let item =
            format!("{{ type: git, url: https://h/acme/tools, ref: v1.2, path: ./kit/, checksum: 'sha256:{hex}' }}");
        let git = GitRoot {
            url: "https://h/acme/tools".to_owned(),
            reference: "v1.2".to_owned(),
            path: Some("kit".to_owned()),
            checksum: Some(Checksum(hex.to_ascii_lowercase())),
        };
        assert_eq!(git.name(), "git:h/acme/tools/kit");
        assert_eq!(read(&item), Ok(vec![ArtifactSource::Git(git)]));
        assert_eq!(read("{ type: local, path: ./.harness/ }"), Ok(Vec::new()));
        for reference in ["abcdef1", "ABCDEF1", "'20260101'", &"a".repeat(40), "v1", "release"] {
            assert!(read(&format!("{{ type: git, url: https://h/a, ref: {reference} }}")).is_ok(), "{reference}");
        }
        for (item, why) in [
            ("{ type: git, ref: v1 }", "artifact_sources git source requires url"),
            ("{ type: git, url: https://h/a }", "artifact source \"https://h/a\" requires ref"),
            ("{ type: local, path: x, checksum: md5:0 }", "unsupported checksum format \"md5:0\""),
            ("{ type: npm, name: x }", "unsupported artifact source type \"npm\""),
            (
                "{ type: local, path: 'git:h/a' }",
                "`artifact_sources[0].path`: a folder of this machine does not begin with `git:`",
            ),
            (
                "{ type: git, url: https://h/a//b, ref: v1 }",
                "`artifact_sources[0].url`: write the address of a repository, such as `https://github.com/acme/tools`",
            ),
        ] {
            assert_eq!(read(item), Err(vec![why.to_owned()]), "{item}");
        }
        for moves in ["main", "Master", "HEAD", "dev", "feature/x", "refs/tags/v1", "''"] {
            let why = format!(
                "artifact source \"https://h/a\" uses mutable ref {:?}; use a tag or commit SHA",
                moves.trim_matches('\'')
            );
            let read = read(&format!("{{ type: git, url: https://h/a, ref: {moves} }}"));
            assert_eq!(read, Err(vec![why]));
        }
    }
}
