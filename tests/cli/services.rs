//! A model's service on the loopback interface: it answers what a test wants in the pieces that it wants, and
//! remembers what it was asked.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use serde_json::{Value as Json, json};

/// The key that the tests give to models. Nothing of it may ever be seen.
pub(crate) const KEY: &str = "sk-test-Zq3v8LmT0xYw5RkB";

/// What a service sends for one request.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: &'static str,
    /// Further lines of its head, each with its end.
    pub(crate) headers: String,
    /// The body, in the pieces in which it goes out.
    pub(crate) pieces: Vec<Vec<u8>>,
    /// Whether the connection stays open after that, until the other side closes it.
    pub(crate) hangs: bool,
    /// Where the connection is reset after that instead: once the other of two has come here too.
    resets: Option<Arc<Barrier>>,
    /// Where it stops until the other of two has come here too: before this piece, and for the first one before the head.
    stalls: Option<(usize, Arc<Barrier>)>,
}

impl Answer {
    pub(crate) fn new(status: &'static str, kind: &str, body: &str) -> Self {
        let pieces = vec![body.as_bytes().to_vec()];
        Self { status, headers: format!("content-type: {kind}\r\n"), pieces, hangs: false, resets: None, stalls: None }
    }

    /// The same, cut into single bytes.
    pub(crate) fn split(mut self) -> Self {
        self.pieces = self.pieces.concat().chunks(1).map(<[u8]>::to_vec).collect();
        self
    }

    /// The same without what comes after the first `length` bytes.
    pub(crate) fn cut(mut self, length: usize) -> Self {
        let mut body = self.pieces.concat();
        body.truncate(length);
        self.pieces = vec![body];
        self
    }

    /// The same with the connection reset when the other value is called.
    pub(crate) fn resetting(mut self) -> (Self, impl FnOnce()) {
        let both = Arc::new(Barrier::new(2));
        self.resets = Some(both.clone());
        (self, move || {
            both.wait();
        })
    }

    /// The same, stopping before one of its pieces until the other value is called.
    pub(crate) fn stalling(mut self, before: usize) -> (Self, impl FnOnce()) {
        let both = Arc::new(Barrier::new(2));
        self.stalls = Some((before, both.clone()));
        (self, move || {
            both.wait();
        })
    }

    pub(crate) fn hanging(mut self) -> Self {
        self.hangs = true;
        self
    }
}

/// One request, as it came.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// The first line and the headers.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Asked {
    pub(crate) fn json(&self) -> Json {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

/// A service that gives its answers to requests that carry a message, one after another, and the last of them again
/// and again. What else it is asked it does not know, and it refuses what strict ones refuse.
pub(crate) struct Service {
    pub(crate) address: String,
    seen: Arc<Mutex<Vec<Asked>>>,
}

impl Service {
    pub(crate) fn new(answers: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Arc::<Mutex<Vec<Asked>>>::default();
        let log = seen.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (answers, log) = (answers.clone(), log.clone());
                std::thread::spawn(move || drop(serve(stream.unwrap(), &answers, &log)));
            }
        });
        Self { address, seen }
    }

    /// The requests that carried a message.
    pub(crate) fn chats(&self) -> Vec<Asked> {
        self.seen.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, answers: &[Answer], log: &Mutex<Vec<Asked>>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut bytes = Vec::new();
    let asked = loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = |line: &str| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok();
            let length: usize = head.lines().find_map(length).unwrap_or(0);
            if body.len() >= length {
                break Asked { head: head.to_owned(), body: body.to_owned() };
            }
        }
        let mut buffer = [0; 16384];
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            read => bytes.extend_from_slice(&buffer[..read]),
        }
    };
    let mut answer = Answer::new("404 Not Found", "application/json", "{}");
    if asked.json().get("messages").is_some() {
        let mut log = log.lock().unwrap();
        if let Some(next) = answers.get(log.len()).or(answers.last()) {
            answer = if alternates(&asked.json()) { next.clone() } else { refusal() };
        }
        log.push(asked);
    }
    let stall = |at: usize| {
        if let Some((_, both)) = answer.stalls.as_ref().filter(|(before, _)| *before == at) {
            both.wait();
        }
    };
    stall(0);
    stream
        .write_all(format!("HTTP/1.1 {}\r\nconnection: close\r\n{}\r\n", answer.status, answer.headers).as_bytes())?;
    for (at, piece) in answer.pieces.iter().enumerate() {
        if at > 0 {
            stall(at);
        }
        stream.write_all(piece)?;
    }
    if let Some(both) = &answer.resets {
        both.wait();
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
        return Ok(());
    }
    if answer.hangs {
        while stream.read(&mut [0; 64])? > 0 {}
    }
    Ok(())
}

