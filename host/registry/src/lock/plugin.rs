//! What a lock keeps of a plugin that was added: which bytes it is, what it asked for, and what it was granted.

use harness_artifact::diagnostic::{Diagnostic, Position};
use harness_artifact::foreign::Listing;
use harness_artifact::plugin::check_name;
use harness_plugin::source::Source;
use harness_policy::text::quoted;
use harness_sys::digest::digest;
use semver::Version;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::FILE;
use super::entry::position;
use super::signed::{LockedSignature, SignedDocument};

/// A plugin, as TOML has it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PluginDocument {
    name: Spanned<String>,
    version: String,
    source: String,
    /// What the source was then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resolved: Option<String>,
    /// The catalogue that it was looked up in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    catalogue: Option<String>,
    /// The parts of its folder that the catalogue picked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parts: Option<String>,
    /// The servers that it wrote into the policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    servers: Vec<String>,
    /// Of its content.
    digest: String,
    /// Of what it asks for.
    asked: String,
    /// Of what the policy grants to it.
    granted: String,
    /// Whether its files are in the project.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    vendored: bool,
    /// A later version that waits for consent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    staged: Option<Staged>,
    /// Of all the rest.
    sha256: String,
    /// Its signatures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    signed: Vec<SignedDocument>,
}

/// A version of a plugin that waits for consent, while the one before it is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Staged {
    /// Its version.
    pub version: String,
    /// The digest of its content.
    pub digest: String,
}

/// A plugin as the lock has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockedPlugin {
    /// Its name: that of the source `plugins/NAME`.
    pub name: String,
    /// Its version.
    pub version: Version,
    /// Where it was fetched from.
    pub source: Source,
    /// What the source was then, where it may be something else later: a commit, or the digest of a manifest.
    pub resolved: Option<String>,
    /// The catalogue that its name was looked up in, as the policy calls it; none where a person named the source.
    pub catalogue: Option<String>,
    /// The parts of its folder that the entry of the catalogue picked; none where the folder is read as it is.
    pub parts: Option<Listing>,
    /// The servers that were written into `mcp.servers` when a person consented to it. One that was there before is none of
    /// them.
    pub servers: Vec<String>,
    /// The digest of its content.
    pub digest: String,
    /// The digest of what it asks for.
    pub asked: String,
    /// The digest of what the policy grants to it.
    pub granted: String,
    /// Whether its files are in `.harness/plugins/NAME`, and not in the cache of the machine.
    pub vendored: bool,
    /// A later version that waits for consent.
    pub staged: Option<Staged>,
    /// Its signatures; empty where it was not signed.
    pub signed: Vec<LockedSignature>,
    /// Where its entry is.
    pub position: Position,
}

impl LockedPlugin {
    /// The place of an entry that is not written yet.
    pub fn unwritten() -> Position {
        Position { file: FILE.into(), line: 1, column: 1, length: 1 }
    }

    /// Its name in policies, such as `plugins/acme`.
    pub fn source_name(&self) -> String {
        format!("plugins/{}", self.name)
    }

    /// # Errors
    ///
    /// What is wrong with the entry: it was changed by hand, or by a merge.
    pub(super) fn read(document: PluginDocument, text: &str) -> Result<Self, Diagnostic> {
        let at = position(text, Some(document.name.span()));
        let wrong = |why: String| {
            let what = format!("`{FILE}`: the plugin {}: {why}", quoted(document.name.get_ref()));
            let hint = "restore the file as it was committed, or add the plugin again";
            Diagnostic::error(what).at(at.clone()).hint(hint)
        };
        check_name(document.name.get_ref()).map_err(wrong)?;
        let version = Version::parse(&document.version).map_err(|error| wrong(format!("its version: {error}")))?;
        let source = Source::parse(&document.source).map_err(|error| wrong(error.to_string()))?;
        document.catalogue.as_deref().map_or(Ok(()), check_name).map_err(wrong)?;
        if let Some(staged) = &document.staged {
            Version::parse(&staged.version).map_err(|error| wrong(format!("its staged version: {error}")))?;
        }
        let staged = document.staged.as_ref().map(|staged| &staged.digest);
        for one in [&document.digest, &document.asked, &document.granted].into_iter().chain(staged) {
            let hex = one.strip_prefix("sha256:").filter(|hex| hex.len() == 64);
            let is_lower = |hex: &str| hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            if !hex.is_some_and(is_lower) {
                return Err(wrong(format!("{} is not a digest", quoted(one))));
            }
        }
        let parts = document.parts.as_deref().map(Listing::parse).transpose().map_err(wrong)?;
        let signed = LockedSignature::read_all(document.signed.clone()).map_err(wrong)?;
        let plugin = Self {
            signed,
            name: document.name.get_ref().clone(),
            version,
            source,
            resolved: document.resolved.clone(),
            catalogue: document.catalogue.clone(),
            parts,
            servers: document.servers.clone(),
            digest: document.digest.clone(),
            asked: document.asked.clone(),
            granted: document.granted.clone(),
            vendored: document.vendored,
            staged: document.staged.clone(),
            position: at.clone(),
        };
        if plugin.document().sha256 != document.sha256 {
            return Err(wrong("its entry was changed by hand".to_owned()));
        }
        Ok(plugin)
    }

    pub(super) fn document(&self) -> PluginDocument {
        let Self { name, version, source, resolved, digest: content, .. } = self;
        let Self { parts, servers, catalogue, asked, granted, vendored, staged, signed, .. } = self;
        let (version, source) = (version.to_string(), source.to_string());
        let mut all = serde_json::json!([name, version, source, content, asked, granted, vendored, staged]);
        if let Some(all) = all.as_array_mut() {
            all.extend(resolved.iter().map(|resolved| serde_json::json!({ "resolved": resolved })));
            all.extend(catalogue.iter().map(|catalogue| serde_json::json!({ "catalogue": catalogue })));
            all.extend(parts.iter().map(|parts| serde_json::json!({ "parts": parts.text() })));
            if !servers.is_empty() {
                all.push(serde_json::json!({ "servers": servers }));
            }
            if !signed.is_empty() {
                let signed: Vec<_> = signed.iter().map(|one| (one.signer.as_str(), &one.signature)).collect();
                all.push(serde_json::json!({ "signed": signed }));
            }
        }
        PluginDocument {
            name: Spanned::new(0..0, name.clone()),
            version,
            source,
            resolved: resolved.clone(),
            catalogue: catalogue.clone(),
            parts: parts.as_ref().map(Listing::text),
            servers: servers.clone(),
            digest: content.clone(),
            asked: asked.clone(),
            granted: granted.clone(),
            vendored: *vendored,
            staged: staged.clone(),
            signed: signed.iter().map(LockedSignature::document).collect(),
            sha256: digest(&all.to_string()),
        }
    }
}
