//! Signatures of a plugin: who vouches for its packed bytes. Three kinds, as the ordinary tools make them, so that an
//! author needs none of ours: minisign, `ssh-keygen -Y sign`, and bundles of sigstore.
//!
//! A signature lies beside a packed plugin, or in the folder of one, where it belongs to no content: the packed bytes stay
//! those that were signed. One that is there has to verify. Nothing turns a signed plugin into an unsigned one but the
//! absence of the file.
//!
//! - `minisign`: signatures of minisign
//! - `ssh`: signatures of ssh-keygen
//! - `sigstore`: bundles of sigstore, with the feature `sigstore`

mod minisign;
// The tests compile it, so that they need no build of their own.
#[cfg(any(test, feature = "sigstore"))]
mod sigstore;
#[cfg(not(any(test, feature = "sigstore")))]
#[path = "signature/no_sigstore.rs"]
mod sigstore;
mod ssh;

use std::io::ErrorKind;
use std::path::Path;

use harness_policy::signer::{Kind, Signer};
use harness_sys as sys;
use harness_sys::tree;

use crate::Rejected;

/// Bytes of a signature, in the form that is kept of it.
pub const MAX_BYTES: usize = 4 << 10;
/// What SSH signatures are for: those of another namespace were made for another purpose.
pub const NAMESPACE: &str = "harness";
/// The names of the signatures in the folder of a plugin.
pub const FILES: [&str; 3] = ["plugin.minisig", "plugin.sig", "plugin.sigstore.json"];
/// What follows the name of a packed plugin in those of its signatures.
pub const ENDINGS: [&str; 3] = [".minisig", ".sig", ".sigstore.json"];
/// What messages call each, and the bytes that its file may have.
const KINDS: [(&str, usize); 3] =
    [("minisign signature", MAX_BYTES), ("SSH signature", MAX_BYTES), ("sigstore bundle", sigstore::MAX_BUNDLE)];

/// The signatures of a plugin as they were found: not verified.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Signatures {
    minisign: Option<String>,
    ssh: Option<String>,
    sigstore: Option<String>,
}

/// A signature that verifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// The key of who signed.
    pub signer: Signer,
    /// The signature, in the one form that is kept of it.
    pub signature: String,
    /// What the signer says beside it, where the signature covers that.
    pub comment: Option<String>,
}

impl Signatures {
    /// The signatures of the plugin at a place: in a folder, beside a packed file.
    ///
    /// # Errors
    ///
    /// One is there and cannot be read.
    pub fn beside(place: &Path) -> Result<Self, Rejected> {
        if sys::is_folder(place) {
            return Self::read(FILES, |name, most| tree::read_file(place, name, most));
        }
        Self::read(ENDINGS, |ending, most| {
            let mut path = place.as_os_str().to_owned();
            path.push(ending);
            let path = Path::new(&path);
            if sys::is_gone(path) {
                return Err(ErrorKind::NotFound.into());
            }
            // A link that leads nowhere is there.
            sys::read_bytes(path, most).map_err(std::io::Error::other)
        })
    }

    /// Takes the signatures out of the files of a plugin, such as those of a repository.
    ///
    /// # Errors
    ///
    /// One is there and cannot be read.
    pub fn take(files: &mut Vec<(String, Vec<u8>)>) -> Result<Self, Rejected> {
        let mut taken: Vec<(String, Vec<u8>)> =
            files.extract_if(.., |(path, _)| FILES.contains(&path.as_str())).collect();
        Self::read(FILES, |name, _| {
            let at = taken.iter().position(|(path, _)| path == name);
            at.map(|at| taken.swap_remove(at).1).ok_or_else(|| ErrorKind::NotFound.into())
        })
    }

