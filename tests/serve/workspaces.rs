//! Workspaces of a tenant: what is made and removed, what is in which, and what is tried from one on another, each with a
//! control.

use std::path::PathBuf;

use serde_json::{Value as Json, json};

use crate::mcp::Peer;
use crate::project::{FINE, Project};
use crate::runs::agent;
use crate::site::{Site, Tenant, problem};

const HEADER: &str = "Harness-Workspace";
/// Writes, reads or lists, and answers what came of it.
const FILES: &str = "def run(args):\n    if args['op'] == 'write':\n        return fs.write(args['path'], args['text'])\n    \
                     if args['op'] == 'list':\n        return fs.glob('**')\n    return fs.read(args['path'])\n";
const PARAMETERS: &str =
    "parameters: { op: { type: string }, path: { type: string, default: '' }, text: { type: string, default: '' } }\n";

fn site(class: &str) -> Site {
    Site::with_config(&format!("classes: {{ default: {{ workspaces: 3{class} }} }}\n"))
}

fn project() -> Project {
    Project::new().tool("files", PARAMETERS, FILES)
}

/// A tenant with the workspaces `a` and `b`.
fn tenant(site: &Site, project: &Project) -> Tenant {
    let acme = site.tenant("acme", project);
    for name in ["a", "b"] {
        let made = site.ask(&acme.key, "POST /v1/workspaces", &json!({"name": name}));
        assert_eq!((made.status, made.json()), (201, json!({"name": name})));
    }
    acme
}

