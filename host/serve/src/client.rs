//! A client of a server's interface for its operator, at its socket.

use std::path::Path;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::Value as Json;
use tokio::net::UnixStream;

/// Bytes of an answer.
const MAX_ANSWER: usize = 64 << 20;

/// Asks the server at a socket, with a key of its operator. The answer is its status and its body.
///
/// # Errors
///
/// There is no answer, and why.
pub async fn ask(socket: &Path, key: &str, method: Method, path: &str, body: Vec<u8>) -> Result<(u16, Json), String> {
    let (status, body) = text(socket, key, method, path, body).await?;
    let json = serde_json::from_str(&body).unwrap_or(Json::String(body));
    Ok((status, json))
}

/// The same, with the text of the body: the lines of a log are verified as they are written.
///
/// # Errors
///
/// There is no answer, and why.
pub async fn text(
    socket: &Path,
    key: &str,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> Result<(u16, String), String> {
    let failed =
        |error: &dyn std::fmt::Display| format!("the server at `{}` does not answer: {error}", socket.display());
    let stream = UnixStream::connect(socket).await.map_err(|error| failed(&error))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
    let connection = tokio::spawn(connection);
    let request = Request::builder().method(method).uri(path).header(HOST, "localhost");
    let request = request.header(AUTHORIZATION, format!("Bearer {key}")).body(Full::new(Bytes::from(body)));
    let request = request.map_err(|error| failed(&error))?;
    let answer = sender.send_request(request).await.map_err(|error| failed(&error))?;
    let status = answer.status().as_u16();
    let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await.map_err(|error| failed(&error))?.to_bytes();
    drop(sender);
    connection.abort();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}
