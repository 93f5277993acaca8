use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::testing::{check, evaluate, fails};

/// What Starlark sees of a JSON text: its `repr`, with types that `repr` alone would not tell apart.
fn seen(text: &str) -> String {
    let json: Json = serde_json::from_str(text).unwrap();
    Heap::temp(|heap| match from_json(&json, heap) {
        Ok(value) => format!("{} {}", value.get_type(), value.to_repr()),
        Err(error) => error.to_string(),
    })
}

#[test]
fn json_numbers() {
    for (text, expected) in [
        ("0", "int 0"),
        ("-0", "int 0"),
        ("7", "int 7"),
        ("-2147483649", "int -2147483649"),
        ("9223372036854775807", "int 9223372036854775807"),
        ("9223372036854775808", "int 9223372036854775808"),
        ("-9223372036854775809", "int -9223372036854775809"),
        ("1234567890123456789012345678901234567890", "int 1234567890123456789012345678901234567890"),
        ("3.0", "int 3"),
        ("-3.000", "int -3"),
        ("0.0", "int 0"),
        ("-0.0", "int 0"),
        ("0e-7", "int 0"),
        ("0.0e99999999999999999999999999999999999999999", "int 0"),
        ("1e3", "int 1000"),
        ("1E+3", "int 1000"),
        ("1.5e1", "int 15"),
        ("1200e-2", "int 12"),
        ("1200e-3", "float 1.2"),
        ("1.25e1", "float 12.5"),
        ("9007199254740991.0", "int 9007199254740991"),
        ("-9007199254740991.0", "int -9007199254740991"),
        ("0.5", "float 0.5"),
        ("-1.5", "float -1.5"),
        // Rounded to a whole float, but not a whole number.
        ("4503599627370496.1", "float 4.5036e+15"),
        ("1e-400", "float 0.0"),
        ("1e-99999999999999999999999999999999999999999", "float 0.0"),
        // Whole, but floats are not exact there.
        ("9007199254740992.0", "float 9.0072e+15"),
        ("1e300", "float 1e+300"),
        ("1e308", "float 1e+308"),
        ("1e999", "number `1e+999` is out of range"),
        ("-1e309", "number `-1e+309` is out of range"),
        ("1e99999999999999999999", "number `1e+99999999999999999999` is out of range"),
    ] {
        let seen = seen(text);
        // The last digits of a float's `repr` are the interpreter's affair.
        if let ("float", Ok(wanted)) = (expected.split(' ').next().unwrap(), text.parse::<f64>()) {
            assert!(seen.starts_with("float "), "{text}: {seen}");
            Heap::temp(|heap| {
                let value = from_json(&serde_json::from_str(text).unwrap(), heap).unwrap();
                assert_eq!(value.downcast_ref::<StarlarkFloat>().unwrap().0, wanted, "{text}");
            });
        } else {
            assert_eq!(seen, expected, "{text}");
        }
    }
    let long = format!("{}e999", "1".repeat(500));
    assert_eq!(seen(&long), format!("number `{}` is out of range", "1".repeat(40)));
}

#[test]
fn json_structures_keep_their_order() {
    assert_eq!(seen("null"), "NoneType None");
    assert_eq!(seen("[true, false, null, \"a\\u00e9\"]"), "list [True, False, None, \"a\\xe9\"]");
    assert_eq!(seen("{\"b\": 1, \"a\": {\"z\": [], \"y\": {}}}"), "dict {\"b\": 1, \"a\": {\"z\": [], \"y\": {}}}");
}

