//! The manifest of a plugin's artifact: one packed plugin, and up to one signature of each kind.

use std::collections::BTreeMap;

use harness_plugin::source::is_digest;
use harness_policy::text::quoted;
use serde::{Deserialize, Serialize};

use crate::Failure;

/// The type of an artifact that is a plugin.
pub(super) const ARTIFACT: &str = "application/vnd.harness.plugin.v1";
/// The type of a manifest.
pub(super) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// The type of a packed plugin.
pub(super) const PACKED: &str = "application/vnd.harness.plugin.v1.tar";
/// The types of signatures, and the names that they have beside a plugin.
pub(super) const SIGNATURES: [(&str, &str); 3] = [
    ("application/vnd.harness.plugin.signature.v1.minisign", "plugin.minisig"),
    ("application/vnd.harness.plugin.signature.v1.ssh", "plugin.sig"),
    ("application/vnd.harness.plugin.signature.v1.sigstore", "plugin.sigstore.json"),
];
/// The empty object: a plugin has no configuration.
pub(super) const EMPTY: &str = "{}";
pub(super) const EMPTY_TYPE: &str = "application/vnd.oci.empty.v1+json";

/// What a manifest is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document {
    pub(super) schema_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) media_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) artifact_type: Option<String>,
    pub(super) config: Option<Descriptor>,
    pub(super) layers: Option<Vec<Descriptor>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: BTreeMap<String, String>,
}

/// A blob of the registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    pub(super) media_type: String,
    pub(super) digest: String,
    pub(super) size: u64,
}

/// The parts of a plugin's artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) plugin: Descriptor,
    /// By the name that each has beside a plugin.
    pub(super) signatures: Vec<(&'static str, Descriptor)>,
}

impl Manifest {
    pub(super) fn read(text: &[u8]) -> Result<Self, Failure> {
        let wrong = |why: String| Failure::new(format!("it is not the artifact of a plugin: {why}"));
        let document: Document = serde_json::from_slice(text).map_err(|error| wrong(error.to_string()))?;
        let (Some(_), Some(layers)) = (document.config, document.layers) else {
            return Err(wrong(
                "its manifest has no layers; a list of manifests is for programs of several machines".to_owned(),
            ));
        };
        if document.schema_version != 2 || document.media_type.as_deref().is_some_and(|kind| kind != MANIFEST) {
            return Err(wrong("its manifest is of another kind".to_owned()));
        }
        match document.artifact_type.as_deref() {
            Some(ARTIFACT) => {}
            Some(other) => return Err(wrong(format!("its type is {}", quoted(other)))),
            None => return Err(wrong("it has no `artifactType`".to_owned())),
        }
        let (mut plugin, mut signatures) = (None, Vec::new());
        for layer in layers {
            if !is_digest(&layer.digest) {
                return Err(wrong(format!("{} is not a digest of SHA-256", quoted(&layer.digest))));
            }
            let name = SIGNATURES.iter().find(|(kind, _)| *kind == layer.media_type).map(|(_, name)| *name);
            let is_second = match name {
                Some(name) => signatures.iter().any(|(other, _)| *other == name),
                None if layer.media_type == PACKED => plugin.is_some(),
                None => return Err(wrong(format!("it has a layer of the type {}", quoted(&layer.media_type)))),
            };
            if is_second {
                return Err(wrong(format!("it has two layers of the type {}", quoted(&layer.media_type))));
            }
            match name {
                Some(name) => signatures.push((name, layer)),
                None => plugin = Some(layer),
            }
        }
        let plugin = plugin.ok_or_else(|| wrong("it has no packed plugin".to_owned()))?;
        Ok(Self { plugin, signatures })
    }
}

