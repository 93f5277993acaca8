//! Sessions, links, and their ends.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use rustix::process::Signal;
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::site::Site;
use crate::visitor::{Visitor, agent, between, lines, refused};

const OWN: [(&str, &str); 1] = [("Origin", "http://localhost")];
const UNKNOWN: &str = "the key is unknown or expired, or belongs to a suspended tenant";

fn is_in(visitor: &mut Visitor) -> bool {
    let reply = visitor.get("/dashboard");
    assert!([200, 303].contains(&reply.status), "{reply:?}");
    reply.status == 200
}

#[test]
fn a_cookie_is_for_this_server_alone_and_no_script_reads_it() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent("", "done"));
    let mut visitor = Visitor::new(&site);
    let reply = visitor.sign_in(&acme.key);
    let value = visitor.cookie("harness-session").unwrap().to_owned();
    assert_eq!(value.len(), 64);
    assert_eq!(
        lines(&reply, "set-cookie"),
        [
            format!("harness-session={value}; Path=/; HttpOnly; SameSite=Strict"),
            "harness-sign-in=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0".to_owned()
        ]
    );
    assert!(is_in(&mut visitor));
    // The way in is the way on for who is in.
    assert_eq!(visitor.get("/dashboard/sign-in").header("location"), "/dashboard");
}

#[test]
fn behind_tls_a_cookie_is_bound_to_it() {
    let folder = Arc::new(TempDir::new().unwrap());
    std::fs::write(folder.path().join("serve.yaml"), "").unwrap();
    let site = Site::start(folder, &["--behind-proxy"]);
    let acme = site.tenant("acme", &agent("", "done"));
    let mut visitor = Visitor::new(&site);
    let token = visitor.token("/dashboard/sign-in");
    // A proxy with TLS asks without, and its clients name it with.
    let own = [("Origin", "https://localhost"), ("Sec-Fetch-Site", "same-origin")];
    let reply = visitor.post("/dashboard/sign-in", &own, &token, &[("key", &acme.key)]);
    let value = visitor.cookie("__Host-harness-session").unwrap().to_owned();
    assert_eq!(
        lines(&reply, "set-cookie"),
        [
            format!("__Host-harness-session={value}; Path=/; HttpOnly; SameSite=Strict; Secure"),
            "__Host-harness-sign-in=; Path=/; HttpOnly; SameSite=Strict; Secure; Max-Age=0".to_owned()
        ]
    );
    assert!(is_in(&mut visitor));
    // The name without the promise is another cookie.
    let mut other = Visitor::new(&site);
    other.cookies.push(("harness-session".to_owned(), value));
    assert!(!is_in(&mut other));
}

#[test]
fn only_a_key_of_a_tenant_that_counts_signs_in() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent("", "done"));
    let other = site.tenant("other", &agent("", "done"));
    let operator = site.operator();
    let soon = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() - 1;
    let body = json!({"role": "caller", "label": "old", "expires": u64::try_from(soon).unwrap()});
    let expired = site.ask(&acme.key, "POST /v1/keys", &body).json()["key"].as_str().unwrap().to_owned();
    assert_eq!(site.admin("PATCH /admin/v1/tenants/other", &json!({"state": "suspended"})).status, 200);
    let mut wrong = acme.key.clone();
    wrong.replace_range(80.., "0000");
    for key in ["", "x", &wrong, &expired, &operator, &other.key, &acme.key[1..]] {
        let mut visitor = Visitor::new(&site);
        assert_eq!(refused(&visitor.sign_in(key)), (403, UNKNOWN.to_owned()), "{key}");
        assert!(visitor.cookie("harness-session").is_none() && !is_in(&mut visitor));
    }
    // Also with spaces around it, as it is copied.
    assert!(is_in(&mut Visitor::with(&site, &format!(" {} ", acme.key))));
}

#[test]
fn no_session_is_one_that_was_there_before() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent("", "done"));
    let attacker = Visitor::with(&site, &site.key("acme", "caller"));
    let planted = attacker.cookie("harness-session").unwrap().to_owned();
    let made_up = "a".repeat(64);
    for value in [&planted, &made_up] {
        // The cookie of a stranger is in the browser when its owner signs in.
        let mut before = Visitor::new(&site);
        let token = before.token("/dashboard/sign-in");
        let form = before.cookie("harness-sign-in").unwrap().to_owned();
        before.cookies = vec![("harness-sign-in".to_owned(), form), ("harness-session".to_owned(), value.clone())];
        assert_eq!(before.post("/dashboard/sign-in", &OWN, &token, &[("key", &acme.key)]).status, 303);
        let new = before.cookie("harness-session").unwrap();
        assert_ne!(new, value);
        assert!(is_in(&mut before));
        // What was planted opens nothing any more, and least of all the session of the victim.
        let mut with = Visitor::new(&site);
        with.cookies.push(("harness-session".to_owned(), value.clone()));
        assert!(!is_in(&mut with));
    }
}

