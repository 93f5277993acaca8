//! The network of commands that are granted none: a namespace without any address, route or socket.
//!
//! Filters refuse the sockets already. This is for what the kernel shows without one: `/proc/net` lists the connections,
//! addresses and neighbours of a namespace to everybody in it.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::offers::Namespaces;

/// The network that the processes of a command are in.
#[derive(Debug, Clone, Copy)]
pub(super) enum Network {
    /// The host's own.
    Hosts,
    /// A new one with each command: who makes namespaces within a user namespace enters none that another one made.
    New,
    /// One for all commands of this process. A new one costs a millisecond, and nothing can be left in an empty one:
    /// no command in it makes a socket.
    Empty(BorrowedFd<'static>),
}

impl Network {
    /// The one of commands without a network, as far as the machine has one.
    pub(super) fn none(namespaces: Namespaces) -> Self {
        match namespaces {
            Namespaces::Own => empty().map_or(Self::Hosts, Self::Empty),
            Namespaces::User => Self::New,
        }
    }

    /// Enters it, where it is there already. For the calling thread alone; allocates nothing.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub(super) fn enter(self) -> Result<(), Errno> {
        match self {
            Self::Hosts | Self::New => Ok(()),
            Self::Empty(network) => move_into_link_name_space(network, Some(LinkNameSpaceType::Network)),
        }
    }
}

/// Made when it is first asked for, by a thread that ends with it.
fn empty() -> Option<BorrowedFd<'static>> {
    static EMPTY: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let make = || {
        let maker = std::thread::Builder::new().name("empty-network".to_owned()).spawn(make);
        maker.ok()?.join().ok()?.ok()
    };
    EMPTY.get_or_init(make).as_ref().map(|network| network.as_fd())
}

fn make() -> Result<OwnedFd, Errno> {
    // SAFETY: the flag is that of a namespace, and this thread ends here.
    #[expect(unsafe_code, reason = "as where it is declared")]
    unsafe {
        super::family::unshare(libc::CLONE_NEWNET)?;
    }
    rustix::fs::openat(CWD, c"/proc/thread-self/ns/net", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}
