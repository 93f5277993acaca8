//! Requests that the host itself makes for a project, such as those to its servers of the Model Context Protocol. They go
//! the way of a script's: decided, looked up once, and connected to the addresses that were decided. The answer is read as
//! it comes.

use reqwest::header::{ACCEPT_ENCODING, CONTENT_ENCODING, HeaderMap, HeaderName, HeaderValue};
use tracing::Instrument as _;
use url::Url;

use super::super::resources::Bodies;
use super::super::secrets::Vault;
use super::{Client, Error, MAX_BODY_BYTES, MAX_REDIRECTS, answer, lookup, redirect, spans};
use harness_policy::grant::Grant;
use harness_policy::network::{Method, Target};
use harness_policy::refusal::Refusal;

/// A request of the host's.
#[derive(Debug)]
pub struct OwnRequest<'r> {
    /// How it is asked.
    pub method: Method,
    /// What is asked.
    pub url: &'r Url,
    /// Names and values.
    pub headers: Vec<(String, String)>,
    /// The same with secrets in the values: they stay with the origin of `url`, and no message shows them.
    pub sealed: Vec<(String, String)>,
    /// What is sent.
    pub body: Option<Vec<u8>>,
    /// Whether a redirect may lead to another origin that the grant allows: what is asked for is held to a digest. Sealed
    /// headers never go there.
    pub anywhere: bool,
}

/// An answer of which the body is still to be read. Dropping it closes the connection.
#[derive(Debug)]
pub struct Answer {
    response: reqwest::Response,
    /// What was sent counts among the project's bodies until the answer is dropped.
    _sent: Bodies,
}

impl Client {
    /// Sends a request, and returns when the head of the answer is there. A redirect is followed to the same origin only,
    /// unless the request says otherwise, and only where the request stays as it is. To be called in a runtime.
    ///
    /// # Errors
    ///
    /// What the grant refuses, or why there is no answer.
    pub async fn open(&self, grant: &Grant, vault: &Vault, request: OwnRequest<'_>) -> Result<Answer, Error> {
        let span = spans::request();
        let opened = self.exchanged(grant, vault, request).instrument(span.clone()).await;
        if let Ok(answer) = &opened {
            span.record("status", answer.status());
        }
        opened
    }

    async fn exchanged(&self, grant: &Grant, vault: &Vault, request: OwnRequest<'_>) -> Result<Answer, Error> {
        let most = usize::try_from(grant.limits().body_bytes).unwrap_or(usize::MAX).min(MAX_BODY_BYTES);
        let sent = request.body.as_ref().map_or(0, Vec::len);
        if sent > most {
            return Err(Error::TooLarge(most as u64));
        }
        let (method, anywhere) = (request.method, request.anywhere);
        let origin = Target::of(request.url)?;
        let mut request = built(request)?;
        let mut bodies = self.resources.bodies();
        bodies.take(sent).map_err(Error::Connection)?;
        let span = tracing::Span::current();
        span.record("method", method.name());
        for _ in 0..=MAX_REDIRECTS {
            let target = Target::of(request.url())?.by(method);
            grant.decide_target(&target)?;
            span.record("host", request.url().host_str());
            if self.canned.is_some() {
                return Err(Error::Connection(format!("no answer is given for {} {}", method.name(), request.url())));
            }
            let places = (&self.connector.lookups, &self.lookups);
            let vetted = lookup::vetted((&self.names, places), grant, &target, request.url()).await?;
            // Cheap: the body is shared, not copied.
            let copy =
                request.try_clone().ok_or_else(|| Error::InvalidRequest("the body cannot be sent".to_owned()))?;
            let inner = self.connector.inner().await?;
            self.outbound.send(&copy).await?;
            let response = vetted.scope(inner.execute(copy)).await.map_err(answer::failure)?;
            answer::head(response.headers())?;
            let status = response.status().as_u16();
            if !redirect::turn(&mut request, response.status(), response.headers())? {
                return Answer::of(response, bodies);
            }
            if let Some(name) = vault.find(request.url().as_str()) {
                let what = format!("the address that a redirect names holds the value of the secret `{name}`");
                return Err(Refusal::always(what).into());
            }
            let new = Target::of(request.url())?;
            if new != origin && !anywhere {
                let shown = |target: &Target| format!("`{}://{target}`", target.scheme().name());
                let what = format!("{} redirects to {}, which is another origin", shown(&origin), shown(&new));
                return Err(Refusal::always(what).into());
            }
            if request.method().as_str() != method.name() {
                return Err(Error::Connection(format!("`{origin}` redirects {} with {status}", method.name())));
            }
        }
        Err(Error::TooManyRedirects)
    }
}

fn built(request: OwnRequest<'_>) -> Result<reqwest::Request, Error> {
    let method = reqwest::Method::from_bytes(request.method.name().as_bytes())
        .map_err(|error| Error::InvalidRequest(error.to_string()))?;
    let mut out = reqwest::Request::new(method, request.url.clone());
    let headers = out.headers_mut();
    // What comes is counted as it comes.
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    for (list, is_sealed) in [(&request.headers, false), (&request.sealed, true)] {
        for (name, value) in list {
            let odd = || Error::InvalidRequest(format!("the header `{name}` cannot be sent"));
            let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| odd())?;
            let mut value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| odd())?;
            value.set_sensitive(is_sealed);
            headers.insert(parsed, value);
        }
    }
    *out.body_mut() = request.body.map(Into::into);
    Ok(out)
}

impl Answer {
    fn of(response: reqwest::Response, sent: Bodies) -> Result<Self, Error> {
        let coding = response.headers().get(CONTENT_ENCODING);
        if coding.is_some_and(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
            return Err(Error::Connection("the answer is compressed, which was not asked for".to_owned()));
        }
        Ok(Self { response, _sent: sent })
    }

    /// The status, whatever it is.
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// The value of a header, where it is there once and is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        one(self.response.headers(), name)
    }

    /// All values of a header that are text.
    pub fn header_values(&self, name: &str) -> impl Iterator<Item = &str> {
        self.response.headers().get_all(name).iter().filter_map(|value| value.to_str().ok())
    }

    /// The next bytes of the body; none at its end.
    ///
    /// # Errors
    ///
    /// That it broke off.
    pub async fn next(&mut self) -> Result<Option<bytes::Bytes>, Error> {
        self.response.chunk().await.map_err(|_| Error::Connection("the answer broke off".to_owned()))
    }

    /// The whole body.
    ///
    /// # Errors
    ///
    /// That it broke off, or has more than so many bytes.
    pub async fn whole(&mut self, most: usize) -> Result<Vec<u8>, Error> {
        let mut body = Vec::new();
        while let Some(bytes) = self.next().await? {
            if bytes.len() > most.saturating_sub(body.len()) {
                return Err(Error::TooLarge(most as u64));
            }
            body.extend_from_slice(&bytes);
        }
        Ok(body)
    }
}

fn one<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut all = headers.get_all(name).iter();
    let first = all.next()?.to_str().ok()?;
    all.next().is_none().then_some(first)
}