    /// Reads all by their names; each with the bytes that it may have.
    fn read(names: [&str; 3], mut file: impl FnMut(&str, u64) -> std::io::Result<Vec<u8>>) -> Result<Self, Rejected> {
        let mut text = |name: &str, (kind, most): (&str, usize)| {
            let wrong = |why: &str| Rejected::new(format!("its {kind} cannot be read: {why}"));
            match file(name, u64::try_from(most).unwrap_or(u64::MAX)) {
                Ok(bytes) if bytes.len() > most => Err(wrong(&format!("it has more than {most} bytes"))),
                Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| wrong("it is not UTF-8 text")),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) => Err(wrong(&error.to_string())),
            }
        };
        let ([minisign, ssh, sigstore], [of_minisign, of_ssh, of_sigstore]) = (names, KINDS);
        Ok(Self {
            minisign: text(minisign, of_minisign)?,
            ssh: text(ssh, of_ssh)?,
            sigstore: text(sigstore, of_sigstore)?,
        })
    }

    /// Signatures by their texts.
    pub fn of(minisign: Option<String>, ssh: Option<String>) -> Self {
        Self { minisign, ssh, sigstore: None }
    }

    /// The same with a bundle of sigstore.
    #[must_use]
    pub fn with_sigstore(self, bundle: String) -> Self {
        Self { sigstore: Some(bundle), ..self }
    }

    /// The texts, each by the name that it has in the folder of a plugin.
    pub fn named(&self) -> Vec<(String, String)> {
        let texts = FILES.into_iter().zip([&self.minisign, &self.ssh, &self.sigstore]);
        texts.filter_map(|(name, text)| Some((name.to_owned(), text.clone()?))).collect()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        [&self.minisign, &self.ssh, &self.sigstore].into_iter().all(Option::is_none)
    }

    /// Verifies all of them over the bytes of a packed plugin. Signatures of minisign and sigstore do not have their keys:
    /// these are among `keys`.
    ///
    /// # Errors
    ///
    /// One of them cannot be read, does not verify, or is by a key that is not there.
    pub fn verify(&self, packed: &[u8], keys: &[Signer]) -> Result<Vec<Signed>, Rejected> {
        let minisign = self.minisign.iter().map(|text| minisign::verify(text, packed, keys));
        let sigstore = self.sigstore.iter().map(|text| sigstore::verify(text, packed, keys));
        minisign.chain(self.ssh.iter().map(|text| ssh::verify(text, packed))).chain(sigstore).collect()
    }
}

/// Verifies a signature that was kept with its signer.
///
/// # Errors
///
/// It does not verify, or is by another key.
pub fn verify(signer: &Signer, signature: &str, packed: &[u8]) -> Result<Signed, Rejected> {
    if signature.len() > MAX_BYTES {
        return Err(Rejected::new(format!("its signature has more than {MAX_BYTES} bytes")));
    }
    let signed = match signer.kind() {
        Kind::Minisign => minisign::verify(signature, packed, std::slice::from_ref(signer)),
        Kind::Ssh => ssh::verify(signature, packed),
        Kind::Sigstore(_) => sigstore::verify(signature, packed, std::slice::from_ref(signer)),
    }?;
    match signed.signer == *signer {
        true => Ok(signed),
        false => Err(Rejected::new("its signature is by another key")),
    }
}

/// What the signature of a plugin that its author signs says: the signer, where the signature has that. No bundle of sigstore
/// has it.
///
/// # Errors
///
/// It is none that can be verified over these bytes.
pub fn check(kind: Kind, signature: &str, packed: &[u8]) -> Result<String, Rejected> {
    match kind {
        Kind::Minisign => minisign::key_id(signature).map(|id| format!("the minisign key with the id {id}")),
        Kind::Ssh => ssh::verify(signature, packed).map(|signed| format!("`{}`", signed.signer)),
        Kind::Sigstore(_) => Err(Rejected::new("a sigstore bundle does not name its signer")),
    }
}

#[cfg(test)]
mod sigstore_tests;
#[cfg(test)]
mod tests;
