//! A client of a server's interface for tenants: `harness --server URL`.
//!
//! The other end is not trusted. An answer has a bound, no redirect is followed, since it would take the key along, and
//! plain HTTP is spoken to this machine only. A request is sent again only where that cannot do its work twice.
//!
//! - [`events`]: the events of a run, over any number of connections

pub mod events;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use hyper::Method;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, LOCATION, RETRY_AFTER};
use serde_json::Value as Json;
use url::{Host, Url};

use crate::key::hex;

/// Bytes of an answer.
const MAX_ANSWER: usize = 64 << 20;
/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a request that only reads may take.
const READ: Duration = Duration::from_secs(60);
/// How long a request that does something may take: longer than any call.
const WORK: Duration = Duration::from_secs(660);
/// How often a request is sent.
const ATTEMPTS: u32 = 5;
/// Before the second attempt; twice as long before each further one.
const PAUSE: Duration = Duration::from_millis(200);
/// The longest pause that a server may ask for.
const LONGEST: Duration = Duration::from_secs(10);
/// What a hidden key is shown as.
const HIDDEN: &str = "[key]";

/// A server, and the key that is sent to it.
pub struct Remote {
    base: Url,
    key: String,
    bearer: HeaderValue,
    client: reqwest::Client,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("base", &self.base.as_str()).finish_non_exhaustive()
    }
}

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body, as text.
    pub body: String,
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Option<Json> {
        serde_json::from_str(&self.body).ok()
    }

    /// The word that the `type` of an error ends with.
    pub fn problem(&self) -> Option<String> {
        let json = self.json().filter(|_| self.status >= 400)?;
        json.get("type")?.as_str()?.strip_prefix("urn:harness:problem:").map(str::to_owned)
    }
}

/// A request, and whether it may be sent again.
#[derive(Debug)]
pub struct Ask<'a> {
    method: Method,
    path: &'a str,
    body: Option<Vec<u8>>,
    /// The text of `Idempotency-Key`: the server does what it asks for once.
    once: Option<String>,
    is_async: bool,
    within: Duration,
}

impl<'a> Ask<'a> {
    /// A request that reads. `path` is escaped already.
    pub fn get(path: &'a str) -> Self {
        Self { method: Method::GET, path, body: None, once: None, is_async: false, within: READ }
    }

    /// A request that ends what is there: to send it again does no more.
    pub fn delete(path: &'a str) -> Self {
        Self { method: Method::DELETE, ..Self::get(path) }
    }

    /// A request that does something. It is sent again only if no connection was made.
    pub fn post(path: &'a str, body: &Json) -> Self {
        Self { method: Method::POST, body: Some(body.to_string().into_bytes()), within: WORK, ..Self::get(path) }
    }

    /// The same, which the server does once however often it is sent.
    #[must_use]
    pub fn once(self) -> Self {
        Self { once: Some(hex::<16>()), ..self }
    }

    /// The same, which is answered when it has begun.
    #[must_use]
    pub fn asynchronous(self) -> Self {
        Self { is_async: true, ..self }
    }

    fn is_repeatable(&self) -> bool {
        self.method != Method::POST || self.once.is_some()
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost(pub String);

/// One attempt that failed.
struct Failed {
    why: Lost,
    /// Whether the request did not reach the server.
    is_unsent: bool,
    /// Whether another attempt may come to more.
    is_final: bool,
}

impl Remote {
    /// A server at a URL, and a key of a tenant.
    ///
    /// # Errors
    ///
    /// The URL is none that a key is sent to, or the key has another form.
    pub fn new(url: &str, key: &str) -> Result<Self, String> {
        let mut base = Url::parse(url).map_err(|error| format!("`{url}` is no URL: {error}"))?;
        if !base.username().is_empty() || base.password().is_some() {
            return Err("the URL of a server has no user and no password: its key is sent as a header".to_owned());
        }
        if base.query().is_some() || base.fragment().is_some() {
            return Err(format!("`{url}` has a query or a fragment, which the URL of a server has not"));
        }
        let is_local = match base.host() {
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            Some(Host::Domain(name)) => name == "localhost",
            None => false,
        };
        match base.scheme() {
            "https" if base.host().is_some() => {}
            "http" if is_local => {}
            "http" => {
                return Err(format!("`{url}` would get the key without TLS: `http` is for this machine only"));
            }
            _ => return Err(format!("`{url}` is not a URL of `https`")),
        }
        let key = key.trim();
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("the key is empty, or has a character that no key has".to_owned());
        }
        let mut bearer = HeaderValue::from_str(&format!("Bearer {key}")).map_err(|_| "the key cannot be sent")?;
        bearer.set_sensitive(true);
        let path = base.path().trim_end_matches('/').to_owned();
        base.set_path(&path);
        Ok(Self { client: connector()?, base, key: key.to_owned(), bearer })
    }

    /// The URL of a path of this server.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base.as_str().trim_end_matches('/'))
    }

