//! The interface `http`: requests to the hosts that the grant names.
//!
//! Each hop of an exchange, the first and every redirect, goes the same way: the target is taken from the URL and
//! decided, its name is looked up once, each address is decided, and the connection can only be made to those. No
//! proxy, no cookie, no connection kept for a later call: nothing but the grant and the request has a say.

mod answer;
mod body;
mod dial;
mod lookup;
mod outgoing;
mod overrides;
pub mod own;
mod redirect;

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub(crate) use dial::{Dialer, Place};
pub(crate) use lookup::Names;
use reqwest::header::{ACCEPT_ENCODING, HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};
use tracing::{Instrument as _, Span};
use wasmtime::component::{ComponentType, Lift, Lower};

use super::denial::Denial;
use super::outbound::Outbound;
use super::resources::Resources;
use super::secrets::Handles;
use super::spans;
use super::system::System;
use harness_policy::grant::Grant;
use harness_policy::network::NoTarget;
use harness_policy::refusal::Refusal;

/// Bytes of a body that the contract takes, either way; of an answer's as it comes, and after decompression.
/// `limits.body_bytes` is at most this.
pub const MAX_BODY_BYTES: usize = 10 << 20;

/// Redirects that are followed.
pub const MAX_REDIRECTS: u32 = 5;

/// Longest time for an exchange.
pub const MAX_TIMEOUT: Duration = Duration::from_millis(600_000);

/// The variant `error`.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lower, Serialize, Deserialize)]
#[component(variant)]
pub enum Error {
    /// Host, port, scheme, address or header is not granted.
    #[component(name = "access-denied")]
    AccessDenied(Denial),
    /// Not a URL that can be asked. Carries what is wrong with it.
    #[component(name = "invalid-url")]
    InvalidUrl(String),
    /// Method, header or body cannot be sent. Carries what is wrong.
    #[component(name = "invalid-request")]
    InvalidRequest(String),
    /// A body is over `limits.body_bytes`, an answer's perhaps before it was decompressed. Carries the cap in bytes.
    #[component(name = "too-large")]
    TooLarge(u64),
    /// No complete answer within the time asked for, in milliseconds.
    #[component(name = "timeout")]
    Timeout(u64),
    /// More than [`MAX_REDIRECTS`].
    #[component(name = "too-many-redirects")]
    TooManyRedirects,
    /// No connection, or it broke. Carries why.
    #[component(name = "connection")]
    Connection(String),
}

/// The record `request`.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lift, Serialize, Deserialize)]
#[component(record)]
pub struct Request {
    /// `GET`, `HEAD`, `POST`, `PUT`, `PATCH`, `DELETE` or `OPTIONS`, in any case.
    pub method: String,
    /// At most 8,192 bytes.
    pub url: String,
    /// At most 64, each name and value at most 8,192 bytes.
    pub headers: Vec<(String, String)>,
    /// At most [`MAX_BODY_BYTES`].
    pub body: Option<String>,
    /// Milliseconds for the whole exchange; clamped to 1 to 600,000.
    #[component(name = "timeout-ms")]
    pub timeout_ms: u32,
}

/// The record `response`.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lower, Serialize, Deserialize)]
#[component(record)]
pub struct Response {
    /// Whatever it is: an answer is not an error.
    pub status: u16,
    /// The URL that answered, after redirects.
    pub url: String,
    /// Names in lower case; several of one name are joined by `, `.
    pub headers: Vec<(String, String)>,
    /// Text; bytes that are not UTF-8 became U+FFFD. At most [`MAX_BODY_BYTES`].
    pub body: String,
}

/// Makes connections for all projects of a host: making one reads the trusted roots, which is slow, and it holds nothing
/// of a call. Cheap until the first request is sent.
#[derive(Debug, Default)]
pub struct Connector {
    inner: OnceLock<Result<reqwest::Client, String>>,
    lookups: lookup::Lookups,
    dialed: dial::Dialed,
}

/// Sends the requests of one project. A copy has the same connector, share of lookups and resources.
#[derive(Debug, Clone, Default)]
pub struct Client {
    connector: Arc<Connector>,
    /// Where requests are answered from, instead of by the network.
    canned: Option<Vec<Canned>>,
    names: Names,
    lookups: lookup::Share,
    resources: Arc<Resources>,
    /// Counts what is sent.
    outbound: Outbound,
}

/// An answer for a test or a replay: what a server would say to this method and URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Canned {
    /// In upper case.
    pub method: String,
    /// As the request has it, after it was read as a URL.
    pub url: String,
    /// What comes back.
    pub response: Response,
}

impl Client {
    /// The client of a project, on the connector of its host.
    pub fn of(connector: &Arc<Connector>, system: &System, resources: &Arc<Resources>) -> Self {
        let (connector, names, resources) = (connector.clone(), system.names.clone(), resources.clone());
        Self { connector, names, resources, ..Self::default() }
    }

    /// The same, with all that it and its commands send counted by a meter.
    #[must_use]
    pub fn counted_by(self, outbound: Outbound) -> Self {
        Self { outbound, ..self }
    }

    /// Whether a budget bounds what is sent.
    pub(crate) fn is_bounded(&self) -> bool {
        self.outbound.is_bounded()
    }

    /// A client that never touches the network: what the grant allows is answered from these.
    pub fn answering(canned: Vec<Canned>) -> Self {
        Self { canned: Some(canned), ..Self::default() }
    }

    /// A client that looks up names with this function. Each address that it returns is decided like those of the
    /// system: it cannot lead a script to more than the grant allows.
    pub fn resolving(names: impl Fn(&str) -> Vec<IpAddr> + Send + Sync + 'static) -> Self {
        Self { names: Names::Given(Arc::new(names)), ..Self::default() }
    }

