//! Servers at URLs whose tools the project has: locked, called, and refused when they change or break the protocol.

use serde_json::{Value as Json, json};

use crate::client::{Client, LEGACY, MODERN};
use crate::project::{Project, Ran};
use crate::site::Site;

const MOVED: &str = "the server `m` differs from `harness.lock`: the tool `echo` changed";

fn project(site: &Site, more: &str) -> Project {
    Project::new().policy(&format!("mcp:\n  servers:\n{}", site.entry(more)))
}

/// The same, locked.
fn locked(site: &Site, more: &str) -> Project {
    let project = project(site, more);
    let ran = project.run(&["lock"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran}");
    site.take_lines();
    project
}

fn call(project: &Project, tool: &str, arguments: Json) -> Ran {
    project.run(&["call", tool, "--args", &arguments.to_string()])
}

fn echo(project: &Project) -> Ran {
    call(project, "m_echo", json!({"text": "hello"}))
}

#[track_caller]
fn echoes(project: &Project) {
    let ran = echo(project);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "hello\n", ""), "{ran}");
}

#[test]
fn a_server_of_each_era_is_locked_and_called() {
    for (does, version) in [
        ("modern", MODERN),
        ("modern sse", MODERN),
        ("", LEGACY),
        ("sse", LEGACY),
        ("stateless", LEGACY),
        ("bare-400", LEGACY),
        ("bare-500", LEGACY),
        ("notifies mute", LEGACY),
    ] {
        let site = Site::start(does);
        let project = project(&site, "");
        let ran = project.run(&["lock"]);
        assert_eq!(ran.out, "harness.lock: 0 tools, 0 hooks, 0 agents, 0 bundles, 1 server\n", "{does}: {ran}");
        let lock = std::fs::read_to_string(project.path("harness.lock")).unwrap();
        let head = format!(
            "[[server]]\nname = \"m\"\ntransport = \"http\"\nurl = \"{}\"\nprotocol = \"{version}\"\n",
            site.url()
        );
        assert!(lock.contains(&head), "{does}: {lock}");
        echoes(&project);
        project.run(&["lock", "--check"]).gives("matches the lock: 0 tools, 0 hooks, 0 agents, 0 bundles, 1 server");
    }
}

/// Each request says of itself what the newest revision wants, in its headers too.
#[test]
fn requests_of_the_newest_revision_name_what_they_are() {
    let site = Site::start("modern");
    let project = locked(&site, "");
    let ran = call(&project, "m_query", json!({"region": "eu\u{e4}", "n": 42}));
    let shown = "Some(\"=?base64?ZXXDpA==?=\") Some(\"42\")\n";
    assert_eq!((ran.code, ran.out.as_str()), (0, shown), "{ran}");
    let ran = call(&project, "m_query", json!({"region": "eu"}));
    assert_eq!((ran.code, ran.out.as_str()), (0, "Some(\"eu\") None\n"), "{ran}");
    let received = site.received();
    let lines: Vec<String> = received.iter().map(crate::site::Received::line).collect();
    let one = ["POST server/discover", "POST tools/list", "POST tools/call"];
    assert_eq!(lines, [one, one].concat());
    for request in &received {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "harness", "version": env!("CARGO_PKG_VERSION")},
        });
        assert_eq!(request.body["params"]["_meta"], meta);
        for header in ["mcp-session-id", "authorization", "cookie", "referer", "origin"] {
            assert_eq!(request.header(header), None, "{request:?}");
        }
        let plain =
            ["accept", "content-type", "accept-encoding", "mcp-protocol-version"].map(|name| request.header(name));
        let json = "application/json";
        assert_eq!(plain, [Some("application/json, text/event-stream"), Some(json), Some("identity"), Some(MODERN)]);
    }
}

