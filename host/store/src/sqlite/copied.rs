//! A copy that `backup` wrote: it is only read, and checked.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use harness_sys::digest::digest_of;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use super::error::{Fault, describe};
use super::open::{OpenError, schema_of, unusable};
use crate::StoreError;

/// What is reported of one file, at most.
const MAX_PROBLEMS: usize = 20;

/// A copy of a store. Nothing is written to it, and no file is created beside it.
#[derive(Debug)]
pub struct Backup {
    connection: Connection,
    path: PathBuf,
    version: i32,
}

impl Backup {
    /// Opens a copy.
    ///
    /// # Errors
    ///
    /// It cannot be read, it is not one of Harness, or a newer version of Harness wrote it.
    pub fn open(file: &Path) -> Result<Self, OpenError> {
        let path = harness_sys::real_path(file).map_err(|error| OpenError::File { path: file.to_owned(), error })?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW
            | OpenFlags::SQLITE_OPEN_URI;
        let connection = Connection::open_with_flags(address(&path), flags).map_err(|error| unusable(&path, &error))?;
        let version = schema_of(&connection, &path)?;
        Ok(Self { connection, path, version })
    }

    /// The version of its schema.
    pub fn version(&self) -> i32 {
        self.version
    }

    /// Checks all pages and indexes, that each blob has its digest, and that each log has all of its lines. Returns what is
    /// wrong: at most 20 sentences, and none where it is whole.
    pub fn problems(&self) -> Vec<String> {
        let mut found = self.look().unwrap_or_else(|error| vec![describe(&error)]);
        found.truncate(MAX_PROBLEMS);
        found
    }

