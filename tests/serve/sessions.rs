//! Sessions: their timelines, files and pages, further turns, and replays.

use serde_json::{Value as Json, json};

use crate::project::Project;
use crate::runs::agent;
use crate::site::{Site, Tenant, problem};

/// A session of one turn.
fn session(site: &Site, key: &str, input: &str) -> String {
    let run = site.begin(key, input);
    site.ended(key, &run)["session"].as_str().unwrap().to_owned()
}

fn acme(site: &Site) -> Tenant {
    site.tenant("acme", &agent(""))
}

#[test]
fn a_session_is_shown_as_a_timeline_a_file_and_a_page() {
    let site = Site::open();
    let acme = acme(&site);
    let id = session(&site, &acme.key, "do <i>so</i>");
    let listed = site.get(&acme.key, "/v1/sessions").json();
    let owner = acme.key.split('_').nth(1).unwrap();
    assert_eq!(listed, json!({"sessions": [{"id": id, "begun_by": owner, "workspace": "default"}], "next": null}));
    let shown = site.get(&acme.key, &format!("/v1/sessions/{id}")).json();
    assert_eq!((&shown["id"], &shown["timeline"]["totals"]["turns"]), (&json!(id), &json!(1)), "{shown}");
    let file = site.get(&acme.key, &format!("/v1/sessions/{id}.jsonl"));
    assert_eq!((file.status, file.header("content-type").as_str()), (200, "application/x-ndjson"));
    let written = site.data().join("tenants/acme/project/.harness/sessions").join(format!("{id}.jsonl"));
    assert_eq!(file.body, std::fs::read_to_string(written).unwrap());
    let page = site.get(&acme.key, &format!("/v1/sessions/{id}.html"));
    assert_eq!((page.status, page.header("content-type").as_str()), (200, "text/html; charset=utf-8"));
    let policy = page.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none';") && policy.ends_with("sandbox"), "{policy}");
    assert!(page.body.contains("do &lt;i&gt;so&lt;/i&gt;") && !page.body.contains("<i>so"), "{}", page.body);
    for other in ["none", "latest", &id[..8], &format!("{id}.txt"), &format!("{id}.html.jsonl"), "..%2Fhead"] {
        let reply = site.get(&acme.key, &format!("/v1/sessions/{other}"));
        assert_eq!(problem(&reply), (404, "not_found".to_owned()), "{other}");
    }
}

#[test]
fn a_further_turn_resumes_the_session_and_is_made_once() {
    let site = Site::open();
    let acme = acme(&site);
    let id = session(&site, &acme.key, "do it");
    let line = format!("POST /v1/sessions/{id}/turns");
    let key = [("Idempotency-Key", "turn-1")];
    let begun = site.ask_with(&acme.key, &line, &key, &json!({"input": "again"}));
    assert_eq!(begun.status, 202, "{begun:?}");
    let run = begun.json()["id"].as_str().unwrap().to_owned();
    let record = site.ended(&acme.key, &run);
    assert_eq!(record["result"]["answer"], "and again", "{record}");
    let next = site.get(&acme.key, &format!("/v1/sessions/{}", record["session"].as_str().unwrap())).json();
    assert_eq!(next["timeline"]["session"]["resumes"], json!(id), "{next}");
    let repeated = site.ask_with(&acme.key, &line, &key, &json!({"input": "again"}));
    assert_eq!(
        (repeated.json()["id"].as_str(), repeated.header("idempotency-replayed").as_str()),
        (Some(&*run), "true")
    );
    assert_eq!(site.get(&acme.key, "/v1/runs").json()["runs"].as_array().unwrap().len(), 2);
    // The key of a request is one of its path.
    let other = session(&site, &acme.key, "do it");
    let elsewhere = site.ask_with(&acme.key, &format!("POST /v1/sessions/{other}/turns"), &key, &json!({"input": "x"}));
    assert_eq!(elsewhere.status, 202, "{elsewhere:?}");
    for (body, why) in
        [(json!({}), "invalid"), (json!({"input": " "}), "invalid"), (json!({"input": "x", "y": 1}), "invalid")]
    {
        assert_eq!(problem(&site.ask(&acme.key, &line, &body)), (400, why.to_owned()), "{body}");
    }
    let none = site.ask(&acme.key, "POST /v1/sessions/none/turns", &json!({"input": "x"}));
    assert_eq!(problem(&none), (404, "not_found".to_owned()));
}

