//! What a request over HTTP says in its headers too.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;

use harness_artifact::definition::ParamHeader;

const BEGIN: &str = "=?base64?";
const END: &str = "?=";

/// The headers of a request of the newest revision: its method, its name, and the arguments that are named as headers.
pub(crate) fn of_request(
    version: &str,
    method: &str,
    params: &Json,
    mirrored: &[ParamHeader],
) -> Vec<(String, String)> {
    let mut headers =
        vec![("mcp-protocol-version".to_owned(), version.to_owned()), ("mcp-method".to_owned(), method.to_owned())];
    if let Some(name) = params.get("name").or_else(|| params.get("uri")).and_then(Json::as_str) {
        headers.push(("mcp-name".to_owned(), encoded(name)));
    }
    let arguments = params.get("arguments").unwrap_or(&Json::Null);
    let values = mirrored.iter().filter_map(|one| Some((one, one.value(arguments)?)));
    headers
        .extend(values.map(|(one, value)| (format!("mcp-param-{}", one.name.to_ascii_lowercase()), encoded(&value))));
    headers
}

/// A text as the value of a header, which loses nothing on the way: what is not plain is Base64.
fn encoded(text: &str) -> String {
    let is_plain = text.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
    let is_whole = text.trim_matches([' ', '\t']) == text;
    let is_coded = text.starts_with(BEGIN) && text.ends_with(END);
    if is_plain && is_whole && !is_coded { text.to_owned() } else { format!("{BEGIN}{}{END}", STANDARD.encode(text)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_those_of_the_specification() {
        for (text, value) in [
            ("us-west1", "us-west1"),
            ("a b\tc", "a b\tc"),
            ("", ""),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
            ("=?base64?", "=?base64?"),
        ] {
            assert_eq!(encoded(text), value);
        }
    }

    #[test]
    fn a_call_names_its_tool_and_its_arguments() {
        let mirrored = [ParamHeader { path: vec!["a".to_owned()], name: "Region".to_owned() }];
        let shown = |method: &str, params: Json| {
            let headers = of_request("2026-07-28", method, &params, &mirrored).into_iter();
            headers.map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>()
        };
        assert_eq!(
            shown("tools/call", json!({"name": "sql", "arguments": {"a": "eu\n"}})),
            [
                "mcp-protocol-version: 2026-07-28",
                "mcp-method: tools/call",
                "mcp-name: sql",
                "mcp-param-region: =?base64?ZXUK?="
            ]
        );
        assert_eq!(shown("tools/list", json!({})), ["mcp-protocol-version: 2026-07-28", "mcp-method: tools/list"]);
    }
}
