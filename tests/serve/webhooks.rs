//! Webhooks: what is sent to receivers of tenants, signed, until it is taken; and what tenants and receivers try.

use std::io::{BufReader, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};

use crate::project::{FINE, Project};
use crate::remote_hostile::{Asked, answer};
use crate::runs::agent;
use crate::site::{Site, Tenant, problem};

/// Longer than anything here takes, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Who is sent to, at an address of its own.
struct Hook {
    url: String,
    place: String,
    got: Receiver<Asked>,
}

impl Hook {
    /// One that answers so.
    fn answering(answer_of: impl Fn(&Asked) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = listener.local_addr().unwrap().to_string();
        let (sender, got) = channel();
        let answer_of = Arc::new(answer_of);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (sender, answer_of) = (sender.clone(), answer_of.clone());
                std::thread::spawn(move || {
                    let mut stream = BufReader::new(stream.unwrap());
                    let asked = Asked::read(&mut stream);
                    let answer = answer_of(&asked);
                    let _ = sender.send(asked);
                    let _ = stream.get_mut().write_all(&answer);
                });
            }
        });
        Self { url: format!("http://{place}/in"), place, got }
    }

    fn taking() -> Self {
        Self::answering(|_| answer("204 No Content", "", "text/plain", ""))
    }

    /// What came next.
    fn next(&self) -> Asked {
        self.got.recv_timeout(PATIENCE).unwrap()
    }
}

/// A server whose tenants may have webhooks at these receivers.
fn site(hooks: &[&Hook], more: &str) -> Site {
    let places: Vec<String> = hooks.iter().map(|hook| format!("'{}'", hook.place)).collect();
    let inside = format!("webhooks: 5, webhooks_inside: [{}]{more}", places.join(", "));
    Site::with_config(&format!("classes: {{ default: {{ {inside} }}, none: {{}} }}\n"))
}

fn create(site: &Site, tenant: &Tenant, url: &str, events: &[&str]) -> Json {
    let made = site.ask(&tenant.key, "POST /v1/webhooks", &json!({"url": url, "events": events}));
    assert_eq!(made.status, 201, "{made:?}");
    made.json()
}

fn id(webhook: &Json) -> &str {
    webhook["id"].as_str().unwrap()
}

fn test(site: &Site, tenant: &Tenant, webhook: &Json) -> Json {
    let sent = site.ask(&tenant.key, &format!("POST /v1/webhooks/{}/test", id(webhook)), &Json::Null);
    assert_eq!(sent.status, 202, "{sent:?}");
    sent.json()
}

fn deliveries(site: &Site, tenant: &Tenant, webhook: &Json) -> Vec<Json> {
    let listed = site.get(&tenant.key, &format!("/v1/webhooks/{}/deliveries", id(webhook)));
    assert_eq!(listed.status, 200, "{listed:?}");
    listed.json()["deliveries"].as_array().unwrap().clone()
}

