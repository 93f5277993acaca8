//! What commands reach of the network.
//!
//! What a command sends is its own matter: the host sees neither methods nor schemes. So a rule here names hosts and ports
//! alone. It is decided for each connection, first by the name and then by each address that the name led to.

use std::net::IpAddr;

use url::{Host, Url};

use crate::grant::Grant;
use crate::item;
use crate::layer::Origin;
use crate::network::address::AddressKind;
use crate::network::{HostRule, NoTarget, Target};
use crate::refusal::Refusal;
use crate::watch::Request;

use super::ExecRules;

/// The key that it is about.
const KEY: &str = "exec.network";

/// What a layer says of the network of commands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CommandNetwork {
    /// Nothing of it is reached.
    #[default]
    None,
    /// Connections to these hosts, which the host makes.
    Hosts(Vec<HostRule>),
    /// All that the machine reaches, its own services too.
    All,
}

impl CommandNetwork {
    /// Connections to these hosts.
    ///
    /// # Errors
    ///
    /// A rule for some methods or one scheme, which cannot be enforced.
    pub fn hosts(rules: Vec<HostRule>) -> Result<Self, String> {
        if let Some(rule) = rules.iter().find(|rule| rule.is_only_for_some()) {
            let host = rule.host();
            return Err(format!(
                "`methods` and `scheme` of `{host}` cannot be enforced: commands encrypt what they send"
            ));
        }
        Ok(if rules.is_empty() { Self::None } else { Self::Hosts(rules) })
    }

    /// Whether anything is reached.
    pub fn is_some(&self) -> bool {
        *self != Self::None
    }
}

/// What all layers together grant commands of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandReach {
    /// Nothing.
    None,
    /// What [`Grant::decide_command_host`] allows.
    Hosts,
    /// All of it.
    All,
}

impl Grant {
    /// What commands reach of the network: the least that any layer that speaks of commands says.
    pub fn exec_network(&self) -> CommandReach {
        if self.every_exec(|rules| rules.network == CommandNetwork::All) {
            CommandReach::All
        } else if self.every_exec(|rules| rules.network.is_some()) {
            CommandReach::Hosts
        } else {
            CommandReach::None
        }
    }

    /// Whether a command may connect to a host and port. To be called before the name is looked up.
    ///
    /// # Errors
    ///
    /// The layer that does not cover it.
    pub fn decide_command_host(&self, target: &Target) -> Result<(), Refusal> {
        self.every(
            |layer| layer.exec.as_ref(),
            |rules| covered(rules, |rule| rule.covers(target)),
            |origin| refused(target, format!("commands may not connect to `{target}`"), false, origin),
        )
    }

    /// Whether a command may connect to a host at this address, which its name led to. An address that is not public needs, in
    /// every layer, a rule for the name with `private: true`.
    ///
    /// # Errors
    ///
    /// The layer that does not cover it.
    pub fn decide_command_address(&self, target: &Target, address: IpAddr) -> Result<(), Refusal> {
        self.decide_command_host(target)?;
        self.every(
            |layer| layer.exec.as_ref(),
            |rules| covered(rules, |rule| rule.permits(target, address)),
            |origin| {
                if !matches!(target.host(), Host::Domain(_)) {
                    return Refusal::always(format!("the address `{target}` was asked and another would be reached"));
                }
                let kind = AddressKind::of(address).words();
                let reason =
                    format!("the host `{target}` leads to {kind} address, which needs a rule with `private: true`");
                refused(target, reason, true, origin)
            },
        )?;
        self.note(|| Request::CommandHost(target.clone(), address));
        Ok(())
    }

    /// The hosts that layers spell out and that all of them cover, each with a port: what a command reaches by its name alone.
    /// Names below another one, as `*.example.com` has them, are in no such list.
    pub fn command_hosts(&self) -> Vec<Target> {
        let rules = self.layers().iter().filter_map(|layer| layer.exec.as_ref());
        let rules = rules.filter_map(|rules| match &rules.network {
            CommandNetwork::Hosts(hosts) => Some(hosts),
            CommandNetwork::None | CommandNetwork::All => None,
        });
        let mut targets: Vec<Target> = Vec::new();
        for rule in rules.flatten() {
            let Some(host) = rule.literal() else { continue };
            let ports = rule.port().map_or_else(|| vec![443, 80], |port| vec![port]);
            for target in ports.into_iter().filter_map(|port| connection(&host, port).ok()) {
                if !targets.contains(&target) && self.decide_command_host(&target).is_ok() {
                    targets.push(target);
                }
            }
        }
        targets
    }
}

/// What a connection to a host leads to: a name, or an address as a URL has it.
///
/// # Errors
///
/// Where it is no host.
pub fn connection(host: &str, port: u16) -> Result<Target, NoTarget> {
    // A URL would go without the latter.
    if host.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(NoTarget::Host("this is not the name of a host".to_owned()));
    }
    // The scheme is not known, and no rule for commands asks for it.
    let url = Url::parse(&format!("http://{host}:{port}/")).map_err(|error| NoTarget::Host(error.to_string()))?;
    // Whatever else a URL can hold is no host.
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return Err(NoTarget::Host("this is not the name of a host".to_owned()));
    }
    Target::of(&url)
}

fn covered(rules: &ExecRules, by: impl Fn(&HostRule) -> bool) -> bool {
    match &rules.network {
        CommandNetwork::None => false,
        CommandNetwork::Hosts(hosts) => hosts.iter().any(by),
        CommandNetwork::All => true,
    }
}

