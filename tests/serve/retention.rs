//! What is kept no longer: runs, their events, answered questions, and what is left of uploads.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::runs::agent;
use crate::site::{Site, problem};

#[test]
fn sessions_are_removed_where_the_class_says_so_and_no_run_needs_them() {
    let site = Site::with_config("classes: { default: {}, short: { retention: { sessions_days: 3 } } }\n");
    let (short, other) = (site.tenant_of("short", "short", &agent("")), site.tenant("other", &agent("")));
    let file = |site: &Site, tenant: &str, session: &str| {
        site.data().join(format!("tenants/{tenant}/project/.harness/sessions/{session}.jsonl"))
    };
    let day = Duration::from_secs(86_400);
    let age = |site: &Site, tenant: &str, session: &str, days: u32| {
        let file = std::fs::File::options().append(true).open(file(site, tenant, session)).unwrap();
        file.set_modified(std::time::SystemTime::now() - day * days).unwrap();
    };
    let session = |tenant: &crate::site::Tenant, body: &serde_json::Value| {
        let run = site.ask(&tenant.key, "POST /v1/runs", body).json();
        site.ended(&tenant.key, run["id"].as_str().unwrap())["session"].as_str().unwrap().to_owned()
    };
    let old = session(&short, &json!({"input": "do it"}));
    let young = session(&short, &json!({"input": "again"}));
    let others = session(&other, &json!({"input": "do it"}));
    let user = |text: &str| json!({"role": "user", "content": text});
    let chat = |site: &Site, messages: serde_json::Value| {
        let body = json!({"model": "agent", "messages": messages});
        let reply = site.ask(&short.key, "POST /v1/chat/completions", &body).json();
        let runs = site.get(&short.key, "/v1/runs").json()["runs"].as_array().unwrap().clone();
        (reply["choices"][0]["message"].clone(), runs.last().unwrap()["session"].as_str().unwrap().to_owned())
    };
    let (said, of_chat) = chat(&site, json!([user("hello")]));
    for (tenant, session, days) in
        [("short", &old, 4), ("short", &young, 2), ("short", &of_chat, 4), ("other", &others, 400)]
    {
        age(&site, tenant, session, days);
    }
    site.signal(Signal::TERM);
    let site = site.again();
    let status = |key: &str, session: &str| site.get(key, &format!("/v1/sessions/{session}")).status;
    let until = Instant::now() + Duration::from_secs(60);
    while status(&short.key, &old) != 404 || status(&short.key, &of_chat) != 404 {
        assert!(Instant::now() < until, "the sessions are still there");
        std::thread::yield_now();
    }
    assert!(!file(&site, "short", &old).exists() && !file(&site, "short", &of_chat).exists());
    assert_eq!((status(&short.key, &young), status(&other.key, &others)), (200, 200));
    let gone = site.ask(&short.key, "POST /v1/runs", &json!({"input": "more", "session": old}));
    assert_eq!(problem(&gone), (404, "not_found".to_owned()));
    // What was said there is now a text of the client's.
    let (_, next) = chat(&site, json!([user("hello"), said, user("more")]));
    let text = std::fs::read_to_string(file(&site, "short", &next)).unwrap();
    assert!(!text.contains("\"resumes\":\"") && text.contains("The client says that this was said before"), "{text}");
}

