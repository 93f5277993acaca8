//! Logins at servers with OAuth: who is asked for tokens, who gets them, and what is not believed.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use url::Url;

use crate::client::MODERN;
use crate::project::{Project, Ran};
use crate::site::Received;

/// What the servers know, and got.
#[derive(Default)]
struct State {
    does: Vec<String>,
    received: Vec<(u16, Received)>,
    /// Tokens that the server takes, each with its scopes.
    tokens: Vec<(String, String)>,
    /// What the next code is exchanged for: the challenge that its verifier has to answer, and the scopes.
    code: Option<(String, String)>,
    issued: u32,
}

/// A server that wants a login, and an authorization server, each at an origin of its own.
struct World {
    server: u16,
    issuer: u16,
    state: Arc<Mutex<State>>,
}

impl World {
    fn start(does: &str) -> Self {
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [server, issuer] = [0, 1].map(|which: usize| listeners[which].local_addr().unwrap().port());
        let world = Self { server, issuer, state: Arc::default() };
        world.does(does);
        for listener in listeners {
            let visited = Self { server, issuer, state: world.state.clone() };
            std::thread::spawn(move || {
                let port = listener.local_addr().unwrap().port();
                for stream in listener.incoming() {
                    let mut stream = stream.unwrap();
                    let Ok(request) = Received::read(&mut stream) else { continue };
                    let (status, headers, body) = visited.answer(port, &request);
                    visited.state().received.push((port, request));
                    let head = format!(
                        "HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{headers}\r\n",
                        body.len()
                    );
                    let _ = stream.write_all(format!("{head}{body}").as_bytes());
                }
            });
        }
        world
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn does(&self, words: &str) {
        self.state().does = words.split(' ').map(str::to_owned).collect();
    }

    fn has(&self, word: &str) -> bool {
        self.state().does.iter().any(|one| one == word)
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.server)
    }

    fn issuer(&self) -> String {
        format!("http://127.0.0.1:{}", self.issuer)
    }

    /// Requests of one of the servers, in short, since this was last asked.
    fn take_lines(&self, port: u16) -> Vec<String> {
        let mut state = self.state();
        let (taken, rest) = std::mem::take(&mut state.received).into_iter().partition(|(at, _)| *at == port);
        state.received = rest;
        let taken: Vec<(u16, Received)> = taken;
        taken.iter().map(|(_, one)| format!("{} {}", one.method, one.path)).collect()
    }

    /// The fields of the forms that the token endpoint got.
    fn forms(&self) -> Vec<Vec<(String, String)>> {
        let state = self.state();
        let forms = state.received.iter().filter(|(_, one)| one.path == "/token");
        let fields = |text: &str| url::form_urlencoded::parse(text.as_bytes()).into_owned().collect();
        forms.map(|(_, one)| fields(&one.text)).collect()
    }

    fn answer(&self, port: u16, request: &Received) -> (u16, String, String) {
        let plain = |status: u16, body: Json| (status, String::new(), body.to_string());
        let is_server = port == self.server;
        match (is_server, request.method.as_str(), request.path.split('?').next().unwrap()) {
            (true, "GET", "/.well-known/oauth-protected-resource/mcp") if !self.has("undescribed") => {
                let resource =
                    if self.has("other-resource") { "https://evil.example/mcp".to_owned() } else { self.url() };
                plain(200, json!({"resource": resource, "authorization_servers": [self.issuer()]}))
            }
            (true, "POST", "/mcp") => self.serve(request),
            (false, "GET", "/.well-known/oauth-authorization-server") => plain(200, self.metadata()),
            (false, "POST", "/register") => {
                let mut client = request.body.clone();
                client["client_id"] = json!("client-1");
                plain(201, client)
            }
            (false, "POST", "/token") => self.issue(request),
            _ => plain(404, json!({})),
        }
    }

