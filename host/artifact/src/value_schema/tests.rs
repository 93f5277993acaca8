use std::time::Instant;

use serde_json::json;

use super::*;

fn compiled(json: Json) -> ValueSchema {
    ValueSchema::compile(json).unwrap()
}

#[track_caller]
fn misfit(schema: &Json, value: &Json) -> String {
    compiled(schema.clone()).check(value).map_or_else(|misfit| misfit.to_string(), |()| "fits".to_owned())
}

#[test]
fn every_keyword_says_what_it_wants() {
    for (schema, value, said) in [
        (json!({"type": "integer"}), json!(1.5), "the value must be of type integer, found a fraction"),
        (json!({"type": "integer"}), json!("1"), "the value must be of type integer, found string"),
        (json!({"type": ["string", "null"]}), json!(1), "the value must be of type null or string, found number"),
        (json!({"enum": ["a", 2]}), json!("s3cr3t"), "the value must be one of \"a\", 2, found another string"),
        (json!({"const": "a"}), json!(1), "the value must be \"a\", found another number"),
        (json!({"minimum": 1}), json!(0), "the value must be at least 1"),
        (json!({"maximum": 1}), json!(2), "the value must be at most 1"),
        (json!({"exclusiveMinimum": 1}), json!(1), "the value must be more than 1"),
        (json!({"exclusiveMaximum": 1}), json!(1), "the value must be less than 1"),
        (json!({"multipleOf": 2}), json!(3), "the value must be a multiple of 2"),
        (json!({"minLength": 2}), json!("é"), "the value must have at least 2 characters"),
        (json!({"maxLength": 1}), json!("ab"), "the value must have at most 1 character"),
        (json!({"pattern": "^a+$"}), json!("b"), "the value must match the pattern `^a+$`"),
        (json!({"format": "date"}), json!("2026-13-01"), "the value must have the format `date`"),
        (json!({"format": "email"}), json!("x"), "the value must have the format `email`"),
        (json!({"minItems": 1}), json!([]), "the value must have at least 1 item"),
        (json!({"maxItems": 1}), json!([1, 2]), "the value must have at most 1 item"),
        (json!({"uniqueItems": true}), json!([1, 1]), "the value must not have an item twice"),
        (json!({"contains": {"type": "string"}}), json!([1]), "the value must have an item that fits `contains`"),
        (json!({"required": ["k"]}), json!({}), "the value must have the key \"k\""),
        (json!({"additionalProperties": false}), json!({"x": 1}), "the value must not have undeclared keys, found `x`"),
        (json!({"minProperties": 1}), json!({}), "the value must have at least 1 key"),
        (
            json!({"propertyNames": {"maxLength": 1}}),
            json!({"ab": 1}),
            "the value must have keys that fit `propertyNames`",
        ),
        (
            json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
            json!(1),
            "the value must fit a schema of `anyOf`, found number",
        ),
        (
            json!({"oneOf": [{"minimum": 1}, {"minimum": 2}]}),
            json!(3),
            "the value must fit one schema of `oneOf` alone",
        ),
        (json!({"not": {"type": "string"}}), json!("x"), "the value must not fit the schema of `not`"),
        (json!({"items": {"type": "string"}}), json!(["a", 1]), "`1` must be of type string, found number"),
        (
            json!({"properties": {"a": {"items": {"properties": {"n": {"minimum": 1}}}}}}),
            json!({"a": [{"n": 1}, {"n": 0}]}),
            "`a[1].n` must be at least 1",
        ),
        (
            json!({"$defs": {"n": {"minimum": 1}}, "properties": {"a": {"$ref": "#/$defs/n"}}}),
            json!({"a": 0}),
            "`a` must be at least 1",
        ),
        (json!({"prefixItems": [{"type": "string"}], "items": false}), json!(["a", 1]), "`1` must not be there"),
        (json!({"dependentRequired": {"a": ["b"]}}), json!({"a": 1}), "the value must have the key \"b\""),
        (
            json!({"if": {"required": ["a"]}, "then": {"required": ["b"]}}),
            json!({"a": 1}),
            "the value must have the key \"b\"",
        ),
        (json!(false), json!(1), "the value must not be there"),
        (
            json!({"properties": {"additionalProperties": false}}),
            json!({"additionalProperties": {"a": 1}}),
            "`additionalProperties` must not be there",
        ),
        (
            json!({"properties": {"a": {"additionalProperties": false}}}),
            json!({"a": {"x": {"y": 1}}}),
            "`a` must not have undeclared keys, found `x`",
        ),
    ] {
        assert_eq!(misfit(&schema, &value), said, "{schema} {value}");
    }
}