#[test]
fn starlark_to_json() {
    for (program, expected) in [
        ("None", json!(null)),
        ("True", json!(true)),
        ("0", json!(0)),
        ("-5", json!(-5)),
        ("2147483648", json!(2_147_483_648_i64)),
        ("0.5", json!(0.5)),
        ("1.0", json!(1.0)),
        ("'\u{e9}\\n\"<&>'", json!("\u{e9}\n\"<&>")),
        ("[1, [2], (), (3,)]", json!([1, [2], [], [3]])),
        ("{'b': 1, 'a': {'x': None}}", json!({"b": 1, "a": {"x": null}})),
        ("set.new([2, 1, 2])", json!([2, 1])),
        ("{'s': set.new()}", json!({"s": []})),
    ] {
        assert_eq!(evaluate(program).as_ref(), Ok(&expected), "{program}");
    }
    let order: Json = evaluate("{'b': 1, 'a': 2, 'c': 3}").unwrap();
    assert_eq!(order.to_string(), r#"{"b":1,"a":2,"c":3}"#);
    assert_eq!(evaluate("1 << 100").unwrap().to_string(), "1267650600228229401496703205376");
    assert_eq!(evaluate("-(1 << 64)").unwrap().to_string(), "-18446744073709551616");
}

#[test]
fn not_json() {
    for (program, expected) in [
        ("len", "a value of type `function` cannot be told as JSON"),
        ("[lambda x: x]", "a value of type `function` cannot be told as JSON"),
        ("range(3)", "a value of type `range` cannot be told as JSON"),
        ("float('nan')", "NaN cannot be told as JSON"),
        ("[float('inf')]", "an infinity cannot be told as JSON"),
        ("{'a': -float('inf')}", "an infinity cannot be told as JSON"),
        ("{1: 2}", "a dict key must be a string to be told as JSON, got int"),
        ("{None: 2}", "a dict key must be a string to be told as JSON, got NoneType"),
        ("{('a',): 2}", "a dict key must be a string to be told as JSON, got tuple"),
        ("def f():\n  a = []\n  a.append(a)\n  return a\nf()", "nested deeper than 127 levels, or within itself"),
        ("def f():\n  a = {}\n  a['a'] = [a]\n  return a\nf()", "nested deeper than 127 levels, or within itself"),
        // 2^60 values in 60 lists.
        (
            "def f():\n  a = []\n  for i in range(60):\n    a = [a, a]\n  return a\nf()",
            "more than 33554432 bytes as JSON",
        ),
        ("['x' * 1048576] * 33", "more than 33554432 bytes as JSON"),
    ] {
        assert_eq!(evaluate(program), Err(expected.to_owned()), "{program}");
    }
}

#[test]
fn depth() {
    let nested =
        |levels: usize| format!("def f():\n  a = 1\n  for i in range({levels}):\n    a = [a]\n  return a\nf()");
    let deepest = evaluate(&nested(MAX_DEPTH)).unwrap().to_string();
    // The reader of the other side takes exactly that.
    assert!(serde_json::from_str::<Json>(&deepest).is_ok());
    assert!(serde_json::from_str::<Json>(&format!("[{deepest}]")).is_err());
    fails(&nested(MAX_DEPTH + 1), "nested deeper than 127 levels, or within itself");

    let mut json = json!(1);
    for _ in 0..MAX_DEPTH {
        json = json!([json]);
    }
    Heap::temp(|heap| assert!(from_json(&json, heap).is_ok()));
    let deeper = json!({ "a": json });
    Heap::temp(|heap| {
        let error = from_json(&deeper, heap).unwrap_err();
        assert_eq!(error.to_string(), "nested deeper than 127 levels, or within itself");
    });
}

#[test]
fn what_is_shared_is_not_a_cycle() {
    check("def f():\n  a = [1]\n  return [a, a, {'a': a}]\nf()", json!([[1], [1], {"a": [1]}]));
}

fn any_json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<i128>().prop_map(|n| Json::Number(n.to_string().parse().unwrap())),
        any::<f64>()
            .prop_filter("JSON has neither NaN nor infinities, and whole ones are ints", |f| {
                f.is_finite() && (f.fract() != 0.0 || f.abs() >= EXACT)
            })
            .prop_map(Json::from),
        ".{0,8}".prop_map(Json::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Json::from),
            prop::collection::vec((".{0,4}", inner), 0..6)
                .prop_map(|fields| Json::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn there_and_back(json in any_json()) {
        let back = Heap::temp(|heap| to_json(from_json(&json, heap).unwrap()).unwrap());
        prop_assert_eq!(back.to_string(), json.to_string());
    }

    #[test]
    fn any_number_text_is_read_or_refused(text in "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,25})?([eE][+-]?[0-9]{1,22})?") {
        let json: Json = serde_json::from_str(&text).unwrap();
        Heap::temp(|heap| {
            let float: f64 = text.parse().unwrap();
            match from_json(&json, heap) {
                Ok(value) if value.get_type() == "int" => assert_eq!(value.to_repr().parse::<f64>().unwrap(), float),
                Ok(value) => assert_eq!(value.downcast_ref::<StarlarkFloat>().unwrap().0, float),
                Err(_) => assert!(float.is_infinite()),
            }
        });
    }

    #[test]
    fn wholeness_is_that_of_the_exact_number(digits in 0_u64..100_000, point in 0_usize..6, exponent in -8_i32..8) {
        // digits / 10^point * 10^exponent, whole when the division leaves nothing.
        let text = format!("{digits:06}");
        let (whole, fraction) = text.split_at(6 - point);
        let whole = whole.trim_start_matches('0');
        let whole = if whole.is_empty() { "0" } else { whole };
        let text = if fraction.is_empty() { format!("{whole}e{exponent}") } else { format!("{whole}.{fraction}e{exponent}") };
        let shift = exponent - i32::try_from(point).unwrap();
        let expected = shift >= 0 || digits % 10_u64.pow(shift.unsigned_abs()) == 0;
        prop_assert_eq!(is_whole(&text), expected, "{}", text);
    }
}
