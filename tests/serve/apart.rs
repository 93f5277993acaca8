//! What one tenant tries on another. Each request is made by a stranger, and by its owner as the control.

use std::sync::{Arc, Mutex, Weak};

use serde_json::{Value as Json, json};

use crate::project::Project;
use crate::runs::agent;
use crate::site::{Site, Tenant, problem};

/// Texts that are one tenant's and must be in no answer to another.
const MARKS: [&str; 4] = ["mark-file", "mark-tool", "mark-secret", "mark-run"];

/// Two tenants, the first of whom has something of everything.
struct Two {
    site: Site,
    victim: Tenant,
    stranger: Tenant,
    run: String,
    session: String,
    approval: String,
    digest: String,
    key: String,
}

fn two() -> Two {
    let site = Site::open();
    let project = || agent("").tool("asks", "confirm: true\n", "def run(args):\n    return 'mark-tool'\n");
    let victim = site.tenant(
        "victim",
        &project().tool(
            "mark-tool_a".replace("mark-tool_a", "mark_tool").as_str(),
            "",
            "def run(args):\n    cache.set('k', 'mark-tool')\n    return cache.get('k')\n",
        ),
    );
    let stranger = site.tenant(
        "stranger",
        &project().tool("look", "", "def run(args):\n    return [cache.get('k'), fs.glob('**')]\n"),
    );
    assert_eq!(site.ask(&victim.key, "PUT /v1/files/a.txt", &json!("mark-file")).status, 200);
    assert_eq!(site.ask(&victim.key, "PUT /v1/secrets/MARK", &json!({"value": "mark-secret"})).status, 200);
    let run = site.begin(&victim.key, "mark-run");
    let session = site.ended(&victim.key, &run)["session"].as_str().unwrap().to_owned();
    let asks = site.ask_with(&victim.key, "POST /v1/tools/asks/calls", &[("Prefer", "respond-async")], &json!({}));
    assert_eq!(asks.status, 202, "{asks:?}");
    site.event(&victim.key, asks.json()["id"].as_str().unwrap(), "waiting");
    let approval = site.get(&victim.key, "/v1/approvals").json()["approvals"][0].clone();
    let key = site.ask(&victim.key, "POST /v1/keys", &json!({"role": "caller", "label": "mark"})).json();
    Two {
        run,
        session,
        approval: approval["id"].as_str().unwrap().to_owned(),
        digest: approval["args_digest"].as_str().unwrap().to_owned(),
        key: key["id"].as_str().unwrap().to_owned(),
        site,
        victim,
        stranger,
    }
}

/// One site for the cases that run at the same time: what a case tries must change nothing, which the others see. It ends with
/// the last of them.
fn shared() -> Arc<Two> {
    static TWO: Mutex<Weak<Two>> = Mutex::new(Weak::new());
    let mut shared = TWO.lock().unwrap();
    shared.upgrade().unwrap_or_else(|| {
        let new = Arc::new(two());
        *shared = Arc::downgrade(&new);
        new
    })
}

