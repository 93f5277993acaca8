//! The envelopes of JSON-RPC: requests, notifications, and answers.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

/// What a client sent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Incoming {
    Request {
        id: Id,
        method: String,
        params: Json,
    },
    Notification {
        method: String,
        params: Json,
    },
    /// An answer to a request of the server.
    Answer,
}

/// The identity of a request: a text or a whole number.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Id(Json);

impl Id {
    pub(crate) fn of(value: &Json) -> Option<Self> {
        let is_one = value.is_string() || value.is_i64() || value.is_u64();
        is_one.then(|| Self(value.clone()))
    }
}

/// Why a request has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    code: Code,
    message: String,
}

/// The codes of JSON-RPC and of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    Parse = -32700,
    InvalidRequest = -32600,
    MethodNotFound = -32601,
    InvalidParams = -32602,
    NotInitialized = -32002,
    Failed = -32803,
    Cancelled = -32800,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Reads a message.
///
/// # Errors
///
/// What is wrong with it, with its identity where that can be read.
pub(crate) fn parse(body: &[u8]) -> Result<Incoming, (Json, Failure)> {
    let parsed: Json = serde_json::from_slice(body)
        .map_err(|error| (Json::Null, Failure::new(Code::Parse, format!("the message is no JSON: {error}"))))?;
    let Json::Object(mut message) = parsed else {
        return Err((Json::Null, Failure::new(Code::InvalidRequest, "the message is no object")));
    };
    let id = message.remove("id");
    let params = message.remove("params").unwrap_or_default();
    let wrong = |id: Option<Json>, what: &str| (id.unwrap_or_default(), Failure::new(Code::InvalidRequest, what));
    match (message.remove("method"), id) {
        (Some(Json::String(method)), None) => Ok(Incoming::Notification { method, params }),
        (Some(Json::String(method)), Some(id)) => match Id::of(&id) {
            Some(id) => Ok(Incoming::Request { id, method, params }),
            None => Err(wrong(None, "`id` must be a text or a whole number")),
        },
        (Some(_), id) => Err(wrong(id, "`method` must be a text")),
        (None, _) if message.contains_key("result") || message.contains_key("error") => Ok(Incoming::Answer),
        (None, id) => Err(wrong(id, "the message has no `method`")),
    }
}

/// The parameters of a method as their type.
///
/// # Errors
///
/// They are not.
pub(crate) fn params<P: DeserializeOwned>(params: Json) -> Result<P, Failure> {
    serde_json::from_value(params).map_err(|error| Failure::new(Code::InvalidParams, format!("`params`: {error}")))
}

/// The answer to a request.
pub(crate) fn answer(id: &Id, result: Result<Json, Failure>) -> Json {
    match result {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id.0, "result": result}),
        Err(failure) => error(&id.0, &failure),
    }
}

/// The answer to what is no request.
pub(crate) fn error(id: &Json, failure: &Failure) -> Json {
    let error = json!({"code": failure.code as i32, "message": failure.message});
    json!({"jsonrpc": "2.0", "id": id, "error": error})
}

/// A notification for the client.
pub(crate) fn notification(method: &str, params: &impl serde::Serialize) -> Json {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envelopes() {
        let request = parse(br#"{"jsonrpc":"2.0","id":7,"method":"a","params":{"x":1.5}}"#).unwrap();
        let Incoming::Request { id, method, params } = request else { panic!() };
        assert_eq!((id, method.as_str(), params), (Id(json!(7)), "a", json!({"x": 1.5})));
        let quiet = Incoming::Notification { method: "b".to_owned(), params: Json::Null };
        assert_eq!(parse(br#"{"method":"b"}"#), Ok(quiet));
        assert_eq!(parse(br#"{"id":1,"result":null}"#), Ok(Incoming::Answer));
    }

    #[test]
    fn what_is_none() {
        let deep = "[".repeat(100_000);
        for (body, id, message) in [
            ("{", Json::Null, "the message is no JSON: EOF while parsing an object at line 1 column 1"),
            (&deep, Json::Null, "the message is no JSON: recursion limit exceeded at line 1 column 128"),
            ("[]", Json::Null, "the message is no object"),
            (r#"{"id":1}"#, json!(1), "the message has no `method`"),
            (r#"{"id":1,"method":2}"#, json!(1), "`method` must be a text"),
            (r#"{"id":1.5,"method":"a"}"#, Json::Null, "`id` must be a text or a whole number"),
            (r#"{"id":{},"method":"a"}"#, Json::Null, "`id` must be a text or a whole number"),
        ] {
            let (found, failure) = parse(body.as_bytes()).unwrap_err();
            assert_eq!((found, failure.to_string()), (id, message.to_owned()));
        }
    }
}
