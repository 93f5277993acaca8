//! `random`: random numbers, as the host gives them.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lower};

use super::denial::Denial;
use harness_sys as sys;

/// Bytes that one call gives at most.
pub const MAX_BYTES: u32 = 1024;

/// The variant `error` of the interface.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lower, Serialize, Deserialize)]
#[component(variant)]
pub enum Error {
    /// The grant does not hold randomness.
    #[component(name = "access-denied")]
    AccessDenied(Denial),
}

/// Where random numbers come from.
#[derive(Debug, Default)]
pub enum Random {
    /// The system's generator.
    #[default]
    System,
    /// The same numbers for the same seed, for a test or a replay. Not for secrets.
    Seeded(AtomicU64),
}

impl Random {
    /// Random bytes, at most [`MAX_BYTES`].
    pub fn bytes(&self, count: u32) -> Vec<u8> {
        let mut bytes = vec![0; count.min(MAX_BYTES) as usize];
        match self {
            Self::System => sys::fill_random(&mut bytes),
            Self::Seeded(state) => {
                for chunk in bytes.chunks_mut(8) {
                    let word = splitmix(state.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed)).to_le_bytes();
                    for (byte, random) in chunk.iter_mut().zip(word) {
                        *byte = random;
                    }
                }
            }
        }
        bytes
    }
}

/// The output function of SplitMix64 (Steele, Lea and Flood, 2014).
fn splitmix(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_and_a_bounded_count() {
        let first = Random::Seeded(AtomicU64::new(7));
        let second = Random::Seeded(AtomicU64::new(7));
        let bytes = first.bytes(16);
        assert_eq!(bytes, second.bytes(16));
        assert_ne!(bytes, first.bytes(16));
        assert_eq!(Random::System.bytes(u32::MAX).len(), 1024);
    }
}