#[test]
fn two_cookies_of_one_name_are_none() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent("", "done"));
    let mut visitor = Visitor::with(&site, &acme.key);
    let other = Visitor::with(&site, &site.key("acme", "caller")).cookies[0].clone();
    visitor.cookies.push(other);
    assert!(!is_in(&mut visitor));
    visitor.cookies.pop();
    assert!(is_in(&mut visitor));
}

#[test]
fn attempts_are_limited_for_each_key_by_itself() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent("", "done"));
    let other = site.key("acme", "caller");
    let mut wrong = acme.key.clone();
    wrong.replace_range(20.., &"0".repeat(64));
    let mut visitor = Visitor::new(&site);
    let statuses: Vec<u16> = (0..10).map(|_| visitor.sign_in(&wrong).status).collect();
    assert_eq!(statuses, [403; 10]);
    let reply = visitor.sign_in(&wrong);
    assert_eq!(refused(&reply), (429, "there were too many attempts to sign in".to_owned()));
    let again: u64 = reply.header("retry-after").parse().unwrap();
    assert!((1..=6).contains(&again), "{again}");
    // Who knows the identifier of a key locks nobody out: the right one is let in, and so is that of someone else.
    assert_eq!(Visitor::new(&site).sign_in(&acme.key).status, 303);
    assert!(is_in(&mut Visitor::with(&site, &acme.key)) && is_in(&mut Visitor::with(&site, &other)));
    // The key itself is not locked: programs use it.
    assert_eq!(site.call(&acme.key, "it", json!({})).status, 200);
}

#[test]
fn a_session_ends_with_the_sign_out_the_key_the_tenant_and_the_server() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent("", "done"));
    let mut stays = Visitor::with(&site, &acme.key);
    // By the person.
    let mut visitor = Visitor::with(&site, &acme.key);
    let copy = visitor.clone();
    let reply = visitor.send("/dashboard", "/dashboard/sign-out", &[]);
    assert_eq!((reply.status, reply.header("location").as_str()), (303, "/dashboard/sign-in"));
    assert_eq!(visitor.cookie("harness-session"), None);
    assert!(!is_in(&mut copy.clone()) && is_in(&mut stays));
    // By the removal of the key.
    let key = site.key("acme", "caller");
    let mut visitor = Visitor::with(&site, &key);
    assert!(is_in(&mut visitor));
    assert_eq!(site.ask(&acme.key, &format!("DELETE /v1/keys/{}", &key[3..19]), &Json::Null).status, 200);
    assert!(!is_in(&mut visitor) && is_in(&mut stays));
    // By its expiry.
    let now = u64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap();
    let body = json!({"role": "caller", "label": "short", "expires": now + 5_000});
    let key = site.ask(&acme.key, "POST /v1/keys", &body).json()["key"].as_str().unwrap().to_owned();
    let mut visitor = Visitor::with(&site, &key);
    while is_in(&mut visitor) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let after = u64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap();
    assert!(after >= now + 5_000 && is_in(&mut stays));
    // By the suspension of the tenant; it does not come back with it.
    for state in ["suspended", "active"] {
        assert_eq!(site.admin("PATCH /admin/v1/tenants/acme", &json!({"state": state})).status, 200);
        assert!(!is_in(&mut stays), "{state}");
    }
    // By the end of the server.
    let mut visitor = Visitor::with(&site, &acme.key);
    assert!(is_in(&mut visitor));
    site.signal(Signal::TERM);
    let site = site.again();
    let mut same = Visitor::new(&site);
    same.cookies.clone_from(&visitor.cookies);
    assert!(!is_in(&mut same) && is_in(&mut Visitor::with(&site, &acme.key)));
}

