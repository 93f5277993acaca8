//! A client of the protocol that has started the server itself.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value as Json, json};

use crate::project::Project;

/// The newest revision, in which each request names it.
pub(crate) const MODERN: &str = "2026-07-28";
/// The newest revision that begins with `initialize`.
pub(crate) const LEGACY: &str = "2025-11-25";

/// What a server can do, as it says where it can notify the client.
pub(crate) fn capabilities() -> Json {
    let list = json!({"listChanged": true});
    let resources = json!({"subscribe": true, "listChanged": true});
    let extensions = json!({"io.modelcontextprotocol/tasks": {}});
    json!({
        "completions": {}, "extensions": extensions, "logging": {}, "prompts": list, "resources": resources,
        "tools": list,
    })
}

/// What every request of the newest revision has.
pub(crate) fn meta() -> Json {
    json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "tester", "version": "1.0"},
    })
}

/// The connection to one server.
pub(crate) struct Client {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    next: i64,
    /// Kept until the server has ended.
    project: Option<Project>,
}

impl Client {
    /// Starts the server of a project that nothing else needs.
    pub(crate) fn of(project: Project) -> Self {
        let mut client = Self::start(&project, &[]);
        client.project = Some(project);
        client
    }

    /// Starts the server of a project.
    pub(crate) fn start(project: &Project, arguments: &[&str]) -> Self {
        Self::start_with(project, arguments, &[])
    }

    /// The same with variables in its environment.
    pub(crate) fn start_with(project: &Project, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut command = project.command(&[&["mcp", "serve"], arguments].concat());
        command.envs(variables.iter().copied());
        Self::spawn(command)
    }

    /// Starts a command that serves.
    pub(crate) fn spawn(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (to, from) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, to, from, next: 1, project: None }
    }

    /// The same after `initialize`.
    pub(crate) fn legacy(project: &Project, arguments: &[&str]) -> Self {
        let mut client = Self::start(project, arguments);
        client.initialize(LEGACY);
        client
    }

    pub(crate) fn initialize(&mut self, version: &str) -> Json {
        let info = json!({"name": "older", "version": "1.0"});
        let answer =
            self.request("initialize", json!({"protocolVersion": version, "capabilities": {}, "clientInfo": info}));
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        answer
    }

    pub(crate) fn line(&mut self, text: &str) {
        self.to.as_mut().unwrap().write_all(format!("{text}\n").as_bytes()).unwrap();
    }

    /// Bytes that need be neither text nor a line. A server that has ended takes none.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.to.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// The number of the server's process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn send(&mut self, message: &Json) {
        self.line(&message.to_string());
    }

    /// The next message. Each line has to be one.
    pub(crate) fn receive(&mut self) -> Json {
        let mut line = String::new();
        assert!(self.from.read_line(&mut line).unwrap() > 0, "the server has ended");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Sends a request and returns its identifier.
    pub(crate) fn begin(&mut self, method: &str, params: Json) -> i64 {
        let id = self.next;
        self.next += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    /// Sends a request and returns its `result` or `error`, as `{"result": …}` or `{"error": …}`.
    pub(crate) fn request(&mut self, method: &str, params: Json) -> Json {
        let id = self.begin(method, params);
        let mut answer = self.receive();
        let object = answer.as_object_mut().unwrap();
        assert_eq!((object.remove("jsonrpc"), object.remove("id")), (Some(json!("2.0")), Some(json!(id))));
        answer
    }

    /// A request of the newest revision.
    pub(crate) fn modern(&mut self, method: &str, mut params: Json) -> Json {
        params["_meta"] = meta();
        self.request(method, params)
    }

    /// The result of a call in the newest revision.
    pub(crate) fn call(&mut self, tool: &str, arguments: Json) -> Json {
        let mut answer = self.modern("tools/call", json!({"name": tool, "arguments": arguments}));
        answer["result"].take()
    }

    /// The text of a call, and whether it is an error.
    pub(crate) fn text(&mut self, tool: &str, arguments: Json) -> (String, bool) {
        let result = self.call(tool, arguments);
        let content = result["content"].as_array().unwrap_or_else(|| panic!("{result}"));
        assert_eq!(content.len(), 1, "{result}");
        (content[0]["text"].as_str().unwrap().to_owned(), result["isError"].as_bool().unwrap())
    }

    /// The definitions of tools.
    pub(crate) fn tools(&mut self) -> Vec<Json> {
        self.modern("tools/list", json!({}))["result"]["tools"].as_array().unwrap().clone()
    }

    /// The next line of standard error.
    pub(crate) fn complaint(&mut self) -> String {
        let err = self.child.stderr.as_mut().unwrap();
        let mut line = Vec::new();
        let mut byte = [0];
        // Byte by byte, so that what follows is still to be read.
        while err.read(&mut byte).unwrap() > 0 && byte != [b'\n'] {
            line.extend(byte);
        }
        String::from_utf8(line).unwrap()
    }

    /// Closes standard input and waits for nothing.
    pub(crate) fn close_input(&mut self) {
        drop(self.to.take());
    }

    /// Closes standard input. Returns the messages that were still sent, the exit code and standard error.
    pub(crate) fn end(mut self) -> (Vec<Json>, i32, String) {
        drop(self.to.take());
        let mut rest = String::new();
        self.from.read_to_string(&mut rest).unwrap();
        let mut err = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        let code = self.child.wait().unwrap().code().unwrap();
        (rest.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), code, err)
    }
}

impl Drop for Client {
    /// No server outlives its test.
    fn drop(&mut self) {
        drop(self.to.take());
        let _ = self.child.wait();
    }
}

/// The entries of a project's audit log.
pub(crate) fn audited(project: &Project) -> Vec<Json> {
    project
        .run(&["audit", "show", "--json", "--last", "1000"])
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}
