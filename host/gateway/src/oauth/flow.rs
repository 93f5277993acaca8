//! Tokens from an authorization server: what is asked, and what its answers say (OAuth 2.1, RFC 7636, RFC 8707, RFC 9207).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};
use url::Url;

use super::asker::{Asker, shown};
use super::discovery::Issuer;
use super::store::{Identity, Tokens};
use crate::failure::Failure;

/// Bytes of a token.
const MAX_TOKEN: usize = 16 << 10;

/// Seconds that a token counts as good at least: one that ends at once would be renewed before each request.
const LEAST: u64 = 60;

/// Ways in which a client may show who it is, the first that is known is taken.
const METHODS: [&str; 3] = ["none", "client_secret_basic", "client_secret_post"];

/// A text that nobody can guess.
pub(super) fn random() -> String {
    let mut bytes = [0; 32];
    harness_sys::fill_random(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// What is shown of a verifier before it is.
pub(super) fn code_challenge(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(verifier))
}

/// How a client with this password, or none, shows who it is.
pub(super) fn method(issuer: &Issuer, has_secret: bool) -> String {
    let with_secret = METHODS.iter().skip(1).copied().find(|method| issuer.methods.iter().any(|known| known == method));
    let method = if has_secret { with_secret.unwrap_or("client_secret_basic") } else { "none" };
    method.to_owned()
}

/// Registers a client (RFC 7591).
///
/// # Errors
///
/// Why it was not registered.
pub(super) async fn register(asker: &Asker, issuer: &Issuer, at: &Url, port: u16) -> Result<Identity, Failure> {
    let is_known = |method: &&&str| issuer.methods.iter().any(|known| known == **method);
    let method = METHODS.iter().find(is_known).copied().unwrap_or("none");
    let asked = json!({
        "client_name": "harness",
        "application_type": "native",
        "redirect_uris": [redirect(port)],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
    });
    let (status, answer) = asker.json(at, &asked).await?;
    let text = |key: &str| answer.get(key).and_then(Json::as_str).map(str::to_owned);
    let Some(id) = text("client_id").filter(|_| (200..300).contains(&status)) else {
        return Err(refused("register a client", status, &answer));
    };
    let secret = text("client_secret").filter(|secret| !secret.is_empty());
    let method = text("token_endpoint_auth_method").unwrap_or_else(|| match &secret {
        Some(_) => self::method(issuer, true),
        None => "none".to_owned(),
    });
    Ok(Identity { id, secret, method, port })
}

/// Where an authorization server sends the browser back to.
pub(super) fn redirect(port: u16) -> String {
    format!("http://127.0.0.1:{port}/callback")
}

/// Asks for tokens.
pub(super) async fn ask_for_token(
    asker: &Asker,
    endpoint: &Url,
    client: &Identity,
    fields: &[(&str, &str)],
) -> Result<(u16, Json), Failure> {
    let mut fields = fields.to_vec();
    let secret = client.secret.as_deref();
    let basic = secret.filter(|_| client.method == "client_secret_basic").map(|secret| (client.id.as_str(), secret));
    if basic.is_none() {
        fields.push(("client_id", client.id.as_str()));
    }
    if let (Some(secret), "client_secret_post") = (secret, client.method.as_str()) {
        fields.push(("client_secret", secret));
    }
    asker.form(endpoint, &fields, basic).await
}

/// Reads the answer of a token endpoint. What it does not say is as in `old`.
///
/// # Errors
///
/// That it is no token.
pub(super) fn read_tokens(status: u16, answer: &Json, old: &Tokens) -> Result<Tokens, Failure> {
    let text = |key: &str| answer.get(key).and_then(Json::as_str).map(str::to_owned);
    let is_token = |token: &String| {
        !token.is_empty() && token.len() <= MAX_TOKEN && token.bytes().all(|byte| (b'!'..=b'~').contains(&byte))
    };
    let is_bearer = text("token_type").is_some_and(|kind| kind.eq_ignore_ascii_case("bearer"));
    let access = text("access_token").filter(is_token).filter(|_| status == 200 && is_bearer);
    let Some(access) = access else { return Err(refused("issue a token", status, answer)) };
    let lasts = answer.get("expires_in").and_then(Json::as_u64);
    let expires = lasts.map(|seconds| harness_sys::since_epoch().as_secs().saturating_add(seconds.max(LEAST)));
    Ok(Tokens { access, refresh: text("refresh_token").filter(is_token), expires, ..old.clone() })
}

/// Whether an answer ends a login, rather than being a trouble that may pass (RFC 6749, section 5.2).
pub(super) fn is_over(answer: &Json) -> bool {
    let error = answer.get("error").and_then(Json::as_str);
    matches!(error, Some("invalid_grant" | "invalid_client" | "unauthorized_client"))
}

/// What an authorization server says when it does not do something.
fn refused(what: &str, status: u16, answer: &Json) -> Failure {
    let text = |key: &str| answer.get(key).and_then(Json::as_str).map(shown);
    let said: Vec<String> = ["error", "error_description"].into_iter().filter_map(text).collect();
    let said = if said.is_empty() { String::new() } else { format!(": {}", said.join(" ")) };
    Failure::Said(format!("the authorization server does not {what} (HTTP status {status}){said}"))
}

/// What came back by the browser.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Returned {
    pub(super) code: Option<String>,
    pub(super) state: Option<String>,
    pub(super) issuer: Option<String>,
    pub(super) error: Option<String>,
}

