//! The network of a command that is granted some hosts.
//!
//! The command is in a network of its own that leads nowhere. The host listens in it: at an address for each name that a rule
//! spells out, which the command finds by that name, and at one address as a proxy, which programs learn from variables such
//! as `HTTPS_PROXY`. For each connection the host decides the name, looks it up, decides the addresses, and connects on. So a
//! program that ignores proxies works, and one that knows addresses of its own reaches none.

mod proxy;

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use harness_policy::command::CommandReach;
use harness_policy::grant::Grant;
use harness_policy::network::Target;
use harness_wall::LocalNetwork;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use url::Host;

use crate::http::{Dialer, Error, Place};
use crate::outbound::Counted;

/// The proxy of a command's own network.
const PROXY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(127, 8, 0, 1), 3128);

/// Where the addresses of names begin.
const FIRST: u32 = u32::from_be_bytes([127, 8, 1, 1]);

/// Ports of names that a policy spells out; beyond, programs have the proxy.
const MAX_LISTENERS: usize = 64;

/// Connections of one command at one time.
const MAX_CONNECTIONS: usize = 64;

/// Bytes that are relayed in one piece.
const PIECE: usize = 64 << 10;

/// Refusals that are kept for a note.
const MAX_REFUSED: usize = 4;

/// Variables by which programs find a proxy.
const VARIABLES: [&str; 6] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];

/// The network of one command, before it starts.
#[derive(Debug)]
pub(super) struct Egress {
    grant: Arc<Grant>,
    local: LocalNetwork,
    /// Where each address of it leads, after the proxy, which is the first.
    targets: Vec<Target>,
}

impl Egress {
    /// That of a command; none where it is not granted some hosts.
    pub(super) fn of(grant: &Grant) -> Option<Self> {
        if grant.exec_network() != CommandReach::Hosts || grant.exec_unconfined() {
            return None;
        }
        let mut local = LocalNetwork { listen: vec![PROXY], names: Vec::new() };
        let mut targets = Vec::new();
        let mut addresses: BTreeMap<String, Ipv4Addr> = BTreeMap::new();
        for target in grant.command_hosts() {
            if targets.len() == MAX_LISTENERS {
                break;
            }
            let address = match target.host() {
                Host::Ipv4(address) if address.is_loopback() => *address,
                // No address in this network leads there, but the proxy does.
                Host::Ipv4(_) | Host::Ipv6(_) => continue,
                // What every program takes it for.
                Host::Domain(name) if name == "localhost" => Ipv4Addr::LOCALHOST,
                Host::Domain(name) => {
                    let next = FIRST.saturating_add(u32::try_from(addresses.len()).unwrap_or(0));
                    *addresses.entry(name.clone()).or_insert_with(|| Ipv4Addr::from_bits(next))
                }
            };
            let at = SocketAddrV4::new(address, target.port());
            // Two that programs take for one.
            if !local.listen.contains(&at) {
                local.listen.push(at);
                targets.push(target);
            }
        }
        local.names = addresses.into_iter().collect();
        Some(Self { grant: Arc::new(grant.clone()), local, targets })
    }

    /// What the kernel gives the command.
    pub(super) fn network(&self) -> &LocalNetwork {
        &self.local
    }

    /// The variables by which programs find the proxy.
    pub(super) fn variables() -> impl Iterator<Item = (String, String)> {
        let proxies = VARIABLES.map(|name| (name, format!("http://{PROXY}")));
        // Node asks for the variables only where it is said to.
        let more =
            [("NO_PROXY", "localhost,127.0.0.1"), ("no_proxy", "localhost,127.0.0.1"), ("NODE_USE_ENV_PROXY", "1")];
        let more = more.map(|(name, value)| (name, value.to_owned()));
        proxies.into_iter().chain(more).map(|(name, value)| (name.to_owned(), value))
    }

    /// Connects on what the command connects to, until this is dropped. In a runtime with I/O.
    ///
    /// # Errors
    ///
    /// Where the runtime cannot take the sockets.
    pub(super) fn serve(self, listeners: Vec<OwnedFd>, dialer: Option<Dialer>) -> io::Result<Served> {
        let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let relay = Arc::new(Relay { grant: self.grant, dialer, connections, refused: Mutex::default() });
        let targets = std::iter::once(None).chain(self.targets.into_iter().map(Some));
        let mut tasks = JoinSet::new();
        for (listener, target) in listeners.into_iter().zip(targets) {
            let listener = TcpListener::from_std(std::net::TcpListener::from(listener))?;
            tasks.spawn(accept(listener, target, relay.clone()));
        }
        Ok(Served { relay, _tasks: tasks })
    }
}

/// The network of a command that runs. Dropping it ends all connections.
#[derive(Debug)]
pub(super) struct Served {
    relay: Arc<Relay>,
    _tasks: JoinSet<()>,
}