#[test]
fn a_session_of_an_older_server_is_named_and_ended() {
    let site = Site::start("");
    let project = locked(&site, "");
    echoes(&project);
    let received = site.received();
    let shown = received.iter().map(|one| {
        let header = |name| one.header(name).unwrap_or("-").to_owned();
        format!("{} {} {}", one.line(), header("mcp-session-id"), header("mcp-protocol-version"))
    });
    assert_eq!(
        shown.collect::<Vec<_>>(),
        [
            "POST initialize - -".to_owned(),
            format!("POST notifications/initialized s2 {LEGACY}"),
            format!("POST tools/list s2 {LEGACY}"),
            format!("POST tools/call s2 {LEGACY}"),
            format!("DELETE s2 {LEGACY}"),
        ]
    );
}

#[test]
fn a_session_serves_a_run_or_a_call() {
    let one = ["POST initialize", "POST notifications/initialized", "POST tools/list", "POST tools/call"];
    for (keep, lines) in
        [("run", [&one[..], &one[3..]].concat()), ("call", [&one[..], &["DELETE"], &one[..], &["DELETE"]].concat())]
    {
        let site = Site::start("");
        let project = locked(&site, &format!(", keep: {keep}"));
        let mut client = Client::start(&project, &[]);
        for _ in 0..2 {
            assert_eq!(client.text("m_echo", json!({"text": "x"})), ("x".to_owned(), false));
        }
        assert_eq!(site.take_lines(), lines, "{keep}");
    }
}

/// A session that the server does not know any more is begun anew, and compared with the lock again.
#[test]
fn a_session_that_is_lost_is_begun_again() {
    let site = Site::start("");
    let project = locked(&site, "");
    site.does("forgets");
    echoes(&project);
    let one = ["POST initialize", "POST notifications/initialized", "POST tools/list", "POST tools/call"];
    assert_eq!(site.take_lines(), [&one[..], &one, &["DELETE"]].concat());
    let site = Site::start("");
    let project = locked(&site, "");
    site.does("forgets rug");
    let ran = echo(&project);
    assert_eq!((ran.code, ran.out.as_str()), (3, ""), "{ran}");
    assert!(ran.err.contains(MOVED), "{ran}");
}

/// The stream of an answer that ends too early is continued from its last event.
#[test]
fn a_stream_that_breaks_is_continued() {
    let site = Site::start("");
    let project = locked(&site, "");
    site.does("breaks");
    let ran = echo(&project);
    assert_eq!((ran.code, ran.out.as_str()), (0, "continued\n"), "{ran}");
    let received = site.received();
    let continued = received.iter().find(|one| one.method == "GET").unwrap();
    let shown = ["last-event-id", "accept", "mcp-session-id"].map(|name| continued.header(name).unwrap());
    assert_eq!(shown, ["3", "text/event-stream", "s2"]);
    // Not for ever, and not in the newest revision.
    site.does("breaks always");
    let why = "the MCP server `m`: its answer ended before it was whole";
    let ran = echo(&project);
    assert!(ran.code == 1 && ran.err.contains(why), "{ran}");
    let site = Site::start("modern");
    let project = locked(&site, "");
    site.does("modern breaks");
    let ran = echo(&project);
    assert!(ran.code == 1 && ran.err.contains(why), "{ran}");
    assert!(site.received().iter().all(|one| one.method == "POST"));
}

#[test]
fn a_server_that_breaks_the_protocol_gives_no_result() {
    let cases = [
        ("foreign", "it answered the request 4000 instead of 3"),
        ("worded", "it answered the request \"1\", which was not made"),
        ("status-500", "it answered with HTTP status 500"),
        ("empty-202", "it answered a request with HTTP status 202 and no message"),
        ("compressed", "the answer is compressed, which was not asked for"),
        ("huge-json", "a message has more than 4194304 bytes"),
        ("cut-json", "the answer broke off"),
        ("cut", "its answer ended before it was whole"),
        ("endless", "it sent more than 10000 messages with one answer"),
        ("huge-event", "it sent an event of more than 4194304 bytes"),
        ("long-line", "it sent an event of more than 4194304 bytes"),
        ("many", "it sent a message of more than 200000 values"),
        ("loop", "it redirects too often"),
        ("see-other", "redirects POST with 303"),
    ];
    for era in ["modern", ""] {
        let site = Site::start(era);
        let project = locked(&site, "");
        for (does, why) in cases {
            site.does(&format!("{era} {does}"));
            let ran = echo(&project);
            // With `initialize` there is one request more before the call.
            let same = ran.err.contains("the MCP server `m`: ") && ran.err.contains(why);
            assert!(ran.code == 1 && ran.out.is_empty() && same, "{era} {does}: {ran}");
        }
        site.does(era);
        echoes(&project);
    }
}