    /// Sends a request and reads the whole answer, following redirects. Everything is decided by `grant`; handles of
    /// secrets in the values of headers are exchanged for what they stand for.
    ///
    /// To be called in a tokio runtime with I/O and time. Dropping the future breaks the connection.
    pub async fn send(&self, grant: &Grant, handles: &Handles, request: Request) -> Result<Response, Error> {
        let limit = Duration::from_millis(u64::from(request.timeout_ms)).clamp(Duration::from_millis(1), MAX_TIMEOUT);
        let millis = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let span = spans::request();
        let exchange = self.exchange(grant, handles, request, &span).instrument(span.clone());
        let answered = tokio::time::timeout(limit, exchange).await.unwrap_or(Err(Error::Timeout(millis)));
        if let Ok(response) = &answered {
            span.record("status", response.status);
        }
        answered
    }

    async fn exchange(
        &self,
        grant: &Grant,
        handles: &Handles,
        request: Request,
        span: &Span,
    ) -> Result<Response, Error> {
        let most = usize::try_from(grant.limits().body_bytes).unwrap_or(usize::MAX).min(MAX_BODY_BYTES);
        if request.body.as_ref().is_some_and(|body| body.len() > most) {
            return Err(Error::TooLarge(most as u64));
        }
        let loan = handles.lend_to_request(&request.url, &request.headers, request.body.as_deref())?;
        let mut request = outgoing::checked(request)?;
        let mut bodies = self.resources.bodies();
        let sent = request.body().and_then(reqwest::Body::as_bytes).map_or(0, <[u8]>::len);
        bodies.take(sent).map_err(Error::Connection)?;
        let mut followed = 0;
        loop {
            let (target, others) = outgoing::targets(&request)?;
            // A redirect to another origin has left them behind.
            let lent = followed == 0 || request.headers().values().any(HeaderValue::is_sensitive);
            for target in std::iter::once(&target).chain(&others) {
                grant.decide_target(target)?;
                if lent {
                    loan.decide(target)?;
                }
            }
            span.record("method", request.method().as_str());
            span.record("host", request.url().host_str());
            if let Some(canned) = &self.canned {
                grant.note_answered(&target);
                return from_canned(canned, &request);
            }
            if followed == 0 {
                loan.fill(request.headers_mut())?;
            }
            let places = (&self.connector.lookups, &self.lookups);
            let vetted = lookup::vetted((&self.names, places), grant, &target, request.url()).await?;
            for address in vetted.addresses() {
                others.iter().try_for_each(|other| grant.decide_address(other, address))?;
            }
            // Cheap: the body is shared, not copied.
            let copy =
                request.try_clone().ok_or_else(|| Error::InvalidRequest("the body cannot be sent".to_owned()))?;
            let inner = self.connector.inner().await?;
            self.outbound.send(&copy).await?;
            let answer = vetted.scope(inner.execute(copy)).await.map_err(answer::failure)?;
            answer::head(answer.headers())?;
            if !redirect::turn(&mut request, answer.status(), answer.headers())? {
                return answer::read(answer, request.url(), most, &mut bodies).await;
            }
            if followed == MAX_REDIRECTS {
                return Err(Error::TooManyRedirects);
            }
            followed += 1;
            handles.none_revealed("the address that a redirect names", request.url().as_str())?;
        }
    }
}

impl Connector {
    /// Made on another thread: neither the deadline nor other calls wait for the roots to be read.
    async fn inner(&self) -> Result<&reqwest::Client, Error> {
        if self.inner.get().is_none() {
            let made = tokio::task::spawn_blocking(connector).await;
            // Of two that were made at the same time, one is used.
            let _ = self.inner.set(made.unwrap_or_else(|error| Err(error.to_string())));
        }
        self.inner.get_or_init(connector).as_ref().map_err(|why| Error::Connection(why.clone()))
    }
}

fn from_canned(canned: &[Canned], request: &reqwest::Request) -> Result<Response, Error> {
    let (method, url) = (request.method().as_str(), request.url().as_str());
    let same = |given: &str| given == url || url::Url::parse(given).is_ok_and(|given| given == *request.url());
    let found = canned.iter().find(|one| one.method == method && same(&one.url));
    found
        .map(|one| one.response.clone())
        .ok_or_else(|| Error::Connection(format!("no answer is given for {method} {url}")))
}

fn connector() -> Result<reqwest::Client, String> {
    reqwest::Client::builder()
        .user_agent(concat!("harness/", env!("CARGO_PKG_VERSION")))
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        // What is accepted is said here, and decompressed here, where it is counted.
        .default_headers(HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(body::ACCEPTED))]))
        .no_gzip()
        .no_brotli()
        // The limits on headers are those of this version.
        .http1_only()
        .http1_max_headers(answer::MAX_HEADERS)
        .dns_resolver(lookup::OnlyVetted)
        // Also keeps the resolver in the task of the request, where it finds the vetted addresses.
        .pool_max_idle_per_host(0)
        .build()
        .map_err(|_| "TLS cannot be set up on this machine: are there trusted root certificates?".to_owned())
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::AccessDenied(refusal.into())
    }
}

impl From<NoTarget> for Error {
    fn from(no: NoTarget) -> Self {
        match no {
            NoTarget::Scheme(_) => Refusal::always(no.to_string()).into(),
            NoTarget::Credentials | NoTarget::Host(_) => Self::InvalidUrl(no.to_string()),
        }
    }
}

#[cfg(test)]
mod tests;
