//! One attempt: a request with a signature, and nothing of the answer but its status.

use std::sync::OnceLock;
use std::time::Duration;

use harness_provider::public::OnlyPublic;
use hyper::header::{CONTENT_TYPE, USER_AGENT};
use url::Url;

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long an attempt may take.
const WHOLE: Duration = Duration::from_secs(15);

/// Sends webhooks of all tenants. No connection is kept from one to another.
#[derive(Debug, Default)]
pub(super) struct Sender {
    public: OnceLock<Option<reqwest::Client>>,
    named: OnceLock<Option<reqwest::Client>>,
}

/// What is sent.
#[derive(Debug)]
pub(super) struct Message<'m> {
    pub(super) id: &'m str,
    /// Seconds since 1970.
    pub(super) at: u64,
    pub(super) signature: &'m str,
    pub(super) body: &'m str,
}

impl Sender {
    /// Sends it, and gives the status of the answer. `is_named`: the operator has named the receiver, which need not be at a
    /// public address.
    ///
    /// # Errors
    ///
    /// There is no answer, and why: in words that say nothing of what is inside of the server's network.
    pub(super) async fn send(&self, url: &Url, is_named: bool, message: &Message<'_>) -> Result<u16, &'static str> {
        let client = if is_named { &self.named } else { &self.public };
        let client = client.get_or_init(|| client_of(!is_named)).as_ref().ok_or("TLS cannot be set up")?;
        let request = client
            .post(url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, concat!("harness/", env!("CARGO_PKG_VERSION")))
            .header("webhook-id", message.id)
            .header("webhook-timestamp", message.at)
            .header("webhook-signature", message.signature)
            .body(message.body.to_owned());
        // The body of the answer is not read: it may have any length.
        let answer = request.send().await.map_err(|error| why(&error))?;
        Ok(answer.status().as_u16())
    }
}

fn why(error: &reqwest::Error) -> &'static str {
    if error.is_timeout() {
        return "there was no answer in time";
    }
    let mut source: Option<&dyn std::error::Error> = Some(error);
    while let Some(one) = source {
        if one.to_string().contains("not public") {
            return "its name leads to an address that is not public";
        }
        source = one.source();
    }
    if error.is_connect() { "no connection can be made" } else { "the connection was lost" }
}

fn client_of(is_public: bool) -> Option<reqwest::Client> {
    let builder = reqwest::Client::builder();
    let builder = if is_public { builder.dns_resolver(OnlyPublic) } else { builder };
    builder
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        // What is sent again, and when, is decided in one place.
        .retry(reqwest::retry::never())
        .referer(false)
        .pool_max_idle_per_host(0)
        .connect_timeout(CONNECT)
        .timeout(WHOLE)
        .build()
        .ok()
}
