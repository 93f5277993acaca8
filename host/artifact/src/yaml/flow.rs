//! Values as YAML on one line.

use harness_policy::item::scalar;
use serde_json::Value as Json;

/// A value on one line, as people write YAML: without quotes where it needs none.
pub fn flow(value: &Json) -> String {
    match value {
        Json::Object(object) if object.is_empty() => "{}".to_owned(),
        Json::Object(object) => {
            let pairs = object.iter().map(|(key, value)| format!("{}: {}", scalar(key), flow(value)));
            format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
        }
        Json::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Json::String(text) => scalar(text),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::yaml;

    #[test]
    fn what_is_written_is_one_line_that_is_read() {
        let value = json!({"a": ["x", "no", "1"], "b-c": {}, "true": {"a: b": 1, "": null}, "d": "a\"\\\n\u{202e}# {"});
        let text = flow(&value);
        assert_eq!(
            text,
            "{ a: [x, \"no\", \"1\"], b-c: {}, \"true\": { \"a: b\": 1, \"\": null }, d: \"a\\\"\\\\\\n\\U0000202e# {\" }"
        );
        assert_eq!(yaml::parse(&text, 1).1, []);
    }
}
