//! Who issues tokens for a server: its own description (RFC 9728), and that of the authorization server (RFC 8414, OpenID
//! Connect Discovery).

use serde_json::Value as Json;
use url::Url;

use super::asker::{Asker, safe, shown};
use super::challenge::{self, Challenge};
use crate::failure::Failure;

/// What a server says of its authorization.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    /// How it names itself.
    pub(crate) name: String,
    /// Its authorization servers.
    pub(crate) issuers: Vec<String>,
    pub(crate) scopes: Vec<String>,
    /// Whether it describes itself. Older servers are their own authorization servers.
    pub(crate) is_described: bool,
}

/// What an authorization server says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Issuer {
    pub(crate) name: String,
    pub(crate) authorization: Url,
    pub(crate) token: Url,
    pub(crate) registration: Option<Url>,
    /// How clients may show who they are.
    pub(crate) methods: Vec<String>,
    pub(crate) scopes: Vec<String>,
    pub(crate) reads_documents: bool,
    /// Whether it names itself in each answer.
    pub(crate) names_itself: bool,
}

const RESOURCE: &str = "/.well-known/oauth-protected-resource";
const ISSUER: &str = "/.well-known/oauth-authorization-server";
const OPENID: &str = "/.well-known/openid-configuration";

/// Asks a server who issues its tokens.
pub(crate) async fn resource(asker: &Asker, server: &Url, challenge: &Challenge) -> Result<Resource, Failure> {
    let places = match &challenge.resource_metadata {
        Some(place) => vec![safe(place, "the description of the server's authorization")?],
        None => resource_places(server),
    };
    for place in &places {
        if let Some(found) = asker.get(place).await? {
            return described(server, &found);
        }
    }
    if challenge.resource_metadata.is_some() {
        return Err(Failure::Broken("the description of the server's authorization is not there".to_owned()));
    }
    let origin = server.origin().ascii_serialization();
    Ok(Resource { name: canonical(server), issuers: vec![origin], scopes: Vec::new(), is_described: false })
}

/// Where the description of a server may be, in order.
fn resource_places(server: &Url) -> Vec<Url> {
    let path = server.path().trim_end_matches('/');
    let mut places = vec![format!("{RESOURCE}{path}"), RESOURCE.to_owned()];
    places.dedup();
    places.iter().filter_map(|place| at(server, place)).collect()
}

fn at(url: &Url, path: &str) -> Option<Url> {
    let mut place = url.join("/").ok()?;
    place.set_path(path);
    Some(place)
}

/// How a server is named where it does not name itself.
fn canonical(server: &Url) -> String {
    let text = server.as_str();
    if server.path() == "/" && server.query().is_none() {
        text.trim_end_matches('/').to_owned()
    } else {
        text.to_owned()
    }
}

fn described(server: &Url, found: &Json) -> Result<Resource, Failure> {
    let name = found.get("resource").and_then(Json::as_str).unwrap_or_default();
    let is_own = Url::parse(name).is_ok_and(|named| {
        let (outer, inner) = (named.path().trim_end_matches('/'), server.path());
        let is_within = inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        named.origin() == server.origin() && is_within
    });
    if !is_own {
        let what = format!("the server says that tokens for it are for {}, which is another one", shown(name));
        return Err(Failure::Broken(what));
    }
    let issuers = texts(found, "authorization_servers");
    if issuers.is_empty() {
        return Err(Failure::Broken("the server names no authorization server".to_owned()));
    }
    let scopes = texts(found, "scopes_supported");
    Ok(Resource { name: name.to_owned(), issuers, scopes: challenge::scopes(&scopes.join(" ")), is_described: true })
}

