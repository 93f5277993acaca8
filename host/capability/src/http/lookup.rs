//! From a name to the addresses that may be connected to.
//!
//! A name is looked up once for each hop, here, and the connector gets that answer and no other: a name that changes
//! its mind between check and use changes nothing.

use std::fmt;
use std::future::{Future, ready};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Semaphore;
use url::{Host, Url};

use super::Error;
use harness_policy::grant::Grant;
use harness_policy::network::Target;
use harness_policy::refusal::Refusal;

/// More addresses than any name needs.
const MAX_ADDRESSES: usize = 32;

/// Lookups of a host at one time. The system's own takes a thread of the runtime for each, and a name's owner decides how
/// long it takes; the runtime has 512 such threads, which commands and files need too.
const OF_A_HOST: usize = 64;

/// Those of one client: a lookup that nobody waits for any more continues, and who leaves many of them behind must not
/// take the place of others.
const OF_A_CLIENT: usize = 8;

/// The lookups of a host.
#[derive(Debug, Clone)]
pub(super) struct Lookups(Arc<Semaphore>);

impl Default for Lookups {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(OF_A_HOST)))
    }
}

/// The lookups of one client.
#[derive(Debug, Clone)]
pub(super) struct Share(Arc<Semaphore>);

impl Default for Share {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(OF_A_CLIENT)))
    }
}

impl Share {
    /// Does something that is not broken off when this is dropped, when there is room for it. None where it panics.
    async fn take<T: Send + 'static>(
        self,
        of_host: Lookups,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let own = self.0.acquire_owned().await.ok()?;
        let of_all = of_host.0.acquire_owned().await.ok()?;
        // A task of its own, which holds the places for as long as it really takes.
        let task = tokio::spawn(async move {
            let done = work.await;
            drop((own, of_all));
            done
        });
        task.await.ok()
    }
}

tokio::task_local! {
    /// What the connector may connect to in the request that this task is sending.
    static VETTED: Vetted;
}

/// From a name to its addresses.
type LookUp = dyn Fn(&str) -> Vec<IpAddr> + Send + Sync;

/// Who knows names.
#[derive(Clone, Default)]
pub(crate) enum Names {
    /// The system.
    #[default]
    System,
    /// This function.
    Given(Arc<LookUp>),
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::System => "System",
            Self::Given(_) => "Given",
        })
    }
}

/// The quotas that a lookup counts for: that of the host and that of the client.
pub(super) type Places<'a> = (&'a Lookups, &'a Share);

impl Names {
    /// The addresses of a name; none where there is no answer.
    async fn look_up(&self, (host, share): Places<'_>, name: String, port: u16) -> Vec<SocketAddr> {
        match self {
            Self::System => {
                let found = share.clone().take(host.clone(), tokio::net::lookup_host((name, port))).await;
                found.and_then(Result::ok).map_or_else(Vec::new, |found| found.take(MAX_ADDRESSES).collect())
            }
            Self::Given(names) => {
                names(&name).into_iter().take(MAX_ADDRESSES).map(|address| (address, port).into()).collect()
            }
        }
    }
}

/// A name and the addresses that the grant allows for it.
#[derive(Debug, Clone)]
pub(super) struct Vetted {
    /// As the URL spells it, which is how the connector asks for it.
    name: String,
    addresses: Vec<SocketAddr>,
}

impl Vetted {
    /// What may be connected to.
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().map(SocketAddr::ip)
    }

    /// Runs a request that may connect to these addresses.
    pub(super) async fn scope<T>(self, request: impl Future<Output = T>) -> T {
        VETTED.scope(self, request).await
    }
}

