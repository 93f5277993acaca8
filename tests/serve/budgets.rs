//! What a tenant may use, and what happens then.

use serde_json::{Value as Json, json};

use crate::project::{FINE, Project};
use crate::site::{Site, problem};

fn site(class: &str) -> Site {
    Site::with_config(&format!("classes: {{ default: {{ {class} }} }}\n"))
}

#[test]
fn a_budget_of_calls_ends_exactly_and_is_another_tenants_no_concern() {
    let site = site("budgets: { calls_per_day: 5 }");
    let project = Project::with_script(FINE);
    let (acme, other) = (site.tenant("acme", &project), site.tenant("other", &project));
    for _ in 0..5 {
        assert_eq!(site.result(&acme.key, "it", json!({})), "fine");
    }
    let refused = site.call(&acme.key, "it", json!({}));
    assert_eq!(problem(&refused), (429, "budget_exceeded".to_owned()));
    let json = refused.json();
    assert_eq!((&json["limit"], &json["set_by"]), (&json!("calls_per_day"), &json!("the class of the tenant")));
    assert!(refused.header("retry-after").parse::<u64>().unwrap() <= 86_400);
    assert_eq!(site.result(&other.key, "it", json!({})), "fine");
    let used = |site: &Site, key: &str| site.get(key, "/v1/usage").json()["budgets"][0]["used"].clone();
    assert_eq!((used(&site, &acme.key), used(&site, &other.key)), (json!(5), json!(1)));
    // After an end in order it is what it was, and after a kill no less.
    site.signal(rustix::process::Signal::TERM);
    let mut site = site.again();
    assert_eq!(used(&site, &other.key), json!(1));
    assert_eq!(problem(&site.call(&acme.key, "it", json!({}))), (429, "budget_exceeded".to_owned()));
    site.kill();
    let site = site.again();
    assert_eq!(problem(&site.call(&acme.key, "it", json!({}))), (429, "budget_exceeded".to_owned()));
    assert!(used(&site, &other.key).as_u64().unwrap() >= 1);
}

/// Who never waits for an answer pays for the call all the same.
#[test]
fn calls_that_nobody_waits_for_are_counted() {
    let site = site("budgets: { calls_per_day: 2 }");
    let endless = "def run(args):\n    fs.write('began', 'x')\n    for _ in range(1 << 30):\n        pass\n";
    let project = Project::new().tool("endless", "timeout_ms: 600000\n", endless).tool("it", "", FINE);
    let acme = site.tenant("acme", &project);
    let began = site.data().join("tenants/acme/workspace/began");
    let used = || site.get(&acme.key, "/v1/usage").json()["budgets"][0]["used"].as_u64().unwrap();
    let until = |is_so: &dyn Fn() -> bool| {
        while !is_so() {
            std::thread::yield_now();
        }
    };
    let stream = site.stream(&acme.key, "POST /v1/tools/endless/calls", "", "{}");
    until(&|| began.exists());
    drop(stream);
    until(&|| used() == 1);
    std::fs::remove_file(&began).unwrap();
    let run = site.ask_with(&acme.key, "POST /v1/tools/endless/calls", &[("Prefer", "respond-async")], &json!({}));
    let run = run.json()["id"].as_str().unwrap().to_owned();
    until(&|| began.exists());
    assert_eq!(site.ask(&acme.key, &format!("DELETE /v1/runs/{run}"), &Json::Null).json()["state"], "stopped");
    assert_eq!(used(), 2);
    assert_eq!(problem(&site.call(&acme.key, "it", json!({}))), (429, "budget_exceeded".to_owned()));
}

#[test]
fn a_budget_of_fuel_lets_no_call_in_after_it_is_used_up() {
    let site = site("budgets: { fuel_per_day: 3000000 }");
    let work = "def run(args):\n    n = 0\n    for i in range(20000):\n        n += i\n    return n\n";
    let acme = site.tenant("acme", &Project::with_script(work));
    let (mut used, mut made) = (0, 0);
    let refused = loop {
        let reply = site.call(&acme.key, "it", json!({}));
        if reply.status != 200 {
            break reply;
        }
        made += 1;
        // What came before this call was less than there is.
        assert!(used < 3_000_000);
        used += reply.json()["usage"]["fuel"].as_u64().unwrap();
    };
    assert_eq!(problem(&refused), (429, "budget_exceeded".to_owned()));
    assert_eq!(refused.json()["limit"], "fuel_per_day");
    assert!(used >= 3_000_000 && made > 0, "{used} {made}");
}

#[test]
fn requests_are_counted_for_each_tenant() {
    let site = site("requests: { per_minute: 1, burst: 3 }");
    let project = Project::with_script(FINE);
    let (acme, other) = (site.tenant("acme", &project), site.tenant("other", &project));
    // The upload of the project was the first.
    let left: Vec<String> = (0..2).map(|_| site.get(&acme.key, "/v1/tools").header("ratelimit")).collect();
    assert!(left[0].starts_with("\"requests\";r=1;t=") && left[1].starts_with("\"requests\";r=0;t="), "{left:?}");
    let refused = site.get(&acme.key, "/v1/tools");
    assert_eq!(problem(&refused), (429, "too_many_requests".to_owned()));
    assert_eq!(refused.header("ratelimit-policy"), "\"requests\";q=1;w=60");
    assert!((1..=60).contains(&refused.header("retry-after").parse::<u64>().unwrap()));
    assert_eq!(refused.json()["set_by"], "the class `default` of the tenant");
    assert_eq!(site.get(&other.key, "/v1/tools").status, 200);
}

#[test]
fn runs_at_one_time_are_bounded() {
    let site = site("concurrent_runs: 2");
    let endless = "def run(args):\n    for _ in range(1 << 30):\n        pass\n";
    let acme = site.tenant("acme", &Project::new().tool("it", "timeout_ms: 600000\n", endless));
    let begin = || site.ask_with(&acme.key, "POST /v1/tools/it/calls", &[("Prefer", "respond-async")], &json!({}));
    let runs: Vec<String> = (0..2).map(|_| begin().json()["id"].as_str().unwrap().to_owned()).collect();
    let refused = begin();
    assert_eq!(problem(&refused), (429, "busy".to_owned()));
    assert_eq!(refused.json()["limit"], "concurrent_runs");
    let stopped = site.ask(&acme.key, &format!("DELETE /v1/runs/{}", runs[0]), &Json::Null);
    assert_eq!(stopped.json()["state"], "stopped");
    assert_eq!(begin().status, 202);
}

#[test]
fn a_tenant_whose_calls_wait_is_refused_as_busy() {
    let site = site("concurrent_calls: 1, queued_calls: 0");
    let endless = "def run(args):\n    fs.write('began', 'x')\n    for _ in range(1 << 30):\n        pass\n";
    let project = Project::new().tool("endless", "timeout_ms: 600000\n", endless).tool("it", "", FINE);
    let acme = site.tenant("acme", &project);
    let _stream = site.stream(&acme.key, "POST /v1/tools/endless/calls", "", "{}");
    while !site.data().join("tenants/acme/workspace/began").exists() {
        std::thread::yield_now();
    }
    let refused = site.call(&acme.key, "it", json!({}));
    assert_eq!(problem(&refused), (429, "busy".to_owned()));
    assert_eq!(refused.json()["outcome"], "busy");
}
