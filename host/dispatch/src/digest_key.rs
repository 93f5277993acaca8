//! The key of the digests that a hook sees of values which are not for it. Without the key nobody can find a value by
//! trying what it may be.

use std::fmt;

use harness_capability::random::Random;
use harness_sys::digest::hex;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// Bytes of a key.
const BYTES: u32 = 32;

/// A key of one run: a value has the same digest in all of the run, and another one in every other.
#[derive(Clone)]
pub struct DigestKey(Hmac<Sha256>, String);

impl DigestKey {
    /// A key that nobody knows.
    pub fn random() -> Self {
        let bytes = Random::System.bytes(BYTES);
        Self::new(&hex(&bytes))
    }

    /// The key with this text: that of a run that is replayed.
    pub fn new(text: &str) -> Self {
        // A key of any length is one.
        let mac = Hmac::new_from_slice(text.as_bytes()).unwrap_or_else(|_| Hmac::new(&Default::default()));
        Self(mac, text.to_owned())
    }

    /// The text, for the record of a session. A hook that has it can find values by trying.
    pub fn text(&self) -> &str {
        &self.1
    }

    /// The digest of a text: `hmac-sha256:` and hexadecimal digits.
    pub(crate) fn digest(&self, text: &str) -> String {
        let mut mac = self.0.clone();
        mac.update(text.as_bytes());
        format!("hmac-sha256:{}", hex(&mac.finalize().into_bytes()))
    }
}

impl fmt::Debug for DigestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DigestKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_of_its_key() {
        // RFC 4231, test case 2.
        let known = DigestKey::new("Jefe").digest("what do ya want for nothing?");
        assert_eq!(known, "hmac-sha256:5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        let (one, other) = (DigestKey::random(), DigestKey::random());
        assert_ne!(one.digest("yes"), other.digest("yes"));
        assert_eq!(DigestKey::new(one.text()).digest("yes"), one.digest("yes"));
        assert!(one.text().len() == 64 && !format!("{one:?}").contains(one.text()));
    }
}
