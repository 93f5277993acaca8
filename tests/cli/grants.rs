//! Each capability three times: not granted, granted for something else, granted. What a denial says to add is added as
//! it says, and then the same call works.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value as Json, json};

use crate::project::Project;

struct Case<'a> {
    /// What `run` returns.
    expression: &'a str,
    /// Policies that do not cover it: one that grants nothing, one that grants something else.
    without: [Json; 2],
    /// What a denial says.
    reasons: [&'a str; 2],
    hint: &'a str,
    /// Where in the policy's one line of JSON the list is, or what holds it.
    columns: [usize; 2],
    /// What is printed where it is granted.
    result: &'a str,
}

#[track_caller]
fn check(case: &Case<'_>) {
    for ((without, reason), column) in case.without.iter().zip(case.reasons).zip(case.columns) {
        // The line of the policy that the rule is missing in: the one that the hint asks for is to be put there.
        let at = format!("harness.md:2:{column}`");
        let (reason, hint) = (&reason.replace("harness.md`", &at), &case.hint.replace("harness.md`", &at));
        let there = without.to_string().chars().nth(column - 1);
        assert!(matches!(there, Some('[' | '{')), "{there:?}");
        let project = Project::with_script(&format!("def run(args):\n    return {}\n", case.expression))
            .file("notes/a.txt", "a note\n")
            .policy(&format!("{without}\n"));
        let ran = project.run(&["call", "it", "--json"]);
        let error = &ran.json()["error"];
        let message = error["message"].as_str().unwrap_or_default();
        assert_eq!((ran.code, error["kind"].as_str()), (3, Some("denied")), "{ran}");
        assert!(message.ends_with(reason), "wanted `{reason}`, got `{message}`");
        assert_eq!((error["hint"].as_str(), error["line"].as_u64()), (Some(hint.as_str()), Some(4)));
        // A person is told the same.
        let told = project.run(&["call", "it"]);
        told.says(3, reason);
        told.says(3, &format!("= hint: {hint}"));
        assert_eq!(told.out, "");

        let mut with = without.clone();
        add(&mut with, case.hint);
        project.write(".harness/harness.md", &format!("---\n{with}\n---\n"));
        let ran = project.run(&["call", "it"]);
        assert_eq!(
            (ran.code, ran.out.as_str(), ran.err.as_str()),
            (0, format!("{}\n", case.result).as_str(), ""),
            "with {with}"
        );
    }
}

/// Does what a hint says: "add `VALUE` to `KEY` in `.harness/harness.md`".
fn add(policy: &mut Json, hint: &str) {
    let parts: Vec<&str> = hint.split('`').collect();
    assert_eq!([parts[0], parts[2], parts[4], parts[5], parts[6]], ["add ", " to ", " in ", ".harness/harness.md", ""]);
    let list = parts[3].split('.').fold(policy, |at, key| &mut at[key]);
    if list.is_null() {
        *list = json!([]);
    }
    let host =
        parts[1].strip_prefix("{ host: \"").and_then(|rest| rest.split_once("\", methods: [GET], scheme: http }"));
    list.as_array_mut().unwrap().push(match host {
        Some((host, "")) => json!({"host": host, "methods": ["GET"], "scheme": "http"}),
        _ => json!(parts[1]),
    });
}

#[test]
fn fs_read() {
    let missing =
        "reading `notes/a.txt` is not granted: nothing in `sandbox.fs.read` in `.harness/harness.md` covers it";
    check(&Case {
        expression: "fs.read('notes/a.txt').strip()",
        without: [
            json!({"sandbox": {"fs": {"read": []}}}),
            json!({"sandbox": {"fs": {"read": ["docs", "notes/*.md"]}}}),
        ],
        reasons: [missing; 2],
        hint: "add `notes/a.txt` to `sandbox.fs.read` in `.harness/harness.md`",
        columns: [26; 2],
        result: "a note",
    });
}

#[test]
fn fs_write() {
    let missing =
        "writing `notes/b.txt` is not granted: nothing in `sandbox.fs.write` in `.harness/harness.md` covers it";
    check(&Case {
        expression: "type(fs.write('notes/b.txt', 'b'))",
        without: [json!({"sandbox": {"fs": {"read": ["."]}}}), json!({"sandbox": {"fs": {"write": ["notes/a.txt"]}}})],
        reasons: [missing; 2],
        hint: "add `notes/b.txt` to `sandbox.fs.write` in `.harness/harness.md`",
        columns: [18, 27],
        result: "string",
    });
}

/// What no policy lifts has no hint, whatever is granted.
#[test]
fn protected_files_have_no_hint() {
    for expression in
        ["fs.write('.harness/tools/x.md', '')", "fs.read('.env')", "fs.read('../x')", "fs.read('/etc/passwd')"]
    {
        let project =
            Project::with_script(&format!("def run(args):\n    return {expression}\n")).file(".env", "SECRET=1");
        let ran = project.run(&["call", "it", "--json"]);
        assert_eq!((ran.code, &ran.json()["error"]["hint"]), (3, &json!("")), "{expression}: {ran}");
        let told = project.run(&["call", "it"]);
        assert!(told.code == 3 && !told.err.contains("hint"), "{told}");
    }
}

