//! A client of the protocol that connects to the server.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value as Json, json};

use crate::client::{MODERN, meta};
use crate::project::Project;

/// A token that a header can hold.
pub(crate) const TOKEN: &str = "a-token-of-the-tests";

/// A server that listens.
pub(crate) struct Web {
    child: Child,
    out: BufReader<ChildStdout>,
    /// What it says that clients connect to.
    pub(crate) place: String,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// As it was sent.
    pub(crate) raw_head: String,
    /// In lower case.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Json {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> String {
        let mut lines = self.raw_head.lines().filter_map(|line| line.split_once(": "));
        let found = lines.find(|(header, _)| header.eq_ignore_ascii_case(name));
        found.unwrap_or_else(|| panic!("no {name}: {self:?}")).1.to_owned()
    }

    /// Status, and code of the error.
    pub(crate) fn refusal(&self) -> (u16, i64) {
        (self.status, self.json()["error"]["code"].as_i64().unwrap())
    }

    fn of(text: &[u8]) -> Self {
        let text = String::from_utf8(text.to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        assert!(!head.to_ascii_lowercase().contains("chunked"), "{head}");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, raw_head: head.to_owned(), head: head.to_ascii_lowercase(), body: body.to_owned() }
    }
}

/// A stream of messages that answers a request.
pub(crate) struct Messages(BufReader<TcpStream>);

impl Messages {
    /// The next message.
    pub(crate) fn message(&mut self) -> Json {
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream has ended");
            if let Some(data) = line.strip_prefix("data:").filter(|data| !data.trim().is_empty()) {
                return serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}"));
            }
        }
    }
}

/// Sends a request and reads the answer, until the server closes the connection.
pub(crate) fn exchange(stream: &mut (impl Read + Write), request: &[u8]) -> Reply {
    // One that is refused early may be closed before it is sent.
    let _ = stream.write_all(request);
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text);
    Reply::of(&text)
}

/// A request, of headers that may replace those that each has. One without a value is left out.
pub(crate) fn request(line: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let length = body.len().to_string();
    let mut all = vec![
        ("Host", "localhost"),
        ("Connection", "close"),
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        ("Content-Length", &length),
    ];
    all.retain(|(name, _)| !headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)));
    all.extend(headers.iter().filter(|(_, value)| !value.is_empty()));
    let head: String = all.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("{line} HTTP/1.1\r\n{head}\r\n{body}").into_bytes()
}

/// A request of the newest revision, with its headers.
pub(crate) fn modern(method: &str, mut params: Json) -> (Json, Vec<(&'static str, String)>) {
    params["_meta"] = meta();
    let mut headers = vec![("MCP-Protocol-Version", MODERN.to_owned()), ("Mcp-Method", method.to_owned())];
    headers.extend(params["name"].as_str().or(params["uri"].as_str()).map(|name| ("Mcp-Name", name.to_owned())));
    (json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}), headers)
}

impl Web {
    /// A server on the loopback interface that wants no token.
    pub(crate) fn open(project: &Project) -> Self {
        Self::start(project, &["--http", "127.0.0.1:0", "--no-token"])
    }

    pub(crate) fn start(project: &Project, arguments: &[&str]) -> Self {
        let mut command = project.command(&[&["mcp", "serve"], arguments].concat());
        command.env("HARNESS_TOKEN", TOKEN).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut place = String::new();
        out.read_line(&mut place).unwrap();
        Self { child, out, place: place.trim_end().to_owned() }
    }

    /// Address and port.
    pub(crate) fn address(&self) -> &str {
        let rest = self.place.split_once("://").unwrap_or_else(|| panic!("not an URL: {:?}", self.place)).1;
        rest.strip_suffix("/mcp").unwrap()
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let port = self.address().rsplit_once(':').unwrap().1;
        TcpStream::connect(format!("127.0.0.1:{port}")).unwrap()
    }

    /// Sends a request with this line.
    pub(crate) fn send(&self, line: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let mut all = headers.to_vec();
        if !headers.iter().any(|(name, _)| *name == "Host") {
            all.push(("Host", self.address()));
        }
        exchange(&mut self.connect(), &request(line, &all, body))
    }

    pub(crate) fn post(&self, headers: &[(&str, &str)], body: &str) -> Reply {
        self.send("POST /mcp", headers, body)
    }

    /// A request of the newest revision, with more headers, or others.
    pub(crate) fn modern(&self, method: &str, params: Json, more: &[(&str, &str)]) -> Reply {
        let (body, headers) = modern(method, params);
        let mut all: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        all.retain(|(name, _)| !more.iter().any(|(other, _)| other == name));
        all.extend(more);
        self.post(&all, &body.to_string())
    }

    /// Sends a request whose answer is a stream.
    pub(crate) fn stream(&self, headers: &[(&str, &str)], body: &str) -> Messages {
        let mut all = headers.to_vec();
        all.push(("Host", self.address()));
        let mut stream = self.connect();
        stream.write_all(&request("POST /mcp", &all, body)).unwrap();
        Messages(BufReader::new(stream))
    }

    /// What a call sends, of a client that wants to hear of it: the last message is the answer.
    pub(crate) fn notified(&self, tool: &str, more: &Json) -> Vec<Json> {
        let (mut body, headers) = modern("tools/call", json!({"name": tool}));
        body["params"]["_meta"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mut all: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        all.push(("Host", self.address()));
        let mut stream = self.connect();
        stream.write_all(&request("POST /mcp", &all, &body.to_string())).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.to_ascii_lowercase().contains("content-type: text/event-stream"), "{text}");
        let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
        data.filter(|data| !data.trim().is_empty()).map(|data| serde_json::from_str(data).unwrap()).collect()
    }

    /// Whether it lists its tools to who shows these headers.
    pub(crate) fn lists(&self, more: &[(&str, &str)]) -> bool {
        let reply = self.modern("tools/list", json!({}), more);
        reply.status == 200 && reply.json()["result"]["tools"].is_array()
    }

    /// A connection on which a call has begun.
    pub(crate) fn begin(&self, tool: &str) -> TcpStream {
        self.begin_with(tool, json!({}))
    }

    /// The same with arguments.
    pub(crate) fn begin_with(&self, tool: &str, arguments: Json) -> TcpStream {
        let (body, headers) = modern("tools/call", json!({"name": tool, "arguments": arguments}));
        let mut all: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        all.push(("Host", self.address()));
        let mut stream = self.connect();
        stream.write_all(&request("POST /mcp", &all, &body.to_string())).unwrap();
        stream
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The exit code and standard error, when it has ended.
    pub(crate) fn end(mut self) -> (i32, String) {
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        let mut err = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (self.child.wait().unwrap().code().unwrap(), err)
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
