//! Runs of agents, their events, and questions to people.

use serde_json::{Value as Json, json};

use crate::project::{FINE, Project};
use crate::site::{Site, problem};

/// A project whose agent calls a tool and answers.
pub(crate) fn agent(front: &str) -> Project {
    let replies = "- tool_calls: [{ name: it, args: {} }]\n- text: all done\n- text: and again\n- text: third\n";
    Project::new()
        .policy("model: { provider: script, script: replies.yaml }\n")
        .tool("it", front, FINE)
        .file("replies.yaml", replies)
}

#[test]
fn a_run_goes_on_by_itself_and_its_events_can_be_read_again() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent(""));
    let run = site.begin(&acme.key, "do it");
    let events = site.events(&acme.key, &run, "");
    let kinds: Vec<&str> = events.iter().map(|(_, event)| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds.first().zip(kinds.last()), Some((&"began", &"end")), "{kinds:?}");
    for kind in ["turn", "call", "called", "text"] {
        assert!(kinds.contains(&kind), "{kind}: {kinds:?}");
    }
    let positions: Vec<u64> = events.iter().map(|(position, _)| *position).collect();
    assert_eq!(positions, (1..=events.len() as u64).collect::<Vec<_>>());
    let end = &events.last().unwrap().1;
    assert_eq!((&end["outcome"], &end["answer"]), (&json!("completed"), &json!("all done")));
    // From any position on, by header or parameter.
    let rest = site.events(&acme.key, &run, "Last-Event-ID: 3\r\n");
    assert_eq!(rest, events[3..]);
    let record = site.ended(&acme.key, &run);
    assert_eq!(
        (&record["state"], &record["kind"], &record["result"]["answer"]),
        (&json!("completed"), &json!("turn"), &json!("all done"))
    );
    // The session that it was recorded in is resumed.
    let session = record["session"].as_str().unwrap();
    let next = site.ask(&acme.key, "POST /v1/runs", &json!({"input": "again", "session": session})).json();
    let next = site.ended(&acme.key, next["id"].as_str().unwrap());
    assert_eq!(next["result"]["answer"], "and again", "{next}");
    let listed = site.get(&acme.key, "/v1/runs").json();
    let ids: Vec<&Json> = listed["runs"].as_array().unwrap().iter().map(|run| &run["id"]).collect();
    assert_eq!(ids, [&json!(run), &next["id"]]);
    let usage = site.get(&acme.key, "/v1/usage").json();
    assert_eq!((&usage["budgets"][0]["budget"], &usage["budgets"][0]["used"]), (&json!("calls_per_day"), &json!(1)));
}

#[test]
fn a_call_that_needs_confirmation_waits_for_somebody_else() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent("confirm: true\n"));
    let [approver, other] = ["approver", "approver"].map(|role| site.key("acme", role));
    let caller = site.key("acme", "caller");
    let question = |run: &str| {
        let id = site.event(&acme.key, run, "waiting")["approval"].clone();
        let open = site.get(&approver, "/v1/approvals").json();
        open["approvals"].as_array().unwrap().iter().find(|one| one["id"] == id).unwrap().clone()
    };
    let answer = |key: &str, id: &str, body: Json| site.ask(key, &format!("POST /v1/approvals/{id}"), &body);
    let run = site.begin(&caller, "do it");
    let asked = question(&run);
    let (id, digest) = (asked["id"].as_str().unwrap(), asked["args_digest"].as_str().unwrap());
    assert_eq!((&asked["tool"], &asked["arguments"]), (&json!("it"), &json!({})));
    assert_eq!(
        problem(&answer(&caller, id, json!({"answer": "yes", "args_digest": digest}))),
        (403, "forbidden".to_owned())
    );
    assert_eq!(
        problem(&answer(&approver, id, json!({"answer": "yes", "args_digest": "sha256:0"}))),
        (422, "other_arguments".to_owned())
    );
    assert_eq!(answer(&approver, id, json!({"answer": "yes", "args_digest": digest})).status, 200);
    // The first answer counts.
    assert_eq!(
        problem(&answer(&other, id, json!({"answer": "no", "args_digest": digest}))),
        (409, "answered".to_owned())
    );
    let ended = site.ended(&caller, &run);
    assert_eq!(ended["result"]["answer"], "all done", "{ended}");
    let kinds: Vec<Json> = site.events(&caller, &run, "").into_iter().map(|(_, event)| event["type"].clone()).collect();
    assert!(kinds.contains(&json!("waiting")) && kinds.contains(&json!("answered")), "{kinds:?}");

    // Nobody approves a call of their own: the owner may begin a run and answer, but not both.
    let run = site.ask_with(&acme.key, "POST /v1/tools/it/calls", &[("Prefer", "respond-async")], &json!({})).json();
    let run = run["id"].as_str().unwrap().to_owned();
    let asked = question(&run);
    let (id, digest) = (asked["id"].as_str().unwrap(), asked["args_digest"].as_str().unwrap());
    assert_eq!(
        problem(&answer(&acme.key, id, json!({"answer": "yes", "args_digest": digest}))),
        (403, "own_call".to_owned())
    );
    assert_eq!(answer(&other, id, json!({"answer": "no", "args_digest": digest})).status, 200);
    assert_eq!(site.ended(&acme.key, &run)["state"], "denied");

    // A run that is stopped waits no more, and nobody answers it.
    let run = site.ask_with(&acme.key, "POST /v1/tools/it/calls", &[("Prefer", "respond-async")], &json!({})).json();
    let run = run["id"].as_str().unwrap().to_owned();
    let asked = question(&run);
    assert_eq!(site.ask(&acme.key, &format!("DELETE /v1/runs/{run}"), &Json::Null).json()["state"], "stopped");
    let late =
        answer(&other, asked["id"].as_str().unwrap(), json!({"answer": "yes", "args_digest": asked["args_digest"]}));
    assert_eq!(problem(&late), (409, "answered".to_owned()));
}