#[test]
fn numbers_of_any_size_are_compared() {
    let number = |text: &str| -> Json { serde_json::from_str(text).unwrap() };
    let schema = json!({"type": "integer", "minimum": number("123456789012345678901234567890"), "multipleOf": 10});
    assert_eq!(misfit(&schema, &number("123456789012345678901234567900")), "fits");
    assert_eq!(
        misfit(&schema, &number("123456789012345678901234567880")),
        "the value must be at least 123456789012345678901234567890"
    );
    assert_eq!(misfit(&schema, &number("123456789012345678901234567895")), "the value must be a multiple of 10");
    for (divisor, value, fits) in [
        ("7", "-700000000000000000000000000000000007", true),
        ("7", "700000000000000000000000000000000008", false),
        ("10", "1e30", true),
        ("3", "1.5E+1", true),
        ("3", "1e400", false),
        ("2", "4.5", false),
        ("0.5", "4.5", true),
        ("2", "4.0", true),
    ] {
        let schema = json!({"multipleOf": number(divisor)});
        assert_eq!(compiled(schema).check(&number(value)).is_ok(), fits, "{value} {divisor}");
    }
}

#[test]
fn what_is_no_schema_here() {
    let deep = (0..40).fold(json!({}), |inner, _| json!({"items": inner}));
    let alternatives = (0..10).fold(json!({}), |inner, _| json!({"anyOf": [inner, inner]}));
    // Each definition four times the one before: small as a text, and without an end when written out.
    let mut defs = serde_json::Map::new();
    for n in 0..12 {
        let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
        defs.insert(format!("d{n}"), json!({"allOf": [next, next, next, next]}));
    }
    defs.insert("d12".to_owned(), json!({}));
    let laughs = json!({"$defs": defs, "$ref": "#/$defs/d0"});
    let patterns: Json =
        (0..100).map(|n| json!({"pattern": format!("{n}{}", "a".repeat(1000))})).collect::<Vec<_>>().into();
    let heavy = "checking it would take too long: with all references written out it weighs over 20000 keywords";
    for (schema, why) in [
        (json!({"minimum": "x"}), "`minimum` must be of type number, found string"),
        (json!({"type": "text"}), "`type` must fit a schema of `anyOf`, found string"),
        (
            json!({"$ref": "https://example.com/s"}),
            "the reference `https://example.com/s` leaves the schema: references are local, such as `#/$defs/name`",
        ),
        (
            json!({"$ref": "other.json"}),
            "the reference `other.json` leaves the schema: references are local, such as `#/$defs/name`",
        ),
        (json!({"$ref": "#/$defs/x"}), "the reference `#/$defs/x` leads nowhere"),
        (json!({"$ref": "#"}), "the reference `#` leads back to itself, without an end"),
        (
            json!({"properties": {"a": {"$ref": "#/properties/a"}}}),
            "the reference `#/properties/a` leads back to itself, without an end",
        ),
        (json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}), "the reference `#` leads back to itself, without an end"),
        (
            json!({"$defs": {"a": {"$dynamicAnchor": "x", "not": {"$dynamicRef": "#x"}}}, "$ref": "#/$defs/a"}),
            "the reference `#x` leads back to itself, without an end",
        ),
        (json!({"$dynamicRef": "#x"}), "the reference `#x` leads nowhere"),
        (json!({"$ref": "#name"}), "the reference `#name` leads nowhere"),
        (
            json!({"$id": "https://example.com/a", "$ref": "b"}),
            "the reference `https://example.com/b` leaves the schema: references are local, such as `#/$defs/name`",
        ),
        (
            json!({"$schema": "http://json-schema.org/draft-07/schema#"}),
            "`$schema` must be `https://json-schema.org/draft/2020-12/schema`, found `http://json-schema.org/draft-07/schema#`",
        ),
        (json!({"$recursiveRef": "#"}), "`$recursiveRef` is of an older JSON Schema: write `$dynamicRef`"),
        (deep, "it has over 32 schemas within each other"),
        (alternatives, heavy),
        (laughs, heavy),
        (json!({"allOf": patterns}), "it is over 65536 bytes"),
        (json!({"pattern": "a".repeat(1025)}), "a pattern is over 1024 bytes"),
        (json!({"enum": (0..30_000).collect::<Vec<_>>()}), "it is over 65536 bytes"),
    ] {
        let short: String = schema.to_string().chars().take(100).collect();
        let begun = Instant::now();
        assert_eq!(ValueSchema::compile(schema).map(|_| ()), Err(why.to_owned()), "{short}");
        assert!(begun.elapsed().as_secs() < 60, "{short}");
    }
    // A look-ahead needs an engine that goes back.
    assert!(ValueSchema::compile(json!({"pattern": "(?=a)b"})).is_err());
    assert!(ValueSchema::compile(json!({"pattern": "((a{100}){100}){100}"})).is_err());
}

