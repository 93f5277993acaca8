//! Start, end and the death of the process.

use std::os::unix::fs::PermissionsExt as _;

use rustix::process::Signal;
use serde_json::{Value as Json, json};

use crate::project::{FINE, Project};
use crate::site::{Site, problem};

/// A tool that runs until it is stopped.
const ENDLESS: &str = "def run(args):\n    for _ in range(1 << 30):\n        pass\n";

#[test]
fn a_first_start_makes_everything_and_closes_it_to_others() {
    let mut site = Site::open();
    for (file, mode) in
        [("", 0o700), ("store.db", 0o600), ("admin.key", 0o600), ("sealing.key", 0o600), ("admin.sock", 0o600)]
    {
        let there = std::fs::metadata(site.data().join(file)).unwrap();
        assert_eq!(there.permissions().mode() & 0o777, mode, "{file}");
    }
    assert_eq!(site.get("", "/healthz").status, 200);
    assert_eq!(site.get("", "/readyz").json(), json!({"status": "ready"}));
    let key = site.operator();
    site.signal(Signal::TERM);
    let (code, err) = site.end();
    let said = format!("the operator's key is in `{}`\n", site.data().join("admin.key").display());
    assert_eq!((code, &err), (Some(143), &said));
    assert!(key.starts_with("hk_"));
}

#[test]
fn what_was_written_is_there_after_a_kill() {
    let mut site = Site::open();
    let acme = site.tenant("acme", &Project::with_script(FINE));
    let file = site.ask(&acme.key, "PUT /v1/files/a.txt", &json!("text"));
    assert_eq!(file.status, 200, "{file:?}");
    site.kill();
    let site = site.again();
    assert_eq!(site.result(&acme.key, "it", json!({})), "fine");
    assert_eq!(site.get(&acme.key, "/v1/files/a.txt").body, "\"text\"");
    let audit = site.get(&acme.key, "/v1/audit").body;
    let entry: Json = serde_json::from_str(audit.lines().last().unwrap()).unwrap();
    assert_eq!((&entry["protocol"], &entry["tool"]), (&json!("http/v1"), &json!("it")), "{audit}");
    assert_eq!(site.admin("GET /admin/v1/tenants", &Json::Null).json()["tenants"][0]["id"], "acme");
}

#[test]
fn a_run_that_was_under_way_is_interrupted_and_not_repeated() {
    let mut site = Site::open();
    let project = Project::new().tool("endless", "timeout_ms: 600000\n", ENDLESS);
    let acme = site.tenant("acme", &project);
    let begun = site.ask_with(&acme.key, "POST /v1/tools/endless/calls", &[("Prefer", "respond-async")], &json!({}));
    assert_eq!(begun.status, 202, "{begun:?}");
    let run = begun.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(begun.header("location"), format!("/v1/runs/{run}"));
    // Its first event is in the store.
    site.event(&acme.key, &run, "began");
    site.kill();
    let site = site.again();
    let record = site.ended(&acme.key, &run);
    assert_eq!(record["state"], "interrupted");
    let kinds: Vec<Json> =
        site.events(&acme.key, &run, "").into_iter().map(|(_, event)| event["type"].clone()).collect();
    assert_eq!(kinds, ["began", "end"]);
}

#[test]
fn an_end_in_order_stops_runs_and_says_so() {
    let mut site = Site::open();
    let acme = site.tenant("acme", &Project::new().tool("endless", "timeout_ms: 600000\n", ENDLESS));
    let begun = site.ask_with(&acme.key, "POST /v1/tools/endless/calls", &[("Prefer", "respond-async")], &json!({}));
    let run = begun.json()["id"].as_str().unwrap().to_owned();
    site.signal(Signal::TERM);
    assert_eq!(site.end().0, Some(143));
    let site = site.again();
    assert_eq!(site.ended(&acme.key, &run)["state"], "stopped");
}

