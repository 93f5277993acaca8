//! A service at an address: its connection, its key, and what its answers mean before there is a reply.

use std::error::Error as _;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::public::OnlyPublic;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName};
use reqwest::{Client, RequestBuilder, Response};
use serde_json::Value as Json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;
use url::Url;

use super::key::Key;
use super::reading::{Heard, Wrong, message_of};
use super::{Delta, ProviderError};
use harness_capability::outbound::Outbound;
use harness_sys as sys;

/// How long a connection may take to be made.
pub(super) const CONNECT: Duration = Duration::from_secs(10);

/// How long a question about a model may take.
const ASIDE: Duration = Duration::from_secs(5);

/// How long a service may be silent before that is reported.
pub(super) const SILENCE: Duration = Duration::from_secs(10);

/// Bytes of an answer to a question about a model: chat templates are long, and so are lists of models.
const MAX_ASIDE_BYTES: usize = 4 << 20;

/// Bytes of a refusal that are read.
const MAX_REFUSAL_BYTES: usize = 16 << 10;

/// Bytes of a refusal that are shown.
pub(super) const MAX_MESSAGE_BYTES: usize = 2 << 10;

/// Reads a variable of the environment.
pub type Variables = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// How a service gets the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Login {
    /// `authorization: Bearer KEY`
    Bearer,
    /// A header of its own.
    Header(&'static str),
}

/// A service at an address.
pub(super) struct Service {
    /// Without path, for messages.
    origin: String,
    login: Login,
    /// Where the key is. None: there is no key.
    variable: Option<String>,
    variables: Variables,
    headers: &'static [(&'static str, &'static str)],
    idle: Duration,
    is_public: bool,
    outbound: Outbound,
    client: OnceLock<Result<Client, String>>,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("origin", &self.origin)
            .field("variable", &self.variable)
            .finish_non_exhaustive()
    }
}

impl Service {
    pub(super) fn new(
        url: &Url,
        login: Login,
        variable: Option<String>,
        variables: Variables,
        headers: &'static [(&'static str, &'static str)],
        idle: Duration,
    ) -> Self {
        let origin = url.origin().ascii_serialization();
        let (outbound, client) = (Outbound::default(), OnceLock::new());
        Self { origin, login, variable, variables, headers, idle, is_public: false, outbound, client }
    }

    /// The same, connected to at public addresses alone.
    pub(super) fn at_public_addresses(self) -> Self {
        Self { is_public: true, ..self }
    }

    /// The same, with what is sent counted by a meter.
    pub(super) fn counted_by(self, outbound: Outbound) -> Self {
        Self { outbound, ..self }
    }

    pub(super) fn idle(&self) -> Duration {
        self.idle
    }

    /// The key, read again, so that a session gets by with one that was exchanged.
    pub(super) fn key(&self) -> Result<Option<Key>, ProviderError> {
        let Some(variable) = &self.variable else { return Ok(None) };
        let Some(value) = (self.variables)(variable) else {
            return Err(ProviderError::Unusable(format!(
                "the variable `{variable}` is not set: it holds the key for {}; `api_key_env` names another",
                self.origin
            )));
        };
        Key::new(&value).map(Some).map_err(|why| {
            ProviderError::Unusable(format!("the variable `{variable}`, with the key for {}, {why}", self.origin))
        })
    }

    /// Sends a question, and waits for the head of the answer.
    pub(super) async fn post(
        &self,
        url: &Url,
        key: Option<&Key>,
        body: Vec<u8>,
        accept: &'static str,
        heard: &mut Heard<'_>,
    ) -> Result<Response, ProviderError> {
        let request = self.client()?.post(url.clone()).header(CONTENT_TYPE, "application/json").header(ACCEPT, accept);
        let answer = patiently(self.send(request.body(body), key, self.idle), heard).await?;
        if answer.status().is_success() { Ok(answer) } else { Err(self.refusal(answer, key).await) }
    }

    /// What the service says of something, if it says it soon, and in JSON.
    pub(super) async fn tell(&self, url: &Url, body: Option<&Json>) -> Option<Json> {
        let key = self.key().ok()?;
        let client = self.client().ok()?;
        let request = match body {
            None => client.get(url.clone()),
            Some(body) => client.post(url.clone()).header(CONTENT_TYPE, "application/json").body(body.to_string()),
        };
        let asked = async {
            let answer = self.send(request, key.as_ref(), ASIDE).await.ok()?;
            if !answer.status().is_success() {
                return None;
            }
            let (bytes, whole) = start_of(answer, MAX_ASIDE_BYTES).await;
            if whole { serde_json::from_slice(&bytes).ok() } else { None }
        };
        tokio::time::timeout(ASIDE, asked).await.ok().flatten()
    }

