//! The audit log: search, the explanation of a refusal, and the dry run of the line that would allow it.

use serde_json::json;

use crate::site::Site;
use crate::visitor::{Visitor, agent, between};

#[test]
fn lines_are_found_by_outcome_tool_and_time() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent("", "done"));
    site.call(&acme.key, "it", json!({}));
    site.call(&acme.key, "reads", json!({"path": "out.txt"}));
    site.call(&acme.key, "it", json!({}));
    let mut auditor = Visitor::with(&site, &site.key("acme", "auditor"));
    let mut found = |query: &str| {
        let page = auditor.get(&format!("/dashboard/audit{query}")).body;
        (1..=3).filter(|at| page.contains(&format!("<a href=\"/dashboard/audit/{at}\">"))).collect::<Vec<_>>()
    };
    for (query, wanted) in [
        ("", vec![1, 2, 3]),
        ("?outcome=denied", vec![2]),
        ("?outcome=completed&tool=", vec![1, 3]),
        ("?tool=reads", vec![2]),
        ("?tool=read", vec![]),
        ("?from=2020-01-01T00:00&to=2099-01-01T00:00", vec![1, 2, 3]),
        ("?from=2099-01-01T00:00", vec![]),
        ("?to=2020-01-01T00:00", vec![]),
        ("?before=3", vec![1, 2]),
        ("?before=3&outcome=completed", vec![1]),
    ] {
        assert_eq!(found(query), wanted, "{query}");
    }
}

#[test]
fn older_lines_are_a_page_further() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent("", "done"));
    for _ in 0..103 {
        site.call(&acme.key, "it", json!({}));
    }
    let mut visitor = Visitor::with(&site, &acme.key);
    let page = visitor.get("/dashboard/audit?tool=it").body;
    let rows = |page: &str| page.matches("<a href=\"/dashboard/audit/").count();
    assert_eq!(rows(&page), 100);
    let next = between(&page, "<p><a href=\"", "\">Older lines").replace("&amp;", "&");
    assert_eq!(next, "/dashboard/audit?outcome=&tool=it&from=&to=&before=4");
    let page = visitor.get(&next).body;
    assert_eq!((rows(&page), page.contains("Older lines")), (3, false));
}

#[test]
fn a_refusal_names_the_line_that_would_allow_it_and_what_that_opens() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent("", "done"));
    assert_eq!(site.call(&acme.key, "reads", json!({"path": "notes/a.txt"})).json()["outcome"], "denied");
    let mut visitor = Visitor::with(&site, &site.key("acme", "auditor"));
    let page = visitor.get("/dashboard/audit/1").body;
    let yaml = between(&page, "The line that would allow it, in <code>", "</pre>");
    assert!(yaml.starts_with(".harness/harness.md"), "{yaml}");
    assert!(yaml.ends_with("sandbox:\n  fs:\n    read:\n      - &quot;notes/a.txt&quot;"), "{yaml}");
    assert!(page.contains("The policy of the project refuses it.") && !page.contains("What it would allow"), "{page}");
    let tried = visitor.send("/dashboard/audit/1", "/dashboard/audit/1/try", &[("refusal", "0")]);
    let news = between(&tried.body, "<h3>What it would allow</h3>", "</ul>");
    assert!(
        news.contains("<code>fs.read</code> for the tool asks, the tool it, the tool reads: reading `notes/a.txt`"),
        "{news}"
    );
    assert!(news.contains("before: reading `notes/a.txt` is not granted"), "{news}");
    // Nothing was changed by that.
    assert_eq!(site.call(&acme.key, "reads", json!({"path": "notes/a.txt"})).json()["outcome"], "denied");
    assert_eq!(visitor.send("/dashboard/audit/1", "/dashboard/audit/1/try", &[("refusal", "1")]).status, 404);
    // With the line the same call is made.
    let project = agent("", "done")
        .policy("model: { provider: script, script: replies.yaml }\nsandbox:\n  fs:\n    read: [docs, \"notes/a.txt\"]\n    write: []\n");
    assert_eq!(site.upload(&acme.key, &crate::site::archive(&project)).status, 200);
    assert_eq!(site.call(&acme.key, "reads", json!({"path": "notes/a.txt"})).json()["outcome"], "failed");
    let page = visitor.get("/dashboard/audit/1").body;
    assert!(page.contains("The policy that is in force now allows this to the tool."), "{page}");
}

#[test]
fn what_others_refuse_is_said_and_no_line_is_offered_for_it() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent("", "done"));
    let body = json!({"role": "caller", "label": "narrow", "policy": "fs: { read: [] }"});
    let narrow = site.ask(&acme.key, "POST /v1/keys", &body).json()["key"].as_str().unwrap().to_owned();
    let denied = |key: &str, path: &str| {
        assert_eq!(site.call(key, "reads", json!({"path": path})).json()["outcome"], "denied", "{path}");
    };
    denied(&narrow, "docs/a.txt");
    denied(&narrow, "notes/a.txt");
    denied(&acme.key, "../a.txt");
    let mut owner = Visitor::with(&site, &acme.key);
    let key = "the rules of the tenant or of the key refuse it";
    let page = owner.get("/dashboard/audit/1").body;
    assert!(
        page.contains(key) && page.contains("No line of the project can allow it.") && !page.contains("<h3>The line"),
        "{page}"
    );
    let page = owner.get("/dashboard/audit/2").body;
    assert!(
        page.contains(key) && page.contains("and so does what others set") && page.contains("<h3>The line"),
        "{page}"
    );
    let page = owner.get("/dashboard/audit/3").body;
    assert!(
        page.contains("the log does not say all of what was asked for") && !page.contains("<h3>The line"),
        "{page}"
    );
}

/// The host policy of a class is the operator's.
#[test]
fn a_line_is_not_offered_where_the_class_refuses() {
    let site = Site::open();
    let project =
        agent("", "done").tool("asks_host", "", "def run(args):\n    return http.get(\"https://api.example.org/x\")\n");
    let acme = site.tenant("acme", &project);
    assert_eq!(site.call(&acme.key, "asks_host", json!({})).json()["outcome"], "denied");
    let page = Visitor::with(&site, &acme.key).get("/dashboard/audit/1").body;
    assert!(page.contains("the host policy of the class refuses it, which the operator of the server sets"), "{page}");
    assert!(page.contains("http.send <code>GET https://api.example.org/x</code>"), "{page}");
}
