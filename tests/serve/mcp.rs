//! The Model Context Protocol for the keys of a tenant.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value as Json, json};

use crate::client::{LEGACY, MODERN, capabilities};
use crate::project::{FINE, Project};
use crate::site::{Site, archive, problem};
use crate::web::{Reply, exchange, modern, request};

/// A tool that computes until it is stopped, once it has said that it began.
const ENDLESS: &str = "def run(args):\n    fs.write('began', '')\n    for i in range(1000000000):\n        for j in range(1000000000):\n            pass\n";
/// A class whose tenants may ask again and again.
pub(crate) const OFTEN: &str = "classes: { default: { requests: { per_minute: 1000000, burst: 1000000 } } }\n";
/// The key of what a client can do.
const CAN: &str = "io.modelcontextprotocol/clientCapabilities";

/// A client with a key.
pub(crate) struct Peer<'s> {
    site: &'s Site,
    key: String,
    /// What it can do, in the newest revision.
    can: Json,
}

impl<'s> Peer<'s> {
    pub(crate) fn new(site: &'s Site, key: &str) -> Self {
        Self { site, key: key.to_owned(), can: json!({}) }
    }

    pub(crate) fn able(self, can: Json) -> Self {
        Self { can, ..self }
    }

    fn bytes(&self, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
        let bearer = format!("Bearer {}", self.key);
        let mut all = vec![("Host", self.site.address())];
        if !self.key.is_empty() {
            all.push(("Authorization", &bearer));
        }
        all.retain(|(name, _)| !headers.iter().any(|(other, _)| other == name));
        all.extend(headers);
        request("POST /mcp", &all, body)
    }

    /// Sends a message as it is.
    pub(crate) fn post(&self, headers: &[(&str, &str)], body: &str) -> Reply {
        exchange(&mut self.site.connect(), &self.bytes(headers, body))
    }

