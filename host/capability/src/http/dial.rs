//! Connections that are not requests of a script: those of commands.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use harness_policy::grant::Grant;
use harness_policy::network::Target;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::lookup::{self, Names, Share};
use super::{Client, Connector, Error, answer};
use crate::outbound::{Counted, Outbound};
use crate::resources::{MAX_CONNECTIONS, Resources};

/// Longest time for a connection to be made.
const MAX_WAIT: Duration = Duration::from_millis(30_000);

/// The connections of the commands of a host.
#[derive(Debug)]
pub(super) struct Dialed(Arc<Semaphore>);

impl Default for Dialed {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_CONNECTIONS as usize)))
    }
}

/// A place for a connection among those of its project and of its host, for as long as it lasts.
#[derive(Debug)]
pub(crate) struct Place {
    _of_project: OwnedSemaphorePermit,
    _of_host: OwnedSemaphorePermit,
}

/// Makes connections for the commands of one project. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Dialer {
    connector: Arc<Connector>,
    resources: Arc<Resources>,
    names: Names,
    lookups: Share,
    outbound: Outbound,
}

impl Client {
    /// One with the names and the share of lookups of this client; none where it never touches the network.
    pub(crate) fn dialer(&self) -> Option<Dialer> {
        let Self { connector, names, lookups, resources, outbound, canned } = self;
        canned.is_none().then(|| Dialer {
            connector: connector.clone(),
            resources: resources.clone(),
            names: names.clone(),
            lookups: lookups.clone(),
            outbound: outbound.clone(),
        })
    }
}

impl Dialer {
    /// A place for one more connection. To be taken before the connection is.
    ///
    /// # Errors
    ///
    /// Why there is none now, in one line.
    pub(crate) fn place(&self) -> Result<Place, String> {
        let of_project = self.resources.connection()?;
        let of_host = self.connector.dialed.0.clone().try_acquire_owned();
        let of_host = of_host
            .map_err(|_| format!("busy: the commands of the host have {MAX_CONNECTIONS} connections; retry later"))?;
        Ok(Place { _of_project: of_project, _of_host: of_host })
    }

    /// Connects to a host, if commands may: decides its name, looks it up once, and decides each address that it leads to.
    /// What is sent over the connection counts.
    ///
    /// # Errors
    ///
    /// What the grant refuses, or the meter; a name that is not found; no connection.
    pub(crate) async fn connect(&self, grant: &Grant, target: &Target) -> Result<Counted<TcpStream>, Error> {
        grant.decide_command_host(target)?;
        self.outbound.admit().await?;
        let connecting = async {
            let places = (&self.connector.lookups, &self.lookups);
            let decide = |address| grant.decide_command_address(target, address);
            let addresses: Vec<SocketAddr> = lookup::decided((&self.names, places), target, decide).await?;
            let stream = TcpStream::connect(&addresses[..]).await.map_err(failure)?;
            // What is relayed was put into packets before.
            stream.set_nodelay(true).map_err(failure)?;
            Ok(self.outbound.counted(stream))
        };
        let millis = u64::try_from(MAX_WAIT.as_millis()).unwrap_or(u64::MAX);
        tokio::time::timeout(MAX_WAIT, connecting).await.unwrap_or(Err(Error::Timeout(millis)))
    }
}

fn failure(error: io::Error) -> Error {
    Error::Connection(answer::no_connection(&error))
}