impl Returned {
    pub(super) fn read(query: &str) -> Self {
        let mut returned = Self::default();
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            let slot = match &*name {
                "code" => &mut returned.code,
                "state" => &mut returned.state,
                "iss" => &mut returned.issuer,
                "error" => &mut returned.error,
                _ => continue,
            };
            *slot = Some(value.into_owned());
        }
        returned
    }

    /// The code, if the authorization server that was asked has sent it.
    ///
    /// # Errors
    ///
    /// That another one has, or none. Nothing is shown then of what it says.
    pub(super) fn code(self, issuer: &Issuer) -> Result<String, Failure> {
        match &self.issuer {
            Some(says) if *says != issuer.name => {
                let what = format!("the answer is of {} and not of {}", shown(says), shown(&issuer.name));
                return Err(Failure::Broken(format!("{what}: it is not used")));
            }
            None if issuer.names_itself => {
                let what = format!("the answer does not say that it is of {}: it is not used", shown(&issuer.name));
                return Err(Failure::Broken(what));
            }
            _ => {}
        }
        if let Some(error) = self.error {
            return Err(Failure::Said(format!("the authorization server does not log in: {}", shown(&error))));
        }
        self.code.ok_or_else(|| Failure::Broken("the answer of the authorization server has no code".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issuer(names_itself: bool) -> Issuer {
        let url: Url = "https://b.example/x".parse().unwrap();
        Issuer {
            name: "https://b.example".to_owned(),
            authorization: url.clone(),
            token: url,
            registration: None,
            methods: Vec::new(),
            scopes: Vec::new(),
            reads_documents: false,
            names_itself,
        }
    }

    /// The example of RFC 7636.
    #[test]
    fn a_challenge_is_the_digest_of_its_verifier() {
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        assert_eq!(code_challenge(verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
        assert_ne!(random(), random());
        assert_eq!(random().len(), 43);
    }

    #[test]
    fn an_answer_is_of_the_server_that_was_asked() {
        let code = |query: &str, names_itself: bool| {
            Returned::read(query).code(&issuer(names_itself)).map_err(|failure| failure.to_string())
        };
        for names_itself in [true, false] {
            assert_eq!(code("code=c&iss=https%3A%2F%2Fb.example", names_itself), Ok("c".to_owned()));
            for other in ["https://b.example/", "https://B.example", "https://b.example:443", "https://c.example"] {
                let query = format!("error=access_denied&code=c&iss={other}");
                let why = format!("the answer is of `{other}` and not of `https://b.example`: it is not used");
                assert_eq!(code(&query, names_itself), Err(why));
            }
        }
        assert_eq!(code("code=c", false), Ok("c".to_owned()));
        let unnamed = "the answer does not say that it is of `https://b.example`: it is not used";
        assert_eq!(code("code=c", true), Err(unnamed.to_owned()));
        let denied = "the authorization server does not log in: `access_denied`";
        assert_eq!(code("error=access_denied", false), Err(denied.to_owned()));
        assert_eq!(code("", false), Err("the answer of the authorization server has no code".to_owned()));
    }

    #[test]
    fn tokens_are_read_as_they_are_sent() {
        let old = Tokens { refresh: Some("r".to_owned()), resource: "x".to_owned(), ..Tokens::default() };
        let read = |status: u16, answer: Json| {
            let read = read_tokens(status, &answer, &old).map_err(|failure| failure.to_string())?;
            Ok::<_, String>((read.access, read.refresh, read.expires, read.resource))
        };
        let whole = json!({"access_token": "a", "token_type": "bearer"});
        assert_eq!(read(200, whole), Ok(("a".to_owned(), None, None, "x".to_owned())));
        let why = "the authorization server does not issue a token (HTTP status 200)";
        for wrong in [
            json!({"access_token": "a"}),
            json!({"access_token": "a", "token_type": "mac"}),
            json!({"access_token": "", "token_type": "Bearer"}),
            json!({"access_token": "a\r\nX: y", "token_type": "Bearer"}),
            json!([]),
        ] {
            assert_eq!(read(200, wrong), Err(why.to_owned()));
        }
        let said = read(400, json!({"error": "invalid_grant", "error_description": "old\n\u{1b}[2J"}));
        assert!(
            said.unwrap_err()
                .starts_with("the authorization server does not issue a token (HTTP status 400): `invalid_grant` `old")
        );
    }

    #[test]
    fn a_client_shows_who_it_is_as_it_is_wanted() {
        let with = |methods: &[&str], has_secret: bool| {
            let methods = methods.iter().map(|&method| method.to_owned()).collect();
            method(&Issuer { methods, ..issuer(false) }, has_secret)
        };
        assert_eq!(with(&[], true), "client_secret_basic");
        assert_eq!(with(&["client_secret_post"], true), "client_secret_post");
        assert_eq!(with(&["client_secret_post", "client_secret_basic"], true), "client_secret_basic");
        assert_eq!(with(&["client_secret_basic"], false), "none");
    }
}
