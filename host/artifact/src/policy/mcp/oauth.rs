//! `oauth` of a server at a URL: the login with `harness mcp login`.

use url::Url;

use crate::decode::{Decoder, Field};
use crate::keys::{self, Slot, Unknown, keys};
use crate::shape::{Name, Read, Schema, Shape};
use harness_policy::text::quoted;

/// Characters of a scope (RFC 6749, section 3.3).
const MAX_SCOPE: usize = 200;

/// The login at a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OAuth {
    /// A client that the operator has registered.
    pub client: Option<Registered>,
    /// The URL of a document that describes the client, for authorization servers that read such.
    pub client_metadata: Option<String>,
    /// Scopes to ask for, beside those that the server names.
    pub scopes: Vec<String>,
}

/// A client that is known to one authorization server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// The authorization server.
    pub issuer: String,
    /// The identifier of the client.
    pub id: String,
    /// The name of the secret with its password.
    pub secret: Option<String>,
}

keys! {
    /// The keys of `oauth`. An empty mapping is enough for most servers.
    OAuthKeys: Unknown::Refuse;
    /// The identifier of a client that you have registered at the authorization server. Default: one is registered.
    given client_id: Name;
    /// The name of the secret with its password.
    given client_secret: Name;
    /// The authorization server that knows this client, exactly as it names itself, such as `https://login.example.com`.
    given issuer: Name;
    /// The URL of a document that describes the client, for authorization servers that read such.
    given client_metadata: Name;
    /// Scopes to ask for, beside those that the server names.
    given scopes: Vec<String>;
}

impl Shape for OAuth {
    fn schema() -> Schema {
        keys::schema::<OAuthKeys<'_>>()
    }
}

impl Read for OAuth {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let keys: OAuthKeys<'_> = decoder.keys(field)?;
        let text = |decoder: &mut Decoder, slot: &Slot<'_, Name>| slot.read(decoder).map(|Name(text)| text);
        let (id, issuer) = (text(decoder, &keys.client_id), text(decoder, &keys.issuer));
        let secret = text(decoder, &keys.client_secret);
        let client = match (id, issuer) {
            (Some(id), Some(issuer)) => Some(Registered { issuer, id, secret }),
            (None, None) if secret.is_none() => None,
            _ => {
                let why = "`client_id` and `issuer` belong together, and `client_secret` to them";
                decoder.error(field, format!("{}: {why}", quoted(&field.path)));
                return None;
            }
        };
        let client_metadata = match keys.client_metadata.field() {
            None => None,
            Some(field) => Some(decoder.parse_one(field, document)?),
        };
        let scopes = keys.scopes.read(decoder).unwrap_or_default();
        if let Some(wrong) = scopes.iter().find(|scope| !is_scope(scope)) {
            decoder.error(field, format!("{}: {} is not a scope", quoted(&field.path), quoted(wrong)));
            return None;
        }
        Some(Self { client, client_metadata, scopes })
    }
}

/// Whether a text can be a scope.
pub fn is_scope(text: &str) -> bool {
    let fits = |byte: u8| matches!(byte, b'!' | b'#'..=b'[' | b']'..=b'~');
    !text.is_empty() && text.len() <= MAX_SCOPE && text.bytes().all(fits)
}

fn document(text: &str) -> Result<String, String> {
    let url = Url::parse(text).map_err(|error| format!("this is not a URL: {error}"))?;
    if url.scheme() == "https" && url.path() != "/" && url.fragment().is_none() {
        Ok(text.to_owned())
    } else {
        Err("the URL of a document has `https` and a path".to_owned())
    }
}
