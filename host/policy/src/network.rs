//! Hosts: what a script may reach.
//!
//! Two questions for each request and for each redirect. First, before anything is looked up: do the rules cover this
//! host and port, asked like this ([`Grant::decide_target`])? Then, for each address that the name led to: may it be reached there
//! ([`Grant::decide_address`])? Only addresses that passed the second may be connected to.

pub mod address;
mod rule;
mod target;

use std::net::{IpAddr, Ipv4Addr};

use url::Host;

use super::grant::Grant;
use super::layer::{Origin, Scope};
use super::refusal::Refusal;
use super::watch::Request;
use address::AddressKind;

pub use rule::HostRule;
pub use target::shown;
pub use target::{Method, NoTarget, Scheme, Target};

/// What a layer says of hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetworkRules {
    /// One of these must cover what is asked. Empty: nothing is allowed.
    pub allow: Vec<HostRule>,
}

impl Grant {
    /// Whether the host and port of a request may be asked at all, with this method and by this scheme. To be called
    /// before the name is looked up: a lookup shows the name's owner something.
    pub fn decide_target(&self, target: &Target) -> Result<(), Refusal> {
        // First only what is more often wrong, for a better message.
        self.every(
            |layer| layer.network.as_ref(),
            |rules| rules.allow.iter().any(|rule| rule.names(target)),
            |origin| not_covered(target, origin),
        )?;
        self.every(
            |layer| layer.network.as_ref(),
            |rules| rules.allow.iter().any(|rule| rule.covers(target)),
            |origin| not_like_this(target, origin),
        )
    }

    /// Whether the target may be reached at an address that its name was resolved to. An address that is not public
    /// needs, in every layer, a rule for the name with `private: true`. For a target that is itself an address: whether
    /// it is this one.
    pub fn decide_address(&self, target: &Target, address: IpAddr) -> Result<(), Refusal> {
        self.decide_target(target)?;
        self.every(
            |layer| layer.network.as_ref(),
            |rules| rules.allow.iter().any(|rule| rule.permits(target, address)),
            |origin| not_public(target, address, origin),
        )?;
        self.note(|| Request::Host(target.clone(), address));
        Ok(())
    }

    /// Notes a request for a host that a fake answers: its name leads to no address, and so the host counts as public.
    pub fn note_answered(&self, target: &Target) {
        let address = match target.host() {
            Host::Ipv4(address) => IpAddr::V4(*address),
            Host::Ipv6(address) => IpAddr::V6(*address),
            Host::Domain(_) => IpAddr::V4(Ipv4Addr::new(1, 1, 1, 1)),
        };
        self.note(|| Request::Host(target.clone(), address));
    }
}

fn not_covered(target: &Target, origin: &Origin) -> Refusal {
    Refusal::new(
        format!("the host `{target}` is not allowed"),
        origin.add(&HostRule::item_for(target, false), "network"),
    )
}

fn not_like_this(target: &Target, origin: &Origin) -> Refusal {
    let (method, scheme) = (target.method().name(), target.scheme().name());
    Refusal::new(
        format!("{method} over {scheme} is not allowed for the host `{target}`"),
        origin.add(&HostRule::item_for(target, false), "network"),
    )
}

/// Says what kind of address it is and not which: where names of the inner network lead is nobody's business.
fn not_public(target: &Target, address: IpAddr, origin: &Origin) -> Refusal {
    if !matches!(target.host(), Host::Domain(_)) {
        return Refusal::always(format!("the address `{target}` was asked and another would be reached"));
    }
    let kind = AddressKind::of(address).words();
    let hint = match &origin.scope {
        // It has one host, that of its URL, and no list.
        Scope::Server(name) => {
            format!("add `private: true` to `mcp.servers.{name}` in `{}`", origin.at(origin.places.own()))
        }
        _ => origin.add(&HostRule::item_for(target, true), "network"),
    };
    Refusal::new(format!("the host `{target}` leads to {kind} address, which needs a rule with `private: true`"), hint)
}

#[cfg(test)]
mod tests;