    fn metadata(&self) -> Json {
        let at = |path: &str| format!("{}{path}", self.issuer());
        let mut metadata = json!({
            "issuer": self.issuer(), "authorization_endpoint": at("/authorize"), "token_endpoint": at("/token"),
            "registration_endpoint": at("/register"), "token_endpoint_auth_methods_supported": ["none"],
            "code_challenge_methods_supported": ["S256"], "client_id_metadata_document_supported": true,
            "authorization_response_iss_parameter_supported": self.has("names-itself"),
        });
        if self.has("other-issuer") {
            metadata["issuer"] = json!("https://evil.example");
        }
        if self.has("no-pkce") {
            metadata.as_object_mut().unwrap().remove("code_challenge_methods_supported");
        }
        metadata
    }

    /// Exchanges a code, or a token that renews.
    fn issue(&self, request: &Received) -> (u16, String, String) {
        let fields: Vec<(String, String)> = url::form_urlencoded::parse(request.text.as_bytes()).into_owned().collect();
        let field = |name: &str| fields.iter().find(|(found, _)| found == name).map_or("", |(_, value)| value.as_str());
        let is_strict = self.has("strict");
        let mut state = self.state();
        let scopes = match field("grant_type") {
            "authorization_code" => {
                let Some((challenge, scopes)) = state.code.take() else {
                    return (400, String::new(), json!({"error": "invalid_grant"}).to_string());
                };
                assert_eq!(crate::logins::challenge(field("code_verifier")), challenge);
                scopes
            }
            _ if is_strict => return (400, String::new(), json!({"error": "invalid_grant"}).to_string()),
            _ => "renewed".to_owned(),
        };
        state.issued += 1;
        let token = format!("access-token-{}", state.issued);
        if !state.does.iter().any(|word| word == "other-audience") {
            state.tokens.push((token.clone(), scopes));
        }
        let refresh = format!("refresh-token-{}", state.issued);
        let lasts = if state.does.iter().any(|word| word == "short") { 0 } else { 3600 };
        let answer =
            json!({"access_token": token, "token_type": "Bearer", "expires_in": lasts, "refresh_token": refresh});
        (200, String::new(), answer.to_string())
    }

    fn serve(&self, request: &Received) -> (u16, String, String) {
        let sent = request.header("authorization").and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
        let token = self.state().tokens.iter().find(|(token, _)| token == sent).cloned();
        let metadata = format!("{}/.well-known/oauth-protected-resource/mcp", self.url().trim_end_matches("/mcp"));
        let asks = |status: u16, scope: &str| {
            let header = format!("WWW-Authenticate: Bearer resource_metadata=\"{metadata}\", scope=\"{scope}\"\r\n");
            (status, header, String::new())
        };
        let Some((token, scopes)) = token else {
            if self.has("undescribed") {
                return (401, String::new(), String::new());
            }
            return asks(401, "read");
        };
        let (body, id) = (&request.body, &request.body["id"]);
        let result = match body["method"].as_str().unwrap() {
            "server/discover" => {
                json!({"resultType": "complete", "supportedVersions": [MODERN], "capabilities": {"tools": {}}})
            }
            "tools/list" => {
                let tool = json!({"name": "echo", "inputSchema": {"type": "object"}});
                json!({"resultType": "complete", "tools": [tool]})
            }
            _ if self.has("step-up") && !scopes.split(' ').any(|scope| scope == "write") => return asks(403, "write"),
            _ => json!({"resultType": "complete", "content": [{"type": "text", "text": format!("hello {token}")}]}),
        };
        (200, String::new(), json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string())
    }
}

fn challenge(verifier: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(Sha256::digest(verifier))
}

/// A project with the server, and the folder of the operator's logins.
struct Place {
    project: Project,
    state: TempDir,
}

impl Place {
    fn of(world: &World, oauth: &str) -> Self {
        let hosts = format!("network: {{ allowed_domains: [\"127.0.0.1:{}\"] }}", world.issuer);
        Self::with(world, oauth, &hosts)
    }

    fn with(world: &World, oauth: &str, hosts: &str) -> Self {
        let entry = format!("    m: {{ url: \"{}\", oauth: {oauth}, {hosts} }}\n", world.url());
        let project = Project::new().policy(&format!("mcp:\n  servers:\n{entry}"));
        Self { project, state: tempfile::tempdir().unwrap() }
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        let mut command = self.project.command(arguments);
        self.project.ran(&command.env("XDG_STATE_HOME", self.state.path()).output().unwrap())
    }