#[test]
fn nothing_of_another_tenant_can_be_named() {
    let two = shared();
    let Two { site, victim, stranger, run, approval, digest, key, .. } = &*two;
    let answer = json!({"answer": "yes", "args_digest": digest});
    let spellings = |id: &str| {
        let (first, rest) = id.split_at(1);
        vec![
            id.to_owned(),
            format!("..%2F..%2Fvictim%2F{id}"),
            format!("victim%2F{id}"),
            format!("%2Fvictim%2F{id}"),
            format!("{id}%00"),
            format!("{id}%2F"),
            format!("%2E%2E%2Fvictim%2F{id}"),
            format!("{}{rest}", first.to_uppercase()),
            format!("{id}?tenant=victim"),
        ]
    };
    let mut tried = 0;
    for id in spellings(run) {
        for line in [format!("GET /v1/runs/{id}"), format!("GET /v1/runs/{id}/events"), format!("DELETE /v1/runs/{id}")]
        {
            let reply = site.ask(&stranger.key, &line, &Json::Null);
            assert!([400, 404].contains(&reply.status), "{line}: {reply:?}");
            tried += 1;
        }
    }
    for id in spellings(approval) {
        let reply = site.ask(&stranger.key, &format!("POST /v1/approvals/{id}"), &answer);
        assert!([400, 404].contains(&reply.status), "{id}: {reply:?}");
        tried += 1;
    }
    for id in spellings(key) {
        let reply = site.ask(&stranger.key, &format!("DELETE /v1/keys/{id}"), &Json::Null);
        assert!([400, 404].contains(&reply.status), "{id}: {reply:?}");
        tried += 1;
    }
    for name in spellings("MARK") {
        let reply = site.ask(&stranger.key, &format!("DELETE /v1/secrets/{name}"), &Json::Null);
        assert!([400, 404].contains(&reply.status), "{name}: {reply:?}");
        tried += 1;
    }
    for after in ["", "victim/", "../victim/", run, "0", "%00"] {
        let runs = site.get(&stranger.key, &format!("/v1/runs?after={after}"));
        assert!(!runs.body.contains(&format!("\"id\":\"{run}\"")), "{after}: {runs:?}");
        tried += 1;
    }
    for path in [
        "a.txt",
        "../../victim/workspace/a.txt",
        "..%2F..%2Fvictim%2Fworkspace%2Fa.txt",
        "%2E%2E/%2E%2E/victim/workspace/a.txt",
    ] {
        for line in [format!("GET /v1/files/{path}"), format!("DELETE /v1/files/{path}")] {
            let reply = site.ask(&stranger.key, &line, &Json::Null);
            assert!(reply.status >= 400, "{line}: {reply:?}");
            tried += 1;
        }
    }
    assert!(tried >= 65, "{tried}");
    // The controls: all of it is there for its owner.
    assert_eq!(site.get(&victim.key, &format!("/v1/runs/{run}")).json()["state"], "completed");
    assert!(!site.events(&victim.key, run, "").is_empty());
    assert_eq!(site.get(&victim.key, "/v1/approvals").json()["approvals"][0]["id"], *approval);
    assert_eq!(site.get(&victim.key, "/v1/files/a.txt").body, "\"mark-file\"");
    assert_eq!(site.get(&victim.key, "/v1/secrets").json(), json!({"secrets": ["MARK"]}));
}

#[test]
fn no_list_and_no_error_has_a_word_of_another_tenant() {
    let two = shared();
    let Two { site, victim, stranger, run, session, approval, .. } = &*two;
    let lines = [
        ("GET /v1/tools", Json::Null),
        ("GET /v1/runs", Json::Null),
        ("GET /v1/approvals", Json::Null),
        ("GET /v1/usage", Json::Null),
        ("GET /v1/audit", Json::Null),
        ("GET /v1/policy", Json::Null),
        ("GET /v1/files", Json::Null),
        ("GET /v1/files?pattern=../**", Json::Null),
        ("GET /v1/project", Json::Null),
        ("GET /v1/secrets", Json::Null),
        ("GET /v1/keys", Json::Null),
        ("GET /v1/models", Json::Null),
        ("POST /v1/tools/mark_tool/calls", json!({})),
        ("POST /v1/tools/look/calls", json!({})),
        ("POST /v1/tools/none/calls", json!({})),
        ("POST /v1/runs", json!({"input": "x", "session": session})),
        ("POST /v1/chat/completions", json!({"model": "victim", "messages": [{"role": "user", "content": "x"}]})),
        ("GET /v1/nothing", Json::Null),
    ];
    for (line, body) in &lines {
        let reply = site.ask(&stranger.key, line, body);
        let own = json!({"input": "x", "session": session}) == *body;
        for mark in MARKS.iter().copied().chain(["victim", run.as_str(), approval.as_str()]) {
            let is_echo = mark == "victim" && body["model"] == "victim";
            assert!(is_echo || !reply.body.contains(mark), "{line}: {mark}: {reply:?}");
        }
        if own {
            assert_eq!(problem(&reply), (404, "not_found".to_owned()));
        }
    }
    // The controls: the same lists of the owner have them.
    assert!(site.get(&victim.key, "/v1/tools").body.contains("mark_tool"));
    assert!(site.get(&victim.key, "/v1/runs").body.contains(run.as_str()));
    assert_eq!(site.result(&victim.key, "mark_tool", json!({})), "mark-tool");
    assert_eq!(site.result(&stranger.key, "look", json!({})), json!([null, []]));
}

