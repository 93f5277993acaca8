//! Content of results as clients get it.

use harness_dispatch::blocks::{self, Block};
use rmcp::model::ContentBlock;
use serde_json::{Value as Json, json};

/// Blocks in the form of the protocol.
pub(crate) fn of(blocks: &[Block]) -> Vec<ContentBlock> {
    // What the protocol cannot say is said in words.
    let block =
        |block: &Block| serde_json::from_value(written(block)).unwrap_or_else(|_| ContentBlock::text(block.shown()));
    blocks.iter().map(block).collect()
}

fn written(block: &Block) -> Json {
    let mut json = blocks::as_json(std::slice::from_ref(block)).get_mut(0).map(Json::take).unwrap_or_default();
    let Some(object) = json.as_object_mut() else { return json };
    if let Some(mime) = object.shift_remove("mime") {
        object.insert("mimeType".to_owned(), mime);
    }
    match block {
        Block::Text { .. } => {
            let hints: serde_json::Map<_, _> = ["audience", "priority"]
                .into_iter()
                .filter_map(|key| Some((key.to_owned(), object.shift_remove(key)?)))
                .collect();
            if !hints.is_empty() {
                object.insert("annotations".to_owned(), hints.into());
            }
        }
        Block::Image { .. } | Block::Audio { .. } => {}
        Block::Resource { .. } => {
            object.shift_remove("type");
            return json!({"type": "resource", "resource": object});
        }
        Block::Link { .. } => drop(object.insert("type".to_owned(), "resource_link".into())),
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_the_form_of_the_protocol() {
        let blocks: Vec<Block> = serde_json::from_value(json!([
            {"type": "text", "text": "a"},
            {"type": "text", "text": "b", "audience": ["user"], "priority": 0.5},
            {"type": "image", "mime": "image/png", "data": "AA=="},
            {"type": "audio", "mime": "audio/wav", "data": "AA=="},
            {"type": "resource", "uri": "a:b", "mime": "text/plain", "text": "x"},
            {"type": "resource", "uri": "a:c", "blob": "AA=="},
            {"type": "link", "uri": "a:d", "name": "n", "description": "d", "mime": "a/b"},
        ]))
        .unwrap();
        assert_eq!(
            serde_json::to_value(of(&blocks)).unwrap(),
            json!([
                {"type": "text", "text": "a"},
                {"type": "text", "text": "b", "annotations": {"audience": ["user"], "priority": 0.5}},
                {"type": "image", "mimeType": "image/png", "data": "AA=="},
                {"type": "audio", "mimeType": "audio/wav", "data": "AA=="},
                {"type": "resource", "resource": {"uri": "a:b", "mimeType": "text/plain", "text": "x"}},
                {"type": "resource", "resource": {"uri": "a:c", "blob": "AA=="}},
                {"type": "resource_link", "uri": "a:d", "name": "n", "description": "d", "mimeType": "a/b"},
            ])
        );
    }
}
