//! Who may connect: tokens, names, addresses, and sockets in the file system.

use std::io::{BufReader, Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::process::Signal;
use serde_json::json;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::project::{FINE, Project};
use crate::web::{Reply, TOKEN, Web, exchange, modern, request};

#[test]
fn a_token_is_needed_where_the_server_has_one() {
    let project = Project::with_script(FINE);
    let web = Web::start(&project, &["--http", "127.0.0.1:0", "--token-env", "HARNESS_TOKEN"]);
    let longer = format!("Bearer {TOKEN}x");
    let shorter = format!("Bearer {}", &TOKEN[..TOKEN.len() - 1]);
    let basic = format!("Basic {TOKEN}");
    for shown in ["", "Bearer", "Bearer ", TOKEN, &longer, &shorter, &basic] {
        let reply = web.modern("tools/list", json!({}), &[("Authorization", shown)]);
        assert_eq!(reply.refusal(), (401, -32600), "{shown}");
        assert!(reply.head.contains("www-authenticate: bearer"), "{reply:?}");
        assert!(!reply.body.contains(TOKEN), "{reply:?}");
    }
    let good = format!("Bearer {TOKEN}");
    assert!(web.lists(&[("Authorization", &good)]));
    assert!(web.lists(&[("Authorization", &format!("bearer {TOKEN}"))]));
    assert_eq!(web.modern("tools/list", json!({}), &[("Authorization", &good), ("Authorization", &good)]).status, 400);
    // Who has none learns nothing of paths and methods either.
    assert_eq!(web.send("GET /nothing", &[], "").status, 401);
    assert_eq!(web.send("GET /nothing", &[("Authorization", &good)], "").status, 404);
}

#[test]
fn a_server_is_open_only_if_that_is_said() {
    let project = Project::with_script(FINE);
    let serve = |arguments: &[&str]| project.run(&[&["mcp", "serve"], arguments].concat());
    serve(&["--http", "127.0.0.1:0"]).says(2, "clients over HTTP need a token");
    serve(&["--http", "127.0.0.1:0", "--token-env", "NOT_SET"]).says(2, "`NOT_SET` is not set");
    serve(&["--http", "127.0.0.1:0", "--token-env", "HARNESS_TOKEN", "--no-token"]).says(2, "cannot be used with");
    serve(&["--unix", "s", "--token-env", "X"]).says(2, "cannot be used with");
    serve(&["--no-token"]).says(2, "--http");
    let mut command = project.command(&["mcp", "serve", "--http", "127.0.0.1:0", "--token-env", "HARNESS_TOKEN"]);
    let ran = project.ran(&command.env("HARNESS_TOKEN", "too-short").output().unwrap());
    ran.says(2, "is too short");
    assert!(!ran.err.contains("too-short"), "{ran}");
}

#[test]
fn only_names_of_the_server_are_answered() {
    let project = Project::with_script(FINE);
    let web = Web::start(&project, &["--http", "127.0.0.1:0", "--no-token", "--host", "box.example"]);
    let port = web.address().rsplit_once(':').unwrap().1;
    let (local, other) = (format!("localhost:{port}"), format!("evil.example:{port}"));
    for host in [web.address(), &local, "box.example", "box.example:1"] {
        assert!(web.lists(&[("Host", host)]), "{host}");
    }
    for host in ["evil.example", &other, "localhost:1", "127.0.0.1", "x@localhost"] {
        assert_eq!(web.modern("tools/list", json!({}), &[("Host", host)]).status, 403, "{host}");
    }
    for host in ["", "a b"] {
        assert_eq!(exchange(&mut web.connect(), &request("POST /mcp", &[("Host", host)], "{}")).status, 400, "{host}");
    }
    // The target of a request may name another server than `Host`.
    assert_eq!(web.send(&format!("POST http://{other}/mcp"), &[], "{}").status, 403);
    assert_eq!(web.send(&format!("POST http://{local}/mcp"), &[], "{}").status, 400);
}

#[test]
fn pages_of_others_are_not_answered() {
    let project = Project::with_script(FINE);
    let web = Web::open(&project);
    let own = format!("http://{}", web.address());
    assert!(web.lists(&[("Origin", &own)]));
    for origin in ["http://evil.example", "null", "https://127.0.0.1", "file://", "http://127.0.0.1:1", "x"] {
        let reply = web.modern("tools/list", json!({}), &[("Origin", origin)]);
        assert_eq!(reply.refusal(), (403, -32600), "{origin}");
    }
}

#[test]
fn a_socket_in_the_file_system_is_for_its_user_and_removed_at_the_end() {
    let project = Project::with_script(FINE);
    let path = project.path("socket");
    let web = Web::start(&project, &["--unix", "socket"]);
    assert!(web.place.ends_with("/socket"), "{}", web.place);
    let facts = std::fs::metadata(&path).unwrap();
    assert!(facts.file_type().is_socket());
    assert_eq!(facts.permissions().mode() & 0o777, 0o600);
    let (body, headers) = modern("tools/call", json!({"name": "it"}));
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let ask = |more: &[(&str, &str)]| {
        let message = request("POST /mcp", &[headers.as_slice(), more].concat(), &body.to_string());
        exchange(&mut UnixStream::connect(&path).unwrap(), &message)
    };
    assert_eq!(ask(&[]).json()["result"]["isError"], false);
    assert_eq!(ask(&[("Origin", "http://localhost")]).status, 403);
    project.run(&["mcp", "serve", "--unix", "socket"]).says(2, "another process uses this socket");
    assert_eq!(ask(&[]).status, 200);
    web.signal(Signal::TERM);
    assert_eq!(web.end(), (143, String::new()));
    assert!(!path.exists());

    let project = project.file("file", "mine");
    project.run(&["mcp", "serve", "--unix", "file"]).says(2, "that is no socket");
    assert_eq!(std::fs::read_to_string(project.path("file")).unwrap(), "mine");
}

#[test]
fn a_socket_that_a_killed_server_left_is_replaced() {
    let project = Project::with_script(FINE);
    let web = Web::start(&project, &["--unix", "socket"]);
    web.signal(Signal::KILL);
    drop(web);
    assert!(project.path("socket").exists());
    let web = Web::start(&project, &["--unix", "socket"]);
    assert!(web.place.ends_with("/socket"), "{}", web.place);
}

fn identity(file: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/tls")).join(file)
}

fn over_tls(web: &Web) -> Reply {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(identity("certificate.pem")).unwrap()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = "127.0.0.1".try_into().unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let (body, headers) = modern("tools/list", json!({}));
    let (token, port) = (format!("Bearer {TOKEN}"), web.address().rsplit_once(':').unwrap().1);
    let host = format!("127.0.0.1:{port}");
    let mut all: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    all.extend([("Authorization", token.as_str()), ("Host", &host)]);
    exchange(&mut StreamOwned::new(connection, web.connect()), &request("POST /mcp", &all, &body.to_string()))
}

#[test]
fn an_address_that_others_reach_needs_tls() {
    let project = Project::with_script(FINE);
    let (certificate, key) = (identity("certificate.pem"), identity("key.pem"));
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let ran = project.run(&["mcp", "serve", "--http", address, "--no-token"]);
        ran.says(2, "it is not a loopback address");
        assert!(ran.err.contains("--tls-cert"), "{ran}");
    }
    let tls = ["--token-env", "HARNESS_TOKEN", "--tls-cert", certificate, "--tls-key", key];
    let web = Web::start(&project, &[&["--http", "0.0.0.0:0", "--host", "127.0.0.1"], tls.as_slice()].concat());
    assert!(web.place.starts_with("https://0.0.0.0:"), "{}", web.place);
    assert!(over_tls(&web).json()["result"]["tools"].is_array());
    // Without TLS nothing is answered.
    let mut plain = web.connect();
    plain.write_all(&request("POST /mcp", &[], "{}")).unwrap();
    let mut text = Vec::new();
    let _ = BufReader::new(plain).read_to_end(&mut text);
    assert!(!text.starts_with(b"HTTP"), "{text:?}");
    // The name of all addresses is the name of none.
    let web = Web::start(&project, &[&["--http", "0.0.0.0:0"], tls.as_slice()].concat());
    assert_eq!(over_tls(&web).status, 403);
    let web = Web::start(&project, &[&["--http", "127.0.0.1:0"], tls.as_slice()].concat());
    assert_eq!(over_tls(&web).status, 200);

    let wrong = ["mcp", "serve", "--http", "127.0.0.1:0", "--no-token", "--tls-cert", key, "--tls-key", certificate];
    project.run(&wrong).says(2, "certificate");
    project.run(&["mcp", "serve", "--http", "127.0.0.1:0", "--tls-cert", key]).says(2, "--tls-key");
}
