//! The keeper's program, which the build script compiles (`host/keeper`), as an open file that is in memory alone.

use std::fs::File;
use std::io;
use std::io::Write as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;

static BYTES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/keeper"));

/// What is run. Made when it is first asked for.
///
/// # Errors
///
/// Where the machine runs nothing from memory.
pub(super) fn program() -> io::Result<BorrowedFd<'static>> {
    static PROGRAM: OnceLock<Result<OwnedFd, Errno>> = OnceLock::new();
    match PROGRAM.get_or_init(|| make().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))) {
        Ok(program) => Ok(program.as_fd()),
        Err(error) => Err((*error).into()),
    }
}

fn make() -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Older kernels than 6.3 run it without the request to run it, and do not know the flag.
    let made = match memfd_create("harness-keeper", flags | MemfdFlags::EXEC) {
        Err(Errno::INVAL) => memfd_create("harness-keeper", flags),
        made => made,
    }?;
    let mut file = File::from(made);
    file.write_all(BYTES)?;
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_writes_it() {
        let program = program().unwrap();
        assert_eq!(rustix::io::write(program, b"x"), Err(Errno::PERM));
    }
}
