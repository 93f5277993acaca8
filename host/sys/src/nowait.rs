//! Reading and writing of a stream that never wait, and leave it as it is: `O_NONBLOCK` would change it for every other
//! process that has it open.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsFd;

use rustix::io::{ReadWriteFlags, preadv2, pwritev2};

/// Where a stream is: wherever it is now.
const HERE: u64 = u64::MAX;

/// Reads what there is. Zero bytes are the end.
///
/// # Errors
///
/// [`WouldBlock`](io::ErrorKind::WouldBlock) if nothing is there yet, [`Unsupported`](io::ErrorKind::Unsupported) if this
/// stream is of a kind that can only be waited for (a terminal; a pipe before Linux 6.4), and what the system says.
pub fn read(stream: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(preadv2(stream, &mut [IoSliceMut::new(buffer)], HERE, ReadWriteFlags::NOWAIT)?)
}

/// Writes as much as there is room for.
///
/// # Errors
///
/// As for [`read`].
pub fn write(stream: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(pwritev2(stream, &[IoSlice::new(bytes)], HERE, ReadWriteFlags::NOWAIT)?)
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Both ends of a stream, of each kind that programs are connected by.
    fn streams() -> Vec<(std::fs::File, std::fs::File)> {
        let (from, to) = rustix::pipe::pipe().unwrap();
        let (one, other) = UnixStream::pair().unwrap();
        vec![
            (from.into(), to.into()),
            (std::os::fd::OwnedFd::from(one).into(), std::os::fd::OwnedFd::from(other).into()),
        ]
    }

    #[test]
    fn nothing_waits_for_the_other_end() {
        for (mut from, mut to) in streams() {
            let mut buffer = [0; 8];
            assert_eq!(read(&from, &mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
            to.write_all(b"some").unwrap();
            assert_eq!(read(&from, &mut buffer).unwrap(), 4);
            assert_eq!(&buffer[..4], b"some");
            // Until there is no room left.
            let (chunk, mut written) = (vec![7; 100_000], 0);
            let full = loop {
                match write(&to, &chunk) {
                    Ok(count) => written += count,
                    Err(error) => break error,
                }
            };
            assert_eq!(full.kind(), ErrorKind::WouldBlock);
            let mut all = vec![0; written];
            from.read_exact(&mut all).unwrap();
            assert!(all.iter().all(|byte| *byte == 7));
            drop(to);
            assert_eq!(read(&from, &mut buffer).unwrap(), 0);
        }
    }

    #[test]
    fn who_has_the_stream_too_still_waits() {
        let (from, to) = rustix::pipe::pipe().unwrap();
        let _ = read(&from, &mut [0; 8]);
        let _ = write(&to, b"x");
        let flags = |end: &std::os::fd::OwnedFd| rustix::fs::fcntl_getfl(end).unwrap();
        assert!(!flags(&from).contains(rustix::fs::OFlags::NONBLOCK));
        assert!(!flags(&to).contains(rustix::fs::OFlags::NONBLOCK));
    }

    #[test]
    fn a_stream_that_can_only_be_waited_for_says_so() {
        let terminal = std::fs::File::options().read(true).write(true).open("/dev/ptmx").unwrap();
        assert_eq!(read(&terminal, &mut [0; 8]).unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(write(&terminal, b"x").unwrap_err().kind(), ErrorKind::Unsupported);
    }
}
