//! What a call of a server's tool gave, as the content that tools of the project give too.

use serde_json::{Map, Value as Json, json};

use crate::failure::Failure;

/// The result of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolResult {
    /// Blocks of content, with the keys that they have in the project. They are checked where they are taken.
    pub blocks: Vec<Json>,
    /// The value that came with them.
    pub structured: Option<Json>,
    /// Whether the tool says that it failed.
    pub is_error: bool,
}

impl ToolResult {
    /// Reads the result of `tools/call`.
    ///
    /// # Errors
    ///
    /// That it is none.
    pub(crate) fn read(result: &Json) -> Result<Self, Failure> {
        let wrong = |what: &str| Failure::Broken(format!("the server returned {what}"));
        let Some(object) = result.as_object() else { return Err(wrong("no object as the result of a call")) };
        match object.get("resultType").map(Json::as_str) {
            None | Some(Some("complete")) => {}
            Some(Some("input_required")) => return Err(wrong("a question, and nothing is asked for it")),
            Some(_) => return Err(wrong("a result of a type that is not known")),
        }
        let is_error = match object.get("isError") {
            None | Some(Json::Null | Json::Bool(false)) => false,
            Some(Json::Bool(true)) => true,
            Some(_) => return Err(wrong("an `isError` that is neither true nor false")),
        };
        let blocks = match object.get("content") {
            None | Some(Json::Null) => Vec::new(),
            Some(Json::Array(blocks)) => blocks.iter().map(block).collect(),
            Some(_) => return Err(wrong("a `content` that is no list")),
        };
        let structured = object.get("structuredContent").filter(|value| !value.is_null()).cloned();
        Ok(Self { blocks, structured, is_error })
    }
}

/// A block in the form of the project. What is none stays what it is, and is refused with the others that are none.
fn block(given: &Json) -> Json {
    let text = |of: &Json, key: &str| of.get(key).and_then(Json::as_str).map(str::to_owned);
    let mut block = Map::new();
    let mut put = |key: &str, value: Option<Json>| {
        if let Some(value) = value.filter(|value| !value.is_null()) {
            block.insert(key.to_owned(), value);
        }
    };
    let get = |of: &Json, key: &str| of.get(key).cloned();
    match given.get("type").and_then(Json::as_str) {
        Some("text") => {
            put("type", Some(json!("text")));
            put("text", get(given, "text"));
            let annotations = given.get("annotations").cloned().unwrap_or_default();
            put("audience", get(&annotations, "audience"));
            put("priority", get(&annotations, "priority"));
        }
        Some(kind @ ("image" | "audio")) => {
            put("type", Some(json!(kind)));
            put("mime", get(given, "mimeType"));
            put("data", get(given, "data"));
        }
        Some("resource") => {
            let resource = given.get("resource").cloned().unwrap_or_default();
            put("type", Some(json!("resource")));
            put("uri", get(&resource, "uri"));
            put("mime", get(&resource, "mimeType"));
            put("text", get(&resource, "text"));
            put("blob", get(&resource, "blob"));
        }
        Some("resource_link") => {
            put("type", Some(json!("link")));
            put("uri", get(given, "uri"));
            put("name", get(given, "name").or_else(|| get(given, "title")));
            put("description", get(given, "description"));
            put("mime", get(given, "mimeType"));
        }
        _ => {
            put("type", Some(json!("text")));
            let kind = text(given, "type").unwrap_or_default();
            put("text", Some(json!(format!("[content of the type {kind:?}, which is not known]"))));
        }
    }
    Json::Object(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_content_has_its_form() {
        let result = json!({
            "content": [
                {"type": "text", "text": "a", "annotations": {"audience": ["user"], "priority": 0.5}, "_meta": {}},
                {"type": "image", "data": "AA==", "mimeType": "image/png"},
                {"type": "audio", "data": "AA==", "mimeType": "audio/ogg"},
                {"type": "resource", "resource": {"uri": "a:b", "mimeType": "text/plain", "text": "x"}},
                {"type": "resource", "resource": {"uri": "a:b", "blob": "AA=="}},
                {"type": "resource_link", "uri": "a:b", "name": "n", "description": "d", "size": 3},
                {"type": "video"},
            ],
            "structuredContent": {"n": 1},
            "isError": false,
            "resultType": "complete",
        });
        let read = ToolResult::read(&result).unwrap();
        assert_eq!((read.structured, read.is_error), (Some(json!({"n": 1})), false));
        assert_eq!(
            json!(read.blocks),
            json!([
                {"type": "text", "text": "a", "audience": ["user"], "priority": 0.5},
                {"type": "image", "mime": "image/png", "data": "AA=="},
                {"type": "audio", "mime": "audio/ogg", "data": "AA=="},
                {"type": "resource", "uri": "a:b", "mime": "text/plain", "text": "x"},
                {"type": "resource", "uri": "a:b", "blob": "AA=="},
                {"type": "link", "uri": "a:b", "name": "n", "description": "d"},
                {"type": "text", "text": "[content of the type \"video\", which is not known]"},
            ])
        );
        let empty = ToolResult { blocks: Vec::new(), structured: None, is_error: true };
        assert_eq!(ToolResult::read(&json!({"isError": true})), Ok(empty));
    }

    #[test]
    fn what_is_no_result_is_refused() {
        for (result, what) in [
            (json!([]), "no object as the result of a call"),
            (json!({"resultType": "input_required"}), "a question, and nothing is asked for it"),
            (json!({"resultType": "task"}), "a result of a type that is not known"),
            (json!({"isError": 1}), "an `isError` that is neither true nor false"),
            (json!({"content": "text"}), "a `content` that is no list"),
        ] {
            assert_eq!(ToolResult::read(&result), Err(Failure::Broken(format!("the server returned {what}"))));
        }
    }
}