/// The deliveries of a webhook, once this holds for them.
#[track_caller]
fn until(site: &Site, tenant: &Tenant, webhook: &Json, holds: impl Fn(&[Json]) -> bool) -> Vec<Json> {
    let end = Instant::now() + PATIENCE;
    loop {
        let all = deliveries(site, tenant, webhook);
        if holds(&all) {
            return all;
        }
        assert!(Instant::now() < end, "{all:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The error of the first attempt of the only delivery.
fn first_error(site: &Site, tenant: &Tenant, webhook: &Json) -> (Json, String) {
    let all = until(site, tenant, webhook, |all| all.iter().any(|one| one["attempts"][0].is_object()));
    let attempt = &all[0]["attempts"][0];
    (attempt["status"].clone(), attempt["error"].as_str().unwrap_or_default().to_owned())
}

/// HMAC-SHA256 as RFC 2104 has it.
fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let padded = |with: u8| -> Vec<u8> { (0..64).map(|at| key.get(at).copied().unwrap_or(0) ^ with).collect() };
    let inner = Sha256::digest([&padded(0x36)[..], text].concat());
    Sha256::digest([&padded(0x5c)[..], &inner[..]].concat()).to_vec()
}

/// The signatures of what was sent that a secret verifies.
fn signed_by(asked: &Asked, secret: &str) -> usize {
    let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let [id, at] = ["webhook-id", "webhook-timestamp"].map(|name| asked.header(name).unwrap());
    let expected = format!("v1,{}", STANDARD.encode(hmac(&key, format!("{id}.{at}.{}", asked.body).as_bytes())));
    asked.header("webhook-signature").unwrap().split(' ').filter(|one| *one == expected).count()
}

#[test]
fn events_of_a_tenant_are_sent_signed_and_with_nothing_of_their_content() {
    let (hook, other) = (Hook::taking(), Hook::taking());
    let site = site(&[&hook, &other], "");
    let acme = site.tenant("acme", &agent("confirm: true\nparameters: { word: { type: string } }\n"));
    let all = ["run.finished", "run.failed", "approval.requested", "approval.answered"];
    let webhook = create(&site, &acme, &hook.url, &all);
    let failures = create(&site, &acme, &other.url, &["run.failed"]);
    let secret = webhook["secret"].as_str().unwrap();
    let run = site.begin(&acme.key, "do it with the magic word");
    let asked = hook.next();
    assert_eq!(asked.line, "POST /in HTTP/1.1");
    assert_eq!(asked.header("content-type"), Some("application/json"));
    assert_eq!((signed_by(&asked, secret), signed_by(&asked, failures["secret"].as_str().unwrap())), (1, 0));
    let requested: Json = serde_json::from_str(&asked.body).unwrap();
    assert_eq!(
        (&requested["type"], &requested["id"]),
        (&json!("approval.requested"), &json!(asked.header("webhook-id")))
    );
    let waiting = site.event(&acme.key, &run, "waiting");
    let approval = waiting["approval"].clone();
    let data = json!({"approval": approval, "run": run, "tool": "it", "expires": requested["data"]["expires"]});
    assert_eq!(requested["data"], data);
    let line = format!("POST /v1/approvals/{}", approval.as_str().unwrap());
    let yes = json!({"answer": "yes", "args_digest": waiting["args_digest"]});
    assert_eq!(site.ask(&site.key("acme", "approver"), &line, &yes).status, 200);
    let mut rest = [hook.next(), hook.next()].map(|asked| {
        assert_eq!(signed_by(&asked, secret), 1);
        assert!(!["magic", "all done", "fine", "args"].iter().any(|word| asked.body.contains(word)), "{}", asked.body);
        serde_json::from_str::<Json>(&asked.body).unwrap()
    });
    rest.sort_by_key(|one| one["type"].as_str().unwrap().to_owned());
    let record = site.ended(&acme.key, &run);
    assert_eq!(rest[0]["data"], json!({"approval": approval, "run": run, "tool": "it", "answer": "yes"}));
    assert_eq!(
        rest[1]["data"],
        json!({"run": run, "kind": "turn", "tool": null, "state": "completed", "session": record["session"],
            "created": record["created"], "ended": record["ended"]})
    );
    // A run that is stopped has failed, and is for both.
    let stopped =
        site.ask_with(&acme.key, "POST /v1/tools/it/calls", &[("Prefer", "respond-async")], &json!({})).json();
    site.event(&acme.key, stopped["id"].as_str().unwrap(), "waiting");
    site.ask(&acme.key, &format!("DELETE /v1/runs/{}", stopped["id"].as_str().unwrap()), &Json::Null);
    let failed: Json = serde_json::from_str(&other.next().body).unwrap();
    assert_eq!(
        (&failed["type"], &failed["data"]["run"], &failed["data"]["state"]),
        (&json!("run.failed"), &stopped["id"], &json!("stopped"))
    );
    let sent = until(&site, &acme, &webhook, |all| all.iter().all(|one| one["state"] == "delivered") && all.len() == 5);
    let attempts: Vec<&Json> = sent.iter().map(|one| &one["attempts"][0]["status"]).collect();
    assert_eq!(attempts, [&json!(204); 5]);
    assert_eq!(until(&site, &acme, &failures, |all| all.len() == 1)[0]["type"], "run.failed");
}

#[test]
fn what_is_not_taken_is_sent_again_also_by_the_next_process() {
    let takes = Arc::new(AtomicBool::new(false));
    let hook = {
        let takes = takes.clone();
        Hook::answering(move |_| match takes.load(Ordering::SeqCst) {
            true => answer("200 OK", "", "text/plain", "taken"),
            false => answer("500 Internal Server Error", "", "text/plain", "not now"),
        })
    };
    let mut site = site(&[&hook], "");
    let acme = site.tenant("acme", &agent(""));
    let webhook = create(&site, &acme, &hook.url, &["run.finished"]);
    let run = site.begin(&acme.key, "do it");
    let first = hook.next();
    let failed = until(&site, &acme, &webhook, |all| all.iter().any(|one| one["attempts"][0].is_object()));
    assert_eq!(failed[0]["attempts"][0]["error"], "it answers 500");
    assert_eq!((&failed[0]["state"], failed[0]["next"].is_u64()), (&json!("waiting"), true));
    assert!(site.get(&acme.key, &format!("/v1/webhooks/{}", id(&webhook))).json()["failing_since"].is_u64());
    site.kill();
    takes.store(true, Ordering::SeqCst);
    let site = site.again();
    let taken = until(&site, &acme, &webhook, |all| all[0]["state"] == "delivered");
    assert_eq!(taken.len(), 1);
    let last = taken[0]["attempts"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["status"], &last["error"]), (&json!(200), &Json::Null));
    let again: Vec<Asked> = hook.got.try_iter().collect();
    assert!(!again.is_empty());
    for one in &again {
        assert_eq!((one.header("webhook-id"), &one.body), (first.header("webhook-id"), &first.body));
        assert_eq!(signed_by(one, webhook["secret"].as_str().unwrap()), 1);
    }
    assert!(first.body.contains(&run));
    assert_eq!(site.get(&acme.key, &format!("/v1/webhooks/{}", id(&webhook))).json()["failing_since"], Json::Null);
}

#[test]
fn a_secret_is_shown_once_sealed_and_rotated() {
    let hook = Hook::taking();
    let site = site(&[&hook], "");
    let acme = site.tenant("acme", &Project::with_script(FINE));
    let webhook = create(&site, &acme, &hook.url, &["run.finished"]);
    let path = format!("/v1/webhooks/{}", id(&webhook));
    let secret = webhook["secret"].as_str().unwrap().to_owned();
    let mut shown = webhook.clone();
    shown.as_object_mut().unwrap().remove("secret");
    assert_eq!(site.get(&acme.key, &path).json(), shown);
    assert_eq!(site.get(&acme.key, "/v1/webhooks").json(), json!({"webhooks": [shown]}));
    test(&site, &acme, &webhook);
    assert_eq!(signed_by(&hook.next(), &secret), 1);
    let rotated = site.ask(&acme.key, &format!("POST {path}/secret"), &Json::Null).json();
    let new = rotated["secret"].as_str().unwrap().to_owned();
    assert!(new != secret && rotated["previous_until"].as_u64().unwrap() > 0);
    test(&site, &acme, &webhook);
    let sent = hook.next();
    assert_eq!((signed_by(&sent, &secret), signed_by(&sent, &new)), (1, 1));
    // Neither is in what the server keeps; the control: the address is.
    let holds = |text: &str| {
        let files = std::fs::read_dir(site.data()).unwrap().map(|entry| entry.unwrap().path());
        let files = files.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("store.db"));
        files
            .map(|path| std::fs::read(path).unwrap())
            .any(|bytes| bytes.windows(text.len()).any(|part| part == text.as_bytes()))
    };
    assert!(holds(&hook.place) && !holds(&secret) && !holds(&new));
    let removed = site.ask(&acme.key, &format!("DELETE {path}"), &Json::Null);
    assert_eq!(removed.status, 200);
    assert_eq!(problem(&site.get(&acme.key, &format!("{path}/deliveries"))), (404, "not_found".to_owned()));
}

