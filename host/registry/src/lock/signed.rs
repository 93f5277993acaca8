//! What a lock keeps of the signatures of a plugin: each verifies again at every load, without a network.

use harness_plugin::Rejected;
use harness_plugin::archive::pack;
use harness_plugin::content::Content;
use harness_plugin::signature::{self, FILES, MAX_BYTES, Signed};
use harness_policy::signer::Signer;
use serde::{Deserialize, Serialize};

use super::LockedPlugin;

/// A signature, as TOML has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SignedDocument {
    signer: String,
    signature: String,
}

/// A signature of a plugin, as it was verified when the plugin was added or updated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockedSignature {
    /// The key of who signed.
    pub signer: Signer,
    /// The signature.
    pub signature: String,
}

impl From<&Signed> for LockedSignature {
    fn from(signed: &Signed) -> Self {
        Self { signer: signed.signer.clone(), signature: signed.signature.clone() }
    }
}

impl LockedSignature {
    /// # Errors
    ///
    /// What is wrong with an entry.
    pub(super) fn read_all(documents: Vec<SignedDocument>) -> Result<Vec<Self>, String> {
        if documents.len() > FILES.len() {
            return Err("it has too many signatures".to_owned());
        }
        let read = documents.into_iter().map(|SignedDocument { signer, signature }| {
            let parsed = Signer::parse(&signer)?;
            match parsed.as_str() == signer && signature.len() <= MAX_BYTES {
                true => Ok(Self { signer: parsed, signature }),
                false => Err("its signature is not as it was written".to_owned()),
            }
        });
        read.collect()
    }

    pub(super) fn document(&self) -> SignedDocument {
        SignedDocument { signer: self.signer.to_string(), signature: self.signature.clone() }
    }
}

impl LockedPlugin {
    /// The keys of who signed it.
    pub fn signers(&self) -> Vec<Signer> {
        self.signed.iter().map(|one| one.signer.clone()).collect()
    }

    /// Verifies its signatures over its content.
    ///
    /// # Errors
    ///
    /// One that does not verify.
    pub fn verify(&self, content: &Content) -> Result<Vec<Signed>, Rejected> {
        if self.signed.is_empty() {
            return Ok(Vec::new());
        }
        let packed = pack(content)?;
        self.signed.iter().map(|one| signature::verify(&one.signer, &one.signature, &packed)).collect()
    }
}