    fn login(&self) -> Browser {
        let mut command = self.project.command(&["mcp", "login", "m"]);
        command.env("XDG_STATE_HOME", self.state.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        Browser { child, out, url: Url::parse(line.trim()).ok(), line }
    }

    /// Logs in as a person would, who gets what is asked for.
    #[track_caller]
    fn log_in(&self, world: &World) -> Vec<(String, String)> {
        let browser = self.login();
        let asked = browser.asked();
        browser.consent(world, "");
        let (code, out, err) = browser.end();
        assert_eq!((code, out.as_str()), (0, "logged in\n"), "{err}");
        asked
    }

    /// The one file of logins, and its mode.
    fn kept(&self) -> (String, u32) {
        use std::os::unix::fs::PermissionsExt as _;
        let mut files = std::fs::read_dir(self.state.path().join("harness/mcp")).unwrap();
        let file = files.next().unwrap().unwrap();
        assert!(files.next().is_none());
        let mode = file.metadata().unwrap().permissions().mode() & 0o777;
        (std::fs::read_to_string(file.path()).unwrap(), mode)
    }
}

/// A command that waits for a browser.
struct Browser {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    url: Option<Url>,
    line: String,
}

impl Browser {
    /// What the address asks, in its order.
    fn asked(&self) -> Vec<(String, String)> {
        self.url.as_ref().unwrap().query_pairs().into_owned().collect()
    }

    fn field(&self, name: &str) -> String {
        self.asked().into_iter().find(|(found, _)| found == name).map(|(_, value)| value).unwrap_or_default()
    }

    /// Lets the authorization server issue a code, and comes back with it. Returns the status that the browser sees.
    fn consent(&self, world: &World, more: &str) -> u16 {
        world.state().code = Some((self.field("code_challenge"), self.field("scope")));
        self.back(&format!("code=c&state={}{more}", self.field("state")))
    }

    fn back(&self, query: &str) -> u16 {
        let redirect = Url::parse(&self.field("redirect_uri")).unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", redirect.port().unwrap())).unwrap();
        write!(stream, "GET {}?{query} HTTP/1.1\r\nHost: x\r\n\r\n", redirect.path()).unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer.split(' ').nth(1).unwrap().parse().unwrap()
    }

    /// The exit code, what else was printed, and the complaints.
    fn end(mut self) -> (i32, String, String) {
        let (mut out, mut err) = (String::new(), String::new());
        self.out.read_to_string(&mut out).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (self.child.wait().unwrap().code().unwrap(), out, err)
    }
}

const ECHO: [&str; 2] = ["call", "m_echo"];

#[test]
fn somebody_logs_in_and_out() {
    let world = World::start("");
    let place = Place::of(&world, "{}");
    let ran = place.run(&["lock"]);
    let why = format!("the server `m` cannot be locked: `{}` wants a login (HTTP status 401)", world.url());
    assert!(ran.code == 1 && ran.err.contains(&why), "{ran}");
    let asked = place.log_in(&world);
    let value = |name: &str| asked.iter().find(|(found, _)| found == name).unwrap().1.clone();
    let names: Vec<&str> = asked.iter().map(|(name, _)| name.as_str()).collect();
    let wanted = [
        "response_type",
        "client_id",
        "redirect_uri",
        "code_challenge",
        "code_challenge_method",
        "state",
        "resource",
        "scope",
    ];
    assert_eq!(names, wanted);
    let fixed = ["response_type", "client_id", "code_challenge_method", "resource", "scope"].map(value);
    assert_eq!(fixed, ["code".to_owned(), "client-1".to_owned(), "S256".to_owned(), world.url(), "read".to_owned()]);
    let form = world.forms().pop().unwrap();
    let names: Vec<&str> = form.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["grant_type", "code", "redirect_uri", "code_verifier", "resource", "client_id"]);
    assert_eq!(form[4].1, world.url());
    // What is kept is the operator's own, and nowhere else.
    let (kept, mode) = place.kept();
    assert!(kept.contains("access-token-1") && mode == 0o600, "{mode:o}");
    assert_eq!(place.run(&["lock"]).code, 0);
    let ran = place.run(&ECHO);
    assert_eq!((ran.code, ran.out.as_str()), (0, "hello [redacted:login of m]\n"), "{ran}");
    let found = place.project.shell("grep -rlE 'access-token|refresh-token' . || true");
    assert_eq!(found.out, "", "{found}");
    // The token goes to the server, and to nobody else.
    let state = world.state();
    let sent: Vec<(u16, &str)> =
        state.received.iter().filter_map(|(port, one)| Some((*port, one.header("authorization")?))).collect();
    assert!(!sent.is_empty() && sent.iter().all(|sent| *sent == (world.server, "Bearer access-token-1")), "{sent:?}");
    drop(state);
    let again = place.login();
    assert_eq!(again.line, "the server takes what it is sent already\n");
    assert_eq!(again.end().0, 0);
    place.run(&["mcp", "logout", "m"]).gives("logged out");
    place.run(&["mcp", "logout", "m"]).gives("nobody was logged in");
    let ran = place.run(&ECHO);
    assert!(ran.code == 3 && ran.err.contains("log in with `harness mcp login m`"), "{ran}");
    assert_eq!(place.run(&["mcp", "login", "other"]).code, 2);
}

