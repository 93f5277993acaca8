//! Signatures of minisign: four lines, of which the last two sign the comment of the signer. The file of the form before
//! prehashing is refused, and so is any other spelling of the same signature, but for the first line, which nothing covers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use harness_policy::signer::{Kind, Signer};
use minisign_verify::{PublicKey, Signature};

use super::Signed;
use crate::Rejected;

/// What the first line of a signature and of a key begins with.
const UNTRUSTED: &str = "untrusted comment: ";
const TRUSTED: &str = "trusted comment: ";
/// What is kept instead of the first line, which anybody can change.
const KEPT: &str = "signature";
/// The first two bytes of a signature of a digest, and of one of the bytes themselves.
const PREHASHED: [u8; 2] = *b"ED";
const LEGACY: [u8; 2] = *b"Ed";
/// Bytes of the id of a key, after the first two.
const ID: std::ops::Range<usize> = 2..10;

fn wrong(why: impl std::fmt::Display) -> Rejected {
    Rejected::new(format!("its minisign signature {why}"))
}

/// The lines of a signature.
struct Lines<'t> {
    signature: &'t str,
    comment: &'t str,
    covering: &'t str,
    id: [u8; 8],
}

fn lines(text: &str) -> Result<Lines<'_>, Rejected> {
    let unreadable = |why: &str| wrong(format!("cannot be read: {why}"));
    let is_hidden = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if text.chars().any(is_hidden) {
        return Err(unreadable("it has a control character"));
    }
    let lines: Vec<&str> = text.split('\n').collect();
    let [untrusted, signature, trusted, covering, ""] = lines.as_slice() else {
        return Err(unreadable("it has not four lines"));
    };
    let (signature, covering) = (*signature, *covering);
    let (Some(_), Some(comment)) = (untrusted.strip_prefix(UNTRUSTED), trusted.strip_prefix(TRUSTED)) else {
        return Err(unreadable("its comments are not where they belong"));
    };
    // The one spelling of the bytes: the other decoder takes more.
    let bytes = STANDARD.decode(signature).map_err(|_| unreadable("its second line is not base64"))?;
    STANDARD.decode(covering).map_err(|_| unreadable("its fourth line is not base64"))?;
    match bytes.get(..2) {
        Some(kind) if kind == PREHASHED => {}
        Some(kind) if kind == LEGACY => {
            return Err(wrong("is in the form before prehashing: sign again with `minisign -S`, without `-l`"));
        }
        _ => return Err(unreadable("its algorithm is unknown")),
    }
    let id = bytes.get(ID).and_then(|id| id.try_into().ok()).ok_or_else(|| unreadable("it is too short"))?;
    Ok(Lines { signature, comment, covering, id })
}

/// An id as minisign prints it.
fn shown(id: [u8; 8]) -> String {
    format!("{:016X}", u64::from_le_bytes(id))
}

/// The id of the key of a signature, as minisign prints it. Anybody can make a key with this id.
pub(super) fn key_id(text: &str) -> Result<String, Rejected> {
    Ok(shown(lines(text)?.id))
}

/// Verifies a signature with the one of the keys that made it.
pub(super) fn verify(text: &str, packed: &[u8], keys: &[Signer]) -> Result<Signed, Rejected> {
    let Lines { signature, comment, covering, id } = lines(text)?;
    let kept = format!("{UNTRUSTED}{KEPT}\n{signature}\n{TRUSTED}{comment}\n{covering}\n");
    let decoded = Signature::decode(&kept).map_err(|why| wrong(format!("cannot be read: {why}")))?;
    let has_id = |key: &&Signer| {
        let bytes = STANDARD.decode(key.as_str()).unwrap_or_default();
        key.kind() == Kind::Minisign && bytes.get(ID) == Some(&id)
    };
    let mut with_id = keys.iter().filter(has_id).peekable();
    if with_id.peek().is_none() {
        let id = shown(id);
        return Err(wrong(format!("is by the key with the id {id}, which is unknown: give the key with `--signer`")));
    }
    let verifies = |key: &&Signer| {
        let key = PublicKey::from_base64(key.as_str());
        key.is_ok_and(|key| key.verify(packed, &decoded, false).is_ok())
    };
    match with_id.find(verifies) {
        Some(signer) => Ok(Signed { signer: signer.clone(), signature: kept, comment: Some(comment.to_owned()) }),
        None => Err(wrong(format!("does not verify with the key that has its id {}", shown(id)))),
    }
}
