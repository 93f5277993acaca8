//! Bundles of sigstore with a key of the signer's own: JSON of version 0.3 with a signature over the bytes. A bundle names no
//! key that counts: one of those that a person or a policy named verifies it.
//!
//! Nothing covers the rest of a bundle. Its hint of a key, its entries of a log and its timestamps are neither kept nor shown.
//! A bundle with a certificate instead of a key is refused: that a log saw it cannot be verified offline and for ever.

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, ED25519, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use harness_policy::signer::Signer;
use harness_policy::signer::{Curve, Kind};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::Signed;
use crate::Rejected;

/// Bytes of a bundle as a tool writes it: with entries of a log, and timestamps. The form that is kept is shorter.
pub(super) const MAX_BUNDLE: usize = 16 << 10;
/// The one form that is read.
const MEDIA_TYPE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
/// The one digest that is read.
const ALGORITHM: &str = "SHA2_256";
/// Bytes of a public key before the key itself.
const HEADER: [(Curve, usize); 2] = [(Curve::P256, 26), (Curve::Ed25519, 12)];

fn wrong(why: impl std::fmt::Display) -> Rejected {
    Rejected::new(format!("its sigstore bundle {why}"))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Bundle {
    media_type: String,
    verification_material: Material,
    message_signature: Option<Message>,
    dsse_envelope: Option<IgnoredAny>,
}

/// What a bundle is to be verified with.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Material {
    public_key: Option<Hint>,
    certificate: Option<IgnoredAny>,
    x509_certificate_chain: Option<IgnoredAny>,
    #[serde(rename = "tlogEntries")]
    _log: Option<IgnoredAny>,
    #[serde(rename = "timestampVerificationData")]
    _timestamps: Option<IgnoredAny>,
}

/// What a tool calls the key. Anybody can write it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Hint {
    #[serde(rename = "hint")]
    _hint: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Message {
    message_digest: Digest,
    signature: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Digest {
    algorithm: String,
    digest: String,
}

/// Verifies a bundle with the one of the keys that made its signature.
pub(super) fn verify(text: &str, packed: &[u8], keys: &[Signer]) -> Result<Signed, Rejected> {
    let unreadable = |why: &str| wrong(format!("cannot be read: {why}"));
    let bundle: Bundle = serde_json::from_str(text).map_err(|error| unreadable(&error.to_string()))?;
    if bundle.media_type != MEDIA_TYPE {
        let other = harness_policy::text::quoted(&bundle.media_type);
        return Err(wrong(format!("is of the type {other}, and not `{MEDIA_TYPE}`")));
    }
    let material = bundle.verification_material;
    if material.certificate.is_some() || material.x509_certificate_chain.is_some() {
        let how = "sign with a key that `signers` can name";
        return Err(wrong(format!("has a certificate, and no key: {how}")));
    }
    if material.public_key.is_none() {
        return Err(unreadable("it has no `publicKey`"));
    }
    let message = match (bundle.message_signature, bundle.dsse_envelope) {
        (Some(message), None) => message,
        (_, Some(_)) => return Err(wrong("has an envelope: sign the packed plugin itself")),
        (None, None) => return Err(unreadable("it has no `messageSignature`")),
    };
    let Message { message_digest: Digest { algorithm, digest: claimed }, signature } = message;
    if algorithm != ALGORITHM {
        let other = harness_policy::text::quoted(&algorithm);
        return Err(wrong(format!("has a digest by {other}, and not by `{ALGORITHM}`")));
    }
    let bytes =
        |name: &str, text: &str| STANDARD.decode(text).map_err(|_| unreadable(&format!("its `{name}` is not base64")));
    if bytes("digest", &claimed)? != digest(&SHA256, packed).as_ref() {
        return Err(wrong("is of another plugin: it has another digest"));
    }
    let signed = bytes("signature", &signature)?;
    let mut all = keys.iter().filter(|key| matches!(key.kind(), Kind::Sigstore(_))).peekable();
    if all.peek().is_none() {
        return Err(wrong("needs a key: it does not have its own, so give the key with `--signer`"));
    }
    let Some(signer) = all.find(|key| verifies(key, packed, &signed)) else {
        return Err(wrong("does not verify with any of the keys that are known"));
    };
    let kept = serde_json::json!({
        "mediaType": MEDIA_TYPE,
        "verificationMaterial": {"publicKey": {}},
        "messageSignature": {"messageDigest": {"algorithm": ALGORITHM, "digest": claimed}, "signature": signature},
    });
    Ok(Signed { signer: signer.clone(), signature: kept.to_string(), comment: None })
}

/// Whether a key made a signature.
fn verifies(key: &Signer, packed: &[u8], signature: &[u8]) -> bool {
    let Kind::Sigstore(curve) = key.kind() else { return false };
    let whole = STANDARD.decode(key.as_str()).unwrap_or_default();
    let header = HEADER.into_iter().find(|(of, _)| *of == curve).map(|(_, length)| length);
    let Some(key) = header.and_then(|length| whole.get(length..)) else { return false };
    match curve {
        Curve::P256 => UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key).verify(packed, signature).is_ok(),
        Curve::Ed25519 => UnparsedPublicKey::new(&ED25519, key).verify(packed, signature).is_ok(),
    }
}