#[test]
fn two_servers_do_not_share_a_folder() {
    let site = Site::open();
    let second = Site::command(site.folder(), &[]).output().unwrap();
    let err = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(2), "{err}");
    assert!(err.contains("another server may use this folder"), "{err}");
    assert_eq!(site.get("", "/healthz").status, 200);
}

#[test]
fn an_address_that_others_reach_needs_tls_or_a_proxy() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("serve.yaml"), "").unwrap();
    let mut command = Site::command(folder.path(), &[]);
    command.args(["--listen", "0.0.0.0:0"]);
    let refused = command.output().unwrap();
    let err = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{err}");
}

#[test]
fn a_configuration_that_is_not_understood_starts_nothing() {
    for (config, why) in [
        ("sizes: {}\n", "unknown key `sizes`"),
        ("classes: { default: { policy: missing.yaml } }\n", "the policy `missing.yaml` of a class: "),
    ] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("serve.yaml"), config).unwrap();
        let refused = Site::command(folder.path(), &[]).output().unwrap();
        let err = String::from_utf8(refused.stderr).unwrap();
        assert_eq!((refused.status.code(), err.contains(why)), (Some(2), true), "{err}");
    }
}

#[test]
fn the_operator_has_commands_for_it() {
    let site = Site::open();
    let project = Project::with_script(FINE);
    let from = project.root().to_str().unwrap();
    let data = ["--data", "data"];
    let run = |words: &[&str], input: &str| site.harness(&[&["admin"], words, &data].concat(), input);
    let (code, out, err) = run(&["tenant", "add", "acme", "--from", from], "");
    assert_eq!(code, 0, "{out}{err}");
    let (code, out, _) = run(&["key", "add", "acme", "--role", "caller", "--label", "ci"], "");
    assert_eq!(code, 0);
    let key = serde_json::from_str::<Json>(&out).unwrap()["key"].as_str().unwrap().to_owned();
    assert_eq!(site.result(&key, "it", json!({})), "fine");
    assert_eq!(run(&["secret", "acme", "TOKEN"], "value\n").0, 0);
    assert_eq!(run(&["tenant", "suspend", "acme"], "").0, 0);
    assert_eq!(problem(&site.call(&key, "it", json!({}))), (401, "unauthorized".to_owned()));
    assert_eq!(run(&["tenant", "resume", "acme"], "").0, 0);
    assert_eq!(site.result(&key, "it", json!({})), "fine");
    assert_eq!(run(&["backup", "first"], "").0, 0);
    assert!(site.data().join("backups/first/store.db").is_file());
    let (code, _, err) = run(&["backup", "first"], "");
    assert_eq!((code, err.trim_end()), (2, "error: there is a backup of this name"));
    assert_eq!(run(&["tenant", "remove", "acme"], "").0, 0);
    assert_eq!(problem(&site.call(&key, "it", json!({}))), (401, "unauthorized".to_owned()));
    assert!(!site.data().join("tenants/acme").exists());
    let (code, _, err) = run(&["tenant", "show", "acme"], "");
    assert_eq!((code, err.trim_end()), (2, "error: there is no such tenant"));
}

#[test]
fn a_demo_has_two_tenants_that_work() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("serve.yaml"), "").unwrap();
    let mut site = Site::start(std::sync::Arc::new(folder), &["--demo"]);
    site.signal(Signal::TERM);
    let (_, err) = site.end();
    let keys: Vec<String> = err
        .lines()
        .filter_map(|line| line.strip_prefix("tenant ")?.split_once(": "))
        .map(|(_, key)| key.to_owned())
        .collect();
    assert_eq!(keys.len(), 2, "{err}");
    let site = site.again();
    for key in &keys {
        let written = site.ask(key, "PUT /v1/files/notes/a.md", &json!("one two"));
        assert_eq!(written.status, 200, "{written:?}");
        let counted = site.result(key, "word_count", json!({"path": "notes/a.md"}));
        assert_eq!(counted["words"], 2, "{counted}");
    }
}