#[test]
fn what_is_too_much_to_check_is_refused() {
    let large = |n: u64| Json::from((0..n).collect::<Vec<_>>());
    let unique = compiled(json!({"uniqueItems": true}));
    assert_eq!(unique.check(&large(1000)), Ok(()));
    let too_large =
        Err(Misfit { at: String::new(), why: "must be smaller to be checked against its schema".to_owned() });
    assert_eq!(unique.check(&large(100_000)), too_large);
    assert_eq!(compiled(json!({"items": {"type": "integer"}})).check(&large(100_000)), Ok(()));
    let digits: Json = serde_json::from_str(&"9".repeat(1001)).unwrap();
    let long = Err(Misfit { at: String::new(), why: "must not hold a number of over 1000 digits".to_owned() });
    assert_eq!(compiled(json!({"minimum": 1})).check(&digits), long);
    // Patterns that make others go back take their time once.
    let text = json!("a".repeat(1 << 20));
    assert_eq!(misfit(&json!({"pattern": "^(a+)+$"}), &text), "fits");
    assert_eq!(misfit(&json!({"pattern": "^(a+)+b$"}), &text), "the value must match the pattern `^(a+)+b$`");
}

/// A tree of `left` and `right`, each of which may be null: the form that multiplies alternatives.
fn tree(depth: u32) -> Json {
    if depth == 0 { Json::Null } else { json!({"n": depth, "left": tree(depth - 1), "right": null}) }
}

#[test]
fn a_schema_may_refer_to_itself() {
    let or_null = |to: &str| json!({"anyOf": [{"$ref": to}, {"type": "null"}]});
    let node = json!({
        "type": "object",
        "properties": {"n": {"type": "integer"}, "left": or_null("#"), "right": or_null("#")},
        "required": ["n"],
        "additionalProperties": false,
    });
    assert_eq!(misfit(&node, &tree(60)), "fits");
    assert_eq!(
        misfit(&node, &json!({"n": 1, "left": {"n": "x"}})),
        "`left` must fit a schema of `anyOf`, found object"
    );
    let list = json!({"$defs": {"list": {"type": "array", "items": {"$ref": "#/$defs/list"}}}, "$ref": "#/$defs/list"});
    assert_eq!(misfit(&list, &json!([[], [[], [[]]]])), "fits");
    assert_eq!(misfit(&list, &json!([[], [[], [1]]])), "`1[1][0]` must be of type array, found number");
    // Two that refer to each other.
    let mutual = json!({
        "$defs": {
            "even": {"type": "object", "properties": {"next": {"$ref": "#/$defs/odd"}}, "additionalProperties": false},
            "odd": {"type": "object", "required": ["next"], "properties": {"next": {"$ref": "#/$defs/even"}}},
        },
        "$ref": "#/$defs/even",
    });
    assert_eq!(misfit(&mutual, &json!({"next": {"next": {}}})), "fits");
    assert_eq!(misfit(&mutual, &json!({"next": {}})), "`next` must have the key \"next\"");
}

