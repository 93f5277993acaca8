//! What is kept no longer: runs, their events, answered questions, and what is left of uploads.

use std::time::{Duration, Instant};

use harness_audit::{AuditWriter, FOLDER, Retention, Trimmed, trim, verify};
use rustix::process::Signal;
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::project::{FINE, Project};
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

/// A moment some days ago, as lines of the audit log have it.
fn ago(days: u64) -> (Duration, String) {
    let moment = std::time::UNIX_EPOCH.elapsed().unwrap() - Duration::from_secs(days * 86_400);
    (moment, (OffsetDateTime::UNIX_EPOCH + moment).format(&Rfc3339).unwrap())
}

/// The audit log of a tenant as days of use have left it: calls of so many days ago, in a file for each of these lists. A line
/// that says that its file is closed is as old as the last call of it.
fn used_for_days(audit: &std::path::Path, calls: &[&[u64]]) {
    for (at, days) in calls.iter().enumerate() {
        let log = AuditWriter::new().log(audit);
        for day in *days {
            let mut entry = log.entry().unwrap();
            entry.put("time", &ago(*day).1);
            entry.put("kind", "call");
            entry.put("tool", "old");
            entry.put("outcome", "completed");
            log.append(entry).block().unwrap();
        }
        let last = ago(*days.last().unwrap());
        let file = audit.join(format!("{:06}.jsonl", at + 1));
        if at + 1 < calls.len() {
            let time_of = |line: &str| {
                let time = serde_json::from_str::<serde_json::Value>(line).unwrap()["time"].as_str()?.to_owned();
                (OffsetDateTime::parse(&time, &Rfc3339).ok()? - OffsetDateTime::UNIX_EPOCH).try_into().ok()
            };
            let rule = Retention { time_of: &time_of, before: Duration::ZERO, due: last.0, now: &last.1 };
            assert_eq!(trim(audit, &rule), Ok(Trimmed { closed: true, ..Trimmed::default() }));
        }
        let file = std::fs::File::options().append(true).open(file).unwrap();
        file.set_modified(std::time::UNIX_EPOCH + last.0).unwrap();
    }
}

