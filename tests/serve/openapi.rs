//! `/openapi.json`: the document that is kept, and the routes that are there.

use serde_json::{Value as Json, json};

use crate::described::{kept, text};
use crate::project::{FINE, Project};
use crate::site::Site;

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
