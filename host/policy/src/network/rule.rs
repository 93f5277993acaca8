//! One rule about hosts, as an operator writes it.

use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU16;

use url::Host;

use super::address::AddressKind;
use crate::item;

use super::target::{Method, Scheme, Target, normal, shown};

/// A host or hosts that may be reached: `example.com`, `*.example.com`, `*`, `127.0.0.1:8080`, `[::1]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRule {
    hosts: Hosts,
    /// Without one: 80 and 443.
    port: Option<NonZeroU16>,
    /// Whether a name may also lead to an address that is not public.
    private: bool,
    /// Without a list: all. An empty one: none.
    methods: Option<Vec<Method>>,
    /// Without one: both.
    scheme: Option<Scheme>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Hosts {
    /// Any name that leads to public addresses.
    Any,
    /// This name and no other.
    Name(String),
    /// The names that end in a dot and this one.
    Below(String),
    /// This address, of whatever kind, written as an address.
    Address(IpAddr),
}

impl HostRule {
    /// Reads a rule. The host goes through the parser that reads the URLs of requests, so that case, punycode and a
    /// final dot make no difference. An error says in one line what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("`{}` is not a host: {why}", shown(text));
        if text.is_empty() {
            return Err(wrong("it is empty"));
        }
        // Far more than 253 bytes can be in other scripts, and far less than would take long to convert.
        if text.len() > 1024 {
            return Err(wrong("it is over 1,024 bytes"));
        }
        if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(wrong("there is white space in it"));
        }
        if text.contains("://") {
            return Err(wrong("leave out the scheme"));
        }
        if text.contains('@') {
            return Err(wrong("leave out the user name"));
        }
        if text.contains(['/', '\\', '?', '#']) {
            return Err(wrong("leave out the path"));
        }
        if text.contains('%') {
            return Err(wrong("`%` has no place in a host"));
        }
        let (host, port) = split_port(text).map_err(|why| wrong(&why))?;
        let hosts = Hosts::parse(host).map_err(|why| wrong(&why))?;
        Ok(Self { hosts, port, private: false, methods: None, scheme: None })
    }

    /// The rule that allows what was asked and nothing else, as an item of a YAML list. It names the port: a rule without
    /// one is for 80 and 443.
    pub fn item_for(target: &Target, private: bool) -> String {
        let host = item::scalar(&format!("{}:{}", target.host(), target.port()));
        let named = matches!(target.host(), Host::Domain(_));
        let private = if named && private { ", private: true" } else { "" };
        let (method, scheme) = (target.method().name(), target.scheme().name());
        format!("{{ host: {host}, methods: [{method}], scheme: {scheme}{private} }}")
    }

    /// The same rule with the given answer to whether a name may lead to an address that is not public. `*` stands for
    /// public hosts, so that it cannot be private.
    pub fn private(self, private: bool) -> Result<Self, String> {
        if private && self.hosts == Hosts::Any {
            return Err("`*` stands for public hosts: name the private ones".to_owned());
        }
        Ok(Self { private, ..self })
    }

    /// The same rule for these methods, where there is a list, and this scheme, where there is one.
    #[must_use]
    pub fn only(self, methods: Option<Vec<Method>>, scheme: Option<Scheme>) -> Self {
        Self { methods, scheme, ..self }
    }

    /// Whether it is only for some methods or for one scheme.
    pub fn is_only_for_some(&self) -> bool {
        self.methods.is_some() || self.scheme.is_some()
    }

    /// Whether it is for methods alone that change nothing on a server: GET, HEAD and OPTIONS.
    pub fn only_reads(&self) -> bool {
        let reads = |method: &Method| matches!(method, Method::Get | Method::Head | Method::Options);
        self.methods.as_ref().is_some_and(|methods| methods.iter().all(reads))
    }

    /// The host as the rule has it, without a port.
    pub fn host(&self) -> String {
        match &self.hosts {
            Hosts::Any => "*".to_owned(),
            Hosts::Below(name) => format!("*.{name}"),
            Hosts::Name(_) | Hosts::Address(_) => self.literal().unwrap_or_default(),
        }
    }

    /// The one host that it is about, as a URL has it.
    pub fn literal(&self) -> Option<String> {
        match &self.hosts {
            Hosts::Name(name) => Some(name.clone()),
            Hosts::Address(_) => self.address(),
            Hosts::Any | Hosts::Below(_) => None,
        }
    }

    /// The name that it is about, or below which it is.
    pub fn name(&self) -> Option<String> {
        match &self.hosts {
            Hosts::Name(name) | Hosts::Below(name) => Some(name.clone()),
            Hosts::Any | Hosts::Address(_) => None,
        }
    }

    /// The address that it is about, as a URL has it.
    pub fn address(&self) -> Option<String> {
        match &self.hosts {
            Hosts::Address(IpAddr::V4(address)) => Some(address.to_string()),
            Hosts::Address(IpAddr::V6(address)) => Some(format!("[{address}]")),
            Hosts::Any | Hosts::Name(_) | Hosts::Below(_) => None,
        }
    }

    /// The port that it names.
    pub fn port(&self) -> Option<u16> {
        self.port.map(NonZeroU16::get)
    }

    /// Whether this rule covers the target. What a name leads to is another question: `Self::permits`.
    pub fn covers(&self, target: &Target) -> bool {
        self.names(target)
            && self.methods.as_ref().is_none_or(|methods| methods.contains(&target.method()))
            && self.scheme.is_none_or(|scheme| scheme == target.scheme())
    }

    /// Whether it is about the target's host and port, with whatever method and scheme.
    pub(super) fn names(&self, target: &Target) -> bool {
        let host = match (&self.hosts, target.host()) {
            (Hosts::Any, Host::Domain(_)) => true,
            (Hosts::Name(rule), Host::Domain(name)) => rule == name,
            (Hosts::Below(rule), Host::Domain(name)) => name
                .strip_suffix(rule.as_str())
                .and_then(|rest| rest.strip_suffix('.'))
                .is_some_and(|rest| !rest.is_empty()),
            (Hosts::Address(rule), Host::Ipv4(address)) => *rule == IpAddr::V4(*address),
            (Hosts::Address(rule), Host::Ipv6(address)) => *rule == IpAddr::V6(*address),
            _ => false,
        };
        host && self.port.map_or_else(|| target.has_usual_port(), |port| port.get() == target.port())
    }

    /// Whether what it covers is inside by the operator's word: an address that is not public, or a name that may lead to
    /// one.
    pub fn stays_inside(&self) -> bool {
        match &self.hosts {
            Hosts::Address(address) => AddressKind::of(*address) != AddressKind::Public,
            Hosts::Any | Hosts::Name(_) | Hosts::Below(_) => self.private,
        }
    }

    /// Whether the target may be reached at this address.
    pub(crate) fn permits(&self, target: &Target, address: IpAddr) -> bool {
        self.covers(target)
            && match &self.hosts {
                Hosts::Address(rule) => *rule == address,
                _ => self.private || AddressKind::of(address) == AddressKind::Public,
            }
    }
}