    async fn send(
        &self,
        mut request: RequestBuilder,
        key: Option<&Key>,
        limit: Duration,
    ) -> Result<Response, ProviderError> {
        if let Some(key) = key {
            let (name, before) = match self.login {
                Login::Bearer => ("authorization", "Bearer "),
                Login::Header(name) => (name, ""),
            };
            if let Some(value) = key.header(before) {
                request = request.header(HeaderName::from_static(name), value);
            }
        }
        for (name, value) in self.headers {
            request = request.header(*name, *value);
        }
        let (client, request) = request.build_split();
        let request = request.map_err(|error| self.unreachable(&error, key))?;
        self.outbound.send(&request).await.map_err(|refusal| ProviderError::NotAdmitted(refusal.reason))?;
        match tokio::time::timeout(limit, client.execute(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(self.unreachable(&error, key)),
            Err(_) => Err(self.silent(limit)),
        }
    }

    fn client(&self) -> Result<&Client, ProviderError> {
        self.client
            .get_or_init(|| connector(self.is_public))
            .as_ref()
            .map_err(|why| ProviderError::Unusable(why.clone()))
    }

    fn unreachable(&self, error: &reqwest::Error, key: Option<&Key>) -> ProviderError {
        ProviderError::Unreachable { service: self.origin.clone(), reason: shown(&cause(error), key) }
    }

    pub(super) fn silent(&self, limit: Duration) -> ProviderError {
        ProviderError::Silent { service: self.origin.clone(), limit }
    }

    pub(super) fn cut(&self, error: &reqwest::Error, key: Option<&Key>) -> ProviderError {
        self.error(Wrong::Cut(cause(error)), key)
    }

    /// What is wrong with a reply, as an error of this service.
    pub(super) fn error(&self, wrong: Wrong, key: Option<&Key>) -> ProviderError {
        let service = self.origin.clone();
        match wrong {
            Wrong::Cut(reason) => ProviderError::Cut { service, reason: shown(&reason, key) },
            Wrong::Malformed(reason) => ProviderError::Malformed { service, reason: shown(&reason, key) },
            Wrong::Refused { status, message } => {
                ProviderError::Refused { service, status, message: shown(&message, key), retry_after: None }
            }
        }
    }

    async fn refusal(&self, answer: Response, key: Option<&Key>) -> ProviderError {
        let status = answer.status();
        let retry_after = retry_after(answer.headers(), sys::since_epoch());
        let location =
            answer.headers().get("location").map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let (bytes, _) = tokio::time::timeout(ASIDE, start_of(answer, MAX_REFUSAL_BYTES)).await.unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let message = match (location, serde_json::from_str::<Json>(&text)) {
            (Some(to), _) if status.is_redirection() => format!("redirects are not followed; this one is to {to}"),
            (_, Ok(json)) => message_of(json.get("error").unwrap_or(&json)),
            _ if text.trim().is_empty() => status.canonical_reason().unwrap_or("nothing more").to_owned(),
            _ => text.into_owned(),
        };
        let message = shown(&message, key) + &self.about_key(status.as_u16());
        ProviderError::Refused { service: self.origin.clone(), status: status.as_u16(), message, retry_after }
    }

    /// Which key a service has rejected.
    fn about_key(&self, status: u16) -> String {
        match &self.variable {
            _ if status != 401 => String::new(),
            Some(variable) => format!("; the key is that of the variable `{variable}`"),
            None => "; no key was sent: `api_key_env` of the model names the variable that has one".to_owned(),
        }
    }
}

/// Does work that waits for a service, and reports once that the service is silent.
pub(super) async fn patiently<T>(work: impl Future<Output = T>, heard: &mut Heard<'_>) -> T {
    let mut work = std::pin::pin!(work);
    if let Ok(done) = tokio::time::timeout(SILENCE, work.as_mut()).await {
        return done;
    }
    heard(Delta::Silent { since: SILENCE });
    work.await
}

/// For public addresses alone, or for all. No ambient proxies, and no redirect, which would take the key along.
fn connector(is_public: bool) -> Result<Client, String> {
    let builder = Client::builder();
    let builder = if is_public { builder.dns_resolver(OnlyPublic) } else { builder };
    builder
        .user_agent(concat!("harness/", env!("CARGO_PKG_VERSION")))
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        // What is tried again, and when, is decided in one place.
        .retry(reqwest::retry::never())
        .referer(false)
        // A compressed stream comes in blocks, not as it is made.
        .no_gzip()
        .no_brotli()
        .connect_timeout(CONNECT)
        .build()
        .map_err(|_| "TLS cannot be set up on this machine: are there trusted root certificates?".to_owned())
}

/// The start of a body, and whether that is all of it.
async fn start_of(mut answer: Response, most: usize) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    loop {
        match answer.chunk().await {
            Ok(Some(chunk)) => {
                let room = most.saturating_sub(bytes.len());
                bytes.extend_from_slice(chunk.get(..room).unwrap_or(&chunk));
                if chunk.len() > room {
                    return (bytes, false);
                }
            }
            Ok(None) => return (bytes, true),
            Err(_) => return (bytes, false),
        }
    }
}

