//! An answer as the guest gets it, and what went wrong in words that tell nothing of the host.

use std::error::Error as _;
use std::io;

use reqwest::header::HeaderMap;
use url::Url;

use super::{Error, Response};

/// Reads the whole answer, at most `most` bytes of body. No more than that is ever held, however well it was
/// compressed: it is counted as it comes out.
pub(super) async fn read(mut answer: reqwest::Response, url: &Url, most: usize) -> Result<Response, Error> {
    let too_large = || Error::TooLarge(most as u64);
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(failure)? {
        if chunk.len() > most.saturating_sub(bytes.len()) {
            return Err(too_large());
        }
        bytes.extend_from_slice(&chunk);
    }
    let body = String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    // U+FFFD takes three bytes where there was one.
    if body.len() > most {
        return Err(too_large());
    }
    Ok(Response { status: answer.status().as_u16(), url: url.to_string(), headers: joined(answer.headers()), body })
}

fn joined(headers: &HeaderMap) -> Vec<(String, String)> {
    let value = |name| {
        let values: Vec<_> =
            headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        values.join(", ")
    };
    headers.keys().map(|name| (name.as_str().to_owned(), value(name))).collect()
}

/// Why there was no answer. The library's own texts name addresses and ports of this machine, so that none is passed
/// on but what TLS says of the other side.
pub(super) fn failure(error: reqwest::Error) -> Error {
    if error.is_builder() {
        return Error::InvalidUrl("the URL cannot be sent".to_owned());
    }
    let why = if error.is_connect() {
        let mut cause = None;
        let mut source = error.source();
        while let Some(next) = source {
            cause = next.downcast_ref::<io::Error>().or(cause);
            source = next.source();
        }
        return Error::Connection(cause.map_or_else(|| "no connection could be made".to_owned(), no_connection));
    } else if error.is_body() || error.is_decode() {
        "the body broke off or cannot be decompressed"
    } else {
        "the answer is not HTTP or broke off"
    };
    Error::Connection(why.to_owned())
}

fn no_connection(mut error: &io::Error) -> String {
    use io::ErrorKind as Kind;
    // TLS wraps its error in one of these, and the connector that one in another.
    while let Some(inner) = error.get_ref().and_then(|inner| inner.downcast_ref()) {
        error = inner;
    }
    let why = match (error.kind(), error.get_ref()) {
        (Kind::ConnectionRefused, _) => "the connection was refused",
        (Kind::HostUnreachable | Kind::NetworkUnreachable, _) => "the host cannot be reached",
        (Kind::TimedOut, _) => "the host did not answer",
        (Kind::InvalidData, Some(tls)) => return format!("no trusted connection: {}", one_line(&tls.to_string())),
        _ => "no connection could be made",
    };
    why.to_owned()
}

fn one_line(text: &str) -> String {
    text.chars().take(200).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
