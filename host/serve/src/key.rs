//! Keys of the interface: what clients show in `Authorization: Bearer`.
//!
//! A key is `hk_ID_SECRET`: 16 and 64 hexadecimal digits, the second of 256 random bits. Only a digest of it is kept. A slow
//! digest, as for passwords, would only let strangers keep the server busy: nobody guesses 256 bits.

use std::fmt;

use harness_artifact::policy::layer;
use harness_mcp::http::ClientCertificate;
use harness_policy::layer::Layer;
use harness_sys as sys;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;

use crate::role::{Action, Role};

/// What every key begins with, so that scanners of secrets find one that was left somewhere.
const PREFIX: &str = "hk_";
/// Random bytes of an identifier, and of a secret.
const ID_BYTES: usize = 8;
const SECRET_BYTES: usize = 32;
/// Characters of a label.
const MAX_LABEL: usize = 64;

/// A key as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyRecord {
    /// Which one: what is between the two underscores.
    pub id: String,
    /// The tenant that it is of; none: of the operator of the server.
    pub tenant: Option<String>,
    /// What it may do.
    pub role: Role,
    /// What it is called where people read of it.
    pub label: String,
    /// `sha256:` and the digest of all of it.
    pub digest: String,
    /// Rules that narrow each call made with it, as in `capabilities:`.
    pub policy: Option<String>,
    /// When it was made, in milliseconds since 1970.
    pub created: u64,
    /// From when on it does not count, in milliseconds since 1970.
    pub expires: Option<u64>,
    /// The workspaces that it is narrowed to; none: all of its tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspaces: Option<Vec<String>>,
    /// The SHA-256 fingerprint of the certificate that it is bound to: it counts on connections alone that have shown it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
}

/// A key that was just made. Its text is shown once and not kept.
#[derive(Clone)]
pub struct NewKey {
    /// The identifier.
    pub id: String,
    /// The whole of it.
    pub text: String,
}

impl fmt::Debug for NewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NewKey({})", self.id)
    }
}

impl NewKey {
    /// A key that nobody knows.
    pub fn random() -> Self {
        let (id, secret) = (hex::<ID_BYTES>(), hex::<SECRET_BYTES>());
        let text = format!("{PREFIX}{id}_{secret}");
        Self { id, text }
    }
}

/// Random bytes as hexadecimal digits.
pub(crate) fn hex<const BYTES: usize>() -> String {
    let mut bytes = [0; BYTES];
    sys::fill_random(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The identifier of a key that has the form of one.
pub fn id_of(text: &str) -> Option<&str> {
    let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
    let is_hex = |part: &str, bytes: usize| {
        part.len() == 2 * bytes && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    (is_hex(id, ID_BYTES) && is_hex(secret, SECRET_BYTES)).then_some(id)
}

/// A SHA-256 fingerprint of a certificate in the form that is kept: as programs print it, with colons or without, in any case.
///
/// # Errors
///
/// It is none.
pub fn fingerprint(text: &str) -> Result<String, &'static str> {
    let digits: String = text.chars().filter(|c| *c != ':').map(|c| c.to_ascii_lowercase()).collect();
    let is_one = digits.len() == 64 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_one.then_some(digits).ok_or(
        "`certificate` is the SHA-256 fingerprint of a certificate: 64 hexadecimal digits, as `openssl x509 -fingerprint -sha256` prints them",
    )
}

/// What is wrong with the label of a key, if anything is.
pub fn label_problem(label: &str) -> Option<&'static str> {
    let is_plain = |c: char| c.is_ascii_graphic() || c == ' ';
    if label.is_empty() || label.len() > MAX_LABEL || !label.chars().all(is_plain) || label.trim() != label {
        return Some("a label is 1 to 64 characters of ASCII, without spaces at its ends");
    }
    None
}

impl KeyRecord {
    /// Whether this is the digest of the key, in a time that does not depend on where they differ.
    pub(crate) fn has_digest(&self, of: &str) -> bool {
        self.digest.as_bytes().ct_eq(of.as_bytes()).into()
    }

    /// Whether it may ask for something: its role has the action, and where it is narrowed to some workspaces, the action is
    /// about one of them.
    pub(crate) fn may(&self, action: Action) -> bool {
        self.role.may(action) && (self.workspaces.is_none() || !action.is_of_whole_tenant())
    }

    /// Whether it counts on a connection that has shown this certificate, or none.
    pub(crate) fn comes_by(&self, certificate: Option<&ClientCertificate>) -> bool {
        let shown = certificate.map(ClientCertificate::fingerprint);
        self.certificate.as_deref().is_none_or(|bound| shown == Some(bound))
    }

    /// Whether it counts at this moment.
    pub fn is_valid(&self, now: u64) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }
}

/// The layer of rules that narrow calls. `of` is whose they are, for messages: `tenant acme`.
///
/// # Errors
///
/// What is wrong with the rules.
pub fn narrowing(of: &str, rules: &str) -> Result<Layer, String> {
    let (layer, wrong) = layer::parse(of, rules);
    layer.ok_or_else(|| wrong.iter().map(|one| one.message.clone()).collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use harness_sys::digest::digest;

    use super::*;

    #[test]
    fn a_key_has_one_form() {
        let key = NewKey::random();
        assert_eq!((id_of(&key.text), key.text.len()), (Some(key.id.as_str()), 3 + 16 + 1 + 64));
        assert_ne!(NewKey::random().text, key.text);
        let upper = key.text.to_ascii_uppercase();
        let mut long = key.text.clone();
        long.push('0');
        for other in ["", "hk_", "hk__", "hk_0_0", &upper, &long, &key.text[1..], &key.text.replace("hk_", "hk-")] {
            assert_eq!(id_of(other), None, "{other}");
        }
        assert_eq!(format!("{key:?}"), format!("NewKey({})", key.id));
    }

    #[test]
    fn a_key_is_its_text_until_it_expires() {
        let key = NewKey::random();
        let record = KeyRecord {
            id: key.id.clone(),
            tenant: None,
            role: Role::Caller,
            label: "ci".to_owned(),
            digest: digest(&key.text),
            policy: None,
            created: 0,
            expires: Some(10),
            workspaces: None,
            certificate: None,
        };
        assert!(
            record.has_digest(&digest(&key.text))
                && !record.has_digest(&digest(&NewKey::random().text))
                && !record.has_digest("")
        );
        assert_eq!([9, 10, 11].map(|now| record.is_valid(now)), [true, false, false]);
        assert!(!serde_json::to_string(&record).unwrap().contains(&key.text[20..]));
    }
}