/// As it would be written in a policy.
impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hosts {
            Hosts::Any => f.write_str("*")?,
            Hosts::Name(name) => f.write_str(name)?,
            Hosts::Below(name) => write!(f, "*.{name}")?,
            Hosts::Address(IpAddr::V4(address)) => write!(f, "{address}")?,
            Hosts::Address(IpAddr::V6(address)) => write!(f, "[{address}]")?,
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        if let Some(methods) = &self.methods {
            let names: Vec<&str> = methods.iter().map(|method| method.name()).collect();
            write!(f, " by {}", if names.is_empty() { "no method".to_owned() } else { names.join(" or ") })?;
        }
        self.scheme.map_or(Ok(()), |scheme| write!(f, " over {}", scheme.name()))
    }
}

impl Hosts {
    fn parse(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let (below, name) = text.strip_prefix("*.").map_or((false, text), |rest| (true, rest));
        if name.contains('*') {
            return Err("`*` stands alone or in front, as in `*.example.com`".to_owned());
        }
        let host = Host::parse(name).map_err(|error| error.to_string())?;
        match (normal(host)?, below) {
            (Host::Domain(name), false) => Ok(Self::Name(name)),
            (Host::Domain(name), true) => Ok(Self::Below(name)),
            (_, true) => Err("an address has no subdomains".to_owned()),
            // Nobody should have to know that `1234` and `0x7f.1` are addresses too.
            (Host::Ipv4(address), false) if address.to_string() != name.strip_suffix('.').unwrap_or(name) => {
                Err(format!("write it as `{address}`"))
            }
            (Host::Ipv4(address), false) => Ok(Self::Address(address.into())),
            (Host::Ipv6(address), false) => Ok(Self::Address(address.into())),
        }
    }
}

/// Takes a port off the end.
fn split_port(text: &str) -> Result<(&str, Option<NonZeroU16>), String> {
    let (host, port) = if text.starts_with('[') {
        let (inside, rest) = text.split_once(']').ok_or("the bracket is not closed")?;
        let host = text.get(..inside.len() + 1).unwrap_or(text);
        match rest.strip_prefix(':') {
            _ if rest.is_empty() => return Ok((host, None)),
            Some(port) => (host, port),
            None => return Err("after `]` comes a port or nothing".to_owned()),
        }
    } else {
        match text.split_once(':') {
            None => return Ok((text, None)),
            Some((_, rest)) if rest.contains(':') => return Err("an IPv6 address goes in brackets: `[::1]`".to_owned()),
            Some(parts) => parts,
        }
    };
    // `parse` alone would take `+80`.
    let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let port = port.parse().ok().filter(|_| digits).ok_or("a port is a number from 1 to 65535")?;
    Ok((host, Some(port)))
}
