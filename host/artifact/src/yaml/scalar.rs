//! What a plain scalar means in YAML 1.2's core schema.

use super::Value;

/// The value of a scalar without quotes.
pub(super) fn resolve(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ if is_integer(text) => Value::Int(text.to_owned()),
        _ if is_float(text) => Value::Float(text.to_owned()),
        _ => Value::Str(text.to_owned()),
    }
}

/// A whole number's value, held at the ends of the range where it is beyond them: no limit is that far out.
pub fn integer(text: &str) -> i128 {
    let (radix, digits) = match (text.strip_prefix("0o"), text.strip_prefix("0x")) {
        (Some(octal), _) => (8, octal),
        (_, Some(hex)) => (16, hex),
        _ => (10, text),
    };
    let beyond = if text.starts_with('-') { i128::MIN } else { i128::MAX };
    i128::from_str_radix(digits, radix).unwrap_or(beyond)
}

fn is_integer(text: &str) -> bool {
    if let Some(octal) = text.strip_prefix("0o") {
        return all_digits(octal, 8);
    }
    if let Some(hex) = text.strip_prefix("0x") {
        return all_digits(hex, 16);
    }
    all_digits(unsigned(text), 10)
}

/// `[-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )?`, infinity, or not a number.
fn is_float(text: &str) -> bool {
    if matches!(text, ".nan" | ".NaN" | ".NAN") {
        return true;
    }
    let text = unsigned(text);
    if matches!(text, ".inf" | ".Inf" | ".INF") {
        return true;
    }
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let mantissa_fits = match mantissa.split_once('.') {
        Some(("", fraction)) => all_digits(fraction, 10),
        Some((whole, fraction)) => all_digits(whole, 10) && (fraction.is_empty() || all_digits(fraction, 10)),
        None => all_digits(mantissa, 10),
    };
    mantissa_fits && exponent.is_none_or(|e| all_digits(unsigned(e), 10))
}

fn unsigned(text: &str) -> &str {
    text.strip_prefix(['-', '+']).unwrap_or(text)
}

/// Whether there is at least one character and all are digits.
fn all_digits(text: &str, radix: u32) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_digit(radix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_schema() {
        let check = |texts: &[&str], expect: fn(&str) -> Value| {
            for text in texts {
                assert_eq!(resolve(text), expect(text), "{text:?}");
            }
        };
        check(&["", "~", "null", "NULL"], |_| Value::Null);
        check(&["true", "True", "TRUE"], |_| Value::Bool(true));
        check(&["false", "FALSE"], |_| Value::Bool(false));
        check(&["0", "-1", "+12", "0o17", "0xfF", "123456789012345678901234567890"], |t| Value::Int(t.to_owned()));
        check(&["1.", ".5", "-1.5e3", "1e9", "+.inf", ".nan"], |t| Value::Float(t.to_owned()));
        check(
            &[
                "yes", "no", "on", "nULL", "tRUE", "1_000", "0b1", "0o8", "0x", "1e", ".", "-", "1.2.3", "-0x1", "e5",
                "-.nan",
            ],
            |t| Value::Str(t.to_owned()),
        );
    }

    #[test]
    fn integers_stop_at_the_ends() {
        for (text, value) in [
            ("12", 12),
            ("-3", -3),
            ("+4", 4),
            ("0x1F", 31),
            ("0o17", 15),
            ("9999999999999999999999999999999999999999999", i128::MAX),
            ("-9999999999999999999999999999999999999999999", i128::MIN),
        ] {
            assert_eq!(integer(text), value, "{text}");
        }
    }
}
