//! `x-mcp-header` of a parameter: the header in which clients of the Model Context Protocol send an argument too, when
//! they call a tool over HTTP.
//!
//! Clients drop a tool with such a keyword that is not as the protocol wants it. So it is an error when the tool is
//! loaded.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json};

use harness_policy::text::quoted;

/// The keyword.
pub(super) const KEYWORD: &str = "x-mcp-header";
/// Types of arguments that a header can hold.
const TYPES: [&str; 3] = ["string", "integer", "boolean"];

/// Checks all that a schema of arguments has. An error says what is wrong with the first that is.
pub(super) fn check(schema: &Json) -> Result<(), String> {
    match schema {
        Json::Object(schema) => within(schema, "", true, &mut BTreeSet::new()),
        _ => Ok(()),
    }
}

/// An argument that is sent as a header too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamHeader {
    /// The keys that lead to it, from the arguments on.
    pub path: Vec<String>,
    /// What follows `Mcp-Param-` in the name of the header.
    pub name: String,
}

impl ParamHeader {
    /// The text of the argument; none where it is missing, null, or nothing that a header holds.
    pub fn value(&self, arguments: &Json) -> Option<String> {
        let value = self.path.iter().try_fold(arguments, |value, key| value.get(key))?;
        match value {
            Json::String(text) => Some(text.clone()),
            Json::Bool(truth) => Some(truth.to_string()),
            Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
                (Some(whole), ..) => Some(whole.to_string()),
                (_, Some(whole), _) => Some(whole.to_string()),
                (.., Some(float)) if float.fract() == 0.0 => Some(format!("{float:.0}")),
                _ => None,
            },
            Json::Null | Json::Array(_) | Json::Object(_) => None,
        }
    }
}

/// The headers of a schema of arguments, in its order.
///
/// # Errors
///
/// What is wrong with the first that is not as the protocol wants it.
pub(super) fn mirrored(schema: &Json) -> Result<Vec<ParamHeader>, String> {
    check(schema)?;
    let mut found = Vec::new();
    let mut waiting = vec![(Vec::new(), schema)];
    while let Some((path, schema)) = waiting.pop() {
        if let Some(name) = schema.get(KEYWORD).and_then(Json::as_str) {
            found.push(ParamHeader { path: path.clone(), name: name.to_owned() });
        }
        let properties = schema.get("properties").and_then(Json::as_object);
        for (key, property) in properties.into_iter().flatten().rev() {
            waiting.push((path.iter().chain([key]).cloned().collect(), property));
        }
    }
    Ok(found)
}