/// A project of another name has a login of its own.
#[test]
fn a_login_is_of_one_project() {
    let world = World::start("");
    let place = Place::of(&world, "{}");
    place.log_in(&world);
    assert_eq!(place.run(&["lock"]).code, 0);
    let other = Place { project: Place::of(&world, "{}").project, state: place.state };
    assert_eq!(other.run(&["lock"]).code, 1);
}

#[test]
fn tokens_are_renewed() {
    let world = World::start("");
    let place = Place::of(&world, "{}");
    place.log_in(&world);
    assert_eq!(place.run(&["lock"]).code, 0);
    // The server does not take it any more.
    world.state().tokens.clear();
    let ran = place.run(&ECHO);
    assert_eq!((ran.code, ran.out.as_str()), (0, "hello [redacted:login of m]\n"), "{ran}");
    let form = world.forms().pop().unwrap();
    let names: Vec<&str> = form.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["grant_type", "refresh_token", "resource", "client_id"]);
    assert_eq!((form[1].1.as_str(), form[2].1.as_str()), ("refresh-token-1", world.url().as_str()));
    assert!(place.kept().0.contains("refresh-token-2"));
    // One that is over is renewed before it is used.
    world.does("short");
    world.state().tokens.clear();
    assert_eq!(place.run(&ECHO).code, 0);
    world.take_lines(world.server);
    assert_eq!(place.run(&ECHO).code, 0);
    let refused = world.state().received.iter().filter(|(port, _)| *port == world.server).count();
    assert_eq!(refused, 3);
    // Where the authorization server does not renew it, nobody is logged in, and it is asked once.
    world.does("strict");
    world.state().tokens.clear();
    world.take_lines(world.issuer);
    let ran = place.run(&ECHO);
    assert!(ran.code == 3 && ran.err.contains("wants a login (HTTP status 401)"), "{ran}");
    assert_eq!(world.take_lines(world.issuer), ["POST /token"]);
    assert!(!place.kept().0.contains("access-token"));
}

#[test]
fn a_server_may_want_more() {
    let world = World::start("step-up");
    let place = Place::of(&world, "{}");
    place.log_in(&world);
    assert_eq!(place.run(&["lock"]).code, 0);
    let ran = place.run(&ECHO);
    let why = format!("`{}` wants a login that allows `write` (HTTP status 403)", world.url());
    assert!(ran.code == 3 && ran.err.contains(&why) && ran.err.contains("harness mcp login m"), "{ran}");
    let asked = place.log_in(&world);
    // What was allowed before stays allowed.
    assert_eq!(asked.last().unwrap(), &("scope".to_owned(), "write read".to_owned()));
    let ran = place.run(&ECHO);
    assert_eq!(ran.code, 0, "{ran}");
}