/// The reason in the answer of a registry that refuses.
pub(super) fn error(text: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Errors {
        errors: Vec<Error>,
    }
    #[derive(Deserialize)]
    struct Error {
        #[serde(default)]
        code: String,
        #[serde(default)]
        message: String,
    }
    let Ok(Errors { errors }) = serde_json::from_slice(text) else { return String::new() };
    let first = errors.into_iter().next();
    first.map(|error| if error.message.is_empty() { error.code } else { error.message }).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(kind: &str, digest: &str) -> String {
        format!(r#"{{"mediaType":"{kind}","digest":"{digest}","size":3}}"#)
    }

    fn manifest(artifact: &str, layers: &[String]) -> String {
        let config = layer(EMPTY_TYPE, &format!("sha256:{}", "44".repeat(32)));
        format!(
            r#"{{"schemaVersion":2,"mediaType":"{MANIFEST}",{artifact}"config":{config},"layers":[{}]}}"#,
            layers.join(",")
        )
    }

    #[test]
    fn one_plugin_and_a_signature_of_each_kind() {
        let digest = format!("sha256:{}", "0f".repeat(32));
        let kind = format!(r#""artifactType":"{ARTIFACT}","#);
        let packed = layer(PACKED, &digest);
        let [minisign, ssh, sigstore] = SIGNATURES.map(|(kind, _)| layer(kind, &digest));
        let read = |text: &str| Manifest::read(text.as_bytes());
        let good = read(&manifest(&kind, &[packed.clone(), minisign.clone(), ssh, sigstore])).unwrap();
        assert_eq!((good.plugin.size, good.plugin.digest.as_str()), (3, digest.as_str()));
        let names: Vec<&str> = good.signatures.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["plugin.minisig", "plugin.sig", "plugin.sigstore.json"]);
        assert!(read(&manifest(&kind, std::slice::from_ref(&packed))).is_ok_and(|one| one.signatures.is_empty()));

        let list = r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}"#;
        let twice = r#"{"schemaVersion":2,"schemaVersion":2}"#;
        let image = manifest("", std::slice::from_ref(&packed));
        let of_image = manifest(r#""artifactType":"application/vnd.other","#, std::slice::from_ref(&packed));
        let sha512 = manifest(&kind, &[layer(PACKED, &format!("sha512:{}", "00".repeat(64)))]);
        let path = manifest(&kind, &[layer(PACKED, "sha256:../../../etc/passwd")]);
        let more = manifest(&kind, &[packed.clone(), layer("application/gzip", &digest)]);
        for (text, why) in [
            (list, "its manifest has no layers; a list of manifests is for programs of several machines"),
            (twice, "duplicate field `schemaVersion` at line 1 column 34"),
            ("[]", "invalid length 0, expected struct Document with 6 elements at line 1 column 2"),
            (&image, "it has no `artifactType`"),
            (&of_image, "its type is `application/vnd.other`"),
            (&image.replace(MANIFEST, "x"), "its manifest is of another kind"),
            (&image.replace("\"schemaVersion\":2", "\"schemaVersion\":1"), "its manifest is of another kind"),
            (&more, "it has a layer of the type `application/gzip`"),
            (
                &manifest(&kind, &[packed.clone(), packed.clone()]),
                "it has two layers of the type `application/vnd.harness.plugin.v1.tar`",
            ),
            (
                &manifest(&kind, &[packed.clone(), minisign.clone(), minisign.clone()]),
                "it has two layers of the type `application/vnd.harness.plugin.signature.v1.minisign`",
            ),
            (&manifest(&kind, std::slice::from_ref(&minisign)), "it has no packed plugin"),
            (&path, "`sha256:../../../etc/passwd` is not a digest of SHA-256"),
        ] {
            let told = read(text).unwrap_err().why;
            assert_eq!(told, format!("it is not the artifact of a plugin: {why}"));
        }
        assert!(read(&sha512).unwrap_err().why.ends_with(" is not a digest of SHA-256"));
        assert_eq!(error(br#"{"errors":[{"code":"X","message":"no such thing"}]}"#), "no such thing");
        assert_eq!(error(br#"{"errors":[{"code":"X"}]}"#) + &error(b"<html>") + &error(b"{}"), "X");
    }
}
