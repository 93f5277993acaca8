//! A copy of a database while it is in use.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::error::Fault;
use super::open::Database;
use crate::StoreError;

impl Database {
    /// Writes a copy of one moment to a new file, which only its owner reads. If it fails, there is no file.
    pub(super) fn copy(&self, to: &Path) -> Result<(), Fault> {
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => StoreError::Full,
            _ => StoreError::Failed(format!("cannot write the backup: {error}")),
        };
        let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to).map_err(failed)?;
        let copied = self.vacuum_into(to).and_then(|()| Ok(made.sync_all().map_err(failed)?));
        let copied =
            copied.and_then(|()| Ok(File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)?));
        if copied.is_err() {
            let _ = harness_sys::private::remove(to);
        }
        copied
    }

    fn vacuum_into(&self, to: &Path) -> Result<(), Fault> {
        let Some(to) = to.to_str() else {
            return Err(StoreError::Failed("cannot write the backup: its path is not UTF-8".to_owned()).into());
        };
        let connection = self.copier()?;
        // It reads one moment, as any reader does: neither it nor a write waits for the other.
        connection.execute("VACUUM INTO ?1", [to])?;
        Ok(())
    }
}
