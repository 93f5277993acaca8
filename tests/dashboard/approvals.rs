//! Questions whether calls may be made, and their answers by form.

use serde_json::{Value as Json, json};

use crate::site::Site;
use crate::visitor::{Visitor, agent, between, refused};

/// A call that waits: its run, the approval and the digest of its arguments.
fn waits(site: &Site, key: &str, text: &str) -> (String, String, String) {
    let arguments = json!({"arguments": {"text": text}});
    let run = site.ask_with(key, "POST /v1/tools/asks/calls", &[("Prefer", "respond-async")], &arguments).json();
    let run = run["id"].as_str().unwrap().to_owned();
    let event = site.event(key, &run, "waiting");
    let text = |name: &str| event[name].as_str().unwrap().to_owned();
    (run, text("approval"), text("args_digest"))
}

#[test]
fn a_question_shows_exactly_what_will_run_and_is_answered_by_somebody_else() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent("", "done"));
    let (caller, approver) = (site.key("acme", "caller"), site.key("acme", "approver"));
    let mut visitor = Visitor::with(&site, &approver);
    assert!(visitor.get("/dashboard/approvals").body.contains("Nothing waits for an answer."));
    let (run, id, digest) = waits(&site, &caller, "ship it");
    let page = visitor.get("/dashboard/approvals").body;
    for part in [
        "<h2>asks</h2>",
        ".harness/tools/asks.md",
        &digest,
        "<pre tabindex=\"0\">{\n  &quot;text&quot;: &quot;ship it&quot;\n}</pre>",
        "caller of the tests",
        &format!("<a href=\"/dashboard/runs/{run}\">"),
    ] {
        assert!(page.contains(part), "{part} {page}");
    }
    let to = format!("/dashboard/approvals/{id}");
    let answer = |visitor: &mut Visitor, answer: &str, digest: &str| {
        visitor.send("/dashboard/approvals", &to, &[("answer", answer), ("args_digest", digest)])
    };
    for (word, of, status) in
        [("yes", "sha256:0", 422), ("yes", "", 422), ("maybe", &*digest, 400), ("", &*digest, 400)]
    {
        assert_eq!(answer(&mut visitor, word, of).status, status, "{word} {of}");
    }
    let reply = answer(&mut visitor, "yes", &digest);
    assert_eq!((reply.status, reply.header("location")), (303, format!("/dashboard/runs/{run}")));
    assert_eq!(site.ended(&caller, &run)["state"], "completed");
    // The first answer counts.
    let late = visitor.send("/dashboard", &to, &[("answer", "no"), ("args_digest", &digest)]);
    assert_eq!(refused(&late), (409, "it was answered already".to_owned()));
    let (run, id, digest) = waits(&site, &caller, "again");
    let to = format!("/dashboard/approvals/{id}");
    assert_eq!(visitor.send("/dashboard/approvals", &to, &[("answer", "no"), ("args_digest", &digest)]).status, 303);
    assert_eq!(site.ended(&caller, &run)["state"], "denied");
    drop(acme);
}

#[test]
fn nobody_approves_a_call_of_their_own() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent("", "done"));
    let (run, id, digest) = waits(&site, &acme.key, "mine");
    let mut owner = Visitor::with(&site, &acme.key);
    let page = owner.get("/dashboard/approvals").body;
    assert!(page.contains("Nobody approves a call of their own.") && !page.contains("Run it with"), "{page}");
    let to = format!("/dashboard/approvals/{id}");
    let fields = [("answer", "yes"), ("args_digest", digest.as_str())];
    assert_eq!(
        refused(&owner.send("/dashboard", &to, &fields)),
        (403, "nobody approves a call of their own".to_owned())
    );
    // Nor does a role that approves nothing, with a form that it made itself.
    let mut developer = Visitor::with(&site, &site.key("acme", "developer"));
    assert_eq!(developer.send("/dashboard", &to, &fields).status, 403);
    assert_eq!(site.get(&acme.key, &format!("/v1/runs/{run}")).json()["state"], "running");
    let mut other = Visitor::with(&site, &site.key("acme", "owner"));
    assert_eq!(other.send("/dashboard", &to, &fields).status, 303);
    assert_eq!(site.ended(&acme.key, &run)["state"], "completed");
}

#[test]
fn the_overview_counts_what_waits() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent("", "done"));
    let (_, _, _) = waits(&site, &acme.key, "x");
    let page = Visitor::with(&site, &site.key("acme", "approver")).get("/dashboard").body;
    assert_eq!(between(&page, "<a href=\"/dashboard/approvals\">", "</a>"), "Approvals");
    assert!(page.contains("<dt>Approvals waiting</dt><dd><a href=\"/dashboard/approvals\">1</a>"), "{page}");
    assert_ne!(site.get(&acme.key, "/v1/usage").json()["runs"]["under_way"], Json::from(0));
}
