//! Secrets from a script's side, with a real server that shows what it got: what arrives where it may, and nowhere else.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use crate::project::{Project, Ran};

/// What nobody but the server and the command may see.
const VALUE: &str = "t0p/s3cret+value";
/// The same in base64, as `Basic` credentials of `me` have it.
const BASIC: &str = "bWU6dDBwL3MzY3JldCt2YWx1ZQ==";

/// A server that answers each request with the request itself, and keeps it; `/to?URL` leads to that URL.
struct Echo {
    address: String,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Echo {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let log = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut head = String::new();
                while reader.read_line(&mut head).unwrap() > 2 {}
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
                let mut body = vec![0; length.unwrap_or(0)];
                reader.read_exact(&mut body).unwrap();
                let request = head + &String::from_utf8(body).unwrap();
                let to = request.split(' ').nth(1).and_then(|path| path.strip_prefix("/to?"));
                let answer = match to {
                    Some(to) => format!("HTTP/1.1 307 Go\r\nlocation: {to}\r\n"),
                    None => "HTTP/1.1 200 OK\r\n".to_owned(),
                };
                // In a header as well, as it is.
                let token = request.lines().find_map(|line| line.strip_prefix("x-token: ")).unwrap_or("none");
                let rest = format!("x-echo: {token}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", request.len());
                log.lock().unwrap().push(request.clone());
                stream.write_all((answer + &rest + &request).as_bytes()).unwrap();
            }
        });
        Self { address, seen }
    }

    /// The lines of a header in all requests, in order.
    fn header(&self, name: &str) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        let lines = seen.iter().flat_map(|request| request.lines());
        lines.filter_map(|line| line.strip_prefix(&format!("{name}: ")).map(str::to_owned)).collect()
    }

    fn requests(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

/// A project with the secret `KEY` for a server, in a file, and a tool `it`. More of the policy is below `sandbox`.
fn project(server: &Echo, secret: &str, more: &str, script: &str) -> Project {
    let address = &server.address;
    Project::new()
        .tool("it", "", &script.replace("SERVER", &format!("http://{address}")))
        .file("keys/token", &format!("{VALUE}\n"))
        .policy(&format!(
            "network: {{ allowed_domains: [\"{address}\"] }}\nsandbox:\n  secrets: {{ KEY: {{ file: keys/token, {secret} }} }}\n{more}"
        ))
}

/// The usual one.
fn bound(server: &Echo, script: &str) -> Project {
    project(server, &format!("hosts: [\"{}\"]", server.address), "", script)
}

/// That a run ended so, and that neither stream nor record nor anything else in the project holds the value.
#[track_caller]
fn ends(project: &Project, ran: &Ran, code: i32, part: &str) {
    assert!(ran.code == code && (ran.out.contains(part) || ran.err.contains(part)), "wanted {code} `{part}`: {ran}");
    let record = std::fs::read_to_string(project.path(".harness/audit/000001.jsonl")).unwrap_or_default();
    for text in [&ran.out, &ran.err, &record] {
        for form in [VALUE, BASIC, "t0p%2Fs3cret%2Bvalue", "t0p\\/s3cret+value"] {
            assert!(!text.contains(form), "{form} in {text}");
        }
    }
}

#[test]
fn a_header_of_a_request_to_its_host() {
    let server = Echo::new();
    let script =
        "def run(args):\n    return http.get('SERVER/a', headers={'x-token': 'token ' + secret('KEY')})['status']\n";
    let project = bound(&server, script);
    ends(&project, &project.run(&["call", "it"]), 0, "200\n");
    assert_eq!(server.header("x-token"), [format!("token {VALUE}")]);
    // From a variable of the host.
    let address = &server.address;
    let project = project.policy(&format!(
        "network: {{ allowed_domains: [\"{address}\"] }}\nsandbox: {{ secrets: {{ KEY: {{ env: HELD, hosts: [\"{address}\"] }} }} }}\n"
    ));
    let output = project.command(&["call", "it"]).env("HELD", "held for it").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(server.header("x-token")[1], "token held for it");
}

#[test]
fn credentials_of_basic_authorization_are_encoded_by_the_host() {
    let server = Echo::new();
    let script = "def run(args):\n    return http.get('SERVER/', headers={'Authorization': 'Basic me:' + secret('KEY')})['body']\n";
    let project = bound(&server, script);
    ends(&project, &project.run(&["call", "it"]), 0, "authorization: Basic bWU6[redacted:KEY]==");
    assert_eq!(server.header("authorization"), [format!("Basic {BASIC}")]);
}

/// The server says in its body and its headers what it got; a script, a hook, the log and the record see a note.
#[test]
fn what_comes_back_is_redacted() {
    let server = Echo::new();
    let script = "def run(args):\n    r = http.post('SERVER/', 'x', headers={'x-token': secret('KEY')})\n    log.info(r['body'])\n    cache.set('k', r['headers']['x-echo'])\n    if 'fail' in args:\n        fail(r['body'])\n    return [r['headers']['x-echo'], 's3cret' in r['body'], cache.get('k'), 'x-token: [redacted:KEY]' in r['body']]\n";
    let project = bound(&server, script).with_handle("see", "tool.post", "", "log.warn(str(payload))");
    let ran = project.run(&["call", "it", "--explain"]);
    ends(&project, &ran, 0, "[\"[redacted:KEY]\",false,\"[redacted:KEY]\",true]\n");
    assert!(ran.err.contains("x-token: [redacted:KEY]"), "{ran}");
    let ran = project.run(&["call", "it", "fail=yes", "--json"]);
    ends(&project, &ran, 1, "x-token: [redacted:KEY]");
    assert_eq!(server.header("x-token"), [VALUE, VALUE]);
}

/// A host that the policy allows, and that the secret is not for.
#[test]
fn another_host() {
    let (mine, other) = (Echo::new(), Echo::new());
    let script = format!(
        "def run(args):\n    headers = {{'x-token': secret('KEY')}} if 'with' in args else {{}}\n    return http.get('http://{}/', headers=headers)['status']\n",
        other.address
    );
    let project = bound(&mine, &script);
    project.write(
        ".harness/harness.md",
        &format!(
            "---\nnetwork: {{ allowed_domains: [\"{0}\", \"{1}\"] }}\nsandbox: {{ secrets: {{ KEY: {{ file: keys/token, hosts: [\"{0}\"] }} }} }}\n---\n",
            mine.address, other.address
        ),
    );
    let ran = project.run(&["call", "it", "with=it"]);
    ends(&project, &ran, 3, &format!("the secret `KEY` is not for the host `{}`", other.address));
    let hint = format!(
        "add `{{ host: \"{}\", methods: [GET], scheme: http }}` to `sandbox.secrets.KEY.hosts` in `.harness/harness.md:3:55`",
        other.address
    );
    ran.says(3, &hint);
    assert_eq!(other.requests(), 0);
    // Without it, that host is asked.
    ends(&project, &project.run(&["call", "it"]), 0, "200\n");
    assert_eq!(other.requests(), 1);
}

#[test]
fn a_redirect_to_another_host_leaves_it_behind() {
    let (mine, other) = (Echo::new(), Echo::new());
    // `accept` is for anyone, and is dropped where a secret is in it.
    let script = "def run(args):\n    r = http.get('SERVER/to?' + args['to'], headers={'x-token': secret('KEY'), 'accept': secret('KEY'), 'range': 'bytes=0-'})\n    return r['body']\n";
    let project = bound(&mine, script);
    let both = format!(
        "---\nnetwork: {{ allowed_domains: [\"{0}\", \"{1}\"] }}\nsandbox: {{ secrets: {{ KEY: {{ file: keys/token, hosts: [\"{0}\"] }} }} }}\n---\n",
        mine.address, other.address
    );
    project.write(".harness/harness.md", &both);
    let there = format!("to=http://{}/there", other.address);
    ends(&project, &project.run(&["call", "it", &there]), 0, "range: bytes=0-");
    assert_eq!((mine.header("x-token"), other.header("x-token")), (vec![VALUE.to_owned()], vec![]));
    assert_eq!((other.requests(), other.header("accept")), (1, vec!["*/*".to_owned()]));
    // Nor where the secret is for the other one too; on the same one it stays.
    let hosts = format!("hosts: [\"{}\", \"{}\"]", mine.address, other.address);
    project.write(".harness/harness.md", &both.replace(&format!("hosts: [\"{}\"]", mine.address), &hosts));
    ends(&project, &project.run(&["call", "it", &there]), 0, "range: bytes=0-");
    assert_eq!(other.header("x-token"), [""; 0]);
    let here = format!("to=http://{}/here", mine.address);
    ends(&project, &project.run(&["call", "it", &here]), 0, "x-token: [redacted:KEY]");
    assert_eq!(mine.header("x-token"), [VALUE; 4]);
}

/// A server that knows it puts it into the address of a redirect.
#[test]
fn a_redirect_whose_address_holds_it() {
    let (mine, other) = (Echo::new(), Echo::new());
    let to = format!("http://{}/?t=", other.address);
    let script = format!(
        "def run(args):\n    return http.get('SERVER/to?{to}' + args['t'], headers={{'x-token': 'x'}})['status']\n"
    );
    let project = bound(&mine, &script);
    project.write(
        ".harness/harness.md",
        &format!(
            "---\nnetwork: {{ allowed_domains: [\"{0}\", \"{1}\"] }}\nsandbox: {{ secrets: {{ KEY: {{ file: keys/token, hosts: [\"{0}\"] }} }} }}\n---\n",
            mine.address, other.address
        ),
    );
    ends(&project, &project.run(&["call", "it", "t=nothing"]), 0, "200\n");
    assert_eq!(other.requests(), 1);
    // As the caller gives it, it does not even come to the tool.
    ends(&project, &project.run(&["call", "it", &format!("t={VALUE}")]), 0, "200\n");
    assert!(other.seen.lock().unwrap()[1].starts_with("GET /?t=[redacted:KEY] "));
}

#[test]
fn everywhere_else_a_handle_is_refused() {
    let server = Echo::new();
    for (call, place) in [
        ("http.get('SERVER/?t=' + secret('KEY'))", "a URL"),
        ("http.post('SERVER/', secret('KEY'))", "the body of a request"),
        ("http.post('SERVER/', {'t': secret('KEY')})", "the body of a request"),
        ("http.get('SERVER/', headers={secret('KEY'): 'x'})", "the name of a header"),
        ("exec.run('echo', [secret('KEY')])", "an argument of a command"),
        ("exec.run('cat', stdin=secret('KEY'))", "the standard input of a command"),
    ] {
        let hosts = format!("hosts: [\"{}\"], exec: [echo, cat]", server.address);
        let script = format!("def run(args):\n    return str({call})\n");
        let project = project(&server, &hosts, "  exec: { allow: [echo, cat] }\n", &script);
        let ran = project.run(&["call", "it"]);
        ends(&project, &ran, 3, &format!("the secret `KEY` cannot go into {place}"));
        // With another text in its place it works.
        let project = project.tool(
            "it",
            "",
            &script.replace("SERVER", &format!("http://{}", server.address)).replace("secret('KEY')", "'x-y'"),
        );
        assert_eq!(project.run(&["call", "it"]).code, 0, "{call}");
    }
    assert_eq!(server.requests(), 4);
}

/// A handle by itself is a text without meaning, wherever else it goes.
#[test]
fn a_handle_tells_nothing() {
    let server = Echo::new();
    let script = "def run(args):\n    h = secret('KEY')\n    log.info(h)\n    fs.write('h', h)\n    return [h == secret('KEY'), len(h), h.startswith('<secret:KEY:')]\n";
    let project = bound(&server, script);
    ends(&project, &project.run(&["call", "it"]), 0, "[true,45,true]\n");
    // What an earlier call wrote down stands for nothing in this one.
    let again = project.tool(
        "it",
        "",
        &format!(
            "def run(args):\n    return http.get('http://{}/', headers={{'x-token': fs.read('h')}})\n",
            server.address
        ),
    );
    ends(&again, &again.run(&["call", "it"]), 3, "a handle is valid only in the call that created it");
    assert_eq!(server.requests(), 0);
}

#[test]
fn who_has_no_grant_has_no_secret() {
    let server = Echo::new();
    let address = server.address.clone();
    let plugin = "---\nscript: |\n  def run(args):\n      key = args.get('key') or secret('KEY')\n      return http.get('http://SERVER/', headers={'x-token': key})['status']\n---\nx\n";
    let policy = |more: &str| {
        format!(
            "network: {{ allowed_domains: [\"{address}\"] }}\nmeta: {{ enabled: true }}\nsandbox:\n  secrets: {{ KEY: {{ file: keys/token, hosts: [\"{address}\"] }} }}\n  sources: {{ plugins/acme: {{ network: [\"{address}\"], services: [meta]{more} }} }}\n"
        )
    };
    let project = bound(
        &server,
        "def run(args):\n    return meta.call_tool('theirs', {'key': secret('KEY')} if 'give' in args else {})\n",
    )
    .file(".harness/plugins/acme/tools/theirs.md", &plugin.replace("SERVER", &address))
    .policy(&policy(""));
    let ran = project.run(&["call", "theirs"]);
    ends(&project, &ran, 3, "the secret `KEY` is not granted");
    ran.says(3, "add `KEY` to `sandbox.sources.plugins/acme.secrets` in `.harness/harness.md`");
    // Called by a tool that has it, and given that one's handle.
    ends(&project, &project.run(&["call", "it"]), 0, "the secret `KEY` is not granted");
    ends(&project, &project.run(&["call", "it", "give=yes"]), 0, "only in the call that created it");
    assert_eq!(server.requests(), 0);
    let project = project.policy(&policy(", secrets: [KEY]"));
    ends(&project, &project.run(&["call", "theirs"]), 0, "200\n");
    ends(&project, &project.run(&["call", "it"]), 0, "200\n");
    // Its own handle is still its own.
    ends(&project, &project.run(&["call", "it", "give=yes"]), 0, "only in the call that created it");
    // A caller without it gets no more through one that has it.
    let project = project.tool(
        "narrow",
        &format!("capabilities: {{ network: [\"{address}\"], secrets: [] }}\n"),
        "def run(args):\n    return meta.call_tool('theirs', {})\n",
    );
    ends(&project, &project.run(&["call", "narrow"]), 0, "the secret `KEY` is not granted");
    assert_eq!(server.header("x-token"), [VALUE, VALUE]);
}

#[test]
fn a_name_that_is_not_there() {
    let server = Echo::new();
    let project = bound(&server, "def run(args):\n    return secret('KEYS')\n");
    let ran = project.run(&["call", "it"]);
    ends(&project, &ran, 3, "there is no secret `KEYS`");
    ran.says(3, "name it in `.harness/harness.md`: `KEYS: { env: VARIABLE, hosts: [HOST] }` in `sandbox.secrets`");
}

/// A hook may use one as a tool may; its `when` may not.
#[test]
fn hooks() {
    let server = Echo::new();
    let project = bound(&server, "def run(args):\n    return 1\n");
    let ask = format!("http.get('http://{}/', headers={{'x-token': secret('KEY')}})", server.address);
    let project = project.with_handle("ask", "tool.pre", "", &ask);
    ends(&project, &project.run(&["call", "it"]), 0, "1\n");
    assert_eq!(server.header("x-token"), [VALUE]);
    let project = project.with_handle("ask", "tool.pre", "capabilities: { secrets: [] }\n", &ask);
    ends(&project, &project.run(&["call", "it"]), 3, "the secret `KEY` is not granted");
    assert_eq!(server.requests(), 1);
}

/// A variable of a command, where both the variable and the command are granted, and the secret is for the command.
#[test]
fn a_variable_of_a_command() {
    let server = Echo::new();
    let script = "def run(args):\n    return exec.run('sh', ['-c', 'printf %s \"$TOKEN\" | wc -c; echo \"$TOKEN\"'], env={'TOKEN': secret('KEY')})['stdout']\n";
    let with = |secret: &str, exec: &str| project(&server, secret, &format!("  exec: {exec}\n"), script);
    let project = with("exec: [sh]", "{ allow: [sh], env: [TOKEN] }");
    ends(&project, &project.run(&["call", "it"]), 0, &format!("{}\n[redacted:KEY]\n", VALUE.len()));
    for (secret, exec, why) in [
        ("exec: [git]", "{ allow: [sh], env: [TOKEN] }", "the secret `KEY` is not for the command `sh`"),
        ("hosts: [a.test]", "{ allow: [sh], env: [TOKEN] }", "the secret `KEY` is not for the command `sh`"),
        ("exec: [sh]", "{ allow: [sh] }", "the variable `TOKEN` is not granted to commands"),
        ("exec: [sh]", "{ env: [TOKEN] }", "is not allowed"),
    ] {
        let project = with(secret, exec);
        ends(&project, &project.run(&["call", "it"]), 3, why);
    }
}

/// What a child prints is cut at a megabyte: no part of a value is left before the cut.
#[test]
fn a_value_that_is_cut() {
    let server = Echo::new();
    let script = "def run(args):\n    out = exec.run('sh', ['-c', 'head -c ' + args['before'] + ' /dev/zero | tr \"\\\\0\" x; echo \"$TOKEN\"; head -c 100 /dev/zero'], env={'TOKEN': secret('KEY')})\n    return [out['truncated'], out['stdout'][-14:]]\n";
    let project = project(&server, "exec: [sh]", "  exec: { allow: [sh], env: [TOKEN] }\n", script);
    for (before, wanted) in [
        ((1 << 20) - 10, "[true,\"xxxx[redacted:\"]"),
        ((1 << 20) - 1, "[true,\"xxxxxxxxxxxxx[\"]"),
        (1 << 20, "[true,\"xxxxxxxxxxxxxx\"]"),
    ] {
        let ran = project.run(&["call", "it", &format!("before={before}")]);
        ends(&project, &ran, 0, wanted);
        assert!(!ran.out.contains("t0p"), "{ran}");
    }
}

/// The variable and the file that hold it are closed, whatever else the policy opens.
#[test]
fn what_holds_it_is_closed() {
    let server = Echo::new();
    let script = "def run(args):\n    if args['what'] == 'env':\n        return env(args['name'])\n    if args['what'] == 'fs':\n        return fs.read(args['name'])\n    return exec.run('sh', ['-c', 'echo \"<$' + args['name'] + '>\"'])['stdout']\n";
    let project = project(
        &server,
        "exec: [git]",
        "  env: [HELD, HARNESS_TEST_VARIABLE]\n  exec: { allow: [sh], env: [HELD, HARNESS_TEST_VARIABLE] }\n",
        script,
    )
    .file("keys/other", "fine");
    std::os::unix::fs::symlink("token", project.path("keys/link")).unwrap();
    std::fs::hard_link(project.path("keys/token"), project.path("hard")).unwrap();
    let run = |what: &str, name: &str| {
        let ran = project.run(&["call", "it", &format!("what={what}"), &format!("name={name}")]);
        ends(&project, &ran, ran.code, "");
        (ran.code, ran)
    };
    let policy = std::fs::read_to_string(project.path(".harness/harness.md")).unwrap();
    assert_eq!(run("fs", "keys/other").1.out, "fine\n");
    run("fs", "keys/token").1.says(3, "`keys/token` is in `sandbox.fs.protect`");
    assert_eq!(run("fs", "keys/link").0, 3);
    run("fs", "hard")
        .1
        .says(3, "reading `hard` is not allowed: the file has another name, which is protected (hard links)");
    // What is the same and no link is read, and not seen.
    std::fs::copy(project.path("keys/token"), project.path("copied")).unwrap();
    assert_eq!(run("fs", "copied").1.out, "[redacted:KEY]\n");
    project.write(".harness/harness.md", &policy.replace("file: keys/token", "env: HELD"));
    let held = |what: &str, name: &str| {
        let mut command = project.command(&["call", "it", &format!("what={what}"), &format!("name={name}")]);
        let output = command.env("HELD", VALUE).output().unwrap();
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    assert!(held("env", "HELD").contains("the variable `HELD` holds the secret `KEY`, which no script sees"));
    assert_eq!(held("env", "HARNESS_TEST_VARIABLE"), "a value\n");
    assert_eq!(held("exec", "HELD"), "<>\n");
    assert_eq!(held("exec", "HARNESS_TEST_VARIABLE"), "<a value>\n");
}

/// A script that has it from elsewhere does not get it out, and does not write a note over it.
#[test]
fn what_a_script_knows_otherwise_stays_in() {
    let server = Echo::new();
    // In two halves, which nobody can keep a script from knowing.
    let known = "def run(args):\n    v = 't0p/s3c' + 'ret+value'\n    return str(CALL)\n";
    for call in [
        "http.post('SERVER/', v)",
        "http.get('SERVER/?' + url.encode({'t': v}))",
        "http.get('SERVER/', headers={'a': base64.encode('me:' + v)})",
        "fs.write('out', v)",
        "fs.append('out', 'a' + v)",
        "exec.run('echo', [v])",
    ] {
        let hosts = format!("hosts: [\"{}\"]", server.address);
        let project = project(&server, &hosts, "  exec: { allow: [echo] }\n", &known.replace("CALL", call));
        let ran = project.run(&["call", "it"]);
        ends(&project, &ran, 3, "what would go out holds the value of the secret `KEY`");
        assert!(!project.path("out").exists());
        let other =
            known.replace("CALL", call).replace("t0p", "top").replace("SERVER", &format!("http://{}", server.address));
        assert_eq!(project.tool("it", "", &other).run(&["call", "it"]).code, 0, "{call}");
    }
    for (call, code, out) in [
        ("v", 0, "[redacted:KEY]\n"),
        ("{v: [v]}", 0, "[redacted:KEY]\\\": [\\\"[redacted:KEY]"),
        ("fail(v)", 1, "failed: [redacted:KEY]"),
        ("fs.read(v)", 1, "[redacted:KEY]"),
        ("metrics.incr(v)", 0, "1"),
        ("[metrics.incr(v), metrics.snapshot()]", 0, "[redacted:KEY]"),
        ("events.emit('custom.x', {'a': v})", 0, "[redacted:KEY]"),
    ] {
        let project = bound(&server, &known.replace("CALL", call));
        ends(&project, &project.run(&["call", "it", "--json"]), code, out.trim_end());
    }
    // What is in a file is seen as a note, and not lost by writing that back.
    let edit = "def run(args):\n    text = fs.read('config')\n    fs.write(args['to'], text + 'x')\n    return text\n";
    let project = bound(&server, edit).file("config", &format!("token = {VALUE}\n"));
    ends(&project, &project.run(&["call", "it", "to=copy"]), 0, "token = [redacted:KEY]\n");
    ends(&project, &project.run(&["call", "it", "to=config"]), 3, "the file holds the secret `KEY`");
    assert_eq!(std::fs::read_to_string(project.path("config")).unwrap(), format!("token = {VALUE}\n"));
    assert_eq!(std::fs::read_to_string(project.path("copy")).unwrap(), "token = [redacted:KEY]\nx");
}

/// Arguments are what a script gets from outside, and what hooks and the record get.
#[test]
fn arguments_and_payloads() {
    let server = Echo::new();
    let project = bound(&server, "def run(args):\n    return args\n").with_handle(
        "see",
        "tool.pre",
        "",
        "log.warn(str(payload))",
    );
    let ran = project.run(&["call", "it", &format!("a={VALUE}"), "--explain"]);
    ends(&project, &ran, 0, "{\"a\":\"[redacted:KEY]\"}\n");
    let ran = project.run(&["call", VALUE]);
    ends(&project, &ran, 2, "[redacted:KEY]");
    let ran = project.run(&[
        "fire",
        "tool.pre",
        "--payload",
        &format!("{{\"name\": \"{VALUE}\", \"args\": {{}}}}"),
        "--explain",
    ]);
    ends(&project, &ran, 0, "[redacted:KEY]");
}

/// Nobody is kept from working without it but who uses it; and the operator is told.
#[test]
fn one_without_a_value() {
    let server = Echo::new();
    let script = "def run(args):\n    return http.get('SERVER/', headers={'x-token': secret('KEY')} if 'with' in args else {})['status']\n";
    let project = bound(&server, script);
    std::fs::remove_file(project.path("keys/token")).unwrap();
    ends(&project, &project.run(&["call", "it"]), 0, "200\n");
    let why = "the secret `KEY` has no value: the file `keys/token` cannot be read: No such file or directory";
    ends(&project, &project.run(&["call", "it", "with=it"]), 3, why);
    assert_eq!(server.requests(), 1);
    project.run(&["validate"]).says(0, why);
    project.run(&["validate", "--strict"]).says(2, why);
    let doctor = project.run(&["doctor"]);
    assert!(
        doctor.out.contains("note  secrets       KEY has no value: the file `keys/token` cannot be read"),
        "{doctor}"
    );
    project.write("keys/token", "short\n");
    ends(&project, &project.run(&["call", "it", "with=it"]), 3, "it has 5 bytes, and a secret has at least 8");
    project.write("keys/token", VALUE);
    project.run(&["validate", "--strict"]).says(0, "");
    let doctor = project.run(&["doctor"]);
    assert!(doctor.out.contains("ok    secrets       1 with a value"), "{doctor}");
}

/// Cases run without the value, and decide as calls do.
#[test]
fn cases_need_no_value() {
    let server = Echo::new();
    let url = format!("http://{}/", server.address);
    let front = format!(
        "tests:\n  - name: asks\n    given: {{ http: [{{ method: GET, url: \"{url}\", status: 204 }}] }}\n    expect: {{ result: 204 }}\n"
    );
    let script =
        format!("def run(args):\n    return http.get('{url}', headers={{'x-token': secret('KEY')}})['status']\n");
    let project = bound(&server, "def run(args):\n    return 1\n").tool("asks", &front, &script);
    std::fs::remove_file(project.path("keys/token")).unwrap();
    let ran = project.run(&["test", "asks"]);
    assert_eq!(ran.code, 0, "{ran}");
    // For another host it is refused there too.
    let policy = std::fs::read_to_string(project.path(".harness/harness.md")).unwrap();
    let hosts = format!("hosts: [\"{}\"]", server.address);
    project.write(".harness/harness.md", &policy.replace(&hosts, "hosts: [a.test]"));
    assert_eq!(project.run(&["test", "asks"]).code, 1);
    assert_eq!(server.requests(), 0);
}

/// What a person types, or a file that an agent learns of, may hold it: a model's service does not get it.
#[test]
fn a_model_is_not_sent_it() {
    let replies = |expected: &str| format!("- expect: 'with {expected} now'\n  text: Done.\n");
    let policy =
        |secrets: &str| format!("model: {{ provider: script, script: replies.yaml }}\nsandbox: {{ {secrets} }}\n");
    let project = Project::new()
        .file("keys/token", VALUE)
        .file("replies.yaml", &replies("[redacted:KEY]"))
        .policy(&policy("secrets: { KEY: { file: keys/token, hosts: [a.test] } }"));
    let ask = format!("Do it with {VALUE} now");
    ends(&project, &project.run(&["run", &ask]), 0, "Done.\n");
    // Without a secret, it is sent as it is typed.
    let project = project.policy(&policy("audit: false")).file("replies.yaml", &replies(VALUE));
    project.run(&["run", &ask]).gives("Done.");
}