#[test]
fn clients_are_those_of_the_policy_before_others() {
    let world = World::start("");
    let document = "https://client.example/harness.json";
    let place = Place::of(&world, &format!("{{ client_metadata: \"{document}\", scopes: [extra] }}"));
    let asked = place.log_in(&world);
    assert_eq!(asked[1].1, document);
    assert_eq!(asked.last().unwrap().1, "read extra");
    let own = format!("{{ client_id: mine, issuer: \"{}\" }}", world.issuer());
    assert_eq!(Place::of(&world, &own).log_in(&world)[1].1, "mine");
    assert!(!world.take_lines(world.issuer).contains(&"POST /register".to_owned()));
    // A client is known to one authorization server.
    let other = Place::of(&world, "{ client_id: mine, issuer: \"https://other.example\" }").login().end();
    let why = format!(
        "the authorization server is `{}`, and `oauth.client_id` is of `https://other.example`",
        world.issuer()
    );
    assert!(other.0 == 1 && other.2.contains(&why), "{other:?}");
    for (oauth, why) in [
        ("{ client_id: mine }", "`client_id` and `issuer` belong together"),
        ("{ client_metadata: 'http://client.example/x' }", "the URL of a document has `https` and a path"),
        ("{ scopes: ['a b'] }", "`a b` is not a scope"),
    ] {
        let ran = Place::of(&world, oauth).run(&["validate"]);
        assert!(ran.code == 2 && ran.err.contains(why) || ran.out.contains(why), "{ran}");
    }
}

/// What is not as it has to be ends the login before a token is asked for.
#[test]
fn what_is_not_believed() {
    for (does, why) in [
        (
            "other-resource",
            "the server says that tokens for it are for `https://evil.example/mcp`, which is another one",
        ),
        ("other-issuer", "says that it is `https://evil.example`"),
        ("no-pkce", "does not support PKCE with S256"),
    ] {
        let world = World::start(does);
        let place = Place::of(&world, "{}");
        let (code, out, err) = place.login().end();
        assert!(code == 1 && out.is_empty() && err.contains(why), "{does}: {out} {err}");
        assert!(world.take_lines(world.issuer).iter().all(|line| line.starts_with("GET ")), "{does}");
        world.does("");
        place.log_in(&world);
    }
    // The authorization server is another host, which the policy has to name.
    let world = World::start("");
    let (code, _, err) = Place::with(&world, "{}", "").login().end();
    let why = format!("the host `127.0.0.1:{}` is not allowed", world.issuer);
    assert!(code == 1 && err.contains(&why), "{err}");
    assert_eq!(world.take_lines(world.issuer), Vec::<String>::new());
}

#[test]
fn an_answer_is_of_the_server_that_was_asked() {
    for (does, more, why) in [
        ("names-itself", "", "the answer does not say that it is of"),
        ("", "&iss=https://evil.example", "the answer is of `https://evil.example` and not of"),
        ("names-itself", "&iss=https://evil.example", "the answer is of `https://evil.example` and not of"),
        ("", "&error=access_denied", "the authorization server does not log in: `access_denied`"),
    ] {
        let world = World::start(does);
        let place = Place::of(&world, "{}");
        let browser = place.login();
        // Another state is another's.
        assert_eq!(browser.back("code=c&state=x"), 400);
        assert_eq!(browser.back(""), 400);
        browser.consent(&world, more);
        let (code, out, err) = browser.end();
        assert!(code == 1 && out.is_empty() && err.contains(why), "{does} {more}: {err}");
        assert_eq!(world.forms(), Vec::<Vec<(String, String)>>::new());
        let browser = place.login();
        assert_eq!(browser.consent(&world, &format!("&iss={}", world.issuer())), 200);
        assert_eq!(browser.end().0, 0);
    }
}

/// A token that is for somebody else is not asked for again and again.
#[test]
fn a_token_that_the_server_does_not_take_ends_the_login() {
    let world = World::start("other-audience");
    let place = Place::of(&world, "{}");
    let browser = place.login();
    browser.consent(&world, "");
    let (code, _, err) = browser.end();
    let why = "the server does not take the token that its authorization server has issued";
    assert!(code == 1 && err.contains(why), "{err}");
    assert_eq!(world.take_lines(world.issuer).iter().filter(|line| *line == "POST /token").count(), 2);
}
