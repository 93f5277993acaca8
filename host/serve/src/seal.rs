//! Secrets at rest: sealed with AES-256-GCM under the key of the server, each bound to the place that it is kept at.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use harness_sys as sys;

/// Bytes of the file of a sealing key, at most.
pub const MAX_KEY: usize = 4096;
/// Bytes of a sealing key.
pub const KEY_BYTES: usize = 32;

/// Seals secrets and opens them again.
pub struct Sealer(RandomizedNonceKey);

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealer")
    }
}

impl Sealer {
    /// With a key of 64 hexadecimal digits.
    ///
    /// # Errors
    ///
    /// It has another form.
    pub fn new(key: &str) -> Result<Self, &'static str> {
        let digits = key.trim();
        let pair = |at: usize| digits.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let bytes: Option<Vec<u8>> = (0..KEY_BYTES).map(|at| pair(2 * at)).collect();
        let bytes = bytes.filter(|_| digits.len() == 2 * KEY_BYTES).ok_or("a sealing key is 64 hexadecimal digits")?;
        RandomizedNonceKey::new(&AES_256_GCM, &bytes).map(Self).map_err(|_| "the sealing key cannot be used")
    }

    /// A key that nobody knows, as text.
    pub fn random_key() -> String {
        let mut bytes = [0; KEY_BYTES];
        sys::fill_random(&mut bytes);
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Seals a text that is kept at this place. The same text is sealed to other bytes each time.
    ///
    /// # Errors
    ///
    /// That it cannot be sealed.
    pub fn seal(&self, place: &str, text: &str) -> Result<Vec<u8>, &'static str> {
        let mut sealed = text.as_bytes().to_vec();
        let nonce = self.0.seal_in_place_append_tag(Aad::from(place.as_bytes()), &mut sealed);
        let nonce = nonce.map_err(|_| "the secret cannot be sealed")?;
        Ok([&nonce.as_ref()[..], &sealed].concat())
    }

    /// Opens what was sealed for this place.
    ///
    /// # Errors
    ///
    /// It was sealed with another key or for another place, or was changed since.
    pub fn open(&self, place: &str, sealed: &[u8]) -> Result<String, &'static str> {
        let wrong = "a secret was sealed with another key, or was changed since";
        let (nonce, text) = sealed.split_at_checked(NONCE_LEN).ok_or(wrong)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| wrong)?;
        let mut text = text.to_vec();
        let opened = self.0.open_in_place(nonce, Aad::from(place.as_bytes()), &mut text).map_err(|_| wrong)?;
        String::from_utf8(opened.to_vec()).map_err(|_| wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_with_its_key_at_its_place() {
        let sealer = Sealer::new(&Sealer::random_key()).unwrap();
        let sealed = sealer.seal("acme/TOKEN", "s3cret").unwrap();
        assert_eq!(sealer.open("acme/TOKEN", &sealed).as_deref(), Ok("s3cret"));
        assert!(!sealed.windows(6).any(|part| part == b"s3cret"));
        assert_ne!(sealer.seal("acme/TOKEN", "s3cret").unwrap(), sealed);
        let wrong = Err("a secret was sealed with another key, or was changed since");
        assert_eq!(sealer.open("other/TOKEN", &sealed), wrong);
        assert_eq!(Sealer::new(&Sealer::random_key()).unwrap().open("acme/TOKEN", &sealed), wrong);
        for at in 0..sealed.len() * 8 {
            let mut turned = sealed.clone();
            turned[at / 8] ^= 1 << (at % 8);
            assert_eq!(sealer.open("acme/TOKEN", &turned), wrong, "bit {at}");
        }
        for short in 0..sealed.len() {
            assert_eq!(sealer.open("acme/TOKEN", &sealed[..short]), wrong);
        }
    }

    #[test]
    fn a_key_has_one_form() {
        let key = Sealer::random_key();
        assert!(Sealer::new(&format!("{key}\n")).is_ok());
        for wrong in ["", "00", &key[1..], &format!("{key}0"), &key.replace(&key[..1], "x"), "é"] {
            assert!(Sealer::new(wrong).is_err(), "{wrong}");
        }
    }
}
