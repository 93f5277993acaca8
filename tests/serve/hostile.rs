//! Uploads and requests that are made to do harm. Each has its control: the same by who means well.

use std::io::{Read as _, Write as _};

use harness_testing::skip::{Need, skipped};
use harness_wall::Offers;
use serde_json::{Value as Json, json};
use tar::{Builder, EntryType, Header};

use crate::project::{FINE, Project};
use crate::site::{Site, archive, problem};

/// An archive of one tool and one more entry.
fn with_entry(path: &str, kind: EntryType, link: &str, text: &[u8]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    let mut add = |path: &str, kind: EntryType, link: &str, text: &[u8]| {
        let mut header = Header::new_ustar();
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o777);
        header.set_size(text.len() as u64);
        header.set_cksum();
        builder.append(&header, text).unwrap();
    };
    add(
        ".harness/tools/it.md",
        EntryType::Regular,
        "",
        b"---\nscript: |\n  def run(args):\n      return 'fine'\n---\n# it\n\nA tool.\n",
    );
    add(path, kind, link, text);
    builder.into_inner().unwrap()
}

#[test]
fn an_archive_holds_files_of_its_own_folder_and_nothing_else() {
    let site = Site::open();
    let acme = site.tenant("acme", &Project::with_script(FINE));
    let outside = site.data().join("tenants/out");
    let file = EntryType::Regular;
    for (path, kind, link) in [
        ("../../out", file, ""),
        ("/tmp/harness-out", file, ""),
        ("a/../../../out", file, ""),
        ("link", EntryType::Symlink, "/etc/passwd"),
        ("link", EntryType::Symlink, "../../../admin.key"),
        ("hard", EntryType::Link, "/etc/passwd"),
        ("device", EntryType::Char, ""),
        ("device", EntryType::Block, ""),
        ("pipe", EntryType::Fifo, ""),
        ("long", EntryType::GNULongName, ""),
        ("long", EntryType::GNULongLink, ""),
        ("sparse", EntryType::GNUSparse, ""),
        ("pax", EntryType::XHeader, ""),
        ("pax", EntryType::XGlobalHeader, ""),
        (".harness/audit/head", file, ""),
        (".harness/sessions/20260101-000000-000000.jsonl", file, ""),
        ("a\\b", file, ""),
        ("A\u{202e}b", file, ""),
        (".harness/tools/IT.md", file, ""),
        (".harness/tools/it.md", file, ""),
    ] {
        let reply = site.upload(&acme.key, &with_entry(path, kind, link, b"x"));
        assert_eq!(problem(&reply).0, 422, "{path:?} {kind:?}: {reply:?}");
    }
    assert!(!outside.exists() && !std::path::Path::new("/tmp/harness-out").exists());
    for garbage in [&b""[..], b"x", &[0; 1024], &[0xff; 2048]] {
        assert_eq!(problem(&site.upload(&acme.key, garbage)).0, 422);
    }
    // Cut short: what comes after is not there.
    let whole = archive(&Project::with_script(FINE));
    assert!(site.upload(&acme.key, &whole[..700]).status >= 400);
    let reply = site.upload(&acme.key, &with_entry("docs/a.md", file, "", b"x"));
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(site.result(&acme.key, "it", json!({})), "fine");
}

#[test]
fn a_project_names_nothing_of_the_server() {
    let site = Site::open();
    let acme = site.tenant("acme", &Project::with_script(FINE));
    for (policy, why) in [
        ("sandbox: { secrets: { K: { file: /etc/passwd, hosts: [a.example] } } }\n", "is in the file"),
        ("sandbox: { secrets: { K: { file: ~/x, hosts: [a.example] } } }\n", "is in the file"),
        ("artifact_sources: [{ type: local, path: ../../other/project/.harness }]\n", "outside of the project"),
        ("sandbox: { exec: { allow: [cat], unconfined: true } }\n", "takes the wall of commands away"),
        ("sandbox: { exec: { allow: [cat], folders: [/opt] } }\n", "names folders of the machine"),
        ("network: { allowed_domains: ['127.0.0.1:8080'] }\n", "which is not public"),
        ("network: { allowed_domains: ['169.254.169.254'] }\n", "which is not public"),
        ("network: { allowed_domains: [{ host: db, private: true }] }\n", "which is not public"),
        ("mcp: { servers: { s: { command: [sh, -c, id] } } }\n", "is a command of the machine"),
        ("mcp: { servers: { s: { url: 'http://127.0.0.1:1/mcp' } } }\n", "is at an address that is not public"),
        ("model: { name: m, provider: ollama }\n", "which is not public"),
        ("model: { name: m, provider: openai, base_url: 'http://[::1]/v1' }\n", "which is not public"),
        ("model: { name: m, provider: openai, base_url: 'http://localhost/v1' }\n", "which is not public"),
        ("sandbox: { audit: false }\n", "out of the record"),
    ] {
        let reply = site.upload(&acme.key, &archive(&Project::with_script(FINE).policy(policy)));
        assert_eq!(problem(&reply), (422, "project".to_owned()), "{policy}");
        let errors = reply.json()["errors"].to_string();
        assert!(errors.contains(why) && errors.contains("names nothing of the server"), "{policy}: {errors}");
    }
    let fine = "network: { allowed_domains: [api.example.com] }\nsandbox: { secrets: { K: { env: TOKEN, hosts: [api.example.com] } } }\n";
    let reply = site.upload(&acme.key, &archive(&Project::with_script(FINE).policy(fine)));
    assert_eq!(reply.status, 200, "{reply:?}");
}

