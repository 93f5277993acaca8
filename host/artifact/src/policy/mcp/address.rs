//! The URL of a server over HTTP, and the headers that go with each request to it.

use std::net::IpAddr;

use url::{Host, Url};

use super::oauth::OAuth;
use super::template::VariableText;
use harness_policy::network::address::AddressKind;
use harness_policy::network::{HostRule, Method, Scheme, Target, shown};
use harness_policy::text::quoted;

/// Bytes of a URL.
const MAX_BYTES: usize = 2048;
/// Headers that the protocol and the connection have. All that begin with `mcp-` and `proxy-` are refused too.
const RESERVED: [&str; 15] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "host",
    "keep-alive",
    "last-event-id",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A server that is asked over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerUrl {
    /// Where each message is posted to.
    pub url: Url,
    /// Headers of each request, beside those of the protocol.
    pub headers: Vec<(String, VariableText)>,
    /// The login there. None: the server wants none.
    pub oauth: Option<OAuth>,
}

impl ServerUrl {
    /// Reads a URL, and makes the rule that grants its host, port and scheme.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub(super) fn parse(text: &str, is_private: bool) -> Result<(Url, HostRule), String> {
        if text.len() > MAX_BYTES {
            return Err(format!("the URL is over {MAX_BYTES} bytes"));
        }
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err("there is white space in the URL".to_owned());
        }
        let url = Url::parse(text).map_err(|error| format!("{} is not a URL: {error}", quoted(&shown(text))))?;
        let target = Target::of(&url).map_err(|why| why.to_string())?;
        if url.fragment().is_some() {
            return Err("a URL of a server has no fragment".to_owned());
        }
        let address = match target.host() {
            Host::Domain(_) => None,
            Host::Ipv4(address) => Some(IpAddr::V4(*address)),
            Host::Ipv6(address) => Some(IpAddr::V6(*address)),
        };
        let is_inside = address.is_some_and(|address| AddressKind::of(address) != AddressKind::Public);
        if target.scheme() == Scheme::Http && !is_private && !is_inside {
            let why =
                "`http` shows everything on the way: use `https`, or `private: true` for a host of your own network";
            return Err(why.to_owned());
        }
        let rule = HostRule::parse(&format!("{}:{}", target.host(), target.port()))?.private(is_private)?;
        let methods = vec![Method::Get, Method::Post, Method::Delete];
        Ok((url, rule.only(Some(methods), Some(target.scheme()))))
    }
}

/// Whether a policy may set a header of the requests to a server.
///
/// # Errors
///
/// Why not.
pub(super) fn header(name: &str, value: &VariableText) -> Result<(), String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if name.is_empty() || name.len() > 128 || !name.chars().all(is_name) {
        return Err(format!("{} is not the name of a header: letters, digits and `-`", quoted(name)));
    }
    let lower = name.to_ascii_lowercase();
    if RESERVED.contains(&&*lower) || lower.starts_with("mcp-") || lower.starts_with("proxy-") {
        return Err(format!("the header {} is set by the host", quoted(name)));
    }
    if value.to_string().chars().any(char::is_control) {
        return Err(format!("there is a control character in the value of the header {}", quoted(name)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_grants_its_own_host() {
        for (text, is_private, rule) in [
            ("https://mcp.example.com/mcp", false, "mcp.example.com:443 by GET or POST or DELETE over https"),
            ("https://mcp.example.com:8443", false, "mcp.example.com:8443 by GET or POST or DELETE over https"),
            ("https://MCP.example.com./x?y=1", false, "mcp.example.com:443 by GET or POST or DELETE over https"),
            ("http://127.0.0.1:8080/mcp", false, "127.0.0.1:8080 by GET or POST or DELETE over http"),
            ("http://[::1]:8080/mcp", false, "[::1]:8080 by GET or POST or DELETE over http"),
            ("http://10.1.2.3/mcp", false, "10.1.2.3:80 by GET or POST or DELETE over http"),
            ("http://localhost:8080/mcp", true, "localhost:8080 by GET or POST or DELETE over http"),
        ] {
            let (url, found) = ServerUrl::parse(text, is_private).unwrap();
            assert_eq!((url.as_str(), found.to_string()), (Url::parse(text).unwrap().as_str(), rule.to_owned()));
        }
    }

    #[test]
    fn what_no_server_is_asked_at() {
        let clear =
            "`http` shows everything on the way: use `https`, or `private: true` for a host of your own network";
        for (text, why) in [
            ("mcp.example.com", "`mcp.example.com` is not a URL: relative URL without a base"),
            ("ftp://mcp.example.com", "the scheme `ftp` is neither `http` nor `https`"),
            ("https://user@mcp.example.com/", "a URL must not hold a user name or password"),
            ("https://mcp.example.com/#x", "a URL of a server has no fragment"),
            ("https://mcp.example.com/a b", "there is white space in the URL"),
            ("http://mcp.example.com/mcp", clear),
            ("http://localhost/mcp", clear),
            ("http://192.0.2.1.example/mcp", clear),
            ("http://8.8.8.8/mcp", clear),
        ] {
            assert_eq!(ServerUrl::parse(text, false), Err(why.to_owned()), "{text}");
        }
        let long = format!("https://a.example/{}", "x".repeat(MAX_BYTES));
        assert_eq!(ServerUrl::parse(&long, false), Err("the URL is over 2048 bytes".to_owned()));
    }

    #[test]
    fn headers_of_the_protocol_are_the_hosts() {
        let value = |text: &str| VariableText::parse(text).unwrap();
        for name in ["Authorization", "X-Api-Key", "User-Agent"] {
            assert_eq!(header(name, &value("Bearer {secret:A}")), Ok(()));
        }
        for (name, why) in [
            ("Mcp-Method", "the header `Mcp-Method` is set by the host"),
            ("HOST", "the header `HOST` is set by the host"),
            ("Proxy-X", "the header `Proxy-X` is set by the host"),
            ("last-event-id", "the header `last-event-id` is set by the host"),
            ("X_Key", "`X_Key` is not the name of a header: letters, digits and `-`"),
            ("", "`` is not the name of a header: letters, digits and `-`"),
        ] {
            assert_eq!(header(name, &value("x")), Err(why.to_owned()));
        }
        let why = "there is a control character in the value of the header `A`";
        assert_eq!(header("A", &value("a\r\nb")), Err(why.to_owned()));
    }
}
