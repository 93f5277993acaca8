//! `base64.encode`, `base64.decode`: the standard alphabet, with padding.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::Value;

use super::argument;

use crate::observe::pure;

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    builder.namespace("base64", |space| pure(space, "base64", functions));
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn encode<'v>(s: Value<'v>) -> anyhow::Result<String> {
        Ok(STANDARD.encode(argument::text("base64.encode", "s", s)?))
    }

    /// Line breaks are passed over, as mail and some services put them in. What is not text afterwards is an error:
    /// a Starlark string holds no other bytes.
    fn decode<'v>(s: Value<'v>) -> anyhow::Result<String> {
        let text = argument::text("base64.decode", "s", s)?;
        let digits: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
        let bytes = STANDARD.decode(digits).map_err(|error| anyhow::anyhow!("base64.decode: {}", tell(&error)))?;
        String::from_utf8(bytes).map_err(|_| anyhow::anyhow!("base64.decode: the decoded bytes are not UTF-8 text"))
    }
}

fn tell(error: &base64::DecodeError) -> String {
    match error {
        base64::DecodeError::InvalidByte(offset, byte) => {
            format!("invalid character `{}` at {offset}", byte.escape_ascii())
        }
        base64::DecodeError::InvalidLength(length) => format!("invalid length, {length} characters"),
        base64::DecodeError::InvalidLastSymbol(offset, byte) => {
            format!("invalid last character `{}` at {offset}", byte.escape_ascii())
        }
        base64::DecodeError::InvalidPadding => "invalid padding".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use crate::testing::{check_all, evaluate, fail_all};

    #[test]
    fn both_ways() {
        // RFC 4648, section 10.
        check_all([
            ("base64.encode('')", json!("")),
            ("base64.encode('f')", json!("Zg==")),
            ("base64.encode(s = 'foobar')", json!("Zm9vYmFy")),
            ("base64.encode('\u{e9}?>')", json!("w6k/Pg==")),
            ("base64.decode('')", json!("")),
            ("base64.decode('Zg==')", json!("f")),
            ("base64.decode(s = 'Zm9v\\r\\nYmFy\\n')", json!("foobar")),
        ]);
    }

    #[test]
    fn errors() {
        fail_all([
            ("base64.decode('Zg=')", "base64.decode: invalid padding"),
            ("base64.decode('Zg')", "base64.decode: invalid padding"),
            ("base64.decode('Z')", "base64.decode: invalid length, 1 characters"),
            ("base64.decode('Zm9-')", "base64.decode: invalid character `-` at 3"),
            ("base64.decode('Zm9v Zg==')", "base64.decode: invalid character ` ` at 4"),
            ("base64.decode('Zh==')", "base64.decode: invalid last character `h` at 1"),
            ("base64.decode('/w==')", "base64.decode: the decoded bytes are not UTF-8 text"),
            ("base64.decode(1)", "base64.decode: s must be a string, got int"),
            ("base64.encode(None)", "base64.encode: s must be a string, got NoneType"),
        ]);
    }

    proptest! {
        #[test]
        fn decode_undoes_encode(text in ".{0,30}") {
            let program = format!("base64.decode(base64.encode({}))", json!(text));
            prop_assert_eq!(evaluate(&program).unwrap(), json!(text));
        }

        #[test]
        fn any_text_is_decoded_or_refused(text in "[A-Za-z0-9+/=\u{e9} -]{0,12}") {
            if let Err(error) = evaluate(&format!("base64.decode({})", json!(text))) {
                prop_assert!(error.starts_with("base64.decode: "), "{}", error);
            }
        }
    }
}