#[test]
fn an_older_server_has_a_plain_session() {
    let site = Site::start("odd-session");
    let ran = project(&site, "").run(&["lock"]);
    assert_eq!(ran.code, 1, "{ran}");
    assert!(ran.err.contains("the server `m` cannot be locked: the identifier of its session is none"), "{ran}");
}

#[test]
fn nothing_is_offered_to_a_server() {
    let site = Site::start("");
    let project = locked(&site, "");
    site.does("asks");
    echoes(&project);
    let answers: Vec<Json> =
        site.received().into_iter().map(|one| one.body).filter(|body| body["method"].is_null()).collect();
    let refused = |id: &str| json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "this client offers no such method"}});
    assert_eq!(
        answers,
        [
            json!({"jsonrpc": "2.0", "id": "ping", "result": {}}),
            refused("sampling/createMessage"),
            refused("roots/list"),
            refused("elicitation/create"),
            Json::Null,
        ]
    );
    // A newer one may not ask, and gets no answer.
    let site = Site::start("modern");
    let project = locked(&site, "");
    site.does("modern asks");
    echoes(&project);
    assert_eq!(site.take_lines(), ["POST server/discover", "POST tools/list", "POST tools/call"]);
    site.does("modern question");
    let ran = echo(&project);
    // Nobody can answer: each of its questions is declined.
    assert!(ran.code == 1 && ran.err.contains("the result of one call asks more than 8 times"), "{ran}");
}

/// A redirect to the same origin is followed, with the key. No other host gets a request, whatever it is.
#[test]
fn redirects_stay_with_the_origin() {
    let (site, other) = (Site::start("modern"), Site::start("modern"));
    let policy = format!(
        "sandbox: {{ secrets: {{ KEY: {{ file: key }} }} }}\nmcp:\n  servers:\n{}",
        site.entry(", headers: { Authorization: \"Bearer {secret:KEY}\" }")
    );
    let project = Project::new().policy(&policy).file("key", "s3cret-value-12345\n");
    assert_eq!(project.run(&["lock"]).code, 0);
    site.take_lines();
    site.does("modern moved key");
    echoes(&project);
    let received = site.received();
    let paths: Vec<&str> = received.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(paths, ["/mcp", "/moved"].repeat(3));
    assert!(received.iter().all(|one| one.header("authorization") == Some("Bearer s3cret-value-12345")));
    site.does("modern elsewhere");
    let from = format!("`http://127.0.0.1:{}` redirects to", site.port());
    for (to, shown) in [
        (other.url(), format!("`http://127.0.0.1:{}`", other.port())),
        (format!("http://localhost:{}/mcp", site.port()), format!("`http://localhost:{}`", site.port())),
        (format!("https://127.0.0.1:{}/mcp", site.port()), format!("`https://127.0.0.1:{}`", site.port())),
        ("http://169.254.169.254/latest/meta-data/".to_owned(), "`http://169.254.169.254`".to_owned()),
    ] {
        site.leads_to(&to);
        let ran = echo(&project);
        let why = format!("{from} {shown}, which is another origin");
        assert!(ran.code == 3 && ran.out.is_empty() && ran.err.contains(&why), "{to}: {ran}");
    }
    site.leads_to(&format!("{}?{}", site.url(), "s3cret-value-12345"));
    let ran = echo(&project);
    let why = "the address that a redirect names holds the value of the secret `KEY`";
    assert!(ran.code == 3 && ran.err.contains(why) && !ran.err.contains("s3cret"), "{ran}");
    assert_eq!(other.take_lines(), Vec::<String>::new());
}