#[test]
fn a_replay_matches_until_the_project_is_another() {
    let site = Site::open();
    let acme = acme(&site);
    let id = session(&site, &acme.key, "do it");
    let lines = || site.get(&acme.key, "/v1/audit").body.lines().count();
    let used = || site.get(&acme.key, "/v1/usage").json()["budgets"][0]["used"].clone();
    let (before, calls) = (lines(), used().as_u64().unwrap());
    let replay = |key: &str| site.ask(key, &format!("POST /v1/sessions/{id}/replay"), &Json::Null);
    let same = replay(&acme.key).json();
    assert_eq!((&same["id"], &same["replay"]["same"]), (&json!(id), &json!(true)), "{same}");
    assert_eq!((&same["replay"]["compared"]["turns"], &same["replay"]["artifacts"]), (&json!(1), &json!([])), "{same}");
    // An auditor verifies; no call is made, and its work counts.
    assert_eq!(replay(&site.key("acme", "auditor")).json()["replay"]["same"], true);
    assert_eq!((lines(), used()), (before, json!(calls + 2)));
    let changed = agent("").tool("it", "", "def run(args):\n    return 'other'\n");
    assert_eq!(site.upload(&acme.key, &crate::site::archive(&changed)).status, 200);
    let other = replay(&acme.key).json();
    assert_eq!(other["replay"]["same"], false, "{other}");
    assert_eq!(other["replay"]["artifacts"][0]["change"], "changed", "{other}");
    let wrong = site.ask(&acme.key, &format!("POST /v1/sessions/{id}/replay"), &json!({"x": 1}));
    assert_eq!(problem(&wrong), (400, "invalid".to_owned()));
}

#[test]
fn a_replay_takes_the_room_of_a_run_and_of_a_budget() {
    let site = Site::with_config("classes: { default: { budgets: { calls_per_day: 2 } } }\n");
    let acme = acme(&site);
    let id = session(&site, &acme.key, "do it");
    let replay = || site.ask(&acme.key, &format!("POST /v1/sessions/{id}/replay"), &Json::Null);
    assert_eq!(replay().status, 200);
    assert_eq!(problem(&replay()), (429, "budget_exceeded".to_owned()));
}

#[test]
fn a_caller_sees_its_own_sessions_and_other_roles_all() {
    let site = Site::open();
    let acme = acme(&site);
    let [one, other] = ["caller", "caller"].map(|role| site.key("acme", role));
    let id = session(&site, &one, "do it");
    let paths = [format!("/v1/sessions/{id}"), format!("/v1/sessions/{id}.jsonl"), format!("/v1/sessions/{id}.html")];
    for path in &paths {
        assert_eq!(site.get(&one, path).status, 200, "{path}");
        assert_eq!(problem(&site.get(&other, path)), (404, "not_found".to_owned()), "{path}");
        for role in ["auditor", "approver", "developer"] {
            assert_eq!(site.get(&site.key("acme", role), path).status, 200, "{role} {path}");
        }
    }
    let ids = |key: &str| site.get(key, "/v1/sessions").json()["sessions"].as_array().unwrap().len();
    assert_eq!((ids(&one), ids(&other), ids(&acme.key)), (1, 0, 1));
    for line in [format!("POST /v1/sessions/{id}/replay"), format!("POST /v1/sessions/{id}/turns")] {
        let body = if line.ends_with("turns") { json!({"input": "x"}) } else { Json::Null };
        assert_eq!(problem(&site.ask(&other, &line, &body)), (404, "not_found".to_owned()), "{line}");
        assert!([200, 202].contains(&site.ask(&one, &line, &body).status), "{line}");
    }
    // An auditor reads, and begins nothing.
    let auditor = site.key("acme", "auditor");
    let turn = site.ask(&auditor, &format!("POST /v1/sessions/{id}/turns"), &json!({"input": "x"}));
    assert_eq!(problem(&turn), (403, "forbidden".to_owned()));
}

#[test]
fn pages_of_sessions_have_each_once() {
    let site = Site::open();
    let acme = acme(&site);
    let mut all: Vec<String> = (0..3).map(|_| session(&site, &acme.key, "do it")).collect();
    all.sort();
    let mut after = String::new();
    let mut found = Vec::new();
    loop {
        let page = site.get(&acme.key, &format!("/v1/sessions?limit=2{after}")).json();
        found.extend(page["sessions"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(found, all);
}

#[test]
fn a_project_without_sessions_has_none() {
    let site = Site::open();
    let acme = site.tenant("acme", &Project::with_script(crate::project::FINE));
    assert_eq!(site.get(&acme.key, "/v1/sessions").json(), json!({"sessions": [], "next": null}));
}
