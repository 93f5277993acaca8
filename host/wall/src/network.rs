//! The network that a command is in.
//!
//! Of commands that are granted none: a namespace without any address, route or socket. Filters refuse the sockets already.
//! This is for what the kernel shows without one: `/proc/net` lists the connections, addresses and neighbours of a namespace
//! to everybody in it.
//!
//! Of commands that are granted some hosts: a namespace with the loopback interface alone, in which the host [listens]: what is
//! connected to there, the host connects on. There is no other way out, whatever a program makes of names and addresses.
//!
//! [listens]: LocalNetwork

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::offers::Namespaces;

/// A network of a command's own, in which the host listens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LocalNetwork {
    /// Where, in 127.0.0.0/8. A [listener](super::Held::listeners) for each, in this order.
    pub listen: Vec<SocketAddrV4>,
    /// The names that the command finds addresses for; no others.
    pub names: Vec<(String, Ipv4Addr)>,
}

impl LocalNetwork {
    /// The file in which a command looks names up.
    pub(super) fn hosts(&self) -> Vec<u8> {
        let names = self.names.iter().map(|(name, address)| format!("{address} {name}\n"));
        std::iter::once("127.0.0.1 localhost\n".to_owned()).chain(names).collect::<String>().into_bytes()
    }
}

/// The network that the processes of a command are in.
#[derive(Debug, Clone)]
pub(super) enum Network {
    /// The machine's own.
    Machine,
    /// A new and empty one with each command: who makes namespaces within a user namespace enters none that another one made.
    New,
    /// A new one in which the host listens at these addresses.
    Local(Vec<SocketAddrV4>),
    /// One for all commands of this process. A new one costs a millisecond, and nothing can be left in an empty one:
    /// no command in it makes a socket.
    Empty(BorrowedFd<'static>),
}

impl Network {
    /// The one of commands without a network, as far as the machine has one.
    pub(super) fn none(namespaces: Namespaces) -> Self {
        match namespaces {
            Namespaces::Own => empty().map_or(Self::Machine, Self::Empty),
            Namespaces::User => Self::New,
        }
    }

    /// Whether it is made together with the keeper.
    pub(super) fn is_new(&self) -> bool {
        matches!(self, Self::New | Self::Local(_))
    }

    /// Enters it, where it is there already, and hands the sockets that listen in it to the host. For the calling thread
    /// alone; allocates nothing.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub(super) fn enter(&self, host: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
        match self {
            Self::Machine | Self::New => Ok(()),
            Self::Empty(network) => move_into_link_name_space(*network, Some(LinkNameSpaceType::Network)),
            Self::Local(addresses) => {
                begin_loopback()?;
                let host = host.ok_or(Errno::NOTCONN)?;
                addresses.iter().try_for_each(|address| hand_over(host, &listen(*address)?))
            }
        }
    }
}

/// Connections that wait to be accepted, of one address.
const WAITING: i32 = 128;

/// A socket that listens in the network of the calling process.
fn listen(address: SocketAddrV4) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, WAITING)?;
    Ok(socket)
}

/// Has the interface of a new network that leads nowhere else take part.
fn begin_loopback() -> Result<(), Errno> {
    let any = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: a request is numbers alone.
    #[expect(unsafe_code, reason = "there is no function for this call")]
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, letter) in request.ifr_name.iter_mut().zip(c"lo".to_bytes_with_nul()) {
        *place = letter.cast_signed();
    }
    request.ifr_ifru.ifru_flags = UP;
    // SAFETY: the kernel reads the request, which is as large as it expects.
    #[expect(unsafe_code, reason = "as above")]
    let done = unsafe { libc::ioctl(any.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) };
    if done == 0 { Ok(()) } else { Err(super::last_error()) }
}

/// As in `linux/if.h`: up, and the loopback interface.
const UP: libc::c_short = 0x1 | 0x8;

/// Sends a file to the host. Allocates nothing.
fn hand_over(host: BorrowedFd<'_>, file: &OwnedFd) -> Result<(), Errno> {
    let files = [file.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut message = SendAncillaryBuffer::new(&mut space);
    if !message.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(Errno::NOBUFS);
    }
    rustix::net::sendmsg(host, &[IoSlice::new(&[1])], &mut message, SendFlags::NOSIGNAL).map(drop)
}

/// A pair of sockets over which the keeper hands files to the host: the host's, and the keeper's.
pub(super) fn pair() -> Result<(OwnedFd, OwnedFd), Errno> {
    let flags = SocketFlags::CLOEXEC;
    let (host, keeper) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    Ok((super::family::above_streams(host)?, super::family::above_streams(keeper)?))
}

/// Takes what the keeper handed over, when nobody holds the other end any more.
///
/// # Errors
///
/// Those of the system; `EPROTO` where it is not as many files as were asked for.
pub(super) fn receive(from: &OwnedFd, count: usize) -> Result<Vec<OwnedFd>, Errno> {
    let mut files = Vec::with_capacity(count);
    while files.len() < count {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut message = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let read =
            rustix::net::recvmsg(from, &mut [IoSliceMut::new(&mut byte)], &mut message, RecvFlags::CMSG_CLOEXEC)?;
        for part in message.drain() {
            if let RecvAncillaryMessage::ScmRights(handed) = part {
                files.extend(handed);
            }
        }
        if read.bytes == 0 {
            return Err(Errno::PROTO);
        }
    }
    files.into_iter().map(super::family::above_streams).collect()
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