impl Served {
    /// What was refused, a line each.
    pub(super) fn refused(&self) -> Vec<String> {
        self.relay.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What all connections of a command share.
#[derive(Debug)]
struct Relay {
    grant: Arc<Grant>,
    dialer: Option<Dialer>,
    connections: Arc<Semaphore>,
    refused: Mutex<Vec<String>>,
}

impl Relay {
    fn dialer(&self) -> Result<&Dialer, String> {
        self.dialer.as_ref().ok_or_else(|| "there is no network here".to_owned())
    }

    /// A place for one more connection: among those of the command, of its project and of the host.
    fn place(&self) -> Result<(OwnedSemaphorePermit, Place), String> {
        let own = self.connections.clone().try_acquire_owned();
        let own =
            own.map_err(|_| format!("the command had {MAX_CONNECTIONS} connections at one time, which are all"))?;
        Ok((own, self.dialer()?.place()?))
    }

    async fn connect(&self, target: &Target) -> Result<Counted<TcpStream>, Error> {
        let dialer = self.dialer().map_err(Error::Connection)?;
        let connected = dialer.connect(&self.grant, target).await;
        if let Err(Error::AccessDenied(denial)) = &connected {
            self.refuse(denial.to_string());
        }
        connected
    }

    /// Keeps a line for the note after the command.
    fn refuse(&self, line: String) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() < MAX_REFUSED && !refused.contains(&line) {
            refused.push(line);
        }
    }
}

/// Takes the connections at one address, each in a task that ends with this.
async fn accept(listener: TcpListener, target: Option<Target>, relay: Arc<Relay>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else {
                    // The host has no more descriptors, for a moment. Not again at once.
                    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                    continue;
                };
                // One too many is closed at once.
                let place = match relay.place() {
                    Ok(place) => place,
                    Err(why) => {
                        relay.refuse(why);
                        continue;
                    }
                };
                let (target, relay) = (target.clone(), relay.clone());
                connections.spawn(async move {
                    let _ = stream.set_nodelay(true);
                    match target {
                        Some(target) => direct(stream, &target, &relay).await,
                        None => proxy::serve(stream, relay).await,
                    }
                    drop(place);
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// A connection that the command made by a name. It is broken off where the host may not or cannot connect.
async fn direct(mut stream: TcpStream, target: &Target, relay: &Relay) {
    if let Ok(mut onward) = relay.connect(target).await {
        join(&mut stream, &mut onward).await;
    }
}

/// Carries both ways until both sides have ended.
async fn join(one: &mut (impl AsyncRead + AsyncWrite + Unpin), other: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    let _ = tokio::io::copy_bidirectional_with_sizes(one, other, PIECE, PIECE).await;
}

#[cfg(test)]
mod tests {
    use harness_policy::command::{CommandNetwork, ExecRules};
    use harness_policy::layer::{Layer, Origin, Scope};
    use harness_policy::network::HostRule;

    use super::*;

    fn grant(hosts: &[String]) -> Grant {
        let network = CommandNetwork::hosts(hosts.iter().map(|host| HostRule::parse(host).unwrap()).collect()).unwrap();
        let exec = Some(ExecRules { network, ..ExecRules::default() });
        Grant::new(vec![Layer { exec, ..Layer::silent(Origin::new("harness.md", Scope::Project)) }])
    }

    #[test]
    fn each_name_has_an_address_and_each_port_a_listener() {
        let hosts =
            ["b.example", "a.example:8443", "localhost:9", "127.0.0.9:9", "10.0.0.1", "[::1]:9", "*.example.org"];
        let egress = Egress::of(&grant(&hosts.map(str::to_owned))).unwrap();
        let listen: Vec<String> = egress.local.listen.iter().map(ToString::to_string).collect();
        // Without an address of their own: what the proxy alone leads to.
        assert_eq!(
            listen,
            ["127.8.0.1:3128", "127.8.1.1:443", "127.8.1.1:80", "127.8.1.2:8443", "127.0.0.1:9", "127.0.0.9:9"]
        );
        let named = |name: &str, last: u8| (name.to_owned(), Ipv4Addr::new(127, 8, 1, last));
        assert_eq!(egress.local.names, [named("a.example", 2), named("b.example", 1)]);
        let targets: Vec<String> = egress.targets.iter().map(|to| format!("{}:{}", to.host(), to.port())).collect();
        assert_eq!(targets, ["b.example:443", "b.example:80", "a.example:8443", "localhost:9", "127.0.0.9:9"]);
        assert!(Egress::of(&grant(&[])).is_none());
    }

    #[test]
    fn there_are_no_more_listeners_than_so_many() {
        let hosts = |count: usize| (0..count).map(|n| format!("h{n}.example:443")).collect::<Vec<_>>();
        for count in [MAX_LISTENERS, MAX_LISTENERS + 1] {
            let egress = Egress::of(&grant(&hosts(count))).unwrap();
            assert_eq!((egress.local.listen.len(), egress.targets.len()), (MAX_LISTENERS + 1, MAX_LISTENERS));
        }
    }
}
