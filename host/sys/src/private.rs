//! Files of the operator's own, which nobody else reads: what commands keep between runs, such as logins.

use std::io::Result;
use std::path::Path;

use super::output::{self, Readers};

/// Writes a file that only its owner reads, as a whole, in a folder that only its owner opens. Both are created.
///
/// # Errors
///
/// What the system says.
pub fn write(path: &Path, text: &str) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    if let Some(folder) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    output::write(path, text, Readers::Owner, &[])
}

/// Removes a file. Returns whether it was there.
///
/// # Errors
///
/// What the system says.
pub fn remove(path: &Path) -> Result<bool> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn nobody_else_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/file");
        write(&path, "one").unwrap();
        write(&path, "two").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        assert!(remove(&path).unwrap() && !remove(&path).unwrap());
    }
}