#[test]
fn secrets_are_headers_of_the_server_and_nothing_else() {
    let site = Site::start("modern key");
    let policy = |headers: &str| {
        let entry = site.entry(&format!(", headers: {{ {headers} }}"));
        format!("sandbox: {{ secrets: {{ KEY: {{ file: key }} }} }}\nmcp:\n  servers:\n{entry}")
    };
    let right = policy("Authorization: \"Bearer {secret:KEY}\"");
    let project = Project::new().policy(&right).file("key", "s3cret-value-12345\n");
    assert_eq!(project.run(&["lock"]).code, 0);
    echoes(&project);
    // It comes back neither as a result nor as an error.
    let ran = call(&project, "m_echo", json!({"text": "a"}));
    assert_eq!(ran.out, "a\n", "{ran}");
    site.does("modern tells-key");
    let ran = echo(&project);
    assert_eq!(ran.code, 1, "{ran}");
    assert!(ran.err.contains("not with Bearer [redacted:KEY] (-32000)") && !ran.err.contains("s3cret"), "{ran}");
    for file in ["harness.lock", ".harness/audit"] {
        let read = project.shell(&format!("cat {file} 2>/dev/null || cat {file}/*"));
        assert!(!read.out.contains("s3cret") && !read.out.is_empty(), "{read}");
    }
    // Without it, the server is not to be had.
    site.does("modern key");
    let project = Project::new().policy(&policy("X-Other: \"{env:HARNESS_TEST_VARIABLE}\"")).file("key", "x\n");
    let ran = project.run(&["lock"]);
    let why = format!("the server `m` cannot be locked: `{}` wants authorization (HTTP status 401)", site.url());
    assert!(ran.code == 1 && ran.err.contains(&why), "{ran}");
    assert_eq!(site.received().last().unwrap().header("x-other"), Some("a value"));
}

#[test]
fn a_private_host_needs_a_word() {
    let site = Site::start("modern");
    let of = |scheme: &str, more: &str| {
        let url = format!("{scheme}://localhost:{}/mcp", site.port());
        Project::new().policy(&format!("mcp:\n  servers:\n    m: {{ url: \"{url}\"{more} }}\n"))
    };
    let project = of("http", ", private: true");
    assert_eq!(project.run(&["lock"]).code, 0);
    echoes(&project);
    site.take_lines();
    let ran = of("https", "").run(&["lock"]);
    let why = format!(
        "the server `m` cannot be locked: the host `localhost:{}` leads to a loopback address, which needs a rule with \
         `private: true`",
        site.port()
    );
    assert!(ran.code == 1 && ran.err.contains(&why), "{ran}");
    let ran = of("http", "").run(&["lock"]);
    let why = "`mcp.servers.m.url`: `http` shows everything on the way";
    assert!(ran.code == 2 && ran.err.contains(why), "{ran}");
    assert_eq!(site.take_lines(), Vec::<String>::new());
}

/// Where tools change while a server is in use, nothing of it is taken any more.
#[test]
fn tools_that_change_in_a_run_are_refused() {
    for does in ["modern", ""] {
        let site = Site::start(does);
        let project = locked(&site, "");
        site.does(&format!("{does} rug"));
        let ran = echo(&project);
        assert_eq!((ran.code, ran.out.as_str()), (3, ""), "{does}: {ran}");
        for line in [
            MOVED,
            "-   \"description\": \"Echoes.\",",
            "+   \"description\": \"Echoes, and sends it to me.\",",
            "`harness lock` shows what changed, and accepts it",
        ] {
            assert!(ran.err.contains(line), "{does}: {ran}");
        }
    }
}

/// The stream that a server notifies on is another one than that of the answer: a later call hears of it.
#[test]
fn tools_that_change_between_calls_are_refused() {
    for does in ["modern notifies", "notifies"] {
        let site = Site::start(does);
        let project = locked(&site, "");
        let mut client = Client::start(&project, &[]);
        assert_eq!(client.text("m_echo", json!({"text": "x"})), ("x".to_owned(), false));
        site.does(&format!("{does} rug-listen"));
        let refused = (0..10_000).find_map(|_| {
            let (text, is_error) = client.text("m_echo", json!({"text": "x"}));
            is_error.then_some(text)
        });
        let text = refused.unwrap();
        assert!(text.contains("the tool `echo` changed") && !text.contains("sends it"), "{does}: {text}");
        let (text, is_error) = client.text("m_echo", json!({"text": "x"}));
        assert!(is_error && text.contains("the tool `echo` changed"), "{does}: {text}");
    }
}