    /// A text of the server without the key.
    pub fn redact(&self, text: &str) -> String {
        text.replace(&self.key, HIDDEN)
    }

    /// Sends a request, again where that is safe, and reads the answer.
    ///
    /// # Errors
    ///
    /// There is no answer, and why.
    pub async fn ask(&self, ask: &Ask<'_>) -> Result<Answer, Lost> {
        let (end, mut pause, mut attempt) = (Instant::now() + ask.within, PAUSE, 1);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let attempted = tokio::time::timeout(left, self.attempt(ask)).await;
            let attempted = attempted.unwrap_or_else(|_| {
                Err(Failed { why: self.lost(&"it takes too long"), is_unsent: false, is_final: true })
            });
            let wanted = match attempted {
                Ok((answer, again)) => match retry(ask, &answer, again) {
                    // What is under way is waited for as long as it may take.
                    Some(wanted) if answer.status == 409 => {
                        attempt = 0;
                        wanted
                    }
                    Some(wanted) if attempt < ATTEMPTS => wanted,
                    _ => return Ok(answer),
                },
                Err(failed) if failed.is_final || attempt >= ATTEMPTS => return Err(failed.why),
                Err(failed) if failed.is_unsent || ask.is_repeatable() => Duration::ZERO,
                Err(failed) => return Err(failed.why),
            };
            tokio::time::sleep(wanted.max(pause)).await;
            (pause, attempt) = ((pause * 2).min(LONGEST), attempt + 1);
        }
    }

    async fn attempt(&self, ask: &Ask<'_>) -> Result<(Answer, Option<Duration>), Failed> {
        let mut request = self.request(ask.method.clone(), ask.path).header(ACCEPT, "application/json");
        if let Some(body) = &ask.body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.clone());
        }
        if let Some(once) = &ask.once {
            request = request.header("idempotency-key", once);
        }
        if ask.is_async {
            request = request.header("prefer", "respond-async");
        }
        let answer = request.send().await.map_err(|error| self.failed(&error))?;
        self.not_elsewhere(&answer)?;
        let again = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let status = answer.status().as_u16();
        let body = self.body(answer).await?;
        Ok((Answer { status, body }, again.map(Duration::from_secs)))
    }

    /// A request with the key.
    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, self.url(path)).header(AUTHORIZATION, self.bearer.clone())
    }

    /// That an answer leads nowhere else.
    fn not_elsewhere(&self, answer: &reqwest::Response) -> Result<(), Failed> {
        if !answer.status().is_redirection() {
            return Ok(());
        }
        let to = answer.headers().get(LOCATION).map(|to| String::from_utf8_lossy(to.as_bytes()).into_owned());
        let to = to.map(|to| format!(" to `{}`", self.redact(&to))).unwrap_or_default();
        let why = format!("it redirects{to}, and the key is sent to `{}` only", self.base);
        Err(Failed { why: self.lost(&why), is_unsent: false, is_final: true })
    }

    async fn body(&self, mut answer: reqwest::Response) -> Result<String, Failed> {
        let mut body = Vec::new();
        while let Some(some) = answer.chunk().await.map_err(|error| self.failed(&error))? {
            if some.len() > MAX_ANSWER.saturating_sub(body.len()) {
                let why = self.lost(&format!("its answer has more than {MAX_ANSWER} bytes"));
                return Err(Failed { why, is_unsent: false, is_final: true });
            }
            body.extend_from_slice(&some);
        }
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    fn failed(&self, error: &reqwest::Error) -> Failed {
        let mut why: &dyn std::error::Error = error;
        while let Some(source) = why.source() {
            why = source;
        }
        Failed { why: self.lost(&why), is_unsent: error.is_connect(), is_final: false }
    }

    fn lost(&self, why: &dyn fmt::Display) -> Lost {
        Lost(self.redact(&format!("the server at `{}` does not answer: {why}", self.base)))
    }
}

