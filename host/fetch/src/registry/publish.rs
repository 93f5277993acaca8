//! Puts a packed plugin and its signatures into a registry.

use std::collections::BTreeMap;

use harness_plugin::source::{RegistrySource, Version};
use harness_policy::network::Method;
use harness_sys::digest::digest_of;
use url::Url;

use super::manifest::{ARTIFACT, Descriptor, Document, EMPTY, EMPTY_TYPE, MANIFEST, PACKED, SIGNATURES};
use super::{Asked, Registry, STEP, expect};
use crate::{Failure, FetchContext, late};

/// Bytes of a request: the host sends no larger ones.
const CHUNK: usize = 8 << 20;

/// What was put into a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// The digest of its manifest.
    pub digest: String,
}

/// What is put into a registry.
#[derive(Debug)]
pub struct Publication<'p> {
    /// The packed plugin, up to 16 MiB and some.
    pub packed: &'p [u8],
    /// Its signatures by the names that they have in the folder of a plugin (`plugin.minisig`, `plugin.sig`).
    pub signatures: &'p [(String, String)],
    /// Annotations of the manifest, by their keys.
    pub annotations: BTreeMap<String, String>,
}

/// Puts a plugin into a registry. The same plugin gives the same manifest each time.
///
/// To be called in a tokio runtime with I/O and time.
///
/// # Errors
///
/// Why it is not there: a source without a tag, a refusal of the grant or of the registry, over two minutes.
pub async fn publish(
    source: &RegistrySource,
    publication: Publication<'_>,
    place: FetchContext<'_>,
) -> Result<Published, Failure> {
    tokio::time::timeout(STEP, Box::pin(put(source, publication, place))).await.map_err(|_| late())?
}

async fn put(
    source: &RegistrySource,
    Publication { packed, signatures, annotations }: Publication<'_>,
    place: FetchContext<'_>,
) -> Result<Published, Failure> {
    let Version::Tag(tag) = source.version() else {
        return Err(Failure::new("a plugin is published under a tag: `oci://HOST/NAME:TAG`"));
    };
    let mut registry = Registry::new(source, "pull,push", place)?;
    let config = registry.put_blob(EMPTY_TYPE, EMPTY.as_bytes()).await?;
    let mut layers = vec![registry.put_blob(PACKED, packed).await?];
    for (kind, name) in SIGNATURES {
        for (_, text) in signatures.iter().filter(|(of, _)| of == name) {
            layers.push(registry.put_blob(kind, text.as_bytes()).await?);
        }
    }
    let document = Document {
        schema_version: 2,
        media_type: Some(MANIFEST.to_owned()),
        artifact_type: Some(ARTIFACT.to_owned()),
        config: Some(config),
        layers: Some(layers),
        annotations,
    };
    let text = serde_json::to_vec(&document).map_err(|error| Failure::new(error.to_string()))?;
    let digest = digest_of(&text);
    let url = registry.url(&format!("manifests/{tag}"))?;
    let headers = vec![("content-type".to_owned(), MANIFEST.to_owned())];
    let asked = Asked { method: Method::Put, headers, body: Some(text), ..Asked::get(url, None) };
    let mut answer = registry.ask(asked).await?;
    expect(&mut answer, 201, "the new manifest").await?;
    Ok(Published { digest })
}

impl Registry<'_> {
    /// Puts a blob, unless it is there.
    async fn put_blob(&mut self, kind: &str, bytes: &[u8]) -> Result<Descriptor, Failure> {
        let digest = digest_of(bytes);
        let descriptor = Descriptor {
            media_type: kind.to_owned(),
            digest: digest.clone(),
            size: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
        };
        let there = Asked { method: Method::Head, ..Asked::get(self.url(&format!("blobs/{digest}"))?, None) };
        if self.ask(there).await?.status() == 200 {
            return Ok(descriptor);
        }
        let begin = self.url("blobs/uploads/")?;
        let mut place =
            self.upload(Asked { method: Method::Post, body: Some(Vec::new()), ..Asked::get(begin, None) }, 202).await?;
        let mut sent = 0_usize;
        for chunk in bytes.chunks(CHUNK) {
            let end = sent.saturating_add(chunk.len());
            let headers = vec![
                ("content-type".to_owned(), "application/octet-stream".to_owned()),
                ("content-range".to_owned(), format!("{sent}-{}", end.saturating_sub(1))),
            ];
            let asked = Asked { method: Method::Patch, headers, body: Some(chunk.to_vec()), ..Asked::get(place, None) };
            place = self.upload(asked, 202).await?;
            sent = end;
        }
        place.query_pairs_mut().append_pair("digest", &digest);
        let end = Asked { method: Method::Put, body: Some(Vec::new()), ..Asked::get(place, None) };
        let mut answer = self.ask(end).await?;
        expect(&mut answer, 201, "a part of the plugin").await?;
        Ok(descriptor)
    }

    /// A step of an upload, and where the next one goes.
    async fn upload(&mut self, asked: Asked, status: u16) -> Result<Url, Failure> {
        let mut answer = self.ask(asked).await?;
        expect(&mut answer, status, "an upload").await?;
        let next = answer.header("location").and_then(|location| self.base.join(location).ok());
        // Nothing of the plugin goes to anybody else.
        next.filter(|next| next.origin() == self.base.origin()).ok_or_else(|| {
            Failure::new("the registry names no place for the rest of an upload, or one at another host")
        })
    }
}
