//! One line: an entry with its number, the hash of the line before, and its own.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde_json::Value as Json;
use sha2::{Digest, Sha256};

use harness_sys::digest::hex;

use super::entry::Entry;

/// What ends a line: its hash is that of all before this.
const HASH: &str = ",\"hash\":\"";
/// Hexadecimal digits of a hash.
const DIGITS: usize = 64;

/// Where the chain is: the number of the last line, from 1, and its hash. Before the first line both are zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) number: u64,
    pub(super) hash: String,
}

impl Link {
    /// Before the first line.
    pub(super) fn start() -> Self {
        Self { number: 0, hash: "0".repeat(DIGITS) }
    }

    /// The line of the next entry, without its end, and where the chain is then.
    pub(super) fn line(&self, entry: &Entry) -> (Vec<u8>, Self) {
        let number = self.number.saturating_add(1);
        let mut line = format!("{{\"seq\":{number},\"prev\":\"{}\"", self.hash).into_bytes();
        let fields = entry.fields();
        line.reserve(fields.len().saturating_add(HASH.len() + DIGITS + 3));
        line.extend_from_slice(&fields);
        let hash = hex(&Sha256::digest(&line));
        line.extend_from_slice(HASH.as_bytes());
        line.extend_from_slice(hash.as_bytes());
        line.extend_from_slice(b"\"}");
        (line, Self { number, hash })
    }

    /// Where the chain is after a line that was read, which has to follow this.
    ///
    /// # Errors
    ///
    /// What is wrong with the line.
    pub(super) fn follow(&self, line: &str) -> Result<Self, String> {
        let (said, hash) = line.rsplit_once(HASH).ok_or("it has no hash")?;
        let hash = hash.strip_suffix("\"}").filter(|hash| hash.len() == DIGITS).ok_or("it has no hash")?;
        if hash_of(said) != hash {
            return Err("its text is not what its hash was made of".to_owned());
        }
        let Place { seq, prev } = serde_json::from_str(line).map_err(|_| "it is not JSON")?;
        let number = seq.as_ref().and_then(Json::as_u64).ok_or("it has no number")?;
        if prev.as_ref().and_then(Json::as_str) != Some(&self.hash) || number != self.number.saturating_add(1) {
            return Err(format!("it is line {number} and does not follow line {}", self.number));
        }
        Ok(Self { number, hash: hash.to_owned() })
    }
}

/// Where a line says that it is. The rest of it is only known to be JSON.
#[derive(Deserialize)]
struct Place {
    seq: Option<Json>,
    prev: Option<Json>,
}

fn hash_of(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes()))
}

/// What `head` says: where the chain is, in which file, and how long that is up to there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) link: Link,
    pub(super) file: u32,
    pub(super) length: u64,
}

impl Head {
    pub(super) fn start() -> Self {
        Self { link: Link::start(), file: 1, length: 0 }
    }
}

/// Always as long, so that it is written over in one go.
impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { link: Link { number, hash }, file, length } = self;
        writeln!(f, "{number:020} {hash} {file:06} {length:020}")
    }
}

impl FromStr for Head {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split_ascii_whitespace();
        let mut word = || words.next().ok_or(());
        let number = word()?.parse().map_err(|_| ())?;
        let hash = word()?.to_owned();
        let head = Self {
            link: Link { number, hash },
            file: word()?.parse().map_err(|_| ())?,
            length: word()?.parse().map_err(|_| ())?,
        };
        if head.to_string() == text { Ok(head) } else { Err(()) }
    }
}