#[test]
fn schemas_have_names() {
    let anchored = json!({"$defs": {"n": {"$anchor": "count", "minimum": 1}}, "properties": {"a": {"$ref": "#count"}}});
    assert_eq!(misfit(&anchored, &json!({"a": 0})), "`a` must be at least 1");
    let named = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "https://example.com/root",
        "$defs": {"n": {"$id": "number", "$defs": {"least": {"minimum": 1}}, "$ref": "#/$defs/least"}},
        "properties": {"a": {"$ref": "number"}, "b": {"$ref": "https://example.com/root#/$defs/n"}},
    });
    assert_eq!(misfit(&named, &json!({"a": 1, "b": 1})), "fits");
    assert_eq!(misfit(&named, &json!({"a": 0})), "`a` must be at least 1");
    assert_eq!(misfit(&named, &json!({"b": 0})), "`b` must be at least 1");
    // An `$id` counts once, also where a reference leads to it.
    let folder = json!({
        "$id": "https://example.com/base.json",
        "$ref": "nested/foo.json",
        "$defs": {
            "foo": {"$id": "nested/foo.json", "$ref": "./bar.json"},
            "bar": {"$id": "nested/bar.json", "minimum": 1},
        },
    });
    assert_eq!(misfit(&folder, &json!(0)), "the value must be at least 1");
    let escaped = json!({"$defs": {"a b/c": {"minimum": 1}}, "$ref": "#/$defs/a%20b~1c"});
    assert_eq!(misfit(&escaped, &json!(0)), "the value must be at least 1");
    // The outermost one with the anchor counts: a strict tree has strict children.
    let strict = json!({
        "$id": "https://example.com/strict-tree",
        "$dynamicAnchor": "node",
        "$ref": "tree",
        "unevaluatedProperties": false,
        "$defs": {"tree": {
            "$id": "tree",
            "$dynamicAnchor": "node",
            "type": "object",
            "properties": {"data": true, "children": {"type": "array", "items": {"$dynamicRef": "#node"}}},
        }},
    });
    assert_eq!(misfit(&strict, &json!({"children": [{"data": 1}]})), "fits");
    assert_eq!(
        misfit(&strict, &json!({"children": [{"daat": 1}]})),
        "`children[0]` must not have undeclared keys, found `daat`"
    );
}

