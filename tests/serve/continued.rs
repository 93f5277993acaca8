//! Runs that the death of the process interrupts: what the next one continues, what it repeats, and what it does not.

use std::sync::Arc;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value as Json, json};

use crate::project::Project;
use crate::site::{Site, Tenant};

/// Marks that it was called; where it is called slow, it ends once there is a file `go`.
const ACTS: &str = "def run(args):\n    fs.append('marks', args['name'] + '\\n')\n    for _ in range(20000):\n        if args['name'] != 'slow' or fs.exists('go'):\n            return args['name']\n        sleep(5)\n    return 'late'\n";
const CALLS: &str =
    "{ name: acts, args: { name: first } }, { name: acts, args: { name: slow } }, { name: acts, args: { name: last } }";

/// A project whose agent answers the first message at once. To the second one it calls three tools in one reply.
fn acting(front: &str) -> Project {
    let front = format!("timeout_ms: 600000\nparameters: {{ name: {{ type: string }} }}\n{front}");
    Project::new()
        .policy(
            "model: { provider: script, script: replies.yaml }\nsandbox: { fs: { read: [go], write: [marks, go] } }\n",
        )
        .tool("acts", &front, ACTS)
        .file("replies.yaml", &format!("- text: ready\n- tool_calls: [{CALLS}]\n- text: early\n"))
}

fn workspace(site: &Site) -> std::path::PathBuf {
    site.data().join("tenants/acme/workspace")
}

/// Lets a slow call end.
fn allow(site: &Site) {
    std::fs::write(workspace(site).join("go"), "").unwrap();
}

fn marks(site: &Site) -> String {
    std::fs::read_to_string(workspace(site).join("marks")).unwrap_or_default()
}