/// A server that says that it notifies and does not is listed at each call.
#[test]
fn a_server_that_cannot_notify_is_asked() {
    let site = Site::start("modern notifies deaf");
    let project = locked(&site, "");
    let mut client = Client::start(&project, &[]);
    assert_eq!(client.text("m_echo", json!({"text": "x"})), ("x".to_owned(), false));
    site.does("modern notifies deaf changed");
    let (text, is_error) = client.text("m_echo", json!({"text": "x"}));
    assert!(is_error && text.contains("the tool `echo` changed"), "{text}");
}

#[test]
fn tools_that_changed_since_they_were_locked_are_refused() {
    let site = Site::start("modern instructs");
    let project = locked(&site, "");
    echoes(&project);
    for (does, what) in [
        ("modern instructs changed", "the tool `echo` changed"),
        ("modern instructs added", "the tool `more` was added"),
        ("modern", "its instructions changed"),
        ("", "it does not speak 2026-07-28 any more"),
    ] {
        site.does(does);
        let ran = echo(&project);
        assert!(ran.code != 0 && ran.out.is_empty() && ran.err.contains(what), "{does}: {ran}");
        let check = project.run(&["lock", "--check"]);
        assert!(check.code == 1 && check.err.contains("differs from the lock: 1 server"), "{does}: {check}");
        site.does("modern instructs");
        echoes(&project);
    }
    // Another URL is another server.
    let other = Site::start("modern instructs");
    let project = project.policy_of(|text| text.replace(&site.url(), &other.url()));
    let ran = echo(&project);
    assert_eq!(ran.code, 2, "{ran}");
    assert!(ran.err.contains("the server \"m\" differs from `harness.lock`: its url changed"), "{ran}");
    assert_eq!(other.take_lines(), Vec::<String>::new());
    assert_eq!(project.run(&["lock"]).code, 0);
    echoes(&project);
}

#[test]
fn tools_are_left_out_by_the_policy_and_by_the_protocol() {
    let site = Site::start("modern odd-header");
    let project = project(&site, "");
    let ran = project.run(&["lock"]);
    let why = "the server `m`: left out: the tool `odd`: `x-mcp-header` of `a` must be letters, digits and hyphens, which \
               follow `Mcp-Param-` in the header";
    assert!(ran.code == 0 && ran.err.contains(why), "{ran}");
    echoes(&project);
    assert_eq!(call(&project, "m_odd", json!({})).code, 2);
    // An older server sends no such headers, so that nothing is wrong with them.
    let older = Site::start("odd-header");
    let project = locked(&older, "");
    assert_eq!(call(&project, "m_odd", json!({"text": "x"})).code, 0);
    let project = locked(&site, ", tools: [\"e*\"]");
    echoes(&project);
    assert_eq!(call(&project, "m_query", json!({})).code, 2);
}

#[test]
fn a_call_that_is_ended_ends_its_request() {
    for does in ["modern", ""] {
        let site = Site::start(does);
        let project = locked(&site, ", limits: { timeout_ms: 2000 }");
        let ran = call(&project, "m_wait", json!({}));
        assert_eq!(ran.code, 4, "{ran}");
        assert!(ran.err.contains("tool `m_wait` was ended"), "{ran}");
        // The session stays.
        let mut client = Client::start(&project, &[]);
        assert!(client.text("m_wait", json!({})).1);
        assert_eq!(client.text("m_echo", json!({"text": "x"})), ("x".to_owned(), false));
        if does.is_empty() {
            site.wait_for("POST notifications/cancelled");
        }
    }
}

