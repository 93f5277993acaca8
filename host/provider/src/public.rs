//! Names that lead to public addresses, and no other: for services that others than the operator name.

use std::net::SocketAddr;

use harness_policy::network::address::AddressKind;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// The machine's resolver, with its public answers alone. A name with another one has none at all: where it leads must not
/// depend on which of them is tried.
#[derive(Debug, Clone, Copy)]
pub struct OnlyPublic;

impl Resolve for OnlyPublic {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            match found.iter().all(|address| is_public(*address)) {
                true => Ok(Box::new(found.into_iter()) as Addrs),
                false => Err("its name leads to an address that is not public".into()),
            }
        })
    }
}

fn is_public(address: SocketAddr) -> bool {
    AddressKind::of(address.ip()) == AddressKind::Public
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_of_the_machine_leads_nowhere() {
        let answer = OnlyPublic.resolve("localhost".parse().unwrap()).await;
        let why = answer.err().map(|error| error.to_string());
        assert_eq!(why.as_deref(), Some("its name leads to an address that is not public"));
        assert!(is_public(([8, 8, 8, 8], 443).into()));
    }
}