fn refused(target: &Target, reason: String, private: bool, origin: &Origin) -> Refusal {
    Refusal::new(reason, origin.add(&item_for(target, private), KEY))
}

/// The rule that lets commands connect there and nowhere else, as an item of a YAML list.
pub fn item_for(target: &Target, private: bool) -> String {
    let host = item::scalar(&format!("{}:{}", target.host(), target.port()));
    if private && matches!(target.host(), Host::Domain(_)) {
        format!("{{ host: {host}, private: true }}")
    } else {
        host
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::{Layer, Scope};

    fn grant(layers: &[CommandNetwork]) -> Grant {
        let layer = |network: &CommandNetwork| Layer {
            exec: Some(ExecRules { network: network.clone(), ..ExecRules::default() }),
            ..Layer::silent(Origin::new("harness.md", Scope::Project))
        };
        Grant::new(layers.iter().map(layer).collect())
    }

    fn hosts(rules: &[&str]) -> CommandNetwork {
        CommandNetwork::hosts(rules.iter().map(|rule| HostRule::parse(rule).unwrap()).collect()).unwrap()
    }

    fn target(host: &str, port: u16) -> Target {
        connection(host, port).unwrap()
    }

    const PUBLIC: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(93, 184, 216, 34));
    const PRIVATE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    #[test]
    fn the_least_of_all_layers_applies() {
        use CommandNetwork::{All, None};
        let some = || hosts(&["example.com"]);
        let cases = [
            (vec![], CommandReach::None),
            (vec![None], CommandReach::None),
            (vec![All], CommandReach::All),
            (vec![some()], CommandReach::Hosts),
            (vec![All, some()], CommandReach::Hosts),
            (vec![some(), All], CommandReach::Hosts),
            (vec![All, None], CommandReach::None),
            (vec![some(), None], CommandReach::None),
            (vec![hosts(&[])], CommandReach::None),
        ];
        for (layers, reach) in cases {
            assert_eq!(grant(&layers).exec_network(), reach, "{layers:?}");
        }
    }

    #[test]
    fn a_connection_is_decided_by_host_port_and_address() {
        let grant = grant(&[hosts(&["example.com", "*.example.org:8443"]), CommandNetwork::All]);
        let allowed = [("example.com", 443), ("example.com", 80), ("a.example.org", 8443)];
        for (host, port) in allowed {
            assert_eq!(grant.decide_command_address(&target(host, port), PUBLIC), Ok(()), "{host}:{port}");
            assert!(grant.decide_command_address(&target(host, port), PRIVATE).is_err(), "{host}:{port}");
        }
        let refused = [("example.com", 22), ("a.example.com", 443), ("example.org", 8443), ("a.example.org", 443)];
        for (host, port) in refused {
            assert!(grant.decide_command_host(&target(host, port)).is_err(), "{host}:{port}");
        }
        let refusal = grant.decide_command_host(&target("other.example", 443)).unwrap_err();
        assert_eq!(refusal.reason, "commands may not connect to `other.example`");
        assert_eq!(refusal.hint, "add `\"other.example:443\"` to `sandbox.exec.network` in `harness.md`");
        let refusal = grant.decide_command_address(&target("example.com", 443), PRIVATE).unwrap_err();
        assert!(refusal.hint.contains("{ host: \"example.com:443\", private: true }"));
    }

    #[test]
    fn what_is_reached_by_name_is_what_all_layers_cover() {
        let rules = hosts(&["example.com", "api.example.org:8443", "*.example.net", "127.0.0.1:9000"]);
        let named = |layers: &[CommandNetwork]| -> Vec<String> {
            grant(layers).command_hosts().iter().map(|t| format!("{}:{}", t.host(), t.port())).collect()
        };
        let all = ["example.com:443", "example.com:80", "api.example.org:8443", "127.0.0.1:9000"];
        assert_eq!(named(std::slice::from_ref(&rules)), all);
        assert_eq!(named(&[rules.clone(), CommandNetwork::All]), all);
        // What one layer spells out and another one covers by a pattern.
        assert_eq!(
            named(&[rules.clone(), hosts(&["*.com", "a.example.net:443"])]),
            ["example.com:443", "example.com:80", "a.example.net:443"]
        );
        assert_eq!(named(&[rules, CommandNetwork::None]), [""; 0]);
    }

    #[test]
    fn what_cannot_be_enforced_is_no_rule() {
        let rule = HostRule::parse("example.com").unwrap().only(Some(Vec::new()), None);
        let why = CommandNetwork::hosts(vec![rule]).unwrap_err();
        assert_eq!(why, "`methods` and `scheme` of `example.com` cannot be enforced: commands encrypt what they send");
    }

    #[test]
    fn a_connection_has_a_host_and_nothing_else() {
        for host in ["", "a b", "a/b", "a@b", "a?b", "a#b", "a:b", "a\\b", "%2e", "[::1", "a..b", "-a", "a\nb"] {
            assert!(connection(host, 80).is_err(), "{host:?}");
        }
        assert_eq!(connection("EXAMPLE.com.", 80), connection("example.com", 80));
        assert_eq!(connection("0x7f.1", 80), connection("127.0.0.1", 80));
        assert!(connection("[::1]", 80).is_ok());
    }
}