#[test]
fn hooks_see_how_a_server_is_spoken_to() {
    let hook = "---\nevent: tool.pre\nwhen: payload[\"name\"] == \"m_echo\"\nscript: |\n  def handle(event, payload):\n    return block(payload[\"server\"] + \" \" + payload[\"transport\"])\n---\n";
    let site = Site::start("modern");
    let project = project(&site, "").file(".harness/hooks/a.md", hook);
    assert_eq!(project.run(&["lock"]).code, 0);
    let ran = echo(&project);
    assert!(ran.code == 3 && ran.err.contains("m http"), "{ran}");
}

#[test]
fn a_server_is_added_tested_and_removed() {
    let site = Site::start("modern");
    let project = Project::new().policy("sandbox: { secrets: { KEY: { env: K } } }\n");
    let before = std::fs::read_to_string(project.path(".harness/harness.md")).unwrap();
    let url = site.url();
    let header = "X-Key: a:{secret:KEY}";
    let added = project.run(&["mcp", "add", "m", "--url", &url, "--header", header, "--tool", "e*", "--keep-call"]);
    assert_eq!(
        (added.code, added.out.as_str()),
        (0, "added `m`: review what it offers with `harness lock`\n"),
        "{added}"
    );
    let text = std::fs::read_to_string(project.path(".harness/harness.md")).unwrap();
    let line = format!(
        "    m: {{ url: \"{url}\", headers: {{ \"X-Key\": \"a:{{secret:KEY}}\" }}, keep: call, tools: [\"e*\"] }}\n"
    );
    assert!(text.contains(&line), "{text}");
    assert_eq!(project.run(&["mcp", "remove", "m"]).code, 0);
    assert_eq!(std::fs::read_to_string(project.path(".harness/harness.md")).unwrap(), before);
    let private = project.run(&["mcp", "add", "m", "--url", "http://mcp.example/", "--private"]);
    assert_eq!(private.code, 0, "{private}");
    let text = std::fs::read_to_string(project.path(".harness/harness.md")).unwrap();
    assert!(text.contains("    m: { url: \"http://mcp.example/\", private: true }\n"), "{text}");
    let clear = project.run(&["mcp", "add", "n", "--url", "http://mcp.example/"]);
    assert!(clear.code == 2 && clear.err.contains("`http` shows everything on the way"), "{clear}");
    for wrong in
        [&["--url", &*url, "--", "x"][..], &["--header", "A: b", "--", "x"], &["--url", &*url, "--read", "docs"], &[]]
    {
        assert_eq!(project.run(&[&["mcp", "add", "n"], wrong].concat()).code, 2, "{wrong:?}");
    }

    let project = locked(&site, "");
    let tested = project.run(&["mcp", "test", "m"]);
    let shown = "m speaks 2026-07-28: 3 tools\n  echo  Echoes.\n  query  Asks a region.\n  wait  Never ends.\n";
    assert_eq!((tested.code, tested.out.as_str()), (0, shown), "{tested}");
    let listed = project.run(&["mcp", "list"]);
    let shown = format!("m  {url}  (keep: run; 2026-07-28, 3 tools)\n    m_echo\n    m_query\n    m_wait\n");
    assert_eq!((listed.code, listed.out.as_str()), (0, shown.as_str()), "{listed}");
    let listed: Json = serde_json::from_str(&project.run(&["mcp", "list", "--json"]).out).unwrap();
    assert_eq!(
        listed,
        json!([{
            "name": "m", "transport": "http", "url": url, "headers": {}, "keep": "run", "locked": {"protocol": MODERN},
            "tools": [
                {"name": "m_echo", "tool": "echo"}, {"name": "m_query", "tool": "query"}, {"name": "m_wait", "tool": "wait"},
            ],
        }])
    );
    site.does("modern changed");
    let tested = project.run(&["mcp", "test", "m"]);
    assert!(tested.code == 1 && tested.err.contains("the tool `echo` changed"), "{tested}");
}

/// Behind a host that has given up what it does not need.
#[test]
fn a_confined_host_asks_a_server() {
    let site = Site::start("modern");
    let project = locked(&site, "");
    let ran = project.run(&["call", "m_echo", "text=hello", "--self-confine"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "hello\n"), "{ran}");
}
