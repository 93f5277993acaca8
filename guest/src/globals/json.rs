//! `json.encode`, `json.decode`.

use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::{Heap, Value};

use super::argument;
use crate::observe::pure;
use crate::value;

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    builder.namespace("json", |space| pure(space, "json", functions));
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// The value as JSON on one line: fields in their own order, nothing escaped that JSON does not ask for.
    fn encode<'v>(val: Value<'v>) -> anyhow::Result<String> {
        let json = value::to_json(val).map_err(|error| anyhow::anyhow!("json.encode: {error}"))?;
        Ok(json.to_string())
    }

    /// The value of a JSON text. Whole numbers are ints, whatever their size, other numbers floats. Of two fields
    /// with one name the later one counts.
    fn decode<'v>(s: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        let text = argument::text("json.decode", "s", s)?;
        read(text, heap).map_err(|error| anyhow::anyhow!("json.decode: {error}"))
    }
}

/// What `json.decode` reads. Nesting is bounded by the parser.
pub(crate) fn read<'v>(text: &str, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    value::from_json(&serde_json::from_str(text)?, heap)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use crate::testing::{check_all, evaluate, fail_all};

    #[test]
    fn encode() {
        check_all([
            ("json.encode(None)", json!("null")),
            ("json.encode(val = [1, 2.5, 'x', True])", json!("[1,2.5,\"x\",true]")),
            ("json.encode({'z': 1, 'a': {'y': (), 'b': []}})", json!(r#"{"z":1,"a":{"y":[],"b":[]}}"#)),
            ("json.encode('<b> & \u{e9} \u{2028} \\t \"')", json!("\"<b> & \u{e9} \u{2028} \\t \\\"\"")),
            ("json.encode(1 << 70)", json!("1180591620717411303424")),
            ("json.encode(3.0)", json!("3.0")),
            ("json.encode(set.new(['b', 'a', 'b']))", json!("[\"b\",\"a\"]")),
        ]);
        fail_all([
            ("json.encode(len)", "json.encode: a value of type `function` cannot be told as JSON"),
            ("json.encode({1: 1})", "json.encode: a dict key must be a string to be told as JSON, got int"),
            ("json.encode(float('nan'))", "json.encode: NaN cannot be told as JSON"),
        ]);
    }

    #[test]
    fn decode() {
        check_all([
            ("json.decode('null')", json!(null)),
            ("json.decode(s = ' [1, 2.5, \"\\\\u00e9\", true, {}] ')", json!([1, 2.5, "\u{e9}", true, {}])),
            ("[type(x) for x in json.decode('[1, 1.0, 1e3, 1.5]')]", json!(["int", "int", "int", "float"])),
            ("json.decode('123456789012345678901234567890') + 1 == 123456789012345678901234567891", json!(true)),
            ("json.decode('{\"b\": 1, \"a\": 2}').keys()", json!(["b", "a"])),
            ("json.decode('{\"a\": 1, \"a\": 2}')", json!({"a": 2})),
            ("json.decode(json.encode({'a': [1, None, 'x']})) == {'a': [1, None, 'x']}", json!(true)),
            ("len(json.decode('[' * 127 + ']' * 127))", json!(1)),
        ]);
        fail_all([
            ("json.decode('')", "json.decode: EOF while parsing a value at line 1 column 0"),
            ("json.decode('{')", "json.decode: EOF while parsing an object at line 1 column 1"),
            ("json.decode('nan')", "json.decode: expected ident at line 1 column 2"),
            ("json.decode('1 2')", "json.decode: trailing characters at line 1 column 3"),
            ("json.decode('[1e999]')", "json.decode: number `1e+999` is out of range"),
            ("json.decode('-1e400')", "json.decode: number `-1e+400` is out of range"),
            ("json.decode(1)", "json.decode: s must be a string, got int"),
            ("json.decode(None)", "json.decode: s must be a string, got NoneType"),
        ]);
        let deep = evaluate("json.decode('[' * 128 + ']' * 128)").unwrap_err();
        assert_eq!(deep, "json.decode: recursion limit exceeded at line 1 column 128");
    }

    proptest! {
        #[test]
        fn no_text_stops_the_reader(text in "[\\[\\]{}:,\"0-9eE.+\\-a-z ]{0,40}") {
            let read = serde_json::from_str::<serde_json::Value>(&text);
            match evaluate(&format!("json.decode({})", json!(text))) {
                Ok(_) => prop_assert!(read.is_ok()),
                Err(error) => {
                    prop_assert!(error.starts_with("json.decode: "), "{}", error);
                    prop_assert!(read.is_err() || error.ends_with("is out of range"), "{}", error);
                }
            }
        }
    }
}