#[test]
fn nothing_is_sent_into_the_network_of_the_server() {
    let hook = Hook::taking();
    let site = site(&[&hook], "");
    let acme = site.tenant("acme", &Project::with_script(FINE));
    let port = hook.place.rsplit_once(':').unwrap().1.to_owned();
    let make = |url: &str| site.ask(&acme.key, "POST /v1/webhooks", &json!({"url": url, "events": ["run.finished"]}));
    for url in [
        "http://hooks.example.com/".to_owned(),
        "https://127.0.0.1/".to_owned(),
        format!("https://localhost:{port}/in"),
        format!("http://127.1.1.1:{port}/in"),
        format!("http://[::1]:{port}/in"),
        format!("http://[::ffff:127.0.0.1]:{port}/in"),
        "https://169.254.169.254/latest/meta-data".to_owned(),
        "https://10.0.0.1/".to_owned(),
        "https://2130706433/".to_owned(),
        format!("http://user:password@{}/in", hook.place),
        format!("{}#part", hook.url),
        format!("{}\r\nX-Injected: 1", hook.url),
        format!("{} HTTP/1.1", hook.url),
        "file:///etc/passwd".to_owned(),
        "gopher://hooks.example.com/".to_owned(),
        format!("https://hooks.example.com/{}", "x".repeat(3000)),
        String::new(),
    ] {
        let refused = make(&url);
        assert_eq!(problem(&refused), (400, "invalid".to_owned()), "{url}: {refused:?}");
    }
    // A change is checked as well, and so is what a name leads to when it is connected to.
    let webhook = create(&site, &acme, &hook.url, &["run.finished"]);
    let path = format!("PATCH /v1/webhooks/{}", id(&webhook));
    assert_eq!(problem(&site.ask(&acme.key, &path, &json!({"url": "https://10.0.0.1/"}))), (400, "invalid".to_owned()));
    let inside = create(&site, &acme, &format!("https://localhost.:{port}/in"), &["run.finished"]);
    test(&site, &acme, &inside);
    let (status, error) = first_error(&site, &acme, &inside);
    assert!(
        status.is_null()
            && ["its name leads to an address that is not public", "no connection can be made"]
                .contains(&error.as_str()),
        "{error}"
    );
    assert!(hook.got.try_recv().is_err());
    // The control: what the operator has named is reached.
    test(&site, &acme, &webhook);
    hook.next();
}