/// Whether nobody but tools speaks twice in a row, which the chat templates of many models do not let them.
fn alternates(asked: &Json) -> bool {
    let messages = asked["messages"].as_array().unwrap();
    messages.windows(2).all(|two| two[0]["role"] != two[1]["role"] || two[0]["role"] == "tool")
}

fn refusal() -> Answer {
    let message = "Conversation roles must alternate user/assistant/user/assistant/...";
    Answer::new("400 Bad Request", "application/json", &json!({"error": {"message": message}}).to_string())
}

/// A wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    Chat,
    Anthropic,
    Ollama,
}

/// The wire formats, with the names of a provider that speaks each.
pub(crate) const WIRES: [(Wire, &str); 3] =
    [(Wire::Chat, "openai"), (Wire::Anthropic, "anthropic"), (Wire::Ollama, "ollama")];

impl Wire {
    /// A reply with a text and calls, streamed or in one piece.
    pub(crate) fn reply(self, stream: bool, text: &str, calls: &[(&str, Json)]) -> Answer {
        match (self, stream) {
            (Self::Chat, true) => Answer::new("200 OK", "text/event-stream", &chat_stream(text, calls)),
            (Self::Chat, false) => Answer::new("200 OK", "application/json", &chat(text, calls)),
            (Self::Anthropic, true) => Answer::new("200 OK", "text/event-stream", &anthropic_stream(text, calls)),
            (Self::Anthropic, false) => Answer::new("200 OK", "application/json", &anthropic(text, calls)),
            (Self::Ollama, true) => Answer::new("200 OK", "application/x-ndjson", &ollama_stream(text, calls)),
            (Self::Ollama, false) => Answer::new("200 OK", "application/json", &ollama(text, calls).to_string()),
        }
    }
}

fn events(data: &[Json]) -> String {
    data.iter().map(|data| format!("data: {data}\n\n")).collect()
}