    fn request(&self, method: &str, params: Json) -> (String, Vec<(&'static str, String)>) {
        let task = params["taskId"].as_str().map(str::to_owned);
        let (mut body, mut headers) = modern(method, params);
        headers.extend(task.map(|task| ("Mcp-Name", task)));
        body["params"]["_meta"][CAN] = self.can.clone();
        (body.to_string(), headers)
    }

    /// A request of the newest revision.
    pub(crate) fn ask_with(&self, method: &str, params: Json, more: &[(&str, &str)]) -> Reply {
        let (body, headers) = self.request(method, params);
        let mut all: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        all.extend(more);
        self.post(&all, &body)
    }

    pub(crate) fn ask(&self, method: &str, params: Json) -> Json {
        self.ask_with(method, params, &[]).json()
    }

    /// The text of a result, and whether it is an error.
    pub(crate) fn text(&self, tool: &str, arguments: Json) -> (String, bool) {
        let answer = self.ask("tools/call", json!({"name": tool, "arguments": arguments}));
        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
        (text.to_owned(), answer["result"]["isError"] == true)
    }

    /// A request whose answer is read later.
    pub(crate) fn begin(&self, method: &str, params: Json) -> BufReader<TcpStream> {
        let (body, headers) = self.request(method, params);
        let all: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.sent(&self.bytes(&all, &body))
    }

    fn sent(&self, request: &[u8]) -> BufReader<TcpStream> {
        let mut stream = self.site.connect();
        // What never ends fails, and is not waited for without end.
        stream.set_read_timeout(Some(std::time::Duration::from_secs(300))).unwrap();
        stream.write_all(request).unwrap();
        BufReader::new(stream)
    }

    /// A stream of notifications that tools have changed.
    pub(crate) fn listen(&self) -> BufReader<TcpStream> {
        let mut stream = self.begin("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
        assert_eq!(event(&mut stream)["method"], "notifications/subscriptions/acknowledged");
        stream
    }

    /// Begins a session of the older era, and returns its identifier.
    pub(crate) fn session(&self, can: &Json) -> String {
        let info = json!({"name": "older", "version": "1.0"});
        let params = json!({"protocolVersion": LEGACY, "capabilities": can, "clientInfo": info});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
        let agreed = self.post(&[], &body.to_string());
        assert_eq!(agreed.json()["result"]["protocolVersion"], LEGACY, "{agreed:?}");
        agreed.header("mcp-session-id")
    }

    /// A request in such a session, whose answer is read later.
    pub(crate) fn begin_older(&self, session: &str, method: &str, params: &Json) -> BufReader<TcpStream> {
        let body = json!({"jsonrpc": "2.0", "id": "a", "method": method, "params": params});
        let headers = [("MCP-Protocol-Version", LEGACY), ("Mcp-Session-Id", session)];
        self.sent(&self.bytes(&headers, &body.to_string()))
    }

    /// A request in such a session.
    pub(crate) fn older(&self, session: &str, method: &str, params: &Json) -> Reply {
        let body = json!({"jsonrpc": "2.0", "id": "a", "method": method, "params": params});
        self.post(&[("MCP-Protocol-Version", LEGACY), ("Mcp-Session-Id", session)], &body.to_string())
    }
}

/// The next message of a stream.
pub(crate) fn event(stream: &mut BufReader<TcpStream>) -> Json {
    loop {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the stream has ended");
        if let Some(data) = line.strip_prefix("data:").filter(|data| !data.trim().is_empty()) {
            return serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}"));
        }
    }
}

/// What comes until the server ends the answer.
pub(crate) fn rest(mut stream: BufReader<TcpStream>) -> String {
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    rest
}

/// Waits until the script of an `endless` call of a tenant runs, and forgets it.
pub(crate) fn wait_until_begun(site: &Site, tenant: &str) {
    while std::fs::remove_file(site.data().join(format!("tenants/{tenant}/workspace/began"))).is_err() {
        std::thread::yield_now();
    }
}

pub(crate) fn endless() -> Project {
    let policy = "sandbox: { limits: { timeout_ms: 600000, fuel: 1000000000000 } }\n";
    Project::new().policy(policy).tool("endless", "timeout_ms: 600000\n", ENDLESS).tool("it", "", FINE)
}

fn audited(site: &Site, key: &str) -> Vec<Json> {
    site.get(key, "/v1/audit").body.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn used(site: &Site, key: &str, budget: &str) -> u64 {
    let usage = site.get(key, "/v1/usage").json();
    let all = usage["budgets"].as_array().unwrap();
    all.iter().find(|one| one["budget"] == budget).unwrap()["used"].as_u64().unwrap()
}

fn fine() -> Json {
    json!([{"type": "text", "text": "fine"}])
}

#[test]
fn both_eras_are_served_at_one_path_and_recorded_with_the_key() {
    let site = Site::open();
    let acme = site.tenant("acme", &Project::with_script(FINE));
    let peer = Peer::new(&site, &acme.key);
    let found = peer.ask_with("server/discover", json!({}), &[]);
    assert_eq!((found.status, &found.json()["result"]["capabilities"]), (200, &capabilities()), "{found:?}");
    assert_eq!(found.header("cache-control"), "no-store");
    assert!(found.head.contains("ratelimit: "), "{found:?}");
    assert_eq!(peer.ask("tools/list", json!({}))["result"]["tools"][0]["name"], "it");
    let made = peer.ask("tools/call", json!({"name": "it"}));
    assert_eq!(made["result"], json!({"resultType": "complete", "content": fine(), "isError": false}));

    let session = peer.session(&json!({}));
    let told = peer.post(
        &[("MCP-Protocol-Version", LEGACY), ("Mcp-Session-Id", &session)],
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}",
    );
    assert_eq!((told.status, told.body.as_str()), (202, ""));
    let listed = peer.older(&session, "tools/list", &json!({})).json();
    assert_eq!(listed["result"]["tools"][0]["name"], "it");
    let made = peer.older(&session, "tools/call", &json!({"name": "it"})).json();
    assert_eq!(made, json!({"jsonrpc": "2.0", "id": "a", "result": {"content": fine(), "isError": false}}));

    let id = acme.key.split('_').nth(1).unwrap();
    let logged: Vec<Json> = audited(&site, &acme.key)
        .iter()
        .map(|entry| json!([entry["tool"], entry["client"], entry["protocol"], entry["request"], entry["outcome"]]))
        .collect();
    let client = |name: &str| format!("owner of the tests ({id}): {name}");
    assert_eq!(
        logged,
        [
            json!(["it", client("tester"), format!("mcp/{MODERN}"), "1", "completed"]),
            json!(["it", client("older"), format!("mcp/{LEGACY}"), "a", "completed"]),
        ]
    );
    assert_eq!(used(&site, &acme.key, "calls_per_day"), 2);
    assert!(used(&site, &acme.key, "fuel_per_day") > 0);
    let metrics = site.admin("GET /metrics", &Json::Null).body;
    assert!(metrics.contains("harness_calls_total{outcome=\"completed\"} 2"), "{metrics}");
}

#[test]
fn rules_of_tenant_and_key_narrow_calls_and_resources() {
    let site = Site::open();
    let write = "def run(args):\n    fs.write(args['path'], 'x')\n    return 'written'\n";
    let project = Project::new()
        .policy("mcp: { resources: ['docs/**'] }\nsandbox: { fs: { read: [.], write: [.] } }\n")
        .tool("it", "parameters: { path: { type: string, required: true } }\n", write);
    let acme = site.tenant("acme", &project);
    for path in ["docs/a.md", "docs/b.md"] {
        assert_eq!(site.ask(&acme.key, &format!("PUT /v1/files/{path}"), &json!("text")).status, 200);
    }
    let rules = "fs: { read: [docs/a.md], write: [a] }";
    let made = site.ask(&acme.key, "POST /v1/keys", &json!({"role": "caller", "label": "narrow", "policy": rules}));
    let narrow = Peer::new(&site, made.json()["key"].as_str().unwrap());
    let owner = Peer::new(&site, &acme.key);
    let is_error = |peer: &Peer, path: &str| peer.text("it", json!({"path": path})).1;
    assert_eq!(["a/x", "c/x"].map(|path| is_error(&owner, path)), [false, false]);
    assert_eq!(["a/x", "c/x"].map(|path| is_error(&narrow, path)), [false, true]);
    let (text, _) = narrow.text("it", json!({"path": "c/x"}));
    assert!(text.contains("key "), "{text}");

    let uris = |peer: &Peer| -> Vec<String> {
        let listed = peer.ask("resources/list", json!({}));
        let all = listed["result"]["resources"].as_array().unwrap_or_else(|| panic!("{listed}")).iter();
        all.map(|one| one["uri"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(uris(&owner), ["file:///docs/a.md", "file:///docs/b.md"]);
    assert_eq!(uris(&narrow), ["file:///docs/a.md"]);
    let reads = |peer: &Peer, uri: &str| {
        let read = peer.ask("resources/read", json!({"uri": uri}));
        read["result"]["contents"][0]["text"] == "\"text\""
    };
    let both = |peer: &Peer| ["file:///docs/a.md", "file:///docs/b.md"].map(|uri| reads(peer, uri));
    assert_eq!((both(&owner), both(&narrow)), ([true, true], [true, false]));
    let subscribed = |peer: &Peer| {
        let asked = json!({"notifications": {"resourceSubscriptions": ["file:///docs/a.md", "file:///docs/b.md"]}});
        event(&mut peer.begin("subscriptions/listen", asked))["params"]["notifications"]["resourceSubscriptions"].take()
    };
    assert_eq!(subscribed(&owner), json!(["file:///docs/a.md", "file:///docs/b.md"]));
    assert_eq!(subscribed(&narrow), json!(["file:///docs/a.md"]));

    // The rules of the tenant hold from the next call on.
    let changed = site.admin("PATCH /admin/v1/tenants/acme", &json!({"policy": "fs: { write: [] }"}));
    assert_eq!(changed.status, 200, "{changed:?}");
    assert_eq!((is_error(&owner, "a/x"), is_error(&narrow, "a/x")), (true, true));
}

#[test]
fn budgets_and_rates_are_those_of_the_tenant() {
    let site = Site::with_config(
        "classes: { default: { budgets: { calls_per_day: 3 } }, slow: { requests: { per_minute: 1, burst: 3 } } }\n",
    );
    let project = Project::with_script(FINE).policy("mcp: { resources: ['docs/**'] }\n");
    let (acme, other) = (site.tenant("acme", &project), site.tenant("other", &project));
    assert_eq!(site.ask(&acme.key, "PUT /v1/files/docs/a.md", &json!("text")).status, 200);
    let peer = Peer::new(&site, &acme.key);
    // A read of a resource is a call, and a call over `/v1` is one of the same budget.
    assert_eq!(peer.text("it", json!({})), ("fine".to_owned(), false));
    assert_eq!(
        peer.ask("resources/read", json!({"uri": "file:///docs/a.md"}))["result"]["contents"][0]["text"],
        "\"text\""
    );
    assert_eq!(site.result(&acme.key, "it", json!({})), "fine");
    let session = peer.session(&json!({}));
    let refused = [
        peer.ask("tools/call", json!({"name": "it"})),
        peer.ask("resources/read", json!({"uri": "file:///docs/a.md"})),
        peer.older(&session, "tools/call", &json!({"name": "it"})).json(),
    ];
    for refused in refused {
        let error = &refused["error"];
        assert_eq!(error["code"], -32000, "{refused}");
        assert_eq!(error["message"], "the budget `calls_per_day` of 3 is used up");
        let named = (&error["data"]["limit"], &error["data"]["set_by"]);
        assert_eq!(named, (&json!("calls_per_day"), &json!("the class of the tenant")));
    }
    assert_eq!(problem(&site.call(&acme.key, "it", json!({}))), (429, "budget_exceeded".to_owned()));
    // What is no call is answered still, and another tenant's calls are too.
    assert_eq!(peer.ask("tools/list", json!({}))["result"]["tools"][0]["name"], "it");
    assert_eq!(Peer::new(&site, &other.key).text("it", json!({})), ("fine".to_owned(), false));

    let slow = site.tenant_of("slow", "slow", &project);
    // The upload of the project was the first.
    let peer = Peer::new(&site, &slow.key);
    assert_eq!([(); 2].map(|()| peer.ask_with("tools/list", json!({}), &[]).status), [200, 200]);
    let refused = peer.ask_with("tools/list", json!({}), &[]);
    assert_eq!(problem(&refused), (429, "too_many_requests".to_owned()));
    assert_eq!(refused.json()["set_by"], "the class `slow` of the tenant");
}

#[test]
fn tokens_of_agents_count() {
    let site = Site::open();
    let project = Project::new()
        .policy("model: { provider: script, script: replies.yaml }\nmcp: { agents: [helper] }\n")
        .file("replies.yaml", "- { agent: helper, text: It is done. }\n")
        .file(".harness/agents/helper.md", "---\ndescription: Helps.\n---\nYou help.\n");
    let acme = site.tenant("acme", &project);
    let peer = Peer::new(&site, &acme.key);
    assert_eq!(used(&site, &acme.key, "tokens_per_day"), 0);
    assert_eq!(peer.text("helper", json!({"task": "x"})), ("It is done.".to_owned(), false));
    let tokens = used(&site, &acme.key, "tokens_per_day");
    assert!(tokens > 0);
    // What calls no agent uses none.
    peer.ask("tools/list", json!({}));
    assert_eq!(used(&site, &acme.key, "tokens_per_day"), tokens);
}

#[test]
fn only_keys_whose_role_calls_are_answered() {
    let site = Site::open();
    let acme = site.tenant("acme", &Project::with_script(FINE));
    let wrong = acme.key.replace(&acme.key[acme.key.len() - 4..], "0000");
    for key in ["", "x", &wrong] {
        let refused = Peer::new(&site, key).ask_with("tools/list", json!({}), &[]);
        assert_eq!(problem(&refused), (401, "unauthorized".to_owned()), "{key}");
        assert_eq!(refused.header("www-authenticate"), "Bearer");
    }
    for role in ["approver", "auditor"] {
        let refused = Peer::new(&site, &site.key("acme", role)).ask_with("tools/list", json!({}), &[]);
        assert_eq!(problem(&refused), (403, "forbidden".to_owned()), "{role}");
    }
    let refused = Peer::new(&site, &site.operator()).ask_with("tools/list", json!({}), &[]);
    assert_eq!(problem(&refused), (403, "forbidden".to_owned()));
    for role in ["owner", "developer", "caller"] {
        let peer = Peer::new(&site, &site.key("acme", role));
        assert_eq!(peer.text("it", json!({})), ("fine".to_owned(), false), "{role}");
    }
    // A tenant that has no project yet.
    assert_eq!(site.admin("POST /admin/v1/tenants", &json!({"id": "empty"})).status, 201);
    let refused = Peer::new(&site, &site.key("empty", "owner")).ask_with("tools/list", json!({}), &[]);
    assert_eq!(problem(&refused), (409, "no_project".to_owned()));
}

#[test]
fn names_origins_and_methods_are_checked() {
    let site = Site::open();
    let acme = site.tenant("acme", &Project::with_script(FINE));
    let peer = Peer::new(&site, &acme.key);
    let status = |more: &[(&str, &str)]| peer.ask_with("tools/list", json!({}), more).status;
    let port = site.address().rsplit_once(':').unwrap().1;
    let (local, own) = (format!("localhost:{port}"), format!("http://{}", site.address()));
    for more in [[("Host", local.as_str())], [("Host", site.address())], [("Origin", own.as_str())]] {
        assert_eq!(status(&more), 200, "{more:?}");
    }
    for more in [
        [("Host", "evil.example")],
        [("Host", "localhost:1")],
        [("Origin", "http://evil.example")],
        [("Origin", "null")],
    ] {
        assert_eq!(status(&more), 403, "{more:?}");
    }
    for method in ["GET", "DELETE", "PUT"] {
        let refused = site.ask(&acme.key, &format!("{method} /mcp"), &Json::Null);
        assert_eq!(problem(&refused), (405, "method".to_owned()), "{method}");
        assert_eq!(refused.header("allow"), "POST");
    }
    assert_eq!(peer.post(&[], "[]").refusal(), (400, -32600));
    assert_eq!(peer.post(&[], "{").refusal(), (400, -32700));
    let large = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"x\":\"{}\"}}", "x".repeat(4 << 20));
    assert_eq!(peer.post(&[], &large).refusal(), (413, -32600));
    assert_eq!(status(&[]), 200);
}

#[test]
fn a_key_that_is_removed_ends_its_calls_and_streams_and_no_others() {
    let site = Site::open();
    let acme = site.tenant("acme", &endless());
    let made = site.ask(&acme.key, "POST /v1/keys", &json!({"role": "caller", "label": "gone"})).json();
    let (gone, owner) = (Peer::new(&site, made["key"].as_str().unwrap()), Peer::new(&site, &acme.key));
    let (stream, mut other_stream) = (gone.listen(), owner.listen());
    let call = gone.begin("tools/call", json!({"name": "endless"}));
    wait_until_begun(&site, "acme");
    let other = owner.begin("tools/call", json!({"name": "endless"}));
    wait_until_begun(&site, "acme");
    let session = gone.session(&json!({}));
    let removed = site.ask(&acme.key, &format!("DELETE /v1/keys/{}", made["id"].as_str().unwrap()), &Json::Null);
    assert_eq!(removed.status, 200, "{removed:?}");
    assert!(rest(call).contains("the call was ended"));
    rest(stream);
    for refused in [gone.ask_with("tools/list", json!({}), &[]), gone.older(&session, "tools/list", &json!({}))] {
        assert_eq!(problem(&refused), (401, "unauthorized".to_owned()));
    }
    // The call and the stream of the other key have not ended: it hears of the next project.
    assert_eq!(site.upload(&acme.key, &archive(&endless().tool("more", "", FINE))).status, 200);
    assert_eq!(event(&mut other_stream)["method"], "notifications/tools/list_changed");
    let other = other.into_inner();
    other.set_nonblocking(true).unwrap();
    let waits = (&other).read(&mut [0; 1]).unwrap_err();
    assert_eq!(waits.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn a_tenant_that_is_suspended_or_removed_ends_its_calls_and_streams() {
    let site = Site::open();
    let (acme, other) = (site.tenant("acme", &endless()), site.tenant("other", &endless()));
    let (peer, control) = (Peer::new(&site, &acme.key), Peer::new(&site, &other.key));
    let mut control_stream = control.listen();
    let session = peer.session(&json!({}));
    let (stream, call) = (peer.listen(), peer.begin("tools/call", json!({"name": "endless"})));
    wait_until_begun(&site, "acme");
    let suspended = site.admin("PATCH /admin/v1/tenants/acme", &json!({"state": "suspended"}));
    assert_eq!(suspended.status, 200, "{suspended:?}");
    assert!(rest(call).contains("the call was ended"));
    rest(stream);
    assert_eq!(problem(&peer.ask_with("tools/list", json!({}), &[])), (401, "unauthorized".to_owned()));
    assert_eq!(site.admin("PATCH /admin/v1/tenants/acme", &json!({"state": "active"})).status, 200);
    assert_eq!(peer.text("it", json!({})), ("fine".to_owned(), false));
    assert_eq!(peer.older(&session, "tools/list", &json!({})).status, 200);

    let stream = peer.listen();
    assert_eq!(site.admin("DELETE /admin/v1/tenants/acme", &Json::Null).status, 200);
    rest(stream);
    assert_eq!(problem(&peer.ask_with("tools/list", json!({}), &[])), (401, "unauthorized".to_owned()));
    assert_eq!(site.upload(&other.key, &archive(&Project::with_script(FINE))).status, 200);
    assert_eq!(event(&mut control_stream)["method"], "notifications/tools/list_changed");
}

#[test]
fn a_key_that_expires_ends_its_streams() {
    let site = Site::open();
    let acme = site.tenant("acme", &Project::with_script(FINE));
    let now = || std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
    // A machine that is slow may find it expired before the stream begins.
    for seconds in [2, 60, 300] {
        let expires = now() + seconds * 1000;
        let made =
            site.ask(&acme.key, "POST /v1/keys", &json!({"role": "caller", "label": "short", "expires": expires}));
        let peer = Peer::new(&site, made.json()["key"].as_str().unwrap());
        if peer.ask_with("tools/list", json!({}), &[]).status == 401 {
            continue;
        }
        rest(peer.begin("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}})));
        assert!(now() >= expires);
        assert_eq!(problem(&peer.ask_with("tools/list", json!({}), &[])), (401, "unauthorized".to_owned()));
        return;
    }
    panic!("no key lived long enough");
}

#[test]
fn a_new_project_is_in_force_and_said_to_those_who_listen() {
    let site = Site::open();
    let project = Project::with_script(FINE);
    let (acme, other) = (site.tenant("acme", &project), site.tenant("other", &project));
    let (peer, stranger) = (Peer::new(&site, &acme.key), Peer::new(&site, &other.key));
    let (mut stream, mut strange) = (peer.listen(), stranger.listen());
    let names = |peer: &Peer| -> Vec<String> {
        let listed = peer.ask("tools/list", json!({}));
        listed["result"]["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(site.upload(&acme.key, &archive(&Project::with_script(FINE).tool("new", "", FINE))).status, 200);
    assert_eq!(event(&mut stream)["method"], "notifications/tools/list_changed");
    assert_eq!((names(&peer), names(&stranger)), (vec!["it".to_owned(), "new".to_owned()], vec!["it".to_owned()]));
    // Also where the project is opened anew meanwhile, as after a change of its secrets.
    assert_eq!(site.ask(&acme.key, "PUT /v1/secrets/TOKEN", &json!({"value": "x"})).status, 200);
    assert_eq!(site.upload(&acme.key, &archive(&project)).status, 200);
    assert_eq!(event(&mut stream)["method"], "notifications/tools/list_changed");
    assert_eq!(names(&peer), ["it"]);
    // One that is refused changes nothing.
    assert_eq!(site.upload(&acme.key, b"x").status, 422);
    assert_eq!(names(&peer), ["it"]);
    // The first that the other tenant hears of is its own.
    assert_eq!(site.upload(&other.key, &archive(&Project::new().tool("own", "", FINE))).status, 200);
    assert_eq!(event(&mut strange)["method"], "notifications/tools/list_changed");
    assert_eq!(names(&stranger), ["own"]);
}

#[test]
fn the_person_at_a_client_confirms_where_the_key_may_approve() {
    let site = Site::open();
    let acme = site.tenant("acme", &Project::new().tool("it", "confirm: true\n", FINE));
    let forms = json!({"elicitation": {"form": {}}});
    let owner = Peer::new(&site, &acme.key).able(forms.clone());
    let asked = owner.ask("tools/call", json!({"name": "it"}))["result"].take();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let said = |confirm: bool| {
        let answer = json!({"action": "accept", "content": {"confirm": confirm}});
        json!({"name": "it", "requestState": asked["requestState"], "inputResponses": {"confirm": answer}})
    };
    assert_eq!(owner.ask("tools/call", said(false))["result"]["isError"], true);
    assert_eq!(owner.ask("tools/call", said(true))["result"]["content"], fine());

    let caller_key = site.key("acme", "caller");
    let caller = Peer::new(&site, &caller_key).able(forms.clone());
    let hint = "hint: send the call to `/v1/tools/it/calls` with `Prefer: respond-async`, and let a key with the role \
                `approver` answer; or use a key of an `owner` in a client with elicitation";
    let denied = [caller.text("it", json!({})), Peer::new(&site, &acme.key).text("it", json!({}))];
    for (text, is_error) in denied {
        assert!(is_error && text.starts_with("tool denied: ") && text.ends_with(hint), "{text}");
    }
    // The older era, in which the server asks while the call waits.
    let session = caller.session(&json!({"elicitation": {}}));
    let denied = caller.older(&session, "tools/call", &json!({"name": "it"})).json();
    assert!(denied["result"]["content"][0]["text"].as_str().unwrap().ends_with(hint), "{denied}");
    let session = owner.session(&json!({"elicitation": {}}));
    let mut stream = owner.begin_older(&session, "tools/call", &json!({"name": "it"}));
    let headers = [("MCP-Protocol-Version", LEGACY), ("Mcp-Session-Id", session.as_str())];
    let question = event(&mut stream);
    assert_eq!(question["method"], "elicitation/create", "{question}");
    let result = json!({"action": "accept", "content": {"confirm": true}});
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": result}).to_string();
    // Nobody else answers it: with another key the answer is about nothing, and the call waits on.
    assert_eq!(caller.post(&headers[..1], &answer).status, 400);
    assert_eq!(owner.post(&headers, &answer).status, 202);
    assert_eq!(event(&mut stream)["result"]["content"], fine());
}

#[test]
fn streams_of_a_key_and_of_a_tenant_are_bounded() {
    let site = Site::with_config(OFTEN);
    let project = Project::with_script(FINE);
    let (_acme, other) = (site.tenant("acme", &project), site.tenant("other", &project));
    let asked = || json!({"notifications": {"toolsListChanged": true}});
    let keys: Vec<String> = (0..5).map(|_| site.key("acme", "caller")).collect();
    let mut streams = Vec::new();
    for (at, key) in keys.iter().enumerate() {
        let peer = Peer::new(&site, key);
        if at == 4 {
            let refused = peer.ask_with("subscriptions/listen", asked(), &[]);
            assert_eq!(refused.refusal(), (503, -32000));
            let why = "64 requests of this tenant listen already: end one of them first";
            assert_eq!(refused.json()["error"]["message"], why);
            break;
        }
        streams.extend((0..16).map(|_| peer.listen()));
        let refused = peer.ask_with("subscriptions/listen", asked(), &[]);
        assert_eq!(refused.refusal(), (503, -32000));
        let why = "16 requests of this key listen already: end one of them first";
        assert_eq!(refused.json()["error"]["message"], why);
        assert_eq!(refused.header("retry-after"), "1");
    }
    // Calls have places of their own, and another tenant its own.
    assert_eq!(Peer::new(&site, &keys[0]).text("it", json!({})), ("fine".to_owned(), false));
    Peer::new(&site, &other.key).listen();
    // One that ends makes room.
    drop(streams.pop());
    let last = Peer::new(&site, &keys[4]);
    loop {
        let mut stream = last.begin("subscriptions/listen", asked());
        let mut line = String::new();
        stream.read_line(&mut line).unwrap();
        if line.starts_with("HTTP/1.1 200") {
            break;
        }
        std::thread::yield_now();
    }
}

#[test]
fn requests_of_a_key_at_one_time_are_bounded() {
    let site = Site::with_config(
        "classes: { default: { concurrent_calls: 1, requests: { per_minute: 1000000, burst: 1000000 } } }\n",
    );
    let acme = site.tenant("acme", &endless());
    let (owner, other) = (Peer::new(&site, &acme.key), Peer::new(&site, &site.key("acme", "caller")));
    // One runs, and all others wait for it.
    let mut calls = Vec::new();
    let refused = loop {
        // One that comes while all places are taken, by this request too, is refused itself.
        calls.push(owner.begin("tools/call", json!({"name": "endless"})));
        let reply = owner.ask_with("tools/list", json!({}), &[]);
        if reply.status != 200 {
            break reply;
        }
    };
    assert_eq!(refused.refusal(), (503, -32000));
    let why = "64 requests of this key are being answered: send this one again later";
    assert_eq!(refused.json()["error"]["message"], why);
    assert_eq!(other.ask("tools/list", json!({}))["result"]["tools"][0]["name"], "endless");
    drop(calls);
    while owner.ask_with("tools/list", json!({}), &[]).status != 200 {
        std::thread::yield_now();
    }
}

#[test]
fn the_end_of_the_server_ends_calls_and_streams() {
    let mut site = Site::open();
    let acme = site.tenant("acme", &endless());
    let peer = Peer::new(&site, &acme.key);
    let (stream, call) = (peer.listen(), peer.begin("tools/call", json!({"name": "endless"})));
    wait_until_begun(&site, "acme");
    site.signal(rustix::process::Signal::TERM);
    assert!(rest(call).contains("the call was ended: the server is closing"));
    rest(stream);
    assert_eq!(site.end().0, Some(143));
}