#[test]
fn a_redirect_is_not_followed_and_an_endless_answer_is_not_read() {
    let elsewhere = Hook::taking();
    let location = format!("Location: {}\r\n", elsewhere.url);
    let redirects = Hook::answering(move |_| answer("307 Temporary Redirect", &location, "text/plain", ""));
    let endless = Hook::answering(|_| {
        let mut bytes = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n".to_vec();
        bytes.resize(64 << 20, b'x');
        bytes
    });
    let site = site(&[&elsewhere, &redirects, &endless], "");
    let acme = site.tenant("acme", &Project::with_script(FINE));
    let webhook = create(&site, &acme, &redirects.url, &["run.finished"]);
    test(&site, &acme, &webhook);
    redirects.next();
    let expected = (json!(307), "it answers 307, and redirects are not followed".to_owned());
    assert_eq!(first_error(&site, &acme, &webhook), expected);
    assert!(elsewhere.got.try_recv().is_err());
    let webhook = create(&site, &acme, &endless.url, &["run.finished"]);
    test(&site, &acme, &webhook);
    until(&site, &acme, &webhook, |all| all[0]["state"] == "delivered");
    // The control: the receiver that the redirect names is one that may be sent to.
    let webhook = create(&site, &acme, &elsewhere.url, &["run.finished"]);
    test(&site, &acme, &webhook);
    elsewhere.next();
}

#[test]
fn a_receiver_that_does_not_answer_delays_its_own_tenant_alone() {
    let (release, held) = channel::<()>();
    let held = std::sync::Mutex::new(held);
    let slow = Hook::answering(move |_| {
        // Until the test is over.
        let _ = held.lock().unwrap().recv();
        Vec::new()
    });
    let quick = Hook::taking();
    let site = site(&[&slow, &quick], "");
    let project = Project::with_script(FINE);
    let (acme, other) = (site.tenant("acme", &project), site.tenant("other", &project));
    let webhook = create(&site, &acme, &slow.url, &["run.finished"]);
    for _ in 0..20 {
        test(&site, &acme, &webhook);
    }
    let webhook = create(&site, &other, &quick.url, &["run.finished"]);
    let sent = test(&site, &other, &webhook);
    assert_eq!(quick.next().header("webhook-id"), sent["id"].as_str());
    drop(release);
}

#[test]
fn webhooks_of_another_tenant_are_not_there() {
    let hook = Hook::taking();
    let site = site(&[&hook], "");
    let project = Project::with_script(FINE);
    let (acme, other) = (site.tenant("acme", &project), site.tenant("other", &project));
    let webhook = create(&site, &acme, &hook.url, &["run.finished"]);
    let path = format!("/v1/webhooks/{}", id(&webhook));
    let lines = [
        format!("GET {path}"),
        format!("POST {path}/test"),
        format!("POST {path}/secret"),
        format!("GET {path}/deliveries"),
        format!("GET /v1/webhooks/..%2Facme%2F{}", id(&webhook)),
        format!("DELETE {path}"),
    ];
    for line in &lines {
        assert_eq!(problem(&site.ask(&other.key, line, &Json::Null)), (404, "not_found".to_owned()), "{line}");
    }
    assert_eq!(problem(&site.ask(&other.key, &format!("PATCH {path}"), &json!({}))), (404, "not_found".to_owned()));
    assert_eq!(site.get(&other.key, "/v1/webhooks").json(), json!({"webhooks": []}));
    // The controls: the owner's key, and a key that may not.
    for line in lines.iter().filter(|line| !line.contains("..%2F")) {
        let status = site.ask(&acme.key, line, &Json::Null).status;
        assert!((200..300).contains(&status), "{line}: {status}");
    }
    for role in ["approver", "auditor", "caller"] {
        let key = site.key("acme", role);
        assert_eq!(problem(&site.get(&key, "/v1/webhooks")), (403, "forbidden".to_owned()), "{role}");
    }
}