/// After a sign-out, connections that are open show no more events either.
#[test]
fn a_stream_of_events_ends_with_its_session() {
    let site = Site::open();
    let acme = site.tenant("acme", &agent("", "done"));
    let run = site.ask_with(&acme.key, "POST /v1/tools/asks/calls", &[("Prefer", "respond-async")], &json!({})).json();
    let run = run["id"].as_str().unwrap().to_owned();
    let mut visitor = Visitor::with(&site, &site.key("acme", "auditor"));
    let open = |visitor: &Visitor, last: &str| {
        let mut stream = TcpStream::connect(site.address()).unwrap();
        let jar = visitor.jar();
        let head =
            format!("GET /dashboard/runs/{run}/events HTTP/1.0\r\nHost: localhost\r\nCookie: {jar}\r\n{last}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        BufReader::new(stream)
    };
    let mut stream = open(&visitor, "");
    let mut head = String::new();
    while !head.contains("event: waiting") {
        assert!(stream.read_line(&mut head).unwrap() > 0, "{head}");
    }
    assert!(
        head.to_lowercase().contains("content-type: text/event-stream") && head.contains("id: 1\nevent: began\n"),
        "{head}"
    );
    // It continues after the last one that was heard.
    let mut rest = String::new();
    let mut later = open(&visitor, "Last-Event-ID: 1\r\n");
    while !rest.contains("event: waiting") {
        assert!(later.read_line(&mut rest).unwrap() > 0, "{rest}");
    }
    assert!(!rest.contains("event: began"), "{rest}");
    visitor.send("/dashboard", "/dashboard/sign-out", &[]);
    let mut end = String::new();
    stream.read_to_string(&mut end).unwrap();
    later.read_to_string(&mut end).unwrap();
    assert!(!end.contains("event: end"), "{end}");
    // The run itself waits still.
    assert_eq!(site.get(&acme.key, &format!("/v1/runs/{run}")).json()["state"], "running");
}

/// The link that `--demo` prints.
fn demo() -> (Site, String, String) {
    let folder = Arc::new(TempDir::new().unwrap());
    std::fs::write(folder.path().join("serve.yaml"), "").unwrap();
    let mut site = Site::start(folder, &["--demo"]);
    let key = site.said("tenant acme: ");
    let url = site.said("dashboard of acme, signs in once within 10 minutes: ");
    let path = url.strip_prefix(&format!("http://{}", site.address())).unwrap().to_owned();
    (site, path, key)
}

#[test]
fn a_link_shows_a_button_and_signs_in_once() {
    let (site, link, key) = demo();
    // Programs that look at addresses use nothing up, however often.
    for _ in 0..3 {
        let reply = Visitor::new(&site).get(&link);
        assert_eq!((reply.status, lines(&reply, "set-cookie").len()), (200, 1), "{reply:?}");
        assert!(!reply.head.contains("harness-session"), "{reply:?}");
    }
    // Nor does a form of another site, or one that is not of this browser.
    let mut visitor = Visitor::new(&site);
    let token = visitor.token(&link);
    for (headers, token) in
        [(&[("Origin", "http://evil.example")][..], token.as_str()), (&[][..], &token), (&OWN[..], ""), (&OWN[..], "x")]
    {
        assert_eq!(visitor.post(&link, headers, token, &[]).status, 403, "{headers:?}");
    }
    let other = Visitor::new(&site).token(&link);
    assert_eq!(visitor.post(&link, &OWN, &other, &[]).status, 403);
    let reply = visitor.post(&link, &OWN, &token, &[]);
    assert_eq!((reply.status, reply.header("location").as_str()), (303, "/dashboard"));
    let page = visitor.get("/dashboard");
    assert_eq!((page.status, between(&page.body, "<span><b>", "</span>")), (200, "acme</b> as owner · demo"));
    // Once.
    let gone = "the link was used already, is over 10 minutes old, or is not of this server";
    assert_eq!(refused(&Visitor::new(&site).get(&link)), (404, gone.to_owned()));
    let mut second = Visitor::new(&site);
    let token = second.token("/dashboard/sign-in");
    assert_eq!(refused(&second.post(&link, &OWN, &token, &[])), (404, gone.to_owned()));
    assert!(!is_in(&mut second) && is_in(&mut Visitor::with(&site, &key)));
}

#[test]
fn a_link_ends_with_its_key() {
    let (site, link, key) = demo();
    let mut visitor = Visitor::new(&site);
    let token = visitor.token(&link);
    assert_eq!(site.ask(&key, &format!("DELETE /v1/keys/{}", &key[3..19]), &Json::Null).status, 200);
    assert_eq!(visitor.post(&link, &OWN, &token, &[]).status, 404);
    assert!(!is_in(&mut visitor));
}