fn texts(of: &Json, key: &str) -> Vec<String> {
    let list = of.get(key).and_then(Json::as_array).into_iter().flatten();
    list.filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

/// Asks an authorization server what it is.
pub(crate) async fn issuer(asker: &Asker, name: &str, is_described: bool) -> Result<Issuer, Failure> {
    let url = safe(name, "the authorization server")?;
    for place in issuer_places(&url) {
        if let Some(found) = asker.get(&place).await? {
            return trusted(name, is_described, &found);
        }
    }
    Err(Failure::Broken(format!("the authorization server {} does not describe itself", shown(name))))
}

/// Where the description of an authorization server may be, in order.
fn issuer_places(issuer: &Url) -> Vec<Url> {
    let path = issuer.path().trim_end_matches('/');
    let mut places = vec![format!("{ISSUER}{path}"), format!("{OPENID}{path}"), format!("{path}{OPENID}")];
    places.dedup();
    places.iter().filter_map(|place| at(issuer, place)).collect()
}

fn trusted(name: &str, is_described: bool, found: &Json) -> Result<Issuer, Failure> {
    let text = |key: &str| found.get(key).and_then(Json::as_str);
    let says = text("issuer").unwrap_or_default();
    // One that was not named but guessed may end in a slash.
    if says != name && (is_described || says.strip_suffix('/') != Some(name)) {
        let what = format!("the authorization server {} says that it is {}", shown(name), shown(says));
        return Err(Failure::Broken(what));
    }
    if !texts(found, "code_challenge_methods_supported").iter().any(|method| method == "S256") {
        let what = format!("the authorization server {} does not support PKCE with S256", shown(name));
        return Err(Failure::Broken(what));
    }
    let endpoint = |key: &str| -> Result<Option<Url>, Failure> {
        let what = format!("the `{key}` of the authorization server");
        text(key).map(|endpoint| safe(endpoint, &what)).transpose()
    };
    let needed = |key: &str| -> Result<Url, Failure> {
        let none = || Failure::Broken(format!("the authorization server {} has no `{key}`", shown(name)));
        endpoint(key)?.ok_or_else(none)
    };
    let is = |key: &str| found.get(key) == Some(&Json::Bool(true));
    Ok(Issuer {
        name: says.to_owned(),
        authorization: needed("authorization_endpoint")?,
        token: needed("token_endpoint")?,
        registration: endpoint("registration_endpoint")?,
        methods: texts(found, "token_endpoint_auth_methods_supported"),
        scopes: texts(found, "scopes_supported"),
        reads_documents: is("client_id_metadata_document_supported"),
        names_itself: is("authorization_response_iss_parameter_supported"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    fn shown(places: &[Url]) -> Vec<&str> {
        places.iter().map(Url::as_str).collect()
    }

    #[test]
    fn descriptions_are_looked_for_in_order() {
        assert_eq!(
            shown(&resource_places(&url("https://a.example/x/mcp?y"))),
            [
                "https://a.example/.well-known/oauth-protected-resource/x/mcp",
                "https://a.example/.well-known/oauth-protected-resource"
            ]
        );
        let root = ["https://a.example/.well-known/oauth-protected-resource"];
        assert_eq!(shown(&resource_places(&url("https://a.example"))), root);
        assert_eq!(
            shown(&issuer_places(&url("https://a.example/t"))),
            [
                "https://a.example/.well-known/oauth-authorization-server/t",
                "https://a.example/.well-known/openid-configuration/t",
                "https://a.example/t/.well-known/openid-configuration"
            ]
        );
        assert_eq!(
            shown(&issuer_places(&url("https://a.example/"))),
            [
                "https://a.example/.well-known/oauth-authorization-server",
                "https://a.example/.well-known/openid-configuration"
            ]
        );
    }

    #[test]
    fn tokens_are_for_the_server_and_no_other() {
        let server = url("https://a.example/x/mcp");
        let of = |resource: &str| {
            described(&server, &json!({"resource": resource, "authorization_servers": ["https://b.example"]}))
        };
        for own in ["https://a.example/x/mcp", "https://A.example/x/", "https://a.example", "https://a.example:443/x"] {
            assert_eq!(of(own).map(|found| found.name), Ok(own.to_owned()));
        }
        for other in [
            "https://b.example/x/mcp",
            "http://a.example/x/mcp",
            "https://a.example/x/m",
            "https://a.example/x/mcp/y",
            "",
            "x",
        ] {
            let what = format!("the server says that tokens for it are for `{other}`, which is another one");
            assert_eq!(of(other), Err(Failure::Broken(what)));
        }
        let none = described(&server, &json!({"resource": "https://a.example"}));
        assert_eq!(none, Err(Failure::Broken("the server names no authorization server".to_owned())));
    }

    #[test]
    fn an_authorization_server_is_who_it_says() {
        let whole = json!({
            "issuer": "https://b.example", "authorization_endpoint": "https://b.example/a",
            "token_endpoint": "https://b.example/t", "code_challenge_methods_supported": ["plain", "S256"],
        });
        assert!(trusted("https://b.example", true, &whole).is_ok());
        let with = |key: &str, value: Json| {
            let mut changed = whole.clone();
            changed[key] = value;
            trusted("https://b.example", true, &changed).unwrap_err().to_string()
        };
        for (key, value, why) in [
            (
                "issuer",
                json!("https://b.example/"),
                "the authorization server `https://b.example` says that it is `https://b.example/`",
            ),
            (
                "issuer",
                json!("https://c.example"),
                "the authorization server `https://b.example` says that it is `https://c.example`",
            ),
            ("issuer", Json::Null, "the authorization server `https://b.example` says that it is ``"),
            (
                "code_challenge_methods_supported",
                json!(["plain"]),
                "the authorization server `https://b.example` does not support PKCE with S256",
            ),
            (
                "code_challenge_methods_supported",
                Json::Null,
                "the authorization server `https://b.example` does not support PKCE with S256",
            ),
            (
                "token_endpoint",
                json!("http://b.example/t"),
                "the `token_endpoint` of the authorization server is `http://b.example/t`, which is not `https`",
            ),
            ("token_endpoint", Json::Null, "the authorization server `https://b.example` has no `token_endpoint`"),
        ] {
            assert_eq!(with(key, value), why);
        }
        let mut slash = whole.clone();
        slash["issuer"] = json!("https://b.example/");
        assert!(trusted("https://b.example", false, &slash).is_ok());
    }
}
