//! Sockets in the file system that programs of the same user connect to.

use std::fs::Metadata;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::process::umask;

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
    /// To be called before the process has other threads: files that they make at the same time are for the user alone.
    ///
    /// # Errors
    ///
    /// What the system says; `AlreadyExists` for a file that is no socket, `AddrInUse` for a socket at which someone
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
        let before = umask(Mode::from_raw_mode(0o177));
        let bound = UnixListener::bind(&path);
        umask(before);
        let listener = bound?;
        let of = number(&std::fs::symlink_metadata(&path)?);
        Ok((Self { path, of }, listener))
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

fn number(facts: &Metadata) -> (u64, u64) {
    (facts.dev(), facts.ino())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

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
