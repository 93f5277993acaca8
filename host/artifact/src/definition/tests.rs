use proptest::prelude::*;
use serde_json::json;

use super::*;

fn here() -> Position {
    Position { file: "harness.lock".into(), line: 3, column: 1, length: 1 }
}

fn with(key: &str, value: Json) -> Json {
    let mut definition = json!({"name": "read", "inputSchema": {"type": "object"}});
    definition[key] = value;
    definition
}

#[test]
fn what_is_wrong_with_a_definition_is_said() {
    let deep = (0..MAX_DEPTH).fold(json!(1), |inner, _| json!([inner]));
    let long = "x".repeat(MAX_BYTES);
    let many = vec![1; MAX_NODES];
    for (definition, why) in [
        (json!([]), "a definition is no object"),
        (json!({}), "a definition has no name"),
        (with("name", json!("a b")), "the name `a b` is not 1 to 128 of a-z, A-Z, 0-9, `_`, `-` and `.`"),
        (with("name", json!("r\u{435}ad")), "the name `r\u{435}ad` is not 1 to 128 of a-z, A-Z, 0-9, `_`, `-` and `.`"),
        (with("inputSchema", json!(null)), "the tool `read`: its `inputSchema` is not the schema of an object"),
        (
            with("inputSchema", json!({"type": "string"})),
            "the tool `read`: its `inputSchema` is not the schema of an object",
        ),
        (with("description", json!(1)), "the tool `read`: its `description` is not text"),
        (with("description", json!("a\u{202e}b")), "the tool `read`: its definition has the hidden character U+202E"),
        (with("description", json!("a\u{e0041}")), "the tool `read`: its definition has the hidden character U+E0041"),
        (with("description", json!("\u{1b}[2J")), "the tool `read`: its definition has the hidden character U+001B"),
        (with("x\u{200b}", json!(1)), "the tool `read`: its definition has the hidden character U+200B"),
        (with("x", deep.clone()), "the tool `read`: its definition is deeper than 32 levels"),
        (with("x", json!(many)), "the tool `read`: its definition has more than 10000 values"),
        (with("x", json!(long)), "the tool `read`: its definition is over 262144 bytes"),
        (
            with("annotations", json!({"destructiveHint": "no"})),
            "the tool `read`: its `destructiveHint` is neither true nor false",
        ),
    ] {
        assert_eq!(Definition::read(definition).err().as_deref(), Some(why));
    }
    // The control of each bound.
    for definition in [
        with("x", deep[0].clone()),
        with("x", json!(vec![1; MAX_NODES - 6])),
        with("description", json!("a\n\tb")),
        with("name", json!("a-b.C_1")),
    ] {
        assert!(Definition::read(definition).is_ok());
    }
}

#[test]
fn a_definition_is_a_tool() {
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Where."},
            "mode": {"type": ["string", "null"], "enum": ["a", null]},
            "any": {},
            "never": false,
        },
        "required": ["path"],
        "additionalProperties": false,
    });
    let definition = json!({
        "name": "Read-File", "description": " Reads. ", "inputSchema": schema, "_meta": {"x": 1.50},
        "outputSchema": {"type": "object", "required": ["n"]}, "annotations": {"destructiveHint": true, "readOnlyHint": true},
    });
    let tool = Definition::read(definition).unwrap().tool("files", Transport::Stdio, &here()).unwrap();
    assert_eq!((tool.name.as_str(), tool.description.as_str()), ("files_read_file", "Reads."));
    let served = Served {
        server: "files".to_owned(),
        tool: "Read-File".to_owned(),
        transport: Transport::Stdio,
        is_destructive: true,
    };
    assert_eq!((tool.served.as_ref(), *tool.confirm, tool.source_name.as_str()), (Some(&served), true, "mcp/files"));
    assert_eq!(
        tool.json_schema(),
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Where."},
                "mode": {"type": ["string", "null"], "enum": ["a", null]},
                "any": {},
                "never": {"not": {}},
            },
            "required": ["path"],
            "additionalProperties": false,
        })
    );
    let check = |arguments: Json| tool.check_arguments(&arguments).map_err(|errors| errors[0].to_string());
    assert_eq!(check(json!({"path": "x", "mode": null, "any": [1]})), Ok(()));
    assert_eq!(check(json!({})), Err("the argument `path` (string) is missing".to_owned()));
    assert!(check(json!({"path": "x", "never": 1})).is_err() && check(json!({"path": "x", "mode": "b"})).is_err());
    assert!(check(json!({"path": "x", "other": 1})).is_err());
    assert!(tool.check_result(&json!({"n": 1})).is_ok() && tool.check_result(&json!({})).is_err());
}

