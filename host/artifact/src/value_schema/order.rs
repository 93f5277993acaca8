//! The order of keys, which means nothing in JSON: where objects are compared, both sides have their keys in one order.
//!
//! The crate that checks compares objects key by key. It counts on keys that are sorted, and here they are as written.

use serde_json::Value as Json;

/// A schema to check by, and whether it compares objects: `const` and `enum` that hold some, and `uniqueItems`.
pub(super) fn sorted(schema: &Json) -> (Json, bool) {
    let mut schema = schema.clone();
    let compares = sort(&mut schema);
    (schema, compares)
}

/// A value with all keys in order.
pub(super) fn of_keys(value: &Json) -> Json {
    let mut value = value.clone();
    value.sort_all_objects();
    value
}

fn sort(schema: &mut Json) -> bool {
    let mut compares = false;
    match schema {
        Json::Array(schemas) => schemas.iter_mut().for_each(|one| compares |= sort(one)),
        Json::Object(keywords) => {
            for (keyword, value) in keywords.iter_mut() {
                compares |= match keyword.as_str() {
                    "const" | "enum" => {
                        value.sort_all_objects();
                        holds_objects(value)
                    }
                    "uniqueItems" => *value == Json::Bool(true),
                    _ => sort(value),
                };
            }
        }
        _ => {}
    }
    compares
}

fn holds_objects(value: &Json) -> bool {
    match value {
        Json::Array(items) => items.iter().any(holds_objects),
        value => value.is_object(),
    }
}