/// `is_reached` is whether only keys of objects lead here from the arguments.
fn within(schema: &Map<String, Json>, path: &str, is_reached: bool, seen: &mut BTreeSet<String>) -> Result<(), String> {
    if let Some(header) = schema.get(KEYWORD) {
        one(header, schema.get("type"), path, is_reached, seen)?;
    }
    for (word, value) in schema {
        match (word.as_str(), value) {
            ("properties", Json::Object(properties)) => {
                for (name, property) in properties {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    if let Json::Object(property) = property {
                        within(property, &path, is_reached, seen)?;
                    }
                }
            }
            // Values, and names of keys.
            ("const" | "default" | "dependentRequired" | "enum" | "examples", _) => {}
            ("$defs" | "dependentSchemas" | "patternProperties", Json::Object(schemas)) => {
                for schema in schemas.values().filter_map(Json::as_object) {
                    within(schema, path, false, seen)?;
                }
            }
            (_, Json::Object(schema)) => within(schema, path, false, seen)?,
            (_, Json::Array(schemas)) => {
                for schema in schemas.iter().filter_map(Json::as_object) {
                    within(schema, path, false, seen)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn one(
    header: &Json,
    kind: Option<&Json>,
    path: &str,
    is_reached: bool,
    seen: &mut BTreeSet<String>,
) -> Result<(), String> {
    let of = if path.is_empty() { format!("`{KEYWORD}`") } else { format!("`{KEYWORD}` of {}", quoted(path)) };
    if path.is_empty() || !is_reached {
        return Err(format!("{of}: only a parameter, or a key of one that is an object, can have a header"));
    }
    if !kind.and_then(Json::as_str).is_some_and(|kind| TYPES.contains(&kind)) {
        return Err(format!("{of}: the type must be {}", TYPES.join(", ")));
    }
    let Some(name) = header.as_str().filter(|name| is_token(name)) else {
        return Err(format!("{of} must be letters, digits and hyphens, which follow `Mcp-Param-` in the header"));
    };
    if !seen.insert(name.to_ascii_lowercase()) {
        return Err(format!("{of}: {} is the header of another parameter", quoted(name)));
    }
    Ok(())
}

/// A `token` of HTTP.
fn is_token(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checked(properties: Json) -> Result<(), String> {
        check(&json!({"type": "object", "properties": properties}))
    }

    #[test]
    fn texts_whole_numbers_and_truth_values_can_be_in_headers() {
        let inner = json!({"type": "object", "properties": {"zone": {"type": "string", "x-mcp-header": "Zone"}}});
        let fine = json!({
            "region": {"type": "string", "x-mcp-header": "Region"},
            "count": {"type": "integer", "x-mcp-header": "X_Count!"},
            "dry": {"type": "boolean", "x-mcp-header": "Dry"},
            "place": inner,
            "like": {"type": "object", "enum": [{"x-mcp-header": 1}]},
        });
        assert_eq!(checked(fine), Ok(()));
    }

    #[test]
    fn what_clients_would_drop_a_tool_for_is_an_error() {
        let only = ": only a parameter, or a key of one that is an object, can have a header";
        let token = " must be letters, digits and hyphens, which follow `Mcp-Param-` in the header";
        let header = |name: Json| json!({"a": {"type": "string", "x-mcp-header": name}});
        for (properties, want) in [
            (header(json!("")), format!("`x-mcp-header` of `a`{token}")),
            (header(json!("a b")), format!("`x-mcp-header` of `a`{token}")),
            (header(json!("a\r\nX: y")), format!("`x-mcp-header` of `a`{token}")),
            (header(json!("\u{e4}")), format!("`x-mcp-header` of `a`{token}")),
            (header(json!(1)), format!("`x-mcp-header` of `a`{token}")),
            (
                json!({"a": {"type": "number", "x-mcp-header": "A"}}),
                "`x-mcp-header` of `a`: the type must be string, integer, boolean".to_owned(),
            ),
            (
                json!({"a": {"enum": ["x"], "x-mcp-header": "A"}}),
                "`x-mcp-header` of `a`: the type must be string, integer, boolean".to_owned(),
            ),
            (
                json!({"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}}),
                "`x-mcp-header` of `b`: `a` is the header of another parameter".to_owned(),
            ),
            (
                json!({"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}}),
                format!("`x-mcp-header` of `a`{only}"),
            ),
            (
                json!({"a": {"anyOf": [{"type": "string", "x-mcp-header": "A"}]}}),
                format!("`x-mcp-header` of `a`{only}"),
            ),
        ] {
            assert_eq!(checked(properties.clone()), Err(want), "{properties}");
        }
        assert_eq!(check(&json!({"type": "string", "x-mcp-header": "A"})), Err(format!("`x-mcp-header`{only}")));
        let below = json!({"$defs": {"a": {"type": "string", "x-mcp-header": "A"}}});
        assert_eq!(check(&below), Err(format!("`x-mcp-header`{only}")));
    }

    #[test]
    fn arguments_are_texts_of_headers() {
        let inner = json!({"type": "object", "properties": {"zone": {"type": "string", "x-mcp-header": "Zone"}}});
        let schema = json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"}, "place": inner, "other": {"type": "string"},
            "n": {"type": "integer", "x-mcp-header": "N"}, "dry": {"type": "boolean", "x-mcp-header": "Dry"},
        }});
        let headers = mirrored(&schema).unwrap();
        let values = |arguments: &Json| -> Vec<String> {
            headers.iter().filter_map(|one| Some(format!("{}={}", one.name, one.value(arguments)?))).collect()
        };
        let all = json!({"region": "eu", "place": {"zone": "b"}, "n": -7, "dry": false, "other": "x"});
        assert_eq!(values(&all), ["Region=eu", "Zone=b", "N=-7", "Dry=false"]);
        let float: Json = serde_json::from_str(r#"{"n": 42.0, "region": null, "place": "x"}"#).unwrap();
        assert_eq!(values(&float), ["N=42"]);
        assert_eq!(values(&json!({"n": 1.5, "dry": [true]})), Vec::<String>::new());
        assert!(mirrored(&json!({"properties": {"a": {"type": "number", "x-mcp-header": "A"}}})).is_err());
    }
}
