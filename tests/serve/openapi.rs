//! `/openapi.json`: the document that is kept, the routes that are there, and answers as it describes them.

use std::sync::OnceLock;

use serde_json::{Value as Json, json};

use crate::project::{FINE, Project};
use crate::site::Site;
use crate::web::Reply;

/// The document in the repository.
fn kept() -> &'static Json {
    static KEPT: OnceLock<Json> = OnceLock::new();
    KEPT.get_or_init(|| serde_json::from_str(&text()).unwrap())
}

fn text() -> String {
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

#[test]
fn the_document_is_the_kept_one() {
    let site = Site::open();
    let served = site.get("", "/openapi.json");
    let given = serde_json::to_string_pretty(&served.json()).unwrap() + "\n";
    if std::env::var_os("HARNESS_BLESS").is_some() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        std::fs::write(root.join("docs/openapi.json"), given).unwrap();
        return;
    }
    assert_eq!(given, text(), "write `docs/openapi.json` anew: run this test with `HARNESS_BLESS=1`");
}

#[test]
fn each_path_has_the_methods_that_are_described_and_no_others() {
    let site = Site::open();
    let acme = site.tenant("acme", &Project::with_script(FINE));
    let paths = kept()["paths"].as_object().unwrap();
    assert!(paths.len() > 20, "{}", paths.len());
    for (template, methods) in paths {
        let path = template.replace("{path}", "a").replace("{name}", "A").replace("{id}", "none");
        for method in ["get", "post", "put", "delete", "patch"] {
            let line = format!("{} {path}", method.to_ascii_uppercase());
            let reply = site.ask(&acme.key, &line, &Json::Null);
            assert_eq!(reply.status == 405, methods.get(method).is_none(), "{line}: {reply:?}");
            assert!(!reply.body.contains("there is nothing at this path"), "{line}");
        }
    }
}

#[test]
fn an_operation_names_the_roles_that_may_ask_for_it() {
    let site = Site::open();
    let acme = site.tenant("acme", &Project::with_script(FINE));
    for role in ["owner", "developer", "approver", "auditor", "caller"] {
        let key = if role == "owner" { acme.key.clone() } else { site.key("acme", role) };
        for (template, methods) in kept()["paths"].as_object().unwrap() {
            let path = template.replace("{path}", "a").replace("{name}", "A").replace("{id}", "none");
            for (method, operation) in methods.as_object().unwrap() {
                let Some(roles) = operation["x-roles"].as_array() else { continue };
                let line = format!("{} {path}", method.to_ascii_uppercase());
                // What is sent is wrong: only the role decides between these two.
                let reply = site.ask(&key, &line, &json!({"wrong": 1}));
                let is_let_in = !reply.body.contains("problem:forbidden");
                assert_eq!(roles.contains(&json!(role)), is_let_in, "{role} {line}: {reply:?}");
            }
        }
    }
}