#[test]
fn exec_run() {
    check(&Case {
        expression: "exec.run('cat', ['notes/a.txt'])['stdout'].strip()",
        without: [
            json!({"sandbox": {"exec": {"allow": []}}}),
            json!({"sandbox": {"exec": {"allow": ["cat b *", "echo *"]}}}),
        ],
        reasons: ["the command `cat notes/a.txt` is not allowed"; 2],
        hint: "add `cat notes/a.txt` to `sandbox.exec.allow` in `.harness/harness.md`",
        columns: [29; 2],
        result: "a note",
    });
}

/// A server on the loopback that answers `pong`, and how many have connected to it.
pub(crate) fn server() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let connected = Arc::new(AtomicUsize::new(0));
    let count = connected.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            let mut request = Vec::new();
            let mut buffer = [0; 1024];
            while !request.windows(4).any(|w| w == b"\r\n\r\n") {
                match stream.read(&mut buffer) {
                    Ok(0) | Err(_) => break,
                    Ok(n) => request.extend_from_slice(&buffer[..n]),
                }
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\npong");
        }
    });
    (address, connected)
}

#[test]
fn http() {
    let (address, connected) = server();
    let reason = format!("the host `{address}` is not allowed");
    check(&Case {
        expression: &format!("http.get('http://{address}/')['body']"),
        without: [
            json!({"network": {"allowed_domains": []}}),
            json!({"network": {"allowed_domains": ["*", "127.0.0.1:1", "localhost"]}}),
        ],
        reasons: [&reason; 2],
        hint: &format!(
            "add `{{ host: \"{address}\", methods: [GET], scheme: http }}` to `network.allowed_domains` in `.harness/harness.md`"
        ),
        columns: [31; 2],
        result: "pong",
    });
    // One for each policy that allowed it; the four refused calls never got here.
    assert_eq!(connected.load(Ordering::SeqCst), 2);
}

#[test]
fn env() {
    check(&Case {
        expression: "env('HARNESS_TEST_VARIABLE')",
        without: [json!({"sandbox": {"env": []}}), json!({"sandbox": {"env": ["HARNESS_TEST", "HOME"]}})],
        reasons: ["the variable `HARNESS_TEST_VARIABLE` is not granted"; 2],
        hint: "add `HARNESS_TEST_VARIABLE` to `sandbox.env` in `.harness/harness.md`",
        columns: [19; 2],
        result: "a value",
    });
}

fn service(name: &str, other: &str, expression: &str, result: &str) {
    let reason = format!("`{name}` is not granted");
    check(&Case {
        expression,
        without: [json!({"sandbox": {"services": []}}), json!({"sandbox": {"services": [other]}})],
        reasons: [&reason; 2],
        hint: &format!("add `{name}` to `sandbox.services` in `.harness/harness.md`"),
        columns: [24; 2],
        result,
    });
}

#[test]
fn cache() {
    service("cache", "metrics", "cache.set('k', [1])", "[1]");
    service("cache", "clock", "cache.get('k', 'nothing')", "nothing");
    service("cache", "clock", "[cache.has('k')]", "[false]");
    service("cache", "clock", "[cache.delete('k')]", "[false]");
    service("cache", "clock", "cache.clear()", "null");
}

#[test]
fn metrics() {
    service("metrics", "cache", "metrics.incr('n', 2)", "2");
    service("metrics", "cache", "metrics.set('n', 2)", "null");
    service("metrics", "cache", "metrics.get('n')", "0");
    service("metrics", "cache", "metrics.snapshot()", "{}");
    service("metrics", "cache", "metrics.reset()", "null");
}

#[test]
fn clock() {
    service("clock", "random", "time.now()[:2]", "20");
    service("clock", "random", "sleep(1)", "null");
}

#[test]
fn random() {
    service("random", "clock", "random(1, 2) in [1, 2]", "true");
    service("random", "clock", "len(uuid.v4())", "36");
}

/// A refusal that the script asks about first is no ending.
#[test]
fn a_script_may_ask_whether_it_may() {
    let project = Project::with_script("def run(args):\n    return fs.exists('notes/a.txt')\n")
        .file("notes/a.txt", "")
        .policy("sandbox: { fs: {} }\n");
    project.run(&["call", "it"]).gives("false");
}

/// A rule may be for some methods, and then for no other one, wherever a redirect leads.
#[test]
fn methods_of_http() {
    let (address, connected) = server();
    let script = format!("def run(args):\n    return http.request(args['method'], 'http://{address}/')['body']\n");
    let project = Project::with_script(&script);
    let asks = |rule: &str, method: &str| {
        let policy = format!("---\nnetwork: {{ allowed_domains: [{{ host: '{address}', {rule} }}] }}\n---\n");
        project.write(".harness/harness.md", &policy);
        project.run(&["call", "it", &format!("method={method}")])
    };
    asks("methods: [GET]", "GET").gives("pong");
    asks("methods: [PUT, DELETE]", "DELETE").gives("pong");
    asks("scheme: http", "POST").gives("pong");
    assert_eq!(connected.load(Ordering::SeqCst), 3);
    for (rule, method) in [("methods: [GET]", "POST"), ("methods: []", "GET"), ("scheme: https", "GET")] {
        let ran = asks(rule, method);
        ran.says(3, &format!("{method} over http is not allowed for the host `{address}`"));
        ran.says(
            3,
            &format!("add `{{ host: \"{address}\", methods: [{method}], scheme: http }}` to `network.allowed_domains`"),
        );
    }
    assert_eq!(connected.load(Ordering::SeqCst), 3);
    // What is wrong with a rule leaves none.
    asks("methods: [get]", "GET").says(2, "`get` is none of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    asks("scheme: ftp", "GET").says(2, "`ftp` is none of http, https");
}
