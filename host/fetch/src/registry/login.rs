//! How a registry knows who asks: anybody with a token for one repository, or a user with a password.

use harness_artifact::third_party;
use harness_capability::http::own::OwnRequest;
use harness_capability::secrets::Vault;
use harness_policy::grant::Grant;
use harness_policy::network::{Method, Target};
use serde::Deserialize;
use url::Url;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{MAX_ANSWER, expect, failure};
use crate::{Credentials, Failure, FetchContext};

/// Bytes of a token.
const MAX_TOKEN: usize = 16 << 10;

/// What a registry is shown.
pub(super) struct Login<'a> {
    name: &'a str,
    actions: &'static str,
    /// The value of the header.
    authorization: Option<String>,
}

/// A challenge of a registry.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Challenge {
    /// A token of a service, with what is asked of it.
    Bearer { realm: String, service: Option<String> },
    /// A user and a password.
    Basic,
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl<'a> Login<'a> {
    /// No login yet, for what is done with a repository of this name.
    pub(super) fn new(name: &'a str, actions: &'static str) -> Self {
        Self { name, actions, authorization: None }
    }

    pub(super) fn headers(&self) -> Vec<(String, String)> {
        self.authorization.iter().map(|value| ("authorization".to_owned(), value.clone())).collect()
    }

    /// Does what a registry asks for, once. Whether that was possible.
    pub(super) async fn renew(
        &mut self,
        challenges: &[String],
        registry: &Url,
        (grant, place): (&Grant, FetchContext<'_>),
    ) -> Result<bool, Failure> {
        let Some(challenge) = challenges.iter().find_map(|challenge| Challenge::parse(challenge)) else {
            return Ok(false);
        };
        if self.authorization.is_some() {
            return Ok(false);
        }
        let (realm, service) = match challenge {
            Challenge::Basic => {
                self.authorization = place.credentials.map(|known| known.for_url(registry)).transpose()?;
                return Ok(self.authorization.is_some());
            }
            Challenge::Bearer { realm, service } => (realm, service),
        };
        let shown = third_party::line(&realm);
        let odd = || Failure::new(format!("the registry sends to `{shown}` for a token, which is no address"));
        let mut url = Url::parse(&realm).map_err(|_| odd())?;
        let is_own = url.origin() == registry.origin();
        if !is_own && url.scheme() != "https" || !url.username().is_empty() || url.password().is_some() {
            return Err(odd());
        }
        {
            let mut query = url.query_pairs_mut();
            if let Some(service) = &service {
                query.append_pair("service", service);
            }
            query.append_pair("scope", &format!("repository:{}:{}", self.name, self.actions));
        }
        // For another host the credentials are only where the operator says so.
        let sealed = match place.credentials {
            Some(known) if is_own || known.is_for(&url) => vec![("authorization".to_owned(), known.for_url(&url)?)],
            _ => Vec::new(),
        };
        let request =
            OwnRequest { method: Method::Get, url: &url, headers: Vec::new(), sealed, body: None, anywhere: false };
        let vault = Vault::default();
        let mut answer = place.http.open(grant, &vault, request).await.map_err(|error| failure(&error))?;
        expect(&mut answer, 200, "the request for a token").await?;
        let text = answer.whole(MAX_ANSWER).await.map_err(|error| failure(&error))?;
        let token: Token = serde_json::from_slice(&text).map_err(|_| Failure::new("the registry gives no token"))?;
        let token = token.token.or(token.access_token).filter(|token| is_token(token));
        self.authorization = token.map(|token| format!("Bearer {token}"));
        self.authorization.as_ref().map(|_| true).ok_or_else(|| Failure::new("the registry gives no token"))
    }
}

fn is_token(token: &str) -> bool {
    (1..=MAX_TOKEN).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic())
}

impl Credentials {
    /// Whether the secret may be sent to a host.
    fn is_for(&self, url: &Url) -> bool {
        Target::of(url).is_ok_and(|target| self.hosts.iter().any(|rule| rule.covers(&target)))
    }

    /// The header for a host.
    ///
    /// # Errors
    ///
    /// The secret may not be sent there.
    fn for_url(&self, url: &Url) -> Result<String, Failure> {
        if !self.is_for(url) {
            let host = url.host_str().unwrap_or_default();
            return Err(Failure {
                why: format!("the secret `{}` may not be sent to `{}`", self.name, third_party::line(host)),
                hint: Some(format!("add the host to `sandbox.secrets.{}.hosts`", self.name)),
            });
        }
        Ok(format!("Basic {}", STANDARD.encode(&self.value)))
    }
}

impl Challenge {
    /// One challenge; none of a kind that is not known, or without a realm.
    fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        if kind.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !kind.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let value = |wanted: &str| {
            let (mut rest, mut found) = (rest, None);
            while let Some((name, after)) = rest.split_once("=\"") {
                let (value, after) = after.split_once('"')?;
                if name.trim_start_matches([',', ' ']).eq_ignore_ascii_case(wanted) {
                    found.get_or_insert(value.to_owned());
                }
                rest = after;
            }
            found
        };
        Some(Self::Bearer { realm: value("realm")?, service: value("service") })
    }
}

#[cfg(test)]
mod tests {
    use harness_policy::network::HostRule;

    use super::*;

    #[test]
    fn challenges() {
        let bearer = |realm: &str, service: Option<&str>| {
            Some(Challenge::Bearer { realm: realm.to_owned(), service: service.map(str::to_owned) })
        };
        for (text, challenge) in [
            (
                r#"Bearer realm="https://a.example/token",service="a.example""#,
                bearer("https://a.example/token", Some("a.example")),
            ),
            (r#"bearer service="s", realm="r", scope="x,y""#, bearer("r", Some("s"))),
            (r#"Bearer realm="r",realm="other""#, bearer("r", None)),
            (r#"Bearer service="s""#, None),
            (r#"Bearer realm="r"#, None),
            ("Bearer", None),
            ("Negotiate x", None),
            (r#"Basic realm="x""#, Some(Challenge::Basic)),
            ("", None),
        ] {
            assert_eq!(Challenge::parse(text), challenge, "{text}");
        }
        assert!(
            is_token("abc.def-_=") && !is_token("") && !is_token("a b") && !is_token("a\r\nb") && !is_token("\u{e4}")
        );
    }

    #[test]
    fn credentials_are_for_their_hosts() {
        let hosts = vec![HostRule::parse("a.example").unwrap()];
        let known = Credentials { name: "R".to_owned(), value: "ada:secret".to_owned(), hosts };
        let of = |url: &str| known.for_url(&Url::parse(url).unwrap());
        assert_eq!(of("https://a.example/x").as_deref(), Ok("Basic YWRhOnNlY3JldA=="));
        let refused = of("https://b.example/x").unwrap_err();
        assert_eq!(refused.why, "the secret `R` may not be sent to `b.example`");
        assert_eq!(refused.hint.as_deref(), Some("add the host to `sandbox.secrets.R.hosts`"));
    }
}