/// The text in two pieces; the calls' arguments in two pieces each, those of all calls in turn.
fn chat_stream(text: &str, calls: &[(&str, Json)]) -> String {
    let delta = |delta: Json| json!({"id": "c-1", "model": "m-1", "choices": [{"index": 0, "delta": delta}]});
    let (first, second) = text.split_at(text.len() / 2);
    let mut data = vec![delta(json!({"role": "assistant", "content": first})), delta(json!({"content": second}))];
    for (index, (name, _)) in calls.iter().enumerate() {
        let function = json!({"name": name, "arguments": ""});
        let call = json!([{"index": index, "id": format!("call_{index}"), "type": "function", "function": function}]);
        data.push(delta(json!({"tool_calls": call})));
    }
    for half in 0..2 {
        for (index, (_, arguments)) in calls.iter().enumerate() {
            let arguments = arguments.to_string();
            let (first, second) = arguments.split_at(arguments.len() / 2);
            let part = if half == 0 { first } else { second };
            data.push(delta(json!({"tool_calls": [{"index": index, "function": {"arguments": part}}]})));
        }
    }
    let reason = if calls.is_empty() { "stop" } else { "tool_calls" };
    data.push(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}));
    data.push(json!({"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 7}}));
    events(&data) + "data: [DONE]\n\n"
}

fn chat(text: &str, calls: &[(&str, Json)]) -> String {
    let call = |(index, (name, arguments)): (usize, &(&str, Json))| {
        let function = json!({"name": name, "arguments": arguments.to_string()});
        json!({"id": format!("call_{index}"), "type": "function", "function": function})
    };
    let mut message = json!({"role": "assistant", "content": text});
    if !calls.is_empty() {
        message["tool_calls"] = calls.iter().enumerate().map(call).collect();
    }
    let reason = if calls.is_empty() { "stop" } else { "tool_calls" };
    let choice = json!({"index": 0, "message": message, "finish_reason": reason});
    let usage = json!({"prompt_tokens": 11, "completion_tokens": 7});
    json!({"id": "c-1", "model": "m-1", "choices": [choice], "usage": usage}).to_string()
}

fn anthropic_stream(text: &str, calls: &[(&str, Json)]) -> String {
    let usage = json!({"input_tokens": 11, "output_tokens": 0});
    let mut data = vec![json!({"type": "message_start", "message": {"id": "c-1", "model": "m-1", "usage": usage}})];
    let (first, second) = text.split_at(text.len() / 2);
    data.push(json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}));
    for part in [first, second] {
        data.push(json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": part}}));
    }
    data.push(json!({"type": "content_block_stop", "index": 0}));
    data.push(json!({"type": "ping"}));
    for (index, (name, arguments)) in calls.iter().enumerate() {
        let index = index + 1;
        let block = json!({"type": "tool_use", "id": format!("call_{index}"), "name": name, "input": {}});
        data.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
        let arguments = arguments.to_string();
        let (first, second) = arguments.split_at(arguments.len() / 2);
        for part in [first, second] {
            let delta = json!({"type": "input_json_delta", "partial_json": part});
            data.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        data.push(json!({"type": "content_block_stop", "index": index}));
    }
    let reason = if calls.is_empty() { "end_turn" } else { "tool_use" };
    data.push(json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 7}}));
    data.push(json!({"type": "message_stop"}));
    events(&data)
}

fn anthropic(text: &str, calls: &[(&str, Json)]) -> String {
    let call = |(index, (name, arguments)): (usize, &(&str, Json))| json!({"type": "tool_use", "id": format!("call_{index}"), "name": name, "input": arguments});
    let content = [json!({"type": "text", "text": text})].into_iter().chain(calls.iter().enumerate().map(call));
    let reason = if calls.is_empty() { "end_turn" } else { "tool_use" };
    let usage = json!({"input_tokens": 11, "output_tokens": 7});
    let content: Vec<Json> = content.collect();
    json!({"id": "c-1", "model": "m-1", "stop_reason": reason, "content": content, "usage": usage}).to_string()
}

fn ollama(text: &str, calls: &[(&str, Json)]) -> Json {
    let call = |(name, arguments): &(&str, Json)| json!({"function": {"name": name, "arguments": arguments}});
    let mut message = json!({"role": "assistant", "content": text});
    if !calls.is_empty() {
        message["tool_calls"] = calls.iter().map(call).collect();
    }
    let mut whole = json!({"model": "m-1", "message": message, "done": true, "done_reason": "stop"});
    (whole["prompt_eval_count"], whole["eval_count"]) = (json!(11), json!(7));
    whole
}

/// The text in two pieces, each call in one, the end without either.
fn ollama_stream(text: &str, calls: &[(&str, Json)]) -> String {
    let (first, second) = text.split_at(text.len() / 2);
    let piece = |message: Json| json!({"model": "m-1", "message": message, "done": false});
    let mut lines = [first, second].map(|part| piece(json!({"role": "assistant", "content": part}))).to_vec();
    for one in calls {
        lines.push(piece(ollama("", std::slice::from_ref(one))["message"].clone()));
    }
    lines.push(ollama("", &[]));
    lines.iter().map(|line| format!("{line}\n")).collect()
}