#[test]
fn the_same_idempotency_key_is_another_one_of_another_tenant() {
    let two = shared();
    let Two { site, victim, stranger, .. } = &*two;
    let once = [("Idempotency-Key", "the-same")];
    let call = |key: &str, tool: &str| site.ask_with(key, &format!("POST /v1/tools/{tool}/calls"), &once, &json!({}));
    let first = call(&victim.key, "it");
    let other = call(&stranger.key, "it");
    assert_eq!((first.status, other.status), (200, 200));
    assert_ne!(first.json()["call"], other.json()["call"]);
    assert_eq!(call(&victim.key, "it").json()["call"], first.json()["call"]);
}

#[test]
fn a_chat_of_another_tenant_is_not_continued() {
    let site = Site::open();
    let (victim, stranger) = (site.tenant("victim", &agent("")), site.tenant("stranger", &agent("")));
    let chat = |key: &str, messages: Json| {
        site.ask(key, "POST /v1/chat/completions", &json!({"model": "agent", "messages": messages})).json()
    };
    let first = chat(&victim.key, json!([{"role": "user", "content": "do it"}]));
    assert_eq!(first["choices"][0]["message"]["content"], "all done");
    let messages = json!([
        {"role": "user", "content": "do it"}, {"role": "assistant", "content": "all done"}, {"role": "user", "content": "go on"},
    ]);
    chat(&stranger.key, messages.clone());
    let sessions = |id: &str| {
        let folder = site.data().join(format!("tenants/{id}/project/.harness/sessions"));
        let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap();
        std::fs::read_dir(folder).unwrap().map(|one| read(one.unwrap().path())).collect::<Vec<_>>()
    };
    assert!(!sessions("stranger").iter().any(|text| text.contains("\"resumes\":")));
    chat(&victim.key, messages);
    assert!(sessions("victim").iter().any(|text| text.contains("\"resumes\":")));
}

#[test]
fn a_tenant_that_is_removed_leaves_nothing_to_one_of_the_same_name() {
    let site = Site::open();
    let count = "def run(args):\n    return fs.glob('**')\n";
    let first = site.tenant("acme", &Project::with_script(count));
    site.ask(&first.key, "PUT /v1/files/a.txt", &json!("mark-file"));
    site.ask(&first.key, "PUT /v1/secrets/MARK", &json!({"value": "x"}));
    assert_eq!(site.result(&first.key, "it", json!({})), json!(["a.txt"]));
    assert_eq!(site.admin("DELETE /admin/v1/tenants/acme", &Json::Null).status, 200);
    let second = site.tenant("acme", &Project::with_script(count));
    assert_eq!(problem(&site.call(&first.key, "it", json!({}))), (401, "unauthorized".to_owned()));
    assert_eq!(site.result(&second.key, "it", json!({})), json!([]));
    assert_eq!(site.get(&second.key, "/v1/secrets").json(), json!({"secrets": []}));
    assert_eq!(site.get(&second.key, "/v1/audit").body.lines().count(), 1);
}