#[test]
fn a_class_says_how_many_there_are_and_none_by_default() {
    let hook = Hook::taking();
    let site = site(&[&hook], "");
    let project = Project::with_script(FINE);
    let make = |tenant: &Tenant, body: Json| site.ask(&tenant.key, "POST /v1/webhooks", &body);
    let none = site.tenant_of("none", "none", &project);
    let body = json!({"url": "https://hooks.example.com/", "events": ["run.finished"]});
    let refused = make(&none, body.clone());
    assert_eq!(problem(&refused), (409, "too_many_webhooks".to_owned()));
    assert_eq!(refused.json()["detail"], "the class of this tenant has no webhooks");
    // What one class names is of no use in another.
    let named = json!({"url": hook.url, "events": ["run.finished"]});
    assert_eq!(problem(&make(&none, named)), (400, "invalid".to_owned()));
    let acme = site.tenant("acme", &project);
    for _ in 0..5 {
        assert_eq!(make(&acme, body.clone()).status, 201);
    }
    let refused = make(&acme, body);
    assert_eq!(problem(&refused), (409, "too_many_webhooks".to_owned()));
    assert_eq!(refused.json()["set_by"], "the class `default` of the tenant");
    for wrong in [
        json!({"url": "https://hooks.example.com/", "events": []}),
        json!({"url": "https://hooks.example.com/", "events": ["run.began"]}),
        json!({"url": "https://hooks.example.com/", "events": ["webhook.test"]}),
        json!({"events": ["run.finished"]}),
    ] {
        assert_eq!(problem(&make(&acme, wrong.clone())), (400, "invalid".to_owned()), "{wrong}");
    }
}

#[test]
fn a_receiver_that_is_gone_is_sent_to_no_more_until_it_is_enabled() {
    let gone = Arc::new(AtomicBool::new(true));
    let hook = {
        let gone = gone.clone();
        Hook::answering(move |_| match gone.load(Ordering::SeqCst) {
            true => answer("410 Gone", "", "text/plain", ""),
            false => answer("200 OK", "", "text/plain", ""),
        })
    };
    let site = site(&[&hook], "");
    let acme = site.tenant("acme", &agent(""));
    let webhook = create(&site, &acme, &hook.url, &["run.finished"]);
    test(&site, &acme, &webhook);
    hook.next();
    let path = format!("/v1/webhooks/{}", id(&webhook));
    until(&site, &acme, &webhook, |all| all[0]["state"] == "failed");
    let end = Instant::now() + PATIENCE;
    let disabled = loop {
        let shown = site.get(&acme.key, &path).json();
        if shown["state"] == "disabled" {
            break shown;
        }
        assert!(Instant::now() < end, "{shown}");
    };
    assert_eq!(disabled["reason"], "its receiver answers that it is gone (410)");
    let refused = site.ask(&acme.key, &format!("POST {path}/test"), &Json::Null);
    assert_eq!(problem(&refused), (409, "disabled".to_owned()));
    let run = site.begin(&acme.key, "do it");
    site.ended(&acme.key, &run);
    assert_eq!(deliveries(&site, &acme, &webhook).len(), 1);
    gone.store(false, Ordering::SeqCst);
    let enabled = site.ask(&acme.key, &format!("PATCH {path}"), &json!({"state": "active"})).json();
    assert_eq!((&enabled["state"], &enabled["reason"]), (&json!("active"), &Json::Null));
    test(&site, &acme, &webhook);
    until(&site, &acme, &webhook, |all| all.len() == 2 && all.iter().any(|one| one["state"] == "delivered"));
}

#[test]
fn a_budget_that_is_used_up_is_reported_once() {
    let hook = Hook::taking();
    let site = site(&[&hook], ", budgets: { calls_per_day: 1 }");
    let acme = site.tenant("acme", &Project::with_script(FINE));
    let webhook = create(&site, &acme, &hook.url, &["budget.exhausted"]);
    assert_eq!(site.call(&acme.key, "it", json!({})).status, 200);
    let [_, _, refused] = [(); 3].map(|()| site.call(&acme.key, "it", json!({})));
    assert_eq!(problem(&refused), (429, "budget_exceeded".to_owned()));
    let sent: Json = serde_json::from_str(&hook.next().body).unwrap();
    let resets = refused.json()["resets"].clone();
    assert_eq!(sent["data"], json!({"budget": "calls_per_day", "unit": "calls", "limit": 1, "resets": resets}));
    assert_eq!(until(&site, &acme, &webhook, |all| all[0]["state"] == "delivered").len(), 1);
    assert!(hook.got.try_recv().is_err());
}
