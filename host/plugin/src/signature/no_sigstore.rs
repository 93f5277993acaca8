//! A program without the feature `sigstore`: a bundle that is there cannot be verified, so the plugin is refused.

use harness_policy::signer::Signer;

use super::Signed;
use crate::Rejected;

/// Bytes of a bundle, as with the feature.
pub(super) const MAX_BUNDLE: usize = 16 << 10;

/// Refuses each bundle.
pub(super) fn verify(_text: &str, _packed: &[u8], _keys: &[Signer]) -> Result<Signed, Rejected> {
    let why = "its sigstore bundle cannot be verified: this program was built without the feature `sigstore`";
    Err(Rejected::new(why))
}
