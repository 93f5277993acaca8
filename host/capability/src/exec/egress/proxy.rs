//! The proxy of a command's own network: `CONNECT` (RFC 9110, section 9.3.6), and requests for `http` URLs.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use harness_policy::command::network::connection;
use harness_policy::network::Target;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use url::Url;

use super::{Relay, join};
use crate::http::Error;
use crate::outbound::Counted;

type Body = BoxBody<Bytes, hyper::Error>;

/// Headers that are between two ends of one connection (RFC 9110, section 7.6.1) or are for the proxy. `Connection` names
/// further ones.
const OF_ONE_HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
];

/// A tunnel that begins when its request is answered.
type Tunnel = Arc<Mutex<Option<(OnUpgrade, Counted<TcpStream>)>>>;

/// Serves one connection of the command.
pub(super) async fn serve(stream: TcpStream, relay: Arc<Relay>) {
    let tunnel = Tunnel::default();
    let service = hyper::service::service_fn(|request| {
        let (relay, tunnel) = (relay.clone(), tunnel.clone());
        async move { Ok::<_, Infallible>(answer(request, &relay, &tunnel).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let _ = connection.with_upgrades().await;
    let begun = tunnel.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some((upgrade, mut onward)) = begun
        && let Ok(upgraded) = upgrade.await
    {
        join(&mut TokioIo::new(upgraded), &mut onward).await;
    }
}

async fn answer(mut request: Request<Incoming>, relay: &Relay, tunnel: &Tunnel) -> Response<Body> {
    let target = match target(request.method(), request.uri()) {
        Ok(target) => target,
        Err(why) => return refusal(StatusCode::BAD_REQUEST, &why),
    };
    let onward = match relay.connect(&target).await {
        Ok(onward) => onward,
        Err(error) => return failed(&error),
    };
    if request.method() == Method::CONNECT {
        let upgrade = hyper::upgrade::on(&mut request);
        *tunnel.lock().unwrap_or_else(PoisonError::into_inner) = Some((upgrade, onward));
        return Response::new(Empty::new().map_err(|never| match never {}).boxed());
    }
    match forward(request, onward).await {
        Ok(response) => response,
        Err(error) => refusal(StatusCode::BAD_GATEWAY, &format!("the host broke off: {error}")),
    }
}

/// What a request is for.
fn target(method: &Method, uri: &Uri) -> Result<Target, String> {
    if *method == Method::CONNECT {
        let authority = uri.authority().ok_or("CONNECT needs a host and a port")?;
        let port = authority.port_u16().ok_or("CONNECT needs a port")?;
        if authority.as_str().contains('@') {
            return Err("a host has no user name here".to_owned());
        }
        return connection(authority.host(), port).map_err(|no| no.to_string());
    }
    if uri.scheme_str() != Some("http") {
        return Err(
            "this is a proxy: it takes CONNECT, and requests for whole URLs that begin with `http://`".to_owned()
        );
    }
    let url = Url::parse(&uri.to_string()).map_err(|error| error.to_string())?;
    // With the port that is asked: what comes after is not looked at.
    let target = Target::of(&url).map_err(|no| no.to_string())?;
    connection(&target.host().to_string(), target.port()).map_err(|no| no.to_string())
}

/// Sends a request on, and gives the answer as it comes.
async fn forward(request: Request<Incoming>, onward: Counted<TcpStream>) -> Result<Response<Body>, hyper::Error> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(onward)).await?;
    // It ends with the answer, and with who reads that.
    tokio::spawn(connection);
    let (mut parts, body) = request.into_parts();
    remove_own(&mut parts.headers);
    let host = parts.uri.authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
    if let Some(host) = host {
        // What the target was decided by, and not what another header says.
        parts.headers.insert(HOST, host);
    }
    let path = parts.uri.path_and_query().map_or("/", hyper::http::uri::PathAndQuery::as_str);
    parts.uri = path.parse().unwrap_or_default();
    let response = sender.send_request(Request::from_parts(parts, body)).await?;
    let (mut parts, body) = response.into_parts();
    remove_own(&mut parts.headers);
    Ok(Response::from_parts(parts, body.boxed()))
}

fn remove_own(headers: &mut hyper::HeaderMap) {
    let listed = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named = listed.flat_map(|value| value.split(',')).filter_map(|name| name.trim().parse::<HeaderName>().ok());
    for name in named.collect::<Vec<_>>() {
        headers.remove(name);
    }
    for name in OF_ONE_HOP {
        headers.remove(name);
    }
}

fn failed(error: &Error) -> Response<Body> {
    match error {
        Error::AccessDenied(denial) => refusal(StatusCode::FORBIDDEN, &denial.to_string()),
        Error::Timeout(_) => refusal(StatusCode::GATEWAY_TIMEOUT, "no connection was made in time"),
        Error::Connection(why) => refusal(StatusCode::BAD_GATEWAY, why),
        Error::InvalidUrl(_) | Error::InvalidRequest(_) | Error::TooLarge(_) | Error::TooManyRedirects => {
            refusal(StatusCode::BAD_GATEWAY, "no connection was made")
        }
    }
}

fn refusal(status: StatusCode, why: &str) -> Response<Body> {
    let body = Full::new(Bytes::from(format!("harness: {why}\n"))).map_err(|never| match never {});
    let mut response = Response::new(body.boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
