//! The files of a workspace.

use std::os::unix::fs::symlink;

use serde_json::{Value as Json, json};

use crate::project::{FINE, Project};
use crate::site::{Site, problem};

#[test]
fn files_are_under_the_policy_of_the_project() {
    let site = Site::open();
    let project = Project::with_script(FINE).policy("sandbox: { fs: { read: [docs, notes], write: [notes] } }\n");
    let acme = site.tenant("acme", &project);
    let put = |path: &str| site.ask(&acme.key, &format!("PUT /v1/files/{path}"), &json!("text"));
    assert_eq!(put("notes/a.md").json(), json!({"path": "notes/a.md", "bytes": 6}));
    let denied = put("docs/a.md");
    assert_eq!(problem(&denied), (403, "denied".to_owned()));
    assert!(denied.json()["hint"].as_str().unwrap().contains("sandbox.fs.write"), "{denied:?}");
    let read = site.get(&acme.key, "/v1/files/notes/a.md");
    assert_eq!((read.status, read.body.as_str()), (200, "\"text\""));
    assert_eq!(read.header("content-type"), "application/octet-stream");
    assert_eq!(site.get(&acme.key, "/v1/files").json(), json!({"files": ["notes", "notes/a.md"]}));
    assert_eq!(problem(&site.get(&acme.key, "/v1/files/notes/b.md")), (404, "not_found".to_owned()));
    assert_eq!(problem(&site.get(&acme.key, "/v1/files/secret.md")), (403, "denied".to_owned()));
    assert_eq!(site.ask(&acme.key, "DELETE /v1/files/notes/a.md", &Json::Null).status, 200);
    assert_eq!(site.get(&acme.key, "/v1/files").json(), json!({"files": ["notes"]}));
}

#[test]
fn no_path_and_no_link_leads_out() {
    let site = Site::open();
    let acme = site.tenant("acme", &Project::with_script(FINE));
    let other = site.tenant("other", &Project::with_script(FINE));
    assert_eq!(site.ask(&other.key, "PUT /v1/files/secret", &json!("of other")).status, 200);
    let secret = site.data().join("tenants/other/workspace/secret");
    // A link that somebody got into the workspace.
    symlink(&secret, site.data().join("tenants/acme/workspace/link")).unwrap();
    symlink(secret.parent().unwrap(), site.data().join("tenants/acme/workspace/folder")).unwrap();
    std::fs::hard_link(site.data().join("admin.key"), site.data().join("tenants/acme/workspace/plain")).unwrap();
    for path in [
        "../../other/workspace/secret",
        "..%2F..%2Fother%2Fworkspace%2Fsecret",
        "%2e%2e/%2e%2e/other/workspace/secret",
        "link",
        "folder/secret",
        "/etc/passwd",
        "%2Fetc%2Fpasswd",
        "a%00b",
        ".harness/harness.md",
        "../project/.harness/tools/it.md",
    ] {
        let reply = site.get(&acme.key, &format!("/v1/files/{path}"));
        assert!(
            reply.status >= 400 && !reply.body.contains("of other") && !reply.body.contains("root:"),
            "{path}: {reply:?}"
        );
        let written = site.ask(&acme.key, &format!("PUT /v1/files/{path}"), &json!("x"));
        assert!(written.status >= 400 || !path.contains(".."), "{path}: {written:?}");
    }
    let written = site.ask(&acme.key, "PUT /v1/files/plain", &json!("x"));
    assert_eq!(written.status, 403, "{written:?}");
    assert_eq!(site.get(&other.key, "/v1/files/secret").body, "\"of other\"");
    assert!(site.operator().starts_with("hk_"));
}

#[test]
fn a_workspace_has_a_quota() {
    let site = Site::with_config("classes: { default: { workspace_bytes: 100, workspace_files: 2 } }\n");
    let acme = site.tenant("acme", &Project::with_script(FINE));
    let put =
        |path: &str, length: usize| site.ask(&acme.key, &format!("PUT /v1/files/{path}"), &json!("x".repeat(length)));
    assert_eq!(put("a", 60).status, 200);
    let refused = put("b", 60);
    assert_eq!(problem(&refused), (507, "quota".to_owned()));
    assert_eq!(refused.json()["limit"], "workspace_bytes");
    assert_eq!(put("b", 10).status, 200);
    assert_eq!(put("c", 1).json()["limit"], "workspace_files");
    let text = [0xff, 0xfe];
    let mut request = format!(
        "PUT /v1/files/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {}\r\nContent-Length: 2\r\n\r\n",
        acme.key
    )
    .into_bytes();
    request.extend(text);
    let reply = crate::web::exchange(&mut site.connect(), &request);
    assert_eq!(problem(&reply), (422, "not_text".to_owned()));
}
