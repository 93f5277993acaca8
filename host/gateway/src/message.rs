//! What a line of a server is, and the lines that are sent to it.

use serde_json::{Map, Value as Json, json};

/// The revision in which each request names it.
pub(crate) const MODERN: &str = "2026-07-28";
/// Those that begin with `initialize`, the newest first.
pub(crate) const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The code of an error that says that headers and message differ.
pub(crate) const HEADER_MISMATCH: i64 = -32020;

/// The code of an error that says that a revision is not spoken, with those that are.
pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;

/// How large a line is, if it is JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    /// At least as many values as it has: each but the first comes after `,`, `[`, `{` or `:` outside of a text.
    pub(crate) values: usize,
    /// Objects and lists within each other.
    pub(crate) depth: usize,
}

impl Size {
    /// Counts without reading a value.
    pub(crate) fn of(line: &[u8]) -> Self {
        let (mut values, mut in_text, mut escaped) = (1_usize, false, false);
        let (mut open, mut depth) = (0_usize, 0);
        for byte in line {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if in_text => escaped = true,
                b'"' => in_text = !in_text,
                b',' | b':' if !in_text => values = values.saturating_add(1),
                b'[' | b'{' if !in_text => {
                    (values, open) = (values.saturating_add(1), open.saturating_add(1));
                    depth = depth.max(open);
                }
                b']' | b'}' if !in_text => open = open.saturating_sub(1),
                _ => {}
            }
        }
        // What does not begin as a message is no value at all.
        let is_message = line.trim_ascii_start().starts_with(b"{");
        Self { values, depth: if is_message { depth } else { 0 } }
    }
}

/// A line of a server.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Incoming {
    /// The answer to a request of ours.
    Answer { id: u64, answer: Result<Json, RpcError> },
    /// An answer to nothing that we can have asked. With the identifier, as JSON.
    Foreign(String),
    /// An answer that is none, to a request that can be one of ours.
    Broken { id: u64 },
    /// A request of the server's, which has to be answered.
    Request { id: Json, method: String, params: Json },
    /// A notification.
    Notification(String),
    /// No message of the protocol.
    Noise,
}

/// The error of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    pub(crate) message: String,
    pub(crate) data: Json,
}

impl Incoming {
    /// Reads a line.
    pub(crate) fn read(line: &[u8]) -> Self {
        let Ok(Json::Object(mut message)) = serde_json::from_slice(line) else { return Self::Noise };
        if message.get("jsonrpc") != Some(&json!("2.0")) {
            return Self::Noise;
        }
        match (message.shift_remove("method"), message.shift_remove("id")) {
            (Some(Json::String(method)), Some(id @ (Json::String(_) | Json::Number(_)))) => {
                let params = message.shift_remove("params").unwrap_or_default();
                Self::Request { id, method, params }
            }
            (Some(Json::String(method)), None) => Self::Notification(method),
            (Some(_), _) => Self::Noise,
            (None, id) => answer(id.unwrap_or_default(), message),
        }
    }
}

fn answer(id: Json, mut message: Map<String, Json>) -> Incoming {
    // Ours are numbers from 1. What is written otherwise, such as `1.0` or `"1"`, is not one of them.
    let Some(id) = id.as_u64().filter(|number| *number > 0) else { return Incoming::Foreign(id.to_string()) };
    let answer = match (message.shift_remove("result"), message.shift_remove("error")) {
        (Some(result), None) => Ok(result),
        (None, Some(Json::Object(error))) => {
            let text = error.get("message").and_then(Json::as_str).unwrap_or("an error without a message");
            let code = error.get("code").and_then(Json::as_i64).unwrap_or(0);
            let data = error.get("data").cloned().unwrap_or_default();
            Err(RpcError { code, message: text.to_owned(), data })
        }
        // Both, neither, or an error that is none.
        _ => return Incoming::Broken { id },
    };
    Incoming::Answer { id, answer }
}