/// The class's host policy holds whatever the tenant's own policy grants.
#[test]
fn a_project_grants_itself_nothing_that_its_class_does_not() {
    let site = Site::open();
    let scripts = [
        ("net", "def run(args):\n    return http.get('https://api.example.com/')\n"),
        ("cmd", "def run(args):\n    return exec.run('id', [])\n"),
        ("var", "def run(args):\n    return env('PATH')\n"),
        ("own", "def run(args):\n    fs.write('a', 'x')\n    return fs.read('a')\n"),
    ];
    let policy = "network: { allowed_domains: ['*'] }\nsandbox: { exec: { allow: [id] }, env: [PATH, TOKEN] }\n";
    let project =
        scripts.iter().fold(Project::new().policy(policy), |project, (name, script)| project.tool(name, "", script));
    let acme = site.tenant("acme", &project);
    for (tool, want) in [("net", "denied"), ("cmd", "denied"), ("var", "denied"), ("own", "completed")] {
        let reply = site.call(&acme.key, tool, json!({})).json();
        assert_eq!(reply["outcome"], want, "{tool}: {reply}");
        if want == "denied" {
            assert!(reply["error"]["hint"].as_str().unwrap().contains("default-policy.yaml"), "{reply}");
        }
    }
}

/// What a class grants of commands, a tenant has behind the wall: its workspace and the machine's programs.
#[test]
fn commands_of_a_tenant_see_nothing_of_the_server() {
    if skipped(Need::Namespaces, Offers::get().namespaces.is_ok()) {
        return;
    }
    let class = "network: { allowed_domains: [] }\nsandbox: { exec: { allow: [cat, ls] }, env: [] }\n";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("class.yaml"), class).unwrap();
    std::fs::write(folder.path().join("serve.yaml"), "classes: { default: { policy: class.yaml } }\n").unwrap();
    let site = Site::start(std::sync::Arc::new(folder), &[]);
    let script = "def run(args):\n    return exec.run(args['program'], [args['path']])\n";
    let parameters = "parameters: { program: { type: string }, path: { type: string } }\n";
    let project = Project::new().policy("sandbox: { exec: { allow: [cat, ls, id] } }\n").tool("it", parameters, script);
    let (acme, other) = (site.tenant("acme", &project), site.tenant("other", &project));
    assert_eq!(site.ask(&acme.key, "PUT /v1/files/own.txt", &json!("mine")).status, 200);
    let run = |program: &str, path: &str| site.call(&acme.key, "it", json!({"program": program, "path": path})).json();
    let data = site.data();
    for path in ["admin.key", "sealing.key", "store.db", "tenants/other/project/.harness/harness.md", "../class.yaml"] {
        let ran = run("cat", data.join(path).to_str().unwrap());
        assert_eq!((&ran["outcome"], &ran["result"]["stdout"]), (&json!("completed"), &json!("")), "{path}: {ran}");
        assert_ne!(ran["result"]["exit_code"], 0, "{path}: {ran}");
    }
    assert_eq!(run("ls", data.join("tenants").to_str().unwrap())["result"]["stdout"].as_str().unwrap().trim(), "acme");
    // The control, and a command that the class does not grant.
    assert_eq!(run("cat", "own.txt")["result"]["stdout"], "\"mine\"");
    assert_eq!(run("id", "-u")["outcome"], "denied");
    assert_eq!(site.get(&other.key, "/v1/files").json(), json!({"files": []}));
}

