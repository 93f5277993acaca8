//! What a request would reach, taken from the URL that is then also used.

use std::fmt;

use url::{Host, Url};

/// Where a URL leads, and what is done there. Two URLs are of one origin exactly where their targets, asked with one
/// method, are equal.
///
/// The host is what the `url` crate made of it: names in lower case and punycode, every spelling of an IPv4 address as
/// that address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    scheme: Scheme,
    host: Host<String>,
    port: u16,
    method: Method,
}

/// A method that can be asked with (RFC 9110, section 9, and RFC 5789).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the words of the standard")]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
    Options,
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 7] = [Self::Get, Self::Head, Self::Post, Self::Put, Self::Patch, Self::Delete, Self::Options];

    /// As a request and a rule have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
            Self::Options => "OPTIONS",
        }
    }

    /// The one of this name, in upper case.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name() == name)
    }
}

/// A scheme that can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// In the clear; port 80 where the URL names none.
    Http,
    /// With TLS; port 443 where the URL names none.
    Https,
}

impl Scheme {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Http, Self::Https];

    /// As a URL and a rule have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The one of this name, in lower case.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scheme| scheme.name() == name)
    }
}

/// Why a URL leads nowhere that could be asked, whatever the policy says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoTarget {
    /// Another scheme than `http` and `https`. Carries it.
    Scheme(String),
    /// There is a user name or a password in it.
    Credentials,
    /// No host, or a name that cannot be one. Carries what is wrong with it.
    Host(String),
}

impl fmt::Display for NoTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheme(scheme) => write!(f, "the scheme `{scheme}` is neither `http` nor `https`"),
            Self::Credentials => f.write_str("a URL must not hold a user name or password"),
            Self::Host(why) => f.write_str(why),
        }
    }
}

impl Target {
    /// The target of a URL, asked with GET.
    pub fn of(url: &Url) -> Result<Self, NoTarget> {
        let scheme = Scheme::of(url.scheme()).ok_or_else(|| NoTarget::Scheme(shown(url.scheme())))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(NoTarget::Credentials);
        }
        let host = url.host().ok_or_else(|| NoTarget::Host("the URL names no host".to_owned()))?;
        let host = normal(host.to_owned()).map_err(NoTarget::Host)?;
        let port = url.port().unwrap_or(match scheme {
            Scheme::Http => 80,
            Scheme::Https => 443,
        });
        Ok(Self { scheme, host, port, method: Method::Get })
    }

    /// The same, asked with this method.
    #[must_use]
    pub fn by(self, method: Method) -> Self {
        Self { method, ..self }
    }

    /// The method.
    pub fn method(&self) -> Method {
        self.method
    }

    /// The scheme.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The host, without the dot that a full name may end in.
    pub fn host(&self) -> &Host<String> {
        &self.host
    }

    /// The port, the scheme's own where the URL names none.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether a rule that names no port covers this one: 80 and 443.
    pub fn has_usual_port(&self) -> bool {
        matches!(self.port, 80 | 443)
    }
}

/// As a rule would name it: the host, and the port where a rule needs to name it.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.has_usual_port() { write!(f, "{}", self.host) } else { write!(f, "{}:{}", self.host, self.port) }
    }
}

/// The one form of a host that rules and requests are compared in. A name ends without its dot, has at most 253 bytes
/// and labels of 1 to 63 (RFC 1035) from letters, digits, `-` (not first or last) and `_`.
pub(super) fn normal(host: Host<String>) -> Result<Host<String>, String> {
    let Host::Domain(name) = host else { return Ok(host) };
    let name = name.strip_suffix('.').unwrap_or(&name);
    if name.len() > 253 {
        return Err("the host's name is over 253 bytes".to_owned());
    }
    for label in name.split('.') {
        let fits = (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-');
        if !fits || !label.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_')) {
            return Err(format!("`{}` is not the name of a host", shown(name)));
        }
    }
    Ok(Host::Domain(name.to_owned()))
}

/// Text from outside on one line: at most 100 characters, without control characters or backticks.
pub fn shown(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().take(100) {
        match c {
            '`' => out.push('\''),
            '\'' | '"' | '\\' => out.push(c),
            c => out.extend(c.escape_debug()),
        }
    }
    if text.chars().nth(100).is_some() {
        out.push('…');
    }
    out
}
