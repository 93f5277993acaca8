//! Who may send requests: checked from the head of each request, before its body is read.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use harness_sys::digest::digest;
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN};
use hyper::http::request::Parts;
use hyper::http::uri::Authority;
use subtle::ConstantTimeEq as _;

/// Characters of a token, at least. A shorter one can be guessed.
pub const MIN_TOKEN: usize = 16;

/// What clients have to show.
#[derive(Clone)]
pub enum Access {
    /// This token, in `Authorization`.
    Token(Token),
    /// Nothing: every program that can connect may call tools.
    Open,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Token(_) => "Token",
            Self::Open => "Open",
        })
    }
}

/// A secret that clients know. Only its digest is kept.
#[derive(Clone)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// A token of at least [`MIN_TOKEN`] characters, each of which a header can hold: ASCII without spaces.
    pub fn new(text: &str) -> Option<Self> {
        let fits = text.len() >= MIN_TOKEN && text.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then(|| Self(digest(text)))
    }

    /// Compares digests, in a time that does not depend on where they differ.
    fn is(&self, shown: &str) -> bool {
        self.0.as_bytes().ct_eq(digest(shown).as_bytes()).into()
    }
}

/// Names under which clients reach the server.
#[derive(Debug, Clone)]
pub enum Names {
    /// Of a TCP address.
    Of {
        /// The address that it listens at.
        address: SocketAddr,
        /// Further names, with a port or for any.
        more: Vec<Authority>,
    },
    /// Any name: of a socket in the file system, where none leads, or of a server behind a proxy. A page in a browser is
    /// never of this server then.
    Any,
}

impl Names {
    /// Whether a request may name its server so. Anything else may be a name of somebody else that leads here.
    fn contain(&self, host: &Authority) -> bool {
        // A user's name before it belongs to no name.
        if host.as_str().contains('@') {
            return false;
        }
        let Self::Of { address, more } = self else { return true };
        let name = host.host().to_ascii_lowercase();
        let ip = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
        let is_own = match ip {
            Some(ip) => ip == address.ip() || (address.ip().is_loopback() && ip.is_loopback()),
            None => name == "localhost" && address.ip().is_loopback(),
        };
        let has_port = host.port_u16().is_none_or(|port| port == address.port());
        // Without a port, it is the one of the scheme.
        let is_here = has_port && (host.port_u16().is_some() || [80, 443].contains(&address.port()));
        let is_named = |named: &Authority| {
            named.host().eq_ignore_ascii_case(&name) && (named.port_u16().is_none() || named.port() == host.port())
        };
        (is_own && is_here) || more.iter().any(is_named)
    }
}

/// A request that is refused before its body is read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) status: StatusCode,
    pub(super) why: &'static str,
}

fn refused(status: StatusCode, why: &'static str) -> Refused {
    Refused { status, why }
}

/// Checks the head of a request.
pub(super) fn check(head: &Parts, names: &Names, access: &Access) -> Result<(), Refused> {
    check_host(head, names)?;
    if let Some(origin) = only(&head.headers, &ORIGIN)? {
        // A page of this server's own, which it does not have. All others are somebody else's.
        let own = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        let own = own.and_then(|authority| authority.parse().ok());
        let is_own = own.is_some_and(|authority| matches!(names, Names::Of { .. }) && names.contain(&authority));
        if !is_own {
            return Err(refused(StatusCode::FORBIDDEN, "`Origin` is not one of this server"));
        }
    }
    let Access::Token(token) = access else { return Ok(()) };
    let Some(shown) = only(&head.headers, &AUTHORIZATION)? else {
        return Err(refused(StatusCode::UNAUTHORIZED, "send the token as `Authorization: Bearer TOKEN`"));
    };
    let bearer = shown.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    match bearer {
        Some((_, shown)) if token.is(shown.trim()) => Ok(()),
        _ => Err(refused(StatusCode::UNAUTHORIZED, "the token is not the one of this server")),
    }
}

fn check_host(head: &Parts, names: &Names) -> Result<(), Refused> {
    let bad = || refused(StatusCode::BAD_REQUEST, "`Host` is missing or cannot be read");
    let host: Authority = only(&head.headers, &HOST)?.ok_or_else(bad)?.parse().map_err(|_| bad())?;
    let in_target = head.uri.authority();
    if ![Some(&host), in_target].into_iter().flatten().all(|host| names.contain(host)) {
        return Err(refused(StatusCode::FORBIDDEN, "`Host` is not a name of this server"));
    }
    Ok(())
}

/// The value of a header that may be there once.
pub(super) fn only<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Result<Option<&'h str>, Refused> {
    let bad = || refused(StatusCode::BAD_REQUEST, "a header is there twice, or is not text");
    let mut values = headers.get_all(name).iter();
    let (first, second) = (values.next(), values.next());
    if second.is_some() {
        return Err(bad());
    }
    first.map(|value| value.to_str().map_err(|_| bad())).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(address: &str, more: &[&str]) -> Names {
        Names::Of { address: address.parse().unwrap(), more: more.iter().map(|name| name.parse().unwrap()).collect() }
    }

    #[test]
    fn a_server_has_the_names_of_its_address_and_those_that_it_was_given() {
        let contains = |names: &Names, host: &str| names.contain(&host.parse().unwrap());
        let local = names("127.0.0.1:8787", &["box.example", "port.example:9000"]);
        for host in ["127.0.0.1:8787", "localhost:8787", "LOCALHOST:8787", "[::1]:8787", "Box.example", "box.example:1"]
        {
            assert!(contains(&local, host), "{host}");
        }
        assert!(contains(&local, "port.example:9000"));
        for host in ["evil.example", "evil.example:8787", "localhost", "localhost:80", "10.0.0.1:8787", "port.example"]
        {
            assert!(!contains(&local, host), "{host}");
        }
        assert!(!contains(&local, "evil.example@localhost:8787") && !contains(&Names::Any, "user@anything"));
        let open = names("10.1.2.3:443", &[]);
        assert!(contains(&open, "10.1.2.3") && contains(&open, "10.1.2.3:443"));
        assert!(!contains(&open, "localhost") && !contains(&open, "10.1.2.4"));
        // An address that stands for all of them is no name.
        assert!(!contains(&names("0.0.0.0:443", &[]), "10.1.2.3"));
        assert!(contains(&Names::Any, "anything"));
    }

    #[test]
    fn a_token_is_long_and_fits_into_a_header() {
        assert!(Token::new(&"x".repeat(15)).is_none());
        assert!(Token::new("a token with spaces in it").is_none());
        assert!(Token::new("").is_none());
        let token = Token::new(&"x".repeat(16)).unwrap();
        assert!(token.is(&"x".repeat(16)) && !token.is(&"x".repeat(17)) && !token.is(""));
    }
}
