//! What a service manager gives to a server, and what it hears of it: a socket that outlives the process
//! (`sd_listen_fds(3)`), and when the server is ready or ends (`sd_notify(3)`).

use std::io;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use harness_sys as sys;
use listenfd::ListenFd;

/// What a service manager gives to this process, and nothing without one.
#[derive(Debug)]
pub(super) struct Service {
    /// A socket that clients connect to already. Those that come while no server runs wait in it.
    pub(super) socket: Option<TcpListener>,
    /// Where the manager hears of the server.
    manager: Option<UnixDatagram>,
}

impl Service {
    /// Takes what the environment names. To be called before the process gives up making sockets.
    ///
    /// # Errors
    ///
    /// What was given is not one listening TCP socket, or the manager cannot be reached.
    pub(super) fn of_environment() -> Result<Self, String> {
        let mut given = ListenFd::from_env();
        let socket = match given.len() {
            0 => None,
            1 => given.take_tcp_listener(0).map_err(|error| {
                format!("the socket that the service manager gives is not a listening TCP socket: {error}")
            })?,
            more => return Err(format!("the service manager gives {more} sockets, and the server takes one")),
        };
        let manager = sys::variable("NOTIFY_SOCKET").map(|path| {
            reached(&path).map_err(|error| format!("the service manager cannot be reached at `{path}`: {error}"))
        });
        Ok(Self { socket, manager: manager.transpose()? })
    }

    /// Says that clients are let in.
    pub(super) fn ready(&self) {
        self.say("READY=1\nSTATUS=serving");
    }

    /// Says that the server ends, and answers what it was asked before.
    pub(super) fn stopping(&self) {
        self.say("STOPPING=1\nSTATUS=answering what was asked");
    }

    /// A manager that hears nothing of it goes by its own deadlines.
    fn say(&self, state: &str) {
        if let Some(manager) = &self.manager {
            let _ = manager.send(state.as_bytes());
        }
    }
}

/// The manager's socket: a path, or a name of Linux that begins with `@`.
fn reached(path: &str) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    match path.strip_prefix('@') {
        Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => socket.connect(path)?,
    }
    // It must not hold up a request.
    socket.set_nonblocking(true)?;
    Ok(socket)
}