/// What a schema that refers to itself takes is counted before it is checked, and bounded however it multiplies.
#[test]
fn rounds_have_bounds() {
    let too_large = "the value must be smaller to be checked against its schema";
    let list = json!({"items": {"$ref": "#"}});
    let deep = (0..100).fold(json!([]), |inner, _| json!([inner]));
    assert_eq!(misfit(&list, &deep), "fits");
    // Each level twice as much as the one before it.
    let twice = json!({"allOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]});
    assert_eq!(misfit(&twice, &(0..10).fold(json!([]), |inner, _| json!([inner]))), "fits");
    assert_eq!(misfit(&twice, &deep), too_large);
    let again = json!({"anyOf": [{"properties": {"a": {"$ref": "#"}}}], "unevaluatedProperties": {"$ref": "#"}});
    let deep_object = (0..100).fold(json!({}), |inner, _| json!({"a": inner}));
    assert_eq!(misfit(&again, &deep_object), too_large);
    let unique = json!({"items": {"$ref": "#"}, "uniqueItems": true});
    assert_eq!(misfit(&unique, &json!([(0..100_000).collect::<Vec<u32>>()])), too_large);
    // Many schemas for each value.
    let steps = (0..20).fold(json!({"items": {"$ref": "#"}}), |inner, _| json!({"allOf": [inner]}));
    assert_eq!(misfit(&steps, &deep), "the value must be nested less deeply to be checked against its schema");
    // As many schemas as there may be, in one round: it compiles, checks and ends on an ordinary stack.
    let mut defs = serde_json::Map::new();
    for n in 0..450 {
        defs.insert(format!("d{n}"), json!({"items": {"$ref": format!("#/$defs/d{}", (n + 1) % 450)}}));
    }
    let round = json!({"$defs": defs, "$ref": "#/$defs/d0"});
    assert_eq!(misfit(&round, &deep), "fits");
    let many: Vec<Json> = (0..1000).map(|_| json!({"items": {"$ref": "#"}})).collect();
    let refused = ValueSchema::compile(json!({"allOf": many})).unwrap_err();
    assert_eq!(refused, "it refers to itself and has over 1000 schemas");
}

/// The order of keys means nothing.
#[test]
fn objects_are_equal_whatever_the_order_of_their_keys() {
    let read = |text: &str| serde_json::from_str::<Json>(text).unwrap();
    let one = read(r#"{"a": 1, "b": {"c": 2, "d": [{"e": 1, "f": 2}]}}"#);
    let same = read(r#"{"b": {"d": [{"f": 2, "e": 1}], "c": 2}, "a": 1}"#);
    let other = read(r#"{"b": {"d": [{"f": 2, "e": 3}], "c": 2}, "a": 1}"#);
    for schema in [
        json!({"const": one}),
        json!({"enum": ["x", one]}),
        json!({"properties": {"const": {"items": {"const": [one]}}}, "not": {"const": other}}),
    ] {
        assert_eq!(misfit(&schema, &one), "fits", "{schema}");
        assert_eq!(misfit(&schema, &same), "fits", "{schema}");
        assert_ne!(misfit(&schema, &other), "fits", "{schema}");
    }
    let held = json!({"properties": {"const": {"items": {"const": [one]}}}});
    assert_eq!(misfit(&held, &json!({"const": [[same]]})), "fits");
    assert_ne!(misfit(&held, &json!({"const": [[other]]})), "fits");
    let unique = json!({"items": {"uniqueItems": true}});
    assert_eq!(misfit(&unique, &json!([[one, other]])), "fits");
    assert_eq!(misfit(&unique, &json!([[one, same]])), "`0` must not have an item twice");
    // What is shown stays as it was written.
    assert_eq!(compiled(json!({"const": same})).json().to_string(), format!(r#"{{"const":{same}}}"#));
}

#[test]
fn messages_are_short() {
    let names: Vec<String> = (0..500).map(|n| format!("a long name of an option {n}")).collect();
    let said = misfit(&json!({"enum": names}), &json!("x".repeat(100_000)));
    assert!(said.len() < 300, "{said}");
    let many: serde_json::Map<String, Json> = (0..1000).map(|n| (format!("k{n}"), json!(1))).collect();
    assert_eq!(
        misfit(&json!({"additionalProperties": false}), &many.into()),
        "the value must not have undeclared keys, found `k0`, `k1`, `k2` and more"
    );
}

#[test]
fn arrays_have_items() {
    let mut schema = json!({"type": "array", "properties": {"a": {"type": ["array", "null"]}, "b": {"type": "array", "items": {"type": "array"}}}});
    with_items(&mut schema);
    assert_eq!(
        schema,
        json!({"type": "array", "properties": {"a": {"type": ["array", "null"], "items": {}}, "b": {"type": "array", "items": {"type": "array", "items": {}}}}, "items": {}})
    );
}
