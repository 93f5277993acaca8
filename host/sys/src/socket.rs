//! Sockets in the file system that programs of the same user connect to.

use std::fs::Metadata;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Connections that wait to be accepted, as the standard library has it.
const BACKLOG: i32 = 128;

/// A socket that this process made, for its own user alone.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
    /// Device and number of the file.
    of: (u64, u64),
}

impl Socket {
    /// Makes a socket and listens at it. A socket at which nobody listens any more is replaced, and nothing else.
    ///
    /// # Errors
    ///
    /// What the system says; `Unsupported` where it lets others connect; `AlreadyExists` for a file that is no socket, `AddrInUse` for a socket at which someone
    /// listens.
    pub fn listen(path: &Path) -> Result<(Self, UnixListener)> {
        // A later change of the working folder is not to lead elsewhere.
        let path = std::path::absolute(path)?;
        match std::fs::symlink_metadata(&path) {
            Ok(facts) if !facts.file_type().is_socket() => {
                return Err(Error::new(ErrorKind::AlreadyExists, "there is a file of this name that is no socket"));
            }
            Ok(_) => match UnixStream::connect(&path) {
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => std::fs::remove_file(&path)?,
                _ => return Err(Error::new(ErrorKind::AddrInUse, "another process uses this socket")),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let listener = bind(&path)?;
        let facts = std::fs::symlink_metadata(&path)?;
        let socket = Self { path, of: number(&facts) };
        if facts.permissions().mode() & 0o077 != 0 {
            socket.remove()?;
            return Err(Error::new(ErrorKind::Unsupported, "this system lets other users connect to the socket"));
        }
        Ok((socket, listener))
    }

    /// Where it is, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it, unless something else has its name by now.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn remove(&self) -> Result<()> {
        match std::fs::symlink_metadata(&self.path) {
            Ok(facts) if number(&facts) == self.of => std::fs::remove_file(&self.path),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// A socket that nobody else connects to, at any moment. Its file gets the mode of the socket, as Linux does it. The mask of
/// the process stays as it is: it would hold for the files of all threads.
fn bind(path: &Path) -> Result<UnixListener> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

fn number(facts: &Metadata) -> (u64, u64) {
    (facts.dev(), facts.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_for_its_user_and_replaces_only_one_that_nobody_uses() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        std::fs::write(&path, "a file").unwrap();
        assert_eq!(Socket::listen(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a file");
        std::fs::remove_file(&path).unwrap();

        let (_first, listener) = Socket::listen(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Socket::listen(&path).unwrap_err().kind(), ErrorKind::AddrInUse);
        drop(listener);
        let (second, _listener) = Socket::listen(&path).unwrap();
        second.remove().unwrap();
        assert!(!path.exists());
        second.remove().unwrap();
    }

    /// What other threads make meanwhile has the mode that they ask for.
    #[test]
    fn the_mask_of_the_process_stays() {
        let folder = tempfile::tempdir().unwrap();
        let before = umask();
        let listening = std::thread::scope(|threads| {
            let bind = threads.spawn(|| {
                for number in 0..200 {
                    Socket::listen(&folder.path().join(number.to_string())).unwrap();
                }
            });
            let mut seen = std::collections::BTreeSet::from([umask()]);
            while !bind.is_finished() {
                seen.insert(umask());
            }
            seen
        });
        assert_eq!(listening, std::collections::BTreeSet::from([before]));
    }

    /// The mask as the system tells it, without changing it.
    fn umask() -> String {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        status.lines().find_map(|line| line.strip_prefix("Umask:")).unwrap().trim().to_owned()
    }

    #[test]
    fn what_has_the_name_by_now_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let (socket, _listener) = Socket::listen(&path).unwrap();
        std::fs::rename(&path, folder.path().join("moved")).unwrap();
        std::fs::write(&path, "a file").unwrap();
        socket.remove().unwrap();
        assert!(path.exists());
    }
}