#[test]
fn a_session_that_a_run_works_on_stays() {
    let site = Site::with_config("classes: { default: { retention: { sessions_days: 0 } } }\n");
    let replies = "- text: ready\n- tool_calls: [{ name: it, args: {} }]\n- text: early\n";
    let project = agent("confirm: true\n").file("replies.yaml", replies);
    let acme = site.tenant("acme", &project);
    // One that nothing needs, and one that waits for an answer.
    let ended = site.begin(&acme.key, "Are you ready?");
    let gone = site.ended(&acme.key, &ended)["session"].clone();
    let waits = site.begin(&acme.key, "do it");
    site.event(&acme.key, &waits, "waiting");
    let session = site.get(&acme.key, "/v1/sessions").json()["sessions"][1]["id"].clone();
    let file = |session: &serde_json::Value| {
        site.data().join(format!("tenants/acme/project/.harness/sessions/{}.jsonl", session.as_str().unwrap()))
    };
    let removed = file(&gone);
    for path in [&file(&session), &removed] {
        let file = std::fs::File::options().append(true).open(path).unwrap();
        file.set_modified(std::time::SystemTime::now() - Duration::from_secs(3600)).unwrap();
    }
    let mut site = site;
    site.kill();
    let site = site.again();
    let until = Instant::now() + Duration::from_secs(60);
    while removed.exists() {
        assert!(Instant::now() < until, "the session is still there");
        std::thread::yield_now();
    }
    // The run has what it needs: it is continued, and asks again.
    let approvals = site.get(&acme.key, "/v1/approvals").json();
    let question = approvals["approvals"][0].clone();
    let line = format!("POST /v1/approvals/{}", question["id"].as_str().unwrap());
    let answer = json!({"answer": "yes", "args_digest": question["args_digest"]});
    assert_eq!(site.ask(&site.key("acme", "approver"), &line, &answer).status, 200);
    let ended = site.ended(&acme.key, &waits);
    assert_eq!((&ended["state"], &ended["result"]["answer"]), (&json!("completed"), &json!("ready")), "{ended}");
}

#[test]
fn what_has_ended_is_removed_when_the_class_keeps_it_no_longer() {
    let nothing = "retention: { runs_days: 0, approvals_days: 0 }";
    let site = Site::with_config(&format!("classes: {{ default: {{}}, short: {{ {nothing} }} }}\n"));
    let project = agent("confirm: true\n");
    let (short, other) = (site.tenant_of("short", "short", &project), site.tenant("other", &project));
    let mut runs = Vec::new();
    for tenant in [&short, &other] {
        let run = site.begin(&tenant.key, "do it");
        let waiting = site.event(&tenant.key, &run, "waiting");
        let answer = json!({"answer": "yes", "args_digest": waiting["args_digest"]});
        let line = format!("POST /v1/approvals/{}", waiting["approval"].as_str().unwrap());
        assert_eq!(site.ask(&site.key(&tenant.id, "approver"), &line, &answer).status, 200);
        let session = site.ended(&tenant.key, &run)["session"].as_str().unwrap().to_owned();
        runs.push((run, line, answer, session));
    }
    let left = site.data().join("tenants/short/incoming-0123456789abcdef/.harness");
    std::fs::create_dir_all(&left).unwrap();
    site.signal(Signal::TERM);
    let site = site.again();
    assert!(!left.parent().unwrap().exists() && site.data().join("tenants/short/project").exists());
    let status = |key: &str, run: &str| site.get(key, &format!("/v1/runs/{run}")).status;
    let until = Instant::now() + Duration::from_secs(60);
    while status(&short.key, &runs[0].0) != 404 {
        assert!(Instant::now() < until, "the run is still there");
        std::thread::yield_now();
    }
    let none = site.get(&short.key, &format!("/v1/runs/{}/events", runs[0].0));
    assert_eq!(problem(&none), (404, "not_found".to_owned()));
    assert_eq!(status(&other.key, &runs[1].0), 200);
    assert_eq!(site.events(&other.key, &runs[1].0, "").last().unwrap().1["type"], "end");
    // The answered question is gone too, and the other tenant's is there.
    let again = |at: usize, tenant: &str| {
        let approver = site.key(tenant, "approver");
        loop {
            let found = problem(&site.ask(&approver, &runs[at].1, &runs[at].2));
            if at == 1 || found.0 == 404 || Instant::now() > until {
                return found;
            }
        }
    };
    assert_eq!(again(0, "short"), (404, "not_found".to_owned()));
    assert_eq!(again(1, "other"), (409, "answered".to_owned()));
    // Sessions are part of the record, and stay.
    assert_eq!(site.get(&short.key, &format!("/v1/sessions/{}", runs[0].3)).status, 200);
}
