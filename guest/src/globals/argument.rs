//! Arguments of the pure built-ins, with errors that name the built-in and the parameter.

use starlark::values::{UnpackValue, Value};

/// Bytes of text that one call works on, and that it may give back: as much as the largest file that a script reads.
pub(crate) const MAX_TEXT: usize = 16 << 20;

/// An argument that has to be a string.
pub(crate) fn text<'v>(builtin: &str, parameter: &str, value: Value<'v>) -> anyhow::Result<&'v str> {
    value
        .unpack_str()
        .ok_or_else(|| anyhow::anyhow!("{builtin}: {parameter} must be a string, got {}", value.get_type()))
}

/// An argument that has to be a count: a whole number that is not negative.
pub(crate) fn count(builtin: &str, parameter: &str, value: Value<'_>) -> anyhow::Result<usize> {
    let number = num_bigint::BigInt::unpack_value(value)
        .ok()
        .flatten()
        .ok_or_else(|| anyhow::anyhow!("{builtin}: {parameter} must be an int, got {}", value.get_type()))?;
    anyhow::ensure!(number.sign() != num_bigint::Sign::Minus, "{builtin}: {parameter} must be >= 0");
    // A count beyond the address space is as good as the largest one.
    Ok(usize::try_from(number).unwrap_or(usize::MAX))
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
