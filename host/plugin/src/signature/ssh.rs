//! Signatures of `ssh-keygen -Y sign`: they have their key. One spelling is read, and one kind of key.

use harness_policy::signer::Signer;
use ssh_key::{LineEnding, PublicKey, SshSig};

use super::{NAMESPACE, Signed};
use crate::Rejected;

/// The one version of the form. It is not covered by the signature.
const VERSION: u32 = 1;

fn wrong(why: impl std::fmt::Display) -> Rejected {
    Rejected::new(format!("its SSH signature {why}"))
}

/// Verifies a signature with the key that it has.
pub(super) fn verify(text: &str, packed: &[u8]) -> Result<Signed, Rejected> {
    let unreadable = |why: &str| wrong(format!("cannot be read: {why}"));
    let signature = SshSig::from_pem(text).map_err(|why| unreadable(&why.to_string()))?;
    if signature.public_key().ed25519().is_none() {
        let algorithm = signature.public_key().algorithm();
        return Err(wrong(format!("is by a key of the kind `{algorithm}`: `ssh-ed25519` alone is supported")));
    }
    if signature.namespace() != NAMESPACE {
        let other = harness_policy::text::quoted(signature.namespace());
        let how = format!("sign with `ssh-keygen -Y sign -n {NAMESPACE}`");
        return Err(wrong(format!("is for the namespace {other}, and not for `{NAMESPACE}`: {how}")));
    }
    let is_plain = signature.version() == VERSION && signature.reserved().is_empty();
    if !is_plain || signature.to_pem(LineEnding::LF).ok().as_deref() != Some(text) {
        return Err(unreadable("it is in another form"));
    }
    let key = PublicKey::from(signature.public_key().clone());
    key.verify(NAMESPACE, packed, &signature).map_err(|_| wrong("does not verify"))?;
    let key = key.to_openssh().map_err(|why| unreadable(&why.to_string()))?;
    let signer = Signer::parse(&key).map_err(|why| unreadable(&why))?;
    Ok(Signed { signer, signature: text.to_owned(), comment: None })
}