/// Waits until the tool has left these marks.
fn until(site: &Site, wanted: &str) {
    while marks(site) != wanted {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A turn whose second call is under way.
fn under_way(site: &Site, acme: &Tenant) -> String {
    let ready = site.begin(&acme.key, "Are you ready?");
    assert_eq!(site.ended(&acme.key, &ready)["result"]["answer"], "ready");
    let run = site.begin(&acme.key, "Act.");
    until(site, "first\nslow\n");
    run
}

/// What the model got for its calls in the session of a run.
fn results(site: &Site, key: &str, record: &Json) -> Vec<String> {
    let session = site.get(key, &format!("/v1/sessions/{}.jsonl", record["session"].as_str().unwrap())).body;
    let lines = session.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
    let said = lines.filter(|line| line["kind"] == "said" && line["message"]["role"] == "tool");
    said.map(|line| line["message"]["content"].as_str().unwrap().to_owned()).collect()
}

fn kinds(site: &Site, key: &str, run: &str) -> Vec<String> {
    let events = site.events(key, run, "");
    events.iter().map(|(_, event)| event["type"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_turn_is_continued_where_the_process_ended() {
    for (front, repeated) in
        [("", false), ("effect: once\n", false), ("effect: idempotent\n", true), ("effect: none\n", true)]
    {
        let mut site = Site::open();
        let acme = site.tenant("acme", &acting(front));
        let run = under_way(&site, &acme);
        site.kill();
        allow(&site);
        let site = site.again();
        let record = site.ended(&acme.key, &run);
        assert_eq!((&record["state"], &record["result"]["answer"]), (&json!("completed"), &json!("ready")), "{record}");
        // What has a result is not made again, and what had not begun is made.
        assert_eq!(marks(&site), if repeated { "first\nslow\nslow\nlast\n" } else { "first\nslow\nlast\n" }, "{front}");
        let unknown = "error: the host ended while this call of `acts` was under way, and whether it took effect is unknown; \
                       it was not made again, because the tool does not say `effect: none` or `effect: idempotent`";
        let slow = if repeated { "slow" } else { unknown };
        assert_eq!(results(&site, &acme.key, &record), ["first", slow, "last"], "{front}");
        let kinds = kinds(&site, &acme.key, &run);
        let at = |kind: &str| kinds.iter().position(|one| one == kind).unwrap();
        assert!(
            at("began") < at("resumed") && at("resumed") < at("continued") && at("continued") < at("end"),
            "{kinds:?}"
        );
        assert_eq!(kinds.iter().filter(|one| *one == "end").count(), 1);
        // The record explains the rest of the turn, too.
        let session = record["session"].as_str().unwrap();
        let line = format!("POST /v1/sessions/{session}/replay");
        let replayed = site.ask(&acme.key, &line, &json!({})).json()["replay"].clone();
        assert_eq!((&replayed["same"], &replayed["differences"]), (&json!(true), &json!([])), "{replayed}");
        assert_eq!(replayed["compared"]["turns"], 1, "{replayed}");
        // Nothing is left to continue.
        let mut site = site;
        site.kill();
        let site = site.again();
        assert_eq!(site.get(&acme.key, &format!("/v1/runs/{run}")).json()["state"], "completed");
    }
}

#[test]
fn a_turn_is_continued_twice_and_then_given_up() {
    let mut site = Site::open();
    let acme = site.tenant("acme", &acting("effect: idempotent\n"));
    let run = under_way(&site, &acme);
    for attempt in 2..=3 {
        site.kill();
        site = site.again();
        until(&site, &format!("first\n{}", "slow\n".repeat(attempt)));
    }
    site.kill();
    allow(&site);
    let site = site.again();
    let record = site.ended(&acme.key, &run);
    let why =
        "the server ended while the run was under way, and it is not continued: 3 servers ended while it was under way";
    assert_eq!((&record["state"], &record["result"]["error"]["message"]), (&json!("interrupted"), &json!(why)));
    assert_eq!(marks(&site), "first\nslow\nslow\nslow\n");
}

#[test]
fn an_end_in_order_lets_turns_go_for_the_next_process() {
    let mut site = Site::open();
    let acme = site.tenant("acme", &acting("effect: idempotent\n"));
    let run = under_way(&site, &acme);
    site.signal(Signal::TERM);
    assert_eq!(site.end().0, Some(143));
    allow(&site);
    let site = site.again();
    let record = site.ended(&acme.key, &run);
    assert_eq!((&record["state"], &record["result"]["answer"]), (&json!("completed"), &json!("ready")), "{record}");
    assert_eq!(results(&site, &acme.key, &record), ["first", "slow", "last"]);
    assert_eq!(marks(&site), "first\nslow\nslow\nlast\n");
}

#[test]
fn a_call_is_made_again_only_if_its_tool_says_so() {
    for (front, state, left) in [
        ("", "interrupted", "slow\n"),
        ("effect: once\n", "interrupted", "slow\n"),
        ("effect: none\n", "completed", "slow\nslow\n"),
    ] {
        let mut site = Site::open();
        let acme = site.tenant("acme", &acting(front));
        let asked = json!({"arguments": {"name": "slow"}});
        let run = site.ask_with(&acme.key, "POST /v1/tools/acts/calls", &[("Prefer", "respond-async")], &asked).json();
        let run = run["id"].as_str().unwrap();
        until(&site, "slow\n");
        site.kill();
        allow(&site);
        let site = site.again();
        let record = site.ended(&acme.key, run);
        assert_eq!((&record["state"], marks(&site)), (&json!(state), left.to_owned()), "{front}: {record}");
        if state == "interrupted" {
            let why = "the server ended while the run was under way, and it is not continued: whether the call took effect is \
                       unknown, and its tool does not say that it may be made again (`effect: none` or `effect: idempotent`)";
            assert_eq!(record["result"]["error"]["message"], why);
        }
    }
}

/// A question is a row: whoever answers it does not see that the process is another one.
#[test]
fn a_question_waits_across_the_death_of_the_process() {
    let mut site = Site::open();
    let acme = site.tenant("acme", &acting("confirm: true\n"));
    let approver = site.key("acme", "approver");
    let questions = |site: &Site| site.get(&approver, "/v1/approvals").json()["approvals"].as_array().unwrap().clone();
    let answer = |site: &Site, one: &Json, answer: &str| {
        let line = format!("POST /v1/approvals/{}", one["id"].as_str().unwrap());
        site.ask(&approver, &line, &json!({"answer": answer, "args_digest": one["args_digest"]}))
    };
    let ready = site.begin(&acme.key, "Are you ready?");
    site.ended(&acme.key, &ready);
    let run = site.begin(&acme.key, "Act.");
    let asked = json!({"arguments": {"name": "called"}});
    let call = site.ask_with(&acme.key, "POST /v1/tools/acts/calls", &[("Prefer", "respond-async")], &asked).json();
    let call = call["id"].as_str().unwrap().to_owned();
    for run in [&run, &call] {
        site.event(&acme.key, run, "waiting");
    }
    let before = questions(&site);
    assert_eq!(before.len(), 2);
    site.kill();
    let site = site.again();
    // The same two, with the same identifiers, arguments and ends.
    assert_eq!(questions(&site), before);
    assert_eq!(marks(&site), "");
    for one in &before {
        assert_eq!(answer(&site, one, if one["run"] == json!(run) { "no" } else { "yes" }).status, 200, "{one}");
    }
    let record = site.ended(&acme.key, &call);
    assert_eq!((&record["state"], &record["result"]["result"]), (&json!("completed"), &json!("called")), "{record}");
    // The answer is to its very call: the next two are asked about, each by itself.
    let mut answered = 1;
    while site.get(&acme.key, &format!("/v1/runs/{run}")).json()["state"] == "running" {
        let next = questions(&site);
        let next: Vec<&Json> = next.iter().filter(|one| !before.contains(one)).collect();
        for one in next {
            if one["arguments"]["name"] == "slow" {
                allow(&site);
            }
            answered += usize::from(answer(&site, one, "yes").status == 200);
        }
    }
    let record = site.ended(&acme.key, &run);
    assert_eq!((&record["state"], answered), (&json!("completed"), 3), "{record}");
    assert_eq!(marks(&site), "called\nslow\nlast\n");
    let denied = "the call of `acts` was not confirmed";
    assert!(results(&site, &acme.key, &record)[0].contains(denied), "{record}");
}

#[test]
fn what_changed_meanwhile_continues_nothing() {
    // A project that was uploaded anew while the turn was under way.
    let mut site = Site::open();
    let acme = site.tenant("acme", &acting("effect: none\n"));
    let run = under_way(&site, &acme);
    let other = acting("effect: none\n").tool("more", "", "def run(args):\n    return 1\n");
    assert_eq!(site.upload(&acme.key, &crate::site::archive(&other)).status, 200);
    site.kill();
    // What is continued all the same comes to an end.
    allow(&site);
    let mut site = site.again();
    let why =
        |why: &str| json!(format!("the server ended while the run was under way, and it is not continued: {why}"));
    let record = site.ended(&acme.key, &run);
    assert_eq!(record["state"], "interrupted");
    assert_eq!(record["result"]["error"]["message"], why("the project was changed since the run began"));
    std::fs::remove_file(workspace(&site).join("go")).unwrap();
    // Who approves a call approves what the tool was then.
    let asks = |script: &str| acting("").tool("asks", "confirm: true\n", script);
    assert_eq!(site.upload(&acme.key, &crate::site::archive(&asks("def run(args):\n    return 1\n"))).status, 200);
    let run = site.ask_with(&acme.key, "POST /v1/tools/asks/calls", &[("Prefer", "respond-async")], &json!({})).json();
    let run = run["id"].as_str().unwrap().to_owned();
    site.event(&acme.key, &run, "waiting");
    assert_eq!(site.upload(&acme.key, &crate::site::archive(&asks("def run(args):\n    return 2\n"))).status, 200);
    site.kill();
    site = site.again();
    let record = site.ended(&acme.key, &run);
    assert_eq!(record["result"]["error"]["message"], why("the project was changed since the run began"));
    assert_eq!(site.upload(&acme.key, &crate::site::archive(&other)).status, 200);
    // A key that is not valid any more.
    let key = site.ask(&acme.key, "POST /v1/keys", &json!({"role": "developer", "label": "short"})).json();
    let text = key["key"].as_str().unwrap_or_default().to_owned();
    let asked = json!({"arguments": {"name": "slow"}});
    let run = site.ask_with(&text, "POST /v1/tools/acts/calls", &[("Prefer", "respond-async")], &asked).json();
    let run = run["id"].as_str().unwrap().to_owned();
    until(&site, "first\nslow\nslow\n");
    let gone = site.ask(&acme.key, &format!("DELETE /v1/keys/{}", key["id"].as_str().unwrap()), &Json::Null);
    assert!(gone.status < 300, "{gone:?}");
    site.kill();
    allow(&site);
    site = site.again();
    let record = site.ended(&acme.key, &run);
    assert_eq!(record["result"]["error"]["message"], why("its key is not valid any more"));
}

/// A script that waits for a person has done something before.
#[test]
fn a_script_that_waits_for_an_answer_is_not_run_again() {
    let mut site = Site::open();
    let outer =
        "def run(args):\n    fs.append('marks', 'outer\\n')\n    return meta.call_tool('acts', {'name': 'inner'})\n";
    let project = acting("confirm: true\n")
        .policy(
            "model: { provider: script, script: replies.yaml }\nmeta: { enabled: true }\nsandbox: { fs: { read: [go], write: [marks] } }\n",
        )
        .tool("outer", "", outer)
        .file("replies.yaml", "- text: ready\n- tool_calls: [{ name: outer, args: {} }]\n");
    let acme = site.tenant("acme", &project);
    let approver = site.key("acme", "approver");
    let questions = |site: &Site| site.get(&approver, "/v1/approvals").json()["approvals"].as_array().unwrap().clone();
    let ready = site.begin(&acme.key, "Are you ready?");
    site.ended(&acme.key, &ready);
    let run = site.begin(&acme.key, "Act.");
    site.event(&acme.key, &run, "waiting");
    let asked = questions(&site);
    assert_eq!((asked.len(), &asked[0]["tool"]), (1, &json!("acts")));
    // The identifiers of calls of the model and of scripts may be the same.
    let session = std::fs::read_dir(site.data().join("tenants/acme/project/.harness/sessions")).unwrap();
    let texts: Vec<String> = session.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    assert!(texts.iter().all(|text| !text.contains("\"kind\":\"question\"")), "{texts:?}");
    site.kill();
    let site = site.again();
    let record = site.ended(&acme.key, &run);
    assert_eq!((&record["state"], marks(&site)), (&json!("completed"), "outer\n".to_owned()), "{record}");
    assert!(results(&site, &acme.key, &record)[0].contains("whether it took effect is unknown"));
    let line = format!("POST /v1/approvals/{}", asked[0]["id"].as_str().unwrap());
    let late = site.ask(&approver, &line, &json!({"answer": "yes", "args_digest": asked[0]["args_digest"]}));
    assert_eq!(late.status, 409, "{late:?}");
    assert_eq!(questions(&site), Vec::<Json>::new());
}

/// What a run has done after its backup is unknown to whoever restores it.
#[test]
fn a_run_of_a_backup_is_not_continued() {
    let mut site = Site::open();
    let acme = site.tenant("acme", &acting("effect: idempotent\n"));
    let run = under_way(&site, &acme);
    let (code, out, err) = site.harness(&["admin", "backup", "b", "--data", "data"], "");
    assert_eq!(code, 0, "{out}{err}");
    site.kill();
    let new = Arc::new(tempfile::tempdir().unwrap());
    std::fs::write(new.path().join("serve.yaml"), "").unwrap();
    let data = new.path().join("data");
    let words = ["admin", "restore", "data/backups/b", "--sealing-key", "data/sealing.key", "--data"];
    let (code, out, err) = site.harness(&[&words[..], &[data.to_str().unwrap()]].concat(), "");
    assert_eq!(code, 0, "{out}{err}");
    std::fs::copy(site.data().join("admin.key"), data.join("admin.key")).unwrap();
    let go = data.join("tenants/acme/workspace/go");
    std::fs::write(&go, "").unwrap();
    let mut restored = Site::start(new, &[]);
    let record = restored.ended(&acme.key, &run);
    std::fs::remove_file(go).unwrap();
    let why = "the server ended while the run was under way, and it is not continued: it is of a backup, and what it did after \
               that is unknown";
    assert_eq!((&record["state"], &record["result"]["error"]["message"]), (&json!("interrupted"), &json!(why)));
    assert_eq!(marks(&restored), "first\nslow\n");
    // Its own runs are continued.
    let run = restored.ask_with(
        &acme.key,
        "POST /v1/tools/acts/calls",
        &[("Prefer", "respond-async")],
        &json!({"arguments": {"name": "slow"}}),
    );
    let run = run.json()["id"].as_str().unwrap().to_owned();
    until(&restored, "first\nslow\nslow\n");
    restored.kill();
    allow(&restored);
    let restored = restored.again();
    assert_eq!(restored.ended(&acme.key, &run)["state"], "completed");
    // The server that was backed up has lost nothing.
    allow(&site);
    let site = site.again();
    assert_eq!(
        site.ended(&acme.key, site.get(&acme.key, "/v1/runs").json()["runs"][1]["id"].as_str().unwrap())["state"],
        "completed"
    );
}

/// Without its record nobody knows what a turn has done.
#[test]
fn a_turn_without_its_session_is_not_begun_anew() {
    for spoiled in [None, Some("not a session\n")] {
        let mut site = Site::open();
        let acme = site.tenant("acme", &acting("effect: none\n"));
        let run = under_way(&site, &acme);
        site.kill();
        for file in std::fs::read_dir(site.data().join("tenants/acme/project/.harness/sessions")).unwrap() {
            let file = file.unwrap().path();
            match spoiled {
                None => std::fs::remove_file(file).unwrap(),
                Some(text) => std::fs::write(file, text).unwrap(),
            }
        }
        allow(&site);
        let site = site.again();
        let record = site.ended(&acme.key, &run);
        let why = "the server ended while the run was under way, and it is not continued: its session cannot be read";
        assert_eq!((&record["state"], &record["result"]["error"]["message"]), (&json!("interrupted"), &json!(why)));
        assert_eq!(marks(&site), "first\nslow\n");
    }
}