#[test]
fn secrets_are_sealed_and_never_read_back() {
    let class = "network: { allowed_domains: [] }\nsandbox: { exec: { allow: [] }, env: [TOKEN] }\n";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("class.yaml"), class).unwrap();
    std::fs::write(folder.path().join("serve.yaml"), "classes: { default: { policy: class.yaml } }\n").unwrap();
    let site = Site::start(std::sync::Arc::new(folder), &[]);
    let project =
        Project::with_script("def run(args):\n    return env('TOKEN')\n").policy("sandbox: { env: [TOKEN] }\n");
    let (acme, other) = (site.tenant("acme", &project), site.tenant("other", &project));
    let marker = "a-marker-that-is-nowhere-else";
    assert_eq!(site.ask(&acme.key, "PUT /v1/secrets/TOKEN", &json!({"value": marker})).status, 200);
    assert_eq!(site.get(&acme.key, "/v1/secrets").json(), json!({"secrets": ["TOKEN"]}));
    assert_eq!(site.get(&acme.key, "/v1/secrets/TOKEN").status, 405);
    // What the operator of the class lets scripts have, they have: that of their own tenant.
    assert_eq!(site.result(&acme.key, "it", json!({})), marker);
    assert_eq!(site.result(&other.key, "it", json!({})), "");
    for file in ["store.db", "store.db-wal"] {
        let bytes = std::fs::read(site.data().join(file)).unwrap_or_default();
        assert!(!bytes.windows(marker.len()).any(|part| part == marker.as_bytes()), "{file}");
    }
    // With one of these a tenant would have the operator's logins and plugins.
    for name in ["a-b", "a%2Fb", "..", "1A", "HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "PATH", "LD_PRELOAD"] {
        let reply = site.ask(&acme.key, &format!("PUT /v1/secrets/{name}"), &json!({"value": "x"}));
        assert!(reply.status >= 400, "{name}: {reply:?}");
    }
    assert_eq!(site.ask(&acme.key, "DELETE /v1/secrets/TOKEN", &Json::Null).status, 200);
    assert_eq!(site.result(&acme.key, "it", json!({})), "");
}

/// What comes back for these bytes, until the connection is closed.
fn raw(site: &Site, bytes: &[u8]) -> String {
    let mut stream = site.connect();
    let _ = stream.write_all(bytes);
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn requests_that_two_programs_read_differently_are_refused() {
    let site = Site::open();
    let acme = site.tenant("acme", &Project::with_script(FINE));
    let head = |more: &str| {
        format!(
            "POST /v1/tools/it/calls HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {}\r\n{more}\r\n",
            site.address(),
            acme.key
        )
    };
    let calls = || site.get(&acme.key, "/v1/audit").body.lines().count();
    let before = calls();
    for (more, body) in [
        ("Content-Length: 2\r\nContent-Length: 3\r\n", "{}"),
        ("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"),
        ("Transfer-Encoding: xchunked\r\n", "{}"),
        ("Content-Length: +2\r\n", "{}"),
        ("Content-Length: 2 2\r\n", "{}"),
        ("Content-Length: 99999999999999999999\r\n", "{}"),
        (" Content-Length: 2\r\n", "{}"),
        ("Bad Header: x\r\nContent-Length: 2\r\n", "{}"),
        ("Authorization: Bearer other\r\nContent-Length: 2\r\n", "{}"),
    ] {
        let text = raw(&site, format!("{}{body}", head(more)).as_bytes());
        let status = text.split(' ').nth(1).unwrap_or("closed");
        assert!(["400", "401", "413", "501", "closed"].contains(&status), "{more:?}: {text}");
    }
    assert_eq!(calls(), before);
    let long = format!("X-Long: {}\r\n", "x".repeat(128 << 10));
    assert!(!raw(&site, format!("{}{{}}", head(&long)).as_bytes()).starts_with("HTTP/1.1 200"));
    let many: String = (0..2_000).map(|n| format!("X-{n}: x\r\n")).collect();
    assert!(!raw(&site, format!("{}{{}}", head(&many)).as_bytes()).starts_with("HTTP/1.1 200"));
    assert_eq!(calls(), before);
    let fine = raw(&site, format!("{}{{}}", head("Content-Length: 2\r\n")).as_bytes());
    assert!(fine.starts_with("HTTP/1.1 200"), "{fine}");
}

#[test]
fn a_body_is_bounded() {
    let site = Site::open();
    let acme = site.tenant("acme", &Project::with_script(FINE));
    let large = json!({"arguments": {"x": "x".repeat(5 << 20)}});
    assert_eq!(problem(&site.ask(&acme.key, "POST /v1/tools/it/calls", &large)), (413, "too_large".to_owned()));
    let most = json!({"arguments": {"x": "x".repeat(100_000)}});
    assert_eq!(site.ask(&acme.key, "POST /v1/tools/it/calls", &most).status, 200);
    let deep = format!("{{\"arguments\":{}{}}}", "{\"a\":".repeat(100_000), "}".repeat(100_000));
    let bearer = format!("Bearer {}", acme.key);
    let request = crate::web::request("POST /v1/tools/it/calls", &[("Authorization", &bearer)], &deep);
    assert_eq!(problem(&crate::web::exchange(&mut site.connect(), &request)).0, 400);
}
