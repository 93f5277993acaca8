//! What is kept no longer: runs, their events, answered questions, and what is left of uploads.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::runs::agent;
use crate::site::{Site, problem};

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
