//! The description of the interface that is kept, and answers as it describes them.

use std::sync::OnceLock;

use serde_json::Value as Json;

use crate::web::Reply;

/// The document in the repository.
pub(crate) fn kept() -> &'static Json {
    static KEPT: OnceLock<Json> = OnceLock::new();
    KEPT.get_or_init(|| serde_json::from_str(&text()).unwrap())
}

pub(crate) fn text() -> String {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    std::fs::read_to_string(root.join("docs/openapi.json")).unwrap()
}

/// The path of the document that a request is one of.
fn path_of(path: &str) -> Option<&'static str> {
    let path = path.split('?').next().unwrap();
    let fits = |template: &str| {
        let (of, parts): (Vec<&str>, Vec<&str>) = (template.split('/').collect(), path.split('/').collect());
        let is_file = template == "/v1/files/{path}" && path.starts_with("/v1/files/") && parts.len() > of.len();
        let fits = |(of, part): (&&str, &&str)| of == part || (of.starts_with('{') && !part.is_empty());
        is_file || (of.len() == parts.len() && of.iter().zip(&parts).all(fits))
    };
    // A path without parameters comes first.
    let mut all: Vec<&String> = kept()["paths"].as_object().unwrap().keys().collect();
    all.sort_by_key(|path| path.contains('{'));
    all.into_iter().find(|template| fits(template)).map(String::as_str)
}

/// That an answer is one which the document describes. `line` is the request line.
pub(crate) fn check(line: &str, reply: &Reply) {
    let (method, path) = line.split_once(' ').unwrap();
    if !path.starts_with("/v1/") {
        return;
    }
    let Some(template) = path_of(path) else {
        assert_eq!(reply.status, 404, "{line} is answered and not described: {reply:?}");
        return;
    };
    let operation = &kept()["paths"][template][method.to_ascii_lowercase()];
    if operation.is_null() {
        assert_eq!(reply.status, 405, "{line} is answered and not described: {reply:?}");
        return;
    }
    let answer = match &operation["responses"][reply.status.to_string()] {
        Json::Null => {
            assert!(reply.status >= 400, "{line}: {} is not described: {reply:?}", reply.status);
            &kept()["components"]["responses"]["Problem"]
        }
        answer => answer,
    };
    // One path has three forms.
    let kind = reply.header("content-type");
    if template == "/v1/sessions/{id}" && kind != "application/json" && reply.status == 200 {
        return;
    }
    let streams = line == "POST /v1/chat/completions" && kind == "text/event-stream";
    if streams {
        return;
    }
    let content = &answer["content"][&kind];
    assert!(content.is_object(), "{line}: {kind} is not described: {reply:?}");
    if !kind.ends_with("json") || kind.contains("ndjson") {
        return;
    }
    let mut schema = content["schema"].clone();
    schema["components"] = kept()["components"].clone();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let given = reply.json();
    let wrong: Vec<String> =
        validator.iter_errors(&given).map(|one| format!("{}: {one}", one.instance_path())).collect();
    assert!(wrong.is_empty(), "{line}: {wrong:#?}\n{given}");
}
