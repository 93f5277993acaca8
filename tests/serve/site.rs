//! A server on the loopback interface, with a data folder of its own.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::described;
use crate::project::{HARNESS, Project};
use crate::web::{Reply, exchange, request};

/// A server that runs, and the folder that it keeps everything in.
pub(crate) struct Site {
    child: Child,
    out: BufReader<ChildStdout>,
    address: String,
    folder: std::sync::Arc<TempDir>,
}

/// A tenant of a site, with a key.
#[derive(Debug, Clone)]
pub(crate) struct Tenant {
    pub(crate) id: String,
    pub(crate) key: String,
}

impl Site {
    pub(crate) fn open() -> Self {
        Self::with_config("")
    }

    /// A server with this `serve.yaml`.
    pub(crate) fn with_config(config: &str) -> Self {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join("serve.yaml"), config).unwrap();
        Self::start(std::sync::Arc::new(folder), &[])
    }

    pub(crate) fn start(folder: std::sync::Arc<TempDir>, more: &[&str]) -> Self {
        Self::of(&mut Self::command(folder.path(), more), folder)
    }

    /// The server that this command starts.
    pub(crate) fn of(command: &mut Command, folder: std::sync::Arc<TempDir>) -> Self {
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut url = String::new();
        out.read_line(&mut url).unwrap();
        if url.is_empty() {
            let mut err = String::new();
            child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
            panic!("the server did not start: {err}");
        }
        let address = url.trim_end().split_once("://").unwrap().1.to_owned();
        Self { child, out, address, folder }
    }

    pub(crate) fn command(folder: &Path, more: &[&str]) -> Command {
        let mut command = Command::new(HARNESS);
        command.args(["serve", "--data", "data", "--config", "serve.yaml", "--listen", "127.0.0.1:0"]).args(more);
        command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder().join("data")
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Starts it again in the same folder, after it has ended.
    pub(crate) fn again(mut self) -> Self {
        let _ = self.child.wait();
        Self::start(self.folder.clone(), &[])
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The rest of the next line of standard error that begins so.
    pub(crate) fn said(&mut self, start: &str) -> String {
        let err = self.child.stderr.as_mut().unwrap();
        loop {
            // No more than the line: what comes after it is for others.
            let mut line = Vec::new();
            while line.last() != Some(&b'\n') {
                let mut byte = [0];
                assert!(err.read(&mut byte).unwrap() > 0, "the server has not said `{start}`");
                line.push(byte[0]);
            }
            let line = String::from_utf8(line).unwrap();
            if let Some(rest) = line.strip_prefix(start) {
                return rest.trim_end().to_owned();
            }
        }
    }

    /// The exit code and standard error, when it has ended.
    pub(crate) fn end(&mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        let mut err = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (self.child.wait().unwrap().code(), err)
    }

    /// The operator's key.
    pub(crate) fn operator(&self) -> String {
        std::fs::read_to_string(self.data().join("admin.key")).unwrap()
    }

    /// What the operator asks at the socket.
    pub(crate) fn admin(&self, line: &str, body: &Json) -> Reply {
        let key = format!("Bearer {}", self.operator());
        let mut stream = UnixStream::connect(self.data().join("admin.sock")).unwrap();
        let body = if body.is_null() { String::new() } else { body.to_string() };
        exchange(&mut stream, &request(line, &[("Authorization", &key)], &body))
    }

    /// `harness admin` with this server.
    pub(crate) fn harness(&self, arguments: &[&str], input: &str) -> (i32, String, String) {
        let mut command = Command::new(HARNESS);
        command.args(arguments).current_dir(self.folder()).env_remove("HARNESS_ADMIN_KEY");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let ran = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (ran.status.code().unwrap(), text(ran.stdout), text(ran.stderr))
    }

    /// A tenant of a class with this project, and a key of its owner.
    pub(crate) fn tenant_of(&self, id: &str, class: &str, project: &Project) -> Tenant {
        let made = self.admin("POST /admin/v1/tenants", &json!({"id": id, "class": class}));
        assert_eq!(made.status, 201, "{made:?}");
        let tenant = Tenant { id: id.to_owned(), key: self.key(id, "owner") };
        let reply = self.upload(&tenant.key, &archive(project));
        assert_eq!(reply.status, 200, "{reply:?}");
        tenant
    }

    pub(crate) fn tenant(&self, id: &str, project: &Project) -> Tenant {
        self.tenant_of(id, "default", project)
    }

    /// Another key of a tenant.
    pub(crate) fn key(&self, id: &str, role: &str) -> String {
        let body = json!({"role": role, "label": format!("{role} of the tests")});
        let made = self.admin(&format!("POST /admin/v1/tenants/{id}/keys"), &body);
        assert_eq!(made.status, 201, "{made:?}");
        made.json()["key"].as_str().unwrap().to_owned()
    }

    pub(crate) fn upload(&self, key: &str, archive: &[u8]) -> Reply {
        let mut bytes = format!(
            "PUT /v1/project HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Bearer {key}\r\nContent-Length: {}\r\n\r\n",
            self.address,
            archive.len()
        )
        .into_bytes();
        bytes.extend(archive);
        exchange(&mut self.connect(), &bytes)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).unwrap()
    }

    /// A request with a key.
    pub(crate) fn ask(&self, key: &str, line: &str, body: &Json) -> Reply {
        self.ask_with(key, line, &[], body)
    }

    /// The same with more headers.
    pub(crate) fn ask_with(&self, key: &str, line: &str, more: &[(&str, &str)], body: &Json) -> Reply {
        let bearer = format!("Bearer {key}");
        let mut headers = vec![("Authorization", bearer.as_str())];
        headers.extend(more);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let reply = exchange(&mut self.connect(), &request(line, &headers, &body));
        described::check(line, &reply);
        reply
    }

    pub(crate) fn get(&self, key: &str, path: &str) -> Reply {
        self.ask(key, &format!("GET {path}"), &Json::Null)
    }

    /// A call of a tool.
    pub(crate) fn call(&self, key: &str, tool: &str, arguments: Json) -> Reply {
        self.ask(key, &format!("POST /v1/tools/{tool}/calls"), &json!({"arguments": arguments}))
    }

    /// What a call gave.
    pub(crate) fn result(&self, key: &str, tool: &str, arguments: Json) -> Json {
        let reply = self.call(key, tool, arguments);
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(reply.json()["outcome"], "completed", "{reply:?}");
        reply.json()["result"].clone()
    }

    /// A connection that an answer without an end comes on. It is asked for as of HTTP/1.0: its body is not in chunks then.
    pub(crate) fn stream(&self, key: &str, line: &str, more: &str, body: &str) -> BufReader<TcpStream> {
        let mut stream = self.connect();
        let head = format!(
            "{line} HTTP/1.0\r\nHost: {}\r\nAuthorization: Bearer {key}\r\nContent-Length: {}\r\n{more}\r\n{body}",
            self.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        BufReader::new(stream)
    }

    /// The events of a run after a position, until its end.
    pub(crate) fn events(&self, key: &str, run: &str, after: &str) -> Vec<(u64, Json)> {
        let mut stream = self.stream(key, &format!("GET /v1/runs/{run}/events"), after, "");
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let blocks = text.split("\n\n").filter(|block| block.contains("data: "));
        let value = |block: &str, name: &str| {
            let line = block.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{text}"));
            line.to_owned()
        };
        blocks
            .map(|one| (value(one, "id: ").parse().unwrap(), serde_json::from_str(&value(one, "data: ")).unwrap()))
            .collect()
    }

    /// Begins a run, and gives its identifier.
    pub(crate) fn begin(&self, key: &str, input: &str) -> String {
        let reply = self.ask(key, "POST /v1/runs", &json!({"input": input}));
        assert_eq!(reply.status, 202, "{reply:?}");
        reply.json()["id"].as_str().unwrap().to_owned()
    }

    /// A run, once it has ended.
    pub(crate) fn ended(&self, key: &str, run: &str) -> Json {
        self.events(key, run, "");
        let reply = self.get(key, &format!("/v1/runs/{run}"));
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    }

    /// The first event of this kind of a run, once it is there.
    pub(crate) fn event(&self, key: &str, run: &str, kind: &str) -> Json {
        let mut stream = self.stream(key, &format!("GET /v1/runs/{run}/events"), "", "");
        loop {
            let mut line = String::new();
            assert!(stream.read_line(&mut line).unwrap() > 0, "{run} has ended without {kind}");
            if let Some(data) = line.strip_prefix("data: ") {
                let event: Json = serde_json::from_str(data).unwrap();
                if event["type"] == kind {
                    return event;
                }
            }
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The project as `tar` writes it.
pub(crate) fn archive(project: &Project) -> Vec<u8> {
    let made = Command::new("tar").args(["-C", project.root().to_str().unwrap(), "-cf", "-", "."]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    made.stdout
}

/// The `type` of a problem, without what all have, and its status.
pub(crate) fn problem(reply: &Reply) -> (u16, String) {
    assert!(reply.head.contains("content-type: application/problem+json"), "{reply:?}");
    let json = reply.json();
    assert_eq!(json["status"], reply.status, "{reply:?}");
    (reply.status, json["type"].as_str().unwrap().strip_prefix("urn:harness:problem:").unwrap().to_owned())
}