/// A request, as a line.
pub(crate) fn request(id: u64, method: &str, params: &Json) -> Vec<u8> {
    line(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
}

/// A notification, as a line.
pub(crate) fn notification(method: &str, params: &Json) -> Vec<u8> {
    line(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
}

/// The answer to a request of the server's, as a line. It may ask whether anybody is there, and for nothing else.
pub(crate) fn reply(id: &Json, method: &str) -> Vec<u8> {
    match method {
        "ping" => line(&json!({"jsonrpc": "2.0", "id": id, "result": {}})),
        _ => not_offered(id),
    }
}

/// The error in the body of an answer that refuses a request, whatever request it names.
pub(crate) fn error_of(body: &[u8]) -> Option<RpcError> {
    let Ok(Json::Object(mut message)) = serde_json::from_slice(body) else { return None };
    let error = message.shift_remove("error")?;
    // Some servers answer what they do not take for a request without an identifier.
    match answer(json!(1), Map::from_iter([("error".to_owned(), error)])) {
        Incoming::Answer { answer: Err(error), .. } => Some(error),
        _ => None,
    }
}

/// The answer to a request of the server's, as a line.
pub(crate) fn response(id: &Json, answer: &Result<Json, RpcError>) -> Vec<u8> {
    line(&match answer {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(RpcError { code, message, .. }) => {
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
        }
    })
}

/// The answer to a request that nothing is offered for.
pub(crate) fn not_offered(id: &Json) -> Vec<u8> {
    let error = json!({"code": -32601, "message": "this client offers no such method"});
    line(&json!({"jsonrpc": "2.0", "id": id, "error": error}))
}

fn line(message: &Json) -> Vec<u8> {
    let mut line = message.to_string().into_bytes();
    line.push(b'\n');
    line
}

/// What every request of the newest revision says of itself.
pub(crate) fn meta() -> Json {
    json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": client(),
    })
}

/// Who we are.
pub(crate) fn client() -> Json {
    json!({"name": "harness", "version": env!("CARGO_PKG_VERSION")})
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_are_counted_as_json_has_them() {
        for (line, values, depth) in [
            ("1", 1, 0),
            ("[]", 2, 0),
            ("[1,2]", 3, 0),
            ("{\"a,[\":[1]}", 4, 2),
            (" {\"a\":{},\"b\":[[]]}", 8, 3),
            ("{\"[[\\\"[[\":1}", 3, 1),
            ("\"\\\",\"", 1, 0),
            ("\"\\\\\",", 2, 0),
        ] {
            assert_eq!(Size::of(line.as_bytes()), Size { values, depth }, "{line}");
        }
    }

    fn read(line: &str) -> Incoming {
        Incoming::read(line.as_bytes())
    }

    #[test]
    fn each_kind_of_line() {
        let message = |rest: &str| read(&format!("{{\"jsonrpc\":\"2.0\",{rest}}}"));
        assert_eq!(message("\"id\":7,\"result\":{}"), Incoming::Answer { id: 7, answer: Ok(json!({})) });
        let error = RpcError { code: -32602, message: "no".to_owned(), data: json!([1]) };
        let error = Incoming::Answer { id: 7, answer: Err(error) };
        assert_eq!(message("\"id\":7,\"error\":{\"code\":-32602,\"message\":\"no\",\"data\":[1]}"), error);
        for id in ["0", "-1", "1.0", "1e0", "\"1\"", "null", "18446744073709551616", "[1]"] {
            assert!(matches!(message(&format!("\"id\":{id},\"result\":{{}}")), Incoming::Foreign(_)), "{id}");
        }
        assert_eq!(message("\"result\":{}"), Incoming::Foreign("null".to_owned()));
        let asks = |id: Json, params: Json| Incoming::Request { id, method: "roots/list".to_owned(), params };
        assert_eq!(message("\"id\":\"a\",\"method\":\"roots/list\""), asks(json!("a"), Json::Null));
        assert_eq!(message("\"id\":1,\"method\":\"roots/list\",\"params\":{}"), asks(json!(1), json!({})));
        assert_eq!(message("\"method\":\"a/b\",\"params\":{}"), Incoming::Notification("a/b".to_owned()));
        for broken in ["\"id\":1", "\"id\":1,\"result\":1,\"error\":{}", "\"id\":1,\"error\":\"no\""] {
            assert_eq!(message(broken), Incoming::Broken { id: 1 }, "{broken}");
        }
        for noise in ["\"method\":1", "\"id\":[],\"method\":\"a\""] {
            assert_eq!(message(noise), Incoming::Noise, "{noise}");
        }
        let deep = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
        for noise in
            ["", "listening", "[]", "{\"id\":1,\"result\":{}}", "{\"jsonrpc\":\"1.0\",\"id\":1,\"result\":{}}", &*deep]
        {
            assert_eq!(read(noise), Incoming::Noise);
        }
    }

    #[test]
    fn a_request_is_one_line() {
        let line = request(3, "tools/call", &json!({"a": "b\nc"}));
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        let read = read(std::str::from_utf8(&line).unwrap());
        let (method, params) = ("tools/call".to_owned(), json!({"a": "b\nc"}));
        assert_eq!(read, Incoming::Request { id: json!(3), method, params });
    }

    proptest! {
        #[test]
        fn no_line_is_too_strange(line in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Incoming::read(&line);
        }
    }
}