/// Looks up the name of a target and decides each address. One address that is refused refuses the name: what is
/// allowed should not depend on the order of the answers.
pub(super) async fn vetted(
    asked: (&Names, Places<'_>),
    grant: &Grant,
    target: &Target,
    url: &Url,
) -> Result<Vetted, Error> {
    let addresses = decided(asked, target, |address| grant.decide_address(target, address)).await?;
    Ok(match target.host() {
        Host::Domain(_) => Vetted { name: url.host_str().unwrap_or_default().to_owned(), addresses },
        // The connector does not ask for an address, so that there is nothing to hand out.
        Host::Ipv4(_) | Host::Ipv6(_) => Vetted { name: String::new(), addresses: Vec::new() },
    })
}

/// The addresses of a target, each of which may be connected to.
pub(super) async fn decided(
    (names, places): (&Names, Places<'_>),
    target: &Target,
    decide: impl Fn(IpAddr) -> Result<(), Refusal>,
) -> Result<Vec<SocketAddr>, Error> {
    let port = target.port();
    let addresses = match target.host() {
        Host::Ipv4(ip) => vec![(*ip, port).into()],
        Host::Ipv6(ip) => vec![(*ip, port).into()],
        Host::Domain(name) => names.look_up(places, name.clone(), port).await,
    };
    if addresses.is_empty() {
        return Err(Error::Connection(format!("the name `{}` was not found", target.host())));
    }
    addresses.iter().try_for_each(|address| decide(address.ip()))?;
    Ok(addresses)
}

/// A resolver that only knows the name of the request at hand. It fails closed: outside of [`Vetted::scope`], and for
/// any other name, there are no addresses.
#[derive(Debug)]
pub(super) struct OnlyVetted;

impl Resolve for OnlyVetted {
    fn resolve(&self, name: Name) -> Resolving {
        let vetted = VETTED.try_with(Clone::clone).ok().filter(|vetted| vetted.name == name.as_str());
        Box::pin(ready(match vetted {
            Some(vetted) => Ok(Box::new(vetted.addresses.into_iter()) as Addrs),
            None => Err("no address was allowed for this name".into()),
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn resolved(name: &str) -> Option<Vec<SocketAddr>> {
        OnlyVetted.resolve(name.parse().unwrap()).await.ok().map(Iterator::collect)
    }

    /// Lookups that their callers have given up keep their places. They are the client's own, and others have theirs.
    #[tokio::test(start_paused = true)]
    async fn who_leaves_lookups_behind_waits_and_nobody_else_does() {
        let (host, greedy, other) = (Lookups::default(), Share::default(), Share::default());
        let waited = async |share: &Share, work: Duration| {
            tokio::time::timeout(Duration::from_millis(1), share.clone().take(host.clone(), tokio::time::sleep(work)))
                .await
                .is_err()
        };
        for _ in 0..OF_A_CLIENT {
            assert!(waited(&greedy, Duration::from_secs(30)).await);
        }
        assert!(waited(&greedy, Duration::ZERO).await, "it had all its places taken");
        assert!(!waited(&other, Duration::ZERO).await);
        tokio::time::sleep(Duration::from_secs(31)).await;
        assert!(!waited(&greedy, Duration::ZERO).await);
    }

    #[tokio::test]
    async fn a_name_has_so_many_addresses() {
        let names = Names::Given(Arc::new(|_| vec![IpAddr::from([192, 0, 2, 1]); MAX_ADDRESSES + 1]));
        let found = names.look_up((&Lookups::default(), &Share::default()), "a.test".to_owned(), 80).await;
        assert_eq!(found, vec![SocketAddr::from(([192, 0, 2, 1], 80)); MAX_ADDRESSES]);
    }

    #[tokio::test]
    async fn the_resolver_hands_out_what_was_vetted_for_the_name_and_nothing_else() {
        let addresses: Vec<SocketAddr> = vec!["192.0.2.1:80".parse().unwrap()];
        let vetted = Vetted { name: "a.test".to_owned(), addresses: addresses.clone() };
        assert_eq!(vetted.clone().scope(resolved("a.test")).await, Some(addresses));
        assert_eq!(vetted.scope(resolved("b.test")).await, None);
        assert_eq!(resolved("a.test").await, None);
    }
}