#[test]
fn what_cannot_be_checked_is_no_tool() {
    for (schema, why) in [
        (json!({"type": "object", "$schema": "https://a.example/x"}), "the dialect"),
        (json!({"type": "object", "$ref": "https://a.example/x"}), ""),
        (json!({"type": "object", "properties": {"a": {"pattern": "("}}}), ""),
    ] {
        let found = Definition::read(with("inputSchema", schema.clone())).unwrap().tool("s", Transport::Http, &here());
        let found = found.err().unwrap_or_else(|| panic!("{schema}"));
        assert!(found.starts_with("the tool `read`: `inputSchema`: ") && found.contains(why), "{found}");
    }
}

#[test]
fn hints_of_an_untrusted_server_only_tighten() {
    let confirms = |annotations: Json| {
        let tool =
            Definition::read(with("annotations", annotations)).unwrap().tool("s", Transport::Http, &here()).unwrap();
        *tool.confirm
    };
    assert!(
        confirms(json!({"destructiveHint": true})) && confirms(json!({"destructiveHint": true, "readOnlyHint": true}))
    );
    assert!(!confirms(json!({"destructiveHint": false})) && !confirms(json!(null)) && !confirms(json!({})));
}

#[test]
fn names_fit_and_are_distinct() {
    assert_eq!(fitted("github", "create_issue"), "github_create_issue");
    assert_eq!(fitted("a", "Get.User-2"), "a_get_user_2");
    let (one, other) = (fitted("server", &"x".repeat(60)), fitted("server", &"x".repeat(61)));
    // `printf %060d 0 | tr 0 x | sha256sum`, and with one more.
    assert_eq!(one, format!("server_{}_42f2d973", "x".repeat(24)));
    assert_eq!(other, format!("server_{}_c508e75f", "x".repeat(24)));
    let all = |names: &[&str]| {
        let read = |name: &&str| Definition::read(with("name", json!(name))).unwrap();
        distinct("s", &names.iter().map(read).collect::<Vec<_>>())
    };
    assert_eq!(all(&["a", "b", "read_file", "read_files"]), Ok(()));
    assert_eq!(all(&["a", "b", "a"]), Err("it has two tools of the name `a`".to_owned()));
    for (one, other) in [("a", "A"), ("a-b", "a_b"), ("read_file", "read_fi1e"), ("modern", "modem")] {
        let why = format!("the names `{one}` and `{other}` of its tools cannot be distinguished");
        assert_eq!(all(&[one, other]), Err(why));
    }
    let many: Vec<String> = (0..=MAX_TOOLS).map(|n| format!("t{n}x")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(all(&many), Err("it has more than 1000 tools".to_owned()));
}

fn any_json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        "[a-z]{0,3}".prop_map(Json::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            prop::collection::vec(("[a-z]{0,2}", inner), 0..4)
                .prop_map(|entries| Json::Object(entries.into_iter().collect())),
        ]
    })
}

/// The same value with the keys of each object in another order.
fn reversed(value: &Json) -> Json {
    match value {
        Json::Object(object) => {
            Json::Object(object.iter().rev().map(|(key, value)| (key.clone(), reversed(value))).collect())
        }
        Json::Array(items) => items.iter().map(reversed).collect(),
        other => other.clone(),
    }
}

proptest! {
    /// Two values are one exactly where they have one form, however their keys are ordered.
    #[test]
    fn the_form_is_one(one in any_json(), other in any_json()) {
        prop_assert_eq!(canonical(&one), canonical(&reversed(&one)));
        prop_assert_eq!(canonical(&one) == canonical(&other), one == other);
        prop_assert_eq!(serde_json::from_str::<Json>(&canonical(&one)).unwrap(), one);
    }
}
