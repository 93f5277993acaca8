//! What a tenant may use, and what happens then.

use serde_json::{Value as Json, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::project::{FINE, Project};
use crate::runs::agent;
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

/// The tokens of a run, by its result.
fn tokens(run: &Json) -> (u64, u64) {
    let of = |name: &str| run["result"]["usage"][name].as_u64().unwrap();
    (of("input_tokens"), of("output_tokens"))
}

/// What `/v1/usage` says of a budget.
fn budget(site: &Site, key: &str, name: &str) -> Json {
    let usage = site.get(key, "/v1/usage").json();
    usage["budgets"].as_array().unwrap().iter().find(|one| one["budget"] == name).cloned().unwrap_or_default()
}

#[test]
fn a_budget_of_money_is_exact_and_ends_a_run_that_is_under_way() {
    let prices = "prices:\n  - { model: none, input: 100, output: 100 }\n  - { model: '*', input: 0.15, output: 2 }\n";
    let classes = "classes: { default: { budgets: { cost_per_day: 0.0005, cost_per_month: 1 } }, other: {} }\n";
    let site = Site::with_config(&format!("{prices}{classes}"));
    let (acme, other) = (site.tenant("acme", &agent("")), site.tenant_of("other", "other", &agent("")));
    let pico = |run: &Json| {
        let (input, output) = tokens(run);
        input * 150_000 + output * 2_000_000
    };
    let shown = |pico: u64| format!("0.{pico:012}").trim_end_matches('0').to_owned();
    let first = site.begin(&acme.key, &"a".repeat(400));
    let first = site.ended(&acme.key, &first);
    assert_eq!(first["state"], "completed", "{first}");
    let spent = pico(&first);
    let day = budget(&site, &acme.key, "cost_per_day");
    assert_eq!(
        (&day["unit"], &day["used"], &day["limit"]),
        (&json!("usd"), &json!(shown(spent)), &json!("0.0005")),
        "{first}"
    );
    assert_eq!(budget(&site, &acme.key, "cost_per_month")["used"], day["used"]);
    assert_eq!(budget(&site, &acme.key, "tokens_per_day")["used"], json!(tokens(&first).0 + tokens(&first).1));
    // After an end in order it is what it was.
    site.signal(rustix::process::Signal::TERM);
    let site = site.again();
    assert_eq!(budget(&site, &acme.key, "cost_per_day")["used"], day["used"]);
    // The first reply of the next run uses it up: its second one is not asked for.
    let next = site.begin(&acme.key, &"a".repeat(14_000));
    let next = site.ended(&acme.key, &next);
    assert_eq!(next["state"], "limited", "{next}");
    let resets = budget(&site, &acme.key, "cost_per_day")["resets"].as_i64().unwrap();
    let until = OffsetDateTime::from_unix_timestamp(resets / 1000).unwrap().format(&Rfc3339).unwrap();
    let why = "the budget `cost_per_day` of 0.0005 US dollars is used up, set by the class `default` of the tenant";
    assert_eq!(next["result"]["error"]["message"], format!("{why}, until {until}"), "{next}");
    let spent = spent + pico(&next);
    assert_eq!(budget(&site, &acme.key, "cost_per_day")["used"], json!(shown(spent)));
    let refused = site.ask(&acme.key, "POST /v1/runs", &json!({"input": "more"}));
    assert_eq!(problem(&refused), (429, "budget_exceeded".to_owned()));
    let json = refused.json();
    assert_eq!(
        (&json["limit"], &json["detail"]),
        (&json!("cost_per_day"), &json!("the budget `cost_per_day` of 0.0005 US dollars is used up"))
    );
    // Another tenant has its own, without a limit.
    let run = site.begin(&other.key, "do it");
    let run = site.ended(&other.key, &run);
    let day = budget(&site, &other.key, "cost_per_day");
    assert_eq!((&day["used"], &day["limit"]), (&json!(shown(pico(&run))), &Json::Null));
    // The operator sees what all have spent since the start, and tenants see theirs on the dashboard.
    let metrics = site.admin("GET /metrics", &Json::Null).body;
    let line = metrics.lines().find_map(|line| line.strip_prefix("harness_models_cost_dollars_total "));
    let all: f64 = line.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap();
    let expected = (pico(&next) + pico(&run)) as f64 / 1e12;
    assert!((all - expected).abs() < 1e-9, "{all} {expected}");
}

#[test]
fn a_model_without_a_price_is_not_asked_where_cost_is_bounded() {
    let classes = "classes: { default: { budgets: { cost_per_month: 5 } }, free: {} }\n";
    let site = Site::with_config(&format!("prices: [{{ model: 'other*', input: 1, output: 1 }}]\n{classes}"));
    let (acme, free) = (site.tenant("acme", &agent("")), site.tenant_of("free", "free", &agent("")));
    let run = site.begin(&acme.key, "do it");
    let run = site.ended(&acme.key, &run);
    assert_eq!(run["state"], "limited", "{run}");
    let why = run["result"]["error"]["message"].as_str().unwrap();
    assert!(
        why.contains("has no price, and the class `default` of the tenant has a budget of cost; ask the operator for a price of it"),
        "{why}"
    );
    assert_eq!(budget(&site, &acme.key, "cost_per_month")["used"], "0");
    let run = site.begin(&free.key, "do it");
    assert_eq!(site.ended(&free.key, &run)["state"], "completed");
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