/// Text of a service for an error: without the key, and not long.
fn shown(text: &str, key: Option<&Key>) -> String {
    let text = text.trim();
    let start = text.get(..text.floor_char_boundary(MAX_REFUSAL_BYTES)).unwrap_or_default();
    let safe = key.map_or_else(|| start.to_owned(), |key| key.redact(start));
    let short = safe.get(..safe.floor_char_boundary(MAX_MESSAGE_BYTES)).unwrap_or_default();
    if short.len() < safe.len() || start.len() < text.len() { format!("{short}…") } else { safe }
}

/// What is at the bottom of a failure: the layers above it repeat the address.
fn cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("no connection within {} s", CONNECT.as_secs());
    }
    let mut last: &dyn std::error::Error = error;
    while let Some(next) = last.source() {
        last = next;
    }
    if error.source().is_none() { error.to_string() } else { last.to_string() }
}

/// When a service wants to be asked again: in seconds, or at a date, which is taken by the service's own clock where it
/// shows it.
fn retry_after(headers: &HeaderMap, now: Duration) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let number = |name: &str| text(name)?.parse::<f64>().ok();
    if let Some(millis) = number("retry-after-ms") {
        return Duration::try_from_secs_f64(millis / 1000.0).ok();
    }
    if let Some(seconds) = number("retry-after") {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = |name: &str| OffsetDateTime::parse(text(name)?, &Rfc2822).ok();
    let then = date("retry-after")?;
    let now = date("date").or_else(|| OffsetDateTime::UNIX_EPOCH.checked_add(now.try_into().ok()?))?;
    Some((then - now).try_into().unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    const NOW: Duration = Duration::from_secs(784_111_777);

    fn after(headers: &[(&'static str, &str)]) -> Option<Duration> {
        let pairs =
            headers.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()));
        retry_after(&pairs.collect(), NOW)
    }

    /// A service that is silent for a while is reported once, and still waited for.
    #[tokio::test(start_paused = true)]
    async fn silence_is_reported() {
        for (seconds, expected) in [(9, 0), (11, 1), (100, 1)] {
            let mut reported = 0;
            let mut heard = |delta: Delta<'_>| {
                assert_eq!(delta, Delta::Silent { since: SILENCE });
                reported += 1;
            };
            patiently(tokio::time::sleep(Duration::from_secs(seconds)), &mut heard).await;
            assert_eq!(reported, expected, "{seconds}");
        }
    }

    #[test]
    fn a_service_says_when_to_come_back_in_seconds_or_by_date() {
        assert_eq!(after(&[]), None);
        assert_eq!(after(&[("retry-after", "7")]), Some(Duration::from_secs(7)));
        assert_eq!(after(&[("retry-after", " 1.5 ")]), Some(Duration::from_millis(1500)));
        assert_eq!(after(&[("retry-after-ms", "250"), ("retry-after", "7")]), Some(Duration::from_millis(250)));
        let date = ("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT");
        assert_eq!(after(&[date]), Some(Duration::from_secs(30)));
        assert_eq!(after(&[date, ("date", "Sun, 06 Nov 1994 08:50:02 GMT")]), Some(Duration::from_secs(5)));
        assert_eq!(after(&[("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT")]), Some(Duration::ZERO));
        for odd in ["soon", "-1", "NaN", "1e300", ""] {
            assert_eq!(after(&[("retry-after", odd)]), None, "{odd}");
        }
    }

    #[test]
    fn a_long_text_is_cut_after_the_key_is_out_of_it() {
        let key = Key::new("secret-key-0123456789").unwrap();
        let text = format!("{}secret-key-0123456789 and more", "é".repeat(MAX_MESSAGE_BYTES / 2 - 3));
        let shown = shown(&text, Some(&key));
        assert!(shown.ends_with("é[key] …"), "{shown}");
        assert_eq!(shown.len(), MAX_MESSAGE_BYTES + '…'.len_utf8());
    }
}
