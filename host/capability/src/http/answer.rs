//! An answer as the guest gets it, and what went wrong in words that show nothing of the host.

use std::error::Error as StdError;
use std::io;

use reqwest::header::{CONTENT_ENCODING, CONTENT_LENGTH, HeaderMap};
use url::Url;

use super::super::resources::Bodies;
use super::body::{self, Coding, Wrong};
use super::{Error, Response};

/// Headers of an answer. The library counts them as it reads, with this as its limit.
pub(super) const MAX_HEADERS: usize = 100;

/// Bytes of the names and values of an answer's headers together. The library itself gives up on what comes before a body
/// when it has read 417,792 bytes, and no more than that is held until these are counted.
pub(super) const MAX_HEADER_BYTES: usize = 64 << 10;

/// What the library says where there are more headers than it is set to take, or where they continue for too long.
const HEAD_TOO_LARGE: &str = "message head is too large";

/// Refuses what has too many bytes of headers, also where it is a redirect.
pub(super) fn head(headers: &HeaderMap) -> Result<(), Error> {
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len().saturating_add(value.len())).sum();
    if bytes > MAX_HEADER_BYTES { Err(too_many_headers()) } else { Ok(()) }
}

fn too_many_headers() -> Error {
    Error::Connection(format!(
        "the headers of the answer are over the limit: {MAX_HEADERS} headers, {MAX_HEADER_BYTES} bytes"
    ))
}

/// Reads the whole answer, at most `most` bytes of body, as it comes and after decompression. They count for the project
/// while `bodies` is there.
pub(super) async fn read(
    mut answer: reqwest::Response,
    url: &Url,
    most: usize,
    bodies: &mut Bodies,
) -> Result<Response, Error> {
    let status = answer.status().as_u16();
    let headers = std::mem::take(answer.headers_mut());
    let coding = headers.get(CONTENT_ENCODING).and_then(Coding::of);
    let too_large = || Error::TooLarge(most as u64);
    let bytes = body::whole(answer.into(), coding, most, bodies).await.map_err(|wrong| match wrong {
        Wrong::TooLarge => too_large(),
        Wrong::Busy(why) => Error::Connection(why),
        Wrong::Broken => Error::Connection("the body broke off or cannot be decompressed".to_owned()),
    })?;
    let body = String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    // U+FFFD takes three bytes where there was one.
    if body.len() > most {
        return Err(too_large());
    }
    Ok(Response { status, url: url.to_string(), headers: joined(&headers, coding.is_some()), body })
}

/// Headers by name. What they say of a compressed body is not true of the text that comes of it.
fn joined(headers: &HeaderMap, decompressed: bool) -> Vec<(String, String)> {
    let value = |name| {
        let values: Vec<_> =
            headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        values.join(", ")
    };
    let names = headers.keys().filter(|name| !decompressed || ![CONTENT_ENCODING, CONTENT_LENGTH].contains(name));
    names.map(|name| (name.as_str().to_owned(), value(name))).collect()
}

/// Why there was no answer. The library's own texts name addresses and ports of this machine, so that none is passed
/// on but what TLS says of the other side.
pub(super) fn failure(error: reqwest::Error) -> Error {
    if error.is_builder() {
        return Error::InvalidUrl("the URL cannot be sent".to_owned());
    }
    let causes = || std::iter::successors(error.source(), |cause: &&(dyn StdError + 'static)| (*cause).source());
    if error.is_connect() {
        let cause = causes().filter_map(|cause| cause.downcast_ref::<io::Error>()).last();
        return Error::Connection(cause.map_or_else(|| "no connection could be made".to_owned(), no_connection));
    }
    if causes().any(|cause| cause.to_string() == HEAD_TOO_LARGE) {
        return too_many_headers();
    }
    Error::Connection("the answer is not HTTP or broke off".to_owned())
}

/// Why no connection could be made.
pub(super) fn no_connection(mut error: &io::Error) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_say_is_one_line_of_so_much() {
        assert_eq!(one_line("bad\r\n\u{1b}[2Jerror: \u{fc}"), "bad   [2Jerror: \u{fc}");
        assert_eq!(one_line(&"x".repeat(201)), "x".repeat(200));
    }
}
