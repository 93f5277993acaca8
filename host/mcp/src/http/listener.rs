//! Where clients connect to: loopback, other addresses with TLS, or a socket in the file system.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use harness_sys::digest::digest_of;
use harness_sys::socket::Socket;
use hyper::http::uri::Authority;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::{RootCertStore, ServerConfig, ServerConnection};

use super::guard::Names;

/// Which certificates clients show.
#[derive(Debug, Clone, Copy)]
pub struct Clients<'t> {
    /// The text of a PEM file with the certificates of authorities that theirs have to chain to.
    pub authorities: &'t str,
    /// Whether one without a certificate is let in. One with a wrong certificate never is.
    pub are_optional: bool,
}

/// The certificate that a client has shown: requests of its connection carry it, once it was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate(Arc<str>);

impl ClientCertificate {
    /// That of a connection, if there is one.
    pub(super) fn of(connection: &ServerConnection) -> Option<Self> {
        let first = connection.peer_certificates()?.first()?;
        let digest = digest_of(first);
        Some(Self(digest.strip_prefix("sha256:").unwrap_or(&digest).into()))
    }

    /// Its SHA-256 fingerprint: that of the whole certificate as DER, in 64 lower-case hexadecimal digits.
    pub fn fingerprint(&self) -> &str {
        &self.0
    }
}

/// What a server is to its clients: a certificate, and the key to it.
#[derive(Clone)]
pub struct Identity(TlsAcceptor);

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity")
    }
}

impl Identity {
    /// An identity from the texts of two PEM files: the certificate with those between it and its authority, and the
    /// private key.
    ///
    /// # Errors
    ///
    /// That one of them cannot be read, or that they do not belong together.
    pub fn of_pem(certificate: &str, key: &str) -> Result<Self, String> {
        Self::new(certificate, key, None)
    }

    /// The same for clients that show certificates of their own.
    ///
    /// # Errors
    ///
    /// As for [`of_pem`](Self::of_pem), and that no authority can be read.
    pub fn with_clients(certificate: &str, key: &str, clients: Clients<'_>) -> Result<Self, String> {
        Self::new(certificate, key, Some(clients))
    }

    fn new(certificate: &str, key: &str, clients: Option<Clients<'_>>) -> Result<Self, String> {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|error| format!("the certificate cannot be read: {error}"))?;
        if chain.is_empty() {
            return Err("there is no certificate in the file".to_owned());
        }
        // No detail: it may be of the key.
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| "the private key cannot be read")?;
        let builder = match clients {
            Some(clients) => ServerConfig::builder().with_client_cert_verifier(verifier(clients)?),
            None => ServerConfig::builder().with_no_client_auth(),
        };
        let config = builder.with_single_cert(chain, key);
        let mut config = config.map_err(|error| format!("the certificate and the key cannot be used: {error}"))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        if clients.is_some() {
            // Each connection shows its certificate anew: one that has expired meanwhile is not taken from an earlier session.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    pub(super) fn into_acceptor(self) -> TlsAcceptor {
        self.0
    }
}

/// Verifies certificates of clients.
fn verifier(clients: Clients<'_>) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(clients.authorities.as_bytes()) {
        let authority =
            authority.map_err(|error| format!("the certificates of authorities cannot be read: {error}"))?;
        roots.add(authority).map_err(|error| format!("a certificate of an authority cannot be used: {error}"))?;
    }
    if roots.is_empty() {
        return Err("there is no certificate of an authority in the file".to_owned());
    }
    let builder = WebPkiClientVerifier::builder(Arc::new(roots));
    let builder = if clients.are_optional { builder.allow_unauthenticated() } else { builder };
    builder.build().map_err(|error| format!("certificates of clients cannot be verified: {error}"))
}

/// Where clients connect to.
#[derive(Debug)]
pub struct Listener {
    pub(super) socket: Listening,
}

#[derive(Debug)]
pub(super) enum Listening {
    Tcp { listener: TcpListener, address: SocketAddr, identity: Option<Identity> },
    Local { listener: UnixListener, socket: Socket },
}

impl Listener {
    /// Listens at a loopback address.
    ///
    /// # Errors
    ///
    /// What the system says; `InvalidInput` for another address, where what is sent would be open to others.
    pub fn loopback(address: SocketAddr) -> io::Result<Self> {
        if !address.ip().is_loopback() {
            return Err(not_loopback());
        }
        Self::tcp(address, None)
    }

    /// Listens at any address of the machine without TLS: what is in front of it has that.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn behind_proxy(address: SocketAddr) -> io::Result<Self> {
        Self::tcp(address, None)
    }

    /// Listens at any address of the machine, with TLS.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn tls(address: SocketAddr, identity: Identity) -> io::Result<Self> {
        Self::tcp(address, Some(identity))
    }

    /// A socket that listens already, with TLS or without.
    ///
    /// # Errors
    ///
    /// What the system says; `InvalidInput` for an address that is not of the loopback interface, without TLS and without a
    /// proxy in front of it that has it.
    pub fn given(listener: TcpListener, identity: Option<Identity>, is_behind_proxy: bool) -> io::Result<Self> {
        if identity.is_none() && !is_behind_proxy && !listener.local_addr()?.ip().is_loopback() {
            return Err(not_loopback());
        }
        Self::of(listener, identity)
    }

    fn tcp(address: SocketAddr, identity: Option<Identity>) -> io::Result<Self> {
        Self::of(TcpListener::bind(address)?, identity)
    }

    fn of(listener: TcpListener, identity: Option<Identity>) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { socket: Listening::Tcp { listener, address, identity } })
    }

    /// Names under which clients reach it, with `more`.
    pub fn names(&self, more: Vec<Authority>) -> Names {
        match &self.socket {
            Listening::Tcp { address, .. } => Names::Of { address: *address, more },
            Listening::Local { .. } => Names::Any,
        }
    }

    /// The address that it listens at, if it is one of the network.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Listening::Tcp { address, .. } => Some(*address),
            Listening::Local { .. } => None,
        }
    }

    /// Listens at a socket in the file system, for programs of the same user. [`serve`](super::serve) removes it at its
    /// end. To be called before the process has other threads.
    ///
    /// # Errors
    ///
    /// As [`Socket::listen`].
    pub fn unix(path: &Path) -> io::Result<Self> {
        let (socket, listener) = Socket::listen(path)?;
        listener.set_nonblocking(true)?;
        Ok(Self { socket: Listening::Local { listener, socket } })
    }
}

fn not_loopback() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is not a loopback address")
}

/// What clients are given: an URL, or the path of the socket.
impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.socket {
            Listening::Tcp { address, identity: None, .. } => write!(f, "http://{address}{}", super::PATH),
            Listening::Tcp { address, identity: Some(_), .. } => write!(f, "https://{address}{}", super::PATH),
            Listening::Local { socket, .. } => write!(f, "{}", socket.path().display()),
        }
    }
}
