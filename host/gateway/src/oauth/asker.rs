//! Requests to authorization servers, under the grant of the server that they are for.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value as Json;
use url::{Host, Url, form_urlencoded};

use crate::failure::Failure;
use harness_capability::http::Client;
use harness_capability::http::own::OwnRequest;
use harness_capability::secrets::Vault;
use harness_policy::grant::Grant;
use harness_policy::network::address::AddressKind;
use harness_policy::network::{Method, Target};

/// Bytes of an answer.
const MAX_BYTES: usize = 1 << 20;
/// How long an answer may take.
const TIME: Duration = Duration::from_secs(30);

/// Asks authorization servers.
#[derive(Debug, Clone)]
pub(crate) struct Asker {
    pub(crate) http: Client,
    pub(crate) grant: Grant,
    pub(crate) vault: Arc<Vault>,
}

/// A URL that may be asked: what goes there is not to be read on the way.
///
/// # Errors
///
/// Why it may not.
pub(crate) fn safe(text: &str, what: &str) -> Result<Url, Failure> {
    let wrong = |why: &str| Failure::Broken(format!("{what} is {}, {why}", shown(text)));
    let url = Url::parse(text).map_err(|_| wrong("which is not a URL"))?;
    let inside = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => AddressKind::of(IpAddr::V4(address)) != AddressKind::Public,
        Some(Host::Ipv6(address)) => AddressKind::of(IpAddr::V6(address)) != AddressKind::Public,
        None => false,
    };
    if url.scheme() == "https" || url.scheme() == "http" && inside {
        Ok(url)
    } else {
        Err(wrong("which is not `https`"))
    }
}

/// What others say, in a message.
pub(crate) fn shown(text: &str) -> String {
    format!("`{}`", harness_artifact::third_party::line(text))
}

impl Asker {
    /// Whether a browser may be sent there: where the grant lets the host itself go.
    ///
    /// # Errors
    ///
    /// Why it may not.
    pub(crate) fn may_open(&self, url: &Url) -> Result<(), Failure> {
        let target = Target::of(url).map_err(|why| Failure::Broken(format!("{}: {why}", shown(url.as_str()))))?;
        self.grant.decide_target(&target.by(Method::Get)).map_err(Into::into)
    }

    /// A document; none where there is none.
    pub(crate) async fn get(&self, url: &Url) -> Result<Option<Json>, Failure> {
        let (status, json) = self.send(Method::Get, url, Vec::new(), Vec::new(), None).await?;
        Ok((status == 200).then_some(json).filter(Json::is_object))
    }

    /// Sends JSON.
    pub(crate) async fn json(&self, url: &Url, body: &Json) -> Result<(u16, Json), Failure> {
        let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        self.send(Method::Post, url, headers, Vec::new(), Some(body.to_string().into_bytes())).await
    }

    /// Sends a form, with a name and a password where the client has those.
    pub(crate) async fn form(
        &self,
        url: &Url,
        fields: &[(&str, &str)],
        basic: Option<(&str, &str)>,
    ) -> Result<(u16, Json), Failure> {
        let coded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let sealed = basic.map(|(id, secret)| {
            let value = STANDARD.encode(format!("{}:{}", coded(id), coded(secret)));
            ("authorization".to_owned(), format!("Basic {value}"))
        });
        let form = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish().into_bytes();
        let headers = vec![("content-type".to_owned(), "application/x-www-form-urlencoded".to_owned())];
        self.send(Method::Post, url, headers, sealed.into_iter().collect(), Some(form)).await
    }

    async fn send(
        &self,
        method: Method,
        url: &Url,
        mut headers: Vec<(String, String)>,
        sealed: Vec<(String, String)>,
        body: Option<Vec<u8>>,
    ) -> Result<(u16, Json), Failure> {
        headers.push(("accept".to_owned(), "application/json".to_owned()));
        let request = OwnRequest { method, url, headers, sealed, body, anywhere: false };
        let asking = async {
            let mut answer = self.http.open(&self.grant, &self.vault, request).await?;
            let status = answer.status();
            let body = answer.whole(MAX_BYTES).await?;
            Ok::<_, harness_capability::http::Error>((status, serde_json::from_slice(&body).unwrap_or_default()))
        };
        let late =
            || Failure::Broken(format!("{} did not answer within {} seconds", shown(url.as_str()), TIME.as_secs()));
        match tokio::time::timeout(TIME, asking).await {
            Ok(asked) => asked.map_err(crate::remote::failure),
            Err(_) => Err(late()),
        }
    }
}
