//! SHA-256 digests as text.

use std::io;
use std::path::Path;

use sha2::{Digest as _, Sha256};

/// The digest of a text, as the record has them: `sha256:` and hexadecimal digits.
pub fn digest(text: &str) -> String {
    digest_of(text.as_bytes())
}

/// The same of bytes.
pub fn digest_of(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(bytes)))
}

/// The same of a file, which is read piece by piece.
///
/// # Errors
///
/// Those of the system.
pub fn digest_of_file(path: &Path) -> io::Result<String> {
    let mut file = super::open_file(path)?;
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        let count = io::Read::read(&mut file, &mut buffer)?;
        if count == 0 {
            return Ok(format!("sha256:{}", hex(&hash.finalize())));
        }
        hash.update(buffer.get(..count).unwrap_or_default());
    }
}

/// The digest of what comes in pieces.
#[derive(Debug, Clone, Default)]
pub struct Running(Sha256);

impl Running {
    /// Adds a piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all pieces.
    pub fn finish(self) -> String {
        format!("sha256:{}", hex(&self.0.finalize()))
    }
}

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let digit = |n: u8| char::from(HEX.get(usize::from(n)).copied().unwrap_or_default());
    let mut text = String::with_capacity(bytes.len().saturating_mul(2));
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
    }
    text
}