fn names(site: &Site, key: &str) -> Vec<String> {
    let listed = site.get(key, "/v1/workspaces").json();
    listed["workspaces"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

fn folder(site: &Site, name: &str) -> PathBuf {
    site.data().join("tenants/acme/workspaces").join(name)
}

/// A call in a workspace that its body names.
fn call(site: &Site, key: &str, workspace: &str, arguments: Json) -> Json {
    site.ask(key, "POST /v1/tools/files/calls", &json!({"arguments": arguments, "workspace": workspace})).json()
}

/// A key that is narrowed to workspaces.
fn narrowed(site: &Site, owner: &str, role: &str, workspaces: &[&str]) -> String {
    let body = json!({"role": role, "label": "narrowed", "workspaces": workspaces});
    let made = site.ask(owner, "POST /v1/keys", &body);
    assert_eq!(made.status, 201, "{made:?}");
    made.json()["key"].as_str().unwrap().to_owned()
}

#[test]
fn they_are_made_listed_and_removed_by_those_who_may() {
    let site = site("");
    let acme = site.tenant("acme", &project());
    let make = |key: &str, name: &str| site.ask(key, "POST /v1/workspaces", &json!({"name": name}));
    let remove = |key: &str, name: &str| site.ask(key, &format!("DELETE /v1/workspaces/{name}"), &Json::Null);
    assert_eq!(names(&site, &acme.key), ["default"]);
    assert_eq!(make(&acme.key, "a").status, 201);
    assert_eq!(problem(&make(&acme.key, "a")), (409, "exists".to_owned()));
    assert_eq!(problem(&make(&acme.key, "default")), (409, "exists".to_owned()));
    for name in ["", "A", "..", "a/b", "a_b", "-a", "a-", "1", "ä", &"a".repeat(41)] {
        assert_eq!(problem(&make(&acme.key, name)), (400, "invalid".to_owned()), "{name}");
    }
    for role in ["approver", "auditor", "caller"] {
        let key = site.key("acme", role);
        assert_eq!(problem(&make(&key, "c")), (403, "forbidden".to_owned()), "{role}");
        assert_eq!(problem(&remove(&key, "a")), (403, "forbidden".to_owned()), "{role}");
        assert_eq!(names(&site, &key), ["default", "a"], "{role}");
    }
    assert_eq!(make(&site.key("acme", "developer"), "b").status, 201);
    let over = make(&acme.key, "c");
    assert_eq!(problem(&over), (409, "too_many_workspaces".to_owned()));
    assert_eq!(
        (over.json()["limit"].clone(), over.json()["set_by"].clone()),
        (json!("workspaces"), json!("the class `default` of the tenant"))
    );
    assert_eq!(problem(&remove(&acme.key, "default")), (409, "conflict".to_owned()));
    assert_eq!(problem(&remove(&acme.key, "none")), (404, "not_found".to_owned()));
    // With what is in it.
    assert_eq!(call(&site, &acme.key, "b", json!({"op": "write", "path": "x", "text": "1"}))["outcome"], "completed");
    assert!(folder(&site, "b").join("x").exists());
    assert_eq!(remove(&acme.key, "b").status, 200);
    assert!(!folder(&site, "b").exists());
    let gone = site.ask(&acme.key, "POST /v1/tools/files/calls", &json!({"workspace": "b"}));
    assert_eq!(problem(&gone), (404, "not_found".to_owned()));
    // One of the same name is another one.
    assert_eq!(make(&acme.key, "b").status, 201);
    assert_eq!(call(&site, &acme.key, "b", json!({"op": "list"}))["result"], json!([]));
    // And by the operator.
    let admin = |words: &[&str]| {
        let (code, out, err) = site.harness(&[&["admin", "workspace"], words, &["--data", "data"]].concat(), "");
        (code, serde_json::from_str::<Json>(&out).unwrap_or_default(), err)
    };
    assert_eq!(admin(&["remove", "acme", "b"]).1, json!({"name": "b"}));
    assert_eq!(admin(&["add", "acme", "d"]).1, json!({"name": "d"}));
    let listed = admin(&["list", "acme"]).1;
    assert_eq!((&listed["workspaces"][2]["name"], &listed["limit"]), (&json!("d"), &json!(3)), "{listed}");
    let (code, _, err) = admin(&["add", "acme", "e"]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("the tenant has 3 of 3 workspaces"), "{err}");
    // A restart keeps the names, and another tenant has its own.
    site.signal(rustix::process::Signal::TERM);
    let site = site.again();
    assert_eq!(names(&site, &acme.key), ["default", "a", "d"]);
    assert_eq!(names(&site, &site.tenant("other", &project()).key), ["default"]);
}

#[test]
fn a_request_says_which_it_is_for_and_sees_no_other() {
    let site = site(", workspace_bytes: 100");
    let acme = tenant(&site, &project());
    let put = |at: &str, head: &[(&str, &str)], text: &str| {
        site.ask_with(&acme.key, &format!("PUT /v1/files/{at}"), head, &json!(text)).status
    };
    assert_eq!(put("own", &[], "default"), 200);
    assert_eq!(put("own", &[(HEADER, "a")], "a"), 200);
    assert_eq!(put("own?workspace=b", &[], "b"), 200);
    assert_eq!(put("own?workspace=b", &[(HEADER, "b")], "b"), 200);
    assert_eq!(put("own?workspace=b", &[(HEADER, "a")], "x"), 400);
    assert_eq!(put("own", &[(HEADER, "none")], "x"), 404);
    assert_eq!(put("own", &[(HEADER, "../a")], "x"), 400);
    for name in ["default", "a", "b"] {
        let text = format!("\"{name}\"");
        let answer = call(&site, &acme.key, name, json!({"op": "read", "path": "own"}));
        assert_eq!(answer["result"], json!(text), "{answer}");
        assert_eq!(site.get(&acme.key, &format!("/v1/files/own?workspace={name}")).body, text);
        let listed = site.get(&acme.key, &format!("/v1/files?pattern=**&workspace={name}")).json();
        assert_eq!(listed, json!({"files": ["own"]}));
        let with_header = site.ask_with(
            &acme.key,
            "POST /v1/tools/files/calls",
            &[(HEADER, name)],
            &json!({"arguments": {"op": "read", "path": "own"}}),
        );
        assert_eq!(with_header.json()["result"], json!(text));
    }
    let both = site.ask_with(&acme.key, "POST /v1/tools/files/calls", &[(HEADER, "a")], &json!({"workspace": "b"}));
    assert_eq!(problem(&both), (400, "invalid".to_owned()));
    // No path of one leads to another, for a tool and for a client.
    let other = folder(&site, "b").join("own");
    assert!(other.exists());
    std::os::unix::fs::symlink(&other, folder(&site, "a").join("link")).unwrap();
    std::os::unix::fs::symlink(folder(&site, "b"), folder(&site, "a").join("folder")).unwrap();
    for path in ["../b/own", "../../workspaces/b/own", other.to_str().unwrap(), "link", "folder/own"] {
        let answer = call(&site, &acme.key, "a", json!({"op": "read", "path": path}));
        assert_eq!(answer["outcome"], "denied", "{path}: {answer}");
        let written = call(&site, &acme.key, "a", json!({"op": "write", "path": path, "text": "taken"}));
        assert_eq!(written["outcome"], "denied", "{path}: {written}");
    }
    assert_eq!(problem(&site.get(&acme.key, "/v1/files/link?workspace=a")).0, 403);
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "\"b\"");
    // Each has a quota of its own.
    let text = "x".repeat(90);
    for name in ["a", "b"] {
        let written = call(&site, &acme.key, name, json!({"op": "write", "path": "big", "text": text}));
        assert_eq!(written["outcome"], "completed", "{written}");
        let full = call(&site, &acme.key, name, json!({"op": "write", "path": "more", "text": text}));
        assert_eq!(full["outcome"], "denied", "{full}");
    }
    let usage = site.get(&acme.key, "/v1/usage").json();
    let used: Vec<(&Json, &Json)> =
        usage["workspaces"].as_array().unwrap().iter().map(|one| (&one["name"], &one["bytes"]["used"])).collect();
    assert_eq!(used, [(&json!("default"), &json!(9)), (&json!("a"), &json!(93)), (&json!("b"), &json!(93))]);
    // The audit log names it, and the usual one not.
    let log = site.get(&acme.key, "/v1/audit").body;
    let calls =
        log.lines().map(|line| serde_json::from_str::<Json>(line).unwrap()).filter(|line| line["kind"] == "call");
    let of: Vec<Json> = calls.map(|line| line["workspace"].clone()).take(4).collect();
    assert_eq!(of, [Json::Null, Json::Null, json!("a"), json!("a")]);
}

#[test]
fn repeated_requests_and_chats_are_of_one_workspace() {
    let site = site("");
    let acme = tenant(&site, &agent(""));
    let once = |workspace: &str| {
        let head = [("Idempotency-Key", "k"), (HEADER, workspace)];
        let reply = site.ask_with(&acme.key, "POST /v1/tools/it/calls", &head, &json!({}));
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.head.contains("idempotency-replayed")
    };
    assert_eq!([once("a"), once("b"), once("a"), once("b")], [false, false, true, true]);
    let chat = |workspace: &str, messages: Json| {
        let body = json!({"model": "agent", "messages": messages});
        site.ask_with(&acme.key, "POST /v1/chat/completions", &[(HEADER, workspace)], &body).json()
    };
    let user = |text: &str| json!({"role": "user", "content": text});
    let first = chat("a", json!([user("do it")]));
    assert_eq!(first["choices"][0]["message"]["content"], "all done", "{first}");
    let conversation = json!([user("do it"), first["choices"][0]["message"], user("more")]);
    chat("b", conversation.clone());
    chat("a", conversation);
    let runs = site.get(&acme.key, "/v1/runs").json()["runs"].clone();
    let of: Vec<&Json> = runs.as_array().unwrap().iter().map(|run| &run["workspace"]).collect();
    assert_eq!(of, [&json!("a"), &json!("b"), &json!("a")]);
    // Only in its own it was continued: in the other one it was the first message.
    let resumes = |run: &Json| {
        let session = site.get(&acme.key, &format!("/v1/sessions/{}.jsonl", run["session"].as_str().unwrap())).body;
        serde_json::from_str::<Json>(session.lines().next().unwrap()).unwrap()["resumes"].clone()
    };
    assert_eq!([resumes(&runs[1]), resumes(&runs[2])], [Json::Null, runs[0]["session"].clone()]);
}

#[test]
fn a_key_can_be_narrowed_to_some() {
    let site = site("");
    let acme = tenant(&site, &agent("confirm: true\n").tool("files", PARAMETERS, FILES));
    let owner = narrowed(&site, &acme.key, "owner", &["a"]);
    let both = narrowed(&site, &acme.key, "developer", &["a", "b"]);
    let write = |key: &str, workspace: &str| {
        let body = json!({"arguments": {"op": "write", "path": "x", "text": "1"}, "workspace": workspace});
        site.ask(key, "POST /v1/tools/files/calls", &body).status
    };
    assert_eq!(
        [write(&owner, "a"), write(&owner, "b"), write(&owner, "default"), write(&owner, "none")],
        [200, 404, 404, 404]
    );
    assert_eq!([write(&both, "a"), write(&both, "b"), write(&both, "default")], [200, 200, 404]);
    assert_eq!(names(&site, &owner), ["a"]);
    // Without a name, one that has a single workspace means that.
    assert_eq!(site.ask(&owner, "PUT /v1/files/y", &json!("1")).status, 200);
    assert!(folder(&site, "a").join("y").exists());
    assert_eq!(problem(&site.ask(&both, "PUT /v1/files/y", &json!("1"))), (400, "invalid".to_owned()));
    for line in [
        "GET /v1/audit",
        "GET /v1/keys",
        "GET /v1/secrets",
        "GET /v1/webhooks",
        "PUT /v1/project",
        "DELETE /v1/workspaces/a",
    ] {
        let refused = site.ask(&owner, line, &Json::Null);
        assert_eq!(problem(&refused), (403, "forbidden".to_owned()), "{line}");
        assert_eq!(refused.json()["set_by"], "the workspaces of the key", "{line}");
        // The control: an owner that is not narrowed may.
        let other = site.ask(&acme.key, line, &Json::Null);
        assert!(other.status != 403, "{line}: {other:?}");
    }
    assert_eq!(site.ask(&acme.key, "POST /v1/workspaces", &json!({"name": "a"})).status, 201);
    for workspaces in [json!([]), json!(["none"]), json!(["a", "../b"])] {
        let body = json!({"role": "caller", "label": "x", "workspaces": workspaces});
        assert!(site.ask(&acme.key, "POST /v1/keys", &body).status >= 400, "{workspaces}");
    }
    // What happens in another one is not there for it: runs, sessions, and questions.
    let begin = |workspace: &str| {
        let run = site.ask(&acme.key, "POST /v1/runs", &json!({"input": "do it", "workspace": workspace})).json();
        let run = run["id"].as_str().unwrap().to_owned();
        let question = site.event(&acme.key, &run, "waiting");
        (run, question["approval"].as_str().unwrap().to_owned(), question["args_digest"].clone())
    };
    let (in_a, in_b) = (begin("a"), begin("b"));
    let ids = |key: &str, path: &str| {
        let listed = site.get(key, path).json();
        let all = listed.as_object().unwrap().values().find_map(Json::as_array).unwrap().clone();
        all.iter().map(|one| one["workspace"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((ids(&owner, "/v1/approvals"), ids(&acme.key, "/v1/approvals").len()), (vec!["a".to_owned()], 2));
    assert_eq!(site.get(&owner, &format!("/v1/runs/{}", in_b.0)).status, 404);
    assert_eq!(site.get(&owner, &format!("/v1/runs/{}/events", in_b.0)).status, 404);
    assert_eq!(site.ask(&owner, &format!("DELETE /v1/runs/{}", in_b.0), &Json::Null).status, 404);
    let answer = |(_, question, digest): &(String, String, Json)| {
        site.ask(&owner, &format!("POST /v1/approvals/{question}"), &json!({"answer": "yes", "args_digest": digest}))
            .status
    };
    assert_eq!((answer(&in_b), answer(&in_a)), (404, 200));
    let done = site.ended(&owner, &in_a.0);
    assert_eq!((&done["state"], &done["workspace"]), (&json!("completed"), &json!("a")));
    assert_eq!(ids(&owner, "/v1/runs"), ["a"]);
    // The control: a key that is not narrowed answers both.
    let line = format!("POST /v1/approvals/{}", in_b.1);
    let yes = json!({"answer": "yes", "args_digest": in_b.2});
    assert_eq!(site.ask(&site.key("acme", "approver"), &line, &yes).status, 200);
    let session = site.ended(&acme.key, &in_b.0)["session"].as_str().unwrap().to_owned();
    for path in [session.clone(), format!("{session}.jsonl"), format!("{session}.html")] {
        assert_eq!(site.get(&owner, &format!("/v1/sessions/{path}")).status, 404, "{path}");
        assert_eq!(site.get(&both, &format!("/v1/sessions/{path}")).status, 200, "{path}");
    }
    let turn =
        |key: &str, session: &str| site.ask(key, &format!("POST /v1/sessions/{session}/turns"), &json!({"input": "x"}));
    assert_eq!(turn(&owner, &session).status, 404);
    assert_eq!(site.ask(&owner, "POST /v1/runs", &json!({"input": "x", "session": session})).status, 404);
}

#[test]
fn a_session_continues_in_its_own() {
    let site = site("");
    let acme = tenant(&site, &agent(""));
    let begin = |body: Json| site.ask(&acme.key, "POST /v1/runs", &body);
    let first = begin(json!({"input": "do it", "workspace": "a"})).json();
    assert_eq!(first["workspace"], "a");
    let first = site.ended(&acme.key, first["id"].as_str().unwrap());
    let session = first["session"].clone();
    let elsewhere = begin(json!({"input": "again", "session": session, "workspace": "b"}));
    assert_eq!(problem(&elsewhere), (409, "conflict".to_owned()));
    for body in
        [json!({"input": "again", "session": session}), json!({"input": "again", "session": session, "workspace": "a"})]
    {
        let run = begin(body).json();
        assert_eq!(run["workspace"], "a", "{run}");
        site.ended(&acme.key, run["id"].as_str().unwrap());
    }
    let turn = site
        .ask(&acme.key, &format!("POST /v1/sessions/{}/turns", session.as_str().unwrap()), &json!({"input": "x"}))
        .json();
    assert_eq!(turn["workspace"], "a", "{turn}");
    site.ended(&acme.key, turn["id"].as_str().unwrap());
    let sessions = site.get(&acme.key, "/v1/sessions").json();
    assert!(sessions["sessions"].as_array().unwrap().iter().all(|one| one["workspace"] == "a"), "{sessions}");
}

#[test]
fn a_run_is_continued_in_its_own_after_a_kill() {
    let mut site = site("");
    let marks = "def run(args):\n    fs.append('marks', 'x')\n    for _ in range(20000):\n        if fs.exists('go'):\n            return 'done'\n        sleep(5)\n";
    let project = Project::new().tool("it", "timeout_ms: 600000\neffect: idempotent\n", marks);
    let acme = tenant(&site, &project);
    let head = [("Prefer", "respond-async")];
    let run = site.ask_with(&acme.key, "POST /v1/tools/it/calls", &head, &json!({"workspace": "a"})).json();
    let run = run["id"].as_str().unwrap().to_owned();
    let marks = |site: &Site, name: &str| std::fs::read_to_string(folder(site, name).join("marks")).unwrap_or_default();
    while marks(&site, "a") != "x" {
        std::thread::yield_now();
    }
    site.kill();
    let site = site.again();
    while marks(&site, "a") != "xx" {
        std::thread::yield_now();
    }
    // As long as it is under way, its workspace stays.
    let remove = |name: &str| site.ask(&acme.key, &format!("DELETE /v1/workspaces/{name}"), &Json::Null);
    assert_eq!(problem(&remove("a")), (409, "in_use".to_owned()));
    assert_eq!(remove("b").status, 200);
    std::fs::write(folder(&site, "a").join("go"), "").unwrap();
    let ended = site.ended(&acme.key, &run);
    assert_eq!((&ended["state"], &ended["workspace"]), (&json!("completed"), &json!("a")), "{ended}");
    assert!(!site.data().join("tenants/acme/workspace/marks").exists());
    while remove("a").status != 200 {
        std::thread::yield_now();
    }
    assert!(!folder(&site, "a").exists());
}

#[test]
fn calls_keep_a_workspace_and_have_one_share_together() {
    let site = site(", concurrent_calls: 1, queued_calls: 0");
    let endless = "def run(args):\n    fs.write('began', 'x')\n    for _ in range(1 << 30):\n        pass\n";
    let acme = tenant(&site, &Project::new().tool("endless", "timeout_ms: 600000\n", endless).tool("it", "", FINE));
    let stream = site.stream(&acme.key, "POST /v1/tools/endless/calls", "Harness-Workspace: a\r\n", "{}");
    while !folder(&site, "a").join("began").exists() {
        std::thread::yield_now();
    }
    // What one workspace uses, the others of the tenant have not.
    let refused = site.ask(&acme.key, "POST /v1/tools/it/calls", &json!({"workspace": "b"}));
    assert_eq!(problem(&refused), (429, "busy".to_owned()));
    let remove = || site.ask(&acme.key, "DELETE /v1/workspaces/a", &Json::Null);
    assert_eq!(problem(&remove()), (409, "in_use".to_owned()));
    assert!(folder(&site, "a").exists());
    drop(stream);
    while remove().status != 200 {
        std::thread::yield_now();
    }
    let fine = loop {
        let fine = site.ask(&acme.key, "POST /v1/tools/it/calls", &json!({"workspace": "b"}));
        if fine.status == 200 {
            break fine;
        }
    };
    assert_eq!(fine.json()["result"], "fine");
}

#[test]
fn clients_of_the_protocol_name_one_and_take_nothing_along() {
    let site = site("");
    let acme = tenant(&site, &project());
    let peer = Peer::new(&site, &acme.key);
    let tool = |workspace: &str, arguments: Json| {
        let answer =
            peer.ask_with("tools/call", json!({"name": "files", "arguments": arguments}), &[(HEADER, workspace)]);
        answer.json()["result"]["content"][0]["text"].as_str().unwrap().to_owned()
    };
    tool("a", json!({"op": "write", "path": "x", "text": "of a"}));
    assert_eq!(std::fs::read_to_string(folder(&site, "a").join("x")).unwrap(), "of a");
    assert_eq!(
        (tool("a", json!({"op": "list"})), tool("b", json!({"op": "list"}))),
        ("[\"x\"]".to_owned(), "[]".to_owned())
    );
    // A session of one is none in another.
    let begins = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}});
    let begun = peer.post(&[(HEADER, "a")], &begins.to_string());
    let session = begun.header("mcp-session-id");
    let list = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}).to_string();
    let with = |workspace: &str| {
        let head = [(HEADER, workspace), ("Mcp-Session-Id", session.as_str()), ("MCP-Protocol-Version", "2025-11-25")];
        peer.post(&head, &list).status
    };
    assert_eq!((with("a"), with("b"), with("default"), with("none")), (200, 404, 404, 404));
    // An upload reaches each of them.
    let next = Project::new().tool("files", PARAMETERS, FILES).tool("new", "", FINE);
    assert_eq!(site.upload(&acme.key, &crate::site::archive(&next)).status, 200);
    for workspace in ["a", "b"] {
        let tools = peer.ask_with("tools/list", json!({}), &[(HEADER, workspace)]).json();
        assert_eq!(tools["result"]["tools"].as_array().unwrap().len(), 2, "{tools}");
    }
    assert_eq!(site.ask(&acme.key, "DELETE /v1/workspaces/a", &Json::Null).status, 200);
}

#[test]
fn a_backup_has_them() {
    let site = site("");
    let acme = tenant(&site, &project());
    call(&site, &acme.key, "a", json!({"op": "write", "path": "n/x", "text": "of a"}));
    let (code, out, err) = site.harness(&["admin", "backup", "b", "--data", "data", "--verify"], "");
    assert_eq!(code, 0, "{out}{err}");
    let restore = ["admin", "restore", "data/backups/b", "--data", "other", "--sealing-key", "data/sealing.key"];
    let (code, out, err) = site.harness(&restore, "");
    assert_eq!(code, 0, "{out}{err}");
    let copied = site.folder().join("other/tenants/acme/workspaces/a/n/x");
    assert_eq!(std::fs::read_to_string(copied).unwrap(), "of a");
}