/// How long to wait before an answer is asked for once more. None: it is the answer.
fn retry(ask: &Ask<'_>, answer: &Answer, again: Option<Duration>) -> Option<Duration> {
    let wanted = again.unwrap_or_default();
    let is_worth_it = match answer.status {
        // Another process may be starting, or a proxy may have lost it.
        502 | 503 => ask.is_repeatable(),
        // The request of an earlier attempt is under way.
        409 => answer.problem().as_deref() == Some("idempotency_in_progress"),
        // It was not let in.
        429 => answer.problem().as_deref() == Some("too_many_requests"),
        _ => false,
    };
    (is_worth_it && wanted <= LONGEST).then_some(wanted)
}

/// A part of a path, with escapes for all but what names are made of.
pub fn in_path(part: &str) -> String {
    percent_encoding::utf8_percent_encode(part, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// No ambient proxies and no redirect, which would take the key along. `localhost` is this machine, whatever a resolver says.
fn connector() -> Result<reqwest::Client, String> {
    reqwest::Client::builder()
        .user_agent(concat!("harness/", env!("CARGO_PKG_VERSION")))
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        // What is sent again, and when, is decided in one place.
        .retry(reqwest::retry::never())
        .referer(false)
        .resolve("localhost", SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0))
        .connect_timeout(CONNECT)
        .build()
        .map_err(|_| "TLS cannot be set up on this machine: are there trusted root certificates?".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_goes_over_tls_or_to_this_machine() {
        for url in [
            "https://tools.example.com",
            "https://tools.example.com/harness/",
            "https://203.0.113.7:8443",
            "http://127.0.0.1:8080",
            "http://[::1]:8080/",
            "http://localhost:8080",
        ] {
            assert!(Remote::new(url, "hk_a_b").is_ok(), "{url}");
        }
        for (url, why) in [
            ("http://tools.example.com", "without TLS"),
            ("http://10.0.0.1:8080", "without TLS"),
            ("http://localhost.example.com", "without TLS"),
            ("http://0.0.0.0:8080", "without TLS"),
            ("https://user:pw@tools.example.com", "no user"),
            ("https://tools.example.com?a=b", "a query"),
            ("https://tools.example.com#a", "a query"),
            ("ftp://tools.example.com", "`https`"),
            ("unix:/run/harness.sock", "`https`"),
            ("tools.example.com", "no URL"),
        ] {
            let refused = Remote::new(url, "hk_a_b").unwrap_err();
            assert!(refused.contains(why), "{url}: {refused}");
        }
        for key in ["", " ", "hk_a\nX: y", "hk_ä"] {
            assert!(Remote::new("https://tools.example.com", key).is_err(), "{key:?}");
        }
        let below = Remote::new("https://tools.example.com/harness/", "hk_a_b").unwrap();
        assert_eq!(below.url("/v1/tools"), "https://tools.example.com/harness/v1/tools");
    }

    #[test]
    fn what_may_do_its_work_twice_is_not_sent_again() {
        let answer = |status, kind: &str| {
            let body = serde_json::json!({"type": format!("urn:harness:problem:{kind}")}).to_string();
            Answer { status, body }
        };
        let (read, work) = (Ask::get("/"), Ask::post("/", &Json::Null));
        let once = Ask::post("/", &Json::Null).once();
        let soon = Some(Duration::from_secs(1));
        let asked = |ask: &Ask<'_>, status, kind| retry(ask, &answer(status, kind), soon).is_some();
        assert_eq!([&read, &work, &once].map(|ask| asked(ask, 503, "ending")), [true, false, true]);
        assert_eq!([&read, &work, &once].map(|ask| asked(ask, 429, "too_many_requests")), [true; 3]);
        for (status, kind) in [(429, "busy"), (429, "budget_exceeded"), (409, "conflict"), (500, "fault"), (200, "")] {
            assert!(!asked(&once, status, kind), "{status} {kind}");
        }
        assert!(asked(&once, 409, "idempotency_in_progress"));
        assert_eq!(retry(&read, &answer(503, "ending"), Some(Duration::from_secs(3600))), None);
    }
}
