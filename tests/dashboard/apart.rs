//! What one tenant tries on another by addresses and forms. Each request is made by a stranger, and by its owner as the
//! control.

use serde_json::json;

use crate::site::Site;
use crate::visitor::{Visitor, agent};

#[test]
fn nothing_of_another_tenant_can_be_named() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent("", "mark-answer"));
    let other = site.tenant("other", &agent("", "done"));
    assert_eq!(site.ask(&acme.key, "PUT /v1/secrets/MARK", &json!({"value": "x"})).status, 200);
    let run = site.begin(&acme.key, "mark-input");
    site.ended(&acme.key, &run);
    assert_eq!(site.call(&acme.key, "reads", json!({"path": "mark.txt"})).json()["outcome"], "denied");
    let caller = site.key("acme", "caller");
    let waiting = site
        .ask_with(
            &caller,
            "POST /v1/tools/asks/calls",
            &[("Prefer", "respond-async")],
            &json!({"arguments": {"text": "mark-argument"}}),
        )
        .json();
    let waiting = waiting["id"].as_str().unwrap().to_owned();
    let approval = site.event(&caller, &waiting, "waiting")["approval"].as_str().unwrap().to_owned();
    let digest =
        site.get(&acme.key, "/v1/approvals").json()["approvals"][0]["args_digest"].as_str().unwrap().to_owned();
    let mut owner = Visitor::with(&site, &acme.key);
    let mut stranger = Visitor::with(&site, &other.key);
    let token = stranger.token("/dashboard");
    let own = [("Origin", "http://localhost")];
    let spellings = |id: &str| {
        [
            id.to_owned(),
            format!("..%2F..%2Facme%2F{id}"),
            format!("acme%2F{id}"),
            format!("%2Facme%2F{id}"),
            format!("{id}%00"),
            format!("{id}%2F"),
            format!("{id}?tenant=acme"),
        ]
    };
    let mut tried = 0;
    let mut is_refused = |reply: &crate::web::Reply, what: &str| {
        assert!([400, 404].contains(&reply.status), "{what}: {reply:?}");
        assert!(!reply.body.contains("mark-"), "{what}: {reply:?}");
        tried += 1;
    };
    for id in spellings(&run).into_iter().chain(spellings(&waiting)) {
        for path in [format!("/dashboard/runs/{id}"), format!("/dashboard/runs/{id}/events")] {
            is_refused(&stranger.get(&path), &path);
        }
        let path = format!("/dashboard/runs/{id}/stop");
        is_refused(&stranger.post(&path, &own, &token, &[]), &path);
    }
    for id in spellings(&approval) {
        let path = format!("/dashboard/approvals/{id}");
        is_refused(&stranger.post(&path, &own, &token, &[("answer", "yes"), ("args_digest", &digest)]), &path);
    }
    for id in spellings(&caller[3..19]) {
        let path = format!("/dashboard/keys/{id}/remove");
        is_refused(&stranger.post(&path, &own, &token, &[]), &path);
    }
    for name in spellings("MARK") {
        let path = format!("/dashboard/secrets/{name}/remove");
        is_refused(&stranger.post(&path, &own, &token, &[]), &path);
    }
    // Lines of the audit log have numbers, and each tenant its own.
    for number in ["1", "2", "3", "acme%2F1", "..%2F1", "-1", "1e0"] {
        is_refused(&stranger.get(&format!("/dashboard/audit/{number}")), number);
        is_refused(
            &stranger.post(&format!("/dashboard/audit/{number}/try"), &own, &token, &[("refusal", "0")]),
            number,
        );
    }
    assert!(tried >= 75, "{tried}");
    for page in ["", "/runs?since=month", "/approvals", "/audit", "/project", "/keys", "/secrets"] {
        let reply = stranger.get(&format!("/dashboard{page}"));
        assert_eq!(reply.status, 200, "{page}");
        for mark in ["mark-", "MARK", "acme", &run, &waiting, &approval, &caller[3..19]] {
            assert!(!reply.body.contains(mark), "{mark} {page}: {}", reply.body);
        }
    }
    // Pages of the operator are not here.
    for path in ["/dashboard/tenants/acme", "/dashboard/tenants/other", "/dashboard/neighbours"] {
        assert_eq!(stranger.get(path).status, 404, "{path}");
    }
    // The controls: all of it is there for its owner.
    for (path, part) in [
        (format!("/dashboard/runs/{run}"), "mark-input"),
        (format!("/dashboard/runs/{run}"), "mark-answer"),
        ("/dashboard/approvals".to_owned(), "mark-argument"),
        ("/dashboard/audit?outcome=denied".to_owned(), "mark.txt"),
        ("/dashboard/keys".to_owned(), &caller[3..19]),
        ("/dashboard/secrets".to_owned(), "MARK"),
        ("/dashboard/audit/1".to_owned(), "Line 1"),
    ] {
        assert!(owner.get(&path).body.contains(part), "{path} {part}");
    }
    let path = format!("/dashboard/approvals/{approval}");
    let token = owner.token("/dashboard");
    assert_eq!(owner.post(&path, &own, &token, &[("answer", "no"), ("args_digest", &digest)]).status, 303);
    assert_eq!(site.ended(&acme.key, &waiting)["state"], "denied");
}

/// Requests to the pages count as those to the API do.
#[test]
fn the_rate_of_a_tenant_is_for_its_pages_too() {
    let config = "classes:\n  default: {}\n  slow:\n    requests: { per_minute: 1, burst: 8 }\n";
    let site = Site::with_config(config);
    let acme = site.tenant_of("acme", "slow", &agent("", "done"));
    let other = site.tenant("other", &agent("", "done"));
    let mut visitor = Visitor::with(&site, &acme.key);
    // One of the burst was the upload.
    let statuses: Vec<u16> = (0..8).map(|_| visitor.get("/dashboard/runs").status).collect();
    assert_eq!(statuses, [vec![200; 7], vec![429]].concat());
    let reply = visitor.get("/dashboard");
    assert!(reply.body.contains("over 1 requests in a minute") && reply.body.contains("the class `slow`"), "{reply:?}");
    assert!(!reply.header("retry-after").is_empty());
    assert_eq!(site.get(&acme.key, "/v1/tools").status, 429);
    assert_eq!(Visitor::with(&site, &other.key).get("/dashboard").status, 200);
}