    fn look(&self) -> rusqlite::Result<Vec<String>> {
        let mut statement = self.connection.prepare("PRAGMA integrity_check(20)")?;
        let texts = statement.query_map([], |row| row.get::<_, String>(0))?;
        let mut found =
            texts.filter(|text| text.as_ref().is_ok_and(|text| text != "ok")).collect::<Result<Vec<_>, _>>()?;
        if !found.is_empty() {
            return Ok(found);
        }
        let mut statement = self.connection.prepare("SELECT digest, bytes FROM blobs")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (digest, bytes): (String, Vec<u8>) = (row.get(0)?, row.get(1)?);
            if digest_of(&bytes) != digest {
                found.push(format!("the blob `{digest}` has other bytes"));
            }
        }
        let lines = "SELECT count(*) FROM logs WHERE length != (SELECT count(*) FROM lines WHERE lines.log = logs.id)";
        let short: i64 = self.connection.query_row(lines, [], |row| row.get(0))?;
        if short > 0 {
            found.push(format!("{short} logs do not have all of their lines"));
        }
        Ok(found)
    }

    /// The keys of a bucket with their values, in the order of the keys.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn values(&self, bucket: &str, mut each: impl FnMut(&str, &[u8])) -> Result<(), StoreError> {
        let mut read = || -> rusqlite::Result<()> {
            let mut statement =
                self.connection.prepare("SELECT key, value FROM entries WHERE bucket = ?1 ORDER BY key")?;
            let mut rows = statement.query([bucket])?;
            while let Some(row) = rows.next()? {
                let (key, value): (String, Vec<u8>) = (row.get(0)?, row.get(1)?);
                each(&key, &value);
            }
            Ok(())
        };
        read().map_err(|error| Fault::from(error).into())
    }

    /// Whether it has a blob.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn has_blob(&self, digest: &str) -> Result<bool, StoreError> {
        let sql = "SELECT 1 FROM blobs WHERE digest = ?1";
        let found = self.connection.query_row(sql, [digest], |_| Ok(())).optional();
        found.map(|found| found.is_some()).map_err(|error| Fault::from(error).into())
    }

    /// How many values, blobs and lines of logs it has.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn counts(&self) -> Result<(u64, u64, u64), StoreError> {
        let sql = "SELECT (SELECT count(*) FROM entries), (SELECT count(*) FROM blobs), (SELECT count(*) FROM lines)";
        let counted = self.connection.query_row(sql, [], |row| {
            let number = |at| row.get::<_, i64>(at).map(|number| u64::try_from(number).unwrap_or(0));
            Ok((number(0)?, number(1)?, number(2)?))
        });
        counted.map_err(|error| Fault::from(error).into())
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The file as a URI. Immutable: SQLite looks for no write-ahead log, and takes no lock.
fn address(path: &Path) -> String {
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.".contains(byte) {
            uri.push(char::from(*byte));
        } else {
            // Writing to a text does not fail.
            let _ = write!(uri, "%{byte:02x}");
        }
    }
    uri.push_str("?immutable=1");
    uri
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests")]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::{Expected, Sqlite, Store};

    /// A copy at a path that a URI would read otherwise.
    async fn copied() -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let store = Sqlite::open(folder.path()).unwrap();
        store.put("b", "k", Expected::Absent, b"v".to_vec()).await.unwrap();
        store.put_blob(b"bytes".to_vec()).await.unwrap();
        store.append("log", 0, vec![b"1".to_vec(), b"2".to_vec()]).await.unwrap();
        let path = folder.path().join("a ?#%20.db");
        store.backup(&path).await.unwrap();
        (folder, path)
    }

    #[tokio::test]
    async fn a_copy_is_read_and_nothing_is_written_beside_it() {
        let (folder, path) = copied().await;
        let backup = Backup::open(&path).unwrap();
        assert_eq!((backup.version(), backup.problems()), (1, Vec::<String>::new()));
        assert_eq!(backup.counts().unwrap(), (1, 1, 2));
        let mut values = Vec::new();
        backup.values("b", |key, value| values.push((key.to_owned(), value.to_vec()))).unwrap();
        assert_eq!(values, [("k".to_owned(), b"v".to_vec())]);
        assert_eq!(backup.has_blob(&digest_of(b"bytes")), Ok(true));
        assert_eq!(backup.has_blob(&digest_of(b"others")), Ok(false));
        let beside: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(beside.iter().filter(|name| name.to_str().unwrap().starts_with("a ?")).count(), 1, "{beside:?}");
    }

    #[tokio::test]
    async fn what_is_wrong_with_a_copy_is_named() {
        let (_folder, path) = copied().await;
        let change = |sql: &str| Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let problems = || Backup::open(&path).unwrap().problems();
        change("UPDATE blobs SET bytes = x'00'");
        let digest = digest_of(b"bytes");
        assert_eq!(problems(), [format!("the blob `{digest}` has other bytes")]);
        change("DELETE FROM blobs; DELETE FROM lines WHERE position = 1");
        assert_eq!(problems(), ["1 logs do not have all of their lines"]);
        change("DELETE FROM lines; DELETE FROM logs");
        assert_eq!(problems(), Vec::<String>::new());
        change("PRAGMA writable_schema=1; UPDATE sqlite_schema SET rootpage = 3 WHERE name = 'probe'");
        assert!(!problems().is_empty());
    }

    #[tokio::test]
    async fn what_is_no_copy_or_a_newer_one_is_refused() {
        let (folder, path) = copied().await;
        let why = |path: &Path| Backup::open(path).unwrap_err();
        Connection::open(&path).unwrap().pragma_update(None, "user_version", 2).unwrap();
        assert!(matches!(why(&path), OpenError::Newer { found: 2, supported: 1, .. }), "{}", why(&path));
        Connection::open(&path).unwrap().pragma_update(None, "application_id", 1).unwrap();
        assert!(matches!(why(&path), OpenError::Foreign { .. }));
        std::fs::write(folder.path().join("text"), "x".repeat(600)).unwrap();
        assert!(matches!(why(&folder.path().join("text")), OpenError::Foreign { .. }));
        assert!(matches!(why(&folder.path().join("none")), OpenError::File { .. }));
    }
}
