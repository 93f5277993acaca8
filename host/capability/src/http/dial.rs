//! Connections that are not requests of a script: those of commands.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use harness_policy::grant::Grant;
use harness_policy::network::Target;
use tokio::net::TcpStream;

use super::lookup::{self, Names, Share};
use super::{Client, Connector, Error, answer};

/// Longest time for a connection to be made.
const MAX_WAIT: Duration = Duration::from_millis(30_000);

/// Makes connections for the commands of one project. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Dialer {
    connector: Arc<Connector>,
    names: Names,
    lookups: Share,
}

impl Client {
    /// One with the names and the share of lookups of this client; none where it never touches the network.
    pub(crate) fn dialer(&self) -> Option<Dialer> {
        let Self { connector, names, lookups, canned, .. } = self;
        let dialer = || Dialer { connector: connector.clone(), names: names.clone(), lookups: lookups.clone() };
        canned.is_none().then(dialer)
    }
}

impl Dialer {
    /// Connects to a host, if commands may: decides its name, looks it up once, and decides each address that it leads to.
    ///
    /// # Errors
    ///
    /// What the grant refuses; a name that is not found; no connection.
    pub(crate) async fn connect(&self, grant: &Grant, target: &Target) -> Result<TcpStream, Error> {
        grant.decide_command_host(target)?;
        let connecting = async {
            let places = (&self.connector.lookups, &self.lookups);
            let decide = |address| grant.decide_command_address(target, address);
            let addresses: Vec<SocketAddr> = lookup::decided((&self.names, places), target, decide).await?;
            let stream = TcpStream::connect(&addresses[..]).await.map_err(failure)?;
            // What is relayed was put into packets before.
            stream.set_nodelay(true).map_err(failure)?;
            Ok(stream)
        };
        let millis = u64::try_from(MAX_WAIT.as_millis()).unwrap_or(u64::MAX);
        tokio::time::timeout(MAX_WAIT, connecting).await.unwrap_or(Err(Error::Timeout(millis)))
    }
}

fn failure(error: io::Error) -> Error {
    Error::Connection(answer::no_connection(&error))
}
