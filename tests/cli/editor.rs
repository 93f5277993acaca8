//! An editor with `harness lsp` behind it.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value as Json, json};

use crate::project::Project;

/// A client of the language server, in its project.
pub(crate) struct Editor<'p> {
    project: &'p Project,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    requests: i64,
    /// Notifications that nobody waited for yet.
    heard: VecDeque<Json>,
}

impl<'p> Editor<'p> {
    /// A client that was answered to `initialize`.
    pub(crate) fn new(project: &'p Project) -> Self {
        let mut editor = Self::unready(project);
        let answer = editor.request("initialize", json!({"capabilities": {}}));
        assert_eq!(answer["result"]["serverInfo"]["name"], "harness", "{answer}");
        editor.notify("initialized", json!({}));
        editor
    }

    /// One that has sent nothing yet.
    pub(crate) fn unready(project: &'p Project) -> Self {
        let mut command = project.command(&["lsp"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { project, child, input, output, requests: 0, heard: VecDeque::new() }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn uri(&self, file: &str) -> String {
        format!("file://{}", self.project.path(file).display())
    }

    /// Sends bytes as they are.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.input.write_all(bytes).unwrap();
        self.input.flush().unwrap();
    }

    pub(crate) fn send(&mut self, message: &Json) {
        let body = message.to_string();
        self.send_bytes(format!("Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
    }

    pub(crate) fn notify(&mut self, method: &str, params: Json) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Sends a request, and returns its identity.
    pub(crate) fn ask(&mut self, method: &str, params: Json) -> i64 {
        self.requests += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.requests, "method": method, "params": params}));
        self.requests
    }

    /// The answer to a request: all of it.
    pub(crate) fn answer(&mut self, id: i64) -> Json {
        loop {
            let message = self.read();
            if message["method"].is_null() && message["id"] == id {
                return message;
            }
            self.heard.push_back(message);
        }
    }

    pub(crate) fn request(&mut self, method: &str, params: Json) -> Json {
        let id = self.ask(method, params);
        self.answer(id)
    }

    /// The result of a request about a position in a file.
    #[track_caller]
    pub(crate) fn at(&mut self, method: &str, file: &str, position: (u32, u32)) -> Json {
        let position = json!({"line": position.0, "character": position.1});
        let params = json!({"textDocument": {"uri": self.uri(file)}, "position": position});
        let answer = self.request(method, params);
        assert!(answer["error"].is_null(), "{answer}");
        answer["result"].clone()
    }

    /// The next message.
    pub(crate) fn read(&mut self) -> Json {
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the server went away: {}", self.errors());
            match line.trim_end().strip_prefix("Content-Length: ") {
                Some(digits) => length = digits.parse().unwrap(),
                None => break,
            }
        }
        let mut body = vec![0; length];
        self.output.read_exact(&mut body).unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    fn errors(&mut self) -> String {
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }

    /// The next notification of a method that fits.
    pub(crate) fn hear(&mut self, method: &str, fits: impl Fn(&Json) -> bool) -> Json {
        let is_it = |message: &Json| message["method"] == method && fits(&message["params"]);
        if let Some(at) = self.heard.iter().position(is_it) {
            return self.heard.remove(at).unwrap()["params"].clone();
        }
        loop {
            let message = self.read();
            if is_it(&message) {
                return message["params"].clone();
            }
            self.heard.push_back(message);
        }
    }

    /// Opens a file with a text, which need not be what is on disk.
    pub(crate) fn open(&mut self, file: &str, text: &str) {
        let document = json!({"uri": self.uri(file), "languageId": "markdown", "version": 1, "text": text});
        self.notify("textDocument/didOpen", json!({"textDocument": document}));
    }

    pub(crate) fn change(&mut self, file: &str, version: i64, text: &str) {
        let document = json!({"uri": self.uri(file), "version": version});
        self.notify("textDocument/didChange", json!({"textDocument": document, "contentChanges": [{"text": text}]}));
    }

    /// The problems of a version of an open file.
    pub(crate) fn problems(&mut self, file: &str, version: i64) -> Json {
        let uri = self.uri(file);
        let found = self.hear("textDocument/publishDiagnostics", |params| {
            params["uri"] == uri.as_str() && params["version"] == version
        });
        found["diagnostics"].clone()
    }

    /// The problems as lines: `LINE:CHARACTER-CHARACTER severity message`.
    pub(crate) fn lines(&mut self, file: &str, version: i64) -> Vec<String> {
        let problems = self.problems(file, version);
        let line = |one: &Json| {
            let (start, end) = (&one["range"]["start"], &one["range"]["end"]);
            assert_eq!((&one["source"], &start["line"]), (&json!("harness"), &end["line"]), "{one}");
            let severity = if one["severity"] == 1 { "error" } else { "warning" };
            let (line, from, to) = (&start["line"], &start["character"], &end["character"]);
            format!("{line}:{from}-{to} {severity} {}", one["message"].as_str().unwrap())
        };
        problems.as_array().unwrap().iter().map(line).collect()
    }

    /// Ends the session as the protocol says.
    pub(crate) fn quit(mut self) {
        assert_eq!(self.request("shutdown", Json::Null)["result"], Json::Null);
        self.notify("exit", Json::Null);
        assert_eq!(self.ended(), (0, String::new()));
    }

    /// Goes away without a word. The exit code and standard error then.
    pub(crate) fn gone(self) -> (i32, String) {
        let Self { mut child, input, output, .. } = self;
        drop(input);
        let code = child.wait().unwrap().code().unwrap();
        drop(output);
        let mut errors = String::new();
        child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        (code, errors)
    }

    /// The exit code and standard error, once the server has ended by itself.
    pub(crate) fn ended(mut self) -> (i32, String) {
        let errors = self.errors();
        (self.child.wait().unwrap().code().unwrap(), errors)
    }
}

/// A text without the mark `¦`, and the line and the character in UTF-16 that it is at.
#[track_caller]
pub(crate) fn marked(text: &str) -> (String, (u32, u32)) {
    let (before, after) = text.split_once('¦').unwrap();
    let line = before.rsplit('\n').next().unwrap();
    let number = u32::try_from(before.matches('\n').count()).unwrap();
    (format!("{before}{after}"), (number, u32::try_from(line.encode_utf16().count()).unwrap()))
}