#[test]
fn a_caller_sees_its_own_runs_and_others_all() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent(""));
    let [one, two] = ["caller", "caller"].map(|role| site.key("acme", role));
    let run = site.begin(&one, "do it");
    site.ended(&one, &run);
    let paths = [format!("/v1/runs/{run}"), format!("/v1/runs/{run}/events")];
    for path in &paths {
        assert_eq!(problem(&site.get(&two, path)), (404, "not_found".to_owned()), "{path}");
    }
    assert_eq!(problem(&site.ask(&two, &format!("DELETE {}", paths[0]), &Json::Null)), (404, "not_found".to_owned()));
    assert_eq!(site.get(&two, "/v1/runs").json()["runs"], json!([]));
    let resume = |key: &str| {
        let session = site.get(&acme.key, &paths[0]).json()["session"].clone();
        site.ask(key, "POST /v1/runs", &json!({"input": "what was said?", "session": session}))
    };
    assert_eq!(problem(&resume(&two)), (404, "not_found".to_owned()));
    assert_eq!((resume(&one).status, resume(&acme.key).status), (202, 202));
    assert_eq!(site.get(&acme.key, &paths[0]).status, 200);
    assert_eq!(site.get(&site.key("acme", "auditor"), "/v1/runs").json()["runs"][0]["id"], run);
}

/// A script reports progress as often as it likes, and the log of its run is bounded.
#[test]
fn a_log_of_a_run_is_bounded_and_its_end_is_there() {
    let site = Site::open();
    let script = "def run(args):\n    for n in range(1000):\n        progress(n, 1000, 'x')\n    return 'done'\n";
    // What one call reports is bounded already; a model may make many.
    let calls = ["{ name: it, args: {} }"; 12].join(", ");
    let replies = format!("- tool_calls: [{calls}]\n- text: all done\n");
    let project = Project::new()
        .policy("model: { provider: script, script: replies.yaml }\n")
        .tool("it", "timeout_ms: 60000\n", script)
        .file("replies.yaml", &replies);
    let acme = site.tenant("acme", &project);
    let run = site.begin(&acme.key, "do it");
    let events = site.events(&acme.key, &run, "");
    let kinds: Vec<&str> = events.iter().map(|(_, event)| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds.len(), 1 + 10_000 + 1 + 1, "{:?}", kinds.last());
    assert_eq!(kinds[kinds.len() - 2..], ["truncated", "end"]);
    assert_eq!(events.last().unwrap().1["answer"], "all done");
}

#[test]
fn a_run_that_cannot_be_begun_leaves_nothing() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent(""));
    let begin = |body: Json| site.ask(&acme.key, "POST /v1/runs", &body);
    assert_eq!(problem(&begin(json!({"input": " "}))), (400, "invalid".to_owned()));
    assert_eq!(problem(&begin(json!({"text": "x"}))), (400, "invalid".to_owned()));
    assert_eq!(problem(&begin(json!({"input": "x", "session": "../../other"}))), (404, "not_found".to_owned()));
    let run = site.begin(&acme.key, "do it");
    for after in ["Last-Event-ID: x\r\n", "Last-Event-ID: -1\r\n"] {
        let mut text = String::new();
        let path = format!("GET /v1/runs/{run}/events");
        std::io::Read::read_to_string(&mut site.stream(&acme.key, &path, after, ""), &mut text).unwrap();
        assert!(text.starts_with("HTTP/1.0 400"), "{text}");
    }
}