#[test]
fn old_files_of_an_audit_log_are_removed_and_the_rest_verifies() {
    let classes =
        "classes: { default: {}, short: { retention: { audit_days: 3 } }, long: { retention: { audit_days: 30 } } }\n";
    let site = Site::with_config(classes);
    let project = Project::with_script(FINE);
    let tenants = ["short", "long", "default"].map(|class| site.tenant_of(class, class, &project));
    let audit = |site: &Site, id: &str| site.data().join("tenants").join(id).join("project").join(FOLDER);
    let names = |site: &Site, id: &str| {
        let entries = std::fs::read_dir(audit(site, id)).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
        names.retain(|name| name.ends_with(".jsonl"));
        names.sort();
        names
    };
    // Lines 1 to 3, 4 to 6 and 7: the first file is wholly older than 3 days, of the second one only the first line is.
    for tenant in &tenants {
        used_for_days(&audit(&site, &tenant.id), &[&[10, 9], &[4, 2], &[0]]);
    }
    let whole: Vec<String> = tenants.iter().map(|one| site.get(&one.key, "/v1/audit").body).collect();
    assert_eq!(whole[0].lines().count(), 7);
    site.signal(Signal::TERM);
    let site = site.again();
    let short = &tenants[0];
    let until = Instant::now() + Duration::from_secs(60);
    while names(&site, "short").len() > 2 {
        assert!(Instant::now() < until, "the file is still there");
        std::thread::yield_now();
    }
    assert_eq!(names(&site, "short"), ["000002.jsonl", "000003.jsonl"]);
    // Calls continue the chain.
    assert_eq!(site.result(&short.key, "it", json!({})), "fine");
    let kept = site.get(&short.key, "/v1/audit");
    let lines: Vec<serde_json::Value> = kept.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last: serde_json::Value = serde_json::from_str(whole[0].lines().nth(2).unwrap()).unwrap();
    assert!(kept.body.starts_with(&whole[0].lines().skip(3).map(|line| format!("{line}\n")).collect::<String>()));
    assert_eq!(kept.header("audit-start"), format!("3 {}", last["hash"].as_str().unwrap()));
    assert_eq!((&lines[0]["seq"], &lines[0]["prev"]), (&json!(4), &last["hash"]));
    let seen: Vec<_> = lines.iter().map(|line| (&line["seq"], &line["kind"], &line["event"])).skip(4).collect();
    assert_eq!(
        seen,
        [(&json!(8), &json!("retention"), &json!("audit.removed")), (&json!(9), &json!("call"), &json!(null))]
    );
    let removal = (&lines[4]["through"], &lines[4]["removed"], &lines[4]["files"], &lines[4]["outcome"]);
    assert_eq!(removal, (&json!(3), &last["hash"], &json!(1), &json!("completed")));
    let part = site.get(&short.key, "/v1/audit?after=7&limit=1");
    assert_eq!((part.json()["seq"].clone(), part.header("audit-start")), (json!(8), kept.header("audit-start")));
    // The command line says it too.
    let folder = site.data().join("tenants/short/project");
    let said = site.harness(&["audit", "verify", "-C", folder.to_str().unwrap()], "");
    let hash = lines.last().unwrap()["hash"].as_str().unwrap();
    let first = last["hash"].as_str().unwrap();
    let expected = format!(
        "audit log intact: 6 entries, last hash {hash}\nthe first 3 are kept no longer; the last of them had the hash {first}\n"
    );
    assert_eq!(said, (0, expected, String::new()));
    // Nothing of those that keep it longer, or for ever, was removed; and where nothing was, nothing is said of it.
    for (tenant, before) in tenants.iter().zip(&whole).skip(1) {
        let now = site.get(&tenant.key, "/v1/audit");
        assert_eq!((&now.body, names(&site, &tenant.id).len()), (before, 3), "{}", tenant.id);
        assert!(!now.head.contains("audit-start"), "{now:?}");
    }
    // A backup keeps where it begins.
    let made = site.harness(&["admin", "backup", "kept", "--data", "data", "--verify"], "");
    assert_eq!(made.0, 0, "{made:?}");
    let copied = site.data().join("backups/kept/tenants/short/project").join(FOLDER);
    assert_eq!(verify(&copied).map(|summary| (summary.lines, summary.removed)), Ok((6, 3)));
}

#[test]
fn a_file_is_closed_a_day_after_its_first_line() {
    let site = Site::with_config("classes: { default: {}, short: { retention: { audit_days: 3 } } }\n");
    let project = Project::with_script(FINE);
    let tenants = ["short", "default"].map(|class| site.tenant_of(class, class, &project));
    let young = site.tenant_of("young", "short", &project);
    let audit = |site: &Site, id: &str| site.data().join("tenants").join(id).join("project").join(FOLDER);
    for tenant in &tenants {
        used_for_days(&audit(&site, &tenant.id), &[&[10, 2]]);
    }
    used_for_days(&audit(&site, &young.id), &[&[0]]);
    site.signal(Signal::TERM);
    let site = site.again();
    let until = Instant::now() + Duration::from_secs(60);
    while !audit(&site, "short").join("000002.jsonl").exists() {
        assert!(Instant::now() < until, "the file is still the last");
        std::thread::yield_now();
    }
    let events = |tenant: &crate::site::Tenant| {
        assert_eq!(site.result(&tenant.key, "it", json!({})), "fine");
        let body = site.get(&tenant.key, "/v1/audit").body;
        let lines: Vec<serde_json::Value> = body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        verify(&audit(&site, &tenant.id)).unwrap();
        lines.iter().map(|line| line["event"].as_str().unwrap_or("call").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(events(&tenants[0]), ["call", "call", "audit.closed", "call"]);
    for (tenant, count) in [(&tenants[1], 3), (&young, 2)] {
        assert_eq!(events(tenant), vec!["call"; count], "{}", tenant.id);
        assert!(!audit(&site, &tenant.id).join("000002.jsonl").exists(), "{}", tenant.id);
    }
}
