//! `multipleOf`, exact for whole numbers of any size: the crate divides large ones as floats.

use jsonschema::paths::Location;
use jsonschema::{Draft, Keyword, ValidationError, Validator};
use serde_json::{Map, Value as Json, json};

/// Zeros that an exponent stands for at most; with more, a number is left to the crate.
const MAX_ZEROS: usize = 10_000;

struct MultipleOf {
    /// What is said of a number that is none.
    why: String,
    /// The divisor, where it is whole.
    whole: Option<u64>,
    /// What the crate makes of the keyword.
    other: Validator,
}

/// For the keyword's value.
pub(super) fn keyword<'a>(
    _: &'a Map<String, Json>,
    divisor: &'a Json,
    _: Location,
) -> Result<Box<dyn Keyword>, ValidationError<'a>> {
    let other = jsonschema::options().with_draft(Draft::Draft202012).build(&json!({ "multipleOf": divisor }))?;
    let why = format!("must be a multiple of {divisor}");
    Ok(Box::new(MultipleOf { why, whole: divisor.as_u64(), other }))
}

impl Keyword for MultipleOf {
    fn validate<'i>(&self, instance: &'i Json) -> Result<(), ValidationError<'i>> {
        if self.is_valid(instance) { Ok(()) } else { Err(ValidationError::custom(self.why.clone())) }
    }

    fn is_valid(&self, instance: &Json) -> bool {
        let Json::Number(number) = instance else { return true };
        match self.whole.and_then(|divisor| remainder(number.as_str(), divisor)) {
            Some(rest) => rest == 0,
            None => self.other.is_valid(instance),
        }
    }
}

/// What is left of a whole number, however it is written. None of one with a fraction.
fn remainder(number: &str, divisor: u64) -> Option<u128> {
    let number = number.strip_prefix('-').unwrap_or(number);
    let (mantissa, exponent) = match number.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.strip_prefix('+').unwrap_or(exponent).parse::<usize>().ok()?),
        None => (number, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let zeros = exponent.checked_sub(fraction.len()).filter(|zeros| *zeros <= MAX_ZEROS)?;
    let digits = whole.bytes().chain(fraction.bytes()).chain(std::iter::repeat_n(b'0', zeros));
    digits.map(|digit| digit.checked_sub(b'0')).try_fold(0_u128, |rest, digit| {
        rest.checked_mul(10)?.checked_add(u128::from(digit?))?.checked_rem(u128::from(divisor))
    })
}