#[test]
fn nothing_of_another_tenants_sessions_can_be_named() {
    let two = shared();
    let Two { site, victim, stranger, session, .. } = &*two;
    let spellings = [
        session.clone(),
        format!("victim%2F{session}"),
        format!("..%2Fvictim%2F{session}"),
        format!("..%2F..%2F..%2Fvictim%2Fproject%2F.harness%2Fsessions%2F{session}"),
        format!("%2E%2E%2Fvictim%2F{session}"),
        format!("{session}%00"),
        format!("{session}%2F"),
        session[..10].to_owned(),
        "latest".to_owned(),
        format!("{session}?tenant=victim"),
    ];
    let mut tried = 0;
    for id in &spellings {
        let (path, query) = id.split_once('?').map_or((id.as_str(), String::new()), |(id, q)| (id, format!("?{q}")));
        for ending in ["", ".jsonl", ".html"] {
            let reply = site.get(&stranger.key, &format!("/v1/sessions/{path}{ending}{query}"));
            assert_eq!(problem(&reply), (404, "not_found".to_owned()), "{id}{ending}");
            tried += 1;
        }
        let turn = site.ask(&stranger.key, &format!("POST /v1/sessions/{path}/turns"), &json!({"input": "x"}));
        assert_eq!(problem(&turn), (404, "not_found".to_owned()), "{id}");
        let replay = site.ask(&stranger.key, &format!("POST /v1/sessions/{path}/replay"), &Json::Null);
        assert_eq!(problem(&replay), (404, "not_found".to_owned()), "{id}");
        tried += 2;
    }
    for after in ["", "victim/", "../victim/", session, "0", "%00", "%FF"] {
        let reply = site.get(&stranger.key, &format!("/v1/sessions?after={after}"));
        assert!(reply.status == 400 || reply.json()["sessions"] == json!([]), "{after}: {reply:?}");
        tried += 1;
    }
    assert_eq!(tried, 57);
    // The controls: its owner has each form, lists it, and replays it.
    for ending in ["", ".jsonl", ".html"] {
        let reply = site.get(&victim.key, &format!("/v1/sessions/{session}{ending}"));
        assert!(reply.status == 200 && reply.body.contains("mark-run"), "{ending}: {reply:?}");
    }
    assert!(site.get(&victim.key, "/v1/sessions").body.contains(session.as_str()));
    let replay = site.ask(&victim.key, &format!("POST /v1/sessions/{session}/replay"), &Json::Null);
    assert_eq!(replay.json()["replay"]["same"], true, "{replay:?}");
}

#[test]
fn an_idempotency_key_of_another_tenant_answers_nothing() {
    let two = shared();
    let Two { site, victim, stranger, session, .. } = &*two;
    let line = format!("POST /v1/sessions/{session}/replay");
    let key = [("Idempotency-Key", "shared-key")];
    let first = site.ask_with(&victim.key, &line, &key, &Json::Null);
    assert_eq!(first.status, 200, "{first:?}");
    let stolen = site.ask_with(&stranger.key, &line, &key, &Json::Null);
    assert_eq!(problem(&stolen), (404, "not_found".to_owned()));
    // Another key of the same tenant does it anew, and the same key gets the answer.
    let other = site.ask_with(&site.key("victim", "owner"), &line, &key, &Json::Null);
    assert!(other.status == 200 && !other.head.contains("idempotency-replayed"), "{other:?}");
    let again = site.ask_with(&victim.key, &line, &key, &Json::Null);
    assert_eq!((again.header("idempotency-replayed").as_str(), &again.body), ("true", &first.body));
}

#[test]
fn what_is_asked_of_the_own_project_shows_nothing_of_another() {
    let two = shared();
    let Two { site, victim, stranger, .. } = &*two;
    let policy = |key: &str, body: &Json| site.ask(key, "POST /v1/policy", body);
    let body = json!({"layer": {"fs": {"read": []}}});
    assert!(policy(&victim.key, &body).body.contains("mark_tool"));
    for body in [body, json!({"harness_md": "---\n---\n"}), json!({"harness_md": "---\nsandbox: { x: 1 }\n---\n"})] {
        let reply = policy(&stranger.key, &body);
        assert!(!reply.body.contains("mark"), "{reply:?}");
    }
    for path in ["/v1/plugins", "/v1/sessions", "/openapi.json", "/v1/policy"] {
        let reply = site.get(&stranger.key, path);
        assert!(reply.status == 200 && !reply.body.contains("mark") && !reply.body.contains("victim"), "{reply:?}");
    }
    // The log of the server is the operator's.
    for key in [&victim.key, &stranger.key] {
        assert_eq!(problem(&site.get(key, "/admin/v1/audit")), (404, "not_found".to_owned()));
    }
    let log = site.admin("GET /admin/v1/audit", &Json::Null);
    assert!(log.status == 200 && log.body.contains("\"victim\""), "{log:?}");
    for mark in MARKS {
        assert!(!log.body.contains(mark), "{mark}: {log:?}");
    }
}
