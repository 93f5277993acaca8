//! `random(min, max)`: a whole number from `min` to `max`, both included.

use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;

use super::{import, only_denied};
use crate::bindings::harness::sandbox::random;
use crate::phase::{self, Needs};

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    functions(builder);
}

/// Random bytes from the host.
pub(crate) fn bytes<const N: usize>(builtin: &str) -> anyhow::Result<[u8; N]> {
    phase::check(builtin, Needs::Any)?;
    let bytes = import(builtin, random::bytes(u32::try_from(N)?))?;
    bytes.try_into().map_err(|_| anyhow::anyhow!("{builtin}: the host gave too few bytes"))
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn random(min: i64, max: i64) -> anyhow::Result<i64> {
        anyhow::ensure!(min < max, "random: min must be less than max");
        // 128 bits over a span of at most 64: what the remainder prefers is beyond measuring.
        let span = u128::from(max.abs_diff(min)) + 1;
        let drawn = u128::from_le_bytes(bytes("random")?) % span;
        Ok(i64::try_from(i128::from(min) + i128::try_from(drawn)?)?)
    }
}

only_denied!(random);
